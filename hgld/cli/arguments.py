"""The arguments that several commands take, declared once."""

from collections.abc import Callable
from inspect import Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from hgld.cli.runners import open_runner

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


def out_option(help_line: str, metavar: str = "FILE") -> Any:
    """Declare the option that names what a command writes; it is called the same everywhere."""
    return typer.Option("--out", "-o", metavar=metavar, help=help_line)


def on_pipeline(body: Callable[..., None]) -> Callable[..., None]:
    """Return a command that opens the runner of a pipeline and calls ``body`` with it.

    Its arguments are PIPELINE, then those that the body declares after its runner, then --set,
    --work and --now.
    """

    def command(
        pipeline: PipelineFile,
        settings: Settings = None,
        work: Work = None,
        now: Now = None,
        **given: Any,
    ) -> None:
        body(open_runner(pipeline, settings, work, now), **given)

    first, *last, _ = signature(command).parameters.values()
    _, *own = signature(body).parameters.values()
    # Typer reads the arguments of a command from its signature, and its help from its docstring.
    command.__signature__ = Signature([first, *own, *last])  # type: ignore[attr-defined]
    command.__doc__ = body.__doc__
    return command
