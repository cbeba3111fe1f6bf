import io
import json
import os
import pickle
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from hgld.artifacts import BOX, declared_table
from hgld.config import (
    CollectOptions,
    ExportOptions,
    INaturalistOptions,
    LabelOptions,
    SourceOptions,
    StageContext,
    load_pipeline,
)
from hgld.errors import InvalidData, UsageError
from hgld.pipeline.lock import Workspace
from hgld.pipeline.run import Runner
from hgld.shards.index import read_index
from hgld.shards.write import export_shards
from hgld.sources.native import collect, read_hierarchy
from hgld.sources.native.dyml import read_glued
from tests.listening import Notes, heard
from tests.sources.made_set import checked, folder_of
from tests.sources.native_sets import (
    photo,
    write_cub,
    write_dyml,
    write_ilias,
    write_in_shop,
    write_inaturalist,
    write_product,
    write_sfm_120k,
    write_sop,
    write_uned,
    write_vehicle_id,
    write_vggface2,
)

BIRDS = Path("labels/cub/classes.csv")
WRITERS: dict[str, Callable[[Path], Path]] = {
    "sop": write_sop,
    "cub": write_cub,
    "inaturalist": write_inaturalist,
    "dyml": write_dyml,
    "in_shop": write_in_shop,
    "vehicle_id": write_vehicle_id,
    "sfm_120k": write_sfm_120k,
    "vggface2": write_vggface2,
    "ilias": write_ilias,
    "uned": write_uned,
}
Paths = dict[tuple[str, int], dict[str, str]]
NINES = 19 * "9"  # no 64-bit integer


def of(kind: str, folder: Path, **options: object) -> StageContext:
    source = SourceOptions.model_validate(
        {"kind": kind, "folder": folder, "class_table": BIRDS.resolve(), **options}
    )
    return StageContext("2026-11-21", folder / "state", source, folder / "labels")


def collected(context: StageContext, **options: object) -> tuple[pd.DataFrame, ...]:
    """Each table of the source, seen to be what its artifact says."""
    given = CollectOptions.model_validate(options)
    return checked(collect(folder_of(context), options=given, context=context))


def paths_of(context: StageContext) -> Paths:
    folder = context.source.folder
    assert folder is not None
    landmarks = collected(context)[0]
    found, dropped = read_hierarchy(folder, landmarks, options=LabelOptions(), context=context)
    assert dropped.empty and len(found) == len(landmarks)
    rows = found.to_dict("records")
    return {(row["split"], row["landmark_id"]): json.loads(row["path"]) for row in rows}


def splits_of(context: StageContext, **options: object) -> dict[str, list[int]]:
    """Split -> its classes."""
    images = collected(context, **options)[1]
    return {str(s): sorted(g.unique()) for s, g in images.groupby("split")["landmark_id"]}


def test_products_of_the_two_ebay_files_are_the_two_sides(tmp_path: Path) -> None:
    context = of("sop", write_sop(tmp_path))
    assert splits_of(context) == {"train": [1, 2, 3, 4], "evaluation": [5, 6, 7, 8]}
    images = collected(context)[1].set_index("image_id")
    row = images.loc["coffee_maker_final/111085100001_2.JPG"]
    assert (row["split"], row["landmark_id"], row["path"]) == ("train", 1, row.name)
    assert row["size_bytes"] == (tmp_path / row["path"]).stat().st_size
    assert (images["license"] == "unknown").all() and len(images) == 32


def test_a_super_class_is_named_by_its_folder(tmp_path: Path) -> None:
    paths = paths_of(of("sop", write_sop(tmp_path)))
    assert list(paths["train", 1].items()) == [
        ("super_class", "coffee_maker"),
        ("product", "product 1"),
    ]
    assert paths["train", 8]["super_class"] == "bicycle"


def test_a_product_in_both_files_is_told(tmp_path: Path) -> None:
    folder = write_sop(tmp_path)
    trained = (folder / "Ebay_train.txt").read_text("utf-8").splitlines()[1]
    with (folder / "Ebay_test.txt").open("a", encoding="utf-8") as file:
        file.write(f"{trained}\n")
    says = r"Ebay_test\.txt line \d+: product 1 is searched for, but Ebay_train\.txt line 2 trains"
    with pytest.raises(InvalidData, match=says):
        collected(of("sop", tmp_path))


def test_a_category_without_a_genus_is_told(tmp_path: Path) -> None:
    folder = write_inaturalist(tmp_path)
    document = json.loads((folder / "train2018.json").read_text("utf-8"))
    document["categories"][0]["genus"] = None
    (folder / "train2018.json").write_text(json.dumps(document), "utf-8")
    says = r"train2018\.json: category 11 \('.*'\) has an empty genus \(1 of \d+ such categories\)"
    with pytest.raises(InvalidData, match=says):
        collected(of("inaturalist", folder, inaturalist={"levels": "full"}))
    assert paths_of(of("inaturalist", folder, inaturalist={"levels": "base"}))


def test_a_species_in_both_lists_is_told(tmp_path: Path) -> None:
    splits = write_inaturalist(tmp_path) / "Inat_dataset_splits"
    trained, tested = (splits / f"Inaturalist_{name}_set1.txt" for name in ("train", "test"))
    with tested.open("a", encoding="utf-8") as file:
        file.write(trained.read_text("utf-8").splitlines()[0] + "\n")
    says = r"test_set1\.txt line \d+: category 11 is searched for, but .*train_set1\.txt line 1 "
    with pytest.raises(InvalidData, match=says):
        collected(of("inaturalist", tmp_path))


