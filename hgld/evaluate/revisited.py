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

The published ground truth is a Python pickle, ``gnd_roxford5k.pkl`` or ``gnd_rparis6k.pkl``. It is
read only if it holds data alone, since a pickle can otherwise run any code.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from hgld.artifacts import BOX, declared_table, read_plain_pickle
from hgld.config import default_work
from hgld.errors import InvalidData, MissingInput
from hgld.evaluate.given import Given, inner_products, require_same_dim, unit_rows
from hgld.words import count_text

PROTOCOLS = {  # name: (relevant, junk)
    "easy": (("easy",), ("hard", "junk")),
    "medium": (("easy", "hard"), ("junk",)),
    "hard": (("hard",), ("easy", "junk")),
}
QUERIES_AT_ONCE = 16
KS = (1, 5, 10)  # of mP@k
OVERLAP = (
    "GLDv2 and GLDv2-clean contain landmarks of Oxford and Paris, which changes the order of "
    "methods (Song et al. 2024)"
)


@dataclass(frozen=True)
class Answers:
    """Published ground truth.

    Attributes:
        queries: names of the query images.
        images: names of the gallery images.
        found: for each query, the gallery rows that are easy, hard and junk.
        boxes: (Q, 4) left, top, right, bottom of the building in the query's photo; nan: no box.
    """

    queries: tuple[str, ...]
    images: tuple[str, ...]
    found: tuple[Mapping[str, np.ndarray], ...]
    boxes: np.ndarray

    @classmethod
    def read(cls, path: Path) -> "Answers":
        """Read a published pickle, or JSON with its keys: qimlist, imlist, gnd.

        Raises:
            InvalidData: the file is missing, lacks these keys, or is a pickle of more than data.
        """
        if not path.is_file():
            raise InvalidData(f"{path}: no such file; expected the answers, .pkl or .json")
        found, boxes, where = [], [], ""
        try:
            if path.suffix in (".pkl", ".pickle"):
                document = read_plain_pickle(path)
            else:
                document = json.loads(path.read_text(encoding="utf-8"))
            images, queries = document["imlist"], document["qimlist"]
            if isinstance(images, str) or isinstance(queries, str):
                raise ValueError("a text in the place of a list of names")
            for number, answer in enumerate(document["gnd"]):
                where = f"gnd[{number}]: "
                found.append(_rows_of(answer, len(images)))
                box = [float(number) for number in np.ravel(answer.get("bbx", []))]
                boxes.append(box if len(box) == 4 else [np.nan] * 4)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidData(
                f"{path}: not the answers of Revisited Oxford or Paris ({where}{error}); expected "
                "qimlist, imlist and gnd, each gnd with easy, hard and junk; get the file again"
            ) from None
        if len(found) != len(queries):
            raise InvalidData(
                f"{path}: {len(found)} answers for {len(queries)} queries; expected one for each; "
                "get the file again"
            )
        names = tuple(map(str, queries)), tuple(map(str, images))
        return cls(*names, tuple(found), np.array(boxes, np.float64).reshape(-1, 4))

    def photos(self) -> dict[str, pd.DataFrame]:
        """Return image_id, path and box of the sides "query" and "gallery"; a photo is NAME.jpg.

        Raises:
            InvalidData: a query has no box, although only its building is the query.
        """
        query, gallery = (
            pd.DataFrame({"image_id": names, "path": [f"{name}.jpg" for name in names]})
            for names in (self.queries, self.images)
        )
        left, top, right, bottom = self.boxes.T
        wrong = ~((left < right) & (top < bottom))
        if wrong.any():
            number = int(wrong.argmax())
            raise InvalidData(
                f"gnd[{number}] of the answers ({self.queries[number]}) has the box "
                f"{self.boxes[number].tolist()}; expected bbx = left, top, right, bottom in pixels"
            )
        return {
            "query": query.assign(**dict(zip(BOX, self.boxes.T, strict=True))),
            "gallery": gallery,
        }


