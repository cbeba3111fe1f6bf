"""Differentiable losses of a ranking: from scores and levels to one loss per query.

All of them are 1 - metric with a smooth rank; they differ in the metric (AP, H-AP, NDCG, recall)
and in the step that counts the images above. Scores are compared pairwise (H(0) = 1), so a tie
counts on both sides; without ties the exact losses equal those of ``hgld.ranking.metrics``.

Bounds: with ``UpperStep()`` (start 0.5) Sup-AP, Sup-H-AP and Sup-NDCG are upper bounds of the exact
loss. With start 0 (the authors' iNaturalist configuration) they are not: a negative just above the
positive counts slightly more than 0.5 instead of 1. Sup-R@k bounds nothing for any step, since the
sigmoid over ranks is below 1 for images well inside the top k and above 0 for images outside.

Limits: Smooth-AP converges to the exact AP as tau goes to 0, and so do all Sup-losses with
``UpperStep(start=0, rho=0, offset=1)``; with a slope, only if no lower level ranks above a higher
one.

A loss is computed by a kernel if one fits the device and agrees with ``plain_loss``, which forms
all pairs in torch as the equations do. A query's loss depends on its row of scores alone, so the
gradient of all losses is one (Q, G) table, computed together with them (``row_loss``).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking import levels as grades
from hgld.ranking.checks import check_choice, check_count, check_finite, check_positive
from hgld.ranking.kernels import loss_gpu
from hgld.ranking.kernels.device import agrees, blocks_of, has_triton
from hgld.ranking.steps import SigmoidStep, Step, chosen

KS = (1, 2, 4, 8, 16)
FEWEST_CELLS = 1 << 12  # for fewer, loading a CPU kernel takes longer than computing all pairs
PAIRS_AT_ONCE = 1 << 22
NO_FORWARD_MODE = (
    "rank losses find value and gradient in one pass and have no forward-mode derivative (jvp, "
    "jacfwd, hessian); use backward, torch.func.grad, vjp or jacrev"
)
KINDS = {"ratio": 0, "dcg": 1, "recall": 2}  # numbers of the kinds in the kernels


@dataclass(frozen=True)
class Goal:
    """The loss of a query as a function of the ranks R_k of its positives.

    Args:
        kind: ``ratio`` 1 - sum_k Hrank+(k) / R_k / sum_k rel_k (AP, H-AP); ``dcg``
            1 - sum_k rel_k / log2(1 + R_k) / ideal; ``recall``
            1 - mean_K sum_k sigma((K - R_k) / temperature) / min(K, P).
        step: H-minus.
        smooth: the step replaces every H, so that higher levels are counted softly, too.
        ks: the K of ``recall``.
        temperature: of ``recall``, in ranks.
        clip: ``recall`` counts at most K positives (reference [28]).
    """

    kind: Literal["ratio", "dcg", "recall"]
    step: Step
    smooth: bool = False
    ks: tuple[int, ...] = ()
    temperature: float = 1.0
    clip: bool = False

    @property
    def number(self) -> int:
        """Number of the kind in the kernels."""
        return KINDS[self.kind]


def sup_ap(scores: Tensor, levels: Tensor, step: Step | None = None) -> Tensor:
    """Sup-AP loss of each query (Eq. 11): 1 - (1/P) sum_k rank+(k) / (rank+(k) + rank_s-(k)).

    Args:
        scores: (Q, G) similarities.
        levels: (Q, G); positives are levels > 0, -1 is not in the gallery.
        step: H-minus; default: the paper's ``UpperStep()``.

    Returns:
        (Q,) in [0, 1]; 0 with a zero gradient if a query has no positive.

    Raises:
        ShapeError: shapes differ, or scores are not finite.

    Example:
        >>> sup_ap(torch.tensor([[0.9, 0.1, 0.5]]), torch.tensor([[1, 0, 0]])).tolist()
        [0.0]
    """
    return _ratio(scores, grades.at_least(levels, 1), 1, Goal("ratio", chosen(step)))


def smooth_ap(scores: Tensor, levels: Tensor, tau: float = 0.01) -> Tensor:
    """Smooth-AP loss of each query (Brown et al. 2020, Eq. 6): a sigmoid for every step.

    Converges to the exact 1 - AP as tau goes to 0 if no scores tie. It bounds nothing.

    Args:
        scores: (Q, G) similarities.
        levels: (Q, G); positives are levels > 0, -1 is not in the gallery.
        tau: temperature of the sigmoid, in cosine units.

    Returns:
        (Q,) in [0, 1]; 0 with a zero gradient if a query has no positive.

    Example:
        >>> smooth_ap(torch.tensor([[0.5, 0.5]]), torch.tensor([[1, 0]]))
        tensor([0.3333])
    """
    goal = Goal("ratio", SigmoidStep(tau), smooth=True)
    return _ratio(scores, grades.at_least(levels, 1), 1, goal)


def sup_h_ap(
    scores: Tensor,
    levels: Tensor,
    num_levels: int,
    alpha: float = 1.0,
    relevance: Tensor | None = None,
    step: Step | None = None,
    compare: grades.Compare = "level",
) -> Tensor:
    """Sup-H-AP loss of each query (Eq. 21).

    1 - (1 / sum_k rel(k)) sum_k H-rank+(k) / (rank+(k) + rank_s-(k)). "Lower" in rank_s- compares
    levels, as the authors' code does, or relevances, as the text has it. The two differ only for
    queries with a finer level of less relevance than a coarser one (``inverted_queries``).

    Args:
        scores: (Q, G) similarities.
        levels: (Q, G) shared level 0..L; -1 is not in the gallery.
        num_levels: L.
        alpha: of Eq. 20; above 1 is HAPPIER_F.
        relevance: (Q, G) to use instead of Eq. 20, e.g. ``levels.weighted_relevance`` (Table XI).
        step: H-minus; default: the paper's ``UpperStep()``.
        compare: "level" or "relevance" (of Eq. 20).

    Returns:
        (Q,); 0 with a zero gradient if a query has no positive, or all have a relevance of 0.

    Raises:
        ShapeError: shapes differ, levels are above num_levels, scores are not finite, or relevances
            are given and to be compared.

    Example:
        >>> levels = torch.tensor([[2, 1, 0]])
        >>> sup_h_ap(torch.tensor([[0.9, 0.5, 0.1]]), levels, num_levels=2).tolist()
        [0.0]
    """
    goal = Goal("ratio", chosen(step))
    check_choice(*get_args(grades.Compare), compare=compare)
    if compare == "relevance" and relevance is not None:
        raise ShapeError("compare is 'relevance', which is that of Eq. 20; give no other relevance")
    return _ratio(scores, levels, num_levels, goal, alpha, relevance, compare)


def smooth_h_ap(
    scores: Tensor,
    levels: Tensor,
    num_levels: int,
    alpha: float = 1.0,
    relevance: Tensor | None = None,
    tau: float = 0.01,
) -> Tensor:
    """H-AP with a sigmoid for every step (the baseline of Table X); Smooth-AP if L is 1.

    Args: as ``sup_h_ap``; tau is the temperature of the sigmoid.

    Returns:
        (Q,); 0 with a zero gradient if a query has no positive.

    Example:
        >>> levels = torch.tensor([[2, 1, 0]])
        >>> smooth_h_ap(torch.tensor([[0.9, 0.5, 0.1]]), levels, num_levels=2).tolist()
        [0.0]
    """
    goal = Goal("ratio", SigmoidStep(tau), smooth=True)
    return _ratio(scores, levels, num_levels, goal, alpha, relevance)


def sup_ndcg(scores: Tensor, levels: Tensor, step: Step | None = None) -> Tensor:
    """Sup-NDCG loss of each query (Eq. 24), with gain 2^level - 1.

    1 - (1 / iDCG) sum_k gain(k) / log2(1 + rank+(k) + rank_s-(k)).

    Args:
        scores: (Q, G) similarities.
        levels: (Q, G) shared level 0..L; -1 is not in the gallery.
        step: H-minus; default: the paper's ``UpperStep()``.

    Returns:
        (Q,) in [0, 1]; 0 with a zero gradient if a query has no positive.

    Example:
        >>> sup_ndcg(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[2, 1, 0]])).tolist()
        [0.0]
    """
    scores = grades.check_pairs(scores, levels)
    num_levels = max(1, int(levels.max()))
    # at most 1, as sums of gains of very many levels exceed float32; NDCG has no unit of gain
    gains = gain_table(num_levels) * 2.0**-num_levels
    gains = gains.to(scores.device).expand(len(scores), -1)
    return _solve(scores, levels, gains, Goal("dcg", chosen(step)))


def sup_recall(
    scores: Tensor,
    levels: Tensor,
    ks: tuple[int, ...] = KS,
    temperature: float = 1.0,
    step: Step | None = None,
) -> Tensor:
    """Sup-R@k loss of each query (Eq. 16), mean over ks.

    1 - (1 / min(P, k)) sum_p sigma((k - rank_s(p)) / temperature). It does not bound 1 - TR@k, and
    is not 0 for a perfect ranking: at k = 1 a positive on rank 1 gives sigma(0) = 0.5.

    Args:
        scores: (Q, G) similarities.
        levels: (Q, G); positives are levels > 0, -1 is not in the gallery.
        ks: the cut-offs.
        temperature: tau* of Eq. 16, in ranks.
        step: H-minus; default: the paper's ``UpperStep()``.

    Returns:
        (Q,); 0 with a zero gradient if a query has no positive.

    Example:
        >>> sup_recall(torch.tensor([[0.9, 0.1]]), torch.tensor([[1, 0]]), ks=(1,)).tolist()
        [0.5]
    """
    goal = Goal("recall", chosen(step), ks=_cut_offs(ks), temperature=temperature)
    return _recall(scores, levels, goal)


def smooth_recall(
    scores: Tensor,
    levels: Tensor,
    ks: tuple[int, ...] = KS,
    temperature: float = 1.0,
    tau: float = 0.01,
) -> Tensor:
    """Sigmoid R@k loss of each query (reference [28]), mean over ks.

    Both steps are sigmoids, and at most k positives are counted. Set the query's own column to -1;
    the authors' code ranks it without counting it as a positive.

    Args: as ``sup_recall``; tau is the temperature of the sigmoid over scores.

    Returns:
        (Q,) in [0, 1]; 0 with a zero gradient if a query has no positive.

    Example:
        >>> smooth_recall(torch.tensor([[0.9, 0.1]]), torch.tensor([[1, 0]]), ks=(1,)).tolist()
        [0.5]
    """
    goal = Goal("recall", SigmoidStep(tau), True, _cut_offs(ks), temperature, clip=True)
    return _recall(scores, levels, goal)


def _cut_offs(ks: tuple[int, ...]) -> tuple[int, ...]:
    if not isinstance(ks, Sequence) or not ks:
        raise ShapeError(f"ks is {ks!r}; expected one cut-off or more")
    for k in ks:
        check_count(k=k)
    return tuple(ks)


def _recall(scores: Tensor, levels: Tensor, goal: Goal) -> Tensor:
    check_positive(temperature=goal.temperature)
    scores, binary = grades.check_pairs(scores, levels), grades.at_least(levels, 1)
    table = torch.tensor([0.0, 1.0], device=scores.device).expand(len(scores), -1)
    return _solve(scores, binary, table, goal)


def _ratio(
    scores: Tensor,
    levels: Tensor,
    num_levels: int,
    goal: Goal,
    alpha: float = 1.0,
    relevance: Tensor | None = None,
    compare: grades.Compare = "level",
) -> Tensor:
    scores = grades.check_pairs(scores, levels, num_levels)
    if relevance is not None:
        grades.check_relevance(relevance, levels)
        rel = relevance.detach() * (levels > 0)
        on_cpu = fits_cpu(scores) and not _fits_gpu(scores, goal)
        found = _table_of(levels, rel) if on_cpu else None  # its kernel takes relevance by level
        return _solve(scores, levels, rel if found is None else found, goal, found is not None)
    table = grades.relevance_table(grades.count_levels(levels, num_levels), alpha)
    if compare == "relevance":
        levels, table = grades.number_by_relevance(levels, table)
    return _solve(scores, levels, table, goal)


def _solve(
    scores: Tensor, levels: Tensor, rel: Tensor, goal: Goal, by_level: bool = True
) -> Tensor:
    """(Q,) losses by a kernel if one fits, else by pairs.

    ``rel`` has relevance by level, (Q, L + 1), or without ``by_level`` that of each pair, (Q, G).
    """

    def find(detached: Tensor) -> tuple[Tensor, Tensor]:
        if _kernel_agrees(detached, goal, rel.shape[1] - 1 if by_level else None):
            return _by_kernel(detached, levels, rel, goal, by_level)
        return plain_loss(detached, levels, grades.look_up(rel, levels) if by_level else rel, goal)

    return row_loss(scores, find)


def fits_cpu(scores: Tensor) -> bool:
    """Whether the CPU kernel accepts these scores, and they are enough to be faster with it."""
    wide = scores.dtype in (torch.float32, torch.float64)
    return scores.device.type == "cpu" and wide and scores.numel() >= FEWEST_CELLS


def _fits_gpu(scores: Tensor, goal: Goal) -> bool:
    return has_triton(scores.device) and loss_gpu.fits(scores, goal)


def _by_kernel(
    scores: Tensor, levels: Tensor, rel: Tensor, goal: Goal, by_level: bool
) -> tuple[Tensor, Tensor]:
    if _fits_gpu(scores, goal):
        return loss_gpu.solve_rows(scores, levels, rel, goal, by_level)
    from hgld.ranking.kernels import loss_cpu

    return loss_cpu.solve_rows(scores, levels, rel, goal)


def _kernel_agrees(scores: Tensor, goal: Goal, num_levels: int | None) -> bool:
    """Whether a kernel accepts these scores and agrees with all pairs on a small case.

    GPU kernels are compiled for each goal and power of two of columns, so each is checked.
    num_levels is None if each pair has a relevance.
    """
    on_gpu, by_level = _fits_gpu(scores, goal), num_levels is not None
    fits = on_gpu or (by_level and fits_cpu(scores))
    if not fits or getattr(goal.step, "tie", None) is not None:
        return False
    # In fewer than 24 columns all images may be positives, so that the loss is only rounding.
    width = min(max(32, scores.shape[1]), loss_gpu.WIDEST + 100) if on_gpu else 96

    def compare() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        small, levels, table = (part.to(scores.device) for part in _small_case(width, num_levels))
        small, rel = small.to(scores.dtype), grades.look_up(table, levels)
        found = _by_kernel(small, levels, table if by_level else rel, goal, by_level)
        return found, plain_loss(small, levels, rel, goal)

    case = "losses", scores.dtype, goal, num_levels, (width - 1).bit_length()
    return agrees(scores.device, case, compare)


def _small_case(width: int, num_levels: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Scores with ties (4, width), levels with gaps, and relevance by level (4, L + 1)."""
    make, at = torch.Generator().manual_seed(0), num_levels or 3
    random = torch.rand(4, 2 * width + at, generator=make, dtype=torch.float64, device="cpu")
    some, steps = random[:, width:-at], random[:, -at:]
    scores = (0.2 * random - 0.1)[:, torch.arange(width, device="cpu") // 2 * 2]
    levels = (some * width / 24 * at).ceil().to(torch.int64)  # few positives, so few pairs
    levels = torch.where(levels > at, 0, levels).to(torch.int8)
    levels[:, ::13] = -1
    return scores, levels, torch.cat([torch.zeros_like(steps[:, :1]), steps.cumsum(1)], 1)


def _table_of(levels: Tensor, rel: Tensor) -> Tensor | None:
    """(Q, L + 1) relevance by level if it depends on the query and level alone, else None."""
    columns = [torch.zeros(len(levels), dtype=torch.float64)]  # level 0 has no relevance
    for level in range(1, max(1, int(levels.max())) + 1):
        here = levels == level
        low = torch.where(here, rel, torch.inf).amin(1).double()
        high = torch.where(here, rel, -torch.inf).amax(1).double()
        if bool((low < high).any()):
            return None
        columns.append(torch.where(torch.isfinite(low), low, 0.0))
    return torch.stack(columns, 1)


class RankFunction(torch.autograd.Function):
    """Base class of the autograd functions of rank losses; refuses forward mode with one line.

    Value and gradient are computed in one pass, so only reverse mode is supported.
    """

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Raise RuntimeError with the supported alternatives."""
        raise RuntimeError(NO_FORWARD_MODE)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        """Raise the same: torch batches the tangents of jacfwd before it calls ``jvp``."""
        raise RuntimeError(NO_FORWARD_MODE)


class _FirstDerivative(RankFunction):
    """Return a gradient unchanged, but let its own backward raise RuntimeError."""

    @staticmethod
    def forward(gradient: Tensor, given: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        raise RuntimeError("rank losses have no second derivative")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        # torch.func.jacrev batches the gradient; this function does not depend on its shape
        return first_derivative(*inputs), in_dims[0]


def first_derivative(gradient: Tensor, given: Tensor) -> Tensor:
    """Mark a gradient that a backward pass returns; differentiating it again raises RuntimeError.

    The gradient was computed in the forward pass and stored as a constant, so a second derivative
    would silently be 0. ``torch.func.grad`` and ``create_graph=True`` work without one.

    Args:
        gradient: of the loss by ``given``.
        given: an input of the loss.
    """
    if not torch.is_grad_enabled():
        return gradient
    bound: Tensor = _FirstDerivative.apply(gradient, given)  # type: ignore[no-untyped-call]
    return bound


class _RowLoss(RankFunction):
    """Losses of the rows with their gradient, computed together; backward only scales its rows.

    The gradient is an output, since ``torch.func`` passes only outputs to ``setup_context``.
    """

    @staticmethod
    def forward(
        scores: Tensor, solve: Callable[..., tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        return solve(scores)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        # Otherwise backward gets a (Q, G) tensor of zeros for it.
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1], inputs[0])

    @staticmethod
    def backward(ctx: Any, grad_losses: Tensor | None, _: None) -> tuple[Tensor | None, None]:
        if grad_losses is None:
            return None, None
        gradient, scores = ctx.saved_tensors
        return first_derivative(gradient * grad_losses[:, None], scores), None


def row_loss(scores: Tensor, solve: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
    """(Q, G) scores -> (Q,) losses; ``solve`` returns losses and d loss_i / d scores_i."""
    losses: Tensor = _RowLoss.apply(scores, solve)[0]  # type: ignore[no-untyped-call]
    return losses


def plain_loss(scores: Tensor, levels: Tensor, rel: Tensor, goal: Goal) -> tuple[Tensor, Tensor]:
    """Losses (Q,) and their gradients (Q, G), computed a few rows at a time.

    Args:
        scores: (Q, G) float32 or float64.
        levels: (Q, G) shared levels; -1 is not in the gallery.
        rel: (Q, G) relevance or gain, 0 if the level is 0 or -1.
        goal: the loss as a function of the ranks.
    """
    losses = scores.new_zeros(len(scores))
    gradient = torch.zeros_like(scores)
    # (rows, P, G) pairs are held at a time, so their number follows from the most positives
    most = int((levels > 0).sum(1).max())
    rows = max(1, PAIRS_AT_ONCE // max(1, most * scores.shape[1]))
    for part in blocks_of(len(scores), rows):
        with torch.enable_grad():
            chunk = scores[part].detach().requires_grad_()
            found = _loss_of_rows(chunk, levels[part], rel[part], goal)
            losses[part] = found.detach()
            if found.requires_grad:
                gradient[part] = torch.autograd.grad(found.sum(), chunk)[0]
    return losses, gradient


def _loss_of_rows(scores: Tensor, levels: Tensor, rel: Tensor, goal: Goal) -> Tensor:
    """Losses of a chunk of rows, from (rows, P, G) pairs."""
    positive = levels > 0
    counts = positive.sum(1)
    most = int(counts.max())
    if not most:
        # Connected to the scores, so that the gradient is 0 instead of missing.
        return (scores * 0.0).sum(1)
    which = positive.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :most]
    real = positive.gather(1, which)  # (rows, P): shorter rows are padded
    rank, h_rank = _ranks(scores, levels, rel.to(scores.dtype), which, goal)
    gain = rel.to(scores.dtype).gather(1, which) * real
    metric = _metric(rank, h_rank, gain, real, counts, goal)
    # metric * 0.0 is connected to the scores, so the gradient is 0 instead of missing.
    return torch.where(gain.sum(1) > 0, 1.0 - metric, metric * 0.0)


def _ranks(
    scores: Tensor, levels: Tensor, rel: Tensor, which: Tensor, goal: Goal
) -> tuple[Tensor, Tensor]:
    """Smooth rank R_k and H-rank+ of each listed positive: two (rows, P)."""
    t = scores[:, None, :] - scores.gather(1, which)[:, :, None]  # (rows, P, G): s_j - s_k
    level_k = levels.gather(1, which)[:, :, None]
    present = (levels >= 0)[:, None, :]
    shared = torch.minimum(rel[:, None, :], rel.gather(1, which)[:, :, None])
    if goal.smooth:
        columns = torch.arange(scores.shape[1], device=scores.device)
        others = present & (columns != which[:, :, None])
        soft = goal.step(t) * others
        return 1.0 + soft.sum(2), rel.gather(1, which) + (shared * soft).sum(2)
    above = (t >= 0) & present  # includes k itself
    lower = (levels[:, None, :] < level_k) & present
    rank_plus = (above & ~lower).sum(2)
    rank_minus = torch.where(lower, goal.step(t), 0.0).sum(2)
    return rank_plus + rank_minus, (shared * above).sum(2)


def _metric(
    rank: Tensor, h_rank: Tensor, gain: Tensor, real: Tensor, counts: Tensor, goal: Goal
) -> Tensor:
    """Metric of each row from its (rows, P) ranks."""
    rank = torch.where(real, rank, 1.0)
    if goal.kind == "ratio":
        total = gain.sum(1)
        return torch.where(real, h_rank / rank, 0.0).sum(1) / torch.where(total > 0, total, 1.0)
    if goal.kind == "dcg":
        best = gain.sort(1, descending=True).values
        places = torch.arange(2, best.shape[1] + 2, device=best.device, dtype=best.dtype)
        ideal = (best / places.log2()).sum(1)
        return (gain / torch.log2(1.0 + rank)).sum(1) / torch.where(ideal > 0, ideal, 1.0)
    recalls = []
    for k in goal.ks:
        found = (torch.sigmoid((k - rank) / goal.temperature) * real).sum(1)
        found = found.clamp(max=k) if goal.clip else found
        recalls.append(found / counts.clamp(min=1, max=k))
    return torch.stack(recalls).mean(0)


def gain_table(num_levels: int) -> Tensor:
    """Gain 2^l - 1 of levels 0..L, float64."""
    return torch.tensor([math.exp2(level) - 1.0 for level in range(num_levels + 1)]).double()


def soft_bin_ap(
    scores: Tensor, levels: Tensor, bins: int = 20, low: float = -1.0, high: float = 1.0
) -> Tensor:
    """Quantised AP loss of each query (Revaud et al. 2019): 1 - sum_m P_m (r_m - r_{m-1}).

    Each score is spread over two of ``bins`` triangular bins between high and low; precision and
    recall are computed bin by bin, best first. The two published ranges are bins=20 on [-1, 1] and
    bins=25 on [0, 1]; beyond the range the first and last bin are flat, so that a score there has
    its full weight and no gradient.

    More bins bring it closer to the exact AP, and it is exact for scores on bin centres. It does
    not converge to AP otherwise: a positive between two centres is counted in parts, and the first
    part does not count all of the positive itself.

    Args:
        scores: (Q, G) similarities.
        levels: (Q, G); positives are levels > 0, -1 is not in the gallery.
        bins: number of bin centres, 2 or more.
        low: last centre.
        high: first centre.

    Returns:
        (Q,) in [0, 1]; 0 with a zero gradient if a query has no positive.

    Example:
        >>> soft_bin_ap(torch.tensor([[1.0, -1.0]]), torch.tensor([[1, 0]])).tolist()
        [0.0]
    """
    scores = grades.check_pairs(scores, levels)
    check_count(bins=bins)
    check_finite(low=low, high=high)
    if bins < 2 or not low < high:
        raise ShapeError(f"{bins} bins from {low} to {high}; expected at least 2 and low < high")
    place = ((high - scores) * ((bins - 1) / (high - low))).clamp(0.0, bins - 1.0)
    # Clamped, so that a score at the last centre has a next bin, too.
    first = place.detach().floor().clamp(max=bins - 2).long()
    share = place - first  # of the score's weight that goes to the next bin
    present, positive = (levels >= 0).to(scores.dtype), (levels > 0).to(scores.dtype)
    every = _spread(first, share, present, bins)
    hits = _spread(first, share, positive, bins)
    tiny = torch.finfo(scores.dtype).tiny
    precision = hits.cumsum(1) / every.cumsum(1).clamp(min=tiny)
    found = positive.sum(1)
    loss = 1.0 - (precision * hits).sum(1) / found.clamp(min=1.0)
    return torch.where(found > 0, loss, 0.0)


def _spread(first: Tensor, share: Tensor, weight: Tensor, bins: int) -> Tensor:
    """Weight of each bin, (Q, bins): each score adds to two neighbouring bins."""
    empty = share.new_zeros(len(share), bins)
    near = empty.scatter_add(1, first, (1.0 - share) * weight)
    return near.scatter_add(1, first + 1, share * weight)