def test_what_is_listed_and_not_there_or_there_and_not_listed_is_dropped(tmp_path: Path) -> None:
    folder = write_sop(tmp_path)
    (folder / "bicycle_final/111085100002_0.JPG").unlink()
    (folder / "bicycle_final/stranger.jpg").write_bytes(b"jpeg")
    (folder / "bicycle_final/stranger.webp").write_bytes(b"webp")
    path = folder / "Ebay_test.txt"
    lines = path.read_text("utf-8")
    path.write_text(lines + lines.splitlines()[1] + "\n", "utf-8")
    with heard() as said:
        _, images, _, dropped = collected(of("sop", folder))
    assert len(images) == 31
    assert said[1:] == [
        f"1 of 33 listed images not in {folder}, first bicycle_final/111085100002_0.JPG "
        "(Ebay_train.txt line 6); images_dropped.parquet lists them"
    ]
    assert sorted(dropped.to_numpy().tolist()) == [
        ["evaluation", "coffee_maker_final/111085100005_0.JPG", "duplicate",
         "again in Ebay_test.txt line 18, first in Ebay_test.txt line 2"],
        ["train", "bicycle_final/111085100002_0.JPG", "not in folder",
         "no such file; Ebay_train.txt line 6"],
        ["train", "bicycle_final/stranger.jpg", "not in list",
         "no line in Ebay_train.txt, Ebay_test.txt"],
        ["train", "bicycle_final/stranger.webp", "not in list",
         "no line in Ebay_train.txt, Ebay_test.txt"],
    ]  # fmt: skip


def test_the_first_half_of_the_birds_trains(tmp_path: Path) -> None:
    context = of("cub", write_cub(tmp_path))
    assert splits_of(context) == {"train": [1, 2, 3, 4], "evaluation": [5, 6, 7, 8]}
    landmarks, images, *_ = collected(context)
    assert landmarks["name"].tolist()[3] == "Groove billed Ani"
    assert images["image_id"].tolist()[0] == (
        "images/001.Black_footed_Albatross/Black_footed_Albatross_0000_0.jpg"
    )


def test_lines_of_birds_that_are_there_twice_count_once(tmp_path: Path) -> None:
    folder = write_cub(tmp_path)
    for name in ("classes.txt", "image_class_labels.txt"):
        text = (folder / name).read_text()
        (folder / name).write_text(text + text.splitlines()[0] + "\n")
    landmarks, images, _, dropped = collected(of("cub", folder))
    assert (len(landmarks), len(images), len(dropped)) == (8, 32, 0)
    assert len(paths_of(of("cub", folder))) == 8


def test_two_birds_of_one_name_have_their_numbers_behind_it(tmp_path: Path) -> None:
    folder = write_cub(tmp_path)
    text = (folder / "classes.txt").read_text().replace("2.Laysan_", "2.Black_footed_")
    (folder / "classes.txt").write_text(text)
    context = of("cub", folder)
    assert collected(context)[0]["name"].tolist()[:3] == [
        "Black footed Albatross 1", "Black footed Albatross 2", "Sooty Albatross",
    ]  # fmt: skip
    assert len({tuple(path.values()) for path in paths_of(context).values()}) == 8


def test_the_split_of_classification_has_all_birds_on_both_sides(tmp_path: Path) -> None:
    context = of("cub", write_cub(tmp_path), cub_split="images")
    assert splits_of(context) == {"train": [*range(1, 9)], "evaluation": [*range(1, 9)]}
    images = collected(context)[1]
    assert images["split"].tolist()[:4] == ["train", "evaluation"] * 2


def test_orders_and_families_come_from_the_table_of_classes(tmp_path: Path) -> None:
    paths = paths_of(of("cub", write_cub(tmp_path)))
    assert list(paths["train", 4].items()) == [
        ("order", "Cuculiformes"),
        ("family", "Cuculidae"),
        ("species", "Groove billed Ani"),
    ]
    assert paths["train", 1]["family"] == paths["train", 3]["family"] == "Diomedeidae"


def test_another_table_has_other_levels(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("class_id,size\n" + "".join(f"{i},big\n" for i in range(1, 9)), "utf-8")
    paths = paths_of(of("cub", write_cub(tmp_path), class_table=table))
    assert paths["train", 2] == {"size": "big", "species": "Laysan Albatross"}


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (
            "class_id,order,family\n1,a,f\n2,b,f\n",
            "row 3: family 'f' is under order 'b', but under",
        ),
        ("class_id,family,order\n1,f,a\n2,g,a\n", "row 3: order 'a' is under family 'g', but und"),
        ("class_id,name,order\n1,x,a\n2,y,a\n", "mine.csv: the column name cannot be a level; re"),
    ],
)
def test_a_table_of_classes_with_two_parents_or_names_is_told(
    table: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.csv").write_text(table, "utf-8")
    with pytest.raises(InvalidData, match=re.escape(says)):
        collected(of("cub", write_cub(tmp_path), class_table=tmp_path / "mine.csv"))


def test_the_shipped_table_has_a_path_for_each_of_the_200_species() -> None:
    table = pd.read_csv(BIRDS)
    assert table["class_id"].tolist() == list(range(1, 201))
    first = table[table["class_id"] <= 100]
    assert (table["order"].nunique(), table["family"].nunique()) == (13, 37)
    assert (first["order"].nunique(), first["family"].nunique()) == (13, 29)
    assert table.groupby("family")["order"].nunique().eq(1).all()


PIPELINE = """
labels = "labels"
[source]
kind = "{kind}"
folder = "files"
[scrape]
source = "names"
[embed]
encoder = "offline:minilm"
[cluster]
levels = ["supercategory"]
clusters = 2
"""


def test_birds_without_a_table_are_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "birds.toml"
    path.write_text(PIPELINE.format(kind="cub") + '[label]\nsource = "native"\n')
    with pytest.raises(UsageError, match=r"set it to labels/cub/classes\.csv"):
        load_pipeline(path)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("cub", "Sooty Albatross"), ("sop", "product 3"), ("in_shop", "id 00000003")],
)
def test_classes_of_a_native_set_become_a_reviewed_hierarchy(
    kind: str, name: str, tmp_path: Path
) -> None:
    WRITERS[kind](tmp_path / "files")
    path = tmp_path / "mine.toml"
    path.write_text(PIPELINE.format(kind=kind))
    (tmp_path / "labels").mkdir()
    taxonomy = "supercategory,kind,definition\nfirst,,\nother,,\n"
    (tmp_path / "labels" / "taxonomy.csv").write_text(taxonomy)
    runner = Runner(Workspace(path, load_pipeline(path), tmp_path / "work"), "2026-01-01", Notes())
    runner.run("clean")
    values = pd.read_csv(tmp_path / "work" / "values.csv")["instance_of"]
    assert len(values) == 8
    rows = [
        f"{value},label,keep,{'first' if value == name else 'other'},,Ann,2026-01-01,,,"
        for value in values
    ]
    columns = "key,key_type,decision,supercategory,kind,who,when,why,supersedes,evidence"
    (tmp_path / "labels" / "decisions.csv").write_text("\n".join([columns, *rows, ""]))
    runner.run("label")
    paths = pd.read_csv(tmp_path / "work" / "hierarchy.csv")["path"].map(json.loads)
    found = {(path["supercategory"], path["class"].replace("_", " ")) for path in paths}
    assert found == {("first" if value == name else "other", value) for value in values}


