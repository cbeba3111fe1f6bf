"""Training images of one split: which are in the batch of a step, and how they are augmented."""

import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from hgld.artifacts import hash_file
from hgld.config import RunOptions, SamplingOptions, TrainOptions
from hgld.errors import UsageError
from hgld.model.image import ImageConfig, training_transform
from hgld.shards.batches import BatchOptions, Samples
from hgld.shards.coverage import measure_coverage
from hgld.shards.index import level_columns, read_index, read_manifest
from hgld.shards.read import ShardImages
from hgld.shards.sequence import BatchSteps

__all__ = ["TrainingData", "step_seed"]

REVISION = 1  # of the trainer: higher when the same options make another model

Batch = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class TrainingData:
    """The samples of one split.

    Attributes:
        rows: of the shard index.
        levels: their names, coarse to fine.
        labels: (N, L) classes; the finest are numbered 0..C-1, as proxies need it.
        class_labels: (C, L) labels of each finest class.
    """

    folder: Path
    rows: pd.DataFrame
    levels: list[str]
    labels: np.ndarray
    class_labels: np.ndarray

    @classmethod
    def read(cls, folder: Path, options: TrainOptions) -> "TrainingData":
        """Read the index.

        Raises:
            UsageError: the split has no samples.
        """
        manifest, index = read_manifest(folder), read_index(folder)
        rows = index[index["split"] == options.split].reset_index(drop=True)
        if rows.empty:
            raise UsageError(
                f"{folder}: train.split '{options.split}' has no samples; the shards hold "
                + (", ".join(sorted(index["split"].unique())) or "none at all")
            )
        labels = rows[level_columns(rows)].to_numpy(np.int64)
        _, first, finest = np.unique(labels[:, -1], return_index=True, return_inverse=True)
        labels = np.column_stack([labels[:, :-1], finest])
        return cls(folder, rows, list(manifest["levels"]), labels, labels[first])

    def fingerprint(self, options: TrainOptions, run: RunOptions) -> str:
        """Names all that decides a run's model: the shards, the options, the trainer."""
        left_out = {*options.operational, "defaults", "runs"}
        if options.batches == SamplingOptions():
            left_out.add("batches")  # runs from before this option are what they were
        facts = {
            "shards": hash_file(self.folder / "manifest.json"),
            "options": options.model_dump(mode="json", exclude=left_out),
            "run": run.model_dump(mode="json"),
            "revision": REVISION,
        }
        return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def batches(
        self, config: ImageConfig, options: TrainOptions, steps: Sequence[int]
    ) -> "DataLoader[Batch]":
        """The batch of each step: images (B, 3, H, W), labels (B, L), row numbers (B,)."""
        plan = BatchSteps(self.samples, _batch_options(options), seed=options.seed)
        plan.at(0)  # raises here where none can be made
        return DataLoader(
            _StepBatches(self, plan, config, options.seed),
            batch_size=None,
            sampler=steps,
            num_workers=options.workers,
            worker_init_fn=_ignore_interrupt,
            pin_memory=torch.cuda.is_available(),
        )

    @property
    def samples(self) -> Samples:
        """What the plan of the batches must know."""
        return replace(Samples.of_index(self.rows), labels=self.labels)

    def describe_coverage(self, options: TrainOptions) -> str:
        """What an epoch shows of the split, and what it leaves out."""
        found = measure_coverage(self.samples, _batch_options(options), seed=options.seed)
        return f"{options.split}: {found.describe(options.images_per_class)}"

    def keys(self, rows: Tensor) -> list[str]:
        """Sample keys of row numbers."""
        return [str(key) for key in self.rows["key"].iloc[rows.tolist()]]


class _StepBatches(Dataset[Batch]):
    """Item ``step`` is the batch of that step, whoever loads it."""

    def __init__(
        self, data: TrainingData, plan: BatchSteps, config: ImageConfig, seed: int
    ) -> None:
        self.labels, self.plan, self.seed = data.labels, plan, seed
        self.images = ShardImages(data.folder, data.rows, training_transform(config))

    def __getitem__(self, step: int) -> Batch:
        rows = self.plan.at(step)  # (B,)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(step_seed(self.seed, step, "augmentation"))
            images = torch.stack([self.images[int(row)][0] for row in rows])
        return images, torch.from_numpy(self.labels[rows]), torch.from_numpy(rows)


def step_seed(seed: int, step: int, purpose: str) -> int:
    """A seed of its own for each step and purpose.

    Example:
        >>> step_seed(0, 1, "model") == step_seed(0, 1, "model")
        True
        >>> step_seed(0, 1, "model") == step_seed(0, 1, "augmentation")
        False
    """
    return int.from_bytes(sha256(f"{seed} {step} {purpose}".encode()).digest()[:7])


def _batch_options(options: TrainOptions) -> BatchOptions:
    return BatchOptions(
        options.classes_per_batch, options.images_per_class, **options.batches.model_dump()
    )


def _ignore_interrupt(_: int) -> None:
    """Leave Ctrl-C, which reaches the whole process group, to the main process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
