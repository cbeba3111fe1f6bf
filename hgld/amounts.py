"""Words for messages: a number of things, a size, a duration, the level that two images share.

It imports nothing, so that also ``hgld doctor`` can use it where a package is missing.
"""

from collections.abc import Sequence

__all__ = [
    "count_text",
    "duration_text",
    "level_noun",
    "progress_text",
    "shared_text",
    "size_text",
]

# names of levels that say which one, not what it is: "another coarse" lacks a noun
WHICH = (
    "base bottom broad coarse coarser coarsest fine finer finest first high low lower main medium "
    "mid middle narrow second sub super third top upper"
)


def count_text(number: int, noun: str, plural: str = "") -> str:
    """A number of things, the noun in its plural unless there is one of them.

    Example:
        >>> count_text(1, "value"), count_text(1234, "value"), count_text(0, "class", "classes")
        ('1 value', '1,234 values', '0 classes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


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


def progress_text(done: int, total: int | None) -> str:
    """How far something is.

    Example:
        >>> progress_text(1850, 5000), progress_text(1850, None)
        ('37 % (1,850 of 5,000)', '1,850 done')
    """
    return f"{100 * done // total} % ({done:,} of {total:,})" if total else f"{done:,} done"


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


def level_noun(name: str) -> str:
    """The name of a level as a noun.

    Example:
        >>> level_noun("landmark"), level_noun("coarse"), level_noun("level_2")
        ('landmark', 'coarse class', 'level 2 class')
    """
    words = name.replace("_", " ")
    is_noun = words.lower() not in WHICH.split() and not words[-1:].isdigit()
    return words if is_noun else f"{words} class"


def shared_text(level: int, names: Sequence[str]) -> str:
    """The level that two images share.

    Args:
        level: how many levels they share.
        names: of all levels, coarse to fine.

    Example:
        >>> names = ("kind", "supercategory", "landmark")
        >>> shared_text(2, names), shared_text(0, names)
        ('same supercategory', 'another kind')
    """
    return f"same {level_noun(names[level - 1])}" if level else f"another {level_noun(names[0])}"
