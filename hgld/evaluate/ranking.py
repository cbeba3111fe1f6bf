"""Ranking of a gallery for each query: one pass gives a model's metrics and its ranking file."""

import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
import torch

from hgld.artifacts.ranking_file import write_ranking
from hgld.config import EvaluateOptions
from hgld.evaluate.embeddings import reserve_of
from hgld.evaluate.mapped_vectors import ROWS_AT_ONCE, MappedVectors
from hgld.evaluate.sides import Side, count_paths
from hgld.model.devices import choose_device, enough_memory, worker_device
from hgld.ranking.curves import CurveValues, by_chance, queries_to_measure
from hgld.ranking.evaluation import rank_blocks
from hgld.ranking.kernels.device import LEAST_ROWS, new_array
from hgld.ranking.levels import RelevanceWarning
from hgld.ranking.rankings import (
    CPCC,
    BlockValues,
    Ranking,
    Result,
    first_ranks,
    of_gallery,
    of_queries,
    warn_if_concerned,
)
from hgld.ranking.structure import ClassSums
from hgld.ray_tasks import FileTask
from hgld.tasks import map_tasks, track

FIRST_RANKS = 100  # ranks whose images are kept by row number, for the report
CLASSES = 1000  # at most, drawn with a fixed seed: the cost of t-SNE grows with their number
RAY_TASKS = 32  # at most: a task reads the whole gallery, part by part
# Query-image pairs below which one process is faster, since others need seconds to start.
FEW_PAIRS = {"cpu": 1 << 28, "cuda": 1 << 34}
Embedded = tuple[MappedVectors | np.ndarray, np.ndarray]  # (N, D) vectors, (N, L) labels


def measure_and_write(
    path: Path,
    vectors: Mapping[str, MappedVectors | np.ndarray],
    query: Side,
    gallery: Side,
    names: Sequence[str],
    levels: Sequence[str],
    options: EvaluateOptions,
) -> Result:
    """Measure one model and write its ranking file, from a single ranking.

    Args:
        path: of the ranking file.
        vectors: split -> (N, D) unit vectors.
        query: query images.
        gallery: gallery images.
        names: of the metrics.
        levels: names, coarse to fine.
        options: device, processes or cluster, and the number of first ranks whose levels are
            written.

    Returns:
        The metrics of each query, and of the gallery.

    Raises:
        HgldError: the gallery does not fit the device's memory.
    """
    sums = None
    if CPCC in names:  # of the gallery's classes, read file by file
        pieces = MappedVectors.of(vectors[gallery.split]).tensors()
        sums = ClassSums.of(pieces, torch.from_numpy(gallery.labels))
    whole, names = of_gallery(names, sums), of_queries(names)
    own = gallery.own_queries(query)
    classes = mean_classes(vectors[gallery.split], gallery.labels)
    images = len(gallery.labels)
    # drawn by id, so that each model has the curves of the same queries
    row_of = {image_id: row for row, image_id in enumerate(query.image_ids.tolist())}
    some = by_chance(row_of)[: queries_to_measure(images)]
    drawn = np.array([row_of[image_id] for image_id in some], np.int64)
    # a query that is in the gallery has one image less, and -1 as its last level
    of_drawn = new_array((len(drawn), images - (own == len(query.labels))), np.int8)
    sides = [(vectors[side.split], side.labels) for side in (query, gallery)]
    with write_ranking(
        path, query.image_ids, gallery.ids, images, *classes, options.keep_ranks
    ) as add:
        values, done = [], 0
        for exclude_self, rows, queries in own_parts(own, sides[0]):
            here = np.flatnonzero((drawn >= rows.start) & (drawn < rows.stop))
            job = RankJob(
                exclude_self, FIRST_RANKS, options.keep_ranks, drawn[here] - rows.start,
                tuple(names), tuple(levels),
            )  # fmt: skip
            for block in rank_and_reduce(job, queries, sides[1], options=options):
                done += len(block.levels)
                of_drawn[here[block.drawn]] = block.whole[:, : of_drawn.shape[1]]
                values.append(block.values)
                last = done == len(query.labels)
                curves = vars(CurveValues.of(of_drawn, len(levels))) if last else {}
                add(block.levels, block.first, block.counts, **curves)
    found = BlockValues.join(values, names)
    warn_if_concerned(names, found.inverted, found.queries)
    return replace(found, of_gallery=whole)


def own_parts(own: int, query: Embedded) -> Iterator[tuple[bool, slice, Embedded]]:
    """Yield the queries that are in the gallery, to be excluded from it, and the others.

    Args:
        own: number of queries, from the first on, that are in the gallery.
        query: vectors and labels of all queries.

    Yields:
        Whether these are in the gallery, their rows, and their vectors and labels.
    """
    vectors, labels = query
    if own in (0, len(labels)):
        yield own > 0, slice(0, len(labels)), query  # as it is, mapped from its files
        return
    for inside, rows in ((True, slice(0, own)), (False, slice(own, len(labels)))):
        yield inside, rows, (vectors[np.arange(rows.start, rows.stop)], labels[rows])


