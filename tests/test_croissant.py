"""The Croissant document is what MLCommons' own reader takes it to be."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hgld.artifacts import hash_file
from tests.made_run import MadeRun, make_run
from tests.test_publish import card, release

name = "mlcroissant"
mlcroissant = pytest.importorskip(name) if not os.environ.get("CI") else __import__(name)
pytestmark = pytest.mark.filterwarnings("ignore")  # mlcroissant's own

AGREEMENT = {
    "annotators": ["ann", "bob"],
    "values": 1003,
    "measures": [
        {
            "of": "supercategory",
            "by": "values",
            "agreement": 0.75,
            "kappa": 0.5,
            "low": 0.4,
            "high": 0.6,
            "note": "",
        }
    ],
}


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """mlcroissant knows an unpacked tar by its name, also if it is of another release."""
    from etils import epath  # of mlcroissant

    folder = epath.Path(tmp_path_factory.mktemp("unpacked"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{name}._src.operation_graph.operations.extract.EXTRACT_PATH", folder)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> MadeRun:
    return make_run(tmp_path_factory.mktemp("croissant") / "work")


@pytest.fixture(scope="module")
def folder(run: MadeRun) -> Path:
    return release(run, agreement=AGREEMENT)


@pytest.fixture(scope="module")
def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "croissant.json").read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def dataset(folder: Path) -> Any:
    return mlcroissant.Dataset(jsonld=str(folder / "croissant.json"))


def records(dataset: Any, name: str) -> list[dict[str, Any]]:
    def plain(value: Any) -> Any:
        return value.decode() if isinstance(value, bytes) else value

    return [{k: plain(v) for k, v in row.items()} for row in dataset.records(name)]


def test_it_is_valid_and_of_version_1_1(dataset: Any) -> None:
    issues = dataset.metadata.ctx.issues
    assert not issues.errors and not issues.warnings, issues.report()
    assert dataset.metadata.ctx.conforms_to.value.endswith("/1.1")


def test_its_labels_are_read_as_rows(dataset: Any) -> None:
    rows = records(dataset, "train_labels")
    assert len(rows) == 5
    assert rows[0] == {
        "train_labels/landmark_id": 1,
        "train_labels/category": "http://commons.wikimedia.org/wiki/Category:A,_1",
        "train_labels/supercategory": "old church",
        "train_labels/hierarchical_label": "church",
        "train_labels/natural_or_human_made": "human-made",
    }


def test_its_images_are_read_from_the_tars(dataset: Any, folder: Path) -> None:
    rows = list(dataset.records("images"))
    assert len(rows) == 10
    first = min(rows, key=lambda row: row["images/key"])
    assert first["images/content"].size == (48, 32)
    assert "set `CROISSANT_CACHE` to a new folder" in card(folder)[1]


def test_its_samples_name_author_and_licence(dataset: Any) -> None:
    rows = {row["samples/key"]: row for row in records(dataset, "samples")}
    row = rows[f"evaluation-{3:016x}"]
    assert row["samples/author"] == "Author 3" and row["samples/split"] == "evaluation"
    assert row["samples/license"].startswith("https://creativecommons.org/licenses/by-sa/")


def test_every_file_has_its_hash_and_size(document: dict[str, Any], folder: Path) -> None:
    files = [f for f in document["distribution"] if f["@type"] == "cr:FileObject"]
    assert {f["@id"] for f in files} >= {"lineage.csv", "shards/evaluation-000000.tar"}
    for file in files:
        path = folder / file["contentUrl"]
        assert file["sha256"] == hash_file(path)
        assert file["contentSize"] == f"{path.stat().st_size} B"


def test_it_says_what_the_labels_were_made_from_and_by_whom(document: dict[str, Any]) -> None:
    sources = [source["@id"] for source in document["prov:wasDerivedFrom"]]
    assert sources == [
        "https://github.com/cvdfoundation/google-landmark",
        "https://www.wikidata.org/",
    ]
    agents = [agent["prov:label"] for agent in document["prov:wasAttributedTo"]]
    assert agents == ["ann", "bob | co"]
    assert document["prov:wasGeneratedBy"]["prov:endedAtTime"] == "2026-01-01"


def test_each_label_has_its_own_provenance(document: dict[str, Any]) -> None:
    lineage = next(s for s in document["recordSet"] if s["@id"] == "lineage")
    fields = {field["name"]: field for field in lineage["field"]}
    assert fields["class_id"]["equivalentProperty"] == "wdt:P31"
    says = {a["name"]: a["equivalentProperty"] for a in fields["supercategory"]["annotation"]}
    assert says["who"] == "prov:wasAttributedTo" and says["item_id"] == "prov:wasDerivedFrom"
    assert "equivalentProperty" not in fields["supercategory"]


def test_its_prefixes_are_the_vocabularies_own(document: dict[str, Any]) -> None:
    context = document["@context"]
    assert context["wdt"] == "http://www.wikidata.org/prop/direct/"
    assert context["prov"] == "http://www.w3.org/ns/prov#"
    assert context["rai"] == "http://mlcommons.org/croissant/RAI/"


def test_it_says_how_far_annotators_agree(dataset: Any) -> None:
    assert dataset.metadata.annotations_per_item == "2"
    assert dataset.metadata.data_annotation_analysis == [
        "supercategory, by values, 1,003 values: agreement 0.7500, Cohen's kappa 0.5000 "
        "(95 % interval 0.4000 to 0.6000)"
    ]


def test_without_a_measured_agreement_it_claims_none(tmp_path: Path) -> None:
    out = release(make_run(tmp_path / "work"), photos=False)
    text = (out / "croissant.json").read_text("utf-8")
    assert "kappa" not in text and "annotationsPerItem" not in text


def test_labels_alone_and_a_made_world_are_valid_too(tmp_path: Path) -> None:
    out = release(make_run(tmp_path / "work"), kind="toy", photos=False)
    dataset = mlcroissant.Dataset(jsonld=str(out / "croissant.json"))
    assert not dataset.metadata.ctx.issues.warnings
    names = [record_set.id for record_set in dataset.metadata.record_sets]
    assert "images" not in names and "supercategories" in names
    assert "Google" not in (out / "croissant.json").read_text("utf-8")


def test_card_and_document_tell_the_same(document: dict[str, Any], folder: Path) -> None:
    header, _ = card(folder)
    assert document["name"] == header["pretty_name"] and document["version"] == "2.1.0"
    assert document["license"] == "https://creativecommons.org/licenses/by/4.0/"
