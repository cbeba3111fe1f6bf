"""Formats of the files between two stages: table, vectors, JSON document, folder.

Each class reads, checks and writes its format; none depends on a particular artifact.

``np.load`` allocates the size that a header states, so 160 bytes can request 32 GB, and a
compressed archive of 2 MB can contain 2 GB of zeros. Here the header is compared with the bytes
that follow it, and an archive may expand to at most 100 times its own size. A pickle, the format of
some published data sets, is read only if it holds data alone; any other could run any code.
"""

from __future__ import annotations

import io
import json
import math
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal
from zipfile import ZipFile

from hgld.artifacts.atomic import atomic_path, named_in_errors, require_file, write_file
from hgld.artifacts.csv_files import parse_csv, read_csv, read_header, row_in_file, write_csv
from hgld.artifacts.large_tables import LargeTable, unreadable_parquet
from hgld.artifacts.table_checks import (
    ColumnType,
    RowOf,
    in_table,
    pandas_types,
    require_columns,
    require_numbers,
    require_unique,
    require_values,
)
from hgld.errors import InvalidData, unreadable
from hgld.lazy import lazy_module
from hgld.words import single_blanks

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
else:
    np, pd = lazy_module("numpy"), lazy_module("pandas")

HELD_AT_MOST = 100  # times the archive's bytes; float embeddings compress to a half at best
SMALL = 1 << 26  # bytes that any archive may expand to
PIECE = 1 << 24
HEADERS = {(1, 0): "read_array_header_1_0", (2, 0): "read_array_header_2_0"}
# all that a numpy array needs of numpy; to import another module of it could run code
PICKLED_MODULES = {"numpy", "numpy.core.multiarray", "numpy._core.multiarray"}
PICKLED_ARRAYS = {"_reconstruct", "dtype", "ndarray", "scalar"}
PICKLED_BYTES = {
    ("_codecs", "encode"),
    ("__builtin__", "bytes"),
    ("builtins", "bytes"),
}  # and of Python
Place = Literal["work", "labels", "source"]
_REBUILD = "delete it and run again to have it rebuilt"


def read_array(path: Path) -> np.ndarray:
    """Read a ``.npy`` file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not an array, holds objects, or ends too early.
    """
    with path.open("rb") as file:
        return _read(file, path.stat().st_size)


