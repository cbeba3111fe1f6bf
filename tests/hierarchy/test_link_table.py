from pathlib import Path

import pytest

from hgld.artifacts import csv_files, table_of
from hgld.config import LinkOptions
from hgld.hierarchy.link_table import read_said


def test_an_answer_is_of_the_class_whose_letters_are_composed_otherwise() -> None:
    links = table_of(
        "links", [{"name": "cafe\u0301", "qid": "Q1"}, {"name": "x\u00e9", "qid": "Q2"}]
    )
    said = read_said({Path("links.csv"): links}, ["caf\u00e9", "xe\u0301"], LinkOptions())
    assert {name: one.qid for name, one in said.items()} == {"caf\u00e9": "Q1", "xe\u0301": "Q2"}


def test_the_file_is_read_once_for_the_rows_of_all_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"c{number}" for number in range(8)]
    links = table_of("links", [{"name": name, "qid": "none"} for name in names])
    (tmp_path / "links.csv").write_text("name,qid\n" + "".join(f"\n{n},none\n" for n in names))
    read, rows_of = list[Path](), csv_files._rows_as_text
    monkeypatch.setattr(csv_files, "_rows_as_text", lambda path: read.append(path) or rows_of(path))
    said = read_said({tmp_path / "links.csv": links}, names, LinkOptions())
    assert [said[name].place for name in names] == [f"links.csv row {n}" for n in range(3, 19, 2)]
    assert len(read) == 1