@dataclass(frozen=True)
class RankJob:
    """Selection of a ranking that a task returns.

    Attributes:
        exclude_self: the gallery begins with the queries; each is excluded from its own ranking.
        first: number of ranks whose gallery rows are kept.
        keep: number of ranks whose levels are kept.
        drawn: rows of the queries of which the levels at all ranks are kept.
        names: metrics to compute.
        levels: names of the levels, coarse to fine; none: numbers.
    """

    exclude_self: bool = False
    first: int = 0
    keep: int = 0
    drawn: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    names: tuple[str, ...] = ()
    levels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class RankedBlock:
    """Selection of the ranking of consecutive queries.

    Attributes:
        levels: (q, keep) int8 of the first ranks.
        first: (q, first) int32 gallery rows of the first ranks.
        counts: (q, L + 1) int64 images on each level.
        drawn: (d,) numbers of drawn queries.
        whole: (d, G) int8 levels of these at all ranks.
        values: of the metrics.
    """

    levels: np.ndarray
    first: np.ndarray
    counts: np.ndarray
    drawn: np.ndarray
    whole: np.ndarray
    values: BlockValues


def rank_and_reduce(
    job: RankJob, query: Embedded, gallery: Embedded, options: EvaluateOptions
) -> Iterator[RankedBlock]:
    """Rank a gallery in this process, in several, or on a Ray cluster.

    Each task ranks some of the queries, and reads the gallery from its files part by part. A
    query's scores do not depend on the queries beside it, so neither do its ranking and metrics.

    Args:
        job: what to keep.
        query: (Q, D) unit vectors and (Q, L) labels, coarse to fine.
        gallery: (G, D) unit vectors and (G, L) labels.
        options: device, processes, cluster.

    Raises:
        HgldError: the gallery does not fit the device's memory.
        Resumable: a worker process died.
    """
    queries = len(query[1])
    tasks = count_tasks(options, queries, len(gallery[1]))
    if tasks == 1 and options.ray is None:
        yield from _ranked(job, query, gallery, options.device)
        return
    with tempfile.TemporaryDirectory(prefix="hgld-ranking-") as temporary:
        folder = Path(temporary)
        labels = folder / "query-labels.npy", folder / "gallery-labels.npy"
        np.save(labels[0], query[1])
        np.save(labels[1], gallery[1])
        vectors = (
            MappedVectors.of(query[0]).files(folder / "query"),
            MappedVectors.of(gallery[0]).files(folder / "gallery"),
        )
        cuts = [queries * i // tasks for i in range(tasks + 1)]
        threads = max(1, torch.get_num_threads() // tasks) if options.ray is None else None
        found = map_tasks(
            rank_queries,
            [
                RankTask(job, *vectors, labels, slice(*cut), options.device, threads)
                for cut in pairwise(cuts)
            ],
            "Ranking",
            tasks,
            options.ray,
            reserve=reserve_of(options),
        )
    for text in dict.fromkeys(text for _, texts in found for text in texts):
        warnings.warn(text, RelevanceWarning, stacklevel=2)
    yield from chain.from_iterable(blocks for blocks, _ in found)


def count_tasks(options: EvaluateOptions, queries: int, images: int) -> int:
    """Number of tasks that share the queries: one for each process or GPU of this machine."""
    most = -(-queries // LEAST_ROWS)  # fewer queries of a task would be filled up
    if options.ray is not None:
        return min(RAY_TASKS, most)
    device = choose_device(options.device)
    if queries * images < FEW_PAIRS[device.type]:
        return 1
    if device.type == "cpu":
        return min(options.processes, most)
    return torch.cuda.device_count() if device.index is None else 1


@dataclass(frozen=True)
class RankTask(FileTask):
    """Inputs of a process that ranks the whole gallery for some of the queries.

    Attributes:
        job: what to keep.
        query: files of the vectors of all queries, .npy.
        gallery: files of those of the gallery.
        labels: files of the labels of both.
        rows: the queries.
        device: as of the option; processes take GPUs in turn.
        threads: number of them; None: as the process has.
    """

    job: RankJob
    query: tuple[Path, ...]
    gallery: tuple[Path, ...]
    labels: tuple[Path, ...]
    rows: slice
    device: str
    threads: int | None

    def shares(self) -> list[Path]:
        """All files: a worker gets the gallery once for all its tasks."""
        return list(dict.fromkeys((*self.query, *self.gallery, *self.labels)))

    def moved(self, place: Callable[[Path], Path]) -> Self:
        """Return the task for other folders."""
        query, gallery, labels = (
            tuple(map(place, files)) for files in (self.query, self.gallery, self.labels)
        )
        return replace(self, query=query, gallery=gallery, labels=labels)


def rank_queries(task: RankTask) -> tuple[list[RankedBlock], list[str]]:
    """Rank the gallery for the queries of a task; return also the warnings for the user."""
    if task.threads is not None:
        torch.set_num_threads(task.threads)
    query, gallery = (
        MappedVectors(tuple(np.load(path, mmap_mode="c") for path in files))
        for files in (task.query, task.gallery)
    )
    labels, gallery_labels = (np.load(path, mmap_mode="c") for path in task.labels)
    own = np.asarray(query)[task.rows], labels[task.rows]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        device, start = str(worker_device(task.device)), task.rows.start
        blocks = list(_ranked(task.job, own, (gallery, gallery_labels), device, start))
    return blocks, [str(one.message) for one in caught]


def _ranked(
    job: RankJob, query: Embedded, gallery: Embedded, device: str, start: int = 0
) -> Iterator[RankedBlock]:
    """Rank in this process; ``start`` is the number of the first query among all."""
    blocks = rank_sides(
        query,
        gallery,
        exclude_self=job.exclude_self,
        start=start,
        first=max(job.first, first_ranks(job.names)),
        device=device,
        levels=job.levels,
    )
    for block in blocks:
        rows = job.drawn - start
        inside = np.flatnonzero((rows >= 0) & (rows < len(block.levels)))
        start += len(block.levels)
        found = RankedBlock(
            block.levels[:, : job.keep].copy(),
            block.first[:, : job.first],
            block.counts,
            inside,
            block.levels[rows[inside]],
            BlockValues.of(block, job.names, job.levels, torch.from_numpy(gallery[1])),
        )
        del block  # free the memory before the next one is computed
        yield found


def rank_sides(
    query: Embedded,
    gallery: Embedded,
    exclude_self: bool = False,
    start: int = 0,
    first: int = 0,
    device: str = "auto",
    levels: Sequence[str] | None = None,
) -> Iterator[Ranking]:
    """Rank a gallery; yield the rankings in blocks of queries.

    A large gallery is read from its files part by part.

    Args:
        query: (Q, D) unit vectors and (Q, L) labels, coarse to fine.
        gallery: (G, D) unit vectors and (G, L) labels.
        exclude_self: the gallery begins with the queries; each is excluded from its own ranking.
        start: gallery row of the first query, with ``exclude_self``.
        first: number of ranks whose gallery rows are returned, too.
        device: auto, cpu, cuda, cuda:1 ...
        levels: names of the levels, for messages.

    Raises:
        HgldError: the gallery does not fit the device's memory.
    """
    place = choose_device(device)
    with enough_memory(
        f"evaluate: out of memory while ranking on {place}; rank elsewhere with evaluate.device, "
        "e.g. cpu; embeddings are kept"
    ):
        yield from rank_blocks(
            torch.from_numpy(np.asarray(query[0])).to(place),
            torch.from_numpy(query[1]),
            MappedVectors.of(gallery[0]).tensors(),
            torch.from_numpy(gallery[1]),
            exclude_self,
            first,
            start=start,
            level_names=levels,
            watch=lambda blocks: track(blocks, "Ranking", len(blocks)),
        )


def mean_classes(
    vectors: MappedVectors | np.ndarray, labels: np.ndarray, limit: int = CLASSES
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and mean vector of each finest class.

    Args:
        vectors: (N, D) unit vectors.
        labels: (N, L) coarse to fine.
        limit: maximum number of classes; of more, a random subset with a fixed seed.

    Returns:
        (C, L) sorted labels and (C, D) float32 means, not normalised.

    Example:
        >>> vectors = np.array([[1, 0], [0, 1], [0, 1]], np.float32)
        >>> classes, means = mean_classes(vectors, np.array([[0, 5], [0, 5], [1, 2]]))
        >>> classes.tolist(), means.tolist()
        ([[0, 5], [1, 2]], [[0.5, 0.5], [0.0, 1.0]])
    """
    classes, sizes = count_paths(labels)
    if len(classes) > limit:
        shown = np.sort(np.random.default_rng(0).choice(len(classes), limit, replace=False))
        classes, sizes = classes[shown], sizes[shown]
    known = pd.MultiIndex.from_arrays(list(classes.T))
    dim = MappedVectors.of(vectors).pieces[0].shape[1]
    sums = torch.zeros(len(classes), dim, dtype=torch.float64)
    for start in range(0, len(labels), ROWS_AT_ONCE):
        block = labels[start : start + ROWS_AT_ONCE]
        near = np.flatnonzero(np.isin(block[:, -1], classes[:, -1]))
        numbers = known.get_indexer(pd.MultiIndex.from_arrays(list(block[near].T)))
        rows = torch.from_numpy(vectors[start + near[numbers >= 0]])
        sums.index_add_(0, torch.from_numpy(numbers[numbers >= 0]), rows.double())
    return classes, (sums.numpy() / sizes[:, None]).astype(np.float32)
