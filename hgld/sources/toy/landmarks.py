"""The thirteen kinds of landmarks of the drawn world: one function draws each.

Landmarks of one supercategory share their build and differ in colours, proportions and counts. See
``hgld.sources.toy.drawing`` for what ``c``, ``d`` and ``moment`` are.
"""

import math
from collections.abc import Callable, Iterator
from random import Random

from hgld.sources.toy.drawing import (
    BASE,
    FLOWERS,
    GLASS,
    SNOW,
    Canvas,
    Colour,
    Design,
    blend,
    draw_bank,
    draw_boat,
    draw_tree,
    draw_water,
    shade,
)

GOLD, DARK, WOOD = FLOWERS, (70, 64, 60), (84, 62, 48)
WATERLINE = 0.72  # where arches meet the river


def draw_church(c: Canvas, d: Design, moment: Random) -> None:
    """A nave with a steep roof and one or two towers with spires or domes."""
    width, tall = 0.3 + 0.12 * d.width, 0.3 + 0.14 * d.height
    draw_nave(c, d, 0.5, width, 0.17, 3 + d.count)
    for place in ((-1,), (1,), (-1, 1))[d.variant]:
        x, across = 0.5 + place * (width / 2 - 0.01), 0.085 + 0.02 * d.width
        c.wall(d.wall, x, BASE, across, tall)
        y = BASE - tall
        top = y - 0.12
        if d.count % 2:
            c.disc(d.roof, x, y, across * 0.56, across * 0.62)
            c.fill(d.roof, x - 0.02, y - 0.04, x, top, x + 0.02, y - 0.04)
        else:
            top -= 0.1 * d.height
            c.cone(d.roof, x, y, across * 0.58, top)
        draw_cross(c, x, top)
        c.arch(GLASS, x, BASE - tall * 0.66, across * 0.34, 0.07)
        c.disc(GOLD, x, BASE - tall * 0.52, 0.016, 0.016)


def draw_chapel(c: Canvas, d: Design, moment: Random) -> None:
    """A small gable front with a bell turret; no tower."""
    width, height = 0.2 + 0.08 * d.width, 0.14 + 0.06 * d.height
    draw_nave(c, d, 0.5 + d.side * 0.12, width * 1.1, height * 0.8, 2)
    top, half = BASE - height, width / 2
    c.wall(d.wall, 0.5, BASE, width, height)
    gable = (0.5 - half - 0.02, top, 0.5, top - 0.13, 0.5 + half + 0.02, top)
    c.fill(shade(d.wall, 0.95), *gable)
    c.line(d.roof, 0.028, *gable)
    c.box(d.wall, 0.5, top - 0.11, 0.05, 0.075)
    c.arch(GLASS, 0.5, top - 0.12, 0.026, 0.05)
    c.fill(d.roof, 0.462, top - 0.18, 0.5, top - 0.24, 0.538, top - 0.18)
    draw_cross(c, 0.5, top - 0.24)
    c.disc(d.accent, 0.5, top - 0.03, 0.028, 0.028)
    c.arch(shade(d.accent, 0.6), 0.5, BASE, 0.06, 0.1)


def draw_nave(c: Canvas, d: Design, x: float, width: float, height: float, windows: int) -> None:
    """A hall with windows and a door under a steep roof."""
    c.wall(d.wall, x, BASE, width, height)
    top, half = BASE - height, width / 2
    ridge = (x - half + 0.04, top - 0.11, x + half - 0.04, top - 0.11)
    c.fill(d.roof, x - half - 0.02, top, *ridge, x + half + 0.02, top)
    c.line(shade(d.roof, 1.3), 0.008, *ridge)
    for i in range(windows):
        c.arch(GLASS, x - half + width * (i + 0.5) / windows, BASE - 0.045, 0.024, 0.09)
    c.arch(shade(d.roof, 0.6), x + d.side * width * 0.02, BASE, 0.055, 0.085)


