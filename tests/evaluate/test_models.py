import shutil
import sys
from hashlib import sha256
from pathlib import Path
from time import perf_counter

import numpy as np
import open_clip
import pandas as pd
import pytest
import timm
import torch
import torch.nn.functional as F
from open_clip.model import CLIP
from safetensors.torch import save_file
from timm.data import create_transform, resolve_data_config
from torch import nn

from hgld.artifacts import hash_file
from hgld.config import EvaluateOptions, ModelOptions, RunOptions
from hgld.errors import InvalidData, MissingWeights, UsageError
from hgld.evaluate import evaluate_models
from hgld.evaluate.models import find_models
from hgld.model import load_model
from hgld.model.custom import build_custom, custom_digest
from hgld.model.transforms import evaluation_transform
from hgld.shards.files import read_image
from hgld.shards.index import read_index
from hgld.train import train_models
from tests.made_clip import save_clip
from tests.made_shards import make_context, make_shards, small_options

LITE0 = "timm:offline:efficientnet-lite0"


@pytest.fixture(scope="module")
def runs(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    options = small_options(runs={"one": RunOptions(steps=0), "two": RunOptions(steps=1)})
    train_models(shards, options=options, context=make_context(folder), out=folder / "models")
    return folder / "models"


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CLIP]:
    folder = tmp_path_factory.mktemp("clip")
    return folder, save_clip(folder)


def embeddings_of(folder: Path) -> np.ndarray:
    """What a stage has kept of the split evaluation: its one shard."""
    (file,) = (folder / "state" / "embeddings").rglob("*.npy")
    return np.load(file)


def evaluate_one(shards: Path, runs: Path, folder: Path, model: str | dict[str, object]):
    options = EvaluateOptions(models={"m": model}, metrics=("H-AP", "AP:kind"), device="cpu")
    context = make_context(folder)
    return evaluate_models(shards, runs, options=options, context=context, out=folder / "ranked")


def test_a_model_inside_a_package_has_the_name_that_training_knows() -> None:
    (model,) = find_models({"m": "offline:efficientnet-lite0"}, Path())
    model.require()
    assert model.facts()["backbone"] == LITE0
    assert model.key() == find_models({"m": LITE0}, Path())[0].key()


def photos(shards: Path):
    index = read_index(shards)
    rows = index[index["split"] == "evaluation"]
    return rows, [read_image(shards, row) for _, row in rows.iterrows()]


@pytest.fixture
def one_shard(tmp_path: Path) -> Path:
    return make_shards(tmp_path / "made", images=2)


def test_an_open_clip_model_embeds_as_open_clip_itself_does(
    one_shard: Path, runs: Path, clip: tuple[Path, CLIP], tmp_path: Path
) -> None:
    folder, model = clip
    report, _ = evaluate_one(one_shard, runs, tmp_path, f"open_clip:local-dir:{folder}")
    look = open_clip.image_transform(32, is_train=False)
    with torch.inference_mode():
        batch = torch.stack([look(photo) for photo in photos(one_shard)[1]])
        expected = F.normalize(model.encode_image(batch), dim=-1).numpy()
    np.testing.assert_allclose(embeddings_of(tmp_path), expected, atol=1e-6)
    found = report["models"]["m"]
    assert (found["loss"], found["steps"]) == ("pretrained", 0)
    assert found["backbone"] == f"open_clip:local-dir:{folder.name}"
    assert found["weights_sha256"] == hash_file(folder / "open_clip_model.safetensors")


