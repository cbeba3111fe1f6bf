"""Smooth replacements for the step function that counts the images ranked above an image.

A rank counts H(t) over t = s_j - s_k. The step has no gradient; these have one. ``UpperStep`` is
an upper bound of the step, so its losses bound the exact ones; ``SigmoidStep`` is not.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking.checks import check_not_negative, check_positive, check_tensors


@dataclass(frozen=True)
class UpperStep:
    """H-minus of Ramzi et al. 2024, Eq. 4, for t = s_j - s_k.

    sigma(t / tau) below 0; sigma(t / tau) + start on [0, delta]; rho (t - delta) + offset beyond.

    Eq. 4 gives both 0.5 and 1 at t = 0. Here H-minus(0) = start + 0.5 unless ``tie`` is given, so
    that with the default start an exact tie counts 1, as H(0) does, and the loss bounds the exact
    one on ties, too. The authors' code has 0.5 there: ``tie=0.5``.

    Args:
        tau: temperature of the sigmoid, in cosine units.
        rho: slope beyond delta.
        delta: start of the linear part; sigma reaches 0.99 at tau ln(99) = 0.046.
        start: jump at 0; 0.5 makes it an upper bound.
        offset: value just beyond delta; None: the continuous one, sigma(delta / tau) + start.
        tie: H-minus(0); None: start + 0.5. With a value, losses are computed without kernels.

    Example:
        >>> UpperStep()(torch.tensor([-1.0, 0.0, 0.25]))
        tensor([ 0.0000,  1.0000, 21.4933])
    """

    tau: float = 0.01
    rho: float = 100.0
    delta: float = 0.05
    start: float = 0.5
    offset: float | None = None
    tie: float | None = None

    def __post_init__(self) -> None:
        check_positive(tau=self.tau)
        check_not_negative(rho=self.rho, delta=self.delta, start=self.start)
        if self.offset is not None:
            check_not_negative(offset=self.offset)
        if self.tie is not None:
            check_not_negative(tie=self.tie)

    @property
    def straight(self) -> tuple[float, float, float, float]:
        """rho, delta, start and end: what a kernel adds to the sigmoid."""
        return self.rho, self.delta, self.start, self.end

    @property
    def end(self) -> float:
        """Value just beyond delta."""
        if self.offset is not None:
            return self.offset
        return 1.0 / (1.0 + math.exp(-self.delta / self.tau)) + self.start

    def __call__(self, t: Tensor) -> Tensor:
        """H-minus of each difference, same shape."""
        sigmoid = torch.sigmoid(t / self.tau)
        near = torch.where(t >= 0, sigmoid + self.start, sigmoid)
        if self.tie is not None:
            near = torch.where(t == 0, sigmoid + (self.tie - 0.5), near)  # keeps the slope
        beyond = (t - self.delta).clamp(max=torch.finfo(t.dtype).max)  # 0 * inf is nan
        return torch.where(t > self.delta, self.rho * beyond + self.end, near)


@dataclass(frozen=True)
class SigmoidStep:
    """sigma(t / tau), the step of Smooth-AP (Brown et al. 2020); 0.5 at a tie, so no upper bound.

    In the ``sup_*`` losses it replaces H-minus only; H-plus remains the exact step.

    Example:
        >>> SigmoidStep()(torch.tensor([0.0])).tolist()
        [0.5]
    """

    tau: float = 0.01
    straight: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_positive(tau=self.tau)

    def __call__(self, t: Tensor) -> Tensor:
        """Sigmoid of each difference, same shape."""
        return torch.sigmoid(t / self.tau)


Step = UpperStep | SigmoidStep


def chosen(step: Step | None) -> Step:
    """The given step, or the paper's by default."""
    if step is not None and not isinstance(step, Step):
        raise ShapeError(f"step is {step!r}; expected an UpperStep or a SigmoidStep")
    return step or UpperStep()


def operating_region(scores: Tensor, tau: float = 0.01, least: float = 0.005) -> Tensor:
    """Share of the pairs of each row that a sigmoid gives a gradient (Brown et al. 2020, Fig. S7).

    P = mean over i, j of [sigma'((s_i - s_j) / tau) / tau > least], each score paired with itself,
    too. It grows with the batch, which is why Smooth-AP needs large ones.

    Args:
        scores: (Q, G) similarities.
        tau: temperature of the sigmoid.
        least: smallest slope that counts; the paper's is 0.005.

    Returns:
        (Q,) float64 in [0, 1].

    Example:
        >>> operating_region(torch.tensor([[0.9, 0.89, 0.1]])).tolist()
        [0.5555555555555556]
    """
    check_tensors(scores=scores)
    check_positive(tau=tau, least=least)
    if 4 * tau * least >= 1:  # the sigmoid is nowhere that steep
        return scores.new_zeros(len(scores), dtype=torch.float64)
    edge = (1.0 + math.sqrt(1.0 - 4 * tau * least)) / 2  # sigma (1 - sigma) = tau * least
    width = tau * math.log(edge / (1.0 - edge))
    # sorted, so that the pairs are counted without a (Q, G, G) table
    row = scores.double().sort(dim=1).values.contiguous()
    last = torch.searchsorted(row, row + width)
    first = torch.searchsorted(row, row - width, right=True)
    return (last - first).sum(1).double() / row.shape[1] ** 2
