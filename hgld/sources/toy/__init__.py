"""Synthetic data set: drawn landmarks with a known hierarchy, and a matching wiki.

``world`` has the facts, ``drawing`` and ``landmarks`` draw them, ``wiki`` describes them as Commons
and Wikidata would, ``writer`` writes everything in GLDv2's layout.
"""

from hgld.sources.toy.writer import draw_world

__all__ = ["draw_world"]
