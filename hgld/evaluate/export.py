"""Rankings of an evaluation in the formats of others, line by line.

A ranking keeps the first 100 images of each query; judgements (TREC's qrels) are of all pairs that
share a level, and follow from the labels in the shards beside the evaluation.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from hgld.artifacts import ARTIFACTS
from hgld.config import nearest
from hgld.errors import InvalidData, UsageError
from hgld.evaluate.results import Measured
from hgld.evaluate.sides import Shards
from hgld.ranking.interchange import kaggle_lines, trec_qrels, trec_run
from hgld.ranking.levels import shared_levels

__all__ = ["FORMATS", "export_lines", "read_lines"]

FORMATS = ("trec-run", "trec-qrels", "kaggle")
QUERIES_AT_ONCE = 64


def export_lines(
    measured: Measured, form: str, first: int = 100, at_least: int = 1
) -> Iterator[str]:
    """Lines of a model's ranking.

    Args:
        measured: the model.
        form: trec-run, trec-qrels or kaggle.
        first: ranks of each query, at most 100.
        at_least: of qrels, the lowest level that counts as relevant.

    Raises:
        UsageError: no such form, or no such level.
    """
    if form not in FORMATS:
        raise UsageError(
            f"--format {form}: expected {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
            + nearest(form, FORMATS)
        )
    if form == "trec-qrels":
        return _judgements(measured, at_least)
    rankings = _rankings(measured, first)
    return kaggle_lines(rankings, first) if form == "kaggle" else trec_run(rankings, measured.model)


def read_lines(path: Path) -> list[str]:
    """Lines of a text file.

    Raises:
        InvalidData: no such file, or no text.
    """
    if not path.is_file():
        raise InvalidData(f"{path}: no such file")
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InvalidData(f"{path}: not UTF-8 text") from None


def _rankings(measured: Measured, first: int) -> dict[str, list[str]]:
    """Ids of the first images of each query; in an open set without the query itself."""
    found = measured.ranked("order", "query_ids", "gallery_ids")
    own = measured.protocol["query"] == measured.protocol["gallery"].split("+")[0]
    rankings = {}
    for query, row in zip(found["query_ids"].tolist(), found["order"], strict=True):
        images = found["gallery_ids"][row].tolist()
        rankings[query] = [image for image in images if not (own and image == query)][:first]
    return rankings


def _judgements(measured: Measured, at_least: int) -> Iterator[str]:
    """Levels of all pairs that share one, some queries after the other."""
    shards = Shards.read(measured.folder / ARTIFACTS["shards"].file)
    if at_least > len(shards.levels):
        raise UsageError(f"--at-least {at_least}: there are {len(shards.levels)} levels")
    sides = [shards.side(measured.protocol[name], name) for name in ("query", "gallery")]
    labels = [torch.from_numpy(side.labels) for side in sides]
    queries, images = (side.image_ids for side in sides)
    own = sides[1].begins_with(sides[0])
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        part = slice(start, start + QUERIES_AT_ONCE)
        levels = shared_levels(labels[0][part], labels[1]).numpy()
        for query, row in zip(queries[part].tolist(), levels, strict=True):
            there = np.flatnonzero(row >= at_least)
            judged = {
                str(images[i]): int(row[i]) for i in there if not (own and images[i] == query)
            }
            yield from trec_qrels({query: judged})
