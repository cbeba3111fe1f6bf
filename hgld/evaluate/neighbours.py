"""Nearest images by the embeddings of one model: near-duplicates between splits, suspect labels.

A photo of the queries or the gallery that is also among the training photos makes a measurement
too good, also under another name or size. The search is exact and reads the gallery from its files
part by part. Nothing is dropped: the pairs are a table, which ``collect.exclude`` accepts.

A label is suspect if the embedding disagrees with it. Two views that fail differently are joined.
The nearest images vote: each image is left out of its own vote, as in cross-validation with as many
folds as images. The class means compete: an image is compared with the mean of its own class
without itself, and with the mean of every other class. Classes are judged in the same way, as
points at their means, by the class above them.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from hgld.config import EvaluateOptions
from hgld.errors import UsageError
from hgld.evaluate.embedded import STATE
from hgld.evaluate.embeddings import EmbeddingStore
from hgld.evaluate.given import unit_rows
from hgld.evaluate.mapped_vectors import ROWS_AT_ONCE, MappedVectors
from hgld.evaluate.models import COMMAND_LINE, SOURCES, find_models
from hgld.evaluate.ranking import mean_classes
from hgld.evaluate.sides import Shards, Side
from hgld.model.devices import choose_device
from hgld.ranking.evaluation import rank_blocks
from hgld.tasks import track

Vectors = MappedVectors | np.ndarray
TRAINED = ("train", "validation")
IMAGE = ("image_id", "split", "landmark_id")
JUDGED = ["score", "votes", "margin"]


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
        UsageError: a split without images; no such model or run.
    """
    named = options.models
    if model in named or not model:
        wanted, option = {model: named[model]} if model else named, ""
    elif ":" in model or Path(model).exists():
        wanted, option = {model: model}, COMMAND_LINE
    else:
        raise UsageError(
            f"{COMMAND_LINE}: there is no model '{model}' among evaluate.models "
            f"({', '.join(named) or 'which names none'}), nor such a path; expected {SOURCES}"
        )
    found = find_models(wanted, work / "models", option)[0]
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
    found = rows.iloc[np.concatenate([near for near, _, _ in pairs])].reset_index(drop=True)
    evaluated = pd.concat([other for _, other, _ in pairs], ignore_index=True)
    table = found.assign(
        evaluated_id=evaluated["image_id"],
        evaluated_split=evaluated["split"],
        evaluated_landmark=evaluated["landmark_id"],
        cosine=np.concatenate([value for *_, value in pairs]).round(4),
    )
    order = ["cosine", "image_id", "evaluated_id"]
    return table.sort_values(order, ascending=[False, True, True], ignore_index=True)


