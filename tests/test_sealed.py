import io
import os
from pathlib import Path

import numpy as np

from hgld.artifacts import map_sealed, read_sealed, write_sealed


def test_content_comes_back(tmp_path: Path) -> None:
    write_sealed(tmp_path / "kept", b"content", "shard 7 of plan 3")
    assert read_sealed(tmp_path / "kept", "shard 7 of plan 3") == b"content"


def test_every_changed_bit_is_found(tmp_path: Path) -> None:
    write_sealed(tmp_path / "kept", b"content", "x")
    good = (tmp_path / "kept").read_bytes()
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        (tmp_path / "kept").write_bytes(bad)
        assert read_sealed(tmp_path / "kept", "x") is None


def test_a_file_that_is_cut_missing_or_of_something_else_is_not_read(tmp_path: Path) -> None:
    write_sealed(tmp_path / "kept", b"content", "x")
    assert read_sealed(tmp_path / "kept", "y") is None
    assert read_sealed(tmp_path / "none", "x") is None
    (tmp_path / "cut").write_bytes((tmp_path / "kept").read_bytes()[:10])
    assert read_sealed(tmp_path / "cut", "x") is None


def test_a_pipe_or_device_in_place_of_a_kept_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    assert read_sealed(tmp_path / "pipe", "x") is None
    assert read_sealed(tmp_path / "zero", "x") is None


def test_a_sealed_array_is_mapped_after_a_check_of_its_hash(tmp_path: Path) -> None:
    path, content = tmp_path / "kept.npy", io.BytesIO()
    np.save(content, np.arange(6.0).reshape(3, 2))
    write_sealed(path, content.getbuffer(), "x")
    found = map_sealed(path, "x")
    assert isinstance(found, np.memmap) and found.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert map_sealed(path, "y") is None and map_sealed(tmp_path / "none", "x") is None
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:20], b"", whole[:130] + b"?" + whole[131:]):
        path.write_bytes(damaged)
        assert map_sealed(path, "x") is None
