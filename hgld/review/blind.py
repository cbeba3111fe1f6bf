"""A copy of the review sheet for one of several annotators, who must not see the others' work.

No decision stands in it and no suggestion that comes from one; its rows are in an order of its own,
so that what an annotator decides when tired is not the same for all. The base of a row says that it
was written from no decision, and its place in this order.
"""

import numpy as np
import pandas as pd

from hgld.artifacts.cells import guard_columns
from hgld.review.row_base import base_of
from hgld.review.sheets import list_values

__all__ = ["blind_sheet"]

HINTS = ("cluster", "cluster_name", "distance", "margin", "hint", "suggestion")


def blind_sheet(
    clusters: pd.DataFrame,
    landmark_values: pd.DataFrame,
    landmarks: pd.DataFrame,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    class_hints: pd.DataFrame,
    *,
    seed: int,
    hints: bool,
) -> pd.DataFrame:
    """One row a value, undecided, in an order drawn by the seed; without hints if so wanted."""
    none = decisions[:0]
    sheet = list_values(clusters, landmark_values, landmarks, taxonomy, none, class_hints)
    order = np.random.default_rng(seed).permutation(len(sheet))
    sheet = sheet.iloc[order].drop(columns=["status", *([] if hints else HINTS)])
    bases = (base_of(key, None, row) for row, key in enumerate(sheet["key"], 1))
    return guard_columns(sheet.assign(base=list(map(str, bases))))
