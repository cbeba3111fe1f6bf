"""Shared levels of two images in the hierarchy, and the relevance of one to the other.

Levels are compared as integers: two levels may have the same relevance by chance (twice as many
images on a level of twice the weight), and comparing relevances as floats would merge them. All
losses and metrics of this package start from a (Q, G) matrix of levels.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from hgld.errors import ShapeError
from hgld.ranking.checks import (
    FLOATS,
    check_count,
    check_not_negative,
    check_tensors,
    widen,
)
from hgld.ranking.kernels import loss_gpu
from hgld.ranking.kernels.device import agrees, all_finite, has_triton
from hgld.words import part_text

Compare = Literal["level", "relevance"]
LABELS_AT_ONCE = 1 << 20  # a check copies them
SAMPLED = 1 << 12  # label paths that show which of two columns is finer
ROUNDING = 1e-12  # equal quotients of Eq. 20 can differ by so much of their value


class RelevanceWarning(UserWarning):
    """A finer level has less relevance than a coarser one, so order by level is not the best."""


def shared_levels(
    query_labels: Tensor, gallery_labels: Tensor, exclude_self: bool = False
) -> Tensor:
    """Number of leading labels that a query and a gallery image share.

    Args:
        query_labels: (Q, L) integer label paths, coarse to fine.
        gallery_labels: (G, L) integer label paths, coarse to fine.
        exclude_self: the gallery is the queries themselves; the diagonal becomes -1.

    Returns:
        (Q, G) int8 in 0..L; -1: not in the gallery.

    Raises:
        ShapeError: not two tables of integers with the same number of levels.

    Example:
        >>> shared_levels(torch.tensor([[0, 3]]), torch.tensor([[0, 3], [0, 4], [1, 3]]))
        tensor([[2, 1, 0]], dtype=torch.int8)
    """
    query_labels, gallery_labels = as_ids(query_labels), as_ids(gallery_labels)
    if query_labels.shape[1] != gallery_labels.shape[1]:
        raise ShapeError(
            f"query labels have {query_labels.shape[1]} levels, "
            f"gallery labels {gallery_labels.shape[1]}; both need the same levels"
        )
    if exclude_self and len(query_labels) != len(gallery_labels):
        raise ShapeError(
            f"exclude_self needs the queries as gallery, found {len(query_labels)} queries "
            f"and {len(gallery_labels)} gallery images"
        )
    shape = len(query_labels), len(gallery_labels)
    shared = torch.ones(shape, dtype=torch.bool, device=query_labels.device)
    # int8, since the (Q, G) matrix is large.
    levels = torch.zeros(shape, dtype=torch.int8, device=query_labels.device)
    for query, gallery in zip(query_labels.T, gallery_labels.T, strict=True):
        shared &= query[:, None] == gallery[None, :]  # (Q, G)
        levels += shared
    return levels.fill_diagonal_(-1) if exclude_self else levels


def as_ids(labels: Tensor, name: str = "labels") -> Tensor:
    """Label paths as int64; raise ShapeError unless they are (images, levels) of integers."""
    check_tensors(**{name: labels})
    if labels.ndim != 2 or 0 in labels.shape:
        one = f": {name}[:, None]" if labels.ndim == 1 else ""
        shape = tuple(labels.shape)
        raise ShapeError(f"{name} have shape {shape}; expected (images, levels){one}")
    if labels.dtype.is_floating_point or labels.dtype.is_complex or labels.dtype == torch.bool:
        raise ShapeError(f"{name} are {labels.dtype}; expected integers")
    if labels.shape[1] > 126:
        raise ShapeError(f"{name} have {labels.shape[1]} levels; at most 126 fit the level matrix")
    ids = labels.to(torch.int64)
    # Ids above the range of int64 became negative.
    if labels.dtype == torch.uint64 and bool((ids < 0).any()):
        raise ShapeError(f"{name} hold ids above 2**63 - 1; renumber them")
    return ids


def check_side(
    side: str, pieces: Sequence[Tensor], labels: Tensor, query: Tensor, num_levels: int
) -> None:
    """Raise ShapeError unless the embeddings of a side, in pieces, fit its labels and the query."""
    for vectors in pieces:
        check_tensors(**{"query": query, side: vectors, f"{side}_labels": labels})
        if vectors.ndim != 2 or 0 in vectors.shape:
            raise ShapeError(f"{side} has shape {tuple(vectors.shape)}; expected (images, dim)")
        if vectors.dtype not in FLOATS:
            raise ShapeError(f"{side} is {vectors.dtype}; expected floats")
        if vectors.shape[1] != query.shape[-1]:
            raise ShapeError(f"query has {query.shape[-1]} dimensions, {side} {vectors.shape[1]}")
    images = sum(map(len, pieces))
    if labels.shape != (images, num_levels):
        raise ShapeError(
            f"{side}_labels have shape {tuple(labels.shape)}; expected ({images}, {num_levels})"
        )
    for block in torch.split(labels, LABELS_AT_ONCE):
        as_ids(block, f"{side}_labels")


def refuse_unlabelled(
    query_labels: Tensor, labels: Tensor, names: str = "query_labels and gallery_labels"
) -> None:
    """Raise ShapeError if -1, by which many tables mean no label, would be a class of both sides.

    On one side alone it is no class of the other.
    """
    absent = (as_ids(query_labels) == -1).any(0).cpu()
    if not bool(absent.any()):
        return
    for block in torch.split(labels, LABELS_AT_ONCE):
        if bool((both := absent & (as_ids(block) == -1).any(0).cpu()).any()):
            raise ShapeError(
                f"{names} hold -1 at level {int(both.int().argmax()) + 1}: images without a label "
                "would be one class; leave these queries out, or give each such image a number of "
                "its own"
            )


def finest_ids(labels: Tensor) -> Tensor:
    """The finest id of each label path, (B,) int64, for losses that learn a vector per class.

    Proxies identify a class by ``labels[:, -1]`` alone. If that id occurs under two parents, two
    classes share a proxy: ids are local ("species 0" of each genus), or levels run fine to coarse.

    Args:
        labels: (B, L) integer label paths, coarse to fine.

    Raises:
        ShapeError: an id has two parents in this batch.

    Example:
        >>> finest_ids(torch.tensor([[0, 0], [0, 1], [1, 2]]))
        tensor([0, 1, 2])
    """
    ids = labels.long()
    finest = ids[:, -1]
    # sorted by id, two paths of one id are neighbours: no table of all pairs
    by_id = ids[finest.argsort()]
    above, below = by_id[:-1], by_id[1:]
    split = (above[:, -1] == below[:, -1]) & (above != below).any(1)
    if bool(split.any()):
        at = int(split.int().argmax())
        raise ShapeError(
            f"the finest id {int(above[at, -1])} is in two classes: {above[at].tolist()} and "
            f"{below[at].tolist()}; number the finest classes 0..C-1 over all parents, and give "
            "levels coarse to fine"
        )
    return finest


def coarser_column(labels: Tensor) -> int | None:
    """The first column of label paths that is coarser than the one before it, or None.

    A column is coarser if the previous one determines it and has more values: its classes then join
    several of the finer ones, so the levels run fine to coarse. A level whose ids restart under
    each parent does not count as coarser, nor does one with a single value, which proves nothing.

    Args:
        labels: (N, L) integer label paths.

    Example:
        >>> coarser_column(torch.tensor([[0, 0], [1, 0], [2, 1]]))  # species, genus
        1
        >>> coarser_column(torch.tensor([[0, 0], [0, 1], [1, 2]])) is None
        True
    """
    ids = labels.long()
    for at in range(1, ids.shape[1]):
        pairs = ids[:, at - 1 : at + 1]
        # a sample shows most columns to be finer; only the others are sorted as a whole
        if _is_determined(pairs[:: 1 + len(pairs) // SAMPLED]) and _is_determined(pairs):
            finer, coarser = (len(torch.unique(column)) for column in pairs.T)
            if 1 < coarser < finer:
                return at
    return None


def _is_determined(pairs: Tensor) -> bool:
    """Whether the first id of (N, 2) pairs determines the second."""
    ordered = pairs[pairs[:, 0].argsort()]
    same, other = (ordered[1:] == ordered[:-1]).unbind(1)
    return not bool((same & ~other).any())


def at_least(levels: Tensor, at: int) -> Tensor:
    """Binary levels: 1 where the level is at least ``at``, 0 below, -1 where it was.

    Example:
        >>> at_least(torch.tensor([[3, 1, 0, -1]]), at=2)
        tensor([[ 1,  0,  0, -1]], dtype=torch.int8)
    """
    check_count(level=at)
    _check_table(levels)
    if levels.dtype == torch.int8 and at <= 127:  # 5 to 10 times as fast as bools
        found = levels.clamp(-1, at)
        return (found - (at - 1)).clamp_(min=0).add_(found.clamp_(max=0))
    # torch would wrap a number that the levels' type does not have
    return (levels.long() >= at).to(torch.int8) - (levels < 0).to(torch.int8)


def count_levels(levels: Tensor, num_levels: int) -> Tensor:
    """Number of gallery images of each query on each level: (Q, L + 1), level 0 first.

    Example:
        >>> count_levels(torch.tensor([[2, 1, 1, 0, -1]]), num_levels=2)
        tensor([[1, 2, 1]])
    """
    compact = levels.device.type == "cpu" and levels.dtype == torch.int8
    many = compact and levels.numel() >= 1 << 12  # for fewer, loading the kernel takes longer
    if (many or has_triton(levels.device)) and _kernels_agree(levels.device):
        return _count_by_kernel(levels, num_levels)
    return _count_plainly(levels, num_levels)


def _count_plainly(levels: Tensor, num_levels: int) -> Tensor:
    return torch.stack([(levels == level).sum(1) for level in range(num_levels + 1)], 1)


def _count_by_kernel(levels: Tensor, num_levels: int) -> Tensor:
    if has_triton(levels.device):
        return loss_gpu.count_levels(levels, num_levels)
    from hgld.ranking.kernels.loss_cpu import count_rows

    counts = levels.new_zeros(len(levels), num_levels + 1, dtype=torch.int64)
    count_rows(levels.to(torch.int8).contiguous().numpy(), counts.numpy())
    return counts


def _kernels_agree(device: torch.device) -> bool:
    """Whether the kernels that read scores and levels agree with torch on a small case."""

    def compare() -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        levels = ((torch.arange(350, device=device) * 7 % 31).view(5, 70) % 5 - 1).to(torch.int8)
        faulty = levels.float().masked_fill(levels == 3, torch.inf)
        found, truth = [_count_by_kernel(levels, 3)], [_count_plainly(levels, 3)]
        if has_triton(device):
            for scores in (levels.float(), faulty):
                found.append(torch.tensor(loss_gpu.bounds(scores, levels)))
                truth.append(torch.tensor(_plain_bounds(scores, levels)))
        return tuple(found), tuple(truth)

    return agrees(device, "levels", compare)


def relevance_table(counts: Tensor, alpha: float = 1.0, count_query: bool = False) -> Tensor:
    """Eq. 20 for each level: rel(l) = (l / L)^alpha / n_l, 0 for an empty level.

    Args:
        counts: (Q, L + 1) images on each level, level 0 first.
        alpha: above 1 favours fine levels.
        count_query: whether n_L includes the query, which is not in the gallery, as in training.

    Returns:
        (Q, L + 1) float64; column 0 is 0.

    Raises:
        ShapeError: alpha is negative, nan or inf.

    Example:
        >>> relevance_table(torch.tensor([[1, 2, 1]])).tolist()
        [[0.0, 0.25, 1.0]]
    """
    check_not_negative(alpha=alpha)
    share = _shares(counts.shape[1] - 1, alpha, counts.device)
    sizes = counts.clamp(min=1)  # of an empty level the quotient is not used
    if count_query:
        sizes[:, -1] += 1
    return torch.where(counts > 0, share / sizes, 0.0)


@lru_cache(maxsize=16)
def _shares(num_levels: int, alpha: float, device: torch.device) -> Tensor:
    """(l / L)^alpha of each level; 0 for level 0, also if alpha is 0."""
    steps = torch.arange(num_levels + 1, dtype=torch.float64, device=device)
    share = (steps / num_levels) ** alpha
    # With alpha 0, 0 ** 0 would give 1.
    share[0] = 0.0
    return share


def weighted_table(counts: Tensor, weights: Tensor) -> Tensor:
    """Property 1 for each level: rel(l) = sum over p <= l of w_p / n_{>= p}, (Q, L + 1) float64.

    Example:
        >>> weighted_table(torch.tensor([[1, 1, 1]]), torch.tensor([0.5, 0.5])).tolist()
        [[0.0, 0.25, 0.75]]
    """
    at_least_counts = counts.flip(1).cumsum(1).flip(1)[:, 1:]  # (Q, L), n_{>= p} for p = 1..L
    share = torch.where(at_least_counts > 0, weights / at_least_counts.clamp(min=1), 0.0)
    table = torch.zeros(counts.shape, dtype=torch.float64, device=counts.device)
    table[:, 1:] = share.cumsum(1)
    return torch.where(counts > 0, table, 0.0)


def relevance(levels: Tensor, num_levels: int, alpha: float = 1.0) -> Tensor:
    """Relevance of each pair, Eq. 20: rel = (l / L)^alpha / n_l, from the counts of the row.

    The images of a level share its weight, so a fine level with very many images can have **less**
    relevance than a coarser level with few; the order by level then does not have the highest H-AP
    (``inverted_queries`` counts these queries). The authors' code divides by L - 1 instead of the
    paper's L; H-AP is the same, since the factor cancels. It also counts the query itself in n_L;
    here images that are not in the gallery (-1) are not counted.

    Args:
        levels: (Q, G) shared level 0..L; -1 is not in the gallery.
        num_levels: L, the level of the same landmark.
        alpha: above 1 favours fine levels.

    Returns:
        (Q, G) float64, 0 if the level is 0 or -1.

    Example:
        >>> relevance(torch.tensor([[2, 1, 1, 0]]), num_levels=2).tolist()
        [[1.0, 0.25, 0.25, 0.0]]
    """
    check_levels(levels, num_levels)
    return look_up(relevance_table(count_levels(levels, num_levels), alpha), levels)


def weighted_relevance(levels: Tensor, weights: Tensor | list[float] | tuple[float, ...]) -> Tensor:
    """Relevance that makes H-AP the weighted sum of the APs of all levels (Property 1).

    rel(l) = sum over p = 1..l of w_p / n_{>= p}. It always grows with the level.

    Args:
        levels: (Q, G) shared level 0..L; -1 is not in the gallery.
        weights: (L,) weight of AP at level 1..L (coarse to fine), not negative, with sum 1.

    Returns:
        (Q, G) float64, 0 if the level is 0 or -1.

    Example:
        >>> weighted_relevance(torch.tensor([[2, 1, 0]]), [0.5, 0.5]).tolist()
        [[0.75, 0.25, 0.0]]
    """
    check_tensors(levels=levels)
    tensor = torch.as_tensor(weights, dtype=torch.float64, device=levels.device)
    if tensor.ndim != 1 or not len(tensor) or not bool((tensor >= 0).all()):
        raise ShapeError(f"weights {weights}: expected one weight >= 0 for each level")
    if abs(float(tensor.sum()) - 1.0) > 1e-6:
        raise ShapeError(f"weights have sum {float(tensor.sum()):g}; expected 1")
    check_levels(levels, len(tensor))
    return look_up(weighted_table(count_levels(levels, len(tensor)), tensor), levels)


def look_up(table: Tensor, levels: Tensor) -> Tensor:
    """Value of each pair's level: (Q, L + 1) and (Q, G) -> (Q, G); -1 reads column 0."""
    return table.gather(1, levels.clamp(min=0).long())


