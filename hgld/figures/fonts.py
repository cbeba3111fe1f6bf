"""Font files for the letters of a text: matplotlib's own, then installed ones that it lacks.

DejaVu Sans has no Chinese, Japanese, Korean or Indian letters. Another font is taken only for texts
that need it, so all other figures have the same bytes on each machine. matplotlib keeps a list of
fonts that an installation since then is not in, so the files are listed anew.
"""

from functools import cache
from pathlib import Path

from matplotlib import font_manager, get_data_path
from PIL import ImageFont

from hgld.tasks import say

OWN = Path(get_data_path()) / "fonts" / "ttf"
# Beginnings of the names of files with many letters, on Linux, macOS and Windows; the best first.
PREFERRED = (
    *("NotoSans", "DroidSansFallback", "wqy-zenhei", "Arial Unicode", "Hiragino"),
    *("AppleSDGothic", "msyh", "malgun", "Nirmala"),
)
NOT_PLAIN = ("Bold", "Italic", "Mono", "Thin", "Light", "Black", "Condensed")
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


def picture_font(text: str, pixels: float, weight: str = "") -> ImageFont.FreeTypeFont:
    """Return the font that draws a text on a picture: of ``fonts_for``, the one of rare letters."""
    return _open_font(fonts_for(text, weight)[-1], pixels)


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
