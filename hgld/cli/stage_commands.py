"""One command a stage, made from the stage table: its arguments, its help, its options.

All stage commands take the same arguments; a stage with more declares only those. Their help lists
the files of the stage and the options of its section, from the same tables that the stage uses.
"""

import inspect
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from hgld.cli.arguments import (
    Force,
    Now,
    PipelineFile,
    Settings,
    Work,
    date_of,
    name_to_sign,
    open_runner,
)
from hgld.cli.output import print_rows, progress
from hgld.errors import UsageError, WaitingForReview
from hgld.pipeline.stages import STAGES, stage_names
from hgld.tasks import say
from hgld.words import count_text

if TYPE_CHECKING:
    from hgld.pipeline.run import Runner


def add_stage_commands(app: typer.Typer, panel: str) -> None:
    """Add a command a stage, in the order of the flow, below a heading of the help."""
    for name in stage_names():
        help_line = next(stage.help for stage in STAGES if stage.name == name)
        body = BODIES.get(name, _run)
        add = app.command(name, help=help_line, cls=StageHelp, rich_help_panel=panel)
        add(_command(name, body))


@dataclass(frozen=True)
class StageCall:
    """A stage command with the arguments that all stages share."""

    stage: str
    pipeline: Path
    settings: Sequence[str] | None
    work: Path | None
    now: str | None
    force: bool

    def open(self, **options: object) -> "Runner":
        """Open the runner; ``options`` of the stage come from flags and override its settings."""
        given = {name: value for name, value in options.items() if value is not None}
        # --set takes TOML, of which a JSON value is one, so that text stays text
        flags = [f"{self.stage}.{name}={json.dumps(value)}" for name, value in given.items()]
        return open_runner(self.pipeline, [*(self.settings or ()), *flags], self.work, self.now)

    def run(self, runner: "Runner", again: bool = False) -> None:
        """Run the stage, also if it is fresh with --force or ``again``."""
        with progress():
            runner.run_one(self.stage, self.force or again)


def _command(name: str, body: Callable[..., None]) -> Callable[..., None]:
    """The function that Typer reads: the shared arguments, then those that the body adds."""

    def command(**given: Any) -> None:
        call = StageCall(name, **{word: given.pop(word) for word in SHARED.parameters})
        if name != "train":
            refuse_torchrun(
                f"{name} spreads by itself where it can: --set {name}.processes=N, or "
                f"--set {name}.ray=ADDRESS on a cluster"
                if name in ("export", "evaluate")
                else f"run `hgld {name} {call.pipeline}`"
            )
        body(call, **given)

    _, *added = inspect.signature(body).parameters.values()
    parameters = [*SHARED.parameters.values(), *added]
    # Typer reads the arguments of a command from its signature alone.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _shared(
    pipeline: PipelineFile,
    settings: Settings = None,
    work: Work = None,
    now: Now = None,
    force: Force = False,
) -> None: ...


HOST, PORT = "127.0.0.1", 8642  # of the server of a page
Host = Annotated[str, typer.Option("--host", help="With --serve: address to listen on.")]
Port = Annotated[int, typer.Option("--port", help="With --serve: port; 0: a free one.")]
SHARED = inspect.signature(_shared)


