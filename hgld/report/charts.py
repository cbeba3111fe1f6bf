"""Decides which charts a run has something to show for, and says of each what is to be seen.

A chart without anything in it is left out: no loss where nothing was trained, no groups where the
hierarchy has one level only. A title is a finding where the numbers allow one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from hgld.figures import DARK, LIGHT, Theme, draw_groups, draw_shares, draw_sunburst
from hgld.report.class_map import ClassMap, draw_class_maps, place_classes
from hgld.report.confusion import count_confusion, draw_confusion
from hgld.report.counts import Counts
from hgld.report.curve_charts import plan_curves
from hgld.report.figures import (
    draw_class_sizes,
    draw_level_bars,
    draw_loss_curves,
    model_colours,
)
from hgld.report.losses import read_losses
from hgld.report.metrics import best_model, mean_of
from hgld.report.plans import Measured, Plan
from hgld.tasks import track

__all__ = ["SECTIONS", "Chart", "draw_charts"]

SECTIONS = {
    "ranking": "What the rankings are like",
    "models": "What the models learned",
    "data": "What there is to find",
}
MAPS = 6  # models with a map of their own


@dataclass(frozen=True)
class Chart:
    """A chart for light and for dark pages, of one of ``SECTIONS``."""

    name: str
    section: str
    title: str
    caption: str
    light: bytes
    dark: bytes
    wide: bool = False


def draw_charts(measured: Measured, counts: Counts, runs: Path) -> list[Chart]:
    """Every chart that there is something to draw for."""
    plans = [
        *_plan_levels(measured),
        *plan_curves(measured),
        *_plan_map(measured),
        *_plan_confusion(measured),
        *_plan_losses(measured, runs),
        *_plan_counts(counts),
    ]
    return [
        Chart(p.name, p.section, p.title, p.caption, p.draw(LIGHT), p.draw(DARK), p.wide)
        for p in track(plans, "Drawing charts", len(plans))
    ]


def _plan_levels(measured: Measured) -> Iterator[Plan]:
    """AP at the levels at which it was measured."""
    metrics = measured.evaluation["metrics"]
    shown = [level for level in measured.levels if f"AP:{level}" in metrics]
    if not shown:
        return
    values = {
        name: {level: mean_of(model, f"AP:{level}") for level in shown}
        for name, model in measured.evaluation["models"].items()
    }
    ends = {
        (model, metric.removeprefix("AP:")): interval
        for (model, metric), interval in measured.intervals.items()
        if metric.startswith("AP:")
    }
    leaders = {max(values, key=lambda name: _low_if_nan(values[name][level])) for level in shown}
    title = "Average precision at each level"
    if len(values) > 1 and len(shown) > 1:
        leader = leaders.pop() if len(leaders) == 1 else "No model"
        title = f"{leader} has the highest AP at every level"
    about = "Average precision where right means the same class at that level, coarse to fine"
    about += "; lines are 95% intervals over the queries." if ends else "."
    yield Plan("levels", "ranking", title, about, partial(draw_level_bars, values, ends))


def _low_if_nan(value: float) -> float:
    return -1.0 if np.isnan(value) else value


def _plan_map(measured: Measured) -> Iterator[Plan]:
    """Class means by t-SNE, a panel a model; the best one is among them."""
    best, maps = best_model(measured.evaluation), {}
    if len(measured.levels) < 2:
        return
    first = [model for model in measured.rankings if model != best][: MAPS - 1]
    paths = measured.gallery.paths_by_labels()
    for model, ranking in measured.rankings.items():
        groups = [paths[tuple(labels)][:-1] for labels in ranking.classes.tolist()]
        found = place_classes(ranking.means, groups) if model in (best, *first) else None
        if found is not None:
            maps[model] = found
    if maps:
        yield _plan_of_maps(maps, measured, best)


def _plan_of_maps(maps: Mapping[str, ClassMap], measured: Measured, best: str | None) -> Plan:
    level, finest = measured.levels[-2:]
    model = best if best is not None and best in maps else next(iter(maps))
    title = (
        f"For {maps[model].together:.0%} of the classes the nearest one is of the same {level} "
        f"({model})"
    )
    about = (
        f"Mean embedding of each {finest} of the gallery, by t-SNE; colour and mark are its "
        f"{level}. Neighbours mean something here, distances across the map do not."
    )

    def draw(theme: Theme) -> bytes:
        return draw_class_maps(maps, model_colours(measured.models, theme), level, theme)

    return Plan("map", "models", title, about, draw, wide=True)


def _plan_confusion(measured: Measured) -> Iterator[Plan]:
    """Coarse class of each query against that of the first image that the best model found."""
    best = best_model(measured.evaluation)
    if best is None or best not in measured.rankings:
        return
    depth = max(1, len(measured.levels) - 1)
    ranking, level = measured.rankings[best], measured.levels[depth - 1]
    found = ranking.gallery_ids[ranking.order[:, 0]]
    pairs = [
        (measured.queries.path(query)[:depth], measured.gallery.path(str(image))[:depth])
        for query, image in zip(ranking.query_rows, found, strict=True)
        if query != image
    ]
    confusion = count_confusion(pairs)
    if len(confusion.names) < 2:
        return
    title = f"{confusion.wrong:,} of {len(pairs):,} queries find another {level} first"
    about = (
        f"First image found by {best}: share of each row in percent; blue is the same {level}, "
        "orange another."
    )
    draw = partial(draw_confusion, confusion, level)
    yield Plan("confusion", "models", title, about, draw, wide=len(confusion.names) > 12)


def _plan_losses(measured: Measured, runs: Path) -> Iterator[Plan]:
    curves = {name: c for name in measured.models if (c := read_losses(runs / name))}
    if curves:
        about = "Loss of each training step, thin, and its running mean; losses differ in scale."
        draw = partial(draw_loss_curves, curves, measured.models)
        yield Plan(
            "losses", "models", _training(curves, best_model(measured.evaluation)), about, draw
        )


def _training(curves: Mapping[str, tuple[list[float], list[float]]], best: str | None) -> str:
    """Where the loss of the best model went, or of the last where the best was not trained."""
    model = best if best is not None and best in curves else list(curves)[-1]
    steps, losses = curves[model]
    few = max(1, len(losses) // 10)
    first, last = np.mean(losses[:few]), np.mean(losses[-few:])
    return f"In {steps[-1]:,.0f} steps the loss of {model} went from {first:.2g} to {last:.2g}"


def _plan_counts(counts: Counts) -> Iterator[Plan]:
    """What the data set holds."""
    finest, sizes = counts.levels[-1], counts.class_sizes
    split, share = counts.head_share()
    title = f"A tenth of the {split} classes holds {share:.0%} of the images"
    about = f"The long tail: images of each {finest}, the largest first."
    draw = partial(draw_class_sizes, sizes, finest)
    yield Plan("sizes", "data", title, about, draw)
    if len(counts.levels) < 2:
        return
    coarse = counts.levels[-2]
    bars = counts.bars
    largest = max(bars, key=lambda bar: (bar.classes, bar.name))
    title = f"{largest.name} is the largest of {len(bars):,} {coarse} classes"
    about = f"Labelled classes ({finest}) of each {coarse}, and their exported images."
    yield Plan("groups", "data", title, about, partial(draw_groups, bars, finest))
    if len(counts.levels) > 2:
        title = f"From {counts.levels[0]} to {coarse}"
        about = f"An angle is a share of the {finest} classes; the coarsest level is inside."
        draw = partial(draw_sunburst, counts.by_group, counts.levels)
        yield Plan("sunburst", "data", title, about, draw)
    if counts.shares:
        name, share = counts.largest_share()
        title = f"{share:.0%} of the {finest} classes are {name}"
        about = f"Share of each {counts.levels[0]} in the classes and in the images of each split."
        yield Plan("shares", "data", title, about, partial(draw_shares, counts.shares))
