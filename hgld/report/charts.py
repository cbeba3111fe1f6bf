"""Selection of the charts of a report, with titles and captions.

A chart without data is left out: no loss curves if nothing was trained, no groups if the hierarchy
has a single level. A title states a finding if the numbers support one.
"""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hgld.artifacts import Json
from hgld.errors import InvalidData
from hgld.figures import (
    DARK,
    LIGHT,
    RINGS,
    WIDTH,
    draw_groups,
    draw_shares,
    draw_sunburst,
)
from hgld.model.model_folder import CONFIG, LOSSES, RUNS, parse_record, run_names
from hgld.report.class_map import ClassMap, draw_class_maps, place_classes
from hgld.report.confusion import (
    confusion_by_class,
    count_confusion,
    draw_confusion,
    draw_icicle,
)
from hgld.report.counts import Counts
from hgld.report.curve_charts import plan_curves
from hgld.report.figures import (
    draw_class_sizes,
    draw_level_bars,
    draw_loss_curves,
)
from hgld.report.intervals import best_runs, known_means
from hgld.report.metrics_table import best_run, mean_of
from hgld.report.plans import ChartData, ChartPlan
from hgld.tasks import count_cores, map_tasks, say, watched_by
from hgld.words import count_text, level_classes, level_noun, part_text, share_text, verb_text

LossCurve = tuple[list[float], list[float]]  # steps and losses
SECTIONS = {
    "ranking": "What the rankings are like",
    "models": "What the models learned",
    "data": "What there is to find",
}
MAPS = 6  # models that each have a map


def read_losses(run: Path) -> LossCurve | None:
    """Return steps and losses of a run; None if it was not trained.

    Raises:
        InvalidData: a line is not a JSON object.
    """
    path = run / LOSSES
    if not path.is_file():
        return None
    steps, losses = list[float](), list[float]()
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        record = parse_record(line)
        if not record:
            raise InvalidData(
                f"{path} line {number}: not a JSON object; delete the run's folder and train again"
            )
        if "step" in record and "loss" in record:
            steps.append(float(record["step"]))
            losses.append(float(record["loss"]))
    return (steps, losses) if steps else None


def find_losses(models: Mapping[str, Mapping[str, Any]], runs: Path) -> dict[str, LossCurve]:
    """Return the losses of each measured model that is one of these runs, by its weights.

    Names do not identify a model: ``evaluate.models`` may give a run another one.
    """
    # other folders may be of a run that was left out since, or of other programs
    names = run_names(runs) if (runs / RUNS).is_file() else []
    files = (runs / name / CONFIG for name in names)
    folders = {Json(CONFIG).read(f).get("sha256"): f.parent for f in files if f.is_file()}
    found = {
        name: read_losses(folders[facts["weights_sha256"]])
        for name, facts in models.items()
        if facts["weights_sha256"] in folders
    }
    return {name: curve for name, curve in found.items() if curve is not None}


@dataclass(frozen=True)
class Chart:
    """A chart of one of ``SECTIONS``.

    Attributes:
        light: PNG file for light pages.
        dark: PNG file for dark pages.
        vectors: suffix -> SVG or PDF file, in the colours of light pages.
        size: width and height in inches.
        table: the values in the chart.
    """

    name: str
    section: str
    title: str
    caption: str
    light: bytes
    dark: bytes
    vectors: Mapping[str, bytes]
    size: tuple[float, float]
    table: pd.DataFrame | None = None

    @property
    def wide(self) -> bool:
        """True if it is drawn over both columns of the page."""
        return self.size[0] > WIDTH


