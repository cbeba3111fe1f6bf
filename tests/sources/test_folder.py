import dataclasses
import json
import os
from pathlib import Path
from typing import cast

import pandas as pd
import pytest

from hgld.artifacts import ARTIFACTS, declared_table
from hgld.config import CollectOptions, LabelOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.sources.folder import collect, read_hierarchy
from tests.listening import heard
from tests.sources.made_set import checked

LABELS = (
    "path,order,family,species,split,author\n"
    "birds/m1.jpg,Anseriformes,Anatidae,mallard,train,Ann\n"
    "birds/m2.jpg,Anseriformes,Anatidae,mallard,index,\n"
    "birds/t1.jpg,Anseriformes,Anatidae,teal,evaluation,\n"
    "birds/r1.jpg,Passeriformes,Corvidae,raven,,\n"
)
Tables = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]


def write_folder(context: StageContext, labels: str = LABELS, extra: str = "") -> Path:
    """A folder with a file for each path of the labels, and one more."""
    folder = context.source.folder
    assert folder is not None
    (folder / "birds").mkdir(parents=True)
    (folder / "labels.csv").write_text(labels, encoding="utf-8")
    for name in ("m1", "m2", "t1", "r1", *extra.split()):
        (folder / f"birds/{name}.jpg").write_bytes(b"jpeg " + name.encode())
    return folder


def collected(context: StageContext, folder: Path, share: float = 0.0) -> Tables:
    tables = collect(folder, options=CollectOptions(evaluation_share=share), context=context)
    return cast(Tables, checked(tables))


def test_each_row_is_an_image_of_a_class_numbered_by_name(context: StageContext) -> None:
    folder = write_folder(context)
    _, images, queries, dropped = collected(context, folder)
    columns = ["image_id", "split", "landmark_id", "path", "offset", "size_bytes", "author"]
    assert images[columns].to_numpy().tolist() == [
        ["birds/m1.jpg", "train", 0, "birds/m1.jpg", 0, 7, "Ann"],
        ["birds/m2.jpg", "index", 0, "birds/m2.jpg", 0, 7, "unknown"],
        ["birds/t1.jpg", "evaluation", 2, "birds/t1.jpg", 0, 7, "unknown"],
        ["birds/r1.jpg", "train", 1, "birds/r1.jpg", 0, 7, "unknown"],
    ]
    assert len(queries) == len(dropped) == 0


@pytest.mark.parametrize("name", [".kept/m3.jpg", "birds/.m3.jpg"])
def test_a_row_of_a_hidden_photo_is_dropped_as_its_changes_are_not_seen(
    context: StageContext, name: str
) -> None:
    folder = write_folder(context, LABELS + f"{name},Anseriformes,Anatidae,mallard,train,\n")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"jpeg")
    _, images, _, dropped = collected(context, folder)
    assert name not in set(images["image_id"])
    assert dropped[["image_id", "reason", "detail"]].to_numpy().tolist() == [
        [name, "hidden", "a dot begins its name; labels.csv row 6"]
    ]


def test_a_class_stands_in_each_id_space_where_it_has_images(context: StageContext) -> None:
    landmarks, *_ = collected(context, write_folder(context))
    assert sorted(landmarks.to_numpy().tolist()) == [
        ["index", 0, "mallard", ""],
        ["train", 0, "mallard", ""],
        ["train", 1, "raven", ""],
        ["train", 2, "teal", ""],
    ]


def test_the_hierarchy_has_the_levels_of_the_csv(context: StageContext) -> None:
    folder = write_folder(context)
    landmarks, *_ = collected(context, folder)
    hierarchy, dropped = read_hierarchy(
        folder, landmarks, options=LabelOptions(source="folder"), context=context
    )
    paths = {(r["split"], r["landmark_id"]): json.loads(r["path"]) for _, r in hierarchy.iterrows()}
    assert list(paths[("train", 1)].items()) == [
        ("order", "Passeriformes"),
        ("family", "Corvidae"),
        ("species", "raven"),
    ]
    assert paths[("index", 0)] == paths[("train", 0)]
    assert len(dropped) == 0