def draw_cross(c: Canvas, x: float, y: float) -> None:
    """A golden cross on a roof."""
    c.line(GOLD, 0.008, x, y + 0.01, x, y - 0.04)
    c.line(GOLD, 0.008, x - 0.014, y - 0.026, x + 0.014, y - 0.026)


def draw_castle(c: Canvas, d: Design, moment: Random) -> None:
    """Towers with pointed roofs and flags around a keep, on a mound."""
    c.disc(shade(d.ground, 0.85), 0.5, 0.9, 0.46, 0.17)
    width, foot, keep = 0.36 + 0.12 * d.width, BASE - 0.02, 0.5 + d.side * 0.06
    c.wall(d.wall, keep, foot, 0.13, 0.27 + 0.08 * d.height)
    draw_battlements(c, d.wall, keep, foot - 0.27 - 0.08 * d.height, 0.13)
    towers, stone = 2 + d.count % 3, shade(d.wall, 0.94)
    for i in range(towers):
        x = 0.5 - width / 2 + width * i / (towers - 1)
        tall = 0.19 + 0.09 * ((i * (d.variant + 1) + d.count) % 3) / 2
        c.wall(stone, x, foot, 0.088, tall)
        y = foot - tall
        if d.variant == 2:
            draw_battlements(c, stone, x, y, 0.1)
        else:
            c.cone(d.roof, x, y, 0.1 * 0.6, y - 0.12, 0.78)
        top = y - (0.03 if d.variant == 2 else 0.12)
        wave = 0.012 * (moment.random() - 0.5)
        c.line(DARK, 0.006, x, top + 0.01, x, top - 0.055)
        c.fill(d.accent, x, top - 0.055, x + 0.05, top - 0.043 + wave, x, top - 0.028)
        c.arch(GLASS, x, foot - tall * 0.6, 0.02, 0.05)
    c.wall(shade(d.wall, 0.88), 0.5, foot, width, 0.12)
    draw_battlements(c, shade(d.wall, 0.88), 0.5, foot - 0.12, width)
    c.arch(shade(d.roof, 0.45), 0.5 - d.side * 0.05, foot, 0.075, 0.1)


def draw_fortress(c: Canvas, d: Design, moment: Random) -> None:
    """Low, thick, sloping walls between round bastions; no pointed roof."""
    half, tall = 0.3 + 0.1 * d.width, 0.12 + 0.06 * d.height
    wall, top, keep = blend(d.wall, d.rock, 0.45), BASE - tall, 0.5 - d.side * 0.1
    c.wall(shade(wall, 1.06), keep, BASE, 0.2, tall + 0.09)
    draw_battlements(c, shade(wall, 1.06), keep, BASE - tall - 0.09, 0.2)
    left, right, low = 0.5 - half, 0.5 + half, BASE + 0.03
    c.fill(wall, left - 0.05, low, left, top, right, top, right + 0.05, low)
    draw_battlements(c, wall, 0.5, top, half * 2)
    bastions = 2 + d.count % 2
    for i in range(bastions):
        x, foot, y = 0.5 - half + 2 * half * i / (bastions - 1), BASE + 0.04, BASE - tall - 0.035
        lit = (x + 0.06, y, x + 0.085, foot)
        c.fill(shade(wall, 0.9), x - 0.085, foot, x - 0.06, y, *lit)
        c.fill(shade(wall, 0.76), x + 0.01, foot, x + 0.01, y, *lit)
        draw_battlements(c, shade(wall, 0.9), x, y, 0.12)
        c.box(GLASS, x - 0.02, BASE - tall * 0.5, 0.012, 0.045)
    c.arch(shade(d.accent, 0.4), 0.5 + d.side * 0.12, low, 0.09, 0.11)
    x, y = keep, BASE - tall - 0.24
    c.line(DARK, 0.007, x, BASE - tall - 0.11, x, y)
    wave = 0.016 * (moment.random() - 0.5)
    end = x + 0.085
    c.fill(d.accent, x, y, end, y + 0.006 + wave, end, y + 0.05 + wave, x, y + 0.046)


