"""Worked by hand from the rules of the paper; no code of a release stands behind the numbers."""

import json
import math
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hgld.artifacts import declared_table
from hgld.errors import InvalidData, MissingInput
from hgld.evaluate.given import Given
from hgld.evaluate.revisited import (
    Answers,
    describe_overlap,
    ranks_of,
    revisited_ap,
    score_revisited,
)


def angles(*degrees: float) -> np.ndarray:
    turned = np.deg2rad(np.array(degrees))
    return np.stack([np.cos(turned), np.sin(turned)], axis=1).astype(np.float32)


def write_answers(folder: Path, *gnd: dict[str, Any], images: int = 8) -> Path:
    path = folder / "gnd.json"
    document = {
        "qimlist": [f"q{i}" for i in range(len(gnd))],
        "imlist": [f"i{i}" for i in range(images)],
        "gnd": [{"bbx": [0, 0, 1, 1], **one} for one in gnd],
    }
    path.write_text(json.dumps(document))
    return path


GALLERY = Given(Path("gallery.npy"), angles(1, 2, 3, 4, 5, 6, 7, 8))  # found in this order
QUERY = Given(Path("query.npy"), angles(0))


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([1], 1),
        ([1, 2, 3], 1),
        ([2], Fraction(1, 2) * (0 + Fraction(1, 2))),
        ([1, 3], Fraction(1, 2) * (1 + (Fraction(1, 2) + Fraction(2, 3)) / 2)),
        ([4, 5], Fraction(1, 4) * (Fraction(1, 4) + Fraction(1, 4) + Fraction(2, 5))),
    ],
)
def test_ap_is_the_area_below_the_curve(ranks: list[int], expected: float) -> None:
    assert revisited_ap(np.array(ranks)) == pytest.approx(float(expected))


def test_junk_leaves_the_ranking_and_shifts_what_comes_after(tmp_path: Path) -> None:
    """Ranking: junk, easy, other, hard, junk, easy, other, other.

    easy: junk and hard are out, which leaves easy, other, easy, other, other: ranks 1, 3.
    medium: junk is out: easy, other, hard, easy, other, other: ranks 1, 3, 4.
    hard: junk and easy are out: other, hard, other, other: rank 2.
    """
    answers = Answers.read(write_answers(tmp_path, {"easy": [1, 5], "hard": [3], "junk": [0, 4]}))
    found = score_revisited(QUERY, GALLERY, answers)
    assert found["easy"].mean == pytest.approx((1 + (1 / 2 + 2 / 3) / 2) / 2)
    assert found["medium"].mean == pytest.approx(
        (1 + (1 / 2 + 2 / 3) / 2 + (2 / 3 + 3 / 4) / 2) / 3
    )
    assert found["hard"].mean == pytest.approx((0 + 1 / 2) / 2)
    assert found["easy"].precision == {1: 1.0, 5: pytest.approx(2 / 3), 10: pytest.approx(2 / 3)}
    assert found["medium"].precision == {1: 1.0, 5: pytest.approx(3 / 4), 10: pytest.approx(3 / 4)}
    assert found["hard"].precision == {1: 0.0, 5: 0.5, 10: 0.5}


def test_a_query_without_relevant_images_is_left_out_of_that_protocol(tmp_path: Path) -> None:
    query = Given(Path("query.npy"), angles(0, 0))
    answers = Answers.read(
        write_answers(
            tmp_path,
            {"easy": [0], "hard": [], "junk": [1]},
            {"easy": [], "hard": [0], "junk": []},
        )
    )
    found = score_revisited(query, GALLERY, answers)
    assert found["easy"].mean == 1 and math.isnan(found["easy"].values[1])
    assert found["hard"].mean == 1 and math.isnan(found["hard"].values[0])
    assert found["medium"].values.tolist() == [1, 1]


def test_among_equal_scores_the_relevant_come_last() -> None:
    scores = np.array([0.5, 0.5, 0.5, 0.9])
    assert ranks_of(scores, np.array([0]), np.array([3])).tolist() == [3]
    assert ranks_of(scores, np.array([0, 1]), np.array([], int)).tolist() == [3, 4]


