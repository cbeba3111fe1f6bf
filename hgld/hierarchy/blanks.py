"""One spelling of blanks in words that people and public pages write.

Labels come with no-break, thin and double blanks (spreadsheets add more), and two spellings of one
label must not become two values. All Unicode blanks count as one. Control characters are removed:
no workbook can hold them, so a label with one would never match its row again.
"""

import pandas as pd

__all__ = ["single_blanks", "single_blanks_all"]

CONTROLS = {code: None for code in (*range(32), 0xFFFE, 0xFFFF) if not chr(code).isspace()}


def single_blanks(text: str) -> str:
    r"""The text with every run of blanks as one plain blank, none at its ends, no controls.

    Example:
        >>> single_blanks("quarter  of\x07 hamburg ")
        'quarter of hamburg'
    """
    return " ".join((text if text.isprintable() else text.translate(CONTROLS)).split())


def single_blanks_all(column: "pd.Series[str]") -> "pd.Series[str]":
    """``single_blanks`` of each cell; each distinct text is worked on once."""
    return column.map({text: single_blanks(text) for text in column.unique()}).astype("str")
