import re
import sys
from pathlib import Path
from typing import cast

import pandas as pd
import pytest

from hgld.artifacts import ARTIFACTS
from hgld.config import CollectOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.sources import gldv2
from hgld.sources.gldv2 import collect, name_landmark
from tests.listening import heard
from tests.sources.made_set import (
    FILES,
    OPTIONS,
    checked,
    folder_of,
    in_memory,
    write_set,
    write_tar,
)

Tables = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]


def options(**changes: object) -> CollectOptions:
    return OPTIONS.model_copy(update=changes)


def collected(context: StageContext, changes: CollectOptions = OPTIONS) -> Tables:
    """What collect returns, each table checked as the runner checks it."""
    found = collect(folder_of(context), options=changes, context=context)
    return cast(Tables, checked(in_memory(found)))


def drops(dropped: pd.DataFrame) -> dict[tuple[str, str], str]:
    return {(r["split"], r["image_id"]): r["reason"] for _, r in dropped.iterrows()}


def test_every_image_is_listed_with_its_landmark_and_split(context: StageContext) -> None:
    write_set(folder_of(context))
    _, images, _, dropped = collected(context)
    found = {(r["split"], r["image_id"]): r["landmark_id"] for _, r in images.iterrows()}
    assert found == {
        ("train", "0000000000000001"): 5,
        ("train", "00000000000000a2"): 5,
        ("train", "00000000000000a3"): 7,
        ("index", "b1"): 5,
        ("index", "b2"): 5,
        ("index", "b3"): 6,
        ("test", "c1"): 6,  # its first relevant image is b3
        ("test", "c3"): 5,
    }
    assert drops(dropped) == {
        ("train", "00000000000000a4"): "not clean",
        ("test", "c2"): "ignored query",
    }


def test_an_image_is_read_in_place_by_its_offset(context: StageContext) -> None:
    folder = write_set(folder_of(context))
    _, images, _, _ = collected(context)
    for _, row in images.iterrows():
        data = (folder / row["path"]).read_bytes()[row["offset"] :][: row["size_bytes"]]
        assert data == f"jpeg of {row['image_id']}".encode() * 50


def test_landmarks_of_both_spaces_have_readable_names(context: StageContext) -> None:
    write_set(folder_of(context))
    landmarks, _, _, _ = collected(context)
    names = {(r["split"], r["landmark_id"]): r["name"] for _, r in landmarks.iterrows()}
    assert names == {
        ("train", 5): "Café, Rome",
        ("train", 7): "O'Hara 100%25",  # unquoted once, not twice
        ("train", 9): "C++ tower",
        ("index", 5): "Other five",
        ("index", 6): "Six",
    }


def test_what_is_not_known_of_an_image_says_so(context: StageContext) -> None:
    write_set(folder_of(context))
    _, images, _, _ = collected(context)
    about = images.set_index("image_id")[["author", "license", "title", "url"]]
    assert list(about.loc["0000000000000001"]) == [
        "Mole, Ann", "CC BY 4.0", 'One "tower"', "http://a.example/1.jpg",
    ]  # fmt: skip
    assert list(about.loc["00000000000000a2"]) == ["unknown"] * 3 + ["https://a.example/2,_b.jpg"]
    assert list(about.loc["00000000000000a3"])[:3] == ["unknown", "CC0", "NA"]
    assert list(about.loc["b1"]) == ["unknown", "CC0 / public domain", "unknown", "unknown"]


def test_queries_keep_the_ignored_ones_with_nothing_relevant(context: StageContext) -> None:
    write_set(folder_of(context))
    _, _, queries, _ = collected(context)
    assert queries.to_numpy().tolist() == [
        ["c1", "Public", "b3 b1"],
        ["c2", "Ignored", ""],
        ["c3", "Private", "b1"],
    ]


def test_without_clean_only_all_train_images_are_taken(context: StageContext) -> None:
    write_set(folder_of(context))
    _, images, _, dropped = collected(context, options(clean_only=False))
    assert (images["split"] == "train").sum() == 4
    assert "not clean" not in set(dropped["reason"])


def test_the_clean_list_alone_is_enough(context: StageContext) -> None:
    write_set(folder_of(context), train__csv=None)
    _, images, _, dropped = collected(context, options(train_csv="", train_attribution_csv=""))
    train = images[images["split"] == "train"]
    assert len(train) == 3
    assert set(train["url"]) == {"unknown"}
    assert drops(dropped)[("train", "00000000000000a4")] == "not in csv"