@pytest.mark.parametrize("levels", [1, 2, 5])
def test_any_number_of_levels_will_do(levels: int, context: StageContext) -> None:
    names = [f"level {i}" for i in range(levels)]
    rows = [f"birds/{bird}.jpg," + ",".join(["x"] * (levels - 1) + [bird]) for bird in ("m1", "t1")]
    folder = write_folder(context, "\n".join(["path," + ",".join(names), *rows]) + "\n")
    landmarks, *_ = collected(context, folder)
    hierarchy, _ = read_hierarchy(folder, landmarks, options=LabelOptions(), context=context)
    assert [len(json.loads(path)) for path in hierarchy["path"]] == [levels, levels]


def test_missing_files_strangers_repeats_and_empty_labels_are_dropped(
    context: StageContext,
) -> None:
    more = (
        "birds/none.jpg,Anseriformes,Anatidae,teal,train,\n"
        "birds/m1.jpg,Anseriformes,Anatidae,mallard,train,\n"
        "birds/e1.jpg,Anseriformes,Anatidae, ,train,\n"
    )
    folder = write_folder(context, LABELS + more, extra="e1 s1")
    _, images, _, dropped = collected(context, folder)
    assert len(images) == 4
    assert {(r["image_id"], r["reason"], r["detail"]) for _, r in dropped.iterrows()} == {
        ("birds/none.jpg", "not in folder", "no such file; labels.csv row 6"),
        ("birds/m1.jpg", "duplicate", "again in labels.csv, first in row 2"),
        ("birds/e1.jpg", "empty label", "no species in labels.csv row 8"),
        ("birds/s1.jpg", "not in csv", "no row in labels.csv"),
    }


def test_a_class_with_an_empty_coarser_level_is_left_unlabelled(context: StageContext) -> None:
    folder = write_folder(context, LABELS.replace("Corvidae", ""))
    landmarks, *_ = collected(context, folder)
    hierarchy, dropped = read_hierarchy(
        folder, landmarks, options=LabelOptions(source="folder"), context=context
    )
    assert len(hierarchy) + len(dropped) == len(landmarks)
    assert dropped.to_numpy().tolist() == [
        ["train", 1, "empty label", "no family in labels.csv row 5"]
    ]


def test_row_numbers_count_blank_lines(context: StageContext) -> None:
    lines = LABELS.replace("Corvidae", "").splitlines(keepends=True)
    labels = "".join(["\n", lines[0], "\n", *lines[1:4], "  \n\n", *lines[4:]])
    folder = write_folder(context, labels + "\nbirds/r1.jpg,,,raven,,\n")
    landmarks, *_, dropped = collected(context, folder)
    assert dropped["detail"].tolist() == ["again in labels.csv, first in row 9"]
    _, dropped = read_hierarchy(folder, landmarks, options=LabelOptions(), context=context)
    assert dropped["detail"].tolist() == ["no family in labels.csv row 9"]
    (folder / "labels.csv").write_text(labels.replace("index", "indx"), encoding="utf-8")
    with pytest.raises(InvalidData, match="row 5: split is 'indx'"):
        collected(context, folder)


def test_a_class_that_the_csv_lost_is_told(context: StageContext) -> None:
    folder = write_folder(context)
    landmarks, *_ = collected(context, folder)
    (folder / "labels.csv").write_text(LABELS.replace("raven", "rook"), encoding="utf-8")
    _, dropped = read_hierarchy(folder, landmarks, options=LabelOptions(), context=context)
    assert dropped["reason"].tolist() == ["not in csv"]


def test_without_a_split_column_classes_are_held_out_by_name(context: StageContext) -> None:
    lines = [line.split(",")[:4] for line in LABELS.splitlines()]
    folder = write_folder(context, "\n".join(",".join(cells) for cells in lines) + "\n")
    _, images, _, _ = collected(context, folder, share=0.6)
    by_class = images.groupby("landmark_id")["split"].nunique()
    assert (by_class == 1).all()
    assert set(images["split"]) == {"train", "evaluation"}


def test_each_coarsest_class_gives_its_part_of_the_evaluation(context: StageContext) -> None:
    names = [f"{order}{n}" for order in "ab" for n in range(4)]
    rows = "".join(f"birds/{name}.jpg,{name[0]},{name}\n" for name in names)
    folder = write_folder(context, "path,order,species\n" + rows, " ".join(names))
    _, images, _, _ = collected(context, folder, share=0.5)
    held = images[images["split"] == "evaluation"]["image_id"]
    assert sorted(held.str[6]) == ["a", "a", "b", "b"]


