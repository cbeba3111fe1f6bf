"""hgld: hierarchical image retrieval data, and its exact measurement."""

__all__ = ["__version__"]

__version__ = "0.2.0"
