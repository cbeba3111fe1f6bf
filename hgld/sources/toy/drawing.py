"""Canvas, camera, light and scenery of the drawn landmarks.

Coordinates are units, x to the right and y down, with the horizon near 0.62. The camera moves and
turns the scene a little but not the sky, so two pictures of a landmark differ as two photos do. The
picture is drawn at twice its size and halved at the end, which smooths the edges. Only integers and
arithmetic that is exact everywhere reach the pixels: the same seed gives the same bytes on every
machine.

In each function, ``c`` is the canvas, ``d`` the landmark's design, which is the same in all its
pictures, and ``moment`` the random numbers of one picture.
"""

import io
import math
from random import Random
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

Colour = tuple[int, ...]  # red, green, blue

HORIZON = 0.62
BASE = 0.8  # the foot of buildings
GRAIN = 5  # of 255
JPEG_QUALITY = 88
CIRCLE = [(math.cos(t), math.sin(t)) for t in (i * math.tau / 28 for i in range(28))]  # 28 points


def palette(text: str) -> tuple[Colour, ...]:
    """Colours from hexadecimal codes.

    Example:
        >>> palette("ff0000 00ff00")
        ((255, 0, 0), (0, 255, 0))
    """
    return tuple(tuple(bytes.fromhex(code)) for code in text.split())


WALLS = palette("ece2cd d6c4a4 bcac96 c98468 e4ba96 acb0b6 f0eee8 decd78 b0786e ced8d6")
ROOFS = palette("963e30 5c606c 4a6e6c 76523e 3a4256 b05c3a")
ACCENTS = palette("c4282c 205496 22785c e8a828 6e3c82 1e2430")
GROUNDS = palette("7a9e4e 94a856 608a54 b0aa68 c4b688 709668")
WATERS = palette("4280ac 3a949c 547896 466e8c")
ROCKS = palette("7a7678 8a7868 686c76 968678 806a62")
COATS = palette("b43232 325096 f0c850 3c3c46")
SNOW, GLASS, FLOWERS = palette("f6f9fd 343e54 eec654")


class Light(NamedTuple):
    """The hour and the weather: colours of zenith, horizon and a tint over all, clouds."""

    name: str
    colours: tuple[Colour, ...]
    haze: float
    clouds: int


LIGHTS = (
    Light("noon", palette("4a90d9 bee0f5 fffcf6"), 0.35, 2),
    Light("morning", palette("80b2e0 fae2c8 fff0de"), 0.5, 1),
    Light("overcast", palette("96a2af d2d8dc dee4ec"), 0.6, 5),
    Light("golden", palette("6884be fcc882 ffe0b2"), 0.45, 2),
    Light("dusk", palette("363a70 e88c78 ceb2ce"), 0.4, 1),
)


def blend(first: Colour, second: Colour, share: float) -> Colour:
    """The first colour with a share of the second.

    Example:
        >>> blend((0, 0, 0), (200, 100, 50), 0.5)
        (100, 50, 25)
    """
    return tuple(round(a + (b - a) * share) for a, b in zip(first, second, strict=True))


def shade(colour: Colour, factor: float) -> Colour:
    """A darker (below 1) or lighter (above 1) colour.

    Example:
        >>> shade((100, 200, 40), 0.5), shade((100, 200, 40), 1.5)
        ((50, 100, 20), (178, 228, 148))
    """
    white = (255, 255, 255)
    return blend(colour, (0, 0, 0), 1 - factor) if factor <= 1 else blend(colour, white, factor - 1)