def draw_battlements(c: Canvas, colour: Colour, x: float, y: float, width: float) -> None:
    """A row of teeth on a wall."""
    teeth = max(3, round(width / 0.042))
    for i in range(teeth):
        place = x - width / 2 + width * (i + 0.5) / teeth
        c.box(colour, place, y + 0.004, width / teeth * 0.56, 0.03)


def draw_lighthouse(c: Canvas, d: Design, moment: Random) -> None:
    """A striped, tapering tower with a lamp, on a headland by the sea."""
    draw_water(c, d, 0.6, 0.84, moment)
    x, left, right = 0.5 + d.side * 0.08, 0.5 - d.side * 0.7, 0.5 + d.side
    cape = (x - d.side * 0.1, 0.76, x - d.side * 0.3, 0.86, left, 0.92, left, 1.3)
    c.fill(d.ground, 1.0 if d.side > 0 else 0.0, 0.66, *cape, right, 1.3, right, 0.64)
    draw_house(c, d, x + d.side * 0.15)
    tall, foot = 0.36 + 0.16 * d.height, 0.055 + 0.02 * d.width
    bands = 3 + 2 * d.count if d.variant else 2 + d.count % 2
    for i in range(bands):
        low, high = i / bands, (i + 1) / bands
        colour = d.accent if i % 2 == d.variant % 2 else blend(d.wall, SNOW, 0.6)
        wide, narrow = foot * (1 - 0.36 * low), foot * (1 - 0.36 * high)
        c.taper(colour, x, BASE - tall * low, wide, BASE - tall * high, narrow)
    c.arch(GLASS, x, BASE, foot * 0.55, 0.06)
    top, head = BASE - tall, foot * 0.64
    if c.light.name == "dusk":
        far = x - d.side * 0.9
        for lift in (-0.07, 0.05):
            beam = (x, top - 0.03, far, top - 0.1 + lift, far, top + 0.02 + lift)
            c.fill((255, 240, 170), *beam, opacity=0.3)
    c.box(shade(d.accent, 0.6), x, top, head * 2.5, 0.016)
    c.box((255, 236, 150), x, top - 0.014, head * 1.5, 0.05)
    c.line(GLASS, 0.007, x, top - 0.014, x, top - 0.06)
    c.fill(d.accent, x - head, top - 0.06, x, top - 0.115, x + head, top - 0.06)


def draw_house(c: Canvas, d: Design, x: float) -> None:
    """A keeper's house with two windows."""
    c.wall(blend(d.wall, SNOW, 0.4), x, BASE, 0.15, 0.07)
    eaves, ridge = BASE - 0.07, BASE - 0.125
    c.fill(d.roof, x - 0.09, eaves, x - 0.05, ridge, x + 0.05, ridge, x + 0.09, eaves)
    for place in (-0.04, 0.035):
        c.box(GLASS, x + place, BASE - 0.025, 0.024, 0.028)