def _started_by_torchrun() -> bool:
    """Whether torchrun started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def refuse_torchrun(instead: str) -> None:
    """Raise a UsageError if torchrun started this process, and name the command to use instead."""
    if _started_by_torchrun():
        raise UsageError(f"torchrun starts one stage, train; {instead}")


def _run(call: StageCall) -> None:
    call.run(call.open())


def _fetch(
    call: StageCall,
    tars: Annotated[
        str | None,
        typer.Option("--tars", metavar="NUMBERS", help="Fetch only these tars: 0-9 or 0,5-7."),
    ] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Print bytes, disk space and time; fetch nothing.")
    ] = False,
    bandwidth: Annotated[
        float | None,
        typer.Option("--bandwidth", metavar="MB/S", help="For --estimate; default: measured."),
    ] = None,
) -> None:
    runner = call.open(tars=tars)
    if tars is not None and not runner.workspace.pipeline.fetch.downloads:
        raise UsageError(f"{call.pipeline}: --tars {tars}: its fetch.downloads list no tars")
    if bandwidth is not None and not (estimate and 0 < bandwidth < math.inf):
        raise UsageError("--bandwidth: expected megabytes a second above 0, with --estimate")
    if estimate:
        from hgld.cli.overview import print_estimate

        print_estimate(runner, bandwidth)
        return
    call.run(runner)


def _scrape(
    call: StageCall,
    retry: Annotated[
        str | None,
        typer.Option(
            "--retry", metavar="misses", help="Ask again for the landmarks without values."
        ),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(
            "--refresh-older-than", metavar="DAYS", help="Ask again for answers older than this."
        ),
    ] = None,
) -> None:
    runner = call.open(retry=retry, refresh_older_than=days)
    again = retry is not None or days is not None
    if again and runner.workspace.pipeline.scrape.source != "wikimedia":
        raise UsageError(f'{call.pipeline}: only scrape.source = "wikimedia" can ask again')
    call.run(runner, again)


def _require_server(serve: bool, host: str, port: int) -> None:
    if not serve and (host, port) != (HOST, PORT):
        raise UsageError("--host and --port are of the server; add --serve")


def _serve(call: StageCall, runner: "Runner", host: str, port: int) -> None:
    """Serve the stage's page until Ctrl-C."""
    from hgld.cli.review_site import serve_page

    serve_page(
        runner,
        call.stage,
        host,
        port,
        today=lambda: date_of(call.now),
        show=lambda url: typer.echo(f"page: {url}"),
    )


def _link(
    call: StageCall,
    sheet: Annotated[
        Path | None,
        typer.Argument(
            metavar="SHEET",
            help="With --apply: a CSV; default: link_review.csv of the work folder.",
            show_default=False,
        ),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Add the items of link_review.csv to links.csv.")
    ] = False,
    html: Annotated[
        bool, typer.Option("--html", help="Write the sheet as a page too: link_review.html.")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the page until Ctrl-C; answers are saved.")
    ] = False,
    host: Host = HOST,
    port: Port = PORT,
) -> None:
    runner = call.open()
    if sheet is not None and not apply:
        raise UsageError(f"{sheet}: a sheet is only read with --apply")
    _require_server(serve, host, port)
    from hgld.cli import review_actions, review_pages

    with progress():
        if apply:
            added = review_actions.apply_link_sheet(runner, name_to_sign(runner.workspace), sheet)
            path = runner.workspace.path("links")
            typer.echo(f"{count_text(added, 'row')} added to {path}", err=True)
        runner.run_one("link", call.force)
        if html:
            typer.echo(f"page: {review_pages.write_page(runner, 'link')}")
        if serve:
            _serve(call, runner, host, port)
            runner.run_one("link")  # with the answers that came in the meantime


def _cluster(
    call: StageCall,
    suggest: Annotated[
        str | None,
        typer.Option(
            "--suggest",
            metavar="FIRST:LAST[:STEP]",
            help="Report which numbers of clusters fit; change nothing.",
        ),
    ] = None,
) -> None:
    runner = call.open()
    if suggest is None:
        call.run(runner)
        return
    from hgld.cli.review_pages import suggest_clusters
    from hgld.hierarchy.cluster_choice import suggested

    with progress():
        measured, path = suggest_clusters(runner, suggest)
    for place, (level, table) in enumerate(measured.items()):
        best, why = suggested(table)
        if place:
            typer.echo(f"\nlevel '{level}', of the centres below")
        typer.echo(table.to_string(index=False))
        option = f"cluster.above, {level}" if place else "cluster.clusters"
        typer.echo(f"suggested: {option} = {best}: {why}")
    typer.echo(f"curves: {path}")


