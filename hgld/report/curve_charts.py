"""Charts of the curves of a ranking: H-precision, H-AP against alpha, decomposability gap.

The evaluation measures the curves while it ranks the gallery (``hgld.ranking.curves``).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from hgld.bootstrap import ROUNDING
from hgld.ranking.curves import ALPHAS, RECALLS, Curves, CurveValues
from hgld.report.figures import draw_lines
from hgld.report.metrics_table import mean_of
from hgld.report.plans import ChartData, ChartPlan
from hgld.words import level_noun, percent_text, share_text


def mean_curves(curves: Sequence[Curves]) -> Curves:
    """The mean of the curves of several seeds."""
    return Curves(
        np.mean([one.precision for one in curves], axis=0),
        np.mean([one.by_alpha for one in curves], axis=0),
        {size: float(np.mean([one.gaps[size] for one in curves])) for size in curves[0].gaps},
    )


def plan_curves(measured: ChartData) -> Iterator[ChartPlan]:
    """H-P against H-R, H-AP against alpha, and the gap against the batch size."""
    curves = {
        run: [CurveValues(**measured.rankings[m].curves) for m in r["models"]]
        for run, r in measured.runs.items()
    }
    some, queries = len(next(iter(curves.values()))[0].precision), len(measured.queries.landmarks)
    if not some:
        return
    found = {run: mean_curves([one.mean() for one in own]) for run, own in curves.items()}
    of = "" if some == queries else f" Over {some:,} of {queries:,} queries."
    of += " Means over the seeds of a run." if measured.has_seeds else ""
    yield from _plan_precision(found, measured, of)
    if len(measured.levels) > 1:
        yield from _plan_alpha(found, measured, of)
    yield from _plan_gap(found, measured, of)


def _plan_precision(
    found: Mapping[str, Curves], measured: ChartData, of: str
) -> Iterator[ChartPlan]:
    """The numbers in the legend are those of the table of metrics, over all queries."""
    at_one = {model: curves.by_alpha[ALPHAS.index(1.0)] for model, curves in found.items()}
    if any(np.isnan(value) for value in at_one.values()):
        return
    kind = "H-" if len(measured.levels) > 1 else ""
    metric = "H-AP" if kind else f"AP:{measured.levels[0]}"
    if metric in measured.evaluation["metrics"]:
        at_one = {name: mean_of(run, metric) for name, run in measured.runs.items()}
        if " Over " in of:
            of = of.replace(" Over ", " Lines over ") + " The numbers are over all."
    lines = {model: (100 * RECALLS, 100 * curves.precision) for model, curves in found.items()}
    labels = {model: f"{model}: {kind}AP {percent_text(value)}" for model, value in at_one.items()}
    words = "hierarchical " if kind else ""
    axis = (f"{words}recall (%)", f"{words}precision (%)")
    about = f"Precision at the rank where each recall is reached; the area is {kind}AP.{of}"
    draw = partial(
        draw_lines, lines, list(measured.runs), axis, labels=labels, dots=False, full=True
    )
    table = pd.DataFrame(
        {_head("recall", found): RECALLS, **{m: c.precision for m, c in found.items()}}
    )
    best = max(found, key=lambda model: float(found[model].precision.mean()))
    half = float(found[best].precision[len(RECALLS) // 2])
    title = f"Halfway through its recall, {best} is {share_text(half)} precise"
    yield ChartPlan("recall", "ranking", title, about, draw, table)


def _plan_alpha(found: Mapping[str, Curves], measured: ChartData, of: str) -> Iterator[ChartPlan]:
    lines = {model: (ALPHAS, 100 * curves.by_alpha) for model, curves in found.items()}
    if all(np.isnan(curves.by_alpha).all() for curves in found.values()):
        return  # no query has a value
    values = np.nan_to_num(np.stack([curves.by_alpha for curves in found.values()]))  # (M, A)
    leads = (values > values.max(axis=0) - ROUNDING).all(axis=1)
    title = "Which model leads depends on alpha"
    if leads.any():
        leader = list(found)[leads.argmax()]
        sure = len(found) > 1 and measured.is_surely_best(leader, "H-AP")
        title = f"{leader} has the highest H-AP at every alpha" if sure else "H-AP against alpha"
    about = (
        f"Above 1, alpha of Eq. 20 favours the {level_noun(measured.levels[-1])}; at 0 all levels "
        f"weigh the same.{of}"
    )
    axis = ("alpha of the relevance", "H-AP (%)")
    draw = partial(draw_lines, lines, list(measured.runs), axis)
    alphas = [f"{alpha:g}" for alpha in ALPHAS]
    table = pd.DataFrame(
        {_head("alpha", found): alphas, **{m: c.by_alpha for m, c in found.items()}}
    )
    yield ChartPlan("alpha", "ranking", title, about, draw, table)


def _plan_gap(found: Mapping[str, Curves], measured: ChartData, of: str) -> Iterator[ChartPlan]:
    gaps = {
        model: {size: 100 * gap for size, gap in curves.gaps.items() if not np.isnan(gap)}
        for model, curves in found.items()
    }
    if any(len(gap) < 2 for gap in gaps.values()):
        return
    lines = {model: (list(gap), list(gap.values())) for model, gap in gaps.items()}
    smallest = min(size for gap in gaps.values() for size in gap)
    most = max(gap[smallest] for gap in gaps.values())
    title = f"Batches of {smallest} flatter the ranking by up to {most:z.0f} points"
    about = (
        f"Mean AP at level {measured.levels[-1]} within random batches of the gallery, minus AP "
        f"over the whole: the decomposability gap.{of}"
    )
    axis = ("images in a batch", "decomposability gap (points of AP)")
    draw = partial(draw_lines, lines, list(measured.runs), axis, powers=True)
    table = pd.DataFrame({model: curves.gaps for model, curves in found.items()})
    table = table.reset_index(names=_head("batch", found))
    yield ChartPlan("gap", "ranking", title, about, draw, table)


def _head(axis: str, runs: Collection[str]) -> str:
    """Name of the first column, other than those of the runs, which may be called so."""
    return f"{axis} (axis)" if axis in runs else axis
