"""The arguments that several commands take, and what they name: pipelines, the signer.

Nothing heavy is imported before a function is called.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate

import typer

from hgld.errors import HgldError, UsageError
from hgld.home import home_folder
from hgld.words import single_blanks

if TYPE_CHECKING:
    from hgld.pipeline.lock import Workspace
    from hgld.pipeline.run import Runner

PipelineFile = Annotated[
    Path,
    typer.Argument(
        metavar="PIPELINE", help="The pipeline file (TOML); paths in it are relative to it."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="STAGE.OPTION=VALUE",
        help="Override an option; repeatable. A path is relative to the current folder.",
    ),
]
Work = Annotated[
    Path | None,
    typer.Option(
        "--work",
        metavar="FOLDER",
        help="Work folder; default: work/NAME beside PIPELINE or its folder pipelines/.",
    ),
]
Now = Annotated[
    str | None,
    typer.Option("--now", metavar="DATE", help="Date written into outputs; default: today."),
]
Force = Annotated[bool, typer.Option("--force", help="Run the stage even if it is fresh.")]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="A model as in evaluate.models, or its name there; default: the first.",
    ),
]
Page = Annotated[
    Path | None, typer.Option("--page", metavar="FILE", help="Write a page with the photos.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Opener = Callable[[], "Runner"]  # opens the runner of a pipeline


def out_option(help_line: str, metavar: str = "FILE") -> Any:
    """Declare the option that names what a command writes; it is called the same everywhere."""
    return typer.Option("--out", "-o", metavar=metavar, help=help_line)


def on_pipeline(body: Callable[Concatenate[Opener, ...], None]) -> Callable[..., None]:
    """Return a command that calls ``body`` with a function that opens the runner of a pipeline.

    So the body can refuse its own arguments first. The command's arguments are PIPELINE, then those
    that the body declares after its first one, then --set, --work and --now.
    """

    def command(
        pipeline: PipelineFile,
        settings: Settings = None,
        work: Work = None,
        now: Now = None,
        **given: Any,
    ) -> None:
        body(partial(open_runner, pipeline, settings, work, now), **given)

    first, *last, _ = signature(command).parameters.values()
    _, *own = signature(body).parameters.values()
    # Typer reads the arguments of a command from its signature, and its help from its docstring.
    command.__signature__ = Signature([first, *own, *last])  # type: ignore[attr-defined]
    command.__doc__ = body.__doc__
    return command


def tool_group(name: str, help_line: str) -> typer.Typer:
    """Return a group of commands without any yet; alone it prints its help."""
    return typer.Typer(name=name, help=help_line, no_args_is_help=True, rich_markup_mode=None)


def open_runner(
    pipeline_file: Path,
    settings: Sequence[str] | None,
    work: Path | None,
    now: str | None = None,
) -> "Runner":
    """Return the runner of a pipeline file with its settings, work folder and date."""
    from hgld.cli.console import Printer
    from hgld.pipeline.run import Runner

    workspace = open_workspace(pipeline_file, settings, work)
    return Runner(workspace, date_of(now), Printer())


def open_workspace(
    pipeline_file: Path, settings: Sequence[str] | None, work: Path | None
) -> "Workspace":
    """Return the workspace of a pipeline file: its options and the places of its files."""
    from hgld.config import default_work, load_pipeline
    from hgld.pipeline.lock import Workspace

    pipeline = load_pipeline(pipeline_file, settings or ())
    return Workspace(pipeline_file, pipeline, work or default_work(pipeline_file))


def require_names(arguments: Sequence[str]) -> None:
    """Refuse names of files that are not UTF-8, since tables and indexes could not hold them.

    Raises:
        UsageError: an argument or the current folder is not UTF-8.
        HgldError: the current folder was deleted.
    """
    try:
        current = str(Path.cwd())
    except FileNotFoundError:
        raise HgldError("the current folder does not exist any more; change into another") from None
    for name in (*arguments, current):
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise UsageError(f"{name}: holds a byte that is not UTF-8; rename the file or folder")


def name_to_sign(workspace: "Workspace") -> str:
    """Return the name that decisions are signed with.

    That is review.who, else git's user.name, else the name that the person gave before; on a
    terminal they are asked for it once. Never the login name, nor a "root" that somebody left in
    git's settings: decisions are published, and that is not a name that a person chose to publish.
    Without any name a decision is signed "unsigned".
    """
    if workspace.pipeline.review.who:
        return workspace.pipeline.review.who
    try:
        asked = ["git", "-C", str(workspace.pipeline_file.parent), "config", "user.name"]
        name = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        name = ""  # git is not installed
    if name and name != "root":
        return name
    settings = os.environ.get("XDG_CONFIG_HOME") or home_folder("XDG_CONFIG_HOME") / ".config"
    kept = Path(settings) / "hgld" / "name"  # of the person, not of the work folder that many share
    if kept.is_file() and (name := single_blanks(kept.read_text(encoding="utf-8"))):
        return name
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        typer.echo("decisions are signed 'unsigned'; --set review.who=NAME names you", err=True)
        return "unsigned"
    name = ""
    while not name:
        name = single_blanks(typer.prompt("Your name, published with your decisions", err=True))
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(f"{name}\n", encoding="utf-8")
    typer.echo(f"kept in {kept}", err=True)
    return name


def date_of(now: str | None) -> str:
    """Return the date of ``--now``, else today's (UTC)."""
    from datetime import UTC, date, datetime

    try:
        return (datetime.now(UTC).date() if now is None else date.fromisoformat(now)).isoformat()
    except ValueError:
        raise UsageError(f"--now {now}: expected a date such as 2026-01-31") from None
