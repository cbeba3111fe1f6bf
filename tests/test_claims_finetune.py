import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from hgld.config import EvaluateOptions, RunOptions
from hgld.errors import Resumable
from hgld.evaluate import evaluate_models
from hgld.tasks import watched_by
from pipelines.claims.arms import Arm
from pipelines.claims.experiments import FINE_TUNED, Experiment, better
from pipelines.claims.finetune import SEEDS, FineTuning
from pipelines.claims.runs import Ledger
from tests.made_shards import make_context, make_shards, small_options

ARM, NOTHING = Arm("Smooth-AP", "SmoothAP"), Arm("frozen features", "")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("finetune"))


def bench(shards: Path, kept: Path) -> FineTuning:
    kept.mkdir(exist_ok=True)
    options = small_options(defaults=RunOptions(steps=4), checkpoint_steps=2)
    return FineTuning(shards, kept / "models", Ledger(kept / "runs.jsonl"), options)


def stop_at(step: int) -> object:
    """A progress sink that asks a training to stop."""

    def sink(items: Iterable[object], label: str, total: int | None, done: int) -> Iterator[object]:
        for number, item in enumerate(items):
            if label.startswith("Training") and number == step:
                os.kill(os.getpid(), signal.SIGTERM)
            yield item

    return sink


def test_what_is_measured_is_what_hgld_evaluates(shards: Path, tmp_path: Path) -> None:
    found = bench(shards, tmp_path).value(ARM, 0, "train")
    names = ("H-AP", "AP:landmark", "AP:supercategory", "R@1:landmark")
    options = EvaluateOptions(metrics=names, query="train", gallery="train", device="cpu")
    models, out = tmp_path / "models" / "smooth_ap-0", tmp_path / "ranked"
    report, _ = evaluate_models(
        shards, models, options=options, context=make_context(tmp_path), out=out
    )
    assert {name: found[name] for name in names} == pytest.approx(report["models"]["model"]["mean"])


def test_a_run_that_was_stopped_goes_on_and_finds_the_same(shards: Path, tmp_path: Path) -> None:
    undisturbed = bench(shards, tmp_path / "one").value(ARM, 1, "train")
    with watched_by(stop_at(2)), pytest.raises(Resumable):
        bench(shards, tmp_path / "two").value(ARM, 1, "train")
    assert not bench(shards, tmp_path / "two").ledger.records
    assert bench(shards, tmp_path / "two").value(ARM, 1, "train") == undisturbed


def test_a_finished_run_is_found_again(shards: Path, tmp_path: Path) -> None:
    first = bench(shards, tmp_path).values(ARM, "train")
    (tmp_path / "models").rename(tmp_path / "gone")
    assert bench(shards, tmp_path).values(ARM, "train") == first
    assert len({values["H-AP"] for values in first}) == len(SEEDS)


def test_the_cost_is_told_of_what_is_left(shards: Path, tmp_path: Path) -> None:
    assert bench(shards, tmp_path).cost([NOTHING, ARM]).startswith("3 runs of 4 steps to go")
    bench(shards, tmp_path).values(ARM)
    assert bench(shards, tmp_path).cost([NOTHING, ARM]).startswith("0 runs")


def test_what_has_nothing_to_learn_has_one_seed(shards: Path, tmp_path: Path) -> None:
    assert len(bench(shards, tmp_path).values(NOTHING)) == 1


def test_the_tables_that_are_fine_tuned() -> None:
    assert [experiment.name for experiment in FINE_TUNED] == [
        "Table V",
        "Tables VI and IX",
        "Table VII",
    ]
    levels = FINE_TUNED[1]
    assert [(*claim.above, *claim.below, *claim.metrics) for claim in levels.claims] == [
        ("HAPPIER", "Smooth-AP", "AP:supercategory", "AP:kind"),
        ("HAPPIER", "CSL", "AP:landmark", "AP:supercategory", "AP:kind"),
        ("HAPPIER", "HAPPIER_F", "AP:kind"),
    ]


def test_an_experiment_among_arms_has_only_claims_of_them() -> None:
    claims = (better("a", "b", "AP"), better("a", "c", "AP"))
    whole = Experiment("made", "", tuple(Arm(name, "SmoothAP") for name in "abc"), ("AP",), claims)
    some = whole.among(whole.arms[:2])
    assert [arm.name for arm in some.arms] == ["a", "b"] and some.claims == claims[:1]
