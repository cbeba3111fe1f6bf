"""Class vectors from photos, for clusters and links by how classes look.

They are computed by the encoder and the store of the evaluation, so that a stopped run resumes at
the next few photos and a change of the encoder embeds again.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from hgld.artifacts import BY_LANDMARK, SPACE_OF_SPLIT, Vectors, size_of_file
from hgld.config import (
    EmbedOptions,
    EvaluateOptions,
    LinkOptions,
    StageContext,
    without_folders,
)
from hgld.errors import InvalidData, UsageError
from hgld.evaluate.embeddings import EmbeddingStore
from hgld.evaluate.given import unit_rows
from hgld.evaluate.models import Model, find_given
from hgld.evaluate.photo_files import embed_decodable
from hgld.evaluate.sides import PHOTOS_PER_PART
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.embed import LABEL, embed_texts
from hgld.hierarchy.link import link_classes
from hgld.model.devices import choose_device
from hgld.tasks import say
from hgld.words import count_text

DECIMALS = 6
SHOWN = 3  # values that a notice names


def embed_with_photos(
    values: pd.DataFrame,
    taxonomy: pd.DataFrame,
    landmark_values: pd.DataFrame,
    images: pd.DataFrame,
    source: Path,
    *,
    options: EmbedOptions,
    context: StageContext,
) -> tuple[Vectors, Vectors, Vectors]:
    """Embed values and taxonomy as ``embed_texts``, and the photos of the values.

    The image vector of a value is the unit mean, over its landmarks, of the unit mean embeddings of
    their photos, so that a landmark counts once however many photos it has. A value without a
    readable photo has none.

    Returns:
        ``label_vectors``, ``taxonomy_vectors`` and ``image_vectors``.

    Raises:
        InvalidData: no value has a readable photo.
        MissingWeights, UsageError: as ``embed_texts``, also of ``embed.images``.
    """
    texts = embed_texts(values, taxonomy, options=options, context=context)
    keyed = landmark_values.assign(key=value_keys(landmark_values))[["key", *BY_LANDMARK]]
    means = mean_photos(images, keyed[BY_LANDMARK], source, options=options, context=context)
    names = keyed["split"] + ":" + keyed["landmark_id"].astype(str)
    rows_of = names.map(means.row_of).dropna().astype(int).groupby(keyed["key"])
    found = {str(key): means.vectors[np.unique(rows)].mean(axis=0) for key, rows in rows_of}
    if not found:
        raise InvalidData(
            "embed: no value has a readable photo, so that values cannot be clustered by photos; "
            'set cluster.on = "text", or get the photos'
        )
    missing = values.loc[~value_keys(values).isin(list(found)), "instance_of"].tolist()
    if missing:
        shown = ", ".join(map(repr, missing[:SHOWN])) + (", ..." if len(missing) > SHOWN else "")
        say(
            f"{count_text(len(missing), 'value')} without photos ({shown}): the photos of the "
            "value with the nearest text count for each; add photos to change that"
        )
    vectors = unit_rows(np.stack([found[key] for key in sorted(found)])).round(DECIMALS)
    return (*texts, Vectors(sorted(found), vectors, means.made_by))


def link_with_photos(
    landmarks: pd.DataFrame,
    images: pd.DataFrame,
    links: pd.DataFrame,
    source: Path,
    *,
    options: LinkOptions,
    context: StageContext,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """As ``link_classes``, but a CLIP compares the photos of open classes with their candidates.

    A photo score is the cosine of the mean embedding of a class's photos and the embedding of the
    candidate's label and description in ``embed.prompt``.
    """
    embed = context.embed.model_copy(update={"photos": options.photos})

    def look(texts: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, str], float]:
        rows = landmarks[landmarks["name"].isin(list(texts))]
        means = mean_photos(images, rows[BY_LANDMARK], source, options=embed, context=context)
        keys = rows["split"] + ":" + rows["landmark_id"].astype(str)
        name_of = dict(zip(keys, rows["name"], strict=True))
        sums = dict[str, np.ndarray]()
        for key, vector in zip(means.ids, means.vectors, strict=True):
            sums[name_of[key]] = sums.get(name_of[key], 0) + vector
        pairs = [(name, item_id) for name in sums for item_id in texts[name]]
        if not pairs:
            return {}
        encoder = _image_model(embed).load_text(choose_device(embed.device))
        vectors = encoder.encode([embed.prompt.replace(LABEL, texts[a][b]) for a, b in pairs])
        photos = unit_rows(np.stack([sums[name] for name, _ in pairs]))
        return dict(zip(pairs, (photos * vectors).sum(axis=1).round(4).tolist(), strict=True))

    return link_classes(
        landmarks,
        images,
        links,
        options=options,
        context=context,
        look=look if embed.photos else None,
    )


def mean_photos(
    images: pd.DataFrame,
    landmarks: pd.DataFrame,
    source: Path,
    *,
    options: EmbedOptions,
    context: StageContext,
) -> Vectors:
    """Return the unit mean embedding of each landmark's photos, with ids such as ``train:12``.

    Photos that are missing or undecodable are left out and counted; a landmark without any other
    photo is left out.

    Args:
        images: the photos of the data set.
        landmarks: split and landmark_id of those to embed.
        source: folder of the photos.
        options: encoder of images, photos of a landmark, device.
        context: where embeddings are kept.

    Raises:
        InvalidData, MissingWeights, UsageError: the encoder cannot be loaded.
    """
    model = _image_model(options)
    store = EmbeddingStore(context.state, EvaluateOptions(device=options.device))
    spaces, most = images["split"].map(SPACE_OF_SPLIT), options.photos
    keys = spaces + ":" + images["landmark_id"].astype(str)
    wanted = landmarks["split"] + ":" + landmarks["landmark_id"].astype(str)
    photos = images.assign(landmark=keys)[keys.isin(wanted.unique())]
    photos = photos.sort_values(["landmark", "image_id"], ignore_index=True)
    groups = photos.groupby("landmark")["image_id"]
    place, count = groups.cumcount(), groups.transform("size")
    # spread evenly over the ids: one is chosen if the running share of chosen ones steps up at it
    photos = photos[place * most // count != (place - 1) * most // count]
    missing = {path for path in photos["path"].unique() if size_of_file(source / path)[1]}
    lost = photos["path"].isin(missing)
    _say_left_out(int(lost.sum()), "missing")
    photos = photos[~lost]
    # a tar holds photos of many rows, so that each is a part
    together = 1 if photos["path"].duplicated().any() else PHOTOS_PER_PART
    side, vectors, damaged = embed_decodable(store, model, "photos", photos, source, together)
    _say_left_out(len(damaged), "undecodable")
    store.keep_only([model])
    made_by = {"encoder": without_folders(model.source), "model": model.key()}
    if side is None:
        return Vectors([], np.empty((0, 1), np.float32), made_by)
    names, rows = np.unique(side.read(["landmark"])["landmark"].to_numpy(str), return_inverse=True)
    sums, start = np.zeros((len(names), vectors.pieces[0].shape[1])), 0
    for piece in vectors.pieces:  # of millions of photos, one file at a time is in memory
        np.add.at(sums, rows[start : start + len(piece)], piece)
        start += len(piece)
    return Vectors(names.tolist(), unit_rows(sums), made_by)


def _say_left_out(count: int, why: str) -> None:
    if count:
        say(f"{count_text(count, 'photo')} left out of the class vectors: {why}")


def _image_model(options: EmbedOptions) -> Model:
    """Return the encoder that ``embed.images`` names, or that belongs to the text encoder."""
    source, option = options.image_encoder, "embed.images" if options.images else "embed.encoder"
    found = find_given({"photos": source}, option)
    if not found or found[0].kind == "given":
        raise UsageError(
            f"{option}: {source} does not embed photos before the hierarchy exists; "
            "expected open_clip:MODEL/PRETRAINED, timm:MODEL, offline:efficientnet-lite0 or the "
            "folder of a model"
        )
    return found[0]
