"""Evaluation protocol of Revisited Oxford and Paris: easy, medium and hard, with junk removed.

Radenovic et al., "Revisiting Oxford and Paris", CVPR 2018. For each query, the images of its
building are easy, hard or junk (too little of it is visible). Each protocol defines which are
relevant and which are junk; junk images are removed from the ranking before ranks are counted, so
they change no value.

            relevant       junk
easy        easy           hard, junk
medium      easy, hard     junk
hard        hard           easy, junk

AP is the area below the precision-recall curve by the trapezoidal rule, as in Oxford's own program,
not the sum of precisions of ``hgld.ranking``. The two cannot be compared.

The published ground truth is a Python pickle, which can run any code, so it is not read here. If
you trust the file, convert it to JSON once:

    python -c "import json, pickle, sys; json.dump(pickle.load(open(sys.argv[1], 'rb')),
    open('gnd.json', 'w'), default=lambda array: array.tolist())" gnd_roxford5k.pkl
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hgld.errors import InvalidData
from hgld.evaluate.given import Given, require_same_dim, unit_rows

__all__ = ["PROTOCOLS", "Answers", "RevisitedScore", "ranks_of", "revisited_ap", "score_revisited"]

PROTOCOLS = {  # name: (relevant, junk)
    "easy": (("easy",), ("hard", "junk")),
    "medium": (("easy", "hard"), ("junk",)),
    "hard": (("hard",), ("easy", "junk")),
}
TO_JSON = "a pickle can run any code; turn it to JSON: see `hgld evaluations revisited --help`"


@dataclass(frozen=True)
class Answers:
    """Published ground truth.

    Attributes:
        queries: names of the query images.
        images: names of the gallery images.
        found: for each query, the gallery rows that are easy, hard and junk.
    """

    queries: tuple[str, ...]
    images: tuple[str, ...]
    found: tuple[Mapping[str, np.ndarray], ...]

    @classmethod
    def read(cls, path: Path) -> "Answers":
        """Read JSON with the keys of the published files: qimlist, imlist, gnd.

        Raises:
            InvalidData: the file is missing, a pickle, or lacks these keys.
        """
        if not path.is_file():
            raise InvalidData(f"{path}: no such file; expected the answers as JSON")
        if path.suffix in (".pkl", ".pickle"):
            raise InvalidData(f"{path}: {TO_JSON}")
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            images, queries = document["imlist"], document["qimlist"]
            found = [_rows_of(answer, len(images)) for answer in document["gnd"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidData(
                f"{path}: not the answers of Revisited Oxford or Paris ({error}); expected JSON "
                "with qimlist, imlist and gnd, each gnd with easy, hard and junk"
            ) from None
        if len(found) != len(queries):
            raise InvalidData(f"{path}: {len(found)} answers for {len(queries)} queries")
        return cls(tuple(map(str, queries)), tuple(map(str, images)), tuple(found))


def _rows_of(answer: Mapping[str, Sequence[int]], images: int) -> dict[str, np.ndarray]:
    rows = {name: np.array(answer[name], np.int64) for name in ("easy", "hard", "junk")}
    every = np.concatenate(list(rows.values()))
    wrong = every[(every < 0) | (every >= images)]
    if wrong.size:
        raise ValueError(f"row {wrong[0]} of {images} images")
    if len(np.unique(every)) != len(every):
        raise ValueError("an image is of two kinds for one query")
    return rows


@dataclass(frozen=True)
class RevisitedScore:
    """Metrics of one protocol.

    Attributes:
        mean: mAP over the queries with a relevant image.
        precision: k -> mP@k.
        values: (Q,) AP; nan if a query has no relevant image.
    """

    mean: float
    precision: dict[int, float]
    values: np.ndarray


def score_revisited(
    query: Given, gallery: Given, answers: Answers, ks: Sequence[int] = (1, 5, 10)
) -> dict[str, RevisitedScore]:
    """Compute the easy, medium and hard scores of embeddings.

    Rows are matched by id if the files have ids, else they are in the order of the published lists.

    Raises:
        InvalidData: the number of images or of dimensions does not match.
    """
    require_same_dim(query, gallery)
    sides = (
        _in_order(side, names)
        for side, names in ((query, answers.queries), (gallery, answers.images))
    )
    queries, images = (unit_rows(vectors) for vectors in sides)
    ranks: dict[str, list[np.ndarray]] = {name: [] for name in PROTOCOLS}
    for row, found in zip(queries, answers.found, strict=True):
        scores = images @ row  # (G,)
        for name, (relevant, junk) in PROTOCOLS.items():
            parts = [np.concatenate([found[kind] for kind in kinds]) for kinds in (relevant, junk)]
            ranks[name].append(ranks_of(scores, *parts))
    return {name: _summarise(found, ks) for name, found in ranks.items()}


def ranks_of(scores: np.ndarray, relevant: np.ndarray, junk: np.ndarray) -> np.ndarray:
    """Return the ranks, from 1, of the relevant images without junk; they rank last among ties.

    Args:
        scores: (G,) similarity; higher ranks first.
        relevant: gallery rows.
        junk: gallery rows.

    Example:
        >>> ranks_of(np.array([0.9, 0.8, 0.7, 0.6]), np.array([1, 3]), np.array([0]))
        array([1, 3])
    """
    others = np.ones(len(scores), bool)
    others[relevant] = others[junk] = False
    wrong = np.sort(scores[others])
    right = np.sort(scores[relevant])[::-1]
    before = len(wrong) - np.searchsorted(wrong, right, side="left")
    return np.arange(1, len(right) + 1) + before


def revisited_ap(ranks: np.ndarray) -> float:
    """Return AP by the trapezoidal rule from the ranks of the relevant images.

    (1 / R) sum_i (P(r_i - 1) + P(r_i)) / 2, where P(0) = 1.

    Example:
        >>> revisited_ap(np.array([1, 3]))
        0.7916666666666666
    """
    if not len(ranks):
        return float("nan")
    seen = np.arange(len(ranks))  # number of relevant images before each
    before = np.where(ranks > 1, seen / np.maximum(ranks - 1, 1), 1.0)
    return float(((before + (seen + 1) / ranks) / 2).mean())


def _precision_at(ranks: np.ndarray, k: int) -> float:
    """Return precision at k, or at the rank of the last relevant image if that is smaller."""
    depth = min(int(ranks.max()), k)
    return float((ranks <= depth).sum() / depth)


def _summarise(ranks: Sequence[np.ndarray], ks: Sequence[int]) -> RevisitedScore:
    values = np.array([revisited_ap(found) for found in ranks])
    known = [found for found in ranks if len(found)]
    if not known:
        return RevisitedScore(float("nan"), dict.fromkeys(ks, float("nan")), values)
    precision = {k: float(np.mean([_precision_at(found, k) for found in known])) for k in ks}
    return RevisitedScore(float(np.nanmean(values)), precision, values)


def _in_order(side: Given, names: Sequence[str]) -> np.ndarray:
    """Return embeddings in the order of the published list."""
    if side.ids is not None:
        return side.of(np.array(names, dtype=str))
    if len(side) != len(names):
        raise InvalidData(f"{side.path}: {len(side)} embeddings; the answers list {len(names)}")
    return side.vectors
