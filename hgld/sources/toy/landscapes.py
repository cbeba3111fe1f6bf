"""Mountains, hills, lakes, reservoirs and waterfalls."""

import math
from random import Random

from hgld.sources.toy.canvas import Canvas, blend, shade
from hgld.sources.toy.scenery import (
    FLOWERS,
    SNOW,
    Design,
    draw_bank,
    draw_boat,
    draw_tree,
    draw_water,
)

__all__ = ["draw_hill", "draw_lake", "draw_mountain", "draw_reservoir", "draw_waterfall"]


def draw_mountain(canvas: Canvas, design: Design, moment: Random) -> None:
    """Jagged peaks with snow and a forest at the foot."""
    spans = ((0.5, 1.0), (0.5 + design.side * 0.3, 0.72), (0.5 - design.side * 0.27, 0.55))
    peaks = spans[: 1 + design.count % 3]
    for x, share in reversed(peaks):
        _draw_peak(canvas, design, x, share)
    _draw_forest(canvas, design, 0.72)


def _draw_peak(canvas: Canvas, design: Design, x: float, share: float) -> None:
    tall = (0.38 + 0.18 * design.height) * share
    half = (0.34 + 0.16 * design.width) * (0.5 + share / 2)
    top, foot = 0.68 - tall, 0.68
    rock = blend(design.rock, canvas.light.horizon, 0.25 * (1 - share) + 0.1)
    lean = x + design.side * 0.04
    left, right = (x - half, foot), (x + half, foot)
    mid = (x - half * 0.45, foot - tall * 0.52)
    canvas.polygon([left, mid, (lean, top), (x + half * 0.5, foot - tall * 0.45), right], rock)
    dark = [(lean, top), (x + half * 0.5, foot - tall * 0.45), right, (x + half * 0.12, foot),
            (x + half * 0.2, foot - tall * 0.4), (x - half * 0.02, foot - tall * 0.62)]  # fmt: skip
    canvas.polygon(dark, shade(rock, 0.74))
    snow = 0.22 + 0.2 * design.skyline[2]
    edge = [(lean - half * 0.5 * snow * 1.5, top + tall * snow),
            (lean - half * 0.24 * snow * 1.5, top + tall * snow * 0.72),
            (lean, top + tall * snow * 1.12),
            (lean + half * 0.22 * snow * 1.6, top + tall * snow * 0.7),
            (lean + half * 0.46 * snow * 1.9, top + tall * snow)]  # fmt: skip
    canvas.polygon([*edge[:3], (lean, top)], SNOW)
    canvas.polygon([(lean, top), *edge[2:]], blend(SNOW, (150, 170, 205), 0.4))


def _draw_forest(canvas: Canvas, design: Design, y: float) -> None:
    leaf = blend(shade(design.ground, 0.62), (28, 74, 60), 0.5)
    canvas.polygon([(-1, y - 0.02), (2, y - 0.02), (2, y + 0.03), (-1, y + 0.05)], leaf)
    wave = 6 + 8 * design.skyline[0]
    for i in range(26):
        x = -0.14 + 0.05 * i
        draw_tree(canvas, x, y + 0.012, 0.075 + 0.03 * math.sin(wave * x + 5 * design.skyline[1]),
                  True, leaf)  # fmt: skip


def draw_hill(canvas: Canvas, design: Design, moment: Random) -> None:
    """A round green hill with hedged fields, a path and trees on top."""
    tall, half = 0.2 + 0.12 * design.height, 0.42 + 0.16 * design.width
    x = 0.5 + design.side * 0.05
    green = blend(design.ground, (104, 160, 70), 0.35)
    canvas.disc(x + design.side * 0.34, 0.74, half * 0.9, tall * 0.62, shade(green, 0.78))
    canvas.disc(x, 0.76, half, tall + 0.1, green)
    canvas.disc(x + 0.12, 0.78, half * 0.74, tall + 0.03, shade(green, 0.92))
    for i in range(2 + design.count):
        across = x - half * 0.5 + half * i * 0.4
        patch = (shade(design.accent, 1.5), FLOWERS, shade(green, 1.2))[(i + design.variant) % 3]
        corners = [(across, 0.73), (across + 0.03, 0.66), (across + 0.12, 0.665),
                   (across + 0.11, 0.735)]  # fmt: skip
        canvas.polygon(corners, blend(patch, green, 0.45))
    canvas.line([(x - 0.1, 0.8), (x + 0.03, 0.7), (x - 0.03, 0.62), (x, 0.68 - tall)],
                (214, 196, 160), 0.014)  # fmt: skip
    for i in range(1 + design.variant * 2):
        draw_tree(canvas, x + 0.045 * (i - design.variant), 0.672 - tall, 0.11, design.count > 1,
                  shade(green, 0.6))  # fmt: skip


