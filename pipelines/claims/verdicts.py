"""Judge each claim by its difference on every fold, with an interval and a correction for many.

The rule, fixed before any run: the difference of a fold is the mean over its seeds, because seeds
share their data. A t-interval over the folds (95 %) shows the size of the effect. A
claim holds if its difference is above 0 and its p-value passes Holm's step-down test at ``LEVEL``
among all claims of its budget, fails if the same is so below 0, and is open otherwise.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from scipy import stats

from pipelines.claims.experiments import Claim, Experiment

BUDGETS = 3
LEVEL = 0.05 / BUDGETS  # of a budget: 5 % for even one false verdict in all of them
Folds = Sequence[Mapping[str, Mapping[str, float]]]  # of each fold: arm -> metric -> mean of seeds


def summarise(
    experiments: Sequence[Experiment], folds: Folds, shared: float
) -> list[dict[str, Any]]:
    """Rows and claims of the experiments, in percent.

    Args:
        experiments: whose arms all folds have.
        folds: arm -> metric -> mean over the seeds, of each fold.
        shared: test data over training data if the folds share training data; 0 if they do not.
    """
    found = [
        {
            "name": experiment.name,
            "about": experiment.about,
            "metrics": list(experiment.metrics),
            "rows": {
                arm.name: {m: _row([f[arm.name][m] for f in folds]) for m in experiment.metrics}
                for arm in experiment.arms
            },
            "claims": [measure_claim(claim, folds, shared) for claim in experiment.claims],
        }
        for experiment in experiments
    ]
    judge_all([claim for experiment in found for claim in experiment["claims"]])
    return found


def measure_claim(claim: Claim, folds: Folds, shared: float = 0.0) -> dict[str, Any]:
    """Mean difference over the folds, its 95 % interval and its two-sided p-value.

    Folds of one data set share training data, so their differences are correlated; their variance
    is scaled by 1 / J + test / training in place of 1 / J (Nadeau and Bengio 2003).

    Example:
        >>> folds = [{"a": {"AP": a}, "b": {"AP": 0.5}} for a in (0.6, 0.62, 0.58)]
        >>> found = measure_claim(Claim(("a",), ("b",), "AP"), folds)
        >>> [round(found[name], 2) for name in ("difference", "low", "high", "p")]
        [10.0, 5.03, 14.97, 0.01]
    """
    found = [
        100 * sum(sign * fold[name][claim.metric] for sign, name in claim.terms) for fold in folds
    ]
    error = stdev(found) * (1 / len(found) + shared) ** 0.5
    mean, law = fmean(found), stats.t(len(found) - 1)
    half = float(law.ppf(0.975)) * error
    return {
        "claim": f"{' + '.join(claim.above)} > {' + '.join(claim.below)}",
        "metric": claim.metric,
        "paper": claim.paper,
        "difference": mean,
        "low": mean - half,
        "high": mean + half,
        "p": 2 * float(law.sf(abs(mean) / error)) if error else float(mean == 0),
    }


def judge_all(claims: Sequence[dict[str, Any]], level: float = LEVEL) -> None:
    """Add each claim's verdict, by Holm's step-down test over all of them.

    Example:
        >>> claims = [{"p": 0.04, "difference": 1}, {"p": 0.001, "difference": -1}]
        >>> judge_all(claims, 0.05)
        >>> [claim["verdict"] for claim in claims]
        ['holds', 'fails']
    """
    passing = True
    for rank, claim in enumerate(sorted(claims, key=lambda claim: float(claim["p"]))):
        passing = passing and claim["p"] <= level / (len(claims) - rank)
        claim["verdict"] = ("holds" if claim["difference"] > 0 else "fails") if passing else "open"


def _row(found: Sequence[float]) -> list[float]:
    return [100 * fmean(found), 100 * stdev(found)]