def test_a_timm_model_sees_photos_as_timm_shows_them(
    one_shard: Path, runs: Path, tmp_path: Path
) -> None:
    """Its own resize, crop and normalisation; weights of a file, drawn at random."""
    torch.manual_seed(1)
    network = timm.create_model("test_resnet", num_classes=1000).eval()
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    evaluate_one(one_shard, runs, tmp_path, f"timm:test_resnet/{tmp_path}/weights.safetensors")
    look = create_transform(**resolve_data_config(model=network), is_training=False)
    with torch.inference_mode():
        batch = torch.stack([look(photo) for photo in photos(one_shard)[1]])
        features = network.forward_head(network.forward_features(batch), pre_logits=True)
    expected = F.normalize(features, dim=-1).numpy()
    np.testing.assert_allclose(embeddings_of(tmp_path), expected, atol=2e-3)  # resized as bytes
    assert (embeddings_of(tmp_path) * expected).sum(1).min() > 0.99999


def test_a_model_that_squeezes_and_crops_has_another_key_than_before(tmp_path: Path) -> None:
    """Kept embeddings of the whole photo are left; those of other models stay valid."""
    (tmp_path / "weights").touch()
    names = ("dm_nfnet_f0", "vit_base_patch16_siglip_224", "resnet50")
    sources = {name: f"timm:{name}/{tmp_path}/weights" for name in names}
    found = {model.name: model for model in find_models(sources, tmp_path)}
    kept = sha256(f"timm {names[0]} {hash_file(tmp_path / 'weights')}".encode()).hexdigest()
    assert found[names[0]].key() != kept
    for name in names[1:]:
        whole = f"timm {name} {hash_file(tmp_path / 'weights')}"
        assert found[name].key() == sha256(whole.encode()).hexdigest()


@pytest.mark.parametrize("table", [{"eval_crop": 288}, {"eval_resize": (90, 90)}])
def test_a_crop_of_more_than_the_photo_of_a_pretrained_model_is_refused(
    tmp_path: Path, table: dict[str, object]
) -> None:
    """One of the two is the model's own: resnet50 is resized to 235 pixels and cut to 224."""
    (tmp_path / "weights").touch()
    table = {"source": f"timm:resnet50/{tmp_path}/weights", **table}
    (model,) = find_models({"m": ModelOptions.model_validate(table)}, tmp_path)
    with pytest.raises(UsageError, match=r"models\.m: eval_crop is .*, but photos are resized to "):
        model.require()


def test_given_embeddings_are_measured_as_the_model_that_made_them(
    shards: Path, runs: Path, tmp_path: Path
) -> None:
    report, expected = evaluate_one(shards, runs, tmp_path / "run", "run:two")
    rows, images = photos(shards)
    model = load_model(runs / "two")
    look = evaluation_transform(model.config)
    with torch.inference_mode():
        vectors = model(torch.stack([look(image) for image in images])).numpy()
    mixed = np.random.default_rng(0).permutation(len(rows))
    table = pd.DataFrame({"image_id": rows["image_id"].to_numpy()[mixed]})
    table["embedding"] = list(7 * vectors[mixed])
    table.to_parquet(tmp_path / "given.parquet")
    given, found = evaluate_one(shards, runs, tmp_path / "given", str(tmp_path / "given.parquet"))
    pd.testing.assert_frame_equal(found, expected)
    assert given["models"]["m"]["mean"] == pytest.approx(report["models"]["m"]["mean"])
    assert given["models"]["m"]["loss"] == "given embeddings"


def test_models_of_several_seeds_are_one_run(shards: Path, runs: Path, tmp_path: Path) -> None:
    """Trained in another program, as a file for each seed."""
    rows, made = photos(shards)[0], np.random.default_rng(0)
    ids = rows["image_id"].to_numpy(str)
    for seed in (0, 7):
        np.savez(tmp_path / f"mine-{seed}.npz", vectors=made.normal(size=(len(ids), 4)), ids=ids)
    model = {"source": f"{tmp_path}/mine-{{seed}}.npz", "seeds": [0, 7]}
    report, _ = evaluate_one(shards, runs, tmp_path, model)
    own = report["models"]
    assert [(name, facts["seed"]) for name, facts in own.items()] == [("m-s0", 0), ("m-s7", 7)]
    values = [facts["mean"]["H-AP"] for facts in own.values()]
    run = report["runs"]["m"]
    assert run["models"] == ["m-s0", "m-s7"] and values[0] != values[1]
    assert run["mean"]["H-AP"] == pytest.approx(np.mean(values))
    assert run["std"]["H-AP"] == pytest.approx(np.std(values, ddof=1))