def draw_windmill(c: Canvas, d: Design, moment: Random) -> None:
    """A tapering mill with a cap and four sails at any angle, in fields of flowers."""
    colours = (d.accent, shade(d.accent, 1.3), d.ground, FLOWERS)
    for i in range(9):
        left, right = -0.9 + 0.31 * i, -0.9 + 0.31 * (i + 0.5)
        far = (0.5 + (left - 0.5) * 0.4, 0.7, 0.5 + (right - 0.5) * 0.4, 0.7)
        c.fill(blend(colours[i % 4], d.ground, 0.25), *far, right, 1.1, left, 1.1)
    tall, foot = 0.26 + 0.1 * d.height, 0.09 + 0.03 * d.width
    top, head, x = BASE - tall, foot * 0.6, 0.5
    c.taper(d.wall if d.variant else shade(d.roof, 0.9), x, BASE, foot, top, head)
    if d.count % 2:
        c.box(shade(d.accent, 0.7), x, BASE - tall * 0.42, foot * 2.5, 0.018)
    c.disc(d.roof, x, top, head * 1.1, head * 0.9)
    c.arch(shade(d.accent, 0.7), x, BASE, 0.05, 0.08)
    c.box(GLASS, x, BASE - tall * 0.6, 0.026, 0.035)
    length, y = 0.2 + 0.05 * d.width, top - 0.01
    first = moment.random() * math.pi / 2
    for i in range(4):
        cos, sin = math.cos(first + i * math.pi / 2), math.sin(first + i * math.pi / 2)
        cloth: list[float] = []
        for along, aside in ((0.18, 0.01), (1.0, 0.01), (1.0, 0.24), (0.18, 0.24)):
            across, down = along * cos + aside * -sin, along * sin + aside * cos
            cloth += x + length * across, y + length * down
        c.fill(blend(SNOW, d.accent, 0.15 * d.variant), *cloth, opacity=0.92)
        c.line(WOOD, 0.012, x, y, x + length * cos, y + length * sin)
        c.line(WOOD, 0.006, *cloth[4:])
    c.disc((60, 46, 40), x, y, 0.016, 0.016)


def draw_bridge(c: Canvas, d: Design, moment: Random) -> None:
    """A deck over a river, hung from towers by curved or straight cables, or in a truss."""
    draw_water(c, d, 0.66, 1.3, moment)
    deck, tall, gap = 0.65, 0.22 + 0.12 * d.height, 0.2 + 0.08 * d.width
    steel = blend(d.accent, (150, 155, 160), 0.25)
    c.band(shade(steel, 0.7), deck, deck + 0.03)
    places = (0.5 - gap, 0.5 + gap)
    for x in places:
        c.box(steel, x, 0.84, 0.035, tall + 0.19)
        c.box(shade(steel, 0.78), x + 0.008, 0.84, 0.018, tall + 0.19)
        c.box(shade(d.rock, 0.9), x, 0.86, 0.075, 0.05)
    steel, span = shade(steel, 0.85), places[1] - places[0]
    if d.variant == 0:
        for middle in (0.5 - span, 0.5, 0.5 + span):
            steps = [i / 12 - 0.5 for i in range(13)]
            sag = [deck - tall + (tall - 0.03) * (1 - 4 * step * step) for step in steps]
            cable = [(middle + step * span, y) for step, y in zip(steps, sag, strict=True)]
            c.line(steel, 0.01, *(v for point in cable for v in point))
            for x, y in cable:
                c.line(steel, 0.004, x, y, x, deck)
    elif d.variant == 1:
        ends = ((x, i, way) for x in places for i in range(1, 6) for way in (-1, 1))
        for x, i, way in ends:
            end = x + way * (span / 2) * i / 5
            c.line(steel, 0.006, x, deck - tall * (0.55 + 0.09 * i), end, deck)
    else:
        top, step = deck - tall * 0.55, 0.08
        c.line(steel, 0.014, -0.3, top, 1.3, top)
        for i in range(20):
            x = -0.3 + step * i
            c.line(steel, 0.01, x, deck, x + step / 2, top, x + step, deck)
    draw_boat(c, moment)
    draw_bank(c, d)


