from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from hgld.artifacts.ranking_file import RankingFile
from hgld.cli.evaluations import _describe
from hgld.errors import InvalidData, MissingInput, UsageError
from hgld.evaluate.compare import compare
from hgld.evaluate.results import MeasuredRun, open_measured
from tests.evaluate.made_evaluation import write_evaluation, write_levels

IDS = ("a", "b", "c", "d")
OLD = {"H-AP": (0.5, 0.5, 0.5, 0.5), "AP:kind": (1, 1, np.nan, 1)}
SOME = "AP:kind: 3 of 4 queries have a value of every model; the others are not compared"
NEW = {"H-AP": (0.9, 0.4, 0.5, 0.7), "AP:kind": (1, 0.5, 0.5, 1)}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_evaluation(tmp_path, {"old": OLD, "new": NEW}, IDS)
    write_levels(tmp_path, "old", IDS, [3, 0, 0, 1])
    write_levels(tmp_path, "new", IDS, [3, 3, 2, 1])
    return tmp_path


def both(place: Path) -> tuple[MeasuredRun, MeasuredRun]:
    return open_measured(f"{place}:old"), open_measured(f"{place}:new")


def test_of_a_distance_the_lower_value_is_the_better(tmp_path: Path) -> None:
    ahd = {"old": {"AHD@5": (0.5, 0.5, 0.5, 0.5)}, "new": {"AHD@5": (0.1, 0.2, 0.5, 0.6)}}
    write_evaluation(tmp_path, ahd, IDS)
    for name in ahd:
        write_levels(tmp_path, name, IDS, [3, 0, 0, 1])
    (row,) = compare(*both(tmp_path)).differences
    assert (row.gained, row.lost) == (2, 1) and row.difference < 0


def test_differences_are_of_the_queries_that_both_have_a_value_of(place: Path) -> None:
    h_ap, ap = compare(*both(place)).differences
    assert (h_ap.queries, h_ap.gained, h_ap.lost) == (4, 2, 1)
    assert (h_ap.a, h_ap.b) == (0.5, pytest.approx(0.625))
    assert h_ap.difference == pytest.approx((0.4 - 0.1 + 0 + 0.2) / 4)
    assert (ap.queries, ap.gained, ap.lost) == (3, 0, 1)
    assert (ap.a, ap.b, ap.difference) == (1, pytest.approx(2.5 / 3), pytest.approx(-0.5 / 3))
    assert compare(*both(place)).remarks == (SOME,)


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


def test_queries_without_any_value_are_counted(place: Path) -> None:
    a, b = both(place)
    more = replace(b, protocol={**b.protocol, "queries": len(b.values()[b.run]) + 2})
    assert compare(a, b).remarks == (SOME,)
    assert compare(a, more).remarks == ("2 of 6 queries have no value of any metric in B", SOME)
    alike = replace(a, protocol=more.protocol)
    assert compare(alike, more).remarks == (
        "2 of 6 queries have no value of any metric in A and B",
        SOME,
    )


def test_a_t_test_of_equal_differences_is_shown_as_unknown(place: Path) -> None:
    found = compare(*both(place))
    rows = [
        replace(row, t=t, p=t) for row, t in zip(found.differences, (np.nan, 0.5), strict=False)
    ]
    shown = replace(found, differences=tuple(rows)).tables("a", "b")["metrics"]
    assert shown["p"].tolist() == ["–", "0.5"][: len(rows)]
    assert next(line for line in _describe(replace(found, differences=(rows[0],), seeds=2), 0)
                if line.startswith(rows[0].metric)).endswith(" -")  # fmt: skip


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
    with pytest.raises(InvalidData, match=r"have no query in common \(first of each: a, z\)"):
        compare(old, open_measured(str(strange)))
    with pytest.raises(InvalidData, match=r"other levels \(kind, supercategory, landmark\) than"):
        compare(old, open_measured(str(flat)))
    with pytest.raises(UsageError, match=r"not both have the metric 'NDCG'; both have H-AP"):
        compare(old, old, "NDCG")


def test_a_place_names_its_model(place: Path, tmp_path: Path) -> None:
    assert open_measured(f"{place}:new").values()["new"]["H-AP"].mean() == pytest.approx(0.625)
    with pytest.raises(UsageError, match="holds old, new; say which"):
        open_measured(str(place))
    with pytest.raises(UsageError, match=r"no model 'knew' .*did you mean 'new'"):
        open_measured(f"{place}:knew")
    with pytest.raises(MissingInput, match=f"^{tmp_path}/nowhere holds no evaluation"):
        open_measured(str(tmp_path / "nowhere"))
    with pytest.raises(MissingInput, match=r"work/quickstart-not-run holds no evaluation"):
        open_measured("pipelines/quickstart-not-run.toml:happier")


