"""Each pipeline of a paper's data set, on a small copy of that set: it is built and takes steps.

Random weights and small batches, but the recipe's own architecture, sampler, losses and rates.
"""

import shlex
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from hgld.artifacts import ARTIFACTS, Folder
from hgld.config import Pipeline, RunOptions, StageContext, load_pipeline
from hgld.evaluate.protocol import choose_metrics
from hgld.model import build_image_model
from hgld.model.backbones import find_backbone
from hgld.pipeline.stages import Stage, active_stages, load_function
from hgld.train.data import TrainingData
from hgld.train.learner import Learner
from hgld.train.objective import build_loss, takes_references
from tests.made_shards import feed_batches
from tests.sources.native_sets import (
    write_cub,
    write_dyml,
    write_gldv2,
    write_inaturalist,
    write_photos,
    write_product,
    write_sop,
)

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
}
TO_COPY = {"folder": ("photos", write_photos)}
LEVELS = {"sop": 2, "inat-base": 2, "inat-full": 7}
SMALL = ["export.shard_megabytes=0.05", "train.pretrained=false", "train.precision=float32",
         "train.device=cpu", "train.workers=0"]  # fmt: skip
CNN = [*SMALL, "train.image_size=64", "train.classes_per_batch=2", "train.images_per_class=4"]
TRANSFORMER = [*SMALL, "train.classes_per_batch=2", "train.images_per_class=2"]


def variants() -> list[tuple[str, list[str]]]:
    """The other commands that the head of a pipeline gives, with a backbone of their own."""
    found = []
    for name in SETS:
        for line in Path(f"pipelines/{name}.toml").read_text("utf-8").splitlines():
            if "hgld run" in line and "train.backbone" in line:
                words = shlex.split(line, comments=False)[1:]
                settings = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
                found.append((name, settings))
    return found


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recipes")


@pytest.fixture
def load(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.setenv("HGLD_DATA", str(data_folder))

    def load(name: str, settings: list[str]) -> tuple[Pipeline, TrainingData]:
        pipeline = load_pipeline(Path(f"pipelines/{name}.toml"), settings)
        shards = export(name, data_folder)
        return pipeline, TrainingData.read(shards, pipeline.train)

    return load


@cache
def export(name: str, data_folder: Path) -> Path:
    """Shards of the small set, made by the stages that the pipeline names."""
    folder, writer = (SETS | TO_COPY)[name]
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
    made.update(zip(tables, found if isinstance(found, tuple) else (found,), strict=True))


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
    return pipeline.train.runs.get("happier") or pipeline.train.runs["roadmap"]


@pytest.mark.parametrize("name", SETS | TO_COPY)
def test_a_recipe_builds_its_model_and_takes_two_steps(name: str, load: Load) -> None:
    pipeline, data = load(name, CNN)
    assert len(data.levels) == LEVELS.get(name, 3)
    assert take_steps(pipeline, data, main_run(pipeline)) == 8


@pytest.mark.parametrize(("name", "settings"), variants())
def test_its_transformers_resolve(name: str, settings: list[str], load: Load) -> None:
    pipeline, data = load(name, [*settings, *TRANSFORMER])
    options = pipeline.train
    assert find_backbone(options)[0].startswith(("deit_small_patch16_224", "vit_base_patch16_224"))
    assert (options.image_size, options.eval_crop, options.defaults.optimizer) == (
        224,
        224,
        "adamw",
    )
    assert build_loss(main_run(pipeline), data.class_labels, options.dim, seed=0)


@pytest.mark.parametrize("settings", [settings for name, settings in variants() if name == "sop"])
def test_transformers_take_two_steps(settings: list[str], load: Load) -> None:
    """Those of the other recipes are the same networks at other rates."""
    pipeline, data = load("sop", [*settings, *TRANSFORMER])
    assert take_steps(pipeline, data, main_run(pipeline)) == 4


@pytest.mark.parametrize("name", SETS | TO_COPY)
def test_every_loss_of_a_recipe_has_a_gradient(name: str, load: Load) -> None:
    pipeline, data = load(name, CNN)
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
