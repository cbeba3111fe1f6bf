"""Dumps of the wiki that the API road is tested on: the same rows, but for what no dump holds."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hgld.artifacts import records, table_of
from hgld.config import ScrapeOptions, StageContext
from hgld.hierarchy.scrape.dump import read_dump
from tests.hierarchy.made_dump import Document, write_dumps
from tests.listening import heard
from tests.mediawiki.cases import Cases, all_cases
from tests.mediawiki.fill import revision_of

SOFT = {"Soft_one", "Soft_two", "Soft_three", "Soft_to_moved", "Soft_to_nothing"}
SOFT |= {"Soft_ring_one", "Soft_self"}
MERGED = {"Merged_item", "Merged_topic"}
MERGED_CLASS = "Labelled_1204"
Rows = set[tuple[Any, ...]]


@pytest.fixture(scope="module")
def cases() -> Cases:
    return all_cases()


@pytest.fixture(params=["page_props", "sitelinks"])
def brought(
    request: pytest.FixtureRequest, cases: Cases, tmp_path: Path, context: StageContext
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Both tables, and what was said."""
    files = write_dumps(document_of(cases), tmp_path / "dumps")
    options = ScrapeOptions(
        source="dump",
        dump_items=files[request.param],
        dump_pages=files["page"],
        dump_redirects=files["redirect"],
        dump_entities=files["entities"],
    )
    with heard() as said:
        landmarks = table_of("landmarks", cases.landmarks)
        return *read_dump(landmarks, options=options, context=context), said


def document_of(cases: Cases) -> Document:
    pages = {
        page.title: {"item": page.item} if page.item else {}
        for page in cases.world.all_pages()
        if not page.redirect
    }
    redirects = {page.title: page.redirect for page in cases.world.pages if page.redirect}
    entities = {
        item_id: {**entity, "lastrevid": revision_of(item_id)}
        for item_id, entity in cases.world.entities.items()
    }
    return {"pages": pages, "redirects": redirects, "entities": entities}


def by_name(cases: Cases, rows: list[dict[str, Any]]) -> dict[str, Rows]:
    """The rows by the end of their landmark's URL, without their details."""
    end = {
        (one["split"], one["landmark_id"]): one["commons_url"].rpartition(":")[2]
        for one in cases.landmarks
    }
    found: dict[str, Rows] = {}
    for row in rows:
        cells = {name: cell for name, cell in row.items() if name != "detail"}
        name = end[row["split"], row["landmark_id"]]
        found.setdefault(name, set()).add(tuple(sorted(cells.items())))
    return found


def test_every_spelling_and_every_reason_is_as_the_api_has_it(
    brought: tuple[pd.DataFrame, pd.DataFrame, list[str]], cases: Cases
) -> None:
    values, misses, _ = brought
    found = by_name(cases, [*records(values), *records(misses)])
    wanted = by_name(cases, [*cases.statements, *cases.misses])
    differ = {name for name in found | wanted if found.get(name) != wanted.get(name)}
    assert differ == SOFT | MERGED | {MERGED_CLASS}
    assert len(found) > 50


def test_what_no_dump_holds_ends_as_no_item_and_that_is_said(
    brought: tuple[pd.DataFrame, pd.DataFrame, list[str]], cases: Cases
) -> None:
    values, misses, said = brought
    reasons = by_name(cases, records(misses))
    untold = [dict(row)["reason"] for name in SOFT | MERGED for row in reasons[name]]
    assert untold == ["no_item"] * len(SOFT | MERGED)
    ((merged,),) = [by_name(cases, records(values))[MERGED_CLASS]]
    assert dict(merged)["instance_of"] == "Q2090"
    assert said[-1].endswith(
        "soft redirects and merged items are among no_item, as\ndumps do not say where they lead"
    )
