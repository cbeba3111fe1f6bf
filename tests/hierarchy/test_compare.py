import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.artifacts import ARTIFACTS, BY_LANDMARK, Table, declared_table
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.label_comparison import LabelComparison, compare_labels, read_labels
from hgld.hierarchy.label_file import hierarchy_of

FULL = "landmark_id,category,supercategory,hierarchical_label,natural_or_human_made\n"
CUT = "landmark_id,hierarchical_label,natural_or_human_made\n"
KIND = {"lake": "natural", "church": "human-made", "tower": "human-made"}


def save(path: Path, labels: dict[int, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [f"{i},{label},{KIND[label.strip()]}\n" for i, label in labels.items()]
    path.write_text(CUT + "".join(rows), encoding="utf-8")
    return path


def compare(folder: Path, a: dict[int, str], b: dict[int, str]) -> LabelComparison:
    sides = [save(folder / name / "index.csv", labels) for name, labels in (("a", a), ("b", b))]
    return compare_labels(read_labels(sides[0]), read_labels(sides[1]))


def test_each_landmark_is_the_same_moved_lost_or_added(tmp_path: Path) -> None:
    found = compare(
        tmp_path, {1: "lake", 2: "church", 3: "tower"}, {1: "lake ", 2: "tower", 4: "lake"}
    )
    assert found.landmarks.to_numpy().tolist() == [
        ["index", 1, "lake", "natural", "lake", "natural", "same"],
        ["index", 2, "church", "human-made", "tower", "human-made", "moved"],
        ["index", 3, "tower", "human-made", "", "", "lost"],
        ["index", 4, "", "", "lake", "natural", "added"],
    ]
    assert found.counts() == {
        "same": 1, "moved": 1, "lost": 1, "added": 1, "a": 3, "b": 3, "both": 2, "same_kind": 2,
    }  # fmt: skip


def test_confusions_are_counted_the_most_frequent_first(tmp_path: Path) -> None:
    a = dict.fromkeys(range(3), "church") | {9: "lake"}
    found = compare(tmp_path, a, dict.fromkeys(range(3), "tower") | {9: "tower"})
    pairs = found.confusions()
    assert pairs.to_numpy().tolist() == [["church", "tower", 3], ["lake", "tower", 1]]
    tower = found.supercategories().set_index("label").loc["tower"].to_dict()
    assert tower == {"a": 0, "b": 4, "same": 0, "left": 0, "came": 4, "lost": 0, "added": 0}


LABELS = st.dictionaries(st.integers(0, 9), st.sampled_from(sorted(KIND)))


@settings(max_examples=25)
@given(a=LABELS, b=LABELS)
def test_the_counts_of_every_label_add_up(
    a: dict[int, str], b: dict[int, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = compare(tmp_path_factory.mktemp("labels"), a, b)
    table = found.supercategories()
    assert (table["a"] == table["same"] + table["left"] + table["lost"]).all()
    assert (table["b"] == table["same"] + table["came"] + table["added"]).all()
    assert table["a"].sum() == len(a) and table["b"].sum() == len(b)
    assert found.counts()["moved"] == sum(i in b and b[i] != label for i, label in a.items())


def test_a_blank_label_is_none(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text(CUT + "1,,natural\n")
    a = save(tmp_path / "a.csv", {1: "lake"})
    found = compare_labels(read_labels(a), read_labels(tmp_path / "b.csv"))
    assert found.landmarks["change"].tolist() == ["lost"]


def test_a_work_folder_holds_both_splits_and_a_file_one(tmp_path: Path) -> None:
    for split in ("train", "index"):
        save(tmp_path / "work" / f"{split}_label_to_hierarchical.csv", {1: "lake"})
    folder = read_labels(tmp_path / "work")
    assert set(folder) == {"train", "index"}
    assert set(read_labels(tmp_path / "work", "train")) == {"train"}
    other = save(tmp_path / "x.csv", {1: "church"})
    found = compare_labels(folder, read_labels(other, "index"))
    assert found.landmarks["split"].tolist() == ["index"]


def test_a_work_folder_is_compared_with_the_edits_of_its_hierarchy(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for folder in (a, b):
        save(folder / "train_label_to_hierarchical.csv", {1: "lake", 2: "lake"})
    rows = [("train", 1, "natural", "lake"), ("train", 2, "natural", "river")]
    edited = hierarchy_of(pd.DataFrame(rows, columns=[*BY_LANDMARK, "kind", "supercategory"]))
    declared_table("hierarchy").write(edited, b / "hierarchy.csv")
    found = compare_labels(read_labels(a), read_labels(b)).landmarks
    assert found[["landmark_id", "label_a", "label_b", "change"]].values.tolist() == [
        [1, "lake", "lake", "same"],
        [2, "lake", "river", "moved"],
    ]


def test_a_hierarchy_that_is_no_hierarchy_is_named(tmp_path: Path) -> None:
    save(tmp_path / "train_label_to_hierarchical.csv", {1: "lake"})
    for text, says in (("x", "path is 'x'"), ("{}", "path is '{}'")):
        (tmp_path / "hierarchy.csv").write_text(f"split,landmark_id,path\ntrain,1,{text}\n")
        with pytest.raises(InvalidData, match=rf"{tmp_path}: hierarchy.csv row 2: {says}"):
            read_labels(tmp_path)


def test_a_file_of_no_known_split_is_compared_with_one_other(tmp_path: Path) -> None:
    a = read_labels(save(tmp_path / "mine.csv", {1: "lake"}))
    b = read_labels(save(tmp_path / "index.csv", {1: "lake"}))
    assert compare_labels(a, b).landmarks["split"].tolist() == ["index"]
    assert compare_labels(a, a).landmarks["change"].tolist() == ["same"]


def test_ids_of_train_and_index_are_never_compared(tmp_path: Path) -> None:
    a = read_labels(save(tmp_path / "train.csv", {1: "lake"}))
    b = read_labels(save(tmp_path / "index.csv", {1: "lake"}))
    with pytest.raises(UsageError, match="A holds labels of train and B of index"):
        compare_labels(a, b)


def test_other_pages_of_the_same_id_are_counted(tmp_path: Path) -> None:
    urls = {"a": ("X_y", "Z"), "b": ("x%20y", "Other")}
    for name, (one, two) in urls.items():
        rows = f"1,http://commons.wikimedia.org/wiki/Category:{one},v,lake,natural\n"
        rows += f"2,https://commons.wikimedia.org/wiki/Category:{two},v,lake,natural\n"
        (tmp_path / f"{name}.csv").write_text(FULL + rows)
    found = compare_labels(read_labels(tmp_path / "a.csv"), read_labels(tmp_path / "b.csv"))
    assert found.other_page == 1


@pytest.mark.parametrize("levels", [("group", "class"), ("kind", "supercategory", "landmark")])
def test_classes_of_a_folder_are_compared_by_name(levels: tuple[str, ...], tmp_path: Path) -> None:
    """They are numbered by sorted name, so that a new one shifts the numbers of others."""
    groups = {"ant": "insect", "bee": "insect", "cat": "mammal"}
    sides = []
    for side, names in (("a", ["bee", "cat"]), ("b", ["ant", "bee", "cat"])):
        found = [("animal", groups[name], name)[-len(levels) :] for name in names]
        paths = [json.dumps(dict(zip(levels, path, strict=True))) for path in found]
        rows = {"split": "train", "landmark_id": range(len(names)), "path": paths}
        table = ARTIFACTS["hierarchy"]
        assert isinstance(table, Table)
        (tmp_path / side).mkdir()
        table.write(pd.DataFrame(rows), tmp_path / side / table.file)
        sides.append(read_labels(tmp_path / side))
    compared = compare_labels(*sides)
    columns = ["landmark_id", "label_a", "label_b", "change"]
    assert compared.landmarks[columns].values.tolist() == [
        [0, "insect", "insect", "same"],
        [1, "mammal", "mammal", "same"],
        [2, "", "insect", "added"],
    ]
    assert compared.noun == "class" and not compared.other_page
    assert compared.landmarks["class"].tolist() == ["bee", "cat", "ant"]


def save_classes(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["split,class_id,root,group,class", *rows, ""]))
    return path


def test_classes_of_a_release_are_compared_by_the_splits_of_their_images(tmp_path: Path) -> None:
    both = save_classes(
        tmp_path / "a.csv",
        "train; test,0,life,insect,ant", "validation,1,life,insect,bee", ",2,life,mammal,cat",
    )  # fmt: skip
    read = read_labels(both)
    numbers = {split: file.labels["landmark_id"].tolist() for split, file in read.items()}
    assert numbers == {"train": [0, 1, 2], "index": [0, 2]}  # "cat" has no images
    assert [*read_labels(both, "index")] == ["index"]
    train = save_classes(tmp_path / "train.csv", "train,7,life,insect,bee")
    found = compare_labels(read, read_labels(train))
    assert found.counts()["same"] == 1 and found.counts()["lost"] == 2
    with pytest.raises(InvalidData, match=r"train\.csv: no class of index; it has .* of train"):
        read_labels(train, "index")


def test_levels_that_one_side_lacks_are_named(tmp_path: Path) -> None:
    a = save_classes(tmp_path / "a.csv", "train,0,life,insect,ant", "train,1,life,mammal,cat")
    (tmp_path / "b.csv").write_text(
        "split,class_id,root,realm,family,class\n"
        "train,0,life,land,insect,ant\ntrain,1,Life,land,mammal,cat\n"
    )
    found = compare_labels(read_labels(a), read_labels(tmp_path / "b.csv"))
    assert found.levels == {"root": 1, "group / family": 2}
    assert found.levels_of_one == {"group": "A", "realm": "B", "family": "B"}


def test_a_folder_without_labels_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="no label file in it"):
        read_labels(tmp_path)
