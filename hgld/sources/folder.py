"""Source of any image folder with a CSV of labels, or with one sub-folder a class.

The CSV has ``path`` (relative to the source folder), then one column for each level, coarse to
fine, with any names; ``split``, ``author``, ``license``, ``title``, ``url`` and the ids of items
(``qid``, ``wikipedia``, ``commons_url``, ``wordnet``, ``gbif``) are optional and not levels. The
finest level takes the role of the landmark. Its classes are numbered by sorted name; a class with
images on the index side has the same number in the index id space.

Without a CSV (``source.labels_csv = ""``) the first folder of a path is the class. If all first
folders are named as splits (train, Valid, test; query and gallery are test and index), they are the
splits and the second is the class.
"""

import json
import os
import re
import unicodedata
from collections.abc import Collection, Iterable
from itertools import pairwise
from pathlib import Path, PurePosixPath

import pandas as pd

from hgld.artifacts import (
    SPLITS,
    columns_of,
    declared_table,
    list_tree,
    read_csv,
    read_header,
    rows_in_file,
    size_of_file,
)
from hgld.artifacts.cells import ERRORS
from hgld.config import CollectOptions, LabelOptions, SourceOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.images import IMAGE_ENDINGS, UNREAD_ENDINGS
from hgld.sources.exclusion import leave_out
from hgld.sources.open_set import describe_splits, split_classes
from hgld.sources.tables import (
    Tables,
    drop_unlisted,
    drop_where,
    join_repeats,
    landmarks_of,
    level_columns,
    listed_paths,
    misnamed_level,
    report_missing,
    several_parents,
    with_credits,
)
from hgld.tasks import say
from hgld.words import INVISIBLE, count_text, describe_twins, nearest

SEVERAL = re.compile(r"\s*[;,|\n]\s*")  # between the names of images in one cell
SHOWN = 3  # faults of one kind named in an error
FOLDER_SPLITS = ("train", "validation", "evaluation", "test", "index")  # other splits: DyML only
SPLIT_FOLDERS = {  # lower-case name of a folder -> split
    **{name: name for name in FOLDER_SPLITS},
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "testing": "test",
    "query": "test",
    "gallery": "index",
}