def test_models_are_all_runs_or_those_that_are_named(runs: Path) -> None:
    assert [m.name for m in find_models({}, runs)] == ["one", "two"]
    named = find_models({"x": "run:two", "y": str(runs / "one"), "z": "timm:resnet18"}, runs)
    assert [(m.name, m.kind) for m in named] == [
        ("x", "checkpoint"),
        ("y", "checkpoint"),
        ("z", "timm"),
    ]
    assert find_models({"x": "run:two"}, runs)[0].key() == find_models({}, runs)[1].key()


@pytest.mark.parametrize(
    ("model", "error", "found"),
    [
        ("run:tow", UsageError, r"models\.m: train has no run 'tow' \(it has one, two\); did you"),
        ("nowhere", InvalidData, r"models\.m: .*nowhere is neither a model's folder"),
        ("timm:resnet5o", UsageError, r"evaluate\.models\.m: timm has no model 'resnet5o'"),
        ("timm:resnet50", MissingWeights, r"HF_HUB_OFFLINE is set; .*name the file: timm:MODEL/F"),
        ("open_clip:ViT-B-23/openai", UsageError, r"models\.m: open_clip has no model 'ViT-B-23'"),
        ("open_clip:ViT-B-32/openai", MissingWeights, r"name the file: open_clip:MODEL/FILE"),
        ("open_clip:ViT-B-32/opena", MissingWeights, r"models\.m: 'opena' is neither a file nor"),
        ("open_clip:local-dir:none", MissingWeights, r"name the file: open_clip:MODEL/FILE$"),
    ],
)
def test_a_model_that_is_not_there_is_one_line_within_seconds(
    model: str, error: type[Exception], found: str, shards: Path, runs: Path, tmp_path: Path
) -> None:
    start = perf_counter()
    with pytest.raises(error, match=found) as caught:
        evaluate_one(shards, runs, tmp_path, model)
    assert perf_counter() - start < 6 and "\n" not in str(caught.value)
    assert "train." not in str(caught.value)


def test_embeddings_that_are_not_of_these_images_are_refused(
    shards: Path, runs: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "e.npz", vectors=np.eye(2, dtype=np.float32), ids=np.array(["x", "y"]))
    with pytest.raises(InvalidData, match=r"8 of 8 images have no embedding, first "):
        evaluate_one(shards, runs, tmp_path, str(tmp_path / "e.npz"))


def test_a_model_that_embeds_nan_is_told_with_its_name(
    one_shard: Path, runs: Path, clip: tuple[Path, CLIP], tmp_path: Path
) -> None:
    state = {k: v.clone() for k, v in clip[1].state_dict().items()}
    state["visual.proj"][:] = float("nan")
    save_file(state, tmp_path / "open_clip_model.safetensors")
    config = (clip[0] / "open_clip_config.json").read_text()
    (tmp_path / "open_clip_config.json").write_text(config)
    with pytest.raises(InvalidData, match=r"model m, split evaluation: 4 of 4 embeddings hold nan"):
        evaluate_one(one_shard, runs, tmp_path, f"open_clip:local-dir:{tmp_path}")


TABLES = {"image_size": 48, "pooling": "token", "eval_resize": 56, "eval_crop": 48}


