"""Smooth replacements for the step function that counts the images ranked above an image.

A rank counts H(t) over t = s_j - s_k. The step has no gradient; these have one. ``UpperStep`` is
an upper bound of the step, so its losses bound the exact ones; ``SigmoidStep`` is not.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking.checks import check_not_negative, check_positive

__all__ = ["SigmoidStep", "Step", "UpperStep", "chosen"]


@dataclass(frozen=True)
class UpperStep:
    """H-minus of Ramzi et al. 2024, Eq. 4, for t = s_j - s_k.

    sigma(t / tau) below 0; sigma(t / tau) + start on [0, delta]; rho (t - delta) + offset beyond.

    Eq. 4 gives both 0.5 and 1 at t = 0. Here H-minus(0) = start + 0.5, so that with the default
    start an exact tie counts 1, as H(0) does, and the loss bounds the exact one on ties, too (the
    authors' code uses 0.5 there).

    Args:
        tau: temperature of the sigmoid, in cosine units.
        rho: slope beyond delta.
        delta: start of the linear part; sigma reaches 0.99 at tau ln(99) = 0.046.
        start: jump at 0; 0.5 makes it an upper bound.
        offset: value just beyond delta; None: the continuous one, sigma(delta / tau) + start.

    Example:
        >>> UpperStep()(torch.tensor([-1.0, 0.0, 0.25]))
        tensor([ 0.0000,  1.0000, 21.4933])
    """

    tau: float = 0.01
    rho: float = 100.0
    delta: float = 0.05
    start: float = 0.5
    offset: float | None = None

    def __post_init__(self) -> None:
        check_positive(tau=self.tau)
        check_not_negative(rho=self.rho, delta=self.delta, start=self.start)
        if self.offset is not None:
            check_not_negative(offset=self.offset)

    @property
    def end(self) -> float:
        """Value just beyond delta."""
        if self.offset is not None:
            return self.offset
        return 1.0 / (1.0 + math.exp(-min(self.delta / self.tau, 700.0))) + self.start

    def __call__(self, t: Tensor) -> Tensor:
        """H-minus of each difference, same shape."""
        sigmoid = torch.sigmoid(t / self.tau)
        near = torch.where(t >= 0, sigmoid + self.start, sigmoid)
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