def test_species_of_the_two_lists_are_the_two_sides(tmp_path: Path) -> None:
    context = of("inaturalist", write_inaturalist(tmp_path))
    assert splits_of(context) == {"train": [11, 12, 13, 14], "evaluation": [15, 16]}


def test_both_json_files_say_who_took_a_photo(tmp_path: Path) -> None:
    images = collected(of("inaturalist", write_inaturalist(tmp_path)))[1]
    assert images["author"].tolist() == [f"Observer {i}" for i in range(24)]
    assert images["license"].tolist()[:2] == [
        "http://creativecommons.org/licenses/by-nc/4.0/",
        "http://creativecommons.org/licenses/by/4.0/",
    ]


def test_the_full_taxonomy_has_seven_levels(tmp_path: Path) -> None:
    paths = paths_of(of("inaturalist", write_inaturalist(tmp_path)))
    assert list(paths["train", 12].items()) == [
        ("kingdom", "Plantae"),
        ("phylum", "Tracheophyta"),
        ("class", "Magnoliopsida"),
        ("order", "Rosales"),
        ("family", "Rosaceae"),
        ("genus", "Rubus"),
        ("species", "Rubus species12"),
    ]


def test_the_base_taxonomy_has_the_supercategory_above_the_species(tmp_path: Path) -> None:
    base = INaturalistOptions(levels="base").model_dump()
    paths = paths_of(of("inaturalist", write_inaturalist(tmp_path), inaturalist=base))
    assert list(paths["train", 13].items()) == [
        ("supercategory", "Aves"),
        ("species", "Anas species13"),
    ]


def test_species_of_one_name_are_told_apart_by_their_number(tmp_path: Path) -> None:
    path = write_inaturalist(tmp_path) / "train2018.json"
    path.write_text(path.read_text("utf-8").replace("Rosa species11", "Rubus species12"), "utf-8")
    paths = paths_of(of("inaturalist", tmp_path))
    assert paths["train", 11]["species"] == "Rubus species12 11"
    assert paths["train", 12]["species"] == "Rubus species12 12"


def test_a_glued_header_loses_no_image(tmp_path: Path) -> None:
    path = tmp_path / "label.csv"
    path.write_text("fname, coarse_id, middle_id, fine_id0.jpg, 3, 17, 201\n1.jpg, 3, 18, 202")
    rows = read_glued(path, ("coarse_id", "middle_id", "fine_id"))
    assert rows.to_numpy().tolist() == [["0.jpg", 3, 17, 201, 1], ["1.jpg", 3, 18, 202, 2]]


def test_a_header_with_its_line_break_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "query.csv"
    path.write_text("fname,labels\n0.jpg,5\n\n")
    assert read_glued(path, ("labels",)).to_numpy().tolist() == [["0.jpg", 5, 2]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1: ''; expected to begin with fname, labels"),
        ("name, labels0.jpg, 5", "expected to begin with fname, labels"),
        ("fname, fine_id0.jpg, 5", "expected to begin with fname, labels"),
        ("fname, labels0.jpg, 5\n1.jpg", r"line 2: '1\.jpg'; expected fname, labels, and whole"),
        (
            f"fname, labels0.jpg, {NINES}",
            r"line 1: '0\.jpg, 9+'; expected fname, labels, and whole",
        ),
        ("fname, labels0.jpg, x", r"line 1: '0\.jpg, x'; expected fname, labels, and whole num"),
    ],
)
def test_a_csv_of_another_form_is_told(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "query.csv").write_text(text)
    with pytest.raises(InvalidData, match=says):
        read_glued(tmp_path / "query.csv", ("labels",))


def test_all_images_of_dyml_are_listed_and_a_query_only_once(tmp_path: Path) -> None:
    _, images, _, dropped = collected(of("dyml", write_dyml(tmp_path)))
    assert images.groupby("split").size().to_dict() == {
        "train": 32,
        **{f"index-{level}": 6 for level in ("coarse", "middle", "fine")},
        **{f"test-{level}": 2 for level in ("coarse", "middle", "fine")},
    }
    assert images["image_id"].tolist()[0] == "train/imgs/0.jpg"
    assert len(dropped) == 6 and set(dropped["reason"]) == {"is a query"}
    assert dropped.set_index("image_id")["detail"]["bmk_fine/gallery/4.jpg"] == (
        "bmk_fine/gallery.csv line 5 has the bytes of bmk_fine/query/1.jpg"
    )


def test_of_two_copies_of_a_query_one_stays_in_the_gallery(tmp_path: Path) -> None:
    folder = write_dyml(tmp_path) / "bmk_fine"
    (folder / "gallery/1.jpg").write_bytes((folder / "gallery/0.jpg").read_bytes())
    _, images, _, dropped = collected(of("dyml", tmp_path))
    fine = dropped[dropped["split"] == "index-fine"]
    assert fine["image_id"].tolist() == ["bmk_fine/gallery/0.jpg", "bmk_fine/gallery/4.jpg"]
    assert "bmk_fine/gallery/1.jpg" in set(images["image_id"])


