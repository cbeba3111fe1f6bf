"""Bridges of steel and of stone over a river."""

import math
from random import Random

from hgld.sources.toy.canvas import Canvas, Colour, blend, shade
from hgld.sources.toy.scenery import Design, draw_bank, draw_boat, draw_water

__all__ = ["draw_arch_bridge", "draw_bridge"]

WATERLINE = 0.72  # where arches meet the river


def draw_bridge(canvas: Canvas, design: Design, moment: Random) -> None:
    """A deck over a river, hung from towers by curved or straight cables, or in a truss."""
    draw_water(canvas, design, 0.66, 1.3, moment)
    deck, tall = 0.65, 0.22 + 0.12 * design.height
    steel = blend(design.accent, (150, 155, 160), 0.25)
    gap = 0.2 + 0.08 * design.width
    canvas.polygon([(-1, deck), (2, deck), (2, deck + 0.03), (-1, deck + 0.03)], shade(steel, 0.7))
    places = (0.5 - gap, 0.5 + gap)
    for x in places:
        canvas.box(x, 0.84, 0.035, tall + 0.19, steel)
        canvas.box(x + 0.008, 0.84, 0.018, tall + 0.19, shade(steel, 0.78))
        canvas.box(x, 0.86, 0.075, 0.05, shade(design.rock, 0.9))
    hang = (_hang_curved, _hang_straight, _draw_truss)[design.variant]
    hang(canvas, shade(steel, 0.85), places, deck, tall)
    draw_boat(canvas, moment, design)
    draw_bank(canvas, design)


def _hang_curved(
    canvas: Canvas, colour: Colour, places: tuple[float, float], deck: float, tall: float
) -> None:
    top, gap = deck - tall, places[1] - places[0]
    for middle in (0.5 - gap, 0.5, 0.5 + gap):
        steps = [i / 12 - 0.5 for i in range(13)]
        cable = [(middle + s * gap, top + (tall - 0.03) * (1 - 4 * s * s)) for s in steps]
        canvas.line(cable, colour, 0.01)
        for x, y in cable:
            canvas.line([(x, y), (x, deck)], colour, 0.004)


def _hang_straight(
    canvas: Canvas, colour: Colour, places: tuple[float, float], deck: float, tall: float
) -> None:
    reach = (places[1] - places[0]) / 2
    for x in places:
        for i in range(1, 6):
            for way in (-1, 1):
                end = x + way * reach * i / 5
                canvas.line([(x, deck - tall * (0.55 + 0.09 * i)), (end, deck)], colour, 0.006)


def _draw_truss(
    canvas: Canvas, colour: Colour, places: tuple[float, float], deck: float, tall: float
) -> None:
    height, step = tall * 0.55, 0.08
    canvas.line([(-0.3, deck - height), (1.3, deck - height)], colour, 0.014)
    for i in range(20):
        x = -0.3 + step * i
        canvas.line([(x, deck), (x + step / 2, deck - height), (x + step, deck)], colour, 0.01)


def draw_arch_bridge(canvas: Canvas, design: Design, moment: Random) -> None:
    """Stone arches over a river, with their mirror in the water."""
    draw_water(canvas, design, WATERLINE, 1.3, moment)
    arches, crown = 2 + design.count, 0.5 - 0.06 * design.height
    hump = (0.0, 0.05, 0.1)[design.variant] * (0.5 + design.width)
    stone = blend(design.wall, design.rock, 0.35)
    road = [(x / 12, crown + hump * (x / 6 - 1) ** 2) for x in range(-3, 16)]
    outline = [*road, *_arched_edge(arches, crown + hump / 2)]
    mirror = blend(design.water, stone, 0.5)
    canvas.polygon([(x, WATERLINE + 0.55 * (WATERLINE - y)) for x, y in outline], mirror, 0.5)
    canvas.polygon(outline, stone)
    canvas.line(_arched_edge(arches, crown + hump / 2), shade(stone, 0.72), 0.016)
    canvas.line(road, shade(stone, 1.25), 0.024)
    for i in range(arches + 1):
        canvas.box(-0.1 + 1.2 / arches * i, WATERLINE + 0.02, 0.24 / arches, 0.06,
                   shade(stone, 0.8))  # fmt: skip
    draw_boat(canvas, moment, design)
    draw_bank(canvas, design)


def _arched_edge(arches: int, crown: float) -> list[tuple[float, float]]:
    """The lower edge of a bridge from right to left: half ellipses between piers."""
    width = 1.2 / arches
    rise = min(width * 0.5, WATERLINE - crown - 0.05)
    edge = [(1.3, WATERLINE)]
    for i in reversed(range(arches)):
        middle = -0.1 + width * (i + 0.5)
        turns = [step * math.pi / 12 for step in range(13)]
        edge += [(middle + width * 0.42 * math.cos(t), WATERLINE - rise * math.sin(t))
                 for t in turns]  # fmt: skip
    return [*edge, (-0.3, WATERLINE)]
