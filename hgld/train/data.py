"""Training images and labels of one split, and the fingerprint that identifies a run.

A finished run is reused only if its fingerprint, a hash of shards, options and trainer, matches.
"""

import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from hgld.artifacts import hash_file
from hgld.config import Options, RunOptions, TrainOptions, without_folders
from hgld.errors import HgldError, InvalidData, MissingInput, UsageError
from hgld.model.model_folder import ImageConfig, hash_weights
from hgld.model.transforms import training_transform
from hgld.shards.batches import measure_coverage
from hgld.shards.damaged import DamagedImages
from hgld.shards.image_table import Column, ImageTable, pieces
from hgld.shards.index import read_manifest
from hgld.shards.load import BatchLoader
from hgld.shards.read import ShardImages
from hgld.shards.sampling import BatchOptions, Samples
from hgld.storage import join_location
from hgld.train.ranks import ALONE, Ranks

REVISION = 2  # of the trainer; raised when the same options give another model
WARM_UP_REVISION = 3  # of runs with warmup_steps, whose momentum began in the warm-up before

# The options of the first release always count; a later option counts only if it differs from
# its default, so that the fingerprint of a run from before the option stays the same.
FIRST_OPTIONS = {"backbone", "pretrained", "dim", "image_size", "split", "seed"} | {
    "classes_per_batch",
    "images_per_class",
}
FIRST_RUN_OPTIONS = {"loss", "steps", "lr", "head_lr", "proxy_lr", "weight_decay", "loss_options"}


@dataclass(frozen=True)
class TrainingData:
    """The samples of one split.

    Attributes:
        folder: of the shards.
        place: folder or URL from which images are read, maybe a copy (``train.batches.folder``).
        images: of the split, their classes numbered 0, 1, 2 ... at each level, as proxies require.
        levels: their names, coarse to fine.
        class_labels: (C, L) labels of each finest class.
    """

    folder: Path
    place: Path | str
    images: ImageTable
    levels: list[str]
    class_labels: np.ndarray

    @classmethod
    def read(cls, folder: Path, options: TrainOptions) -> "TrainingData":
        """Read the index.

        Raises:
            UsageError: a run has to be trained, but the split has no samples.
        """
        manifest, images = read_manifest(folder), ImageTable.read(folder, options.split)
        # Runs of 0 steps are pretrained models and need no samples.
        if not len(images) and any(run.steps for run in options.runs.values()):
            raise UsageError(
                f"{folder}: train.split '{options.split}' has no samples; the shards hold "
                + (", ".join(sorted(manifest["splits"])) or "none at all")
            )
        labels, class_labels = number_levels(images.labels)
        place, images = options.batches.folder or folder, replace(images, labels=labels)
        return cls(folder, place, images, list(manifest["levels"]), class_labels)

    def fingerprint(self, options: TrainOptions, run: RunOptions) -> str:
        """Hash of all that decides a run's model: shards, options, start, trainer revision."""
        options = options.model_copy(update={"backbone": without_folders(options.backbone)})
        decisive = _decisive(run, FIRST_RUN_OPTIONS)
        # The model that the run starts from counts regardless of its name or folder.
        if run.init_folder is not None:
            decisive["init_from"] = hash_weights(run.init_folder)
        elif run.init_from:
            decisive["init_from"] = self.fingerprint(options, options.runs[run.init_from])
        facts = {
            "shards": hash_file(self.folder / "manifest.json"),
            "options": _decisive(options, FIRST_OPTIONS, {"defaults", "runs", "seeds"}),
            "run": decisive,
            "revision": WARM_UP_REVISION if run.warmup_steps else REVISION,
        }
        return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @property
    def labels(self) -> np.ndarray:
        """(N, L) classes of the images, coarse to fine."""
        return self.images.labels

    @property
    def samples(self) -> Samples:
        """Labels, runs and shards for planning the batches."""
        return Samples.of_index(self.images)

    def loader(
        self,
        config: ImageConfig,
        options: TrainOptions,
        ranks: Ranks = ALONE,
        damaged: DamagedImages | None = None,
    ) -> BatchLoader:
        """Load augmented bytes (B / ranks, 3, H, W) of this rank's part of each batch.

        Raises:
            InvalidData, MissingInput: the folder to read from has other shards, or none.
            UsageError: the processes do not divide a batch, or options do not fit together.
        """
        self.require_readable(options, ranks)
        batches, copy = batch_options(options), options.batches.folder
        side, budget = config.image_size, options.undecodable_budget
        return BatchLoader(
            self.folder if copy is None else copy,
            self.images,
            training_transform(config, options.augmentation),
            batches,
            seed=options.seed,
            reader=options.batches.reader,
            rank=ranks.rank,
            world_size=ranks.size,
            workers=options.workers,
            damaged=damaged or DamagedImages(budget, self.name, speaks=ranks.leads),
            cache_gb=options.batches.cache_gb,
            image_shape=(3, side, side),
        )

    def require_readable(self, options: TrainOptions, ranks: Ranks = ALONE) -> None:
        """Refuse processes that do not divide a batch, and a folder without these shards.

        Raises:
            InvalidData: ``train.batches.folder`` has other shards.
            MissingInput: it has no manifest.json.
            UsageError: the processes do not divide a batch.
        """
        batch, copy = options.classes_per_batch * options.images_per_class, options.batches.folder
        if batch % ranks.size:
            raise UsageError(
                f"{ranks.size} processes do not divide a batch of {batch} images; change "
                "--nproc_per_node or train.classes_per_batch"
            )
        if copy is None:
            return
        what_to_do = f"set train.batches.folder to a copy of {self.folder}"
        try:
            found = read_manifest(copy)
        except MissingInput:  # its advice, to run export, does not help a copy
            raise MissingInput(f"{copy}: has no manifest.json; {what_to_do}") from None
        if found != read_manifest(self.folder):
            raise InvalidData(
                f"{copy}: its manifest.json is not that of {self.folder}; {what_to_do}"
            )

    def describe_coverage(self, options: TrainOptions) -> str:
        """Describe what an epoch covers of the split, and what it leaves out."""
        found = measure_coverage(self.samples, batch_options(options), seed=options.seed)
        return f"{options.split}: {found.describe(options.images_per_class)}"

    def keys(self, rows: list[int]) -> list[str]:
        """Sample keys of row numbers."""
        return [str(self.images.keys[row]) for row in rows]

    def count_whole(self, images: Collection[str | int]) -> int:
        """Count how many of some images, by key or row number, are intact in the shards."""
        if not images:
            return 0
        named = np.flatnonzero(pd.Series(self.images.keys).isin(list(images)))
        numbers = [row for row in images if isinstance(row, int) and 0 <= row < len(self.images)]
        chosen = self.images.take(np.union1d(named, numbers).astype(np.int64))
        found = ShardImages(self.place, chosen, lambda image: torch.empty(0))
        whole = 0
        for number in range(len(found)):
            with suppress(HgldError):
                found.load(number)
                whole += 1
        return whole

    def name(self, row: int) -> str:
        """Shard and key of a row number."""
        shard = self.images.names[self.images.shards[row]]
        return f"{join_location(self.place, shard)}: key {self.images.keys[row]}"