def test_an_excluded_image_of_a_class_that_is_held_out_is_of_its_split(
    context: StageContext, tmp_path: Path
) -> None:
    names = [f"{label}{n}" for label in "abcd" for n in range(2)]
    rows = "".join(f"birds/{name}.jpg,{name[0]}\n" for name in names)
    folder = write_folder(context, "path,species\n" + rows, " ".join(names))
    (tmp_path / "list.csv").write_text("image_id\nbirds/b1.jpg\nbirds/c1.jpg\n")
    options = CollectOptions(evaluation_classes=["a", "b"], exclude=(tmp_path / "list.csv",))
    dropped = collect(folder, options=options, context=context)[3]
    excluded = dropped[dropped["reason"] == "excluded"]
    splits = dict(zip(excluded["image_id"], excluded["split"], strict=True))
    assert splits == {"birds/b1.jpg": "evaluation", "birds/c1.jpg": "train"}


def test_a_share_beside_a_column_split_is_refused(context: StageContext) -> None:
    with pytest.raises(UsageError, match=r"evaluation_share is set, but .*labels.csv has a column"):
        collected(context, write_folder(context), share=0.5)


def test_collect_reports_the_sizes_of_the_splits(context: StageContext) -> None:
    with heard() as notes:
        collected(context, write_folder(context))
    assert notes == [
        "train: 2 classes, 2 images; evaluation: 1 class, 1 image; index: 1 class, 1 image"
    ]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("path\nbirds/m1.jpg\n", "no level column"),
        ("file,species\nbirds/m1.jpg,mallard\n", "column 'path' is missing"),
        ("", "the file is empty"),
        ("path,species\n", r"labels\.csv: no rows below the header"),
        ("path,species\n,\n", r"labels\.csv: no rows below the header"),
        (LABELS.replace("raven,,", "raven,,,,"), r"labels\.csv row 5: 8 cells under 6 columns"),
        (LABELS.replace("Anatidae,mallard,index", ",mallard,index"),
         "row 3: family is empty, but species 'mallard' is under 'Anatidae' in row 2"),
        (LABELS.replace("Anatidae,mallard,train", ",mallard,train"),
         "row 2: family is empty, but species 'mallard' is under 'Anatidae' in row 3"),
        (LABELS.replace("Anatidae,teal", "Corvidae,teal"),
         "row 5: family 'Corvidae' is under order 'Passeriformes', but under 'Anseriformes' "
         "in row 4"),
        (LABELS + "birds/m9.jpg,Anseriformes,Gaviidae,mallard,train,\n",
         "row 6: species 'mallard' is under family 'Gaviidae', but under 'Anatidae' in row 2"),
        (LABELS.replace("evaluation", "evalution"),
         "row 4: split is 'evalution'; expected one of train, validation, evaluation, .*; "
         r"did you mean 'evaluation'\?"),
        (LABELS.replace("teal", "#N/A").replace("raven", "#NV"),
         "row 4: species is '#N/A', the error of a spreadsheet; row 5: species is '#NV', .*fill"),
        (LABELS.replace("birds/m1.jpg", "../m1.jpg"), r"row 2: path '\.\./m1\.jpg' is not within"),
        (LABELS.replace("birds/m1.jpg", "/etc/m1.jpg"), "row 2: path '/etc/m1.jpg' is not within"),
    ],
)  # fmt: skip
def test_labels_that_cannot_be_right_are_told(
    labels: str, message: str, context: StageContext
) -> None:
    folder = write_folder(context, labels)
    with pytest.raises(InvalidData, match=message) as caught:
        collected(context, folder)
    assert "\n" not in str(caught.value)


def test_all_faults_of_the_csv_are_told_at_once(context: StageContext) -> None:
    folder = write_folder(context, LABELS.replace("index", "indx").replace("evaluation", "eval"))
    with pytest.raises(InvalidData, match=r"row 3: split is 'indx'.*row 4: split is 'eval'"):
        collected(context, folder)


