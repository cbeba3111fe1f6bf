import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hgld.artifacts import columns_of, csv_files, declared_table, records, table_of
from hgld.config import LabelOptions, SourceOptions, StageContext
from hgld.errors import InvalidData
from hgld.hierarchy.label import build_labels
from tests.listening import heard

URL = "http://commons.wikimedia.org/wiki/Category:"


@dataclass(frozen=True)
class World:
    """What goes into build_labels; values are (split, landmark_id, order, class_id, label)."""

    landmarks: tuple[tuple[str, int], ...] = (("train", 1),)
    values: tuple[tuple[str, int, int, str, str], ...] = ()
    decisions: tuple[tuple[str, str, str, str], ...] = ()  # a key that is no id is a label
    overrides: tuple[tuple[str, int, str, str], ...] = ()
    names: tuple[str, ...] = ()  # of the landmarks
    override_names: tuple[str, ...] = ()
    misses: tuple[tuple[str, int, str], ...] = ()
    clean_dropped: tuple[tuple[str, int, str], ...] = ()
    added: tuple[tuple[str, int, int, str, str], ...] = ()  # by a person, to landmark_values.csv


def table(
    artifact: str, rows: tuple[tuple[Any, ...], ...], names: str, **more: Any
) -> pd.DataFrame:
    cells = [{**dict(zip(names.split(), row, strict=True)), **more} for row in rows]
    return table_of(artifact, cells)


TAXONOMY = table(
    "taxonomy",
    (("church", "human-made"), ("lake", "natural"), ("museum", "human-made")),
    "supercategory kind",
    definition="",
)
DROPPED = "split landmark_id reason"


def label(
    world: World, context: StageContext, agreement: dict[str, Any] | None = None
) -> dict[str, pd.DataFrame]:
    places = table("landmarks", world.landmarks, "split landmark_id", name="")
    places = places.assign(commons_url=[f"{URL}{s}_{i}" for s, i in world.landmarks])
    places = places.assign(name=list(world.names) or "")
    scraped, added = (
        table("landmark_values", rows, "split landmark_id order class_id instance_of")
        for rows in (world.values, world.added)
    )
    values = pd.concat([scraped, added]) if world.added else scraped
    origin = scraped.assign(item_id="Q1", revision=7, rank="normal", qualifiers="{}")
    names = ("train_labels", "index_labels", "hierarchy", "lineage", "label_dropped")
    outputs = build_labels(
        places,
        origin,
        table("misses", world.misses, DROPPED, detail="because"),
        values,
        table("clean_dropped", world.clean_dropped, DROPPED, detail="because"),
        TAXONOMY,
        table("decisions", world.decisions, "key decision supercategory kind",
              who="a", when="2026-01-02", why="", supersedes="2026-01-02").assign(
              key_type=["qid" if key[0] == "Q" else "label" for key, *_ in world.decisions]),
        table("overrides", world.overrides, "split landmark_id supercategory kind",
              who="b", when="2026-03-04", why="").assign(name=list(world.override_names) or ""),
        agreement,
        options=LabelOptions(),
        context=context,
    )  # fmt: skip
    found = dict(zip(names, outputs, strict=True))
    assert all(list(frame.columns) == columns_of(name) for name, frame in found.items())
    together = pd.concat([found["hierarchy"], found["label_dropped"]])
    assert sorted(zip(together["split"], together["landmark_id"], strict=True)) == sorted(
        world.landmarks
    )
    return found


def reasons(world: World, context: StageContext) -> list[list[Any]]:
    found = label(world, context)["label_dropped"]
    return found[["landmark_id", "reason", "detail"]].to_numpy().tolist()


CHURCH = ("Q5", "keep", "church", "human-made")
SIMPLE = World(values=(("train", 1, 0, "Q5", "chapel"),), decisions=(CHURCH,))
TWO = World(values=(("train", 1, 0, "Q5", "chapel"), ("train", 1, 3, "Q6", "gallery")))


