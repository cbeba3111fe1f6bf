"""What every source has to deliver: the columns of its tables, and a word for what is not known."""

from collections.abc import Iterable

from hgld.artifacts import ARTIFACTS, Table

__all__ = ["ABOUT", "UNKNOWN", "columns_of", "level_columns", "table_of"]

UNKNOWN = "unknown"  # never null, never empty: a reader need not ask
ABOUT = ("author", "license", "title", "url")
NO_LEVELS = ("path", "split", *ABOUT)


def table_of(artifact: str) -> Table:
    """The declared table of that name."""
    table = ARTIFACTS[artifact]
    assert isinstance(table, Table)
    return table


def columns_of(artifact: str) -> list[str]:
    """The columns of a declared table, in order.

    Example:
        >>> columns_of("queries")
        ['image_id', 'usage', 'relevant']
    """
    return list(table_of(artifact).columns)


def level_columns(names: Iterable[object]) -> list[str]:
    """Of the columns of a person's labels those that are levels, coarse to fine.

    Example:
        >>> level_columns(["path", "split", "order", "family", "license"])
        ['order', 'family']
    """
    return [str(name) for name in names if name not in NO_LEVELS]
