"""Says of each claim whether the seeds bear it out.

Seeds share their first weights and batches between arms, so arms are compared seed by seed. A
claim holds where every seed says so, fails where every seed says the opposite, and is open
otherwise: three seeds can say no more.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from pipelines.claims.experiments import Claim, Experiment

__all__ = ["judge", "summarise"]

Values = Mapping[str, Sequence[Mapping[str, float]]]  # arm -> what each seed found


def summarise(experiment: Experiment, values: Values) -> dict[str, Any]:
    """An experiment's rows and verdicts, in percent."""
    rows = {arm.name: _row(values[arm.name], experiment.metrics) for arm in experiment.arms}
    pairs = [(claim, metric) for claim in experiment.claims for metric in claim.metrics]
    return {
        "name": experiment.name,
        "about": experiment.about,
        "metrics": list(experiment.metrics),
        "rows": rows,
        "claims": [judge(claim, metric, values) for claim, metric in pairs],
    }


def judge(claim: Claim, metric: str, values: Values) -> dict[str, Any]:
    """Mean and deviation of the difference over the seeds, and what they say.

    Example:
        >>> claim = Claim(("a",), ("b",), ("AP",))
        >>> values = {"a": [{"AP": 0.5}, {"AP": 0.7}], "b": [{"AP": 0.4}, {"AP": 0.5}]}
        >>> found = judge(claim, "AP", values)
        >>> found["verdict"], round(found["difference"], 1)
        ('holds', 15.0)
    """
    seeds = range(min(len(values[name]) for name in claim.above + claim.below))
    found = [
        100 * (_sum(values, claim.above, metric, seed) - _sum(values, claim.below, metric, seed))
        for seed in seeds
    ]
    verdict = "holds" if min(found) > 0 else "fails" if max(found) < 0 else "open"
    return {
        "claim": f"{' + '.join(claim.above)} > {' + '.join(claim.below)}",
        "metric": metric,
        "difference": fmean(found),
        "deviation": _deviation(found),
        "verdict": verdict,
    }


def _sum(values: Values, names: Sequence[str], metric: str, seed: int) -> float:
    return sum(values[name][seed][metric] for name in names)


def _row(seeds: Sequence[Mapping[str, float]], metrics: Sequence[str]) -> dict[str, list[float]]:
    columns = {metric: [100 * found[metric] for found in seeds] for metric in metrics}
    return {metric: [fmean(found), _deviation(found)] for metric, found in columns.items()}


def _deviation(found: Sequence[float]) -> float:
    return stdev(found) if len(found) > 1 else 0.0
