"""Tables as LaTeX (booktabs) and as text for a page: shares in percent, intervals beside means."""

import re
from collections.abc import Sequence

import pandas as pd
from pandas.api.types import is_float_dtype, is_numeric_dtype

from hgld.words import percent_text

LONG = 45  # rows that fit a page of a paper; longer tables break across pages
SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    # other letters in LaTeX's default font encoding, OT1
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
}


def escape_latex(text: str) -> str:
    r"""Return the text with LaTeX's special characters escaped.

    Example:
        >>> escape_latex("50 % of a_b")
        '50 \\% of a\\_b'
    """
    # all signs at once: one by one, the braces of a macro would be escaped again
    return re.sub(r"[\\~^<>|&%$#_{}]", lambda found: SPECIAL[found[0]], text)


def latex_row(cells: Sequence[str]) -> str:
    """Return one row of a LaTeX table."""
    return " & ".join(cells) + r" \\"


def frame_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Return the texts of a table: shares in percent, counts with commas, nothing for nan.

    Args:
        table: floats are shares in [0, 1]. ``X low`` and ``X high`` are the ends of the interval
            of ``X`` and become part of its cells.

    Example:
        >>> table = pd.DataFrame({"a": [0.5], "a low": [0.25], "a high": [0.75], "n": [1200]})
        >>> frame_cells(table).loc[0].tolist()
        ['50.0 (25.0–75.0)', '1,200']
        >>> frame_cells(pd.DataFrame({"a": [0.1], "a low": [-0.1], "a high": [0.2]})).loc[0].item()
        '10.0 (-10.0 to 20.0)'
    """
    columns = {}
    for name in table:
        if str(name).endswith((" low", " high")) and str(name).rpartition(" ")[0] in table:
            continue
        cells = [_cell(value) for value in table[name]]
        if f"{name} low" in table:
            ends = zip(table[f"{name} low"], table[f"{name} high"], strict=True)
            cells = [
                cell
                if pd.isna(low)
                else f"{cell} ({_cell(low)}{' to ' if low < 0 else '–'}{_cell(high)})"
                for cell, (low, high) in zip(cells, ends, strict=True)
            ]
        columns[name] = cells
    return pd.DataFrame(columns)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return percent_text(value, "")
    return f"{value:,}" if isinstance(value, int) else str(value)


def frame_latex(table: pd.DataFrame) -> str:
    """Return a table in LaTeX; long ones break across pages.

    Args:
        table: as for ``frame_cells``.
    """
    texts = frame_cells(table)
    sides = "".join("r" if is_numeric_dtype(table[name]) else "l" for name in texts)
    form, package = ("longtable", ", longtable") if len(texts) > LONG else ("tabular", "")
    head = [latex_row([escape_latex(str(name)) for name in texts])]
    for name in texts:
        texts[name] = [escape_latex(cell).replace("–", "--") for cell in texts[name]]
        if is_numeric_dtype(table[name]):
            texts[name] = [re.sub("(?<!-)-(?=[0-9])", "$-$", cell) for cell in texts[name]]
    shares = "Shares in percent. " if any(is_float_dtype(table[name]) for name in table) else ""
    notes = [rf"{shares}Needs \usepackage{{booktabs{package}}}."]
    return booktabs(notes, sides, head, [latex_row(row) for row in texts.values.tolist()], form)


def booktabs(
    notes: Sequence[str],
    sides: str,
    head: Sequence[str],
    rows: Sequence[str],
    form: str = "tabular",
) -> str:
    """Return a table of lines, with notes above it; ``sides`` aligns its columns."""
    lines = [*(f"% {note}" for note in notes), rf"\begin{{{form}}}{{{sides}}}", r"\toprule", *head]
    lines += [r"\midrule", *([r"\endhead"] if form == "longtable" else []), *rows]
    return "\n".join([*lines, r"\bottomrule", rf"\end{{{form}}}", ""])
