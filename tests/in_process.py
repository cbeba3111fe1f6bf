"""Run a command of ``hgld`` in the process of a test."""

from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from typing import NamedTuple

from typer.main import get_command

from hgld.cli import app, guarded

COMMAND = get_command(app)  # made once: it takes a tenth of a command on a small folder


class Printed(NamedTuple):
    """What a command printed on stdout and stderr."""

    out: str
    err: str

    @property
    def said(self) -> str:
        """Its stderr, each run of blanks as one."""
        return " ".join(self.err.split())


def hgld(*words: object, code: int | None = 0) -> Printed:
    """Run a command with these arguments; it must end with the exit code, unless that is None."""
    out, err = (TextIOWrapper(BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        ended = guarded(lambda: COMMAND([str(word) for word in words]))
    printed = Printed(*(stream.buffer.getvalue().decode() for stream in (out, err)))
    assert code in (None, ended), f"exit code {ended}: {printed.err}"
    return printed
