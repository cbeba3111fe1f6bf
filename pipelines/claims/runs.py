"""Trains every arm with every seed, at rates chosen on training landmarks; each run once.

A finished run is a line of ``runs.jsonl``, found again by all that decides it, so a command that
was stopped goes on where it was, and an arm of several experiments is trained for the first.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from hgld.config import RunOptions
from pipelines.claims.experiments import Arm
from pipelines.claims.features import Photos
from pipelines.claims.heads import Batches, measure, train_head

__all__ = ["Bench", "Budget", "Ledger"]

REVISION = 1  # higher when the same arm learns or is measured otherwise


@dataclass(frozen=True)
class Budget:
    """What every arm gets.

    Attributes:
        steps: of training.
        seeds: one run each.
        head_lr: rates of the head that the best is chosen of, on held-out training landmarks.
        proxy_lr: rate of the proxies.
        held_out: share of the training landmarks.
    """

    steps: int = 200
    seeds: tuple[int, ...] = (0, 1, 2)
    head_lr: tuple[float, ...] = (1e-5, 3e-5, 1e-4, 3e-4)
    proxy_lr: float = 1e-2
    held_out: float = 0.3


@dataclass
class Ledger:
    """The runs that were done, one line each."""

    path: Path
    records: dict[str, dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        lines = self.path.read_text("utf-8").splitlines() if self.path.is_file() else []
        self.records = {record["key"]: record for record in map(json.loads, lines)}

    def keep(self, record: dict[str, Any]) -> None:
        """Add a finished run."""
        self.records[record["key"]] = record
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


@dataclass(frozen=True)
class Bench:
    """Where arms are trained and measured.

    Attributes:
        train: photos of the training landmarks.
        evaluation: photos of the landmarks that nothing is chosen by.
        fit: part of the training landmarks.
        held_out: the others.
        arms: by name.
        ledger: of the finished runs.
        budget: of every arm.
        used: runs that were asked for, by key.
    """

    train: Photos
    evaluation: Photos
    fit: Photos
    held_out: Photos
    arms: Mapping[str, Arm]
    ledger: Ledger
    budget: Budget = Budget()
    used: dict[str, dict[str, Any]] = field(default_factory=dict)

    def values(self, arm: Arm) -> list[dict[str, float]]:
        """What each seed's head retrieves of the evaluation landmarks."""
        rate = self.rate(arm)
        seeds = self.budget.seeds if arm.loss else self.budget.seeds[:1]
        return [self._run(arm, rate, seed, self.train, self.evaluation) for seed in seeds]

    def rate(self, arm: Arm) -> float:
        """The rate of the head that is best on the held-out training landmarks."""
        if arm.rates_of:
            return self.rate(self.arms[arm.rates_of])
        rates = self.budget.head_lr if arm.loss else self.budget.head_lr[:1]
        seed = self.budget.seeds[0]
        found = {rate: self._run(arm, rate, seed, self.fit, self.held_out) for rate in rates}
        return max(found, key=lambda rate: found[rate][arm.chosen_by])

    def _run(self, arm: Arm, rate: float, seed: int, fit: Photos, test: Photos) -> dict[str, float]:
        run = _options(arm, rate, self.budget)
        batches = Batches(arm.classes, arm.images)
        facts = (REVISION, fit.key, test.key, run.model_dump_json(), asdict(batches), seed)
        key = sha256(repr(facts).encode()).hexdigest()[:24]
        if key not in self.ledger.records:
            began, at = perf_counter(), process_time()
            values = measure(train_head(fit, run, batches, seed), test)
            seconds = {"cpu_s": process_time() - at, "wall_s": perf_counter() - began}
            known = {"key": key, "arm": arm.name, "seed": seed, "head_lr": rate, "on": test.key}
            rounded = {name: round(value, 2) for name, value in seconds.items()}
            self.ledger.keep({**known, **rounded, "values": values})
            print(f"{arm.name}: seed {seed}, rate {rate:g}, {rounded['cpu_s']:.1f} s", flush=True)
        self.used[key] = self.ledger.records[key]
        return dict(self.used[key]["values"])


def _options(arm: Arm, rate: float, budget: Budget) -> RunOptions:
    if not arm.loss:
        return RunOptions(steps=0)
    return RunOptions(
        loss=arm.loss,
        loss_options=dict(arm.options),
        memory=arm.memory,
        steps=arm.steps or budget.steps,
        head_lr=rate,
        proxy_lr=budget.proxy_lr,
    )
