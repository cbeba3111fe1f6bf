"""Measures models on queries and gallery, exactly: embed, rank, and read the metrics off."""

from hgld.evaluate.measure import evaluate_models, evaluate_officially
from hgld.evaluate.preconditions import check_evaluation

__all__ = ["check_evaluation", "evaluate_models", "evaluate_officially"]
