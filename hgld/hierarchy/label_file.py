"""One published label file: read, checked, counted, and written back as it was.

H-GLDv2's official files have five columns; a cut that is going round has the three that matter
here. Both come with blanks at the ends of labels, either line end, and rows without a label. What
is worked with is clean; what is written back is what was read, cell by cell.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.artifacts import KINDS, ColumnType, atomic_path, columns_of, read_csv, read_header
from hgld.artifacts.checks import require_unique
from hgld.errors import InvalidData
from hgld.hierarchy.columns import single_blanks_all
from hgld.words import nearest

__all__ = ["COLUMNS", "LabelFile", "read_label_file"]

BOM = b"\xef\xbb\xbf"
NEEDED: dict[str, ColumnType] = {
    "landmark_id": "int",
    "hierarchical_label": "text",
    "natural_or_human_made": "text",
}
OPTIONAL = ("category", "supercategory")  # the Commons page, and the "instance of" value
COLUMNS = columns_of("train_labels")


@dataclass(frozen=True)
class LabelFile:
    """A label file as it was read.

    Attributes:
        cells: every column as text, unchanged.
        labels: the five published columns with single blanks; empty where the file has none.
        line_end: between its rows; ``last_line_ends`` says whether the last has one too.
    """

    path: Path
    cells: pd.DataFrame
    labels: pd.DataFrame
    line_end: str
    last_line_ends: bool
    bom: bool

    @property
    def labelled(self) -> "pd.Series[bool]":
        """True for rows that have a label and a kind."""
        filled = self.labels["hierarchical_label"].ne("")
        return filled & self.labels["natural_or_human_made"].ne("")

    @property
    def untidy(self) -> "pd.Series[bool]":
        """True for rows that have a cell with blanks at its ends or double ones inside."""
        shown = [name for name in COLUMNS if name in self.cells and name != "landmark_id"]
        return (self.cells[shown] != self.labels[shown]).any(axis=1)

    def kinds(self) -> "pd.Series[str]":
        """Label -> its kind, for the labels that are there."""
        rows = self.labels[self.labelled].drop_duplicates("hierarchical_label")
        return rows.set_index("hierarchical_label")["natural_or_human_made"].sort_index()

    def counts(self) -> dict[str, Any]:
        """Count landmarks with and without a label, untidy rows, and the labels of each kind."""
        kinds = self.kinds()
        return {
            "labelled": int(self.labelled.sum()),
            "without_label": int((~self.labelled).sum()),
            "untidy": int(self.untidy.sum()),
            "labels": {kind: int((kinds == kind).sum()) for kind in KINDS},
        }

    def describe(self) -> str:
        """Return the counts in short lines."""
        found = self.counts()
        labels = found["labels"]
        counts = ", ".join(f"{number} {kind}" for kind, number in labels.items())
        lines = [
            f"{self.path.name}:",
            f"{found['labelled']:>9,} landmarks with one of {len(self.kinds())} labels ({counts})",
        ]
        if found["without_label"]:
            lines.append(f"{found['without_label']:>9,} without: label or kind is blank")
        if found["untidy"]:
            lines.append(f"{found['untidy']:>9,} with blanks too many, read without them")
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        """Write the cells as they were read, with the file's own columns and line ends.

        A file that quotes no more cells than it has to comes out byte for byte.
        """
        text = self.cells.to_csv(index=False, lineterminator=self.line_end)
        text = text if self.last_line_ends else text.removesuffix(self.line_end)
        with atomic_path(path) as temporary:
            temporary.write_bytes((BOM if self.bom else b"") + text.encode())


def read_label_file(path: Path) -> LabelFile:
    """Read and check one file.

    Raises:
        InvalidData: no such file or column, an id twice, a kind that does not exist, a label that
            has two kinds.
    """
    header = read_header(path, NEEDED)
    there = [name for name in OPTIONAL if name in header]
    columns: dict[str, ColumnType] = {**NEEDED, **dict.fromkeys(there, "text")}
    table = read_csv(path, columns)
    texts = {name: single_blanks_all(table[name]) for name in columns if columns[name] == "text"}
    table = table.assign(**texts, **{name: "" for name in OPTIONAL if name not in there})
    _check(table, path)
    data = path.read_bytes()
    cells = read_csv(path, dict.fromkeys(header, "text"))
    line_end = "\r\n" if b"\r\n" in data[:4096] else "\n"
    return LabelFile(
        path, cells, table[COLUMNS], line_end, data.endswith(b"\n"), data.startswith(BOM)
    )


def _check(table: pd.DataFrame, path: Path) -> None:
    kinds, names = table["natural_or_human_made"], table["hierarchical_label"]
    wrong = ~kinds.isin(["", *KINDS])
    if wrong.any():
        kind = kinds[wrong].iloc[0]
        expected = f"natural_or_human_made is {kind!r}; expected {' or '.join(KINDS)}"
        raise InvalidData(f"{path} row {_row(wrong)}: {expected}{nearest(kind, KINDS)}")
    require_unique(table, ("landmark_id",), path)
    filled = (kinds != "") & (names != "")
    first = kinds[filled].groupby(names[filled]).transform("first").reindex(kinds.index)
    torn = filled & (kinds != first)
    if torn.any():
        raise InvalidData(
            f"{path} row {_row(torn)}: '{names[torn].iloc[0]}' is {kinds[torn].iloc[0]} here and "
            f"{first[torn].iloc[0]} above; a label has one kind"
        )


def _row(faulty: "pd.Series[bool]") -> int:
    """Number of the first such row as a spreadsheet counts."""
    return int(faulty.to_numpy().argmax()) + 2
