"""Every file between two stages: its name, its place, its columns, and how it is read and written.

A stage hands over tables and folders; only this module knows their file names and formats. A
table is checked when it is written and again when it is read, since a person may edit it in
between; a fault names the file, the row as a spreadsheet counts it, and what was expected.
Writing is atomic: a temporary file in the same folder, fsync, rename.
"""

import csv
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from hgld.config import nearest
from hgld.errors import DISK_FULL, InvalidData

__all__ = [
    "ARTIFACTS",
    "Artifact",
    "Folder",
    "Json",
    "Table",
    "VectorFile",
    "Vectors",
    "atomic_folder",
    "atomic_path",
    "hash_file",
    "read_csv",
    "write_csv",
]

Place = Literal["work", "labels", "source"]
ColumnType = Literal["int", "text", "float"]

BENCHMARKS = ("coarse", "middle", "fine")  # of DyML: each with queries and a gallery of its own
SPLITS = (
    "train",
    "validation",
    "evaluation",
    "index",
    "test",
    *(f"{side}-{benchmark}" for benchmark in BENCHMARKS for side in ("index", "test")),
)
ID_SPACES = ("train", "index")  # landmark ids of train and index are different numbers
SPACE_OF_SPLIT = {
    "train": "train",
    "validation": "train",
    "evaluation": "train",
    **{split: "index" for split in SPLITS if split.startswith(("index", "test"))},
}
KINDS = ("natural", "human-made")
DECISIONS = ("keep", "move", "drop", "unsure")
STATUSES = ("open", "unsure", "stale", "decided")
CHANGES = ("new", "kept", "split", "merged", "gone")


@dataclass(frozen=True)
class Table:
    """A CSV or Parquet table; the columns in order, the key by which rows are unique and sorted.

    Attributes:
        values: column -> the only values it may hold.
        spreadsheet: written with BOM and CRLF, for people who open it in a spreadsheet.
        sorted_rows: False where the order of the rows means something.
        optional: read as empty where it has not been written.
        may_lack: text columns that an older file need not have; they are read as empty.
    """

    file: str
    columns: Mapping[str, ColumnType]
    key: tuple[str, ...] = ()
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    place: Place = "work"
    spreadsheet: bool = False
    sorted_rows: bool = True
    optional: bool = False
    may_lack: tuple[str, ...] = ()

    def empty(self) -> pd.DataFrame:
        """The table with no rows."""
        return pd.DataFrame(columns=list(self.columns)).astype(_pandas_types(self.columns))

    def read(self, path: Path) -> pd.DataFrame:
        """Read and check; extra columns of a person are left out."""
        if self.file.endswith(".parquet"):
            return self.check(_read_parquet(path), path)
        return self.check(read_csv(path, self.columns, self.may_lack), path)

    def write(self, table: pd.DataFrame, path: Path) -> None:
        """Check, sort by key and write atomically; the same rows give the same bytes."""
        table = self.check(table, path)
        if self.key and self.sorted_rows:
            table = table.sort_values(list(self.key), kind="stable", ignore_index=True)
        with atomic_path(path) as temporary:
            if self.file.endswith(".parquet"):
                table.to_parquet(temporary, index=False, compression="zstd")
            else:
                write_csv(table, temporary, spreadsheet=self.spreadsheet)

    def append(self, rows: pd.DataFrame, path: Path) -> None:
        """Add rows to a table of text; what stands there stays, extra columns of a person too."""
        there = [*_parse_csv(path, self.columns)] if path.exists() else [self.empty()]
        rows = self.check(rows, path)
        with atomic_path(path) as temporary:
            write_csv(pd.concat([*there, rows], ignore_index=True).fillna(""), temporary)

    def check(self, table: pd.DataFrame, path: Path) -> pd.DataFrame:
        """The table in its declared columns and types.

        Raises:
            InvalidData: a missing column, a cell that is no number where one is expected, a value
                that is not allowed, a key used twice.
        """
        _require_columns(table.columns, self.columns, path)
        _require_numbers(table, self.columns, path)
        table = table[list(self.columns)].astype(_pandas_types(self.columns))
        for column, allowed in self.values.items():
            _require_values(table, column, allowed, path)
        if self.key:
            _require_unique(table, self.key, path)
        return table