def draw_arch_bridge(c: Canvas, d: Design, moment: Random) -> None:
    """Stone arches over a river, with their mirror in the water."""
    draw_water(c, d, WATERLINE, 1.3, moment)
    arches, crown = 2 + d.count, 0.5 - 0.06 * d.height
    hump = (0.0, 0.05, 0.1)[d.variant] * (0.5 + d.width)
    stone = blend(d.wall, d.rock, 0.35)
    road = [v for x in range(-3, 16) for v in (x / 12, crown + hump * (x / 6 - 1) ** 2)]
    width = 1.2 / arches
    rise = min(width * 0.5, WATERLINE - (crown + hump / 2) - 0.05)
    edge = [1.3, WATERLINE]  # half ellipses between piers, from right to left
    for middle in (-0.1 + width * (i + 0.5) for i in reversed(range(arches))):
        for turn in (step * math.pi / 12 for step in range(13)):
            edge += middle + width * 0.42 * math.cos(turn), WATERLINE - rise * math.sin(turn)
    edge += -0.3, WATERLINE
    outline = [*road, *edge]
    mirror = [WATERLINE + 0.55 * (WATERLINE - v) if i % 2 else v for i, v in enumerate(outline)]
    c.fill(blend(d.water, stone, 0.5), *mirror, opacity=0.5)
    c.fill(stone, *outline)
    c.line(shade(stone, 0.72), 0.016, *edge)
    c.line(shade(stone, 1.25), 0.024, *road)
    for i in range(arches + 1):
        c.box(shade(stone, 0.8), -0.1 + 1.2 / arches * i, WATERLINE + 0.02, 0.24 / arches, 0.06)
    draw_boat(c, moment)
    draw_bank(c, d)


def draw_mountain(c: Canvas, d: Design, moment: Random) -> None:
    """Jagged peaks with snow and a forest at the foot."""
    peaks = ((0.5, 1.0), (0.5 + d.side * 0.3, 0.72), (0.5 - d.side * 0.27, 0.55))
    for x, share in reversed(peaks[: 1 + d.count % 3]):
        tall = (0.38 + 0.18 * d.height) * share
        half = (0.34 + 0.16 * d.width) * (0.5 + share / 2)
        foot, top, lean = 0.68, 0.68 - tall, x + d.side * 0.04
        rock = blend(d.rock, c.horizon, 0.25 * (1 - share) + 0.1)
        right = (lean, top, x + half * 0.5, foot - tall * 0.45, x + half, foot)
        c.fill(rock, x - half, foot, x - half * 0.45, foot - tall * 0.52, *right)
        gully = (x + half * 0.2, foot - tall * 0.4, x - half * 0.02, foot - tall * 0.62)
        c.fill(shade(rock, 0.74), *right, x + half * 0.12, foot, *gully)
        snow = 0.22 + 0.2 * d.skyline[2]
        low, tip = top + tall * snow, (lean, top + tall * snow * 1.12)
        left = (lean - half * 0.24 * snow * 1.5, top + tall * snow * 0.72)
        c.fill(SNOW, lean - half * 0.5 * snow * 1.5, low, *left, *tip, lean, top)
        edge = (lean + half * 0.22 * snow * 1.6, top + tall * snow * 0.7)
        shadow = blend(SNOW, (150, 170, 205), 0.4)
        c.fill(shadow, lean, top, *tip, *edge, lean + half * 0.46 * snow * 1.9, low)
    draw_forest(c, d, 0.72)


def draw_forest(c: Canvas, d: Design, y: float) -> None:
    """A row of firs across the picture."""
    leaf = blend(shade(d.ground, 0.62), (28, 74, 60), 0.5)
    c.fill(leaf, -1, y - 0.02, 2, y - 0.02, 2, y + 0.03, -1, y + 0.05)
    wave = 6 + 8 * d.skyline[0]
    for x in (-0.14 + 0.05 * i for i in range(26)):
        height = 0.075 + 0.03 * math.sin(wave * x + 5 * d.skyline[1])
        draw_tree(c, leaf, x, y + 0.012, height, True)


