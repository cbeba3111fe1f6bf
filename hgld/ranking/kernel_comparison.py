"""Compare kernels with plain torch on a device: losses by type and size, and the evaluation.

The check before a kernel's first use is one small case; this is the full table, for
``hgld doctor --gpu``. Kernels run unchecked here, so that a wrong one shows.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from hgld.ranking import losses
from hgld.ranking.evaluation import rank_blocks
from hgld.ranking.kernels.device import largest_difference, using
from hgld.ranking.levels import RelevanceWarning
from hgld.ranking.rankings import measure
from hgld.words import single_blanks

SIZES = (64, 64), (50, 1000), (8, 5000)  # a full tile, one that is not, and wider than one
PART = 256  # gallery images of a part, the fewest
TOLERANCE = {torch.bfloat16: 1e-2, torch.float32: 1e-4, torch.float64: 1e-9}
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sup_ap": losses.sup_ap,
    "sup_h_ap": partial(losses.sup_h_ap, num_levels=3),
    "sup_ndcg": losses.sup_ndcg,
    "sup_recall": losses.sup_recall,
}
METRICS = ["H-AP", "NDCG", "ASI", "AP:1", "mAP@R:2", "mAP@5:1", "R@1:2", "TR@4:1", "H-R@3", "H-P@2"]


@dataclass(frozen=True)
class KernelComparison:
    """A computation by kernels and in plain torch.

    Args:
        name: of the loss, "evaluation", or "in parts": the evaluation of a gallery in parts.
        dtype: of the scores or embeddings.
        queries: rows of scores.
        gallery: columns of scores.
        value: largest difference of the losses or metrics, over the largest value.
        gradient: the same of the gradient; nan if there is none.
        kernel_ms: milliseconds with kernels, after a first call.
        plain_ms: milliseconds in plain torch.
        same: whether the differences are no more than rounding.
        error: why the kernels did not run; "" if they ran.
    """

    name: str
    dtype: str
    queries: int
    gallery: int
    value: float
    gradient: float
    kernel_ms: float
    plain_ms: float
    same: bool
    error: str = ""


def compare_kernels(device: torch.device) -> Iterator[KernelComparison]:
    """Compare the losses that have kernels, and the evaluation, with plain torch on a device."""
    make = torch.Generator().manual_seed(0)
    for size in SIZES:
        levels = (torch.rand(size, generator=make) * size[1] / 8).long()
        levels = torch.where(levels > 3, 0, levels).to(device, torch.int8)  # 24 positives a row
        scores = 0.1 * torch.randn(size, generator=make, dtype=torch.float64)
        for dtype in TOLERANCE:
            leaf = scores.to(device, dtype).requires_grad_()
            for name, loss in LOSSES.items():
                yield _compare(name, dtype, size, partial(_both_ways, loss, leaf, levels))
    for size in SIZES:
        # coordinates of 1/8 make inner products exact, so both ways rank the same scores
        gallery = (torch.randint(-8, 9, (size[1], 16), generator=make) / 8).to(device)
        labels = torch.randint(0, 12, (size[1], 1), generator=make) // torch.tensor([6, 3, 1])
        labels = labels.to(device)
        given = gallery[: size[0]], labels[: size[0]], gallery, labels
        yield _compare("evaluation", torch.float32, size, partial(_metrics, given))
        if size[1] > PART:
            yield _compare("in parts", torch.float32, size, partial(_metrics, given, PART))


def _both_ways(
    loss: Callable[[Tensor, Tensor], Tensor], leaf: Tensor, levels: Tensor
) -> tuple[Tensor, ...]:
    value = loss(leaf, levels)
    return value.detach(), *torch.autograd.grad(value.sum(), leaf)


def _metrics(
    given: tuple[Tensor, Tensor, Tensor, Tensor], part: int | None = None
) -> tuple[Tensor, ...]:
    found = measure(rank_blocks(*given, exclude_self=True, part=part), METRICS)
    return (torch.stack([found.per_query[name] for name in METRICS]),)


def _compare(
    name: str, dtype: torch.dtype, size: tuple[int, int], work: Callable[[], tuple[Tensor, ...]]
) -> KernelComparison:
    def timed(kernels: Literal["off", "unchecked"]) -> tuple[list[Tensor], float]:
        with using(kernels), warnings.catch_warnings():
            warnings.simplefilter("ignore", RelevanceWarning)
            work()  # compiles
            start = time.perf_counter()
            found = [part.cpu() for part in work()]
            return found, (time.perf_counter() - start) * 1e3

    facts = name, str(dtype).removeprefix("torch."), *size
    truth, plain_ms = timed("off")
    try:
        found, kernel_ms = timed("unchecked")
    except Exception as error:  # compilers raise errors of any class
        reason = f"{type(error).__name__}: {single_blanks(str(error))}"
        return KernelComparison(*facts, math.nan, math.nan, math.nan, plain_ms, False, reason)
    apart = [largest_difference(*pair) for pair in zip(found, truth, strict=True)]
    same = max(apart) <= TOLERANCE[dtype]
    gradient = apart[1] if len(apart) > 1 else math.nan
    return KernelComparison(*facts, apart[0], gradient, kernel_ms, plain_ms, same)