def test_pipes_links_and_stray_names_are_dropped_with_a_reason(context: StageContext) -> None:
    more = "birds/p1.jpg,Anseriformes,Anatidae,teal,train,\n"
    folder = write_folder(context, LABELS + more)
    os.mkfifo(folder / "birds/p1.jpg")
    os.mkfifo(folder / "birds/p2.jpg")
    (folder / "gone.jpg").symlink_to("nowhere")
    (folder / "loop").symlink_to(".")
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.jpg")).write_bytes(b"x")
    _, images, _, dropped = collected(context, folder)
    assert len(images) == 4
    assert {(r["image_id"], r["reason"], r["detail"]) for _, r in dropped.iterrows()} == {
        ("birds/p1.jpg", "not in folder", "a named pipe, not a file; labels.csv row 6"),
        ("birds/p2.jpg", "not a file", "a named pipe, not a file"),
        ("gone.jpg", "not a file", "a broken link"),
        ("loop", "not a file", "a link to a folder above it"),
        ("caf\\xe9.jpg", "name not UTF-8", "no list can name this file; rename it"),
    }
    ARTIFACTS["images_dropped"].write(dropped, folder / "dropped.parquet")  # type: ignore[union-attr]


def test_a_path_that_is_too_long_is_dropped(context: StageContext) -> None:
    folder = write_folder(context, LABELS + f"{'x' * 300}.jpg,Anseriformes,Anatidae,teal,train,\n")
    _, _, _, dropped = collected(context, folder)
    assert dropped["detail"].tolist() == ["File name too long; labels.csv row 6"]


@pytest.mark.parametrize("name", ["reason", "detail", "size_bytes"])
def test_a_level_may_have_the_name_of_a_column_of_hgld(name: str, context: StageContext) -> None:
    folder = write_folder(context, LABELS.replace("species", name))
    landmarks, images, _, _ = collected(context, folder)
    assert len(images) == 4
    assert set(landmarks["name"]) == {"mallard", "raven", "teal"}


def many(rows: list[str]) -> str:
    return "path,order,species\n" + "".join(f"birds/{i}.jpg,{row}\n" for i, row in enumerate(rows))


def fault_of(context: StageContext, labels: str) -> str:
    with pytest.raises(InvalidData) as caught:
        collected(context, write_folder(context, labels))
    return str(caught.value).partition("labels.csv: ")[2]


def test_a_wrong_split_of_many_rows_is_told_once(context: StageContext) -> None:
    labels = "path,species,split\n" + "".join(f"birds/{i}.jpg,teal,val\n" for i in range(1_200))
    assert fault_of(context, labels) == (
        "row 2: split is 'val' (as in 1,199 other rows); expected one of train, validation, "
        "evaluation, test, index; did you mean 'validation'?"
    )


def test_columns_that_run_fine_to_coarse_are_told_once(context: StageContext) -> None:
    fault = fault_of(context, many([f"teal{i},{'ab'[i % 2]}" for i in range(20)]))
    assert fault.count("is under") == 2
    assert fault.endswith(
        "a class has one parent; the columns seem to run fine to coarse: write them coarse to "
        "fine, path, species, order"
    )


def test_names_that_repeat_below_several_parents_are_told_with_the_option(
    context: StageContext,
) -> None:
    fault = fault_of(context, many([f"{order},class{i}" for i in range(9) for order in "ab"]))
    assert fault.count("is under") == 3 and "; and 6 more like these; a class has" in fault
    assert 'source.repeated_names = "qualify", which names them NAME (PARENT)' in fault


@pytest.mark.parametrize("name", ["Split", "URL"])
def test_a_column_that_only_capitals_make_a_level_is_refused(
    name: str, context: StageContext
) -> None:
    fault = fault_of(context, f"path,{name},species\nbirds/m1.jpg,train,teal\n")
    said = f"the column '{name}' would be a level; rename it to {name.lower()}, which is not one"
    assert fault == f"{said}, or give the level another name"


def test_rows_of_commas_are_blank_lines_and_a_row_without_path_is_named(
    context: StageContext,
) -> None:
    labels = "path,species\nbirds/m1.jpg,teal\n,\n,raven\n"
    assert fault_of(context, labels) == "row 4: path is empty"


@pytest.mark.parametrize("given", ["x (a)", "y"])
def test_a_qualified_name_that_another_class_has_is_refused(
    given: str, context: StageContext
) -> None:
    rows = ("m1.jpg,a,x", "m2.jpg,b,x", f"t1.jpg,a,{given}", "r1.jpg,,x")
    folder = write_folder(context, "path,order,species\n" + "".join(f"birds/{r}\n" for r in rows))
    source = context.source.model_copy(update={"repeated_names": "qualify"})
    context = dataclasses.replace(context, source=source)
    if given == "y":  # a class without a parent keeps its name
        assert set(collected(context, folder)[0]["name"]) == {"x (a)", "x (b)", "x", "y"}
        return
    with pytest.raises(
        InvalidData, match=r"row 2: species 'x' would be named 'x \(a\)', as another"
    ):
        collected(context, folder)


