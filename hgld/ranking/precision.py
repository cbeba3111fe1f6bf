"""Numbers fine enough to rank by: float32 at least, and products of float32 that stay such.

Near 1 two neighbours of bfloat16 are 0.4 tau apart, so scores of a half are wide as soon as they
come in. A caller may have autocast or TF32 on for the model; both round the factors of a product,
and neither may touch a similarity. TF32 is the whole process's, so it is off while any thread needs
it off.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from hgld.errors import ShapeError

__all__ = ["FLOATS", "all_finite", "check_scores", "not_finite", "whole_products", "widen"]

HALVES = torch.float16, torch.bfloat16
FLOATS = *HALVES, torch.float32, torch.float64


def widen(numbers: Tensor) -> Tensor:
    """The numbers in float32 at least.

    Example:
        >>> widen(torch.zeros(1, dtype=torch.bfloat16)).dtype
        torch.float32
    """
    return numbers.float() if numbers.dtype in HALVES else numbers


def all_finite(numbers: Tensor) -> bool:
    """Whether none is nan or inf; their sum tells nearly always, without a table of answers."""
    return bool(torch.isfinite(numbers.sum())) or bool(torch.isfinite(numbers).all())


def check_scores(scores: Tensor) -> None:
    """Raise ShapeError where a score of embeddings is nan or inf."""
    if not all_finite(scores):
        raise not_finite()


def not_finite() -> ShapeError:
    """What to raise where a score is nan or inf."""
    return ShapeError("scores hold nan or inf; expected finite embeddings")


class _Rounding:
    """A backend's rounding of factors: off from the first who enters to the last who leaves."""

    def __init__(self, backend: str) -> None:
        self.products: Any = getattr(getattr(torch.backends, backend), "matmul", None)
        self.within, self.before = 0, "none"
        self.lock = threading.Lock()

    def enter(self) -> None:
        with self.lock:
            if not self.within:  # torch before 2.9 has no such word
                self.before = getattr(self.products, "fp32_precision", "none")
                self._set("ieee")
            self.within += 1

    def leave(self) -> None:
        with self.lock:
            self.within -= 1
            if not self.within:
                self._set(self.before)

    def _set(self, precision: str) -> None:
        if self.before not in ("none", "ieee"):
            self.products.fp32_precision = precision


ROUNDINGS = {backend: _Rounding(backend) for backend in ("cuda", "mkldnn")}


@contextmanager
def whole_products(device: torch.device) -> Iterator[None]:
    """Within, neither autocast nor TF32 nor bfloat16 rounds the factors of a product."""
    rounding = ROUNDINGS["cuda" if device.type == "cuda" else "mkldnn"]
    with torch.autocast(device.type, enabled=False):
        rounding.enter()
        try:
            yield
        finally:
            rounding.leave()