def test_training_has_three_levels(tmp_path: Path) -> None:
    paths = paths_of(of("dyml", write_dyml(tmp_path)))
    assert list(paths["train", 5].items()) == [
        ("coarse", "coarse 1"),
        ("middle", "middle 2"),
        ("fine", "fine 5"),
    ]


def test_a_class_of_a_benchmark_stands_at_every_level(tmp_path: Path) -> None:
    context = of("dyml", write_dyml(tmp_path))
    paths = paths_of(context)
    tested = [tuple(path.values()) for (space, _), path in paths.items() if space == "index"]
    assert sorted(tested) == [
        (f"test {level} {label}",) * 3 for level in ("coarse", "fine", "middle") for label in (3, 7)
    ]
    images = collected(context)[1].set_index("image_id")
    query, found = images.loc["bmk_middle/query/1.jpg"], images.loc["bmk_middle/gallery/5.jpg"]
    assert query["landmark_id"] == found["landmark_id"] == 7 * 3 + 1
    assert (query["split"], found["split"]) == ("test-middle", "index-middle")


def test_products_are_tested_on_all_three_levels(tmp_path: Path) -> None:
    context = of("dyml", write_product(tmp_path))
    assert splits_of(context) == {"train": [*range(8)], "test": [*range(8)]}
    assert tuple(paths_of(context)["index", 5].values()) == (
        "test coarse 1",
        "test middle 2",
        "test fine 5",
    )


# ILIAS has nothing to train on, UnED its own validation.
@pytest.mark.parametrize("kind", [kind for kind in WRITERS if kind not in ("ilias", "uned")])
def test_classes_may_be_held_out_for_validation(kind: str, tmp_path: Path) -> None:
    context = of(kind, WRITERS[kind](tmp_path))
    before, after = splits_of(context), splits_of(context, validation_share=0.6)
    held = set(after.pop("validation"))
    assert held and held.isdisjoint(after["train"])
    assert held | set(after.pop("train")) == set(before.pop("train"))
    assert after == before


@pytest.mark.parametrize("seed", range(3))
def test_the_seed_draws_the_validation_of_a_set_of_one_level(seed: int, tmp_path: Path) -> None:
    context = of("vehicle_id", write_vehicle_id(tmp_path))
    order = sorted(range(1, 5), key=lambda n: sha256(f"{seed}:validation:{n}".encode()).digest())
    held = splits_of(context, validation_share=0.5, seed=seed)["validation"]
    assert held == sorted(order[:2])


