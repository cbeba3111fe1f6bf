import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hgld.artifacts import columns_of
from hgld.errors import UsageError
from hgld.hierarchy.explain import Step, explain, find_landmark

URL = "http://commons.wikimedia.org/wiki/Category:"
NO_LABELS = Path("no labels")
YEARS = json.dumps({"P580": [{"time": "+1172-00-00T00:00:00Z"}], "P1552": ["somevalue"]})


def table(name: str, *rows: tuple[Any, ...]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=columns_of(name))


LANDMARKS = table(
    "landmarks",
    ("index", 7, "Old Mill", URL + "Old_Mill"),
    ("train", 7, "St Agnes (Norfeld)", URL + "St_Agnes_(Norfeld)"),
    ("train", 8, "Old Mill", URL + "Old_Mill"),
    ("train", 9, "Éra Falls", URL + "%C3%89ra_Falls"),
    ("train", 1, "8", ""),  # the name of a folder
    ("train", 2, "21", ""),
)


def tables(**more: pd.DataFrame) -> dict[str, pd.DataFrame]:
    key = ("train", 7)
    return {
        "landmarks": LANDMARKS,
        "instance_of": table(
            "instance_of",
            (*key, "Q100", 55, 1, "Q2", "ruin", "deprecated", "{}"),
            (*key, "Q100", 55, 0, "Q1", "church building", "preferred", YEARS),
        ),
        "landmark_values": table("landmark_values", (*key, 0, "Q1", "church building")),
        "clusters": table(
            "clusters",
            ("Q1", "church building", 12, 30, 4, "chapel", 0.25, 0.5),
            ("Q5", "chapel", 1, 2, 4, "chapel", 0.1, 0.6),
        ),
        "class_hints": table(
            "class_hints", ("Q1", "church building", "human-made", "church", "church (0)", 0)
        ),
        "decisions": table(
            "decisions",
            ("Q1", "qid", "drop", "", "", "ann", "2026-01-01", "", "", "", "", ""),
            ("Q1", "qid", "keep", "church", "human-made", "bob", "2026-02-02", "clear",
             "2026-01-01", "", "", ""),
        ),
        "hierarchy": table(
            "hierarchy",
            (*key, '{"kind": "human-made", "supercategory": "church", "landmark": "train:7"}'),
        ),
        "lineage": table(
            "lineage",
            (*key, URL, "Q100", 55, "Q1", "church building", "decision", "bob", "2026-02-02",
             "church", "human-made", "0.667"),
        ),
        **more,
    }  # fmt: skip


def steps(asked: str = "train:7", **more: pd.DataFrame) -> list[Step]:
    return explain(find_landmark(LANDMARKS, asked), tables(**more), NO_LABELS)


def texts(found: list[Step]) -> dict[str, str]:
    return {step.head: step.text for step in found}


def test_every_step_of_the_way_is_told_in_order() -> None:
    found = [(step.head, step.text) for step in steps()]
    assert found == [
        ("landmark", f"train:7 St Agnes (Norfeld)\n{URL}St_Agnes_(Norfeld)"),
        ("item", "Q100, read at revision 55\nhttps://www.wikidata.org/wiki/Q100"),
        ("instance of", "church building (Q1), preferred; P580 1172, P1552 somevalue"),
        ("instance of", "ruin (Q2), deprecated"),
        ("clean", "goes by church building (Q1)"),
        ("cluster", "4 'chapel', one of 2 values\n"
                    "distance 0.250, margin 0.500, a value of 12 landmarks"),
        ("hint", "human-made: church; steps up to a known class: church (0)"),
        ("decision", 'keep church (human-made)\nby bob, 2026-02-02: "clear"\n'
                     "row 3 of decisions.csv, for qid 'Q1'; it replaces 1 earlier"),
        ("path", "human-made > church > train:7, by decision\n"
                 "two annotators agree on 67 % of its values"),
    ]  # fmt: skip


def linking(**cells: str) -> dict[str, pd.DataFrame]:
    key = {"split": "train", "landmark_id": 7}
    name = "St Agnes (Norfeld)"
    item = {"item_id": "Q100", "label": "St Agnes", "description": "church", "by": "qid", **cells}
    said = [
        {"name": name, "qid": "Q9", "who": "ann", "when": "2026-01-01", "why": ""},
        {"name": "other", "qid": "Q1", "who": "ann", "when": "2026-01-01", "why": ""},
        {"name": name, "qid": "Q100", "who": "bob", "when": "2026-02-02", "why": "seen"},
    ]
    return {"linked": pd.DataFrame([{**key, "name": name, **item}]), "links": pd.DataFrame(said)}


@pytest.mark.parametrize(
    ("by", "says"),
    [
        ("qid", '\nby bob, 2026-02-02: "seen"\nrow 4 of links.csv'),
        ("name (en), photos", ""),
    ],
)
def test_a_class_that_is_linked_says_by_what_and_by_whom(by: str, says: str) -> None:
    found = texts(steps(**linking(by=by)))["link"]
    assert found == f"Q100 St Agnes, by {by}\nchurch{says}"


