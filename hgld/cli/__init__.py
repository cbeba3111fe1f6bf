"""The command line: one verb a stage, ``run``, ``status``, ``doctor`` and the tool groups.

Only this package prints, and only this module exits. Data goes to stdout, progress and notices to
stderr; an error is one line. Nothing heavy is imported before a command needs it.
"""

import math
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld import __version__
from hgld.cli import evaluations, labels, reviews, shards
from hgld.cli.arguments import AsJson, Force, Now, PipelineFile, Settings, Work
from hgld.cli.output import open_streams, progress
from hgld.cli.runners import name_to_sign, open_runner, require_names
from hgld.errors import DISK_FULL, HgldError, InvalidData, Resumable, UsageError
from hgld.pipeline.stages import STAGES, stage_names
from hgld.stopping import handle_with, ignore_requests

if TYPE_CHECKING:
    from hgld.cli.accepting import Edit
    from hgld.pipeline.run import Runner

__all__ = ["app", "guarded", "main"]

INTERRUPTED = 130

app = typer.Typer(
    name="hgld",
    help="Hierarchical image retrieval data, and its exact measurement.\n\n"
    "Try: hgld run pipelines/quickstart.toml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Entry point: run a command; an error is one line on stderr and an exit code."""
    open_streams()
    handle_with(_stop, (signal.SIGTERM, signal.SIGHUP))
    code = guarded(app)
    ignore_requests()  # as Python ends, any other handler is undone
    sys.exit(guarded(_flush) or code)


class _Stopped(SystemExit):
    """SIGTERM or SIGHUP came. No Exception: a library's ``except Exception`` would swallow it."""

    code = Resumable.exit_code


def _stop(number: int, _: object) -> None:
    raise _Stopped(f"stopped by {signal.Signals(number).name}")


def _flush() -> None:
    """Write out what is left; where the reader has gone (``| head -1``), end without a word."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)  # as Typer and rich do


def guarded(command: Callable[[], object]) -> int:
    """The exit code of a command."""
    try:
        command()
    except HgldError as error:
        typer.echo(f"hgld: {error}", err=True)
        return error.exit_code
    except OSError as error:
        typer.echo(f"hgld: {_os_error(error)}", err=True)
        return Resumable.exit_code if error.errno in DISK_FULL else 1
    except _Stopped as stop:
        typer.echo(f"hgld: {stop}; the same command goes on from here", err=True)
        return Resumable.exit_code
    except SystemExit as done:  # how Typer ends
        if done.code == INTERRUPTED:
            typer.echo("hgld: interrupted; the same command goes on from here", err=True)
        return done.code if isinstance(done.code, int) else 0
    return 0


def _os_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in DISK_FULL:
        return f"{where}the disk is full; make space and run the same command again"
    return f"{where}{error.strerror or error}"


@app.callback(invoke_without_command=True)
def show_version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Print the version where it is asked for; else look whether a command has its ground."""
    if version:
        typer.echo(__version__)
        raise typer.Exit
    require_names(sys.argv[1:])


@app.command()
def run(
    pipeline: PipelineFile,
    settings: Settings = None,
    work: Work = None,
    now: Now = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan only.")] = False,
    until: Annotated[
        str | None, typer.Option("--until", metavar="STAGE", help="Stop after this stage.")
    ] = None,
) -> None:
    """Run every stage that is not fresh, in order."""
    from hgld.cli.overview import print_outcome, print_plan
    from hgld.pipeline.plan import plan

    runner = open_runner(pipeline, settings, work, now)
    if dry_run:
        print_plan(plan(runner))
        return
    if _started_by_torchrun():
        raise UsageError(
            "torchrun starts one stage, train: first `hgld run PIPELINE --until export`, then "
            "`torchrun --nproc_per_node N -m hgld train PIPELINE`, then `hgld run PIPELINE`"
        )
    with progress():
        ran = runner.run(until)
    print_outcome(runner, ran, until)


@app.command()
def status(
    pipeline: PipelineFile, settings: Settings = None, work: Work = None, as_json: AsJson = False
) -> None:
    """Show which stages are fresh, stale (and why) or missing."""
    from hgld.cli.overview import print_status

    print_status(open_runner(pipeline, settings, work, None), as_json)


@app.command()
def accept(
    pipeline: PipelineFile,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Default: all that were changed.", show_default=False),
    ] = None,
    settings: Settings = None,
    work: Work = None,
    yes: Annotated[bool, typer.Option("--yes", help="Take them without a question.")] = False,
) -> None:
    """Use tables that you edited, after showing the changed rows."""
    from hgld.cli.accepting import accept_edits

    runner = open_runner(pipeline, settings, work, None)
    taken = accept_edits(runner, files or (), lambda edits: _confirm(edits, yes))
    for edit in taken:
        typer.echo(f"accepted {runner.workspace.path(edit.name)}", err=True)
    if not taken:
        typer.echo("nothing was accepted", err=True)