def _rows_of(answer: Mapping[str, Sequence[int]], images: int) -> dict[str, np.ndarray]:
    found = {name: np.asarray(answer[name]) for name in ("easy", "hard", "junk")}
    for name, numbers in found.items():  # an empty list has another type
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise ValueError(f"{name} is not a list of row numbers")
    rows = {name: numbers.astype(np.int64) for name, numbers in found.items()}
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


def score_revisited(query: Given, gallery: Given, answers: Answers) -> dict[str, RevisitedScore]:
    """Compute the easy, medium and hard scores of embeddings.

    Rows are matched by id if the files have ids, else they are in the order of the published lists.

    Raises:
        InvalidData: the number of images or of dimensions does not match.
    """
    require_same_dim(query, gallery)
    sides = []
    for side, names in ((query, answers.queries), (gallery, answers.images)):
        if side.ids is None and len(side) != len(names):
            raise InvalidData(f"{side.path}: {len(side)} embeddings; the answers list {len(names)}")
        ordered = side.vectors if side.ids is None else side.of(np.array(names, dtype=str))
        sides.append(unit_rows(ordered))
    queries, images = sides
    ranks: dict[str, list[np.ndarray]] = {name: [] for name in PROTOCOLS}
    starts = range(0, len(queries), QUERIES_AT_ONCE)
    rows = (row for at in starts for row in inner_products(queries[at:][:QUERIES_AT_ONCE], images))
    for scores, found in zip(rows, answers.found, strict=True):  # (G,)
        for name, (relevant, junk) in PROTOCOLS.items():
            parts = [np.concatenate([found[kind] for kind in kinds]) for kinds in (relevant, junk)]
            ranks[name].append(ranks_of(scores, *parts))
    return {name: _summarise(found) for name, found in ranks.items()}


def describe_overlap(trained_on: Path | None) -> str:
    """Report whether the training images may show the landmarks of the queries.

    Args:
        trained_on: work folder or pipeline file of the training set; None: it is not known.

    Returns:
        One line: a note of the images that a list of those that stay (``collect.only``) left out,
        else a warning, with those that lists of ``collect.exclude`` left out: whether these were
        all is not known. Empty if the classes are not landmarks of Wikimedia Commons.

    Raises:
        MissingInput: the place has no collected images.
    """
    if trained_on is None:
        return f"warning: {OVERLAP}; --trained-on PIPELINE checks whether they were left out"
    folder = default_work(trained_on) if trained_on.suffix == ".toml" else trained_on
    landmarks, dropped = (declared_table(name) for name in ("landmarks", "images_dropped"))
    for table in (landmarks, dropped):
        if not (folder / table.file).is_file():
            raise MissingInput(f"{folder / table.file}: missing; run `hgld collect PIPELINE` first")
    if (landmarks.read(folder / landmarks.file)["commons_url"] == "").all():
        return ""
    rows = dropped.read(folder / dropped.file)
    counts = rows.loc[rows["reason"] == "excluded", "detail"].value_counts(sort=False)
    left_out = [f"{count_text(n, 'image')} {detail}" for detail, n in counts.sort_index().items()]
    lists = f"lists left out {', '.join(left_out)}" if left_out else "no list left images out"
    if any(detail.startswith("not in ") for detail in counts.index):
        return f"note: {trained_on}: {lists}"
    return f"warning: {trained_on}: {lists}, and {OVERLAP}; set collect.only to RGLDv2-clean.csv"


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


def _summarise(ranks: Sequence[np.ndarray]) -> RevisitedScore:
    values = np.array([revisited_ap(found) for found in ranks])
    known = [found for found in ranks if len(found)]
    if not known:
        return RevisitedScore(float("nan"), dict.fromkeys(KS, float("nan")), values)
    precision = {}
    for k in KS:
        # as the published program: cut at the last relevant image if that comes before k
        depths = [min(int(found.max()), k) for found in known]
        shares = [(r <= depth).sum() / depth for r, depth in zip(known, depths, strict=True)]
        precision[k] = float(np.mean(shares))
    return RevisitedScore(float(np.nanmean(values)), precision, values)
