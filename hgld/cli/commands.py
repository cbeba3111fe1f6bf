"""The commands on a whole pipeline, and those that show options and this machine."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.arguments import AsJson, Now, PipelineFile, Settings, Work, open_runner, out_option
from hgld.cli.output import print_json, progress
from hgld.cli.stage_commands import refuse_torchrun
from hgld.errors import InvalidData, UsageError

if TYPE_CHECKING:
    from hgld.pipeline.edits import Edit


def new(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Your images: a sub-folder for each class, or a CSV of paths and labels.",
        ),
    ],
    out: Annotated[Path | None, out_option("The new file; default: FOLDER.toml, here.")] = None,
    qualify: Annotated[
        bool,
        typer.Option("--qualify", help="Name classes of several parents NAME (PARENT)."),
    ] = False,
) -> None:
    """Write a pipeline file for a folder of images."""
    from hgld.pipeline.draft import draft_pipeline, write_draft

    # not folder.resolve(): it raises RuntimeError for a loop of links
    file = out or Path(f"{Path(os.path.realpath(folder)).name}.toml")
    with progress():
        draft = draft_pipeline(folder, file, qualify)
    typer.echo(draft.seen)
    for path in write_draft(draft, file):
        typer.echo(f"wrote {path}")
    first = f"your e-mail or URL as contact in {file}, then " if "links" in draft.tables else ""
    typer.echo(f"next: {first}hgld run {quote(str(file))}")


def run(
    pipeline: PipelineFile,
    settings: Settings = None,
    work: Work = None,
    now: Now = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan: stages, downloads, disk space.")
    ] = False,
    until: Annotated[
        str | None, typer.Option("--until", metavar="STAGE", help="Stop after this stage.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --dry-run: print the plan as JSON.")
    ] = False,
) -> None:
    """Run every stage that is not fresh, in order."""
    from hgld.cli.overview import plan_facts, print_outcome, print_plan
    from hgld.pipeline.plan import plan

    if as_json and not dry_run:
        raise UsageError("--json: only the plan is printed as JSON; add --dry-run")
    runner = open_runner(pipeline, settings, work, now)
    if dry_run:
        found = plan(runner, until)
        if as_json:
            print_json(plan_facts(found))
        else:
            print_plan(found)
        return
    refuse_torchrun(
        "first `hgld run PIPELINE --until export`, then `torchrun --nproc_per_node N -m hgld train "
        "PIPELINE`, then `hgld run PIPELINE`"
    )
    with progress():
        ran = runner.run(until)
    print_outcome(runner, ran, until)


def status(
    pipeline: PipelineFile, settings: Settings = None, work: Work = None, as_json: AsJson = False
) -> None:
    """Show which stages are fresh, stale (and why), missing, running."""
    from hgld.cli.overview import print_status

    print_status(open_runner(pipeline, settings, work), as_json)


def accept(
    pipeline: PipelineFile,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE", help="Edited tables; default: all of them.", show_default=False
        ),
    ] = None,
    settings: Settings = None,
    work: Work = None,
    yes: Annotated[bool, typer.Option("--yes", help="Accept them without a question.")] = False,
) -> None:
    """Use tables that you edited, after showing the changed rows."""
    from hgld.pipeline.edits import accept_edits

    def confirm(edits: "Sequence[Edit]") -> bool:
        for line in (line for edit in edits for line in edit.lines):
            typer.echo(line)
        if not (yes or sys.stdin.isatty()):
            raise InvalidData("nothing was accepted: nobody can be asked here; add --yes")
        return yes or typer.confirm("Use these edits?")

    runner = open_runner(pipeline, settings, work)
    taken = accept_edits(runner, files or (), confirm)
    for edit in taken:
        typer.echo(f"accepted {runner.workspace.path(edit.name)}", err=True)
    if not taken:
        typer.echo("nothing was accepted", err=True)


def options(
    section: Annotated[
        str,
        typer.Argument(
            metavar="SECTION",
            help="A stage, section or option: train, train.batches; default: all.",
            show_default=False,
        ),
    ] = "",
    as_json: AsJson = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the reference page of all options.")
    ] = False,
) -> None:
    """List the options of a pipeline file: defaults and meanings."""
    from hgld.cli.options import list_options, options_as_markdown, options_as_text

    rows = list_options(section)
    if markdown:
        typer.echo(options_as_markdown(), nl=False)
    elif as_json:
        print_json([row.as_json() for row in rows])
    else:
        typer.echo(options_as_text(rows))


def doctor(
    gpu: Annotated[
        bool,
        typer.Option("--gpu", help="Compare kernels with plain torch, on the GPU if there is one."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check this machine: versions, cores, GPU, disk, packages."""
    from hgld.cli.doctor import print_comparison, print_doctor

    (print_comparison if gpu else print_doctor)(as_json)
