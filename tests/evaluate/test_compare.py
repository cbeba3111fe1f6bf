from itertools import product
from pathlib import Path

import numpy as np
import pytest

from hgld.errors import InvalidData, MissingInput, UsageError
from hgld.evaluate.compare import bootstrap_interval, compare
from hgld.evaluate.ranking import read_top_levels
from hgld.evaluate.results import Measured, open_measured
from tests.evaluate.made_evaluation import write_evaluation, write_levels

IDS = ("a", "b", "c", "d")
OLD = {"H-AP": (0.5, 0.5, 0.5, 0.5), "AP:kind": (1, 1, np.nan, 1)}
NEW = {"H-AP": (0.9, 0.4, 0.5, 0.7), "AP:kind": (1, 0.5, 0.5, 1)}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_evaluation(tmp_path, {"old": OLD, "new": NEW}, IDS)
    write_levels(tmp_path, "old", IDS, [3, 0, 0, 1])
    write_levels(tmp_path, "new", IDS, [3, 3, 2, 1])
    return tmp_path


def both(place: Path) -> tuple[Measured, Measured]:
    return open_measured(f"{place}:old"), open_measured(f"{place}:new")


def test_differences_are_of_the_queries_that_both_have_a_value_of(place: Path) -> None:
    h_ap, ap = compare(*both(place)).differences
    assert (h_ap.queries, h_ap.gained, h_ap.lost) == (4, 2, 1)
    assert (h_ap.a, h_ap.b) == (0.5, pytest.approx(0.625))
    assert h_ap.difference == pytest.approx((0.4 - 0.1 + 0 + 0.2) / 4)
    assert (ap.queries, ap.gained, ap.lost) == (3, 0, 1)
    assert (ap.a, ap.b, ap.difference) == (1, pytest.approx(2.5 / 3), pytest.approx(-0.5 / 3))


def test_queries_are_told_from_the_greatest_gain_to_the_greatest_loss(place: Path) -> None:
    told = compare(*both(place)).by_query
    assert told["image_id"].tolist() == ["a", "d", "c", "b"]
    assert told["difference"].tolist() == pytest.approx([0.4, 0.2, 0, -0.1])


def test_mistakes_are_counted_by_how_far_off_they_are(place: Path) -> None:
    severity = compare(*both(place)).severity
    assert severity["first_image"].tolist() == [
        "same landmark",
        "same supercategory",
        "same kind",
        "another kind",
    ]
    assert severity["a"].tolist() == [1, 0, 1, 2] and severity["b"].tolist() == [2, 1, 1, 0]


def test_the_interval_is_that_of_all_draws() -> None:
    """Of three differences there are 27 draws; the quantiles of all of them, by hand."""
    values = np.array([0.0, 0.3, 0.9])
    means = sorted(sum(draw) / 3 for draw in product(values, repeat=3))
    low, high = bootstrap_interval(values, draws=20_000, share=0.8)
    assert low == pytest.approx(np.quantile(means, 0.1), abs=1e-9)
    assert high == pytest.approx(np.quantile(means, 0.9), abs=1e-9)


def test_the_interval_is_the_same_for_the_same_seed(place: Path) -> None:
    first, again, other = (compare(*both(place), seed=seed).differences[0] for seed in (1, 1, 2))
    assert first == again
    assert first.low <= first.difference <= first.high
    assert other.difference == first.difference


def test_a_model_against_itself_is_no_better(place: Path) -> None:
    old = open_measured(f"{place}:old")
    found = compare(old, old)
    assert all(
        (row.low, row.high, row.gained, row.lost) == (0, 0, 0, 0) for row in found.differences
    )
    assert not found.remarks and not any(row.is_sure for row in found.differences)


def test_other_queries_are_counted_and_another_gallery_is_remarked(
    place: Path, tmp_path: Path
) -> None:
    other = write_evaluation(tmp_path / "other", {"only": {"H-AP": (1, 1)}}, ("a", "z"))
    write_levels(other, "only", ("a", "z"), [3, 0])
    found = compare(open_measured(f"{place}:old"), open_measured(str(other)))
    assert found.only == (3, 1) and found.differences[0].queries == 1
    assert found.severity["b"].tolist() == [1, 0, 0, 0]
    measured = open_measured(str(other))
    measured.protocol["gallery_images"] = 9
    remarks = compare(open_measured(f"{place}:old"), measured).remarks
    assert remarks == ("not measured alike: gallery_images is 4 in A, 9 in B",)


def test_what_cannot_be_compared_is_one_line_each(place: Path, tmp_path: Path) -> None:
    strange = write_evaluation(tmp_path / "strange", {"m": {"H-AP": (1,)}}, ("z",))
    flat = write_evaluation(tmp_path / "flat", {"m": {"H-AP": (1,)}}, ("a",), levels=("class",))
    old = open_measured(f"{place}:old")
    with pytest.raises(InvalidData, match="have no query in common"):
        compare(old, open_measured(str(strange)))
    with pytest.raises(InvalidData, match=r"other levels \(kind, supercategory, landmark\) than"):
        compare(old, open_measured(str(flat)))
    with pytest.raises(UsageError, match=r"not both have the metric 'NDCG'; both have H-AP"):
        compare(old, old, "NDCG")


def test_a_place_names_its_model(place: Path, tmp_path: Path) -> None:
    assert open_measured(f"{place}:new").means["H-AP"] == pytest.approx(0.625)
    with pytest.raises(UsageError, match="holds old, new; say which"):
        open_measured(str(place))
    with pytest.raises(UsageError, match=r"no model 'knew' .*did you mean 'new'"):
        open_measured(f"{place}:knew")
    with pytest.raises(MissingInput, match="holds no evaluation"):
        open_measured(str(tmp_path / "nowhere"))
    with pytest.raises(MissingInput, match=r"work/quickstart-not-run holds no evaluation"):
        open_measured("pipelines/quickstart-not-run.toml:happier")


def test_first_levels_are_read_without_the_rest(place: Path) -> None:
    path = place / "ranked_levels" / "old.npz"
    assert read_top_levels(path)[:, 0].tolist() == [3, 0, 0, 1]
    with np.load(path) as whole:
        np.testing.assert_array_equal(read_top_levels(path, 3), whole["levels"][:, :3])
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InvalidData, match="not a readable ranking"):
        read_top_levels(path)
