"""Which drawing stands for which class of the made world."""

from collections.abc import Callable
from random import Random

from hgld.sources.toy.bridges import draw_arch_bridge, draw_bridge
from hgld.sources.toy.buildings import draw_castle, draw_chapel, draw_church, draw_fortress
from hgld.sources.toy.canvas import Canvas
from hgld.sources.toy.landscapes import (
    draw_hill,
    draw_lake,
    draw_mountain,
    draw_reservoir,
    draw_waterfall,
)
from hgld.sources.toy.scenery import Design
from hgld.sources.toy.towers import draw_lighthouse, draw_windmill

__all__ = ["DRAWINGS", "Drawing"]

Drawing = Callable[[Canvas, Design, Random], None]

DRAWINGS: dict[str, Drawing] = {
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
