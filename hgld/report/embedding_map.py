"""Map of a model's embeddings: a page of up to 20,000 images by t-SNE, and a table for other tools.

t-SNE shows neighbourhoods, not distances, so the table also holds the embeddings and, for each
image, its nearest ones by cosine in the full space.
"""

import math
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from hgld.artifacts import atomic_folder, require_folder
from hgld.errors import InvalidData
from hgld.figures import DARK, LIGHT
from hgld.ranking.curves import by_chance
from hgld.report.class_map import FEWEST, project
from hgld.report.examples import Images
from hgld.report.rendering import jpeg_bytes, render_page
from hgld.tasks import say, track

PAGE, TABLE = "map.html", "map.parquet"
COLUMNS = {  # of the table beside the levels
    *("image_id", "split", "name", "projection_x", "projection_y"),
    *("embedding", "neighbors", "image"),
}
MOST_POINTS = 20_000
PICTURED = 3_000  # images up to which the page shows thumbnails: 6 MB; beyond, names only
THUMBNAIL = 96  # pixels of the longer side
NEIGHBOURS = 15
COMPONENTS = 50  # principal components from which t-SNE starts, as van der Maaten and Hinton
SECONDS_PER_IMAGE = 9e-3  # of t-SNE on one core at 20,000 images; of fewer it takes less
QUICK = 2_000  # images that take seconds


@dataclass(frozen=True)
class MapSide:
    """Images of one side of an evaluation.

    Attributes:
        images: with their classes.
        ids: (N,) image ids.
        vectors: (N, D) unit vectors; rows are read as needed.
    """

    images: Images
    ids: np.ndarray
    vectors: Any


def write_map(
    out: Path,
    sides: Sequence["MapSide"],
    levels: Sequence[str],
    *,
    title: str,
    points: int = MOST_POINTS,
) -> tuple[Path, Path]:
    """Write a folder with the page ``map.html`` and the table ``map.parquet``.

    The table has the columns image_id, split, name, a text column for each level (one of the name
    of another column gets a ``_``), projection_x, projection_y, embedding (a list of floats),
    neighbors (ids: rows of the table, distances: 1 - cosine) and image (bytes of a JPEG of 96
    pixels), which embedding-atlas and FiftyOne read.

    Args:
        out: a new folder, or that of an earlier map, which is replaced.
        sides: queries and gallery, or one of them.
        levels: names, coarse to fine.
        title: of the page.
        points: if there are more images, these many are drawn at random, by their ids.

    Returns:
        The page and the table.

    Raises:
        InvalidData: there are fewer than 4 images, or one cannot be read.
        UsageError: the folder holds other files.
    """
    require_folder(out, PAGE, TABLE)
    # with the side, since queries and gallery may have equal ids
    keys = [f"{number} {i}" for number, side in enumerate(sides) for i in side.ids]
    if len(keys) < FEWEST:
        raise InvalidData(f"{len(keys)} images are too few for a map; expected {FEWEST} or more")
    chosen = {*by_chance(keys)[:points]} if len(keys) > points else {*keys}
    parts, found = [], []
    for number, side in enumerate(sides):
        rows = [row for row, i in enumerate(side.ids) if f"{number} {i}" in chosen]
        parts.append(np.asarray(side.vectors[np.array(rows, np.int64)], np.float32))
        found += [(side.images, str(side.ids[row])) for row in rows]
    vectors = np.concatenate(parts)
    paths = [images.path(name) for images, name in found]
    columns = [level + "_" * (level in COLUMNS) for level in levels]
    table = pd.DataFrame(
        {
            "image_id": [name for _, name in found],
            "split": [str(images.rows["split"][name]) for images, name in found],
            "name": [images.named_path(name)[-1] for images, name in found],
            **{column: [path[k] for path in paths] for k, column in enumerate(columns)},
        }
    )
    if len(vectors) > QUICK:
        minutes = math.ceil(len(vectors) * SECONDS_PER_IMAGE / 60)
        say(f"t-SNE of {len(vectors):,} images: about {minutes} min on one free core")
    plane = project(_reduce(vectors), init="pca")
    table["projection_x"], table["projection_y"] = plane.T.astype(np.float64)
    pictures = [
        jpeg_bytes(images.thumbnail(name, THUMBNAIL), 75)
        for images, name in track(found, "Reading images", len(found))
    ]
    with atomic_folder(out) as folder:
        _write_table(folder / TABLE, table, vectors, pictures)
        data = _page_data(table, columns, pictures if len(table) <= PICTURED else [])
        total = f"{len(found):,}" + f" of {len(keys):,}" * (len(found) < len(keys))
        page = render_page(PAGE, title=title, total=total, data=data)
        (folder / PAGE).write_text(page, encoding="utf-8")
    return out / PAGE, out / TABLE


