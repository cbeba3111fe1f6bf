import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hgld.artifacts import columns_of, table_of
from hgld.config import LabelOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.label import read_published
from tests.listening import heard

FULL = "landmark_id,category,supercategory,hierarchical_label,natural_or_human_made\n"
CUT = "landmark_id,hierarchical_label,natural_or_human_made\n"
LANDMARKS = table_of(
    "landmarks",
    [
        {"split": split, "landmark_id": i, "name": "", "commons_url": f"url of {split} {i}"}
        for split, i in (("train", 1), ("train", 2), ("index", 1), ("index", 2))
    ],
)


def read(folder: Path, context: StageContext, train: str, index: str) -> tuple[pd.DataFrame, ...]:
    options: dict[str, Any] = {}
    for name, text in (("train", train), ("index", index)):
        options[f"{name}_csv"] = f"{name}.csv" if text else ""
        (folder / f"{name}.csv").write_bytes(text.encode())
    found = read_published(folder, LANDMARKS, options=LabelOptions(**options), context=context)
    names = ("train_labels", "index_labels", "hierarchy", "label_dropped")
    for name, frame in zip(names, found, strict=True):
        assert list(frame.columns) == columns_of(name)
    return found


def dropped(frame: pd.DataFrame) -> list[list[Any]]:
    return sorted(frame[["split", "landmark_id", "reason"]].to_numpy().tolist())


def test_the_official_columns_come_through(tmp_path: Path, context: StageContext) -> None:
    train = FULL + '1,"http://x/Category:A,_B",chapel,church,human-made\n9,x,y,lake,natural\n'
    labels, _, hierarchy, gone = read(tmp_path, context, train, FULL)
    assert labels.to_numpy().tolist() == [
        [1, "http://x/Category:A,_B", "chapel", "church", "human-made"]
    ]
    assert json.loads(hierarchy["path"].iloc[0]) == {
        "kind": "human-made", "supercategory": "church", "landmark": "train:1",
    }  # fmt: skip
    assert dropped(gone) == [
        ["index", 1, "not_published"], ["index", 2, "not_published"], ["train", 2, "not_published"],
    ]  # fmt: skip


def test_the_cut_of_three_columns_takes_the_page_from_the_landmarks(
    tmp_path: Path, context: StageContext
) -> None:
    index = "\ufeff" + CUT.replace("\n", "\r\n") + "1,ocean area ,natural\r\n2,lake,natural\r\n"
    _, labels, hierarchy, _ = read(tmp_path, context, "", index)
    assert labels.to_numpy().tolist() == [
        [1, "url of index 1", "", "ocean area", "natural"],
        [2, "url of index 2", "", "lake", "natural"],
    ]
    assert hierarchy["split"].tolist() == ["index", "index"]


def test_blank_labels_are_no_labels(tmp_path: Path, context: StageContext) -> None:
    train = FULL + "1,x,chapel, ,human-made\n2,x,chapel,church,\n"
    *_, hierarchy, gone = read(tmp_path, context, train, "")
    assert len(hierarchy) == 0
    assert dropped(gone)[2:] == [["train", 1, "no_label"], ["train", 2, "no_label"]]


def test_the_stage_says_what_it_read(tmp_path: Path, context: StageContext) -> None:
    with heard() as notes:
        read(tmp_path, context, CUT + "1,lake ,natural\n2, ,natural\n", "")
    assert notes == [
        "train.csv:\n"
        "        1 landmarks with one of 1 labels (1 natural, 0 human-made)\n"
        "        1 without: label or kind is blank\n"
        "        2 with surplus blanks, which are ignored"
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1,lake,Natural\n", r"row 2: natural_or_human_made is 'Natural'.*did you mean 'natural'"),
        ("1,lake,natural\n1,lake,natural\n", "row 3: landmark_id 1 stands there twice"),
        ("1,lake,natural\n\n1,lake,natural\n", "row 4: landmark_id 1 stands there twice"),
        ("\n1,lake,Natural\n", "row 3: natural_or_human_made is 'Natural'"),
        (
            "1,lake,natural\n2,,\n3,lake,human-made\n",
            "row 4: 'lake' is human-made here and natural",
        ),
        ("x,lake,natural\n", "row 2: landmark_id is 'x'; expected a whole number"),
    ],
)
def test_faults_are_told_with_file_and_row(
    rows: str, message: str, tmp_path: Path, context: StageContext
) -> None:
    with pytest.raises(InvalidData, match=rf"train\.csv {message}"):
        read(tmp_path, context, CUT + rows, "")


def test_a_missing_column_is_told(tmp_path: Path, context: StageContext) -> None:
    with pytest.raises(InvalidData, match="column 'hierarchical_label' is missing"):
        read(tmp_path, context, "landmark_id,label,natural_or_human_made\n", "")


def test_a_file_that_is_not_there_is_told(tmp_path: Path, context: StageContext) -> None:
    with pytest.raises(InvalidData, match=r"train_label_to_hierarchical\.csv: no such file"):
        read_published(tmp_path, LANDMARKS, options=LabelOptions(), context=context)


def test_no_file_at_all_names_the_options(tmp_path: Path, context: StageContext) -> None:
    with pytest.raises(UsageError, match=r"label\.train_csv and label\.index_csv are both empty"):
        read(tmp_path, context, "", "")


@pytest.mark.real
def test_the_real_index_labels_are_read_whole(real_data: Path, context: StageContext) -> None:
    file = "gldv2-labels/index_label_to_hierarchical.csv"
    ids = [*range(101_297)]
    places = pd.DataFrame({"split": "index", "landmark_id": ids, "name": "", "commons_url": ""})
    options = LabelOptions(train_csv="", index_csv=file)
    _, labels, hierarchy, gone = read_published(real_data, places, options=options, context=context)
    assert len(labels) == len(hierarchy) == 55_529
    assert len(gone) == 101_297 - 55_529
    assert labels["hierarchical_label"].nunique() == 78
    assert (labels["hierarchical_label"] == "ocean area").sum() == 249
    assert (labels["natural_or_human_made"] == "natural").sum() == 13_330
    assert labels.iloc[0][["landmark_id", "hierarchical_label"]].tolist() == [0, "parks"]
