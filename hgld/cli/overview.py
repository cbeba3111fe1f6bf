"""Print the state, the plan, the download estimate and the outcome of a whole pipeline."""

import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import accumulate
from typing import Any

from rich.cells import cell_len
from rich.table import Table

from hgld.artifacts import ARTIFACTS, Folder
from hgld.cli.console import plain_console
from hgld.cli.output import print_json, print_wrapped
from hgld.errors import HgldError, Resumable
from hgld.pipeline.lock import foresee, left_over
from hgld.pipeline.plan import Plan, estimate_fetch, find_disks
from hgld.pipeline.run import Runner
from hgld.pipeline.running import read_running
from hgld.pipeline.stages import load_function
from hgld.words import count_text, duration_text, percent_text, size_text, wrapped


def print_status(runner: Runner, as_json: bool) -> None:
    """Print the state of every stage, and why."""
    running = read_running(runner.workspace.work)
    rows: dict[str, tuple[str, list[str]]] = {}
    for stage, now in foresee(runner.stages, runner.lock):
        state, reasons = str(now.state), [*now.reasons]
        # in the lock, a stage that another process runs looks like a stopped one
        if running is not None and stage.name == running.stage:
            state, reasons = "running", [running.describe()]
        elif state == "fresh":
            try:
                waits = runner.waits_for(stage)
            except HgldError as error:
                waits = str(error)  # a file of the labels is damaged
            state, reasons = ("waiting", [waits]) if waits else (state, reasons)
        rows[stage.name] = state, reasons
    for name, files in left_over(runner.stages, runner.workspace).items():
        state, reasons = rows.get(name, ("left out", []))
        rows[name] = state, [*reasons, f"left from other options: {', '.join(files)}"]
    if as_json:
        print_json({n: {"state": state, "reasons": why} for n, (state, why) in rows.items()})
        return
    for name, (state, reasons) in rows.items():
        print_wrapped(f"{name:<9} {state:<8} {'; '.join(reasons)}".rstrip(), 19)


def print_plan(plan: Plan) -> None:
    """Print stages with their files, downloads with their sizes, and disk space."""
    for stage, freshness in plan.stages:
        _print_row(stage.name, f"{freshness.state:<8} {stage.help}")
        _print_row("", "reads   " + (_files(stage.reads) or "-"))
        _print_row("", "writes  " + _files(stage.writes))
    for note in plan.notes:
        _print_row("note", note)
    groups: dict[str, list[int]] = {}  # sizes below the common address, numbered tars together
    for url, _, size_bytes in plan.downloads:
        name = re.sub(r"_\d+\.tar$", "_*.tar", url.removeprefix(plan.base_url))
        groups.setdefault(name, []).append(size_bytes)
    if groups:
        _print_row("download", f"from {plan.base_url}")
    for name, sizes in groups.items():
        _print_row("", f"{size_text(sum(sizes)):>7}  {len(sizes):>3} x {name}")
    for disk in plan.disks:
        need = f"at most {size_text(disk.need_bytes)} needed ({disk.what}), "
        where = f" in {disk.folder}" if len(plan.disks) > 1 else ""
        _print_row(
            "disk", f"{need * (disk.need_bytes > 0)}{size_text(disk.free_bytes)} free{where}"
        )
        if disk.need_bytes > disk.free_bytes:
            more = f"up to {size_text(disk.need_bytes - disk.free_bytes)} more"
            _print_row("", f"NOT ENOUGH: {more}; choose another {disk.chosen_by} or make space")
    _print_row("cost", plan.cost.describe())
    if not plan.is_counted:
        _print_row(
            "",
            "an example, as only collect counts the images; disk, bytes moved and hours grow in "
            "proportion",
        )
    _print_row("", "without download, scrape, training and the start of programs")


def plan_facts(plan: Plan) -> dict[str, Any]:
    """The plan as JSON values: stages with their files, downloads, disks."""
    return {
        "stages": {
            stage.name: {
                "state": freshness.state,
                "reasons": list(freshness.reasons),
                "reads": [ARTIFACTS[name].file for name in stage.reads],
                "writes": [ARTIFACTS[name].file for name in stage.writes],
            }
            for stage, freshness in plan.stages
        },
        "downloads": [
            {"url": url, "file": str(path), "bytes": size_bytes}
            for url, path, size_bytes in plan.downloads
        ],
        "disks": [
            {
                "folder": str(disk.folder),
                "need_bytes": disk.need_bytes,
                "free_bytes": disk.free_bytes,
            }
            for disk in plan.disks
        ],
        "costs": [asdict(plan.cost)],
        "images_counted": plan.is_counted,
        "notes": list(plan.notes),
    }


