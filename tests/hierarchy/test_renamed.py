"""Decisions and sheets around renames of supercategories, undos, and values that get a QID."""

from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hgld.artifacts import Vectors, records, table_of
from hgld.errors import InvalidData
from hgld.hierarchy.decisions import Decided, check_decisions, row_id
from hgld.review.apply import Applied, apply_choices, apply_sheets
from hgld.review.entries import entry_of, list_entries
from hgld.review.row_base import base_of, evidence_of
from hgld.review.sheets import hints_of, list_values
from hgld.review.spreadsheet import Sheet, SheetRow
from hgld.review.taxonomy import Taxonomy, TaxonomyEdit
from hgld.review.undo import undo_decisions, undo_entry
from hgld.review.values import followed
from tests.listening import heard

Row = dict[str, str]
CLUSTERS = table_of("clusters", [
    {"class_id": key, "instance_of": label, "landmarks": 1, "images": 1, "cluster": 0,
     "cluster_name": "pub", "distance": 0.0, "margin": 0.0}
    for key, label in (("Q1", "pub"), ("Q2", "barn"))
])  # fmt: skip
TAXONOMY = table_of("taxonomy", [
    {"supercategory": name, "kind": "human-made", "definition": ""} for name in ("church", "garden")
])  # fmt: skip
NO_HINTS, NO_EDITS = table_of("class_hints", []), table_of("cluster_edits", [])


def decided(**cells: str) -> Row:
    return {
        "key": "Q1", "key_type": "qid", "decision": "keep", "supercategory": "church",
        "kind": "human-made", "who": "ann", "when": "2026-01-01", "why": "", "evidence": "",
        "entry": "aaaa s.csv", "undoes": "", "supersedes": "", **cells,
    }  # fmt: skip


def take_back(row: Row, when: str = "2026-01-02") -> Row:
    return decided(
        decision="open", supercategory="", kind="", supersedes=row_id(row), undoes=row_id(row),
        when=when, entry="bbbb undo",
    )  # fmt: skip


RENAME = TaxonomyEdit("rename", "church", "chapel")


