"""What each query finds, rank by rank: from it any hierarchical metric can be computed later.

A table of levels for a thousand queries and GLDv2's index has 860 million cells, so it is made and
written in blocks of queries, and never held as a whole. Score, level and column of an image are
packed into one number, and a plain sort of numbers ranks a row: equal scores put the less relevant
first, and the column decides what is then still equal.
"""

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from hgld.artifacts import atomic_path
from hgld.errors import InvalidData
from hgld.evaluate.class_means import mean_classes
from hgld.evaluate.sides import Side
from hgld.ranking.kernels.device import over_rows
from hgld.ranking.levels import shared_levels
from hgld.tasks import track

__all__ = ["rank_blocks", "rank_levels", "read_top_levels", "write_ranking"]

FIRST_RANKS = 100  # whose images are kept by row number, for the report
BLOCK_PAIRS = 1 << 24  # scores held at a time
COLUMN_BITS, LEVEL_BITS = 25, 7
EPOCH = (1980, 1, 1, 0, 0, 0)  # of a zip's members: same ranking, same bytes

Block = tuple[np.ndarray, np.ndarray]  # (q, G) levels and (q, first) gallery rows, by rank


def rank_levels(
    query: np.ndarray,
    query_labels: np.ndarray,
    gallery: np.ndarray,
    gallery_labels: np.ndarray,
    *,
    exclude_self: bool = False,
    first: int = FIRST_RANKS,
) -> tuple[np.ndarray, np.ndarray]:
    """What each query finds, rank by rank.

    Among equal scores the less relevant image ranks first, as in the metrics.

    Args:
        query: (Q, D) unit vectors.
        query_labels: (Q, L) coarse to fine.
        gallery: (G, D) unit vectors.
        gallery_labels: (G, L).
        exclude_self: query and gallery are the same images; an image does not find itself.
        first: ranks for which the gallery row is given too.

    Returns:
        (Q, G) int8 shared levels by rank, the query itself last as -1, and (Q, min(G, first)) int32
        gallery rows of the first ranks.

    Example:
        >>> vectors = np.eye(2, dtype=np.float32)[[0, 1, 0]]
        >>> labels = np.array([[0, 0], [0, 1], [0, 0]])
        >>> rank_levels(vectors, labels, vectors, labels, exclude_self=True)[0].tolist()
        [[2, 1, -1], [1, 1, -1], [2, 1, -1]]
    """
    blocks = rank_blocks(
        query, query_labels, [gallery], gallery_labels, exclude_self=exclude_self, first=first
    )
    levels, order = zip(*blocks, strict=True)
    return np.concatenate(levels), np.concatenate(order)


def rank_blocks(
    query: np.ndarray,
    query_labels: np.ndarray,
    gallery: Sequence[np.ndarray],
    gallery_labels: np.ndarray,
    *,
    exclude_self: bool = False,
    first: int = FIRST_RANKS,
) -> Iterator[Block]:
    """As ``rank_levels``, some queries after the other; at most half a gigabyte is held.

    The gallery may come in several arrays, so that nobody has to copy them into one.
    """
    size = max(1, BLOCK_PAIRS // len(gallery_labels))
    starts = range(0, len(query), size)
    for start in track(starts, "Ranking", len(starts)):
        rows = slice(start, start + size)
        block = _levels_of(query_labels[rows], gallery_labels)  # (q, G)
        scores = np.concatenate([query[rows] @ part.T for part in gallery], axis=1)
        if exclude_self:
            own = np.arange(len(scores))
            scores[own, start + own], block[own, start + own] = -np.inf, -1
        keys = _pack(scores, block)
        _sort_rows(keys)
        levels = (keys >> COLUMN_BITS & ((1 << LEVEL_BITS) - 1)).astype(np.int8) - 1
        order = (keys[:, :first] & ((1 << COLUMN_BITS) - 1)).astype(np.int32)
        yield levels.astype(np.int8), order


def _pack(scores: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """(q, G) uint64 that sort as the images rank: by falling score, then rising level, column."""
    assert scores.shape[1] < 1 << COLUMN_BITS, "33 million images"
    bits = (scores.astype(np.float32) + np.float32(0)).view(np.int32)  # -0 becomes 0
    rising = np.where(bits < 0, ~bits, bits ^ np.int32(-(2**31))).view(np.uint32)
    keys = (~rising).astype(np.uint64) << np.uint64(COLUMN_BITS + LEVEL_BITS)
    keys |= (levels + np.int8(1)).astype(np.uint64) << np.uint64(COLUMN_BITS)
    keys |= np.arange(scores.shape[1], dtype=np.uint64)
    return keys


def _sort_rows(keys: np.ndarray) -> None:
    over_rows(lambda part: keys[part].sort(axis=1), len(keys))


def _levels_of(query_labels: np.ndarray, gallery_labels: np.ndarray) -> np.ndarray:
    pair = (torch.from_numpy(query_labels), torch.from_numpy(gallery_labels))
    return shared_levels(*pair).numpy()


def write_ranking(
    path: Path, vectors: Mapping[str, np.ndarray], query: Side, gallery: Side
) -> None:
    """Write the ranking of one model, atomically; the same ranking gives the same bytes.

    It is an .npz: levels (Q, G) int8, order (Q, 100) int32, query_ids and gallery_ids, and of the
    gallery's classes their labels (C, L) and mean embeddings (C, D).
    """
    blocks = rank_blocks(
        vectors[query.split],
        query.labels,
        [vectors[gallery.split]],
        gallery.labels,
        exclude_self=gallery.begins_with(query),
    )
    shape = len(query.rows), len(gallery.rows)
    with (
        atomic_path(path) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
    ):
        order = _write_levels(file, blocks, shape)
        classes, means = mean_classes(vectors[gallery.split], gallery.labels)
        arrays = {"order": order, "query_ids": query.image_ids, "gallery_ids": gallery.image_ids}
        arrays |= {"classes": classes, "class_means": means}
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, array, allow_pickle=False)
            file.writestr(_member(name), buffer.getvalue())


def _write_levels(
    file: zipfile.ZipFile, blocks: Iterator[Block], shape: tuple[int, int]
) -> np.ndarray:
    """Write the levels block by block; the first ranks of all queries."""
    first = []
    with file.open(_member("levels"), "w", force_zip64=True) as member:
        header = {"descr": "|i1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(member, header)
        for levels, order in blocks:
            member.write(np.ascontiguousarray(levels).data)
            first.append(order)
    return np.concatenate(first)


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(f"{name}.npy", EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def read_top_levels(path: Path, ranks: int = 1) -> np.ndarray:
    """(Q, ranks) levels of the first ranks, without holding those of all.

    Raises:
        InvalidData: not a ranking.
    """
    try:
        with zipfile.ZipFile(path) as file, file.open("levels.npy") as member:
            if np.lib.format.read_magic(member) != (1, 0):
                raise ValueError("levels of an unknown form")
            shape, _, kind = np.lib.format.read_array_header_1_0(member)
            rows = (member.read(shape[1] * kind.itemsize) for _ in range(shape[0]))
            found = [np.frombuffer(row, kind)[:ranks] for row in rows]
    except Exception as error:  # zipfile and numpy raise whatever the damage leads to
        raise InvalidData(
            f"{path}: not a readable ranking ({error}); run the evaluate stage again"
        ) from None
    return np.stack(found)
