import csv
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.artifacts import write_csv
from hgld.shards.sidecars import write_texts

texts = st.text(st.sampled_from("a,\"\n é\u2028'; "), max_size=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("texts")


@given(rows=st.lists(st.tuples(texts, texts, texts), max_size=5))
def test_texts_are_written_as_the_csv_writer_does(
    folder: Path, rows: list[tuple[str, str, str]]
) -> None:
    table = pd.DataFrame(rows, columns=["one", "two", "three"], dtype="str")
    write_csv(table, folder / "expected.csv")
    write_texts(list(table), [table], folder / "found.csv")
    assert (folder / "found.csv").read_bytes() == (folder / "expected.csv").read_bytes()


def test_a_lone_carriage_return_comes_back(folder: Path) -> None:
    """The csv writer leaves it bare, and its own reader then refuses the file."""
    rows = pd.DataFrame({"a": ["one\rtwo"], "b": ["c"]})
    write_texts(["a", "b"], [rows], folder / "found.csv")
    with (folder / "found.csv").open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["a", "b"], ["one\rtwo", "c"]]


def test_a_long_table_is_written_in_parts(folder: Path) -> None:
    parts = [pd.DataFrame({"a": [f"{i}", "x,y"], "b": ["", 'a "b"']}) for i in range(4)]
    table = pd.concat(parts, ignore_index=True)
    write_csv(table, folder / "expected.csv")
    pieces = [table[:3], table[3:3], table[3:6], table[6:]]
    write_texts(["a", "b"], pieces, folder / "found.csv")
    assert (folder / "found.csv").read_bytes() == (folder / "expected.csv").read_bytes()
