"""Reader of finished evaluations: metrics of one run, and its rankings.

It loads no torch, so that a comparison takes a second; ``hgld.evaluate.embedded`` reads the
embeddings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hgld.artifacts import (
    ARTIFACTS,
    ColumnType,
    Folder,
    read_csv,
    read_header,
    row_in_file,
)
from hgld.artifacts.ranking_file import RankingFile
from hgld.bootstrap import name_classes
from hgld.config import default_work
from hgld.errors import InvalidData, MissingInput, UsageError
from hgld.words import nearest

PROTOCOL = ("gallery_images", "levels")  # of the CSV of a measurement; optional


@dataclass(frozen=True)
class MeasuredRun:
    """One run of one evaluation: a model, or the models of several seeds.

    Attributes:
        folder: with report.json, per_query.parquet and ranked_levels/.
        run: its name.
        models: name of each of its models -> its facts in the report.
        protocol: facts of the protocol.
        metrics: names.
        given: the rows of per_query.parquet, if they are not in the folder.
    """

    folder: Path
    run: str
    models: Mapping[str, Mapping[str, Any]]
    protocol: dict[str, Any]
    metrics: tuple[str, ...]
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
        table = read_artifact(self.folder, "per_query") if self.given is None else self.given
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
    place, _, model = text.rpartition(":")  # the last colon: a path may hold others
    if not place or Path(text).exists():
        place, model = text, ""
    path = Path(place)
    folder = default_work(path) if path.suffix == ".toml" else path
    if not (folder / ARTIFACTS["evaluation"].file).is_file():
        raise MissingInput(
            f"{folder} holds no evaluation ({ARTIFACTS['evaluation'].file}); expected a work "
            "folder or a pipeline file, and :MODEL; run `hgld evaluate PIPELINE` first"
        )
    report = read_artifact(folder, "evaluation")
    models, runs = report["models"], report["runs"]
    names = list(runs)
    if not model and len(names) > 1:
        raise UsageError(f"{text}: holds {', '.join(names)}; say which: {text}:{names[0]}")
    model = model or names[0]
    known = {name: {"models": [name]} for name in models} | runs
    if model not in known:
        raise UsageError(
            f"{text}: no model '{model}' (it has {', '.join(known)}){nearest(model, known)}"
        )
    own = {name: models[name] for name in known[model]["models"]}
    metrics = tuple(map(str, report["metrics"]))
    return MeasuredRun(folder, model, own, report["protocol"], metrics)


def read_measured(path: Path) -> MeasuredRun:
    """Read the CSV that ``hgld evaluations measure --out`` writes, as a run without a ranking.

    Raises:
        InvalidData: the file has other columns, a cell that is no number, an image twice, or one
            without an id.
    """
    header = read_header(path, ("image_id", "class"))
    texts = ["image_id", "class", *(name for name in PROTOCOL if name in header)]
    metrics = tuple(name for name in header if name not in texts)
    if not metrics:
        raise InvalidData(f"{path}: holds no metric; `hgld evaluations measure --out` writes it")
    columns: dict[str, ColumnType] = dict.fromkeys(texts, "text")
    table = read_csv(path, columns | dict.fromkeys(metrics, "optional float"))
    infinite = np.argwhere(np.isinf(table[[*metrics]].to_numpy()))
    if len(infinite):
        row, column = infinite[0]
        raise InvalidData(
            f"{path} row {row_in_file(path, int(row))}: {metrics[column]} is infinite; expected a "
            "number, or an empty cell for a query without a value"
        )
    if "" in table["image_id"].values:
        row = row_in_file(path, table["image_id"].tolist().index(""))
        raise InvalidData(f"{path} row {row}: image_id is empty; expected the id of an image")
    twice = table["image_id"][table["image_id"].duplicated()]
    if len(twice):
        raise InvalidData(f"{path}: the image {twice.iloc[0]} is there twice")
    rows = table.melt(["image_id", "class"], [*metrics], "metric").assign(model=path.stem)
    # no model of the pipeline is known to have seen the classes: the bootstrap draws them
    protocol: dict[str, Any] = {"levels": [], "classes": {"trained_on": 0}}
    protocol |= {name: ", ".join(table[name].unique()) for name in texts[2:]}
    # as `measure` numbers the queries of embeddings without ids
    protocol["by_row"] = table["image_id"].tolist() == [*map(str, range(len(table)))]
    return MeasuredRun(path, path.stem, {path.stem: {}}, protocol, metrics, rows)


def read_artifact(folder: Path, name: str) -> Any:
    """Read a table or JSON file of a work folder by the name of its artifact."""
    artifact = ARTIFACTS[name]
    assert not isinstance(artifact, Folder)
    return artifact.read(folder / artifact.file)
