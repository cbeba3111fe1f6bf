"""Trains, measures and judges every experiment, and writes what was found.

    python -m pipelines.claims [SHARDS] [KEPT]      results/claims-head.json

SHARDS is the folder of shards (work/washington/shards), KEPT the folder of features and finished
runs (work/claims). What it cost is printed at the end.
"""

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import torch

from hgld.artifacts import atomic_path
from pipelines.claims.arms import Arm
from pipelines.claims.experiments import EXPERIMENTS, Experiment
from pipelines.claims.features import BACKBONE, read_split, split_classes
from pipelines.claims.runs import Bench, Budget, Ledger
from pipelines.claims.verdicts import summarise
from pipelines.record import git, machine

ROOT = Path(__file__).parent.parent.parent
PHOTOS = ("train", "evaluation", "fit", "held_out")
RESULT = ROOT / "pipelines" / "results" / "claims-head.json"


def open_bench(shards: Path, kept: Path) -> Bench:
    """Features of the shards, the split that rates are chosen on, the finished runs."""
    train = read_split(shards, "train", kept)
    fit, held_out = split_classes(train, Budget().held_out, seed=0)
    evaluation = read_split(shards, "evaluation", kept)
    return Bench(train, evaluation, fit, held_out, arms(), Ledger(kept / "runs.jsonl"))


def arms() -> dict[str, Arm]:
    """Every arm of the experiments once."""
    return {arm.name: arm for experiment in EXPERIMENTS for arm in experiment.arms}


def run(bench: Bench) -> dict[str, object]:
    """Everything that stands in the results."""
    experiments = [_experiment(bench, experiment) for experiment in EXPERIMENTS]
    used = bench.used.values()
    return {
        "claims": "head",
        "commit": git("rev-parse", "--short", "HEAD"),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "runs": len(used),
        "cpu_s": round(sum(record["cpu_s"] for record in used)),
        "backbone": BACKBONE.backbone,
        "image_size": BACKBONE.image_size,
        "photos": {name: len(getattr(bench, name).labels) for name in PHOTOS},
        "landmarks": {name: len(getattr(bench, name).class_labels) for name in PHOTOS},
        "budget": asdict(bench.budget),
        "chosen": {name: _choice(bench, arm) for name, arm in bench.arms.items() if arm.loss},
        "experiments": experiments,
    }


def _choice(bench: Bench, arm: Arm) -> dict[str, object]:
    """The rate of the head, and what it reached on the held-out training landmarks."""
    rate, found = bench.choose(arm)
    return {"head_lr": rate, "by": arm.chosen_by, "held_out": 100 * found[arm.chosen_by]}


def _experiment(bench: Bench, experiment: Experiment) -> dict[str, object]:
    values = {arm.name: bench.values(arm, experiment.on) for arm in experiment.arms}
    return summarise(experiment, values)


def main(shards: str = "work/washington/shards", kept: str = "work/claims") -> None:
    """Run what is not yet done, write the results, print the cost."""
    torch.set_num_threads(1)
    result = run(open_bench(ROOT / shards, ROOT / kept))
    with atomic_path(RESULT) as temporary:
        text = json.dumps(result, indent=1, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")
    print(f"{result['runs']} runs, {result['cpu_s']} s of one core (those kept from before, too)")


if __name__ == "__main__":
    main(*sys.argv[1:])
