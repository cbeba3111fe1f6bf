"""What stands around a landmark: sky, hills, ground, water, trees, walkers.

The skyline and the colours of the ground belong to a landmark's design; the clouds, the walkers
and the bushes in front change with every picture.
"""

import math
from dataclasses import dataclass
from random import Random

from hgld.sources.toy.canvas import LIGHTS, Canvas, Colour, Light, blend, shade

__all__ = [
    "BASE",
    "FLOWERS",
    "GLASS",
    "SNOW",
    "Design",
    "draw_bank",
    "draw_boat",
    "draw_foreground",
    "draw_sky",
    "draw_surroundings",
    "draw_tree",
    "draw_water",
    "new_design",
]

WALLS: tuple[Colour, ...] = (
    (236, 226, 205), (214, 196, 164), (188, 172, 150), (201, 132, 104), (228, 186, 150),
    (172, 176, 182), (240, 238, 232), (222, 205, 120), (176, 120, 110), (206, 216, 214),
)  # fmt: skip
ROOFS: tuple[Colour, ...] = (
    (150, 62, 48), (92, 96, 108), (74, 110, 108), (118, 82, 62), (58, 66, 86), (176, 92, 58),
)  # fmt: skip
ACCENTS: tuple[Colour, ...] = (
    (196, 40, 44), (32, 84, 150), (34, 120, 92), (232, 168, 40), (110, 60, 130), (30, 36, 48),
)  # fmt: skip
GROUNDS: tuple[Colour, ...] = (
    (122, 158, 78), (148, 168, 86), (96, 138, 84), (176, 170, 104), (196, 182, 136),
    (112, 150, 104),
)  # fmt: skip
WATERS: tuple[Colour, ...] = ((66, 128, 172), (58, 148, 156), (84, 120, 150), (70, 110, 140))
ROCKS: tuple[Colour, ...] = (
    (122, 118, 120), (138, 120, 104), (104, 108, 118), (150, 134, 120), (128, 106, 98),
)  # fmt: skip
COATS: tuple[Colour, ...] = ((180, 50, 50), (50, 80, 150), (240, 200, 80), (60, 60, 70))
HORIZON = 0.62
BASE = 0.8  # where buildings stand
SNOW: Colour = (246, 249, 253)
GLASS: Colour = (52, 62, 84)
FLOWERS: Colour = (238, 198, 84)


@dataclass(frozen=True)
class Design:
    """What makes a landmark itself in all its pictures; numbers without a unit are in [0, 1)."""

    wall: Colour
    roof: Colour
    accent: Colour
    ground: Colour
    water: Colour
    rock: Colour
    width: float
    height: float
    count: int
    variant: int
    side: int
    skyline: tuple[float, float, float]
    trees: tuple[tuple[float, float], ...]
    light: int


def new_design(seed: str) -> Design:
    """The design that a seed leads to, the same on every machine."""
    random = Random(seed)
    return Design(
        wall=_vary(random, random.choice(WALLS)),
        roof=_vary(random, random.choice(ROOFS)),
        accent=_vary(random, random.choice(ACCENTS)),
        ground=_vary(random, random.choice(GROUNDS)),
        water=_vary(random, random.choice(WATERS)),
        rock=_vary(random, random.choice(ROCKS)),
        width=random.random(),
        height=random.random(),
        count=random.randrange(4),
        variant=random.randrange(3),
        side=random.choice((-1, 1)),
        skyline=(random.random(), random.random(), random.random()),
        trees=_plant(random),
        light=random.randrange(len(LIGHTS)),
    )


def _vary(random: Random, colour: Colour) -> Colour:
    return shade(colour, 0.88 + 0.24 * random.random())


def _plant(random: Random) -> tuple[tuple[float, float], ...]:
    """Places and heights of the trees, to the left and right of the middle."""
    places = [random.choice((-1, 1)) * (0.3 + 0.22 * random.random()) for _ in range(5)]
    return tuple((0.5 + p, 0.09 + 0.08 * random.random()) for p in places[: random.randrange(1, 6)])


def draw_sky(canvas: Canvas, moment: Random) -> None:
    """The run of colours, the sun or moon, clouds, now and then birds."""
    light = canvas.light
    canvas.gradient(light.zenith, light.horizon, 0.8)
    if light.clouds < 3:
        _draw_sun(canvas, moment, light)
    for _ in range(moment.randrange(light.clouds + 2)):
        _draw_cloud(canvas, moment, light)
    if moment.random() < 0.3:
        _draw_birds(canvas, moment)


def _draw_sun(canvas: Canvas, moment: Random, light: Light) -> None:
    x = 0.12 + 0.76 * moment.random()
    y = 0.12 + 0.1 * moment.random() + (0.24 if light.name in ("golden", "dusk") else 0)
    glow = blend(light.horizon, (255, 255, 255), 0.6)
    for radius, opacity in ((0.11, 0.16), (0.075, 0.25), (0.045, 1.0)):
        canvas.sky_disc(x, y, radius, radius, glow, opacity)


def _draw_cloud(canvas: Canvas, moment: Random, light: Light) -> None:
    x, y = moment.random(), 0.06 + 0.3 * moment.random()
    size = 0.05 + 0.05 * moment.random()
    colour = blend((250, 250, 252), light.horizon, 0.25)
    for across, up, radius in ((-1.3, 0.0, 0.6), (0.0, -0.25, 1.0), (1.2, 0.05, 0.7)):
        canvas.sky_disc(x + across * size, y + up * size, radius * size * 1.5, radius * size * 0.7,
                        colour, 0.75)  # fmt: skip


