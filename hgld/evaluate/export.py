"""Export of rankings and embeddings of an evaluation to the formats of other programs.

Rankings and relevance judgements (TREC run and qrels files) are written by
``hgld.ranking.interchange``, which percent-encodes ids. Judgements cover all pairs that share a
level; they are computed from the labels in the shards.

A ranking file holds the first 100 images of each query; deeper ranks are ranked again from the
embeddings.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from hgld.artifacts import atomic_path
from hgld.errors import InvalidData, UsageError
from hgld.evaluate.embedded import open_embedded, read_sides
from hgld.evaluate.ranking import own_parts, rank_sides
from hgld.evaluate.results import MeasuredRun
from hgld.ranking.interchange import encode_id, kaggle_lines, trec_qrels, trec_run
from hgld.ranking.levels import shared_levels
from hgld.tasks import say
from hgld.words import count_text, nearest

FORMATS = ("trec-run", "trec-qrels", "kaggle")
VECTOR_FORMATS = ("npz", "parquet")
QUERIES_AT_ONCE = 64


def export_lines(
    measured: MeasuredRun, form: str, depth: int | None = 100, at_least: int = 1
) -> Iterator[str]:
    """Return the lines of a model's ranking; all checks are made before the first line.

    Args:
        measured: the model.
        form: trec-run, trec-qrels or kaggle.
        depth: number of ranks of each query; None: the complete gallery.
        at_least: for qrels, the lowest level that counts as relevant.

    Raises:
        InvalidData: an id is empty or occurs twice, or the embeddings have changed since.
        MissingInput: there are no embeddings to rank from.
        UsageError: unknown form or level.
    """
    if form not in FORMATS:
        every = FORMATS + VECTOR_FORMATS
        raise UsageError(
            f"--format {form}: expected {', '.join(every[:-1])} or {every[-1]}"
            + nearest(form, every)
        )
    if form == "trec-qrels":
        return _judgements(measured, at_least)
    rankings = _rankings(measured, depth)
    if form == "trec-run":
        return chain.from_iterable(trec_run({q: images}, measured.run) for q, images in rankings)
    header = next(kaggle_lines({}))
    rows = (list(kaggle_lines({q: images}, len(images)))[1] for q, images in rankings)
    return chain([header], rows)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file.

    Raises:
        InvalidData: the file is missing or not text.
    """
    if not path.is_file():
        raise InvalidData(f"{path}: no such file")
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InvalidData(f"{path}: not UTF-8 text") from None


def write_vectors(measured: MeasuredRun, form: str, folder: Path) -> list[Path]:
    """Write the embeddings of a model, one file for each side: ``MODEL-SPLIT.npz`` or ``.parquet``.

    The rows are in the order of the shards' index. ``hgld evaluations measure`` reads both forms:
    .npz holds ids (N,), vectors (N, D) and labels (N, L); .parquet holds image_id, embedding and a
    column of class numbers for each level.

    Returns:
        The files.
    """
    found = open_embedded(measured)
    paths = []
    for side in {side.split: side for side in (found.query, found.gallery)}.values():
        path = folder / f"{measured.run}-{side.split}.{form}"
        vectors = np.asarray(found.vectors[side.split])
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            if form == "npz":
                labels = side.labels.astype(np.int64)
                np.savez(file, ids=side.image_ids, vectors=vectors, labels=labels)
            else:
                lists = pa.FixedSizeListArray.from_arrays(
                    pa.array(vectors.ravel()), vectors.shape[1]
                )
                classes = dict(zip(found.levels, side.labels.T.astype(np.int64), strict=True))
                table = pa.table({"image_id": side.image_ids, "embedding": lists, **classes})
                pq.write_table(table, file, compression="zstd")
        paths.append(path)
    return paths


def _rankings(measured: MeasuredRun, depth: int | None) -> Iterator[tuple[str, list[str]]]:
    """Yield the ids of the first images of each query; in an open set without the query itself."""
    stored = measured.ranking
    depth = min(depth or len(stored.gallery_ids), len(stored.gallery_ids))
    first = {measured.protocol[side].split("+")[0] for side in ("query", "gallery")}
    own = len(first) == 1
    queries, images = _checked_ids(stored.query_ids, stored.gallery_ids)
    kept = stored.order.shape[1]
    if depth <= kept:
        blocks: Iterable[np.ndarray] = [stored.order]
    else:
        found = open_embedded(measured)
        sides = [(found.vectors[side.split], side.labels) for side in (found.query, found.gallery)]
        blocks = (
            block.first
            for exclude, _, some in own_parts(found.gallery.own_queries(found.query), sides[0])
            for block in rank_sides(some, sides[1], exclude_self=exclude, first=depth)
        )
    return (
        (query, [images[i] for i in row if not (own and images[i] == query)][:depth])
        for query, row in zip(queries, chain.from_iterable(blocks), strict=True)
    )


def _checked_ids(query: np.ndarray, gallery: np.ndarray) -> tuple[list[str], list[str]]:
    """Return the ids of both sides; report those that the writers encode.

    Raises:
        InvalidData: an id is empty or occurs twice.
    """
    for side, ids in (("query", query), ("gallery", gallery)):
        unique, counts = np.unique(ids, return_counts=True)
        if "" in unique or counts.max(initial=1) > 1:  # trec_eval would merge images of one id
            what = "an image without an id" if "" in unique else f"{unique[counts.argmax()]} twice"
            raise InvalidData(f"the {side} holds {what}; a ranking needs an id for each image")
    queries, images = list(map(str, query)), list(map(str, gallery))
    if changed := sorted(one for one in {*queries, *images} if encode_id(one) != one):
        say(
            f"{count_text(len(changed), 'id')} with white space, commas, quotes or %, "
            f"percent-encoded: {changed[0]!r} is {encode_id(changed[0])}"
        )
    return queries, images


def _judgements(measured: MeasuredRun, at_least: int) -> Iterator[str]:
    """Yield the lines of all pairs that share a level, one block of queries after the other."""
    shards, query, gallery = read_sides(measured)
    if at_least > len(shards.levels):
        raise UsageError(f"--at-least {at_least}: there are {len(shards.levels)} levels")
    queries, images = _checked_ids(query.image_ids, gallery.image_ids)
    labels = [torch.from_numpy(side.labels) for side in (query, gallery)]
    own = gallery.own_queries(query) > 0

    def lines() -> Iterator[str]:
        for start in range(0, len(queries), QUERIES_AT_ONCE):
            part = slice(start, start + QUERIES_AT_ONCE)
            levels = shared_levels(labels[0][part], labels[1]).numpy()
            for name, row in zip(queries[part], levels, strict=True):
                there = np.flatnonzero(row >= at_least)
                judged = {images[i]: int(row[i]) for i in there if not (own and images[i] == name)}
                yield from trec_qrels({name: judged})

    return lines()
