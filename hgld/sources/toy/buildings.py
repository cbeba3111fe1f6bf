"""Churches, chapels, castles and fortresses.

Each takes the canvas, the landmark's design and the moment, which is what differs from one picture
to the next. Landmarks of one supercategory share their build and differ in colours, proportions
and counts.
"""

from random import Random

from hgld.sources.toy.canvas import Canvas, Colour, blend, shade
from hgld.sources.toy.scenery import BASE, GLASS, Design

__all__ = ["draw_castle", "draw_chapel", "draw_church", "draw_fortress"]

GOLD: Colour = (238, 198, 84)


def draw_church(canvas: Canvas, design: Design, moment: Random) -> None:
    """A nave with a steep roof and one or two towers with spires or domes."""
    width, tall = 0.3 + 0.12 * design.width, 0.3 + 0.14 * design.height
    _draw_nave(canvas, design, 0.5, width, 0.17, 3 + design.count)
    places = {0: (-1.0,), 1: (1.0,), 2: (-1.0, 1.0)}[design.variant]
    for place in places:
        x, across = 0.5 + place * (width / 2 - 0.01), 0.085 + 0.02 * design.width
        canvas.wall(x, BASE, across, tall, design.wall)
        _draw_spire(canvas, design, x, BASE - tall, across)
        canvas.arch(x, BASE - tall * 0.66, across * 0.34, 0.07, GLASS)
        canvas.disc(x, BASE - tall * 0.52, 0.016, 0.016, GOLD)


def _draw_nave(
    canvas: Canvas, design: Design, x: float, width: float, height: float, windows: int
) -> None:
    canvas.wall(x, BASE, width, height, design.wall)
    top, half = BASE - height, width / 2
    roof = [(x - half - 0.02, top), (x - half + 0.04, top - 0.11), (x + half - 0.04, top - 0.11),
            (x + half + 0.02, top)]  # fmt: skip
    canvas.polygon(roof, design.roof)
    canvas.line([roof[1], roof[2]], shade(design.roof, 1.3), 0.008)
    for i in range(windows):
        place = x - half + width * (i + 0.5) / windows
        canvas.arch(place, BASE - 0.045, 0.024, 0.09, GLASS)
    canvas.arch(x + design.side * width * 0.02, BASE, 0.055, 0.085, shade(design.roof, 0.6))


def _draw_spire(canvas: Canvas, design: Design, x: float, y: float, across: float) -> None:
    if design.count % 2:
        canvas.disc(x, y, across * 0.56, across * 0.62, design.roof)
        canvas.polygon([(x - 0.02, y - 0.04), (x, y - 0.12), (x + 0.02, y - 0.04)], design.roof)
        top = y - 0.12
    else:
        top = y - 0.12 - 0.1 * design.height
        half = across * 0.58
        canvas.polygon([(x - half, y), (x, top), (x + half, y)], design.roof)
        canvas.polygon([(x, y), (x, top), (x + half, y)], shade(design.roof, 0.8))
    _draw_cross(canvas, x, top)


def _draw_cross(canvas: Canvas, x: float, y: float) -> None:
    canvas.line([(x, y + 0.01), (x, y - 0.04)], GOLD, 0.008)
    canvas.line([(x - 0.014, y - 0.026), (x + 0.014, y - 0.026)], GOLD, 0.008)


def draw_chapel(canvas: Canvas, design: Design, moment: Random) -> None:
    """A small gable front with a bell turret; no tower."""
    width, height = 0.2 + 0.08 * design.width, 0.14 + 0.06 * design.height
    _draw_nave(canvas, design, 0.5 + design.side * 0.12, width * 1.1, height * 0.8, 2)
    top, half = BASE - height, width / 2
    canvas.wall(0.5, BASE, width, height, design.wall)
    gable = [(0.5 - half - 0.02, top), (0.5, top - 0.13), (0.5 + half + 0.02, top)]
    canvas.polygon(gable, shade(design.wall, 0.95))
    canvas.line(gable, design.roof, 0.028)
    canvas.box(0.5, top - 0.11, 0.05, 0.075, design.wall)
    canvas.arch(0.5, top - 0.12, 0.026, 0.05, GLASS)
    canvas.polygon([(0.462, top - 0.18), (0.5, top - 0.24), (0.538, top - 0.18)], design.roof)
    _draw_cross(canvas, 0.5, top - 0.24)
    canvas.disc(0.5, top - 0.03, 0.028, 0.028, design.accent)
    canvas.arch(0.5, BASE, 0.06, 0.1, shade(design.accent, 0.6))


