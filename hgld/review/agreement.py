"""Agreement of annotators, corrected for chance: Cohen's kappa, Gwet's AC1, Krippendorff's alpha.

Two annotators are measured by kappa and AC1. Each value that both decided counts once, or is
weighted by its images. ``drop`` and ``unsure`` are answers like any other: an annotator who drops a
value that the other keeps disagrees. If kinds are paths of several levels, each level is measured:
``kind 1 of 3`` is the coarsest of three, and ``kind`` the whole path. Kappa is not defined if both
gave the same single answer throughout; a note then says so, and AC1 is still defined.

Three and more are measured by alpha, 1 - observed / expected disagreement of nominal answers. They
need not have decided the same values: each value that at least two decided counts.

The interval is a bootstrap over values with a fixed seed, so the same files give the same figures.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import combinations
from typing import Any

import krippendorff
import numpy as np
import pandas as pd
from sklearn.metrics import cohen_kappa_score

from hgld.artifacts.cells import guard_columns, unguard
from hgld.bootstrap import CONFIDENCE, DRAWS, count_draws, find_ends
from hgld.config import KIND_SEPARATOR
from hgld.errors import InvalidData
from hgld.hierarchy.kinds import classes_above
from hgld.review.annotations import Annotation
from hgld.review.row_base import EDITABLE
from hgld.tasks import say
from hgld.words import part_text

EXAMPLES = 3
MATCHED = "values are matched by their key, or by instance_of where a file has no keys"
DIGITS = 6

Annotations = Mapping[str, Annotation]
Pairs = Sequence[tuple[str, str]]
ANSWERS: dict[str, Callable[[Annotation], str]] = {
    "supercategory": lambda one: one.place,
    "kind": lambda one: one.kind_place,
}


def answers_by_level(sides: Iterable[Annotations]) -> dict[str, Callable[[Annotation], str]]:
    """Return ``ANSWERS``, and one for each level above the finest of kinds that are paths.

    Without any kind, as in data with one level, kind is left out: only drops would have an answer.

    Example:
        >>> bread = Annotation("v", "v", "keep", "bread", "food > bakery", "", 0, "", {})
        >>> {of: answer(bread) for of, answer in answers_by_level([{"v": bread}]).items()}
        {'supercategory': 'bread', 'kind': 'food > bakery', 'kind 1 of 2': 'food'}
    """
    kinds = {one.kind for side in sides for one in side.values()}
    if not any(kinds):
        return {"supercategory": ANSWERS["supercategory"]}
    depth = max((len(classes_above(kind)) for kind in kinds), default=0)

    def class_at(level: int, one: Annotation) -> str:
        return KIND_SEPARATOR.join(one.kind_place.split(KIND_SEPARATOR)[:level])

    above = {f"kind {level} of {depth}": partial(class_at, level) for level in range(1, depth)}
    return {**ANSWERS, **above}


def measure_agreement(
    a: Annotations, b: Annotations, names: tuple[str, str], *, seed: int = 0
) -> dict[str, Any]:
    """Measure agreement, kappa with its interval, counts by supercategory, and confused pairs.

    Raises:
        InvalidData: the annotators have no decided value in common.
    """
    keys = _decided_by_both(a, b)
    if not keys:
        raise InvalidData(f"{names[0]} and {names[1]} have no value that both decided; {MATCHED}")
    done = [{key for key, one in side.items() if one.decision} for side in (a, b)]
    return {
        "annotators": list(names),
        "values": len(keys),
        "one_alone": {names[0]: len(done[0] - done[1]), names[1]: len(done[1] - done[0])},
        "bootstrap": {"draws": DRAWS, "seed": seed, "level": CONFIDENCE},
        "measures": list(_measure_all(a, b, keys, seed)),
        **_count_answers(
            (
                {"supercategory": one.place, side: 1}
                for key in keys
                for side, one in (("a", a[key]), ("b", b[key]))
            ),
            (
                {"pair": (a[key].place, b[key].place), "values": 1, "examples": [a[key].label]}
                for key in keys
            ),
        ),
    }


def _decided_by_both(a: Annotations, b: Annotations) -> list[str]:
    return [key for key in a if key in b and a[key].decision and b[key].decision]


def _measure_all(
    a: Annotations, b: Annotations, keys: Sequence[str], seed: int
) -> Iterator[dict[str, Any]]:
    """Measure supercategory, kind and its levels, unweighted and, if there are weights, weighted.

    Kind is measured only if both give one, since an annotator may leave it to the taxonomy.
    """
    heavier = [max(a[key], b[key], key=lambda one: one.weight) for key in keys]
    weights = np.array([one.weight for one in heavier])
    by = {"values": np.ones(len(keys))}
    by |= {max(one.unit for one in heavier): weights} if weights.any() else {}
    measured_answers = answers_by_level((a, b))
    if "kind" not in measured_answers:
        say("kind is not measured, as none is given; --taxonomy FILE fills in those that it has")
    for of, answer in measured_answers.items():
        pairs = [(answer(a[key]), answer(b[key])) for key in keys]
        given = np.array([all(pair) for pair in pairs])
        for unit, weight in by.items():
            counted = given & (weight > 0)
            if counted.any():
                measured = [pair for pair, counts in zip(pairs, counted, strict=True) if counts]
                yield {"of": of, "by": unit, **_measure(measured, weight[counted], seed)}
        if of in ANSWERS and not given.all():
            are = part_text((~given).sum(), len(keys), "value", "are")
            say(
                f"{of}: {are} left out, for which one of the two gives none; --taxonomy FILE fills "
                "in what it has"
            )


def disagreements(a: Annotations, b: Annotations, names: tuple[str, str]) -> pd.DataFrame:
    """Return a review sheet of the disagreements, with both answers, to be adjudicated.

    It is applied like any review sheet; read-only columns are those of the first file.
    """
    shown = ("key", "key_type", "instance_of", "landmarks", "images", "examples", "evidence")
    rows = [
        {
            **dict.fromkeys(EDITABLE, ""),
            **{name: a[key].cells.get(name, "") for name in shown if name != "key"},
            "key": key,
            **{
                f"{side}_{name}": getattr(one, name)
                for side, one in (("a", a[key]), ("b", b[key]))
                for name in EDITABLE
            },
            "annotators": f"a: {names[0]}; b: {names[1]}",
        }
        for key in sorted(_decided_by_both(a, b))
        # a kind that one leaves to the taxonomy is ignored
        if any(
            first != second
            for answer in ANSWERS.values()
            for first, second in [(answer(a[key]), answer(b[key]))]
            if first and second
        )
    ]
    sides = [f"{side}_{name}" for side in "ab" for name in EDITABLE]
    columns = [*EDITABLE, *shown, *sides, "annotators"]
    sheet = guard_columns(pd.DataFrame(rows, columns=columns, dtype="str"))
    return sheet.assign(**{name: sheet[name].map(unguard) for name in ("landmarks", "images")})


def rename_in_agreement(measured: Mapping[str, Any], present: Mapping[str, str]) -> dict[str, Any]:
    """Return the document of ``agreement.json`` with the present names of supercategories.

    Those that were merged are counted as one; their own counts stay in ``measured``, so that a
    merge that is taken back separates them again. The measures stay: they are of the answers that
    the annotators gave.

    Args:
        measured: the document.
        present: name -> present name, of renamed and merged supercategories and of those that stay.

    Example:
        >>> rename_in_agreement({"confused": [{"pair": ["lake", "pub"]}]}, {"lake": "pond"})
        {'confused': [{'pair': ['pond', 'pub']}]}
    """
    found = {name: part for name, part in deepcopy(dict(measured)).items() if name != "measured"}
    found |= deepcopy(measured.get("measured", {}))
    own = {name: deepcopy(found[name]) for name in ("supercategories", "confused") if name in found}
    for row in found.get("supercategories", ()):
        row["supercategory"] = present.get(row["supercategory"], row["supercategory"])
    for row in found.get("confused", ()):
        row["pair"] = [present.get(name, name) for name in row["pair"]]
    names = [row["supercategory"] for row in found.get("supercategories", ())]
    if len({*names}) == len(names):
        return found
    counts = _count_answers(found["supercategories"], found.get("confused", ()))
    return {**found, **counts, "measured": own}


def _count_answers(
    rows_of: Iterable[Mapping[str, Any]], pairs_of: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return one row for each answer, and one for each pair of different ones; the largest first.

    Args:
        rows_of: supercategory and counts of a, b and both.
        pairs_of: pair of answers, number of values, and labels of some; of equal ones, too.
    """
    rows, pairs = dict[str, dict[str, Any]](), dict[tuple[str, ...], dict[str, Any]]()
    for row in rows_of:
        name = row["supercategory"]
        same = rows.setdefault(name, {"supercategory": name, "a": 0, "b": 0, "both": 0})
        same |= {side: same[side] + row.get(side, 0) for side in ("a", "b", "both")}
    for row in pairs_of:
        pair = tuple(sorted(row["pair"]))
        if pair[0] == pair[1]:  # both gave one answer, or two that were merged since
            rows[pair[0]]["both"] += row["values"]
            continue
        same = pairs.setdefault(pair, {"pair": list(pair), "values": 0, "examples": []})
        same["values"] += row["values"]
        same["examples"] = sorted([*same["examples"], *row["examples"]])[:EXAMPLES]
    for row in rows.values():
        row["share"] = row["both"] / max(row["a"] + row["b"] - row["both"], 1)
    either = {name: row["a"] + row["b"] for name, row in rows.items()}
    return {
        "supercategories": sorted(
            rows.values(), key=lambda row: (-either[row["supercategory"]], row["supercategory"])
        ),
        "confused": sorted(pairs.values(), key=lambda row: (-row["values"], row["pair"])),
    }


