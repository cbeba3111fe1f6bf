import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hgld.artifacts import (
    ARTIFACTS,
    Json,
    Table,
    VectorFile,
    Vectors,
    atomic_files,
    atomic_folder,
    atomic_path,
    declared_table,
    edit_csv,
    hash_file,
    read_csv,
    read_header,
    write_file,
)
from hgld.errors import InvalidData

LANDMARKS = declared_table("landmarks")
HEADER = "split,landmark_id,name,commons_url\n"


def csv(folder: Path, text: str | bytes) -> Path:
    path = folder / "landmarks.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    table = LANDMARKS.read(csv(tmp_path, HEADER + 'train,2,"Tweed Heads, NSW",http://x\n'))
    LANDMARKS.write(table, tmp_path / "again.csv")
    pd.testing.assert_frame_equal(LANDMARKS.read(tmp_path / "again.csv"), table)


def test_rows_are_sorted_by_key_so_that_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    rows = ["train,10,b,\n", "train,9,a,\n", "index,3,c,\n"]
    for name, order in (("one.csv", rows), ("two.csv", rows[::-1])):
        LANDMARKS.write(LANDMARKS.read(csv(tmp_path, HEADER + "".join(order))), tmp_path / name)
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()
    assert (tmp_path / "one.csv").read_text().splitlines()[1:] == [
        "index,3,c,",
        "train,9,a,",
        "train,10,b,",
    ]


def test_appended_rows_leave_what_a_person_has_there_as_it_is(tmp_path: Path) -> None:
    table, path = declared_table("decisions"), tmp_path / "decisions.csv"
    old = "key,key_type,decision,supercategory,kind,who,when,why,supersedes"
    path.write_text(f"my column,{old}\n1.0,pub,label,drop,,,a,2026-01-01,NA,\n")
    row = dict.fromkeys(table.columns, "") | {"key": "007", "key_type": "label", "decision": "keep"}
    table.append(pd.DataFrame([row]), path)
    assert path.read_text().splitlines() == [
        f"my column,{old},evidence,entry,undoes",
        "1.0,pub,label,drop,,,a,2026-01-01,NA,,,,",
        ",007,label,keep,,,,,,,,,",
    ]


def test_a_full_disk_is_told_with_the_file_that_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "landmarks.csv"
    with pytest.raises(OSError, match="No space left") as error, atomic_path(path):
        Path("/dev/full").write_text("x")
    assert error.value.filename == str(path)