def find_suspects(
    vectors: Vectors, labels: np.ndarray, count: int = 10, device: str = "auto"
) -> pd.DataFrame:
    """Judge each of N labelled points by its nearest points and by the class means.

    Args:
        vectors: (N, D) unit vectors.
        labels: (N, L) class numbers, coarse to fine; a class has one parent.
        count: nearest points that vote.
        device: that ranks: auto, cpu or cuda.

    Returns:
        A row for each point, with nan if it is alone in its class. score: suspicion, the mean of
        both standard scores, where 0 is usual and larger more suspect. votes: share of the nearest
        points in its class, minus the largest share of another. margin: cosine with the mean of its
        class, without itself, minus the largest one with the mean of another class. elsewhere: row
        of a point of that other class.

    Raises:
        UsageError: fewer than two classes, or no class of two points.

    Example:
        >>> vectors = unit_rows(np.array([[9, 1], [9, 0], [9, 1], [1, 9], [0, 9], [1, 9.0]]))
        >>> labels = np.array([[0], [0], [1], [1], [1], [1]])
        >>> find_suspects(vectors, labels, count=2).score.argmax()
        np.int64(2)
    """
    classes, first, own, sizes = np.unique(
        labels, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    if len(classes) < 2 or sizes.max() < 2:
        raise UsageError(
            f"{len(labels)} images of {len(classes)} classes; expected at least three images of "
            "two classes, two of them of one class, since a label is judged by other images"
        )
    pieces, own = MappedVectors.of(vectors), own.ravel()
    rows, _ = nearest(pieces, pieces, count + 1, device)  # each point finds itself, too
    _, means = mean_classes(pieces, labels, limit=len(classes))
    # two, since the nearest mean may be that of the own class
    near, cosines = nearest(pieces, unit_rows(means), 2, device)
    is_own = near[:, 0] == own
    other = np.where(is_own, near[:, 1], near[:, 0])
    margin = _with_own(pieces, means, own, sizes) - np.where(is_own, cosines[:, 1], cosines[:, 0])
    votes = np.where(np.isnan(margin), np.nan, _votes(rows, own))
    score = -(_standard(votes) + _standard(margin)) / 2
    columns = {"score": score, "votes": votes, "margin": margin, "elsewhere": first[other]}
    return pd.DataFrame(columns)


def suspect_tables(
    rows: pd.DataFrame,
    vectors: Vectors,
    labels: np.ndarray,
    names: "pd.Series[str]",
    count: int = 10,
    device: str = "auto",
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rank the images of a split, and its classes, the most suspect first.

    Args:
        rows: (N,) images: image_id, split, landmark_id.
        vectors: (N, D) unit vectors.
        labels: (N, L) class numbers, coarse to fine.
        names: (N,) label path of each image as text.
        count: nearest images, or classes, that vote.
        device: that ranks.

    Returns:
        Images: image_id, split, landmark_id, path, elsewhere (the path it seems to belong to),
        score, votes, margin. Classes: split, landmark_id, path, images, and if there are levels
        above the finest one elsewhere, score, votes and margin of the mean, else the mean score of
        the images.
    """
    found = find_suspects(vectors, labels, count, device)
    images = rows[[*IMAGE]].assign(
        path=names.to_numpy(),
        elsewhere=names.to_numpy()[found["elsewhere"]],
        **found[JUDGED].round(4),
    )
    paths, means = mean_classes(vectors, labels, limit=len(labels))
    _, first, own, sizes = np.unique(
        labels, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    score = np.bincount(own.ravel(), found["score"]) / sizes
    classes = images.iloc[first][["split", "landmark_id", "path"]].assign(
        images=sizes, score=score.round(4)
    )
    _, siblings = np.unique(paths[:, -2:-1], axis=0, return_counts=True)
    if len(siblings) > 1 and siblings.max() > 1:
        # A class is judged by the levels above it, since its finest level is the class itself.
        above = find_suspects(unit_rows(means), paths[:, :-1], count, device)
        seems = names.iloc[first[above["elsewhere"]]].str.rpartition(" > ")[0]
        judged = {name: above[name].round(4).to_numpy() for name in JUDGED}
        classes = classes.assign(elsewhere=seems.to_numpy(), **judged)
    images = images.sort_values(["score", "image_id"], ascending=[False, True], ignore_index=True)
    keys = ["score", "split", "landmark_id"]
    return images, classes.sort_values(keys, ascending=[False, True, True], ignore_index=True)


def _votes(rows: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return (N,) share of the nearest points in the class of each, minus the largest other one."""
    others = rows != np.arange(len(own))[:, None]
    others[others.all(axis=1), -1] = False  # more than K equal points: the last one leaves instead
    near = own[rows[others].reshape(len(own), -1)]  # (N, K)
    shares = (near[:, :, None] == near[:, None]).mean(axis=2)  # of each neighbour's class
    is_own = near == own[:, None]
    return np.asarray(is_own.mean(axis=1) - np.where(is_own, 0, shares).max(axis=1))


def _with_own(
    pieces: MappedVectors, means: np.ndarray, own: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """Return (N,) cosine of each point with the mean of the others of its class; nan: no others."""
    found = np.full(len(own), np.nan)
    for start in range(0, len(own), ROWS_AT_ONCE):
        at = np.arange(start, min(start + ROWS_AT_ONCE, len(own)))
        points, n = pieces[at].astype(np.float64), sizes[own[at]]
        rest = means[own[at]] * n[:, None] - points
        length = np.linalg.norm(rest, axis=1)
        cosine = np.einsum("nd,nd->n", points, rest) / np.maximum(length, 1e-12)
        found[at] = np.where(n > 1, cosine, np.nan)
    return found


def _standard(values: np.ndarray) -> np.ndarray:
    """Return values in standard deviations from their mean; nan stays."""
    return np.asarray((values - np.nanmean(values)) / max(float(np.nanstd(values)), 1e-12))