def draw_charts(
    measured: ChartData,
    counts: Counts,
    runs: Path,
    vector_formats: Sequence[str],
    meanwhile: Callable[[], object],
) -> list[Chart]:
    """Return all charts that have data; each core draws some, and this process does other work."""
    plans = [
        *_plan_levels(measured),
        *plan_curves(measured),
        *_plan_map(measured),
        *_plan_confusion(measured),
        *_plan_losses(measured, runs),
        *_plan_counts(counts),
    ]
    tasks = [(plan, tuple(vector_formats)) for plan in plans]
    found = list[str]()

    def work() -> None:
        with watched_by(None, found.append):
            meanwhile()

    drawn = map_tasks(draw_chart, tasks, "Drawing charts", count_cores(), meanwhile=work)
    # each process names the first letter that no font has; one is enough
    for note in [*found, *(note for _, notes in drawn for note in notes)][:1]:
        say(note)
    return [chart for chart, _ in drawn]


def draw_chart(task: tuple[ChartPlan, tuple[str, ...]]) -> tuple[Chart, list[str]]:
    """Draw a plan in PNG and the vector formats; return the chart, and notices for the user."""
    plan, vector_formats = task
    notes: list[str] = []
    gc.disable()  # while a chart is drawn, searches for garbage take an eighth of the time
    try:
        with watched_by(None, notes.append):
            light, dark = plan.draw(LIGHT), plan.draw(DARK)
        words = plan.name, plan.section, plan.title, plan.caption
        vectors = {form: light.vector(form) for form in vector_formats}
        pictures = light.png(), dark.png(), vectors
    finally:
        gc.enable()
    return Chart(*words, *pictures, light.size, plan.table), notes


def _plan_levels(measured: ChartData) -> Iterator[ChartPlan]:
    """AP at the levels at which it was measured."""
    metrics = measured.evaluation["metrics"]
    shown = [level for level in measured.levels if f"AP:{level}" in metrics]
    if not shown:
        return
    values = {
        name: {level: mean_of(run, f"AP:{level}") for level in shown}
        for name, run in measured.runs.items()
    }
    if np.isnan([[*row.values()] for row in values.values()]).all():
        return
    ends = {
        (run, metric.removeprefix("AP:")): interval
        for (run, metric), interval in measured.intervals.ends.items()
        if metric.startswith("AP:")
    }
    about = "Average precision where right means the same class at that level, coarse to fine"
    about += f"; lines are 95 % intervals over the {measured.intervals.unit}." if ends else "."
    draw = partial(draw_level_bars, values, ends)
    none = np.nan, np.nan
    head = "run" if "model" in shown else "model"  # of cars, a level is called model
    table: dict[str, list[Any]] = {head: list(values)}
    for level in shown:
        found = [ends.get((run, level), none) for run in values]
        table[level] = [values[run][level] for run in values]
        table |= {f"{level} low": [x for x, _ in found], f"{level} high": [y for _, y in found]}
    title = _title_of_levels(shown, measured)
    yield ChartPlan("levels", "ranking", title, about, draw, pd.DataFrame(table))


def _title_of_levels(levels: Sequence[str], measured: ChartData) -> str:
    """The run that leads at every level, if the intervals confirm it."""
    metrics = [f"AP:{level}" for level in levels]
    best = [best_runs(known_means(measured.evaluation, metric), metric) for metric in metrics]
    if len(measured.runs) > 1 and len(levels) > 1 and all(best):
        leaders = frozenset.intersection(*best)
        if not leaders:
            return "No model has the highest AP at every level"
        for run in leaders:
            if all(measured.is_surely_best(run, metric) for metric in metrics):
                return f"{run} has the highest AP at every level"
    return "Average precision at each level"