def _confirm(edits: "Sequence[Edit]", yes: bool) -> bool:
    for line in (line for edit in edits for line in edit.lines):
        typer.echo(line)
    if yes:
        return True
    if not sys.stdin.isatty():
        raise InvalidData("nothing was accepted: nobody can be asked here; add --yes")
    return typer.confirm("Use these edits?")


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Show versions, cores, GPU and disk, and what is missing."""
    from hgld.cli.doctor import print_doctor

    print_doctor(as_json)


def _stage_command(name: str) -> Callable[..., None]:
    def command(
        pipeline: PipelineFile,
        settings: Settings = None,
        work: Work = None,
        now: Now = None,
        force: Force = False,
    ) -> None:
        if _started_by_torchrun():
            raise UsageError(
                f"torchrun starts one stage, train; {name} spreads by itself where it can: "
                f"--set {name}.processes=N, or --set {name}.ray=ADDRESS on a cluster"
                if name in ("export", "evaluate")
                else f"torchrun starts one stage, train; run `hgld {name} {pipeline}`"
            )
        runner = open_runner(pipeline, settings, work, now)
        with progress():
            runner.run_one(name, force)

    return command


def _fetch_command(
    pipeline: PipelineFile,
    settings: Settings = None,
    work: Work = None,
    now: Now = None,
    force: Force = False,
    tars: Annotated[
        str | None,
        typer.Option("--tars", metavar="NUMBERS", help="Only these tars: 0-9 or 0,5-7."),
    ] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Print bytes, disk and time only.")
    ] = False,
    bandwidth: Annotated[
        float | None,
        typer.Option("--bandwidth", metavar="MB/S", help="With --estimate; default: measure it."),
    ] = None,
) -> None:
    chosen = [f'fetch.tars="{tars}"'] if tars is not None else []
    runner = open_runner(pipeline, [*(settings or ()), *chosen], work, now)
    if tars is not None and not runner.workspace.pipeline.fetch.downloads:
        raise UsageError(f"{pipeline}: --tars {tars}: its fetch.downloads list no tars")
    if bandwidth is not None and not (estimate and 0 < bandwidth < math.inf):
        raise UsageError("--bandwidth: expected megabytes a second above 0, with --estimate")
    if estimate:
        from hgld.cli.overview import print_estimate

        print_estimate(runner, bandwidth)
        return
    with progress():
        runner.run_one("fetch", force)


def _train_command(
    pipeline: PipelineFile,
    settings: Settings = None,
    work: Work = None,
    now: Now = None,
    force: Force = False,
) -> None:
    runner = open_runner(pipeline, settings, work, now)
    if not _started_by_torchrun():
        with progress():
            runner.run_one("train", force)
        return
    from hgld.train.ranks import joined

    with joined() as ranks:
        if ranks.leads:
            with progress():
                runner.run_one("train", force)
        else:
            runner.follow("train")


def _started_by_torchrun() -> bool:
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def _export_command(
    pipeline: PipelineFile,
    settings: Settings = None,
    work: Work = None,
    now: Now = None,
    force: Force = False,
    ray: Annotated[
        str | None,
        typer.Option("--ray", metavar="ADDRESS", help="Write on a Ray cluster; auto: of here."),
    ] = None,
) -> None:
    chosen = [f'export.ray="{ray}"'] if ray is not None else []
    _stage_command("export")(pipeline, [*(settings or ()), *chosen], work, now, force)


def _cluster_command(
    pipeline: PipelineFile,
    settings: Settings = None,
    work: Work = None,
    now: Now = None,
    force: Force = False,
    suggest: Annotated[
        str | None,
        typer.Option(
            "--suggest", metavar="FIRST:LAST[:STEP]", help="Only look which numbers fit well."
        ),
    ] = None,
) -> None:
    runner = open_runner(pipeline, settings, work, now)
    if suggest is None:
        with progress():
            runner.run_one("cluster", force)
        return
    from hgld.cli.reviewing import suggest_clusters

    with progress():
        measured, (best, why), path = suggest_clusters(runner, suggest)
    typer.echo(measured.to_string(index=False))
    typer.echo(f"suggested: cluster.clusters = {best}: {why}\ncurves: {path}")


def _review_command(
    pipeline: PipelineFile,
    sheets: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="SHEET",
            help="With --apply: CSV or .xlsx files; default: the work folder's sheets.",
            show_default=False,
        ),
    ] = None,
    settings: Settings = None,
    work: Work = None,
    now: Now = None,
    force: Force = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Read the sheets back into the decisions.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --apply: replace newer decisions, too.")
    ] = False,
    xlsx: Annotated[
        bool, typer.Option("--xlsx", help="Write the sheets as a workbook too: review.xlsx.")
    ] = False,
    html: Annotated[
        bool, typer.Option("--html", help="Write the sheet as a page too: review.html.")
    ] = False,
) -> None:
    runner = open_runner(pipeline, settings, work, now)
    if sheets and not apply:
        raise UsageError(f"{sheets[0]}: a sheet is only read with --apply")
    from hgld.cli import reviewing

    with progress():
        if apply:
            _apply_review(runner, sheets or (), yes)
        if xlsx:
            typer.echo(f"workbook: {reviewing.write_workbook(runner)}")
        if html:
            typer.echo(f"page: {reviewing.write_review_page(runner)}")
        runner.run_one("review", force)


def _apply_review(runner: "Runner", sheets: Sequence[Path], sure: bool) -> None:
    from hgld.cli.reviewing import apply_review

    who = name_to_sign(runner.workspace)
    added = apply_review(runner, who, sheets, sure)
    what = "1 decision" if added == 1 else f"{added} decisions"
    typer.echo(f"{what} added to {runner.workspace.path('decisions')}", err=True)


def _scrape_command(
    pipeline: PipelineFile,
    settings: Settings = None,
    work: Work = None,
    now: Now = None,
    force: Force = False,
    retry: Annotated[
        str | None,
        typer.Option("--retry", metavar="misses", help="Ask again for landmarks without labels."),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option("--refresh-older-than", metavar="DAYS", help="Ask again for what is older."),
    ] = None,
) -> None:
    again = [f'scrape.retry="{retry}"'] if retry is not None else []
    again += [f"scrape.refresh_older_than={days}"] if days is not None else []
    runner = open_runner(pipeline, [*(settings or ()), *again], work, now)
    if again and runner.workspace.pipeline.scrape.source != "wikimedia":
        raise UsageError(f'{pipeline}: only scrape.source = "wikimedia" can ask again')
    with progress():
        runner.run_one("scrape", force or bool(again))


_COMMANDS: dict[str, Callable[..., None]] = {
    "cluster": _cluster_command,
    "export": _export_command,
    "fetch": _fetch_command,
    "review": _review_command,
    "scrape": _scrape_command,
    "train": _train_command,
}
for _name in stage_names():
    _help = next(stage.help for stage in STAGES if stage.name == _name)
    app.command(_name, help=_help)(_COMMANDS.get(_name) or _stage_command(_name))

app.add_typer(evaluations.app)
app.add_typer(labels.app)
app.add_typer(reviews.app)
app.add_typer(shards.app)
