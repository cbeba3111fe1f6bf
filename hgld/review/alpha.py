"""Agreement of three and more annotators: Krippendorff's alpha, and agreement on each value.

Annotators need not have decided the same values: each value that at least two decided counts. Alpha
is 1 - observed / expected disagreement, of nominal answers; ``drop`` and ``unsure`` are answers.
The interval is a bootstrap over values with a fixed seed.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import krippendorff
import numpy as np

from hgld.bootstrap import CONFIDENCE, DRAWS, count_draws, find_ends
from hgld.errors import InvalidData
from hgld.review.agreement import DIGITS, Annotations, answers_by_level, measure_agreement


def measure_alpha(sides: Mapping[str, Annotations], *, seed: int = 0) -> dict[str, Any]:
    """Measure alpha with its interval, kappa of each pair, and agreement on each value.

    Args:
        sides: annotator -> annotations.
        seed: of the bootstrap.

    Returns:
        annotators, values, and measures (of, agreement of a pair of answers, alpha, low, high, and
        a note that says them, for the card; alpha is None if all answers are equal), pairs
        (annotators, of, values, kappa), by_value (key, label, agreement, answers), the most
        disputed first. As ``agreement.json`` it has the keys that a release reads.

    Raises:
        InvalidData: no value was decided by two annotators.
    """
    decided = [
        key
        for key in dict.fromkeys(key for side in sides.values() for key in side)
        if sum(key in side and bool(side[key].decision) for side in sides.values()) > 1
    ]
    if not decided:
        raise InvalidData(
            f"{', '.join(sides)} have no value that two of them decided; values are matched by "
            "their key, or by instance_of where a file has no keys"
        )
    measures, by_value = [], []
    for of, answer in answers_by_level(sides.values()).items():
        given = {
            key: Counter(filter(None, (answer(s[key]) for s in sides.values() if key in s)))
            for key in decided
        }
        given = {key: answers for key, answers in given.items() if answers.total() > 1}
        if given:
            measures.append({"of": of, "by": "values", **_measure(list(given.values()), seed)})
        if of == "supercategory":
            labels = {key: s[key].label for s in sides.values() for key in s}
            by_value = [
                {
                    "key": key,
                    "label": labels[key],
                    "agreement": round(_agreement(answers), DIGITS),
                    "answers": dict(sorted(answers.items(), key=lambda a: (-a[1], a[0]))),
                }
                for key, answers in given.items()
            ]
    return {
        "annotators": list(sides),
        "values": len(decided),
        "bootstrap": {"draws": DRAWS, "seed": seed, "level": CONFIDENCE},
        "measures": measures,
        "pairs": [pair for names in combinations(sides, 2) for pair in _pair(sides, names, seed)],
        "by_value": sorted(by_value, key=lambda row: (row["agreement"], row["key"])),
    }


def _agreement(answers: Counter[str]) -> float:
    """Return the share of pairs of annotators with the same answer.

    Example:
        >>> _agreement(Counter(church=2, pub=1))
        0.3333333333333333
    """
    total = answers.total()
    return sum(n * (n - 1) for n in answers.values()) / (total * (total - 1))


def _measure(values: list[Counter[str]], seed: int) -> dict[str, Any]:
    classes = sorted(set().union(*values))
    counts = np.array([[answers[name] for name in classes] for answers in values], float)  # (N, C)
    found: dict[str, Any] = {"agreement": round(float(np.mean([*map(_agreement, values)])), DIGITS)}
    if len(classes) == 1:
        note = f"all say '{classes[0]}' throughout: Krippendorff's alpha is not defined"
        return {**found, **dict.fromkeys(("alpha", "low", "high", "kappa")), "note": note}
    alpha = krippendorff.alpha(value_counts=counts, level_of_measurement="nominal")
    drawn = np.concatenate([_alphas(draw, counts) for draw in count_draws(len(counts), seed=seed)])
    low, high = find_ends(drawn[~np.isnan(drawn)][:, None])[:, 0]
    numbers = {"alpha": alpha, "low": low, "high": high}
    note = f"Krippendorff's alpha {alpha:.3f} (95 % bootstrap interval {low:.3f} to {high:.3f})"
    rounded = {name: round(float(number), DIGITS) for name, number in numbers.items()}
    return {**found, **rounded, "kappa": None, "note": note}


def _alphas(draws: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return alpha of (R, N) resampled values at once; nan if one answer is left."""
    total = counts.sum(axis=1)
    apart = (total**2 - (counts**2).sum(axis=1)) / (total - 1)  # (N,) disagreeing pairs, weighted
    answers, sums = draws @ counts, draws @ total
    expected = sums**2 - (answers**2).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray(1 - (sums - 1) * (draws @ apart) / np.where(expected, expected, np.nan))


def _pair(
    sides: Mapping[str, Annotations], names: tuple[str, str], seed: int
) -> list[dict[str, Any]]:
    """Return kappa of two annotators, if they have decided values in common."""
    a, b = (sides[name] for name in names)
    if not any(key in b and a[key].decision and b[key].decision for key in a):
        return []
    found = measure_agreement(a, b, names, seed=seed)
    return [
        {
            "annotators": list(names),
            "of": row["of"],
            "values": found["values"],
            "kappa": row["kappa"],
        }
        for row in found["measures"]
        if row["by"] == "values"
    ]
