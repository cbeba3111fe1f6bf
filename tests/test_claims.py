import json
import tomllib
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from hgld.config import EvaluateOptions, RunOptions
from hgld.evaluate import evaluate_models
from hgld.ranking.losses import SmoothAP
from hgld.shards.batches import BatchPlan
from hgld.shards.sampling import BatchOptions, Samples
from hgld.train import train_models
from hgld.train.data import number_levels
from hgld.train.objective import build_loss
from pipelines.claims.__main__ import main
from pipelines.claims.arms import Arm
from pipelines.claims.experiments import EXPERIMENTS, Claim, Experiment, better
from pipelines.claims.features import Photos
from pipelines.claims.finetune import OPTIONS, fine_tune, measure_images, read_images
from pipelines.claims.heads import measure_head, train_head, train_network
from pipelines.claims.made import draw_tree
from pipelines.claims.measures import GAP, METRICS
from pipelines.claims.runs import Batches, Bench, Budget, Ledger, leave_out
from pipelines.claims.studies import STUDIES, Fold, conclude, run_fold
from pipelines.claims.verdicts import judge_all, measure_claim, summarise
from pipelines.record import CLAIMS, RESULTS, claims_text
from tests.made_shards import make_context, make_shards

EVERY = [experiment for study in STUDIES.values() for experiment in study.experiments]
SHORT = Budget(3, 2, (1e-3, 1e-4), (1e-2, 1.0), draws=2)
SMALL = Arm("small", "SmoothAP", classes=4, images=3)
FROZEN = Arm("frozen features", "")


