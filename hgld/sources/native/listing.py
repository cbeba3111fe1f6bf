"""What the files of a data set list: images with their split and class, classes with their path.

A data set says things in its own way, once: in a line an image, or in a table of classes. A reader
brings both into one shape, so that nothing behind it knows the data set.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from hgld.artifacts import SPACE_OF_SPLIT, ColumnType
from hgld.errors import InvalidData

__all__ = ["CLASS", "Listing", "read_words", "require_file"]

WHOLE = re.compile(r"-?[0-9]{1,18}")  # and not 1_000, which Python takes for a number
CLASS = ["space", "landmark_id"]  # ids of train and index are different numbers


@dataclass(frozen=True)
class Listing:
    """All that the files of a data set say.

    Attributes:
        images: one row a line: path (relative to the source folder), split, landmark_id, file and
            line that say so; author, license, title and url where the data set knows them, copy_of
            where an image stands among the queries already.
        classes: one row a finest class: space, landmark_id, name, and its class on each level.
        levels: names of the level columns, coarse to fine.
    """

    images: pd.DataFrame
    classes: pd.DataFrame
    levels: tuple[str, ...]

    @classmethod
    def of_lines(cls, lines: pd.DataFrame, levels: Sequence[str]) -> "Listing":
        """From lines that name the class of every level; the finest level names the class.

        Raises:
            InvalidData: a finest class is under two parents.
        """
        lines = lines.assign(space=lines["split"].map(SPACE_OF_SPLIT).astype("str"))
        _require_one_path(lines, levels)
        classes = lines.drop_duplicates(CLASS)[[*CLASS, *levels]].reset_index(drop=True)
        images = lines.drop(columns=["space", *levels])
        return cls(images, classes.assign(name=classes[levels[-1]]), tuple(levels))


def _require_one_path(lines: pd.DataFrame, levels: Sequence[str]) -> None:
    """Each finest class has one path; the fault names the first two lines that differ."""
    paths = lines.drop_duplicates([*CLASS, *levels])
    odd = paths[paths.duplicated(CLASS, keep=False)]
    if odd.empty:
        return
    same = odd.groupby(CLASS, sort=False)
    first, second = next(iter(same))[1].to_dict("records")[:2]
    coarse = next(level for level in levels if first[level] != second[level])
    raise InvalidData(
        f"{second['file']} line {second['line']}: class {first['landmark_id']} is under "
        f"{coarse} '{second[coarse]}', but under '{first[coarse]}' in {first['file']} line "
        f"{first['line']}; a class has one parent ({len(same)} such classes)"
    )


def require_file(path: Path, what: str) -> Path:
    """The file, which has to be there.

    Raises:
        InvalidData: it is not.
    """
    if not path.is_file():
        raise InvalidData(
            f"{path}: no such file; expected {what}; set source.folder to where the data set lies"
        )
    return path


def read_words(
    path: Path, columns: dict[str, ColumnType], what: str, header: bool = False
) -> pd.DataFrame:
    """The lines of a text file as a table: so many words a line, the last one may hold blanks.

    Args:
        path: the file.
        columns: their names and types, in order.
        what: the file holds, for a person whose file is missing.
        header: the first line holds the names of the columns.

    Returns:
        The columns, and ``line``, counted from 1; blank lines are left out.

    Raises:
        InvalidData: no such file, too few words in a line, a word that is no number.
    """
    text = require_file(path, what).read_text(encoding="utf-8-sig")
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    lines = [(number, line) for number, line in lines if line]
    if header:
        if not lines or lines[0][1].split() != list(columns):
            found = lines[0][1] if lines else "nothing"
            raise InvalidData(
                f"{path} line 1: '{found}'; expected the header '{' '.join(columns)}'"
            )
        lines = lines[1:]
    cells = [_cells(path, number, line, columns) for number, line in lines]
    if not cells:
        raise InvalidData(f"{path}: no lines; expected {what}")
    table = pd.DataFrame(cells, columns=list(columns))
    types = {name: "int64" if kind == "int" else "str" for name, kind in columns.items()}
    return table.astype(types).assign(line=[number for number, _ in lines])


def _cells(path: Path, number: int, line: str, columns: dict[str, ColumnType]) -> list[str | int]:
    words = line.split(maxsplit=len(columns) - 1)
    if len(words) < len(columns):
        raise InvalidData(
            f"{path} line {number}: '{line}' has {len(words)} of {len(columns)} words; expected "
            + " ".join(columns)
        )
    numbers = [kind == "int" for kind in columns.values()]
    pairs = list(zip(words, numbers, strict=True))
    if not all(WHOLE.fullmatch(word) for word, is_number in pairs if is_number):
        raise InvalidData(
            f"{path} line {number}: '{line}'; expected {' '.join(columns)}, of which "
            + ", ".join(name for name, kind in columns.items() if kind == "int")
            + " are whole numbers"
        )
    return [int(word) if is_number else word for word, is_number in pairs]
