"""Train every arm with every seed on one fold, at rates chosen on its training landmarks.

A finished run is a line of the fold's ledger, found again by all that decides it, so a command that
was stopped goes on where it was, and an arm of several experiments is trained for the first.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import product
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from hgld.artifacts import atomic_path
from hgld.config import RunOptions
from hgld.model import ImageModel
from hgld.train.data import number_levels
from hgld.train.objective import build_loss
from pipelines.claims.arms import Arm

Rates = tuple[float, float]  # of the network or its head, of the proxies
RATES = (1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
PROXY_RATES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)


class Labelled(Protocol):
    """Samples that a fold learns from or is measured on."""

    @property
    def labels(self) -> np.ndarray:
        """(N, L), coarse to fine, the classes of each level numbered 0, 1, 2 ..."""

    @property
    def key(self) -> str:
        """Names all that decides the samples."""

    def of(self, rows: np.ndarray, name: str) -> Self:
        """Some of the samples, their classes renumbered."""


Data = TypeVar("Data", bound=Labelled)


@dataclass(frozen=True)
class Batches:
    """P classes of K samples."""

    classes: int = 16
    images: int = 4


@dataclass(frozen=True)
class Budget:
    """What every arm gets.

    Attributes:
        steps: of training.
        seeds: one run each, on each fold.
        rates: of the head, and of the network below it if that is trained; of ``RATES``.
        proxy_rates: of the proxies; each is tried with each of the rates; of ``PROXY_RATES``.
        draws: of held-out training landmarks, a third of them, to choose rates by.
        head: rate of the head over that of the network.
        batch: samples in a batch of an arm with these steps; one with others has as many steps as
            let it see as many samples. 0: all have the same steps.
    """

    steps: int
    seeds: int
    rates: tuple[float, ...]
    proxy_rates: tuple[float, ...]
    draws: int = 1
    head: float = 1.0
    batch: int = 0


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
        """Add a finished run."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.records[record["key"]] = record


def leave_out(data: Data, parts: int, part: int, seed: int) -> tuple[Data, Data]:
    """Split samples by their finest classes, which the seed deals into equal parts.

    Args:
        data: to split.
        parts: number of parts.
        part: the one that is left out, from 0.
        seed: of the deal.

    Returns:
        The samples of all other parts, and those of the part.
    """
    finest = data.labels[:, -1]
    order = np.random.default_rng(seed).permutation(int(finest.max()) + 1)
    out = np.isin(finest, order[part::parts])
    name = f"part {part} of {parts}, seed {seed}"
    return data.of(np.flatnonzero(~out), f"without {name}"), data.of(np.flatnonzero(out), name)


@dataclass(frozen=True)
class Bench(Generic[Data]):
    """Where the arms of one fold are trained and measured.

    Attributes:
        fit: samples of the training classes.
        test: samples of the classes that nothing is chosen by.
        arms: by name.
        ledger: of the finished runs.
        budget: of every arm.
        train: returns a model that has learned from samples.
        measure: returns what a model retrieves of samples; None: nothing was learned.
        used: runs that were asked for, by key.
    """

    fit: Data
    test: Data
    arms: Mapping[str, Arm]
    ledger: Ledger
    budget: Budget
    train: Callable[[Data, RunOptions, Batches, int], ImageModel]
    measure: Callable[[ImageModel | None, Data], dict[str, float]]
    used: dict[str, dict[str, Any]] = field(default_factory=dict)

    def result(self) -> dict[str, Any]:
        """Every arm's means over the seeds, its rates, and the cost."""
        chosen = {name: self.choose(arm) for name, arm in self.arms.items() if arm.loss}
        values = {name: _means(self.values(arm)) for name, arm in self.arms.items()}
        return {
            "values": values,
            "chosen": chosen,
            "runs": len(self.used),
            "cpu_s": sum(record["cpu_s"] for record in self.used.values()),
            "samples": [len(self.fit.labels), len(self.test.labels)],
            "classes": [int(data.labels[:, -1].max()) + 1 for data in (self.fit, self.test)],
        }

    def values(self, arm: Arm) -> list[dict[str, float]]:
        """What each seed's model retrieves; without a loss, what no seed has a part in."""
        if not arm.loss:
            return [self.measure(None, self.test)]
        rates = self.choose(arm)
        seeds = range(self.budget.seeds)
        return [self._run(arm, rates, seed, self.fit, self.test) for seed in seeds]

    def choose(self, arm: Arm) -> Rates:
        """The rates, of the whole grid, that are best on held-out training classes.

        Where the best is at an end of the grid, the grid is widened.
        """
        if arm.rates_of:
            return self.choose(self.arms[arm.rates_of])
        proxies = self.budget.proxy_rates if self._has_proxies(arm) else self.budget.proxy_rates[:1]
        grid, wider = (), (self.budget.rates, proxies)
        while grid != wider:
            grid = wider
            best = max(product(*grid), key=lambda rates: fmean(self._held_out(arm, rates)))
            wider = (_widen(grid[0], best[0], RATES), _widen(grid[1], best[1], PROXY_RATES))
        return best

    @cached_property
    def _draws(self) -> list[tuple[Data, Data]]:
        """Training classes to learn from and others to choose rates by, for each draw.

        Cached, because samples cache what takes seconds: the directions that a head begins as.
        """
        return [leave_out(self.fit, 3, 0, draw) for draw in range(self.budget.draws)]

    def _held_out(self, arm: Arm, rates: Rates) -> Iterator[float]:
        for draw, (fit, held_out) in enumerate(self._draws):
            yield self._run(arm, rates, draw, fit, held_out)[arm.chosen_by]

    def _has_proxies(self, arm: Arm) -> bool:
        loss = build_loss(self._options(arm, (1.0, 1.0)), number_levels(self.fit.labels)[1], 8, 0)
        return any(True for _ in loss.parameters())

    def _run(self, arm: Arm, rates: Rates, seed: int, fit: Data, test: Data) -> dict[str, float]:
        run, batches = self._options(arm, rates), Batches(arm.classes, arm.images)
        facts = (fit.key, test.key, run.model_dump_json(), asdict(batches), seed)
        key = sha256(repr(facts).encode()).hexdigest()[:24]
        if key not in self.ledger.records:
            began = process_time()
            values = self.measure(self.train(fit, run, batches, seed), test)
            cpu_s = round(process_time() - began, 2)
            known = {"key": key, "arm": arm.name, "seed": seed, "rates": rates, "on": test.key}
            self.ledger.keep({**known, "cpu_s": cpu_s, "values": values})
        self.used[key] = self.ledger.records[key]
        return dict(self.used[key]["values"])

    def _options(self, arm: Arm, rates: Rates) -> RunOptions:
        size = arm.classes * arm.images
        return RunOptions(
            loss=arm.loss,
            loss_options=dict(arm.options),
            memory=arm.memory,
            steps=self.budget.steps * (self.budget.batch or size) // size,
            lr=rates[0],
            head_lr=rates[0] * self.budget.head,
            proxy_lr=rates[1],
        )


def _widen(rates: tuple[float, ...], best: float, known: Sequence[float]) -> tuple[float, ...]:
    """Add the rate beyond the best if that is an end; nothing to a single rate, which has no use.

    Example:
        >>> _widen((0.01, 0.1), 0.1, PROXY_RATES)
        (0.01, 0.1, 1.0)
    """
    if len(rates) == 1 or best not in (min(rates), max(rates)):
        return rates
    place = known.index(best)
    return tuple(sorted({*rates, *known[max(0, place - 1) : place + 2]}))


def _means(seeds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(found[name] for found in seeds) for name in seeds[0]}
