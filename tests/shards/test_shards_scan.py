import io
import json
import os
import shlex
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import webdataset

from hgld.cli import app, guarded
from hgld.errors import InvalidData, MissingInput, UsageError
from hgld.shards import read_index, read_manifest, verify_shards
from hgld.shards.batches import plan_epoch
from hgld.shards.contents import count_shards, list_shards, read_sample
from hgld.shards.foreign import index_shards
from hgld.shards.read import ShardImages
from hgld.shards.sampling import BatchOptions, Samples
from hgld.shards.shard import copy_samples
from hgld.shards.tar import scan_tar
from tests.listening import heard
from tests.shards.shard_world import World, draw, put_index

SIZES = [0, 1, 511, 512, 513, 70_000, 3_000_000, 5]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_are_found_where_tarfile_finds_them(tmp_path: Path, form: int) -> None:
    path = tmp_path / "any.tar"
    with tarfile.open(path, "w", format=form) as tar:
        for i, size in enumerate(SIZES):
            long = "folder/" * (20 if form != tarfile.USTAR_FORMAT and i % 2 else 1)
            info = tarfile.TarInfo(f"{long}n\u00e4me{i}.jpg" if i else "a/" + "b" * 95)
            info.size = size
            tar.addfile(info, io.BytesIO(bytes([i + 1]) * size))
        tar.addfile(tarfile.TarInfo("last.json"))
    with tarfile.open(path) as tar:
        expected = [(m.name, m.offset, m.offset_data, m.size) for m in tar]
    assert [tuple(m) for m in scan_tar(path)] == expected


def test_an_archive_without_end_blocks_is_read(tmp_path: Path, world: World) -> None:
    shard = next(world.export()[0].glob("train-*.tar"))
    whole = list(scan_tar(shard))
    end = whole[-1].offset + whole[-1].size_bytes
    (tmp_path / "cut.tar").write_bytes(shard.read_bytes()[:end])
    assert list(scan_tar(tmp_path / "cut.tar", end_mark=False)) == whole


def test_an_archive_that_ends_inside_a_member_is_an_error(tmp_path: Path, world: World) -> None:
    shard = next(world.export()[0].glob("train-*.tar"))
    (tmp_path / "cut.tar").write_bytes(shard.read_bytes()[:600])
    with pytest.raises(InvalidData, match=r"cut\.tar: the tar is cut short at byte 600, inside"):
        list(scan_tar(tmp_path / "cut.tar"))


def test_what_is_no_tar_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"\x89PNG" * 500)
    with pytest.raises(InvalidData, match=r"x\.tar: not a tar header at byte 0"):
        list(scan_tar(tmp_path / "x.tar"))


def with_size(shard: Path, field: bytes) -> bytes:
    """A tar whose first header has another size, and the right checksum."""
    header = bytearray(shard.read_bytes())
    header[124:136], header[148:156] = field, b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    return bytes(header)


@pytest.mark.parametrize(
    "field", [b"\xff" * 12, b"\xff" * 10 + b"\xfe\0", b"\x80" + b"\xff" * 11, b"-0000000512\0"]
)
def test_a_size_that_is_negative_or_beyond_all_files_is_no_header(
    tmp_path: Path, world: World, field: bytes
) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(with_size(next(world.export()[0].glob("train-*.tar")), field))
    with pytest.raises(
        InvalidData, match=r"x\.tar: (no size in the tar header at byte 0|the tar is cut)"
    ):
        list(scan_tar(path))


def test_a_header_with_a_flipped_bit_is_no_header(tmp_path: Path, world: World) -> None:
    shard = bytearray(next(world.export()[0].glob("train-*.tar")).read_bytes())
    shard[3] ^= 1
    (tmp_path / "x.tar").write_bytes(shard)
    with pytest.raises(InvalidData, match=r"x\.tar: not a tar header at byte 0"):
        list(scan_tar(tmp_path / "x.tar"))


@pytest.mark.parametrize(
    "records", [b"0 path=a\n", b"999 path=a\n", b"path", b"99999999999999 p=a\n"]
)
def test_pax_records_that_cannot_be_read_are_named(tmp_path: Path, records: bytes) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        info = tarfile.TarInfo("pax")
        info.type, info.size = tarfile.XHDTYPE, len(records)
        tar.addfile(info, io.BytesIO(records))
        tar.addfile(tarfile.TarInfo("a.jpg"))
    with pytest.raises(InvalidData, match=r"x\.tar: not a PAX header at byte 0"):
        list(scan_tar(tmp_path / "x.tar"))


