import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from hgld.errors import HgldError, InvalidData
from hgld.shards import ShardImages, read_index
from hgld.shards.files import FileReader
from tests.shards.shard_world import World


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(5):
        (tmp_path / f"{i}").write_bytes(bytes(range(10 * i, 10 * i + 10)))
    return tmp_path


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_any_range_of_any_file_is_read(folder: Path) -> None:
    reader = FileReader(folder, limit=2)
    for i in (0, 3, 1, 3, 4, 0):
        assert reader.read(f"{i}", 2, 3) == bytes([10 * i + 2, 10 * i + 3, 10 * i + 4])


def test_no_more_files_are_open_than_the_limit(folder: Path) -> None:
    before = open_files()
    reader = FileReader(folder, limit=2)
    for i in range(5):
        reader.read(f"{i}", 0, 1)
    assert open_files() == before + 2
    reader.close()
    assert open_files() == before


def test_files_are_closed_with_their_reader(folder: Path) -> None:
    before = open_files()
    reader = FileReader(folder)
    reader.read("1", 0, 1)
    del reader
    assert open_files() == before


def test_a_reader_that_outlives_its_script_ends_in_silence(folder: Path) -> None:
    code = """
import os
from pathlib import Path
from hgld.shards.files import FileReader
os.kept = FileReader(Path())  # until this module is taken apart
os.kept.read("1", 0, 1)
"""
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_a_range_beyond_the_end_is_told(folder: Path) -> None:
    with pytest.raises(InvalidData, match=r"2: ends 3 bytes before byte 13, .* truncated"):
        FileReader(folder).read("2", 5, 8)
    with pytest.raises(InvalidData, match=r"2: ends 90 bytes before byte 100, .* truncated"):
        FileReader(folder).read("2", 92, 8)


@pytest.mark.parametrize("size", [1 << 40, 1 << 62])
def test_no_memory_is_taken_for_bytes_that_are_not_there(folder: Path, size: int) -> None:
    with pytest.raises(InvalidData, match=r"2: ends .* truncated"):
        FileReader(folder).read("2", 5, size)


def test_a_pipe_in_place_of_a_file_is_refused_at_once(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(InvalidData, match="pipe: not a regular file"):
        FileReader(folder).read("pipe", 0, 1)


def test_an_error_of_the_disk_names_the_file(folder: Path) -> None:
    with pytest.raises(HgldError, match=rf"^{folder}/2: cannot be read \(Invalid argument\)$"):
        FileReader(folder).read("2", -1, 1)


def test_a_forked_process_opens_files_of_its_own(folder: Path) -> None:
    reader = FileReader(folder)
    reader.read("1", 0, 1)
    child = os.fork()
    if child == 0:
        forgotten = reader._handles == {}
        os._exit(0 if forgotten and reader.read("1", 0, 2) == bytes([10, 11]) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert list(reader._handles) == ["1"]


def test_a_reader_of_images_can_be_sent_to_another_process(world: World) -> None:
    folder, _ = world.export()
    rows = read_index(folder)
    images = ShardImages(folder, rows, lambda image: image)  # type: ignore[arg-type,return-value]
    images.read_bytes(3)
    images.transform = str  # type: ignore[assignment]  # a lambda cannot be sent
    sent = pickle.loads(pickle.dumps(images))
    assert sent.read_bytes(3) == world.data[rows["image_id"][3]]
