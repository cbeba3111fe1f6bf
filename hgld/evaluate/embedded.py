"""Embeddings of a finished evaluation, found again by the name of their model.

An evaluation caches embeddings in files that are named by hashes, and records the facts of each
model beside them.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hgld.artifacts import ARTIFACTS, Json, write_file
from hgld.config import EvaluateOptions, ModelOptions
from hgld.errors import InvalidData, MissingInput
from hgld.evaluate.embeddings import EmbeddingStore
from hgld.evaluate.mapped_vectors import MappedVectors
from hgld.evaluate.models import Model
from hgld.evaluate.name_queries import name_queries
from hgld.evaluate.results import MeasuredRun, read_artifact
from hgld.evaluate.sides import Shards, Side

MODELS = "models.json"
STATE = Path(".state", "evaluate")  # below a work folder
IN_FILES = ("checkpoint", "given")  # kinds of models whose source is a path


def read_sides(measured: MeasuredRun) -> tuple[Shards, Side, Side]:
    """Return the shards of an evaluation, and the query and gallery images in them."""
    shards = Shards.read(measured.folder / ARTIFACTS["shards"].file)
    split = measured.protocol["query"]
    gallery = shards.side(measured.protocol["gallery"], "evaluate.gallery")
    if "names" not in measured.protocol:
        return shards, shards.side(split, "evaluate.query"), gallery
    level, tables = measured.protocol["names"]["level"], ("hierarchy", "landmarks")
    hierarchy, landmarks = (read_artifact(measured.folder, name) for name in tables)
    split = split.removeprefix("names of ")
    return shards, name_queries(shards, split, level, hierarchy, landmarks), gallery


@dataclass(frozen=True)
class Embedded:
    """Embeddings of one model.

    Attributes:
        levels: names, coarse to fine.
        query: query images, in the order of the shards' index.
        gallery: gallery images, in the same order.
        vectors: split -> (N, D) unit vectors in the order of its side.
    """

    levels: tuple[str, ...]
    query: Side
    gallery: Side
    vectors: dict[str, MappedVectors]


def record_models(state: Path, models: Sequence[Model]) -> None:
    """Record the facts of each model of an evaluation; paths are relative to ``state``."""
    records = {}
    for model in models:
        # a work folder may be moved as a whole
        source = os.path.relpath(model.source, state) if model.kind in IN_FILES else model.source
        options = model.options and model.options.model_dump(mode="json")
        record = asdict(replace(model, source=source, options=None))
        records[model.name] = {**record, "options": options}
    write_file(state / MODELS, json.dumps(records, indent=1))


def open_embedded(measured: MeasuredRun) -> Embedded:
    """Read the embeddings that a model was measured with; compute missing ones again.

    Raises:
        InvalidData: the model or the shards have changed since.
        MissingInput: the model's embeddings are not recorded.
    """
    shards, query, gallery = read_sides(measured)
    ranked = measured.ranking
    for side, ids in ((query, ranked.query_ids), (gallery, ranked.gallery_ids)):
        if not np.array_equal(side.image_ids, ids):
            raise InvalidData(
                f"{shards.folder}: the images of '{side.split}' changed since {measured.run} was "
                "measured; run the evaluate stage again"
            )
    state = measured.folder / STATE
    model = _recorded_model(measured, state)
    given = {"precision": measured.protocol.get("precision", "float32")}
    if "names" in measured.protocol:
        given["prompts"] = measured.protocol["names"]["prompts"]
    options = EvaluateOptions(**given)
    vectors = EmbeddingStore(state, options).embed(model, [query, gallery])
    return Embedded(shards.levels, query, gallery, vectors)


def _recorded_model(measured: MeasuredRun, state: Path) -> Model:
    path, name = state / MODELS, measured.model
    again = "run the evaluate stage again (hgld evaluate PIPELINE --force)"
    if not path.is_file():
        raise MissingInput(f"{path}: missing, so the embeddings of {name} are not known; {again}")
    record: dict[str, Any] = Json(MODELS).read(path).get(name, {})
    try:
        given = record.pop("options", None)
        model = Model(**record, options=given and ModelOptions.model_validate(given))
    except (TypeError, ValueError):
        raise InvalidData(f"{path}: no record of the model {name}; {again}") from None
    if model.kind in IN_FILES:
        model = replace(model, source=os.path.normpath(state / model.source))
    if model.facts()["weights_sha256"] != measured.models[name].get("weights_sha256"):
        raise InvalidData(f"{model.source}: changed since {name} was measured; {again}")
    return model