def test_the_published_columns_hold_page_value_and_reviewed_label(context: StageContext) -> None:
    found = label(SIMPLE, context)
    assert found["train_labels"].to_numpy().tolist() == [
        [1, f"{URL}train_1", "chapel", "church", "human-made"]
    ]
    assert len(found["index_labels"]) == 0


def test_train_and_index_are_told_apart_by_their_split(context: StageContext) -> None:
    values = (*SIMPLE.values, ("index", 1, 0, "Q7", "pond"))
    world = World((("train", 1), ("index", 1)), values, (CHURCH, ("Q7", "move", "lake", "")))
    found = label(world, context)
    assert found["train_labels"]["hierarchical_label"].tolist() == ["church"]
    assert found["index_labels"]["hierarchical_label"].tolist() == ["lake"]
    assert found["index_labels"]["natural_or_human_made"].tolist() == ["natural"]


def test_the_path_goes_from_coarse_to_fine(context: StageContext) -> None:
    path = json.loads(label(SIMPLE, context)["hierarchy"]["path"].iloc[0])
    assert list(path.items()) == [
        ("kind", "human-made"), ("supercategory", "church"), ("landmark", "train:1"),
    ]  # fmt: skip


def test_the_lineage_tells_where_a_label_comes_from(context: StageContext) -> None:
    assert records(label(SIMPLE, context)["lineage"]) == [
        {
            "split": "train", "landmark_id": 1, "commons_url": f"{URL}train_1", "item_id": "Q1",
            "revision": 7, "class_id": "Q5", "instance_of": "chapel", "decided_by": "decision",
            "who": "a", "when": "2026-01-02", "supercategory": "church", "kind": "human-made",
            "agreement": "",
        }
    ]  # fmt: skip


def test_the_lineage_tells_how_far_two_annotators_agree_on_a_decided_label(
    context: StageContext,
) -> None:
    agreement = {"supercategories": [{"supercategory": "church", "share": 2 / 3}]}
    overridden = {**vars(SIMPLE), "landmarks": (("train", 1), ("train", 2))}
    world = World(**{**overridden, "overrides": (("train", 2, "church", "human-made"),)})
    found = label(world, context, agreement)["lineage"]
    assert found["agreement"].tolist() == ["0.667", ""]


def test_a_landmark_keeps_the_reason_of_the_stage_that_lost_it(context: StageContext) -> None:
    world = World(
        (("train", 1), ("train", 2)),
        misses=(("train", 2, "no_page"),),
        clean_dropped=(("train", 1, "only_irrelevant"),),
    )
    assert reasons(world, context) == [[1, "only_irrelevant", "because"], [2, "no_page", "because"]]


@pytest.mark.parametrize(
    ("decisions", "reason", "detail"),
    [
        ((), "undecided", "chapel"),
        ((("Q5", "unsure", "church", ""),), "undecided", "chapel"),
        ((("Q5", "drop", "", ""),), "dropped_in_review", "chapel"),
        ((CHURCH, ("Q5", "drop", "", "")), "dropped_in_review", "chapel"),
    ],
)
def test_a_value_that_leads_nowhere_drops_its_landmark(
    decisions: Any, reason: str, detail: str, context: StageContext
) -> None:
    assert reasons(replace(SIMPLE, decisions=decisions), context) == [[1, reason, detail]]


def test_values_that_lead_to_different_supercategories_are_a_conflict(
    context: StageContext,
) -> None:
    world = replace(TWO, decisions=(CHURCH, ("Q6", "keep", "museum", "human-made")))
    assert reasons(world, context) == [[1, "conflicting_values", "chapel: church; gallery: museum"]]


@pytest.mark.parametrize(
    ("of_the_second", "values"), [(("drop", "", ""), "chapel"), (("keep", "church", ""), "chapel")]
)
def test_values_that_lead_to_one_supercategory_are_none(
    of_the_second: tuple[str, str, str], values: str, context: StageContext
) -> None:
    found = label(replace(TWO, decisions=(CHURCH, ("Q6", *of_the_second))), context)
    row = found["train_labels"].iloc[0]
    assert (row["supercategory"], row["hierarchical_label"]) == (values, "church")