def rename(
    rows: list[Row], edit: TaxonomyEdit = RENAME
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Taxonomy, decisions and record after an edit."""
    decisions = table_of("decisions", rows)
    edited = Taxonomy({"taxonomy": TAXONOMY}, decisions)
    edited.make([edit])
    entry = entry_of(["rename"], "cora", "2026-02-01", "taxonomy")
    new = edited.new_rows("cora", "2026-02-01", entry)
    both = pd.concat([decisions, new["decisions"]], ignore_index=True)
    return edited.table, both, new["taxonomy_edits"]


def of_pub(decisions: pd.DataFrame) -> tuple[str, str]:
    found = Decided(decisions).find("Q1", "pub")
    assert found is not None
    return found.supercategory, found.conflict


def choose(decisions: pd.DataFrame, base: str, taxonomy: pd.DataFrame = TAXONOMY) -> Applied:
    row = {
        "key": "Q1",
        "decision": "drop",
        "supercategory": "",
        "kind": "",
        "note": "",
        "base": base,
    }
    return apply_choices(
        [row], CLUSTERS, taxonomy, decisions, NO_EDITS, NO_HINTS, who="ann", when="2026-02-03",
        source="page",
    )  # fmt: skip


def hint(name: str, kind: str = "human-made") -> pd.DataFrame:
    cells = {"class_id": "Q1", "instance_of": "pub", "kind_hint": kind, "hops": 1}
    return table_of("class_hints", [{**cells, "supercategory_hint": name, "root": f"{name} (1)"}])


@pytest.mark.parametrize(
    ("edit", "hint_now"),
    [
        (RENAME, hint("chapel")),
        (TaxonomyEdit("describe", "church", kind="natural"), hint("church", "natural")),
    ],
)
def test_a_hint_that_follows_an_edit_is_no_change_of_the_value(
    edit: TaxonomyEdit, hint_now: pd.DataFrame
) -> None:
    evidence = evidence_of(CLUSTERS, hints_of(hint("church")))[0]
    places = table_of("landmark_values", []), table_of("landmarks", [])
    before = table_of("decisions", [row := decided(evidence=evidence)])
    sheet = list_values(CLUSTERS, *places, TAXONOMY, before, hint("church"))
    taxonomy, decisions, edits = rename([row], edit)
    now = list_values(CLUSTERS, *places, taxonomy, decisions, hint_now, taxonomy_edits=edits)
    assert now.set_index("key")["status"]["Q1"] == "decided"
    other = list_values(
        CLUSTERS, *places, taxonomy, decisions, hint("garden"), taxonomy_edits=edits
    )
    assert other.set_index("key")["status"]["Q1"] == "stale"
    (cells,) = (row for row in records(sheet) if row["key"] == "Q1")
    cells = {name: "" if cell != cell else str(cell) for name, cell in cells.items()}
    for note, kinds in (("", []), ("looked again", ["note"])):
        row = {**cells, "note": note}
        found = apply_sheets(
            {Path(__file__): [Sheet("old.csv", list(row), [SheetRow(2, row)])]}, CLUSTERS,
            Vectors(["Q1", "Q2"], np.eye(2), {}), taxonomy, decisions, NO_EDITS, hint_now,
            who="ann", when="2026-03-01", taxonomy_edits=edits,
        )  # fmt: skip
        assert [change.kind for change in found.changes] == kinds


def test_a_rename_contradicts_no_decision_that_was_taken_back() -> None:
    first = decided()
    rows = [first, take_back(first), decided(who="ben", when="2026-01-03", entry="cccc b.csv")]
    assert of_pub(table_of("decisions", rows)) == ("church", "")
    assert of_pub(rename(rows)[1]) == ("chapel", "")


def test_an_older_sheet_may_be_applied_after_a_rename_and_its_undo() -> None:
    first = decided()
    base = str(base_of("Q1", Decided(table_of("decisions", [first])).heads("Q1", "pub"), 1))
    taxonomy, decisions, edits = rename([first])
    back = Taxonomy({"taxonomy": taxonomy}, decisions)
    log = list_entries(decisions, NO_EDITS, edits)
    (entry,) = (one for one in log if one.cells)
    back.undo(entry, log)
    undone = back.new_rows("cora", "2026-02-02", "dddd undo")["decisions"]
    both = pd.concat([decisions, undone], ignore_index=True)
    assert of_pub(both) == ("church", "")
    assert of_pub(choose(both, base).decisions) == ("", "")


def test_a_decision_and_a_rename_of_two_branches_do_not_contradict_each_other() -> None:
    first = decided()
    _, renamed, _ = rename([first])
    again = decided(
        supercategory="garden", supersedes=row_id(first), when="2026-02-02", entry="eeee page"
    )
    merged = pd.concat([renamed, table_of("decisions", [again])], ignore_index=True)
    assert of_pub(merged) == ("garden", "")


def test_an_undo_brings_back_no_supercategory_that_is_gone() -> None:
    first = decided()
    second = decided(
        supercategory="garden", supersedes=row_id(first), when="2026-01-02", entry="b s"
    )
    decisions = table_of("decisions", [first, second])
    names = {"garden": ("garden", "human-made")}
    with pytest.raises(InvalidData, match="would decide 'Q1' as 'church', not in taxonomy"):
        undo_decisions(
            decisions, CLUSTERS, ["Q1"], who="ann", when="2026-03-01", why="", names=names
        )


def test_a_choice_on_a_value_that_changed_since_it_was_shown_is_refused() -> None:
    shown = evidence_of(CLUSTERS, hints_of(hint("church")))[0]
    taxonomy, decisions, edits = rename([])
    choice = {"key": "Q1", "decision": "drop", "evidence": shown, "base": str(base_of("Q1"))}

    def made(clusters: pd.DataFrame, hints: pd.DataFrame) -> list[str]:
        found = apply_choices(
            [choice], clusters, taxonomy, decisions, NO_EDITS, hints, who="ann",
            when="2026-02-03", source="page", taxonomy_edits=edits,
        )  # fmt: skip
        return [change.kind for change in found.changes]

    assert made(CLUSTERS, hint("chapel")) == ["first decision"]  # the same one, renamed
    with pytest.raises(InvalidData, match=r"column evidence: .*the value has changed since"):
        made(CLUSTERS, hint("garden"))
    with pytest.raises(InvalidData, match=r"column evidence: .*the value has changed since"):
        made(CLUSTERS.assign(instance_of="inn"), hint("chapel"))


@pytest.mark.parametrize("name", ["church", "Church"])
def test_a_choice_with_a_former_name_gets_the_present_one(name: str) -> None:
    taxonomy, decisions, edits = rename([])
    choice = {"key": "Q1", "decision": "keep", "supercategory": name, "kind": "human-made"}
    found = apply_choices(
        [choice], CLUSTERS, taxonomy, decisions, NO_EDITS, NO_HINTS, who="ann", when="2026-02-03",
        source="page", taxonomy_edits=edits,
    )  # fmt: skip
    assert of_pub(found.decisions) == ("chapel", "")


def test_a_copy_from_before_a_value_had_an_id_contradicts_the_decision_on_the_id() -> None:
    by_label = decided(key="pub", key_type="label")
    by_id = decided(who="ben", supercategory="garden", supersedes=row_id(by_label), entry="cc s")
    decisions = table_of("decisions", [by_label, by_id])
    base = str(base_of("pub", Decided(table_of("decisions", [by_label])).heads("", "pub"), 1))
    row = {"key": "pub", "decision": "drop", "supercategory": "", "kind": "", "note": "",
           "base": base}  # fmt: skip
    found = apply_choices(
        [row], CLUSTERS, TAXONOMY, decisions, NO_EDITS, NO_HINTS, who="ann", when="2026-02-03",
        source="copy",
    )  # fmt: skip
    assert [change.kind for change in found.changes] == ["conflict"]
    assert found.decisions["key"].iloc[-1] == "Q1" and of_pub(found.decisions)[1]


def test_a_decision_on_a_label_that_its_id_replaced_uses_no_supercategory() -> None:
    by_label = decided(key="pub", key_type="label")
    by_id = decided(decision="drop", supercategory="", kind="", supersedes=row_id(by_label))
    edited = Taxonomy({"taxonomy": TAXONOMY}, table_of("decisions", [by_label, by_id]))
    edited.make([TaxonomyEdit("remove", "church")])
    assert edited.table["supercategory"].tolist() == ["garden"]


@pytest.mark.parametrize("renamed", [False, True])
def test_a_decision_on_a_label_that_its_id_replaced_is_no_decision_in_force(renamed: bool) -> None:
    by_label = decided(key="pub", key_type="label")
    rows = [by_label, decided(key="Q2", supercategory="garden")]  # of one entry
    rows.append(decided(supercategory="garden", supersedes=row_id(by_label), entry="cc s"))
    if renamed:  # as earlier versions wrote it
        followed = {"supercategory": "chapel", "entry": "dddd taxonomy", "when": "2026-01-03"}
        rows.append(by_label | followed | {"supersedes": row_id(by_label)})
    decisions = table_of("decisions", rows)
    taxonomy = TAXONOMY.replace("church", "chapel") if renamed else TAXONOMY
    edited = Taxonomy({"taxonomy": taxonomy}, decisions)
    edited.make([TaxonomyEdit("remove", "chapel" if renamed else "church")])
    assert check_decisions(decisions, edited.table) == []
    entry = list_entries(decisions, NO_EDITS, table_of("taxonomy_edits", []))[0]
    undone = undo_entry(
        decisions, NO_EDITS, CLUSTERS, entry, who="ann", when="2026-03-01", why="", names={}
    )
    assert undone.left == ["pub"]
    assert undone.decisions["key"][len(rows) :].tolist() == ["Q2"]


def test_a_conflict_on_a_label_is_settled_by_the_decision_on_its_id() -> None:
    sides = [
        decided(key="pub", key_type="label"),
        decided(key="pub", key_type="label", who="ben", supercategory="garden", entry="cc s"),
    ]
    both = table_of("decisions", sides)
    assert [fault for _, fault in check_decisions(both, TAXONOMY)]
    settled = decided(supersedes=" ".join(map(row_id, sides)), when="2026-02-01", entry="dd s")
    assert check_decisions(table_of("decisions", [*sides, settled]), TAXONOMY) == []


@pytest.mark.parametrize("again", [False, True])
def test_a_sheet_from_between_a_rename_and_its_undo_has_no_older_decision(again: bool) -> None:
    taxonomy, decisions, edits = rename([decided()])
    places = table_of("landmark_values", []), table_of("landmarks", [])
    sheet = list_values(CLUSTERS, *places, taxonomy, decisions, NO_HINTS)
    back = Taxonomy({"taxonomy": taxonomy}, decisions)
    log = list_entries(decisions, NO_EDITS, edits)
    (entry,) = (one for one in log if one.cells)
    back.undo(entry, log)
    undone = back.new_rows("cora", "2026-02-02", "dddd undo")["decisions"]
    taxonomy, decisions = back.table, pd.concat([decisions, undone], ignore_index=True)
    if again:
        taxonomy, decisions, _ = rename(
            records(decisions), TaxonomyEdit("rename", "church", "minster")
        )
    (row,) = (row for row in records(sheet) if row["key"] == "Q1")
    row = {name: "" if cell != cell else str(cell) for name, cell in row.items()}
    with heard() as notices:
        applied = apply_sheets(
            {Path(__file__): [Sheet("old.csv", list(row), [SheetRow(2, row)])]}, CLUSTERS,
            Vectors(["Q1", "Q2"], np.eye(2), {}), taxonomy, decisions, NO_EDITS, NO_HINTS,
            who="ann", when="2026-03-01",
        )  # fmt: skip
    assert (notices, applied.changes) == ([], [])
    assert of_pub(applied.decisions) == ("minster" if again else "church", "")


def test_a_decision_is_followed_through_renames_in_any_order_of_the_rows() -> None:
    first = decided()
    second = decided(supercategory="chapel", supersedes=row_id(first), entry="bbbb taxonomy")
    third = decided(supercategory="minster", supersedes=row_id(second), entry="cccc taxonomy")
    for rows in permutations([first, second, third]):
        history = Decided(table_of("decisions", list(rows))).rows()
        assert followed([row_id(first)], history) == (row_id(third),)


@pytest.mark.parametrize("kind", ["human-made", "made > by hand"])
def test_a_row_from_before_another_kind_of_its_supercategory_has_the_present_one(kind: str) -> None:
    places = table_of("landmark_values", []), table_of("landmarks", [])
    none = table_of("decisions", [])
    taxonomy = TAXONOMY.assign(kind=kind)
    sheet = list_values(CLUSTERS, *places, taxonomy, none, NO_HINTS)
    levels = ("material", "kind", "group")[-1 - len(kind.split(" > ")) :]
    edited = Taxonomy({"taxonomy": taxonomy}, none, levels)
    edited.make([TaxonomyEdit("describe", n, kind=f"{kind}s") for n in ("church", "garden")])
    edits = edited.new_rows("cora", "2026-02-01", "eeee taxonomy")["taxonomy_edits"]
    (row,) = (row for row in records(sheet) if row["key"] == "Q1")
    row = {name: "" if cell != cell else str(cell) for name, cell in row.items()}
    row |= {"decision": "keep", "supercategory": "church", "kind": kind}
    applied = apply_sheets(
        {Path(__file__): [Sheet("old.csv", list(row), [SheetRow(2, row)])]}, CLUSTERS,
        Vectors(["Q1", "Q2"], np.eye(2), {}), edited.table, none, NO_EDITS, NO_HINTS,
        who="ann", when="2026-03-01", taxonomy_edits=edits,
    )  # fmt: skip
    assert applied.decisions["kind"].tolist() == [f"{kind}s"]
