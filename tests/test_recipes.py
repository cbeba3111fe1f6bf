"""Each pipeline of a paper's data set, on a small copy of that set: it is built and takes steps.

Random weights and small batches, but the recipe's own architecture, sampler, losses and rates.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hgld.artifacts import ARTIFACTS, Folder
from hgld.artifacts.ranking_file import RankingFile
from hgld.cli import app, guarded
from hgld.config import Pipeline, RunOptions, StageContext, load_pipeline
from hgld.evaluate import evaluate_models
from hgld.evaluate.protocol import choose_metrics
from hgld.model import build_image_model
from hgld.model.backbones import find_backbone
from hgld.pipeline.stages import Stage, active_stages, load_function
from hgld.ranking.presets import OTHERS
from hgld.ranking.rank_loss import takes_references
from hgld.shards import read_index
from hgld.train import train_models
from hgld.train.data import TrainingData
from hgld.train.learner import Learner, learning_rate
from hgld.train.objective import build_loss
from pipelines import dyml
from tests.made_shards import feed_batches, make_context
from tests.sources.made_set import in_memory
from tests.sources.native_sets import (
    write_cub,
    write_dyml,
    write_gldv2,
    write_ilias,
    write_in_shop,
    write_inaturalist,
    write_photos,
    write_product,
    write_revisited,
    write_sfm_120k,
    write_sop,
    write_uned,
    write_vehicle_id,
    write_vggface2,
)
from tests.train.conftest import one_thread  # noqa: F401  the fixture
from tests.warm import hgld

Load = Callable[[str, list[str]], tuple[Pipeline, TrainingData]]

SETS = {  # pipeline: folder of its data set below HGLD_DATA, what makes a small one
    "sop": ("Stanford_Online_Products", write_sop),
    "inat-base": ("Inaturalist", write_inaturalist),
    "inat-full": ("Inaturalist", write_inaturalist),
    "cub": ("CUB_200_2011", write_cub),
    "dyml-vehicle": ("dyml_vehicle", write_dyml),
    "dyml-animal": ("dyml_animal", write_dyml),
    "dyml-product": ("dyml_product", write_product),
    "h-gldv2": ("gldv2", write_gldv2),
    "in-shop": ("In_shop", write_in_shop),
    "vehicle-id": ("VehicleID_V1.0", write_vehicle_id),
    "sfm-120k": ("retrieval-SfM-120k", write_sfm_120k),
    "vggface2": ("VGGFace2", write_vggface2),
}
TO_COPY = {"folder": ("photos", write_photos)}
TO_MEASURE = {"uned": ("UnED", write_uned), "ilias": ("ilias", write_ilias)}
LEVELS = {"sop": 2, "inat-base": 2, "inat-full": 7, "vehicle-id": 1, "sfm-120k": 1, "vggface2": 1}
SMALL = ["export.shard_megabytes=0.05", "train.pretrained=false", "train.precision=float32",
         "train.device=cpu", "train.workers=0"]  # fmt: skip
CNN = [*SMALL, "train.image_size=32", "train.classes_per_batch=2", "train.images_per_class=4"]
TRANSFORMER = [*SMALL, "train.classes_per_batch=2", "train.images_per_class=2"]


def base_of(name: str) -> str:
    """Pipeline whose shards a pipeline trains on: sop-vit builds on sop-deit, and that on sop."""
    base = tomllib.loads(Path(f"pipelines/{name}.toml").read_text("utf-8")).get("base")
    return name if base is None else base_of(base.removesuffix(".toml"))


DERIVED = [
    path.stem
    for path in sorted(Path("pipelines").glob("*.toml"))
    if base_of(path.stem) != path.stem
]
FOUR = [f"{of}-{net}" for of in ("sop", "inat-base", "cub") for net in ("deit", "vit")]
LIST = tomllib.loads(Path("pipelines/papers/tables.toml").read_text("utf-8"))
TABLES = LIST["table"]
EPOCHS = {name: recipe for recipe in LIST["epochs"] for name in recipe["pipelines"]}
BATCH = ("train.classes_per_batch=", "train.images_per_class=")


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recipes")


@pytest.fixture
def load(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.setenv("HGLD_DATA", str(data_folder))

    def load(name: str, settings: list[str]) -> tuple[Pipeline, TrainingData]:
        pipeline = load_pipeline(Path(f"pipelines/{name}.toml"), settings)
        shards = export(base_of(name), data_folder)
        return pipeline, TrainingData.read(shards, pipeline.train)

    return load


@cache
def export(name: str, data_folder: Path) -> Path:
    """Shards of the small set, made by the stages that the pipeline names."""
    folder, writer = (SETS | TO_COPY | TO_MEASURE)[name]
    work = data_folder / "work" / name
    source = data_folder / folder
    if not source.exists():
        writer(source)
    settings = [*SMALL, f"source.folder={source}"]
    pipeline = load_pipeline(Path(f"pipelines/{name}.toml"), settings)
    made: dict[str, object] = {"source": source}
    for stage in active_stages(pipeline):
        if stage.name in ("collect", "label", "export"):
            run_stage(stage, pipeline, work, made)
    return work / "shards"


def run_stage(stage: Stage, pipeline: Pipeline, work: Path, made: dict[str, object]) -> None:
    """Call a stage on what the stages before it returned; keep what it returns."""
    context = StageContext("2026-01-01", work / stage.name, pipeline.source, work / "labels")
    options = getattr(pipeline, stage.name)
    reads = [made.get(name) for name in stage.reads]
    folders = [name for name in stage.writes if isinstance(ARTIFACTS[name], Folder)]
    extra = {"out": work / folders[0]} if folders else {}
    found = load_function(stage.function)(*reads, options=options, context=context, **extra)
    tables = [name for name in stage.writes if name not in folders]
    made.update(
        zip(tables, in_memory(found if isinstance(found, tuple) else (found,)), strict=True)
    )


def take_steps(pipeline: Pipeline, data: TrainingData, run: RunOptions) -> int:
    """Train for two steps; the number of images in a batch."""
    options = pipeline.train
    model = build_image_model(options)
    criterion = build_loss(run, data.class_labels, model.dim, options.seed)
    learner = Learner(model, criterion, len(data.levels), options, run)
    start = run.warmup_steps  # where the backbone learns, too
    model.train()
    before = {name: value.clone() for name, value in model.named_parameters()}
    for images, labels, rows, _ in feed_batches(data, model.config, options, range(2)):
        loss = learner.learn(start, images, labels, rows)
        assert loss == loss and abs(loss) < 1e4
    still = [name for name, value in model.named_parameters() if torch.equal(value, before[name])]
    assert len(still) < 0.1 * len(before), still
    return len(rows)


def main_run(pipeline: Pipeline) -> RunOptions:
    runs = pipeline.train.runs
    return runs.get("happier") or runs.get("roadmap") or list(runs.values())[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SETS, *TO_COPY, "roadmap-2021-cub-256"])
def test_a_recipe_builds_its_model_and_takes_two_steps(name: str, load: Load) -> None:
    pipeline, data = load(name, [*CNN, "train.eval_crop=32"])
    assert len(data.levels) == LEVELS.get(name, 3)
    assert take_steps(pipeline, data, main_run(pipeline)) == 8


@pytest.mark.parametrize("name", [name for name in DERIVED if name in FOUR])
def test_the_transformers_resolve(name: str, load: Load) -> None:
    options = load(name, TRANSFORMER)[0].train
    assert find_backbone(options)[0].startswith(("deit_small_patch16_224", "vit_base_patch16_224"))
    assert (options.image_size, options.eval_crop, options.defaults.optimizer) == (
        224,
        224,
        "adamw",
    )
    assert [run.memory > 0 for run in options.runs.values()] == [True]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sop-deit", "sop-vit", "roadmap-2021-sop-deit"])
def test_transformers_take_two_steps(name: str, load: Load) -> None:
    """Those of the other recipes are the same networks at other rates."""
    pipeline, data = load(name, TRANSFORMER)
    assert take_steps(pipeline, data, list(pipeline.train.runs.values())[-1]) == 4


def settings_of(row: dict[str, Any]) -> list[str]:
    """The row's own options."""
    return list(row.get("set", "").split())


