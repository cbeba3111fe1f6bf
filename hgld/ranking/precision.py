"""Numbers fine enough to rank by: float32 at least, and products of float32 that stay such.

Near 1 two neighbours of bfloat16 are 0.4 tau apart, so scores of a half are wide as soon as they
come in. A caller may have autocast or TF32 on for the model; both round the factors of a product,
and neither may touch a similarity.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

__all__ = ["FLOATS", "whole_products", "widen"]

HALVES = torch.float16, torch.bfloat16
FLOATS = *HALVES, torch.float32, torch.float64


def widen(numbers: Tensor) -> Tensor:
    """The numbers in float32 at least.

    Example:
        >>> widen(torch.zeros(1, dtype=torch.bfloat16)).dtype
        torch.float32
    """
    return numbers.float() if numbers.dtype in HALVES else numbers


@contextmanager
def whole_products(device: torch.device) -> Iterator[None]:
    """Within, neither autocast nor TF32 nor bfloat16 rounds the factors of a product."""
    backend = getattr(torch.backends, "cuda" if device.type == "cuda" else "mkldnn")
    products: Any = getattr(backend, "matmul", None)
    before = getattr(products, "fp32_precision", "none")  # torch before 2.9 has no such word
    rounds = before not in ("none", "ieee")
    with torch.autocast(device.type, enabled=False):
        try:
            if rounds:
                products.fp32_precision = "ieee"
            yield
        finally:
            if rounds:
                products.fp32_precision = before
