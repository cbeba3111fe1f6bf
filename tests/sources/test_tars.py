import io
import tarfile
from pathlib import Path

import pytest

from hgld.errors import InvalidData
from hgld.sources.tars import index_tars, scan_tar
from tests.sources.made_set import write_tar

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
        link = tarfile.TarInfo("l.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "c.jpg"
        tar.addfile(link)
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
