"""Theme of all figures: colours for light and dark pages, axes, legends and file formats.

Figures use matplotlib's own font, others only for letters that it lacks, and ignore the user's
settings, and the files (PNG, SVG, PDF) have neither date nor version, so that the same numbers give
the same bytes. The colours of a palette differ with each kind of colour blindness and from the
page; ``tests/report/test_colours.py`` measures both. Colour is never the only cue: each line also
has its dashes, each point its mark, each bar its label.
"""

import io
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from hgld.figures.fonts import family_of, fonts_for
from hgld.words import columns_of, shortened

WIDTH = 5.6  # inches; one inch is 100 px of the page
LONGEST_NAME = 48  # letters of a class beside a panel; more would leave no room for it
WIDE = 2 * WIDTH + 0.2  # of a figure over both columns
PIXELS_PER_INCH = 200  # twice the page's, for sharp screens
PAD = 0.07  # inches around each panel
LEGEND_LETTER, HANDLE = 0.07, 0.55  # inches: width of a letter of a legend, of all beside a name
LEGEND_ROW = 0.2  # inches
LOG_FROM = 30.0  # an axis is logarithmic if its values span more than this factor
COMPRESSION = 3  # of PNGs: a third of the default's time for a tenth more bytes
MARKS = "os^DvPX*"


@dataclass(frozen=True)
class Theme:
    """Colours of a page.

    Attributes:
        series: of models.
        groups: of splits and coarse classes.
        classes: of many classes at once, after those of Okabe and Ito.
    """

    name: str
    surface: str
    ink: str
    muted: str
    grid: str
    series: tuple[str, ...]
    groups: tuple[str, ...]
    classes: tuple[str, ...]


LIGHT = Theme(
    "light",
    surface="#ffffff",
    ink="#1d2330",
    muted="#5f6b7d",
    grid="#e4e7ec",
    series=("#3569d1", "#d28105", "#8a4bb0", "#1597a5", "#b74a71", "#796752"),
    groups=("#a8744f", "#2c9482", "#5b5fa8", "#8a8f3a", "#96476f", "#6e7b8c"),
    classes=(
        "#0072b2",
        "#c88600",
        "#009e73",
        "#cc79a7",
        "#379dd0",
        "#cc5700",
        "#a49438",
        "#4d4d4d",
    ),
)
DARK = Theme(
    "dark",
    surface="#1a1f2a",
    ink="#e9ecf2",
    muted="#9ba6b8",
    grid="#323a4a",
    series=("#79a4fb", "#f0ae4e", "#c18fde", "#4fc4d0", "#e888a6", "#b9a68f"),
    groups=("#d6a27c", "#5fc7af", "#989de8", "#c2c76a", "#ca7ea7", "#abb6c7"),
    classes=(
        "#3d9fdb",
        "#f0b440",
        "#2bc498",
        "#e09ec3",
        "#8dd0f7",
        "#f5843a",
        "#efe45a",
        "#ccd0da",
    ),
)


def mark_of(number: int, theme: Theme) -> tuple[str, str]:
    """Colour and mark of the class with this number; 64 of them differ.

    Example:
        >>> mark_of(0, LIGHT), mark_of(8, LIGHT)
        (('#0072b2', 'o'), ('#0072b2', 's'))
    """
    rounds, place = divmod(number, len(theme.classes))
    return theme.classes[place], MARKS[(place + rounds) % len(MARKS)]


def readable_on(fill: Any, theme: Theme) -> str:
    """The page's ink or its surface, whichever has the higher contrast with the fill (WCAG 2).

    Example:
        >>> readable_on("white", LIGHT), readable_on("black", LIGHT)
        ('#1d2330', '#ffffff')
    """

    def luminance(colour: Any) -> float:
        parts = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)
        ]
        return sum(c * share for c, share in zip(parts, (0.2126, 0.7152, 0.0722), strict=True))

    def contrast(ink: str) -> float:
        dim, bright = sorted((luminance(ink), luminance(fill)))
        return (bright + 0.05) / (dim + 0.05)

    return max(theme.ink, theme.surface, key=contrast)


