"""The tool group ``hgld taxonomy``: edit the supercategories of a labels folder.

Each command is one entry of the log and is taken back by ``hgld reviews undo``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hgld.cli.arguments import (
    AsJson,
    Opener,
    PipelineFile,
    Settings,
    Work,
    name_to_sign,
    on_pipeline,
    open_runner,
    tool_group,
)
from hgld.cli.output import print_json, progress
from hgld.errors import UsageError
from hgld.words import columns_of, padded

if TYPE_CHECKING:
    from hgld.pipeline.run import Runner
    from hgld.review.taxonomy import TaxonomyEdit

app = tool_group("taxonomy", "List and edit supercategories; decisions follow.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A supercategory.")]
New = Annotated[str, typer.Argument(metavar="NEW", help="The new name.")]
Kind = Annotated[
    str, typer.Option("--kind", metavar="KIND", help="natural or human-made, or its classes above.")
]
Definition = Annotated[
    str | None, typer.Option("--definition", metavar="TEXT", help="One sentence; '' empties it.")
]


@app.command("list")
def list_supercategories(
    pipeline: PipelineFile, settings: Settings = None, work: Work = None, as_json: AsJson = False
) -> None:
    """List the supercategories with what uses them."""
    from hgld.cli.review_actions import read_taxonomy

    rows = read_taxonomy(open_runner(pipeline, settings, work))
    if as_json:
        print_json(rows)
        return
    texts, columns = ("supercategory", "kind"), ("decisions", "class_roots", "overrides")
    widths = {c: max(columns_of(text) for text in (c, *(r[c] for r in rows))) + 2 for c in texts}
    head = "".join(padded(name, widths[name]) for name in texts)
    typer.echo(head + "".join(f"{c:>12}" for c in columns))
    for row in rows:
        counts = "".join(f"{row[column]:>12,}" for column in columns)
        typer.echo("".join(padded(row[name], widths[name]) for name in texts) + counts)


@app.command("add")
@on_pipeline
def add(opener: Opener, name: New, kind: Kind = "", definition: Definition = None) -> None:
    """Add a supercategory."""
    _edit(opener, "add", name, kind=kind, definition=definition)


@app.command("propose")
@on_pipeline
def propose(opener: Opener) -> None:
    """Add each cluster as a supercategory, with its levels above.

    If supercategories have no levels above yet, these get those of the cluster of most of their
    values, and none is added. Those without decided values are named.
    """
    from hgld.cli.review_actions import proposed_edits

    runner = opener()
    with progress():
        edits = proposed_edits(runner)
    _make(runner, edits)


@app.command("rename")
@on_pipeline
def rename(
    opener: Opener,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A supercategory or its class above.")
    ],
    new: New,
    level: Annotated[
        str | None,
        typer.Option("--level", metavar="LEVEL", help="Rename the class of this level above."),
    ] = None,
) -> None:
    """Rename a supercategory or a class above it; decisions follow."""
    from hgld.cli.review_actions import renamed_above

    if level is None:
        _edit(opener, "rename", name, into=new)
    else:
        runner = opener()
        _make(runner, renamed_above(runner, level, name, new))


@app.command("merge")
@on_pipeline
def merge(
    opener: Opener,
    name: Name,
    into: Annotated[str, typer.Argument(metavar="INTO", help="The other, which stays.")],
) -> None:
    """Merge a supercategory into another of the same kind."""
    _edit(opener, "merge", name, into=into)


@app.command("split")
@on_pipeline
def split(
    opener: Opener,
    name: Name,
    new: New,
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY", help="Keys of the values that go to NEW.", show_default=False
        ),
    ] = None,
    kind: Kind = "",
    definition: Definition = None,
) -> None:
    """Split a supercategory: a new one takes some of its values.

    Without KEY it lists the values to choose from. Values that are not named stay.
    """
    from hgld.cli.review_actions import list_decided

    if not keys:
        for row in list_decided(opener(), name):
            typer.echo(f"{row['key']:<14}{row['label']}")
        raise UsageError(f"name the keys of the values that go to '{new}'")
    more = {"kind": kind, "definition": definition, "keys": tuple(keys)}
    _edit(opener, "split", name, into=new, **more)


@app.command("describe")
@on_pipeline
def describe(opener: Opener, name: Name, kind: Kind = "", definition: Definition = None) -> None:
    """Describe a supercategory: change its definition or kind."""
    if not kind and definition is None:
        raise UsageError("describe: give --definition or --kind")
    _edit(opener, "describe", name, kind=kind, definition=definition)


@app.command("remove")
@on_pipeline
def remove(opener: Opener, name: Name) -> None:
    """Remove a supercategory that nothing uses."""
    _edit(opener, "remove", name)


def _edit(opener: Opener, action: str, name: str, **more: Any) -> None:
    from hgld.review.taxonomy import TaxonomyEdit

    _make(opener(), [TaxonomyEdit(action, name, **more)])


def _make(runner: "Runner", edits: "Sequence[TaxonomyEdit]") -> None:
    from hgld.cli.review_actions import edit_taxonomy, edited_words

    with progress():
        counts = edit_taxonomy(runner, edits, name_to_sign(runner.workspace))
    typer.echo(edited_words(counts), err=True)
