"""The tool group ``hgld shards``: list, show, check and copy shards, index a foreign folder.

The commands only print what ``hgld.shards`` finds. Tables fit 80 columns; ``--json`` gives all of
it as data. Nothing heavy is imported before a command runs.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from hgld.cli.arguments import AsJson, out_option, tool_group
from hgld.cli.output import print_json, print_rows, progress
from hgld.errors import UsageError
from hgld.words import count_text, size_text, verb_text

HEAD = 12  # columns of the heads before a text

app = tool_group("shards", "List, show, check, index and copy a folder of shards.")

Folder = Annotated[
    str, typer.Argument(metavar="FOLDER", help="The folder of shards, or its URL (s3://...).")
]


@app.command("ls")
def list_shards(folder: Folder, as_json: AsJson = False) -> None:
    """List the shards with their samples, runs, size and hash."""
    from hgld import shards

    rows = shards.list_shards(folder).to_dict("records")
    if as_json:
        print_json(rows)
        return
    typer.echo(f"{'samples':>9}{'runs':>9}{'size':>9}  {'sha256':<14}file")
    for row in rows:
        size = size_text(row["bytes"])
        head = f"{row['samples']:>9,}{row['runs']:>9,}{size:>9}  {row['sha256'][:12]:<14}"
        typer.echo(head + row["file"])


@app.command("cat")
def show_sample(
    folder: Folder,
    key: Annotated[str, typer.Argument(metavar="KEY", help="A sample's key, or an image id.")],
    out: Annotated[
        Path | None, out_option("Write the image to this file (-: stdout), print no JSON.")
    ] = None,
) -> None:
    """Show one sample as JSON, or write its image."""
    from hgld.artifacts import write_file
    from hgld.shards import read_sample

    sample = read_sample(folder, key)
    if out is None:
        print_json(sample.known or sample.row)
    elif str(out) == "-":
        sys.stdout.buffer.write(sample.jpeg)
    else:
        write_file(out, sample.jpeg)


@app.command("stats")
def show_counts(folder: Folder, as_json: AsJson = False) -> None:
    """Show counts of the samples, classes and licences of each split."""
    from hgld.shards import count_shards

    counts = count_shards(folder)
    if as_json:
        print_json(counts)
        return
    for split, count in counts.items():
        print_rows(_describe_split(split, count), HEAD)


@app.command("verify")
def verify(folder: Folder, as_json: AsJson = False) -> None:
    """Check every byte; name the shard and key of damaged samples."""
    from hgld import shards

    with progress():
        shards.verify_shards(folder)
    rows = shards.list_shards(folder)
    found = {"shards": len(rows), "samples": int(rows["samples"].sum())}
    if as_json:
        print_json(found)
    else:
        typer.echo(f"{_amounts(**found)} undamaged")


@app.command("index")
def index(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Holds the tars.")],
    level: Annotated[
        list[str] | None,
        typer.Option(
            "--level",
            metavar="KEY",
            help="JSON key of a level's class, coarse to fine; repeatable. Default: .cls",
        ),
    ] = None,
    hierarchy: Annotated[
        Path | None,
        typer.Option(
            "--hierarchy",
            metavar="CSV",
            help="The levels of each class: column class, then a column a level, coarse to fine.",
        ),
    ] = None,
    skip_unlabelled: Annotated[
        bool, typer.Option("--skip-unlabelled", help="Leave out samples without a class.")
    ] = False,
    skip_damaged: Annotated[
        bool,
        typer.Option("--skip-damaged", help="Leave out samples with an undecodable image."),
    ] = False,
    last_dot: Annotated[
        bool,
        typer.Option("--last-dot", help="Names end at their last dot: a.1.jpg is sample a.1."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the index that hgld export wrote.")
    ] = False,
) -> None:
    """Write the index of a WebDataset, to draw exact batches from it.

    The tars are read only; the index and other files are written beside them. With --hierarchy, a
    sample whose JSON lacks the key has the class of its .cls member.
    """
    with progress():
        from hgld.shards import index_shards  # here, as kernels may have a note when they load

        rows = index_shards(
            folder,
            level or (),
            hierarchy=hierarchy,
            skip_unlabelled=skip_unlabelled,
            skip_damaged=skip_damaged,
            last_dot=last_dot,
            replace_export=force,
        )
    typer.echo(f"{_amounts(rows['shard'].nunique(), len(rows))} indexed")


@app.command("copy")
def copy(
    folder: Folder,
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="Of the copies, with their number, as in a-%06d.tar."),
    ],
    split: Annotated[
        str, typer.Option("--split", metavar="SPLIT", help="Of the shards.")
    ] = "train",
    start: Annotated[int, typer.Option("--start", min=0, help="Number of the first copy.")] = 0,
    pipe: Annotated[
        bool, typer.Option("--pipe", help="Run the command of a pipe: URL, which you trust.")
    ] = False,
) -> None:
    """Write copies of shards through webdataset, to any of its URLs.

    The copies have the bytes of the shards, which are compared with the manifest; index and other
    sidecars are not copied. Copies on this machine replace no other file; the same command resumes.
    For s3://, gs:// and other stores use export.out. Example: hgld shards copy work/shards --pipe
    "pipe:ssh host 'cat > train-%06d.tar'".
    """
    from hgld import shards
    from hgld.shards.location import tar_folder
    from hgld.storage import join_location, masked

    there = shards.list_shards(folder)
    own = there[there["split"] == split]
    if own.empty:
        names = ", ".join(sorted(set(there["split"])))
        raise UsageError(f"--split {split}: {folder} has no such shards; it has {names}")
    place = tar_folder(folder)
    with progress():
        from hgld.shards.webdataset import write_shards  # here, as in index

        read = [join_location(place, file) for file in own["file"]]
        written = write_shards(read, url, pipe=pipe, start=start, hashes=[*own["sha256"]])
    typer.echo(f"{count_text(len(written), 'shard')} copied, the last to {masked(written[-1])}")


def _amounts(shards: int, samples: int) -> str:
    amounts = f"{count_text(shards, 'shard')} with {count_text(samples, 'sample')}"
    return f"{amounts} {verb_text(shards, 'are')}"


def _describe_split(split: str, count: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Describe one split as heads and texts."""
    size, images = size_text(count["bytes"]), count["images_of_a_class"]
    amounts = [count_text(count["samples"], "sample"), count_text(count["shards"], "shard"), size]
    yield split, ", ".join(amounts)
    yield "  classes", ", ".join(f"{name} {n:,}" for name, n in count["classes"].items())
    yield (
        "  images",
        f"{images['least']:,} to {images['most']:,} of a class, median {images['median']:g}; "
        f"{count_text(count['classes_below_4_images'], 'class')} below 4",
    )
    for licence, n in count["licenses"].items():
        yield "  licence", f"{n:,} {licence}"
