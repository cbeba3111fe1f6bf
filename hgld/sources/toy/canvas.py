"""Paper, camera and light for the made landmark world.

Everything is drawn in unit coordinates (x to the right, y down, the horizon near 0.62) at twice
the size and halved at the end, which smooths the edges. A camera moves and turns what stands in
the scene a little while the sky stays, so that two pictures of a landmark differ as two photos do.
Only integers and arithmetic that is exact everywhere reach the pixels: the same seed gives the
same bytes on every machine.
"""

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from PIL import Image, ImageDraw

__all__ = ["LIGHTS", "Camera", "Canvas", "Colour", "Light", "blend", "encode_jpeg", "shade"]

Colour = tuple[int, int, int]
Point = tuple[float, float]

OVERSAMPLING = 2
WHITE: Colour = (255, 255, 255)


@dataclass(frozen=True)
class Camera:
    """Where the picture is taken from: shift in units, zoom, turn (narrower and sheared)."""

    x: float = 0.0
    y: float = 0.0
    zoom: float = 1.0
    turn: float = 0.0
    tilt: float = 0.0

    def project(self, point: Point) -> Point:
        """Unit coordinates of a point as this camera sees it."""
        x, y = point[0] - 0.5, point[1] - 0.62
        across = (x * (1 - abs(self.turn) / 2) + self.turn * y * 0.25) * self.zoom
        down = (y + self.tilt * x) * self.zoom
        return across + 0.5 + self.x, down + 0.62 + self.y


@dataclass(frozen=True)
class Light:
    """The hour and the weather: sky from zenith to horizon, a tint over all, clouds."""

    name: str
    zenith: Colour
    horizon: Colour
    tint: Colour
    haze: float
    clouds: int


LIGHTS = (
    Light("noon", (74, 144, 217), (190, 224, 245), (255, 252, 246), 0.35, 2),
    Light("morning", (128, 178, 224), (250, 226, 200), (255, 240, 222), 0.5, 1),
    Light("overcast", (150, 162, 175), (210, 216, 220), (222, 228, 236), 0.6, 5),
    Light("golden", (104, 132, 190), (252, 200, 130), (255, 224, 178), 0.45, 2),
    Light("dusk", (54, 58, 112), (232, 140, 120), (206, 178, 206), 0.4, 1),
)


def blend(first: Colour, second: Colour, share: float) -> Colour:
    """The first colour with a share of the second.

    Example:
        >>> blend((0, 0, 0), (200, 100, 50), 0.5)
        (100, 50, 25)
    """
    r, g, b = (round(a + (c - a) * share) for a, c in zip(first, second, strict=True))
    return r, g, b


def shade(colour: Colour, factor: float) -> Colour:
    """A darker (below 1) or lighter (above 1) colour.

    Example:
        >>> shade((100, 200, 40), 0.5), shade((100, 200, 40), 1.5)
        ((50, 100, 20), (178, 228, 148))
    """
    return blend(colour, (0, 0, 0), 1 - factor) if factor <= 1 else blend(colour, WHITE, factor - 1)


class Canvas:
    """A picture in the making, in unit coordinates."""

    def __init__(self, size: int, camera: Camera, light: Light) -> None:
        self.size = size
        self.side = size * OVERSAMPLING
        self.camera = camera
        self.light = light
        self.image = Image.new("RGB", (self.side, self.side))
        self.pen = ImageDraw.Draw(self.image, "RGBA")

    def polygon(self, points: Iterable[Point], colour: Colour, opacity: float = 1.0) -> None:
        """Fill a polygon that stands in the scene."""
        pixels = [self._pixel(point) for point in points]
        self.pen.polygon(pixels, fill=(*colour, round(255 * opacity)))

    def box(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        """Fill an upright rectangle; (x, y) is the middle of its foot."""
        left, right, top = x - width / 2, x + width / 2, y - height
        self.polygon([(left, y), (left, top), (right, top), (right, y)], colour)

    def wall(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        """A box that is lit from the left."""
        self.box(x, y, width, height, colour)
        self.box(x + width * 0.31, y, width * 0.38, height, shade(colour, 0.82))

    def disc(
        self, x: float, y: float, across: float, down: float, colour: Colour, opacity: float = 1.0
    ) -> None:
        """Fill an ellipse by its middle and its two radii."""
        turns = [i * math.tau / 28 for i in range(28)]
        points = [(x + across * math.cos(t), y + down * math.sin(t)) for t in turns]
        self.polygon(points, colour, opacity)

    def line(self, points: Sequence[Point], colour: Colour, width: float) -> None:
        """Draw a line of a width in units."""
        pixels = [self._pixel(point) for point in points]
        thick = max(1, round(width * self.camera.zoom * self.side))
        self.pen.line(pixels, fill=colour, width=thick, joint="curve")

    def arch(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        """Fill a door or window with a round top; (x, y) is the middle of its foot."""
        self.box(x, y, width, height - width / 2, colour)
        self.disc(x, y - height + width / 2, width / 2, width / 2, colour)

    def gradient(self, top: Colour, bottom: Colour, until: float) -> None:
        """Fill the whole width from the upper edge to a height with a run of colours."""
        height = round(until * self.side)
        steps = np.arange(height)[:, None]
        colours = (np.array(top) * (height - steps) + np.array(bottom) * steps) // max(1, height)
        column = Image.fromarray(colours.astype(np.uint8)[:, None, :])
        self.image.paste(column.resize((self.side, height), Image.Resampling.NEAREST), (0, 0))

    def sky_disc(
        self, x: float, y: float, across: float, down: float, colour: Colour, opacity: float
    ) -> None:
        """Fill an ellipse in the sky, which no camera move reaches."""
        s = self.side
        bounds = [round(v * s) for v in (x - across, y - down, x + across, y + down)]
        self.pen.ellipse(bounds, fill=(*colour, round(255 * opacity)))

    def finish(self, random: Random, grain: int) -> Image.Image:
        """The picture in its size, tinted by the light, with the grain of a sensor."""
        pixels = np.asarray(self.image.reduce(OVERSAMPLING), dtype=np.int32)
        pixels = pixels * np.array(self.light.tint) // 255
        noise = np.random.RandomState(random.getrandbits(32))  # its stream never changes
        speckles = noise.randint(-grain, grain + 1, (2, self.size, self.size, 1)).sum(axis=0)
        return Image.fromarray(np.clip(pixels + speckles, 0, 255).astype(np.uint8))

    def _pixel(self, point: Point) -> Point:
        x, y = self.camera.project(point)
        return round(x * self.side), round(y * self.side)


def encode_jpeg(image: Image.Image, quality: int) -> bytes:
    """The JPEG bytes; they depend on the pixels and on Pillow's version alone."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality, optimize=False, progressive=False)
    return buffer.getvalue()
