from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from hgld.errors import InvalidData
from hgld.evaluate.given import Given
from hgld.evaluate.measured_files import measure_files
from hgld.report.intervals import Intervals, measure_intervals
from hgld.report.metrics_table import best_run, metric_rows, metrics_table
from hgld.report.page import describe_seeds

OPEN, CLOSED = ({"classes": {"queries": 3, "trained_on": n}} for n in (0, 1))


def table(values: dict[str, list[float]], metric: str = "AP", classes: str = "") -> pd.DataFrame:
    rows = [
        {
            "model": model,
            "image_id": f"{i:04}",
            "class": classes[i] if classes else "",
            "metric": metric,
            "value": value,
        }
        for model, column in values.items()
        for i, value in enumerate(column)
    ]
    return pd.DataFrame(rows).dropna()


def evaluation(per_query: pd.DataFrame, **changes: Any) -> dict[str, Any]:
    """What an evaluation with these values says; each model a run."""
    means = per_query.groupby(["model", "metric"])["value"].mean()
    metrics = list(dict.fromkeys(per_query["metric"]))
    models = {
        name: {
            "mean": {m: means.get((name, m)) for m in metrics},
            "backbone": "net",
            "loss": "HAPPIER",
            "steps": 1,
        }
        for name in dict.fromkeys(per_query["model"])
    }
    runs = {name: {"models": [name], "mean": facts["mean"]} for name, facts in models.items()}
    found = {"protocol": CLOSED, "metrics": metrics, "models": models, "runs": runs}
    return {**found, **changes}


def measure(per_query: pd.DataFrame, by: str = "auto", **changes: Any) -> Intervals:
    return measure_intervals(per_query, evaluation(per_query, **changes), by)


def test_the_interval_is_that_of_the_normal_distribution_for_many_queries() -> None:
    values = np.random.default_rng(1).normal(0.5, 0.1, 2000)
    rows = table({"m": list(values)})
    low, high = measure_intervals(rows, evaluation(rows), draws=4000).ends["m", "AP"]
    half = 1.96 * values.std() / np.sqrt(2000)
    assert low == pytest.approx(values.mean() - half, abs=0.06 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.06 * half)


def test_two_queries_are_drawn_in_all_four_ways() -> None:
    # Means 0 and 1 have a quarter each, so the ends of 95 % are the values themselves.
    assert measure(table({"m": [0.0, 1.0]})).ends == {("m", "AP"): (0.0, 1.0)}


def test_models_are_resampled_together_and_in_any_order() -> None:
    values = list(np.random.default_rng(2).random(30))
    found = measure(table({"a": values, "b": [v / 2 for v in values]})).ends
    assert found["b", "AP"] == pytest.approx([end / 2 for end in found["a", "AP"]])
    mixed = table({"a": values}).sample(frac=1, random_state=0)
    assert measure(mixed).ends["a", "AP"] == pytest.approx(found["a", "AP"])


def test_a_query_without_a_value_of_a_metric_changes_that_metric_only() -> None:
    both = pd.concat([table({"m": [0.2, 0.4, np.nan]}), table({"m": [0.3, 0.3, 0.3]}, "R@1")])
    found = measure(both).ends
    assert found["m", "R@1"] == pytest.approx((0.3, 0.3))
    assert found["m", "AP"] == pytest.approx((0.2, 0.4))


def test_no_values_have_no_interval() -> None:
    columns = ["model", "image_id", "class", "metric", "value"]
    assert measure_intervals(pd.DataFrame(columns=columns), {}).ends == {}


def test_classes_are_drawn_if_no_model_was_trained_on_them() -> None:
    """Three classes of four equal queries each: their means are drawn, the queries are not."""
    rows = table({"m": [0.1] * 4 + [0.5] * 4 + [0.9] * 4}, classes="aaaabbbbcccc")
    unseen, seen = measure(rows, protocol=OPEN), measure(rows, protocol=CLOSED)
    assert (unseen.unit, unseen.units, seen.unit, seen.units) == ("classes", 3, "queries", 12)
    assert unseen.ends["m", "AP"] == pytest.approx((0.1, 0.9))
    assert seen.ends["m", "AP"][0] > 0.25
    assert measure(rows, "queries", protocol=OPEN).ends == seen.ends


def test_classes_that_are_not_recorded_cannot_be_drawn() -> None:
    with pytest.raises(InvalidData, match=r"report\.bootstrap is classes, but .* records none"):
        measure(table({"m": [0.1, 0.2]}), "classes")


def seeded(a: list[float], b: list[float]) -> dict[str, Any]:
    """Runs A and B whose seeds have these means, the same in each of 20 queries."""
    values = {
        f"{run}-s{seed}": [mean] * 20
        for run, means in (("A", a), ("B", b))
        for seed, mean in enumerate(means)
    }
    found = evaluation(rows := table(values))
    for name, facts in found["models"].items():
        facts["seed"] = int(name[-1])
    found["runs"] = {
        run: {
            "models": [f"{run}-s{seed}" for seed in range(len(means))],
            "mean": {"AP": float(np.mean(means))},
            "std": {"AP": float(np.std(means, ddof=1))},
        }
        for run, means in (("A", a), ("B", b))
    }
    return {"per_query": rows, "evaluation": found}


def test_a_run_of_several_seeds_has_one_row_with_deviation_and_their_spread() -> None:
    given = seeded([0.4, 0.5, 0.6], [0.2, 0.2, 0.2])
    found = measure_intervals(**given)
    half = 4.303 * 0.1 / np.sqrt(3)  # Student's t with two degrees of freedom
    assert found.ends["A", "AP"] == pytest.approx((0.5 - half, 0.5 + half), rel=0.02)
    a, b = metric_rows(given["evaluation"], found)
    assert (a.model, a.values, a.deviations) == ("A", (0.5,), (pytest.approx(0.1),))
    assert a.about == "net, HAPPIER, 1 step, 3 seeds" and b.deviations == pytest.approx((0.0,))


