"""Embed photos that are files in a folder, without a pipeline.

The embeddings of each few photos are kept below the result, so that a stopped command resumes; a
photo that changed is embedded again.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from hgld.artifacts import atomic_path, list_tree, size_of_file
from hgld.config import EvaluateOptions, ModelOptions
from hgld.errors import DamagedImage, InvalidData, UsageError
from hgld.evaluate.embedded import STATE
from hgld.evaluate.embeddings import EmbeddingStore
from hgld.evaluate.models import find_given
from hgld.evaluate.sides import PHOTOS_PER_PART, side_of_files
from hgld.images import IMAGE_ENDINGS
from hgld.sources.tables import report_unread


def photos_in(folder: Path) -> pd.DataFrame:
    """Return image_id and path of the photos below a folder, sorted; both are the path in it.

    Hidden files are left out: macOS writes ._NAME.jpg beside photos on other disks.

    Raises:
        InvalidData: there are none.
    """
    files = list_tree(folder, hidden=False).files
    report_unread(folder, files)
    photos = (path for path in files if path.suffix.lower() in IMAGE_ENDINGS)
    paths = sorted(path.relative_to(folder).as_posix() for path in photos)
    if not paths:
        raise InvalidData(f"{folder}: no photos; expected files such as .jpg or .png in it")
    return pd.DataFrame({"image_id": paths, "path": paths})


def embed_photos(
    model: ModelOptions,
    folder: Path,
    photos: Mapping[str, pd.DataFrame],
    out: Path,
    options: EvaluateOptions,
) -> list[Path]:
    """Write the embeddings of photos, a file ``NAME.npz`` with ids and vectors for each table.

    Args:
        model: that embeds.
        folder: of the photos.
        photos: name -> image_id and path below the folder; with ``hgld.artifacts.BOX``, the part
            of the photo to embed.
        out: folder of the files, and of what a stopped run has embedded.
        options: device, precision and processes.

    Returns:
        The files.

    Raises:
        InvalidData: photos are missing or undecodable, or embeddings are not finite.
        UsageError: the model is the run of a pipeline.
    """
    name = Path(model.source).name  # in messages
    try:
        if not (found := find_given({name: model}, "MODEL")):
            raise UsageError(f"{model.source}: give the folder of the model, WORK/models/RUN")
        sides = [
            side_of_files(split, _located(rows, folder), folder, PHOTOS_PER_PART)
            for split, rows in photos.items()
        ]
        vectors = EmbeddingStore(out / STATE, options).embed(found[0], sides)
    except DamagedImage as error:
        fault = str(error).partition(", so the shard")[0]
        raise InvalidData(f"{fault}; replace the photo, or delete it") from None
    paths = []
    for side in sides:
        path = out / f"{side.split}.npz"
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez(file, ids=side.image_ids, vectors=np.asarray(vectors[side.split]))
        paths.append(path)
    return paths


def _located(rows: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Add offset and size in bytes of whole files."""
    # once for each photo: that of several faces has as many rows
    found = {path: size_of_file(folder / path) for path in rows["path"].unique()}
    absent = {path: fault for path, (_, fault) in found.items() if fault}
    if absent:
        path, fault = next(iter(absent.items()))
        raise InvalidData(
            f"{folder}: {len(absent):,} of {len(found):,} photos are not in the folder, first "
            f"{path} ({fault}); get them, or name their folder"
        )
    return rows.assign(offset=0, size_bytes=[found[path][0] for path in rows["path"]])
