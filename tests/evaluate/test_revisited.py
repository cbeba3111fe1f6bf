"""Worked by hand from the rules of the paper; no code of a release stands behind the numbers."""

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hgld.errors import InvalidData
from hgld.evaluate.given import Given
from hgld.evaluate.revisited import Answers, ranks_of, revisited_ap, score_revisited


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
        ({"easy": [8], "hard": [], "junk": []}, "row 8 of 8 images"),
        ({"easy": [1], "hard": [1], "junk": []}, "an image is of two kinds"),
    ],
)
def test_wrong_answers_are_refused(gnd: dict[str, Any], found: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=found):
        Answers.read(write_answers(tmp_path, gnd))


def test_a_pickle_is_not_read_and_the_way_to_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "gnd.pkl").write_bytes(b"cos\nsystem\n(S'touch ruined'\ntR.")
    with pytest.raises(InvalidData, match="a pickle can run any code; turn it to JSON"):
        Answers.read(tmp_path / "gnd.pkl")


def test_another_number_of_images_is_refused(tmp_path: Path) -> None:
    answers = Answers.read(write_answers(tmp_path, {"easy": [1], "hard": [], "junk": []}, images=9))
    with pytest.raises(InvalidData, match="8 embeddings; the answers list 9"):
        score_revisited(QUERY, GALLERY, answers)
