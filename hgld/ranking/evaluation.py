"""Any metrics of whole galleries, in one pass over blocks of queries.

A block of queries is scored against the whole gallery, ranked once, and every metric is read off
the ranks. The similarity is the inner product: hand in unit vectors for cosines. Scores are float32
(float64 where embeddings are), sums float64; nothing is sampled or cut. On a CPU a compiled kernel
ranks float32 scores; elsewhere torch sorts.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking import levels as grades
from hgld.ranking import ranked as lists
from hgld.ranking.checks import check_tensors
from hgld.ranking.kernels import rank_gpu
from hgld.ranking.kernels.device import over_rows
from hgld.ranking.names import MetricName, parse
from hgld.ranking.precision import FLOATS, check_scores, not_finite, whole_products
from hgld.ranking.relevances import relevance_key, table_for
from hgld.ranking.result import Result

if TYPE_CHECKING:
    from hgld.ranking.rankings import Ranking

__all__ = ["evaluate", "rank_gallery"]

CELLS_AT_ONCE = 1 << 24  # where torch sorts
BLOCK_CELLS = 1 << 26  # where the kernel ranks: 256 MB of scores
BLOCK_ROWS = 256


def evaluate(
    query: Tensor,
    query_labels: Tensor,
    gallery: Tensor,
    gallery_labels: Tensor,
    names: Sequence[str],
    level_names: Sequence[str] | None = None,
    exclude_self: bool = False,
) -> Result:
    """Metrics of every query against the whole gallery, exact.

    Args:
        query: (Q, D) embeddings; the similarity is the inner product.
        query_labels: (Q, L) label paths, coarse to fine.
        gallery: (G, D) embeddings.
        gallery_labels: (G, L) label paths.
        names: metrics by name, e.g. ``H-AP``, ``NDCG``, ``AP:landmark``, ``R@1:kind``,
            ``mAP@100:landmark``.
        level_names: (L,) names of the levels, coarse to fine; 1..L unless given.
        exclude_self: the gallery begins with the queries; each is taken out of it, by index.

    Returns:
        Values of each query under the names given; queries with nothing to find are counted.

    Raises:
        ShapeError: what is given does not fit together, or a score is nan or inf.
        UsageError: a name says no metric or no level.

    Example:
        >>> vectors, labels = torch.eye(3)[[0, 0, 1]], torch.tensor([[0, 0], [0, 0], [0, 1]])
        >>> evaluate(vectors, labels, vectors, labels, ["R@1"], exclude_self=True).mean()
        {'R@1': 1.0}
    """
    if isinstance(names, str):
        raise ShapeError(f"names is {names!r}; expected a list of metrics")
    parsed = [parse(name) for name in names]
    check_tensors(query_labels=query_labels)
    level_names = tuple(level_names or map(str, range(1, query_labels.shape[-1] + 1)))
    _check(query, query_labels, gallery, gallery_labels, level_names, exclude_self)
    for name in parsed:
        name.at_level(level_names)
    query, gallery = _alike(query, gallery, query.device)
    labels = query_labels, gallery_labels
    with whole_products(query.device):
        found = _measure(query, gallery, labels, parsed, level_names, exclude_self)
    if found.inverted:
        grades.warn_of_inverted(found.inverted, found.queries)
    coarser = grades.coarser_column(gallery_labels)
    if coarser is not None:
        warnings.warn(
            f"level {level_names[coarser]} is coarser than level {level_names[coarser - 1]} before "
            "it: each of its classes joins several of the finer ones; levels run coarse to fine",
            grades.RelevanceWarning,
            stacklevel=2,
        )
    return Result(
        {given: found.per_query[str(i)] for i, given in enumerate(names)},
        found.queries,
        len(gallery),
        found.inverted,
    )


def _measure(
    query: Tensor,
    gallery: Tensor,
    labels: tuple[Tensor, Tensor],
    parsed: list[MetricName],
    level_names: tuple[str, ...],
    exclude_self: bool,
) -> Result:
    """Metrics under the names "0", "1", ..., on the machine that fits."""
    if rank_gpu.counts(query, gallery):
        return rank_gpu.measure(query, gallery, labels, parsed, level_names, exclude_self)
    if query.device.type == "cpu" and query.dtype == gallery.dtype == torch.float32:
        return _by_kernel(query, gallery, labels, parsed, level_names, exclude_self, keep=False)[0]
    return _by_sorting(query, gallery, labels, parsed, level_names, exclude_self)


def rank_gallery(
    query: Tensor,
    query_labels: Tensor,
    gallery: Tensor,
    gallery_labels: Tensor,
    exclude_self: bool = False,
) -> "Ranking":
    """Rank of every relevant gallery image of every query, to keep and to measure later.

    It is found on the CPU, in the precision that ``evaluate`` scores in.

    Args:
        query: (Q, D) embeddings; the similarity is the inner product.
        query_labels: (Q, L) label paths, coarse to fine.
        gallery: (G, D) embeddings.
        gallery_labels: (G, L) label paths.
        exclude_self: the gallery begins with the queries; each is taken out of it, by index.

    Returns:
        The ranking; its ``evaluate`` gives any metric without a new search.

    Raises:
        ShapeError: what is given does not fit together, or a score is nan or inf.

    Example:
        >>> vectors, labels = torch.eye(3)[[0, 0, 1]], torch.tensor([[0, 0], [0, 0], [0, 1]])
        >>> ranking = rank_gallery(vectors, labels, vectors, labels, exclude_self=True)
        >>> ranking.evaluate(["R@1", "AP:1"]).mean()
        {'R@1': 1.0, 'AP:1': 1.0}
    """
    check_tensors(query_labels=query_labels)
    names = tuple(map(str, range(1, query_labels.shape[-1] + 1)))
    _check(query, query_labels, gallery, gallery_labels, names, exclude_self)
    query, gallery = _alike(query, gallery, torch.device("cpu"))
    labels = query_labels.cpu(), gallery_labels.cpu()
    with whole_products(query.device):
        if query.dtype == torch.float64:
            return _kept_by_sorting(query, gallery, labels, exclude_self)
        kept = _by_kernel(query, gallery, labels, [], names, exclude_self, keep=True)[1]
    assert kept is not None
    return kept


def _alike(query: Tensor, gallery: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Both sides on the device in one precision: float64 where either has it, else float32."""
    dtype = torch.promote_types(torch.promote_types(query.dtype, gallery.dtype), torch.float32)
    return query.detach().to(device, dtype), gallery.detach().to(device, dtype)