def draw_lake(canvas: Canvas, design: Design, moment: Random) -> None:
    """A wide water with mountains behind, mirrored, and a wooded shore."""
    _draw_far_peaks(canvas, design)
    _draw_forest(canvas, design, 0.645)
    draw_water(canvas, design, 0.66, 0.9, moment)
    _draw_mirror(canvas, design)
    bend, sand = 0.16 * design.width, blend(design.ground, (226, 208, 160), 0.35)
    shore = [(-0.3, 0.84 + bend * 0.3), (0.2, 0.9), (0.5 + design.side * 0.2, 0.86 + bend * 0.5),
             (0.9, 0.89), (1.3, 0.8), (1.3, 1.3), (-0.3, 1.3)]  # fmt: skip
    canvas.polygon(shore, sand)
    canvas.disc(0.5 - design.side * 0.24, 0.73, 0.06 + 0.05 * design.height, 0.014,
                shade(design.ground, 0.8))  # fmt: skip
    draw_tree(canvas, 0.5 - design.side * 0.24, 0.73, 0.09, design.variant == 0,
              shade(design.ground, 0.6))  # fmt: skip
    draw_boat(canvas, moment, design)


def _draw_far_peaks(canvas: Canvas, design: Design) -> None:
    rock = blend(design.rock, canvas.light.horizon, 0.4)
    for i in range(2 + design.count):
        x = 0.06 + 0.88 * ((i * 0.37 + design.skyline[0]) % 1)
        tall = 0.12 + 0.16 * ((i * 0.61 + design.skyline[1]) % 1)
        half = tall * (0.9 + design.skyline[2])
        canvas.polygon([(x - half, 0.66), (x, 0.66 - tall), (x + half, 0.66)], rock)
        canvas.polygon([(x, 0.66 - tall), (x + half, 0.66), (x + half * 0.1, 0.66)],
                       shade(rock, 0.84))  # fmt: skip
        if design.variant:
            canvas.polygon([(x - half * 0.25, 0.66 - tall * 0.75), (x, 0.66 - tall),
                            (x + half * 0.25, 0.66 - tall * 0.75), (x, 0.66 - tall * 0.62)],
                           SNOW)  # fmt: skip


def _draw_mirror(canvas: Canvas, design: Design) -> None:
    dark = blend(design.water, design.rock, 0.5)
    for i in range(2 + design.count):
        x = 0.06 + 0.88 * ((i * 0.37 + design.skyline[0]) % 1)
        tall = 0.07 + 0.1 * ((i * 0.61 + design.skyline[1]) % 1)
        canvas.polygon([(x - tall, 0.66), (x, 0.66 + tall), (x + tall, 0.66)], dark, 0.4)


