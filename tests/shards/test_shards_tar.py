from hashlib import sha256
from pathlib import Path

import pytest
import webdataset

from hgld.shards.tar import ShardFile

SIZES = [0, 1, 511, 512, 513, 10_000]


def test_the_bytes_are_those_of_webdatasets_own_writer(tmp_path: Path) -> None:
    ours = ShardFile(tmp_path / "ours.tar")
    with (tmp_path / "theirs.tar").open("wb") as file:
        theirs = webdataset.TarWriter(
            file, user="hgld", group="hgld", mode=0o444, mtime=0, encoder=False, compress=False
        )
        for i, size in enumerate(SIZES):
            members = [("jpg", bytes([i]) * size), ("json", b"{}"), ("cls", b"%d" % i)]
            ours.add(f"train-{i}%2E~", members)
            for suffix, data in members:
                theirs.write({"__key__": f"train-{i}%2E~", suffix: data})
        theirs.close()
    ours.finish()
    ours.close()
    written = (tmp_path / "ours.tar").read_bytes()
    assert written == (tmp_path / "theirs.tar").read_bytes()
    assert (ours.sha256, ours.size_bytes) == (sha256(written).hexdigest(), len(written))


def test_a_name_that_no_header_can_hold_is_refused(tmp_path: Path) -> None:
    shard = ShardFile(tmp_path / "x.tar")
    with pytest.raises(ValueError, match="100 bytes at most"):
        shard.add("k" * 98, [("jpg", b"")])
    shard.close()
