"""One published label file: read, checked, counted, and written back as it was.

H-GLDv2's official files have five columns; a cut that is going round has the three that matter
here. Both come with blanks at the ends of labels, either line end, and rows without a label. What
is worked with is clean; what is written back is what was read, cell by cell. ``labels.csv`` of a
release of classes is read, too; it has the columns split, class_id and one for each level, and an
apostrophe before texts that a spreadsheet would run, which is no part of a name.

A pipeline may also take its hierarchy from such files, H-GLDv2's own or third-party cuts of them;
they replace scrape, review and decisions.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.artifacts import (
    BY_LANDMARK,
    KINDS,
    ColumnType,
    columns_of,
    read_csv,
    read_header,
    row_in_file,
    table_of,
    write_file,
)
from hgld.artifacts.cells import single_blanks_all, unguard_formulas
from hgld.artifacts.table_checks import require_unique
from hgld.config import KIND_SEPARATOR, LEVEL_NAMES, LabelOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.kinds import classes_above
from hgld.shards.classes import number_classes
from hgld.tasks import say
from hgld.words import describe_twins, nearest, plural_text

BOM = b"\xef\xbb\xbf"
NEEDED: dict[str, ColumnType] = {
    "landmark_id": "int",
    "hierarchical_label": "text",
    "natural_or_human_made": "text",
}
OPTIONAL = ("category", "supercategory")  # the Commons page, and the "instance of" value
COLUMNS = columns_of("train_labels")
NO_KIND = "(none)"  # of a hierarchy with one level above the landmarks


@dataclass(frozen=True)
class LabelFile:
    """A label file as it was read.

    Attributes:
        cells: every column as text, unchanged.
        labels: the five published columns with single blanks; empty where the file has none.
        line_end: between its rows; ``last_line_ends`` says whether the last has one too.
        noun: of what is labelled: landmarks by number, or classes by name (``category``), whose
            numbers follow the order of the names.
        paths: the class of each level, a column a level, coarse to fine; None with H-GLDv2's two.
    """

    path: Path
    cells: pd.DataFrame
    labels: pd.DataFrame
    line_end: str
    last_line_ends: bool
    bom: bool
    noun: str = LEVEL_NAMES[-1]
    paths: pd.DataFrame | None = None

    @property
    def above(self) -> pd.DataFrame:
        """The class of each level above the landmarks or classes, a column a level."""
        if self.paths is None:
            columns = ["natural_or_human_made", "hierarchical_label"]
            return self.labels[columns].set_axis(LEVEL_NAMES[:-1], axis="columns")
        # A flat data set has no level above its classes.
        return self.paths.iloc[:, : max(1, self.paths.shape[1] - 1)]

    @property
    def labelled(self) -> "pd.Series[bool]":
        """True for rows that have a label and a kind."""
        filled = self.labels["hierarchical_label"].ne("")
        return filled & self.labels["natural_or_human_made"].ne("")

    @property
    def untidy(self) -> "pd.Series[bool]":
        """True for rows that have a cell with blanks at its ends or double ones inside."""
        # An id is a number, so blanks around it make no difference.
        clean = self.labels.drop(columns="landmark_id") if self.paths is None else self.paths
        shown = [name for name in clean if name in self.cells]
        return (unguard_formulas(self.cells[shown]) != clean[shown]).any(axis=1)

    def kinds(self) -> "pd.Series[str]":
        """Label -> its kind, for the labels that are there."""
        rows = self.labels[self.labelled].drop_duplicates("hierarchical_label")
        return rows.set_index("hierarchical_label")["natural_or_human_made"].sort_index()

    def counts(self) -> dict[str, Any]:
        """Count rows with and without a label, untidy ones, and labels of each kind or level."""
        if self.paths is None:
            kinds = self.kinds()
            labels = {kind: int((kinds == kind).sum()) for kind in KINDS}
        else:
            above = self.above[self.labelled]
            # By path, since a name may be there again below another parent.
            labels = {
                str(name): len(above.iloc[:, : depth + 1].drop_duplicates())
                for depth, name in enumerate(above)
            }
        return {
            "labelled": int(self.labelled.sum()),
            "without_label": int((~self.labelled).sum()),
            "untidy": int(self.untidy.sum()),
            "labels": labels,
        }

    def describe(self) -> str:
        """Return the counts in short lines."""
        found = self.counts()
        labels = found["labels"]
        if self.paths is None:
            counts = ", ".join(f"{number} {kind}" for kind, number in labels.items())
            what, blank = f"landmarks with one of {len(self.kinds())} labels", "label or kind"
        else:
            counts = ", ".join(f"{level} {number:,}" for level, number in labels.items())
            what, blank = plural_text(self.noun), "a level"
        lines = [f"{self.path.name}:", f"{found['labelled']:>9,} {what} ({counts})"]
        if found["without_label"]:
            lines.append(f"{found['without_label']:>9,} without: {blank} is blank")
        if found["untidy"]:
            lines.append(f"{found['untidy']:>9,} with surplus blanks, which are ignored")
        named = (self.above if self.paths is None else self.paths)[self.labelled]
        twins = (describe_twins(dict.fromkeys(named[level], "")) for level in named)
        lines += [f"{'':<10}{text}" for text in twins if text]
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        """Write the cells as they were read, with the file's own columns and line ends.

        A file that quotes no more cells than it has to comes out byte for byte.
        """
        text = self.cells.to_csv(index=False, lineterminator=self.line_end)
        text = text if self.last_line_ends else text.removesuffix(self.line_end)
        write_file(path, (BOM if self.bom else b"") + text.encode())


def read_label_file(path: Path) -> LabelFile:
    """Read and check one file.

    Raises:
        InvalidData: no such file or column, an id twice, a kind that does not exist, a label that
            has two kinds, a class that has two paths.
    """
    if path.is_dir():
        raise InvalidData(
            f"{path}: a folder; name a label file in it, such as train_label_to_hierarchical.csv"
        )
    header = read_header(path, NEEDED)
    # A release calls the number "class_id_" if a level is called "class_id".
    of_classes = header[:1] == ["split"] and len(header) > 2 and header[1].rstrip("_") == "class_id"
    if of_classes:
        number, *levels = header[1:]
        table = read_csv(path, {number: "int", **dict.fromkeys(levels, "text")})
        require_unique(table, (number,), path, partial(row_in_file, path))
        paths = unguard_formulas(table[levels]).apply(single_blanks_all)
        labels = _labels_of_paths(table[number], paths, "class")
    else:
        paths = None
        there = [name for name in OPTIONAL if name in header]
        columns: dict[str, ColumnType] = {**NEEDED, **dict.fromkeys(there, "text")}
        table = read_csv(path, columns)
        texts = {name: single_blanks_all(table[name]) for name in columns if name != "landmark_id"}
        labels = table.assign(**texts, **{name: "" for name in OPTIONAL if name not in there})
        kinds = labels["natural_or_human_made"]
        wrong = ~kinds.isin(["", *KINDS])
        if wrong.any():
            kind = kinds[wrong].iloc[0]
            expected = f"natural_or_human_made is {kind!r}; expected {' or '.join(KINDS)}"
            raise InvalidData(f"{path} row {_row(path, wrong)}: {expected}{nearest(kind, KINDS)}")
        require_unique(labels, ("landmark_id",), path, partial(row_in_file, path))
    data = path.read_bytes()
    # All columns again as text: a conversion would lose how a cell was written.
    cells = read_csv(path, dict.fromkeys(header, "text"))
    line_end = "\r\n" if b"\r\n" in data[:4096] else "\n"
    file = LabelFile(
        path,
        cells,
        labels[COLUMNS],
        line_end,
        data.endswith(b"\n"),
        data.startswith(BOM),
        "class" if of_classes else LEVEL_NAMES[-1],
        paths,
    )
    _require_one_path(file)
    return file


def _require_one_path(file: LabelFile) -> None:
    """Require that a label has one kind, and a class one path.

    Groups of one name below different parents are different groups.
    """
    labels = file.labels[file.labelled]
    paths, names = labels["natural_or_human_made"], labels["hierarchical_label"]
    if file.paths is not None:
        names = labels["category"]
        above = file.above[file.labelled].to_numpy().tolist()
        paths = pd.Series([KIND_SEPARATOR.join(one) for one in above], names.index, dtype=str)
    # Each row is compared with the first row of its name.
    first = paths.groupby(names).transform("first")
    torn = paths != first
    if torn.any():
        name, here, there = (column[torn].iloc[0] for column in (names, paths, first))
        fault = f"'{name}' is {here} here and {there} above; a label has one kind"
        if file.paths is not None:
            fault = f"'{name}' is below '{here}' here and below '{there}' above; "
            fault += "a class has one path"
        row = _row(file.path, torn.reindex(file.labels.index, fill_value=False))
        raise InvalidData(f"{file.path} row {row}: {fault}")


def _row(path: Path, faulty: "pd.Series[bool]") -> int:
    """Number of the first such row as a spreadsheet counts."""
    return row_in_file(path, int(faulty.to_numpy().argmax()))


def read_published(
    source: Path, landmarks: pd.DataFrame, *, options: LabelOptions, context: StageContext
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """One row a landmark before; one row of ``hierarchy`` or of ``label_dropped`` after.

    A landmark is dropped as ``not_published`` where the files do not have it and as ``no_label``
    where its label or kind is blank. Rows of landmarks that are not in this run are left out.

    Returns:
        ``train_labels``, ``index_labels``, ``hierarchy``, ``label_dropped``.

    Raises:
        UsageError: no file is named.
        InvalidData: no such file or column, an id twice, a kind that does not exist, a label that
            has two kinds.
    """
    files = {"train": options.train_csv, "index": options.index_csv}
    read = {split: read_label_file(source / name) for split, name in files.items() if name}
    if not read:
        raise UsageError("label.train_csv and label.index_csv are both empty; name a file to read")
    for file in read.values():
        say(file.describe())
    tables = [file.labels.assign(split=split) for split, file in read.items()]
    found = landmarks.merge(pd.concat(tables), on=BY_LANDMARK, how="left", indicator="where")
    known = found["where"] == "both"
    labelled = found["hierarchical_label"].ne("") & found["natural_or_human_made"].ne("") & known
    labels = found[labelled]
    # A third-party cut has no category; the data set has the page of each landmark.
    category = labels["category"].where(labels["category"] != "", labels["commons_url"])
    labels = labels.assign(category=category)
    dropped = [
        _dropped(found[~known], "not_published", "not in the published file"),
        _dropped(found[known & ~labelled], "no_label", "its published label is blank"),
    ]
    train, index = (labels[labels["split"] == split][COLUMNS] for split in files)
    words = {"natural_or_human_made": "kind", "hierarchical_label": "supercategory"}
    hierarchy = hierarchy_of(labels[[*BY_LANDMARK, *words]].rename(columns=words))
    return train, index, hierarchy, pd.concat(dropped)


def classes_of(hierarchy: pd.DataFrame) -> pd.DataFrame:
    """Return kind and supercategory of each landmark, by split and id: ``hierarchy_of`` back.

    Raises:
        InvalidData: no rows, or a path that is not as the others.
    """
    found = number_classes(hierarchy)
    names = found.landmarks.set_index(BY_LANDMARK)
    paths = names[[f"name_{k}" for k in range(1, len(found.levels))]].to_numpy().tolist()
    kinds = [KIND_SEPARATOR.join(path[:-1]) for path in paths]
    groups = ["".join(path[-1:]) for path in paths]  # a flat data set has none
    return pd.DataFrame({"kind": kinds, "supercategory": groups}, names.index, dtype="str")


def labels_now(
    classes: pd.DataFrame, labels: Mapping[str, pd.DataFrame]
) -> dict[str, pd.DataFrame]:
    """Return split -> published columns with the classes of the hierarchy, which may be edited.

    Args:
        classes: of ``classes_of``.
        labels: split -> the columns as label made them.
    """
    found = {}
    for split, rows in labels.items():
        keys = pd.MultiIndex.from_product([[split], rows["landmark_id"]])
        own = classes.reindex(keys, fill_value="")
        found[split] = rows.assign(
            hierarchical_label=own["supercategory"].to_numpy(),
            natural_or_human_made=own["kind"].to_numpy(),
        )
    return found


def files_of_paths(hierarchy: pd.DataFrame, path: Path) -> dict[str, LabelFile]:
    """Return split -> labels of paths; empty if these are H-GLDv2's levels of its landmarks.

    A landmark's label is the class above it, its kind the classes above that.
    """
    found = [json.loads(text) for text in hierarchy["path"]]
    if not found:
        return {}
    paths = pd.DataFrame(found, index=hierarchy.index).fillna("")
    ids = hierarchy["split"] + ":" + hierarchy["landmark_id"].astype("str")
    noun = LEVEL_NAMES[-1] if paths.iloc[:, -1].equals(ids) else "class"
    if noun == LEVEL_NAMES[-1] and tuple(paths) == LEVEL_NAMES:
        return {}
    labels = _labels_of_paths(hierarchy["landmark_id"], paths, noun)
    return {
        str(split): LabelFile(
            path, rows, labels.loc[rows.index], "\n", True, False, noun, paths.loc[rows.index]
        )
        for split, rows in hierarchy.groupby("split")
    }


def _labels_of_paths(numbers: "pd.Series[int]", paths: pd.DataFrame, noun: str) -> pd.DataFrame:
    """Return the published columns; both label and kind are blank if a class of the path is."""
    classes = paths.to_numpy().tolist()
    kinds = [(KIND_SEPARATOR.join(one[:-2]) or NO_KIND) if all(one) else "" for one in classes]
    labels = {
        "landmark_id": numbers,
        "category": [one[-1] if noun == "class" else "" for one in classes],
        "supercategory": "",
        "hierarchical_label": [one[-2:][0] for one in classes],
        "natural_or_human_made": kinds,
    }
    return pd.DataFrame(labels, index=paths.index)[COLUMNS]


def hierarchy_of(
    labels: pd.DataFrame,
    levels: Sequence[str] = LEVEL_NAMES[:-1],
    names: Mapping[tuple[str, int], str] | None = None,
) -> pd.DataFrame:
    """``hierarchy`` of landmarks with the columns split, landmark_id, kind, supercategory.

    Args:
        labels: one row a landmark.
        levels: names of the levels above the finest, coarse to fine.
        names: of the classes by split and id, if the finest level is "class" and not "landmark".
    """
    finest = LEVEL_NAMES[-1] if names is None else "class"
    columns = [labels[name] for name in (*BY_LANDMARK, "kind", "supercategory")]
    rows = []
    for split, landmark_id, kind, group in zip(*columns, strict=True):
        own = f"{split}:{landmark_id}" if names is None else names[split, landmark_id]
        classes = (*classes_above(kind), group, own)
        path = dict(zip((*levels, finest), classes, strict=True))
        text = json.dumps(path, ensure_ascii=False)
        rows.append({"split": split, "landmark_id": landmark_id, "path": text})
    return table_of("hierarchy", rows)


def _dropped(found: pd.DataFrame, reason: str, detail: str) -> pd.DataFrame:
    return found[BY_LANDMARK].assign(reason=reason, detail=detail)
