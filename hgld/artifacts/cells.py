r"""Text cells: single blanks, and escaping against formulas and type conversion in spreadsheets.

A spreadsheet runs text that looks like a formula (labels come from a public wiki), and converts
text that looks like a number, date or truth value: ``007`` would lose its zeros. A leading
apostrophe prevents both; ``unguard`` removes it.
"""

import re

import pandas as pd

from hgld.words import single_blanks

_ERRORS = (  # in the languages of spreadsheets
    "#NAME? #REF! #VALUE! #NUM! #DIV/0! #N/A #NULL! #NV #BEZUG! #WERT! #ZAHL! #NOM? #VALEUR! "
    "#NOMBRE! #NUL! #N/D #¿NOMBRE? #¡REF! #¡VALOR! #¡NUM! #¡DIV/0! #¡NULO! #NOME? #RIF! #VALORE! "
    "#VALOR! #NÚM! #NULO! #N/B #VERW! #WAARDE! #NAAM? #GETAL! #DEEL/0! #Н/Д #ССЫЛКА! #ЗНАЧ! #ИМЯ? "
    "#ЧИСЛО! #ДЕЛ/0! #ПУСТО!"
)
ERRORS = tuple(_ERRORS.split())  # shown in place of a value
_MONTH = (  # in the languages of spreadsheets: each knows the months of its own one
    r"(?:jan|feb|m[aä]r|mrz|apr|ma[iy]|ju[nl]|jui|aug|ao[uû]|sep|o[ck]t|nov|de[cz]|f[eé]v|avr"
    r"|ene|abr|ago|set|out|dic|gen|mag|giu|lug|ott|mrt|mei"
    r"|янв|фев|мар|апр|ма[йя]|июн|июл|авг|сен|окт|ноя|дек)"
)
_SIGN = r"\s.,:/%€$£¥₽₹₩()'+\-"
_NUMBER = rf"[\d{_SIGN}]*\d[\d{_SIGN}]*(?:e[+\-]?\d+)?"
_DATE = rf"\d{{1,4}}[\s./\-]*{_MONTH}\w*\W*\d*|{_MONTH}\w*[\s./\-]*\d[\d\s,./\-]*"
_DATE += r"|\d[\d\s年月日号時时分秒년월일시분초]*|\d[\d\s:.]*[ap]\.?m?\.?"  # 5月3日, 5 PM
_TRUTH = r"true|false|wahr|falsch|vrai|faux|verdadero|verdadeiro|falso|vero|waar|onwaar"
_ODD = rf"(?:[=+\-@\t\r\x00＝＋－＠].*|{_NUMBER}|{_DATE}|{_TRUTH})"
_CHANGED = re.compile(rf"'*{_ODD}", re.IGNORECASE | re.DOTALL)
_SIGNED = r"[+\-＋－]\s*[\d.,]+"  # a signed number, which is not a formula
_FORMULA = re.compile(rf"'*(?!{_SIGNED}$)[=+\-@\t\r\x00＝＋－＠].*", re.DOTALL)
_GUARDED = re.compile(rf"'+{_ODD}", re.IGNORECASE | re.DOTALL)


def single_blanks_all(column: "pd.Series[str]") -> "pd.Series[str]":
    """Return ``single_blanks`` of each cell; each distinct text is worked on once."""
    return column.map({text: single_blanks(text) for text in column.unique()}).astype("str")


def guard(cell: str) -> str:
    """Escape a cell so that no spreadsheet changes it; ``unguard`` is the inverse.

    Example:
        >>> guard("=1+1"), guard("007"), guard("'t Hof"), guard("7 wonders")
        ("'=1+1", "'007", "'t Hof", '7 wonders')
    """
    return f"'{cell}" if _CHANGED.fullmatch(cell) else cell


def unguard(cell: str) -> str:
    """Return the cell before ``guard``.

    Example:
        >>> unguard("'=1+1"), unguard("'007"), unguard("'t Hof")
        ('=1+1', '007', "'t Hof")
    """
    return cell[1:] if _GUARDED.fullmatch(cell) else cell


def guard_columns(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with every text cell guarded."""
    return table.assign(**{name: cells.map(guard) for name, cells in _texts(table).items()})


def guard_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with an apostrophe before each text that a spreadsheet would run.

    For files that programs read, too: text that looks like a number or a date is unchanged.

    Example:
        >>> guard_formulas(pd.DataFrame({"name": ["=1+1", "@home", "-5"]}))["name"].tolist()
        ["'=1+1", "'@home", '-5']
    """
    guarded = {}
    for name, cells in _texts(table).items():
        texts = cells.astype("str")
        runs = texts.str.fullmatch(_FORMULA)
        if runs.any():
            guarded[name] = cells.mask(runs, "'" + texts)
    return table.assign(**guarded)


def unguard_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table before ``guard_formulas``.

    Example:
        >>> unguard_formulas(pd.DataFrame({"name": ["'=1+1", "'007", "-5"]}))["name"].tolist()
        ['=1+1', "'007", '-5']
    """
    plain = {}
    for name, cells in _texts(table).items():
        runs = cells.str.startswith("'") & cells.str.slice(1).str.fullmatch(_FORMULA)
        plain[name] = cells.mask(runs, cells.str.slice(1))
    return table.assign(**plain)


def _texts(table: pd.DataFrame) -> "dict[str, pd.Series[str]]":
    return {str(n): cells for n, cells in table.items() if str(cells.dtype) in ("str", "object")}
