import pandas as pd
import pytest

from hgld.artifacts import records, table_of
from hgld.errors import InvalidData
from hgld.hierarchy.decisions import row_id
from hgld.review.undo import undo_decisions
from tests.hierarchy.test_decisions import in_a_row

CLUSTERS = table_of(
    "clusters",
    [
        {"class_id": "Q2", "instance_of": "pond", "landmarks": 1, "images": 1, "cluster": 0,
         "cluster_name": "pond", "distance": 0.0, "margin": 0.0},
    ],
)  # fmt: skip
BY_LABEL = ("pond", "label", "keep", "lake", "natural", "2026-01-01")
BY_ID = ("Q2", "qid", "drop", "", "", "2026-02-02")


def decisions(*rows: tuple[str, ...]) -> pd.DataFrame:
    """Rows of (key, key_type, decision, supercategory, kind, when), each superseding the last."""
    names = ("key", "key_type", "decision", "supercategory", "kind", "when")
    more = dict.fromkeys(("why", "evidence", "entry", "undoes"), "")
    return in_a_row([{**dict(zip(names, row, strict=True)), "who": "a", **more} for row in rows])


def undone(key: str, *rows: tuple[str, ...], clusters: pd.DataFrame = CLUSTERS) -> dict[str, str]:
    """What undoing adds: key, what is decided and what that replaces."""
    before = decisions(*rows)
    after = undo_decisions(
        before, clusters, [key], who="b", when="2026-03-03", why="looked", names={}
    )
    pd.testing.assert_frame_equal(after[: len(rows)], before)
    (new,) = records(after[len(rows) :])
    assert (new["who"], new["when"], new["why"]) == ("b", "2026-03-03", "looked")
    last = before.iloc[-1]
    assert new["supersedes"] == new["undoes"] == row_id(last)
    return {"supersedes": last["when"]} | {
        name: new[name] for name in ("key", "decision", "supercategory")
    }


def test_the_first_decision_on_an_id_gives_way_to_that_on_its_label() -> None:
    assert undone("Q2", BY_LABEL, BY_ID) == {
        "key": "Q2", "decision": "keep", "supercategory": "lake", "supersedes": "2026-02-02",
    }  # fmt: skip


def test_a_value_that_is_decided_by_its_label_is_known_by_its_key_in_the_sheet() -> None:
    assert undone("Q2", BY_LABEL) == {
        "key": "pond", "decision": "open", "supercategory": "", "supersedes": "2026-01-01",
    }  # fmt: skip


def test_without_clusters_only_the_keys_of_the_file_are_known() -> None:
    found = undone("pond", BY_LABEL, clusters=table_of("clusters", []))
    assert (found["key"], found["decision"]) == ("pond", "open")


def undo_often(rows: list[tuple[str, ...]], whys: list[str]) -> list[str]:
    """What holds after each undoing."""
    table = decisions(*rows)
    for why in whys:
        table = undo_decisions(
            table, CLUSTERS, ["Q2"], who="b", when="2026-03-03", why=why, names={}
        )
    return [row["supercategory"] or row["decision"] for row in records(table[len(rows) :])]


THREE = [
    ("Q2", "qid", "keep", place, "natural", f"2026-02-0{i}")
    for i, place in enumerate(("lake", "parks", "canal"), 1)
]


@pytest.mark.parametrize("whys", [["taken back"] * 3, ["looked", "looked again", "no"]])
def test_undoing_three_times_goes_back_three_decisions(whys: list[str]) -> None:
    assert undo_often(THREE, whys) == ["parks", "lake", "open"]


def test_a_value_whose_decisions_are_all_taken_back_has_none_to_take_back() -> None:
    with pytest.raises(InvalidData, match="every decision on 'Q2' is taken back already"):
        undo_often(THREE[:1], ["taken back"] * 2)


def test_a_decision_made_again_is_the_one_that_is_taken_back() -> None:
    assert undo_often([THREE[0], THREE[1], THREE[0]], ["taken back"]) == ["parks"]


def test_a_label_that_an_id_has_replaced_is_not_taken_back() -> None:
    with pytest.raises(InvalidData, match="'pond' is decided by its id since; give Q2"):
        undone("pond", BY_LABEL, BY_ID)