def draw_hill(c: Canvas, d: Design, moment: Random) -> None:
    """A round green hill with hedged fields, a path and trees on top."""
    tall, half, x = 0.2 + 0.12 * d.height, 0.42 + 0.16 * d.width, 0.5 + d.side * 0.05
    green = blend(d.ground, (104, 160, 70), 0.35)
    c.disc(shade(green, 0.78), x + d.side * 0.34, 0.74, half * 0.9, tall * 0.62)
    c.disc(green, x, 0.76, half, tall + 0.1)
    c.disc(shade(green, 0.92), x + 0.12, 0.78, half * 0.74, tall + 0.03)
    for i in range(2 + d.count):
        left = x - half * 0.5 + half * i * 0.4
        patch = (shade(d.accent, 1.5), FLOWERS, shade(green, 1.2))[(i + d.variant) % 3]
        field = (left, 0.73, left + 0.03, 0.66, left + 0.12, 0.665, left + 0.11, 0.735)
        c.fill(blend(patch, green, 0.45), *field)
    path = (x - 0.1, 0.8, x + 0.03, 0.7, x - 0.03, 0.62, x, 0.68 - tall)
    c.line((214, 196, 160), 0.014, *path)
    for i in range(1 + d.variant * 2):
        place = x + 0.045 * (i - d.variant)
        draw_tree(c, shade(green, 0.6), place, 0.672 - tall, 0.11, d.count > 1)


def draw_lake(c: Canvas, d: Design, moment: Random) -> None:
    """A wide water with mountains behind, mirrored, and a wooded shore."""
    draw_far_shore(c, d, 0.645, 0.66, 0.9, moment)
    bend, middle = 0.16 * d.width, 0.5 + d.side * 0.2
    near = (-0.3, 0.84 + bend * 0.3, 0.2, 0.9, middle, 0.86 + bend * 0.5, 0.9, 0.89, 1.3, 0.8)
    c.fill(blend(d.ground, (226, 208, 160), 0.35), *near, 1.3, 1.3, -0.3, 1.3)
    x = 0.5 - d.side * 0.24
    c.disc(shade(d.ground, 0.8), x, 0.73, 0.06 + 0.05 * d.height, 0.014)
    draw_tree(c, shade(d.ground, 0.6), x, 0.73, 0.09, d.variant == 0)
    draw_boat(c, moment)


def draw_reservoir(c: Canvas, d: Design, moment: Random) -> None:
    """A lake that ends at a straight dam with a walk and an intake tower."""
    draw_far_shore(c, d, 0.64, 0.655, 1.3, moment)
    concrete, level = blend(d.wall, (186, 186, 184), 0.6), 0.76 + 0.05 * d.height
    near, far, end = 0.5 - d.side * 0.8, 0.5 + d.side * 0.3, 0.5 + d.side * 0.3 + d.side * 0.3
    walk = (near, level + 0.06, far, 0.68, end, 0.655)
    c.fill(concrete, *walk, end, 0.685, far, 0.73, near, level + 0.22)
    foot = (near, level + 0.22, far, 0.73, end, 0.685)
    c.fill(d.ground, *foot, far + d.side * 0.9, 1.3, near, 1.3)
    c.line(shade(concrete, 1.3), 0.012, *walk)
    for i in range(4 + d.count):
        x = near + (far - near) * (i + 0.5) / (4 + d.count)
        y = level + 0.06 + (0.68 - level - 0.06) * (x - near) / (far - near)
        c.box(shade(concrete, 0.7), x, y + 0.07, 0.012, 0.06)
    x = 0.5 + d.side * 0.06
    c.wall(concrete, x, 0.7, 0.05, 0.13)
    c.fill(d.accent, x - 0.04, 0.57, x, 0.52, x + 0.04, 0.57)


