from pathlib import Path

from hgld.artifacts import table_of
from hgld.config import LinkOptions
from hgld.hierarchy.link_table import read_said


def test_an_answer_is_of_the_class_whose_letters_are_composed_otherwise() -> None:
    links = table_of(
        "links", [{"name": "cafe\u0301", "qid": "Q1"}, {"name": "x\u00e9", "qid": "Q2"}]
    )
    said = read_said({Path("links.csv"): links}, ["caf\u00e9", "xe\u0301"], LinkOptions())
    assert {name: one.qid for name, one in said.items()} == {"caf\u00e9": "Q1", "xe\u0301": "Q2"}
