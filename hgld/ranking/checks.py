"""Numbers that losses and metrics are given: finite, above 0, or whole; one line says if not."""

import math
from numbers import Integral, Real

from hgld.errors import ShapeError

__all__ = ["check_count", "check_finite", "check_not_negative", "check_positive"]


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


def check_count(**numbers: int | None) -> None:
    """Raise ShapeError unless each is a whole number, 1 or more; None is none asked for.

    Example:
        >>> check_count(k=10, chunk=None)
    """
    for name, number in numbers.items():
        if number is not None and not (isinstance(number, Integral) and number >= 1):
            raise ShapeError(f"{name} is {number!r}; expected a whole number, 1 or more")


def _is_finite(number: object) -> bool:
    return isinstance(number, Real) and math.isfinite(number)
