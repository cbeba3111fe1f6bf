"""Hierarchical retrieval losses and metrics, exact; usable alone, on torch tensors.

``levels`` computes how much two label paths share, ``steps`` how a rank is made smooth, ``losses``
what to train on and ``metrics`` what to report; ``parts`` ranks a gallery that lies in parts, and
``interchange`` reads and writes other programs' rankings. It imports torch and numpy alone; kernels
load when used.
"""

from hgld.ranking import interchange, levels, losses, metrics, parts, steps

__all__ = ["interchange", "levels", "losses", "metrics", "parts", "steps"]