def test_a_table_sets_size_pooling_and_transform_of_a_timm_model(
    one_shard: Path, runs: Path, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    network = timm.create_model("test_vit", num_classes=1000).eval()
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    source = f"timm:test_vit/{tmp_path}/weights.safetensors"
    look = {**TABLES, "mean": (0.1, 0.2, 0.3), "std": (0.5, 0.6, 0.7), "interpolation": "bilinear"}
    report, _ = evaluate_one(one_shard, runs, tmp_path, {"source": source, **look})
    # timm interpolates the positions itself
    sized = timm.create_model("test_vit", img_size=48, num_classes=0, global_pool="token").eval()
    own = timm.models.vision_transformer.checkpoint_filter_fn(network.state_dict(), sized)
    sized.load_state_dict({k: v for k, v in own.items() if not k.startswith("head.")}, strict=False)
    transform = create_transform(
        48, crop_pct=48 / 56, interpolation="bilinear", mean=look["mean"], std=look["std"]
    )
    with torch.inference_mode():
        batch = torch.stack([transform(photo) for photo in photos(one_shard)[1]])
        tokens = sized.forward_features(batch)
        expected = F.normalize(sized.fc_norm(tokens)[:, 0], dim=-1).numpy()
    assert (embeddings_of(tmp_path) * expected).sum(1).min() > 0.9999
    assert report["models"]["m"]["preparation"] == look
    plain, prepared = find_models({"a": source, "b": ModelOptions(source=source, **TABLES)}, runs)
    assert plain.key() != prepared.key()


def test_an_open_clip_model_takes_another_size(
    one_shard: Path, runs: Path, clip: tuple[Path, CLIP], tmp_path: Path
) -> None:
    source = f"open_clip:local-dir:{clip[0]}"
    evaluate_one(one_shard, runs, tmp_path / "own", source)
    evaluate_one(one_shard, runs, tmp_path / "large", {"source": source, "image_size": 64})
    own, large = embeddings_of(tmp_path / "own"), embeddings_of(tmp_path / "large")
    assert own.shape == large.shape and not np.allclose(own, large)


BUILDERS = """
import torch
from sizes import SIDE
from torch import nn

def pixels():
    torch.manual_seed(0)
    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, SIDE))

def drawn():
    return nn.Linear(12, 5)

def with_transform():
    return nn.Flatten(), lambda photo: torch.full((3, 2, 2), float(photo.width))

def flat():
    return nn.AdaptiveAvgPool2d(2)

class Without(nn.Module):
    def forward(self, photos):
        return photos.flatten(1)[:, :0]

def without():
    return Without()

def unchanged():
    return nn.Flatten(), lambda photo: photo

def narrow():
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 5))

def none():
    return "network"

def broken():
    raise RuntimeError("no weights\\nhere")
"""


@pytest.fixture
def builders(tmp_path: Path) -> str:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sizes.py").write_text("SIDE = 5\n")
    (tmp_path / "own" / "builders.py").write_text(BUILDERS)
    sys.modules.pop("sizes", None)
    return f"python:{tmp_path}/own/builders.py"


def test_a_function_of_a_file_gives_any_network(
    one_shard: Path, runs: Path, builders: str, tmp_path: Path
) -> None:
    """Photos as for ImageNet; a module beside the file is found; vectors get length 1."""
    report, _ = evaluate_one(one_shard, runs, tmp_path, f"{builders}:pixels")
    torch.manual_seed(0)
    network = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 5))
    look = create_transform((224, 224), interpolation="bicubic", crop_mode="squash", crop_pct=1.0)
    with torch.inference_mode():
        expected = F.normalize(network(torch.stack([look(p) for p in photos(one_shard)[1]])))
    np.testing.assert_allclose(embeddings_of(tmp_path), expected.numpy(), atol=2e-3)
    assert report["models"]["m"]["backbone"] == "python:builders.py:pixels"


