"""Values with their years, as the infobox on a Commons page prints them.

The paper's labels were read from that infobox, which is why it has "church building (1172–1954)"
beside "church building": the statement's start and end time stand behind the class. Such a value
is no Wikidata class any more but a text of its own.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hgld.errors import InvalidData

__all__ = ["with_years"]

START, END, POINT = "P580", "P582", "P585"  # start time, end time, point in time
CENTURY, DECADE, YEAR = 7, 8, 9  # Wikidata's precisions; the finer ones are days and months


def with_years(label: str, qualifiers: str) -> str:
    """The label with the years of its statement behind it, where the statement has any.

    Args:
        label: of the class.
        qualifiers: of the statement, as in ``instance_of``.

    Example:
        >>> year = '{"P582": [{"time": "+1954-06-01T00:00:00Z", "precision": 11}]}'
        >>> with_years("church building", year)
        'church building (–1954)'
    """
    found = _parse(qualifiers)
    start, end, point = (_year(found.get(name, [])) for name in (START, END, POINT))
    if start or end:
        return f"{label} ({start}–{end})"
    return f"{label} ({point})" if point else label


def _parse(qualifiers: str) -> dict[str, Any]:
    try:
        found = json.loads(qualifiers)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidData(
            f"instance_of.csv: qualifiers are {qualifiers[:40]!r}; expected a JSON object, {{}} "
            "where there are none"
        )
    return found


def _year(values: Sequence[Any]) -> str:
    """The first value that is a date, as precise as it is but never finer than a year."""
    for value in values:
        if isinstance(value, Mapping) and (
            time := re.match(r"([+-])0*(\d+)-", str(value.get("time", "")))
        ):
            return _in_words(int(time[2]), int(value.get("precision", YEAR)), time[1] == "-")
    return ""


def _in_words(year: int, precision: int, before_christ: bool) -> str:
    if precision < CENTURY:
        return ""
    century, decade = -(-year // 100), f"{year // 10 * 10}s"
    words = {CENTURY: f"{century}{_ending(century)} century", DECADE: decade}
    return words.get(precision, str(year)) + " BC" * before_christ


def _ending(number: int) -> str:
    """The ending of an ordinal number: 1st, 2nd, 3rd, 11th."""
    if number % 100 in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