def collect(source: Path, *, options: CollectOptions, context: StageContext) -> Tables:
    """List the classes and images of a folder.

    A row is one image; its id is its path. Without a ``split`` column all images are ``train``, of
    which ``options.evaluation_share`` of the finest classes, or those that
    ``options.evaluation_classes`` lists, become ``evaluation`` (see ``hgld.sources.open_set``).

    Dropped, with a reason: ``empty label`` (no finest class), ``duplicate`` (the first row is
    kept), ``not in folder``, ``excluded`` (see ``hgld.sources.exclusion``), ``not in csv`` (an
    image file that no row names), ``hidden`` (a dot begins its name, or that of a folder above it),
    ``no image`` (without a CSV: a class folder without images), and what ``drop_unlisted`` lists. A
    notice names the classes that are left without images.

    Returns:
        landmarks, images, queries (none), images_dropped.

    Raises:
        InvalidData: no level column, a class with two parents, names that look the same, a path
            outside the folder, an unknown split; without a CSV, no image in a sub-folder.
        UsageError: classes are to be held out, but the CSV or the folders are splits.
    """
    file = context.source.labels_csv
    rows, levels = _read_labels(source, context.source)
    for level in levels:
        places = {str(name): str(row) for row, name in rows[level].drop_duplicates().items()}
        if twins := describe_twins(places):
            say(f"{source / file}: {level} {twins}")
    # Images that are all for training are not split: test images are often without a class.
    splits_named = rows.loc[rows[levels[-1]] != ""].get("split", pd.Series(dtype="str"))
    has_splits = not splits_named.isin(["", "train"]).all()
    for name in ("evaluation_share", "evaluation_classes", "validation_share"):
        if has_splits and getattr(options, name):
            raise UsageError(
                f"collect.{name} is set, but {source / file} has a column split; remove one of them"
                if file
                else f"collect.{name} is set, but the folders of {source} are splits; remove it"
            )
    judged = leave_out(_judge(rows, levels[-1], source, file), options)
    is_taken = judged["reason"] == ""
    taken = rows[is_taken]
    images = _images(taken, judged[is_taken], levels[-1])
    # First: if images are missing, it is why there are too few classes to hold out some.
    why = ("not in csv", f"no row in {file}") if file else ("hidden", "a dot begins its name")
    unlisted = drop_unlisted(source, set(rows["path"]), *why)
    judged = _hint_at_twins(judged, unlisted["path"])
    missing = judged[judged["reason"] == "not in folder"]
    report_missing(missing["path"].set_axis(missing["detail"]), len(rows), source)
    if len(images) and not has_splits:
        classes = taken.drop_duplicates(levels[-1]).sort_values(levels[-1])
        names = classes[levels[-1]].tolist()
        # Drawn within each coarsest class, so that small ones are in every split.
        groups = classes[levels[0]] if len(levels) > 1 else None
        splits = dict(zip(names, split_classes(names, options, groups), strict=True))
        # dropped rows, too: an excluded image may be of a class that is held out
        judged["split"] = rows[levels[-1]].map(splits).fillna(judged["split"]).astype("str")
        images["split"] = judged["split"]
    if len(images):
        say(describe_splits(images))
    unnamed = judged[judged["reason"] == "empty label"]
    if len(unnamed):
        first = f"{file} {unnamed.index[0]}" if file else f"'{unnamed['path'].iloc[0]}'"
        remedy = f"fill in {levels[-1]}" if file else "move each into a folder named as its class"
        say(f"{count_text(len(unnamed), 'image')} without a class, first {first}; {remedy}")
    broken = [row for row, name in rows[levels[-1]].items() if file and "\n" in name]
    if broken:
        say(
            f"{count_text(len(broken), 'row')} of {file} with a line break in {levels[-1]}, first "
            f"{broken[0]}; if these are several rows, close the quote"
        )
    put_into = {"class": rows[levels[-1]], **({"split": judged["split"]} if has_splits else {})}
    for what, cells in put_into.items():
        counted = cells.groupby(rows["path"]).transform("first")
        other = rows[(judged["reason"] == "duplicate") & (cells != counted)]
        if len(other):
            say(
                f"{count_text(len(other), 'row')} of {file} put an image into another {what} than "
                f"a row above, first {other.index[0]}; the row above counts"
            )
    empty = _empty_folders(source, rows["path"], "split" in rows) if not file else unlisted[:0]
    if len(images):
        named = {*rows[levels[-1]], *(PurePosixPath(path).name.strip() for path in empty["path"])}
        lost = named - {""} - set(taken[levels[-1]])
        _report_lost(lost, judged[rows[levels[-1]].isin(lost)], file)
    dropped = pd.concat([judged[~is_taken], unlisted, empty])
    dropped = join_repeats(dropped.rename(columns={"path": "image_id"}))
    return (
        landmarks_of(images, taken[levels[-1]]),
        images[columns_of("images")],
        declared_table("queries").empty(),
        dropped[columns_of("images_dropped")],
    )


