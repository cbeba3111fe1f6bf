import io
import os
import tarfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from hgld.errors import InvalidData
from hgld.shards.tar import scan_tar
from hgld.sources import gldv2
from hgld.tasks import watched_by
from tests.sources.made_set import write_tar


def index_tars(folder: Path, pattern: str, state: Path) -> pd.DataFrame:
    return pa.concat_tables(gldv2.index_tars(folder, pattern, state)).to_pandas()


FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def as_tarfile_sees(path: Path) -> list[tuple[str, int, int]]:
    with tarfile.open(path) as tar:
        return [(m.name, m.offset_data, m.size) for m in tar if m.isfile()]


@pytest.mark.parametrize("form", FORMATS)
def test_members_lie_where_pythons_own_reader_finds_them(form: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w", format=FORMATS[form]) as tar:
        for name, size in (("a/é.jpg", 0), ("a/" + "n" * 90 + "/b.jpg", 512), ("c.jpg", 513)):
            member = tarfile.TarInfo(name)
            member.size = size
            tar.addfile(member, io.BytesIO(b"x" * size))
        folder = tarfile.TarInfo("d")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        device = tarfile.TarInfo("null")
        device.type = tarfile.CHRTYPE
        tar.addfile(device)
    assert [(m.name, m.offset, m.size_bytes) for m in scan_tar(path)] == as_tarfile_sees(path)


def test_very_long_names_are_read(tmp_path: Path) -> None:
    for form in ("gnu", "pax"):
        path = tmp_path / f"{form}.tar"
        with tarfile.open(path, "w", format=FORMATS[form]) as tar:
            for name in ("p/" * 150 + "long.jpg", "short.jpg"):
                member = tarfile.TarInfo(name)
                member.size = 3
                tar.addfile(member, io.BytesIO(b"abc"))
        assert [(m.name, m.offset, m.size_bytes) for m in scan_tar(path)] == as_tarfile_sees(path)


def test_the_id_is_the_name_without_folder_and_ending(tmp_path: Path) -> None:
    write_tar(tmp_path / "x_0.tar", ["0123456789012345", "abcd"])
    table = index_tars(tmp_path, "x_*.tar", tmp_path / "state")
    assert list(table["image_id"]) == ["0123456789012345", "abcd"]
    assert set(table["path"]) == {"x_0.tar"}


def test_a_tar_without_members_is_no_fault(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", [])
    assert len(index_tars(tmp_path, "x.tar", tmp_path / "state")) == 0


@pytest.mark.parametrize("keep", [100, 700, 1024, 1537, 3000])
def test_a_tar_that_is_cut_anywhere_is_told_by_name(keep: int, tmp_path: Path) -> None:
    path = tmp_path / "images_007.tar"
    write_tar(path, ["abcd", "efgh"])
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InvalidData, match=rf"images_007\.tar: the tar is cut short at byte {keep}"):
        list(scan_tar(path))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty; expected a tar"),
        (b"<html>" * 200, "not a tar header at byte 0"),
        (b"\x1f\x8b" + bytes(600), "compressed"),
        (b"BZh91AY" + bytes(600), "compressed"),
    ],
)
def test_what_is_no_tar_is_told(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(data)
    with pytest.raises(InvalidData, match=message):
        list(scan_tar(path))


def test_damage_in_the_middle_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    write_tar(path, ["abcd", "efgh"])
    data = bytearray(path.read_bytes())
    data[1536 + 3] ^= 1  # a bit of the second header: 512 + 600 bytes, rounded up
    path.write_bytes(data)
    with pytest.raises(InvalidData, match="not a tar header at byte 1536"):
        list(scan_tar(path))


def pax_tar(path: Path, records: bytes) -> Path:
    """A tar whose first member has these bytes for a PAX header."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, kind, data in (("x", tarfile.XHDTYPE, records), ("a.jpg", tarfile.REGTYPE, b"x")):
            member = tarfile.TarInfo(name)
            member.type, member.size = kind, len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize(
    "records",
    [b"0 path=a\n", b"-9 path=a\n", b" path=a\n", b"x path=a\n", b"999 path=a\n", b"9 path", b"9",
     b"11 size=-1\n", b"10 size=x\n", b"30 size=99999999999999999999\n", b"7 path=\n",
     b"9 path=a\n0 a=\n"],
)  # fmt: skip
def test_a_damaged_pax_header_is_one_line(records: bytes, tmp_path: Path) -> None:
    path = pax_tar(tmp_path / "x.tar", records)
    with pytest.raises(InvalidData, match=r"x\.tar: (not a PAX header at byte 0|the tar is cut)"):
        list(scan_tar(path))


def test_a_name_of_other_bytes_than_utf8_is_read(tmp_path: Path) -> None:
    path = pax_tar(tmp_path / "x.tar", b"14 path=\xff.jpg\n")
    assert [m.name for m in scan_tar(path)] == ["\ufffd.jpg"]


@pytest.mark.parametrize("size", [b"-0000001000", b"+0000000001", b"0o000000001", b"0000_000001"])
def test_a_size_is_digits_alone(size: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    write_tar(path, ["abcd"])
    data = bytearray(path.read_bytes())
    data[124:136] = size.ljust(12, b"\0")
    data[148:156] = b"        "
    data[148:156] = b"%06o\0 " % sum(data[:512])
    path.write_bytes(data)
    with pytest.raises(InvalidData, match="no size in the tar header at byte 0"):
        list(scan_tar(path))


def test_a_header_of_a_name_is_bounded(tmp_path: Path) -> None:
    path = pax_tar(tmp_path / "x.tar", bytes(2 << 20))
    with pytest.raises(InvalidData, match="a name of 2097152 bytes at byte 0"):
        list(scan_tar(path))


def test_a_pipe_in_place_of_a_tar_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x_0.tar")
    with pytest.raises(InvalidData, match=r"x_0\.tar: a named pipe, not a file; expected a tar"):
        index_tars(tmp_path, "x_*.tar", tmp_path / "state")


def kept_scans(folder: Path) -> list[Path]:
    return sorted((folder / "state").rglob("*.scan"))


def test_a_kept_scan_is_used_while_it_is_whole(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", ["abcd"])
    first = index_tars(tmp_path, "x.tar", tmp_path / "state")
    (kept,) = kept_scans(tmp_path)
    before = kept.stat().st_mtime_ns
    assert index_tars(tmp_path, "x.tar", tmp_path / "state").equals(first)
    assert kept.stat().st_mtime_ns == before


def test_a_damaged_scan_is_made_again(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", ["abcd", "efgh"])
    first = index_tars(tmp_path, "x.tar", tmp_path / "state")
    (kept,) = kept_scans(tmp_path)
    whole = kept.read_bytes()
    for place in [*range(0, len(whole), 97), len(whole) - 1]:
        kept.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert index_tars(tmp_path, "x.tar", tmp_path / "state").equals(first)
        assert kept.read_bytes() == whole
    for part in (b"", whole[:10], whole[:100]):
        kept.write_bytes(part)
        assert index_tars(tmp_path, "x.tar", tmp_path / "state").equals(first)


def test_scans_that_change_places_are_made_again(tmp_path: Path) -> None:
    for name, ids in (("x_0", ["abcd"]), ("x_1", ["efgh"])):
        write_tar(tmp_path / f"{name}.tar", ids)
    first = index_tars(tmp_path, "x_*.tar", tmp_path / "state")
    one, other = kept_scans(tmp_path)
    swapped = one.read_bytes(), other.read_bytes()
    other.write_bytes(swapped[0])
    one.write_bytes(swapped[1])
    assert index_tars(tmp_path, "x_*.tar", tmp_path / "state").equals(first)


def test_a_tar_that_changed_with_its_size_and_time_kept_is_scanned_again(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    write_tar(path, ["abcd"])
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    index_tars(tmp_path, "x.tar", tmp_path / "state")
    write_tar(path, ["efgh"])
    os.utime(path, ns=times)
    found = index_tars(tmp_path, "x.tar", tmp_path / "state")
    assert found["image_id"].tolist() == ["efgh"]


def test_of_many_tars_no_further_one_is_read_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sink(items: Iterable[int], *_: object) -> Iterator[int]:
        yield from (item for item in items)  # closes none, as the bar of the command line

    def look(tar: Path, **_: object) -> pa.Table:
        read.append(tar)
        time.sleep(0.005)
        return pa.table({})

    read: list[Path] = []
    for number in range(2000):
        (tmp_path / f"{number}.tar").touch()
    monkeypatch.setattr(gldv2, "_index_tar", look)
    with watched_by(sink):
        tables = gldv2.index_tars(tmp_path, "*.tar", tmp_path)
        next(tables)
        tables.close()
    assert len(read) < 2000