def beside_the_batch(row: dict[str, Any]) -> str:
    """The row's own options without the size of its batch, for which small copies are too small."""
    return " ".join(option for option in settings_of(row) if not option.startswith(BATCH))


@cache
def resolved(name: str, options: str = "") -> Pipeline:
    settings = [*options.split(), "train.only=[]"]
    return load_pipeline(Path(f"pipelines/{name}.toml"), settings)


def seen(pipeline: Pipeline, run: str) -> int:
    """Photos that a run sees."""
    train = pipeline.train
    return train.runs[run].steps * train.classes_per_batch * train.images_per_class


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    sorted(
        {(run, beside_the_batch(row)) for t in TABLES for row in t["rows"] for run in row["runs"]}
    ),
)
def test_a_row_of_a_table_takes_two_steps(name: str, options: str, load: Load) -> None:
    """A small network for all rows; the recipes' own ones take steps in the tests above."""
    file, run = name.split(":")
    small = ["train.backbone=test_resnet", "train.image_size=32", "train.dim=16"]
    small.append("train.pooling=avg")
    # Of fewer photos, a blackbox loss with a small lambda could have no gradient.
    four = ["train.classes_per_batch=4", "train.images_per_class=4"]
    pipeline, data = load(file, [*CNN, *small, *options.split(), *four, "train.only=[]"])
    assert take_steps(pipeline, data, pipeline.train.runs[run]) == 16


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["name"])
def test_a_row_trains_for_the_epochs_of_its_recipe(table: dict[str, Any]) -> None:
    """Also with another batch size, and with its rates falling at the same epochs."""
    for row in table["rows"]:
        for name in row["runs"]:
            file, run = name.split(":")
            pipeline, plain = resolved(file, row.get("set", "")), resolved(file)
            assert EPOCHS[file]["by"]
            epochs = seen(pipeline, run) / EPOCHS[file]["photos"]
            assert epochs == pytest.approx(EPOCHS[file]["epochs"], rel=0.05), row["row"]
            now, then = pipeline.train.runs[run], plain.train.runs[run]
            assert len(now.milestones) == len(then.milestones)
            for counts in zip(now.milestones, then.milestones, strict=True):
                assert counts[0] * then.steps == pytest.approx(counts[1] * now.steps, rel=1e-3)
            assert now.warmup_steps * then.steps == pytest.approx(then.warmup_steps * now.steps)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["name"])
