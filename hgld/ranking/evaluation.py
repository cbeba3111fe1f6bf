"""Rank a gallery exactly for each query and compute metrics, in one pass over blocks of queries.

A block of queries is scored against the whole gallery and ranked once; every metric is computed
from that ranking. The similarity is the inner product: give unit vectors for cosines. Scores are
float32 (float64 if embeddings are); nothing is sampled or truncated. Kernels rank float32 scores on
CPU and GPU; other scores are sorted by torch.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import starmap

import numpy as np
import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking import levels as grades
from hgld.ranking.checks import check_count
from hgld.ranking.kernels.device import (
    MOST_PART,
    TILE,
    Watch,
    agrees,
    blocks_of,
    check_scores,
    fill_up,
    has_triton,
    largest_part,
    whole_products,
)
from hgld.ranking.levels import ClassRanges
from hgld.ranking.parts import rank_in_parts
from hgld.ranking.rankings import (
    CPCC,
    Ranking,
    Result,
    first_ranks,
    measure,
    name_levels,
    parse_all,
    rank_columns,
)
from hgld.ranking.structure import ClassSums

CELLS_AT_ONCE = 1 << 24  # when torch sorts, to bound memory
MOST_IMAGES = (1 << 31) - 2  # ranks and gallery rows are int32
Fields = tuple[np.ndarray, np.ndarray, np.ndarray]  # fields of a Ranking


def evaluate(
    query: Tensor,
    query_labels: Tensor,
    gallery: Tensor,
    gallery_labels: Tensor,
    names: Sequence[str],
    level_names: Sequence[str] | None = None,
    exclude_self: bool = False,
) -> Result:
    """Compute metrics of every query against the whole gallery, exactly.

    Args:
        query: (Q, D) embeddings; the similarity is the inner product.
        query_labels: (Q, L) label paths, coarse to fine.
        gallery: (G, D) embeddings.
        gallery_labels: (G, L) label paths.
        names: metrics by name, e.g. ``H-AP``, ``NDCG``, ``AP:landmark``, ``R@1:kind``,
            ``mAP@100:landmark``.
        level_names: (L,) names of the levels, coarse to fine; default: 1..L.
        exclude_self: the gallery begins with the queries; each is removed from it, by index.

    Returns:
        Values of each query under the given names, and CPCC of the gallery; queries without
        relevant images are counted.

    Raises:
        ShapeError: the arguments do not fit together, or a score is nan or inf.
        UsageError: a name is not that of a metric, or of a level.

    Example:
        >>> vectors, labels = torch.eye(3)[[0, 0, 1]], torch.tensor([[0, 0], [0, 0], [0, 1]])
        >>> evaluate(vectors, labels, vectors, labels, ["R@1"], exclude_self=True).mean()
        {'R@1': 1.0}
    """
    parsed = parse_all(names)
    level_names = name_levels(level_names, grades.as_ids(query_labels, "query_labels").shape[1])
    sides = query, query_labels, gallery, gallery_labels
    first = first_ranks(names)
    blocks = rank_blocks(*sides, exclude_self, first, level_names=level_names, stacklevel=3)
    for name in parsed:  # before the first block is ranked: a wrong name costs no time
        name.require_levels(level_names)
    sums = ClassSums.of(gallery, gallery_labels) if CPCC in names else None
    found = measure(blocks, names, level_names, gallery_labels, sums, stacklevel=3)
    return replace(found, gallery=len(gallery))


def rank_gallery(
    query: Tensor,
    query_labels: Tensor,
    gallery: Tensor,
    gallery_labels: Tensor,
    exclude_self: bool = False,
    first: int = 0,
) -> Ranking:
    """Level of the image at each rank, for every query, to keep and to evaluate later.

    Ranking runs on the queries' device, in the precision that ``evaluate`` scores in.

    Args:
        query: (Q, D) embeddings; the similarity is the inner product.
        query_labels: (Q, L) label paths, coarse to fine.
        gallery: (G, D) embeddings.
        gallery_labels: (G, L) label paths.
        exclude_self: the gallery begins with the queries; each is removed from it, by index.
        first: number of top ranks for which gallery rows are returned, too.

    Returns:
        The ranking; its ``evaluate`` computes any metric without a new search.

    Raises:
        ShapeError: the arguments do not fit together, or a score is nan or inf.

    Example:
        >>> vectors, labels = torch.eye(3)[[0, 0, 1]], torch.tensor([[0, 0], [0, 0], [0, 1]])
        >>> ranking = rank_gallery(vectors, labels, vectors, labels, exclude_self=True, first=1)
        >>> ranking.evaluate(["R@1", "AP:1"]).mean(), ranking.first.tolist()
        ({'R@1': 1.0, 'AP:1': 1.0}, [[1], [0], [0]])
    """
    sides = query, query_labels, gallery, gallery_labels
    return Ranking.join(rank_blocks(*sides, exclude_self, first, stacklevel=3))


def rank_blocks(
    query: Tensor,
    query_labels: Tensor,
    gallery: Tensor | Sequence[Tensor],
    gallery_labels: Tensor,
    exclude_self: bool = False,
    first: int = 0,
    *,
    start: int = 0,
    level_names: Sequence[str] | None = None,
    part: int | None = None,
    watch: Watch = iter,
    stacklevel: int = 2,
) -> Iterator[Ranking]:
    """Like ``rank_gallery``, in blocks of queries, so that no (Q, G) table is held in memory.

    A large gallery is ranked part by part (``parts``), so that it need not fit in memory
    either. The ranking does not depend on the size of the parts.

    Args:
        query: (Q, D) embeddings; ranking happens on their device.
        query_labels: (Q, L) label paths, coarse to fine.
        gallery: (G, D) embeddings, in one piece or several.
        gallery_labels: (G, L) label paths of all pieces.
        exclude_self: the gallery begins with the queries; each is removed from it, by index.
        first: number of top ranks for which gallery rows are returned, too.
        start: with ``exclude_self``, gallery row of the first query, to rank some of the queries.
        level_names: (L,) names of the levels, for messages.
        part: gallery images that are held at a time; default: 2^20 on a CPU, as many as fit on a
            GPU. Scores in float64 and without kernels need the whole gallery at once.
        watch: wraps the blocks of queries, e.g. to show progress.
        stacklevel: of the warning that levels do not run coarse to fine.

    Raises:
        ShapeError: the arguments do not fit together, or a score is nan or inf.
    """
    level_names = name_levels(level_names, grades.as_ids(query_labels, "query_labels").shape[1])
    pieces = [gallery] if isinstance(gallery, Tensor) else list(gallery)
    grades.check_side("query", [query], query_labels, query, len(level_names))
    grades.check_side("gallery", pieces, gallery_labels, query, len(level_names))
    grades.refuse_unlabelled(query_labels, gallery_labels)
    if exclude_self and not torch.equal(
        gallery_labels[start : start + len(query)].long().cpu(), query_labels.long().cpu()
    ):
        raise ShapeError(
            "exclude_self needs a gallery that begins with the queries; the first "
            f"{len(query)} gallery_labels are not query_labels"
        )
    check_count(first=first or None)  # 0: no rows
    part = min(part or largest_part(query.device, query.shape[1]), MOST_PART)
    if len(gallery_labels) > MOST_IMAGES:
        raise ShapeError(
            f"{len(gallery_labels)} gallery images; ranks are counted to {MOST_IMAGES}"
        )
    coarser = grades.coarser_column(gallery_labels[:part])  # many images show it as well as all
    if coarser is not None:
        warnings.warn(
            f"level {level_names[coarser]} is coarser than level {level_names[coarser - 1]} before "
            "it: each of its classes joins several of the finer ones; levels run coarse to fine",
            grades.RelevanceWarning,
            stacklevel=stacklevel,
        )
    # both sides in one precision: float64 if either has it, else float32
    dtype = torch.float64 if torch.float64 in {p.dtype for p in (query, *pieces)} else torch.float32
    query = query.detach().to(dtype)
    in_parts = len(gallery_labels) > part
    rank = _rank_by_kernel if _kernel_agrees(query, in_parts) else _rank_by_sorting
    labels = query_labels, gallery_labels
    return starmap(Ranking, rank(query, pieces, labels, exclude_self, start, first, watch, part))


def _kernel_agrees(query: Tensor, in_parts: bool) -> bool:
    """Whether the kernel for this device and dtype ranks a small case as sorting does."""
    if query.dtype != torch.float32:
        return False
    if query.device.type != "cpu" and not has_triton(query.device):
        return False

    def compare() -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        # in two parts, queries of both, and first ranks with images of both
        images, at, first, part = (600, 252, 40, 256) if in_parts else (60, 0, 5, 60)
        numbers = torch.arange(4 * images, device=query.device)
        vectors = (numbers * 37 % 17 - 8).view(images, 4) / 8.0  # exact products, and many ties
        labels = numbers[:images, None] % 12 // torch.tensor([6, 2, 1], device=query.device)
        sides = vectors.float()[at : at + 9], [vectors.float()], (labels[at : at + 9], labels)
        found, truth = (
            tuple(map(torch.from_numpy, next(rank(*sides, True, at, first, iter, part))))
            for rank in (_rank_by_kernel, _rank_by_sorting)
        )
        return found, truth

    return agrees(query.device, "ranks in parts" if in_parts else "ranks", compare)


def _rank_by_kernel(
    query: Tensor,
    gallery: Sequence[Tensor],
    labels: tuple[Tensor, Tensor],
    exclude_self: bool,
    start: int,
    first: int,
    watch: Watch,
    part: int,
) -> Iterator[Fields]:
    """Rank float32 embeddings, those of a gallery larger than a part in parts."""
    rows = partial(_rows_of, gallery, query)
    if len(labels[1]) > part:
        return rank_in_parts(query, rows, labels, exclude_self, start, first, watch, part)
    whole = rows(0, len(labels[1]))
    query_labels, gallery_labels = (side.to(query.device) for side in labels)
    classes = ClassRanges.of(query_labels, gallery_labels, exclude_self, start)
    if has_triton(query.device):
        from hgld.ranking.kernels import rank_gpu

        return rank_gpu.rank_blocks(query, whole, classes, first, watch)
    from hgld.ranking.kernels import rank_cpu

    return rank_cpu.rank_blocks(query, whole, classes, first, watch)


def _rows_of(gallery: Sequence[Tensor], like: Tensor, first: int, stop: int) -> Tensor:
    """Rows of a gallery in pieces as one tensor, on the device and in the dtype of ``like``."""
    found, start = [], 0
    for piece in gallery:
        a, b = max(first - start, 0), min(stop - start, len(piece))
        if a < b:
            found.append(piece[a:b].detach().to(like.device, like.dtype))
        start += len(piece)
    return found[0] if len(found) == 1 else torch.cat(found)


def _rank_by_sorting(
    query: Tensor,
    gallery: Sequence[Tensor],
    labels: tuple[Tensor, Tensor],
    exclude_self: bool,
    start: int,
    first: int,
    watch: Watch,
    part: int,
) -> Iterator[Fields]:
    """Rank by sorting in torch, on any device and in any precision, the whole gallery at once."""
    query_labels, gallery_labels = (side.to(query.device) for side in labels)
    size = len(gallery_labels)
    whole = fill_up(_rows_of(gallery, query, 0, size), -size % TILE)  # so that equal vectors tie
    rows = max(1, CELLS_AT_ONCE // size)
    for block in watch(blocks_of(len(query), rows)):
        levels = grades.shared_levels(query_labels[block], gallery_labels)
        if exclude_self:
            own = start + torch.arange(block.start, block.start + len(levels), device=levels.device)
            levels.scatter_(1, own[:, None], -1)
        with whole_products(query.device):
            scores = (query[block] @ whole.T)[:, :size]
        check_scores(scores)
        order = rank_columns(scores, levels)
        counts = grades.count_levels(levels, query_labels.shape[1])
        found = levels.gather(1, order), counts, order[:, :first].int()
        yield found[0].cpu().numpy(), found[1].cpu().numpy(), found[2].cpu().numpy()
