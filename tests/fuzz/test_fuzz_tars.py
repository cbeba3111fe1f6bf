"""Tars from anybody, as the scanner and `hgld shards index` read them."""

import io
import json
import tarfile
from pathlib import Path

from hgld.shards.foreign import index_shards
from hgld.shards.index import read_index
from hgld.shards.tar import scan_tar
from tests.fuzz.driver import fuzz
from tests.shards.shard_world import draw

TOKENS = [b"../x.jpg", b"12 path=a.jpg\n", b"0 path=a\n", b"11 size=-1\n", b"\x80" + bytes(11)]
TOKENS += [b"\xff" * 12, b"\x80" + b"\xff" * 11, b"x", b"L", b"g", b"S", b"ustar\0", b"\\ud800"]


def make_tar(form: int) -> bytes:
    """Two samples, with a long name in the formats that have them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for i in range(2):
            key = f"s{i}" if form == tarfile.USTAR_FORMAT else f"{'long/' * 30}\u00e4{i}"
            known = json.dumps({"group": f"g{i}", "landmark_id": i, "author": "\u00e4"}).encode()
            for suffix, data in (("jpg", draw(i, (4, 3))), ("json", known), ("cls", b"%d" % i)):
                info = tarfile.TarInfo(f"{key}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
SEEDS = [make_tar(form) for form in FORMATS]


def right_sums(data: bytes) -> bytes:
    """The tar with the right checksum in every header, so that its other fields are read."""
    made = bytearray(data)
    for start in range(0, len(data) - 511, 512):
        if data[start + 257 : start + 262] == b"ustar":
            made[start + 148 : start + 156] = b" " * 8
            made[start + 148 : start + 156] = b"%06o\0 " % sum(made[start : start + 512])
    return bytes(made)


def scan_members(data: bytes, folder: Path) -> None:
    path = folder / "x.tar"
    path.write_bytes(data)
    for member in scan_tar(path):
        assert 0 <= member.start < member.offset <= len(data) - member.size_bytes


def index_folder(data: bytes, folder: Path) -> None:
    (folder / "x-0.tar").write_bytes(data)
    levels = ("group",) if len(data) % 2 else ()
    assert index_shards(folder, levels).equals(read_index(folder))


def test_any_tar_is_scanned_or_refused() -> None:
    assert fuzz(scan_members, SEEDS, tokens=TOKENS, repair=right_sums).accepted


def test_any_tar_is_indexed_or_refused() -> None:
    assert fuzz(index_folder, SEEDS, tokens=TOKENS, repair=right_sums).accepted
