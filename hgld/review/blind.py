"""Blind copy of the review sheet for one of several annotators, without the others' decisions.

It has neither decisions nor suggestions derived from them. Its rows are shuffled for each
annotator, so that fatigue affects different values. The base of a row records that it was written
without a decision, and its position in this order.
"""

import numpy as np
import pandas as pd

from hgld.artifacts.cells import guard_columns
from hgld.review.row_base import base_of
from hgld.review.sheets import list_values

__all__ = ["blind_sheet"]

HINTS = (
    "cluster",
    "cluster_name",
    "distance",
    "margin",
    "hint",
    "suggestion",
    "probability",
    "reason",
)


def blind_sheet(
    clusters: pd.DataFrame,
    landmark_values: pd.DataFrame,
    landmarks: pd.DataFrame,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    class_hints: pd.DataFrame,
    class_labels: pd.DataFrame | None = None,
    *,
    seed: int,
    hints: bool,
) -> pd.DataFrame:
    """Return one undecided row for each value, shuffled by the seed; optionally without hints."""
    none = decisions[:0]
    tables = (clusters, landmark_values, landmarks, taxonomy, none, class_hints, class_labels)
    sheet = list_values(*tables)
    order = np.random.default_rng(seed).permutation(len(sheet))
    sheet = sheet.iloc[order].drop(columns=["status", "conflict", *([] if hints else HINTS)])
    bases = (base_of(key, (), row) for row, key in enumerate(sheet["key"], 1))
    return guard_columns(sheet.assign(base=list(map(str, bases))))