@dataclass(frozen=True)
class Vectors:
    """Unit vectors (N, D) float32 with the ids of their rows and what made them."""

    ids: list[str]
    vectors: np.ndarray
    made_by: dict[str, str]


@dataclass(frozen=True)
class VectorFile:
    """An ``.npz`` of ``Vectors``."""

    file: str
    place: Place = "work"

    def read(self, path: Path) -> Vectors:
        """Read and check."""
        _require_no_folder(path)
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
                made_by = json.loads(str(data["made_by"]))
                found = Vectors([str(i) for i in data["ids"]], data["vectors"], made_by)
        except Exception as error:  # numpy raises whatever the damage leads to
            raise InvalidData(f"{path}: not a readable vector file ({error}); {_REBUILD}") from None
        if found.vectors.shape[:1] != (len(found.ids),):
            raise InvalidData(
                f"{path}: {len(found.ids)} ids but vectors of shape {found.vectors.shape}; "
                + _REBUILD
            )
        if found.vectors.dtype.kind != "f" or not np.isfinite(found.vectors).all():
            raise InvalidData(f"{path}: vectors that are no finite numbers; {_REBUILD}")
        return found

    def write(self, vectors: Vectors, path: Path) -> None:
        """Write atomically; the same vectors give the same bytes."""
        buffer = io.BytesIO()
        np.savez(
            buffer,
            ids=np.array(vectors.ids, dtype=str),
            vectors=vectors.vectors.astype(np.float32),
            made_by=np.array(json.dumps(vectors.made_by, sort_keys=True)),
        )
        with atomic_path(path) as temporary:
            temporary.write_bytes(buffer.getvalue())


