"""Find labels that were flipped on purpose, on the photos of Washington: precision of the first k.

Needs the shards of ``hgld run tests/real/washington.toml --work work/washington``. All photos of
landmarks with five photos or more are embedded by the network that a package ships, untrained on
landmarks. A share of the photos gets the label of another landmark drawn at random, or a share of
the landmarks another supercategory. Values are means over five draws.
"""

from pathlib import Path

import numpy as np

from hgld.config import EvaluateOptions
from hgld.evaluate.given import unit_rows
from hgld.evaluate.neighbours import embed_splits, find_suspects
from hgld.evaluate.ranking import mean_classes
from tests.benchmarks.meters import Row

WORK = Path("work/washington")
MODEL = "offline:efficientnet-lite0"
LEAST = 5  # photos of a landmark
DRAWS = 5


def rows() -> list[Row]:
    """Precision at some k for images and for landmarks."""
    found = embed_splits(WORK, WORK / "shards", MODEL, EvaluateOptions(device="cpu"))
    vectors = np.concatenate([np.asarray(part) for _, part in found.values()])
    labels = np.concatenate([side.labels for side, _ in found.values()])
    _, own, sizes = np.unique(labels[:, -1], return_inverse=True, return_counts=True)
    kept = sizes[own] >= LEAST
    vectors, labels = vectors[kept], labels[kept]
    paths, means = mean_classes(vectors, labels, limit=len(labels))
    tests = [
        (f"{share:.0%} of {len(labels):,} photos flipped", vectors, labels, share, (50, 100))
        for share in (0.05, 0.1)
    ]
    name = f"10% of {len(paths)} landmarks in another supercategory"
    tests.append((name, unit_rows(means), paths[:, :-1], 0.1, (10,)))
    return [row for test in tests for row in precisions(*test)]


def precisions(
    name: str, vectors: np.ndarray, labels: np.ndarray, share: float, ks: tuple[int, ...]
) -> list[Row]:
    """Mean share of flipped points among the k most suspect ones, also for k = all flipped."""
    count = int(share * len(labels))
    places = (*ks, count)
    hits = np.zeros((DRAWS, len(places)))
    for draw in range(DRAWS):
        random = np.random.default_rng(draw)
        flipped, bad = labels.copy(), random.choice(len(labels), count, replace=False)
        for i in bad:
            others = np.flatnonzero(labels[:, -1] != labels[i, -1])
            flipped[i] = labels[random.choice(others)]
        score = np.nan_to_num(find_suspects(vectors, flipped, device="cpu").score, nan=-np.inf)
        is_bad = np.isin(np.argsort(-score, kind="stable"), bad)
        hits[draw] = [is_bad[:k].mean() for k in places]
    return [
        Row(f"{name}, precision@{k}", value, "")
        for k, value in zip(places, hits.mean(axis=0), strict=True)
    ]
