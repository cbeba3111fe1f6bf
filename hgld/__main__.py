"""Starts the command line: ``hgld``, and ``python -m hgld``, so that torchrun can start it.

The imports take most of the first second; an interrupt ends them in words, too.
"""

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Load the command line and run a command."""
    try:
        from hgld import cli

        cli.main()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("hgld: interrupted before it began", file=sys.stderr)
        sys.exit(130)
    finally:
        # CPython dies by SIGINT where a caught interrupt met the exec of a text; another undoes it.
        exec("")


if __name__ == "__main__":
    main()