@pytest.fixture(scope="module")
def photos() -> Photos:
    """240 photos of 8 landmarks, 4 supercategories, 2 kinds; the direction says the landmark."""
    landmark = np.repeat(np.arange(8), 30)
    labels = np.column_stack([landmark // 4, landmark // 2, landmark])
    chance = torch.Generator().manual_seed(0)
    centres = torch.randn(8, 200, generator=chance)
    noise = torch.randn(240, 200, generator=chance)
    return Photos(centres[torch.from_numpy(landmark)] + 3 * noise, labels, "made")


def open_bench(photos: Photos, folder: Path, *arms: Arm) -> Bench[Photos]:
    by_name = {arm.name: arm for arm in arms}
    ledger = Ledger(folder / "runs.jsonl")
    return Bench(photos, photos, by_name, ledger, SHORT, train_head, measure_head)


@pytest.mark.parametrize("name", STUDIES)
def test_an_arm_is_the_same_in_every_experiment(name: str) -> None:
    arms = [arm for experiment in STUDIES[name].experiments for arm in experiment.arms]
    by_name = {arm.name: arm for arm in arms}
    assert all(by_name[arm.name] == arm for arm in arms)
    assert {arm.rates_of for arm in arms} <= {"", *by_name}


def test_claims_speak_of_arms_and_metrics_that_are_measured() -> None:
    for experiment in EVERY:
        assert set(experiment.metrics) <= {*METRICS, GAP}
        for claim in experiment.claims:
            assert claim.metric in {*METRICS, GAP} and len(claim.above) == len(claim.below)


@pytest.mark.parametrize("name", STUDIES)
def test_a_comparison_is_made_once(name: str) -> None:
    claims = [claim for e in STUDIES[name].experiments for claim in e.claims]
    pairs = Counter((frozenset({c.above, c.below}), c.metric) for c in claims)
    assert set(pairs.values()) == {1}
    arms = {arm.name for e in STUDIES[name].experiments for arm in e.arms}
    assert {name for claim in claims for _, name in claim.terms} <= arms


def test_the_papers_differences_are_those_of_its_tables() -> None:
    rows = {"ROADMAP, L*_DG": "ROADMAP", "FastAP": "Fast-AP", "Blackbox-AP": "BlackBox-AP"}
    tables = tomllib.loads(Path("pipelines/papers/tables.toml").read_text("utf-8"))["table"]
    found = {t["name"]: t for t in tables if t["paper"] == "Ramzi et al. 2024"}
    for claim in (c for e in EXPERIMENTS if e.name == "Table I" for c in e.claims):
        figures = {r["row"]: [*map(float, r["figures"].split())] for r in found["Table I"]["rows"]}
        above, below = (figures[rows.get(n, n)] for n in (claim.above[0], claim.below[0]))
        expected = f"SOP {above[1] - below[1]:+.1f}, iNat {above[3] - below[3]:+.1f}"
        assert claim.paper == expected
    hierarchical = {r["row"]: r["figures"].split() for r in found["Table V"]["rows"]}
    for claim in (c for e in EXPERIMENTS if e.name.startswith("Tables V,") for c in e.claims):
        column = {"AP:landmark": 1, "H-AP": 2, "ASI": 3, "NDCG": 4}.get(claim.metric)
        names = [claim.above[0], claim.below[0].replace("Σ Triplet", "Sigma-TL_SH")]
        above, below = (hierarchical[name.replace("Σ ", "Sigma-")] for name in names)
        if column is not None:
            sop, inat = (float(above[c]) - float(below[c]) for c in (column, column + 5))
            assert claim.paper == f"SOP {sop:+.1f}, iNat {inat:+.1f}"


def test_every_arm_has_a_loss(photos: Photos) -> None:
    for arm in {arm.name: arm for experiment in EVERY for arm in experiment.arms}.values():
        if arm.loss:
            run = RunOptions(loss=arm.loss, loss_options=dict(arm.options), memory=arm.memory)
            build_loss(run, number_levels(photos.labels)[1], 8, 0)


def test_one_step_of_a_head_is_one_step_of_adam(photos: Photos) -> None:
    run = RunOptions(loss="SmoothAP", steps=1, head_lr=1e-2, weight_decay=0.0)
    start = train_head(photos, run.model_copy(update={"steps": 0}), Batches(4, 3), seed=5)
    plan = BatchPlan(Samples.of_labels(photos.labels), BatchOptions(4, 3), seed=5)
    rows = plan.at(0).rows
    seen = F.layer_norm(photos.features[rows], (200,))
    weight = start.head.weight.detach().clone().requires_grad_()
    bias = start.head.bias.detach().clone().requires_grad_()
    SmoothAP()(seen @ weight.T + bias, torch.from_numpy(photos.labels[rows])).backward()
    # The first step of Adam: the gradient over its own size.
    expected = weight - 1e-2 * weight.grad / (weight.grad.abs() + 1e-8)
    found = train_head(photos, run, Batches(4, 3), seed=5).head.weight
    large = weight.grad.abs() > 1e-5  # smaller ones are rounding
    assert large.float().mean() > 0.5
    assert torch.allclose(found[large], expected[large], atol=1e-5)


def test_a_head_begins_as_the_directions_of_largest_variance(photos: Photos) -> None:
    head = train_head(photos, RunOptions(loss="SmoothAP", steps=0), Batches(), seed=0).head
    weight = head.weight.detach()
    assert torch.allclose(weight @ weight.T, torch.eye(len(weight)), atol=1e-5)
    points = F.layer_norm(photos.features, (200,)) @ weight.T + head.bias.detach()
    assert points.mean(0).abs().max() < 1e-4
    variance = points.var(0)
    assert (variance.diff() < 1e-4).all() and variance.sum() > 0.7 * 200


def test_a_head_learns_what_it_is_shown(photos: Photos) -> None:
    run = RunOptions(loss="ROADMAP", steps=30, head_lr=1e-2)
    untrained = run.model_copy(update={"steps": 0})
    before = measure_head(train_head(photos, untrained, Batches(), 0), photos)
    after = measure_head(train_head(photos, run, Batches(8, 4), 0), photos)
    assert after["mAP@R:landmark"] > before["mAP@R:landmark"] + 0.2
    assert after[GAP] < before[GAP]


def test_a_network_from_random_weights_learns_too() -> None:
    fit, test = leave_out(draw_tree(0), 30, 0, 0)  # 40 classes to measure on
    run = RunOptions(loss="SupAP", lr=1e-3, head_lr=1e-3)
    found = [
        measure_head(train_network(fit, run.model_copy(update={"steps": n}), Batches(), 0), test)
        for n in (0, 150)
    ]
    assert found[1]["mAP@R:landmark"] > found[0]["mAP@R:landmark"] + 0.02
    assert "AP:kind" not in found[0]


def test_a_made_tree_is_the_same_every_time_and_another_with_each_seed() -> None:
    first, again, other = (draw_tree(seed) for seed in (0, 0, 1))
    assert torch.equal(first.features, again.features) and first.key == again.key
    assert not torch.equal(first.features, other.features) and first.key != other.key
    assert np.bincount(first.labels[:, 1]).tolist() == [10] * 1200
    assert len({tuple(row) for row in first.labels.tolist()}) == 1200


def test_each_class_is_left_out_by_one_fold(photos: Photos) -> None:
    known = [tuple(row) for row in photos.features.tolist()]
    tested: list[int] = []
    for part in range(5):
        fit, test = leave_out(photos, 5, part, seed=0)
        rows = [known.index(tuple(row)) for row in test.features.tolist()]
        assert len(fit.labels) + len(rows) == 240
        assert not {*photos.labels[rows, 2]} & {*np.delete(photos.labels[:, 2], rows)}
        tested += rows
    assert sorted(tested) == list(range(240))


def test_a_finished_run_is_not_run_again(photos: Photos, tmp_path: Path) -> None:
    found = [open_bench(photos, tmp_path, SMALL).result() for _ in range(2)]
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    tried = {tuple(json.loads(line)["rates"]) for line in lines}
    assert found[0] == found[1] and found[0]["runs"] == 2 * len(tried) + SHORT.seeds
    assert len(lines) == len(set(lines)) == found[0]["runs"]


def test_a_grid_is_widened_as_long_as_its_best_is_an_end(
    photos: Photos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, float]] = []

    def held_out(_: Bench[Photos], arm: Arm, rates: tuple[float, float]) -> list[float]:
        asked.append(rates)
        return [-abs(np.log10(rates[0]) + 4.6) - abs(np.log10(rates[1] * len(arm.options)))]

    monkeypatch.setattr(Bench, "_held_out", held_out)
    proxies = replace(SMALL, name="proxies", loss="ROADMAP", options={"rho": 1.0})
    bench = open_bench(photos, tmp_path, SMALL, proxies)
    bench = replace(bench, budget=Budget(3, 2, (1e-3, 3e-3), (1e-3, 1e-2)))
    assert bench.choose(proxies) == (3e-5, 1.0)
    assert min(asked) == (1e-5, 1e-3) and max(rates[1] for rates in asked) == 10.0
    monkeypatch.setattr(Bench, "_held_out", lambda *_: [0.0])
    assert bench.choose(SMALL)[1] == 1e-3  # of no use, so never widened


def test_arms_see_as_many_samples_in_batches_of_any_size(photos: Photos, tmp_path: Path) -> None:
    study = STUDIES["head"]
    bench = replace(open_bench(photos, tmp_path), budget=study.budget)
    arms = {arm.name: arm for e in study.experiments for arm in e.arms if arm.loss}
    seen = {
        arm.classes * arm.images: bench._options(arm, (1e-3, 1e-2)).steps for arm in arms.values()
    }
    assert {size * steps for size, steps in seen.items()} == {64 * 200} and len(seen) == 4
    assert replace(bench, budget=STUDIES["made"].budget)._options(SMALL, (1e-3, 1.0)).steps == 4000


def test_rates_are_chosen_over_the_whole_grid_on_held_out_training_classes(
    photos: Photos, tmp_path: Path
) -> None:
    arm = replace(SMALL, loss="ROADMAP")
    bench = replace(open_bench(photos, tmp_path, arm), test=replace(photos, key="evaluation"))
    rates = bench.choose(arm)
    runs = list(bench.used.values())
    assert {r["on"] for r in runs} == {f"made part 0 of 3, seed {draw}" for draw in range(2)}
    reached: dict[tuple[float, ...], list[float]] = {}
    for run in runs:
        reached.setdefault(tuple(run["rates"]), []).append(run["values"][arm.chosen_by])
    assert reached.keys() >= set(product(SHORT.rates, SHORT.proxy_rates))
    assert rates == max(reached, key=lambda pair: sum(reached[pair]))


def test_an_arm_that_is_varied_keeps_its_rates(photos: Photos, tmp_path: Path) -> None:
    varied = SMALL.but("varied", tau=0.1)
    bench = open_bench(photos, tmp_path, SMALL, varied)
    assert bench.choose(varied) == bench.choose(SMALL)
    assert {run["arm"] for run in bench.used.values()} == {"small"}


def test_a_line_that_was_cut_off_in_writing_is_a_run_to_do(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    ledger = Ledger(path)
    for key in "ab":
        ledger.keep({"key": key, "values": {}})
    path.write_text(path.read_text()[:-5])
    ledger = Ledger(path)
    assert ledger.records.keys() == {"a"}
    ledger.keep({"key": "c", "values": {}})
    assert Ledger(path).records.keys() == {"a", "c"}


def test_frozen_features_are_measured_as_they_are(photos: Photos, tmp_path: Path) -> None:
    bench = open_bench(photos, tmp_path, FROZEN)
    (found,) = bench.values(FROZEN)
    unit = torch.nn.functional.normalize(photos.features, dim=1)
    scores = (unit @ unit.T).fill_diagonal_(-2)
    same = torch.from_numpy(photos.labels[:, -1])
    hits = (same[scores.argmax(1)] == same).float().mean()
    assert found["R@1:landmark"] == pytest.approx(float(hits)) and not bench.used


def test_the_interval_is_that_of_the_t_test_on_the_folds() -> None:
    a, b = [0.6, 0.7, 0.65, 0.72, 0.6], [0.5, 0.55, 0.6, 0.61, 0.58]
    folds = [{"a": {"AP": x}, "b": {"AP": y}} for x, y in zip(a, b, strict=True)]
    claim = Claim(("a",), ("b",), "AP")
    found, tested = measure_claim(claim, folds), stats.ttest_rel(a, b)
    assert found["p"] == pytest.approx(tested.pvalue)
    assert (found["low"], found["high"]) == pytest.approx(
        tuple(100 * x for x in tested.confidence_interval())
    )
    wider = measure_claim(claim, folds, 0.25)
    ratio = (wider["high"] - wider["low"]) / (found["high"] - found["low"])
    assert ratio == pytest.approx(1.5)  # sqrt((1/5 + 1/4) / (1/5))


def test_verdicts_are_those_of_holms_test() -> None:
    ps, differences = [0.012, 0.9, 0.012, 0.02], [1.0, 1.0, -1.0, 1.0]
    claims = [{"p": p, "difference": d} for p, d in zip(ps, differences, strict=True)]
    judge_all(claims, 0.05)  # 0.0125, 0.0167, 0.025, 0.05
    assert [claim["verdict"] for claim in claims] == ["holds", "open", "fails", "holds"]
    judge_all(claims, 0.04)  # 0.01: the first already fails the test
    assert {claim["verdict"] for claim in claims} == {"open"}


def test_claims_that_are_none_are_judged_true_or_false_as_rarely_as_promised() -> None:
    chance, wrong = np.random.default_rng(0), 0
    names = [f"arm {number}" for number in range(20)]
    claims = tuple(better(name, "base", "AP") for name in names)
    arms = tuple(Arm(name, "SmoothAP") for name in ("base", *names))
    experiment = Experiment("made", "", arms, ("AP",), claims)
    for _ in range(100):
        draws = chance.normal(size=(5, 21)).tolist()
        values = [
            {name: {"AP": value} for name, value in zip(("base", *names), row, strict=True)}
            for row in draws
        ]
        (found,) = summarise([experiment], values, 0.0)
        wrong += any(claim["verdict"] != "open" for claim in found["claims"])
    assert wrong / 100 < 0.06  # promised: 0.05 / 3


def test_a_network_is_trained_and_measured_as_by_the_stages(tmp_path: Path) -> None:
    shards, models, context = make_shards(tmp_path), tmp_path / "models", make_context(tmp_path)
    images = read_images(shards)
    of_train = np.array([name.startswith("train") for name in images.data.images.names])
    train = images.of(np.flatnonzero(of_train[images.data.images.shards]), "train")
    run = RunOptions(loss="SmoothAP", steps=2)
    model = fine_tune(train, run, Batches(4, 2), seed=0)
    shape = {"classes_per_batch": 4, "images_per_class": 2, "runs": {"model": run}}
    train_models(shards, options=OPTIONS.model_copy(update=shape), context=context, out=models)
    names = ("H-AP", "AP:landmark", "R@1:landmark")
    options = EvaluateOptions(metrics=names, query="train", gallery="train", device="cpu")
    report, _ = evaluate_models(
        shards, models, options=options, context=context, out=tmp_path / "ranked"
    )
    found = measure_images(model, train)
    assert {name: found[name] for name in names} == pytest.approx(report["models"]["model"]["mean"])
    assert measure_images(None, train)["H-AP"] != found["H-AP"]


def test_a_budget_is_run_fold_by_fold_and_goes_on_after_a_stop(
    photos: Photos, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small = replace(SMALL, classes=3)
    rows = (FROZEN, small, replace(small, name="other", loss="SupAP"))
    table = Experiment("made", "", rows, ("H-AP",), (better("other", "small", "H-AP"),))
    study = replace(STUDIES["made"], experiments=(table,), budget=SHORT, read=lambda *_: photos)
    monkeypatch.setitem(STUDIES, "made", study)
    folds = [run_fold(Fold("made", number, tmp_path, tmp_path)) for number in range(2)]
    ledger = tmp_path / "made-0.jsonl"
    whole = ledger.read_text("utf-8")
    ledger.write_text(whole[: len(whole) // 2], encoding="utf-8")  # killed while it wrote
    assert run_fold(Fold("made", 0, tmp_path, tmp_path))["values"] == folds[0]["values"]
    result = conclude("made", folds, "abc1234")
    assert result["commit"] == "abc1234" and len(result["folds"]) == 2
    text = claims_text(json.loads(json.dumps(result)))
    assert "**made**" in text and "| other > small |" in text


def test_worker_processes_find_the_function_that_runs_a_fold() -> None:
    # They do not import the __main__ of a package, so what `python -m` defines is unknown to them.
    assert run_fold.__module__ == "pipelines.claims.studies"


def test_results_of_changed_code_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("pipelines.claims.studies.commit", lambda: "abc1234+")
    with pytest.raises(SystemExit):
        main(["made", "--kept", str(tmp_path)])
    assert "commit it" in capsys.readouterr().err and not any(tmp_path.iterdir())


def test_the_results_of_all_budgets_are_of_one_commit() -> None:
    found = [json.loads(path.read_text("utf-8")) for path in RESULTS.glob("claims-*.json")]
    assert len({result["commit"] for result in found}) == 1


@pytest.mark.parametrize("budget", CLAIMS)
def test_the_page_holds_every_experiment_and_claim(budget: str) -> None:
    page, path = Path("docs/results.md").read_text("utf-8"), RESULTS / f"claims-{budget}.json"
    if not path.is_file():
        assert f"Not recorded yet: `python -m pipelines.claims {budget}`" in page
        return
    result = json.loads(path.read_text("utf-8"))
    text, experiments = claims_text(result), STUDIES[budget].experiments
    assert text in page and not result["commit"].endswith("+")
    for experiment in experiments:
        assert f"**{experiment.name}**" in text
    claims = [claim for e in result["experiments"] for claim in e["claims"]]
    assert text.count(") | holds |") == sum(claim["verdict"] == "holds" for claim in claims)
    assert len(claims) == sum(len(e.claims) for e in experiments)
