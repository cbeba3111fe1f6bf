"""Progress bars, notes and a line for each stage, on stderr while a command works.

Data goes to stdout, everything else to stderr. If stderr is not a terminal, a line every 30 s
replaces the progress bar.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Thread
from time import monotonic
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

from hgld.pipeline.lock import NEVER_RUN
from hgld.pipeline.run import Summary
from hgld.pipeline.stages import Stage
from hgld.tasks import Label
from hgld.words import count_text, duration_text, progress_text, wrapped

Item = TypeVar("Item")
NOTE_INDENT = 16  # columns before a note's text
LINE_S = 30.0  # between two lines of progress without a terminal
_lines: list[Event] = []  # the end of each block that prints lines now, outermost first
_silent_since: list[float] = []  # the time of the last line, or of the start of the stage
_bars: list[Console] = []  # those that show a progress bar now


def plain_console(stderr: bool = True) -> Console:
    """Return the console of progress, notes and errors, or that of data; text stays unchanged."""
    return Console(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)


class _Description(ProgressColumn):
    """The label of a progress; a label may change while it is shown."""

    def __init__(self, label: Label) -> None:
        super().__init__()
        self.label = label

    def render(self, task: Task) -> Text:
        """Return the label, indented below the stage's text."""
        return Text(" " * 10 + (self.label if isinstance(self.label, str) else self.label()))


def show_progress(
    items: Iterable[Item], label: Label, total: int | None, done: int = 0
) -> Iterator[Item]:
    """Show a progress bar on a terminal, a line now and then elsewhere."""
    console, began, before = plain_console(), monotonic(), done
    size = len(items) if total is None and isinstance(items, Sized) else total

    def describe() -> str:
        name = label if isinstance(label, str) else label()
        return f"{name}: {progress_text(done, size, monotonic() - began, before)}"

    if not console.is_terminal:
        with _lines_of(describe):
            for item in items:
                yield item
                done += 1
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
            yield from progress.track(items, total=size, completed=done)
        finally:
            _bars.remove(console)


@contextmanager
def _lines_of(describe: Callable[[], str]) -> Iterator[None]:
    """Print the description every LINE_S seconds while the block runs, unless an inner one prints.

    The seconds are counted over all blocks of a stage, so that ten models of 20 s show lines too.
    """
    ends = Event()

    def silent_s() -> float:
        return monotonic() - _silent_since[0] if _silent_since else 0.0

    def show() -> None:
        while not ends.wait(max(LINE_S - silent_s(), LINE_S / 30)):
            if _lines[-1:] == [ends] and silent_s() >= LINE_S:
                plain_console().print(f"{'':10}{describe()}", style="dim")
                _silent_since[:] = [monotonic()]

    if not _silent_since:
        _silent_since.append(monotonic())
    _lines.append(ends)
    Thread(target=show, daemon=True).start()
    try:
        yield
    finally:
        ends.set()
        _lines.remove(ends)


@contextmanager
def show_running(name: str) -> Iterator[None]:
    """Without a terminal, print now and then that the work runs, if it reports no progress."""
    began = monotonic()
    if plain_console().is_terminal:
        yield
        return
    try:
        with _lines_of(lambda: f"{name}: running for {duration_text(monotonic() - began)}"):
            yield
    finally:
        _silent_since.clear()


def show_note(text: str) -> None:
    """Print a note above a progress bar."""
    console = _bars[-1] if _bars else plain_console()
    _print_below(console, f"{'note: ':>{NOTE_INDENT}}", text, "yellow")


def _print_below(console: Console, head: str, text: str, style: str) -> None:
    """Print a text behind a head, its further lines indented; on a terminal it is wrapped."""
    lines = text.split("\n")
    if console.is_terminal:
        width = max(console.width - len(head), 20)
        lines = [part for line in lines for part in wrapped(line, width)]
    console.print(head + f"\n{'':{len(head)}}".join(lines), style=style)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Show each warning once, as a note."""
    seen = set[str]()

    def show(message: Warning | str, *_: object) -> None:
        if str(message) not in seen:
            seen.add(str(message))
            show_note(str(message))

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]  # it accepts and ignores more arguments
        yield


class Printer:
    """Prints a line for each stage of a run."""

    def __init__(self) -> None:
        self.console = plain_console()

    def starts(self, stage: Stage, reasons: Sequence[str]) -> None:
        """Print why the stage runs, unless it never ran."""
        if list(reasons) == [NEVER_RUN]:
            return
        more = f" (and {len(reasons) - 2} more)" if len(reasons) > 2 else ""
        _print_below(self.console, f"{stage.name:<9} ", f"{'; '.join(reasons[:2])}{more}", "dim")

    def working(self, stage: Stage) -> AbstractContextManager[None]:
        """Without a terminal, print now and then that the stage runs, if it reports no progress."""
        return show_running(stage.name)

    def finished(self, summary: Summary) -> None:
        """Print how many rows came in, went on and were dropped."""
        counts, (noun, *more) = "", summary.unit.split(" ")  # "class met"
        if summary.came_in is not None:
            counts = f"{count_text(summary.came_in, noun)} in, {summary.went_on:,} out, "
            counts += f"{summary.dropped:,} dropped, "
        elif noun:
            dropped = f", {summary.dropped:,} dropped" if summary.dropped else ""
            counts = f"{' '.join([count_text(summary.went_on, noun), *more])}{dropped}, "
        self.console.print(f"{summary.stage:<9} {counts}{summary.seconds:.1f} s")

    def fresh(self, stage: Stage) -> None:
        """Print that there is nothing to do."""
        self.console.print(f"{stage.name:<9} fresh", style="dim")

    def notice(self, text: str) -> None:
        """Print a note."""
        show_note(text)