def test_first_levels_are_read_without_the_rest(place: Path) -> None:
    path = place / "ranked_levels" / "old.npz"
    ranking = RankingFile.load(path)
    assert ranking.first_levels().tolist() == [3, 0, 0, 1]
    with np.load(path) as whole:
        np.testing.assert_array_equal(ranking.levels(ranking.query_ids), whole["levels"])
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InvalidData, match="not a readable ranking"):
        ranking.first_levels()


def seeded(folder: Path, shifts: tuple[float, ...] = (-0.1, 0, 0.1), **options: Any) -> Path:
    """Two runs of three seeds; B gains 0.2 on the classes a and b, by seed a shift more or less."""
    classes = [name for name in "abcdef" for _ in range(4)]
    ids = [f"{name}{number}" for number, name in enumerate(classes)]
    gain = np.array([0.2 if name in "ab" else 0.0 for name in classes])
    chance = np.random.default_rng(0)
    models, seeds = {}, {"A": {}, "B": {}}
    for seed, shift in enumerate(shifts):
        values = 0.4 + chance.normal(0, 0.02, 24)
        models[f"A-s{seed}"] = {"H-AP": values}
        models[f"B-s{seed}"] = {"H-AP": values + gain + shift}
        seeds["A"][seed], seeds["B"][seed] = f"A-s{seed}", f"B-s{seed}"
    class_of = dict(zip(ids, classes, strict=True))
    write_evaluation(folder, models, ids, classes=class_of, seeds=seeds, **options)
    for model in models:
        write_levels(folder, model, ids, [3] * 24)
    return folder


def opened(folder: Path, a: str = "A", b: str = "B") -> tuple[MeasuredRun, MeasuredRun]:
    return open_measured(f"{folder}:{a}"), open_measured(f"{folder}:{b}")


def test_runs_are_compared_seed_by_seed(tmp_path: Path) -> None:
    found = compare(*opened(seeded(tmp_path)))
    (row,) = found.differences
    assert row.difference == pytest.approx(0.2 / 3) and found.seeds == 3
    assert (row.queries, found.unit, found.units) == (24, "classes", 6)
    assert found.severity["a"].tolist() == [72, 0, 0, 0]
    assert not found.remarks


def test_the_spread_of_seeds_is_in_the_interval(tmp_path: Path) -> None:
    """Shifts of -0.1, 0, 0.1 have a standard error of 0.058: 4.3 of them with two degrees."""
    with_spread = compare(*opened(seeded(tmp_path / "spread"))).differences[0]
    without = compare(*opened(seeded(tmp_path / "none", (0, 0, 0)))).differences[0]
    assert with_spread.low < 0.2 / 3 - 4 * 0.058 < without.low < without.high
    assert without.high < 0.2 / 3 + 4 * 0.058 < with_spread.high