def test_the_options_of_a_row_are_in_its_pipelines(table: dict[str, Any]) -> None:
    for row in table["rows"]:
        for setting in settings_of(row):
            path, _, text = setting.partition("=")
            for name in row["runs"]:
                found: Any = resolved(name.split(":")[0], row["set"])
                for part in path.split("."):
                    found = found[part] if isinstance(found, dict) else getattr(found, part)
                try:
                    wanted = tomllib.loads(f"value = {text}")["value"]
                except tomllib.TOMLDecodeError:
                    wanted = text
                assert found == wanted, (row["row"], setting)


def preparation(name: str) -> tuple[Any, ...]:
    train = resolved(name).train
    return train.image_size, train.eval_resize, train.eval_crop, train.pooling, train.head_norm


def test_photos_of_256_px_and_max_pooling_belong_to_the_comparison_with_other_methods() -> None:
    """ROADMAP of 2021, section 4.2: its Tables 4 and 8; max pooling and layer norm on CUB alone."""
    assert preparation("roadmap-2021-cub-256") == (256, 288, 256, "max", "layer_norm")
    assert preparation("roadmap-2021-sop-256") == (256, 288, 256, "avg", "none")
    for name in ("cub", "sop", "inat-base"):
        assert preparation(f"roadmap-2021-{name}") == (224, 256, 224, "avg", "none")
    tables = {t["name"]: t["rows"] for t in TABLES if t["paper"] == "Ramzi et al. 2021"}
    large = {
        name
        for name, rows in tables.items()
        if any("-256:" in run for row in rows for run in row["runs"])
    }
    assert large == {"Table 4", "Table 8"}
    for row in tables["Table 8"]:
        assert [run.split(":")[0] for run in row["runs"]] == [
            "roadmap-2021-cub-256",
            "roadmap-2021-sop-256",
            "roadmap-2021-inat-base",
        ]


