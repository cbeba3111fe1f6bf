from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hgld.artifacts import columns_of, records, table_of
from hgld.config import ScrapeOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.scrape.saved import read_given, read_names
from tests.listening import heard

LANDMARKS = table_of(
    "landmarks",
    [
        {"split": split, "landmark_id": i, "name": f"L{i}", "commons_url": ""}
        for split, i in (("train", 1), ("train", 2), ("train", 3), ("index", 1))
    ],
)


def given(tmp_path: Path, context: StageContext, text: str, **more: Any) -> Any:
    path = tmp_path / "given.csv"
    path.write_text(text, encoding="utf-8")
    options = ScrapeOptions.model_construct(
        **{**ScrapeOptions().model_dump(), "table": path, **more}
    )
    return read_given(LANDMARKS, options=options, context=context)


def test_it_tells_how_many_have_values_and_why_the_others_have_none(
    tmp_path: Path, context: StageContext
) -> None:
    with heard() as said:
        given(tmp_path, context, "landmark_id,supercategory\n1,lake\n2,\n")
    assert said == [
        "1 of 4 landmarks has values in the table\n        2 not_in_table\n        1 no_value\n"
        "misses.csv lists them"
    ]


def test_a_table_may_name_the_classes(tmp_path: Path, context: StageContext) -> None:
    rows = "file,class,group\na,L1,lake\nb, L1,lake\nc,L2,\nd,L9,pub\n"
    names = {"table_name": "class", "table_value": "group"}
    instance_of, misses = given(tmp_path, context, rows, **names)
    keys = ["split", "landmark_id", "instance_of"]
    assert instance_of[keys].to_numpy().tolist() == [["train", 1, "lake"], ["index", 1, "lake"]]
    reasons = misses[["landmark_id", "reason", "detail"]].to_numpy().tolist()
    assert reasons == [
        [3, "not_in_table", "no such class in the table"],
        [2, "no_value", "group is empty"],
    ]
    with pytest.raises(InvalidData, match="row 3: name L1 stands there twice"):
        given(tmp_path, context, rows.replace("b, L1,lake", "b, L1,pub"), **names)


def test_a_value_is_brought_in_as_a_statement(tmp_path: Path, context: StageContext) -> None:
    text = "landmark_id,category,supercategory\n1,x,lake\n2,x,\n9,x,bridge\n"
    instance_of, misses = given(tmp_path, context, text)
    assert records(instance_of) == [
        {
            "split": "train",
            "landmark_id": 1,
            "item_id": "",
            "revision": 0,
            "order": 0,
            "class_id": "",
            "instance_of": "lake",
            "rank": "normal",
            "qualifiers": "{}",
        }
    ]
    assert list(misses.columns) == columns_of("misses")


def test_every_landmark_is_found_or_missed_with_its_reason(
    tmp_path: Path, context: StageContext
) -> None:
    _, misses = given(tmp_path, context, "landmark_id,supercategory\n1,lake\n2,\u00a0 \n9,pub\n")
    assert misses[["split", "landmark_id", "reason"]].to_numpy().tolist() == [
        ["train", 3, "not_in_table"],
        ["index", 1, "not_in_table"],
        ["train", 2, "no_value"],
    ]


def test_blanks_are_made_single(tmp_path: Path, context: StageContext) -> None:
    instance_of, _ = given(
        tmp_path, context, "landmark_id,supercategory\n1,  quarter \u00a0of\u202fhamburg \n"
    )
    assert instance_of["instance_of"].tolist() == ["quarter of hamburg"]


def test_control_characters_that_no_workbook_can_hold_are_removed(
    tmp_path: Path, context: StageContext
) -> None:
    text = "landmark_id,supercategory\n1,a\x00b\x07c\x0bd\uffff\n"
    found, _ = given(tmp_path, context, text)
    assert found["instance_of"].tolist() == ["abc d"]


def test_bom_crlf_and_other_column_names_are_read(tmp_path: Path, context: StageContext) -> None:
    text = "\ufeffid,kind of place\r\n1,None\r\n"
    names = {"table_id": "id", "table_value": "kind of place", "table_split": "index"}
    instance_of, _ = given(tmp_path, context, text, **names)
    found = instance_of[["split", "landmark_id", "instance_of"]].to_numpy().tolist()
    assert found == [["index", 1, "None"]]


def test_an_id_that_stands_there_twice_is_told_with_its_row(
    tmp_path: Path, context: StageContext
) -> None:
    with pytest.raises(InvalidData, match=r"given\.csv row 5: landmark_id 1 stands there twice"):
        given(tmp_path, context, "landmark_id,supercategory\n1,lake\n\n2,lake\n1,pub\n")


def test_a_missing_column_is_told(tmp_path: Path, context: StageContext) -> None:
    with pytest.raises(InvalidData, match="column 'supercategory' is missing"):
        given(tmp_path, context, "landmark_id,super_category\n1,lake\n")


def test_an_id_that_is_no_number_is_told(tmp_path: Path, context: StageContext) -> None:
    with pytest.raises(InvalidData, match="row 3: landmark_id is 'x'; expected a whole number"):
        given(tmp_path, context, "landmark_id,supercategory\n1,lake\nx,lake\n")


def test_an_empty_file_is_told(tmp_path: Path, context: StageContext) -> None:
    with pytest.raises(InvalidData, match="the file is empty"):
        given(tmp_path, context, "")


def test_without_a_table_the_option_is_named(context: StageContext) -> None:
    with pytest.raises(UsageError, match=r"scrape\.table is not set"):
        read_given(pd.DataFrame(), options=ScrapeOptions(source="table"), context=context)


def test_the_name_of_a_class_is_its_value(context: StageContext) -> None:
    names = ["apple_pie", " red  fox", "\u72d0\u72f8", "_"]
    classes = LANDMARKS.assign(name=names)
    instance_of, misses = read_names(classes, options=ScrapeOptions(), context=context)
    assert instance_of["instance_of"].tolist() == ["apple pie", "red fox", "\u72d0\u72f8"]
    assert misses[["landmark_id", "reason"]].to_numpy().tolist() == [[1, "no_name"]]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["1", "2", "ibis"], "2 classes are named by a number alone, first '1', and clustered by"),
        (["3.0"], "1 class is named by a number alone, first '3.0', and clustered by its digits; "
         "give classes names to cluster them by their meaning; pandas writes 3 as 3.0 if a cell of "
         "the column is empty"),
        (["747", "a320", "a330"], ""),
    ],
)  # fmt: skip
def test_classes_named_by_numbers_are_reported_once(
    names: list[str], says: str, context: StageContext
) -> None:
    rows = [
        {"split": "train", "landmark_id": i, "name": name, "commons_url": ""}
        for i, name in enumerate(names)
    ]
    with heard() as said:
        read_names(table_of("landmarks", rows), options=ScrapeOptions(), context=context)
    assert [line[: len(says)] for line in said if "number alone" in line] == [says] * bool(says)