def test_a_size_above_8_gb_in_pax_is_read(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("a.jpg")
        info.pax_headers = {"size": "9000000000"}
        tar.addfile(info)
    with pytest.raises(
        InvalidData, match=r"cut short at .*, inside 'a.jpg' that ends at byte 9000001536"
    ):
        list(scan_tar(tmp_path / "x.tar"))


@pytest.mark.parametrize("name", [b"\xff.jpg", b"a\nb.jpg"])
def test_a_name_that_cannot_be_printed_is_refused(tmp_path: Path, name: bytes) -> None:
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo(name.decode(errors="surrogateescape")))
    with pytest.raises(InvalidData, match=r"x\.tar: byte 0: the member's name '.*' is not UTF-8"):
        index_shards(tmp_path)


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Shards as webdataset's own ShardWriter makes them, classes mixed."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    with webdataset.ShardWriter(str(folder / "photos-%06d.tar"), maxcount=9, verbose=0) as sink:
        for i in range(30):
            known = {"animal": f"animal{i % 5}", "family": f"family{i % 5 // 2}"}
            sink.write({"__key__": f"s{i:03d}", "jpg": draw(i), "json": known, "cls": i % 5})
    return folder


def test_a_foreign_webdataset_gives_exact_batches(foreign: Path) -> None:
    index = index_shards(foreign)
    assert read_index(foreign).equals(index) and len(index) == 30
    verify_shards(foreign)
    plan = plan_epoch(Samples.of_index(index), BatchOptions(4, 3), seed=0, epoch=0)
    assert all(np.bincount(index["level_1"].to_numpy()[b]).max() == 3 for b in plan)
    images = ShardImages(foreign, index, lambda image: image)  # type: ignore[arg-type,return-value]
    assert images.read_bytes(0) == draw(int(index["key"][0][1:]))


def test_classes_of_a_foreign_index_that_are_not_those_of_the_tars_are_found(foreign: Path) -> None:
    index = index_shards(foreign, levels=("family", "animal"))
    put_index(foreign, index.assign(level_1=2 - index["level_1"]))
    with pytest.raises(InvalidData, match=r"key s000: level_1 is 0 in the shard, but 2 in index"):
        verify_shards(foreign)


def test_a_foreign_hierarchy_comes_from_the_json(foreign: Path) -> None:
    index = index_shards(foreign, levels=("family", "animal"))
    pairs = index.groupby("level_2")["level_1"].nunique()
    assert (pairs == 1).all() and index["level_1"].nunique() == 3 and len(pairs) == 5


