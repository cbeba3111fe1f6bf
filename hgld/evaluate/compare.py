"""Paired comparison of two evaluations: the difference of each metric and its confidence interval.

Both evaluations share queries, so the difference is taken per query and per training seed that both
have. The bootstrap of these differences (``hgld.bootstrap``) gives the interval of their mean;
separate intervals of the two models would be wider, since they contain the spread between queries.
Beside it is the paired t-test over the seeds, as the papers report it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd

from hgld.bootstrap import (
    ROUNDING,
    bootstrap_unit,
    find_ends,
    pair_seeds,
    paired_t_test,
    resample_means,
)
from hgld.errors import InvalidData, UsageError
from hgld.evaluate.results import MeasuredRun
from hgld.ranking import lower_is_better
from hgld.words import count_text, part_text, shared_text

Pairs = Sequence[tuple[str, str]]  # a model of A and one of B


@dataclass(frozen=True)
class Difference:
    """Difference of one metric between two runs, over the queries with a value in both.

    Attributes:
        metric: its name.
        queries: number of queries with a value in both.
        a: mean in A, over the seeds compared.
        b: mean in B.
        difference: B - A.
        low: lower end of the interval of the difference.
        high: upper end.
        gained: queries that are better in B.
        lost: queries that are worse in B.
        by_chance: A and B differ in their seeds only, so no difference is significant.
        t: of the paired t-test over the seeds; None for one seed.
        p: its two-sided p-value.
    """

    metric: str
    queries: int
    a: float
    b: float
    difference: float
    low: float
    high: float
    gained: int
    lost: int
    by_chance: bool
    t: float | None = None
    p: float | None = None

    @property
    def is_sure(self) -> bool:
        """Whether the difference is significant: an interval exists and excludes 0."""
        return not self.by_chance and (self.low > 0 or self.high < 0)

    @property
    def is_worse(self) -> bool:
        """Whether B is significantly worse than A; a distance is worse if it is larger."""
        return self.is_sure and (self.difference > 0) == lower_is_better(self.metric)


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison of two evaluations.

    Attributes:
        differences: one for each metric.
        unit: resampling unit of the bootstrap, "classes" or "queries".
        units: number of units.
        seeds: number of pairs of trained models, one pair for each seed.
        metric: the metric of ``by_query``.
        shared: number of queries that both have.
        by_query: image_id, a, b, difference of that metric, the greatest gain first; without the
            queries that have no value of it in one of the two.
        severity: level that the first image shares with the query, its name, queries in a and b,
            summed over the seeds; the finest level is correct, all others are mistakes.
        only: number of queries that only A, only B has.
        remarks: differences between the two measurements, and effects outside the intervals.
    """

    differences: tuple[Difference, ...]
    unit: str
    units: int
    seeds: int
    metric: str
    shared: int
    by_query: pd.DataFrame
    severity: pd.DataFrame
    only: tuple[int, int]
    remarks: tuple[str, ...]

    @property
    def drawn(self) -> str:
        """The units that the bootstrap draws, such as "12 classes"."""
        return count_text(self.units, "class" if self.unit == "classes" else "query")

    def tables(self, a: str, b: str) -> dict[str, pd.DataFrame]:
        """Return the differences and the first images as tables for a page.

        Args:
            a: name of the first column.
            b: of the second.
        """
        tested = any(row.t is not None for row in self.differences)
        rows = [
            {
                "metric": row.metric, a: row.a, b: row.b, "difference": row.difference,
                "difference low": row.low, "difference high": row.high,
                "better": row.gained, "worse": row.lost,
                **({"t": _known(row.t, "+z.2f"), "p": _known(row.p, ".2g")} if tested else {}),
            }
            for row in self.differences
        ]  # fmt: skip
        first = self.severity.rename(columns={"first_image": "first image", "a": a, "b": b})
        return {"metrics": pd.DataFrame(rows), "first-image": first.drop(columns="level")}

    def facts(self) -> dict[str, Any]:
        """Return the comparison as a dict, to print as JSON."""
        return {
            "differences": [{**asdict(row), "sure": row.is_sure} for row in self.differences],
            "bootstrap": {"unit": self.unit, "units": self.units, "seeds": self.seeds},
            "metric": self.metric,
            "in_both": self.shared,
            "queries": self.by_query.to_dict("records"),
            "first_image": self.severity.to_dict("records"),
            "only_in": {"a": self.only[0], "b": self.only[1]},
            "remarks": list(self.remarks),
        }


def _known(value: float | None, form: str) -> str:
    """Format a value of the t-test, which is unknown if all seeds have one difference."""
    return "–" if value is None or np.isnan(value) else f"{value:{form}}"


