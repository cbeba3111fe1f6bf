"""Launch the Triton kernels of the Sup-losses, with tiles that suit the size of the scores.

Triton is imported inside functions, so that only a GPU or Triton's interpreter needs it.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hgld.ranking.kernels.device import has_triton

if TYPE_CHECKING:
    from hgld.ranking.surrogates import Goal

STEP = ("TAU", "RHO", "DELTA", "START", "LINE")
WIDEST = 4096  # columns of a row that one program processes in registers
CELLS = 4096  # pairs at a time, for a program of 4 warps
REGISTERS: int | None = None  # limit per thread; None: chosen by the compiler
SOURCES = 1024  # columns at a time for a wider row
PARTS = 16  # programs that share the positives of a wide row


def on(device: torch.device) -> AbstractContextManager[Any]:
    """Launch on this GPU: Triton uses the current device, not that of its arguments."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def fits(scores: Tensor, goal: "Goal") -> bool:
    """Whether a kernel supports this goal, and Triton runs on the device of the scores."""
    known = not goal.smooth and not goal.clip and scores.dtype in (torch.float32, torch.float64)
    return known and has_triton(scores.device)


def bounds(scores: Tensor, levels: Tensor) -> tuple[int, int, bool]:
    """Smallest and largest level, and whether all scores are finite; one GPU synchronisation."""
    from hgld.ranking.kernels import loss_triton as kernels

    found = torch.empty(len(scores), 3, dtype=torch.int64, device=scores.device)
    s, x = scores.detach().contiguous(), levels.contiguous()
    with on(s.device):
        kernels.bound_rows[(len(s),)](s, x, found, s.shape[1], BLOCK=1024)
    rows = found.cpu()
    return int(rows[:, 0].min()), int(rows[:, 1].max()), not bool(rows[:, 2].any())


def count_levels(levels: Tensor, num_levels: int) -> Tensor:
    """(Q, L + 1) int64 images on each level, level 0 first."""
    from hgld.ranking.kernels import loss_triton as kernels

    counts = torch.empty(len(levels), num_levels + 1, dtype=torch.int64, device=levels.device)
    steps = _power(num_levels + 1)
    with on(levels.device):
        kernels.count_images[(len(levels),)](
            levels.contiguous(), counts, levels.shape[1], num_levels, STEPS=steps,
            BLOCK=max(32, 4096 // steps),
        )  # fmt: skip
    return counts


def solve_rows(
    scores: Tensor, levels: Tensor, rel: Tensor, goal: "Goal", by_level: bool = True
) -> tuple[Tensor, Tensor]:
    """Losses (Q,) and gradients (Q, N).

    ``rel`` has relevance by level, (Q, L + 1), or without ``by_level`` that of each pair, (Q, N),
    which only the ratio of H-AP takes.
    """
    from hgld.ranking.kernels import loss_triton as kernels

    if by_level:
        rel = (rel if rel.stride(1) == 1 else rel.contiguous()).double()
    else:
        rel = rel.contiguous()
    s, compact = scores.detach().contiguous(), levels.to(torch.int8).contiguous()
    (rows, width), device = s.shape, s.device
    losses, gradient = s.new_empty(rows), torch.empty_like(s)
    # columns (Q, N) and number (Q,) of the positives, and the scale of each row's sum
    columns, counts = (
        torch.empty(shape, dtype=torch.int32, device=device) for shape in ((rows, width), (rows,))
    )
    scales, cuts = s.new_empty(rows), _cuts(goal.ks or (1,), device)
    given = s, compact, rel, columns, counts, scales, cuts
    sizes = width, rel.stride(0), len(goal.ks)
    kind, step = {"KIND": goal.number, "BY_LEVEL": by_level}, _numbers(goal, s.dtype)
    numbers = {**kind, "TEMPERATURE": float(goal.temperature), **step}
    steps = _power(rel.shape[1] if by_level else 2)
    with on(device):
        kernels.list_positives[(rows,)](
            compact, rel, _discounts(width if goal.kind == "dcg" else 0, device), columns, counts,
            scales, width, rel.stride(0), **kind, LEVELS=steps, BLOCK=max(32, 4096 // steps),
        )  # fmt: skip
        if width <= WIDEST:
            sources = max(32, _power(width))
            warps = max(1, min(8, sources // 256))
            kernels.whole_rows[(rows,)](
                *given, losses, gradient, *sizes, **numbers, SOURCES=sources,
                TARGETS=_targets(CELLS * warps // 4, sources, s), num_warps=warps, num_stages=1,
                maxnreg=REGISTERS,
            )  # fmt: skip
            return losses, gradient
        parts, weights = s.new_empty(rows, PARTS), torch.empty_like(s)
        tile = {"TARGETS": _targets(CELLS, SOURCES, s), "SOURCES": SOURCES, "PARTS": PARTS}
        fixed = {**tile, "num_warps": 4, "num_stages": 1}
        kernels.weigh_positives[(rows, PARTS)](
            *given, parts, weights, gradient, *sizes, **numbers, **fixed
        )
        kernels.spread_slopes[(rows, -(-width // SOURCES))](
            s, compact, columns, counts, scales, parts, weights, losses, gradient, width, **step,
            **fixed,
        )  # fmt: skip
    return losses, gradient


def _power(size: int) -> int:
    """The smallest power of two that is at least ``size``."""
    return 1 << (size - 1).bit_length()


def _targets(cells: int, sources: int, scores: Tensor) -> int:
    """Number of positives at a time; a float64 takes two registers."""
    return max(1, min(32, cells // sources // (scores.element_size() // 4)))


def _numbers(goal: "Goal", dtype: torch.dtype) -> dict[str, float]:
    """Parameters of H-minus for the kernels; RHO -1 means the plain sigmoid."""
    step = goal.step
    if step.straight:
        rho, delta, start, end = step.straight
        numbers = step.tau, rho, _not_above(delta, dtype), start, end - rho * delta
    else:
        numbers = step.tau, -1.0, 0.0, 0.0, 0.0
    return dict(zip(STEP, map(float, numbers), strict=True))


@lru_cache(maxsize=16)
def _not_above(bound: float, dtype: torch.dtype) -> float:
    """Largest number of the dtype up to the bound, so that ``>`` gives the same for both."""
    near = torch.tensor(bound, dtype=dtype)
    below = torch.nextafter(near, torch.tensor(-torch.inf, dtype=dtype))
    return float(near if float(near) <= bound else below)


@lru_cache(maxsize=8)
def _discounts(size: int, device: torch.device) -> Tensor:
    """Running sums of 1 / log2(1 + rank) over ``size`` ranks, from 0."""
    places = torch.arange(2, size + 2, dtype=torch.float64, device=device)
    return torch.cat([places.new_zeros(1), places.log2().reciprocal().cumsum(0)])


@lru_cache(maxsize=8)
def _cuts(ks: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(ks, dtype=torch.float32, device=device)