def draw_far_shore(
    c: Canvas, d: Design, wood: float, top: float, bottom: float, moment: Random
) -> None:
    """Mountains and a forest behind a water from ``top`` to ``bottom`` that mirrors them."""
    rock, foot = blend(d.rock, c.horizon, 0.4), 0.66

    def peaks(least: float, more: float) -> Iterator[tuple[float, float]]:
        for i in range(2 + d.count):
            x = 0.06 + 0.88 * ((i * 0.37 + d.skyline[0]) % 1)
            yield x, least + more * ((i * 0.61 + d.skyline[1]) % 1)

    for x, tall in peaks(0.12, 0.16):
        half, y = tall * (0.9 + d.skyline[2]), foot - tall
        c.fill(rock, x - half, foot, x, y, x + half, foot)
        c.fill(shade(rock, 0.84), x, y, x + half, foot, x + half * 0.1, foot)
        if d.variant:
            low, edge = foot - tall * 0.75, half * 0.25
            c.fill(SNOW, x - edge, low, x, y, x + edge, low, x, foot - tall * 0.62)
    draw_forest(c, d, wood)
    draw_water(c, d, top, bottom, moment)
    dark = blend(d.water, d.rock, 0.5)
    for x, deep in peaks(0.07, 0.1):
        c.fill(dark, x - deep, foot, x, foot + deep, x + deep, foot, opacity=0.4)


def draw_waterfall(c: Canvas, d: Design, moment: Random) -> None:
    """White water down a cliff into a pool, with mist and rocks."""
    top, rock = 0.76 - (0.34 + 0.16 * d.height), blend(d.rock, d.ground, 0.15)
    edge = (-1, top + 0.06, 0.1, top + 0.03, 0.3, top, 0.7, top + 0.01, 0.9, top + 0.05)
    c.fill(rock, *edge, 2, top + 0.02, 2, 0.86, -1, 0.86)
    for i in range(9):
        x = -0.05 + 0.13 * i + 0.04 * math.sin(9 * i + 6 * d.skyline[0])
        crack = (x, top + 0.07, x + 0.05, top + 0.05, x + 0.035, 0.8, x - 0.02, 0.8)
        c.fill(shade(rock, 0.8 if i % 2 else 0.9), *crack)
    c.line(shade(d.ground, 0.9), 0.03, *edge, 2, top + 0.02)
    for x in (0.08, 0.2, 0.82, 0.93):
        height = 0.1 + 0.05 * d.skyline[1]
        draw_tree(c, shade(d.ground, 0.6), x, top + 0.03, height, d.variant == 0)
    streams = 1 + d.count % 3
    half = (0.05 + 0.06 * d.width) / (0.6 + 0.4 * streams)
    for i in range(streams):
        x = 0.5 + d.side * 0.05 + (i - (streams - 1) / 2) * 0.19
        fall = (x - half * 0.8, top, x + half * 0.8, top, x + half * 1.3, 0.79)
        c.fill(blend(SNOW, (150, 190, 215), 0.3), *fall, x - half * 1.3, 0.79)
        for _ in range(7):
            place = x + (moment.random() - 0.5) * 1.7 * half
            start = top + 0.2 * moment.random()
            c.line(SNOW, 0.009, place, start, place + (place - x) * 0.3, start + 0.12)
    draw_water(c, d, 0.78, 1.3, moment)
    for i in range(5):
        x = 0.5 + (i - 2) * 0.09 * streams / 2 + 0.02 * moment.random()
        c.disc(SNOW, x, 0.775, 0.085, 0.03 + 0.015 * moment.random(), 0.5)
    draw_bank(c, d)
    for i, place in enumerate((0.1, 0.27, 0.72, 0.92)):
        x = place + 0.06 * (d.skyline[i % 3] - 0.5)
        c.disc(shade(rock, 0.7), x, 0.86 + 0.03 * (i % 2), 0.07, 0.045)
        c.disc(shade(rock, 0.92), x - 0.015, 0.85 + 0.03 * (i % 2), 0.045, 0.028)


DRAWINGS: dict[str, Callable[[Canvas, Design, Random], None]] = {
    "arch bridge": draw_arch_bridge,
    "bridge": draw_bridge,
    "castle": draw_castle,
    "chapel": draw_chapel,
    "church building": draw_church,
    "fortress": draw_fortress,
    "hill": draw_hill,
    "lake": draw_lake,
    "lighthouse": draw_lighthouse,
    "mountain": draw_mountain,
    "reservoir": draw_reservoir,
    "waterfall": draw_waterfall,
    "windmill": draw_windmill,
}