def test_a_pipeline_in_the_work_folder_of_its_base_leaves_the_models_where_they_are() -> None:
    kept = [p for p in Path("pipelines").glob("*.toml") if "leaves its models" in p.read_text()]
    for path in kept:
        (base,) = re.findall(r"--work work/(\S+)", path.read_text("utf-8"))[:1]
        own, others = (
            {name for names in load_pipeline(file, []).train.models().values() for name in names}
            for file in (path, path.with_stem(base))
        )
        assert own & others <= {"pretrained"}, path.stem
    assert len(kept) >= 18


# By hand from the text of 2021 (section 4, appendix B.2): rate, epochs after which the rate falls.
SAID_2021 = {
    "roadmap-2021-sop": (1e-5, [30, 70]),
    "roadmap-2021-sop-256": (1e-5, [30, 70]),
    "roadmap-2021-sop-deit": (1e-5, [25, 50]),
    "roadmap-2021-cub": (1e-6, []),
    "roadmap-2021-cub-256": (1e-6, []),
    "roadmap-2021-cub-deit": (1e-6, []),
    "roadmap-2021-inat-base": (1e-5, [30, 70]),
    "roadmap-2021-inat-base-deit": (1e-5, [30, 70]),
}


@pytest.mark.parametrize("name", SAID_2021)
def test_a_recipe_of_2021_has_the_values_of_its_text(name: str) -> None:
    train, (lr, drops) = resolved(name).train, SAID_2021[name]
    assert train.classes_per_batch * train.images_per_class == 128 and len(train.seeds) == 5
    is_deit = name.endswith("deit")
    assert train.backbone.startswith("deit_small_distilled" if is_deit else "resnet50")
    assert train.dim == (384 if is_deit else 512)
    run = train.runs["roadmap"]
    assert run.loss_options == {"preset": "paper", "lam": 0.5, "calibration": "pair"}
    assert (run.lr, run.head_lr, run.gamma) == (lr, 2 * lr, 0.3)
    epoch = run.steps / EPOCHS[name]["epochs"]
    assert [round(step / epoch) for step in run.milestones] == drops


# By hand from the texts: photos of a batch, rate, weight decay, epochs after which the rate falls.
SAID = {
    "smooth-ap-sop": (224, 1e-5, 4e-5, [30, 70]),
    "smooth-ap-inat-base": (224, 1e-5, 4e-5, [30, 70]),
    "vehicle-id": (384, 1e-5, 4e-5, [30, 70]),
    "vggface2": (224, 1e-5, 4e-5, []),
    "vggface2-arcface": (224, 1e-5, 4e-5, []),
    "rambo-sop": (128, 3e-6, 4e-4, [35]),
    "rambo-cub": (128, 5e-6, 4e-4, [35]),
    "in-shop": (128, 1e-5, 4e-4, [35]),
}


@pytest.mark.parametrize("name", SAID)
def test_a_recipe_of_2020_has_the_values_of_its_text(name: str) -> None:
    train = resolved(name).train
    size, lr, decay, drops = SAID[name]
    assert train.classes_per_batch * train.images_per_class == size
    for run in (run for run in train.runs.values() if run.steps):
        assert (run.lr, run.weight_decay) == (lr, decay)
        epoch = run.steps / EPOCHS[name]["epochs"]
        assert [round(step / epoch) for step in run.milestones] == drops
        end = learning_rate(run, "backbone", run.steps - 1)
        assert end == pytest.approx(lr * run.gamma ** len(drops))
    if "face" in name:  # the crop of a face is resized to what the network sees
        assert (train.eval_resize, train.eval_crop) == ((train.image_size,) * 2, None)
    else:  # photos are resized to squares, in training too
        assert train.augmentation.resize == train.eval_resize == (256, 256)
        assert (train.image_size, train.eval_crop) == (224, 224)


def test_compared_methods_have_the_options_of_the_text_that_trained_them() -> None:
    """Smooth-AP, supplement 4; ROADMAP 2021, section 4.1 (its memory)."""
    smooth = resolved("smooth-ap-inat-base").train.runs
    assert smooth["fast_ap"].loss_options["bins"] == 20
    black_box = {**OTHERS["BlackBoxAP"], **smooth["blackbox"].loss_options}
    assert (black_box["lam"], black_box["margin"]) == (4.0, 0.02)
    for name, memory in (("sop", 59_551), ("inat-base", 60_000)):
        assert resolved(f"roadmap-2021-{name}").train.runs["xbm"].memory == memory