def test_images_of_one_vector_tie_wherever_they_are(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    query, image = (random.normal(size=(n, 100)).astype(np.float32) for n in (20, 1))
    answers = [{"easy": [n, 49 - n], "hard": [], "junk": []} for n in range(20)]
    found = score_revisited(
        Given(Path("query.npy"), query),
        Given(Path("gallery.npy"), image.repeat(50, axis=0)),
        Answers.read(write_answers(tmp_path, *answers, images=50)),
    )
    assert set(found["easy"].values) == {revisited_ap(np.array([49, 50]))}


def test_images_are_found_by_name_where_there_are_names(tmp_path: Path) -> None:
    mixed = np.array([3, 1, 2, 0, 7, 6, 5, 4])
    names = np.array([f"i{i}" for i in mixed])
    gallery = Given(Path("g.npz"), GALLERY.vectors[mixed], names)
    query = Given(Path("q.npz"), QUERY.vectors, np.array(["q0"]))
    answers = Answers.read(write_answers(tmp_path, {"easy": [1, 5], "hard": [3], "junk": [0, 4]}))
    by_name, by_row = (score_revisited(query, side, answers) for side in (gallery, GALLERY))
    assert by_name["medium"].values.tolist() == by_row["medium"].values.tolist()


@pytest.mark.parametrize(
    ("gnd", "found"),
    [
        ({"easy": [0], "hard": []}, r"not the answers .*'junk'"),
        ({"easy": [8], "hard": [], "junk": []}, r"\(gnd\[0\]: row 8 of 8 images\).*; get the file"),
        ({"easy": [1], "hard": [1], "junk": []}, "an image is of two kinds"),
        ({"easy": [1.5], "hard": [], "junk": []}, "easy is not a list of row numbers"),
        ({"easy": [], "hard": [[1]], "junk": []}, "hard is not a list of row numbers"),
    ],
)
def test_wrong_answers_are_refused(gnd: dict[str, Any], found: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=found):
        Answers.read(write_answers(tmp_path, gnd))


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_of_lists_and_arrays_is_read_as_json_is(tmp_path: Path, protocol: int) -> None:
    path = write_answers(tmp_path, {"easy": [1], "hard": [4, 2], "junk": []})
    document = json.loads(path.read_text())
    document["gnd"] = [
        {name: np.array(rows, np.int64) for name, rows in one.items()} for one in document["gnd"]
    ]
    (tmp_path / "gnd.pkl").write_bytes(pickle.dumps(document, protocol))
    found, expected = Answers.read(tmp_path / "gnd.pkl"), Answers.read(path)
    assert (found.queries, found.images) == (expected.queries, expected.images)
    for one, other in zip(found.found, expected.found, strict=True):
        assert {name: rows.tolist() for name, rows in one.items()} == {
            name: rows.tolist() for name, rows in other.items()
        }


def test_a_pickle_that_would_run_a_command_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gnd.pkl").write_bytes(b"cos\nsystem\n(S'touch ruined'\ntR.")
    with pytest.raises(InvalidData, match=r"it asks for os\.system, which is no data"):
        Answers.read(tmp_path / "gnd.pkl")
    assert not (tmp_path / "ruined").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cnumpy.no_such\ndtype\n.",
        b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00lptR.",
        b"}K\x01a.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff",
    ],
    ids=["module", "encoding", "append", "length"],
)
def test_a_damaged_pickle_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "gnd.pkl").write_bytes(content)
    with pytest.raises(InvalidData, match=r"gnd\.pkl: not the answers of Revisited"):
        Answers.read(tmp_path / "gnd.pkl")


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("gnd.pkl", b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", "exceeds"),  # a longer text than any
        ("gnd.pkl", b"cnumpy.core.multiarray\nno\n.", "asks for numpy"),
        ("gnd.pkl", b"cnumpy.f2py.__main__\ndtype\n.", r"asks for numpy\.f2py"),
        ("gnd.json", b"[" * 100_000, "recursion"),
        ("gnd.json", b'{"imlist": "abc", "qimlist": "q", "gnd": []}', "a text in the place"),
    ],
)
def test_damaged_answers_are_one_clear_line(
    name: str, content: bytes, found: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidData, match=f"not the answers .*{found}"):
        Answers.read(tmp_path / name)


def test_another_number_of_images_is_refused(tmp_path: Path) -> None:
    answers = Answers.read(write_answers(tmp_path, {"easy": [1], "hard": [], "junk": []}, images=9))
    with pytest.raises(InvalidData, match="8 embeddings; the answers list 9"):
        score_revisited(QUERY, GALLERY, answers)


URL = "http://commons.wikimedia.org/wiki/Category:X"


@pytest.mark.parametrize(
    ("commons_url", "dropped", "says"),
    [
        (URL, [("not clean", "")], "warning: {}: no list left images out, and GLDv2"),
        (URL, [("excluded", "in b.csv")] * 2 + [("excluded", "in a.csv")],
         "warning: {}: lists left out 1 image in a.csv, 2 images in b.csv, and GLDv2"),
        (URL, [("excluded", "in b.csv"), ("excluded", "not in RGLDv2-clean.csv")],
         "note: {}: lists left out 1 image in b.csv, 1 image not in RGLDv2-clean.csv"),
        ("", [("not clean", "")], ""),
    ],
)  # fmt: skip
def test_a_training_set_that_no_list_of_those_that_stay_reduced_gives_a_warning(
    commons_url: str, dropped: list[tuple[str, str]], says: str, tmp_path: Path
) -> None:
    landmark = {"split": "train", "landmark_id": 1, "name": "x", "commons_url": commons_url}
    rows = [
        {"split": "train", "image_id": f"i{n}", "reason": reason, "detail": detail}
        for n, (reason, detail) in enumerate(dropped)
    ]
    for name, table in (("landmarks", [landmark]), ("images_dropped", rows)):
        declared = declared_table(name)
        declared.write(pd.DataFrame(table), tmp_path / declared.file)
    found = describe_overlap(tmp_path)
    assert found.startswith(says.format(tmp_path)) and (bool(says) or not found)


def test_an_unknown_training_set_gives_a_warning_and_a_wrong_place_an_error(tmp_path: Path) -> None:
    assert "--trained-on" in describe_overlap(None)
    with pytest.raises(MissingInput, match=r"landmarks\.csv: missing"):
        describe_overlap(tmp_path)
