"""What is committed in labels/gldv2 is complete, consistent, and measured as it says."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from hgld.artifacts import declared_table, hash_file, read_csv
from hgld.hierarchy.decisions import Decided, kinds_of
from hgld.review.agreement import measure_agreement
from hgld.review.annotations import read_annotations
from hgld.words import single_blanks

pytestmark = pytest.mark.real
LABELS = Path("labels/gldv2")
ANNOTATIONS = LABELS / "annotations"
NAMES = ("annotator-A", "annotator-B")
COLUMNS = dict.fromkeys(("decision", "supercategory", "kind", "note", "instance_of"), "text")


def read(name: str) -> pd.DataFrame:
    table = declared_table(name)
    return table.read(LABELS / table.file)


@pytest.fixture(scope="module")
def values(real_data: Path) -> list[str]:
    table = read_csv(real_data / "instance-of" / "all_instance_of_labels.csv", {"label": "text"})
    return [single_blanks(label) for label in table["label"]]


def test_every_real_value_is_decided(values: list[str]) -> None:
    decided = Decided(read("decisions"))
    assert len(values) == 1003
    open_values = [v for v in values if not ((d := decided.find("", v)) and d.decides)]
    assert open_values == []


@pytest.mark.parametrize("name", NAMES)
def test_an_annotator_filled_every_row_of_a_blank_sheet(name: str, values: list[str]) -> None:
    sheet = read_csv(ANNOTATIONS / f"{name}.csv", {**COLUMNS})
    kinds = kinds_of(read("taxonomy"))
    assert sorted(sheet["instance_of"]) == sorted(values)
    assert (sheet["note"] != "").all()
    kept = sheet[sheet["decision"] == "keep"]
    assert list(kept["kind"]) == [kinds[name] for name in kept["supercategory"]]


def test_the_annotators_read_in_different_orders() -> None:
    a, b = (
        list(read_csv(ANNOTATIONS / f"{n}.csv", {"instance_of": "text"}).iloc[:, 0]) for n in NAMES
    )
    assert sum(x == y for x, y in zip(a, b, strict=True)) < 20


def test_the_agreement_is_what_the_annotations_give(real_data: Path) -> None:
    path = real_data / "instance-of" / "all_instance_of_labels.csv"
    uses = read_csv(path, {"label": "text", "count": "int"})
    count = dict(zip(map(single_blanks, uses["label"]), uses["count"], strict=True))
    sheets = read_annotations(*(ANNOTATIONS / f"{name}.csv" for name in NAMES))
    a, b = (
        {key: replace(one, weight=float(count[key]), unit="count") for key, one in sheet.items()}
        for sheet in sheets
    )
    measured = measure_agreement(a, b, NAMES)
    told = json.loads((LABELS / "agreement.json").read_text("utf-8"))
    hashes = {name: hash_file(ANNOTATIONS / f"{name}.csv") for name in NAMES}
    assert told == {**measured, "sha256": hashes}


def test_what_both_said_or_the_adjudicator_decided_is_in_force() -> None:
    a, b, adjudicated = (
        read_csv(ANNOTATIONS / f"{name}.csv", {**COLUMNS}).set_index("instance_of")
        for name in (*NAMES, "adjudication")
    )
    decided, first_pass = Decided(read("decisions")), {"lodge"}  # seen in photos
    for value, row in a.iterrows():
        told = adjudicated if value in adjudicated.index else a
        in_force = decided.find("", str(value))
        assert in_force is not None
        same = (row["decision"], row["supercategory"]) == (
            b.loc[value, "decision"],
            b.loc[value, "supercategory"],
        )
        assert same is not (value in adjudicated.index)
        expected = (told.loc[value, "decision"], told.loc[value, "supercategory"])
        assert (in_force.decision, in_force.supercategory) == expected or value in first_pass


@pytest.mark.parametrize(
    ("value", "published"),
    [("mountain", "mountain"), ("stratovolcano", "volcano"), ("island group", "island"),
     ("neighborhood", "city")],
)  # fmt: skip
def test_published_pairs_are_decided_as_published(value: str, published: str) -> None:
    found = Decided(read("decisions")).find("", value)
    assert found is not None
    assert found.supercategory == published