def test_repeated_names_may_be_qualified_by_their_parents(context: StageContext) -> None:
    rows = ("m1.jpg,a,x,s", "m2.jpg,b,x,s", "t1.jpg,b,y,s", "r1.jpg,b,y,t")
    labels = "path,order,family,species\n" + "".join(f"birds/{row}\n" for row in rows)
    folder = write_folder(context, labels)
    source = context.source.model_copy(update={"repeated_names": "qualify"})
    context = dataclasses.replace(context, source=source)
    landmarks, *_ = collected(context, folder)
    hierarchy, _ = read_hierarchy(folder, landmarks, options=LabelOptions(), context=context)
    assert [tuple(json.loads(path).values()) for path in hierarchy["path"]] == [
        ("a", "x (a)", "s (x (a))"),
        ("b", "x (b)", "s (x (b))"),
        ("b", "y", "s (y)"),
        ("b", "y", "t"),
    ]


@pytest.mark.parametrize(
    ("name", "twin"),
    [("caf\u00e9", "cafe\u0301"), ("a b", "a\u00a0b"), ("a b", "a  b"), ("ab", "a\u200bb")],
)
def test_names_that_look_the_same_are_refused(name: str, twin: str, context: StageContext) -> None:
    labels = LABELS.replace("mallard,train", f"{name},train").replace("mallard,index", f"{twin},")
    folder = write_folder(context, labels)
    with pytest.raises(InvalidData) as caught:
        collected(context, folder)
    assert f"row 3: species {twin!a} looks like {name!a} in row 2; write each" in str(caught.value)


def landmarks_and_notices(context: StageContext, folder: Path) -> tuple[pd.DataFrame, list[str]]:
    with heard() as said:
        landmarks, *_ = collected(context, folder)
    return landmarks, said


def test_names_that_differ_in_case_are_classes_of_their_own_and_printed(
    context: StageContext,
) -> None:
    folder = write_folder(context, LABELS.replace("mallard,index", "Mallard,index"))
    landmarks, said = landmarks_and_notices(context, folder)
    assert {"mallard", "Mallard"} <= set(landmarks["name"])
    assert "'mallard' (row 2) and 'Mallard' (row 3) differ in case" in said[0]


def test_names_that_are_one_number_are_classes_of_their_own_and_printed(
    context: StageContext,
) -> None:
    labels = LABELS.replace("mallard,train", "01,train").replace("mallard,index", "1.0,index")
    landmarks, said = landmarks_and_notices(context, write_folder(context, labels))
    assert {"01", "1.0"} <= set(landmarks["name"])
    assert said[0].endswith(
        "labels.csv: species '01' (row 2) and '1.0' (row 3) are one number; they are different "
        "classes: if one is meant, write one name"
    )


def test_names_that_differ_in_underscores_are_classes_of_their_own_and_printed(
    context: StageContext,
) -> None:
    context, folder = sub_folders(context, "red fox/a.jpg", "red_fox/b.jpg", "elk/c.png")
    landmarks, said = landmarks_and_notices(context, folder)
    assert landmarks["name"].tolist() == ["elk", "red fox", "red_fox"]
    assert "'red fox' (file red fox/a.jpg) and 'red_fox' (file red_fox/b.jpg) differ in" in said[0]


def test_images_without_a_class_are_counted_with_the_first_row(context: StageContext) -> None:
    more = "".join(f"birds/{name}.jpg,Anseriformes,Anatidae, ,train,\n" for name in ("e1", "e2"))
    folder = write_folder(context, LABELS + more, extra="e1 e2")
    _, said = landmarks_and_notices(context, folder)
    assert "2 images without a class, first labels.csv row 6; fill in species" in said
    context, folder = sub_folders(context, "elk/c.png", " /d.jpg")
    _, said = landmarks_and_notices(context, folder)
    assert said[1].startswith("1 image without a class, first ' /d.jpg'; move each into a folder")


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_quote_that_is_not_closed_is_reported(context: StageContext, line_end: str) -> None:
    rows = 'path,species\nbirds/m1.jpg,mallard\nbirds/t1.jpg,"teal\nbirds/r1.jpg,"raven\n'
    folder = write_folder(context, rows.replace("\n", line_end))
    landmarks, said = landmarks_and_notices(context, folder)
    assert any("1 row of labels.csv with a line break in species, first row 3" in s for s in said)
    table, path = declared_table("landmarks"), folder.with_name("landmarks.csv")
    table.write(landmarks, path)
    assert table.read(path)["name"].tolist() == ["mallard", "teal\nbirds/r1.jpg,raven"]