def draw_castle(canvas: Canvas, design: Design, moment: Random) -> None:
    """Towers with pointed roofs and flags around a keep, on a mound."""
    canvas.disc(0.5, 0.9, 0.46, 0.17, shade(design.ground, 0.85))
    width = 0.36 + 0.12 * design.width
    foot = BASE - 0.02
    canvas.wall(0.5 + design.side * 0.06, foot, 0.13, 0.27 + 0.08 * design.height, design.wall)
    _draw_battlements(canvas, 0.5 + design.side * 0.06, foot - 0.27 - 0.08 * design.height, 0.13,
                      design.wall)  # fmt: skip
    towers = 2 + design.count % 3
    for i in range(towers):
        x = 0.5 - width / 2 + width * i / (towers - 1)
        tall = 0.19 + 0.09 * ((i * (design.variant + 1) + design.count) % 3) / 2
        canvas.wall(x, foot, 0.088, tall, shade(design.wall, 0.94))
        _draw_cone(canvas, design, x, foot - tall, 0.1, moment)
        canvas.arch(x, foot - tall * 0.6, 0.02, 0.05, GLASS)
    canvas.wall(0.5, foot, width, 0.12, shade(design.wall, 0.88))
    _draw_battlements(canvas, 0.5, foot - 0.12, width, shade(design.wall, 0.88))
    canvas.arch(0.5 - design.side * 0.05, foot, 0.075, 0.1, shade(design.roof, 0.45))


def _draw_battlements(canvas: Canvas, x: float, y: float, width: float, colour: Colour) -> None:
    teeth = max(3, round(width / 0.042))
    for i in range(teeth):
        place = x - width / 2 + width * (i + 0.5) / teeth
        canvas.box(place, y + 0.004, width / teeth * 0.56, 0.03, colour)


def _draw_cone(
    canvas: Canvas, design: Design, x: float, y: float, width: float, moment: Random
) -> None:
    if design.variant == 2:
        _draw_battlements(canvas, x, y, width, shade(design.wall, 0.94))
        top = y - 0.03
    else:
        top = y - 0.12
        canvas.polygon([(x - width * 0.6, y), (x, top), (x + width * 0.6, y)], design.roof)
        canvas.polygon([(x, y), (x, top), (x + width * 0.6, y)], shade(design.roof, 0.78))
    wave = 0.012 * (moment.random() - 0.5)
    canvas.line([(x, top + 0.01), (x, top - 0.055)], (70, 64, 60), 0.006)
    canvas.polygon([(x, top - 0.055), (x + 0.05, top - 0.043 + wave), (x, top - 0.028)],
                   design.accent)  # fmt: skip


def draw_fortress(canvas: Canvas, design: Design, moment: Random) -> None:
    """Low, thick, sloping walls between round bastions; no pointed roof."""
    half, tall = 0.3 + 0.1 * design.width, 0.12 + 0.06 * design.height
    wall = blend(design.wall, design.rock, 0.45)
    canvas.wall(0.5 - design.side * 0.1, BASE, 0.2, tall + 0.09, shade(wall, 1.06))
    _draw_battlements(canvas, 0.5 - design.side * 0.1, BASE - tall - 0.09, 0.2, shade(wall, 1.06))
    slope = [(0.5 - half - 0.05, BASE + 0.03), (0.5 - half, BASE - tall), (0.5 + half, BASE - tall),
             (0.5 + half + 0.05, BASE + 0.03)]  # fmt: skip
    canvas.polygon(slope, wall)
    _draw_battlements(canvas, 0.5, BASE - tall, half * 2, wall)
    bastions = 2 + design.count % 2
    for i in range(bastions):
        x = 0.5 - half + 2 * half * i / (bastions - 1)
        sides = [(x - 0.085, BASE + 0.04), (x - 0.06, BASE - tall - 0.035),
                 (x + 0.06, BASE - tall - 0.035), (x + 0.085, BASE + 0.04)]  # fmt: skip
        canvas.polygon(sides, shade(wall, 0.9))
        canvas.polygon([(x + 0.01, BASE + 0.04), (x + 0.01, BASE - tall - 0.035), *sides[2:]],
                       shade(wall, 0.76))  # fmt: skip
        _draw_battlements(canvas, x, BASE - tall - 0.035, 0.12, shade(wall, 0.9))
        canvas.box(x - 0.02, BASE - tall * 0.5, 0.012, 0.045, GLASS)
    canvas.arch(0.5 + design.side * 0.12, BASE + 0.03, 0.09, 0.11, shade(design.accent, 0.4))
    canvas.line([(0.5 - design.side * 0.1, BASE - tall - 0.11),
                 (0.5 - design.side * 0.1, BASE - tall - 0.24)], (70, 64, 60), 0.007)  # fmt: skip
    wave = 0.016 * (moment.random() - 0.5)
    x, y = 0.5 - design.side * 0.1, BASE - tall - 0.24
    canvas.polygon([(x, y), (x + 0.085, y + 0.006 + wave), (x + 0.085, y + 0.05 + wave),
                    (x, y + 0.046)], design.accent)  # fmt: skip
