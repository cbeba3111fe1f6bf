"""Agreement of two annotators, against figures by hand and by a second route."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import cohen_kappa_score

from hgld.artifacts import table_of
from hgld.errors import InvalidData
from hgld.review.agreement import disagreements, measure_agreement, measure_alpha
from hgld.review.annotations import (
    Annotation,
    complete,
    read_annotations,
)
from hgld.tasks import watched_by
from tests.listening import heard

AB = ("a", "b")


def said(key: str, place: str, kind: str = "human-made", weight: float = 0) -> Annotation:
    """A supercategory, or drop, unsure or nothing."""
    decision = place if place in ("drop", "unsure", "") else "keep"
    name = place if decision == "keep" else ""
    return Annotation(key, key, decision, name, kind if name else "", "why", weight, "images", {})


def annotations(*places: str, weights: list[float] | None = None) -> dict[str, Annotation]:
    weights = weights or [0] * len(places)
    pairs = zip(places, weights, strict=True)
    return {f"v{i}": said(f"v{i}", place, weight=w) for i, (place, w) in enumerate(pairs)}


def measure_of(found: dict[str, Any], of: str, by: str = "values") -> dict[str, Any]:
    return next(row for row in found["measures"] if (row["of"], row["by"]) == (of, by))


def test_kappa_is_agreement_beyond_chance() -> None:
    a = annotations(*["x"] * 25, *["y"] * 25)
    b = annotations(*["x"] * 20, *["y"] * 5, *["x"] * 10, *["y"] * 15)
    found = measure_of(measure_agreement(a, b, AB), "supercategory")
    assert found["agreement"] == pytest.approx(0.7)  # 20 and 15 of 50
    assert found["kappa"] == pytest.approx((0.7 - 0.5) / (1 - 0.5))  # a: half and half
    q = (25 + 30) / 100  # AC1: chance is 2 q (1 - q)
    expected = (0.7 - 2 * q * (1 - q)) / (1 - 2 * q * (1 - q))
    assert found["ac1"] == pytest.approx(expected, abs=1e-6)


def test_drop_and_unsure_are_answers_like_any_other() -> None:
    a, b = annotations("x", "drop", "unsure", "x"), annotations("x", "drop", "x", "drop")
    found = measure_agreement(a, b, AB)
    assert measure_of(found, "supercategory")["agreement"] == 0.5
    assert found["confused"][0]["pair"] == ["(drop)", "x"]


def test_values_that_one_alone_decided_are_counted_and_left_out() -> None:
    a, b = annotations("x", "y", ""), annotations("x", "", "y")
    found = measure_agreement(a, b, AB)
    assert found["values"] == 1 and found["one_alone"] == {"a": 1, "b": 1}


def test_by_images_a_value_counts_as_often_as_it_has_images() -> None:
    a = annotations("x", "y", "x", weights=[6, 3, 1])
    b = annotations("x", "y", "y", weights=[6, 3, 1])
    found = measure_of(measure_agreement(a, b, AB), "supercategory", "images")
    assert found["agreement"] == pytest.approx(0.9)
    chance = 0.7 * 0.6 + 0.3 * 0.4
    assert found["kappa"] == pytest.approx((0.9 - chance) / (1 - chance))


def test_without_counts_nothing_is_weighted() -> None:
    found = measure_agreement(annotations("x", "y"), annotations("x", "x"), AB)
    assert {row["by"] for row in found["measures"]} == {"values"}


def test_a_kappa_that_is_not_defined_is_said_so() -> None:
    found = measure_of(measure_agreement(annotations("x", "x"), annotations("x", "x"), AB), "kind")
    assert found["kappa"] is None and found["low"] is None
    assert found["note"] == "both say 'human-made' throughout: kappa is not defined"
    assert found["agreement"] == found["ac1"] == 1


def test_kappa_is_one_in_full_agreement_and_its_interval_too() -> None:
    same = annotations(*"xxyyzz")
    found = measure_of(measure_agreement(same, same, AB), "supercategory")
    assert (found["kappa"], found["low"], found["high"]) == (1, 1, 1)


def test_an_interval_of_zero_has_no_minus() -> None:
    """Whatever the draw, one who says the same throughout agrees by chance alone."""
    found = measure_agreement(annotations(*["x"] * 11), annotations(*["x"] * 5, *["y"] * 6), AB)
    measured = measure_of(found, "supercategory")
    assert [str(measured[name]) for name in ("low", "high")] == ["0.0", "0.0"]


@pytest.mark.parametrize("count", [10, 23, 49, 97])
def test_draws_with_one_answer_are_no_part_of_the_interval(count: int) -> None:
    one = annotations("pub", *["lake"] * (count - 1))
    found = measure_of(measure_agreement(one, one, ("a", "b")), "supercategory")
    assert (found["kappa"], found["low"], found["high"]) == (1.0, 1.0, 1.0)
    other = annotations("lake", "pub", *["lake"] * (count - 2))
    found = measure_of(measure_agreement(one, other, ("a", "b")), "supercategory")
    assert found["high"] <= 0


def test_values_without_images_count_for_nothing_by_images() -> None:
    one = annotations("pub", "lake", "pub", "lake", weights=[3, 2, 0, 0])
    other = annotations("pub", "lake", "lake", "pub", weights=[3, 2, 0, 0])
    found = measure_of(measure_agreement(one, other, ("a", "b")), "supercategory", "images")
    assert (found["kappa"], found["low"]) == (1.0, 1.0)


def test_each_level_of_a_path_is_measured() -> None:
    kinds = ("food > bakery > bread", "food > bakery > cake", "tools > hand > saw")
    a = {f"v{i}": said(f"v{i}", f"x{kind}", kind) for i, kind in enumerate(kinds)}
    b = {f"v{i}": said(f"v{i}", f"x{kind}", kind) for i, kind in enumerate(reversed(kinds))}
    b["v3"], a["v3"] = said("v3", "drop"), said("v3", "drop")
    found = measure_agreement(a, b, AB)
    shares = {row["of"]: row["agreement"] for row in found["measures"]}
    assert shares == {"supercategory": 0.5, "kind": 0.5, "kind 1 of 3": 0.5, "kind 2 of 3": 0.5}
    a["v0"] = said("v0", "x", "tools > hand > drill")
    found = measure_agreement(a, b, AB)
    assert measure_of(found, "kind")["agreement"] == 0.5
    assert measure_of(found, "kind 1 of 3")["agreement"] == 0.75
    by_three = measure_alpha({"a": a, "b": b, "c": b})
    assert [row["of"] for row in by_three["measures"]] == [row["of"] for row in found["measures"]]


def test_the_interval_is_that_of_a_plain_bootstrap() -> None:
    random = np.random.default_rng(1)
    a = list(random.choice(list("xyz"), 300))
    b = [c if random.random() < 0.7 else str(random.choice(list("xyz"))) for c in a]
    found = measure_of(measure_agreement(annotations(*a), annotations(*b), AB), "supercategory")
    draws = [random.integers(300, size=300) for _ in range(1000)]
    kappas = [cohen_kappa_score(np.array(a)[rows], np.array(b)[rows]) for rows in draws]
    low, high = np.percentile(kappas, [2.5, 97.5])
    assert found["low"] == pytest.approx(low, abs=0.012)
    assert found["high"] == pytest.approx(high, abs=0.012)
    assert found["low"] < found["kappa"] < found["high"]


def test_the_same_seed_gives_the_same_interval() -> None:
    a, b = annotations(*"xxyyzzxy" * 9), annotations(*"xyyyzxxyz" * 8)
    one, again = (measure_agreement(a, b, AB, seed=3)["measures"] for _ in range(2))
    assert one == again != measure_agreement(a, b, AB, seed=4)["measures"]


def test_each_supercategory_has_its_row_and_pairs_are_counted_either_way() -> None:
    a, b = annotations(*"xxyyz"), annotations(*"xyxyz")
    found = measure_agreement(a, b, AB)
    rows = {row.pop("supercategory"): row for row in found["supercategories"]}
    assert rows["x"] == {"a": 2, "b": 2, "both": 1, "share": 1 / 3}
    assert rows["z"] == {"a": 1, "b": 1, "both": 1, "share": 1}
    assert found["confused"] == [{"pair": ["x", "y"], "values": 2, "examples": ["v1", "v2"]}]


def test_disagreements_stand_side_by_side_and_are_still_open() -> None:
    sheet = disagreements(annotations("x", "y", "drop"), annotations("x", "x", "y"), ("A", "B"))
    assert sheet["key"].tolist() == ["v1", "v2"]
    assert sheet["a_supercategory"].tolist() == ["y", ""]
    assert sheet["b_supercategory"].tolist() == ["x", "y"]
    assert sheet["a_decision"].tolist() == ["keep", "drop"]
    assert set(sheet["decision"]) == {""} and set(sheet["annotators"]) == {"a: A; b: B"}


def test_another_kind_alone_is_a_disagreement_too() -> None:
    a, b = {"v": said("v", "x", "natural")}, {"v": said("v", "x", "human-made")}
    assert len(disagreements(a, b, AB)) == 1


def test_a_kind_that_is_left_to_the_taxonomy_is_not_measured_until_it_is_filled_in() -> None:
    a = {key: said(key, "x", kind="") for key in ("v0", "v1")} | {"v2": said("v2", "drop")}
    b = {"v0": said("v0", "X"), "v1": said("v1", "y", kind="natural"), "v2": said("v2", "drop")}
    with heard() as notes:
        found = measure_agreement(a, b, AB)
    assert measure_of(found, "kind")["agreement"] == 1.0  # of v2 alone
    assert notes[0].startswith("kind: 2 of 3 values are left out")
    names = {"supercategory": ["x", "y"], "kind": ["human-made", "natural"]}
    taxonomy = pd.DataFrame({**names, "definition": ["", ""]})
    edits = table_of("taxonomy_edits", [])
    whole = measure_agreement(complete(a, taxonomy, edits), complete(b, taxonomy, edits), AB)
    shares = [measure_of(whole, of)["agreement"] for of in ("supercategory", "kind")]
    assert shares == pytest.approx([2 / 3, 2 / 3], abs=1e-6)


def test_of_data_with_one_level_no_kind_is_measured() -> None:
    a = {"v": said("v", "x", kind=""), "w": said("w", "drop")}
    with heard() as notes:
        found = measure_agreement(a, a, AB)
        three = measure_alpha({"a": a, "b": a, "c": a})
    assert {row["of"] for row in found["measures"] + three["measures"]} == {"supercategory"}
    assert notes[0].startswith("kind is not measured, as none is given")


def test_a_renamed_supercategory_is_one_answer_and_unknown_names_are_told() -> None:
    taxonomy = pd.DataFrame({"supercategory": ["chapel", "garden"], "kind": "human-made"})
    rename = {
        "action": "rename", "table": "taxonomy", "key": "church", "column": "supercategory",
        "before": "church", "after": "chapel", "entry": "e taxonomy",
    }  # fmt: skip
    edits, told = table_of("taxonomy_edits", [rename]), list[str]()
    with watched_by(lambda items, *_: iter(items), told.append):
        sides = [
            complete(annotations(*places), taxonomy, edits)
            for places in (("church", "garden"), ("chapel", "gardn"))
        ]
    assert measure_of(measure_agreement(*sides, AB), "supercategory")["agreement"] == 0.5
    assert told == ["1 name not in taxonomy.csv, such as 'gardn'; did you mean 'garden'?"]


def test_counts_of_a_sheet_of_disagreements_are_numbers_for_a_spreadsheet() -> None:
    a, b = (replace(said("v", place), cells={"landmarks": "4"}) for place in ("x", "y"))
    assert disagreements({"v": a}, {"v": b}, AB)["landmarks"].tolist() == ["4"]


def test_files_with_nothing_in_common_are_refused() -> None:
    with pytest.raises(InvalidData, match="no value that both decided"):
        measure_agreement({"v": said("v", "x")}, {"w": said("w", "x")}, AB)


def read(folder: Path, text: str) -> dict[str, Annotation]:
    (folder / "x.csv").write_text(text)
    return read_annotations(folder / "x.csv")[0]


def test_values_are_known_by_their_label_where_there_are_no_keys(tmp_path: Path) -> None:
    header = "decision,supercategory,kind,note,instance_of"
    found = read(tmp_path, f"{header}\nkeep,x,natural,n,a pond\n")
    assert found["a pond"].place == "x" and found["a pond"].note == "n"


def test_two_files_are_matched_by_label_where_one_has_no_keys(tmp_path: Path) -> None:
    header = "decision,supercategory,kind,note,instance_of"
    (tmp_path / "a").write_text(f"{header},key\nkeep,x,natural,,pond,Q1\n")
    (tmp_path / "b").write_text(f"{header}\nkeep,x,natural,,pond\n")
    a, b = read_annotations(tmp_path / "a", tmp_path / "b")
    assert list(a) == list(b) == ["pond"]
    assert list(read_annotations(tmp_path / "a", tmp_path / "a")[0]) == ["Q1"]
    (tmp_path / "c").write_text("key,key_type,decision,supercategory,kind\npond,label,drop,,\n")
    assert list(read_annotations(tmp_path / "c", tmp_path / "b")[0]) == ["pond"]


def test_capitals_make_no_other_supercategory(tmp_path: Path) -> None:
    header = "key,decision,supercategory"
    (tmp_path / "a").write_text(f"{header}\nQ1,keep,lake\nQ2,keep,Inn\n")
    (tmp_path / "b").write_text(f"{header}\nQ1,Keep,Lake\nQ2,move,inn\nQ3,keep,LAKE\n")
    a, b = read_annotations(tmp_path / "a", tmp_path / "b")
    assert [one.place for one in (*a.values(), *b.values())] == [
        "lake", "Inn", "lake", "Inn", "lake",
    ]  # fmt: skip


def test_of_a_file_of_decisions_those_in_force_count(tmp_path: Path) -> None:
    header = "key,key_type,decision,supercategory,kind,who,when,why,supersedes"
    text = (
        f"{header}\nQ1,qid,keep,x,natural,a,2026-01-01,,\nQ1,qid,drop,,,b,,too vague,2026-01-01\n"
    )
    assert read(tmp_path, text)["Q1"].words == "drop"
    assert read(tmp_path, text)["Q1"].note == "too vague"
    assert read(tmp_path, text.replace("vague,2026-01-01", "vague,"))["Q1"].words == "open"


def test_counts_are_read_as_spreadsheets_write_them(tmp_path: Path) -> None:
    cells = ("1\u202f222", "1.222", "1,222.00", "1'222", "7,0", "?")
    rows = "".join(f'drop,,,{number},"{cell}"\n' for number, cell in enumerate(cells))
    found = read(tmp_path, f"decision,supercategory,kind,key,images\n{rows}")
    assert [one.weight for one in found.values()] == [1222, 1222, 1222, 1222, 7, 0]


def test_all_faults_of_a_file_are_told(tmp_path: Path) -> None:
    text = "decision,supercategory,kind,key\nkep,x,,a\nkeep,,,b\ndrop,,,b\ndrop,,,\n"
    with pytest.raises(InvalidData) as error:
        read(tmp_path, text)
    assert str(error.value).count("\n") == 4 and "did you mean 'keep'?" in str(error.value)


def test_a_sheet_without_kinds_and_with_a_row_twice_is_read(tmp_path: Path) -> None:
    sheet = tmp_path / "a.csv"
    sheet.write_text("decision,supercategory,key\nkeep,lake,pond\nkeep,lake,pond\n")
    assert [one.place for one in read_annotations(sheet)[0].values()] == ["lake"]
    sheet.write_text("decision,supercategory,key\nkeep,lake,pond\ndrop,,pond\n")
    with pytest.raises(InvalidData, match="each value once"):
        read_annotations(sheet)


CODERS = {  # the example of https://en.wikipedia.org/wiki/Krippendorff%27s_alpha
    "a": ".....34121133.3",
    "b": "1.213343.......",
    "c": "..21344.21133.4",
}


def test_alpha_of_three_coders_with_gaps_is_the_published_one() -> None:
    sides = {
        name: annotations(*("" if c == "." else c for c in row)) for name, row in CODERS.items()
    }
    found = measure_alpha(sides)
    row = measure_of(found, "supercategory")
    assert row["alpha"] == pytest.approx(0.691, abs=5e-4)
    assert row["low"] < row["alpha"] < row["high"]
    assert found["values"] == 12 and len(found["pairs"]) == 6
    disputed = found["by_value"][0]
    assert disputed["agreement"] == 0 and disputed["answers"] in (
        {"3": 1, "4": 1},
        {"1": 1, "2": 1},
    )


def test_alpha_of_equal_answers_is_not_defined_and_says_so() -> None:
    sides = {name: annotations("lake", "lake") for name in "abc"}
    row = measure_of(measure_alpha(sides), "supercategory")
    assert row["alpha"] is None and row["agreement"] == 1
    assert row["note"] == "all say 'lake' throughout: Krippendorff's alpha is not defined"


def test_three_annotators_without_a_common_value_are_told() -> None:
    sides = {name: {name: said(name, "lake")} for name in "abc"}
    with pytest.raises(InvalidData, match="a, b, c have no value that two of them decided"):
        measure_alpha(sides)