@pytest.mark.parametrize("writer", [atomic_folder, atomic_files])
def test_a_full_disk_is_told_with_the_folder_that_it_stopped(writer, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as error, writer(tmp_path):
        Path("/dev/full").write_text("x")
    assert error.value.filename == str(tmp_path)


def test_a_document_of_a_person_is_not_said_to_be_made_again(tmp_path: Path) -> None:
    path = tmp_path / "agreement.json"
    path.write_text("")
    with pytest.raises(InvalidData, match=r"not a JSON document .*; mend it or delete it$"):
        ARTIFACTS["agreement"].read(path)


def test_the_word_none_and_an_id_of_digits_stay_text(tmp_path: Path) -> None:
    path = csv(tmp_path, "id,images\n0123456789012345,None\n")
    table = read_csv(path, {"id": "text", "images": "text"})
    assert table.iloc[0].tolist() == ["0123456789012345", "None"]


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_bom_and_line_ends_do_not_matter(tmp_path: Path, start: bytes, end: bytes) -> None:
    path = csv(tmp_path, start + b"id,n" + end + "é,7".encode() + end)
    assert read_csv(path, {"id": "text", "n": "int"}).to_numpy().tolist() == [["é", 7]]


def test_blanks_around_the_name_of_a_column_do_not_count(tmp_path: Path) -> None:
    path = csv(tmp_path, "id, n , \nx,7,\n")
    assert read_header(path, []) == ["id", "n", ""]
    assert read_csv(path, {"id": "text", "n": "int"}).to_numpy().tolist() == [["x", 7]]
    assert edit_csv(path.read_bytes(), {0: {"n": "8"}}) == b"id, n , \nx,8,\n"


def test_an_empty_file_of_any_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="the file is empty; expected a header and rows"):
        read_csv(csv(tmp_path, b""), {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty; expected the columns split, landmark_id"),
        ("split,landmark_id,nam,commons_url\n", "column 'name' is missing"),
        (HEADER + "train,x7,a,\n", "row 2: landmark_id is 'x7'; expected a whole number"),
        (HEADER + "train,1_000,a,\n", "row 2: landmark_id is '1_000'; expected a whole number"),
        (HEADER + "train,7,a,\ntrain,\u0663,a,\n", "row 3: landmark_id is '\u0663'; expected a"),
        (HEADER.replace("commons_url", "name"), "2 columns are called 'name'; give each a name"),
        ("c," * 1_200 + "\n", "1,201 columns or more; 1,000 are read at most"),
        (HEADER + "train,7,a," + "," * 1_200 + "\n", "row 2: 1204 cells under 4 columns"),
        (HEADER + "trian,7,a,\n", "row 2: split is 'trian'; expected one of train, index"),
        (HEADER + "train,7,a,\ntrain,8,b,\ntrain,7,c,\n", "row 4: split train landmark_id 7 "),
        (HEADER + "train,7,a,,,,\n", "row 2: 7 cells under 4 columns"),
        (HEADER + 'train,7,"a\nb",\ntrain,8,b,,\n', "row 3: 5 cells under 4 columns"),
        (HEADER + "train,7,a,\n\ntrain,8,b\ntrain,9,c,\n", "row 4: 3 of 4 cells; the row"),
        (HEADER + "train,7,a,x\ntrain,8", "row 3: 2 of 4 cells; the row or the file is cut"),
        (HEADER + "train,7,a,x\n\n \ntrain,x7,b,x\n", "row 5: landmark_id is 'x7'"),
        (HEADER + "\ntrain,7,a,x\n\r\ntrian,8,b,x\n", "row 5: split is 'trian'"),
        ("\n" + HEADER + 'train,7,"a\n\nb",x\n\ntrain,7,b,x\n', "row 5: split train landmark_id 7"),
        (HEADER + f"train,7,a,\ntrain,{2**63},,\n", "row 3: landmark_id is '92233720"),
        (HEADER.replace(",", ";") + "train;7;a;\n", "cells are separated by semicolons"),
        (HEADER.replace(",", "\t") + "train\t7\ta,b\t\n", "cells are separated by tabs"),
        (b"\xff\xfe", "not UTF-8 text"),
        (HEADER.encode("utf-16"), "not UTF-8 text; save it as CSV in UTF-8"),
        (
            HEADER + "<<<<<<< HEAD\ntrain,7,a,\n",
            "row 2: '<<<<<<< HEAD' is a mark of a merge in git",
        ),
        (
            "<<<<<<< HEAD\n" + HEADER + "=======\n",
            "row 1: '<<<<<<< HEAD' is a mark of a merge in git",
        ),
        ("sep=,\r\n" + HEADER, "row 1: 'sep=' declares the delimiter to Excel; delete the row"),
    ],
)
def test_a_wrong_table_says_where(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidData) as caught:
        LANDMARKS.read(csv(tmp_path, text))
    assert "landmarks.csv" in str(caught.value)
    assert says in str(caught.value)


def test_a_row_that_is_to_be_written_counts_without_the_blank_lines_of_the_old_file(
    tmp_path: Path,
) -> None:
    path = csv(tmp_path, HEADER + "\n\ntrain,7,a,x\n")
    table = LANDMARKS.read(path).assign(split="trian")
    with pytest.raises(InvalidData, match="row 2: split is 'trian'"):
        LANDMARKS.write(table, path)


def test_columns_of_a_person_may_have_one_name(tmp_path: Path) -> None:
    path = csv(tmp_path, "note,id,note\nx,7,y\n")
    assert read_csv(path, {"id": "int"})["id"].tolist() == [7]


@pytest.mark.parametrize("mark", ["\x0b", "\x1b", "\x85", "\u2028", "\n"])
def test_a_column_name_cannot_break_the_line_of_an_error(tmp_path: Path, mark: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f'id,"sc{mark}ore"\n1,2\n', encoding="utf-8")
    with pytest.raises(InvalidData, match="'score' is missing; it has id, sc ore") as caught:
        read_csv(path, {"id": "int", "score": "int"})
    assert str(caught.value).isprintable()


def test_a_missing_column_names_the_nearest(tmp_path: Path) -> None:
    path = csv(tmp_path, "split,landmark_id,nmae,commons_url\n")
    with pytest.raises(InvalidData, match="did you mean 'nmae'"):
        LANDMARKS.read(path)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = csv(tmp_path, "old")
    with pytest.raises(RuntimeError), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["landmarks.csv"]


