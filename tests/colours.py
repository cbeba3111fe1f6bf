"""Colours of the pages by name, and their contrast."""

import re
from pathlib import Path

import numpy as np

TEMPLATES = Path("hgld/templates")


def colours(scheme: str, page: str = "review/page.css") -> dict[str, str]:
    """The colours of a page in a scheme, by name."""
    found: dict[str, str] = {}
    for name in ("palette.css", page):
        style = (TEMPLATES / name).read_text("utf-8")
        light, dark = style.split("@media (prefers-color-scheme: dark)", 1)
        for part in (light, dark if scheme == "dark" else ""):
            found |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part))
    return found


def contrast(one: str, other: str) -> float:
    """Contrast ratio of WCAG 2 (relative luminance)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    dim, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dim + 0.05)