@pytest.mark.parametrize(("seeds", "warns"), [(2, True), (3, False)])
def test_two_seeds_are_said_to_make_wide_intervals(seeds: int, warns: bool) -> None:
    found = seeded([0.4, 0.5, 0.6][:seeds], [0.2] * seeds)["evaluation"]
    words = describe_seeds(SimpleNamespace(evaluation=found, runs=found["runs"]))  # type: ignore[arg-type]
    assert words.startswith("The spread between training seeds is in the intervals.")
    assert ("their intervals reach 12.7 standard errors" in words) == warns


def test_a_run_is_marked_if_its_paired_difference_is_sure() -> None:
    chance = seeded([0.4, 0.5, 0.6], [0.45, 0.35, 0.55])  # differences -0.05, 0.15, 0.05
    sure = seeded([0.4, 0.5, 0.6], [0.35, 0.45, 0.55])  # 0.05 each
    marks = [
        [row.best for row in metric_rows(given["evaluation"], measure_intervals(**given))]
        for given in (chance, sure)
    ]
    assert marks == [[(False,), (False,)], [(True,), (False,)]]


def test_runs_of_several_seeds_are_tested_in_pairs_against_the_best() -> None:
    given = seeded([0.4, 0.5, 0.6], [0.45, 0.35, 0.55])
    found = measure_intervals(**given)
    expected = ttest_rel([0.4, 0.5, 0.6], [0.45, 0.35, 0.55]).pvalue
    assert found.tests == {("B", "AP"): pytest.approx(expected)}
    rows = metric_rows(given["evaluation"], found)
    assert metrics_table(["AP"], rows)["AP p"].tolist()[1] == pytest.approx(expected)
    assert [row.tests for row in rows] == [(None,), (pytest.approx(expected),)]


def test_runs_of_one_seed_are_not_tested() -> None:
    rows = table({"a": [0.5, 0.7], "b": [0.6, 0.5]})
    assert not measure(rows).tests


def test_the_mark_is_shared_by_all_that_may_be_as_good_as_the_best() -> None:
    rows = table({"a": [0.5, 0.7, 0.6], "b": [0.6, 0.5, 0.6], "c": [0.1, 0.2, 0.1]})
    found = evaluation(rows)
    marks = [row.best for row in metric_rows(found, measure_intervals(rows, found))]
    assert marks == [(True,), (True,), (False,)]


def test_of_a_distance_the_least_mean_is_marked() -> None:
    rows = table({"a": [0.5, 0.7, 0.6], "c": [0.1, 0.2, 0.1]}).assign(metric="AHD@5")
    found = evaluation(rows, metrics=["AHD@5"])
    marks = [row.best for row in metric_rows(found, measure_intervals(rows, found))]
    assert marks == [(False,), (True,)] and best_run(found) == "c"


def test_an_interval_ends_where_the_metric_does() -> None:
    assert measure_intervals(**seeded([0.5, 0.9], [0.1, 0.2])).ends["A", "AP"] == (0, 1)


def test_a_metric_without_values_of_queries_marks_the_highest_mean() -> None:
    rows = table({"a": [0.5, 0.6], "b": [0.5, 0.6]})
    found = evaluation(rows, metrics=["AP", "mAP"])
    for name, mean in (("a", 0.4), ("b", 0.3)):
        found["models"][name]["mean"]["mAP"] = mean
    marks = [row.best for row in metric_rows(found, measure_intervals(rows, found))]
    assert marks == [(False, True), (False, False)]


@pytest.mark.parametrize("of_queries", [True, False])
def test_means_that_differ_by_rounding_alone_share_the_mark(of_queries: bool) -> None:
    rows = table({"a": [0.3] * 4, "b": [0.1 + 0.2] * 4, "c": [0.1] * 4})
    found = evaluation(rows)
    given = rows if of_queries else rows[:0]
    marks = [row.best for row in metric_rows(found, measure_intervals(given, found))]
    assert marks == [(True,), (True,), (False,)]


def test_runs_without_a_seed_in_common_are_not_told_apart() -> None:
    given = seeded([0.4, 0.5], [0.1, 0.2])
    for name, facts in given["evaluation"]["models"].items():
        facts["seed"] += 5 * name.startswith("B")
    assert measure_intervals(**given).ties == {"AP": {"A", "B"}}


def test_intervals_of_files_are_those_of_the_report() -> None:
    """In any order of the rows and by other names of the classes; two queries have no value."""
    chance = np.random.default_rng(0)
    numbers, ids = chance.integers(0, 9, 40), np.array([f"p{i}" for i in chance.permutation(40)])
    numbers[:2] = 10, 11
    vectors = (chance.normal(size=(12, 4))[numbers] + chance.normal(size=(40, 4))).astype("f4")
    names = pd.DataFrame({"place": np.array([*"qwertyuiopas"])[numbers]})
    files = measure_files(Given(Path("x"), vectors, ids, names), metrics=["AP", "R@1"])
    by_query = files.table().melt("image_id", ["AP", "R@1"], "metric").dropna()
    classes = by_query["image_id"].map(dict(zip(ids, map(str, numbers), strict=True)))
    found = measure(by_query.assign(model="m", **{"class": classes}), "classes")
    for name, ends in files.intervals.items():
        assert ends == pytest.approx(found.ends["m", name], abs=1e-12)
    assert files.units == found.units == len({*numbers[2:]})