def test_weights_that_a_function_draws_are_the_same_each_time(builders: str) -> None:
    source = f"{builders.removeprefix('python:')}:drawn"
    first, before = build_custom(source)[0], torch.get_rng_state()
    again = build_custom(source)[0]
    torch.testing.assert_close(again.state_dict(), first.state_dict(), rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_function_may_bring_its_transform(
    one_shard: Path, runs: Path, builders: str, tmp_path: Path
) -> None:
    evaluate_one(one_shard, runs, tmp_path, f"{builders}:with_transform")
    np.testing.assert_allclose(embeddings_of(tmp_path), np.full((4, 12), 12**-0.5), atol=1e-6)


def test_functions_of_one_file_are_two_models(tmp_path: Path) -> None:
    """Of networks with the same weights the second had the kept embeddings of the first."""
    text = "from torch import nn\n"
    for name in ("avg", "max"):
        layers = f"nn.Adaptive{name.title()}Pool2d(1), nn.Flatten()"
        text += f"def {name}():\n    return nn.Sequential({layers})\n"
    (tmp_path / "pools.py").write_text(text)
    models = {name: f"python:{tmp_path}/pools.py:{name}" for name in ("avg", "max")}
    assert len({model.key() for model in find_models(models, tmp_path)}) == 2


def test_a_function_of_an_installed_module_gives_a_network(
    one_shard: Path, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "own_networks"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "small.py").write_text(BUILDERS.replace("from sizes", "from own_networks.sizes"))
    (package / "sizes.py").write_text("SIDE = 5\n")
    monkeypatch.syspath_prepend(package.parent)
    evaluate_one(one_shard, runs, tmp_path, "python:own_networks.small:with_transform")
    np.testing.assert_allclose(embeddings_of(tmp_path), np.full((4, 12), 12**-0.5), atol=1e-6)


def test_code_beside_the_file_and_weights_decide_whether_embeddings_are_kept(
    builders: str, tmp_path: Path
) -> None:
    first = custom_digest(f"{builders.removeprefix('python:')}:pixels")
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "own", copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert custom_digest(f"{copy}/builders.py:flat") != first
    sys.modules.pop("sizes", None)
    shutil.copytree(copy, tmp_path / "third")
    (tmp_path / "third" / "sizes.py").write_text("SIDE = 6\n")
    assert custom_digest(f"{tmp_path}/third/builders.py:pixels") != first


@pytest.mark.parametrize(
    ("model", "error", "found"),
    [
        ("none", UsageError, r"evaluate\.models\.m: .*:none: returned str; expected an nn\.Module"),
        ("broken", UsageError, r":broken: RuntimeError: no weights here"),
        ("lost", UsageError, r":lost: AttributeError: module .* has no attribute 'lost'"),
        (
            "narrow",
            InvalidData,
            r":narrow: its network raised RuntimeError for photos \(\d, 3, 224, "
            r"224\): mat1 and mat2 shapes",
        ),
        ("unchanged", UsageError, "the transform returned Image; expected a torch.Tensor"),
        ("flat", InvalidData, r":flat: its network returned \(\d, 3, 2, 2\); expected \(\d, D\)"),
        ("without", InvalidData, r":without: its network returned \(\d, 0\); expected \(\d, D\)"),
    ],
)
def test_a_function_that_gives_no_encoder_is_one_line(
    model: str, error: type[Exception], found: str, one_shard: Path, runs: Path, builders: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    with pytest.raises(error, match=found) as caught:
        evaluate_one(one_shard, runs, tmp_path, f"{builders}:{model}")
    assert "\n" not in str(caught.value)


def test_options_that_change_nothing_are_refused(
    one_shard: Path, runs: Path, builders: str, tmp_path: Path
) -> None:
    wanted = {"source": f"{builders}:with_transform", "image_size": 64}
    with pytest.raises(UsageError, match="returns its own transform, so that image_size would"):
        evaluate_one(one_shard, runs, tmp_path, wanted)
    for source, name in (("run:one", "a trained model"), ("open_clip:a/b", "it takes image_size")):
        with pytest.raises(ValueError, match=f"pooling is not for {source}: {name}"):
            ModelOptions(source=source, pooling="token")
