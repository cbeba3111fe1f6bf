import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hgld.artifacts import (
    ARTIFACTS,
    Table,
    Vectors,
    columns_of,
    declared_table,
    records,
    table_of,
)
from hgld.artifacts.cells import unguard
from hgld.config import ReviewOptions, StageContext
from hgld.errors import WaitingForReview
from hgld.review.sheets import (
    blind_sheet,
    in_review_order,
    list_values,
    require_decisions,
    write_sheets,
)
from hgld.review.taxonomy import NO_EDITS
from tests.hierarchy.test_decisions import in_a_row

TAXONOMY = table_of(
    "taxonomy",
    [
        {"supercategory": name, "kind": kind, "definition": ""}
        for name, kind in (("church", "human-made"), ("lake", "natural"), ("parks", "natural"))
    ],
)
NAMES = ("key", "decision", "supercategory", "kind", "why")
NO_HINTS, NO_LABELS = table_of("class_hints", []), table_of("class_labels", [])
NO_VECTORS = Vectors([], np.zeros((0, 1), np.float32), {})
NO_SUGGESTIONS = NO_VECTORS, NO_VECTORS, NO_EDITS


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
    more = {"key_type": "qid", "who": "a", "when": "2026-01-01"}
    return in_a_row([{**dict(zip(NAMES, row, strict=True)), **more} for row in rows])


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


def summary_of(table: pd.DataFrame) -> pd.DataFrame:
    """One row a cluster; the next one is the nearest."""
    rows = [
        {"cluster": i, "cluster_name": f"c{i}", "values": len(part), "nearest": str((i + 1) % 3),
         "landmarks": part["landmarks"].sum(), "images": part["images"].sum(), "change": "new",
         "related": ""}
        for i, part in table.groupby("cluster")
    ]  # fmt: skip
    return table_of("cluster_summary", rows)


