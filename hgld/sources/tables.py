"""What every source has to deliver: the columns of its tables, and a word for what is not known."""

from hgld.artifacts import ARTIFACTS, Table

__all__ = ["ABOUT", "UNKNOWN", "columns_of", "table_of"]

UNKNOWN = "unknown"  # never null, never empty: a reader need not ask
ABOUT = ("author", "license", "title", "url")


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
