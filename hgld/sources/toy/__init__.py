"""The drawn landmark world: images with a known hierarchy, and a wiki that knows them.

``world`` holds the facts, ``drawing`` and ``landmarks`` draw them, ``wiki`` describes them as
Commons and Wikidata would, ``files`` writes all of it in GLDv2's own layout.
"""

from hgld.sources.toy.files import draw_world

__all__ = ["draw_world"]
