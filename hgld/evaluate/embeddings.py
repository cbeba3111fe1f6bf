"""Embeddings of queries and gallery, kept for each model and shard.

A run that was stopped goes on with the next shard, and another set of metrics embeds nothing again.
"""

import io
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader

from hgld.artifacts import atomic_path, hash_file
from hgld.config import EvaluateOptions
from hgld.errors import UsageError
from hgld.model import ImageModel, load_model
from hgld.model.image import evaluation_transform
from hgld.model.weights import choose_device
from hgld.shards.index import level_columns
from hgld.shards.read import ShardImages
from hgld.tasks import track

__all__ = ["Side", "Store"]

REVISION = 1  # of the embedding: higher when the same model embeds the same shard otherwise


@dataclass(frozen=True)
class Side:
    """The queries, or the gallery: the samples of one split, in the order of the index."""

    split: str
    rows: pd.DataFrame
    labels: np.ndarray  # (N, L), coarse to fine

    @classmethod
    def read(cls, index: pd.DataFrame, split: str, option: str) -> "Side":
        """The samples of a split.

        Raises:
            UsageError: it has none.
        """
        rows = index[index["split"] == split].reset_index(drop=True)
        if rows.empty:
            raise UsageError(
                f"evaluate.{option} '{split}' has no samples; the shards hold "
                + (", ".join(sorted(index["split"].unique())) or "none at all")
            )
        return cls(split, rows, np.array(rows[level_columns(rows)], dtype=np.int64))

    @property
    def image_ids(self) -> np.ndarray:
        """(N,) image ids."""
        return self.rows["image_id"].to_numpy(dtype=str)


@dataclass(frozen=True)
class Store:
    """Embeddings of each model and shard, computed when they are first asked for."""

    shards: Path
    state: Path
    hashes: Mapping[str, str]
    options: EvaluateOptions

    def embed(self, run: Path, sides: list[Side]) -> dict[str, np.ndarray]:
        """Split -> (N, D) unit vectors of its samples."""
        wanted = {side.split: side for side in sides}
        parts = {split: list(self._parts(run, side)) for split, side in wanted.items()}
        if not all(path.is_file() for part in parts.values() for path, _ in part):
            self._fill(run, [shard for part in parts.values() for shard in part])
        return {
            split: np.concatenate([np.load(path) for path, _ in part])
            for split, part in parts.items()
        }

    def keep_only(self, runs: list[Path]) -> None:
        """Remove the embeddings of other models."""
        kept = {self._folder(run).name for run in runs}
        for path in (self.state / "embeddings").glob("*"):
            if path.name not in kept:
                shutil.rmtree(path)

    def _folder(self, run: Path) -> Path:
        """One folder for all that decides a model's embeddings: config.json names its weights."""
        key = sha256(f"{REVISION} {hash_file(run / 'config.json')}".encode()).hexdigest()
        return self.state / "embeddings" / key[:32]

    def _parts(self, run: Path, side: Side) -> Iterator[tuple[Path, pd.DataFrame]]:
        """For each shard of the split its file of embeddings and its samples, in order."""
        folder = self._folder(run)
        for shard, rows in side.rows.groupby("shard", sort=False):
            yield folder / f"{self.hashes[str(shard)][:32]}.npy", rows

    def _fill(self, run: Path, parts: list[tuple[Path, pd.DataFrame]]) -> None:
        device = choose_device(self.options.device)
        model = load_model(run, device)
        for path, rows in parts:
            if not path.is_file():
                vectors = self._embed_shard(model, rows, f"Embedding with {run.name}")
                buffer = io.BytesIO()
                np.save(buffer, vectors)
                with atomic_path(path) as temporary:
                    temporary.write_bytes(buffer.getvalue())

    @torch.inference_mode()
    def _embed_shard(self, model: ImageModel, rows: pd.DataFrame, label: str) -> np.ndarray:
        images = ShardImages(self.shards, rows, evaluation_transform(model.config))
        batches = DataLoader(
            images, batch_size=self.options.batch_size, num_workers=self.options.workers
        )
        device = next(model.parameters()).device
        found = [
            model(batch.to(device)).float().cpu().numpy()
            for batch, _, _ in track(batches, label, len(batches))
        ]
        return np.concatenate(found)  # (N, D)
