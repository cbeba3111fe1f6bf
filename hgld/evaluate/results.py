"""Finished evaluations, opened again: the numbers of one run, query by query."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hgld.artifacts import ARTIFACTS, Folder, read_arrays
from hgld.artifacts.evaluation import list_runs, name_classes
from hgld.config import default_work
from hgld.errors import InvalidData, MissingInput, UsageError
from hgld.model.weights import one_line
from hgld.words import nearest

__all__ = ["Measured", "open_measured"]


@dataclass(frozen=True)
class Measured:
    """One run of one evaluation: a model, or the models of several seeds.

    Attributes:
        folder: with report.json, per_query.parquet and ranked_levels/.
        run: its name.
        models: name of each of its models -> what the report says of it.
        protocol: what was measured.
        metrics: names.
        means: metric -> mean, over seeds where there are several.
    """

    folder: Path
    run: str
    models: Mapping[str, Mapping[str, Any]]
    protocol: dict[str, Any]
    metrics: tuple[str, ...]
    means: dict[str, float | None]

    def of_model(self, name: str) -> "Measured":
        """Return one of its models alone."""
        return replace(self, run=name, models={name: self.models[name]})

    @property
    def ranking(self) -> Path:
        """The file of the ranking.

        Raises:
            UsageError: there are several, one of each seed.
        """
        if len(self.models) > 1:
            raise UsageError(
                f"{self.folder}:{self.run}: has a ranking for each seed; name one: "
                + ", ".join(f"{self.folder}:{name}" for name in self.models)
            )
        return self.folder / ARTIFACTS["ranked_levels"].file / f"{next(iter(self.models))}.npz"

    def values(self) -> dict[str, pd.DataFrame]:
        """Model -> (Q, metrics) values of each query, by image id; nan where it has none."""
        return {
            name: self._per_query[self._per_query["model"] == name].pivot(
                index="image_id", columns="metric", values="value"
            )
            for name in self.models
        }

    def classes(self, queries: pd.Index) -> np.ndarray:
        """(Q,) finest class of each query; one without a label is a class of its own.

        Raises:
            InvalidData: no class is recorded.
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
        table: pd.DataFrame = _read(self.folder, "per_query")
        return table[table["model"].isin(list(self.models))]

    def ranked(self, *names: str) -> dict[str, np.ndarray]:
        """Arrays of the ranking: order, query_ids, gallery_ids.

        Raises:
            InvalidData: the ranking cannot be read.
        """
        try:
            data = read_arrays(self.ranking, names)
            return {name: data[name] for name in names}
        except Exception as error:  # zipfile and numpy raise whatever the damage leads to
            raise InvalidData(
                f"{self.ranking}: not a readable ranking ({one_line(error)}); run the evaluate "
                "stage again"
            ) from None


def open_measured(text: str) -> Measured:
    """The run or model that ``PLACE[:MODEL]`` names.

    Args:
        text: a work folder or a pipeline file (its default work folder), and the name of a run, or
            of the model of one seed, where there are several.

    Raises:
        MissingInput: nothing was evaluated there.
        UsageError: no such model, or several and none named.
    """
    folder, model = _place(text)
    if not (folder / ARTIFACTS["evaluation"].file).is_file():
        raise MissingInput(
            f"{text}: {folder} holds no evaluation ({ARTIFACTS['evaluation'].file}); expected a "
            "work folder or a pipeline file, and :MODEL; run `hgld evaluate PIPELINE` first"
        )
    report = _read(folder, "evaluation")
    models, runs = report["models"], list_runs(report)
    names = list(runs)
    if not model and len(names) > 1:
        raise UsageError(f"{text}: holds {', '.join(names)}; say which: {text}:{names[0]}")
    model = model or names[0]
    known = {**list_runs({"models": models}), **runs}
    if model not in known:
        raise UsageError(
            f"{text}: no model '{model}' (it has {', '.join(known)}){nearest(model, known)}"
        )
    own = {name: models[name] for name in known[model]["models"]}
    metrics = tuple(map(str, report["metrics"]))
    return Measured(folder, model, own, report["protocol"], metrics, known[model]["mean"])


def _place(text: str) -> tuple[Path, str]:
    """Work folder and model of ``PLACE[:MODEL]``."""
    place, _, model = text.rpartition(":")
    if not place or Path(text).exists():
        place, model = text, ""
    path = Path(place)
    return (default_work(path) if path.suffix == ".toml" else path), model


def _read(folder: Path, name: str) -> Any:
    artifact = ARTIFACTS[name]
    assert not isinstance(artifact, Folder)
    return artifact.read(folder / artifact.file)