@pytest.mark.parametrize("kind", WRITERS)
def test_an_evaluation_share_is_refused_since_the_split_is_given(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has its own evaluation split"):
        collected(of(kind, WRITERS[kind](tmp_path)), evaluation_share=0.2)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_folder_that_does_not_hold_the_data_set_is_told(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"no such file; expected .*; set source\.folder"):
        collected(of(kind, tmp_path))


def test_a_class_that_the_files_lost_is_told(tmp_path: Path) -> None:
    context = of("sop", write_sop(tmp_path))
    landmarks = collected(context)[0]
    path = tmp_path / "Ebay_test.txt"
    kept = [line for line in path.read_text("utf-8").splitlines() if " 8 1 " not in line]
    path.write_text("\n".join(kept) + "\n", "utf-8")
    found, dropped = read_hierarchy(tmp_path, landmarks, options=LabelOptions(), context=context)
    assert len(found) == 7
    assert dropped.to_numpy().tolist() == [
        ["train", 8, "not in list", "no line of the sop files has this class"]
    ]


def test_items_of_in_shop_have_a_category_of_their_department(tmp_path: Path) -> None:
    context = of("in_shop", write_in_shop(tmp_path))
    assert splits_of(context) == {
        "train": [1, 2, 3, 4],
        "test": [5, 6, 7, 8],
        "index": [5, 6, 7, 8],
    }
    assert collected(context)[1]["split"].value_counts().to_dict() == {
        "train": 16,
        "index": 12,
        "test": 4,
    }
    paths = paths_of(context)
    assert list(paths["index", 5].values()) == ["WOMEN", "WOMEN/Shorts", "id_00000005"]
    assert paths["index", 6]["category"] == "MEN/Shorts"


SOP = "image_id class_id super_class_id path\n"
SPECIES = "Inat_dataset_splits/Inaturalist_test_set1.txt"
ITEMS = "Eval/list_eval_partition.txt"
ITEM = "expected img/DEPARTMENT/CATEGORY/ID/PHOTO"
BENEATH = (
    r"line 3: class 1 .* super_class 'bicycle', but under 'coffee_maker' in Ebay_train\.txt line 2"
)
DAMAGED = {  # kind: (file, text to replace or "" for all, new text, message)
    "sop": [
        ("Ebay_train.txt", "", "id class_id\n", r"Ebay_train\.txt line 1: .*expected the header"),
        ("Ebay_train.txt", "", SOP, r"Ebay_train\.txt: no lines; expected "),
        ("Ebay_train.txt", "", SOP + "1 1 x.JPG\n", r"Ebay_train\.txt line 2: .* has 3 of 4 words"),
        ("Ebay_train.txt", "1 1 2 c", "1 one 2 c", r"Ebay_train\.txt line 2: .*whole numbers"),
        ("Ebay_train.txt", "2 1 2 c", "2 1 1 c", r"line 6: super class 1 has photos in 'bic"),
        ("Ebay_train.txt", "2 1 2 c", "2 1 1 bicycle_final/1.JPG\n99 1 2 c", BENEATH),
    ],
    "cub": [
        ("image_class_labels.txt", "", "1 1\n", r"image_class_labels\.txt: no line for image 2"),
        ("classes.txt", "", "1 001.A\n", r"classes\.txt: no line for class 2, which image 5"),
        ("classes.txt", "", "201 201.New\n", r"classes\.csv: no row for class 201 \(201\.New"),
        ("images.txt", "", "", r"images\.txt: no lines; expected id and path"),
        ("images.txt", "\n2 ", "\n1 ", r"images\.txt line 2: 1 is '001.*', but '001.*' in line 1;"),
        ("image_class_labels.txt", "\n2 1", "\n2 1\n2 3",
         r"image_class_labels\.txt line 3: 2 is '3', but '1' in line 2; expected id and class_id"),
        ("classes.txt", "1 001", "2 009.Other\n1 001", r"classes\.txt line 3: 2 is '002\."),
    ],
    "inaturalist": [
        ("train2018.json", "", "{", r"train2018\.json: not a JSON document"),
        ("train2018.json", "", '{"images": []}', "expected a JSON object with images and categori"),
        ("train2018.json", "", '{"images": [], "categories": [{"id": 1, "name": "a"}]}',
         "its categories have no 'kingdom'"),
        ("train2018.json", '"file_name"', '"path"',
         r"train2018\.json: its images or licenses are of another form \('file_name'\)"),
        ("val2018.json", '"licenses": [', '"licenses": [null, ', "images or licenses are of anoth"),
        (SPECIES, "", "train_val2018/Aves/99/a.jpg\n",
         r"set1\.txt line 1: 'train_val2018/Aves/99/a\.jpg' lies in the folder of no category"),
    ],
    "in_shop": [
        (ITEMS, "32\n", "33\n", r"line 1: '33', but the list has 32 lines; .* file is truncated"),
        (ITEMS, "image_name", "name", r"line 2: .*expected the header 'image_name item_id"),
        (ITEMS, "id_00000001 train", "id_00000002 train", r"line 3: .*the same ID"),
        (ITEMS, "id_00000001/00_1_front.jpg    id_00000001",
         f"id_{NINES}/00_1_front.jpg    id_{NINES}", f"line 3: .*{ITEM}"),
        (ITEMS, "id_00000001 train", "id_00000001 test", "line 3: .* one of train, query, gallery"),
        (ITEMS, "img/WOMEN/Shorts", "img/Shorts", f"line 3: .*{ITEM}"),
        (ITEMS, "id_00000001 train", "id_00000001 query",
         "line 3: item 1 is searched for, but .* line 4 "),
    ],
    "vehicle_id": [
        ("train_test_split/train_list.txt", "", "0000100\n", "line 1: '0000100' has 1 of 2 words"),
        ("train_test_split/test_list_800.txt", "0000500 5", "0000500 3",
         r"800\.txt line 1: vehicle 3 is searched for, but .*train_list\.txt line 9 trains on it"),
    ],
    "vggface2": [
        ("test_list.txt", "", "n000003/0001_01.jpg\n",
         r"identity 3 is searched for, but train_list\.txt line 5 trains"),
        ("test_list.txt", "", "/0001_01.jpg\n",
         r"test_list\.txt line 1: '/0001_01\.jpg'; expected IDENTITY/PHOTO"),
        ("test_list.txt", "", "test/n000001/0001_01.jpg\n",
         r"line 1: 'test/n000001/0001_01\.jpg'; expected IDENTITY"),
    ],
    "dyml": [
        ("train/label.csv", "", "0.jpg, 1, 2, 3\n", "expected to begin with fname"),
        ("train/label.csv", "", "fname, coarse_id, middle_id, fine_id0.jpg, 1\n",
         r"line 1: '0\.jpg, 1'; expected fname, coarse_id"),
    ],
    "sfm_120k": [
        ("retrieval-SfM-120k.pkl", "", "<html>", r"expected retrieval-SfM-120k\.pkl"),
    ],
    "ilias": [
        ("image_ids/positive_ids.txt", "", "", r"positive_ids\.txt: no lines; expected the ids"),
        ("image_ids/positive_ids.txt", "/pos/", "/query/", r"positive_ids\.txt line 1: .*/pos/PH"),
        ("image_ids/image_query_ids.txt", "_000/", "/", r"ids\.txt line 1: .*OBJECT_NUMBER/q"),
        ("taxonomy.json", "cozy_mib_225", "b_226", r"taxonomy\.json has no object 'cozy_m"),
        ("taxonomy.json", "}", "", r"taxonomy\.json: not a JSON document \("),
        ("taxonomy.json", '["bold_bimp_000"]', "7", r"taxonomy\.json: not the taxonomy \("),
    ],
    "uned": [
        ("info_files/cars/test.json", "", text, rf"test\.json{says}")
        for text, says in (
            ("[", r": not a JSON document \("),
            ("{}", ": no list of photos; expected one"),
            ('[{"path": "a.jpg"}]', r" entry 1: \{'path': 'a\.jpg'\}; expected a path"),
            ('[{"path": "../a.jpg", "class_id": 1}]', " entry 1: "),
            ('[{"path": "a.jpg", "class_id": -1}]', " entry 1: "),
            ('[{"path": "a.jpg", "class_id": []}]', " entry 1: "),
        )
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "file", "old", "new", "says"),
    [(kind, *case) for kind, cases in DAMAGED.items() for case in cases],
)
def test_a_damaged_list_is_one_line_that_says_what_to_do(
    kind: str, file: str, old: str, new: str, says: str, tmp_path: Path
) -> None:
    path = WRITERS[kind](tmp_path) / file
    text = path.read_bytes().decode("utf-8", "replace")
    assert old in text
    path.write_text(text.replace(old, new, 1) if old else new, "utf-8")
    with pytest.raises(InvalidData, match=says) as caught:
        collected(of(kind, tmp_path))
    done = "get (it|both|the (file|lists?)) again|unpack it|correct the line|add the "
    assert re.search(f"expected .*({done})", str(caught.value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("in_shop", "Eval/list_eval_partition.txt"),
        ("vehicle_id", "train_test_split/train_list.txt"),
        ("vggface2", "test_list.txt"),
        ("dyml", "train/label.csv"),
    ],
)
def test_a_list_that_is_not_text_is_one_clear_line(kind: str, file: str, tmp_path: Path) -> None:
    path = WRITERS[kind](tmp_path) / file
    path.write_text(path.read_text("utf-8"), "utf-16")
    with pytest.raises(InvalidData, match=r"not UTF-8 text; expected .*; unpack it again"):
        collected(of(kind, tmp_path))


def test_the_three_test_sets_of_vehicle_id(tmp_path: Path) -> None:
    folder = write_vehicle_id(tmp_path)
    small, medium, large = (
        splits_of(of("vehicle_id", folder, vehicle_id_test=size))
        for size in ("small", "medium", "large")
    )
    assert small == {"train": [1, 2, 3, 4], "evaluation": [5, 6]}
    assert medium == large == {"train": [1, 2, 3, 4], "evaluation": [5, 6, 7, 8]}
    dropped = collected(of("vehicle_id", folder))[3]
    assert (dropped["reason"] == "not in list").sum() == 8
    assert paths_of(of("vehicle_id", folder))["train", 5] == {"vehicle": "vehicle 5"}


def test_models_of_the_two_tables_of_sfm_are_different_landmarks(tmp_path: Path) -> None:
    context = of("sfm_120k", write_sfm_120k(tmp_path))
    assert splits_of(context) == {"train": [1, 2, 3, 4], "evaluation": [5, 6]}
    assert paths_of(context)["train", 1] == {"model": "train 1"}
    assert paths_of(context)["train", 5] == {"model": "val 1"}
    _, images, _, dropped = collected(context)
    assert dropped.empty and images["image_id"].iloc[17] == f"ims/01/00/00/1{1:039x}"


@pytest.mark.parametrize("kind", ["sfm_120k", "uned"])
def test_a_photo_that_is_trained_on_and_searched_for_is_refused(kind: str, tmp_path: Path) -> None:
    folder = WRITERS[kind](tmp_path)
    if kind == "sfm_120k":
        file = folder / "retrieval-SfM-120k.pkl"
        tables = pickle.loads(file.read_bytes())
        tables["val"]["cids"][2] = tables["train"]["cids"][0]
        file.write_bytes(pickle.dumps(tables))
    else:
        train, test = (folder / f"info_files/cars/{name}.json" for name in ("train", "test"))
        entries = json.loads(test.read_text()) + json.loads(train.read_text())[:1]
        test.write_text(json.dumps(entries))
    says = (
        r"line \d+: photo \S+ is searched for, but \S+.* line 1 trains on it; expected no photo on"
    )
    with pytest.raises(InvalidData, match=says):
        collected(of(kind, folder))


@pytest.mark.parametrize(
    ("side", "column", "value", "says"),
    [
        ("val", "cids", "../x", r"val\.cids\[0\] is '\.\./x'; expected a photo's id; get it again"),
        ("train", "cluster", "a", r"train\.cluster\[0\] is 'a'; expected a number; get it again"),
    ],
)
def test_a_table_of_sfm_with_another_content_is_named(
    tmp_path: Path, side: str, column: str, value: str, says: str
) -> None:
    file = write_sfm_120k(tmp_path) / "retrieval-SfM-120k.pkl"
    tables = pickle.loads(file.read_bytes())
    tables[side][column][0] = value
    file.write_bytes(pickle.dumps(tables))
    with pytest.raises(InvalidData, match=says):
        collected(of("sfm_120k", tmp_path))


def test_arrays_of_numpy_are_read_from_the_pickle_of_sfm(tmp_path: Path) -> None:
    file = write_sfm_120k(tmp_path) / "retrieval-SfM-120k.pkl"
    tables = pickle.loads(file.read_bytes())
    whole = splits_of(of("sfm_120k", tmp_path))
    for table in tables.values():
        table["cluster"] = np.array(table["cluster"])
    for protocol in (2, 4):
        file.write_bytes(pickle.dumps(tables, protocol))
        assert splits_of(of("sfm_120k", tmp_path)) == whole


class Command:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("false",)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            pickle.dumps({"train": Command()}),
            "it asks for posix.system, which is no data; expected",
        ),
        (pickle.dumps({"train": {"cids": []}}), "no lists of one length in train; expected"),
        (pickle.dumps({"train": {"cids": ["a"], "cluster": [1]}}), r"train.cids\[0\] is 'a'"),
        (
            pickle.dumps({"train": {"cids": ["a" * 40], "cluster": ["x"]}}),
            r"train.cluster\[0\] is 'x'; expected a number",
        ),
        (pickle.dumps({"train": {}})[:-5], "expected retrieval-SfM-120k.pkl"),
        (b"<html>", "expected retrieval-SfM-120k.pkl"),
        (b"", "expected retrieval-SfM-120k.pkl"),
    ],
)
def test_a_pickle_of_sfm_that_is_none_is_one_clear_line(
    content: bytes, says: str, tmp_path: Path
) -> None:
    (write_sfm_120k(tmp_path) / "retrieval-SfM-120k.pkl").write_bytes(content)
    with pytest.raises(InvalidData, match=rf"^[^\n]*{says}[^\n]*$"):
        collected(of("sfm_120k", tmp_path))