def _by_kernel(
    query: Tensor,
    gallery: Tensor,
    labels: tuple[Tensor, Tensor],
    parsed: list[MetricName],
    level_names: tuple[str, ...],
    exclude_self: bool,
    keep: bool,
) -> tuple[Result, "Ranking | None"]:
    """Metrics, and the ranking if it is to be kept, of float32 embeddings on a CPU."""
    from hgld.ranking.classes import ClassRanges
    from hgld.ranking.rankings import Plan, Ranking, rank_rows, scratch

    classes = ClassRanges.of(*labels, exclude_self)
    counts = classes.counts()
    plan = Plan.of(parsed, level_names, counts)
    offsets = np.concatenate([[0], np.cumsum(counts[:, 1:].sum(1).numpy())])
    room = int(offsets[-1]) if keep else 0
    ranks, levels = np.empty(room, np.int32), np.empty(room, np.int8)
    values = np.empty((len(query), len(parsed)))
    rows = max(1, min(BLOCK_ROWS, BLOCK_CELLS // len(gallery), len(query)))
    scores = query.new_empty(rows, len(gallery))
    for start in range(0, len(query), rows):
        block = slice(start, min(start + rows, len(query)))
        here = torch.mm(query[block], gallery.T, out=scores[: block.stop - start])

        def work(part: slice, here: Tensor = here, start: int = start) -> None:
            at = slice(start + part.start, start + part.stop)
            rank_rows(
                here.numpy()[part], classes.order, classes.starts[at], classes.ends[at],
                classes.own[at], counts.numpy()[at], plan.specs, plan.tables[at], plan.logs,
                plan.discounts, plan.harmonic, values[at], offsets[at], ranks, levels,
                *scratch(len(gallery)),
            )  # fmt: skip

        try:
            over_rows(work, len(here))
        except ValueError:  # of the kernel, which sees every score anyway
            raise not_finite() from None
    result = Result.of([str(i) for i in range(len(parsed))], values, counts)
    kept = Ranking(offsets, ranks, levels, counts.numpy()) if keep else None
    return result, kept


def _by_sorting(
    query: Tensor,
    gallery: Tensor,
    labels: tuple[Tensor, Tensor],
    parsed: list[MetricName],
    level_names: tuple[str, ...],
    exclude_self: bool,
) -> Result:
    """Metrics by sorting in torch, on any device and in any precision."""
    values, every = [], []
    for ranked in _ranked_blocks(query, gallery, labels, exclude_self):
        counts = grades.count_levels(ranked, len(level_names))
        block = [_value(name, ranked, counts, level_names) for name in parsed]
        values.append(torch.stack(block, 1).cpu())
        every.append(counts.cpu())
    names = [str(i) for i in range(len(parsed))]
    return Result.of(names, torch.cat(values).numpy(), torch.cat(every))


def _kept_by_sorting(
    query: Tensor, gallery: Tensor, labels: tuple[Tensor, Tensor], exclude_self: bool
) -> "Ranking":
    """The ranking by sorting in torch."""
    from hgld.ranking.rankings import Ranking

    blocks = _ranked_blocks(query, gallery, labels, exclude_self)
    parts = [Ranking.of(ranked, labels[0].shape[1]) for ranked in blocks]
    sizes = np.concatenate([np.diff(part.offsets) for part in parts])
    return Ranking(
        np.concatenate([[0], np.cumsum(sizes)]),
        np.concatenate([part.ranks for part in parts]),
        np.concatenate([part.levels for part in parts]),
        np.concatenate([part.counts for part in parts]),
    )


def _ranked_blocks(
    query: Tensor, gallery: Tensor, labels: tuple[Tensor, Tensor], exclude_self: bool
) -> Iterator[Tensor]:
    """(q, G) levels in ranked order, some queries after the other."""
    query_labels, gallery_labels = (part.to(query.device) for part in labels)
    rows = max(1, CELLS_AT_ONCE // len(gallery))
    for start in range(0, len(query), rows):
        part = slice(start, start + rows)
        levels = grades.shared_levels(query_labels[part], gallery_labels)
        if exclude_self:
            own = torch.arange(start, start + len(levels), device=levels.device)
            levels.scatter_(1, own[:, None], -1)
        scores = query[part] @ gallery.T
        check_scores(scores)
        yield lists.rank_levels(scores, levels)


def _value(
    name: MetricName, ranked: Tensor, counts: Tensor, level_names: tuple[str, ...]
) -> Tensor:
    """(Q,) values of one metric from the ranked levels of a block."""
    at, k = name.at_level(level_names), name.k
    if name.metric == "AP":
        return lists.average_precision(ranked, at)
    if name.metric == "mAP":
        return lists.average_precision(ranked, at, k or None, at_r=not k)
    if name.metric == "NDCG":
        return lists.ndcg(ranked, counts, k)
    if name.metric == "ASI":
        return lists.asi(ranked, counts)
    if name.metric in ("R", "TR"):
        assert k is not None
        return (lists.recall if name.metric == "R" else lists.true_recall)(ranked, at, k)
    table = table_for(relevance_key(name, len(level_names)), counts)
    if name.metric in ("H-R", "H-P"):
        assert k is not None
        return (lists.h_recall if name.metric == "H-R" else lists.h_precision)(
            grades.look_up(table, ranked), k
        )
    return lists.h_ap(ranked, table, counts)


def _check(
    query: Tensor,
    query_labels: Tensor,
    gallery: Tensor,
    gallery_labels: Tensor,
    level_names: tuple[str, ...],
    exclude_self: bool,
) -> None:
    """Raise ShapeError unless embeddings and label paths fit together."""
    for side, vectors, labels in (
        ("query", query, query_labels),
        ("gallery", gallery, gallery_labels),
    ):
        check_tensors(**{side: vectors, f"{side}_labels": labels})
        if vectors.ndim != 2 or 0 in vectors.shape:
            raise ShapeError(f"{side} has shape {tuple(vectors.shape)}; expected (images, dim)")
        if vectors.dtype not in FLOATS:
            raise ShapeError(f"{side} is {vectors.dtype}; expected floats")
        if labels.shape != (len(vectors), len(level_names)):
            raise ShapeError(
                f"{side}_labels have shape {tuple(labels.shape)}; expected "
                f"({len(vectors)}, {len(level_names)})"
            )
        grades.as_ids(labels, f"{side}_labels")
    if query.shape[1] != gallery.shape[1]:
        raise ShapeError(f"query has {query.shape[1]} dimensions, gallery {gallery.shape[1]}")
    if exclude_self and not torch.equal(
        gallery_labels[: len(query)].long().cpu(), query_labels.long().cpu()
    ):
        raise ShapeError(
            "exclude_self needs a gallery that begins with the queries; the first "
            f"{len(query)} gallery_labels are not query_labels"
        )
