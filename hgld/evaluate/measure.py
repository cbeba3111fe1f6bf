"""Exact evaluation of every model on the same queries and gallery, under a named protocol.

A protocol defines which images query which; the report names it, since numbers of two protocols
cannot be compared. On GLDv2 two metrics are called mAP@100. The official one searches the full
index, and the images of the official list are relevant. The papers on hierarchical retrieval search
labelled landmarks only, and all images of the landmark are relevant. Here each has its own name,
and ``gldv2-official`` gives both.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, filterfalse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hgld.artifacts import SPACE_OF_SPLIT
from hgld.artifacts.ranking_file import is_other_npz
from hgld.config import EvaluateOptions, StageContext
from hgld.errors import UsageError
from hgld.evaluate.embedded import record_models
from hgld.evaluate.embeddings import EmbeddingStore
from hgld.evaluate.mapped_vectors import MappedVectors
from hgld.evaluate.models import Model, find_models
from hgld.evaluate.name_queries import level_number, name_queries
from hgld.evaluate.official import OFFICIAL, PAPER, Official
from hgld.evaluate.protocol import choose_metrics, require_classes
from hgld.evaluate.ranking import measure_and_write
from hgld.evaluate.sides import Rows, Shards, Side, count_paths, without_match
from hgld.ranking.rankings import Result
from hgld.tasks import say
from hgld.words import count_text


def evaluate_models(
    shards: Path, models: Path, *, options: EvaluateOptions, context: StageContext, out: Path
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Measure every model on the same queries and gallery.

    If query and gallery are the same split, every image queries all others (open set). A query
    without relevant images has no value; it is left out of the mean, and the report counts it.

    Args:
        shards: folder of the images and their labels.
        models: one folder for each trained run.
        options: protocol, splits, models, metrics, device.
        context: its state folder caches the embeddings.
        out: output folder for the ranking of each model.

    Returns:
        The report (protocol, means of each model, means over the seeds of each run), and a table
        with one row for each model, query and metric with a value.

    Raises:
        InvalidData: embeddings are nan or infinite; a path does not lead to a model.
        MissingInput: there is no model.
        MissingWeights: weights of a pretrained model are neither local nor downloadable.
        UsageError: an unknown metric or run, or a split with fewer than two samples.
    """
    return _Evaluation.of(shards, options, None).run(models, context.state, out)