def test_identities_of_the_two_lists_are_the_two_sides(tmp_path: Path) -> None:
    context = of("vggface2", write_vggface2(tmp_path))
    assert splits_of(context) == {"train": [2, 3, 4, 5], "evaluation": [1, 9]}
    assert paths_of(context)["train", 9] == {"identity": "identity 000009"}


def tables_of(folder: Path, **options: object) -> tuple[pd.DataFrame, ...]:
    """Tables of VGGFace2, with the columns of boxes where they have them."""
    context = of("vggface2", folder, **options)
    return collect(folder, options=CollectOptions(), context=context)


def test_a_face_is_its_box_grown_by_the_published_margin(tmp_path: Path) -> None:
    images = tables_of(write_vggface2(tmp_path, boxes=True))[1]
    declared = declared_table("images")
    declared.write(images, tmp_path / "images.parquet")
    kept = declared.read(tmp_path / "images.parquet").set_index("image_id")
    assert list(kept) == [*list(declared.columns)[1:], *BOX]
    face, first = (kept.loc[f"train/n000002/{name}_01.jpg", list(BOX)] for name in ("0001", "0000"))
    assert face.tolist() == pytest.approx([7.0, 5.6, 33.0, 26.4])
    assert first.tolist() == pytest.approx([-8.6, -2.1, 48.6, 42.1])
    tight = tables_of(tmp_path, vggface2_margin=0)[1].set_index("image_id")
    assert tight.loc["test/n000009/0003_01.jpg", list(BOX)].tolist() == [10, 8, 30, 24]
    whole = tables_of(tmp_path, vggface2_boxes="none")[1]
    assert list(whole) == list(declared.columns)


