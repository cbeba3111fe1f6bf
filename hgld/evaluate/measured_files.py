"""Metrics of embedding files without a pipeline: H-AP and others for any model, in one call."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import torch

from hgld.bootstrap import find_ends, resample_means
from hgld.errors import InvalidData, UsageError
from hgld.evaluate.given import (
    Given,
    as_integers,
    name_row,
    require_finite,
    require_same_dim,
    unit_rows,
)
from hgld.evaluate.sides import count_paths, without_match
from hgld.model.devices import choose_device, enough_memory
from hgld.ranking.levels import coarser_column
from hgld.ranking.metrics import Result, evaluate, parse
from hgld.sources.tables import level_columns, misnamed_level
from hgld.tasks import say
from hgld.words import part_text

# An array of labels has -1; astype(str) makes the others of nan, None and pandas' NA.
NO_LABEL = ("", "-1", "nan", "None", "<NA>")


@dataclass(frozen=True)
class FileResult:
    """Metrics of one pair of files.

    Attributes:
        result: values of each query.
        ids: (Q,) ids of the queries, or their row numbers.
        classes: (Q,) finest label of each query; its path if two classes have the same one.
        levels: names, coarse to fine.
        open_set: the gallery is the queries; each query is excluded from its own ranking.
        unmatched: level -> number of queries without another image of their class in the gallery.
    """

    result: Result
    ids: np.ndarray
    classes: np.ndarray
    levels: tuple[str, ...]
    open_set: bool
    unmatched: dict[str, int]

    @cached_property
    def _measured(self) -> pd.DataFrame:
        """(Q, M) values by id and class, of the queries that have any; sorted as a report has them.

        So the report's bootstrap of the same evaluation draws the same.
        """
        table = pd.DataFrame(self._values, [self.ids, self.classes])
        return table.dropna(how="all").sort_index()

    @property
    def _values(self) -> dict[str, np.ndarray]:
        return {name: values.numpy() for name, values in self.result.per_query.items()}

    @property
    def units(self) -> int:
        """Number of classes that the bootstrap draws: those of a query with a value."""
        return self._measured.index.get_level_values(1).nunique()

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float] | None]:
        """Return the 95 % confidence interval of each mean; the bootstrap draws whole classes.

        None for a metric with values in one class only; CPCC has none.
        """
        table = self._measured
        if table.empty:
            return dict.fromkeys(self.result.per_query)
        classes = table.index.get_level_values(1).to_numpy()
        low, high = find_ends(resample_means(table.to_numpy(), classes)).tolist()
        ends = zip(self.result.per_query, low, high, strict=True)
        return {name: None if math.isnan(a) else (a, b) for name, a, b in ends}

    def facts(self) -> dict[str, Any]:
        """Return protocol, means with intervals, skipped and inverted queries, to print as JSON."""
        return {
            "protocol": {
                "name": "all-vs-all" if self.open_set else "query-gallery",
                "queries": self.result.queries,
                "gallery_images": self.result.gallery,
                "levels": list(self.levels),
                "unmatched": self.unmatched,
            },
            "mean": {n: None if v != v else v for n, v in self.result.mean().items()},
            "interval": self.intervals,
            "bootstrap": {"unit": "classes", "units": self.units},
            "skipped": self.result.skipped,
            "inverted": self.result.inverted,
        }

    def table(self) -> pd.DataFrame:
        """Return one row for each query: id, class, a column for each metric, and the protocol.

        The protocol (``gallery_images``, ``levels``) is in each row, so that two files that were
        not measured alike can be told apart.
        """
        protocol = {"gallery_images": self.result.gallery, "levels": " > ".join(self.levels)}
        return pd.DataFrame(
            {"image_id": self.ids, "class": self.classes, **self._values, **protocol}
        )


@dataclass(frozen=True)
class DrawnResult:
    """Metrics of galleries with one image of each class, drawn several times.

    Attributes:
        draws: a row for each draw, a column for each metric: its mean over the queries.
        queries: number of them in each draw.
        gallery: number of images in the gallery of each draw.
        levels: names, coarse to fine.
    """

    draws: pd.DataFrame
    queries: int
    gallery: int
    levels: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """Return protocol, and mean and standard deviation over the draws, to print as JSON."""
        return {
            "protocol": {
                "name": "one-of-each",
                "draws": len(self.draws),
                "queries": self.queries,
                "gallery_images": self.gallery,
                "levels": list(self.levels),
            },
            "mean": self.draws.mean().to_dict(),
            "deviation": self.draws.std().to_dict(),
        }

    def table(self) -> pd.DataFrame:
        """Return one row for each draw: its number and a column for each metric."""
        return self.draws.reset_index()


def measure_draws(
    query: Given,
    draws: int,
    metrics: Sequence[str] = (),
    levels: Sequence[str] = (),
    *,
    cosine: bool = True,
) -> DrawnResult:
    """Let one image of each class be the gallery and all others query it; draw several times.

    This is the protocol of VehicleID's test sets (Liu et al. 2016), with ten draws. A class with
    one image is in each gallery and does not query.

    Args:
        query: embeddings with labels.
        draws: number of galleries.
        metrics: as ``measure_files``.
        levels: as ``measure_files``; a class is a value of the finest one.
        cosine: as ``measure_files``.

    Raises:
        InvalidData: every class has one image; otherwise as ``measure_files``.
        UsageError: unknown metric or level.

    Example:
        >>> from pathlib import Path
        >>> labels = pd.DataFrame({"vehicle": ["a", "a", "b", "b"]})
        >>> given = Given(Path("x.npz"), np.eye(2)[[0, 0, 1, 1]], None, labels)
        >>> measure_draws(given, 10, ["R@1"]).facts()["mean"]
        {'R@1': 1.0}
    """
    if query.ids is None:  # rows of one file are distinct images
        query = replace(query, ids=np.arange(len(query)).astype(str))
    words, _ = _tables(query, query, levels)
    classes = pd.factorize(pd.MultiIndex.from_frame(words))[0]
    if classes.max() + 1 == len(query):
        raise InvalidData(
            f"{query.path}: each of the {len(query):,} classes has one image, so that none is left "
            "to query the gallery; label images of a class alike, or choose coarser levels"
        )
    chance, means = np.random.default_rng(0), []
    for _ in range(draws):
        order = chance.permutation(len(query))
        drawn = np.zeros(len(query), bool)
        drawn[order[np.unique(classes[order], return_index=True)[1]]] = True
        found = measure_files(query.rows(~drawn), query.rows(drawn), metrics, levels, cosine=cosine)
        means.append(found.result.mean())
    table = pd.DataFrame(means, index=pd.RangeIndex(1, draws + 1, name="draw"))
    return DrawnResult(table, found.result.queries, found.result.gallery, found.levels)


def measure_files(
    query: Given,
    gallery: Given | None = None,
    metrics: Sequence[str] = (),
    levels: Sequence[str] = (),
    *,
    cosine: bool = True,
) -> FileResult:
    """Compute exact metrics of labelled embeddings.

    Queries that are in a gallery of their own find themselves; a notice gives their number.

    Args:
        query: embeddings with labels.
        gallery: likewise; None: every query searches all others (open set).
        metrics: names; none: H-AP, NDCG, ASI, and AP at each level, R@1, mAP@R at the finest.
        levels: label columns to use, coarse to fine; none: all columns that the CSV of a folder
            source would use as levels, so neither ``split`` nor ``author``.
        cosine: normalise the vectors first; False: use the plain inner product.

    Raises:
        InvalidData: the two sides do not fit together, or have no labels; a query lacks a label; an
            image is there twice; a level is coarser than the one before it.
        UsageError: unknown metric or level.
        HgldError: the queries and a part of the gallery do not fit in memory.
    """
    other = gallery or query
    words, others = _tables(query, other, levels)
    names = tuple(levels) or tuple(map(str, words))
    # both sides are numbered together, so that equal labels get equal numbers
    every = np.concatenate([words.to_numpy(), others.to_numpy()])
    numbers = np.stack([pd.factorize(column)[0] for column in every.T], axis=1).astype(np.int64)
    labels = numbers[: len(query)], numbers[len(query) :]
    labels[1][others.isin(NO_LABEL).to_numpy()] = -1  # distractors, which are of no class
    # fine to coarse would reduce every metric to one level
    at = coarser_column(torch.from_numpy(numbers))
    if at is not None:
        ordered = " ".join(f"--level {name}" for name in reversed(names))
        before = names[at - 1]
        if words.iloc[:, at - 1].nunique() == len(query):
            ordered += f"; if '{before}' holds the ids of images, name the column image_id"
        raise InvalidData(
            f"{other.path}: level '{names[at]}' is coarser than '{before}' before it; "
            f"levels run coarse to fine: {ordered}"
        )
    finest = names[-1]
    chosen = tuple(str(parse(name)) for name in metrics) or (
        *("H-AP", "NDCG", "ASI"),
        *(f"AP:{name}" for name in names),
        *(f"R@1:{finest}", f"mAP@R:{finest}", f"mAP@100:{finest}"),
    )
    for metric in chosen:
        parse(metric).require_levels(names)
    sides = [query] if gallery is None else [query, gallery]
    vectors = [unit_rows(side.vectors) if cosine else _as_they_are(side) for side in sides]
    if gallery is not None and (inside := _count_inside(query, gallery, *vectors)):
        say(
            f"{part_text(inside, len(query), 'query', 'are')} in the gallery, too, and each finds "
            "itself; give QUERY alone, or a gallery without them"
        )
    device = choose_device("auto")
    helps = "measure fewer queries at a time, or on a machine with more memory"
    if device.type != "cpu":
        helps = "to rank on the CPU, put CUDA_VISIBLE_DEVICES= before the command"
    with enough_memory(f"evaluate: out of memory while ranking on {device}; {helps}"):
        result = evaluate(
            torch.from_numpy(vectors[0]).to(device),
            torch.from_numpy(labels[0]),
            torch.from_numpy(vectors[-1]),  # a large gallery is moved part by part
            torch.from_numpy(labels[1]),
            chosen,
            level_names=names,
            exclude_self=gallery is None,
        )
    ids = np.arange(len(query)).astype(str) if query.ids is None else query.ids
    unmatched = {
        name: int(
            without_match(labels[0][:, :n], count_paths(labels[1][:, :n]), gallery is None).sum()
        )
        for n, name in enumerate(names, start=1)
    }
    classes, paths = words.iloc[:, -1], words.iloc[:, 0].str.cat(words.iloc[:, 1:], sep=" > ")
    if paths.nunique() > classes.nunique():  # "other" below "church" and below "bridge"
        classes = paths
    return FileResult(result, ids, classes.to_numpy(str), names, gallery is None, unmatched)


def _tables(query: Given, other: Given, levels: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the labels of both sides as text, after a check that they and embeddings match.

    The gallery's levels are in the order of the query's if they have the same names.
    """
    require_same_dim(query, other)
    for side in (query, other):
        side.distinct_ids()
    words, others = (_levels_of(side, levels) for side in (query, other))
    names, own = (list(map(str, table)) for table in (words, others))
    if len(own) != len(names):
        raise InvalidData(
            f"{other.path}: labels of {len(own)} levels, but those of {query.path} have "
            f"{len(names)}; both sides need the same levels, coarse to fine"
        )
    if set(own) == set(names):
        others = others[names]
    else:
        for place, name in enumerate(own):
            if name in names and names.index(name) != place:
                raise InvalidData(
                    f"{other.path}: '{name}' is level {place + 1} ({', '.join(own)}), but level "
                    f"{names.index(name) + 1} of {query.path} ({', '.join(names)}); name the "
                    "levels of both sides alike, coarse to fine"
                )
    # else all queries without a label would be of one class
    empty = words.isin(NO_LABEL).to_numpy()
    if empty.any():
        row, column = np.argwhere(empty)[0]
        have = part_text(empty.any(axis=1).sum(), len(query), "query", "have")
        raise InvalidData(
            f"{query.path}: {have} an empty label, -1 or nan, first {name_row(query.ids, row)}: "
            f"no '{names[column]}' ({words.iat[row, column]!r}); label them, or leave them out"
        )
    return words, others