class Design:
    """Constant looks of a landmark in all its pictures; numbers without a unit are in [0, 1)."""

    def __init__(self, seed: str) -> None:
        random = Random(seed)

        def vary(colours: tuple[Colour, ...]) -> Colour:
            return shade(random.choice(colours), 0.88 + 0.24 * random.random())

        self.wall, self.roof, self.accent = vary(WALLS), vary(ROOFS), vary(ACCENTS)
        self.ground, self.water, self.rock = vary(GROUNDS), vary(WATERS), vary(ROCKS)
        self.width, self.height = random.random(), random.random()
        self.count, self.variant = random.randrange(4), random.randrange(3)
        self.side = random.choice((-1, 1))
        self.skyline = random.random(), random.random(), random.random()
        places = [random.choice((-1, 1)) * (0.3 + 0.22 * random.random()) for _ in range(5)]
        places = places[: random.randrange(1, 6)]
        self.trees = [(0.5 + place, 0.09 + 0.08 * random.random()) for place in places]
        self.light = LIGHTS[random.randrange(len(LIGHTS))]


class Canvas:
    """A picture in the making, seen by a camera that the moment places."""

    def __init__(self, size: int, light: Light, moment: Random) -> None:
        self.size, self.side, self.light = size, 2 * size, light
        self.zenith, self.horizon, self.tint = light.colours
        self.x, self.y = 0.24 * (moment.random() - 0.5), 0.12 * (moment.random() - 0.5)
        self.zoom = 0.75 + 0.65 * moment.random()
        self.turn, self.tilt = 0.9 * (moment.random() - 0.5), 0.08 * (moment.random() - 0.5)
        self.image = Image.new("RGB", (self.side, self.side))
        self.pen = ImageDraw.Draw(self.image, "RGBA")

    def fill(self, colour: Colour, *points: float, opacity: float = 1.0) -> None:
        """Fill a polygon of the scene; its points are x, y, x, y and so on."""
        self.pen.polygon(self._project(points), fill=(*colour, round(255 * opacity)))

    def line(self, colour: Colour, width: float, *points: float) -> None:
        """Draw a line of a width in units."""
        thick = max(1, round(width * self.zoom * self.side))
        self.pen.line(self._project(points), fill=colour, width=thick, joint="curve")

    def band(self, colour: Colour, top: float, bottom: float) -> None:
        """Fill the scene from one height to another, beyond both sides of the picture."""
        self.fill(colour, -1, top, 2, top, 2, bottom, -1, bottom)

    def box(self, colour: Colour, x: float, y: float, width: float, height: float) -> None:
        """Fill an upright rectangle; (x, y) is the middle of its foot."""
        left, right, top = x - width / 2, x + width / 2, y - height
        self.fill(colour, left, y, left, top, right, top, right, y)

    def wall(self, colour: Colour, x: float, y: float, width: float, height: float) -> None:
        """A box that is lit from the left."""
        self.box(colour, x, y, width, height)
        self.box(shade(colour, 0.82), x + width * 0.31, y, width * 0.38, height)

    def cone(
        self, colour: Colour, x: float, y: float, half: float, top: float, dark: float = 0.8
    ) -> None:
        """A triangle with a dark right side; (x, y) is the middle of its foot."""
        self.fill(colour, x - half, y, x, top, x + half, y)
        self.fill(shade(colour, dark), x, y, x, top, x + half, y)

    def taper(
        self, colour: Colour, x: float, y: float, foot: float, top: float, head: float
    ) -> None:
        """A tower with a dark right side, half as wide as ``foot`` below and ``head`` above."""
        self.fill(colour, x - foot, y, x - head, top, x + head, top, x + foot, y)
        dark, side = shade(colour, 0.8), (x + foot * 0.3, y, x + head * 0.3, top)
        self.fill(dark, *side, x + head, top, x + foot, y)

    def disc(
        self, colour: Colour, x: float, y: float, across: float, down: float, opacity: float = 1.0
    ) -> None:
        """Fill an ellipse by its middle and its two radii."""
        points = [v for c, s in CIRCLE for v in (x + across * c, y + down * s)]
        self.fill(colour, *points, opacity=opacity)

    def arch(self, colour: Colour, x: float, y: float, width: float, height: float) -> None:
        """Fill a door or window with a round top; (x, y) is the middle of its foot."""
        self.box(colour, x, y, width, height - width / 2)
        self.disc(colour, x, y - height + width / 2, width / 2, width / 2)

    def gradient(self, top: Colour, bottom: Colour, until: float) -> None:
        """Fill the sky from the upper edge to a height with a run of colours."""
        height = round(until * self.side)
        steps = np.arange(height)[:, None]
        colours = (np.array(top) * (height - steps) + np.array(bottom) * steps) // max(1, height)
        column = Image.fromarray(colours.astype(np.uint8)[:, None, :])
        self.image.paste(column.resize((self.side, height), Image.Resampling.NEAREST), (0, 0))

    def sky_disc(
        self, colour: Colour, x: float, y: float, across: float, down: float, opacity: float
    ) -> None:
        """Fill an ellipse in the sky, which no camera move reaches."""
        bounds = [round(v * self.side) for v in (x - across, y - down, x + across, y + down)]
        self.pen.ellipse(bounds, fill=(*colour, round(255 * opacity)))

    def encode(self, moment: Random) -> bytes:
        """The JPEG, tinted by the light, with the grain of a sensor; it depends on Pillow too."""
        tinted = self.image.reduce(2).point([v * t // 255 for t in self.tint for v in range(256)])
        noise = np.random.RandomState(moment.getrandbits(32))  # its stream never changes
        speckles = noise.randint(-GRAIN, GRAIN + 1, (2, self.size, self.size, 1))
        pixels = np.asarray(tinted) + speckles.sum(axis=0, dtype=np.int16)
        image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=JPEG_QUALITY, optimize=False, progressive=False)
        return buffer.getvalue()

    def _project(self, points: tuple[float, ...]) -> list[tuple[int, int]]:
        """Pixels of points as the camera sees them."""
        turn, tilt, zoom, side = self.turn, self.tilt, self.zoom, self.side
        narrow, pixels = 1 - abs(turn) / 2, []
        for right, low in zip(points[::2], points[1::2], strict=True):
            x, y = right - 0.5, low - HORIZON
            across = (x * narrow + turn * y * 0.25) * zoom + 0.5 + self.x
            down = (y + tilt * x) * zoom + HORIZON + self.y
            pixels.append((round(across * side), round(down * side)))
        return pixels


def draw_sky(c: Canvas, moment: Random) -> None:
    """The run of colours, the sun or moon, clouds, now and then birds."""
    light = c.light
    c.gradient(c.zenith, c.horizon, 0.8)
    if light.clouds < 3:
        x = 0.12 + 0.76 * moment.random()
        y = 0.12 + 0.1 * moment.random() + (0.24 if light.name in ("golden", "dusk") else 0)
        glow = blend(c.horizon, (255, 255, 255), 0.6)
        for radius, opacity in ((0.11, 0.16), (0.075, 0.25), (0.045, 1.0)):
            c.sky_disc(glow, x, y, radius, radius, opacity)
    colour = blend((250, 250, 252), c.horizon, 0.25)
    for _ in range(moment.randrange(light.clouds + 2)):
        x, y = moment.random(), 0.06 + 0.3 * moment.random()
        size = 0.05 + 0.05 * moment.random()
        for along, up, part in ((-1.3, 0.0, 0.6), (0.0, -0.25, 1.0), (1.2, 0.05, 0.7)):
            across, down = part * size * 1.5, part * size * 0.7
            c.sky_disc(colour, x + along * size, y + up * size, across, down, 0.75)
    if moment.random() < 0.3:
        x, y = 0.2 + 0.6 * moment.random(), 0.12 + 0.15 * moment.random()
        for i in range(3):
            left, top = x + 0.045 * i, y + 0.03 * moment.random()
            wings = (left - 0.016, top - 0.01, left, top, left + 0.016, top - 0.01)
            c.line((60, 62, 74), 0.005, *wings)


def draw_surroundings(c: Canvas, d: Design) -> None:
    """Two rows of hills and the ground up to the lower edge."""
    first, second, third = d.skyline
    for depth, height in ((0.72, 0.16), (0.4, 0.1)):
        outline: list[float] = []
        for x in ((i - 12) / 16 for i in range(41)):
            wave = 0.45 + 0.35 * math.sin(5 * x + 7 * first + 9 * depth)
            wave += 0.25 * math.sin((9 + 6 * second) * x + 11 * third)
            outline += x, HORIZON - height * wave
        colour = blend(shade(d.ground, 0.72), c.horizon, depth * (0.5 + c.light.haze))
        c.fill(colour, -1, HORIZON + 0.02, *outline, 2, HORIZON + 0.02)
    c.band(d.ground, HORIZON, 2)
    c.fill(shade(d.ground, 0.9), -1, 0.86, 2, 0.8, 2, 2, -1, 2)


def draw_water(c: Canvas, d: Design, top: float, bottom: float, moment: Random) -> None:
    """A band of water from shore to shore with glints; its colour follows the sky."""
    colour = blend(d.water, c.horizon, 0.25)
    c.band(colour, top, bottom)
    for _ in range(9):
        x, y = moment.random() * 1.2 - 0.1, top + (bottom - top) * moment.random()
        width = 0.03 + 0.06 * moment.random()
        c.line(shade(colour, 1.2), 0.005, x, y, x + width, y)


def draw_tree(c: Canvas, leaf: Colour, x: float, y: float, height: float, fir: bool) -> None:
    """A fir of three storeys or a round tree with a lit crown."""
    c.box((96, 72, 52), x, y, height * 0.1, height * 0.35)
    if fir:
        for storey, half in ((0.2, 0.3), (0.42, 0.24), (0.64, 0.17)):
            c.cone(leaf, x, y - height * storey, height * half, y - height * (storey + 0.38))
    else:
        c.disc(shade(leaf, 0.85), x, y - height * 0.62, height * 0.3, height * 0.36)
        c.disc(leaf, x - height * 0.07, y - height * 0.7, height * 0.2, height * 0.24)


def draw_foreground(c: Canvas, d: Design, moment: Random) -> None:
    """The landmark's trees, then what happened to be there: walkers, a bush."""
    leaf = shade(blend(d.ground, (40, 96, 52), 0.6), 0.9)
    for x, height in d.trees:
        draw_tree(c, leaf, x, 0.9, height * 1.25, d.variant == 0)
    for _ in range(moment.choice((0, 0, 1, 2, 3))):
        x, y = 0.1 + 0.8 * moment.random(), 0.91 + 0.06 * moment.random()
        c.disc((30, 40, 30), x, y + 0.002, 0.022, 0.006, 0.4)
        c.box((52, 54, 70), x, y, 0.014, 0.03)
        c.box(moment.choice(COATS), x, y - 0.024, 0.02, 0.03)
        c.disc((226, 184, 150), x, y - 0.063, 0.009, 0.011)
    if moment.random() < 0.4:
        x = moment.choice((0.02, 0.98)) + 0.1 * (moment.random() - 0.5)
        c.disc(shade(leaf, 0.75), x, 1.0, 0.2, 0.1 + 0.08 * moment.random())


def draw_boat(c: Canvas, moment: Random) -> None:
    """A sailing boat, half of the time."""
    if moment.random() >= 0.5:
        x, y = 0.15 + 0.7 * moment.random(), 0.82 + 0.06 * moment.random()
        deck = y - 0.02
        c.fill((116, 74, 52), x - 0.05, deck, x + 0.05, deck, x + 0.035, y, x - 0.035, y)
        c.fill(SNOW, x, y - 0.025, x, y - 0.11, x + 0.045, y - 0.03)
        c.line((80, 60, 48), 0.005, x, deck, x, y - 0.115)


def draw_bank(c: Canvas, d: Design) -> None:
    """The shore from which the picture is taken."""
    middle = 0.905 + 0.02 * d.side
    c.fill(d.ground, -1, 0.94, 0.2, 0.9, 0.6, middle, 2, 0.88, 2, 2, -1, 2)
