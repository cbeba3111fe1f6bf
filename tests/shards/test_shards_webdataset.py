"""Batches through webdataset's own stages, over hgld's shards and others."""

import gc
import io
import json
import shutil
import tarfile
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import webdataset
from torch.utils.data import DataLoader

from hgld.errors import HgldError, InvalidData, UsageError
from hgld.shards import BatchLoader, BatchOptions, index_shards, read_index
from hgld.shards.webdataset import batches, group_by_class, write_shards
from tests.shards.shard_world import draw, make_world, rot
from tests.sources.small_disk import small_disk

# webdataset 1.0.2 leaves the files that it reads to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"), [6, 4, 5, 7, 3, 4, 9, 2]).export()[0]


def flipped(image: Any) -> torch.Tensor:
    """Pixels, mirrored by chance."""
    pixels = torch.from_numpy(np.array(image.resize((8, 8)))).permute(2, 0, 1)
    return pixels.flip(2) if torch.rand(()) < 0.5 else pixels


def urls_of(folder: Path) -> list[str]:
    return [str(path) for path in sorted(folder.glob("train-*.tar"))]


def stream(folder: Path, **options: Any) -> Any:
    rows = read_index(folder).query("split == 'train'").reset_index(drop=True)
    shape = BatchOptions(3, 2, order="shards")
    loader = BatchLoader(folder, rows, flipped, shape, seed=5, reader="stream", **options)
    return rows, loader


def test_a_data_loader_passes_whole_batches_on(folder: Path) -> None:
    """By default it took each batch for one sample, and returned (1, B, ...)."""
    found = [keys for _, _, keys in batches(urls_of(folder), 3, 2, flipped)]
    loader = DataLoader(batches(urls_of(folder), 3, 2, flipped))
    assert [(labels.shape, keys) for _, labels, keys in loader] == [((6,), keys) for keys in found]


@pytest.mark.parametrize("rank", [0, 1])
def test_with_an_index_its_batches_are_those_of_the_stream_reader(folder: Path, rank: int) -> None:
    place = {"rank": rank, "world_size": 2}
    rows, loader = stream(folder, **place)
    pipeline = batches(urls_of(folder), 3, 2, flipped, rows=rows, seed=5, **place)
    for _ in range(3):  # epochs
        found, expected = list(pipeline), list(loader)
        assert len(found) == len(expected) > 2
        for (images, labels, keys), (i, x, numbers) in zip(found, expected, strict=True):
            assert keys == rows["key"][numbers.tolist()].tolist()
            assert torch.equal(labels, x) and torch.equal(images, i)


