"""Checks of an evaluation before it starts: metrics that fit the levels, two sides, models.

The evaluate stage checks them on the shards. ``check_evaluation`` checks the same on the tables
from which the shards will be made, so that a typo stops a run before hours of training, not after.
"""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from hgld.config import EvaluateOptions, StageContext
from hgld.errors import UsageError
from hgld.evaluate.models import find_given
from hgld.evaluate.name_queries import level_number
from hgld.model.devices import choose_device, require_precision
from hgld.ranking.metrics import parse
from hgld.ranking.rankings import FORMS, of_queries
from hgld.shards.classes import label_images, number_classes
from hgld.sources.open_set import describe_splits
from hgld.tasks import say


def check_evaluation(
    images: pd.DataFrame,
    hierarchy: pd.DataFrame,
    *,
    options: EvaluateOptions,
    context: StageContext,
) -> None:
    """Refuse options that do not fit the labelled images; report a hierarchy that does not matter.

    Raises:
        InvalidData: a path of a model does not lead to one.
        MissingWeights: the weights of a pretrained model are neither local nor downloadable.
        UsageError: an unknown metric, level or model; a split without images or with one class;
            a network that would embed in fp16 on a CPU.
    """
    classes = number_classes(hierarchy)
    depth = level_number("name_level", options.name_level, classes.levels)
    choose_metrics(options.metrics, classes.levels, depth)
    level_number("mean_over", options.mean_over, classes.levels[:depth])  # only refuses
    finest = f"name_{len(classes.levels)}"
    labelled = label_images(images[["split", "landmark_id"]], classes).dropna(subset=finest)
    for option, split in (("query", options.query), ("gallery", options.gallery)):
        for name in split.split("+"):
            if not (labelled["split"] == name).any():
                found = describe_splits(labelled) or "none at all"
                raise UsageError(
                    f"evaluate.{option} '{name}' has no labelled images; there are: {found}; name "
                    "one of these, or hold classes out with collect.evaluation_share"
                )
        side = labelled[labelled["split"].isin(split.split("+"))]
        column = f"name_{depth}" if option == "query" else finest
        require_classes(option, split, side[column].nunique())
    splits = {*options.query.split("+"), *options.gallery.split("+")}
    used = labelled[labelled["split"].isin(splits)]
    coarsest, number = classes.levels[0], len(classes.levels)
    pairs = used[["level_1", f"level_{number}"]].drop_duplicates()
    if number > 1 and pairs["level_1"].is_unique:
        say(
            f"evaluate: no two of the {len(pairs):,} evaluated classes share a {coarsest}, so that "
            "every level gives the same values; hold out classes that share one "
            "(collect.evaluation_share, collect.evaluation_classes)"
        )
    given = find_given(options.models)
    files = {model.run for model in given if model.kind == "given"}  # of embeddings
    networks = not files or files != {*options.models}
    if networks and options.ray is None:  # else it is the device of a node
        require_precision(choose_device(options.device), options.precision)
    for model in given:
        model.require()


def choose_metrics(
    names: Sequence[str] | None, levels: tuple[str, ...], depth: int | None = None
) -> tuple[str, ...]:
    """Return the metrics to measure; default: some over all levels, of each, and of the finest.

    Names are returned as results print them: ``mAP@1k`` as ``mAP@1000``.

    Args:
        names: of metrics.
        levels: names, coarse to fine.
        depth: number of the queries' level; above the finest one, a metric without a level is of
            this level. None: the finest.

    Raises:
        UsageError: no name of a metric of queries, an unknown metric or level, or weights that do
            not fit the levels.

    Example:
        >>> choose_metrics(None, ("group", "species"))[3:]
        ('AP:group', 'AP:species', 'R@1:species', 'mAP@100:species')
        >>> choose_metrics(["R@1", "ASI"], ("group", "species"), depth=1)
        ('R@1:group', 'ASI')
    """
    is_above, levels, chosen = depth not in (None, len(levels)), levels[:depth], []
    if names is None:
        each = (f"AP:{level}" for level in levels)
        return ("H-AP", "NDCG", "ASI", *each, f"R@1:{levels[-1]}", f"mAP@100:{levels[-1]}")
    for name in names:
        try:
            metric = parse(name)
            metric.require_levels(levels)
        except UsageError as error:
            raise UsageError(f"evaluate.metrics: {error}") from None
        of_a_level = FORMS[metric.metric][2] and metric.metric != "ASI"
        if is_above and of_a_level and metric.level is None:
            metric = replace(metric, level=levels[-1])
        chosen.append(str(metric))
    if not of_queries(names):
        what = "names no metric of queries; add one" if names else "is empty; name at least one"
        raise UsageError(f"evaluate.metrics {what}, e.g. H-AP")
    return tuple(dict.fromkeys(chosen))  # R@1 and R@1:group may now be the same


def require_classes(option: str, split: str, classes: int) -> None:
    """Refuse a side with a single class, on which every ranking is perfect.

    Raises:
        UsageError: all images of the side have the same class.
    """
    if classes == 1:
        raise UsageError(
            f"evaluate.{option} '{split}' has images of one class only, so that any model finds "
            "the right class; put more classes into it"
        )