def test_pairs_of_super_classes_take_turns_in_rambo() -> None:
    """Appendix A."""
    for name, each in (("rambo-sop", 10), ("in-shop", 4)):
        batches = resolved(name).train.batches
        assert (batches.order, batches.batches_per_combination) == ("combinations", each)


def test_proxy_nca_and_its_successor_differ_in_their_temperature() -> None:
    """Also where a paper quotes the row of another."""
    rows = [row for table in TABLES for row in table["rows"] if re.search("Proxy ?NCA", row["row"])]
    assert len(rows) == 8
    for row in rows:
        for file, run in (name.split(":") for name in row["runs"]):
            options = {**OTHERS["ProxyNCA"], **resolved(file).train.runs[run].loss_options}
            assert options["scale"] == (9.0 if "++" in row["row"] else 1.0), row["row"]


def test_an_ablation_differs_from_its_full_run_in_one_option() -> None:
    """Table 7 of RaMBO."""
    rows = {t["name"]: t["rows"] for t in TABLES if t["paper"] == "Rolinek et al. 2020"}["Table 7"]
    full, *parts = [
        [resolved(file).train.runs[run] for file, run in (name.split(":") for name in row["runs"])]
        for row in rows
    ]
    names = []
    for part in parts:
        for run, whole in zip(part, full, strict=True):
            own, others = ({**r.decisive(), **r.loss_options} for r in (run, whole))
            different = {n for n in own | others if own.get(n) != others.get(n)}
            names.append(different - {"loss_options"})
    assert names == [{"memory"}] * 3 + [{"margin"}] * 3


@pytest.mark.slow
def test_the_losses_of_faces_start_from_the_model_of_the_first_row(
    load: Load, tmp_path: Path
) -> None:
    """Table 4 of Smooth-AP: the first row of each network trains what the others start from."""
    rows = {t["name"]: t["rows"] for t in TABLES if t["paper"] == "Brown et al. 2020"}["Table 4"]
    first, *others = [[name.split(":") for name in row["runs"]] for row in rows]
    for (file, start), *runs in zip(first, *others, strict=True):
        assert {name for name, _ in runs} == {file}
        found = resolved(file).train.runs
        assert [found[run].init_from for _, run in runs] == [start] * 3
        assert {name for name, run in found.items() if run.init_from} == {run for _, run in runs}
        small = ["train.backbone=test_resnet", "train.dim=8", "train.image_size=32"]
        small += ["train.defaults.steps=1", f"train.only=['{runs[-1][1]}']"]
        pipeline, data = load(file, [*CNN[: len(SMALL)], *small, *CNN[-2:]])
        context = StageContext("2026-01-01", tmp_path, pipeline.source, tmp_path)
        train_models(data.folder, options=pipeline.train, context=context, out=tmp_path / file)
        facts = [
            json.loads((tmp_path / file / run / "config.json").read_text("utf-8"))
            for run in (start, runs[-1][1])
        ]
        assert facts[1]["init_sha256"] == facts[0]["sha256"]
        assert facts[0]["loss"] in ("NormSoftmax", "ArcFace") and facts[1]["loss"] == "SmoothAP"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["name"])
def test_a_table_has_a_figure_for_each_column(table: dict[str, Any]) -> None:
    for row in table["rows"]:
        figures = row["figures"].split()
        assert len(figures) == len(table["columns"].split(", ")), row["row"]
        assert all(figure == "-" or 0.0 <= float(figure) <= 100.0 for figure in figures)
        for run in row["runs"]:
            file, name = run.split(":")
            assert name in resolved(file, row.get("set", "")).train.runs