def sheets_of(
    table: pd.DataFrame,
    decided: pd.DataFrame,
    context: StageContext,
    hints: pd.DataFrame = NO_HINTS,
    **options: Any,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    values, places = landmarks_of(table)
    sheet, clusters, _ = write_sheets(
        table, summary_of(table), values, places, TAXONOMY, decided, hints,
        NO_LABELS, *NO_SUGGESTIONS, options=ReviewOptions(**options), context=context,
    )  # fmt: skip
    assert list(sheet.columns) == columns_of("review")
    assert list(clusters.columns) == columns_of("review_clusters")
    return sheet.set_index("instance_of", drop=False), clusters


def sheet_of(
    table: pd.DataFrame,
    decided: pd.DataFrame,
    context: StageContext,
    hints: pd.DataFrame = NO_HINTS,
    **options: Any,
) -> pd.DataFrame:
    return sheets_of(table, decided, context, hints, **options)[0]


def hints_of(*rows: tuple[str, str, str]) -> pd.DataFrame:
    """Rows of (class_id, kind_hint, supercategory_hint)."""
    names = ("class_id", "kind_hint", "supercategory_hint")
    more = {"instance_of": "", "root": "", "hops": 0}
    return table_of("class_hints", [{**dict(zip(names, r, strict=True)), **more} for r in rows])


def gate(
    table: pd.DataFrame,
    decided: pd.DataFrame,
    context: StageContext,
    taxonomy: pd.DataFrame = TAXONOMY,
    **options: Any,
) -> None:
    values, places = landmarks_of(table)
    require_decisions(
        table, summary_of(table), values, places, taxonomy, decided, NO_HINTS,
        options=ReviewOptions(**options), context=context,
    )  # fmt: skip


VALUES = clusters(("chapel", 2, 0), ("basilica", 9, 0), ("lake", 4, 1), ("pond", 1, 2))


def test_open_and_unsure_values_come_first_by_images_and_by_doubt(context: StageContext) -> None:
    table = VALUES.assign(images=[100, 900, 110, 10], margin=[0.0, 0.0, 0.2, 0.9])
    decided = decisions(("Q2", "keep", "church", "human-made", ""), ("Q3", "unsure", "", "", ""))
    sheet = sheet_of(table, decided, context)  # 110 images x 0.8 come after 100 x 1
    assert sheet["instance_of"].tolist() == ["chapel", "lake", "pond", "basilica"]
    assert sheet["status"].tolist() == ["open", "unsure", "open", "decided"]


def test_the_order_of_gain_puts_images_first_whose_suggestion_is_likely_wrong(
    context: StageContext,
) -> None:
    table = VALUES.assign(images=[100, 90, 300, 10], margin=[0.0, 0.9, 0.0, 0.0])
    sheet = sheet_of(table, decisions(), context, order="gain")
    # lake has the name of a supercategory: 300 x 0.1 at most; the others have no suggestion
    assert sheet["instance_of"].tolist() == ["chapel", "basilica", "pond", "lake"]
    by_images = sheet_of(table, decisions(), context)
    assert by_images["instance_of"].tolist() == ["lake", "chapel", "pond", "basilica"]


def test_landmarks_count_where_no_images_are_at_hand(context: StageContext) -> None:
    sheet = sheet_of(VALUES.assign(images=0), decisions(), context)
    assert sheet["instance_of"].tolist() == ["basilica", "lake", "chapel", "pond"]


def test_labels_in_other_languages_stand_beside_the_english_ones(
    context: StageContext, tmp_path: Path
) -> None:
    names = ("class_id", "language", "label")
    rows = [("Q1", "de", "=Kapelle"), ("Q3", "de", "See"), ("Q3", "fr", "lac")]
    labels = table_of("class_labels", [dict(zip(names, row, strict=True)) for row in rows])
    values, places = landmarks_of(VALUES)
    sheet, _, _ = write_sheets(
        VALUES, summary_of(VALUES), values, places, TAXONOMY, decisions(), NO_HINTS, labels,
        *NO_SUGGESTIONS, options=ReviewOptions(), context=context,
    )  # fmt: skip
    declared_table("review").write(sheet, tmp_path / "review.csv")
    with (tmp_path / "review.csv").open(encoding="utf-8-sig", newline="") as file:
        read = list(csv.DictReader(file))
    place = list(read[0]).index("instance_of")
    assert list(read[0])[place : place + 3] == ["instance_of", "label_de", "label_fr"]
    assert {row["instance_of"]: (row["label_de"], row["label_fr"]) for row in read} == {
        "chapel": ("'=Kapelle", ""), "lake": ("See", "lac"), "basilica": ("", ""), "pond": ("", ""),
    }  # fmt: skip
    tables = (VALUES, values, places, TAXONOMY, decisions(), NO_HINTS, labels)
    blind = blind_sheet(*tables, seed=1, hints=False)
    assert dict(zip(blind["instance_of"], blind["label_fr"], strict=True))["lake"] == "lac"


def test_the_order_is_a_function_that_changes_no_row(context: StageContext) -> None:
    sheet = sheet_of(VALUES, decisions(), context).reset_index(drop=True)
    pd.testing.assert_frame_equal(in_review_order(sheet[::-1]), sheet)


def evidence_of(name: str, context: StageContext, hints: pd.DataFrame = NO_HINTS) -> str:
    return str(sheet_of(VALUES, decisions(), context, hints).loc[name, "evidence"])


def decided_on(evidence: str) -> pd.DataFrame:
    row = ("Q1", "keep", "church", "human-made", "")
    return decisions(row).assign(evidence=evidence)


def test_a_decision_on_a_class_that_has_another_label_now_is_stale(context: StageContext) -> None:
    then = decided_on(evidence_of("chapel", context))
    assert sheet_of(VALUES, then, context).loc["chapel", "status"] == "decided"
    renamed = VALUES.assign(instance_of=VALUES["instance_of"].replace("chapel", "prayer room"))
    row = sheet_of(renamed, then, context).loc["prayer room"]
    assert (row["status"], row["decision"], row["supercategory"]) == ("stale", "keep", "church")


def test_a_decision_is_stale_when_its_hint_changes_but_not_when_it_first_comes(
    context: StageContext,
) -> None:
    none = decided_on(evidence_of("chapel", context))
    house = hints_of(("Q1", "human-made", "church"))
    assert sheet_of(VALUES, none, context, house).loc["chapel", "status"] == "decided"
    then = decided_on(evidence_of("chapel", context, house))
    other = hints_of(("Q1", "human-made", "house"))
    assert sheet_of(VALUES, then, context, other).loc["chapel", "status"] == "stale"


@pytest.mark.parametrize(("name", "kind"), [("chruch", "human-made"), ("church", "natural")])
def test_a_decision_that_the_taxonomy_no_longer_knows_is_stale(
    name: str, kind: str, context: StageContext
) -> None:
    sheet = sheet_of(VALUES, decisions(("Q1", "keep", name, kind, "")), context)
    assert sheet.loc["chapel", "status"] == "stale"


def test_other_counts_examples_and_clusters_make_no_decision_stale(context: StageContext) -> None:
    then = decided_on(evidence_of("chapel", context))
    moved = VALUES.assign(landmarks=[7, 8, 9, 1], cluster=[2, 1, 0, 0], margin=0.5)
    assert sheet_of(moved, then, context).loc["chapel", "status"] == "decided"


def test_a_decision_whose_value_is_gone_stands_last_and_is_not_lost(context: StageContext) -> None:
    decided = decisions(("Q9", "keep", "lake", "natural", "deep"), ("Q1", "drop", "", "", ""))
    sheet = sheet_of(VALUES, decided, context)
    last = sheet.iloc[-1]
    assert last[["key", "status", "cluster", "note"]].tolist() == ["Q9", "stale", -1, "deep"]
    assert (last["decision"], last["supercategory"], last["landmarks"]) == ("keep", "lake", 0)
    assert len(sheet) == 5


def test_a_decision_on_the_label_of_a_value_with_an_id_is_not_gone(context: StageContext) -> None:
    by_label = decisions(("pond", "keep", "lake", "natural", "")).assign(key_type="label")
    sheet = sheet_of(VALUES, by_label, context)
    assert len(sheet) == 4 and sheet.loc["pond", "status"] == "decided"


def test_the_hint_is_shown_and_suggests_where_nothing_else_does(context: StageContext) -> None:
    hints = hints_of(("Q4", "natural", "lake"), ("Q1", "natural", ""), ("Q2", "", "not in it"))
    sheet = sheet_of(VALUES, decisions(), context, hints)
    assert sheet["hint"].to_dict() == {
        "pond": "natural: lake", "chapel": "natural", "basilica": "not in it", "lake": "",
    }  # fmt: skip
    assert sheet.loc["pond", "suggestion"] == "lake"
    assert sheet.loc["basilica", "suggestion"] == ""


def test_clusters_are_listed_with_what_is_open_decided_and_near(context: StageContext) -> None:
    decided = decisions(("Q2", "keep", "church", "human-made", ""))
    _, clusters = sheets_of(VALUES, decided, context)
    rows = records(clusters.drop(columns=["action", "into", "supercategory", "note", "evidence"]))
    assert rows[1] == {
        "cluster": 0, "cluster_name": "c0", "values": 2, "open": 1, "landmarks": 11, "images": 22,
        "decided_as": "church 1", "largest": "basilica (9); chapel (2)", "nearest": "1 c1",
        "suggestion": "",
    }  # fmt: skip
    assert clusters["cluster"].tolist() == [1, 0, 2]  # 8, 4 and 2 images are open


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
    table = clusters(("a", 3, 0), ("b", 3, 0), ("c", 5, 0), ("mere", 1, 0), ("church", 1, 1))
    decided = decisions(
        ("Q1", "keep", "church", "human-made", ""),
        ("Q2", "move", "church", "human-made", ""),
        ("Q3", "keep", "parks", "natural", ""),
    )
    suggested = sheet_of(table, decided, context)["suggestion"].to_dict()
    assert suggested == {"a": "", "b": "", "c": "", "mere": "church", "church": "church"}


def test_a_single_decided_value_suggests_nothing_to_its_cluster(context: StageContext) -> None:
    decided = decisions(("Q2", "keep", "church", "human-made", ""))
    assert sheet_of(VALUES, decided, context).loc["chapel", "suggestion"] == ""


def test_the_own_name_goes_before_the_hint_and_the_hint_before_the_cluster(
    context: StageContext,
) -> None:
    table = clusters(("a", 3, 0), ("b", 3, 0), ("lake", 1, 0), ("tarn", 1, 0), ("inn", 1, 0))
    decided = decisions(
        ("Q1", "keep", "church", "human-made", ""), ("Q2", "keep", "church", "human-made", "")
    )
    hints = hints_of(("Q3", "natural", "parks"), ("Q4", "natural", "lake"))
    suggested = sheet_of(table, decided, context, hints)["suggestion"]
    assert suggested[["lake", "tarn", "inn"]].tolist() == ["lake", "lake", "church"]


def test_a_supercategory_of_that_very_name_is_suggested(context: StageContext) -> None:
    decided = decisions(("Q4", "drop", "", "", ""))
    suggested = sheet_of(VALUES, decided, context)["suggestion"].to_dict()
    assert suggested == {"chapel": "", "basilica": "", "lake": "lake", "pond": ""}


def test_a_row_without_a_suggestion_has_no_probability(
    context: StageContext, tmp_path: Any
) -> None:
    decided = decisions(("Q4", "drop", "", "", ""), ("Q9", "drop", "", "", ""))  # Q9 is gone
    sheet, path = sheet_of(VALUES, decided, context), tmp_path / "review.csv"
    declared_table("review").write(sheet, path)
    with path.open(encoding="utf-8-sig", newline="") as file:
        found = {row["key"]: row["probability"] for row in csv.DictReader(file)}
    assert found == {"Q1": "", "Q2": "", "Q3": "0.98", "Q4": "", "Q9": ""}
    assert declared_table("review").read(path)["probability"].count() == 1


def test_three_landmarks_are_named_as_examples(context: StageContext) -> None:
    sheet = sheet_of(VALUES, decisions(), context)
    assert sheet.loc["basilica", "examples"] == "basilica no. 2; basilica no. 3; basilica no. 4"
    assert sheet.loc["pond", "examples"] == "pond no. 15"


def test_examples_of_one_name_are_named_once() -> None:
    values, places = landmarks_of(clusters(("lake", 4, 0)))
    places = places.assign(name=["Loch  A", "Loch A", "Loch B", "Loch C"])
    sheet = list_values(clusters(("lake", 4, 0)), values, places, TAXONOMY, decisions(), NO_HINTS)
    assert sheet["examples"].tolist() == ["Loch A; Loch B; Loch C"]


def test_cells_that_look_like_formulas_are_guarded(context: StageContext) -> None:
    table = clusters(("=HYPERLINK(1)", 1, 0), ("@home", 1, 0)).assign(class_id="")
    sheet = sheet_of(table, decisions(), context)
    assert sorted(sheet["key"]) == ["'=HYPERLINK(1)", "'@home"]
    texts = sheet.select_dtypes("str")
    assert not texts.map(lambda cell: cell[:1] in tuple("=+-@")).any(axis=None)
    assert sorted(map(unguard, sheet["key"])) == ["=HYPERLINK(1)", "@home"]


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
    assert "3 values of 7 landmarks are open (56.2 % of 16 decided" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_run_that_waits_never_says_that_all_is_decided(context: StageContext) -> None:
    table = clusters(("chapel", 3000, 0), ("pond", 1, 1))
    decided = decisions(("Q1", "keep", "church", "human-made", ""))
    with pytest.raises(WaitingForReview, match=r"99\.9 % of 3,001 decided, with 99\.9 % of 6,002"):
        gate(table, decided, context)


def test_a_run_that_waits_without_a_taxonomy_names_the_command_that_makes_one(
    context: StageContext,
) -> None:
    context = replace(context, words="my.toml --work w")
    says = "`hgld taxonomy propose my.toml --work w` makes each"
    with pytest.raises(WaitingForReview, match=says):
        gate(VALUES, decisions(), context, TAXONOMY[:0])


def test_coverage_counts_landmarks_not_values(context: StageContext) -> None:
    decided = decisions(("Q2", "keep", "church", "human-made", ""))  # 9 of 16 landmarks
    gate(VALUES, decided, context, min_coverage=9 / 16)
    with pytest.raises(WaitingForReview):
        gate(VALUES, decided, context, min_coverage=0.57)
    gate(clusters(("church", 45, 9), ("pub", 55, 9)), decided, context, min_coverage=0.55)


def test_a_landmark_is_decided_when_all_its_values_are(context: StageContext) -> None:
    rows = [
        {"split": "train", "landmark_id": 1, "order": i, "class_id": q, "instance_of": q}
        for i, q in enumerate(("Q1", "Q2"))
    ]
    values = table_of("landmark_values", rows)
    decided = decisions(("Q1", "keep", "church", "human-made", ""))
    with pytest.raises(WaitingForReview, match="1 value of 1 landmark is open"):
        require_decisions(
            VALUES, summary_of(VALUES), values, pd.DataFrame(), TAXONOMY, decided, NO_HINTS,
            options=ReviewOptions(), context=context,
        )  # fmt: skip


def test_no_values_need_no_review(context: StageContext) -> None:
    gate(clusters(), decisions(), context)
    assert len(sheet_of(clusters(), decisions(), context)) == 0