def test_classes_whose_names_are_one_number_are_reported(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x-0.tar", "w") as tar:
        for number, label in enumerate(("1", "1.0", "01", "2.50", "2.5", "10", "-1", "1.1")):
            for suffix, data in (("jpg", draw(number, (4, 3))), ("cls", label.encode())):
                info = tarfile.TarInfo(f"{number}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    with heard() as notes:
        index = index_shards(tmp_path)
    assert index["level_1"].nunique() == 8
    assert notes == [
        "class '01', '1' and '1.0' are one number, and 1 more like these; they are different "
        "classes: if one is meant, write one name"
    ]


def test_levels_from_fine_to_coarse_are_reported(foreign: Path) -> None:
    with heard() as notes:
        index_shards(foreign, levels=("family", "animal"))
        assert notes == []
        index_shards(foreign, levels=("animal", "family"))
    assert notes == [
        "the levels seem to run fine to coarse: each animal has one family, but family 'family0' "
        "is below several; give them coarse to fine"
    ]


def test_a_foreign_sample_without_class_is_named(foreign: Path) -> None:
    with pytest.raises(InvalidData, match=r"photos-000000\.tar: key s000: no class; .* species"):
        index_shards(foreign, levels=("species",))


def write_tar(path: Path, names: str, known: bytes = b"0") -> None:
    """Members of these names, with an image or what is known of one."""
    with tarfile.open(path, "w") as tar:
        for name in names.split():
            data = draw(0) if name.endswith("jpg") else known
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize(
    ("names", "known", "levels", "says"),
    [
        ("a.jpg b.jpg b.cls", b"0", (), "key a: no class"),
        ("a.jpg b.jpg b.cls a.cls", b"0", (), "key a: its members stand apart, or twice; pack the"),
        ("a.jpg a.cls b.jpg b.cls a.jpg a.cls", b"0", (), "key a: its members stand apart"),
        ("a.jpg a.cls a.jpg a.cls", b"0", (), "key a: a member stands twice"),
        ("a.jpg a.cls", b" ", (), r"key a: no class; expected a \.cls member that is not empty"),
        ("a.jpg a.json", b'{"g": ""}', ("g",), "key a: no class; expected the JSON keys g, not"),
        ("a.jpg a.json", b'{"g": NaN}', ("g",), "key a: no class; expected the JSON keys g, not e"),
        ("a.jpg a.json", b'{"G": 1}', ("g",), ".* keys g, not empty; its JSON has G; --skip"),
        ("a.jpg a.json", b'{"g": 1}', (), r".* keys of the JSON \(--level\); its JSON has g; --"),
        ("a.jpg a.json", b'{"g": ["x", "y"]}', ("g",), "key a: the JSON key g holds several value"),
    ],
)
def test_a_sample_that_is_not_whole_is_named(
    tmp_path: Path, names: str, known: bytes, levels: tuple[str, ...], says: str
) -> None:
    write_tar(tmp_path / "x-0.tar", names, known)
    with pytest.raises(InvalidData, match=rf"x-0\.tar: {says}"):
        index_shards(tmp_path, levels)


@pytest.mark.parametrize(
    ("suffix", "texts"),
    [
        ("json", (b'{"g": 3}', b'{"g": 3.0}', b'{"g": "3"}', b'{"g": " 3 "}')),
        ("cls", (b"3", b"3\r\n", b"\xef\xbb\xbf3")),
    ],
)
def test_one_class_in_other_writing_is_one_class(
    tmp_path: Path, suffix: str, texts: tuple[bytes, ...]
) -> None:
    for number, text in enumerate((*texts, texts[0].replace(b"3", b"3.5"))):
        write_tar(tmp_path / f"x-{number}.tar", f"{number}.jpg {number}.{suffix}", text)
    index = index_shards(tmp_path, ["g"] if suffix == "json" else [])
    assert index["level_1"].tolist() == [0] * len(texts) + [1]
    verify_shards(tmp_path)


def test_both_unicode_forms_of_a_name_are_one_class(tmp_path: Path) -> None:
    """macOS decomposes names of folders, from which classes are taken."""
    for number, name in enumerate(("caf\u00e9", "cafe\u0301")):
        write_tar(tmp_path / f"x-{number}.tar", f"{number}.jpg {number}.cls", name.encode())
    assert index_shards(tmp_path)["level_1"].tolist() == [0, 0]
    levels = hierarchy_of(tmp_path, "class,kind,name\ncafe\u0301,house,Caf\u00e9\n")
    assert index_shards(tmp_path, hierarchy=levels)["level_2"].tolist() == [0, 0]
    verify_shards(tmp_path)


def test_a_json_of_other_things_may_be_any_json(tmp_path: Path) -> None:
    write_tar(tmp_path / "x-0.tar", "a.jpg a.cls", b"3")
    write_tar(tmp_path / "x-1.tar", "b.jpg b.json b.cls", b"[1, 2]")
    assert index_shards(tmp_path)["image_id"].tolist() == ["a", "b"]
    verify_shards(tmp_path)
    with pytest.raises(InvalidData, match="key b: its JSON is not an object with keys"):
        index_shards(tmp_path, ["g"], skip_unlabelled=True)


def hierarchy_of(folder: Path, rows: str) -> Path:
    path = folder.parent / "levels.csv"
    path.write_text(rows)
    return path


def test_a_hierarchy_gives_the_levels_of_each_class(foreign: Path) -> None:
    rows = "".join(f"{i},family{i // 2},animal{i}\n" for i in range(5))
    levels = hierarchy_of(foreign, f"class,family,animal\n{rows}")
    index = index_shards(foreign, hierarchy=levels)
    levels.unlink()  # a copy is beside the tars
    verify_shards(foreign)
    expected = index_shards(foreign, levels=("family", "animal"))
    assert index.equals(expected)
    assert [*pd.read_csv(foreign / "classes.csv")["level"].unique()] == [1, 2]
    assert not (foreign / "index_rules.json").exists()  # of the index before
    verify_shards(foreign)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("class,animal\n0,a\n", r"key s001: the hierarchy has no class '1'; add it \(it has 0\)"),
        ("class\n0\n", "expected the column class, one column for each level"),
        ("", "expected the column class, one column for each level"),
        (
            "class,animal\n0,a\n0,b\n",
            "row 3: the class '0' is there twice; give each class one row$",
        ),
        ("class,animal\n 0 ,a\n0,b\n", "row 3: the class '0' is there twice"),
        ("class,animal\n\n0,a\n\n0,b\n", "row 5: the class '0' is there twice"),
        ("class,animal\n,a\n,b\n", "row 2: a cell is empty"),
        ("class,animal\n0,a\n1, \n", "row 3: a cell is empty"),
        ("class,animal\n0,a\n\n1, \n", "row 4: a cell is empty"),
        ("class,animal\n0,a\n1,a\n", "row 3: the path of the class '1' is there twice"),
        ("class,animal\n0,a\n1,\n", r"row 3: a cell is empty \(animal\); name each class"),
    ],
)
def test_a_hierarchy_that_does_not_fit_is_refused(foreign: Path, rows: str, says: str) -> None:
    with pytest.raises(InvalidData, match=says):
        index_shards(foreign, hierarchy=hierarchy_of(foreign, rows))


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"levels": ("family", "animal")},
        {"last_dot": True, "skip_unlabelled": True, "skip_damaged": True},
        {"hierarchy": "levels.csv", "levels": ("animal",)},
    ],
    ids=["cls", "levels", "flags", "hierarchy"],
)
def test_the_advice_for_a_wrong_index_is_the_command_that_makes_the_same_one(
    foreign: Path, rules: dict[str, Any]
) -> None:
    if "hierarchy" in rules:
        rows = "".join(f"animal{i},group{i // 3},kind{i}\n" for i in range(5))
        rules["hierarchy"] = hierarchy_of(foreign, f"class,group,kind\n{rows}")
    index = index_shards(foreign, **rules)
    put_index(foreign, index.assign(width=0))
    with pytest.raises(InvalidData, match=r"width is 0; .* make it again: `hgld") as raised:
        read_index(foreign)
    words = shlex.split(str(raised.value).split("`")[1])[1:]
    assert guarded(lambda: app(words)) == 0
    assert read_index(foreign).equals(index)
    verify_shards(foreign)


