"""Embed photos that are files in a folder, without a pipeline.

The embeddings of each few photos are kept below the result, so that a stopped command resumes; a
photo that changed is embedded again.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd

from hgld.artifacts import atomic_path, list_tree, size_of_file, write_csv
from hgld.config import EvaluateOptions, ModelOptions
from hgld.errors import DamagedImage, InvalidData, UsageError
from hgld.evaluate.embedded import STATE
from hgld.evaluate.embeddings import EmbeddingStore
from hgld.evaluate.mapped_vectors import MappedVectors
from hgld.evaluate.models import Model, find_given
from hgld.evaluate.sides import PHOTOS_PER_PART, Rows, Side, side_of_files
from hgld.images import IMAGE_ENDINGS, Undecodable, decode_rgb
from hgld.shards.files import FileReader
from hgld.sources.tables import report_unread
from hgld.tasks import say
from hgld.words import count_text, part_text

DROPPED = "photos_dropped.csv"


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
    skip_damaged: bool | None = None,
) -> list[Path]:
    """Write the embeddings of photos, a file ``NAME.npz`` with ids and vectors for each table.

    Args:
        model: that embeds.
        folder: of the photos.
        photos: name -> image_id and path below the folder; with ``hgld.artifacts.BOX``, the part
            of the photo to embed.
        out: folder of the files, and of what a stopped run has embedded.
        options: device, precision and processes.
        skip_damaged: leave out photos that cannot be decoded, and list them in
            ``photos_dropped.csv``. None: False, and a message does not offer it, since the photos
            are those of a list.

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
        store = EmbeddingStore(out / STATE, options)
        located = {split: _located(rows, folder) for split, rows in photos.items()}
        if skip_damaged:
            sides, vectors, dropped = [], {}, []
            for split, rows in located.items():
                side, vectors[split], lost = embed_decodable(
                    store, found[0], split, rows, folder, PHOTOS_PER_PART
                )
                if side is None:
                    photos_text = count_text(len(rows), "photo")
                    raise InvalidData(f"{folder}: {photos_text}, none of which can be decoded")
                sides.append(side)
                dropped.append(lost[["image_id"]].assign(reason="not decodable"))
        else:
            sides = [
                side_of_files(split, rows, folder, PHOTOS_PER_PART)
                for split, rows in located.items()
            ]
            vectors = store.embed(found[0], sides)
    except DamagedImage as error:
        fault = str(error).partition(", so the shard")[0]
        more = "" if skip_damaged is None else "; --skip-damaged leaves such photos out"
        raise InvalidData(f"{fault}; replace the photo, or delete it{more}") from None
    (out / DROPPED).unlink(missing_ok=True)
    if skip_damaged:
        table = pd.concat(dropped)
        write_csv(table, out / DROPPED)
        if len(table):
            say(f"{count_text(len(table), 'photo')} left out, not decodable, first "
                f"{table['image_id'].iloc[0]}; {out / DROPPED} lists them")  # fmt: skip
    paths = []
    for side in sides:
        path = out / f"{side.split}.npz"
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez(file, ids=side.image_ids, vectors=np.asarray(vectors[side.split]))
        paths.append(path)
    return paths


def embed_decodable(
    store: EmbeddingStore,
    model: Model,
    split: str,
    rows: pd.DataFrame,
    folder: Path,
    files_per_part: int,
) -> tuple[Side | None, MappedVectors, pd.DataFrame]:
    """Embed photos, except those that cannot be decoded.

    Args:
        store: of the embeddings.
        model: that embeds.
        split: name of the side.
        rows: as of ``side_of_files``.
        folder: as of ``side_of_files``.
        files_per_part: as of ``side_of_files``.

    Returns:
        The decodable photos (None: there are none), their (N, D) unit vectors, and the rows that
        were left out.

    Raises:
        InvalidData: embeddings are not finite, or photos have another fault.
    """
    damaged, parts = set[tuple[str, int]](), 1
    while True:
        places = zip(rows["path"], rows["offset"], strict=True)
        left_out = np.array([place in damaged for place in places], bool)
        if left_out.all():
            return None, MappedVectors(()), rows
        side = side_of_files(split, rows[~left_out], folder, files_per_part)
        try:
            return side, store.embed(model, [side])[split], rows[left_out]
        except InvalidData:  # parts before the one with the damaged photo are kept
            found = _undecodable(islice(store.waiting(model, side), parts), folder)
            if not found:
                raise
        damaged |= found
        parts *= 2  # each attempt reads all kept parts again


def _undecodable(parts: Iterable[Rows], folder: Path) -> set[tuple[str, int]]:
    """Return path and offset of the photos that cannot be decoded."""
    reader, found = FileReader(folder), set[tuple[str, int]]()
    for rows in parts:
        photos = rows[["path", "offset", "size_bytes"]]
        for path, offset, size in photos.itertuples(index=False):
            try:
                decode_rgb(reader.read(path, offset, size))
            except (InvalidData, Undecodable):
                found.add((path, offset))
    reader.close()
    return found


def _located(rows: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Add offset and size in bytes of whole files."""
    # once for each photo: that of several faces has as many rows
    found = {path: size_of_file(folder / path) for path in rows["path"].unique()}
    absent = {path: fault for path, (_, fault) in found.items() if fault}
    if absent:
        path, fault = next(iter(absent.items()))
        are = part_text(len(absent), len(found), "photo", "are")
        raise InvalidData(
            f"{folder}: {are} not in the folder, first {path} ({fault}); get them, or name their "
            "folder"
        )
    return rows.assign(offset=0, size_bytes=[found[path][0] for path in rows["path"]])
