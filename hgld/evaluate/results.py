"""Finished evaluations, opened again: the numbers of one model, query by query."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hgld.artifacts import ARTIFACTS, Folder
from hgld.config import default_work, nearest
from hgld.errors import InvalidData, MissingInput, UsageError

__all__ = ["Measured", "open_measured"]


@dataclass(frozen=True)
class Measured:
    """One model of one evaluation.

    Attributes:
        folder: with report.json, per_query.parquet and ranked_levels/.
        model: its name.
        protocol: what was measured.
        metrics: names.
        means: metric -> mean.
    """

    folder: Path
    model: str
    protocol: dict[str, Any]
    metrics: tuple[str, ...]
    means: dict[str, float | None]

    @property
    def ranking(self) -> Path:
        """The file of the ranking."""
        return self.folder / ARTIFACTS["ranked_levels"].file / f"{self.model}.npz"

    def values(self) -> pd.DataFrame:
        """(Q, metrics) values of each query, by image id; nan where it has none."""
        table: pd.DataFrame = _read(self.folder, "per_query")
        rows = table[table["model"] == self.model]
        return rows.pivot(index="image_id", columns="metric", values="value")

    def ranked(self, *names: str) -> dict[str, np.ndarray]:
        """Arrays of the ranking: order, query_ids, gallery_ids.

        Raises:
            InvalidData: the ranking cannot be read.
        """
        try:
            with np.load(self.ranking, allow_pickle=False) as data:
                return {name: data[name] for name in names}
        except Exception as error:  # numpy raises whatever the damage leads to
            raise InvalidData(
                f"{self.ranking}: not a readable ranking ({error}); run the evaluate stage again"
            ) from None


def open_measured(text: str) -> Measured:
    """The model that ``PLACE[:MODEL]`` names.

    Args:
        text: a work folder or a pipeline file (its default work folder), and the model's name
            where there are several.

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
    names = list(report["models"])
    if not model and len(names) > 1:
        raise UsageError(f"{text}: holds {', '.join(names)}; say which: {text}:{names[0]}")
    model = model or names[0]
    if model not in names:
        raise UsageError(
            f"{text}: no model '{model}' (it has {', '.join(names)}){nearest(model, names)}"
        )
    metrics = tuple(map(str, report["metrics"]))
    return Measured(folder, model, report["protocol"], metrics, report["models"][model]["mean"])


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
