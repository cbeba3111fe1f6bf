"""Exact evaluation of retrieval models: embed queries and gallery, rank, compute the metrics.

Names are loaded on first use, so that reading a finished evaluation loads neither torch nor timm.
"""

from typing import TYPE_CHECKING

from hgld.lazy import lazy_names

if TYPE_CHECKING:
    from hgld.evaluate.measure import evaluate_models, evaluate_names, evaluate_officially
    from hgld.evaluate.protocol import check_evaluation

__all__ = ["check_evaluation", "evaluate_models", "evaluate_names", "evaluate_officially"]

__getattr__ = lazy_names(
    __name__,
    measure="evaluate_models evaluate_names evaluate_officially",
    protocol="check_evaluation",
)
