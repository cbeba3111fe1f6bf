"""Opens the embeddings of a finished evaluation again, for deeper rankings and for other programs.

An evaluation keeps its embeddings in files that are named by hashes. It also records what each of
its models is, so that the embeddings of a model can be found by its name later.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hgld.artifacts import ARTIFACTS, Json, atomic_path
from hgld.config import EvaluateOptions
from hgld.errors import InvalidData, MissingInput
from hgld.evaluate.embeddings import Store
from hgld.evaluate.models import Model
from hgld.evaluate.results import Measured
from hgld.evaluate.sides import Shards, Side

__all__ = ["Embedded", "open_embedded", "record_models"]

MODELS = "models.json"
STATE = Path(".state", "evaluate")  # of a work folder
IN_FILES = ("checkpoint", "given")  # kinds of models whose source is a path


@dataclass(frozen=True)
class Embedded:
    """Embeddings of one model.

    Attributes:
        levels: names, coarse to fine.
        query: images that query, in the order of the shards' index.
        gallery: images that are searched, likewise.
        vectors: split -> (N, D) unit vectors in the order of its side.
    """

    levels: tuple[str, ...]
    query: Side
    gallery: Side
    vectors: dict[str, np.ndarray]


def record_models(state: Path, models: Sequence[Model]) -> None:
    """Record what each model of an evaluation is; paths are relative to ``state``."""
    records = {}
    for model in models:
        source = os.path.relpath(model.source, state) if model.kind in IN_FILES else model.source
        records[model.name] = asdict(replace(model, source=source))
    with atomic_path(state / MODELS) as temporary:
        temporary.write_text(json.dumps(records, indent=1), encoding="ascii")


def open_embedded(measured: Measured) -> Embedded:
    """Read the embeddings that a model was measured with; missing ones are computed again.

    Raises:
        InvalidData: the model or the shards changed since.
        MissingInput: nothing is known of the model's embeddings.
    """
    shards = Shards.read(measured.folder / ARTIFACTS["shards"].file)
    query, gallery = (shards.side(measured.protocol[name], name) for name in ("query", "gallery"))
    ranked = measured.ranked("query_ids", "gallery_ids")
    for side, name in ((query, "query_ids"), (gallery, "gallery_ids")):
        if not np.array_equal(side.image_ids, ranked[name]):
            raise InvalidData(
                f"{shards.folder}: the images of '{side.split}' changed since {measured.run} was "
                "measured; run the evaluate stage again"
            )
    state = measured.folder / STATE
    model = _recorded_model(measured, state)
    vectors = Store(state, EvaluateOptions()).embed(model, [query, gallery])
    return Embedded(shards.levels, query, gallery, vectors)


def _recorded_model(measured: Measured, state: Path) -> Model:
    path, name = state / MODELS, measured.ranking.stem
    again = "run the evaluate stage again (hgld evaluate PIPELINE --force)"
    if not path.is_file():
        raise MissingInput(f"{path}: missing, so the embeddings of {name} are not known; {again}")
    record: dict[str, Any] = Json(MODELS).read(path).get(name, {})
    try:
        model = Model(**record)
    except TypeError:
        raise InvalidData(f"{path}: no record of the model {name}; {again}") from None
    if model.kind in IN_FILES:
        model = replace(model, source=os.path.normpath(state / model.source))
    if model.facts()["weights_sha256"] != measured.models[name].get("weights_sha256"):
        raise InvalidData(f"{model.source}: changed since {name} was measured; {again}")
    return model
