import os
import signal
import threading
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.artifacts import LargeTable, Table, engine, query_csv, read_csv, write_query
from hgld.artifacts.table_checks import ColumnType
from hgld.errors import InvalidData, Resumable
from tests.hearing import Heard, hearing

COLUMNS: dict[str, ColumnType] = {"id": "text", "number": "int"}
CELLS = st.text(st.sampled_from('ab",\r\n é;'), max_size=4)
NUMBERS = st.sampled_from(["1", "-20", "+3", " 4", "007", "1e3", "", "x", "9" * 18])


def as_duckdb_reads(path: Path, folder: Path) -> pd.DataFrame:
    with engine(folder, 1) as tables:
        query_csv(tables, "CREATE TABLE found AS SELECT * FROM {csv}", path, COLUMNS)
        found = tables.sql("SELECT n, id, number FROM found ORDER BY n").fetchall()
    return pd.DataFrame(found, columns=["n", "id", "number"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("odd")


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(CELLS, NUMBERS), max_size=5),
    quoted=st.booleans(),
    start=st.sampled_from(["", "\ufeff", "\n"]),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_a_csv_is_read_as_the_strict_reader_reads_it(
    folder: Path, rows: list[tuple[str, str]], quoted: bool, start: str, line_end: str
) -> None:
    def cell(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if quoted else text

    lines = ["id,number", *(f"{cell(name)},{number}" for name, number in rows)]
    path = folder / "odd.csv"
    path.write_bytes((start + line_end.join(lines) + line_end).encode())
    try:
        expected = read_csv(path, COLUMNS)
    except InvalidData as error:
        with pytest.raises(InvalidData) as caught:
            as_duckdb_reads(path, folder)
        assert str(caught.value) == str(error)
        return
    found = as_duckdb_reads(path, folder)
    assert found["n"].tolist() == list(range(len(expected)))
    assert found["id"].tolist() == expected["id"].tolist()
    assert found["number"].tolist() == expected["number"].tolist()


@pytest.mark.parametrize("header", ["id,number,", ",id,number", "ID,id,number", "x, id, number"])
def test_columns_without_a_name_or_differing_in_case_or_blanks_are_read(
    tmp_path: Path, header: str
) -> None:
    (tmp_path / "a.csv").write_text(f"{header}\n1,2,3\n4,5,6\n")
    expected = read_csv(tmp_path / "a.csv", COLUMNS)
    assert as_duckdb_reads(tmp_path / "a.csv", tmp_path)[["id", "number"]].equals(expected)


@pytest.mark.parametrize("rows", [0, 5, 1 << 20, (1 << 20) + 7])
def test_a_query_gives_the_bytes_that_pandas_writes(tmp_path: Path, rows: int) -> None:
    table = pd.DataFrame(
        {"id": pd.Series(np.arange(rows)).astype("str"), "number": np.arange(rows)}
    )
    declared = Table("a.parquet", COLUMNS, ("id",))
    declared.write(table, tmp_path / "pandas.parquet")
    with engine(tmp_path, 1) as tables:
        tables.register("given", table)
        query = "SELECT id, number FROM given ORDER BY id"
        large = write_query(tables, query, tmp_path / "large.parquet", COLUMNS)
    assert len(large) == rows
    declared.write(large, tmp_path / "written.parquet")
    assert (tmp_path / "written.parquet").read_bytes() == (tmp_path / "pandas.parquet").read_bytes()


def test_a_large_table_that_is_not_sorted_is_refused(tmp_path: Path) -> None:
    pd.DataFrame({"id": ["b", "a"], "number": [1, 2]}).to_parquet(tmp_path / "large.parquet")
    declared = Table("a.parquet", COLUMNS, ("id",))
    with pytest.raises(InvalidData, match="are not sorted by id"):
        declared.write(LargeTable(tmp_path / "large.parquet"), tmp_path / "a.parquet")


@pytest.mark.parametrize("name", ["a.parquet", ".a.parquet.tmp"])
def test_a_full_disk_is_told_with_its_place_and_what_to_do(name: str, tmp_path: Path) -> None:
    (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises((OSError, Resumable)) as error, engine(tmp_path, 1) as tables:
        write_query(tables, "SELECT 'x' AS id, 1 AS number", tmp_path / "a.parquet", COLUMNS)
    says = f"{tmp_path}: the disk is full; make space and run the same command again"
    assert says == str(error.value) or error.value.filename == str(tmp_path / "a.parquet")


def test_a_disk_without_room_for_a_join_is_not_told_as_a_lack_of_memory(tmp_path: Path) -> None:
    with pytest.raises(Resumable, match="the disk is full"), engine(tmp_path, 1) as tables:
        tables.execute("SET memory_limit = '10MB'")
        tables.execute("SET max_temp_directory_size = '1MB'")
        tables.execute("CREATE TABLE a AS SELECT md5(range::VARCHAR) FROM range(1000000)")


def test_what_a_killed_run_spilled_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "tables-k1ll3d").mkdir()
    (tmp_path / "tables-k1ll3d" / "duckdb_temp_storage.tmp").write_bytes(b"rows")
    with engine(tmp_path, 1):
        assert not (tmp_path / "tables-k1ll3d").exists()
    assert not list(tmp_path.iterdir())


def test_a_quarter_of_the_memory_of_the_control_group_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one of 8 GB, DuckDB's default limit is 80 % of that."""
    connect = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda: connect(config={"memory_limit": "6.4GB"}))
    with engine(tmp_path, None) as tables:
        limit = tables.execute("SELECT current_setting('memory_limit')").fetchall()
    assert limit == [("1.0 GiB",)]  # of 2 GB, less what Python takes


def test_a_stop_request_amid_a_query_is_heard_as_itself(tmp_path: Path) -> None:
    """DuckDB alone would end with RuntimeError: Query interrupted."""
    endless = "SELECT sum((a.range * b.range) % 7) FROM range(1000000) a, range(1000000) b"
    with hearing(), pytest.raises(Heard), engine(tmp_path, None) as tables:
        ask = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
        ask.start()
        tables.execute(endless).fetchall()
    ask.join()
    assert not list(tmp_path.iterdir())