def test_an_image_in_the_csv_but_in_no_tar_is_dropped(context: StageContext) -> None:
    write_set(folder_of(context), train_000__tar=["00000000000000a2"], test_000__tar=["c1", "c2"])
    _, images, _, dropped = collected(context)
    assert drops(dropped)[("train", "0000000000000001")] == "not in tar"
    assert drops(dropped)[("test", "c3")] == "not in tar"
    assert len(images) == 6


def test_an_image_in_a_tar_but_in_no_csv_is_dropped(context: StageContext) -> None:
    write_set(folder_of(context), index_000__tar=["b1", "b2", "b3", "b9"])
    *_, dropped = collected(context)
    row = dropped[dropped["image_id"] == "b9"].iloc[0]
    assert (row["split"], row["reason"], row["detail"]) == (
        "index",
        "not in csv",
        "in index_000.tar",
    )


def test_a_clean_image_that_train_csv_lacks_is_told(context: StageContext) -> None:
    write_set(folder_of(context), clean__csv=FILES["clean.csv"] + "9,00000000000000ff\n")
    *_, dropped = collected(context)
    assert drops(dropped)[("train", "00000000000000ff")] == "not in csv"


def test_what_stands_twice_is_taken_once_and_counted(context: StageContext) -> None:
    again = "b1,6\nb1,6\n"
    write_set(
        folder_of(context),
        index__csv=FILES["index.csv"] + again,
        index_000__tar=["b1", "b2", "b3", "b1"],
    )
    _, images, _, dropped = collected(context)
    assert list(images[images["image_id"] == "b1"]["landmark_id"]) == [5]
    row = dropped[dropped["image_id"] == "b1"].iloc[0]
    assert row["reason"] == "duplicate"
    assert (
        row["detail"] == "3 times: again in index.csv; again in index.csv; again in index_000.tar"
    )


def test_of_two_rows_of_a_training_image_the_first_one_counts(context: StageContext) -> None:
    again = "0000000000000001,http://b.example/1.jpg,"
    train, credit = FILES["train.csv"] + f"{again}5\n", FILES["attribution.csv"]
    write_set(folder_of(context), train__csv=train, attribution__csv=f"{credit}{again}Ben,CC0,B\n")
    _, images, _, dropped = collected(context)
    (row,) = images[images["image_id"] == "0000000000000001"].to_dict("records")
    assert (row["author"], row["url"]) == ("Mole, Ann", "http://a.example/1.jpg")
    assert drops(dropped)["train", "0000000000000001"] == "duplicate"


def test_evaluation_landmarks_share_no_image_with_training(context: StageContext) -> None:
    ids = [f"{i:04x}" for i in range(400)]
    rows = "".join(f"{image},u,{i // 4}\n" for i, image in enumerate(ids))
    write_set(folder_of(context), train__csv="id,url,landmark_id\n" + rows, train_000__tar=ids,
              train_001__tar=[])  # fmt: skip
    share = options(evaluation_share=0.3, train_clean_csv="", seed=4)
    _, images, _, _ = collected(context, share)
    train = set(images[images["split"] == "train"]["landmark_id"])
    held = set(images[images["split"] == "evaluation"]["landmark_id"])
    assert not train & held
    assert train | held == set(range(100))
    assert len(held) == 30


def test_choosing_options_takes_nothing_from_evaluation(context: StageContext) -> None:
    ids = [f"{i:04x}" for i in range(400)]
    rows = "".join(f"{image},u,{i // 4}\n" for i, image in enumerate(ids))
    write_set(folder_of(context), train__csv="id,url,landmark_id\n" + rows, train_000__tar=ids,
              train_001__tar=[])  # fmt: skip
    held = {}
    for validation in (0.0, 0.3):
        share = options(
            evaluation_share=0.3, validation_share=validation, train_clean_csv="", seed=4
        )
        _, images, _, _ = collected(context, share)
        held[validation] = images.groupby("split")["landmark_id"].agg(set).to_dict()
    assert held[0.0]["evaluation"] == held[0.3]["evaluation"]
    assert held[0.0]["train"] == held[0.3]["train"] | held[0.3]["validation"]
    assert len(held[0.3]["validation"]) == 21  # of the other 70


def test_landmarks_to_hold_out_may_be_listed_by_id(context: StageContext) -> None:
    ids = [f"{i:04x}" for i in range(12)]
    rows = "".join(f"{image},u,{i // 4}\n" for i, image in enumerate(ids))
    write_set(folder_of(context), train__csv="id,url,landmark_id\n" + rows, train_000__tar=ids,
              train_001__tar=[])  # fmt: skip
    listed = options(evaluation_classes=("0", "2"), train_clean_csv="")
    _, images, _, _ = collected(context, listed)
    held = images[images["split"] == "evaluation"]
    assert set(held["landmark_id"]) == {0, 2}


