"""Decides which charts a run has something to show for, and counts what they show.

A chart without anything in it is left out: no loss where nothing was trained, no groups where the
hierarchy has one level only.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.artifacts import SPACE_OF_SPLIT, SPLITS
from hgld.errors import InvalidData
from hgld.report.examples import class_paths
from hgld.report.figures import (
    DARK,
    LIGHT,
    Bar,
    Theme,
    draw_class_sizes,
    draw_groups,
    draw_level_bars,
    draw_loss_curves,
)
from hgld.report.metrics import mean_of
from hgld.tasks import track

__all__ = ["Chart", "by_split", "draw_charts"]


@dataclass(frozen=True)
class Chart:
    """A chart for light and for dark pages."""

    name: str
    title: str
    caption: str
    light: bytes
    dark: bytes


def draw_charts(
    hierarchy: pd.DataFrame,
    index: pd.DataFrame,
    levels: Sequence[str],
    models: Path,
    evaluation: Mapping[str, Any],
) -> list[Chart]:
    """Every chart that there is something to draw for."""
    plans: list[tuple[str, str, str, Callable[[Theme], bytes]]] = []
    names = list(evaluation["models"])
    values = _level_values(evaluation, levels)
    if values:
        about = "Average precision where right means the same class at that level, coarse to fine."
        draw = partial(draw_level_bars, values)
        plans.append(("levels", "Average precision at each level", about, draw))
    curves = {name: curve for name in names if (curve := _read_losses(models / name))}
    if curves:
        about = "Loss of each training step, and its running mean."
        draw = partial(draw_loss_curves, curves, names)
        plans.append(("losses", "Training", about, draw))
    about = f"Images of each {levels[-1]}, the largest first."
    draw = partial(draw_class_sizes, _class_sizes(index), levels[-1])
    plans.append(("sizes", "The long tail", about, draw))
    if len(levels) > 1:
        about = f"Labelled classes ({levels[-1]}) of each {levels[-2]}, and their exported images."
        draw = partial(draw_groups, _bars(hierarchy, index), levels[-1])
        plans.append(("groups", f"What each {levels[-2]} holds", about, draw))
    drawn = track(plans, "Drawing charts", len(plans))
    return [Chart(name, title, text, f(LIGHT), f(DARK)) for name, title, text, f in drawn]


def _level_values(
    evaluation: Mapping[str, Any], levels: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Model -> level -> AP, for the levels at which AP was measured."""
    measured = [level for level in levels if f"AP:{level}" in evaluation["metrics"]]
    if not measured:
        return {}
    return {
        name: {level: mean_of(model, f"AP:{level}") for level in measured}
        for name, model in evaluation["models"].items()
    }


def _read_losses(run: Path) -> tuple[list[float], list[float]] | None:
    """Steps and losses of a run; None where it was not trained."""
    path = run / "metrics.jsonl"
    if not path.is_file():
        return None
    records = [
        _parse_line(line, path, number)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    ]
    pairs = [(float(r["step"]), float(r["loss"])) for r in records if "step" in r and "loss" in r]
    return ([step for step, _ in pairs], [loss for _, loss in pairs]) if pairs else None


def _parse_line(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        record: dict[str, Any] = dict(json.loads(line))
    except (ValueError, TypeError):
        raise InvalidData(
            f"{path} line {number}: not a JSON object; delete the run's folder and train again"
        ) from None
    return record


def _bars(hierarchy: pd.DataFrame, index: pd.DataFrame) -> list[Bar]:
    """Classes and images of each class of the second finest level."""
    space = index["split"].map(SPACE_OF_SPLIT)
    images = index.groupby([space, index["landmark_id"]]).size().to_dict()
    counted: dict[tuple[str, ...], list[int]] = {}
    for key, path in class_paths(hierarchy).items():
        count = counted.setdefault(path[:-1], [0, 0])
        count[0] += 1
        count[1] += images.get(key, 0)
    return [Bar(path[-1], path[0], *count) for path, count in counted.items()]


def _class_sizes(index: pd.DataFrame) -> dict[str, list[int]]:
    """Split -> number of images of each of its finest classes."""
    return {
        split: [int(size) for size in rows.groupby("landmark_id").size()]
        for split, rows in by_split(index)
    }


def by_split(index: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each split that has any, in the usual order of the splits."""
    return [
        (split, index[index["split"] == split])
        for split in SPLITS
        if (index["split"] == split).any()
    ]