def number_levels(paths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number the classes of each level 0, 1, 2 ..., as proxies require.

    Args:
        paths: (N, L) class numbers with gaps, 0 or more, coarse to fine.

    Returns:
        (N, L) labels, in a file if there are many, and (C, L) labels of each finest class.
    """
    known = [np.zeros(0, bool)] * paths.shape[1]  # of each level, whether a class number exists
    for part in pieces(paths):
        for level, classes in enumerate(part.T):
            more = max(0, int(classes.max()) + 1 - len(known[level]))
            known[level] = np.pad(known[level], (0, more))
            known[level][classes] = True
    numbers = [np.cumsum(found, dtype=np.int32) - 1 for found in known]
    class_labels = np.full((int(known[-1].sum()), paths.shape[1]), -1)
    with Column(len(paths), paths.dtype, paths.shape[1]) as labels:
        for part in pieces(paths):
            numbered = np.column_stack([of[own] for of, own in zip(numbers, part.T, strict=True)])
            labels.append(numbered)
            finest = numbered[:, -1]
            new = class_labels[finest, 0] < 0
            class_labels[finest[new][::-1]] = numbered[new][::-1]  # of its first row
        return labels.array(), class_labels


def _decisive(options: Options, first: set[str], left_out: Collection[str] = ()) -> dict[str, Any]:
    """The options that decide a model, as JSON values."""
    values = {n: value for n, value in options.decisive().items() if n not in left_out}
    defaults = type(options)().decisive()
    return {n: value for n, value in values.items() if n in first or value != defaults[n]}


def batch_options(options: TrainOptions) -> BatchOptions:
    """Composition of the trainer's batches."""
    decisive = options.batches.decisive()
    return BatchOptions(options.classes_per_batch, options.images_per_class, **decisive)
