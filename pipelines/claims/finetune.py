"""Fine-tunes the whole network with the losses that count, by the trainer itself.

Every run is a folder of the trainer's, so a command that was killed goes on from the last
checkpoint; what a finished run retrieves is a line of ``finetune.jsonl``. Nothing is chosen here:
the rates are those that LOG.md found on training landmarks held out, the same for every loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Literal

import torch

from hgld.config import RunOptions, ScrapeOptions, SourceOptions, StageContext, TrainOptions
from hgld.model import build_image_model, load_model
from hgld.train import train_models
from hgld.train.data import TrainingData
from hgld.train.learner import Learner
from hgld.train.objective import build_loss
from pipelines.claims.arms import Arm
from pipelines.claims.features import show
from pipelines.claims.measures import measure
from pipelines.claims.runs import Ledger

__all__ = ["OPTIONS", "RUN", "SEEDS", "FineTuning"]

REVISION = 1  # higher when the same model is measured otherwise
SEEDS = (0, 1, 2)
RUN = RunOptions(steps=120, lr=1e-4, head_lr=2e-4, proxy_lr=1e-2)
OPTIONS = TrainOptions(
    backbone="offline:efficientnet-lite0",
    dim=256,
    image_size=128,
    classes_per_batch=16,
    images_per_class=4,
    checkpoint_steps=40,
    defaults=RUN,
)
Split = Literal["evaluation", "train"]


@dataclass(frozen=True)
class FineTuning:
    """Where arms are fine-tuned and measured.

    Attributes:
        shards: folder of the photos.
        kept: folder of the trained models.
        ledger: of what was measured of them.
        options: of the trainer, but for runs and seed.
        used: measurements that were asked for, by key.
    """

    shards: Path
    kept: Path
    ledger: Ledger
    options: TrainOptions = OPTIONS
    used: dict[str, dict[str, Any]] = field(default_factory=dict)

    def values(self, arm: Arm, on: Split = "evaluation") -> list[dict[str, float]]:
        """What each seed's network retrieves of the evaluation or the training photos."""
        return [self.value(arm, seed, on) for seed in (SEEDS if arm.loss else SEEDS[:1])]

    def value(self, arm: Arm, seed: int, on: Split = "evaluation") -> dict[str, float]:
        """What one network retrieves, trained where it is not yet there."""
        options = self._options(arm, seed)
        key = self._key(options, on)
        if key not in self.ledger.records:
            began = process_time()
            values = self._measure(self._train(options, f"{_word(arm.name)}-{seed}"), options, on)
            cpu_s = round(process_time() - began)
            record = {"key": key, "arm": arm.name, "seed": seed, "on": on, "cpu_s": cpu_s}
            self.ledger.keep({**record, "values": values})
            print(f"{arm.name}: seed {seed}, {on}, {cpu_s} s", flush=True)
        self.used[key] = self.ledger.records[key]
        return dict(self.used[key]["values"])

    def cost(self, arms: Sequence[Arm]) -> str:
        """What is still to be trained, and how long that will take."""
        waiting = sum(
            self._key(self._options(arm, seed), "evaluation") not in self.ledger.records
            for arm in arms
            if arm.loss
            for seed in SEEDS
        )
        run = self.options.defaults
        minutes = waiting * run.steps * self.step_s() / 60
        return (
            f"{waiting} runs of {run.steps} steps to go: about {minutes:.0f} minutes of one core, "
            "and half a minute each to measure"
        )

    @property
    def cpu_s(self) -> float:
        """Seconds of one core of the runs that were asked for.

        A run that was stopped and went on counts what came last; so all count as the median.
        """
        trained = [record["cpu_s"] for record in self.used.values()]
        return median(trained) * len(trained) if trained else 0.0

    def step_s(self) -> float:
        """Seconds of a step, of one core, without reading the photos."""
        model = build_image_model(self.options).train()
        size, side = self.options.classes_per_batch, self.options.image_size
        labels = torch.arange(size).repeat_interleave(self.options.images_per_class)[:, None]
        images = torch.zeros(len(labels), 3, side, side, dtype=torch.uint8)
        run = RunOptions(loss="SmoothAP")
        criterion = build_loss(run, labels.unique(dim=0).numpy(), model.dim, 0)
        learner = Learner(model, criterion, 1, self.options, run)
        learner.learn(0, images, labels, torch.arange(len(labels)))
        began = process_time()
        learner.learn(1, images, labels, torch.arange(len(labels)))
        return process_time() - began

    def _options(self, arm: Arm, seed: int) -> TrainOptions:
        learned = {"loss": arm.loss, "loss_options": dict(arm.options)}
        run = self.options.defaults.model_copy(update=learned if arm.loss else {"steps": 0})
        return self.options.model_copy(update={"seed": seed, "runs": {"model": run}})

    def _key(self, options: TrainOptions, on: Split) -> str:
        data = TrainingData.read(self.shards, options)
        facts = (REVISION, data.fingerprint(options, options.runs["model"]), on)
        return sha256(repr(facts).encode()).hexdigest()[:24]

    def _train(self, options: TrainOptions, name: str) -> Path:
        out = self.kept / name
        nowhere = StageContext("", self.kept, SourceOptions(), self.kept, ScrapeOptions())
        train_models(self.shards, options=options, context=nowhere, out=out)
        return out / "model"

    def _measure(self, folder: Path, options: TrainOptions, on: Split) -> dict[str, float]:
        data = TrainingData.read(self.shards, options.model_copy(update={"split": on}))
        model = load_model(folder)
        return measure(show(data, model.config, model), data.labels)


def _word(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name.lower())
