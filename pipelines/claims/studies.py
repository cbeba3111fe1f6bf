"""The budgets with their experiments and data: run their folds, judge them, write the results.

Each fold of a budget is a task with its own ledger, in a folder of the commit: a run that was
killed at any time goes on where it was. Results are those of one commit; uncommitted code is
refused.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from hgld.artifacts import atomic_path
from hgld.config import RunOptions
from hgld.errors import UsageError
from hgld.model import ImageModel
from hgld.model.devices import kept_memory
from hgld.tasks import map_tasks
from pipelines.claims.experiments import EXPERIMENTS, FINE_TUNED, MADE, Experiment
from pipelines.claims.features import BACKBONE, read_photos
from pipelines.claims.finetune import OPTIONS, fine_tune, measure_images, read_images
from pipelines.claims.heads import measure_head, train_head, train_network
from pipelines.claims.made import draw_tree
from pipelines.claims.runs import Batches, Bench, Budget, Ledger, leave_out
from pipelines.claims.verdicts import LEVEL, summarise
from pipelines.record import commit, machine

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "pipelines" / "results"
FOLDS = 5
NETWORK = {"backbone": "three layers from random weights", "image_size": 0}


@dataclass(frozen=True)
class Study:
    """A budget with its experiments and data.

    Attributes:
        experiments: what is compared.
        budget: what every arm gets.
        read: shards and kept folder -> all samples; of a seed, for made samples.
        train: as of ``Bench``.
        measure: as of ``Bench``.
        network: facts of it, for the results.
        made: samples are drawn for each fold, so that folds share nothing.
    """

    experiments: Sequence[Experiment]
    budget: Budget
    read: Callable[[Path, Path, int], Any]
    train: Callable[[Any, RunOptions, Batches, int], ImageModel]
    measure: Callable[[ImageModel | None, Any], dict[str, float]]
    network: Mapping[str, Any]
    made: bool = False

    def open_bench(self, shards: Path, kept: Path, fold: int, ledger: Ledger) -> Bench[Any]:
        """The training and test samples of a fold: a third of a tree's classes, or a fifth."""
        parts, part, seed = (3, 0, fold) if self.made else (FOLDS, fold, 0)
        fit, test = leave_out(self.read(shards, kept, fold), parts, part, seed)
        arms = {arm.name: arm for experiment in self.experiments for arm in experiment.arms}
        return Bench(fit, test, arms, ledger, self.budget, self.train, self.measure)


# A grid begins around the rates that were chosen most often, so that few are widened.
STUDIES = {
    "head": Study(
        EXPERIMENTS,
        Budget(200, 5, (1e-4, 3e-4, 1e-3), (1e-3, 1e-2, 1e-1), draws=2, batch=64),
        lambda shards, kept, _: read_photos(shards, kept),
        train_head,
        measure_head,
        {"backbone": BACKBONE.backbone, "image_size": BACKBONE.image_size},
    ),
    "made": Study(
        MADE,
        Budget(4000, 5, (1e-3, 3e-3), (1e-2, 1e-1)),
        lambda _shards, _kept, fold: draw_tree(fold),
        train_network,
        measure_head,
        NETWORK,
        made=True,
    ),
    "finetune": Study(
        FINE_TUNED,
        Budget(64, 2, (3e-5, 1e-4), (1e-2, 1e-1), head=2.0, batch=64),
        lambda shards, _kept, _fold: read_images(shards),
        fine_tune,
        measure_images,
        {"backbone": OPTIONS.backbone, "image_size": OPTIONS.image_size},
    ),
}


@dataclass(frozen=True)
class Fold:
    """A task: one fold of a budget."""

    study: str
    number: int
    shards: Path
    kept: Path


def run_fold(task: Fold) -> dict[str, Any]:
    """Train and measure all arms of a fold, as far as its ledger does not hold them."""
    torch.set_num_threads(1)
    ledger = Ledger(task.kept / f"{task.study}-{task.number}.jsonl")
    began = perf_counter()
    bench = STUDIES[task.study].open_bench(task.shards, task.kept, task.number, ledger)
    with kept_memory(torch.device("cpu")):
        found = bench.result()
    print(
        f"{task.study}, fold {task.number}: {found['runs']} runs, {found['cpu_s'] / 60:.0f} minutes"
        f" of one core, {(perf_counter() - began) / 60:.0f} minutes now",
        flush=True,
    )
    return found


def conclude(name: str, folds: Sequence[dict[str, Any]], at: str) -> dict[str, Any]:
    """The results of a budget, of all its folds."""
    study = STUDIES[name]
    shared = 0.0 if study.made else 1 / (FOLDS - 1)
    return {
        "claims": name,
        "commit": at,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "runs": sum(fold["runs"] for fold in folds),
        "cpu_s": round(sum(fold["cpu_s"] for fold in folds)),
        **study.network,
        "made": study.made,
        "budget": asdict(study.budget),
        "level": LEVEL,
        "folds": [
            {name: fold[name] for name in ("samples", "classes", "chosen")} for fold in folds
        ],
        "experiments": summarise(study.experiments, [f["values"] for f in folds], shared),
    }


def run_studies(
    names: Sequence[str], shards: Path, kept: Path, processes: int, folds: Sequence[int]
) -> None:
    """Run what is not yet done of the budgets; write the results of those with all folds.

    Raises:
        UsageError: code has been changed since the commit.
    """
    at = commit()
    if at.endswith("+"):
        raise UsageError("code was changed since the commit; commit it, so that results name it")
    kept = kept / at
    kept.mkdir(parents=True, exist_ok=True)
    if "head" in names:
        read_photos(shards, kept)  # once, before the processes need them
    # the longest first, so that the processes end together
    tasks = [Fold(name, fold, shards, kept) for name in reversed(names) for fold in folds]
    found = map_tasks(run_fold, tasks, "Folds", processes)
    for name in names if {*folds} == {*range(FOLDS)} else ():
        own = [f for task, f in zip(tasks, found, strict=True) if task.study == name]
        with atomic_path(RESULTS / f"claims-{name}.json") as temporary:
            text = json.dumps(conclude(name, own, at), indent=1, ensure_ascii=False)
            temporary.write_text(text + "\n", encoding="utf-8")