def _measure(pairs: Pairs, weights: np.ndarray, seed: int) -> dict[str, Any]:
    """Return agreement in [0, 1], kappa with interval, AC1, and a note if kappa is undefined."""
    one, other = zip(*pairs, strict=True)
    classes = sorted({*one, *other})
    # (N, C) one-hot answers of each
    first, second = (np.eye(len(classes))[np.searchsorted(classes, side)] for side in (one, other))
    share = weights / weights.sum()
    agreement = float(share @ (first * second).sum(axis=1))
    # Gwet's AC1, whose chance term is sum_k q_k (1 - q_k) / (C - 1)
    mean = share @ (first + second) / 2
    chance = float((mean * (1 - mean)).sum() / max(len(mean) - 1, 1))
    ac1 = (agreement - chance) / (1 - chance)
    if len(classes) == 1:
        note = f"both say '{classes[0]}' throughout: kappa is not defined"
        found: dict[str, float | None] = dict.fromkeys(("kappa", "low", "high"))
    else:
        note, kappa = "", float(cohen_kappa_score(one, other, sample_weight=weights))
        low, high = _interval(first, second, weights, seed)
        found = {"kappa": round(kappa, DIGITS), "low": low, "high": high}
    return {
        "agreement": round(agreement, DIGITS), **found, "ac1": round(ac1, DIGITS), "note": note
    }  # fmt: skip


