"""The made world's wiki, scraped by the real client and led through to its labels."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hgld.artifacts import Json, Vectors, declared_table, table_of
from hgld.config import (
    CleanOptions,
    ClusterOptions,
    LabelOptions,
    ReviewOptions,
    ScrapeOptions,
    SourceOptions,
    StageContext,
    ToyOptions,
)
from hgld.hierarchy.clean import clean_values, value_keys
from hgld.hierarchy.cluster import propose_clusters
from hgld.hierarchy.label import build_labels
from hgld.hierarchy.scrape.stand_in import stand_in
from hgld.hierarchy.scrape.wikimedia import scrape
from hgld.review.sheets import require_decisions, write_sheets
from hgld.sources.toy.wiki import describe_wiki
from hgld.sources.toy.world import World, imagine
from tests.hierarchy.test_review import NO_LABELS, NO_SUGGESTIONS

LABELS = Path(__file__).parents[2] / "labels" / "toy"
Tables = tuple[pd.DataFrame, pd.DataFrame]
REASONS = {
    "no page": "no_page",
    "no item": "no_item",
    "only category": "category_without_topic",
    "deprecated": "only_deprecated",
}


@pytest.fixture(scope="module")
def world() -> World:
    return imagine(ToyOptions(landmarks=48))


@pytest.fixture(scope="module")
def landmarks(world: World) -> pd.DataFrame:
    rows = [
        {"split": m.space, "landmark_id": m.landmark_id, "name": m.name, "commons_url": m.url}
        for m in world.landmarks
    ]
    return table_of("landmarks", rows)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> StageContext:
    folder = tmp_path_factory.mktemp("toy")
    return StageContext("2026-11-21", folder / "state", SourceOptions(), LABELS)


@pytest.fixture(scope="module")
def scraped(world: World, landmarks: pd.DataFrame, context: StageContext) -> Iterator[Tables]:
    folder = context.state.parent
    Json("wiki.json").write(describe_wiki(world), folder / "wiki.json")
    with stand_in(folder) as (commons, wikidata):
        options = ScrapeOptions(
            commons_api=commons, wikidata_api=wikidata, contact="someone@example.org"
        )
        yield scrape(landmarks, options=options, context=context)


def label_file(name: str) -> pd.DataFrame:
    artifact = declared_table(name)
    return artifact.read(LABELS / artifact.file)


def test_each_quirk_of_the_wiki_ends_with_its_reason(world: World, scraped: Tables) -> None:
    _, misses = scraped
    found = {(m.split, m.landmark_id): m.reason for m in misses.itertuples()}
    expected = {
        (m.space, m.landmark_id): REASONS[m.quirk] for m in world.landmarks if m.quirk in REASONS
    }
    assert found == expected
    assert len(expected) > 4


def test_every_other_landmark_has_its_class(world: World, scraped: Tables) -> None:
    instance_of, _ = scraped
    found = {(r.split, r.landmark_id, r.item_id, r.class_id, r.instance_of)
             for r in instance_of.itertuples()}  # fmt: skip
    classes = [m for m in world.landmarks if m.quirk not in (*REASONS, "only attraction")]
    assert len(classes) > 50
    assert found >= {
        (m.space, m.landmark_id, m.item_id, m.toy_class.class_id, m.toy_class.label)
        for m in classes
    }
    assert {row[4] for row in found if row[3] == "Q570116"} == {"tourist attraction"}


def test_the_shipped_decisions_lead_every_landmark_to_its_supercategory(
    world: World, landmarks: pd.DataFrame, scraped: Tables, context: StageContext
) -> None:
    instance_of, misses = scraped
    images = pd.DataFrame({"split": ["train"], "landmark_id": [0]})
    values, landmark_values, clean_dropped = clean_values(
        landmarks, images, instance_of, options=CleanOptions(), context=context
    )
    vectors = Vectors(value_keys(values).tolist(), np.eye(len(values)), {})
    edits, options = table_of("cluster_edits", []), ClusterOptions(clusters=6)
    clusters, summary = propose_clusters(values, vectors, edits, options=options, context=context)
    taxonomy, decisions, overrides = map(label_file, ("taxonomy", "decisions", "overrides"))
    hints = table_of("class_hints", [])
    review = (clusters, summary, landmark_values, landmarks, taxonomy, decisions, hints)
    require_decisions(*review, options=ReviewOptions(), context=context)
    more = NO_LABELS, *NO_SUGGESTIONS
    sheet, _, _ = write_sheets(*review, *more, options=ReviewOptions(), context=context)
    assert (sheet["decision"] != "").all()
    *_, lineage, dropped = build_labels(
        landmarks, instance_of, misses, landmark_values, clean_dropped, taxonomy, decisions,
        overrides, options=LabelOptions(), context=context,
    )  # fmt: skip
    lost = (*REASONS, "only attraction")
    expected = {
        (m.space, m.landmark_id): m.toy_class.supercategory
        for m in world.landmarks
        if m.quirk not in lost
    }
    two = {(m.space, m.landmark_id) for m in world.landmarks if m.quirk == "two values"}
    found = {(r.split, r.landmark_id): r.supercategory for r in lineage.itertuples()}
    assert two <= set(found)
    assert found == expected
    assert dropped["reason"].value_counts()["dropped_in_review"] == 1