def _print_row(head: str, text: str) -> None:
    """Print a head of ten columns with its text beside it, wrapped to the terminal."""
    width = shutil.get_terminal_size().columns
    indent = 18 if text.startswith(("reads", "writes")) else 10
    print("\n".join(wrapped(f"{head:<10}{text}", width, indent)))


def _files(names: Iterable[str]) -> str:
    artifacts = [ARTIFACTS[name] for name in names]
    return ", ".join(a.file + "/" * isinstance(a, Folder) for a in artifacts)


def print_estimate(runner: Runner, megabytes_per_second: float | None) -> None:
    """Print how much a fetch loads and stores, and how long it takes at a bandwidth."""
    found, source = estimate_fetch(runner), runner.workspace.source
    disks = find_disks(runner.workspace, found)
    there = f"; {found.files - found.to_load:,} are there" if found.to_load < found.files else ""
    _print_row("listed", f"{count_text(found.files, 'file')}, {size_text(found.size_bytes)}{there}")
    to_load = count_text(found.to_load, "file")
    _print_row("to load", f"{to_load}, {size_text(found.to_load_bytes)}")
    peak = f"{size_text(found.stays_bytes)} when done, {size_text(found.peak_bytes)} on the way"
    _print_row("disk", f"{peak}; {size_text(disks[0].free_bytes)} free in {source}")
    _print_lack(found.peak_bytes - found.there_bytes - disks[0].free_bytes)
    shards, last = f"about {size_text(found.shards_bytes)} more, once export has run", disks[-1]
    url = runner.workspace.pipeline.export.out
    if url:
        place = f"; at {url}"
    elif len(disks) == 1:
        place = f": {size_text(found.most_bytes)} at most, in all"
    else:
        place = f"; {size_text(last.free_bytes)} free in {last.folder}"
    _print_row("shards", shards + place)
    if not url:
        _print_lack(last.need_bytes - last.free_bytes)
    _print_row("time", _fetch_time(runner, found.to_load_bytes, megabytes_per_second))


def _print_lack(size_bytes: int) -> None:
    if size_bytes > 0:
        _print_row("", f"NOT ENOUGH: {size_text(size_bytes)} more")


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


def print_outcome(runner: Runner, ran: int, until: str | None) -> None:
    """Print the metrics and the path of the report, if the run reached them."""
    if ran == 0:
        which = f"All stages up to {until}" if until else "All stages"
        plain_console().print(f"{which} are fresh; nothing to do.")
    names = [stage.name for stage in runner.stages]
    reached = names[: names.index(until) + 1] if until else names
    path = runner.workspace.path("evaluation")
    if "evaluate" in reached and path.exists():
        evaluation: Any = ARTIFACTS["evaluation"].read(path)
        console = plain_console(stderr=False)
        for number, table in enumerate(_metrics_tables(evaluation, console.width)):
            if number:
                console.print()
            console.print(table)
    report = runner.workspace.path("report") / "report.html"
    if "report" in reached and report.exists():
        print(f"report: {report}")


def _metrics_tables(evaluation: dict[str, Any], width: int) -> Iterator[Table]:
    """Yield tables of a row a metric and a column a run, in percent, with deviation over seeds.

    Each has as many runs as fit into the width; a name or number that is wider is not cut.
    """
    heads = ["%", *evaluation["metrics"]]
    columns = [heads]
    for name, run in evaluation["runs"].items():
        columns.append([name])
        for metric in evaluation["metrics"]:
            mean = run["mean"].get(metric)
            spread = (
                f" ± {percent_text(run['std'][metric])}"
                if "std" in run and mean is not None
                else ""
            )
            columns[-1].append(percent_text(mean, "-") + spread)
    while columns[1:]:
        widths = [max(map(cell_len, column)) for column in columns]
        ends = [*accumulate(2 + width for width in widths[1:])]
        fitting = max(1, sum(widths[0] + end <= width for end in ends))
        shown, columns = columns[: 1 + fitting], [heads, *columns[1 + fitting :]]
        # plain columns survive a pipe
        table = Table(box=None, pad_edge=False, width=widths[0] + ends[fitting - 1])
        for number, (head, *_) in enumerate(shown):
            table.add_column(head, justify="right" if number else "left")
        for cells in zip(*(cells for _, *cells in shown), strict=True):
            table.add_row(*cells)
        yield table
