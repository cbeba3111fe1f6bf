import numpy as np
import pandas as pd
import pytest

from hgld.report.intervals import bootstrap_intervals


def table(values: dict[str, list[float]], metric: str = "AP") -> pd.DataFrame:
    rows = [
        {"model": model, "image_id": f"{i:04}", "metric": metric, "value": value}
        for model, column in values.items()
        for i, value in enumerate(column)
    ]
    return pd.DataFrame(rows).dropna()


def test_the_interval_is_that_of_the_normal_distribution_for_many_queries() -> None:
    values = np.random.default_rng(1).normal(0.5, 0.1, 2000)
    low, high = bootstrap_intervals(table({"m": list(values)}), resamples=4000)["m", "AP"]
    half = 1.96 * values.std() / np.sqrt(2000)
    assert low == pytest.approx(values.mean() - half, abs=0.06 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.06 * half)


def test_two_queries_are_drawn_in_all_four_ways() -> None:
    # Means 0 and 1 have a quarter each, so the ends of 95 % are the values themselves.
    assert bootstrap_intervals(table({"m": [0.0, 1.0]})) == {("m", "AP"): (0.0, 1.0)}


def test_models_are_resampled_together_and_in_any_order() -> None:
    values = list(np.random.default_rng(2).random(30))
    found = bootstrap_intervals(table({"a": values, "b": [v / 2 for v in values]}))
    assert found["b", "AP"] == pytest.approx([end / 2 for end in found["a", "AP"]])
    mixed = table({"a": values}).sample(frac=1, random_state=0)
    assert bootstrap_intervals(mixed)["a", "AP"] == pytest.approx(found["a", "AP"])


def test_a_query_without_a_value_of_a_metric_changes_that_metric_only() -> None:
    both = pd.concat([table({"m": [0.2, 0.4, np.nan]}), table({"m": [0.3, 0.3, 0.3]}, "R@1")])
    found = bootstrap_intervals(both)
    assert found["m", "R@1"] == pytest.approx((0.3, 0.3))
    assert found["m", "AP"] == pytest.approx((0.2, 0.4))


def test_no_values_have_no_interval() -> None:
    columns = ["model", "image_id", "metric", "value"]
    assert bootstrap_intervals(pd.DataFrame(columns=columns)) == {}
