"""Trains, measures and judges every experiment of a budget, and writes what was found.

    python -m pipelines.claims head [SHARDS] [KEPT]          results/claims-head.json
    python -m pipelines.claims finetune [SHARDS] [KEPT]      results/claims-finetune.json

SHARDS is the folder of shards (work/washington/shards), KEPT the folder of features, models and
finished runs (work/claims). What it will cost is printed first, what it cost at the end.
"""

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import torch

from hgld.artifacts import atomic_path
from hgld.config import TrainOptions
from hgld.errors import HgldError
from hgld.train.data import TrainingData
from pipelines.claims.arms import Arm
from pipelines.claims.experiments import EXPERIMENTS, FINE_TUNED, WHOLE, Experiment
from pipelines.claims.features import BACKBONE, read_split
from pipelines.claims.finetune import OPTIONS, SEEDS, FineTuning
from pipelines.claims.runs import Bench, Ledger
from pipelines.claims.verdicts import summarise
from pipelines.record import machine

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "pipelines" / "results"
PHOTOS = ("train", "evaluation")


def run_heads(shards: Path, kept: Path) -> dict[str, object]:
    """Every loss with a head on frozen features."""
    bench = open_bench(shards, kept)
    print(bench.cost(), flush=True)
    found = [_experiment(bench, experiment) for experiment in EXPERIMENTS]
    return {
        **_facts("head", bench, BACKBONE),
        "photos": {name: len(getattr(bench, name).labels) for name in PHOTOS},
        "landmarks": {name: len(getattr(bench, name).class_labels) for name in PHOTOS},
        "budget": asdict(bench.budget),
        "chosen": {name: _choice(bench, arm) for name, arm in bench.arms.items() if arm.loss},
        "experiments": found,
    }


def open_bench(shards: Path, kept: Path) -> Bench:
    """Features of the shards, the split that rates are chosen on, the finished runs."""
    train = read_split(shards, "train", kept)
    evaluation = read_split(shards, "evaluation", kept)
    arms = {arm.name: arm for experiment in EXPERIMENTS for arm in experiment.arms}
    return Bench(train, evaluation, arms, Ledger(kept / "runs.jsonl"))


def fine_tune(shards: Path, kept: Path) -> dict[str, object]:
    """The losses that count with the whole network, one seed of all after the other."""
    bench = FineTuning(shards, kept / "finetune", Ledger(kept / "finetune.jsonl"))
    print(bench.cost(WHOLE), flush=True)
    for seed in SEEDS:
        for arm in WHOLE:
            bench.value(arm, seed if arm.loss else SEEDS[0])
    found = [_experiment(bench, experiment) for experiment in FINE_TUNED]
    data = {split: _read(shards, split) for split in ("train", "evaluation")}
    return {
        **_facts("finetune", bench, OPTIONS),
        "photos": {split: len(found.labels) for split, found in data.items()},
        "landmarks": {split: len(found.class_labels) for split, found in data.items()},
        "budget": {"seeds": SEEDS, "options": OPTIONS.model_dump(mode="json", exclude={"runs"})},
        "experiments": found,
    }


def _read(shards: Path, split: str) -> TrainingData:
    return TrainingData.read(shards, OPTIONS.model_copy(update={"split": split}))


def _facts(budget: str, bench: Bench | FineTuning, options: TrainOptions) -> dict[str, object]:
    """Where and when it was measured, what it cost, with which network."""
    return {
        "claims": budget,
        "commit": ", ".join(sorted({record["commit"] for record in bench.used.values()})),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "runs": len(bench.used),
        "cpu_s": round(bench.cpu_s),
        "backbone": options.backbone,
        "image_size": options.image_size,
    }


def _choice(bench: Bench, arm: Arm) -> dict[str, object]:
    """The rate of the head, and what it reached on the held-out training landmarks."""
    rate, found = bench.choose(arm)
    return {"head_lr": rate, "by": arm.chosen_by, "held_out": 100 * found}


def _experiment(bench: Bench | FineTuning, experiment: Experiment) -> dict[str, object]:
    values = {arm.name: bench.values(arm, experiment.on) for arm in experiment.arms}
    return summarise(experiment, values)


BUDGETS = {"head": run_heads, "finetune": fine_tune}


def main(budget: str, shards: str = "work/washington/shards", kept: str = "work/claims") -> None:
    """Run what is not yet done, write the results, print the cost."""
    torch.set_num_threads(1)
    result = BUDGETS[budget](ROOT / shards, ROOT / kept)
    with atomic_path(RESULTS / f"claims-{budget}.json") as temporary:
        text = json.dumps(result, indent=1, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")
    print(f"{result['runs']} runs, {result['cpu_s']} s of one core (those kept from before, too)")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in BUDGETS:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except HgldError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