def _review(
    call: StageCall,
    sheets: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="SHEET",
            help="With --apply: CSV or .xlsx files; default: the work folder's sheets.",
            show_default=False,
        ),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Add the decisions of the sheets to decisions.csv.")
    ] = False,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="With --apply: apply misplaced or very many decisions, too."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="With --apply: print what would change, write nothing."),
    ] = False,
    accept_sure: Annotated[
        float | None,
        typer.Option(
            "--accept-sure",
            metavar="P",
            help="Accept the suggestions of at least this probability, as a separate entry.",
        ),
    ] = None,
    xlsx: Annotated[
        bool, typer.Option("--xlsx", help="Write the sheets as a workbook too: review.xlsx.")
    ] = False,
    html: Annotated[
        bool, typer.Option("--html", help="Write the sheet as a page too: review.html.")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the page until Ctrl-C; decisions are saved.")
    ] = False,
    host: Host = HOST,
    port: Port = PORT,
) -> None:
    runner = call.open()
    if not apply and (sheets or dry_run or yes):
        flag = "--dry-run" if dry_run else "--yes"
        given = f"{sheets[0]}: a sheet is" if sheets else f"{flag}: sheets are"
        raise UsageError(f"{given} only read with --apply")
    if accept_sure is not None and (dry_run or not 0 < accept_sure <= 1):
        wanted = "expected a probability above 0 and at most 1, as 0.95, without --dry-run"
        raise UsageError(f"--accept-sure {accept_sure:g}: {wanted}")
    _require_server(serve, host, port)
    from hgld.cli import review_actions, review_pages

    who = name_to_sign(runner.workspace) if apply or accept_sure is not None else ""
    if dry_run:
        with progress():
            lines, refused = review_actions.preview_review(runner, who, sheets or (), yes)
            print_rows(lines, 8)
        if refused:
            raise refused
        return
    conflicts = 0
    with progress():
        if apply:
            applied = review_actions.apply_review(runner, who, sheets or (), yes)
            added = sum(change.kind != "unchanged" for change in applied.changes)
            conflicts = sum(change.kind == "conflict" for change in applied.changes)
            path = runner.workspace.path("decisions")
            typer.echo(f"{count_text(added, 'decision')} added to {path}", err=True)
            if applied.edits:
                said = f"{count_text(len(applied.edits), 'value')} put into other clusters"
                typer.echo(f"{said}, in {runner.workspace.path('cluster_edits').name}", err=True)
            if conflicts:
                say(
                    f"{count_text(conflicts, 'value')} decided differently by others since the "
                    "sheet was written: "
                    f"`hgld reviews conflicts {runner.workspace.words}` shows both sides"
                )
        if accept_sure is not None:
            choices = review_actions.list_sure(runner, accept_sure)
            review_actions.save_choices(runner, choices, who, "sure")
            typer.echo(f"{count_text(len(choices), 'suggestion')} accepted", err=True)
        if xlsx:
            typer.echo(f"workbook: {review_pages.write_workbook(runner)}")
        if html:
            typer.echo(f"page: {review_pages.write_page(runner, 'review')}")
        if serve:
            _serve(call, runner, host, port)
        runner.run_one("review", call.force)
    if conflicts:
        raise typer.Exit(WaitingForReview.exit_code)


def _export(
    call: StageCall,
    ray: Annotated[
        str | None,
        typer.Option("--ray", metavar="ADDRESS", help="Use a Ray cluster; auto: this machine's."),
    ] = None,
) -> None:
    call.run(call.open(ray=ray))


def _train(call: StageCall) -> None:
    if not _started_by_torchrun():
        _run(call)
        return
    runner = call.open()
    from hgld.train.ranks import joined

    with joined() as ranks:
        if ranks.leads:  # one process holds the lock and reports, the others only compute
            call.run(runner)
        else:
            runner.follow("train")


BODIES: dict[str, Callable[..., None]] = {
    "cluster": _cluster,
    "export": _export,
    "fetch": _fetch,
    "link": _link,
    "review": _review,
    "scrape": _scrape,
    "train": _train,
}


class StageHelp(TyperCommand):
    """A stage's help: below its line the files, at the end the options of its section."""

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the stage's line, and the files that it reads and writes."""
        from hgld.cli.options import stage_files

        super().format_help_text(ctx, formatter)
        files = stage_files(str(self.name))
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_dl([(verb, names) for verb, names in files.items() if names])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write a list of options for each table of the stage's section."""
        from hgld.cli.options import list_options

        for table, rows in groupby(list_options(str(self.name)), key=lambda row: row.table):
            by_flag = f", or --set {table[1:-1]}.NAME=VALUE" * (not table.startswith("[["))
            with formatter.section(f"Options in {table}{by_flag}"):
                formatter.write_dl([(row.name, row.help) for row in rows])
