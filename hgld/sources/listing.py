"""Listing: common form of a data set's files, images with split and class, classes with path.

Data sets name classes in the line of each image or in a separate table. Each reader converts its
files to this form, so that later code does not depend on the data set.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.artifacts import SPACE_OF_SPLIT, ColumnType
from hgld.errors import InvalidData

WHOLE = re.compile(r"-?[0-9]{1,18}")  # stricter than int(), which accepts 1_000
CLASS = ["space", "landmark_id"]  # ids of train and index are different numbers
SET_FOLDER = "set source.folder to where the data set is"


@dataclass(frozen=True)
class Listing:
    """Content of a data set's files.

    Attributes:
        images: one row for each line: path (relative to the source folder), split, landmark_id,
            file and line; author, license, title and url if the data set has them, copy_of if
            the image is also a query; image_id, offset and size_bytes if the path is of a tar;
            ``BOX`` if an image is a part of its photo.
        classes: one row for each finest class: space, landmark_id, name, its class on each level.
        levels: names of the level columns, coarse to fine.
    """

    images: pd.DataFrame
    classes: pd.DataFrame
    levels: tuple[str, ...]

    @classmethod
    def of_lines(cls, lines: pd.DataFrame, levels: Sequence[str]) -> "Listing":
        """Build a listing from lines with the class of every level; the finest one names the class.

        Raises:
            InvalidData: a finest class has two parents, or a training image is in another split.
        """
        if "offset" not in lines:  # images of a tar share its path
            require_apart(lines, "photo", "path")
        lines = lines.assign(space=lines["split"].map(SPACE_OF_SPLIT).astype("str"))
        paths = lines.drop_duplicates([*CLASS, *levels])
        odd = paths[paths.duplicated(CLASS, keep=False)]
        if not odd.empty:
            same = odd.groupby(CLASS, sort=False)
            first, second = next(iter(same))[1].to_dict("records")[:2]
            coarse = next(level for level in levels if first[level] != second[level])
            raise InvalidData(
                f"{second['file']} line {second['line']}: class {first['landmark_id']} is under "
                f"{coarse} '{second[coarse]}', but under '{first[coarse]}' in {first['file']} line "
                f"{first['line']}; expected one parent ({len(same)} such classes); correct the "
                "lines"
            )
        classes = lines.drop_duplicates(CLASS)[[*CLASS, *levels]].reset_index(drop=True)
        images = lines.drop(columns=["space", *levels])
        return cls(images, classes.assign(name=classes[levels[-1]]), tuple(levels))


def require_file(path: Path, what: str, remedy: str = SET_FOLDER) -> Path:
    """Return the path of a required file.

    Raises:
        InvalidData: it is missing.
    """
    if not path.is_file():
        raise InvalidData(f"{path}: no such file; expected {what}; {remedy}")
    return path


def read_text(path: Path, what: str) -> str:
    """Return the text of a required file.

    Raises:
        InvalidData: it is missing, or not UTF-8.
    """
    try:
        return require_file(path, what).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidData(f"{path}: not UTF-8 text; expected {what}; unpack it again") from None


def read_json(path: Path, what: str) -> Any:
    """Return the document of a required file.

    Raises:
        InvalidData: it is missing, not UTF-8, or not JSON.
    """
    text = read_text(path, what)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidData(
            f"{path}: not a JSON document ({error}); expected {what}; the file is truncated or "
            "another one, get it again"
        ) from None


def require_apart(lines: pd.DataFrame, noun: str, column: str = "landmark_id") -> None:
    """Require that nothing of the training split, by default no class, is in another split.

    Args:
        lines: split, file and line of each image, and the column.
        noun: what the column names, for the message.
        column: that distinguishes them.

    Raises:
        InvalidData: something is; the first line of each side is named.
    """
    trained = lines["split"] == "train"
    both = lines[~trained & lines[column].isin(lines.loc[trained, column])]
    if both.empty:
        return
    second = both.iloc[0]
    first = lines[trained & (lines[column] == second[column])].iloc[0]
    raise InvalidData(
        f"{second['file']} line {second['line']}: {noun} {second[column]} is searched for, "
        f"but {first['file']} line {first['line']} trains on it; expected no {noun} on both "
        f"sides ({both[column].nunique()} are on both); get the lists again"
    )


def distinct_names(names: "pd.Series[str]", ids: "pd.Series[int]") -> "pd.Series[str]":
    """Return names of classes, with the id behind each that several have: paths must differ.

    Example:
        >>> distinct_names(pd.Series(["fox", "lynx", "fox"]), pd.Series([1, 2, 3])).tolist()
        ['fox 1', 'lynx', 'fox 3']
    """
    return names.mask(names.duplicated(keep=False), names + " " + ids.astype("str"))


def read_words(
    path: Path,
    columns: dict[str, ColumnType],
    what: str,
    header: bool = False,
    counted: bool = False,
) -> pd.DataFrame:
    """Read a text file with one word for each column; the last column may contain blanks.

    Args:
        path: the file.
        columns: their names and types, in order.
        what: content of the file, for the message if it is missing.
        header: whether the first line has the names of the columns.
        counted: whether a line before that states the number of lines.

    Returns:
        The columns, and ``line``, counted from 1; blank lines are left out.

    Raises:
        InvalidData: the file is missing or not UTF-8, a line has too few words, or a word is not a
            number.
    """
    text = read_text(path, what)
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    lines = [(number, line) for number, line in lines if line]
    stated = lines.pop(0)[1] if counted and lines else None
    if header:
        if not lines or lines[0][1].split() != list(columns):
            number, found = lines[0] if lines else (1, "nothing")
            raise InvalidData(
                f"{path} line {number}: '{found}'; expected the header '{' '.join(columns)}'; "
                "get the file again"
            )
        lines = lines[1:]
    if stated is not None and stated != str(len(lines)):
        raise InvalidData(
            f"{path} line 1: '{stated}', but the list has {len(lines)} lines; expected their "
            "number; the file is truncated or has other lines, get it again"
        )
    if not lines:
        raise InvalidData(f"{path}: no lines; expected {what}; get the file again")
    cells = [line.split(maxsplit=len(columns) - 1) for _, line in lines]
    numbers = [place for place, kind in enumerate(columns.values()) if kind == "int"]
    for (number, line), words in zip(lines, cells, strict=True):
        if len(words) < len(columns):
            raise InvalidData(
                f"{path} line {number}: '{line}' has {len(words)} of {len(columns)} words; "
                f"expected {' '.join(columns)}; correct the line, or get the file again"
            )
        if not all(WHOLE.fullmatch(words[place]) for place in numbers):
            raise InvalidData(
                f"{path} line {number}: '{line}'; expected {' '.join(columns)}, of which "
                + ", ".join(list(columns)[place] for place in numbers)
                + " are whole numbers; correct the line, or get the file again"
            )
    table = pd.DataFrame(cells, columns=list(columns))
    types = {name: "int64" if kind == "int" else "str" for name, kind in columns.items()}
    return table.astype(types).assign(line=[number for number, _ in lines])


def read_lists(
    source: Path,
    splits: Mapping[str, str],
    columns: dict[str, ColumnType],
    what: str,
    header: bool = False,
) -> pd.DataFrame:
    """Read a list of each split by ``read_words``; the columns ``split`` and ``file`` name it.

    Args:
        source: the source folder.
        splits: file of a list, relative to it -> the split.
        columns: as in ``read_words``.
        what: likewise.
        header: likewise.
    """
    lists = [
        read_words(source / file, columns, what, header).assign(split=split, file=file)
        for file, split in splits.items()
    ]
    return pd.concat(lists, ignore_index=True)
