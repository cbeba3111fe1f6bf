"""hgld: hierarchical image retrieval data, and its exact measurement."""

from hgld import _torchvision

__all__ = ["__version__"]

__version__ = "0.1.0"

_torchvision.install()