def test_any_white_space_separates_the_ids_of_the_clean_list(context: StageContext) -> None:
    cells = "\xa00000000000000001\u300000000000000000a2\u2003"
    write_set(folder_of(context), clean__csv=f"landmark_id,images\n5,{cells}\n")
    _, images, _, _ = collected(context)
    train = images[images["split"] == "train"]
    assert list(train["image_id"]) == ["0000000000000001", "00000000000000a2"]


def test_a_credit_of_any_white_space_is_unknown(context: StageContext) -> None:
    rows = "id,url,author,license,title\n00000000000000a3,,\u3000,\u2028,\u2003 \n"
    write_set(folder_of(context), attribution__csv=rows)
    _, images, _, _ = collected(context)
    about = images.set_index("image_id").loc["00000000000000a3"]
    assert list(about[["author", "license", "title"]]) == ["unknown"] * 3


def test_a_set_may_have_one_image(context: StageContext) -> None:
    write_set(folder_of(context), clean__csv="landmark_id,images\n7,00000000000000a3\n")
    absent = ("index_image_csv", "retrieval_solution_csv", "index_tars", "test_tars")
    part = options(**dict.fromkeys(absent, ""))
    _, images, _, _ = collect(folder_of(context), options=part, context=context)
    ARTIFACTS["images"].write(images, context.state / "images.parquet")
    assert len(pd.read_parquet(context.state / "images.parquet")) == 1


def test_the_index_may_have_a_landmark_with_number_minus_one(context: StageContext) -> None:
    write_set(folder_of(context), index__csv="id,landmark_id\nb1,-1\nb2,5\nb3,6\n")
    _, images, _, _ = collected(context)
    assert images.set_index("image_id").loc["c3", "landmark_id"] == -1


def test_files_that_are_not_part_of_the_set_are_left_out(context: StageContext) -> None:
    write_set(folder_of(context))
    absent = ("train_category_csv", "train_attribution_csv", "index_category_csv",
              "index_image_csv", "retrieval_solution_csv", "index_tars", "test_tars")  # fmt: skip
    part = options(**dict.fromkeys(absent, ""))
    landmarks, images, queries, _ = collected(context, part)
    assert landmarks.to_numpy().tolist() == [
        ["train", 5, "landmark 5", ""],
        ["train", 7, "landmark 7", ""],
    ]
    assert set(images["split"]) == {"train"}
    assert len(queries) == 0


def test_the_second_run_opens_no_tar(
    context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_set(folder_of(context))
    first = collected(context)
    monkeypatch.setattr(gldv2, "list_stems", None)
    second = collected(context)
    assert all(a.equals(b) for a, b in zip(first, second, strict=True))


def test_a_tar_that_changed_is_read_again(context: StageContext) -> None:
    folder = write_set(folder_of(context))
    collected(context)
    write_tar(folder / "train_000.tar", ["00000000000000a2"])
    *_, dropped = collected(context)
    assert drops(dropped)[("train", "0000000000000001")] == "not in tar"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train__csv": "id,landmark_id\na,1\n"}, r"train\.csv: column 'url' is missing"),
        ({"train__csv": ""}, r"train\.csv: the file is empty"),
        ({"train__csv": "id,url,landmark_id\na,u,x\n"}, r"row 2: landmark_id is 'x'; expected a w"),
        ({"train_category__csv": FILES["train_category.csv"] + "5,http://b.example\n"},
         r"train_category\.csv row 5: landmark_id 5 stands there twice"),
        ({"index__csv": None}, r"index\.csv: no such file"),
        ({"solution__csv": "id,images,Usage\n\nc1,zz b1,Public\n"},
         r"solution\.csv row 3: image zz is not in index\.csv"),
        ({"clean__csv": "landmark_id,images\n7,0000000000000001\n"},
         r"clean\.csv: image 0000000000000001 is under landmark 7, but train\.csv says 5"),
        ({"test_000__tar": None}, r"no tar matches 'test_\*\.tar'"),
    ],
)  # fmt: skip
def test_files_that_do_not_hold_what_they_should_are_told(
    context: StageContext, changes: dict[str, str | None], message: str
) -> None:
    write_set(folder_of(context), **changes)
    with pytest.raises(InvalidData, match=message) as caught:
        collected(context)
    assert "\n" not in str(caught.value)