def test_the_seeds_are_tested_in_pairs(tmp_path: Path) -> None:
    a, b = opened(seeded(tmp_path))
    found = compare(a, b)
    means = [[table["H-AP"].mean() for table in side.values().values()] for side in (b, a)]
    expected = ttest_rel(*means)
    (row,) = found.differences
    assert (row.t, row.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert row.p == pytest.approx(0.367, abs=0.001)  # t = 0.0667 / 0.0577 with two degrees
    shown = found.tables("A", "B")["metrics"].iloc[0]
    assert (shown["t"], shown["p"]) == ("+1.15", "0.37")
    assert found.facts()["differences"][0]["p"] == row.p
    longer = replace(row, metric="mAP@100:species")
    lines = list(_describe(replace(found, differences=(row, longer)), 5))
    assert max(map(len, "\n".join(lines).splitlines())) <= 80


def test_a_query_with_the_same_values_in_other_seeds_is_neither_better_nor_worse(
    tmp_path: Path,
) -> None:
    """The mean of their differences is 9e-18."""
    values = {"A": (0.1, 0.2, 0.4), "B": (0.4, 0.1, 0.2)}
    models = {
        f"{run}-s{i}": {"AP": [v, 0.5]} for run, own in values.items() for i, v in enumerate(own)
    }
    seeds = {run: {i: f"{run}-s{i}" for i in range(3)} for run in values}
    write_evaluation(tmp_path, models, ["x", "y"], seeds=seeds)
    for model in models:
        write_levels(tmp_path, model, ["x", "y"], [3, 3])
    found = compare(*opened(tmp_path))
    assert (found.differences[0].gained, found.differences[0].lost) == (0, 0)
    assert found.by_query["difference"].tolist() == [0.0, 0.0]


def test_one_seed_each_is_not_tested(place: Path) -> None:
    found = compare(*both(place))
    assert {(row.t, row.p) for row in found.differences} == {(None, None)}
    assert "p" not in found.tables("A", "B")["metrics"]


def test_seeds_of_one_difference_are_tested_without_a_warning(tmp_path: Path) -> None:
    a, _ = opened(seeded(tmp_path))
    (row,) = compare(a, a).differences
    assert np.isnan([row.t, row.p]).all()


def test_classes_that_no_model_was_trained_on_are_drawn_as_a_whole(tmp_path: Path) -> None:
    """Two of six classes gain, so the truth may be 0; 24 independent queries would be sure."""
    flat = (-1e-9, 0.0, 1e-9)  # of one difference t would be nan, which equals nothing
    unseen = compare(*opened(seeded(tmp_path / "unseen", flat)))
    seen = compare(*opened(seeded(tmp_path / "seen", flat, trained_on=1)))
    assert (unseen.unit, seen.unit, seen.units) == ("classes", "queries", 24)
    assert not unseen.differences[0].is_sure and seen.differences[0].is_sure
    by_queries = compare(*opened(tmp_path / "unseen"), by="queries")
    assert by_queries.differences == seen.differences


def test_one_seed_each_is_said_to_leave_out_the_spread_of_seeds(tmp_path: Path) -> None:
    seeded(tmp_path)
    for a, b in (("A-s0", "B-s0"), ("A-s0", "B-s1"), ("A", "B-s1")):
        found = compare(*opened(tmp_path, a, b))
        assert found.seeds == 1
        assert "the spread between seeds is not in the intervals" in found.remarks[0]


def test_a_training_with_another_seed_is_never_surely_better(tmp_path: Path) -> None:
    """Every query gains 0.2 or so, and still it is the seed alone that differs."""
    a, b = opened(seeded(tmp_path), "A-s0", "B-s2")
    assert compare(a, b, by="queries").differences[0].is_sure
    one, other = (
        replace(
            side, models={name: {**facts, "recipe": "r"} for name, facts in side.models.items()}
        )
        for side in (a, b)
    )
    found = compare(one, other, by="queries")
    large = {name: {**facts, "preparation": {"max_side": 9}} for name, facts in one.models.items()}
    assert compare(replace(one, models=large), other, by="queries").differences[0].is_sure
    assert found.differences[0].low > 0 and not found.differences[0].is_sure
    assert found.remarks == (
        "A and B differ in their training seeds alone, so every difference is chance",
    )


def test_a_model_that_was_not_trained_is_compared_with_every_seed(tmp_path: Path) -> None:
    folder = seeded(tmp_path / "trained")
    ids = list(open_measured(f"{folder}:A").values()["A-s0"].index)
    plain = write_evaluation(tmp_path / "plain", {"p": {"H-AP": [0.3] * 24}}, ids)
    write_levels(plain, "p", ids, [3] * 24)
    found = compare(open_measured(str(plain)), open_measured(f"{folder}:B"))
    assert found.seeds == 3 and not found.remarks


def test_seeds_that_only_one_has_are_left_out_and_none_in_common_is_refused(
    tmp_path: Path,
) -> None:
    first = seeded(tmp_path / "first")
    second = seeded(tmp_path / "second", (0.0, 0.1))
    a, b = open_measured(f"{first}:A"), open_measured(f"{second}:B")
    found = compare(a, b)
    assert found.seeds == 2 and "only the 2 seeds that both have are compared" in found.remarks
    others = replace(b, models={name: {**f, "seed": 9 + i} for i, (name, f) in
                                enumerate(b.models.items())})  # fmt: skip
    with pytest.raises(UsageError, match=r"no seed is in both: A has seeds 0, 1, 2, B has seeds 9"):
        compare(a, others)


def test_queries_without_classes_are_not_compared_by_classes(place: Path) -> None:
    path = place / "per_query.parquet"
    pd.read_parquet(path).assign(**{"class": ""}).to_parquet(path)
    assert compare(*both(place), by="queries").unit == "queries"
    with pytest.raises(InvalidData, match="classes of the queries are not recorded"):
        compare(*both(place), by="classes")


def test_the_ranking_of_several_seeds_is_asked_for_by_seed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a ranking for each seed; name one: .*:A-s0"):
        _ = open_measured(f"{seeded(tmp_path)}:A").ranking