def compare(
    a: MeasuredRun,
    b: MeasuredRun,
    metric: str = "",
    *,
    by: str = "auto",
    seed: int = 0,
) -> Comparison:
    """Compare two runs on the queries and seeds that both have.

    Args:
        a: the baseline.
        b: the other run; a positive difference is its gain.
        metric: the metric of ``by_query``; default: H-AP if both have it, else the first.
        by: resampling unit: "classes", each with all its queries, "queries", or "auto": classes
            if no model was trained on one of them (open set), else queries.
        seed: of the bootstrap.

    Raises:
        InvalidData: no query or metric in common, different numbers of levels, or classes are
            requested but not recorded.
        UsageError: one run lacks the metric, or the runs have no seed in common.
    """
    if (a.given is None) != (b.given is None):
        raise UsageError(
            f"{a.folder} and {b.folder}: one is a CSV of `hgld evaluations measure --out`, the "
            "other an evaluation; compare two of one kind"
        )
    if a.given is not None and b.given is not None:  # without ids, rows are taken for images
        known = [side[["image_id", "class"]].drop_duplicates() for side in (a.given, b.given)]
        both = known[0].merge(known[1], on="image_id")
        for name, one, other in both[both["class_x"] != both["class_y"]].itertuples(index=False):
            raise InvalidData(
                f"{b.folder}: the class of {name} is {other!r}, but {one!r} in {a.folder}; measure "
                "both on the same images, with their ids"
            )
    if a.given is None and len(a.protocol["levels"]) != len(b.protocol["levels"]):
        counts = [", ".join(side.protocol["levels"]) for side in (a, b)]
        raise InvalidData(f"A was measured on other levels ({counts[0]}) than B ({counts[1]})")
    pairs = pair_seeds(a.models, b.models)
    if not pairs:
        found = [
            "seeds " + ", ".join(str(facts["seed"]) for facts in side.models.values())
            for side in (a, b)
        ]
        raise UsageError(
            f"no seed is in both: A has {found[0]}, B has {found[1]}; train both with the same "
            "train.seeds, or name the model of one seed of each"
        )
    tables = a.values(), b.values()
    values = [(tables[0][one], tables[1][other]) for one, other in pairs]
    queries = [
        reduce(pd.Index.intersection, (table.index for table in side))
        for side in zip(*values, strict=True)
    ]
    shared = queries[0].intersection(queries[1])
    metrics = [m for m in a.metrics if all(m in table for pair in values for table in pair)]
    if shared.empty or not metrics:
        what, names = ("metric", [a.metrics, b.metrics]) if len(shared) else ("query", queries)
        first = ", ".join(str(next(iter(known), "none")) for known in names)
        raise InvalidData(
            f"{a.folder} and {b.folder} have no {what} in common (first of each: {first}); were "
            "they measured on one set?"
        )
    chosen = metric or ("H-AP" if "H-AP" in metrics else metrics[0])
    if chosen not in metrics:
        raise UsageError(f"not both have the metric '{chosen}'; both have {', '.join(metrics)}")
    unit = bootstrap_unit([a.protocol, b.protocol], by)
    classes = a.classes(shared) if unit == "classes" else None
    sides = [np.stack([t.loc[shared, metrics] for t in side]) for side in zip(*values, strict=True)]
    by_chance = _is_one_training(a, b)  # then an interval that excludes 0 means nothing
    one, other = (side[:, :, metrics.index(chosen)].mean(axis=0) for side in sides)
    by_query = pd.DataFrame({"image_id": shared, "a": one, "b": other})
    by_query["difference"] = _without_rounding(other - one)
    by_query = by_query.dropna().sort_values(
        ["difference", "image_id"], ascending=[False, True], ignore_index=True
    )
    return Comparison(
        tuple(_differ(metrics, sides[0], sides[1], classes, seed, by_chance)),
        unit,
        len(shared) if classes is None else len(np.unique(classes)),
        len(pairs),
        chosen,
        len(shared),
        by_query,
        _severity(a, b, pairs, shared),
        (len(queries[0]) - len(shared), len(queries[1]) - len(shared)),
        (
            *_remarks(a, b, pairs),
            *_without_values((a, b), queries),
            *_with_some_values(metrics, np.concatenate(sides)),
        ),
    )


def _without_values(sides: Sequence[MeasuredRun], queries: Sequence[pd.Index]) -> Iterator[str]:
    """Yield how many queries have no value of any metric, and so no row."""
    named: dict[str, list[str]] = {}
    for name, side, known in zip("AB", sides, queries, strict=True):
        lost = side.protocol.get("queries", 0) - len(known)
        if lost > 0:
            have = part_text(lost, side.protocol["queries"], "query", "have")
            named.setdefault(have, []).append(name)
    for have, own in named.items():
        yield f"{have} no value of any metric in {' and '.join(own)}"


def _with_some_values(metrics: Sequence[str], values: np.ndarray) -> Iterator[str]:
    """Yield the metrics, such as MS, that some queries have of a part of the models only.

    Args:
        metrics: M names.
        values: (2 S, Q, M) of the models of both runs.
    """
    known = ~np.isnan(values)
    of_all, of_some = known.all(axis=0).sum(axis=0), known.any(axis=0).sum(axis=0)
    for metric, common, some in zip(metrics, of_all.tolist(), of_some.tolist(), strict=True):
        if common < some:
            have = part_text(common, some, "query", "have")
            yield f"{metric}: {have} a value of every model; the others are not compared"