@pytest.mark.parametrize("name", SETS | TO_COPY)
def test_every_loss_of_a_recipe_has_a_gradient(name: str, load: Load) -> None:
    pipeline, data = load(name, [*CNN, "train.only=[]"])
    labels = torch.from_numpy(data.labels[:: max(1, len(data.labels) // 8)].repeat(2, axis=0))
    for run in (run for run in pipeline.train.runs.values() if run.steps):
        loss = build_loss(run, data.class_labels, 16, seed=0)
        torch.manual_seed(0)
        embeddings = torch.nn.functional.normalize(torch.randn(len(labels), 16), dim=-1)
        value = loss(embeddings.requires_grad_(), labels)
        value.backward()
        assert embeddings.grad is not None and bool(embeddings.grad.abs().sum() > 0), run.loss
        assert not run.memory or takes_references(loss)


@pytest.mark.parametrize("name", SETS)
def test_a_recipe_opens_with_its_command_figures_hardware_and_hours(name: str) -> None:
    head = Path(f"pipelines/{name}.toml").read_text("utf-8").split("\ntitle =")[0]
    assert f"hgld run pipelines/{name}.toml" in head
    for word in ("Table", "GPU of", "photos/s", "paper (left", "authors' code (right"):
        assert word in head, word
    assert all(line.startswith("#") for line in head.splitlines())


@pytest.mark.parametrize("name", SETS | TO_COPY)
def test_a_recipe_measures_what_its_levels_have(name: str, load: Load) -> None:
    pipeline, data = load(name, CNN)
    assert choose_metrics(pipeline.evaluate.metrics, tuple(data.levels))


def test_landmarks_are_trained_embedded_at_their_own_size_and_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands at the top of sfm-120k.toml, with a network and steps for a test."""
    head = Path("pipelines/sfm-120k.toml").read_text("utf-8").split("#\n")[1]
    lines = head.replace("#", "").replace("\\\n", "").replace("$HGLD_DATA", str(tmp_path))
    _, *commands = [shlex.split(line)[1:] for line in lines.splitlines()]
    monkeypatch.setenv("HGLD_DATA", str(tmp_path))
    write_sfm_120k(tmp_path / "retrieval-SfM-120k")
    write_revisited(tmp_path / "roxford5k")
    small = [*TRANSFORMER, "train.backbone=test_vit", "train.image_size=160", "train.eval_crop=160"]
    small += ["train.eval_resize=160", "train.dim=8", "train.defaults.steps=1"]
    own = {"run": [word for setting in small for word in ("--set", setting)]}
    own["run"] += ["--work", str(tmp_path / "work/sfm-120k"), "--until", "train"]
    for words in commands:
        words = [word.replace("work/", f"{tmp_path}/work/") for word in words]
        if "--trained-on" in words:
            words[-1] = str(tmp_path / "work/sfm-120k")
        assert guarded(lambda words=words: app([*words, *own.get(words[0], [])])) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[-3:]]
    assert [row[0] for row in rows] == ["easy", "medium", "hard"]
    assert [row[-1] for row in rows] == ["2", "2", "2"]


def test_dyml_without_its_files_ends_as_hgld_does(tmp_path: Path) -> None:
    command = [sys.executable, "pipelines/dyml.py", "--work", str(tmp_path / "work")]
    environment = os.environ | {"HGLD_DATA": str(tmp_path), "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "the source folder does not exist" in done.stderr and done.stderr.count("\n") == 1


def run_to_end(words: Sequence[str]) -> int:
    done = hgld(Path(), *words)
    assert done.returncode == 0, done.stderr
    return 0


@pytest.mark.slow
def test_dyml_is_measured_and_averaged_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, writer in (
        ("vehicle", write_dyml),
        ("animal", write_dyml),
        ("product", write_product),
    ):
        writer(tmp_path / "data" / f"dyml_{name}")
    tiny = ["train.backbone=resnet18", "train.image_size=32", "train.dim=16", "train.seeds=[]"]
    tiny += ["train.eval_resize=[32, 32]", "train.eval_crop=32", "train.defaults.steps=1"]
    tiny += ["train.defaults.warmup_steps=0", 'train.only=["pretrained", "happier"]']
    options = [word for setting in [*CNN, *tiny] for word in ("--set", setting)]
    monkeypatch.setenv("HGLD_DATA", str(tmp_path / "data"))
    dyml.main(["--work", str(tmp_path / "work"), *options], run_to_end)
    head, _, *rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert head.count("mAP") == 3 and [row.split(" | ")[0] for row in rows] == [
        "| pretrained",
        "| happier",
    ]
    kept = json.loads((tmp_path / "work" / "dyml.json").read_text("utf-8"))
    levels = [
        json.loads((tmp_path / f"work/animal/report-{level}.json").read_text("utf-8"))
        for level in ("fine", "middle", "coarse")
    ]
    means = [report["models"]["happier"]["mean"]["AP:fine"] for report in levels]
    assert kept["animal"]["happier"]["mAP"] == pytest.approx(sum(means) / 3)


def test_uned_is_the_mean_over_domains_of_all_queries_in_one_gallery(
    data_folder: Path, tmp_path: Path
) -> None:
    shards = export("uned", data_folder)
    index, chance = read_index(shards), np.random.default_rng(0)
    index = index.assign(embedding=[*chance.standard_normal((len(index), 4)).astype("float32")])
    index[["image_id", "embedding"]].to_parquet(tmp_path / "mine.parquet")
    pipeline = load_pipeline(Path("pipelines/uned.toml"), [])
    models = {"mine": str(tmp_path / "mine.parquet")}
    options = pipeline.evaluate.model_copy(update={"models": models})
    context = StageContext("2026-01-01", tmp_path / "state", pipeline.source, tmp_path)
    given = {"options": options, "context": context, "out": tmp_path / "out"}
    report, values = evaluate_models(shards, tmp_path, **given)

    gallery = index[index["split"].isin(["evaluation", "index"])]
    precision: dict[str, list[float]] = {"cars": [], "met": []}
    for one in index[index["split"].isin(["evaluation", "test"])].to_dict("records"):
        others = gallery[gallery["image_id"] != one["image_id"]]
        cosine = [v @ one["embedding"] / np.linalg.norm(v) for v in others["embedding"]]
        right = (others["landmark_id"] == one["landmark_id"]).to_numpy()
        cut = min(5, right.sum())
        first = np.argsort(cosine)[::-1][:cut]
        domain = "cars" if one["split"] == "evaluation" else "met"
        precision[domain].append(right[first].sum() / cut)
    assert {domain: len(found) for domain, found in precision.items()} == {"cars": 9, "met": 9}
    expected = np.mean([np.mean(found) for found in precision.values()])
    assert report["models"]["mine"]["mean"]["mMP@5 over domain"] == pytest.approx(expected)
    found = values[values["metric"] == "mMP@5"]["value"].tolist()
    assert sorted(found) == pytest.approx(sorted(precision["cars"] + precision["met"]))
    ranking = RankingFile.load(tmp_path / "out/mine.npz")
    assert (ranking.levels(ranking.query_ids.tolist())[:, -1] < 0).sum() == 9  # the own images


def ap_of_first(scores: np.ndarray, right: np.ndarray, k: int) -> float:
    """AP of the first k images over min(k, relevant images), as ILIAS defines mAP@k."""
    found, total = 0, 0.0
    for rank, image in enumerate(np.argsort(-scores)[:k], start=1):
        if right[image]:
            found += 1
            total += found / rank
    return total / min(k, right.sum())


def test_ilias_is_measured_by_its_pipeline(data_folder: Path, tmp_path: Path) -> None:
    shards = export("ilias", data_folder)
    index = read_index(shards)
    assert index.groupby("split").size().to_dict() == {"index": 14, "test": 4}
    pipeline = load_pipeline(Path("pipelines/ilias.toml"), ["evaluate.queries=names"])
    assert [stage.name for stage in active_stages(pipeline)][-2:] == ["evaluate", "report"]
    given = tmp_path / "given.npz"
    vectors = np.random.default_rng(0).normal(size=(len(index), 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.savez(given, ids=index["image_id"].to_numpy(str), vectors=vectors)
    names = ("mAP@1000", "mAP@2", "R@1")
    options = load_pipeline(Path("pipelines/ilias.toml")).evaluate.model_copy(
        update={"models": {"given": str(given)}, "metrics": names}
    )
    parts = {"options": options, "context": make_context(tmp_path), "out": tmp_path / "out"}
    report, _ = evaluate_models(shards, tmp_path, **parts)
    objects, gallery = index["level_4"].to_numpy(), (index["split"] == "index").to_numpy()
    expected = {
        name: np.mean([
            ap_of_first(vectors[gallery] @ vectors[row], objects[gallery] == objects[row], k)
            for row in np.flatnonzero(~gallery)
        ])
        for name, k in (("mAP@1000", 1000), ("mAP@2", 2), ("R@1", 1))
    }  # fmt: skip
    assert report["models"]["given"]["mean"] == pytest.approx(expected)
