"""DyML-Vehicle, -Animal and -Product: CSVs of three levels without line break after the header.

The published files start with ``fname, coarse_id, middle_id, fine_id0.jpg, 3, 17, 201``, so a plain
CSV reader loses the first image. Here the known column names are removed, and the rest is the first
row.

Vehicle and Animal have three test benchmarks, each with queries, a gallery and labels of one level;
their splits are ``test-fine`` and ``index-fine``, and so on. A class of a benchmark is used at
every level of its path, so that two images share all levels or none, and every metric is that of
the one level. A query searches the other queries and the gallery. Galleries contain copies of the
queries, byte for byte, which are left out; the rest are the distractors. Product has one test set
with all three levels (``test``), all against all. It is not documented that class numbers of the
test files equal those of training, so they are kept apart.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from hgld.artifacts import hash_file
from hgld.config import SourceOptions
from hgld.errors import InvalidData
from hgld.sources.listing import WHOLE, Listing, read_text

LEVELS = ("coarse", "middle", "fine")
PRODUCT_TEST = "mini-bmk_all_in_one"
SIDES = {"query": "test", "gallery": "index"}
HEADER = re.compile(r"fname((?:\s*,\s*(?:coarse_id|middle_id|fine_id|labels))+)(.*)")


def read(source: Path, _: SourceOptions) -> Listing:
    """Read the classes and images of training and test.

    Raises:
        InvalidData: a file is missing or has another form.
    """
    parts = [_read_paths(source, "train", "train")]
    if (source / PRODUCT_TEST).is_dir():
        parts.append(_read_paths(source, PRODUCT_TEST, "test"))
    else:
        for level in LEVELS:
            queries, gallery = (_read_side(source, level, side) for side in SIDES)
            # The query with the same bytes.
            copies = _find_copies(source, queries["path"], gallery["path"])
            parts += [queries, gallery.assign(copy_of=gallery["path"].map(copies).fillna(""))]
    return Listing.of_lines(pd.concat(parts, ignore_index=True), LEVELS)


def read_glued(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    """Read a CSV whose header may be joined to its first row.

    Args:
        path: the file.
        columns: required integer columns after ``fname``, in the order of the header.

    Returns:
        fname, the columns, and ``line``, counted from 1.

    Raises:
        InvalidData: the file is missing, or has another header or a row of another form.
    """
    text = read_text(path, "a CSV of the data set")
    first, *others = text.splitlines() or [""]
    header = HEADER.fullmatch(first.strip())
    names = re.findall(r"\w+", header[1]) if header else []
    if header is None or sorted(names) != sorted(columns):
        raise InvalidData(
            f"{path} line 1: '{first[:80]}'; expected to begin with "
            f"fname, {', '.join(columns)}; unpack it again"
        )
    rows = []
    for number, line in enumerate([header[2], *others], start=1):
        if not line.strip():
            continue
        fname, *cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(names) or not all(map(WHOLE.fullmatch, cells)):
            raise InvalidData(
                f"{path} line {number}: '{line.strip()}'; expected fname, {', '.join(names)}, and "
                "whole numbers behind the file name; unpack it again"
            )
        rows.append([fname, *map(int, cells), number])
    return pd.DataFrame(rows, columns=["fname", *names, "line"])


def _read_paths(source: Path, folder: str, split: str) -> pd.DataFrame:
    """Read images with a class on every level."""
    rows = read_glued(source / folder / "label.csv", tuple(f"{level}_id" for level in LEVELS))
    space = "" if split == "train" else f"{split} "
    names = {level: f"{space}{level} " + rows[f"{level}_id"].astype("str") for level in LEVELS}
    lines = _lines(rows, f"{folder}/imgs", split, f"{folder}/label.csv")
    return lines.assign(landmark_id=rows["fine_id"], **names)


def _read_side(source: Path, level: str, side: str) -> pd.DataFrame:
    """Read images with a class of one level, used at all levels; numbers encode the benchmark."""
    folder = f"bmk_{level}"
    rows = read_glued(source / folder / f"{side}.csv", ("labels",))
    lines = _lines(rows, f"{folder}/{side}", f"{SIDES[side]}-{level}", f"{folder}/{side}.csv")
    number = rows["labels"] * len(LEVELS) + LEVELS.index(level)
    name = f"test {level} " + rows["labels"].astype("str")
    return lines.assign(landmark_id=number, copy_of="", **dict.fromkeys(LEVELS, name))


def _find_copies(source: Path, queries: Iterable[str], gallery: Iterable[str]) -> dict[str, str]:
    """Return gallery path -> query with the same bytes; each query matches once."""
    by_size: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    # sizes first, so that only gallery files with the size of a query are hashed
    for path in queries:
        if (source / path).is_file():
            by_size[(source / path).stat().st_size][hash_file(source / path)].append(path)
    copies = {}
    for path in gallery:
        file = source / path
        hashes = by_size.get(file.stat().st_size) if file.is_file() else None
        if hashes and (same := hashes.get(hash_file(file))):
            copies[path] = same.pop(0)
    return copies


def _lines(rows: pd.DataFrame, folder: str, split: str, file: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "path": f"{folder}/" + rows["fname"],
            "split": split,
            "file": file,
            "line": rows["line"],
        }
    )
