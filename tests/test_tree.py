import os
import socket
from pathlib import Path

import pytest

from hgld.artifacts import list_tree, size_of_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "photos"
    (made / "a/b").mkdir(parents=True)
    for name in ("one.jpg", "a/two.jpg", "a/b/three.jpg", ".hidden.jpg"):
        (made / name).write_bytes(b"x")
    return made


def names(folder: Path, **options: bool) -> list[str]:
    return [p.relative_to(folder).as_posix() for p in list_tree(folder, **options).files]


def passed_over(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): w for p, w in list_tree(folder).passed_over.items()}


ALL = [".hidden.jpg", "a/b/three.jpg", "a/two.jpg", "one.jpg"]


def test_files_are_sorted_and_hidden_ones_can_be_left_out(folder: Path) -> None:
    assert names(folder) == ALL
    assert names(folder, hidden=False) == ALL[1:]


def test_links_in_loops_and_to_folders_above_are_passed_over(folder: Path) -> None:
    for name, target in (("x", "."), ("y", "."), ("a/up", ".."), ("root", "/")):
        (folder / name).symlink_to(target)
    assert names(folder) == ALL
    assert passed_over(folder) == dict.fromkeys(
        ("x", "y", "a/up", "root"), "a link to a folder above it"
    )


def test_two_folders_that_link_to_each_other_are_listed_once(folder: Path) -> None:
    (folder / "a/c").symlink_to(folder / "d")
    (folder / "d").mkdir()
    (folder / "d/e").symlink_to(folder / "a")
    assert names(folder) == ALL


def test_a_linked_folder_is_followed_and_what_is_linked_twice_is_listed_once(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere/deep").mkdir(parents=True)
    (tmp_path / "elsewhere/deep/four.jpg").write_bytes(b"x")
    (folder / "m").symlink_to(tmp_path / "elsewhere/deep")
    (folder / "n").symlink_to(tmp_path / "elsewhere")
    (folder / "alias").symlink_to("a")
    assert names(folder) == sorted([*ALL, "m/four.jpg"])
    assert passed_over(folder) == {
        "alias": "a folder whose files are listed under another path",
        "n": "a link to a folder above it",
    }


def test_a_link_in_a_linked_folder_to_a_folder_above_the_first_is_passed_over(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (folder / "m").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/back").symlink_to(tmp_path)
    assert names(folder) == ALL
    assert passed_over(folder) == {"m/back": "a link to a folder above it"}


def test_many_folders_with_two_links_each_are_listed_in_no_time(tmp_path: Path) -> None:
    for i in range(40):
        (tmp_path / f"{i}").mkdir()
        (tmp_path / f"{i}/l").symlink_to(f"../{i + 1}")
        (tmp_path / f"{i}/r").symlink_to(f"../{i + 1}")
    (tmp_path / "40").mkdir()
    (tmp_path / "40/x.jpg").write_bytes(b"x")
    assert names(tmp_path) == ["40/x.jpg"]


def test_pipes_sockets_devices_and_broken_links_are_passed_over(folder: Path) -> None:
    os.mkfifo(folder / "p.jpg")
    (folder / "gone.jpg").symlink_to("nowhere")
    (folder / "self.jpg").symlink_to("self.jpg")
    (folder / "zero.jpg").symlink_to("/dev/zero")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "s.jpg"))
    listener.close()
    assert names(folder) == ALL
    assert passed_over(folder) == {
        "p.jpg": "a named pipe, not a file",
        "s.jpg": "a socket, not a file",
        "zero.jpg": "a device, not a file",
        "gone.jpg": "a broken link",
        "self.jpg": "Too many levels of symbolic links",
    }


def test_a_file_is_told_from_what_is_none(folder: Path) -> None:
    assert size_of_file(folder / "one.jpg") == (1, "")
    assert size_of_file(folder / "none.jpg") == (-1, "no such file")
    assert size_of_file(folder / "one.jpg/x") == (-1, "no such file")
    assert size_of_file(folder / "a") == (-1, "a folder, not a file")
    assert size_of_file(folder / ("n" * 300)) == (-1, "File name too long")
    assert size_of_file(folder / "a\0b")[0] == -1


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert list_tree(tmp_path / "none").files == []
