"""Font files for the letters of a text: matplotlib's own, then installed ones that it lacks.

DejaVu Sans has no Chinese, Japanese, Korean or Indian letters. Another font is taken only for texts
that need it, so all other figures have the same bytes on each machine. matplotlib keeps a list of
fonts that an installation since then is not in, so the files are listed here.
"""

import logging
from functools import cache
from itertools import groupby
from pathlib import Path

from matplotlib import font_manager, get_data_path
from PIL import ImageDraw, ImageFont, features

from hgld.tasks import say

OWN = Path(get_data_path()) / "fonts" / "ttf"
# Beginnings of the names of files with many letters, on Linux, macOS and Windows; the best first.
PREFERRED = (
    *("NotoSans", "DroidSansFallback", "wqy-zenhei", "Arial Unicode", "Hiragino"),
    *("AppleSDGothic", "msyh", "malgun", "Nirmala"),
)
NOT_PLAIN = ("Bold", "Italic", "Mono", "Thin", "Light", "Black", "Condensed")
# Pillow would take that of the first letter, and move a " · " to the other side of its word
DIRECTION = "ltr" if features.check("raqm") else None
# it has no bold face of some of these, and takes the plain one
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
_named: list[str] = []  # the letter of the only notice: a report may lack hundreds


def fonts_for(text: str, weight: str = "") -> list[Path]:
    """Return the font files that draw the letters of a text, matplotlib's own first.

    A notice names the first letter that no installed font has.

    Args:
        text: any text.
        weight: of matplotlib's own font, such as "-Bold".

    Example:
        >>> [path.name for path in fonts_for("маяк")]
        ['DejaVuSans.ttf']
    """
    found = [OWN / f"DejaVuSans{weight}.ttf"]
    missing = {letter for letter in text if letter.isprintable()} - _letters(found[0])
    for path in _installed() if missing else ():
        if missing & _letters(path):
            found.append(path)
            missing -= _letters(path)
    if missing and not _named:
        _named.append(min(missing))
        say(
            f"figures draw {_named[0]} as a box: no installed font has it; install one (Debian: "
            "fonts-noto-core or fonts-noto-cjk) and run the report again with --force"
        )
    return found


@cache
def family_of(path: Path) -> str:
    """Return the name by which matplotlib finds a font file from now on."""
    font_manager.fontManager.addfont(path)
    return font_manager.get_font(path).family_name


def draw_line(
    draw: ImageDraw.ImageDraw,
    at: tuple[float, float],
    text: str,
    colour: str,
    pixels: float,
    anchor: str,
    weight: str = "",
) -> None:
    """Write a line on a picture, each letter in the first of ``fonts_for`` that has it.

    It goes from left to right, as on a page in English; Arabic words in it from right to left.

    Args:
        draw: of the picture.
        at: place of the anchor.
        text: the line.
        colour: of the letters.
        pixels: size of the font.
        anchor: Pillow's, of a line that goes from left to right: "ls" or "ms".
        weight: as of ``fonts_for``.
    """
    fonts = fonts_for(text, weight)
    if len(fonts) == 1:
        draw.text(
            at, text, colour, _open_font(fonts[0], pixels), anchor=anchor, direction=DIRECTION
        )
        return

    def font_of(letter: str) -> Path:
        return next((font for font in fonts if letter in _letters(font)), fonts[0])

    runs = [(_open_font(path, pixels), "".join(run)) for path, run in groupby(text, font_of)]
    x = at[0] - (sum(font.getlength(run) for font, run in runs) / 2 if anchor[0] == "m" else 0)
    for font, run in runs:
        draw.text((x, at[1]), run, colour, font, anchor=f"l{anchor[1]}", direction=DIRECTION)
        x += font.getlength(run)


@cache
def _open_font(path: Path, pixels: float) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(path, pixels)


@cache
def _installed() -> list[Path]:
    plain = [
        path
        for path in sorted(map(Path, font_manager.findSystemFonts()))
        if not any(word in path.stem for word in NOT_PLAIN)
    ]
    return [path for start in PREFERRED for path in plain if path.name.startswith(start)]


@cache
def _letters(path: Path) -> frozenset[str]:
    return frozenset(map(chr, font_manager.get_font(path).get_charmap()))