def test_faces_are_cut_out_at_export_and_a_box_beside_its_photo_is_reported(tmp_path: Path) -> None:
    """Photos are of 48 x 40 pixels; the first box is larger than its photo."""
    file = write_vggface2(tmp_path, boxes=True) / "bb_landmark" / "loose_bb_train.csv"
    text = file.read_text("utf-8").replace('02/0002_01",10', '02/0002_01",99', 1)
    file.write_text(text, "utf-8")
    context = of("vggface2", tmp_path)
    landmarks, images, *_ = tables_of(tmp_path)
    hierarchy, _ = read_hierarchy(tmp_path, landmarks, options=LabelOptions(), context=context)
    out, options = tmp_path / "shards", ExportOptions(licenses=("unknown",))
    dropped = export_shards(
        tmp_path, images, hierarchy, options=options, context=context, out=out
    ).read()
    assert dropped["image_id"].tolist() == ["train/n000002/0002_01.jpg"]
    assert dropped["reason"].tolist() == ["box outside photo"]
    assert dropped["detail"][0].startswith("the box (96, 5.6, 122, 26.4) from left, top to right")
    index = read_index(out).set_index("image_id")
    assert len(index) == 23
    first = index.loc["train/n000002/0000_01.jpg"]
    assert (first["width"], first["height"]) == (48, 40)
    path = "train/n000002/0001_01.jpg"
    face = index.loc[path]
    sample = (out / face["shard"]).read_bytes()
    found = Image.open(io.BytesIO(sample[face["offset"] :][: face["size_bytes"]]))
    with Image.open(tmp_path / path) as photo:
        expected = np.asarray(photo.crop((7, 6, 33, 26)), np.float64)
    assert found.size == (face["width"], face["height"]) == (26, 20)
    assert np.abs(np.asarray(found, np.float64) - expected).mean() < 6
    facts = json.loads(sample[face["json_offset"] :][: face["json_size"]])
    assert (facts["orig_width"], facts["orig_height"]) == (48, 40)
    assert facts["changes"] == "cut out of the photo, JPEG quality 90"


TRAIN_BOXES = "bb_landmark/loose_bb_train.csv"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("NAME_ID,X", "NAME,X", r"column 'NAME_ID' is missing"),
        ('0001_01",10,8,20,16', '0001_01",10,8,20', r"loose_bb_train\.csv.* row 3"),
        ('0001_01",10,8', '0001_01",ten,8', r"row 3.*'ten'"),
        (
            '0001_01",10,8,20,16',
            '0001_01",10,8,0,16',
            r"row 3: 'n000002/0001_01' with X 10, Y 8, W 0, H 16; expected W and H above 0, and a ",
        ),
        (
            '0001_01",10,8,20,16',
            '0001_01",-30,8,20,16',
            r"row 3: .* X -30, .*a part of the box inside the photo; correct the row, or get the",
        ),
        ("n000002/0001_01", "n000002/0000_01", r"row 3: .*expected one row for each photo"),
        (
            '"n000002/0001_01",10,8,20,16\n',
            "",
            r"no row 'n000002/0001_01', which train_list\.txt line 2 lists \(1 such photos\); "
            r'.*source\.vggface2_boxes = "none"',
        ),
    ],
)
def test_a_wrong_row_of_boxes_is_told(old: str, new: str, says: str, tmp_path: Path) -> None:
    path = write_vggface2(tmp_path, boxes=True) / TRAIN_BOXES
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")
    with pytest.raises(InvalidData, match=says) as caught:
        tables_of(tmp_path)
    assert "\n" not in str(caught.value) and TRAIN_BOXES in str(caught.value)


def test_boxes_that_are_required_or_of_one_list_only_have_to_be_there(tmp_path: Path) -> None:
    says = r'loose_bb_train\.csv: no such file; expected the box .*vggface2_boxes = "none"'
    with pytest.raises(InvalidData, match=says):
        tables_of(write_vggface2(tmp_path), vggface2_boxes="required")
    (write_vggface2(tmp_path, boxes=True) / TRAIN_BOXES).unlink()
    with pytest.raises(InvalidData, match=says):
        tables_of(tmp_path)


def test_a_list_leaves_out_training_photos_but_none_of_the_evaluation(tmp_path: Path) -> None:
    folder = write_sop(tmp_path)
    listed = ["coffee_maker_final/111085100001_2.JPG", "coffee_maker_final/111085100005_0.JPG"]
    (tmp_path / "list.csv").write_text("image_id\n" + "\n".join(listed) + "\n")
    _, images, _, dropped = collected(of("sop", folder), exclude=[str(tmp_path / "list.csv")])
    assert set(listed) & set(images["image_id"]) == {listed[1]}
    assert dropped.to_numpy().tolist() == [["train", listed[0], "excluded", "in list.csv"]]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("", "names no training image of this data set"),
        ("coffee_maker_final/111085100001_2.JPG\n", "1 of 2 ids is of no training image here"),
    ],
)
def test_ids_of_a_list_that_are_of_no_training_photo_are_reported(
    more: str, says: str, tmp_path: Path
) -> None:
    folder = write_sop(tmp_path)
    listed = f"image_id\ncoffee_maker_final/111085100005_0.JPG\n{more}"
    (tmp_path / "list.csv").write_text(listed)
    with heard() as said:
        collected(of("sop", folder), exclude=[str(tmp_path / "list.csv")])
    assert f"list.csv: {says}" in said[0]


