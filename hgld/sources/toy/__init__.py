"""The made landmark world: drawn images with a known hierarchy, and a wiki that knows them.

world.py says what there is; scenery.py and the drawings put it on canvas.py's paper; files.py
writes it in GLDv2's own layout; wiki.py and stand_in.py let the real scraper ask for it without a
network.
"""

from hgld.sources.toy.files import draw_world
from hgld.sources.toy.stand_in import stand_in

__all__ = ["draw_world", "stand_in"]
