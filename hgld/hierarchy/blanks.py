"""One spelling of blanks in words that people and public pages write.

Labels come with no-break, thin and double blanks (spreadsheets add more), and two spellings of one
label must not become two values. All Unicode blanks count as one.
"""

import pandas as pd

__all__ = ["single_blanks", "single_blanks_all"]


def single_blanks(text: str) -> str:
    """The text with every run of blanks as one plain blank, and none at its ends.

    Example:
        >>> single_blanks("quarter  of hamburg ")
        'quarter of hamburg'
    """
    return " ".join(text.split())


def single_blanks_all(column: "pd.Series[str]") -> "pd.Series[str]":
    """``single_blanks`` of each cell; each distinct text is worked on once."""
    return column.map({text: single_blanks(text) for text in column.unique()}).astype("str")