def _interval(
    first: np.ndarray, second: np.ndarray, weights: np.ndarray, seed: int
) -> tuple[float, float]:
    """Return percentiles of kappa over values drawn with replacement."""
    same = (first * second).sum(axis=1)
    kappas = []
    for counts in count_draws(len(weights), seed=seed):
        drawn = counts * weights
        # a draw may have values of weight 0 only
        drawn = drawn / np.maximum(drawn.sum(axis=1, keepdims=True), 1e-300)
        chance = ((drawn @ first) * (drawn @ second)).sum(axis=1)
        # kappa is undefined for a draw with one answer only; rounding may leave its chance below 1
        defined = (drawn @ (first + second) > 0).sum(axis=1) > 1
        kappas.append((drawn[defined] @ same - chance[defined]) / (1 - chance[defined]))
    low, high = find_ends(np.concatenate(kappas)[:, None])[:, 0]
    return round(float(low), DIGITS) + 0.0, round(float(high), DIGITS) + 0.0  # not -0.0


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
        raise InvalidData(f"{', '.join(sides)} have no value that two of them decided; {MATCHED}")
    measures, by_value = [], []
    for of, answer in answers_by_level(sides.values()).items():
        given = {
            key: Counter(filter(None, (answer(s[key]) for s in sides.values() if key in s)))
            for key in decided
        }
        given = {key: answers for key, answers in given.items() if answers.total() > 1}
        if given:
            measures.append({"of": of, "by": "values", **_alpha_of(list(given.values()), seed)})
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
    pairs: list[dict[str, Any]] = []  # kappa of those that have decided values in common
    for names in combinations(sides, 2):
        a, b = (sides[name] for name in names)
        if _decided_by_both(a, b):
            found = measure_agreement(a, b, names, seed=seed)
            pairs += [
                {
                    "annotators": list(names),
                    "of": row["of"],
                    "values": found["values"],
                    "kappa": row["kappa"],
                }
                for row in found["measures"]
                if row["by"] == "values"
            ]
    return {
        "annotators": list(sides),
        "values": len(decided),
        "bootstrap": {"draws": DRAWS, "seed": seed, "level": CONFIDENCE},
        "measures": measures,
        "pairs": pairs,
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


def _alpha_of(values: list[Counter[str]], seed: int) -> dict[str, Any]:
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
