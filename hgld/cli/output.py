"""The output of commands: JSON, rows with a head, CSV files, and progress on stderr.

Tables fit 80 columns; ``--json`` prints all of their content. Data goes to stdout, progress and
notes to stderr. Nothing heavy is imported before a command runs.
"""

import io
import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hgld.errors import UsageError
from hgld.words import wrapped

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 80


class _Log(io.TextIOWrapper):
    """stderr that ignores write errors: a full disk or a closed reader must not end the work."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def open_streams() -> None:
    """Make stdout and stderr accept all text, also if they are closed (``>&-``)."""
    odd = "backslashreplace"  # a path may hold any character
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _Log(sys.stderr.buffer, sys.stderr.encoding, odd, line_buffering=True)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=odd)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", errors=odd))


@contextmanager
def progress(work: str = "") -> Iterator[None]:
    """Show progress, notes and warnings of the block on stderr.

    Args:
        work: name of the block, if it may take long and report no progress; a stage has its own.
    """
    from hgld.cli.console import show_note, show_progress, show_running, warnings_as_notes
    from hgld.tasks import watched_by

    running = show_running(work) if work else nullcontext()
    with watched_by(show_progress, show_note), warnings_as_notes(), running:
        yield


def print_rows(rows: Iterable[tuple[str, str]], head_width: int) -> None:
    """Print heads with their texts beside them, wrapped to 80 columns."""
    for head, text in rows:
        for line in text.split("\n"):
            for part in wrapped(line, WIDTH - head_width) or [""]:
                typer.echo(f"{head:<{head_width}}{part}".rstrip())
                head = ""


def print_wrapped(text: str, indent: int, err: bool = False) -> None:
    """Print text; for a terminal, break its lines between words and indent what is below them."""
    if (sys.stderr if err else sys.stdout).isatty():
        width = max(shutil.get_terminal_size().columns, 2 * indent)
        text = "\n".join("\n".join(wrapped(line, width, indent)) for line in text.split("\n"))
    typer.echo(text, err=err)


def require_other(out: Path | None, *read: Path | None) -> None:
    """Refuse a file to write that is a folder, or that the command reads, before it works.

    Raises:
        InvalidData: it is a folder, a pipe or a device.
        UsageError: it is one of the files to read.
    """
    from hgld.artifacts import require_file

    if out is None:
        return
    require_file(out)
    for file in read:
        if file is not None and file.exists() and out.exists() and out.samefile(file):
            raise UsageError(f"--out {out}: the command reads this file; give a new one")


def write_sheets(tables: "Mapping[str, pd.DataFrame]", path: Path) -> None:
    """Write tables by title: as one workbook (.xlsx), else as CSVs, the others as PATH-TITLE.csv.

    Raises:
        UsageError: the package that writes workbooks is not installed.
    """
    from hgld.artifacts import atomic_path, write_csv
    from hgld.review.workbook import write_tables

    if path.suffix == ".xlsx":
        with atomic_path(path) as temporary:
            write_tables(tables, temporary)
        return
    for number, (title, table) in enumerate(tables.items()):
        write_csv(table, path.with_name(f"{path.stem}-{title}.csv") if number else path)


def print_json(document: object) -> None:
    """Print a document as JSON; nan and infinity, which JSON lacks, become null.

    Example:
        >>> print_json({"AP": float("nan"), "t": float("inf")})
        {
         "AP": null,
         "t": null
        }
    """
    typer.echo(json.dumps(_finite(document), indent=1, ensure_ascii=False))


def _finite(value: Any) -> Any:
    """Return the value in Python's own types, with None for nan and infinity."""
    if isinstance(value, Mapping):
        return {str(name): _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    if hasattr(value, "item"):  # numpy's numbers are not serialisable
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