def _is_one_training(a: MeasuredRun, b: MeasuredRun) -> bool:
    """Whether the models of both runs differ in their seeds only, and were measured alike."""
    of_protocol = ("precision", "name", "query", "gallery")
    made = {
        (facts.get("recipe"), json.dumps(facts.get("preparation"), sort_keys=True),
         *(str(side.protocol.get(what)) for what in of_protocol))
        for side in (a, b) for facts in side.models.values()
    }  # fmt: skip
    return len(made) == 1 and next(iter(made))[0] is not None


def _differ(
    metrics: Sequence[str],
    a: np.ndarray,
    b: np.ndarray,
    classes: np.ndarray | None,
    seed: int,
    by_chance: bool,
) -> Iterator[Difference]:
    """Yield the difference of each metric from (S, Q, M) values of two runs.

    A query without a value in one run is left out of both.
    """
    known = ~np.isnan(a + b).any(axis=0)  # (Q, M)
    count = known.sum(axis=0)
    differences = np.where(known, b - a, np.nan)
    # the seeds are averaged first: the bootstrap draws queries, find_ends adds the seeds' spread
    gain = _without_rounding(differences.mean(axis=0))  # (Q, M), over the seeds
    with np.errstate(invalid="ignore"):  # no query with a value: 0 / 0
        means = [np.where(known, side, 0).sum(axis=1) / count for side in (a, b)]  # (S, M)
    by_seed = means[1] - means[0]
    ends = find_ends(resample_means(gain, classes, seed=seed), by_seed)
    tested = paired_t_test(*means)
    for i, metric in enumerate(metrics):
        better, worse = int((gain[:, i] > 0).sum()), int((gain[:, i] < 0).sum())
        yield Difference(
            metric,
            int(count[i]),
            float(means[0][:, i].mean()),
            float(means[1][:, i].mean()),
            float(by_seed[:, i].mean()),
            float(ends[0, i]),
            float(ends[1, i]),
            *((worse, better) if lower_is_better(metric) else (better, worse)),
            by_chance,
            t=None if tested is None else float(tested[0][i]),
            p=None if tested is None else float(tested[1][i]),
        )


def _without_rounding(differences: np.ndarray) -> np.ndarray:
    """Return 0 for differences that are rounding alone: seeds may have equal values in turn."""
    return np.where(np.abs(differences) < ROUNDING, 0.0, differences)


def _severity(a: MeasuredRun, b: MeasuredRun, pairs: Pairs, shared: pd.Index) -> pd.DataFrame:
    """Count queries by the level that their first image shares with them, the finest first.

    Without rows if there are no rankings.
    """
    names = [str(name) for name in a.protocol["levels"]]
    if a.given is not None:
        return pd.DataFrame(columns=["level", "first_image", "a", "b"])
    counts = np.zeros((2, len(names) + 1), np.int64)
    for count, side, models in zip(counts, (a, b), zip(*pairs, strict=True), strict=True):
        for ranking in (side.of_model(name).ranking for name in models):
            first = ranking.first_levels()[pd.Index(ranking.query_ids).isin(shared)]
            count += np.bincount(first[first >= 0], minlength=len(names) + 1)
    levels = range(len(names), -1, -1)
    labels = [shared_text(level, names) for level in levels]
    columns = {"level": list(levels), "first_image": labels}
    return pd.DataFrame({**columns, "a": counts[0][::-1], "b": counts[1][::-1]})


def _remarks(a: MeasuredRun, b: MeasuredRun, pairs: Pairs) -> Iterator[str]:
    """Yield what was not measured alike, and which variation the intervals do not include."""
    for what in ("name", "query", "gallery", "gallery_images", "levels", "precision"):
        usual = "float32" if what == "precision" else None
        one, other = (side.protocol.get(what, usual) for side in (a, b))
        # a CSV that a script wrote may lack them
        if one != other and (a.given is None or (one and other)):
            yield f"not measured alike: {what} is {one} in A, {other} in B"
    if a.protocol.get("by_row") and b.protocol.get("by_row"):
        yield (
            "queries have row numbers, as of embeddings without ids, so that row is compared with "
            "row; measure with ids if the rows of A and B may be of other images"
        )
    if _is_one_training(a, b):
        yield "A and B differ in their training seeds alone, so every difference is chance"
        return
    trained = any(facts.get("steps") for side in (a, b) for facts in side.models.values())
    if len(pairs) == 1 and trained:
        yield (
            "one training seed each: the spread between seeds is not in the intervals; see "
            "train.seeds"
        )
    if len(pairs) == 2:
        yield "two seeds say little of the spread between seeds, so the intervals are wide"
    compared = [{name for pair in pairs for name in pair} & side.models.keys() for side in (a, b)]
    if len(pairs) > 1 and compared != [side.models.keys() for side in (a, b)]:
        yield f"only the {len(pairs)} seeds that both have are compared"
