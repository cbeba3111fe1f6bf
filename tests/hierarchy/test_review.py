from typing import Any

import pandas as pd
import pytest

from hgld.artifacts import ARTIFACTS, Table
from hgld.config import ReviewOptions, StageContext
from hgld.errors import WaitingForReview
from hgld.hierarchy.columns import columns_of, records, table_of
from hgld.hierarchy.review import require_decisions, write_sheet

TAXONOMY = table_of(
    "taxonomy",
    [
        {"supercategory": name, "kind": kind, "definition": ""}
        for name, kind in (("church", "human-made"), ("lake", "natural"), ("parks", "natural"))
    ],
)
NAMES = ("key", "decision", "supercategory", "kind", "why")


def clusters(*rows: tuple[str, int, int]) -> pd.DataFrame:
    """Rows of (label, landmarks, cluster); the class id is Q + the row's number."""
    return table_of(
        "clusters",
        [
            {"class_id": f"Q{i}", "instance_of": label, "landmarks": count, "images": 2 * count,
             "cluster": cluster, "cluster_name": f"c{cluster}", "distance": 0.1, "margin": 0.2}
            for i, (label, count, cluster) in enumerate(rows, 1)
        ],
    )  # fmt: skip


def decisions(*rows: tuple[str, ...]) -> pd.DataFrame:
    """Rows of (key, decision, supercategory, kind, why)."""
    more = {"key_type": "qid", "who": "a", "when": "2026-01-01", "supersedes": ""}
    return table_of("decisions", [{**dict(zip(NAMES, row, strict=True)), **more} for row in rows])