def number_by_relevance(levels: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Renumber the levels of each query by relevance, lowest first; equal ones become one level.

    A level without images has relevance 0 and joins level 0.

    Args:
        levels: (Q, G) level 0..L; -1 is not in the gallery.
        table: (Q, L + 1) relevance by level.

    Returns:
        (Q, G) levels, and their (Q, L + 1) table, which does not fall from 0 up to the highest.

    Example:
        >>> table = torch.tensor([[0.0, 0.5, 0.25]])  # many images share level 2
        >>> levels, table = number_by_relevance(torch.tensor([[2, 1, 0, -1]]), table)
        >>> levels.tolist(), table.tolist()
        ([[1, 2, 0, -1]], [[0.0, 0.25, 0.5]])
    """
    rising, order = table.sort(dim=1, stable=True)
    higher = rising[:, 1:] > rising[:, :-1] * (1 + ROUNDING)
    number = torch.zeros_like(order)
    number[:, 1:] = higher.cumsum(1)
    named = torch.empty_like(order).scatter_(1, order, number)
    fresh = torch.where(levels < 0, levels, look_up(named, levels).to(levels.dtype))
    return fresh, torch.zeros_like(table).scatter_(1, number, rising)


def inverted_queries(tables: Tensor, counts: Tensor) -> int:
    """Number of queries for which a non-empty level has less relevance than a coarser one.

    Args:
        tables: (Q, L + 1) relevance by level, or (Q, T, L + 1), of which one suffices.
        counts: (Q, L + 1) images on each level.

    Example:
        >>> counts = torch.tensor([[0, 1, 3], [0, 1, 1]])  # three images share 1, one has 1/2
        >>> inverted_queries(relevance_table(counts), counts)
        1
    """
    tables, present = tables.reshape(len(counts), -1, counts.shape[1]), counts[:, None] > 0
    highest = torch.where(present, tables, 0.0).cummax(2).values
    less = present & (tables * (1 + ROUNDING) < highest)
    return int(less.flatten(1).any(1).sum())


def warn_of_inverted(inverted: int, queries: int, stacklevel: int = 3) -> None:
    """Warn the caller's caller that some queries' relevance does not grow with the level."""
    warnings.warn(
        f"{part_text(inverted, queries, 'query', 'have')} a finer level with less relevance than a "
        "coarser one (Eq. 20 divides by the level's size); the best order is not that by level",
        RelevanceWarning,
        stacklevel=stacklevel,
    )


def check_levels(levels: Tensor, num_levels: int | None = None) -> None:
    """Raise ShapeError unless levels are a (Q, G) table of integers in -1..num_levels."""
    _check_table(levels)
    low, high = (int(value) for value in torch.aminmax(levels))
    _check_range(low, high, num_levels)


def _check_table(levels: Tensor) -> None:
    check_tensors(levels=levels)
    if levels.ndim != 2 or 0 in levels.shape:
        raise ShapeError(f"levels have shape {tuple(levels.shape)}; expected (queries, gallery)")
    if levels.dtype.is_floating_point or levels.dtype.is_complex:
        raise ShapeError(f"levels are {levels.dtype}; expected integers, -1 for not in the gallery")
    if levels.dtype == torch.bool:
        raise ShapeError("levels are bool; expected integers, -1 for not in the gallery")


def _check_range(low: int, high: int, num_levels: int | None) -> None:
    check_count(num_levels=num_levels)
    limit = 126 if num_levels is None else num_levels
    if limit > 126:
        raise ShapeError(f"num_levels is {limit}; at most 126 fit the level matrix")
    if low < -1 or high > limit:
        raise ShapeError(f"levels run from {low} to {high}; expected -1..{limit}")


def check_pairs(scores: Tensor, levels: Tensor, num_levels: int | None = None) -> Tensor:
    """Return the scores in float32 or wider; ShapeError unless scores and levels are (Q, G)."""
    check_tensors(scores=scores, levels=levels)
    if scores.shape != levels.shape:
        raise ShapeError(
            f"scores have shape {tuple(scores.shape)}, levels {tuple(levels.shape)}; "
            "expected the same (queries, gallery)"
        )
    _check_table(levels)
    if scores.dtype not in FLOATS:
        raise ShapeError(f"scores are {scores.dtype}; expected floats of 16, 32 or 64 bits")
    by_kernel = has_triton(scores.device) and _kernels_agree(scores.device)
    bounds = loss_gpu.bounds if by_kernel else _plain_bounds
    low, high, finite = bounds(scores, levels)
    _check_range(low, high, num_levels)
    if not finite:
        raise ShapeError("scores hold nan or inf; expected finite similarities")
    return widen(scores)


def _plain_bounds(scores: Tensor, levels: Tensor) -> tuple[int, int, bool]:
    """Smallest and largest level, and whether all scores are finite."""
    low, high = (int(value) for value in torch.aminmax(levels))
    return low, high, all_finite(scores)


def check_relevance(relevance: Tensor, levels: Tensor) -> None:
    """Raise ShapeError unless each pair of the (Q, G) levels has a finite relevance >= 0."""
    check_tensors(relevance=relevance)
    if relevance.shape != levels.shape:
        raise ShapeError(
            f"relevance has shape {tuple(relevance.shape)}, levels {tuple(levels.shape)}; "
            "expected one value for each pair"
        )
    if not bool((relevance >= 0).all()) or not bool(torch.isfinite(relevance).all()):
        raise ShapeError("relevance holds negative values, nan or inf; expected values >= 0")


@dataclass(frozen=True)
class ClassRanges:
    """Nested ranges of places of each query's own classes in a gallery sorted by label path.

    Sorted by path, coarse to fine, every class is one range of places, and the ranges of a query
    are nested. The level of an image is found by comparing places instead of labels, and the
    number of images on each level is known before ranking. All tensors are on the device of the
    labels.

    Args:
        order: (G,) gallery rows in the order of their paths.
        starts: (Q, L) int32 first place of the query's class at each level, coarse to fine.
        ends: (Q, L) int32 place after the last.
        own: (Q,) int32 place of the query itself, -1 if it is not in the gallery.
    """

    order: Tensor
    starts: Tensor
    ends: Tensor
    own: Tensor

    @classmethod
    def of(
        cls,
        query_labels: Tensor,
        gallery_labels: Tensor,
        exclude_self: bool = False,
        start: int = 0,
    ) -> "ClassRanges":
        """Find the ranges of (Q, L) query paths among (G, L) gallery paths.

        With ``exclude_self`` the queries are the gallery's rows from ``start`` on.

        Example:
            >>> found = ClassRanges.of(torch.tensor([[1, 1]]), torch.tensor([[1, 1], [0, 0]]))
            >>> found.starts.tolist(), found.ends.tolist(), found.order.tolist()
            ([[1, 1]], [[2, 2]], [1, 0])
        """
        size = len(gallery_labels)
        columns = torch.cat([gallery_labels.long().T, query_labels.long().T], 1)
        by_path = columns[-1].argsort(stable=True)
        for column in reversed(columns[:-1].unbind()):  # stable sorts, the coarsest label last
            by_path = by_path.gather(0, column.gather(0, by_path).argsort(stable=True))
        places = torch.arange(len(by_path), device=by_path.device)
        rows = torch.empty_like(by_path).scatter_(0, by_path, places)[size:]
        from_gallery = by_path < size
        # Converts places among all sorted paths into places in the sorted gallery.
        before = torch.cat([from_gallery.new_zeros(1).long(), from_gallery.cumsum(0)])
        new = torch.zeros_like(from_gallery)
        new[0] = True
        starts, ends = [], []
        for column in columns:
            ids = column.gather(0, by_path)
            new[1:] |= ids[1:] != ids[:-1]
            bounds = pad(new.nonzero()[:, 0], (0, 1), value=len(new))  # of all classes
            after = torch.searchsorted(bounds, rows, right=True)
            starts.append(before[bounds[after - 1]])
            ends.append(before[bounds[after]])
        order = by_path[from_gallery]
        own = torch.full_like(rows, -1)
        if exclude_self:
            own = order.argsort()[start : start + len(rows)]
        return cls(order, torch.stack(starts, 1).int(), torch.stack(ends, 1).int(), own.int())

    def places(self) -> Tensor:
        """(G,) int32 place of each gallery image."""
        places = torch.arange(len(self.order), dtype=torch.int32, device=self.order.device)
        return torch.empty_like(places).scatter_(0, self.order, places)

    def counts(self) -> Tensor:
        """(Q, L + 1) int64 images on each level, level 0 first, without the query itself."""
        widths = (self.ends - self.starts).long()
        whole = widths.new_full((len(widths), 1), len(self.order))
        edges = torch.cat([whole, widths, widths.new_zeros(len(widths), 1)], 1)
        found = edges[:, :-1] - edges[:, 1:]
        found[:, -1] -= (self.own >= 0).long()
        return found