def test_the_advice_for_a_wrong_index_of_an_export_is_to_export(world: World) -> None:
    folder, _ = world.export()
    put_index(folder, read_index(folder).assign(width=0))
    with pytest.raises(InvalidData, match=r"make it again: run export$"):
        read_index(folder)


def test_the_advice_for_a_damaged_manifest_keeps_the_tars(foreign: Path) -> None:
    index, manifest = index_shards(foreign), foreign / "manifest.json"
    manifest.write_text(json.dumps({**read_manifest(foreign), "shards": [{}]}))
    with pytest.raises(InvalidData, match="; delete the file, and make it again: run export, or"):
        index_shards(foreign)
    manifest.unlink()
    assert index_shards(foreign).equals(index)


def test_an_index_of_other_splits_leaves_no_descriptor_of_the_old_ones(foreign: Path) -> None:
    index_shards(foreign)
    old = read_manifest(foreign)["splits"]
    assert old and all((foreign / f"{split}.wids.json").is_file() for split in old)
    (foreign / "mine.wids.json").write_text("{}")
    for tar in foreign.glob("*.tar"):
        tar.rename(foreign / f"other-{tar.name[-6:]}")
    index_shards(foreign)
    assert {p.name for p in foreign.glob("*.wids.json")} == {"mine.wids.json", "other.wids.json"}
    verify_shards(foreign)


@pytest.mark.parametrize("rules", ["{}", '{"levels": 3}'])
def test_changed_rules_of_an_index_are_refused(foreign: Path, rules: str) -> None:
    index_shards(foreign)
    (foreign / "index_rules.json").write_text(rules)
    with pytest.raises(
        InvalidData, match=r"index_rules\.json: no rules of an index; make it again"
    ):
        verify_shards(foreign)


def test_samples_without_a_class_are_left_out_and_listed(tmp_path: Path) -> None:
    write_tar(tmp_path / "x-0.tar", "a.jpg a.cls b.jpg c.jpg c.cls")
    index = index_shards(tmp_path, skip_unlabelled=True)
    assert [*index["key"]] == ["a", "c"]
    assert (tmp_path / "index_dropped.csv").read_text() == "shard,key,reason\nx-0.tar,b,no class\n"
    verify_shards(tmp_path)