def _reduce(vectors: np.ndarray) -> np.ndarray:
    """(N, at most 50) principal components, which keep the distances that t-SNE looks at."""
    centred: np.ndarray = vectors - vectors.mean(axis=0)
    if min(centred.shape) <= COMPONENTS:
        return centred
    _, axes = np.linalg.eigh(centred.T.astype(np.float64) @ centred)
    reduced: np.ndarray = centred @ np.asarray(axes[:, : -COMPONENTS - 1 : -1])
    return reduced


def _write_table(
    path: Path, table: pd.DataFrame, vectors: np.ndarray, pictures: Sequence[bytes]
) -> None:
    from sklearn import config_context
    from sklearn.neighbors import NearestNeighbors

    count = min(NEIGHBOURS, len(vectors) - 1)
    search = NearestNeighbors(n_neighbors=count, metric="cosine").fit(vectors)
    with config_context(working_memory=128):  # MB of distances at a time
        distances, ids = (part.tolist() for part in search.kneighbors())  # not the image itself
    columns = pa.Table.from_pandas(table, preserve_index=False)
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    near = pa.array(
        [{"ids": i, "distances": d} for i, d in zip(ids, distances, strict=True)],
        pa.struct({"ids": pa.list_(pa.int32()), "distances": pa.list_(pa.float32())}),
    )
    image = pa.array([{"bytes": data} for data in pictures], pa.struct({"bytes": pa.binary()}))
    for name, values in (("embedding", embedding), ("neighbors", near), ("image", image)):
        columns = columns.append_column(name, values)
    pq.write_table(columns, path, compression="zstd")


def _page_data(
    table: pd.DataFrame, levels: Sequence[str], pictures: Sequence[bytes]
) -> dict[str, Any]:
    """Places in ten thousandths of the map's side; classes as numbers, the largest first."""
    plane = table[["projection_x", "projection_y"]].to_numpy()
    low, size = plane.min(axis=0), max(float(np.ptp(plane, axis=0).max()), 1e-9)
    groups = []
    for column in (*levels, "split"):
        # a finest class is shown by its name
        texts = table["name"] if column == levels[-1] else table[column]
        counts = texts.value_counts().sort_index().sort_values(ascending=False, kind="stable")
        numbers = {text: number for number, text in enumerate(counts.index)}
        groups.append(
            {
                "name": column,
                "classes": list(counts.index),
                "counts": counts.tolist(),
                "of": texts.map(numbers).tolist(),
            }
        )
    return {
        "x": np.rint(1e4 * (plane[:, 0] - low[0]) / size).astype(int).tolist(),
        "y": np.rint(1e4 * (plane[:, 1] - low[1]) / size).astype(int).tolist(),
        "ids": table["image_id"].tolist(),
        "groups": groups,
        "start": max(0, len(levels) - 2),
        "pictures": [b64encode(data).decode() for data in pictures],
        "colours": {"light": LIGHT.classes, "dark": DARK.classes},
    }