def _levels_of(side: Given, levels: Sequence[str]) -> pd.DataFrame:
    if side.labels is None:
        raise InvalidData(
            f"{side.path}: has no labels; give them in the file, or beside it: --labels FILE (and "
            "--gallery-labels FILE)"
        )
    missing = [name for name in levels if name not in side.labels]
    if missing:
        raise UsageError(
            f"{side.path}: has no level '{missing[0]}'; its labels are "
            + ", ".join(map(str, side.labels))
        )
    if len(set(levels)) < len(levels):
        raise UsageError(f"--level: a level is there twice: {', '.join(levels)}")
    names = list(levels)
    if not names:
        names, columns = level_columns(side.labels), ", ".join(map(str, side.labels)) or "none"
        if odd := misnamed_level(names):
            raise InvalidData(
                f"{side.path}: the label column '{odd}' would be a level; rename it "
                f"to {odd.strip().casefold()}, which is not one, or name the levels: --level NAME"
            )
        if not names:
            raise InvalidData(f"{side.path}: has no level among its labels (columns: {columns})")
        if "landmark_id" in names[:-1]:  # the last column would count as the finest level
            raise InvalidData(
                f"{side.path}: landmark_id is the finest level, but {names[-1]} stands after it "
                f"(columns: {columns}); name the levels coarse to fine: --level NAME"
            )
    chosen = side.labels[names]
    text = chosen.apply(as_integers).astype(str).mask(chosen.isna(), "")
    # as the source of a folder reads them
    same: pd.DataFrame = text.apply(lambda column: column.str.strip().str.normalize("NFC"))
    return same


def _count_inside(query: Given, gallery: Given, own: np.ndarray, others: np.ndarray) -> int:
    """Count the queries that the gallery holds, too: same id and embedding, or the same file.

    Of two files without common ids, those with the same embedding: one is a copy of the other.
    """
    if query.ids is not None and gallery.ids is not None:
        place = gallery.distinct_ids().get_indexer(query.distinct_ids())
        inside = place >= 0
        if inside.any() or query.path == gallery.path:
            return int((query.vectors[inside] == gallery.vectors[place[inside]]).all(axis=1).sum())
    alike = np.flatnonzero(np.isin(others[:, 0], own[:, 0]))  # the few rows to compare as a whole
    held = {others[row].tobytes() for row in alike}
    return sum(row.tobytes() in held for row in own)


def _as_they_are(side: Given) -> np.ndarray:
    with np.errstate(over="ignore"):  # an overflow to inf is reported with its row below
        vectors = side.vectors.astype(np.float32)
    require_finite(vectors, f"{side.path}, as float32", partial(name_row, side.ids))
    return vectors
