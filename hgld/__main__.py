"""``python -m hgld`` is the command line, so that torchrun can start it."""

from hgld.cli import main

if __name__ == "__main__":
    main()