def test_queries_without_index_landmarks_are_a_contradiction(context: StageContext) -> None:
    write_set(folder_of(context))
    with pytest.raises(UsageError, match=r"retrieval_solution_csv needs collect\.index_image_csv"):
        collected(context, options(index_image_csv="", index_tars=""))


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://commons.wikimedia.org/wiki/Category:Tweed_Heads,_New_South_Wales",
         "Tweed Heads, New South Wales"),
        ("http://commons.wikimedia.org/wiki/Category:A_%E2%80%94_B_%26_C", "A — B & C"),
        ("Category:Plain", "Plain"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_name_is_the_title_of_the_category(url: str, name: str) -> None:
    assert name_landmark(url) == name


def test_relevant_ids_of_no_index_image_are_printed(context: StageContext) -> None:
    cut = FILES["solution.csv"].replace("c3,b1,", "c3,b1 b,")
    write_set(folder_of(context), solution__csv=cut)
    with heard() as said:
        collected(context)
    assert "1 relevant id is of no index image, such as 'b' in row 4" in "".join(said)


def test_tars_without_members_change_no_image(context: StageContext) -> None:
    folder = write_set(folder_of(context))
    expected = collected(context)
    for part in ("index", "test"):
        write_tar(folder / f"{part}_.tar", [])  # read before the others
    for table, before in zip(collected(context), expected, strict=True):
        pd.testing.assert_frame_equal(table, before)


@pytest.mark.parametrize(
    ("option", "content", "dropped_by"),
    [
        ("exclude", "landmark_id\n5\n", "in list.csv"),
        ("exclude", "image_id,cosine\n0000000000000001,0.9\n00000000000000a2,1\n", "in list.csv"),
        (
            "exclude",
            "decision,image_id\nDrop ,0000000000000001\n,0000000000000002\ndrop,00000000000000a2\n",
            "in list.csv",
        ),
        (  # a sheet of classes, whose column images is their number
            "exclude",
            "decision,split,landmark_id,images\ndrop,train,5,2\n,train,7,3\ndrop,index,7,3\n",
            "in list.csv",
        ),
        ("only", "landmark_id,images\n7,00000000000000a3 00000000000000a4\n", "not in list.csv"),
    ],
)
def test_a_list_leaves_training_images_out(
    option: str, content: str, dropped_by: str, context: StageContext, tmp_path: Path
) -> None:
    write_set(folder_of(context))
    path = tmp_path / "list.csv"
    path.write_text(content)
    _, images, _, dropped = collected(context, options(**{option: (path,)}))
    assert (images["split"] == "train").sum() == 1 and (images["split"] == "index").sum() == 3
    assert drops(dropped)["train", "00000000000000a4"] == "not clean"
    of_list = dropped[dropped["reason"] == "excluded"]
    assert of_list[["image_id", "detail"]].to_numpy().tolist() == [
        ["0000000000000001", dropped_by],
        ["00000000000000a2", dropped_by],
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("landmark_id\n99\n", "names no training image of this data set"),
        ("id\n0/0/0/0000000000000001.jpg\n", "names no training image of this data set"),
        ("id\n0000000000000001\nnone\n", "1 of 2 ids is of no training image here"),
    ],
)
def test_ids_of_a_list_that_are_of_no_image_are_reported(
    content: str, says: str, context: StageContext, tmp_path: Path
) -> None:
    write_set(folder_of(context))
    (tmp_path / "list.csv").write_text(content)
    with heard() as said:
        collected(context, options(exclude=(tmp_path / "list.csv",)))
    assert f"list.csv: {says}" in said[0]


SINCE_3_13 = pytest.mark.skipif(sys.version_info >= (3, 13), reason="a pattern from Python 3.13 on")


@pytest.mark.parametrize(
    "pattern", ["/data/train/*.tar", pytest.param("train/**.tar", marks=SINCE_3_13)]
)
def test_a_pattern_that_is_none_is_a_usage_error(pattern: str, context: StageContext) -> None:
    write_set(folder_of(context))
    with pytest.raises(UsageError, match=re.escape(f"'{pattern}' is no pattern below")):
        collected(context, options(train_tars=pattern))


def test_a_list_without_a_column_of_images_is_told(context: StageContext, tmp_path: Path) -> None:
    write_set(folder_of(context))
    (tmp_path / "list.csv").write_text("gid,name\n5,x\n")
    with pytest.raises(InvalidData, match=r"list\.csv: its columns are gid, name; expected .*imag"):
        collected(context, options(exclude=(tmp_path / "list.csv",)))
