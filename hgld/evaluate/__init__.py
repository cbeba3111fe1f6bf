"""Exact evaluation of retrieval models: embed queries and gallery, rank, compute the metrics."""

from hgld.evaluate.measure import evaluate_models, evaluate_names, evaluate_officially
from hgld.evaluate.protocol import check_evaluation

__all__ = ["check_evaluation", "evaluate_models", "evaluate_names", "evaluate_officially"]
