import json
from typing import Any

import pytest

from hgld.errors import InvalidData
from hgld.hierarchy.clean import with_years


def date(time: str, precision: int = 9) -> dict[str, Any]:
    return {"time": f"{time}T00:00:00Z", "precision": precision}


@pytest.mark.parametrize(
    ("qualifiers", "label"),
    [
        ({"P580": [date("+1172-00-00")], "P582": [date("+1954-00-00")]}, "church (1172–1954)"),
        ({"P580": [date("+1172-00-00")]}, "church (1172–)"),
        ({"P582": [date("+1954-06-01", 11)]}, "church (–1954)"),
        ({"P585": [date("+1066-10-14", 11)]}, "church (1066)"),
        ({"P580": ["somevalue"], "P582": [date("+1954-00-00")]}, "church (–1954)"),
        ({"P580": [date("-0450-00-00")]}, "church (450 BC–)"),
        ({"P580": [date("+1200-00-00", 7)]}, "church (12th century–)"),
        ({"P580": [date("+2001-00-00", 7)]}, "church (21st century–)"),
        ({"P580": [date("+1870-00-00", 8)]}, "church (1870s–)"),
        ({"P580": [date("+0000-00-00", 3)]}, "church"),
        ({"P580": ["novalue"]}, "church"),
        ({"P131": ["Q84"]}, "church"),
        ({}, "church"),
    ],
)
def test_years_stand_behind_the_label(qualifiers: dict[str, Any], label: str) -> None:
    assert with_years("church", json.dumps(qualifiers)) == label


@pytest.mark.parametrize("qualifiers", ["", "[]", "{", "none"])
def test_qualifiers_that_a_person_broke_are_told(qualifiers: str) -> None:
    with pytest.raises(InvalidData, match=r"instance_of\.csv: qualifiers are .* a JSON object"):
        with_years("church", qualifiers)
