"""What a person says of whole clusters, and what becomes of their values."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hgld.artifacts import Vectors, table_of, write_csv
from hgld.artifacts.cells import guard_columns
from hgld.config import ClusterOptions, StageContext
from hgld.errors import InvalidData
from hgld.hierarchy.cluster import propose_clusters
from hgld.review.apply import apply_sheets
from hgld.review.clusters import list_clusters
from hgld.review.sheets import list_values
from hgld.review.spreadsheet import read_files

DEGREES = {"lake": 0, "pond": 10, "sea": -10, "church": 90, "chapel": 96, "pub": 200, "inn": 240}
COUNTS = {"lake": 9, "pond": 1, "sea": 1, "church": 30, "chapel": 2, "pub": 7, "inn": 1}
VALUES = table_of(
    "values",
    [
        {"class_id": "", "instance_of": name, "landmarks": COUNTS[name], "images": 0}
        for name in DEGREES
    ],
)
VECTORS = Vectors(
    list(DEGREES),
    np.stack([f(np.radians(list(DEGREES.values()))) for f in (np.cos, np.sin)], 1),
    {},
)
TAXONOMY = table_of(
    "taxonomy",
    [
        {"supercategory": name, "kind": kind, "definition": ""}
        for name, kind in (("church", "human-made"), ("lake", "natural"))
    ],
)
NONE = table_of("decisions", [])
NO_EDITS = table_of("cluster_edits", [])
NO_HINTS = table_of("class_hints", [])


class Desk:
    """A review under way: clusters 0 church chapel, 1 lake pond sea, 2 inn pub."""

    def __init__(self, context: StageContext) -> None:
        self.context = context
        self.folder = context.state.parent
        self.decisions, self.edits = NONE, NO_EDITS
        self.propose()

    def propose(self, clusters: int = 3) -> dict[int, str]:
        """Make the clusters anew; cluster -> its values."""
        self.clusters, self.summary = propose_clusters(
            VALUES, VECTORS, self.edits, options=ClusterOptions(clusters=clusters),
            context=self.context,
        )  # fmt: skip
        groups = self.clusters.groupby("cluster")
        return {int(i): " ".join(rows["instance_of"]) for i, rows in groups}

    def sheet(self) -> pd.DataFrame:
        nothing = table_of("landmark_values", []), table_of("landmarks", [])
        values = list_values(self.clusters, *nothing, TAXONOMY, self.decisions, NO_HINTS)
        return list_clusters(values, self.summary).set_index("cluster", drop=False)

    def write(self, rows: dict[int, dict[str, str]], file: str = "review_clusters.csv") -> Path:
        """Write the sheet with these cells filled in: cluster -> column -> text."""
        sheet = self.sheet().astype(object)
        for cluster, cells in rows.items():
            for column, text in cells.items():
                sheet.loc[cluster, column] = text
        write_csv(sheet, self.folder / file, spreadsheet=True)
        return self.folder / file

    def apply(self, *sheets: Path) -> None:
        after = apply_sheets(
            read_files(sheets), self.clusters, VECTORS, TAXONOMY, self.decisions, self.edits,
            NO_HINTS, who="b", when="2026-11-21",
        )  # fmt: skip
        self.decisions, self.edits = after.decisions, after.cluster_edits

    def decided(self) -> dict[str, str]:
        pairs = zip(self.decisions["key"], self.decisions["supercategory"], strict=True)
        return dict(pairs)


@pytest.fixture
def desk(context: StageContext) -> Desk:
    return Desk(context)


ACCEPT = {"action": "accept", "supercategory": "Church"}


def test_a_cluster_that_a_person_made_in_clusters_csv_has_no_class_above(desk: Desk) -> None:
    desk.summary = desk.summary.assign(level_kind=["a", "b", "a"])
    desk.clusters.loc[desk.clusters["instance_of"] == "pub", ["cluster", "cluster_name"]] = 9, "pub"
    sheet = guard_columns(desk.sheet())
    assert sheet.loc[[0, 9], ["values", "level_kind"]].to_numpy().tolist() == [[2, "a"], [1, ""]]


def test_accepting_decides_all_open_values_of_the_cluster(desk: Desk) -> None:
    desk.apply(desk.write({0: ACCEPT}))
    assert desk.decided() == {"chapel": "church", "church": "church"}
    assert set(desk.decisions["why"]) == {"accepted with cluster 0 (chapel)"}
    assert set(desk.decisions["kind"]) == {"human-made"} and set(desk.decisions["who"]) == {"b"}
    assert (desk.decisions["evidence"] != "").all() and desk.edits.empty


def test_a_sheet_applied_twice_is_written_once(desk: Desk) -> None:
    sheet = desk.write({0: ACCEPT, 1: {"action": "merge", "into": "2"}})
    desk.apply(sheet)
    first = desk.decisions, desk.edits
    desk.apply(sheet)
    assert len(first[0]) == 2 and len(first[1]) == 3
    pd.testing.assert_frame_equal(desk.decisions, first[0])
    pd.testing.assert_frame_equal(desk.edits, first[1])


def test_the_note_of_an_accepted_cluster_is_the_reason(desk: Desk) -> None:
    desk.apply(desk.write({0: {**ACCEPT, "note": "houses of prayer"}}))
    assert set(desk.decisions["why"]) == {"houses of prayer"}


def test_accepting_leaves_what_is_decided_or_unsure(desk: Desk) -> None:
    row = {"key_type": "label", "kind": "", "who": "a", "when": "2026-01-01", "why": "",
           "supersedes": "", "evidence": ""}  # fmt: skip
    desk.decisions = table_of(
        "decisions",
        [
            {**row, "key": "church", "decision": "drop", "supercategory": ""},
            {**row, "key": "lake", "decision": "unsure", "supercategory": ""},
        ],
    )
    accept = {"action": "accept", "supercategory": "lake"}
    desk.apply(desk.write({0: ACCEPT, 1: accept}))
    found = desk.decisions[2:]["key"].tolist()
    assert found == ["chapel", "pond", "sea"]


def test_a_row_of_a_value_goes_before_the_row_of_its_cluster(desk: Desk) -> None:
    values = desk.folder / "values.csv"
    values.write_text("decision,supercategory,kind,note,key\ndrop,,,,pond\nunsure,,,,sea\n")
    desk.apply(values, desk.write({1: {"action": "accept", "supercategory": "lake"}}))
    found = dict(zip(desk.decisions["key"], desk.decisions["decision"], strict=True))
    assert found == {"lake": "keep", "pond": "drop", "sea": "unsure"}


def test_a_merged_cluster_goes_into_the_other_and_leaves_decisions_alone(desk: Desk) -> None:
    desk.apply(desk.write({0: {"action": "merge into", "into": "2"}}))
    assert desk.decisions.empty
    assert desk.propose() == {1: "lake pond sea", 2: "chapel church inn pub"}
    assert desk.propose(clusters=2)[2] == "chapel church inn pub"


def test_merges_follow_each_other(desk: Desk) -> None:
    merges = {0: {"action": "merge", "into": "1"}, 1: {"action": "merge", "into": "2"}}
    desk.apply(desk.write(merges))
    assert desk.propose() == {2: "chapel church inn lake pond pub sea"}


def test_a_cluster_merged_into_an_accepted_one_is_accepted_with_it(desk: Desk) -> None:
    desk.apply(desk.write({0: ACCEPT, 2: {"action": "merge", "into": "0"}}))
    assert sorted(desk.decided()) == ["chapel", "church", "inn", "pub"]


def test_a_dissolved_cluster_leaves_each_value_to_the_nearest_other(desk: Desk) -> None:
    desk.apply(desk.write({2: {"action": "dissolve"}}))
    assert desk.propose() == {0: "chapel church pub", 1: "inn lake pond sea"}


def test_a_split_cluster_has_new_ids_and_its_decisions_are_kept(desk: Desk) -> None:
    desk.apply(desk.write({0: ACCEPT}))
    desk.apply(desk.write({0: {"action": "split", "into": "2"}}))
    assert desk.propose() == {1: "lake pond sea", 2: "inn pub", 3: "church", 4: "chapel"}
    assert desk.decided() == {"chapel": "church", "church": "church"}
    assert desk.propose(clusters=2)[3] == "church"
    assert set(desk.sheet()["decided_as"]) == {"", "church 1"}


def test_a_split_can_be_merged_again(desk: Desk) -> None:
    desk.apply(desk.write({0: {"action": "split", "into": "2"}}))
    desk.propose()
    desk.apply(desk.write({4: {"action": "merge", "into": "3"}}))
    assert desk.propose() == {1: "lake pond sea", 2: "inn pub", 3: "chapel church"}


def test_a_sheet_that_is_untouched_changes_nothing(desk: Desk) -> None:
    desk.apply(desk.write({}))
    assert desk.decisions.empty and desk.edits.empty


def faults(desk: Desk, rows: dict[int, dict[str, str]]) -> list[str]:
    with pytest.raises(InvalidData) as error:
        desk.apply(desk.write(rows))
    return str(error.value).split("\n  ")[1:]


def test_all_faults_are_told_at_once(desk: Desk) -> None:
    found = faults(
        desk,
        {
            0: {"action": "accept", "supercategory": "chruch"},
            1: {"action": "split", "into": "9"},
            2: {"action": "", "note": "hm"},
        },
    )
    assert sorted(line.split(", ", 1)[1] for line in found) == [
        "column action: found ''; expected accept, merge, dissolve, split, since note is filled in",
        "column into: found '9'; expected into how many clusters, 2 to 3",
        "column supercategory: found 'chruch'; expected a name that is in taxonomy.csv"
        "; did you mean 'church'?",
    ]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            {0: {"action": "split", "into": "x"}},
            "found 'x'; expected into how many clusters, 2 to 2",
        ),
        ({0: {"action": "merge", "into": "0"}}, "found '0'; expected the number of another"),
        ({0: {"action": "merge", "into": "7"}}, "found '7'; expected the number of another"),
        ({0: {"action": "acept"}}, "found 'acept'; expected one of accept"),
        ({0: {**ACCEPT, "into": "1"}}, "found '1'; expected nothing: accept needs none"),
        ({0: {"action": "dissolve", "supercategory": "lake"}}, "only accept takes one"),
        ({0: {**ACCEPT, "note": "#REF!"}}, "expected text, not a spreadsheet's error"),
        (
            {0: {"action": "merge", "into": "1"}, 1: {"action": "merge", "into": "0"}},
            "found '1'; expected a cluster that is not merged into this one",
        ),
        (
            {0: {"action": "merge", "into": "1"}, 1: {"action": "dissolve"}},
            "expected a cluster that stays; row",
        ),
        ({i: {"action": "dissolve"} for i in range(3)}, "at least one cluster that stays"),
        ({0: {**ACCEPT, "evidence": "abcdef"}}, "are not those that the sheet was written for"),
        ({0: {**ACCEPT, "cluster": "70"}}, "found '70'; expected the number of a cluster"),
        ({0: ACCEPT, 1: {**ACCEPT, "cluster": "0"}}, "each cluster once; it stands in row"),
    ],
)
def test_what_makes_no_sense_is_told(
    desk: Desk, rows: dict[int, dict[str, str]], says: str
) -> None:
    assert says in "\n".join(faults(desk, rows))
    assert desk.decisions.empty and desk.edits.empty


def two_sheets(desk: Desk, a: dict[int, dict[str, str]], b: dict[int, dict[str, str]]) -> None:
    desk.apply(desk.write(a, "a.csv"), desk.write(b, "b.csv"))


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        (
            {0: ACCEPT},
            {0: {**ACCEPT, "supercategory": "lake"}},
            r"b\.csv: 1 fault, .*\n.*column supercategory: found 'lake'; expected what row \d of "
            r".*a\.csv says of this cluster, 'Church'; apply one of them only$",
        ),
        (
            {0: {"action": "merge", "into": "2"}},
            {0: {"action": "dissolve"}},
            r"b\.csv: 1 fault, .*\n.*column action: found 'dissolve'; .*, 'merge'; apply one",
        ),
        (
            {0: {"action": "merge", "into": "2"}},
            {2: {"action": "split", "into": "2"}},
            r"a\.csv: 1 fault, .*\n.*found '2'; expected a cluster that stays; row \d of "
            r".*b\.csv says split$",
        ),
        (
            {0: {"action": "merge", "into": "1"}},
            {1: {"action": "merge", "into": "0"}},
            r"a\.csv: 1 fault, .*\n.*not merged into this one\n.*b\.csv: 1 fault, .*\n.*not merged",
        ),
        (
            {0: {"action": "dissolve"}, 1: {"action": "dissolve"}},
            {2: {"action": "dissolve"}},
            r"a\.csv: 1 fault, .*\n.*at least one cluster that stays as it is$",
        ),
    ],
)
def test_two_sheets_that_do_not_go_together_are_told(
    desk: Desk, a: dict[int, dict[str, str]], b: dict[int, dict[str, str]], says: str
) -> None:
    with pytest.raises(InvalidData, match=says):
        two_sheets(desk, a, b)
    assert desk.decisions.empty and desk.edits.empty


def test_two_sheets_count_as_one(desk: Desk) -> None:
    merge = {2: {"action": "merge", "into": "0"}}
    two_sheets(desk, {0: ACCEPT, **merge}, {0: {**ACCEPT, "supercategory": "church"}, **merge})
    assert desk.decided() == dict.fromkeys(("chapel", "church", "inn", "pub"), "church")
    assert desk.edits["key"].tolist() == ["inn", "pub"]


def test_a_sheet_of_clusters_that_are_other_ones_by_now_is_refused(desk: Desk) -> None:
    sheet = desk.write({0: ACCEPT})
    edit = {"key": "sea", "with_key": "church", "action": "merge", "who": "c", "when": ""}
    desk.edits = table_of("cluster_edits", [edit])
    desk.propose()
    with pytest.raises(InvalidData, match="are not those that the sheet was written for"):
        desk.apply(sheet)


def test_edits_are_appended_with_who_and_when(desk: Desk) -> None:
    desk.apply(desk.write({2: {"action": "merge", "into": "0"}}))
    assert desk.edits.drop(columns=["entry", "follows"]).to_numpy().tolist() == [
        [key, "chapel", "merge", "b", "2026-11-21"] for key in ("inn", "pub")
    ]