def draw_reservoir(canvas: Canvas, design: Design, moment: Random) -> None:
    """A lake that ends at a straight dam with a walk and an intake tower."""
    _draw_far_peaks(canvas, design)
    _draw_forest(canvas, design, 0.64)
    draw_water(canvas, design, 0.655, 1.3, moment)
    _draw_mirror(canvas, design)
    concrete = blend(design.wall, (186, 186, 184), 0.6)
    level = 0.76 + 0.05 * design.height
    near, far = 0.5 - design.side * 0.8, 0.5 + design.side * 0.3
    canvas.polygon([(near, level + 0.06), (far, 0.68), (far + design.side * 0.3, 0.655),
                    (far + design.side * 0.3, 0.685), (far, 0.73), (near, level + 0.22)],
                   concrete)  # fmt: skip
    canvas.polygon([(near, level + 0.22), (far, 0.73), (far + design.side * 0.3, 0.685),
                    (far + design.side * 0.9, 1.3), (near, 1.3)], design.ground)  # fmt: skip
    canvas.line([(near, level + 0.06), (far, 0.68), (far + design.side * 0.3, 0.655)],
                shade(concrete, 1.3), 0.012)  # fmt: skip
    for i in range(4 + design.count):
        x = near + (far - near) * (i + 0.5) / (4 + design.count)
        y = level + 0.06 + (0.68 - level - 0.06) * (x - near) / (far - near)
        canvas.box(x, y + 0.07, 0.012, 0.06, shade(concrete, 0.7))
    x = 0.5 + design.side * 0.06
    canvas.wall(x, 0.7, 0.05, 0.13, concrete)
    canvas.polygon([(x - 0.04, 0.57), (x, 0.52), (x + 0.04, 0.57)], design.accent)


def draw_waterfall(canvas: Canvas, design: Design, moment: Random) -> None:
    """White water down a cliff into a pool, with mist and rocks."""
    tall = 0.34 + 0.16 * design.height
    top, rock = 0.76 - tall, blend(design.rock, design.ground, 0.15)
    canvas.polygon([(-1, top + 0.06), (0.1, top + 0.03), (0.3, top), (0.7, top + 0.01),
                    (0.9, top + 0.05), (2, top + 0.02), (2, 0.86), (-1, 0.86)], rock)  # fmt: skip
    for i in range(9):
        x = -0.05 + 0.13 * i + 0.04 * math.sin(9 * i + 6 * design.skyline[0])
        canvas.polygon([(x, top + 0.07), (x + 0.05, top + 0.05), (x + 0.035, 0.8), (x - 0.02, 0.8)],
                       shade(rock, 0.8 if i % 2 else 0.9))  # fmt: skip
    canvas.line([(-1, top + 0.06), (0.1, top + 0.03), (0.3, top), (0.7, top + 0.01),
                 (0.9, top + 0.05), (2, top + 0.02)], shade(design.ground, 0.9), 0.03)  # fmt: skip
    for x in (0.08, 0.2, 0.82, 0.93):
        draw_tree(canvas, x, top + 0.03, 0.1 + 0.05 * design.skyline[1], design.variant == 0,
                  shade(design.ground, 0.6))  # fmt: skip
    streams = 1 + design.count % 3
    for i in range(streams):
        x = 0.5 + design.side * 0.05 + (i - (streams - 1) / 2) * 0.19
        _draw_stream(canvas, x, top, (0.05 + 0.06 * design.width) / (0.6 + 0.4 * streams), moment)
    draw_water(canvas, design, 0.78, 1.3, moment)
    for i in range(5):
        x = 0.5 + (i - 2) * 0.09 * streams / 2 + 0.02 * moment.random()
        canvas.disc(x, 0.775, 0.085, 0.03 + 0.015 * moment.random(), SNOW, 0.5)
    draw_bank(canvas, design)
    for i in range(4):
        x = (0.1, 0.27, 0.72, 0.92)[i] + 0.06 * (design.skyline[i % 3] - 0.5)
        canvas.disc(x, 0.86 + 0.03 * (i % 2), 0.07, 0.045, shade(rock, 0.7))
        canvas.disc(x - 0.015, 0.85 + 0.03 * (i % 2), 0.045, 0.028, shade(rock, 0.92))


def _draw_stream(canvas: Canvas, x: float, top: float, half: float, moment: Random) -> None:
    canvas.polygon([(x - half * 0.8, top), (x + half * 0.8, top), (x + half * 1.3, 0.79),
                    (x - half * 1.3, 0.79)], blend(SNOW, (150, 190, 215), 0.3))  # fmt: skip
    for _ in range(7):
        place = x + (moment.random() - 0.5) * 1.7 * half
        start = top + 0.2 * moment.random()
        canvas.line([(place, start), (place + (place - x) * 0.3, start + 0.12)], SNOW, 0.009)