def test_a_sheet_of_classes_is_refused_since_it_names_no_images(tmp_path: Path) -> None:
    sheet = tmp_path / "suspects-classes.csv"
    sheet.write_text("decision,split,landmark_id,path,images\ndrop,train,1,a > b,3\n")
    with pytest.raises(InvalidData, match=r"path, images; expected a list of images with one of i"):
        collected(of("sop", write_sop(tmp_path)), exclude=[str(sheet)])


def test_a_sheet_with_decisions_leaves_out_what_a_person_drops(tmp_path: Path) -> None:
    folder, sheet = write_sop(tmp_path), tmp_path / "suspects.csv"
    trained = collected(of("sop", folder))[1].query("split == 'train'")["image_id"]
    first, second = sorted(trained)[:2]

    def dropped(decision: str) -> list[str]:
        sheet.write_text(f"decision,image_id\n{decision},{first}\n,{second}\n")
        return list(collected(of("sop", folder), exclude=[str(sheet)])[3]["image_id"])

    with heard() as said:
        assert dropped("") == []
    assert "no training image of this data set with drop in" in said[0]
    assert dropped("Drop") == [first]
    with pytest.raises(
        InvalidData, match=r"suspects\.csv row 2: the decision is 'wrong'; expected dr"
    ):
        dropped("wrong")
    with pytest.raises(InvalidData, match=r"s\.xlsx: a workbook; save its first sheet as CSV"):
        collected(of("sop", folder), exclude=[str(tmp_path / "s.xlsx")])


def test_objects_of_ilias_search_their_photos_among_distractors(tmp_path: Path) -> None:
    context = of("ilias", write_ilias(tmp_path))
    assert splits_of(context) == {"index": [0, 52, 225, 999, 1_000_000], "test": [0, 52, 225, 999]}
    images = collected(context)[1].set_index("image_id")
    assert len(images) == 4 * (1 + 3) + 2
    row = images.loc["yfcc100m_0000.tar/000001"]
    data = (tmp_path / row["path"]).read_bytes()[row["offset"] :][: row["size_bytes"]]
    assert data == photo(501)
    paths = paths_of(context)
    assert list(paths["index", 225].values()) == [
        "product", "product/food", "product/food/other", "cozy_mib_225",
    ]  # fmt: skip
    assert set(paths["index", 1_000_000].values()) == {"distractor"}


def test_texts_of_ilias_name_its_objects(tmp_path: Path) -> None:
    write_ilias(tmp_path)
    lines = ["bold_bimp_000/query/T000_00.txt", "cozy_mib_225/query/T225_00.txt"]
    for line in lines:
        (tmp_path / "ilias_core" / line).write_text(f"a thing,\n {line[:4]}\n", "utf-8")
    (tmp_path / "image_ids/text_query_ids.txt").write_text("\n".join(lines) + "\n")
    landmarks = collected(of("ilias", tmp_path))[0]
    names = landmarks.drop_duplicates("landmark_id").set_index("landmark_id")["name"].to_dict()
    assert names == {
        0: "a thing, bold", 52: "bright_biff_052", 225: "a thing, cozy", 999: names[999],
        1_000_000: "distractor",
    }  # fmt: skip
    (tmp_path / "ilias_core" / lines[0]).write_text(" \n")
    with pytest.raises(InvalidData, match=r"T000_00\.txt: empty"):
        collected(of("ilias", tmp_path))


def test_a_photo_of_ilias_in_no_list_is_dropped_without_the_names_of_all_tars(
    tmp_path: Path,
) -> None:
    (write_ilias(tmp_path) / "ilias_core/other.jpg").write_bytes(photo(1))
    dropped = collected(of("ilias", tmp_path))[3]
    assert dropped["detail"].tolist() == [
        "no line in image_ids/image_query_ids.txt, image_ids/positive_ids.txt"
    ]


def test_domains_of_uned_have_galleries_as_published(tmp_path: Path) -> None:
    context = of("uned", write_uned(tmp_path))
    images = collected(context)[1]
    counts = images.groupby("split").size().to_dict()
    assert counts == {"train": 18, "validation": 18, "evaluation": 9, "test": 9, "index": 9}
    classes = {split: set(rows["landmark_id"]) for split, rows in images.groupby("split")}
    assert classes["test"] == classes["index"]
    assert classes["evaluation"].isdisjoint(classes["train"] | classes["validation"])
    paths = paths_of(context)
    assert paths["train", 0] == {"domain": "cars", "class": "cars train 0"}
    assert {path["domain"] for key, path in paths.items() if key[0] == "index"} == {"met"}


@pytest.mark.parametrize(
    ("below", "before"), [("images", ""), ("", "images/"), ("images", "images/")]
)
def test_photos_of_uned_may_be_one_folder_deeper(below: str, before: str, tmp_path: Path) -> None:
    folder = write_uned(tmp_path / "set")
    if below:
        (folder / "images").rename(tmp_path / "images")
        (folder / "images").mkdir()
        (tmp_path / "images").rename(folder / "images" / below)
    for file in folder.rglob("*.json"):
        entries = json.loads(file.read_text("utf-8"))
        moved = [{**entry, "path": before + entry["path"]} for entry in entries]
        file.write_text(json.dumps(moved), "utf-8")
    _, images, _, dropped = collected(of("uned", folder))
    assert (len(images), len(dropped)) == (63, 0)


def test_a_folder_without_info_files_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidData, match=r"info_files/DOMAIN: no such file; expected a folder of cars"
    ):
        collected(of("uned", tmp_path))