def test_a_text_and_bytes_are_written_as_whole_files(tmp_path: Path) -> None:
    for content in ("Café\n", "Café\n".encode()):
        write_file(tmp_path / "new" / "a.txt", content)
        assert (tmp_path / "new" / "a.txt").read_bytes() == b"Caf\xc3\xa9\n"
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.txt"]


REPLACE = """
import os, shutil, sys
from pathlib import Path
from hgld.artifacts import atomic_folder

def replace(path, stopped_at, stop):
    steps = iter(range(1000))
    def watch(event, arguments):
        if event in ("os.rename", "os.remove", "os.rmdir") and next(steps) == stopped_at:
            stop()
    with atomic_folder(path) as folder:
        for name in "ab":
            (folder / name).write_text("new")
        sys.addaudithook(watch)

def fail():
    raise PermissionError

for number in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        stop = fail if sys.argv[3] == "fail" else lambda: os._exit(9)
        try:
            replace(Path(sys.argv[1], str(number), "release"), number, stop)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
"""
STEPS = 5  # old aside, new in, two files and the folder of the old one removed


@pytest.mark.parametrize("how", ["kill", "fail"])
def test_a_folder_is_the_old_or_the_new_one_wherever_it_was_stopped(
    tmp_path: Path, how: str
) -> None:
    folders = [tmp_path / str(number) / "release" for number in range(STEPS + 1)]
    for folder in folders:
        folder.mkdir(parents=True)
        for name in "ab":
            (folder / name).write_text("old")
    command = [sys.executable, "-c", REPLACE, str(tmp_path), str(len(folders)), how]
    subprocess.run(command, check=True)
    found = []
    for folder in folders:
        with pytest.raises(RuntimeError), atomic_folder(folder):
            raise RuntimeError
        found.append([path.read_text() for path in sorted(folder.iterdir())])
        assert [path.name for path in folder.parent.iterdir()] == ["release"]
    assert found == 2 * [["old", "old"]] + (STEPS - 1) * [["new", "new"]]


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo])
def test_a_file_in_the_place_of_a_folder_is_told(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path / "release")
    with (
        pytest.raises(InvalidData, match="stands where a folder"),
        atomic_folder(tmp_path / "release"),
    ):
        raise AssertionError("nothing is written")


