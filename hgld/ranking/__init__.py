"""Hierarchical retrieval losses and metrics, exact; usable alone, on torch tensors.

``levels`` computes how many levels two label paths share, ``steps`` has smooth steps for
differentiable ranks, ``losses`` the training losses and ``metrics`` the reported metrics; ``parts``
ranks a gallery that is split into parts, and ``interchange`` reads and writes rankings of other
programs. It imports only torch and numpy; kernels are loaded on first use.
"""

from hgld.ranking import interchange, levels, losses, metrics, parts, steps

__all__ = ["interchange", "levels", "losses", "metrics", "parts", "steps"]
