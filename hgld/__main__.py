"""Entry point of ``hgld`` and ``python -m hgld``; torchrun needs the latter.

The imports take most of the first second, so an interrupt during them is reported in one line, too.
"""

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Import the command line and run a command."""
    try:
        from hgld import cli

        cli.main()
    except KeyboardInterrupt:
        # a second Ctrl-C must not replace the message by a traceback
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("hgld: interrupted before it began", file=sys.stderr)
        sys.exit(130)
    finally:
        # If an interrupt hits an exec of source text, CPython kills itself by SIGINT at exit even
        # though the interrupt was caught; a further exec resets that.
        exec("")


if __name__ == "__main__":
    main()
