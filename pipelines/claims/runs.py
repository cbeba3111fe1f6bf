"""Trains every arm with every seed, at rates chosen on training landmarks; each run once.

A finished run is a line of ``runs.jsonl``, found again by all that decides it, so a command that
was stopped goes on where it was, and an arm of several experiments is trained for the first.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import Any, Literal

from hgld.artifacts import atomic_path
from hgld.config import RunOptions
from pipelines.claims.arms import Arm
from pipelines.claims.features import Photos, split_classes
from pipelines.claims.heads import Batches, measure_features, measure_head, train_head
from pipelines.record import commit

__all__ = ["Bench", "Budget", "Ledger"]

REVISION = 2  # higher when the same arm learns or is measured otherwise


@dataclass(frozen=True)
class Budget:
    """What every arm gets.

    Attributes:
        steps: of training.
        seeds: one run each.
        head_lr: rates of the head, rising; the best on held-out training landmarks is taken.
        proxy_lr: rate of the proxies.
        held_out: share of the training landmarks, others for each seed.
    """

    steps: int = 200
    seeds: tuple[int, ...] = (0, 1, 2)
    head_lr: tuple[float, ...] = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
    proxy_lr: float = 1e-2
    held_out: float = 0.3


@dataclass
class Ledger:
    """The runs that were done, one line each; a line that was cut off in writing is dropped."""

    path: Path
    records: dict[str, dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        lines = self.path.read_text("utf-8").splitlines(True) if self.path.is_file() else []
        if lines and not lines[-1].endswith("\n"):
            del lines[-1]
            with atomic_path(self.path) as temporary:
                temporary.write_text("".join(lines), encoding="utf-8")
        self.records = {record["key"]: record for record in map(json.loads, lines)}

    def keep(self, record: dict[str, Any]) -> None:
        """Add a finished run, and the commit that it was done with."""
        record = {**record, "commit": commit()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.records[record["key"]] = record


@dataclass(frozen=True)
class Bench:
    """Where arms are trained and measured.

    Attributes:
        train: photos of the training landmarks.
        evaluation: photos of the landmarks that nothing is chosen by.
        arms: by name.
        ledger: of the finished runs.
        budget: of every arm.
        used: runs that were asked for, by key.
    """

    train: Photos
    evaluation: Photos
    arms: Mapping[str, Arm]
    ledger: Ledger
    budget: Budget = Budget()
    used: dict[str, dict[str, Any]] = field(default_factory=dict)

    def cost(self) -> str:
        """How many runs there may be; each takes seconds."""
        rates, seeds = len(self.budget.head_lr), len(self.budget.seeds)
        chosen = sum(not arm.rates_of for arm in self.arms.values())
        most = seeds * (rates * chosen + len(self.arms))
        done = len(self.ledger.records)
        return f"at most {most} runs of seconds each, {done} done: minutes of one core"

    @cached_property
    def folds(self) -> list[tuple[Photos, Photos]]:
        """For each seed, training landmarks to learn from and others to choose rates by."""
        return [split_classes(self.train, self.budget.held_out, s) for s in self.budget.seeds]

    @property
    def cpu_s(self) -> float:
        """Seconds of one core of the runs that were asked for."""
        return float(sum(record["cpu_s"] for record in self.used.values()))

    def values(self, arm: Arm, on: Literal["evaluation", "train"]) -> list[dict[str, float]]:
        """What each seed's head retrieves of the evaluation or the training landmarks.

        Without a loss: what the features retrieve, which no seed has a part in.
        """
        test = self.evaluation if on == "evaluation" else self.train
        if not arm.loss:
            return [measure_features(test)]
        rate, _ = self.choose(arm)
        return [self._run(arm, rate, seed, self.train, test) for seed in self.budget.seeds]

    def choose(self, arm: Arm) -> tuple[float, float]:
        """The rate of the head that is best on held-out training landmarks, mean over the seeds.

        Rates are tried from the lowest up, until one is worse than the one before.

        Returns:
            The rate, and the mean of the arm's metric there.
        """
        if arm.rates_of:
            return self.choose(self.arms[arm.rates_of])
        best = 0.0, -1.0
        for rate in self.budget.head_lr:
            found = fmean(self._held_out(arm, rate))
            if found <= best[1]:
                break
            best = rate, found
        return best

    def _held_out(self, arm: Arm, rate: float) -> Iterator[float]:
        for seed, (fit, held_out) in zip(self.budget.seeds, self.folds, strict=True):
            yield self._run(arm, rate, seed, fit, held_out)[arm.chosen_by]

    def _run(self, arm: Arm, rate: float, seed: int, fit: Photos, test: Photos) -> dict[str, float]:
        run = _options(arm, rate, self.budget)
        batches = Batches(arm.classes, arm.images)
        facts = (REVISION, fit.key, test.key, run.model_dump_json(), asdict(batches), seed)
        key = sha256(repr(facts).encode()).hexdigest()[:24]
        if key not in self.ledger.records:
            began = process_time()
            values = measure_head(train_head(fit, run, batches, seed), test)
            cpu_s = round(process_time() - began, 2)
            known = {"key": key, "arm": arm.name, "seed": seed, "head_lr": rate, "on": test.key}
            self.ledger.keep({**known, "cpu_s": cpu_s, "values": values})
            print(f"{arm.name}: seed {seed}, rate {rate:g}, {cpu_s:.1f} s", flush=True)
        self.used[key] = self.ledger.records[key]
        return dict(self.used[key]["values"])


def _options(arm: Arm, rate: float, budget: Budget) -> RunOptions:
    return RunOptions(
        loss=arm.loss,
        loss_options=dict(arm.options),
        memory=arm.memory,
        steps=arm.steps or budget.steps,
        head_lr=rate,
        proxy_lr=budget.proxy_lr,
    )
