"""The command line: one verb a stage, ``run``, ``status``, ``doctor`` and the tool groups.

Only this, ``hgld.console`` and ``hgld.tools`` print, and only this exits. Data goes to stdout,
progress and notices to stderr; an error is one line. Nothing heavy is imported before a command
needs it.
"""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from errno import ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld import __version__
from hgld.errors import HgldError, Resumable, UsageError
from hgld.stages import STAGES, stage_names
from hgld.tools import shards

if TYPE_CHECKING:
    from hgld.run import Runner

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

PipelineFile = Annotated[Path, typer.Argument(metavar="PIPELINE", help="The pipeline file (TOML).")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="STAGE.OPTION=VALUE", help="Override an option; repeatable."),
]
Work = Annotated[
    Path | None, typer.Option("--work", help="Work folder; default work/ + the pipeline's name.")
]
Now = Annotated[
    str | None, typer.Option("--now", metavar="DATE", help="Date written into outputs.")
]
Force = Annotated[bool, typer.Option("--force", help="Run the stage even if it is fresh.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def main() -> None:
    """Entry point: run a command; an error is one line on stderr and an exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a path may hold any character
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _stop)
    code = guarded(app)
    sys.exit(guarded(_flush) or code)


def _stop(number: int, _: object) -> None:
    raise Resumable(f"stopped by {signal.Signals(number).name}; the same command goes on from here")


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
        return 75 if error.errno == ENOSPC else 1
    except SystemExit as done:  # how Typer ends
        if done.code == INTERRUPTED:
            typer.echo("hgld: interrupted; the same command goes on from here", err=True)
        return done.code if isinstance(done.code, int) else 0
    return 0


def _os_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    if error.errno == ENOSPC:
        return f"{where}the disk is full; make space and run the same command again"
    return f"{where}{error.strerror or error}"


@app.callback(invoke_without_command=True)
def show_version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Print the version where it is asked for."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


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
    runner = _runner(pipeline, settings, work, now)
    if dry_run:
        from hgld import console
        from hgld.run import plan

        console.print_plan(plan(runner))
        return
    with _progress():
        ran = runner.run(until)
    _print_outcome(runner, ran, until)


@app.command()
def status(
    pipeline: PipelineFile, settings: Settings = None, work: Work = None, as_json: AsJson = False
) -> None:
    """Show which stages are fresh, stale (and why) or missing."""
    from hgld import console

    console.print_status(_runner(pipeline, settings, work, None), as_json)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Show versions, cores, GPU and disk, and what is missing."""
    from hgld import console

    console.print_doctor(as_json)


def _stage_command(name: str) -> Callable[..., None]:
    def command(
        pipeline: PipelineFile,
        settings: Settings = None,
        work: Work = None,
        now: Now = None,
        force: Force = False,
    ) -> None:
        runner = _runner(pipeline, settings, work, now)
        with _progress():
            runner.run_one(name, force)

    return command


def _review_command(
    pipeline: PipelineFile,
    settings: Settings = None,
    work: Work = None,
    now: Now = None,
    force: Force = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Read review.csv back into the decisions.")
    ] = False,
) -> None:
    runner = _runner(pipeline, settings, work, now)
    if apply:
        _apply_review(runner)
    with _progress():
        runner.run_one("review", force)


def _apply_review(runner: "Runner") -> None:
    added = runner.apply_review(runner.workspace.pipeline.review.who or _login_name())
    what = "1 decision" if added == 1 else f"{added} decisions"
    typer.echo(f"{what} added to {runner.workspace.path('decisions')}", err=True)


def _login_name() -> str:
    from getpass import getuser

    try:
        return getuser()
    except (KeyError, OSError):
        raise UsageError("this login has no name; say who decides: --set review.who=NAME") from None


for _name in stage_names():
    _help = next(stage.help for stage in STAGES if stage.name == _name)
    app.command(_name, help=_help)(_review_command if _name == "review" else _stage_command(_name))

app.add_typer(shards.app)


def _runner(
    pipeline_file: Path, settings: Sequence[str] | None, work: Path | None, now: str | None
) -> "Runner":
    from hgld import console
    from hgld.config import load_pipeline
    from hgld.lock import Workspace
    from hgld.run import Runner

    pipeline = load_pipeline(pipeline_file, settings or ())
    workspace = Workspace(pipeline_file, pipeline, work or Path("work") / pipeline_file.stem)
    return Runner(workspace, _date(now), console.Printer())


def _date(now: str | None) -> str:
    from datetime import UTC, date, datetime

    try:
        return (datetime.now(UTC).date() if now is None else date.fromisoformat(now)).isoformat()
    except ValueError:
        raise UsageError(f"--now {now}: expected a date such as 2026-01-31") from None


@contextmanager
def _progress() -> Iterator[None]:
    """Progress bars and warnings on stderr while stages are at work."""
    from hgld import console
    from hgld.tasks import watched_by

    with watched_by(console.show_progress, console.show_note), console.warnings_as_notes():
        yield


def _print_outcome(runner: "Runner", ran: int, until: str | None) -> None:
    from hgld import console

    console.print_outcome(runner, ran, until)