def test_an_item_of_a_table_of_the_pipeline_is_nobodys_answer() -> None:
    found = steps(**{**linking(), "links": linking()["links"].iloc[1:2]})
    assert texts(found)["link"] == "Q100 St Agnes, by qid\nchurch"


def test_a_class_without_an_item_says_who_found_none() -> None:
    unlinked = table("unlinked", ("train", 7, "none", "links.csv row 4"))
    found = texts(steps(links=linking()["links"].replace("Q100", "none"), unlinked=unlinked))
    assert found["link"].startswith("no item: none: links.csv row 4\nby bob, 2026-02-02")


def test_a_landmark_without_an_item_says_why() -> None:
    key = ("train", 8)
    found = steps(
        "train:8",
        misses=table("misses", (*key, "no_item", "'Category:Old Mill' has no Wikidata item")),
        label_dropped=table("label_dropped", (*key, "no_item", "no item")),
    )
    assert [step.head for step in found] == ["landmark", "scrape", "no path"]
    assert found[1].text == "nothing: no_item: 'Category:Old Mill' has no Wikidata item"


def test_an_override_is_told_with_its_row() -> None:
    overrides = table(
        "overrides",
        ("train", 1, "lake", "natural", "ann", "2026-03-03", "", ""),
        ("train", 7, "tower", "human-made", "ann", "2026-03-03", "a tower now", ""),
    )
    text = texts(steps(overrides=overrides))["override"]
    assert text == ('tower (human-made)\nby ann, 2026-03-03: "a tower now"\nrow 3 of overrides.csv')


def test_an_open_value_has_no_decision_yet() -> None:
    assert texts(steps(decisions=table("decisions")))["decision"].startswith("none yet for church")
    before_the_first = {name: rows for name, rows in tables().items() if name != "decisions"}
    found = explain(find_landmark(LANDMARKS, "train:7"), before_the_first, NO_LABELS)
    assert texts(found)["decision"].startswith("none yet for church")


def test_a_conflict_is_told_with_both_sides() -> None:
    table_ = tables()["decisions"].assign(supersedes="")
    assert texts(steps(decisions=table_))["decision"] == (
        "in conflict: 'keep church' by bob, 2026-02-02 (clear); 'drop' by ann, 2026-01-01"
    )


def test_a_blank_line_counts_in_the_rows_that_are_named(tmp_path: Path) -> None:
    (tmp_path / "decisions.csv").write_text("key,decision\nQ1,drop\n\nQ1,keep\n")
    found = explain(find_landmark(LANDMARKS, "train:7"), tables(), tmp_path)
    assert "row 4 of decisions.csv" in texts(found)["decision"]
    assert {step.head: step.facts for step in found}["decision"]["row"] == 4


def test_labels_that_are_older_than_the_decisions_are_told() -> None:
    later = table(
        "decisions", ("Q1", "qid", "move", "tower", "human-made", "ann", "2026-09-09", *[""] * 5)
    )
    assert "but" not in texts(steps())
    assert texts(steps(decisions=later))["but"].startswith("the labels are older")


def test_a_path_that_a_person_edited_is_not_told_as_decided() -> None:
    path = json.dumps({"kind": "natural", "supercategory": "lake", "landmark": "train:7"})
    edited = table("hierarchy", ("train", 7, path))
    assert texts(steps(hierarchy=edited))["path"] == (
        "natural > lake > train:7, by an edit of hierarchy.csv"
    )


def test_a_published_label_is_told_with_its_value() -> None:
    found = explain(
        find_landmark(LANDMARKS, "index:7"),
        {
            "index_labels": table("index_labels", (7, URL, "post mill", "windmill", "human-made")),
            "train_labels": table("train_labels", (7, URL, "x", "church", "human-made")),
        },
        NO_LABELS,
    )
    assert texts(found)["published"] == "windmill (human-made) 'post mill'"


@pytest.mark.parametrize(
    ("asked", "split", "found"),
    [
        ("train:7", "", ("train", 7)),
        ("7", "index", ("index", 7)),
        ("9", "", ("train", 9)),
        ("train:8", "", ("train", 8)),
        ("21", "", ("train", 2)),
        ("éra  falls", "", ("train", 9)),
        ("E\u0301ra_Falls", "", ("train", 9)),
        ("Norfeld", "", ("train", 7)),
        ("https://commons.wikimedia.org/wiki/Category:St_Agnes_%28Norfeld%29", "", ("train", 7)),
        ("Old Mill", "index", ("index", 7)),
    ],
)
def test_a_landmark_is_found_by_what_a_person_has(
    asked: str, split: str, found: tuple[str, int]
) -> None:
    row = find_landmark(LANDMARKS, asked, split)
    assert (row["split"], row["landmark_id"]) == found


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("7", r"'7' is index:7 \(Old Mill\), train:7 \(St Agnes \(Norfeld\)\); say which one"),
        ("old mill", "'old mill' is index:7"),
        ("8", r"'8' is train:8 \(Old Mill\), train:1 \(8\); say which one"),
        ("train:99", "no landmark 'train:99' in landmarks.csv; expected split:id"),
        ("Era Fals", "did you mean 'Éra Falls'"),
        ("", "no landmark ''"),
    ],
)
def test_what_is_none_or_many_is_told(asked: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_landmark(LANDMARKS, asked)