def _draw_birds(canvas: Canvas, moment: Random) -> None:
    x, y = 0.2 + 0.6 * moment.random(), 0.12 + 0.15 * moment.random()
    for i in range(3):
        left, top = x + 0.045 * i, y + 0.03 * moment.random()
        canvas.line([(left - 0.016, top - 0.01), (left, top), (left + 0.016, top - 0.01)],
                    (60, 62, 74), 0.005)  # fmt: skip


def draw_surroundings(canvas: Canvas, design: Design, far: float = 1.0) -> None:
    """Two rows of hills and the ground up to the lower edge; ``far`` scales the hills."""
    haze = canvas.light.horizon
    for depth, height in ((0.72, 0.16), (0.4, 0.1)):
        colour = blend(shade(design.ground, 0.72), haze, depth * (0.5 + canvas.light.haze))
        canvas.polygon(_hills(design, height * far, depth), colour)
    canvas.polygon([(-1, HORIZON), (2, HORIZON), (2, 2), (-1, 2)], design.ground)
    canvas.polygon([(-1, 0.86), (2, 0.8), (2, 2), (-1, 2)], shade(design.ground, 0.9))


def _hills(design: Design, height: float, depth: float) -> list[tuple[float, float]]:
    a, b, c = design.skyline
    steps = [(i - 12) / 16 for i in range(41)]
    outline = [
        (x, HORIZON - height * (0.45 + 0.35 * math.sin(5 * x + 7 * a + 9 * depth)
                                + 0.25 * math.sin((9 + 6 * b) * x + 11 * c)))
        for x in steps
    ]  # fmt: skip
    return [(-1.0, HORIZON + 0.02), *outline, (2.0, HORIZON + 0.02)]


def draw_water(canvas: Canvas, design: Design, top: float, bottom: float, moment: Random) -> None:
    """A band of water from shore to shore with glints; colours follow the sky."""
    colour = blend(design.water, canvas.light.horizon, 0.25)
    canvas.polygon([(-1, top), (2, top), (2, bottom), (-1, bottom)], colour)
    for _ in range(9):
        x, y = moment.random() * 1.2 - 0.1, top + (bottom - top) * moment.random()
        width = 0.03 + 0.06 * moment.random()
        canvas.line([(x, y), (x + width, y)], shade(colour, 1.2), 0.005)


def draw_tree(canvas: Canvas, x: float, y: float, height: float, fir: bool, leaf: Colour) -> None:
    """A fir of three storeys or a round tree with a lit crown."""
    canvas.box(x, y, height * 0.1, height * 0.35, (96, 72, 52))
    if not fir:
        canvas.disc(x, y - height * 0.62, height * 0.3, height * 0.36, shade(leaf, 0.85))
        canvas.disc(x - height * 0.07, y - height * 0.7, height * 0.2, height * 0.24, leaf)
        return
    for storey, half in ((0.2, 0.3), (0.42, 0.24), (0.64, 0.17)):
        foot, top = y - height * storey, y - height * (storey + 0.38)
        canvas.polygon([(x - height * half, foot), (x, top), (x + height * half, foot)], leaf)
        canvas.polygon([(x, foot), (x, top), (x + height * half, foot)], shade(leaf, 0.8))


def draw_foreground(canvas: Canvas, design: Design, moment: Random) -> None:
    """The landmark's trees, then what happened to be there: walkers, bushes."""
    leaf = shade(blend(design.ground, (40, 96, 52), 0.6), 0.9)
    for x, height in design.trees:
        draw_tree(canvas, x, 0.9, height * 1.25, design.variant == 0, leaf)
    for _ in range(moment.choice((0, 0, 1, 2, 3))):
        _draw_walker(canvas, 0.1 + 0.8 * moment.random(), moment)
    if moment.random() < 0.4:
        x = moment.choice((0.02, 0.98)) + 0.1 * (moment.random() - 0.5)
        canvas.disc(x, 1.0, 0.2, 0.1 + 0.08 * moment.random(), shade(leaf, 0.75))


def _draw_walker(canvas: Canvas, x: float, moment: Random) -> None:
    y = 0.91 + 0.06 * moment.random()
    canvas.disc(x, y + 0.002, 0.022, 0.006, (30, 40, 30), 0.4)
    canvas.box(x, y, 0.014, 0.03, (52, 54, 70))
    canvas.box(x, y - 0.024, 0.02, 0.03, moment.choice(COATS))
    canvas.disc(x, y - 0.063, 0.009, 0.011, (226, 184, 150))


def draw_boat(canvas: Canvas, moment: Random, design: Design) -> None:
    """A sailing boat, half of the time."""
    if moment.random() < 0.5:
        return
    x, y = 0.15 + 0.7 * moment.random(), 0.82 + 0.06 * moment.random()
    canvas.polygon([(x - 0.05, y - 0.02), (x + 0.05, y - 0.02), (x + 0.035, y), (x - 0.035, y)],
                   (116, 74, 52))  # fmt: skip
    canvas.polygon([(x, y - 0.025), (x, y - 0.11), (x + 0.045, y - 0.03)], SNOW)
    canvas.line([(x, y - 0.02), (x, y - 0.115)], (80, 60, 48), 0.005)


def draw_bank(canvas: Canvas, design: Design) -> None:
    """The shore from which the picture is taken."""
    canvas.polygon([(-1, 0.94), (0.2, 0.9), (0.6, 0.905 + 0.02 * design.side), (2, 0.88), (2, 2),
                    (-1, 2)], design.ground)  # fmt: skip