@pytest.mark.parametrize("workers", [0, 2])
def test_names_of_samples_may_have_dots_as_in_the_index(tmp_path: Path, workers: int) -> None:
    urls = [str(tmp_path / f"v1.2-{shard}.tar") for shard in range(2)]
    for shard, url in enumerate(urls):
        with tarfile.open(url, "w") as tar:
            for n in range(8):
                name, image = f"v1.2/s.{shard}{n}", draw(8 * shard + n)
                for member, data in (
                    (f"v1.2/._s.{n}.jpg", b"hidden"),
                    (f"{name}.png", draw(99)),
                    (f"{name}.jpg", image),
                    (f"{name}.cls", b"%d" % (n // 4)),
                ):
                    info = tarfile.TarInfo(member)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    rows = index_shards(tmp_path, last_dot=True)
    shape = BatchOptions(2, 2, order="shards")
    loader = BatchLoader(tmp_path, rows, flipped, shape, seed=5, reader="stream")
    pipeline = batches(urls, 2, 2, flipped, rows=rows, seed=5)
    found = list(DataLoader(pipeline, None, num_workers=workers))
    expected = {tuple(rows["key"][n.tolist()]): i for i, _, n in loader}
    assert len(found) == len(expected) == 4
    assert all(torch.equal(images, expected[tuple(keys)]) for images, _, keys in found)


def test_workers_share_the_batches_of_an_epoch(folder: Path) -> None:
    rows, _ = stream(folder)
    make = {"rows": rows, "seed": 5}
    own = [keys for _, _, keys in batches(urls_of(folder), 3, 2, flipped, **make)]
    loader = DataLoader(batches(urls_of(folder), 3, 2, flipped, **make), None, num_workers=2)
    assert sorted(keys for _, _, keys in loader) == sorted(own)


def test_without_an_index_samples_are_grouped_as_they_come(folder: Path) -> None:
    rows, _ = stream(folder)
    found = list(batches(urls_of(folder), 3, 2, flipped))
    class_of = dict(zip(rows["key"], rows["level_3"], strict=True))
    for images, labels, keys in found:
        assert images.shape == (6, 3, 8, 8) and sorted(Counter(labels.tolist()).values()) == [2] * 3
        assert labels.tolist() == [class_of[key] for key in keys]
    every = [key for _, _, keys in found for key in keys]
    assert len(every) == len(set(every)) >= 30


def test_without_an_index_each_epoch_draws_other_classes_together(folder: Path) -> None:
    def epochs(window: int) -> list[list[list[str]]]:
        pipeline = batches(urls_of(folder), 2, 2, flipped, window=window, seed=5)
        return [[keys for _, _, keys in pipeline] for _ in range(2)]

    first, second = epochs(window=5)
    assert first != second
    assert [first, second] == epochs(window=5)
    first, second = epochs(window=0)  # as they come
    assert first == second


@pytest.mark.parametrize("window", [0, 5])
def test_the_stage_composes_into_any_pipeline(folder: Path, window: int) -> None:
    whole = webdataset.WebDataset(urls_of(folder), shardshuffle=False, empty_check=False)
    first, again = (
        list(whole.decode("pilrgb").compose(group_by_class(2, 3, window=window))) for _ in range(2)
    )
    assert first and [[s["__key__"] for s in b] for b in first] == [
        [s["__key__"] for s in b] for b in again
    ]
    for batch in first:
        classes = [sample["cls"] for sample in batch]
        assert classes == [c for c in dict.fromkeys(classes) for _ in range(3)]
        assert len(set(classes)) == 2 and len({s["__key__"] for s in batch}) == 6


def test_the_stage_groups_shards_of_another_program(tmp_path: Path) -> None:
    pattern, image = str(tmp_path / "photos-%06d.tar"), np.zeros((8, 8, 3), np.uint8)
    with webdataset.ShardWriter(pattern, maxcount=9, verbose=0) as sink:
        for number in range(24):
            sink.write({"__key__": f"s{number:03d}", "png": image, "json": {"genus": number % 4}})
    urls = sorted(map(str, tmp_path.glob("*.tar")))
    assert len(urls) == 3
    group = group_by_class(2, 3, lambda sample: sample["json"]["genus"])
    pipeline = webdataset.WebDataset(urls, shardshuffle=False, empty_check=False).decode("rgb8")
    found = list(pipeline.compose(group))
    assert [[sample["json"]["genus"] for sample in batch] for batch in found] == [
        [a, a, a, b, b, b] for a, b in ((0, 1), (2, 3)) * 2
    ]
    keys = [sample["__key__"] for batch in found for sample in batch]
    assert len(set(keys)) == 24 and found[0][0]["png"].shape == (8, 8, 3)


def test_a_class_may_be_a_function_of_the_sample() -> None:
    samples = [{"json": {"genus": f"g{n % 2}"}} for n in range(8)]
    found = list(group_by_class(2, 2, lambda sample: sample["json"]["genus"])(samples))
    assert [[s["json"]["genus"] for s in b] for b in found] == [["g0", "g0", "g1", "g1"]] * 2


def test_classes_are_grouped_by_number_however_they_are_written(tmp_path: Path) -> None:
    """Else a batch held one class twice: as "1" of one program, and with a line end of another."""
    url, image = str(tmp_path / "photos-000000.tar"), np.zeros((8, 8, 3), np.uint8)
    with webdataset.TarWriter(url, encoder=True) as sink:
        for number, text in enumerate(["1", "1\n", "01", "1", "2", "2\n"]):
            sink.write({"__key__": f"s{number}", "png": image, "cls": text.encode()})
    found = [labels.tolist() for _, labels, _ in batches(url, 2, 2, flipped)]
    assert found == [[1, 1, 2, 2]]
    with pytest.raises(InvalidData, match=r"key s0: its class is 1\.5; expected a number"):
        next(iter(batches(url, 2, 2, flipped, label=lambda sample: 1.5)))


def test_a_shard_at_two_urls_is_refused(folder: Path, tmp_path: Path) -> None:
    """Else the last one was read, whichever the rows are of."""
    rows, other = stream(folder)[0], tmp_path / "train-000000.tar"
    shutil.copyfile(folder / other.name, other)
    urls = urls_of(folder)
    with pytest.raises(InvalidData, match=rf"{other.name}: is at {urls[0]} and at {other}; give"):
        batches([*urls, other], 3, 2, flipped, rows=rows)
    assert list(batches([*urls, urls[0]], 3, 2, flipped, rows=rows))


def test_commands_run_only_if_asked_for(folder: Path) -> None:
    commands = [f"pipe:cat {url}" for url in urls_of(folder)]
    with pytest.raises(UsageError, match=r"pipe:cat .* runs a command; give pipe=True"):
        batches(commands, 3, 2, flipped)
    with pytest.raises(UsageError, match="runs a command"):
        batches(f" PIPE:cat {urls_of(folder)[0]}", 3, 2, flipped)
    rows, loader = stream(folder)
    found = batches(commands, 3, 2, flipped, rows=rows, seed=5, pipe=True)
    assert [k for _, _, k in found] == [rows["key"][n.tolist()].tolist() for _, _, n in loader]


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize(
    ("start", "end", "says"),
    [
        (0, None, r"train-000000\.tar: empty file; get the shard again"),
        (1000, None, r"train-000000\.tar: unexpected end of data; get the shard again"),
        (0, 100, r"train-000000\.tar: .*; get the shard again"),
        (512, 1024, r"train-000000\.tar: key .*: the jpg is not decodable \(.+\); get the"),
    ],
)
def test_a_damaged_shard_is_one_line(
    folder: Path, tmp_path: Path, start: int, end: int | None, says: str, indexed: bool
) -> None:
    rows, _ = stream(folder)
    urls = [shutil.copy(url, tmp_path) for url in urls_of(folder)]
    data = Path(urls[0]).read_bytes()
    noise = b"" if end is None else b"\x07" * (end - start) + data[end:]
    Path(urls[0]).write_bytes(data[:start] + noise)
    with pytest.raises(InvalidData, match=says) as caught:
        list(batches(urls, 3, 2, flipped, rows=rows if indexed else None))
    assert "\n" not in str(caught.value)
    del caught
    gc.collect()  # the open shard of webdataset, while its warning is ignored


def test_a_command_that_fails_between_two_samples_is_no_end_of_its_shard(folder: Path) -> None:
    rows, _ = stream(folder)
    start, url = rows["extent_start"][9], urls_of(folder)[0]
    cut = f"pipe:head -c {start} {url}"
    assert list(batches(cut, 1, 1, flipped, pipe=True))
    with pytest.raises(HgldError, match=r"head -c [^\n]*exit 3"):
        list(batches(f"{cut}; exec >&-; sleep 0.3; exit 3", 1, 1, flipped, pipe=True))


def test_errors_of_webdataset_quote_no_signature(folder: Path) -> None:
    signed = "pipe:exit 3 # https://host/a.tar?X-Amz-Signature=12345"
    with pytest.raises(HgldError, match=r"https://host/a\.tar[^\n]*(exit 3|empty file)") as raised:
        list(batches(signed, 3, 2, flipped, pipe=True))
    shown = "".join(traceback.format_exception(raised.value))
    assert "12345" not in shown
    for pattern in ("https://host/a.tar?X-Amz-Signature=12345", "nonsense://host/%d?sig=12345"):
        with pytest.raises(HgldError, match=r"expected one number|no gopen handler") as raised:
            write_shards(urls_of(folder), pattern)
        assert "12345" not in str(raised.value)


def test_what_does_not_fit_is_one_line(folder: Path) -> None:
    rows, _ = stream(folder)
    with pytest.raises(InvalidData, match="is not among the 1 URLs"):
        batches(urls_of(folder)[0], 3, 2, flipped, rows=rows)
    for classes in (0, 2.0, "2"):
        with pytest.raises(UsageError, match=f"classes_per_batch is {classes!r}; expected a whole"):
            batches(urls_of(folder), classes, 2, flipped)
        with pytest.raises(UsageError, match=f"classes_per_batch is {classes!r}; expected a whole"):
            group_by_class(classes, 2)
    for idle in ({"rows": rows, "window": 9}, {"rows": rows, "label": len}):
        with pytest.raises(UsageError, match="label and window are of batches without rows"):
            batches(urls_of(folder), 3, 2, flipped, **idle)
    with pytest.raises(UsageError, match="small_classes needs rows"):
        batches(urls_of(folder), 3, 2, flipped, small_classes="repeat")
    with pytest.raises(UsageError, match="urls is empty"):
        batches([], 3, 2, flipped)
    with pytest.raises(InvalidData, match="the shards fill no batch: fewer than classes_per_batch"):
        list(batches(urls_of(folder), 100, 2, flipped))
    with pytest.raises(InvalidData, match="has no member 'label'; it has jpg, json, cls"):
        list(batches(urls_of(folder), 3, 2, flipped, label="label"))
    with pytest.raises(InvalidData, match=r"tar: key train-\S+: its class is 'oak'; expected"):
        list(batches(urls_of(folder), 1, 2, flipped, label=lambda _: "oak"))


def test_shards_may_be_paths(folder: Path, tmp_path: Path) -> None:
    paths = [Path(url) for url in urls_of(folder)]
    keys = [keys for *_, keys in batches(urls_of(folder), 3, 2, flipped)]
    assert [keys for *_, keys in batches(paths, 3, 2, flipped)] == keys
    copied = write_shards(paths[0], f"{tmp_path}/copy-%d.tar")
    assert Path(copied[0]).read_bytes() == paths[0].read_bytes()


def test_a_full_disk_is_told_with_the_place_of_the_copies(folder: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4 << 10):
        with pytest.raises(OSError, match="No space left") as error:
            write_shards(urls_of(folder), f"{tmp_path}/disk/copy-%d.tar")
        assert Path(error.value.filename).name == "copy-0.tar"
        assert not [*(tmp_path / "disk").iterdir()]


def test_a_json_member_is_no_class_and_a_function_reads_it(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"label 'json': a JSON member holds no class as it is"):
        next(iter(batches(urls_of(folder), 3, 2, flipped, label="json")))

    def place(sample: dict[str, Any]) -> int:
        return int(json.loads(sample["json"])["landmark_id"])

    _, labels, _ = next(iter(batches(urls_of(folder), 3, 2, flipped, label=place)))
    assert sorted(Counter(labels.tolist()).values()) == [2, 2, 2]


def test_shards_are_copied_through_webdatasets_writer_byte_for_byte(
    folder: Path, tmp_path: Path
) -> None:
    command = f"pipe:cat > {tmp_path}/copy-%06d.tar"
    with pytest.raises(UsageError, match="runs a command; give pipe=True"):
        write_shards(urls_of(folder), command)
    written = write_shards(urls_of(folder), command, pipe=True, start=3)
    copies = sorted(tmp_path.glob("copy-*.tar"))
    assert copies[0].name == "copy-000003.tar" and len(written) == len(copies)
    assert [p.read_bytes() for p in copies] == [Path(u).read_bytes() for u in urls_of(folder)]
    with pytest.raises(UsageError, match="expected one number"):
        write_shards(urls_of(folder), f"{tmp_path}/copy.tar")
    assert write_shards([], f"{tmp_path}/none-%d.tar") == []


def test_an_image_that_is_not_the_one_of_its_row_is_named(folder: Path, tmp_path: Path) -> None:
    rows, _ = stream(folder)
    shutil.copytree(folder, tmp_path / "shards")
    rot(tmp_path / "shards", rows.iloc[3])
    urls = urls_of(tmp_path / "shards")
    says = rf"{rows['shard'][3]}: key {rows['key'][3]}: the image's bytes were changed \(CRC-32\)"
    with pytest.raises(InvalidData, match=says):
        list(batches(urls, 3, 1, flipped, rows=rows))
    unchecked = rows.drop(columns="image_crc32")
    assert list(batches(urls, 3, 1, flipped, rows=unchecked))


def test_rows_may_be_parts_of_one_photo(folder: Path) -> None:
    """Each photo has two rows, one for each half, which are other images."""
    rows, _ = stream(folder)
    whole = {"box_left": 0.0, "box_top": 0.0, "box_right": rows["width"]}
    middle, end = rows["height"] / 2, rows["height"].astype("float64")
    upper = rows.assign(**whole, box_bottom=middle)
    lower = rows.assign(**whole, box_bottom=end).assign(box_top=middle)
    parts = pd.concat([upper, lower]).sort_values(["shard", "offset"], ignore_index=True)
    shape = BatchOptions(3, 2, order="shards")
    loader = BatchLoader(folder, parts, flipped, shape, seed=5, reader="stream")
    found = list(batches(urls_of(folder), 3, 2, flipped, rows=parts, seed=5))
    for (images, labels, _), (i, x, _) in zip(found, loader, strict=True):
        assert torch.equal(images, i) and torch.equal(labels, x)
    outside = parts.assign(box_left=1000.0, box_right=1001.0)
    with pytest.raises(InvalidData, match=r"key .*: the box \(1000, .* has no pixel of the photo"):
        list(batches(urls_of(folder), 3, 2, flipped, rows=outside))


def test_processes_without_ranks_are_warned_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("is_initialized", True), ("get_world_size", 2), ("get_rank", 0)):
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    with pytest.warns(
        UserWarning, match=r"each of 2 processes .* give hgld\.shards\.webdataset\.b"
    ):
        batches(urls_of(folder), 3, 2, flipped)
    with warnings.catch_warnings(action="error"):
        batches(urls_of(folder), 3, 2, flipped, world_size=1)


def test_members_of_any_suffix_are_copied(tmp_path: Path) -> None:
    """The writer of webdataset leaves out suffixes that begin with "_"."""
    names = ["a.jpg", "a._mask.png", "a.__x", "b.jpg"]
    with tarfile.open(tmp_path / "x-0.tar", "w") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
    (copied,) = write_shards(tmp_path / "x-0.tar", f"{tmp_path}/copy-%d.tar")
    with tarfile.open(copied) as tar:
        assert tar.getnames() == names
    assert write_shards(tmp_path / "x-0.tar", f"{tmp_path}/copy-%d.tar") == [copied]
    Path(copied).write_bytes(b"another")
    with pytest.raises(UsageError, match=r"copy-0\.tar: is there already"):
        write_shards(tmp_path / "x-0.tar", f"file:{tmp_path}/copy-%d.tar")
    with pytest.raises(UsageError, match="would be written while it is read"):
        write_shards(tmp_path / "x-0.tar", f"file:{tmp_path}/x-%d.tar")
