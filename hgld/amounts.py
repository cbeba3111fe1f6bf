"""Amounts in words: a number of things, a size, a duration.

It imports nothing, so that also ``hgld doctor`` can use it where a package is missing.
"""

__all__ = ["count_text", "duration_text", "size_text"]


def count_text(number: int, noun: str) -> str:
    """A number of things, the noun in its plural where they are not one.

    Example:
        >>> count_text(1, "value"), count_text(1234, "value")
        ('1 value', '1,234 values')
    """
    return f"{number:,} {noun}" + "s" * (number != 1)


def duration_text(seconds: float) -> str:
    """A duration in two parts.

    Example:
        >>> duration_text(59_700), duration_text(200), duration_text(0.2)
        ('16 h 35 min', '3 min 20 s', '1 s')
    """
    minutes, rest = divmod(max(1, round(seconds)), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def size_text(size_bytes: float) -> str:
    """A size in three digits.

    Example:
        >>> size_text(1234567)
        '1.23 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.3g} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.3g} TB"