@pytest.mark.parametrize(
    ("rows", "what"),
    [(("teal,", "mallard,"), "class"), (("mallard,evaluation", "mallard,train"), "split")],
)
def test_an_image_in_rows_of_two_classes_or_splits_is_reported(
    context: StageContext, rows: tuple[str, str], what: str
) -> None:
    more = "".join(f"birds/m1.jpg,Anseriformes,Anatidae,{cells},\n" for cells in rows)
    _, said = landmarks_and_notices(context, write_folder(context, LABELS + more))
    named = f"1 row of labels.csv put an image into another {what} than a row above, first row 6;"
    assert [line for line in said if line.startswith(named)]
    assert sum("into another" in line for line in said) == 1


@pytest.mark.parametrize(
    ("header", "message"),
    [("path,a,a", "2 columns are called 'a'"), ("path,a,", "column 3 has no name")],
)
def test_every_level_has_a_name_of_its_own(
    header: str, message: str, context: StageContext
) -> None:
    folder = write_folder(context, f"{header}\nbirds/m1.jpg,x,y\n")
    with pytest.raises(InvalidData, match=message):
        collected(context, folder)


def test_blanks_behind_the_commas_of_a_header_are_in_no_level(context: StageContext) -> None:
    folder = write_folder(context, LABELS.replace(",", ", "))
    tables = collected(context, folder)
    assert tables[1]["split"].tolist() == ["train", "index", "evaluation", "train"]
    hierarchy, _ = read_hierarchy(folder, tables[0], options=LabelOptions(), context=context)
    assert [*json.loads(hierarchy["path"][0])] == ["order", "family", "species"]


@pytest.mark.parametrize("name", ["birds/NEW.JPG", "birds/new"])
def test_a_file_whose_name_has_other_capitals_or_an_ending_is_hinted_at(
    context: StageContext, name: str
) -> None:
    folder = write_folder(context, LABELS + f"{name},Anseriformes,Anatidae,teal,train,\n", "new")
    with heard() as notes:
        collected(context, folder)
    hint = "a file is there whose name looks almost the same: 'birds/new.jpg'"
    assert f"first {name} (no such file; labels.csv row 6; {hint}); images_dr" in " ".join(notes)


def test_a_cell_with_several_images_is_hinted_at(context: StageContext) -> None:
    folder = write_folder(context, 'path,class\n"birds/m1.jpg; birds/m2.jpg",mallard\n')
    with heard() as notes:
        collected(context, folder)
    assert "row 2; a cell with several images: write a row for each)" in notes[0]


def test_an_index_that_pandas_wrote_is_no_level(context: StageContext) -> None:
    folder = write_folder(context, "Unnamed: 0,path,class\n0,birds/m1.jpg,mallard\n")
    with pytest.raises(InvalidData, match="the column 'Unnamed: 0' is an index that pandas wrote"):
        collected(context, folder)


def test_a_file_whose_name_has_another_unicode_form_is_hinted_at(context: StageContext) -> None:
    folder = write_folder(
        context, LABELS + "birds/caf\u00e9.jpg,Anseriformes,Anatidae,teal,train,\n"
    )
    (folder / "birds/cafe\u0301.jpg").write_bytes(b"x")
    _, _, _, dropped = collected(context, folder)
    details = dict(zip(dropped["reason"], dropped["detail"], strict=True))
    assert r"name looks almost the same: 'birds/cafe\u0301.jpg'" in details["not in folder"]
    assert set(details) == {"not in folder", "not in csv"}


def test_photos_of_formats_that_are_not_read_are_reported(context: StageContext) -> None:
    files = ["owl/1.jpg", "owl/2.avif", "owl/3.HEIC", "owl/._3.HEIC", "owl/notes.txt"]
    context, folder = sub_folders(context, *files)
    with heard() as notes:
        _, images, _, dropped = collected(context, folder)
    assert images["path"].tolist() == ["owl/1.jpg", "owl/2.avif"]
    assert dropped[["image_id", "reason"]].to_numpy().tolist() == [["owl/3.HEIC", "unknown format"]]
    said = "1 photo in a format that hgld does not read, first owl/3.HEIC; convert them to JPEG"
    assert said in notes


