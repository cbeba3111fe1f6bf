"""The colours of figures and pages differ for colour-blind readers, and from the page."""

import numpy as np
import pytest

from hgld.figures import DARK, LIGHT
from hgld.figures.theme import Theme
from hgld.report import galleries
from tests.colours import colours, contrast

LEAST_DIFFERENCE = 8.0  # CIELAB 1976
LEAST_CONTRAST = 3.0  # of graphics by WCAG 2.1
SIGHTS = {  # Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB
    "usual": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = np.array(  # of linear sRGB; the rows' sums are the white of D65
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)


def lab(rgb: np.ndarray) -> np.ndarray:
    """Return (N, 3) CIELAB values of (N, 3) linear sRGB."""
    ratio = rgb @ XYZ.T / XYZ.sum(axis=1)
    x, y, z = np.where(
        ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29
    ).T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)


def least_difference(palette: list[str], sight: str) -> float:
    """Return the least CIELAB difference of two colours of a palette, as a reader sees them."""
    parts = [[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in palette]
    srgb = np.array(parts)
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = lab((linear @ np.array(SIGHTS[sight]).T).clip(0, 1))
    apart = np.linalg.norm(seen[:, None] - seen, axis=2)
    return float(apart[np.triu_indices(len(seen), 1)].min())


def palettes(theme: Theme) -> dict[str, list[str]]:
    """Return the palettes of figures and pages in a theme."""
    report, review = colours(theme.name, "report.css"), colours(theme.name)
    states = ("open", "decided", "unsure", "stale", "conflict", "dropped")
    return {
        "series": [*theme.series],
        "groups": [*theme.groups],
        "classes": [*theme.classes],
        "frames": [report[name] for name in ("accent", "same", "near", "far")],
        "words": [report[name] for name in ("ink", "same-ink", "near-ink", "far-ink")],
        "curves": [report[name] for name in ("accent", "near-ink")],
        "dots": [review[f"{name}-dot"] for name in states],
        "fills": [review[name] for name in states],
    }


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
def test_colours_of_a_palette_differ_for_colour_blind_readers(theme: Theme, sight: str) -> None:
    found = {name: least_difference(palette, sight) for name, palette in palettes(theme).items()}
    assert {name: least for name, least in found.items() if least < LEAST_DIFFERENCE} == {}


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
def test_colours_stand_out_from_the_page(theme: Theme) -> None:
    card = colours(theme.name)["card"]
    found = {name: palette for name, palette in palettes(theme).items() if name != "fills"}
    for name, palette in found.items():
        least = 4.5 if name == "words" else LEAST_CONTRAST
        assert min(contrast(colour, card) for colour in palette) >= least, name


def test_retrieval_sheets_have_the_colours_of_the_report() -> None:
    report = colours("light", "report.css")
    assert {name: report[name] for name in galleries.FRAMES} == galleries.FRAMES
    assert report["accent"] == galleries.QUERY_FRAME


def test_differences_are_those_of_known_colours() -> None:
    """White and black are 100 apart for everybody; red and green are close without red cones."""
    for sight in SIGHTS:
        assert least_difference(["#ffffff", "#000000"], sight) == pytest.approx(100, abs=0.1)
    usual, blind = (least_difference(["#ff0000", "#808000"], s) for s in ("usual", "deuteranopia"))
    assert blind < usual / 3
