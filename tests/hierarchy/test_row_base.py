"""Older sheets, and sheets whose columns were sorted apart, against newer decisions."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
import pytest

from hgld.artifacts import ARTIFACTS, Table, Vectors, records, table_of
from hgld.artifacts.cells import unguard
from hgld.config import ReviewOptions
from hgld.errors import InvalidData
from hgld.hierarchy.decisions import row_id
from hgld.review.apply import apply_sheets, require_few_changes
from hgld.review.sheets import write_sheets
from hgld.review.spreadsheet import read_files
from hgld.review.undo import undo_decisions
from tests.hierarchy.test_review import (
    NO_HINTS,
    NO_LABELS,
    NO_SUGGESTIONS,
    TAXONOMY,
    clusters,
    decisions,
    landmarks_of,
    summary_of,
)

PLACES = ("church", "lake", "parks")
LABELS = [f"{place} {i}" for i in range(12) for place in PLACES]
VALUES = clusters(*((label, 99 - i, 0) for i, label in enumerate(LABELS)))
KEYS = VALUES["class_id"].tolist()
RIGHT = {key: label.split()[0] for key, label in zip(KEYS, LABELS, strict=True)}
NONE = decisions()
COLUMNS = ["decision", "supercategory", "kind"]
WIDE = table_of(
    "taxonomy",
    [{"supercategory": f"place {i}", "kind": "natural", "definition": ""} for i in range(8)],
)


def keep(**places: str) -> pd.DataFrame:
    rows = [(key, "keep", place, "natural", "") for key, place in places.items()]
    return decisions(*rows)


def then(first: pd.DataFrame, **places: str) -> pd.DataFrame:
    """The decisions, and later ones that supersede those on the same keys."""
    ids = {row["key"]: row_id(row) for row in records(first)}
    later = keep(**places)
    return pd.concat([first, later.assign(supersedes=later["key"].map(ids))], ignore_index=True)


def written(decided: pd.DataFrame, taxonomy: pd.DataFrame = TAXONOMY) -> pd.DataFrame:
    """The sheet that is written while these decisions hold, by key."""
    values, places = landmarks_of(VALUES)
    sheet, _, _ = write_sheets(
        VALUES, summary_of(VALUES), values, places, taxonomy, decided, NO_HINTS,
        NO_LABELS, *NO_SUGGESTIONS, options=ReviewOptions(), context=None,  # type: ignore[arg-type]
    )  # fmt: skip
    return sheet.set_index("key", drop=False)


@pytest.fixture
def applied() -> list[pd.DataFrame]:
    """The decisions after each sheet that was applied."""
    return []


@pytest.fixture
def apply(tmp_path: Path, applied: list[pd.DataFrame]) -> Callable[..., list[list[str]]]:
    """Save a sheet and apply it; key and supercategory (or decision) of what is new."""

    def run(
        sheet: pd.DataFrame,
        decided: pd.DataFrame,
        taxonomy: pd.DataFrame = TAXONOMY,
        without: Sequence[str] = (),
        sure: bool = False,
        renamed: Mapping[str, str] | None = None,
    ) -> list[list[str]]:
        sheet.drop(columns=list(without)).to_csv(tmp_path / "mine.csv", index=False)
        edits = [
            {"action": "rename", "table": "taxonomy", "key": old, "column": "supercategory",
             "before": old, "after": new, "entry": "e taxonomy"}
            for old, new in (renamed or {}).items()
        ]  # fmt: skip
        after = apply_sheets(
            read_files([tmp_path / "mine.csv"]), VALUES,
            Vectors(KEYS, pd.DataFrame(index=KEYS).to_numpy(), {}),
            taxonomy, decided, table_of("cluster_edits", []), NO_HINTS,
            who="anna", when="2026-02-02", sure=sure,
            taxonomy_edits=table_of("taxonomy_edits", edits),
        ).decisions  # fmt: skip
        applied.append(after)
        new = records(after[len(decided) :])
        return [[row["key"], row["supercategory"] or row["decision"]] for row in new]

    return run


Apply = Callable[..., list[list[str]]]
Saved = Callable[[pd.DataFrame], pd.DataFrame]


@pytest.fixture
def saved(applied: list[pd.DataFrame]) -> Saved:
    """The decisions with those of the last sheet that was applied to them."""

    def after(before: pd.DataFrame) -> pd.DataFrame:
        pd.testing.assert_frame_equal(applied[-1][: len(before)], before)
        return applied[-1]

    return after


def change(sheet: pd.DataFrame, key: str, place: str) -> pd.DataFrame:
    return sheet.assign(
        decision=sheet["decision"].where(sheet["key"] != key, "keep"),
        supercategory=sheet["supercategory"].where(sheet["key"] != key, place),
        kind=sheet["kind"].where(sheet["key"] != key, ""),
    )


def test_an_older_sheet_changes_only_what_its_person_changed(apply: Apply) -> None:
    first = keep(Q1="lake", Q2="lake", Q3="lake")
    newer = then(first, Q1="parks")
    assert apply(change(written(first), "Q2", "parks"), newer) == [["Q2", "parks"]]


def test_an_older_sheet_that_shows_an_open_value_takes_no_decision_back(apply: Apply) -> None:
    assert apply(written(NONE), keep(Q1="parks")) == []


def status_of(decided: pd.DataFrame, key: str) -> tuple[str, str]:
    row = written(decided).loc[key]
    return row["status"], row["conflict"]


def test_replacing_a_newer_decision_is_a_conflict_that_shows_both_sides(
    apply: Apply, saved: Saved
) -> None:
    first = keep(Q1="lake", Q2="lake")
    newer = then(first, Q1="parks")
    mine = change(change(written(first), "Q1", "church"), "Q2", "church")
    assert apply(mine, newer) == [["Q1", "church"], ["Q2", "church"]]
    after = saved(newer)
    status, sides = status_of(after, "Q1")
    assert (status, sides.count(" by ")) == ("conflict", 2)
    assert sides == "'keep church' by anna, 2026-02-02; 'keep parks' by a, 2026-01-01"
    assert status_of(after, "Q2") == ("decided", "")


def test_a_filled_row_of_a_new_sheet_settles_a_conflict(apply: Apply, saved: Saved) -> None:
    first = keep(Q1="lake")
    newer = then(first, Q1="parks")
    apply(change(written(first), "Q1", "church"), newer)
    after = saved(newer)
    fresh = written(after)
    assert fresh.loc["Q1", ["decision", "supercategory", "kind", "note"]].tolist() == [""] * 4
    assert apply(fresh, after) == []
    assert apply(change(fresh, "Q1", "parks"), after) == [["Q1", "parks"]]
    assert status_of(saved(after), "Q1") == ("decided", "")


def test_a_decision_that_only_followed_the_taxonomy_is_no_newer_one(
    apply: Apply, saved: Saved
) -> None:
    first = keep(Q1="lake")
    renamed = then(first, Q1="parks").assign(entry=["", "abcdefgh taxonomy"])
    assert apply(change(written(first), "Q1", "church"), renamed) == [["Q1", "church"]]
    assert status_of(saved(renamed), "Q1") == ("decided", "")


def test_the_same_decision_from_two_older_sheets_is_no_conflict(apply: Apply, saved: Saved) -> None:
    first = keep(Q1="lake")
    newer = then(first, Q1="parks")
    mine = change(written(first), "Q1", "parks")
    assert apply(mine, newer) == []
    noted = mine.assign(note=mine["note"].where(mine["key"] != "Q1", "seen"))
    assert apply(noted, newer) == [["Q1", "parks"]]
    assert status_of(saved(newer), "Q1") == ("decided", "")


def test_a_sheet_that_is_applied_again_after_it_was_replaced_changes_nothing(
    apply: Apply, saved: Saved
) -> None:
    first = keep(Q1="lake")
    mine = change(written(first), "Q1", "church")
    apply(mine, first)
    ours = saved(first)
    apply(change(written(ours), "Q1", "parks"), ours)
    assert apply(mine, saved(ours)) == []


def test_an_old_sheet_does_not_redo_what_was_undone(apply: Apply, saved: Saved) -> None:
    first = keep(Q1="lake")
    mine = change(written(first), "Q1", "parks")
    apply(mine, first)
    undone = undo_decisions(
        saved(first), VALUES, ["Q1"], who="b", when="2026-01-01", why="no", names={}
    )
    assert apply(mine, undone) == []
    fresh = change(written(undone), "Q1", "parks")
    assert apply(fresh, undone) == [["Q1", "parks"]]


def test_without_the_base_a_decision_that_was_replaced_is_not_brought_back(
    apply: Apply, saved: Saved
) -> None:
    first = keep(Q1="lake")
    newer = then(first, Q1="parks")
    assert apply(written(first), newer, without=["base"]) == [["Q1", "lake"]]
    assert status_of(saved(newer), "Q1")[0] == "conflict"
    assert apply(change(written(first), "Q1", "church"), newer, without=["base"]) == [
        ["Q1", "church"]
    ]
    assert status_of(saved(newer), "Q1") == ("decided", "")


def sort_apart(sheet: pd.DataFrame) -> pd.DataFrame:
    """Sort three columns by themselves, as a spreadsheet does with a selection."""
    alone = sheet[COLUMNS].sort_values(COLUMNS).reset_index(drop=True)
    return sheet.assign(**{name: alone[name].to_numpy() for name in COLUMNS})


@pytest.mark.parametrize("without", [(), ("base",)])
def test_decided_columns_that_were_sorted_without_their_keys_are_refused(
    apply: Apply, without: tuple[str, ...]
) -> None:
    decided = keep(**RIGHT).assign(kind="")
    with pytest.raises(InvalidData, match="hold the decisions of other rows, nothing was applied"):
        apply(sort_apart(written(decided)), decided, without=without)


def test_a_half_decided_sheet_that_was_sorted_apart_is_refused(apply: Apply) -> None:
    decided = keep(**dict(list(RIGHT.items())[:15])).assign(kind="")
    with pytest.raises(InvalidData, match="hold the decisions of other rows"):
        apply(sort_apart(written(decided)), decided)


def test_columns_that_were_filled_in_and_then_sorted_apart_are_refused(apply: Apply) -> None:
    sheet = written(NONE, WIDE)
    places = [f"place {(5 * i) % 8}" for i in range(len(sheet))]
    filled = sheet.assign(decision="keep", supercategory=places, kind="natural")
    assert len(apply(filled, NONE, WIDE)) == len(sheet)
    assert len(apply(filled.sort_values("supercategory"), NONE, WIDE)) == len(sheet)
    with pytest.raises(InvalidData, match="the decisions are sorted, while the keys are"):
        apply(sort_apart(filled), NONE, WIDE)


@pytest.mark.parametrize("order", ["key", "instance_of", "landmarks"])
def test_sorted_decisions_beside_ordered_keys_are_refused_without_a_base(
    apply: Apply, order: str
) -> None:
    sheet = written(NONE, WIDE).reset_index(drop=True).sort_values(order)
    places = [f"place {(5 * i) % 8}" for i in range(len(sheet))]
    filled = sheet.assign(decision="keep", supercategory=places, kind="natural")
    whole = filled.sort_values("supercategory")
    assert len(apply(whole, NONE, WIDE, without=("base",))) == len(sheet)
    with pytest.raises(InvalidData, match="the decisions are sorted, while the keys are"):
        apply(sort_apart(filled), NONE, WIDE, without=("base",))


@pytest.mark.parametrize("filled", [range(10), range(12, 24), range(0, 36, 3)])
@pytest.mark.parametrize("upwards", [True, False])
def test_the_first_ten_decisions_sorted_apart_are_refused(
    apply: Apply, filled: range, upwards: bool
) -> None:
    sheet = written(NONE, WIDE)
    cells = {key: f"place {(5 * i) % 8}" for i, key in enumerate(sheet["key"]) if i in filled}
    right = sheet.assign(supercategory=sheet["key"].map(cells).fillna(""))
    right["decision"] = right["supercategory"].map(lambda place: "keep" if place else "")
    assert len(apply(right, NONE, WIDE)) == len(filled)
    names = sorted(cells.values(), reverse=not upwards)
    blank = [""] * (len(sheet) - len(names))  # spreadsheets put empty cells last
    apart = right.assign(supercategory=names + blank, decision=["keep"] * len(names) + blank)
    with pytest.raises(InvalidData, match="the decisions are sorted, while the keys are"):
        apply(apart, NONE, WIDE)


def test_a_row_with_the_old_name_of_a_supercategory_gets_the_new_one(apply: Apply) -> None:
    decided = keep(Q1="parks")
    sheet = change(change(written(decided), "Q1", "lake"), "Q2", "lake")
    taxonomy = TAXONOMY.replace("lake", "pond")
    with pytest.raises(InvalidData, match="found 'lake'; expected a name that is in taxonomy"):
        apply(sheet, decided, taxonomy)
    found = apply(sheet, decided, taxonomy, renamed={"lake": "pond"})
    assert found == [["Q1", "pond"], ["Q2", "pond"]]


def test_a_row_that_kept_its_supercategory_follows_a_split_of_it(
    apply: Apply, saved: Saved
) -> None:
    first = keep(Q1="lake")
    split = then(first, Q1="parks").assign(entry=["", "abcdefgh taxonomy"])
    sheet = written(first)
    sheet = sheet.assign(note=sheet["note"].where(sheet["key"] != "Q1", "high up"))
    assert apply(sheet, split) == [["Q1", "parks"]]  # "lake" is in the taxonomy, too
    assert status_of(saved(split), "Q1") == ("decided", "")
    again = then(split, Q1="church").assign(entry=[*split["entry"], "cccccccc ben.csv"])
    renamed = {"parks": "garden"}  # after Ben decided the value
    assert apply(sheet, again, TAXONOMY.replace("parks", "garden"), renamed=renamed) == [
        ["Q1", "garden"]
    ]
    assert status_of(saved(again), "Q1")[0] == "conflict"


@pytest.mark.parametrize("places", [["lake"] * 12, ["church"] * 3 + ["lake"] * 3, ["church"]])
def test_few_different_decisions_in_a_row_are_no_sign_of_sorting(
    apply: Apply, places: list[str]
) -> None:
    sheet = written(NONE)
    places += [""] * (len(sheet) - len(places))
    mine = sheet.assign(supercategory=places, decision=["keep" if p else "" for p in places])
    assert len(apply(mine, NONE)) == sum(map(bool, places))


def test_a_base_that_belongs_to_another_key_is_a_fault(apply: Apply) -> None:
    sheet = written(NONE)
    sheet = sheet.assign(base=sheet["base"].to_numpy()[::-1])
    with pytest.raises(InvalidData, match=r"row 2, column base: .*was a column sorted or pasted"):
        apply(sheet, NONE)


def test_an_apply_that_changes_many_decisions_in_force_must_be_confirmed(tmp_path: Path) -> None:
    decided = keep(**dict.fromkeys(KEYS[:30], "lake"))
    sheet = written(decided)
    for key in KEYS[:12]:
        sheet = change(sheet, key, "parks")
    sheet.to_csv(tmp_path / "mine.csv", index=False)
    applied = apply_sheets(
        read_files([tmp_path / "mine.csv"]), VALUES,
        Vectors(KEYS, pd.DataFrame(index=KEYS).to_numpy(), {}),
        TAXONOMY, decided, table_of("cluster_edits", []), NO_HINTS, who="anna", when="2026-02-02",
        sure=True,
    )  # fmt: skip
    with pytest.raises(InvalidData, match=r"12 of 30 decisions in force.* is 20 %\).*--dry-run"):
        require_few_changes(applied.changes, decided, 0.2)
    require_few_changes(applied.changes, decided, 0.4)
    require_few_changes(applied.changes[:9], decided, 0.2)


def test_correcting_many_rows_is_no_sign_of_sorting(apply: Apply) -> None:
    decided = keep(**dict.fromkeys(KEYS[:20], "lake"))
    sheet = written(decided)
    for key in KEYS[:20]:
        sheet = change(sheet, key, "parks")
    assert len(apply(sheet, decided)) == 20


@pytest.mark.parametrize("without", [("kind",), ("note",), ("kind", "note")])
def test_columns_that_were_left_out_change_nothing(apply: Apply, without: tuple[str, ...]) -> None:
    decided = decisions(("Q1", "keep", "lake", "natural", "seen"), ("Q2", "drop", "", "", "so"))
    sheet = change(written(decided), "Q3", "parks")
    assert apply(sheet, decided, without=without) == [["Q3", "parks"]]


def test_the_base_reads_as_it_was_written_and_no_spreadsheet_changes_it(tmp_path: Path) -> None:
    artifact = ARTIFACTS["review"]
    assert isinstance(artifact, Table)
    artifact.write(written(keep(Q1="lake")), tmp_path / "review.csv")
    bases = artifact.read(tmp_path / "review.csv")["base"]
    assert bases.is_unique and bases.str.fullmatch(r"[a-p]{6}-[a-p]{6}-[a-p]+-[a-p]+").all()
    assert (bases.map(unguard) == bases).all()