def read_hierarchy(
    source: Path, landmarks: pd.DataFrame, *, options: LabelOptions, context: StageContext
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the label path of each landmark, with the level names of the CSV.

    Returns:
        hierarchy; and label_dropped, with ``empty label`` if a coarser level is empty and
        ``not in csv`` if the CSV no longer has the class.
    """
    file = context.source.labels_csv
    rows, levels = _read_labels(source, context.source)
    # Each class has one parent (checked), so its first row has the whole path.
    rows = rows.drop_duplicates(levels[-1])
    paths = rows.set_index(levels[-1], drop=False)[levels]
    places = pd.Series(rows.index, index=paths.index)
    known = landmarks["name"].isin(paths.index)
    found = landmarks[known].reset_index(drop=True)
    labels = paths.loc[found["name"]].reset_index(drop=True)
    full = (labels != "").all(axis="columns")
    hierarchy = found[full].assign(
        path=[json.dumps(row, ensure_ascii=False) for row in labels[full].to_dict("records")]
    )
    partly = found[~full].assign(
        reason="empty label",
        detail=[
            f"no {', '.join(level for level in levels if not path[level])} in {file} "
            f"{places[path[levels[-1]]]}"
            for path in labels[~full].to_dict("records")
        ],
    )
    gone = landmarks[~known].assign(reason="not in csv", detail=f"no row of {file} has this class")
    dropped = pd.concat([partly, gone], ignore_index=True)
    return hierarchy[columns_of("hierarchy")], dropped[columns_of("label_dropped")]


def _read_labels(source: Path, options: SourceOptions) -> tuple[pd.DataFrame, list[str]]:
    """Read all rows as stripped text, by their place in the file, and the levels coarse to fine."""
    if not options.labels_csv:
        # Checked before blanks are stripped: two folders would else become one class unnoticed.
        rows = _checked(_read_sub_folders(source), ["class"], source)
        return rows.assign(**{"class": rows["class"].str.strip()}), ["class"]
    path = source / options.labels_csv
    header = read_header(path, ["path"])
    levels = level_columns(header)
    rows = read_csv(path, dict.fromkeys(["path", *header], "text"))
    if odd := misnamed_level(levels):
        raise InvalidData(
            f"{path}: the column '{odd}' would be a level; rename it to {odd.casefold()}, "
            "which is not one, or give the level another name"
        )
    if index := next((name for name in levels if re.fullmatch(r"Unnamed: \d+", name)), ""):
        raise InvalidData(
            f"{path}: the column '{index}' is an index that pandas wrote; remove it (to_csv with "
            "index=False)"
        )
    if not levels:
        raise InvalidData(
            f"{path}: no level column; expected path, then one column a level coarse to fine"
        )
    # a lone carriage return, as in files of old Macs, would end a row of the tables of hgld
    rows = rows.apply(lambda column: column.str.replace("\r\n?", "\n", regex=True).str.strip())
    rows = rows.set_axis([f"row {number}" for number in rows_in_file(path, len(rows))])
    rows = rows[(rows != "").any(axis=1)]  # Excel writes rows of commas
    if rows.empty:
        raise InvalidData(f"{path}: no rows below the header; expected one row an image")
    rows["path"] = listed_paths(rows["path"])
    if options.repeated_names == "qualify":
        rows = _qualify(rows, levels, path)
    return _checked(rows, levels, path), levels


def _read_sub_folders(source: Path) -> pd.DataFrame:
    """Return path, class and, if the first folders are splits, split of each image file.

    Raises:
        InvalidData: no image in a sub-folder.
    """
    files = list_tree(source, hidden=False).files
    names = [p.relative_to(source).as_posix() for p in files if p.suffix.lower() in IMAGE_ENDINGS]
    # A name that is not UTF-8 is listed among the dropped files.
    names = [name for name in names if os.fsencode(name).decode("utf-8", "replace") == name]
    parts = [PurePosixPath(name).parts[:-1] for name in names]
    firsts = {folders[0] for folders in parts if folders}
    if not firsts:
        raise InvalidData(
            f"{source}: no image in a sub-folder; expected one folder a class, or a "
            "CSV with a column path, which source.labels_csv names"
        )
    columns: dict[str, list[str]] = {"path": names}
    splits = {first: SPLIT_FOLDERS.get(first.casefold(), "") for first in firsts}
    others = sorted(first for first in firsts if not splits[first])
    known = sorted(firsts.difference(others))
    # A single "train" may be a class, unless classes seem to be below the others, too.
    deep = all(
        len(folders) > 1 for folders in parts if folders and (splits[folders[0]] or len(known) == 1)
    )
    if others and known and deep:
        raise InvalidData(
            f"{source / others[0]}: no split, but beside folders of splits ({', '.join(known)}); "
            f"name it as one ({', '.join(FOLDER_SPLITS)}), or move it away"
        )
    if not others:
        if "index" not in splits.values():
            splits = {name: split.replace("test", "evaluation") for name, split in splits.items()}
        columns["split"] = [splits[folders[0]] if folders else "" for folders in parts]
        parts = [folders[1:] for folders in parts]
    columns["class"] = [f[0] if f and f[0].strip() else "" for f in parts]
    if deeper := [name for name, folders in zip(names, parts, strict=True) if len(folders) > 1]:
        say(
            f"{count_text(len(deeper), 'image')} in folders below those of the classes, first "
            f"{deeper[0]}; if these folders are levels, too, write labels.csv: path and a column "
            "for each level, coarse to fine (docs/bring-your-own-hierarchy.md, Nested folders)"
        )
    return pd.DataFrame(columns, index=[f"file {name}" for name in names], dtype="str")


def _empty_folders(source: Path, paths: Iterable[str], has_splits: bool) -> pd.DataFrame:
    """List the class folders that no image is in, as ``drop_unlisted`` lists files."""
    depth = 2 if has_splits else 1
    full = {PurePosixPath(path).parts[:depth] for path in paths}
    why = f"no file in it ends in {', '.join(sorted(IMAGE_ENDINGS))}"
    found = []
    for folder in sorted(source.glob("*/" * depth)):
        name = folder.relative_to(source).as_posix()
        parts = PurePosixPath(name).parts
        hidden = any(part.startswith(".") for part in parts)
        # Files in a folder whose name is not UTF-8 are listed themselves.
        readable = os.fsencode(name).decode("utf-8", "replace") == name
        is_class = not has_splits or parts[0].casefold() in SPLIT_FOLDERS
        if is_class and readable and not hidden and parts not in full:
            found.append((name, "train", "no image", why))
    return pd.DataFrame(found, columns=["path", "split", "reason", "detail"], dtype="str")


def _report_lost(classes: Collection[str], judged: pd.DataFrame, file: str) -> None:
    """Send a notice of classes without images, with the place of the first missing one."""
    if classes:
        shown = [repr(name) for name in sorted(classes)[:SHOWN]]
        shown += [f"{len(classes) - SHOWN:,} more"] if len(classes) > SHOWN else []
        remedy = "add images, or delete the folder"
        if len(judged):
            first = judged.iloc[0]
            place = f"{file} {judged.index[0]}" if file else f"'{first['path']}'"
            remedy = f"first {place} ({first['reason']})"
            if first["reason"] == "not in folder":
                remedy += "; add its image, or delete the row"
        say(
            f"{count_text(len(classes), 'class')} without images: {', '.join(shown)}; {remedy}; "
            "all reasons are in the images_dropped.parquet of `hgld collect`"
        )


def _checked(rows: pd.DataFrame, levels: list[str], path: Path) -> pd.DataFrame:
    """Return the rows if paths, splits and classes are sound; else raise with all faults.

    Classes are in Unicode's composed form, as decisions are: macOS decomposes names of folders.
    """
    outside = (
        f"{row}: path is empty"
        if path == "."
        else f"{row}: path '{path}' is not within the folder; write it relative to the folder"
        for row, path in rows["path"].items()
        if path == "." or PurePosixPath(path).is_absolute() or path.startswith("../")
    )
    # Names that differ only in blanks, invisible characters or Unicode form.
    names = ((level, rows[level].drop_duplicates()) for level in levels)
    alike = (
        f"{same.index[1]}: {level} {same.iloc[1]!a} looks like {same.iloc[0]!a} in {same.index[0]}"
        for level, different in names
        for _, same in different.groupby(different.map(_look), sort=False)
        if len(same) > 1
    )
    damaged = (
        f"{row}: {level} is '{name}', the error of a spreadsheet"
        for level in levels
        for row, name in rows.loc[rows[level].isin(ERRORS), level].items()
    )
    faults = [*_told_once(outside), *_told_once(damaged, "fill it in"), *_wrong_splits(rows)]
    faults += [*_told_once(alike, "write each name in one way"), *_wrong_parents(rows, levels)]
    if faults:
        raise InvalidData(f"{path}: {'; '.join(faults)}")
    return rows.assign(**{level: rows[level].str.normalize("NFC") for level in levels})


def _qualify(rows: pd.DataFrame, levels: list[str], path: Path) -> pd.DataFrame:
    """Rename each class with several parents to NAME (PARENT); one without a parent keeps its name.

    Raises:
        InvalidData: another class has the new name already; the two would become one.
    """
    for coarse, fine in pairwise(levels):
        pairs = rows.loc[(rows[coarse] != "") & (rows[fine] != ""), [coarse, fine]]
        # A name is repeated if it remains twice after equal pairs are merged.
        names = pairs.drop_duplicates()[fine]
        repeated = rows[fine].isin(names[names.duplicated()]) & (rows[coarse] != "")
        named = rows[fine] + " (" + rows[coarse] + ")"
        clash = repeated & named.isin(rows.loc[~repeated, fine])
        if clash.any():
            name, new = (column[clash].iloc[0] for column in (rows[fine], named))
            raise InvalidData(
                f"{path}: {rows.index[clash][0]}: {fine} '{name}' would be named '{new}', as "
                "another class is; rename one of them"
            )
        rows = rows.assign(**{fine: rows[fine].mask(repeated, named)})
    return rows


def _look(name: str) -> str:
    return " ".join(INVISIBLE.sub("", unicodedata.normalize("NFC", name)).split())


def _wrong_splits(rows: pd.DataFrame) -> list[str]:
    """Return one fault for each unknown split."""
    if "split" not in rows:
        return []
    wrong = rows.loc[(rows["split"] != "") & ~rows["split"].isin(SPLITS), "split"]
    found = [
        f"{same.index[0]}: split is '{word}'"
        + (f" (as in {len(same) - 1:,} other rows)" if len(same) > 1 else "")
        for word, same in wrong.groupby(wrong, sort=False)
    ]
    hint = f"expected one of {', '.join(FOLDER_SPLITS)}"
    return _told_once(found, hint + (nearest(wrong.iloc[0], FOLDER_SPLITS) if found else ""))


def _wrong_parents(rows: pd.DataFrame, levels: list[str]) -> list[str]:
    """Check that each class has one parent; faults name the first two rows that differ."""
    several = list(several_parents(rows, levels))
    hint = (
        "if these are different classes of one name, set source.repeated_names = "
        '"qualify", which names them NAME (PARENT); `hgld new --qualify` writes it; remove '
        "columns that are not levels"
    )
    if not any(several_parents(rows, levels[::-1])):
        hint = "the columns seem to run fine to coarse: write them coarse to fine, "
        hint += ", ".join(["path", *levels[::-1]])
    return [
        *_told_once((fault for is_empty, fault in several if is_empty), "fill it in"),
        *_told_once(
            (fault for is_empty, fault in several if not is_empty),
            f"a class has one parent; {hint}",
        ),
    ]


def _told_once(faults: Iterable[str], hint: str = "") -> list[str]:
    """Join faults of one kind: the first ones, the number of others, and a hint."""
    found = list(faults)
    more = [f"and {len(found) - SHOWN:,} more like these"] if len(found) > SHOWN else []
    return ["; ".join([*found[:SHOWN], *more, *([hint] if hint else [])])] if found else []


def _judge(rows: pd.DataFrame, finest: str, source: Path, file: str) -> pd.DataFrame:
    """Return path, split, size, reason and detail of each row; the reason of a taken row is empty.

    This is a separate table, since a level may have any of these names.
    """
    sizes, faults = zip(*(size_of_file(source / path) for path in rows["path"]), strict=True)
    places = pd.Series(rows.index, index=rows.index)
    first = places.groupby(rows["path"]).transform("first")
    in_file = f"{file} ".lstrip() + places
    in_row = pd.Series(faults, rows.index) + "; " + in_file
    unread = rows["path"].str.lower().str.endswith((*UNREAD_ENDINGS,))
    checks = (
        ("duplicate", rows["path"].duplicated(), f"again in {file}, first in " + first),
        ("empty label", rows[finest] == "", f"no {finest} in " + in_file),
        # a change of a hidden file would not be noticed
        ("hidden", rows["path"].str.contains(r"(?:^|/)\."), "a dot begins its name; " + in_file),
        ("not in folder", pd.Series(sizes, rows.index) < 0, in_row),
        ("unknown format", unread, "convert it to JPEG; " + in_file),
    )
    splits = rows.get("split", pd.Series("", index=rows.index, dtype="str")).replace("", "train")
    judged = pd.DataFrame({"path": rows["path"], "split": splits, "size_bytes": sizes})
    judged = judged.assign(reason="", detail="")
    for reason, wrong, detail in checks:
        judged = drop_where(judged, wrong, reason, detail)
    return judged


def _hint_at_twins(judged: pd.DataFrame, unlisted: "pd.Series[str]") -> pd.DataFrame:
    """Add a hint to a missing file whose name is almost that of one there, or has several."""
    # macOS writes names in decomposed form, Windows in any case, tables leave out the ending
    there = {_look(str(Path(path).with_suffix(""))).casefold(): path for path in unlisted}
    there |= {_look(path).casefold(): path for path in unlisted}

    def hint(path: str) -> str:
        if other := there.get(_look(path).casefold()):
            return f"; a file is there whose name looks almost the same: {other!a}"
        is_list = _look(SEVERAL.split(path)[0]).casefold() in there
        return "; a cell with several images: write a row for each" if is_list else ""

    hints = judged.loc[judged["reason"] == "not in folder", "path"].map(hint)
    return judged.assign(detail=judged["detail"].add(hints).fillna(judged["detail"]))


def _images(taken: pd.DataFrame, judged: pd.DataFrame, finest: str) -> pd.DataFrame:
    # Numbered by name, so that the order of the CSV changes no number.
    names = sorted(taken[finest].unique())
    images = pd.DataFrame(
        {
            "image_id": taken["path"],
            "split": judged["split"],
            "landmark_id": taken[finest].map({name: i for i, name in enumerate(names)}),
            "path": taken["path"],
            "offset": 0,
            "size_bytes": judged["size_bytes"],
        }
    )
    return with_credits(images, taken)