def test_samples_whose_image_is_damaged_are_left_out_and_listed(tmp_path: Path) -> None:
    write_tar(tmp_path / "x-0.tar", "a.jpg a.cls c.jpg c.cls")
    with tarfile.open(tmp_path / "x-0.tar", "a") as tar:
        for name, data in (("b.jpg", b"no image"), ("b.cls", b"1")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    with pytest.raises(InvalidData, match=r"key b: the image cannot .*; --skip-damaged leaves"):
        index_shards(tmp_path)
    with heard() as notes:
        index = index_shards(tmp_path, skip_damaged=True)
    assert [*index["key"]] == ["a", "c"]
    listed = "shard,key,reason\nx-0.tar,b,not decodable\n"
    assert (tmp_path / "index_dropped.csv").read_text() == listed
    assert "1 sample left out, not decodable, first b; index_dropped.csv lists them" in notes
    verify_shards(tmp_path)


def test_a_sample_without_a_class_needs_no_image(tmp_path: Path) -> None:
    write_tar(tmp_path / "x-0.tar", "LICENSE.txt a.jpg a.cls b.png c.jpg c.cls info.json", b"{}")
    with pytest.raises(InvalidData, match=r"x-0\.tar: key LICENSE: no image"):
        index_shards(tmp_path)
    index = index_shards(tmp_path, skip_unlabelled=True)  # b.png is no image
    assert [*index["key"]] == ["a", "c"]
    assert [*pd.read_csv(tmp_path / "index_dropped.csv")["key"]] == ["LICENSE", "b", "info"]
    verify_shards(tmp_path)


def test_members_that_webdataset_skips_are_of_no_sample(tmp_path: Path) -> None:
    write_tar(
        tmp_path / "x-0.tar", "README __meta__/x.json a.jpg a.cls __index__ ._b.jpg b.jpg b.cls"
    )
    assert [*index_shards(tmp_path)["key"]] == ["a", "b"]
    verify_shards(tmp_path)


def test_tars_as_other_tools_number_them_are_of_few_splits(tmp_path: Path) -> None:
    names = ["00000", "00001", "val-00000-of-00002", "val_00001_of_00002"]
    for name in names:
        write_tar(tmp_path / f"{name}.tar", "a.jpg a.cls")
    index_shards(tmp_path)
    shards = list_shards(tmp_path)
    assert dict(zip(shards["file"].str[:-4], shards["split"], strict=True)) == dict(
        zip(names, ["train", "train", "val", "val"], strict=True)
    )
    verify_shards(tmp_path)


def test_a_tar_without_a_labelled_sample_belongs_to_the_split_of_its_name(tmp_path: Path) -> None:
    write_tar(tmp_path / "x-0.tar", "a.jpg a.cls")
    write_tar(tmp_path / "x-1.tar", "b.jpg")
    index_shards(tmp_path, skip_unlabelled=True)
    assert [*list_shards(tmp_path)["split"]] == ["x", "x"]
    assert [path.name for path in tmp_path.glob("*.wids.json")] == ["x.wids.json"]
    verify_shards(tmp_path)


def test_a_tar_that_ends_with_its_last_sample_is_reported(tmp_path: Path) -> None:
    write_tar(tmp_path / "x-0.tar", "a.jpg a.cls b.jpg b.cls")
    with heard() as notes:
        index = index_shards(tmp_path)
        assert notes == []
        data = (tmp_path / "x-0.tar").read_bytes()
        (tmp_path / "x-0.tar").write_bytes(data[: index["extent_start"][1]])
        assert len(index_shards(tmp_path)) == 1
    assert notes == [
        "1 tar without an end mark: x-0.tar; compare with the source, as samples are missing if it "
        "was cut short"
    ]


def test_a_tar_that_goes_on_behind_its_end_mark_is_reported(tmp_path: Path) -> None:
    write_tar(tmp_path / "x-0.tar", "a.jpg a.cls")
    write_tar(tmp_path / "x-1.tar", "b.jpg b.cls ._hidden")
    joined = (tmp_path / "x-0.tar").read_bytes() + (tmp_path / "x-1.tar").read_bytes()
    with heard() as notes:
        index_shards(tmp_path)
        assert notes == []
        (tmp_path / "x-0.tar").write_bytes(joined)
        assert len(index_shards(tmp_path)) == 2
    assert notes == [
        "1 tar with more behind the end mark, where all readers stop: x-0.tar; split tars that "
        "were joined"
    ]


@pytest.mark.parametrize("step", ["hash_file", "write_sidecars"])
def test_an_index_that_is_killed_leaves_no_rules_beside_another_index(
    foreign: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def kill(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    index_shards(foreign)
    rows = "".join(f"{i},family{i // 2},animal{i}\n" for i in range(5))
    levels = hierarchy_of(foreign, f"class,family,animal\n{rows}")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(f"hgld.shards.foreign.{step}", kill)
        index_shards(foreign, hierarchy=levels)
    if step == "hash_file":  # nothing is replaced yet
        verify_shards(foreign)
    else:
        says = r"manifest\.json: no such file; run export \(again\), or `hgld shards index`"
        with pytest.raises(MissingInput, match=says):
            verify_shards(foreign)
    index_shards(foreign, hierarchy=levels)
    verify_shards(foreign)


def test_an_index_leaves_no_files_of_the_index_before(tmp_path: Path) -> None:
    write_tar(tmp_path / "x-0.tar", "a.jpg a.cls")
    index_shards(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    levels = hierarchy_of(tmp_path, "class,animal\n0,dog\n")
    index_shards(tmp_path, hierarchy=levels, skip_unlabelled=True)
    assert len([*tmp_path.glob("index_*")]) == 3
    index_shards(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("levels", "wanted"), [((), r"a \.cls member"), (("label",), "the JSON keys label, not empty")]
)
def test_a_set_without_any_class_is_named(
    tmp_path: Path, levels: tuple[str, ...], wanted: str
) -> None:
    write_tar(tmp_path / "x-0.tar", "a.jpg b.jpg")
    with pytest.raises(InvalidData, match=f"none of 2 samples has a class; expected {wanted}"):
        index_shards(tmp_path, levels, skip_unlabelled=True)
    write_tar(tmp_path / "x-0.tar", "")
    with pytest.raises(InvalidData, match="its tars hold no sample"):
        index_shards(tmp_path, levels, skip_unlabelled=True)


def test_blanks_around_a_class_of_the_hierarchy_or_the_tar_do_not_count(tmp_path: Path) -> None:
    write_tar(tmp_path / "x-0.tar", "a.jpg a.cls", b" 1\n")
    levels = hierarchy_of(tmp_path, "class,animal\n 1 , dog\n")
    index_shards(tmp_path, hierarchy=str(levels))
    assert [*pd.read_csv(tmp_path / "classes.csv")["name"]] == ["dog"]
    verify_shards(tmp_path)


def test_names_end_at_the_last_dot_if_asked_for(tmp_path: Path) -> None:
    write_tar(tmp_path / "x-0.tar", "v1.2/a.0.jpg v1.2/a.0.cls v1.2/a.1.jpg v1.2/a.1.cls")
    with pytest.raises(InvalidData, match=r"key v1\.2/a: no image .*suffix '0\.jpg': give --last"):
        index_shards(tmp_path)
    assert [*index_shards(tmp_path, last_dot=True)["key"]] == ["v1.2/a.0", "v1.2/a.1"]
    verify_shards(tmp_path)


@pytest.mark.parametrize("known", [{}, {"label": None}, {"label": " "}])
def test_a_sample_whose_key_is_empty_has_the_class_of_its_cls_member(
    tmp_path: Path, known: dict[str, object]
) -> None:
    with webdataset.TarWriter(str(tmp_path / "x-0.tar")) as sink:
        sink.write({"__key__": "a", "jpg": draw(0), "json": known, "cls": 7})
    levels = hierarchy_of(tmp_path, "class,animal\n7,dog\n")
    assert len(index_shards(tmp_path, ("label",), hierarchy=levels)) == 1
    verify_shards(tmp_path)


def test_a_sample_without_the_key_has_the_class_of_its_cls_member(tmp_path: Path) -> None:
    write_tar(tmp_path / "x-0.tar", "a.jpg a.json", b'{"label": 7}')
    write_tar(tmp_path / "x-1.tar", "b.jpg b.cls", b"7")
    with pytest.raises(InvalidData, match=r"key b: no class; expected the JSON keys label"):
        index_shards(tmp_path, ("label",))
    levels = hierarchy_of(tmp_path, "class,animal\n7,dog\n")
    assert [*index_shards(tmp_path, ("label",), hierarchy=levels)["level_1"]] == [0, 0]
    verify_shards(tmp_path)
    write_tar(tmp_path / "x-2.tar", "c.jpg")
    with pytest.raises(InvalidData, match=r"the JSON keys label, or a \.cls member, not"):
        index_shards(tmp_path, ("label",), hierarchy=levels)


def test_an_index_of_a_url_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="index the tars in a folder on this machine, and copy"):
        index_shards("s3://bucket/set")


@pytest.mark.parametrize("known", [b"[" * 100_000, b'{"g": "\\ud800"}', b"9" * 5000])
def test_json_that_no_file_can_hold_is_named(tmp_path: Path, known: bytes) -> None:
    write_tar(tmp_path / "x-0.tar", "a.jpg a.json", known)
    with pytest.raises(InvalidData, match=r"x-0\.tar: key a: its JSON (cannot be read|is no obj)"):
        index_shards(tmp_path, ("g",))


@pytest.mark.parametrize(
    "number", ["9223372036854775808", '"' + "9" * 5000 + '"', '"\u0663"', "-1"]
)
def test_a_landmark_id_that_is_none_is_left_out(tmp_path: Path, number: str) -> None:
    write_tar(tmp_path / "x-0.tar", "a.jpg a.json", f'{{"g": 1, "landmark_id": {number}}}'.encode())
    assert index_shards(tmp_path, ("g",))["landmark_id"].tolist() == [-1]


@pytest.mark.parametrize(("known", "image_id"), [("0", "0"), ('""', "a"), ("null", "a")])
def test_the_image_id_0_is_one(tmp_path: Path, known: str, image_id: str) -> None:
    write_tar(tmp_path / "x-0.tar", "a.jpg a.json", f'{{"g": 1, "image_id": {known}}}'.encode())
    assert index_shards(tmp_path, ("g",))["image_id"].tolist() == [image_id]


def test_an_image_id_that_no_reader_accepts_is_named(tmp_path: Path) -> None:
    write_tar(tmp_path / "x-0.tar", "a.jpg a.json", b'{"g": 1, "image_id": "a\\nb"}')
    with pytest.raises(InvalidData, match=r"key a: its image_id 'a\\nb' has control characters"):
        index_shards(tmp_path, ("g",))


def test_a_class_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    write_tar(tmp_path / "x-0.tar", "a.jpg a.cls", b"\xff")
    with pytest.raises(InvalidData, match=r"key a: its class b'\\xff' is not UTF-8"):
        index_shards(tmp_path)


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x-0.tar")
    with pytest.raises(InvalidData, match=r"x-0\.tar: not a regular file"):
        index_shards(tmp_path)


@pytest.mark.parametrize("form", ["hard", "symbolic"])
def test_a_photo_that_tar_has_stored_as_a_link_is_not_lost(form: str, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(draw(0, (4, 3)))
    link = tmp_path / "b.jpg"
    (link.hardlink_to if form == "hard" else link.symlink_to)(tmp_path / "a.jpg")
    command = ["tar", "-C", tmp_path, "-cf", tmp_path / "x-0.tar", "a.jpg", "b.jpg"]
    subprocess.run(command, check=True)
    says = rf"x-0\.tar: 'b\.jpg' is a {form} link at byte \d+, which readers .* with tar --"
    with pytest.raises(InvalidData, match=says) as raised:
        list(scan_tar(tmp_path / "x-0.tar"))
    flags = [word for word in str(raised.value).split() if word.startswith("--")]
    subprocess.run([*command, *flags], check=True)
    assert [member.name for member in scan_tar(tmp_path / "x-0.tar")] == ["a.jpg", "b.jpg"]


def test_a_link_that_is_no_part_of_a_sample_is_passed_over(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x-0.tar", "w") as tar:
        for name in ("README", "a.jpg", "a.cls", "__meta__/x.json"):
            info = tarfile.TarInfo(name)
            if name[0] == "a":
                data = draw(0, (4, 3)) if name == "a.jpg" else b"1"
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            else:
                info.type, info.linkname = tarfile.SYMTYPE, f"../{name}"
                tar.addfile(info)
    assert [*index_shards(tmp_path)["key"]] == ["a"]
    assert [member.name for member in scan_tar(tmp_path / "x-0.tar")] == ["a.jpg", "a.cls"]
    verify_shards(tmp_path)


def test_a_folder_without_tars_is_told_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "set/val").mkdir(parents=True)
    write_tar(tmp_path / "set/val/0.tar", "a.jpg a.cls")
    for name, says in (
        ("set", r"set: holds no tar file; expected shards .*; its folders val do: index each$"),
        ("set/val/0.tar", r"0\.tar: a file; give the folder that holds the tars"),
        ("nowhere", "nowhere: no such folder; give the folder that holds the tars"),
    ):
        with pytest.raises(InvalidData, match=says):
            index_shards(tmp_path / name)


def test_a_tar_whose_name_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "x\ny.tar", "a.jpg a.cls")
    with pytest.raises(InvalidData, match="has control characters; rename the tar"):
        index_shards(tmp_path)


def test_hidden_files_of_a_tar_are_skipped_as_webdataset_does(tmp_path: Path) -> None:
    write_tar(tmp_path / "x-0.tar", ".DS_Store ._a.jpg a.jpg ._a.cls a.cls ._b.jpg b.jpg b.cls")
    assert index_shards(tmp_path)["key"].tolist() == ["a", "b"]
    verify_shards(tmp_path)


def test_a_level_that_is_given_twice_is_named(foreign: Path) -> None:
    with pytest.raises(UsageError, match="the level 'family' stands twice"):
        index_shards(foreign, levels=("family", "family"))


@pytest.mark.parametrize("suffix", ["tar.gz", "tgz", "tar.zst", "TAR.GZ"])
def test_compressed_shards_are_not_passed_over(foreign: Path, suffix: str) -> None:
    (foreign / f"photos-9.{suffix}").write_bytes(b"")
    with pytest.raises(InvalidData, match=rf"photos-9\.{suffix}: is compressed .* unpack it"):
        index_shards(foreign)


def test_a_tar_with_its_ending_in_capitals_is_not_passed_over(foreign: Path) -> None:
    write_tar(foreign / "photos-9.TAR", "a.jpg a.cls")
    with pytest.raises(InvalidData, match=r"photos-9\.TAR: .* rename it to photos-9\.tar"):
        index_shards(foreign)


def test_a_key_of_two_shards_names_them(tmp_path: Path) -> None:
    for shard in ("x-0.tar", "x-1.tar"):
        write_tar(tmp_path / shard, "a.jpg a.cls")
    assert len(index_shards(str(tmp_path))) == 2
    with pytest.raises(InvalidData, match=r"key 'a' stands in several shards: x-0.tar, x-1.tar;"):
        read_sample(tmp_path, "a")


def test_our_own_shards_can_be_indexed_again(world: World) -> None:
    folder, _ = world.export()
    before = read_index(folder)
    after = index_shards(folder, levels=("kind", "supercategory", "label"), replace_export=True)
    columns = [c for c in before.columns if not c.startswith(("level_", "run"))]
    assert before[columns].equals(after[columns])
    pairs = zip(before["level_3"], after["level_3"], strict=True)
    assert len(set(pairs)) == before["level_3"].nunique() == after["level_3"].nunique()


def test_copied_samples_keep_every_byte(world: World, tmp_path: Path) -> None:
    folder, _ = world.export()
    rows = read_index(folder).query("landmark_id > 3").sample(frac=1, random_state=0)
    copied, facts = copy_samples(folder, rows, tmp_path / "copy", shard_megabytes=0.05)
    assert len(facts) > 2 and sum(f["samples"] for f in facts) == len(rows)
    for old, new in zip(
        rows.sort_values("key").to_dict("records"),
        copied.sort_values("key").to_dict("records"),
        strict=True,
    ):
        assert part(folder, old) == part(tmp_path / "copy", new)
    for shard in (tmp_path / "copy").glob("*.tar"):
        names = [m.name for m in scan_tar(shard)]
        with tarfile.open(shard) as tar:
            assert tar.getnames() == names


def part(folder: Path, row: dict[str, Any]) -> tuple[bytes, bytes]:
    """The sample's members, and its image by the index."""
    shard = (folder / row["shard"]).read_bytes()
    start, offset = row["extent_start"], row["offset"]
    return shard[start : start + row["extent_bytes"]], shard[offset : offset + row["size_bytes"]]


def test_samples_are_copied_between_folders_named_by_text(tmp_path: Path) -> None:
    write_tar(tmp_path / "x-0.tar", "a.jpg a.cls")
    copy_samples(str(tmp_path), index_shards(tmp_path), str(tmp_path / "copy"))
    assert (tmp_path / "copy" / "x-000000.tar").is_file()
    with pytest.raises(UsageError, match="a URL; expected a folder on this machine"):
        copy_samples(tmp_path, read_index(tmp_path), "s3://bucket/copy")


def test_a_key_in_several_shards_is_reported(tmp_path: Path) -> None:
    write_tar(tmp_path / "x-0.tar", "a.jpg a.cls b.jpg b.cls")
    write_tar(tmp_path / "x-1.tar", "c.jpg c.cls a.jpg a.cls")
    with heard() as notes:
        assert len(index_shards(tmp_path)) == 4
    assert notes == [
        "1 key in several shards, first a in x-0.tar, x-1.tar (one image); leave out the rows "
        "that are copies"
    ]


def test_all_damaged_shards_of_others_are_named_with_what_to_do(foreign: Path) -> None:
    index_shards(foreign)
    first, second = foreign / "photos-000000.tar", foreign / "photos-000002.tar"
    first.write_bytes(first.read_bytes()[:2000])
    second.unlink()
    with pytest.raises(InvalidData) as found:
        verify_shards(foreign)
    cut, gone = str(found.value).splitlines()
    assert cut.startswith(f"{first}: 2000 bytes; expected ") and gone.startswith(
        f"{second}: the shard is missing; "
    )
    restore = "restore the shard, or run `hgld shards index` again if the change was intended"
    assert cut.endswith(f"; {restore}") and gone.endswith(f"; {restore}")


def test_two_samples_of_one_key_are_not_copied_into_one_shard(tmp_path: Path) -> None:
    for shard in ("x-0.tar", "x-1.tar"):
        write_tar(tmp_path / shard, "a.jpg a.cls")
    rows = index_shards(tmp_path)
    with pytest.raises(InvalidData, match=r"x-1\.tar: key a: would stand twice in a new shard"):
        copy_samples(tmp_path, rows, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    copied, facts = copy_samples(tmp_path, rows, tmp_path / "copy", shard_megabytes=0.001)
    assert len(copied) == len(facts) == 2


def test_a_folder_that_is_not_empty_is_not_copied_into(world: World) -> None:
    folder, _ = world.export()
    with pytest.raises(InvalidData, match="is not empty"):
        copy_samples(folder, read_index(folder), folder)


def test_listing_and_counting_show_what_is_there(world: World) -> None:
    folder, _ = world.export()
    shards, counts = list_shards(folder), count_shards(folder)
    assert shards["samples"].sum() == 107 and set(shards["split"]) == {"train", "index"}
    assert counts["train"]["samples"] == 92 and counts["train"]["classes"]["landmark"] == 8
    assert counts["train"]["images_of_a_class"] == {"least": 1, "median": 7.0, "most": 33}
    assert counts["train"]["classes_below_4_images"] == 2
    assert list(counts["index"]["licenses"].values()) == [15]
    json.dumps(counts)


def test_one_sample_is_shown_by_its_key_or_image_id(world: World) -> None:
    folder, _ = world.export()
    sample = read_sample(folder, "train-t004002")
    assert sample.jpeg == world.data["t004002"] == read_sample(folder, "t004002").jpeg
    assert sample.known["image_id"] == "t004002"
    with pytest.raises(
        InvalidData, match=r"no sample .* 'train-t004x02'; did you mean 'train-t004"
    ):
        read_sample(folder, "train-t004x02")


def test_an_id_of_two_splits_asks_for_a_key(world: World) -> None:
    both = world.images.iloc[[0]].assign(split="test", landmark_id=0)
    world.images = pd.concat([world.images, both], ignore_index=True)
    folder, _ = world.export()
    with pytest.raises(InvalidData, match="give a key: test-t000000, train-t000000"):
        read_sample(folder, "t000000")
    assert read_sample(folder, "test-t000000").row["split"] == "test"