def _plan_map(measured: ChartData) -> Iterator[ChartPlan]:
    """Class means by t-SNE, a panel a model; the best one is among them."""
    best, maps = best_run(measured.evaluation), dict[str, ClassMap]()
    if len(measured.levels) < 2:
        return
    first = [run for run in measured.runs if run != best][: MAPS - 1]
    paths = measured.gallery.paths_by_labels()
    for run, model in measured.first_models.items():
        ranking = measured.rankings[model]
        groups = [paths[tuple(labels)][:-1] for labels in ranking.classes.tolist()]
        found = place_classes(ranking.means, groups) if run in (best, *first) else None
        if found is not None:
            maps[run] = found
    if not maps:
        return
    classes = len(paths)
    level, finest = measured.levels[-2:]
    noun = level_noun(level)
    model = best if best is not None and best in maps else next(iter(maps))
    drawn = len(maps[model].groups)
    each, some, one = f"each {level_noun(finest)}", "the classes", "one"
    if drawn < classes:
        each = f"{drawn:,} of the {classes:,} {level_classes(finest)}"
        some, one = f"{drawn:,} random classes", "of these"
    title = (
        f"For {share_text(maps[model].together)} of {some} the nearest {one} is of the same {noun} "
        f"({model})"
    )
    about = (
        f"Mean embedding of {each} of the gallery, by t-SNE; colour and mark are its {noun}. "
        "Neighbours mean something here, distances across the map do not."
    )
    if drawn < classes:  # without its neighbours, a class has another nearest one
        about += " The share is among these classes alone; among all it may be higher."
    if len(measured.runs) > MAPS:
        about += f" {len(maps)} of {len(measured.runs)} models are drawn."
    about += " Of several seeds the first." if measured.has_seeds else ""
    draw = partial(draw_class_maps, maps, list(measured.runs), noun)
    yield ChartPlan("map", "models", title, about, draw)


def _plan_confusion(measured: ChartData) -> Iterator[ChartPlan]:
    """Coarse class of each query against that of the first image that the best model found."""
    run = best_run(measured.evaluation)
    if run is None:
        return
    best = measured.first_models[run]
    levels = measured.query_levels
    depth = min(len(levels), max(1, len(measured.levels) - 1))
    ranking, level = measured.rankings[best], level_noun(measured.levels[depth - 1])
    found = ranking.gallery_ids[ranking.order[:, 0]]
    pairs = [
        (measured.queries.path(query)[:depth], measured.gallery.path(str(image))[:depth])
        for query, image in zip(map(str, ranking.query_ids), found, strict=True)
        if query != image
    ]
    yield from _plan_icicle(measured, best, levels)
    confusion = count_confusion(pairs)
    if len(confusion.names) < 2:
        return
    find = part_text(confusion.wrong, len(pairs), "query", "find")
    title = f"{find} another {level} first"
    about = (
        f"First image found by {best}: share of each row in percent; blue is the same {level}, "
        "orange another."
    )
    draw = partial(draw_confusion, confusion, level)
    yield ChartPlan("confusion", "models", title, about, draw, confusion.table())


def _plan_icicle(measured: ChartData, model: str, levels: Sequence[str]) -> Iterator[ChartPlan]:
    """Confusion at every level of the tree."""
    ranking = measured.rankings[model]
    firsts = zip(map(str, ranking.query_ids), ranking.first_levels().tolist(), strict=True)
    pairs = [(measured.queries.path(query), shared) for query, shared in firsts if shared >= 0]
    if len(levels) < 2 or not pairs:
        return
    table = confusion_by_class(pairs, levels, measured.queries.names)
    wrong = [sum(shared <= depth for _, shared in pairs) for depth in range(len(levels))]
    parts = [f"{n:,} of another {level_noun(one)}" for one, n in zip(levels, wrong, strict=True)]
    finest = level_noun(levels[-1])
    find = verb_text(wrong[-1], "find")
    title = f"Of {len(pairs):,} queries, {wrong[-1]:,} {find} another {finest} first"
    about = (
        f"First image found by {model}. A height is a number of queries; colour is the share with "
        f"a first image of another class: {', '.join(parts)}."
    )
    draw = partial(draw_icicle, table, levels)
    yield ChartPlan("icicle", "models", title, about, draw, table)


