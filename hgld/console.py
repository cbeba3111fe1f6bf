"""What the command line shows while it works: progress bars, notes, a line a stage.

Data goes to stdout, everything else to stderr; progress bars only where stderr is a terminal.
"""

import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from hgld.counting import Summary
from hgld.lock import NEVER_RUN
from hgld.stages import Stage
from hgld.tasks import Label

__all__ = [
    "Printer",
    "show_note",
    "show_progress",
    "to_stderr",
    "to_stdout",
    "warnings_as_notes",
]

Item = TypeVar("Item")
NOTE_INDENT = 16  # columns before a note's text
_bars: list[Console] = []  # that show a progress bar at the moment


def to_stderr() -> Console:
    """Where progress, notes and errors go, as they are written."""
    return Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def to_stdout() -> Console:
    """Where data goes, as it is written."""
    return Console(highlight=False, soft_wrap=True, markup=False, emoji=False)


class _Description(ProgressColumn):
    """The label of a progress, as it is at the moment."""

    def __init__(self, label: Label) -> None:
        super().__init__()
        self.label = label

    def render(self, task: Task) -> Text:
        """The label below the stage's text."""
        return Text(" " * 10 + (self.label if isinstance(self.label, str) else self.label()))


def show_progress(items: Iterable[Item], label: Label, total: int | None) -> Iterator[Item]:
    """A progress bar on a terminal, nothing elsewhere."""
    console = to_stderr()
    if not console.is_terminal:
        yield from items
        return
    columns = (
        _Description(label),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        _bars.append(console)
        try:
            size = len(items) if total is None and isinstance(items, Sized) else total
            yield from progress.track(items, total=size)
        finally:
            _bars.remove(console)


def show_note(text: str) -> None:
    """Say what a person should know, above a progress bar; further lines stand below the first."""
    console = _bars[-1] if _bars else to_stderr()
    lines = text.split("\n")
    if console.is_terminal:
        lines = [part for line in lines for part in _wrapped(line, console.width - NOTE_INDENT)]
    below = "\n" + " " * NOTE_INDENT
    console.print(f"{'note: ':>{NOTE_INDENT}}{below.join(lines)}", style="yellow")


def _wrapped(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, max(width, 20), break_long_words=False, break_on_hyphens=False)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Show each warning once, as a note of one line."""
    seen = set[str]()

    def show(message: Warning | str, *_: object) -> None:
        if str(message) not in seen:
            seen.add(str(message))
            show_note(str(message))

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]  # it takes more than it needs
        yield


class Printer:
    """Prints one line a stage as the run goes on."""

    def __init__(self) -> None:
        self.console = to_stderr()

    def starts(self, stage: Stage, reasons: Sequence[str]) -> None:
        """Say why the stage runs, where that is not simply that it never did."""
        if list(reasons) == [NEVER_RUN]:
            return
        more = f" (and {len(reasons) - 2} more)" if len(reasons) > 2 else ""
        self.console.print(f"{stage.name:<9} {'; '.join(reasons[:2])}{more}", style="dim")

    def finished(self, summary: Summary) -> None:
        """Say what came in, went on and was dropped."""
        self.console.print(f"{summary.stage:<9} {_counts(summary)}{summary.seconds:.1f} s")

    def fresh(self, stage: Stage) -> None:
        """Say that there is nothing to do."""
        self.console.print(f"{stage.name:<9} fresh", style="dim")

    def notice(self, text: str) -> None:
        """Say what a person should know."""
        show_note(text)


def _counts(summary: Summary) -> str:
    if summary.came_in is None:
        dropped = f", {summary.dropped:,} dropped" if summary.dropped else ""
        return f"{summary.went_on:,} {summary.unit}{dropped}, " if summary.unit else ""
    return (
        f"{summary.came_in:,} {summary.unit} in, {summary.went_on:,} out, "
        f"{summary.dropped:,} dropped, "
    )
