r"""Cells that a spreadsheet leaves as they are.

A spreadsheet runs what looks like a formula (the words come from a public wiki), and makes numbers,
dates and truth values of what looks like one: ``007`` would lose its zeros. An apostrophe in front
stops both, and ``unguard`` takes it away again.
"""

import re

import pandas as pd

__all__ = ["guard", "guard_columns", "guard_formulas", "unguard"]

_MONTH = r"(?:jan|feb|m[aä]r|mrz|apr|ma[iy]|ju[nl]|jui|aug|ao[uû]|sep|o[ck]t|nov|de[cz]|f[eé]v|avr)"
_NUMBER = r"[\d\s.,:/%€$£()'+\-]*\d[\d\s.,:/%€$£()'+\-]*(?:e[+\-]?\d+)?"
_DATE = rf"\d{{1,4}}[\s./\-]*{_MONTH}\w*\W*\d*|{_MONTH}\w*[\s./\-]*\d[\d\s,./\-]*"
_TRUTH = r"true|false|wahr|falsch|vrai|faux"
_ODD = rf"(?:[=+\-@\t\r\x00＝＋－＠].*|{_NUMBER}|{_DATE}|{_TRUTH})"
_CHANGED = re.compile(rf"'*{_ODD}", re.IGNORECASE | re.DOTALL)
_SIGNED = r"[+\-＋－]\s*[\d.,]+"  # a plain number is no formula
_FORMULA = re.compile(rf"'*(?!{_SIGNED}$)[=+\-@\t\r\x00＝＋－＠].*", re.DOTALL)
_GUARDED = re.compile(rf"'+{_ODD}", re.IGNORECASE | re.DOTALL)


def guard(cell: str) -> str:
    """The cell so that no spreadsheet changes it; ``unguard`` undoes it.

    Example:
        >>> guard("=1+1"), guard("007"), guard("'t Hof"), guard("7 wonders")
        ("'=1+1", "'007", "'t Hof", '7 wonders')
    """
    return f"'{cell}" if _CHANGED.fullmatch(cell) else cell


def unguard(cell: str) -> str:
    """The cell as it was before ``guard``.

    Example:
        >>> unguard("'=1+1"), unguard("'007"), unguard("'t Hof")
        ('=1+1', '007', "'t Hof")
    """
    return cell[1:] if _GUARDED.fullmatch(cell) else cell


def guard_columns(table: pd.DataFrame) -> pd.DataFrame:
    """The table with every text cell guarded."""
    texts = [str(name) for name in table if str(table[name].dtype) in ("str", "object")]
    return table.assign(**{name: table[name].map(guard) for name in texts})


def guard_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """The table with an apostrophe in front of texts that a spreadsheet would run.

    For files that programs read, too: numbers and dates stay as they are.

    Example:
        >>> guard_formulas(pd.DataFrame({"name": ["=1+1", "@home", "-5"]}))["name"].tolist()
        ["'=1+1", "'@home", '-5']
    """
    texts = [str(name) for name in table if str(table[name].dtype) in ("str", "object")]
    found = {name: table[name].astype("str").str.fullmatch(_FORMULA) for name in texts}
    return table.assign(
        **{
            n: table[n].mask(runs, "'" + table[n].astype("str"))
            for n, runs in found.items()
            if runs.any()
        }
    )
