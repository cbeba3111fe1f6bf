"""Measure embeddings by every metric of the tables, all photos against all others."""

import numpy as np
import torch
from torch import Tensor

from hgld.ranking.levels import at_least, shared_levels
from hgld.ranking.metrics import average_precision, decomposability_gap, evaluate

LEVELS = ("kind", "supercategory", "landmark")
METRICS = (
    *("R@1:landmark", "mAP@R:landmark", "mAP@100:landmark"),
    *("AP:landmark", "AP:supercategory", "AP:kind", "H-AP", "ASI", "NDCG", "wAP"),
)
GAP = "gap"  # of AP:landmark, between batches of the gallery and the whole gallery
GAP_BATCH, GAP_QUERIES = 64, 1000


@torch.inference_mode()
def measure(embeddings: Tensor, photo_labels: np.ndarray) -> dict[str, float]:
    """Mean over the queries of every metric.

    Args:
        embeddings: (N, D) unit vectors.
        photo_labels: (N, L), coarse to fine.
    """
    labels = torch.from_numpy(photo_labels)
    levels = LEVELS[-labels.shape[1] :]  # made samples have no kinds
    names = [name for name in METRICS if ":" not in name or name.split(":")[1] in levels]
    result = evaluate(embeddings, labels, embeddings, labels, names, levels, exclude_self=True)
    return {**result.mean(), GAP: _gap(embeddings, labels)}


def _gap(embeddings: Tensor, labels: Tensor) -> float:
    """How much AP is flattered by a gallery cut at random into batches (mean over queries)."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    batch = torch.empty(len(labels), dtype=torch.int64)
    batch[order] = torch.arange(len(labels)) // GAP_BATCH
    rows = order[:GAP_QUERIES].sort().values
    levels = at_least(shared_levels(labels[rows], labels), labels.shape[1])
    levels[torch.arange(len(rows)), rows] = -1  # a query is not in its own gallery
    scores = embeddings[rows] @ embeddings.T
    gaps = decomposability_gap(scores, levels, batch, lambda s, lv: average_precision(s, lv, 1))
    return float(gaps.nanmean())
