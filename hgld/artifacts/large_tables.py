"""Tables of image scale: joined by DuckDB within a limit of memory, kept as Parquet files.

Tables that people read fit into pandas; a table with a row an image does not. DuckDB joins and
sorts it in pieces and spills to the disk what exceeds the limit. The result is a Parquet file, and
a stage returns it as a ``LargeTable``.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hgld.artifacts.atomic import named_in_errors
from hgld.artifacts.csv_files import read_csv, read_header
from hgld.artifacts.table_checks import ColumnType, pandas_types
from hgld.errors import DISK_FULL, HgldError, Resumable, unreadable
from hgld.lazy import lazy_module
from hgld.stopping import heard_despite_library

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    from duckdb import DuckDBPyConnection
    from pyarrow import parquet
else:
    np, pd, pa = map(lazy_module, ("numpy", "pandas", "pyarrow"))
    pc, parquet = map(lazy_module, ("pyarrow.compute", "pyarrow.parquet"))


BATCH = 1 << 16  # rows of a batch
PIECE = 1 << 24  # bytes
GROUP = 1 << 20  # rows of a row group, as pandas writes them
OURS_GB = 0.45  # of the limit is for the interpreter and a row group; DuckDB exceeds its own a bit
MEMORY_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
LEAST_GB = 0.3  # with less DuckDB cannot join


@dataclass(frozen=True)
class LargeTable:
    """A table in a finished Parquet file, which is read in parts."""

    path: Path

    @classmethod
    def of(cls, table: pd.DataFrame, path: Path) -> LargeTable:
        """Write a table that is in memory."""
        with named_in_errors(path):
            table.to_parquet(path, index=False)
        return cls(path)

    def read(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read some columns, or all of them, into memory."""
        return pd.read_parquet(self.path, columns=None if columns is None else list(columns))

    def __getitem__(self, columns: Sequence[str]) -> pd.DataFrame:
        """Read some columns into memory."""
        return self.read(columns)

    def batches(
        self, columns: Sequence[str] | None = None, rows: int = BATCH
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, in batches, with some columns or all of them."""
        try:
            with parquet.ParquetFile(self.path) as file:
                names = None if columns is None else list(columns)
                yield from file.iter_batches(rows, columns=names)
        except (pa.ArrowException, OSError) as error:
            raise unreadable_parquet(self.path, error) from None

    def columns(self) -> list[str]:
        """Names of the columns."""
        try:
            return [str(name) for name in parquet.read_schema(self.path).names]
        except (pa.ArrowException, OSError) as error:
            raise unreadable_parquet(self.path, error) from None

    def __len__(self) -> int:
        return int(parquet.read_metadata(self.path).num_rows)

    def is_sorted_by(self, key: Sequence[str]) -> bool:
        """Whether each row has a larger key (of texts) than the row before it, as ``write`` sorts.

        Example:
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder:
            ...     table = LargeTable(Path(folder) / "a.parquet")
            ...     pd.DataFrame({"a": ["x", "y", "y"]}).to_parquet(table.path)
            ...     table.is_sorted_by(["a"])
            False
        """
        last: pa.RecordBatch | None = None
        for batch in self.batches(key):
            part = pa.Table.from_batches([batch] if last is None else [last, batch])
            last = batch.slice(len(batch) - 1)
            larger: Any = pa.scalar(False)
            for name in reversed(key):
                texts = part[name].combine_chunks()
                before, after = texts[:-1], texts[1:]
                larger = pc.or_(pc.greater(after, before), pc.and_(pc.equal(after, before), larger))
            if not pc.all(larger, min_count=0).as_py():  # one row has nothing to compare
                return False
        return True


def unreadable_parquet(path: Path, error: Exception) -> HgldError:
    """Return the error for a Parquet file whose reader raised this."""
    return unreadable(path, "Parquet file", error, "delete it and run again to have it rebuilt")


@contextmanager
def engine(folder: Path, memory_gb: float | None) -> Iterator[DuckDBPyConnection]:
    """Yield a DuckDB connection that spills to a temporary folder in ``folder``.

    Args:
        folder: on a disk with room for the tables; one connection uses it at a time.
        memory_gb: limit of the process; None: a quarter of the memory of this machine, or of the
            container or job that it runs in.

    Raises:
        HgldError: the limit is too small for a join.
        Resumable: the disk is full, or fails.
    """
    import duckdb

    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("tables-*"):  # a killed run leaves up to the size of its tables
        shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix="tables-", dir=folder) as spill, duckdb.connect() as tables:
        if memory_gb is None:
            # DuckDB's default is 80 % of the memory of this machine or of its control group
            (limit,) = tables.execute("SELECT current_setting('memory_limit')").fetchall()[0]
            amount, unit = limit.split()
            limit_bytes = float(amount) * 1024.0 ** MEMORY_UNITS.index(unit)
            memory_gb = limit_bytes / 0.8e9 / 4
        megabytes = round(1000 * max(LEAST_GB, 0.8 * memory_gb - OURS_GB))
        tables.execute(f"SET memory_limit = '{megabytes}MB'")
        tables.execute("SET temp_directory = $1", [spill])
        tables.execute("SET threads = 2")  # each holds its own buffers, and the disk limits more
        tables.execute("SET preserve_insertion_order = false")
        # Freed memory goes back at once: other parts of the stage need it.
        tables.execute("SET allocator_flush_threshold = '1MB'")
        tables.execute("SET allocator_background_threads = true")
        try:
            with heard_despite_library(tables.interrupt):
                yield tables
        except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
            text = str(error)
            full = [advice for number, advice in DISK_FULL.items() if os.strerror(number) in text]
            if "max_temp_directory_size" in text:  # by default nine tenths of the disk's free space
                full = [DISK_FULL[ENOSPC]]
            elif isinstance(error, duckdb.OutOfMemoryException):
                raise HgldError(
                    f"a join does not fit into memory_gb = {memory_gb:g}; set a larger memory_gb"
                ) from None
            what = full[0] if full else f"{text.splitlines()[0]}; correct that"
            raise Resumable(f"{folder}: {what} and run the same command again") from None


def query_csv(
    tables: DuckDBPyConnection,
    query: str,
    path: Path,
    columns: Mapping[str, ColumnType],
    numbered: bool = True,
) -> None:
    """Execute a query over a CSV, read as ``read_csv`` reads it but not held in memory.

    Args:
        tables: a connection of ``engine``.
        query: SQL with ``{csv}`` in place of a table of ``n`` (row number from 0) and the columns.
        path: of the CSV.
        columns: names and types, int or text.
        numbered: False: every ``n`` is 0, so that all cores can read the file.

    Raises:
        InvalidData: as ``read_csv``.
    """
    import duckdb

    header = read_header(path, columns)
    # DuckDB has no columns without a name, and takes "ID" and "id" for one.
    named = {name.casefold() for name in header} - {""}
    plain = len(named) == len(header) and not set("*?[") & set(str(path))
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        first = next(csv.reader([file.readline()]), None)
    plain = plain and set(columns) <= set(header) and first == header  # no blank line before it
    if plain and not _has_lone_returns(path):
        chosen = ", ".join(_typed(name, kind) for name, kind in columns.items())
        names = ", ".join(f"{sql_text(name)}: 'VARCHAR'" for name in header)
        number = "row_number() OVER () - 1" if numbered else "0::BIGINT"
        source = (
            f"(SELECT {number} AS n, {chosen} FROM read_csv({sql_text(str(path))}, "
            f"auto_detect = false, header = true, quote = '\"', escape = '\"', "
            f"columns = {{{names}}}))"
        )
        tables.execute(f"SET preserve_insertion_order = {numbered}")
        try:
            tables.execute(query.replace("{csv}", source))
            return
        except (duckdb.InvalidInputException, duckdb.ConversionException, duckdb.DataError):
            pass  # the strict reader accepts it, or names the row
        finally:
            tables.execute("SET preserve_insertion_order = false")
    # Only odd files come here; the strict reader holds them in memory.
    table = read_csv(path, columns)
    tables.register("csv_rows", table.assign(n=np.arange(len(table))))
    tables.execute(query.replace("{csv}", "csv_rows"))
    tables.unregister("csv_rows")


def _has_lone_returns(path: Path) -> bool:
    """Whether a carriage return ends a line alone or is in a cell, which DuckDB reads otherwise."""
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            if piece.endswith(b"\r"):
                piece += file.read(1)
            if b"\r" in piece and re.search(rb"\r(?!\n)", piece):
                return True
    return False


def _typed(name: str, kind: ColumnType) -> str:
    """SQL of a column; a number in an odd form is an error, which leads to the strict reader."""
    column = '"' + name.replace('"', '""') + '"'
    if kind == "text":
        return f"coalesce({column}, '') AS {column}"
    number = f"CAST({column} AS BIGINT)"
    plain = f"CAST({number} AS VARCHAR) = {column}"
    return f"CASE WHEN {plain} THEN {number} ELSE error('not a number') END AS {column}"


def sql_text(value: str) -> str:
    """Return a text as a literal of SQL, for statements that take no parameters.

    Example:
        >>> sql_text("O'Hara")
        "'O''Hara'"
    """
    return "'" + value.replace("'", "''") + "'"


def write_query(
    tables: DuckDBPyConnection, query: str, path: Path, columns: Mapping[str, ColumnType]
) -> LargeTable:
    """Write the rows of a query as the Parquet file that pandas would write, in its bytes.

    Args:
        tables: a connection of ``engine``.
        query: SQL of all columns, sorted.
        path: of the new file.
        columns: names and types.
    """
    rowless = pd.DataFrame(columns=list(columns)).astype(pandas_types(columns))
    schema = pa.Schema.from_pandas(rowless, preserve_index=False)
    # Written first by DuckDB, so that its memory is free again when row groups are assembled.
    ordered = path.with_name(f".{path.name}.tmp")
    tables.execute(f"COPY ({query}) TO {sql_text(str(ordered))} (FORMAT parquet)")
    with (
        named_in_errors(path),
        parquet.ParquetFile(ordered) as file,
        parquet.ParquetWriter(path, schema, compression="zstd") as writer,
    ):
        rows = file.metadata.num_rows
        for first in range(0, max(1, rows), GROUP):  # a group without rows if there are none
            # Column by column, so that only one is held twice.
            parts = (_read_column(file, field, first, min(first + GROUP, rows)) for field in schema)
            writer.write_table(pa.table(list(parts), schema=schema), GROUP)
            pa.default_memory_pool().release_unused()
    ordered.unlink()
    return LargeTable(path)


def _read_column(file: parquet.ParquetFile, field: pa.Field, first: int, last: int) -> pa.Array:
    """Read some rows of a column in one chunk, since chunks decide the pages of a Parquet file."""
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    starts = np.r_[0, np.cumsum(sizes, dtype=np.int64)]
    low, high = np.searchsorted(starts, [first, last - 1], side="right") - 1
    parts = [pa.array([], field.type)]
    for group in range(low, min(high + 1, len(sizes))):
        column = file.read_row_group(group, [field.name])[field.name]
        begin = max(0, first - starts[group])
        parts += column.slice(begin, last - starts[group] - begin).cast(field.type).chunks
    # The system's pool gives memory back at once, Arrow's own only later.
    return pa.concat_arrays(parts, pa.system_memory_pool())