def read_arrays(path: Path, names: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Read arrays of a ``.npz`` file by name; missing ones are left out of the result.

    Args:
        path: of the archive.
        names: arrays to read; none: all.

    Raises:
        OSError, BadZipFile: the file cannot be read.
        ValueError: a member is not an array, or its header states more than its bytes.
    """
    most = max(SMALL, HELD_AT_MOST * path.stat().st_size)
    arrays = {}
    with ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if names and name not in names:
                continue
            most -= member.file_size
            if most < 0:
                raise ValueError(f"holds more than {HELD_AT_MOST} times its own size")
            with archive.open(member) as file:
                arrays[name] = _read(file, member.file_size)
    return arrays


def _read(file: IO[bytes], size: int) -> np.ndarray:
    version = np.lib.format.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"an array of version {version}; expected 1.0 or 2.0")
    shape, column_major, dtype = getattr(np.lib.format, HEADERS[version])(file)
    if dtype.hasobject:
        raise ValueError("holds Python objects, which are never read; save texts with .astype(str)")
    stated = math.prod(shape) * dtype.itemsize
    if any(side < 0 for side in shape) or not dtype.itemsize or stated > size - file.tell():
        raise ValueError(f"states {stated:,} bytes of shape {shape}; {size - file.tell():,} follow")
    data = np.empty(stated, np.uint8)
    for start in range(0, stated, PIECE):  # in pieces, since zipfile copies what it reads
        part = data[start : start + PIECE]
        if (found := file.readinto(part.data)) < len(part):  # type: ignore[attr-defined]
            raise ValueError(f"ends after {start + found:,} of {stated:,} bytes")
    array: np.ndarray = data.view(dtype).reshape(shape, order="F" if column_major else "C")
    return array.astype(dtype.newbyteorder("="), copy=False)  # pandas takes no other byte order


def read_plain_pickle(path: Path) -> Any:
    """Read a pickle of texts, numbers, lists, dictionaries and numpy arrays.

    Raises:
        ValueError: it is damaged, or asks for anything else.
    """
    with path.open("rb") as file:
        try:
            return _Plain(file).load()
        except Exception as error:  # pickle and numpy raise many types for damaged files
            raise ValueError(single_blanks(str(error)) or type(error).__name__) from None


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        of_array = module in PICKLED_MODULES and name in PICKLED_ARRAYS
        if not of_array and (module, name) not in PICKLED_BYTES:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is no data")
        return super().find_class(module, name)


@dataclass(frozen=True)
class Table:
    """A CSV or Parquet table with ordered columns and a key by which rows are unique and sorted.

    Attributes:
        values: column -> allowed values.
        spreadsheet: write BOM and CRLF, for people who open it in a spreadsheet.
        sorted_rows: False if the order of the rows has a meaning.
        optional: read as empty if the file is missing.
        may_lack: text columns that a CSV may lack; they are read as empty.
        editable: people may edit the file; an edit counts after `hgld accept`. A change of any
            other output is damage: its stage makes it again.
        edit_instead: the file that people edit in place of this one, whose edits are refused.
        verify: "module:function" that checks the rows of an edit and raises InvalidData.
        also: prefix of further columns of text; empty: there are none.
        may_have: further columns of numbers in a Parquet table, all of them or none.
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
    editable: bool = False
    edit_instead: str = ""
    verify: str | None = None
    also: str = ""
    may_have: Mapping[str, ColumnType] = field(default_factory=dict)

    def _declared(self, found: Iterable[object]) -> Mapping[str, ColumnType]:
        """Columns of a table that has these."""
        return {**self.columns, **(self.may_have if {*self.may_have} & {*found} else {})}

    def empty(self) -> pd.DataFrame:
        """Return the table without rows."""
        return pd.DataFrame(columns=list(self.columns)).astype(pandas_types(self.columns))

    def read(self, path: Path) -> pd.DataFrame:
        """Read and check; columns that a person added are left out."""
        if self.file.endswith(".parquet"):
            require_file(path)
            try:
                table = pd.read_parquet(path)
            except Exception as error:  # pyarrow raises many types for a damaged file
                raise unreadable_parquet(path, error) from None
            return self.check(table, path)
        with named_in_errors(path):
            header = read_header(path, self.columns) if self.also else []
            more = [name for name in header if name.startswith(self.also)]
            columns: dict[str, ColumnType] = {**self.columns, **dict.fromkeys(more, "text")}
            table = read_csv(path, columns, self.may_lack)
            return self.check(table, path, partial(row_in_file, path))

    def read_large(self, path: Path) -> LargeTable:
        """Check a Parquet file in parts; its rows are read later, in parts, too."""
        require_file(path)
        table = LargeTable(path)
        columns = self._declared(table.columns())
        require_columns(table.columns(), columns, path)
        numbers = [name for name, kind in columns.items() if kind != "text"]
        for batch in table.batches(numbers):
            require_numbers(batch.to_pandas(), {n: columns[n] for n in numbers}, path)
        self._check_large(table, path)
        return table

    def write(self, table: pd.DataFrame | LargeTable, path: Path) -> None:
        """Check, sort by key and write atomically; the same rows give the same bytes.

        A large table is sorted already, and its file is moved to the path.
        """
        if isinstance(table, LargeTable):
            self._check_large(table, path)
            with atomic_path(path) as temporary:
                table.path.replace(temporary)
            return
        table = self.check(table, path)
        if self.key and self.sorted_rows:
            table = table.sort_values(list(self.key), kind="stable", ignore_index=True)
        if not self.file.endswith(".parquet"):
            write_csv(table, path, self.spreadsheet)
            return
        with atomic_path(path) as temporary:
            table.to_parquet(temporary, index=False, compression="zstd")

    def _check_large(self, table: LargeTable, path: Path) -> None:
        for batch in table.batches(list(self.values)):
            for column, allowed in self.values.items():
                require_values(batch.to_pandas(), column, allowed, path)
        if not table.is_sorted_by(self.key):
            raise InvalidData(f"{path}: its rows are not sorted by {', '.join(self.key)}")

    def append(self, rows: pd.DataFrame, path: Path) -> None:
        """Append rows to a table of text; existing rows and columns that a person added are kept.

        Raises:
            InvalidData: the rows fail ``check``, or the file is not a CSV with these columns.
        """
        there = [*parse_csv(path, self.columns)] if path.exists() else [self.empty()]
        rows = self.check(rows, path)
        write_csv(pd.concat([*there, rows], ignore_index=True).fillna(""), path)

    def check(self, table: pd.DataFrame, path: Path, row_of: RowOf = in_table) -> pd.DataFrame:
        """Return the table with declared columns and types; ``row_of`` numbers rows in errors.

        Raises:
            InvalidData: a column is missing, a cell of a numeric column is not a number, a value is
                not allowed, or a key occurs twice.
        """
        columns = self._declared(table.columns)
        require_columns(table.columns, columns, path)
        require_numbers(table, columns, path, row_of)
        more = [name for name in map(str, table) if self.also and name.startswith(self.also)]
        names = [name for name in map(str, table) if name in columns or name in more]
        types = pandas_types({**columns, **dict.fromkeys(more, "text")})
        table = table[names if more else list(columns)].astype(types)
        for column, allowed in self.values.items():
            require_values(table, column, allowed, path, row_of)
        if self.key:
            require_unique(table, self.key, path, row_of)
        return table


@dataclass(frozen=True)
class Vectors:
    """Unit vectors (N, D) float32 with the ids of their rows and the encoder that made them."""

    ids: list[str]
    vectors: np.ndarray
    made_by: dict[str, str]

    @cached_property
    def row_of(self) -> dict[str, int]:
        """The row of each id."""
        return {key: row for row, key in enumerate(self.ids)}

    def of(self, ids: Iterable[str]) -> np.ndarray:
        """Vectors (M, D) of these ids."""
        return self.vectors[[self.row_of[key] for key in ids]]


@dataclass(frozen=True)
class VectorFile:
    """An ``.npz`` of ``Vectors``."""

    file: str
    place: Place = "work"

    def read(self, path: Path) -> Vectors:
        """Read and check."""
        require_file(path)
        try:
            data = read_arrays(path)
            made_by = json.loads(str(data["made_by"]))
            found = Vectors([str(i) for i in data["ids"]], data["vectors"], made_by)
        except Exception as error:  # numpy raises many types for a damaged file
            raise unreadable(path, "vector file", error, _REBUILD) from None
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
        write_file(path, buffer.getvalue())


@dataclass(frozen=True)
class Json:
    """A JSON document.

    Attributes:
        keys: required keys, none of them empty.
        optional: read as empty if the file is missing.
    """

    file: str
    place: Place = "work"
    keys: tuple[str, ...] = ()
    optional: bool = False

    def empty(self) -> dict[str, Any]:
        """Return an empty document."""
        return {}

    def read(self, path: Path) -> dict[str, Any]:
        """Read and check that it is an object with the required keys."""
        require_file(path)
        try:
            with named_in_errors(path):
                document = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
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
        write_file(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


@dataclass(frozen=True)
class Folder:
    """A folder of files that its stage writes itself; read as its path.

    Attributes:
        verify: "module:function" that checks the folder and raises InvalidData.
        index: "module:function" that lists the content of the folder as a table.
        lists: "module:function" that lists the files which its stage wrote; None: all files that
            are not hidden.
        elsewhere: "module:function" that returns whether the files that the folder keeps at a URL,
            an option of the pipeline, are there.
        replaced: its stage replaces the complete folder (``atomic_folder``).
        optional: a pipeline may lack the stage that makes it; then the path does not exist.
    """

    file: str
    place: Place = "work"
    verify: str | None = None
    index: str | None = None
    lists: str | None = None
    elsewhere: str | None = None
    replaced: bool = False
    optional: bool = False

    def read(self, path: Path) -> Path:
        """Return the folder's path."""
        return path


Artifact = Table | VectorFile | Json | Folder