@dataclass(frozen=True)
class Json:
    """A JSON document.

    Attributes:
        keys: what it must hold, none of them empty.
        optional: read as empty where it has not been written.
    """

    file: str
    place: Place = "work"
    keys: tuple[str, ...] = ()
    optional: bool = False

    def empty(self) -> dict[str, Any]:
        """A document that says nothing."""
        return {}

    def read(self, path: Path) -> dict[str, Any]:
        """Read and check that it is an object with its keys."""
        _require_no_folder(path)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InvalidData(f"{path}: not a JSON document ({error}); {self._mend}") from None
        if not isinstance(document, dict):
            raise InvalidData(f"{path}: expected a JSON object; {self._mend}")
        for key in self.keys:
            if not document.get(key):
                raise InvalidData(f"{path}: '{key}' is missing or empty; {self._mend}")
        return document

    @property
    def _mend(self) -> str:
        return _REBUILD if self.place == "work" else "mend it or delete it"

    def write(self, document: Mapping[str, Any], path: Path) -> None:
        """Write atomically, keys in the order given."""
        with atomic_path(path) as temporary:
            text = json.dumps(document, indent=1, ensure_ascii=False)
            temporary.write_text(text + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Folder:
    """A folder of files that its stage writes itself; read as its path.

    Attributes:
        verify: "module:function" that checks the folder and raises InvalidData.
        index: "module:function" that lists what the folder holds as a table.
    """

    file: str
    place: Place = "work"
    verify: str | None = None
    index: str | None = None

    def read(self, path: Path) -> Path:
        """The folder's path."""
        return path


Artifact = Table | VectorFile | Json | Folder

PIECE_ROWS = 250_000  # of a CSV that are parsed at a time
_REBUILD = "delete it and run again to have it rebuilt"
_INT64 = 2**63  # the first number that an int64 column does not hold
_LANDMARK: dict[str, ColumnType] = {"split": "text", "landmark_id": "int"}
_DROPPED: dict[str, ColumnType] = {**_LANDMARK, "reason": "text", "detail": "text"}
_PUBLISHED: dict[str, ColumnType] = {
    "landmark_id": "int",
    "category": "text",
    "supercategory": "text",
    "hierarchical_label": "text",
    "natural_or_human_made": "text",
}
_KEY = ("split", "landmark_id")
_ID_SPACE = {"split": ID_SPACES}
_CLUSTERED: dict[str, ColumnType] = {
    "class_id": "text",
    "instance_of": "text",
    "landmarks": "int",
    "images": "int",
    "cluster": "int",
    "cluster_name": "text",
    "distance": "float",
    "margin": "float",
}

ARTIFACTS: dict[str, Artifact] = {
    "source": Folder("source", place="source"),
    # what is there: landmarks and images
    "landmarks": Table(
        "landmarks.csv", {**_LANDMARK, "name": "text", "commons_url": "text"}, _KEY, _ID_SPACE
    ),
    "images": Table(
        "images.parquet",
        {
            "image_id": "text",
            "split": "text",
            "landmark_id": "int",
            "path": "text",  # of the tar or image file, relative to the source folder
            "offset": "int",  # of the image's first byte in that file
            "size_bytes": "int",
            "author": "text",
            "license": "text",
            "title": "text",
            "url": "text",
        },
        ("split", "image_id"),
        {"split": SPLITS},
    ),
    "queries": Table(
        "queries.csv", {"image_id": "text", "usage": "text", "relevant": "text"}, ("image_id",)
    ),
    "images_dropped": Table(
        "images_dropped.parquet",
        {"split": "text", "image_id": "text", "reason": "text", "detail": "text"},
        ("split", "image_id", "reason"),
    ),
    # words: from "instance of" to reviewed supercategories
    "instance_of": Table(
        "instance_of.csv",
        {
            **_LANDMARK,
            "item_id": "text",
            "revision": "int",
            "order": "int",  # of the statement on its item
            "class_id": "text",
            "instance_of": "text",
            "rank": "text",
            "qualifiers": "text",
        },
        (*_KEY, "order"),
        _ID_SPACE,
    ),
    "misses": Table("misses.csv", _DROPPED, _KEY, _ID_SPACE),
    "values": Table(
        "values.csv",
        {"class_id": "text", "instance_of": "text", "landmarks": "int", "images": "int"},
        ("class_id", "instance_of"),
    ),
    "landmark_values": Table(
        "landmark_values.csv",
        {**_LANDMARK, "order": "int", "class_id": "text", "instance_of": "text"},
        (*_KEY, "order"),
        _ID_SPACE,
    ),
    "clean_dropped": Table("clean_dropped.csv", _DROPPED, _KEY, _ID_SPACE),
    "label_vectors": VectorFile("label_vectors.npz"),
    "class_hints": Table(
        "class_hints.csv",  # what Wikidata's own classes suggest; it never decides
        {
            "class_id": "text",
            "instance_of": "text",
            "kind_hint": "text",
            "supercategory_hint": "text",
            "root": "text",
            "hops": "int",
        },
        ("class_id",),
        optional=True,
    ),
    "superclasses": Table(
        "superclasses.csv",  # the part of Wikidata's classes that the hints rest on
        {"class_id": "text", "label": "text", "revision": "int", "superclasses": "text"},
        ("class_id",),
    ),
    "clusters": Table("clusters.csv", _CLUSTERED, ("class_id", "instance_of")),
    "cluster_summary": Table(
        "cluster_summary.csv",
        {
            "cluster": "int",
            "cluster_name": "text",
            "values": "int",
            "landmarks": "int",
            "images": "int",
            "nearest": "text",  # the clusters whose centres are nearest, nearest first
            "change": "text",  # against the clusters before
            "related": "text",  # the clusters it came from; of one that is gone, where it went
        },
        ("cluster",),
        {"change": CHANGES},
    ),
    "review": Table(
        "review.csv",
        {
            "decision": "text",
            "supercategory": "text",
            "kind": "text",
            "note": "text",
            "key": "text",
            "key_type": "text",
            "instance_of": "text",
            "landmarks": "int",
            "images": "int",
            "examples": "text",
            "cluster": "int",  # -1: the value is gone, its decision is not
            "cluster_name": "text",
            "distance": "float",
            "margin": "float",
            "hint": "text",
            "suggestion": "text",
            "evidence": "text",
            "status": "text",
        },
        ("key",),
        {"decision": ("", *DECISIONS), "key_type": ("qid", "label"), "status": STATUSES},
        spreadsheet=True,
        sorted_rows=False,  # what matters most first
    ),
    "review_clusters": Table(
        "review_clusters.csv",
        {
            "action": "text",
            "into": "text",
            "supercategory": "text",
            "note": "text",
            "cluster": "int",
            "cluster_name": "text",
            "values": "int",
            "open": "int",
            "landmarks": "int",
            "images": "int",
            "decided_as": "text",
            "largest": "text",
            "nearest": "text",
            "suggestion": "text",
            "evidence": "text",
        },
        ("cluster",),
        spreadsheet=True,
        sorted_rows=False,  # what matters most first
    ),
    "taxonomy": Table(
        "taxonomy.csv",
        {"supercategory": "text", "kind": "text", "definition": "text"},
        ("supercategory",),
        {"kind": KINDS},
        place="labels",
    ),
    "decisions": Table(
        "decisions.csv",
        {
            "key": "text",
            "key_type": "text",
            "decision": "text",
            "supercategory": "text",
            "kind": "text",
            "who": "text",
            "when": "text",
            "why": "text",
            "supersedes": "text",
            "evidence": "text",  # what the value was when it was decided
        },
        values={"decision": DECISIONS, "key_type": ("qid", "label"), "kind": ("", *KINDS)},
        place="labels",
        optional=True,
        may_lack=("evidence",),
    ),
    "class_roots": Table(
        "class_roots.csv",  # known Wikidata classes; one without a kind ends the way up
        {"class_id": "text", "label": "text", "kind": "text", "supercategory": "text"},
        ("class_id",),
        {"kind": ("", *KINDS)},
        place="labels",
        optional=True,
    ),
    "cluster_edits": Table(
        "cluster_edits.csv",  # values that a person put together; the last row of a key holds
        {"key": "text", "with_key": "text", "action": "text", "who": "text", "when": "text"},
        values={"action": ("merge", "split", "dissolve", "undo")},
        place="labels",
        optional=True,
    ),
    "agreement": Json(  # of two annotators, as `hgld reviews agree A B --json` prints it
        "agreement.json", "labels", ("annotators", "values", "measures"), optional=True
    ),
    "overrides": Table(
        "overrides.csv",
        {
            **_LANDMARK,
            "supercategory": "text",
            "kind": "text",
            "who": "text",
            "when": "text",
            "why": "text",
        },
        _KEY,
        {**_ID_SPACE, "kind": KINDS},
        place="labels",
        optional=True,
    ),
    "removals": Table(
        "removals.csv",  # images that their authors or others asked to be left out
        {"image_id": "text", "why": "text"},
        ("image_id",),
        place="labels",
        optional=True,
    ),
    # labels
    "train_labels": Table("train_label_to_hierarchical.csv", _PUBLISHED, ("landmark_id",)),
    "index_labels": Table("index_label_to_hierarchical.csv", _PUBLISHED, ("landmark_id",)),
    "hierarchy": Table(
        "hierarchy.csv",
        {**_LANDMARK, "path": "text"},  # a JSON object, level name -> class, coarse to fine
        _KEY,
        _ID_SPACE,
    ),
    "lineage": Table(
        "lineage.csv",
        {
            **_LANDMARK,
            "commons_url": "text",
            "item_id": "text",
            "revision": "int",
            "class_id": "text",
            "instance_of": "text",
            "decided_by": "text",  # decision or override
            "who": "text",
            "when": "text",
            "supercategory": "text",
            "kind": "text",
            "agreement": "text",  # of two annotators on the supercategory, in [0, 1]
        },
        _KEY,
        _ID_SPACE,
        may_lack=("agreement",),
    ),
    "label_dropped": Table("label_dropped.csv", _DROPPED, _KEY, _ID_SPACE),
    # samples, models, measurements
    "shards": Folder(
        "shards",
        verify="hgld.shards.index:verify_shards",
        index="hgld.shards.index:read_index",
    ),
    "export_dropped": Table(
        "export_dropped.parquet",
        {"split": "text", "image_id": "text", "reason": "text", "detail": "text"},
        ("split", "image_id"),
    ),
    "models": Folder("models", verify="hgld.train:verify_models"),
    "evaluation": Json("report.json", keys=("protocol", "metrics", "models")),
    "per_query": Table(
        "per_query.parquet",
        {"model": "text", "image_id": "text", "metric": "text", "value": "float"},
        ("model", "image_id", "metric"),
    ),
    "ranked_levels": Folder("ranked_levels"),
    "report": Folder("report"),
    "release": Folder("release"),
}


def read_csv(
    path: Path,
    columns: Mapping[str, ColumnType],
    may_lack: Sequence[str] = (),
    each: Callable[[pd.DataFrame], pd.DataFrame] = lambda piece: piece,
) -> pd.DataFrame:
    """Read the named columns of a CSV (UTF-8, with or without BOM, LF or CRLF), each as its type.

    Text columns that it ``may_lack`` are empty where it has none. Text stays text: neither ``None``
    nor an image id of digits alone is guessed to be something.

    Raises:
        InvalidData: no such file, an empty file, a missing column, other delimiters than commas, a
            row with more or fewer cells than the header, a cell that is no number where one is
            expected.
    """
    _require_no_folder(path)
    if not path.is_file():
        raise InvalidData(f"{path}: no such file; expected a CSV with {', '.join(columns)}")
    _require_commas(path)
    even, pieces = False, []
    for piece in _parse_csv(path, columns):
        piece = piece.assign(**{name: "" for name in may_lack if name not in piece})
        _require_columns(piece.columns, columns, path)
        if not even and piece.iloc[:, -1].eq("").any():  # pandas fills a short row with empty cells
            _require_even_rows(path)
            even = True
        pieces.append(each(_convert(piece[list(columns)], columns, path)))
    return pd.concat(pieces, ignore_index=True)


def write_csv(table: pd.DataFrame, path: Path, spreadsheet: bool = False) -> None:
    """Write UTF-8 with LF, or with BOM and CRLF for a spreadsheet."""
    table.to_csv(
        path,
        index=False,
        encoding="utf-8-sig" if spreadsheet else "utf-8",
        lineterminator="\r\n" if spreadsheet else "\n",
        quoting=csv.QUOTE_MINIMAL,
    )


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; it becomes ``path`` only when all went well."""
    _require_no_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        if error.errno in DISK_FULL and not error.filename:
            error.filename = os.fspath(path)  # who writes in pieces does not know where
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``path``; it replaces ``path`` only when all went well."""
    temporary = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # a killed run may have left it
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.rglob("*"):
            _sync(file)
        shutil.rmtree(path, ignore_errors=True)
        temporary.replace(path)
        _sync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _parse_csv(path: Path, columns: Mapping[str, ColumnType]) -> Iterator[pd.DataFrame]:
    """All columns as text, piece by piece: GLDv2's largest CSV is near 1 GB."""
    as_text: dict[str, Any] = {"dtype": str, "keep_default_na": False, "na_filter": False}
    as_text |= {"encoding": "utf-8-sig", "compression": None, "chunksize": PIECE_ROWS}
    try:
        with pd.read_csv(path, **as_text) as pieces:
            for piece in pieces:
                if not isinstance(piece.index, pd.RangeIndex):  # the first cells as row names
                    _require_even_rows(path)
                    raise InvalidData(
                        f"{path} row 2: more cells than the header; quote what holds commas"
                    )
                yield piece
    except UnicodeDecodeError:
        raise InvalidData(f"{path}: not UTF-8 text; save it as CSV in UTF-8") from None
    except pd.errors.EmptyDataError:
        raise InvalidData(
            f"{path}: the file is empty; expected the columns {', '.join(columns)}"
        ) from None
    except (pd.errors.ParserError, ValueError) as error:
        _require_even_rows(path)
        reason = str(error).strip().removeprefix("Error tokenizing data. C error: ")
        raise InvalidData(f"{path}: not a readable CSV: {reason}") from None


def _read_parquet(path: Path) -> pd.DataFrame:
    _require_no_folder(path)
    try:
        return pd.read_parquet(path)
    except Exception as error:  # pyarrow raises whatever the damage leads to
        raise InvalidData(f"{path}: not a readable Parquet file ({error}); {_REBUILD}") from None


def _convert(table: pd.DataFrame, columns: Mapping[str, ColumnType], path: Path) -> pd.DataFrame:
    converted = {name: _convert_column(table[name], kind, path) for name, kind in columns.items()}
    return pd.DataFrame(converted)


def _convert_column(column: "pd.Series[Any]", kind: ColumnType, path: Path) -> "pd.Series[Any]":
    if kind == "text":
        return column
    convert: Callable[[str], int | float] = int if kind == "int" else float
    try:
        numbers = np.fromiter(
            map(convert, column.to_numpy(object)), "int64" if kind == "int" else "float64"
        )
        if np.isnan(numbers).any():
            raise ValueError("the word nan is no number")
        return pd.Series(numbers, index=column.index, name=column.name)
    except (ValueError, OverflowError):
        row = next(i for i, cell in enumerate(column) if not _converts(cell, convert))
        expected = "a whole number" if kind == "int" else "a number"
        raise InvalidData(
            f"{path} row {column.index[row] + 2}: {column.name} is {column.iloc[row]!r}; "
            f"expected {expected}"
        ) from None


def _converts(cell: str, convert: Callable[[str], int | float]) -> bool:
    try:
        number = convert(cell)
    except ValueError:
        return False
    return bool(abs(number) < _INT64 if convert is int else not np.isnan(number))


def _pandas_types(columns: Mapping[str, ColumnType]) -> dict[str, str]:
    return {
        name: {"int": "int64", "text": "str", "float": "float64"}[kind]
        for name, kind in columns.items()
    }


def _require_no_folder(path: Path) -> None:
    if path.is_dir():
        raise InvalidData(f"{path}: a folder stands where a file belongs; move it away")


def _require_commas(path: Path) -> None:
    with path.open(encoding="utf-8", errors="replace") as file:
        header = file.readline()
    for mark, name in ((";", "semicolons"), ("\t", "tabs")):
        if mark in header and "," not in header:
            raise InvalidData(f"{path}: cells are parted by {name}; save it as CSV with commas")


def _require_even_rows(path: Path) -> None:
    """Each row has as many cells as the header; a blank line is no row, but counts as one."""
    csv.field_size_limit(2**31 - 1)  # a class of GLDv2 names its images in one cell
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        lengths = np.fromiter(map(len, csv.reader(file)), np.int64)
    rows = np.flatnonzero(lengths)
    uneven = rows[lengths[rows] != lengths[rows[0]]]
    if uneven.size:
        cells, columns = lengths[uneven[0]], lengths[rows[0]]
        fault = (
            f"{cells} cells under {columns} columns; quote what holds commas"
            if cells > columns
            else f"{cells} of {columns} cells; the row or the file is cut short"
        )
        raise InvalidData(f"{path} row {uneven[0] + 1}: {fault}")


def _require_numbers(table: pd.DataFrame, columns: Mapping[str, ColumnType], path: Path) -> None:
    """What pandas would fail to convert, or cut to a whole number, is told with its row."""
    types = _pandas_types(columns)
    for name, kind in columns.items():
        if kind == "text" or str(table[name].dtype) == types[name]:
            continue
        numbers = pd.to_numeric(table[name], errors="coerce").astype("float64")
        whole = (numbers % 1 == 0) & (numbers.abs() < _INT64)
        fits = whole if kind == "int" else numbers.notna() | table[name].isna()
        if not fits.all():
            row = int(fits.to_numpy().argmin())
            expected = "a whole number" if kind == "int" else "a number"
            raise InvalidData(
                f"{path} row {row + 2}: {name} is {table[name].iloc[row]!r}; expected {expected}"
            )


def _require_columns(found: Iterable[str], wanted: Mapping[str, ColumnType], path: Path) -> None:
    names = [str(name) for name in found]
    missing = [name for name in wanted if name not in names]
    if missing:
        raise InvalidData(
            f"{path}: column '{missing[0]}' is missing; it has {', '.join(names)}"
            + nearest(missing[0], names)
        )


def _require_values(table: pd.DataFrame, column: str, allowed: Sequence[str], path: Path) -> None:
    wrong = ~table[column].isin(list(allowed))
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        value = table[column].iloc[row]
        raise InvalidData(
            f"{path} row {row + 2}: {column} is {value!r}; expected one of "
            + ", ".join(name or "(empty)" for name in allowed)
            + nearest(str(value), allowed)
        )


def _require_unique(table: pd.DataFrame, key: Sequence[str], path: Path) -> None:
    again = table.duplicated(list(key))
    if again.any():
        row = int(again.to_numpy().argmax())
        names = " ".join(f"{name} {table[name].iloc[row]}" for name in key)
        raise InvalidData(f"{path} row {row + 2}: {names} stands there twice; keep one row")
