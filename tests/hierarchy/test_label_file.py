from pathlib import Path

import pytest

from hgld.errors import InvalidData
from hgld.hierarchy.label_file import read_label_file

FULL = "landmark_id,category,supercategory,hierarchical_label,natural_or_human_made"
CUT = "landmark_id,hierarchical_label,natural_or_human_made"


@pytest.mark.parametrize(
    "data",
    [
        f"{CUT}\r\n7,ocean area ,natural\r\n8,,\r\n",
        f"{CUT}\n7,lake,natural",
        f"\ufeff{CUT}\r\n007,lake,natural\r\n",
        f'{FULL}\n0,"http://x/Category:A,_B","a ""b""", church,human-made\n',
        "natural_or_human_made,landmark_id,note,hierarchical_label\nnatural,3,x,lake\n",
        f"{CUT}\n",
        "split,class_id,group,class\r\ntrain; test,007, insect,ant\r\n,8,,\r\n",
        "split,class_id_,class_id\ntrain,0,ant",
    ],
    ids=["CRLF", "no last end", "BOM", "five columns", "own columns", "empty", "classes", "flat"],
)
def test_a_file_is_written_back_byte_for_byte(data: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(data.encode())
    read_label_file(tmp_path / "a.csv").write(tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_bytes() == data.encode()


def test_what_is_worked_with_has_single_blanks(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{CUT}\n7,ocean  area ,natural\n8,lake,natural\n")
    file = read_label_file(tmp_path / "a.csv")
    assert file.labels["hierarchical_label"].tolist() == ["ocean area", "lake"]
    assert file.labels["category"].tolist() == ["", ""]
    assert file.untidy.tolist() == [True, False]


def test_a_file_tells_what_is_in_it(tmp_path: Path) -> None:
    rows = "1,lake ,natural\n2,church,human-made\n3,lake,natural\n4,,\n5,church,\n"
    (tmp_path / "a.csv").write_text(f"{CUT}\n{rows}")
    assert read_label_file(tmp_path / "a.csv").describe().splitlines() == [
        "a.csv:",
        "        3 landmarks with one of 2 labels (1 natural, 1 human-made)",
        "        2 without: label or kind is blank",
        "        1 with surplus blanks, which are ignored",
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"{CUT}\n1,lake,natural\n2,Lake,natural\n3,LAKE,\n",
        "split,class_id,group,class\ntrain,0,water,lake\ntrain,1,water,Lake\n",
    ],
)
def test_labels_that_differ_in_case_alone_are_reported(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert read_label_file(tmp_path / "a.csv").describe().splitlines()[-1] == (
        "          'lake' and 'Lake' differ in case or underscores alone; they are different "
        "classes: if one is meant, write one name"
    )


def test_groups_of_one_name_below_different_parents_are_two(tmp_path: Path) -> None:
    rows = "train,0,plant,Oenanthe,hemlock\ntrain,1,animal,Oenanthe,wheatear\n"
    (tmp_path / "a.csv").write_text(f"split,class_id,kingdom,genus,species\n{rows}")
    assert read_label_file(tmp_path / "a.csv").counts()["labels"] == {"kingdom": 2, "genus": 2}


def test_an_apostrophe_that_a_release_put_before_a_formula_is_no_part_of_the_name(
    tmp_path: Path,
) -> None:
    classes = "train,0,a,'=SUM(A1)\ntrain,1,a,''=1\ntrain,2,a,'007\n"
    text = f"split,class_id,group,class\n{classes}"
    (tmp_path / "a.csv").write_text(text)
    file = read_label_file(tmp_path / "a.csv")
    assert file.labels["category"].tolist() == ["=SUM(A1)", "'=1", "'007"]
    assert not file.untidy.any()
    file.write(tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text() == text


def test_a_file_of_classes_tells_what_is_in_it(tmp_path: Path) -> None:
    rows = "train,0,life,insect,ant\n,1,life, insect,bee\ntrain,2,life,mammal,cat\ntrain,3,,x,y\n"
    (tmp_path / "a.csv").write_text(f"split,class_id,root,group,class\n{rows}")
    file = read_label_file(tmp_path / "a.csv")
    assert file.describe().splitlines() == [
        "a.csv:",
        "        3 classes (root 1, group 2)",
        "        1 without: a level is blank",
        "        1 with surplus blanks, which are ignored",
    ]
    assert file.counts()["labels"] == {"root": 1, "group": 2}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("train,0,life,land,insect,bee", "row 3: class_id 0 stands there twice"),
        (
            "train,1,life,sea,insect,ant",
            "row 3: 'ant' is below 'life > sea > insect' here and below 'life > land > insect'",
        ),
    ],
)
def test_a_class_with_two_paths_or_a_number_twice_is_refused(
    tmp_path: Path, row: str, says: str
) -> None:
    header = "split,class_id,root,realm,group,class"
    (tmp_path / "a.csv").write_text(f"{header}\ntrain,0,life,land,insect,ant\n{row}\n")
    with pytest.raises(InvalidData, match=says):
        read_label_file(tmp_path / "a.csv")


def test_a_label_with_two_kinds_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{CUT}\n7,lake,natural\n8,,\n9,lake,human-made\n")
    with pytest.raises(InvalidData, match=r"row 4: 'lake' is human-made here and natural above"):
        read_label_file(tmp_path / "a.csv")


def test_blank_lines_above_the_header_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"\n{CUT}\n7,lake,natural\n")
    assert read_label_file(tmp_path / "a.csv").counts()["labelled"] == 1


@pytest.mark.real
def test_the_real_index_file_is_whole_and_comes_back_byte_for_byte(
    real_data: Path, tmp_path: Path
) -> None:
    path = real_data / "gldv2-labels" / "index_label_to_hierarchical.csv"
    file = read_label_file(path)
    kinds = file.kinds()
    assert len(file.labels) == file.labelled.sum() == 55_529
    assert len(kinds) == 78
    assert kinds.value_counts().to_dict() == {"human-made": 60, "natural": 18}
    assert file.untidy.sum() == 249  # 'ocean area '
    file.write(tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == path.read_bytes()


def test_a_folder_is_asked_for_a_file_in_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"a folder; name a label file in it, such as train_lab"):
        read_label_file(tmp_path)