@contextmanager
def _style(theme: Theme) -> Iterator[None]:
    """Apply the theme's settings and ignore the user's matplotlibrc."""
    style: dict[str, Any] = {
        "font.size": 9,
        "text.parse_math": False,  # a class may be called "$"
        "text.color": theme.ink,
        "axes.edgecolor": theme.grid,
        "axes.labelcolor": theme.muted,
        "axes.axisbelow": True,
        "xtick.color": theme.muted,
        "ytick.color": theme.muted,
        "grid.color": theme.grid,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "xtick.minor.size": 0,
        "ytick.minor.size": 0,
        "svg.hashsalt": "hgld",  # ids of clip paths and markers: the same in each run
        "pdf.fonttype": 42,  # TrueType: text stays text, and publishers refuse Type 3
    }
    with matplotlib.style.context(["default", style]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # ``fonts_for`` has said it
        yield


@contextmanager
def _fonts_without_shaping() -> Iterator[None]:
    """Embed fonts without the tables that choose and move letters.

    A PDF has its letters in place, and to cut down these tables takes half of a PDF's time.
    """
    from fontTools import subset  # slow to import, and matplotlib does so for PDFs alone

    load = subset.load_font

    def load_bare(file: Any, options: subset.Options, **settings: Any) -> Any:
        options.drop_tables += ["GDEF", "GPOS", "GSUB"]
        return load(file, options, **settings)

    subset.load_font = load_bare
    try:
        yield
    finally:
        subset.load_font = load


@contextmanager
def open_figure(theme: Theme, width: float, height: float) -> Iterator[Figure]:
    """An empty figure; the block draws on it in the theme's style.

    Panels, their labels and legends are laid out so that none touches another.

    Args:
        theme: of the page.
        width: in inches.
        height: in inches.
    """
    with _style(theme):
        figure = Figure((width, height), PIXELS_PER_INCH, facecolor=theme.surface)
        layout = ConstrainedLayoutEngine(w_pad=PAD, h_pad=PAD)
        figure.set_layout_engine(layout)
        yield figure
        texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
        fonts = fonts_for("".join({text.get_text() for text in texts}))
        if len(fonts) > 1:
            families = [family_of(font) for font in fonts]
            for text in texts:
                text.set_fontfamily(families)
        layout.execute(figure)  # once: the file of each format would repeat it
        figure.set_layout_engine(None)  # with "none", saving a file would draw twice


def add_axes(
    figure: Figure,
    theme: Theme,
    place: tuple[int, int, int] = (1, 1, 1),
    grid_axis: str = "y",
) -> Axes:
    """A panel with a quiet grid and no frame."""
    axes: Axes = figure.add_subplot(*place, facecolor=theme.surface)
    axes.grid(axis=grid_axis, linewidth=0.8)  # type: ignore[arg-type]
    axes.spines[["top", "right", "left"]].set_visible(False)
    return axes


def fit_legend(names: Iterable[str], most: int, width: float) -> tuple[list[str], int, float]:
    """Shorten names to a width in inches; return them, the columns beside each other, and more.

    The last is the height in inches of the rows below the first one, for which figures have room.

    Args:
        names: of the entries.
        most: columns, if they have room.
        width: of the legend in inches.

    Example:
        >>> fit_legend(["natural", "human-made"], 4, WIDTH)
        (['natural', 'human-made'], 2, 0.0)
        >>> fit_legend(["clothing", "toys", "home, kitchen & dining"], 3, 1.8)
        (['clothing', 'toys', 'home, kitchen & …'], 1, 0.4)
    """
    fitting = [shortened(name, int((width - HANDLE) / LEGEND_LETTER)) for name in names]
    widest = HANDLE + LEGEND_LETTER * max(map(columns_of, fitting), default=0)
    columns = max(1, min(most, len(fitting), int(width / widest)))
    return fitting, columns, LEGEND_ROW * max(0, -(-len(fitting) // columns) - 1)


def add_legend(axes: Axes, theme: Theme, columns: int = 3, inside: str = "") -> None:
    """The legend above the panel, or inside it at a place such as "upper right"."""
    above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (-0.01, 1.0)}
    handles, labels = axes.get_legend_handles_labels()
    # matplotlib fills columns; names are read row by row, in the order of bars and lines
    order = [i for first in range(columns) for i in range(first, len(handles), columns)]
    axes.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        frameon=False,
        labelcolor=theme.ink,
        ncols=columns,
        fontsize=9,
        handlelength=1.6,
        columnspacing=1.4,
        **({"loc": inside} if inside else above),
    )


def scale_axis(axes: Axes, axis: str, smallest: float, largest: float) -> None:
    """Use a logarithmic axis if values span orders of magnitude; tick labels are plain numbers."""
    setter, ticks = (axes.set_xscale, axes.xaxis) if axis == "x" else (axes.set_yscale, axes.yaxis)
    span = largest / max(smallest, 1)
    if span > LOG_FROM:
        setter("log")
        ticks.set_major_locator(
            LogLocator(subs=(1, 2, 5) if span < (60 if axis == "x" else 300) else (1,))
        )
    else:
        ticks.set_major_locator(MaxNLocator("auto", integer=True))
    ticks.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ticks.set_minor_formatter(NullFormatter())


@dataclass(frozen=True)
class Drawing:
    """A finished figure, to be saved in several formats."""

    figure: Figure
    theme: Theme

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        width, height = self.figure.get_size_inches()
        return float(width), float(height)

    def png(self) -> bytes:
        """The figure as a PNG file."""
        pil: dict[str, Any] = {"pil_kwargs": {"compress_level": COMPRESSION}}
        return self._save("png", {"Software": None}, dpi=PIXELS_PER_INCH, **pil)

    def vector(self, form: str) -> bytes:
        """The figure as an SVG file (text as outlines) or a PDF file (text as text).

        Args:
            form: svg or pdf.
        """
        unnamed = {"svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer")}
        with _fonts_without_shaping() if form == "pdf" else nullcontext():
            return self._save(form, dict.fromkeys(unnamed[form]))

    def _save(self, form: str, metadata: dict[str, None], **settings: Any) -> bytes:
        buffer = io.BytesIO()
        with _style(self.theme):  # labels of ticks are made while the figure is saved
            self.figure.savefig(
                buffer,
                format=form,
                facecolor=self.figure.get_facecolor(),
                metadata=metadata,
                **settings,
            )
        return buffer.getvalue()