def evaluate_officially(
    shards: Path,
    models: Path,
    source: Path,
    images: pd.DataFrame,
    export_dropped: pd.DataFrame,
    queries: pd.DataFrame,
    *,
    options: EvaluateOptions,
    context: StageContext,
    out: Path,
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Evaluate as ``evaluate_models`` does, and also by GLDv2's official protocol.

    Images without a label are part of the full index but not of the shards; they are read from the
    data set's own files.

    Args: as ``evaluate_models``; ``out`` also gets the official submission of each model.
        source: folder of the data set's own files.
        images: file and offset of each image in them.
        export_dropped: images that are not in the shards, with the reason.
        queries: official relevant images of each query.

    Returns:
        As ``evaluate_models``.
    """
    official = Official.of(source, images, export_dropped, queries)
    return _Evaluation.of(shards, options, official).run(models, context.state, out)


def evaluate_names(
    shards: Path,
    models: Path,
    hierarchy: pd.DataFrame,
    landmarks: pd.DataFrame,
    *,
    options: EvaluateOptions,
    context: StageContext,
    out: Path,
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Evaluate as ``evaluate_models`` does, with the names of classes as queries for the photos.

    Args: as ``evaluate_models``; no trained model is measured, since these embed no texts.
        hierarchy: names of the classes.
        landmarks: names of the finest classes.

    Returns:
        As ``evaluate_models``; the id of a query is the path of its class.
    """
    return _Evaluation.of(shards, options, None, (hierarchy, landmarks)).run(
        models, context.state, out
    )


@dataclass(frozen=True)
class _Evaluation:
    shards: Shards
    query: Side
    gallery: Side
    metrics: tuple[str, ...]
    options: EvaluateOptions
    official: Official | None
    depth: int  # level of the queries' classes

    @classmethod
    def of(
        cls,
        shards: Path,
        options: EvaluateOptions,
        official: Official | None,
        names: tuple[pd.DataFrame, pd.DataFrame] | None = None,
    ) -> "_Evaluation":
        found = Shards.read(shards)
        depth = level_number("name_level", options.name_level, found.levels)
        if names is None:
            if options.prompts != EvaluateOptions().prompts:  # one file may serve both
                say('evaluate: prompts has no effect: it is of queries = "names", not of "images"')
            query = found.side(options.query, "evaluate.query")
        else:
            query = name_queries(found, options.query, options.name_level, *names)
        gallery = found.side(options.gallery, "evaluate.gallery")
        metrics = choose_metrics(options.metrics, found.levels, depth)
        level_number("mean_over", options.mean_over, found.levels[:depth])  # only refuses
        if gallery.own_queries(query) == len(gallery) == 1:
            raise UsageError(
                f"evaluate.gallery '{gallery.split}' holds no other image than the query itself; "
                "export more images of it, or name another split"
            )
        for option, side in (("query", query), ("gallery", gallery)):
            classes, _ = count_paths(side.labels[:, depth - 1 : depth])
            require_classes(option, side.split, len(classes))
        return cls(found, query, gallery, metrics, options, official, depth)

    def run(self, runs: Path, state: Path, out: Path) -> tuple[dict[str, Any], pd.DataFrame]:
        """Return the report and the values of each query; write rankings to ``out``."""
        models = find_models(self.options.models, runs)
        store = EmbeddingStore(state, self.options)
        # Before the first embedding, so that a damaged model stops the run at once.
        facts = {model.name: model.facts() for model in models}
        # Embeddings of models and shards that are gone would fill the disk.
        others = self.official.sides if self.official else ()
        store.keep_only(models, chain(map(self.shards.side, self.shards.splits), others))
        out.mkdir(parents=True, exist_ok=True)
        protocol = self._protocol({one["split"] for one in facts.values() if "split" in one})
        found, tables = {}, []
        for model in models:
            means, values = self._measure(model, store, out)
            found[model.name] = {**means, **facts[model.name]}
            tables.append(values)
        # Last, so that after an error the earlier evaluation is still complete.
        record_models(state, models)
        kept = {f"{model.name}.npz" for model in models}
        if self.official is not None:
            kept |= {f"{model.name}.submission.csv" for model in models}
        # Embeddings that a person put there stay.
        rankings = filterfalse(is_other_npz, out.glob("*.npz"))
        for path in [*rankings, *out.glob("*.submission.csv")]:
            if path.name not in kept:  # of a model or protocol that is no longer requested
                path.unlink()
        metrics = list(next(iter(found.values()))["mean"])
        report = {
            "protocol": protocol,
            "metrics": metrics,
            "models": found,
            "runs": _by_run(models, found, metrics),
        }
        return report, pd.concat(tables, ignore_index=True)

    @property
    def _name(self) -> str:
        """Name of the protocol."""
        if self.options.protocol != "auto":
            return self.options.protocol
        if self.query.names:
            return "names-to-photos"
        if self.query.split == self.gallery.split:
            return "all-vs-all"
        return "distractors" if self.gallery.own_queries(self.query) else "query-gallery"

    def _protocol(self, trained: Collection[str]) -> dict[str, Any]:
        """Return the facts of the protocol, given the models' training splits; send notices."""
        paths, searched = (side.labels[:, : self.depth] for side in (self.query, self.gallery))
        own = np.arange(len(paths)) < self.gallery.own_queries(self.query)
        lost = paths[without_match(paths, count_paths(searched), own)]  # without another image
        queries, classes = len(lost), len(np.unique(lost, axis=0))
        level = self.shards.levels[self.depth - 1]
        if queries:
            image = "image" if self.query.names else "other image"
            have, whose, them = ("has", "its", "it") if queries == 1 else ("have", "their", "them")
            say(
                f"evaluate: {queries:,} of {len(self.query):,} queries, of "
                f"{count_text(classes, 'class')}, {have} no {image} of {whose} {level} in the "
                f"gallery; metrics of that level leave {them} out"
            )
        number = f"level_{self.depth}"  # of a class, the same in both id spaces
        finest = _classes_in(self.query.pieces, number)
        seen = _classes_in((f for f in self.shards.files if f.split in trained), number)
        facts: dict[str, Any] = {
            "name": self._name,
            "query": self.query.split,
            "gallery": self.gallery.split,
            "queries": len(self.query),
            "gallery_images": len(self.gallery),
            "levels": list(self.shards.levels),
            "unmatched": {"queries": queries, "classes": classes},
            "classes": {"queries": len(finest), "trained_on": len(finest & seen)},
        }
        if self.query.names:
            facts["names"] = {"level": level, "prompts": list(self.options.prompts)}
        if self.options.precision != "float32":
            facts["precision"] = self.options.precision
        if self.official is not None:
            facts["official"] = self.official.facts(self.query, self.gallery)
        return facts

    def _measure(
        self, model: Model, store: EmbeddingStore, out: Path
    ) -> tuple[dict[str, Any], pd.DataFrame]:
        """Return means, skipped and inverted queries of a model, and its values of each query."""
        sides = [self.query, self.gallery, *(self.official.sides if self.official else ())]
        vectors = store.embed(model, sides)
        result = self._result(out / f"{model.name}.npz", vectors)
        means = {name: float(value) for name, value in result.mean().items()}
        of_metrics = {name: values.numpy() for name, values in result.per_query.items()}
        by_query = pd.DataFrame(of_metrics, self.query.image_ids)
        if (level := self.options.mean_over) is not None:
            classes = self.query.labels[:, self.shards.levels.index(level)]
            # a class whose queries have no value is left out, as such a query is
            over = by_query.groupby(classes).mean().mean()
            means |= {f"{name} over {level}": float(value) for name, value in over.items()}
        found = {str(name): values for name, values in by_query.items()}
        if self.official is not None:
            lines = out / f"{model.name}.submission.csv"
            official = self.official.score(vectors, self.query, self.gallery, lines, self.options)
            means |= official[0]
            found[OFFICIAL] = pd.Series(official[1])
        table = pd.concat(found, names=["metric", "image_id"]).dropna().reset_index(name="value")
        table = table.assign(model=model.name)[["model", "image_id", "metric", "value"]]
        columns = ["split", "landmark_id", f"level_{self.depth}"]
        names = name_finest(self.query.read(columns), self.depth)
        class_of = dict(zip(self.query.image_ids, names, strict=True))
        # an official query that is not in the shards has no label: an empty class
        table["class"] = [class_of.get(image_id, "") for image_id in table["image_id"]]
        shown = {name: None if math.isnan(value) else value for name, value in means.items()}
        skipped = {name: int(count) for name, count in result.skipped.items()}
        return {"mean": shown, "skipped": skipped, "inverted": result.inverted}, table

    def _result(self, path: Path, vectors: Mapping[str, MappedVectors]) -> Result:
        """Return the metrics; GLDv2's protocols rename the papers' mAP@100."""
        names = {name: name for name in self.metrics}
        if self._name.startswith("gldv2"):
            names[PAPER] = f"mAP@100:{self.shards.levels[-1]}"
        wanted = list(dict.fromkeys(names.values()))
        given = vectors, self.query, self.gallery, wanted, self.shards.levels
        found = measure_and_write(path, *given, self.options)
        values = found.per_query
        return replace(
            found, per_query={n: values[old] for n, old in names.items() if old in values}
        )


def _by_run(
    models: Sequence[Model], found: Mapping[str, Any], metrics: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return model names, mean and standard deviation over the seeds of each run."""
    names: dict[str, list[str]] = {}
    for model in models:
        names.setdefault(model.run, []).append(model.name)
    runs = {}
    for run, own in names.items():
        values = {m: [found[name]["mean"].get(m) for name in own] for m in metrics}
        means = {m: None if None in v else float(np.mean(v)) for m, v in values.items()}
        runs[run] = {"models": own, "mean": means}
        if len(own) > 1:
            spread = {m: None if None in v else float(np.std(v, ddof=1)) for m, v in values.items()}
            runs[run]["std"] = spread
    return runs


def name_finest(rows: pd.DataFrame, depth: int) -> list[str]:
    """Return the class of each query: its landmark_id, of two id spaces its number in the shards.

    Example:
        >>> rows = pd.DataFrame({"split": ["train", "index"], "landmark_id": 7, "level_2": [2, 3]})
        >>> name_finest(rows, 2), name_finest(rows[:1], 2)
        (['2', '3'], ['7'])
    """
    spaces = rows["split"].map(SPACE_OF_SPLIT).nunique()
    column = "landmark_id" if spaces == 1 else f"level_{depth}"
    return rows[column].astype(str).tolist()


def _classes_in(pieces: Iterable[Rows], number: str) -> set[int]:
    """Return the numbers of the classes of a level, which is a column of the pieces."""
    return {int(one) for piece in pieces for one in piece[[number]][number].unique()}