def _plan_losses(measured: ChartData, runs: Path) -> Iterator[ChartPlan]:
    models = measured.evaluation["models"]
    losses = find_losses(models, runs)
    curves = {
        run: found
        for run, facts in measured.runs.items()
        if (found := [losses[model] for model in facts["models"] if model in losses])
    }
    if lost := [name for name, facts in models.items() if facts["steps"] and name not in losses]:
        say(f"report: {runs} has no losses of the weights of {', '.join(lost)}; none are drawn")
    if not curves:
        return
    best = best_run(measured.evaluation)
    # of the last run if the best was not trained
    run = best if best is not None and best in curves else list(curves)[-1]
    steps, values = curves[run][0]
    few = max(1, len(values) // 10)
    first, last = np.mean(values[:few]), np.mean(values[-few:])
    length = count_text(int(steps[-1]), "step")
    title = f"In {length} the loss of {run} went from {first:.2g} to {last:.2g}"
    about = "Loss of each training step, thin, and its running mean; losses differ in scale. "
    about += "The title compares the means of the first and the last tenth."
    about += " A line a seed." if measured.has_seeds else ""
    draw = partial(draw_loss_curves, curves, list(measured.runs))
    yield ChartPlan("losses", "models", title, about, draw)


def _plan_counts(counts: Counts) -> Iterator[ChartPlan]:
    """Charts of the data set."""
    finest, sizes = counts.levels[-1], counts.class_sizes
    title = counts.long_tail()
    about = f"The long tail: images of each {level_noun(finest)}, the largest first."
    draw = partial(draw_class_sizes, sizes, level_noun(finest))
    rows = []
    for name, own in sizes.items():
        median = float(np.median(own))  # half of an image as text: a float would be a share
        middle = int(median) if median.is_integer() else f"{median:g}"
        rows.append((name, len(own), sum(own), min(own), middle, max(own)))
    heads = ["split", "classes", "images", "smallest class", "median class", "largest class"]
    yield ChartPlan("sizes", "data", title, about, draw, pd.DataFrame(rows, columns=heads))
    if len(counts.levels) < 2:
        return
    coarse = counts.levels[-2]
    bars = counts.bars
    paths = sorted(
        zip(counts.by_group, bars, strict=True), key=lambda row: (-row[1].classes, row[1].name)
    )
    ordered = [bar for _, bar in paths]
    title = f"{ordered[0].name} is the largest of {len(bars):,} {level_classes(coarse)}"
    if len({bar.classes for bar in ordered[:2]}) == 1:
        title = f"How many {level_classes(finest)} each {level_noun(coarse)} has"
    about = (
        f"Labelled {level_classes(finest)} of each {level_noun(coarse)}, and their exported images."
    )
    head = "class" if coarse in ("within", "images") else coarse  # a level may be called so
    table = pd.DataFrame(
        [(b.name, " > ".join(path[:-1]), b.classes, b.images) for path, b in paths],
        columns=[head, "within", level_classes(finest), "images"],
    )
    yield ChartPlan("groups", "data", title, about, partial(draw_groups, bars, finest), table)
    if len(counts.levels) > 2:
        last = counts.levels[:-1][:RINGS][-1]
        title = f"From {level_noun(counts.levels[0])} to {level_noun(last)}"
        about = f"An angle is a share of the {level_classes(finest)}; the coarsest level is inside."
        about += f" Levels below {level_noun(last)} are not drawn." * (last != coarse)
        draw = partial(draw_sunburst, counts.by_group, counts.levels)
        yield ChartPlan("sunburst", "data", title, about, draw)
    if counts.shares:
        kind = level_noun(counts.levels[0])
        name, share = counts.largest_share()
        title = f"{share_text(share)} of the {level_classes(finest)} are {name}"
        most = [*next(iter(counts.shares.values())).values()]
        if most.count(max(most)) > 1:
            title = f"How the {level_classes(finest)} divide by {kind}"
        about = f"Share of each {kind} in the classes and in the images of each split."
        table = pd.DataFrame.from_dict(counts.shares, orient="index").reset_index(names="of")
        yield ChartPlan("shares", "data", title, about, partial(draw_shares, counts.shares), table)
