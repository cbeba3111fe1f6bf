"""Validate the arguments of losses and metrics: tensors with readable values, numbers in range.

Neighbouring bfloat16 numbers near 1 differ by 0.4 tau, so half-precision scores are converted to
float32 on entry (``widen``).

All checks raise ShapeError with one line: what was found, what was expected, what to do.
"""

import math
from collections.abc import Sequence
from numbers import Integral, Real

import torch
from torch import Tensor

from hgld.errors import ShapeError

HALVES = torch.float16, torch.bfloat16
FLOATS = *HALVES, torch.float32, torch.float64

NO_PARTNER = (
    "no query of this batch has a positive other than itself, so nothing draws images of a class "
    "together; sample two images or more of each class"
)
NOT_TRACED = (
    "hgld.ranking reads values and ranks by kernels that torch.compile cannot trace; leave out "
    "fullgraph=True, or call the loss or metric outside of the compiled function"
)


def check_tensors(**tensors: object) -> None:
    """Raise ShapeError unless each is a torch tensor whose values can be read.

    Every loss and metric calls this first, so lists, numpy arrays, meta tensors and tensors within
    ``torch.vmap`` or a trace (``torch.func.linearize``, ``make_fx``) are refused in one place.
    ``torch.func.grad``, ``vjp`` and ``jacrev`` work. ``torch.compile`` breaks its graph here; with
    ``fullgraph=True`` it stops with the reason.

    Example:
        >>> check_tensors(scores=torch.zeros(1, 2))
        >>> check_tensors(ids=[0, 1])
        Traceback (most recent call last):
        hgld.errors.ShapeError: ids is of type list; expected a torch.Tensor: torch.as_tensor(ids)
    """
    if torch.compiler.is_compiling():
        torch._dynamo.graph_break(msg=NOT_TRACED)
    traced = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None
    for name, tensor in tensors.items():
        if traced:
            raise ShapeError(
                f"{name} is within a trace (torch.func.linearize, make_fx), which hides its values;"
                " call the loss or metric outside of it"
            )
        if not isinstance(tensor, Tensor):
            raise ShapeError(
                f"{name} is of type {type(tensor).__name__}; expected a torch.Tensor: "
                f"torch.as_tensor({name})"
            )
        if tensor.device.type == "meta":
            raise ShapeError(f"{name} is a meta tensor, which holds no values; expected CPU or GPU")
        if torch._C._functorch.is_batchedtensor(tensor):
            raise ShapeError(
                f"{name} is within torch.vmap, which hides its values; pass all queries at once "
                "as a (Q, G) table, or call it in a loop"
            )


def check_finite(**numbers: float) -> None:
    """Raise ShapeError unless each number is finite.

    Example:
        >>> check_finite(margin=0.5)
    """
    for name, number in numbers.items():
        if not _is_finite(number):
            raise ShapeError(f"{name} is {number!r}; expected a finite number")


def check_positive(**numbers: float) -> None:
    """Raise ShapeError unless each number is finite and above 0."""
    for name, number in numbers.items():
        if not _is_finite(number) or number <= 0:
            raise ShapeError(f"{name} is {number!r}; expected a number > 0")


def check_not_negative(**numbers: float) -> None:
    """Raise ShapeError unless each number is finite and 0 or above."""
    for name, number in numbers.items():
        if not _is_finite(number) or number < 0:
            raise ShapeError(f"{name} is {number!r}; expected a number >= 0")


def check_weights(weights: Sequence[float], num_levels: int) -> None:
    """Raise ShapeError unless there is a finite weight, 0 or above, for each level."""
    if len(weights) != num_levels:
        raise ShapeError(f"{len(weights)} weights for {num_levels} levels")
    for weight in weights:
        check_not_negative(weight=weight)


def check_choice(*choices: str, **values: str) -> None:
    """Raise ShapeError unless each value is one of the choices.

    Example:
        >>> check_choice("log", "loglog", weight="log")
    """
    for name, value in values.items():
        if value not in choices:
            raise ShapeError(f"{name} is {value!r}; expected {' or '.join(map(repr, choices))}")


def check_count(**numbers: int | None) -> None:
    """Raise ShapeError unless each is a whole number, 1 or more; None (not set) is accepted.

    Example:
        >>> check_count(k=10, chunk=None)
    """
    for name, number in numbers.items():
        if number is not None and not (isinstance(number, Integral) and number >= 1):
            raise ShapeError(f"{name} is {number!r}; expected a whole number, 1 or more")
        if number is not None and number >= 1 << 63:  # kernels count in int64
            raise ShapeError(f"{name} is {number}; expected less than 2**63")


def _is_finite(number: object) -> bool:
    return isinstance(number, Real) and math.isfinite(number)


def widen(numbers: Tensor) -> Tensor:
    """Convert half precision to float32; other numbers are unchanged.

    Example:
        >>> widen(torch.zeros(1, dtype=torch.bfloat16)).dtype
        torch.float32
    """
    return numbers.float() if numbers.dtype in HALVES else numbers