def landmarks_of(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """As many landmarks of each value as its cluster row says, and their values."""
    places, values = [], []
    for row in records(table):
        for _ in range(row["landmarks"]):
            key = {"split": "train", "landmark_id": len(places)}
            name = f"{row['instance_of']} no. {len(places)}"
            places.append({**key, "name": name, "commons_url": ""})
            cells = {"order": 0, "class_id": row["class_id"], "instance_of": row["instance_of"]}
            values.append({**key, **cells})
    return table_of("landmark_values", values), table_of("landmarks", places)


def sheet_of(table: pd.DataFrame, decided: pd.DataFrame, context: StageContext) -> pd.DataFrame:
    values, places = landmarks_of(table)
    sheet = write_sheet(
        table, values, places, TAXONOMY, decided, options=ReviewOptions(), context=context
    )
    assert list(sheet.columns) == columns_of("review")
    return sheet.set_index("instance_of", drop=False)


def gate(table: pd.DataFrame, decided: pd.DataFrame, context: StageContext, **options: Any) -> None:
    values, places = landmarks_of(table)
    require_decisions(
        table, values, places, TAXONOMY, decided, options=ReviewOptions(**options), context=context
    )


VALUES = clusters(("chapel", 2, 0), ("basilica", 9, 0), ("lake", 4, 1), ("pond", 1, 2))


def test_open_values_come_first_and_those_of_most_landmarks_before_all(
    context: StageContext,
) -> None:
    decided = decisions(("Q2", "keep", "church", "human-made", ""), ("Q3", "unsure", "", "", ""))
    sheet = sheet_of(VALUES, decided, context)
    assert sheet["instance_of"].tolist() == ["lake", "chapel", "pond", "basilica"]


def test_the_decision_in_force_is_filled_in(context: StageContext) -> None:
    decided = decisions(
        ("Q1", "keep", "parks", "natural", "first"), ("Q1", "move", "church", "human-made", "then")
    )
    row = sheet_of(VALUES, decided, context).loc["chapel"]
    filled = (row["decision"], row["supercategory"], row["kind"], row["note"])
    assert filled == ("move", "church", "human-made", "then")
    assert (row["key"], row["key_type"], row["suggestion"]) == ("Q1", "qid", "")


def test_a_value_without_id_is_keyed_by_its_label(context: StageContext) -> None:
    row = sheet_of(VALUES.assign(class_id=""), decisions(), context).loc["pond"]
    assert (row["key"], row["key_type"], row["decision"]) == ("pond", "label", "")


def test_most_landmarks_of_the_cluster_suggest_a_supercategory(context: StageContext) -> None:
    table = clusters(("a", 3, 0), ("b", 3, 0), ("c", 5, 0), ("lake", 1, 0), ("church", 1, 1))
    decided = decisions(
        ("Q1", "keep", "church", "human-made", ""),
        ("Q2", "move", "church", "human-made", ""),
        ("Q3", "keep", "parks", "natural", ""),
    )
    suggested = sheet_of(table, decided, context)["suggestion"].to_dict()
    assert suggested == {"a": "", "b": "", "c": "", "lake": "church", "church": "church"}


def test_else_a_supercategory_of_that_very_name_is_suggested(context: StageContext) -> None:
    decided = decisions(("Q4", "drop", "", "", ""))
    suggested = sheet_of(VALUES, decided, context)["suggestion"].to_dict()
    assert suggested == {"chapel": "", "basilica": "", "lake": "lake", "pond": ""}


def test_three_landmarks_are_named_as_examples(context: StageContext) -> None:
    sheet = sheet_of(VALUES, decisions(), context)
    assert sheet.loc["basilica", "examples"] == "basilica no. 2; basilica no. 3; basilica no. 4"
    assert sheet.loc["pond", "examples"] == "pond no. 15"


def test_cells_that_look_like_formulas_are_guarded(context: StageContext) -> None:
    table = clusters(("=HYPERLINK(1)", 1, 0), ("@home", 1, 0)).assign(class_id="")
    sheet = sheet_of(table, decisions(), context)
    assert sorted(sheet["key"]) == ["'=HYPERLINK(1)", "'@home"]
    assert not sheet.map(lambda cell: str(cell)[:1] in "=+-@" and str(cell) != "").any(axis=None)


def test_the_sheet_is_an_artifact(context: StageContext, tmp_path: Any) -> None:
    sheet = sheet_of(VALUES, decisions(), context)
    artifact = ARTIFACTS["review"]
    assert isinstance(artifact, Table)
    artifact.write(sheet, tmp_path / "review.csv")
    assert len(artifact.read(tmp_path / "review.csv")) == 4


def test_all_decided_lets_the_run_pass(context: StageContext) -> None:
    decided = decisions(
        ("Q1", "keep", "church", "human-made", ""),
        ("Q2", "move", "church", "human-made", ""),
        ("Q3", "drop", "", "", ""),
        ("Q4", "keep", "lake", "natural", ""),
    )
    gate(VALUES, decided, context)


def test_open_values_stop_the_run_and_say_how_many(context: StageContext) -> None:
    decided = decisions(
        ("Q2", "keep", "church", "human-made", ""), ("Q3", "unsure", "lake", "", "")
    )
    with pytest.raises(WaitingForReview) as error:
        gate(VALUES, decided, context)
    assert "3 values of 7 landmarks are open (56.2% of 16 decided" in str(error.value)
    assert "in review.csv, then `hgld review PIPELINE --apply` with the" in str(error.value)
    assert str(error.value).endswith("same PIPELINE, --work and --set")
    assert "\n" not in str(error.value)


def test_coverage_counts_landmarks_not_values(context: StageContext) -> None:
    decided = decisions(("Q2", "keep", "church", "human-made", ""))  # 9 of 16 landmarks
    gate(VALUES, decided, context, min_coverage=9 / 16)
    with pytest.raises(WaitingForReview):
        gate(VALUES, decided, context, min_coverage=0.57)


def test_a_landmark_is_decided_when_all_its_values_are(context: StageContext) -> None:
    rows = [
        {"split": "train", "landmark_id": 1, "order": i, "class_id": q, "instance_of": q}
        for i, q in enumerate(("Q1", "Q2"))
    ]
    values = table_of("landmark_values", rows)
    decided = decisions(("Q1", "keep", "church", "human-made", ""))
    with pytest.raises(WaitingForReview, match="1 value of 1 landmark is open"):
        require_decisions(
            VALUES, values, pd.DataFrame(), TAXONOMY, decided,
            options=ReviewOptions(), context=context,
        )  # fmt: skip


def test_no_values_need_no_review(context: StageContext) -> None:
    gate(clusters(), decisions(), context)
    assert len(sheet_of(clusters(), decisions(), context)) == 0