def test_a_first_value_that_was_dropped_leaves_the_next_to_speak(context: StageContext) -> None:
    world = replace(TWO, decisions=(("Q5", "drop", "", ""), ("Q6", "keep", "museum", "")))
    assert label(world, context)["train_labels"]["supercategory"].tolist() == ["gallery"]


def test_a_landmark_with_one_open_value_is_undecided(context: StageContext) -> None:
    assert reasons(replace(TWO, decisions=(CHURCH,)), context) == [[1, "undecided", "gallery"]]


def test_an_override_wins_over_decisions(context: StageContext) -> None:
    found = label(replace(SIMPLE, overrides=(("train", 1, "museum", "human-made"),)), context)
    row = found["lineage"].iloc[0]
    assert (row["supercategory"], row["decided_by"], row["who"]) == ("museum", "override", "b")
    assert (row["item_id"], row["instance_of"], row["when"]) == ("Q1", "chapel", "2026-03-04")


def test_an_override_brings_back_a_landmark_that_was_lost(context: StageContext) -> None:
    world = World(misses=(("train", 1, "no_page"),), overrides=(("train", 1, "lake", "natural"),))
    found = label(world, context)
    row = found["train_labels"].iloc[0]
    assert (row["supercategory"], row["hierarchical_label"]) == ("", "lake")
    assert found["lineage"]["revision"].tolist() == [0]


def test_an_override_of_a_landmark_elsewhere_changes_nothing_and_is_reported(
    context: StageContext,
) -> None:
    world = replace(SIMPLE, overrides=(("index", 1, "lake", "natural"),))
    with heard() as said:
        assert label(world, context)["lineage"]["decided_by"].tolist() == ["decision"]
    assert said == ["overrides.csv: 1 of 1 override is of no landmark here, first index:1"]


def test_a_value_that_a_person_added_has_no_item(context: StageContext) -> None:
    decisions = (CHURCH, ("chapel", "keep", "church", ""))
    world = replace(SIMPLE, landmarks=(("train", 1), ("train", 2)), decisions=decisions)
    found = label(replace(world, added=(("train", 2, 5, "", "chapel"),)), context)
    lineage = declared_table("lineage").check(found["lineage"], Path("lineage.csv"))
    assert lineage[["landmark_id", "item_id", "revision"]].to_numpy().tolist() == [
        [1, "Q1", 7],
        [2, "", 0],
    ]


def test_decisions_that_do_not_fit_the_taxonomy_are_told_with_file_and_row(
    context: StageContext,
) -> None:
    decisions = (
        ("Q9", "keep", "chruch", "human-made"),
        CHURCH,
        ("Q8", "move", "lake", "human-made"),
        ("Q7", "keep", "pizzeria", ""),
    )
    with pytest.raises(InvalidData) as error:
        label(replace(SIMPLE, decisions=decisions), context)
    assert str(error.value).splitlines() == [
        f"{context.labels / 'decisions.csv'} row 2: supercategory 'chruch' is not in taxonomy.csv"
        "; did you mean 'church'?",
        "  row 4: kind of 'lake' is 'human-made'; expected 'natural', as in taxonomy.csv; confirm "
        "it in review.csv: write decided over its status, and apply",
        "  row 5: supercategory 'pizzeria' is not in taxonomy.csv; decide 'Q7' again in "
        "review.csv, or add the supercategory",
    ]


def test_a_blank_line_counts_in_the_row_of_a_decision(context: StageContext) -> None:
    context.labels.mkdir(parents=True, exist_ok=True)
    file = context.labels / "decisions.csv"
    file.write_text("key,key_type\n\nQ1,qid\n\nQ9,qid\n")
    decisions = (CHURCH, ("Q9", "keep", "chruch", "human-made"))
    with pytest.raises(InvalidData, match=r"decisions\.csv row 5: supercategory 'chruch'"):
        label(replace(SIMPLE, decisions=decisions), context)


