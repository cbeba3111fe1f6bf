"""Lighthouses and windmills: tapering towers with something on top."""

import math
from random import Random

from hgld.sources.toy.canvas import Canvas, blend, shade
from hgld.sources.toy.scenery import BASE, FLOWERS, GLASS, SNOW, Design, draw_water

__all__ = ["draw_lighthouse", "draw_windmill"]


def draw_lighthouse(canvas: Canvas, design: Design, moment: Random) -> None:
    """A striped, tapering tower with a lamp, on a headland by the sea."""
    draw_water(canvas, design, 0.6, 0.84, moment)
    x = 0.5 + design.side * 0.08
    shore = 1.0 if design.side > 0 else 0.0
    canvas.polygon([(shore, 0.66), (x - design.side * 0.1, 0.76), (x - design.side * 0.3, 0.86),
                    (0.5 - design.side * 0.7, 0.92), (0.5 - design.side * 0.7, 1.3),
                    (0.5 + design.side, 1.3), (0.5 + design.side, 0.64)],
                   design.ground)  # fmt: skip
    _draw_house(canvas, design, x + design.side * 0.15)
    tall, foot = 0.36 + 0.16 * design.height, 0.055 + 0.02 * design.width
    _draw_tower(canvas, design, x, tall, foot)
    top, head = BASE - tall, foot * 0.64
    if canvas.light.name == "dusk":
        for lift in (-0.07, 0.05):
            far = x - design.side * 0.9
            canvas.polygon([(x, top - 0.03), (far, top - 0.1 + lift), (far, top + 0.02 + lift)],
                           (255, 240, 170), 0.3)  # fmt: skip
    canvas.box(x, top, head * 2.5, 0.016, shade(design.accent, 0.6))
    canvas.box(x, top - 0.014, head * 1.5, 0.05, (255, 236, 150))
    canvas.line([(x, top - 0.014), (x, top - 0.06)], GLASS, 0.007)
    canvas.polygon([(x - head, top - 0.06), (x, top - 0.115), (x + head, top - 0.06)],
                   design.accent)  # fmt: skip


def _draw_tower(canvas: Canvas, design: Design, x: float, tall: float, foot: float) -> None:
    """Bands between a wide foot and a narrow head, each with a dark side."""
    bands = 3 + 2 * design.count if design.variant else 2 + design.count % 2
    body = blend(design.wall, SNOW, 0.6)
    for i in range(bands):
        low, high = i / bands, (i + 1) / bands
        y, up = BASE - tall * low, BASE - tall * high
        wide, narrow = foot * (1 - 0.36 * low), foot * (1 - 0.36 * high)
        colour = design.accent if i % 2 == design.variant % 2 else body
        canvas.polygon([(x - wide, y), (x - narrow, up), (x + narrow, up), (x + wide, y)], colour)
        canvas.polygon([(x + wide * 0.3, y), (x + narrow * 0.3, up), (x + narrow, up),
                        (x + wide, y)], shade(colour, 0.8))  # fmt: skip
    canvas.arch(x, BASE, foot * 0.55, 0.06, GLASS)


def _draw_house(canvas: Canvas, design: Design, x: float) -> None:
    canvas.wall(x, BASE, 0.15, 0.07, blend(design.wall, SNOW, 0.4))
    canvas.polygon([(x - 0.09, BASE - 0.07), (x - 0.05, BASE - 0.125), (x + 0.05, BASE - 0.125),
                    (x + 0.09, BASE - 0.07)], design.roof)  # fmt: skip
    for place in (-0.04, 0.035):
        canvas.box(x + place, BASE - 0.025, 0.024, 0.028, GLASS)


def draw_windmill(canvas: Canvas, design: Design, moment: Random) -> None:
    """A tapering mill with a cap and four sails at any angle, in fields of flowers."""
    _draw_flower_fields(canvas, design)
    tall, foot = 0.26 + 0.1 * design.height, 0.09 + 0.03 * design.width
    top, head, x = BASE - tall, foot * 0.6, 0.5
    body = design.wall if design.variant else shade(design.roof, 0.9)
    canvas.polygon([(x - foot, BASE), (x - head, top), (x + head, top), (x + foot, BASE)], body)
    canvas.polygon([(x + foot * 0.3, BASE), (x + head * 0.3, top), (x + head, top),
                    (x + foot, BASE)], shade(body, 0.8))  # fmt: skip
    if design.count % 2:
        canvas.box(x, BASE - tall * 0.42, foot * 2.5, 0.018, shade(design.accent, 0.7))
    canvas.disc(x, top, head * 1.1, head * 0.9, design.roof)
    canvas.arch(x, BASE, 0.05, 0.08, shade(design.accent, 0.7))
    canvas.box(x, BASE - tall * 0.6, 0.026, 0.035, GLASS)
    _draw_sails(canvas, design, x, top - 0.01, 0.2 + 0.05 * design.width, moment)


def _draw_flower_fields(canvas: Canvas, design: Design) -> None:
    colours = (design.accent, shade(design.accent, 1.3), design.ground, FLOWERS)
    for i in range(9):
        left, right = -0.9 + 0.31 * i, -0.9 + 0.31 * (i + 0.5)
        far = 0.5 + (left - 0.5) * 0.4, 0.5 + (right - 0.5) * 0.4
        rows = [(far[0], 0.7), (far[1], 0.7), (right, 1.1), (left, 1.1)]
        canvas.polygon(rows, blend(colours[i % 4], design.ground, 0.25))


def _draw_sails(
    canvas: Canvas, design: Design, x: float, y: float, length: float, moment: Random
) -> None:
    first = moment.random() * math.pi / 2
    for i in range(4):
        angle = first + i * math.pi / 2
        along, aside = (math.cos(angle), math.sin(angle)), (-math.sin(angle), math.cos(angle))
        corners = [(0.18, 0.01), (1.0, 0.01), (1.0, 0.24), (0.18, 0.24)]
        cloth = [(x + length * (a * along[0] + b * aside[0]),
                  y + length * (a * along[1] + b * aside[1])) for a, b in corners]  # fmt: skip
        canvas.polygon(cloth, blend(SNOW, design.accent, 0.15 * design.variant), 0.92)
        tip = (x + length * along[0], y + length * along[1])
        canvas.line([(x, y), tip], (84, 62, 48), 0.012)
        canvas.line([cloth[2], cloth[3]], (84, 62, 48), 0.006)
    canvas.disc(x, y, 0.016, 0.016, (60, 46, 40))
