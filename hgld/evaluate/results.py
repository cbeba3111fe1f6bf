"""Reader of finished evaluations: metrics of one run, its rankings and its embeddings.

An evaluation caches embeddings in files that are named by hashes. It also records the facts of each
model, so that the embeddings of a model can be found by its name later.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hgld.artifacts import (
    ARTIFACTS,
    ColumnType,
    Folder,
    Json,
    read_csv,
    read_header,
    write_file,
)
from hgld.artifacts.ranking_file import RankingFile
from hgld.bootstrap import name_classes
from hgld.config import EvaluateOptions, ModelOptions, default_work
from hgld.errors import InvalidData, MissingInput, UsageError
from hgld.evaluate.embeddings import EmbeddingStore
from hgld.evaluate.mapped_vectors import MappedVectors
from hgld.evaluate.models import Model
from hgld.evaluate.name_queries import name_queries
from hgld.evaluate.sides import Shards, Side
from hgld.words import nearest

MODELS = "models.json"
STATE = Path(".state", "evaluate")  # below a work folder
IN_FILES = ("checkpoint", "given")  # kinds of models whose source is a path


@dataclass(frozen=True)
class MeasuredRun:
    """One run of one evaluation: a model, or the models of several seeds.

    Attributes:
        folder: with report.json, per_query.parquet and ranked_levels/.
        run: its name.
        models: name of each of its models -> its facts in the report.
        protocol: facts of the protocol.
        metrics: names.
        means: metric -> mean; over the seeds if there are several.
        given: the rows of per_query.parquet, if they are not in the folder.
    """

    folder: Path
    run: str
    models: Mapping[str, Mapping[str, Any]]
    protocol: dict[str, Any]
    metrics: tuple[str, ...]
    means: dict[str, float | None]
    given: pd.DataFrame | None = None

    def of_model(self, name: str) -> "MeasuredRun":
        """Return the run reduced to one of its models."""
        return replace(self, run=name, models={name: self.models[name]})

    @property
    def model(self) -> str:
        """Name of its only model.

        Raises:
            UsageError: there are several, one for each seed.
        """
        if len(self.models) > 1:
            raise UsageError(
                f"{self.folder}:{self.run}: has a ranking for each seed; name one: "
                + ", ".join(f"{self.folder}:{name}" for name in self.models)
            )
        return next(iter(self.models))

    @cached_property
    def ranking(self) -> RankingFile:
        """Read the ranking of its only model.

        Raises:
            InvalidData: the ranking cannot be read.
            UsageError: there are several models, one for each seed.
        """
        return RankingFile.load(self.folder / ARTIFACTS["ranked_levels"].file / f"{self.model}.npz")

    def sides(self) -> tuple[Shards, Side, Side]:
        """Return the shards, and the query and gallery images in them."""
        shards = Shards.read(self.folder / ARTIFACTS["shards"].file)
        split = self.protocol["query"]
        gallery = shards.side(self.protocol["gallery"], "evaluate.gallery")
        if "names" not in self.protocol:
            return shards, shards.side(split, "evaluate.query"), gallery
        level, tables = self.protocol["names"]["level"], ("hierarchy", "landmarks")
        hierarchy, landmarks = (_read(self.folder, name) for name in tables)
        split = split.removeprefix("names of ")
        return shards, name_queries(shards, split, level, hierarchy, landmarks), gallery

    def values(self) -> dict[str, pd.DataFrame]:
        """Return model -> (Q, metrics) values by image id; nan if a query has no value."""
        return {
            name: self._per_query[self._per_query["model"] == name].pivot(
                index="image_id", columns="metric", values="value"
            )
            for name in self.models
        }

    def classes(self, queries: pd.Index) -> np.ndarray:
        """Return the (Q,) finest class of each query; a query without a label is a separate class.

        Raises:
            InvalidData: the evaluation did not record classes.
        """
        found = name_classes(self._per_query, queries)
        if found is None:
            raise InvalidData(
                f"{self.folder}: the classes of the queries are not recorded; run `hgld evaluate` "
                "again, or compare by queries"
            )
        return found

    @cached_property
    def _per_query(self) -> pd.DataFrame:
        table = _read(self.folder, "per_query") if self.given is None else self.given
        return table[table["model"].isin(list(self.models))]


def open_measured(text: str) -> MeasuredRun:
    """Open the run or model that ``PLACE[:MODEL]`` names.

    Args:
        text: a work folder or a pipeline file (its default work folder); if there are several,
            also the name of a run, or of the model of one seed.

    Raises:
        MissingInput: there is no evaluation at this place.
        UsageError: unknown model, or there are several and none is named.
    """
    folder, model = _place(text)
    if not (folder / ARTIFACTS["evaluation"].file).is_file():
        raise MissingInput(
            f"{text}: {folder} holds no evaluation ({ARTIFACTS['evaluation'].file}); expected a "
            "work folder or a pipeline file, and :MODEL; run `hgld evaluate PIPELINE` first"
        )
    report = _read(folder, "evaluation")
    models, runs = report["models"], report["runs"]
    names = list(runs)
    if not model and len(names) > 1:
        raise UsageError(f"{text}: holds {', '.join(names)}; say which: {text}:{names[0]}")
    model = model or names[0]
    alone = {name: {"models": [name], "mean": facts["mean"]} for name, facts in models.items()}
    known = {**alone, **runs}
    if model not in known:
        raise UsageError(
            f"{text}: no model '{model}' (it has {', '.join(known)}){nearest(model, known)}"
        )
    own = {name: models[name] for name in known[model]["models"]}
    metrics = tuple(map(str, report["metrics"]))
    return MeasuredRun(folder, model, own, report["protocol"], metrics, known[model]["mean"])


def read_measured(path: Path) -> MeasuredRun:
    """Read the CSV that ``hgld evaluations measure --out`` writes, as a run without a ranking.

    Raises:
        InvalidData: the file has other columns, a cell that is no number, or an image twice.
    """
    header = read_header(path, ("image_id", "class"))
    metrics = tuple(name for name in header if name not in ("image_id", "class"))
    if not metrics:
        raise InvalidData(f"{path}: holds no metric; `hgld evaluations measure --out` writes it")
    columns: dict[str, ColumnType] = {"image_id": "text", "class": "text"}
    table = read_csv(path, columns | dict.fromkeys(metrics, "optional float"))
    twice = table["image_id"][table["image_id"].duplicated()]
    if len(twice):
        raise InvalidData(f"{path}: the image {twice.iloc[0]} is there twice")
    means = {n: None if np.isnan(mean := table[n].mean()) else float(mean) for n in metrics}
    rows = table.melt(["image_id", "class"], var_name="metric").assign(model=path.stem)
    # no model of the pipeline is known to have seen the classes: the bootstrap draws them
    protocol = {"levels": [], "classes": {"trained_on": 0}}
    return MeasuredRun(path, path.stem, {path.stem: {}}, protocol, metrics, means, rows)


def _place(text: str) -> tuple[Path, str]:
    """Split ``PLACE[:MODEL]`` into work folder and model."""
    # the last colon: a path may hold others
    place, _, model = text.rpartition(":")
    if not place or Path(text).exists():
        place, model = text, ""
    path = Path(place)
    return (default_work(path) if path.suffix == ".toml" else path), model


def _read(folder: Path, name: str) -> Any:
    artifact = ARTIFACTS[name]
    assert not isinstance(artifact, Folder)
    return artifact.read(folder / artifact.file)


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
        record = asdict(replace(model, source=source, options=None))
        if model.options is None:
            del record["options"]
        else:
            record["options"] = model.options.model_dump(mode="json")
        records[model.name] = record
    write_file(state / MODELS, json.dumps(records, indent=1))


def open_embedded(measured: MeasuredRun) -> Embedded:
    """Read the embeddings that a model was measured with; compute missing ones again.

    Raises:
        InvalidData: the model or the shards have changed since.
        MissingInput: the model's embeddings are not recorded.
    """
    shards, query, gallery = measured.sides()
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