def test_a_row_of_a_photo_that_is_not_read_is_dropped(context: StageContext) -> None:
    folder = write_folder(context, LABELS + "birds/4.HEIC,Anseriformes,Anatidae,teal,train,\n")
    (folder / "birds/4.HEIC").write_bytes(b"x")
    _, images, _, dropped = collected(context, folder)
    assert "birds/4.HEIC" not in set(images["path"])
    row = f"convert it to JPEG; labels.csv row {LABELS.count(chr(10)) + 1}"
    assert dropped[["reason", "detail"]].to_numpy().tolist() == [["unknown format", row]]


def sub_folders(context: StageContext, *files: str) -> tuple[StageContext, Path]:
    """A folder of these files without a CSV, and the context of a pipeline that names none."""
    folder = context.source.folder
    assert folder is not None
    for file in files:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"jpeg")
    source = context.source.model_copy(update={"labels_csv": ""})
    return dataclasses.replace(context, source=source), folder


def test_without_a_csv_the_first_folder_is_the_class(context: StageContext) -> None:
    context, folder = sub_folders(context, "red fox/a.jpg", "red fox/x/b.jpg", "elk/c.png", "d.jpg")
    landmarks, images, _, dropped = collected(context, folder)
    assert landmarks["name"].tolist() == ["elk", "red fox"]
    assert sorted(images["image_id"]) == ["elk/c.png", "red fox/a.jpg", "red fox/x/b.jpg"]
    assert dropped[["image_id", "reason"]].to_numpy().tolist() == [["d.jpg", "empty label"]]
    assert dropped["detail"].tolist() == ["no class in file d.jpg"]


def test_a_class_has_its_composed_name_and_its_files_keep_theirs(context: StageContext) -> None:
    context, folder = sub_folders(context, "cafe\u0301/a.jpg", "elk/b.jpg")
    landmarks, images, *_ = collected(context, folder)
    assert landmarks["name"].tolist() == ["caf\u00e9", "elk"]
    assert sorted(images["image_id"]) == ["cafe\u0301/a.jpg", "elk/b.jpg"]


def test_first_folders_named_as_splits_are_the_splits(context: StageContext) -> None:
    context, folder = sub_folders(context, "train/elk/a.jpg", "val/fox/b.jpg", "test/cod/c.jpg")
    landmarks, images, *_ = collected(context, folder)
    assert landmarks["name"].tolist() == ["cod", "elk", "fox"]
    assert sorted(images["split"]) == ["evaluation", "train", "validation"]


def test_splits_are_found_by_their_usual_names(context: StageContext) -> None:
    files = ("Train/elk/a.jpg", "training/elk/b.jpg", "valid/fox/c.jpg", "Testing/cod/d.jpg")
    context, folder = sub_folders(context, *files)
    landmarks, images, *_ = collected(context, folder)
    assert landmarks["name"].tolist() == ["cod", "elk", "fox"]
    assert sorted(images["split"]) == ["evaluation", "train", "train", "validation"]


def test_queries_and_gallery_are_test_and_index(context: StageContext) -> None:
    context, folder = sub_folders(context, "train/1/a.jpg", "query/2/b.jpg", "gallery/2/c.jpg")
    _, images, *_ = collected(context, folder)
    assert images.set_index("image_id")["split"].to_dict() == {
        "train/1/a.jpg": "train", "query/2/b.jpg": "test", "gallery/2/c.jpg": "index",
    }  # fmt: skip


@pytest.mark.parametrize("split", ["train/x/a.jpg", "train/x/a.jpg test/x/d.jpg"])
def test_a_folder_beside_splits_that_is_none_is_refused(split: str, context: StageContext) -> None:
    context, folder = sub_folders(context, *split.split(), "distractors/x/b.jpg")
    with pytest.raises(InvalidData, match=r"distractors: no split, but beside folders of splits"):
        collected(context, folder)


def test_a_class_may_be_named_as_a_split(context: StageContext) -> None:
    context, folder = sub_folders(context, "train/x/a.jpg", "tram/b.jpg")
    assert collected(context, folder)[0]["name"].tolist() == ["train", "tram"]