def test_history_may_name_supercategories_that_are_gone(context: StageContext) -> None:
    decisions = (("Q5", "keep", "chapels", "human-made"), CHURCH)
    assert len(label(replace(SIMPLE, decisions=decisions), context)["hierarchy"]) == 1


def test_a_decision_on_a_label_is_history_where_the_values_go_by_their_ids(
    context: StageContext,
) -> None:
    world = replace(SIMPLE, decisions=(("chapel", "keep", "chapels", "human-made"), CHURCH))
    assert len(label(world, context)["hierarchy"]) == 1
    with pytest.raises(InvalidData, match=r"decisions\.csv row 2: supercategory 'chapels'"):
        label(replace(world, decisions=world.decisions[:1]), context)


def test_the_file_is_read_once_for_the_rows_of_all_faults(
    context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = tuple(("train", number, "pub", "human-made") for number in range(1, 9))
    read, rows_of = list[Path](), csv_files._rows_as_text
    monkeypatch.setattr(csv_files, "_rows_as_text", lambda path: read.append(path) or rows_of(path))
    context.labels.mkdir(parents=True, exist_ok=True)
    (context.labels / "overrides.csv").write_text("split\n" + "train\n\n" * 8)
    with pytest.raises(InvalidData) as raised:
        label(replace(SIMPLE, overrides=faulty), context)
    assert re.findall(r"row (\d+):", str(raised.value)) == [str(n) for n in range(2, 18, 2)]
    assert read == [context.labels / "overrides.csv"]


def test_overrides_that_do_not_fit_the_taxonomy_are_told(context: StageContext) -> None:
    world = replace(SIMPLE, overrides=(("train", 1, "pub", "human-made"),))
    with pytest.raises(InvalidData, match=r"overrides\.csv row 2: supercategory 'pub' is not in"):
        label(world, context)


def classes(context: StageContext) -> StageContext:
    return replace(context, source=SourceOptions(kind="folder"))


@pytest.mark.parametrize(
    ("number", "name", "says"),
    [
        (0, "teal", "train 0 is 'mallard', but its name is 'teal', which is now landmark_id 1"),
        (9, "teal", "train 9 is no class, but its name is 'teal', which is now landmark_id 1"),
        (0, "lynx", "train 0 is 'mallard', but its name is 'lynx', which is now no class; remove"),
        (0, "", "the column name is empty or missing; write the name of the class (train 0 is 'm"),
    ],
)
def test_an_override_of_a_class_of_another_name_is_refused(
    number: int, name: str, says: str, context: StageContext
) -> None:
    override = ("train", number, "lake", "natural")
    birds = (("train", 0), ("train", 1))
    world = World(birds, overrides=(override,), names=("mallard", "teal"), override_names=(name,))
    with pytest.raises(InvalidData, match=re.escape(f"overrides.csv row 2: {says}")):
        label(world, classes(context))


def test_an_override_is_of_the_class_of_its_number_and_name(context: StageContext) -> None:
    overrides = (("train", 0, "lake", "natural"), ("train", 8, "lake", "natural"))
    world = World((("train", 0),), overrides=overrides, names=("mallard",))
    found = label(replace(world, override_names=("mallard", "lynx")), classes(context))
    assert found["lineage"]["landmark_id"].tolist() == [0]


def test_nothing_in_is_nothing_out(context: StageContext) -> None:
    assert all(len(frame) == 0 for frame in label(World(landmarks=()), context).values())


def test_labels_are_spelled_with_single_blanks(context: StageContext, tmp_path: Path) -> None:
    decisions = (("Q5", "keep", "church\u00a0", "human-made"),)
    found = label(replace(SIMPLE, decisions=decisions), context)
    assert found["lineage"]["supercategory"].tolist() == ["church"]
