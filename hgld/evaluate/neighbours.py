"""Nearest images by the embeddings of one model: near-duplicates between splits.

A photo of the queries or the gallery that is also among the training photos makes a measurement
too good, also under another name or size. The search is exact and reads the gallery from its files
part by part. Nothing is dropped: the pairs are a table, which ``collect.exclude`` accepts.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from hgld.config import EvaluateOptions
from hgld.errors import UsageError
from hgld.evaluate.embeddings import EmbeddingStore
from hgld.evaluate.mapped_vectors import ROWS_AT_ONCE, MappedVectors
from hgld.evaluate.models import find_models
from hgld.evaluate.results import STATE
from hgld.evaluate.sides import Shards, Side
from hgld.model.devices import choose_device
from hgld.ranking.evaluation import rank_blocks
from hgld.tasks import track

Vectors = MappedVectors | np.ndarray
TRAINED = ("train", "validation")
IMAGE = ("image_id", "split", "landmark_id")


def embed_splits(
    work: Path, shards: Path, model: str, options: EvaluateOptions, splits: Sequence[str] = ()
) -> dict[str, tuple[Side, MappedVectors]]:
    """Embed splits of the shards with one model, or read the embeddings that an evaluation kept.

    Args:
        work: work folder, with the trained runs and the kept embeddings.
        shards: folder of the images.
        model: a name of ``evaluate.models``, or a model as described there; empty: the first one
            of ``evaluate.models``, else the first trained run.
        options: of the evaluation: models, device, precision.
        splits: default: all splits of the shards.

    Returns:
        split -> its images, and their (N, D) unit vectors.

    Raises:
        InvalidData: embeddings are not finite; a path does not lead to a model.
        UsageError: a split without images; no such run.
    """
    wanted = {model: options.models.get(model, model)} if model else options.models
    found = find_models(wanted, work / "models")[0]
    data = Shards.read(shards)
    sides = [data.side(name) for name in splits or data.splits]
    vectors = EmbeddingStore(work / STATE, options).embed(found, sides)
    return {side.split: (side, vectors[side.split]) for side in sides}


def nearest(
    query: Vectors, gallery: Vectors, count: int, device: str = "auto"
) -> tuple[np.ndarray, np.ndarray]:
    """Find the nearest gallery images of each query, exactly.

    Args:
        query: (Q, D) unit vectors.
        gallery: (G, D) unit vectors, read part by part.
        count: K, at most G are found.
        device: that ranks: auto, cpu or cuda.

    Returns:
        (Q, K) gallery rows, nearest first, and (Q, K) float32 cosines.

    Example:
        >>> rows, cosines = nearest(np.eye(2, dtype="f4")[:1], np.eye(2, dtype="f4"), 2)
        >>> rows.tolist(), cosines.tolist()
        ([[0, 1]], [[1.0, 0.0]])
    """
    place = choose_device(device)
    queries, pieces = MappedVectors.of(query), MappedVectors.of(gallery)
    one_class = torch.zeros(len(pieces), 1, dtype=torch.int64)  # the order is by score alone
    starts = range(0, len(queries), ROWS_AT_ONCE)
    rows, cosines = [], []
    for start in track(starts, "Comparing images", len(starts)):
        block = queries[np.arange(start, min(start + ROWS_AT_ONCE, len(queries)))]
        own = torch.from_numpy(block).to(place), one_class.new_zeros(len(block), 1)
        for ranking in rank_blocks(*own, pieces.tensors(), one_class, first=count):
            found = ranking.first.astype(np.int64)
            # computed again for these few, as a ranking has levels and rows but no scores
            near = pieces[found.ravel()].reshape(*found.shape, -1)  # (q, K, D)
            cosines.append(np.einsum("qd,qkd->qk", block[: len(found)], near))
            rows.append(found)
            block = block[len(found) :]  # rankings come for consecutive queries
    return np.concatenate(rows), np.concatenate(cosines)


def find_duplicates(
    splits: dict[str, tuple[Side, MappedVectors]],
    cosine: float,
    count: int = 10,
    device: str = "auto",
    between: Sequence[str] = (),
) -> pd.DataFrame:
    """Pair the images of evaluation splits with the training images that are almost equal.

    Args:
        splits: from ``embed_splits``; train and validation are the training images.
        cosine: least similarity of a pair.
        count: training images at most for each evaluated one, the nearest.
        device: that ranks.
        between: two splits in the place of training and evaluation; twice the same split gives its
            pairs, each once.

    Returns:
        image_id, split and landmark_id of the training image; evaluated_id, evaluated_split and
        evaluated_landmark; cosine. Sorted by cosine, the largest first.

    Raises:
        UsageError: training images or evaluation images are missing.
    """
    sides = [between[:1], between[1:]] if between else [TRAINED, set(splits).difference(TRAINED)]
    trained, others = ([part for name, part in splits.items() if name in side] for side in sides)
    if not trained or not others:
        raise UsageError(
            f"the shards have {', '.join(splits)}; expected training images (train) and images to "
            "evaluate on, such as index, test or evaluation"
        )
    rows = pd.concat([side.read(IMAGE) for side, _ in trained], ignore_index=True)
    gallery = MappedVectors(tuple(p for _, v in trained for p in v.pieces))
    within = len(set(between)) == 1
    pairs = []
    for side, vectors in others:
        near, cosines = nearest(vectors, gallery, count + within, device)
        # rounded, since that of two equal images may be just below 1
        query, rank = np.nonzero(cosines.round(5) >= cosine)
        row, value = near[query, rank], cosines[query, rank]
        if within:  # each image finds itself, and each pair may be found from both sides
            ends = np.sort(np.stack([row, query], axis=1), axis=1)
            _, first = np.unique(ends, axis=0, return_index=True)
            first = first[ends[first, 0] < ends[first, 1]]
            row, query, value = ends[first, 0], ends[first, 1], value[first]
        pairs.append((row, side.read(IMAGE).iloc[query], value))
    found = rows.iloc[np.concatenate([near for near, _, _ in pairs])]
    evaluated = pd.concat([other for _, other, _ in pairs])
    names = ("evaluated_id", "evaluated_split", "evaluated_landmark")
    table = pd.concat(
        [
            found.reset_index(drop=True),
            evaluated.set_axis(names, axis=1).reset_index(drop=True),
            pd.Series(np.concatenate([value for *_, value in pairs]), name="cosine").round(4),
        ],
        axis=1,
    )
    order = ["cosine", "image_id", "evaluated_id"]
    return table.sort_values(order, ascending=[False, True, True], ignore_index=True)
