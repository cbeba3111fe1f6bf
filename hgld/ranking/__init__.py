"""Hierarchical retrieval losses and metrics, exact; usable alone, on torch tensors.

``levels`` says how near two images are, ``steps`` how a rank is made smooth, ``losses`` what to
train on and ``metrics`` what to report. It imports torch and numpy alone; kernels load when used.
"""

from hgld.ranking import levels, losses, metrics, steps

__all__ = ["levels", "losses", "metrics", "steps"]
