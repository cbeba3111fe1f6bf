"""Entry point of ``hgld`` and ``python -m hgld``; torchrun needs the latter.

The imports take most of the first second, so an interrupt during them is reported in one line, too.
"""

import os
import signal
import sys

# Turns that a waiting thread of libgomp (PyTorch on Linux) spins: 0.1 to 0.5 ms, by processor. With
# its default of 300,000 a training takes twice the CPU time if other programs use the cores.
SPINS = "20000"
# On busy cores 20,000 takes twice as much as 2,000; on quiet ones 2,000 takes a tenth to a quarter
# longer.
BUSY_SPINS, BUSY_LOAD = "2000", 1.5  # processes that run or wait for each core


def main() -> None:
    """Import the command line and run a command."""
    if sys.platform == "win32":  # it has neither the locks (fcntl) nor SIGHUP
        sys.exit("hgld: needs Linux, found Windows; install it in WSL (wsl --install)")
    if sys.getfilesystemencoding() != "utf-8":  # of a locale; names of files would be misread
        sys.exit(
            f"hgld: names of files are read as {sys.getfilesystemencoding()}; set PYTHONUTF8=1"
        )
    if "OMP_WAIT_POLICY" not in os.environ:
        try:
            busy = os.getloadavg()[0] > BUSY_LOAD * (os.cpu_count() or 1)
        except OSError:  # without /proc
            busy = False
        os.environ.setdefault("GOMP_SPINCOUNT", BUSY_SPINS if busy else SPINS)
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