def test_a_pipe_and_the_current_folder_are_not_replaced_by_a_folder(tmp_path, monkeypatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    for path, message in (
        (tmp_path / "pipe", "stands where a folder"),
        (Path(), "cannot be replaced"),
        (Path("new", ".."), "cannot be replaced"),
    ):
        with pytest.raises(InvalidData, match=message), atomic_folder(path):
            raise AssertionError("nothing is written")
    assert (tmp_path / "pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_spreadsheet_table_has_a_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    review = declared_table("review")
    review.write(review.empty(), tmp_path / "review.csv")
    text = (tmp_path / "review.csv").read_bytes()
    assert text.startswith(b"\xef\xbb\xbfdecision,") and text.endswith(b"\r\n")


def test_vectors_come_back_with_their_ids_and_facts(tmp_path: Path) -> None:
    vectors = Vectors(["Q1", "Q2"], np.eye(2, dtype=np.float32), {"encoder": "e"})
    VectorFile("v.npz").write(vectors, tmp_path / "v.npz")
    found = VectorFile("v.npz").read(tmp_path / "v.npz")
    assert found.ids == vectors.ids and found.made_by == vectors.made_by
    np.testing.assert_array_equal(found.vectors, vectors.vectors)


def test_a_damaged_vector_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "v.npz").write_bytes(b"PK\x03\x04 half a file")
    with pytest.raises(InvalidData, match=r"v.npz: not a readable vector file"):
        VectorFile("v.npz").read(tmp_path / "v.npz")


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    images = ARTIFACTS["images"]
    (tmp_path / "images.parquet").write_bytes(b"PAR1 half a file")
    with pytest.raises(InvalidData, match=r"images.parquet: not a readable Parquet file"):
        images.read(tmp_path / "images.parquet")


def test_a_complete_last_row_needs_no_line_end(tmp_path: Path) -> None:
    table = LANDMARKS.read(csv(tmp_path, HEADER + "train,7,a,x\ntrain,8,b,"))
    assert table["landmark_id"].tolist() == [7, 8]


def test_a_cell_longer_than_the_csv_module_takes_by_default_is_read(tmp_path: Path) -> None:
    path = csv(tmp_path, "images,note\n" + "0123456789abcdef " * 10_000 + ",\n")
    assert len(read_csv(path, {"images": "text"})["images"].iloc[0]) == 170_000


def test_a_header_above_such_a_cell_is_read(tmp_path: Path) -> None:
    path = csv(tmp_path, "images,note\n" + "0123456789abcdef " * 10_000 + ",\n")
    assert read_header(path, ["images"]) == ["images", "note"]


def test_the_word_nan_is_no_number(tmp_path: Path) -> None:
    path = csv(tmp_path, "margin\n0.5\nnan\n")
    with pytest.raises(InvalidData, match="row 3: margin is 'nan'; expected a number"):
        read_csv(path, {"margin": "float"})


@pytest.mark.parametrize("odd", ["x", None, 1.5, 2**70])
def test_a_parquet_cell_that_is_no_whole_number_is_told(tmp_path: Path, odd: object) -> None:
    table = pd.DataFrame({"id": pd.Series([1, odd, 3], dtype=object)})
    with pytest.raises(InvalidData, match=r"row 3: id is .*; expected a whole number"):
        Table("t.parquet", {"id": "int"}).check(table, tmp_path / "t.parquet")


def test_whole_numbers_of_another_type_are_taken(tmp_path: Path) -> None:
    table = pd.DataFrame({"id": [1.0, 2.0], "n": np.array([3, 4], np.int8)})
    checked = Table("t.parquet", {"id": "int", "n": "int"}).check(table, tmp_path)
    assert checked.to_numpy().tolist() == [[1, 3], [2, 4]]
    assert set(checked.dtypes.astype(str)) == {"int64"}


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_vectors_that_are_not_finite_are_refused(tmp_path: Path, odd: float) -> None:
    VectorFile("v.npz").write(Vectors(["Q1"], np.array([[1, odd]]), {}), tmp_path / "v.npz")
    with pytest.raises(InvalidData, match=r"v\.npz: vectors that are no finite numbers"):
        VectorFile("v.npz").read(tmp_path / "v.npz")


@pytest.mark.parametrize("models", [None, {}])
def test_an_evaluation_without_models_is_refused(tmp_path: Path, models: object) -> None:
    document = {"protocol": {"query": "test"}, "metrics": ["map"], "models": models}
    Json("report.json").write(document, tmp_path / "report.json")
    evaluation = ARTIFACTS["evaluation"]
    with pytest.raises(InvalidData, match=r"report\.json: 'models' is missing or empty"):
        evaluation.read(tmp_path / "report.json")


@pytest.mark.parametrize("name", ["landmarks", "images", "evaluation", "label_vectors"])
def test_a_folder_in_the_place_of_a_file_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidData, match="a folder stands where a file belongs; move it away"):
        ARTIFACTS[name].read(tmp_path)
    with pytest.raises(InvalidData, match="a folder stands"), atomic_path(tmp_path):
        raise AssertionError("nothing is written")


def test_a_link_to_a_stream_is_not_replaced(tmp_path: Path) -> None:
    """/dev/stdout is such a link; if stdout is a file, the link leads to a file."""
    link = tmp_path / "stdout"
    with (tmp_path / "out").open("w") as file:
        link.symlink_to(f"/proc/self/fd/{file.fileno()}")
        with pytest.raises(InvalidData, match="a stream, where a file belongs"), atomic_path(link):
            raise AssertionError("nothing is written")
    assert link.is_symlink()


@pytest.mark.parametrize("name", ["landmarks", "images", "evaluation", "label_vectors"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_device_is_refused_before_it_is_read(
    tmp_path: Path, name: str, kind: str
) -> None:
    path = tmp_path / "x"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(InvalidData, match="x: a pipe or a device, where a file belongs"):
        ARTIFACTS[name].read(path)
    with pytest.raises(InvalidData, match="a pipe or a device"):
        hash_file(path)


def test_an_error_of_a_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error") as error:
        LANDMARKS.write(LANDMARKS.empty(), tmp_path / "landmarks.csv")
    assert "landmarks.csv" in str(error.value.filename)
    with pytest.raises(OSError, match="error") as error, atomic_folder(tmp_path / "new") as folder:
        (folder / "a").write_text("")
    assert str(tmp_path) in str(error.value.filename)


def test_a_document_that_is_nested_too_deeply_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("[" * 100_000)
    with pytest.raises(InvalidData, match=r"report\.json: not a JSON document"):
        ARTIFACTS["evaluation"].read(tmp_path / "report.json")


def test_a_first_row_of_very_many_cells_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("path,group\n" + "x," * 1_000_000 + "y\n")
    with pytest.raises(InvalidData, match=r"row 2: \d+ cells under 2 columns"):
        read_csv(tmp_path / "a.csv", {"path": "text", "group": "text"})