@pytest.mark.parametrize(
    ("files", "empty"),
    [
        (("elk/a.jpg", "lynx/b.svg"), ["lynx", "puma"]),
        (("train/elk/a.jpg", "val/elk/b.jpg", "val/lynx/b.txt", "notes/puma/c.txt"), ["val/lynx"]),
    ],
)
def test_class_folders_without_an_image_are_listed_and_named(
    files: tuple[str, ...], empty: list[str], context: StageContext
) -> None:
    context, folder = sub_folders(context, *files)
    (folder / "puma").mkdir()
    (folder / ".cache").mkdir()
    with heard() as notes:
        landmarks, _, _, dropped = collected(context, folder)
    assert set(landmarks["name"]) == {"elk"}
    rows = dropped[["image_id", "reason"]].to_numpy().tolist()
    assert rows == [[name, "no image"] for name in empty]
    one, two = "1 class without images: 'lynx'", "2 classes without images: 'lynx', 'puma'"
    start = f"{one if len(empty) == 1 else two}; add images, or delete the folder; "
    assert any(note.startswith(start) for note in notes)


def test_classes_whose_files_are_all_missing_are_named(context: StageContext) -> None:
    rows = "".join(f"birds/{name}.jpg,O,F,{name},train,\n" for name in "abcde")
    folder = write_folder(context, LABELS + rows, extra="e")
    with heard() as notes:
        *_, dropped = collected(context, folder)
    assert len(dropped) == 4
    named = "4 classes without images: 'a', 'b', 'c', 1 more"
    first = f"first labels.csv row {LABELS.count(chr(10)) + 1} (not in folder)"
    assert any(f"{named}; {first}; add its image, or delete the row; " in note for note in notes)


def test_paths_from_another_folder_are_reported_although_none_is_left(
    context: StageContext,
) -> None:
    folder = write_folder(context, LABELS.replace("birds/", "photos/birds/"))
    with heard() as notes:
        _, images, _, dropped = collected(context, folder)
    assert len(images) == 0 and len(dropped) == 8
    assert notes == [
        f"4 of 4 listed images not in {folder}, first photos/birds/m1.jpg (no such file; "
        "labels.csv row 2); "
        "images_dropped.parquet lists them"
    ]


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_rows_without_their_images_are_no_images_if_classes_are_held_out(
    context: StageContext, share: float
) -> None:
    folder = write_folder(context, "path,class\nphotos/m1.jpg,mallard\nphotos/t1.jpg,teal\n")
    landmarks, images, _, dropped = collected(context, folder, share)
    assert len(landmarks) == len(images) == 0
    assert dropped["reason"].tolist().count("not in folder") == 2


def test_missing_images_are_reported_before_too_few_classes_are_held_out(
    context: StageContext,
) -> None:
    folder = write_folder(context, "path,class\nbirds/m1.jpg,mallard\nphotos/t1.jpg,teal\n")
    with heard() as notes, pytest.raises(UsageError, match="of 1 class"):
        collected(context, folder, share=0.5)
    assert "1 of 2 listed images not in" in notes[0]


@pytest.mark.parametrize(
    ("name", "twin"), [("Caf\u00e9", "Cafe\u0301"), ("rose", " rose"), ("rose", "rose\u00a0")]
)
def test_class_folders_whose_names_look_the_same_are_refused(
    name: str, twin: str, context: StageContext
) -> None:
    context, folder = sub_folders(context, f"{name}/a.jpg", f"{twin}/b.jpg")
    with pytest.raises(InvalidData, match=r"class .* looks like .*; write each name in one way"):
        collected(context, folder)


def test_blanks_around_the_name_of_a_class_folder_do_not_count(context: StageContext) -> None:
    context, folder = sub_folders(context, " rose /a.jpg", "  /b.jpg", "c.jpg")
    landmarks, *_, dropped = collected(context, folder)
    assert landmarks["name"].tolist() == ["rose"]
    rows = dropped[["image_id", "reason"]].to_numpy().tolist()
    assert sorted(rows) == [["  /b.jpg", "empty label"], ["c.jpg", "empty label"]]


def test_a_folder_without_sub_folders_is_refused_with_what_to_do(context: StageContext) -> None:
    context, folder = sub_folders(context, "a.jpg")
    with pytest.raises(InvalidData, match=r"no image in a sub-folder; .*source\.labels_csv"):
        collected(context, folder)
