import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.config import EvaluateOptions, RunOptions
from hgld.errors import InvalidData, MissingInput, UsageError
from hgld.evaluate import evaluate_models
from hgld.evaluate.embeddings import EmbeddingStore
from hgld.evaluate.models import find_models
from hgld.evaluate.ranking import rank_sides
from hgld.evaluate.sides import Shards
from hgld.model import load_model
from hgld.model.transforms import evaluation_transform
from hgld.ranking.metrics import cpcc
from hgld.shards.files import read_image
from hgld.shards.index import labels_of, read_index
from hgld.tasks import watched_by
from hgld.train import train_models
from tests.made_shards import make_context, make_shards, small_options
from tests.shards.shard_world import put_index

METRICS = ("H-AP", "AP:kind", "AP:landmark", "R@1:landmark")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("evaluate"))


@pytest.fixture(scope="module")
def models(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    runs = {"plain": RunOptions(steps=0), "trained": RunOptions(steps=2)}
    options = small_options(runs=runs)
    train_models(shards, options=options, context=make_context(folder), out=folder / "models")
    return folder / "models"


class Evaluate:
    """Evaluates into one folder; remembers what was embedded, and may crash on the way."""

    def __init__(self, shards: Path, models: Path, folder: Path) -> None:
        self.shards, self.models, self.folder = shards, models, folder
        self.embedded: list[str] = []
        self.said: list[str] = []
        self.crash_at: int | None = None

    def __call__(self, **changes: Any) -> tuple[dict[str, Any], pd.DataFrame]:
        options = EvaluateOptions(metrics=METRICS, batch_size=3, device="cpu")
        with watched_by(self._watch, self.said.append):
            return evaluate_models(
                self.shards,
                self.models,
                options=options.model_copy(update=changes),
                context=make_context(self.folder),
                out=self.folder / "ranked",
            )

    def ranking(self, model: str) -> dict[str, np.ndarray]:
        with np.load(self.folder / "ranked" / f"{model}.npz") as data:
            return dict(data)

    def _watch(
        self, items: Iterable[Any], label: str, total: int | None, done: int
    ) -> Iterator[Any]:
        if label.startswith("Embedding"):
            if self.crash_at == len(self.embedded):
                raise RuntimeError("as if the power went")
            self.embedded.append(label)
        yield from items


@pytest.fixture
def evaluate(shards: Path, models: Path, tmp_path: Path) -> Evaluate:
    return Evaluate(shards, models, tmp_path)


def embed(shards: Path, run: Path, split: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows and embeddings of a split, photo by photo."""
    index = read_index(shards)
    rows = index[index["split"] == split].reset_index(drop=True)
    model = load_model(run)
    look = evaluation_transform(model.config)
    with torch.inference_mode():
        found = [model(look(read_image(shards, row))[None])[0] for _, row in rows.iterrows()]
    return rows, torch.stack(found).double().numpy()


def average_precision(relevant_by_rank: list[bool]) -> float:
    hits = [rank for rank, hit in enumerate(relevant_by_rank, 1) if hit]
    return sum((i + 1) / rank for i, rank in enumerate(hits)) / len(hits)


def test_files_of_a_person_among_the_rankings_stay(
    shards: Path, models: Path, tmp_path: Path
) -> None:
    (tmp_path / "ranked" / "mine").mkdir(parents=True)
    (tmp_path / "ranked" / "notes.txt").write_text("mine")
    (tmp_path / "ranked" / "gone.npz").write_bytes(b"of a model that is no longer asked for")
    np.savez(tmp_path / "ranked" / "vectors.npz", vectors=np.eye(2))
    Evaluate(shards, models, tmp_path)()
    found = {path.name for path in (tmp_path / "ranked").iterdir()}
    assert found == {"mine", "notes.txt", "plain.npz", "trained.npz", "vectors.npz"}


def test_an_evaluation_that_fails_leaves_the_earlier_one_whole(evaluate: Evaluate) -> None:
    evaluate()
    files = [*(evaluate.folder / "ranked").iterdir(), evaluate.folder / "state" / "models.json"]
    before = {path: path.read_bytes() for path in files}
    evaluate.crash_at = len(evaluate.embedded)
    with pytest.raises(RuntimeError, match="as if the power went"):
        evaluate(models={"again": "run:plain"}, precision="bf16")
    assert {path: path.read_bytes() for path in files if path.exists()} == before
    evaluate.crash_at = None
    evaluate(models={"again": "run:plain"})
    assert [path.name for path in (evaluate.folder / "ranked").iterdir()] == ["again.npz"]


def test_every_image_queries_all_others_where_query_and_gallery_are_the_same(
    evaluate: Evaluate, shards: Path, models: Path
) -> None:
    """AP and R@1 of each query, counted out in plain Python."""
    report, per_query = evaluate()
    rows, vectors = embed(shards, models / "trained", "evaluation")
    values = per_query[per_query["model"] == "trained"].set_index(["metric", "image_id"])["value"]
    for query, row in rows.iterrows():
        others = [i for i in rows.index if i != query]
        others.sort(key=lambda i: -float(vectors[query] @ vectors[i]))
        same = [bool(rows["landmark_id"][i] == row["landmark_id"]) for i in others]
        assert values["AP:landmark", row["image_id"]] == pytest.approx(average_precision(same))
        assert values["R@1:landmark", row["image_id"]] == float(same[0])
    assert report["protocol"] == {
        "name": "all-vs-all",
        "query": "evaluation",
        "gallery": "evaluation",
        "queries": 8,
        "gallery_images": 8,
        "levels": ["kind", "supercategory", "landmark"],
        "unmatched": {"queries": 0, "classes": 0},
        "classes": {"queries": 2, "trained_on": 0},
    }


def test_the_class_of_each_query_is_recorded(evaluate: Evaluate, shards: Path) -> None:
    _, per_query = evaluate()
    index = read_index(shards).set_index("image_id")
    expected = index.loc[per_query["image_id"], "landmark_id"].astype(str)
    assert per_query["class"].tolist() == expected.tolist()


def test_classes_that_a_model_was_trained_on_are_counted(evaluate: Evaluate) -> None:
    report, _ = evaluate(query="train", gallery="train")
    assert report["protocol"]["classes"] == {"queries": 4, "trained_on": 4}
    report, _ = evaluate(query="train", gallery="train", models={"p": "run:plain"})
    assert report["protocol"]["classes"] == {"queries": 4, "trained_on": 0}


def test_a_class_of_the_gallery_that_is_one_of_the_training_is_counted_as_trained_on(
    shards: Path, models: Path, tmp_path: Path
) -> None:
    """As of a folder with the splits train, test and index: its numbers are those of the paths."""
    folder = tmp_path / "shards"
    shutil.copytree(shards, folder)
    index = read_index(folder)
    levels = [name for name in index if str(name).startswith("level_")]
    trained = index[index["split"] == "train"].iloc[0][levels]
    query = index[index["split"] == "test"].iloc[0]
    same = index["split"].isin(["test", "index"]) & (index[levels[-1]] == query[levels[-1]])
    index.loc[same, levels] = trained.to_numpy()
    put_index(folder, index)
    evaluate = Evaluate(folder, models, tmp_path)
    report, _ = evaluate(query="test", gallery="index", models={"t": "run:trained"})
    assert report["protocol"]["classes"]["trained_on"] == 1


@pytest.fixture(scope="module")
def seeded(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeded")
    runs = {"plain": RunOptions(steps=0), "trained": RunOptions(steps=1)}
    options = small_options(runs=runs, seeds=(0, 5))
    train_models(shards, options=options, context=make_context(folder), out=folder / "models")
    return folder / "models"


def test_a_run_of_several_seeds_has_a_mean_and_a_deviation(
    evaluate: Evaluate, seeded: Path
) -> None:
    evaluate.models = seeded
    report, per_query = evaluate()
    assert list(report["models"]) == ["plain", "trained-s0", "trained-s5"]
    assert [report["models"][name].get("seed") for name in report["models"]] == [None, 0, 5]
    plain, run = report["runs"]["plain"], report["runs"]["trained"]
    assert plain == {"models": ["plain"], "mean": report["models"]["plain"]["mean"]}
    assert run["models"] == ["trained-s0", "trained-s5"]
    two = [report["models"][name]["mean"]["H-AP"] for name in run["models"]]
    assert run["mean"]["H-AP"] == pytest.approx(sum(two) / 2)
    assert run["std"]["H-AP"] == pytest.approx(abs(two[0] - two[1]) / 2**0.5)
    assert set(per_query["model"]) == set(report["models"])


def test_a_run_or_the_model_of_one_seed_is_evaluated_by_name(
    evaluate: Evaluate, seeded: Path
) -> None:
    evaluate.models = seeded
    report, _ = evaluate(models={"m": "run:trained", "one": "run:trained-s5"})
    assert list(report["runs"]) == ["m", "one"]
    assert list(report["models"]) == ["m-s0", "m-s5", "one"]
    assert report["models"]["one"]["mean"] == report["models"]["m-s5"]["mean"]
    with pytest.raises(UsageError, match="two models would be called m-s0"):
        evaluate(models={"m": "run:trained", "m-s0": "run:plain"})


def test_the_report_says_what_each_model_is_and_its_means(evaluate: Evaluate, models: Path) -> None:
    report, per_query = evaluate()
    config = json.loads((models / "trained" / "config.json").read_text())
    found = report["models"]["trained"]
    assert (found["loss"], found["steps"], found["backbone"]) == ("HAPPIER", 2, "test_resnet")
    assert found["weights_sha256"] == config["sha256"]
    assert report["models"]["plain"]["loss"] == "pretrained"
    means = per_query.groupby(["model", "metric"])["value"].mean()
    for name, model in report["models"].items():
        assert list(model["mean"]) == list(METRICS) == report["metrics"]
        for metric, value in model["mean"].items():
            assert value == pytest.approx(means[name, metric])


def test_a_query_whose_class_is_absent_from_the_gallery_is_counted(evaluate: Evaluate) -> None:
    """Of the three test photos, that of index:3 has no photo in the index, nor has its castle."""
    report, per_query = evaluate(query="test", gallery="index")
    assert report["protocol"]["queries"] == 3 and report["protocol"]["gallery_images"] == 8
    assert report["protocol"]["name"] == "query-gallery"
    assert report["protocol"]["unmatched"] == {"queries": 1, "classes": 1}
    (line,) = [text for text in evaluate.said if "in the gallery" in text]
    assert line.startswith("evaluate: 1 of 3 queries, of 1 class, has no other image of its")
    assert report["models"]["plain"]["skipped"] == {
        "H-AP": 0,
        "AP:kind": 0,
        "AP:landmark": 1,
        "R@1:landmark": 1,
    }
    assert report["models"]["plain"]["inverted"] == 0
    rows = per_query[(per_query["model"] == "plain") & (per_query["metric"] == "AP:landmark")]
    assert len(rows) == 2 and rows["value"].notna().all()


def test_prompts_of_an_evaluation_of_photos_are_said_to_have_no_effect(evaluate: Evaluate) -> None:
    evaluate(prompts=("a painting of a {}",))
    evaluate()
    assert [text for text in evaluate.said if "prompts" in text] == [
        'evaluate: prompts has no effect: it is of queries = "names", not of "images"'
    ]


def test_a_metric_without_any_value_has_no_mean(evaluate: Evaluate) -> None:
    report, per_query = evaluate(query="evaluation", gallery="index")
    found = report["models"]["plain"]
    assert found["mean"]["AP:landmark"] is None and found["skipped"]["AP:landmark"] == 8
    assert not (per_query["metric"] == "AP:landmark").any()
    json.dumps(report, allow_nan=False)


def test_the_ranking_holds_levels_by_rank_and_the_first_images(
    evaluate: Evaluate, shards: Path, models: Path
) -> None:
    _, per_query = evaluate()
    ranking = evaluate.ranking("plain")
    rows, vectors = embed(shards, models / "plain", "evaluation")
    assert ranking["query_ids"].tolist() == rows["image_id"].tolist()
    assert ranking["gallery_ids"].tolist() == rows["image_id"].tolist()
    assert ranking["levels"].dtype == np.int8 and ranking["order"].dtype == np.int32
    assert (ranking["levels"][:, -1] == -1).all()  # the query itself
    assert (ranking["order"][:, -1] == np.arange(8)).all()
    values = per_query[(per_query["model"] == "plain") & (per_query["metric"] == "AP:kind")]
    values = values.set_index("image_id")["value"]
    for query, image_id in enumerate(ranking["query_ids"]):
        found = [rows.iloc[i] for i in ranking["order"][query][:-1]]
        scores = [float(vectors[query] @ vectors[i]) for i in ranking["order"][query][:-1]]
        assert scores == sorted(scores, reverse=True)
        same = [bool(row["level_1"] == rows["level_1"][query]) for row in found]
        assert same == [level >= 1 for level in ranking["levels"][query][:-1]]
        assert values[image_id] == pytest.approx(average_precision(same))


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 12))
def test_levels_by_rank_are_sorted_by_score_then_the_less_relevant(
    seed: int, queries: int, gallery: int
) -> None:
    """Few different scores, so that most are tied; Python's sort is the second route."""
    random = np.random.default_rng(seed)
    query = random.integers(-1, 2, (queries, 2)).astype(np.float32)
    images = random.integers(-1, 2, (gallery, 2)).astype(np.float32)
    query_labels, labels = random.integers(0, 2, (queries, 3)), random.integers(0, 2, (gallery, 3))
    (found,) = rank_sides((query, query_labels), (images, labels), first=5, device="cpu")
    levels, order = found.levels, found.first
    for q in range(queries):
        pairs = []
        for g in range(gallery):
            differs = [a != b for a, b in zip(query_labels[q], labels[g], strict=True)]
            shared = differs.index(True) if True in differs else 3
            pairs.append((-float(query[q] @ images[g]), shared, g))
        assert levels[q].tolist() == [shared for _, shared, _ in sorted(pairs)]
        assert order[q].tolist() == [g for _, _, g in sorted(pairs)][:5]


def test_a_second_evaluation_embeds_nothing_and_says_the_same(evaluate: Evaluate) -> None:
    report, per_query = evaluate()
    assert evaluate.embedded
    first = (evaluate.folder / "ranked" / "plain.npz").read_bytes()
    evaluate.embedded.clear()
    again, per_query_again = evaluate()
    assert not evaluate.embedded and again == report
    pd.testing.assert_frame_equal(per_query_again, per_query)
    assert (evaluate.folder / "ranked" / "plain.npz").read_bytes() == first


def test_a_run_that_crashed_goes_on_with_the_next_shard(
    evaluate: Evaluate, shards: Path, models: Path, tmp_path: Path
) -> None:
    whole = Evaluate(shards, models, tmp_path / "whole")
    expected, _ = whole()
    assert len(whole.embedded) >= 4  # two shards for each of two models
    evaluate.crash_at = 3
    with pytest.raises(RuntimeError):
        evaluate()
    evaluate.crash_at = None
    report, _ = evaluate()
    assert evaluate.embedded == whole.embedded and report == expected


def test_what_is_kept_of_other_models_goes(
    evaluate: Evaluate, shards: Path, models: Path, tmp_path: Path
) -> None:
    evaluate()
    kept = set((tmp_path / "state" / "embeddings").iterdir())
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "plain").symlink_to(models / "plain")
    (tmp_path / "one" / "runs.json").write_text('{"runs": ["plain"]}')
    evaluate.models = tmp_path / "one"
    evaluate()
    assert len(set((tmp_path / "state" / "embeddings").iterdir()) & kept) == 1 < len(kept)
    assert [path.name for path in (tmp_path / "ranked").iterdir()] == ["plain.npz"]


def test_what_is_kept_of_replaced_shards_goes_and_of_other_splits_stays(
    evaluate: Evaluate, shards: Path, models: Path, tmp_path: Path
) -> None:
    evaluate()
    store = EmbeddingStore(tmp_path / "state", EvaluateOptions())
    store.embed(find_models({}, models)[0], [Shards.read(shards).side("train")])
    kept = {*(tmp_path / "state" / "embeddings").rglob("*.npy")}
    next(iter(kept)).with_stem("0" * 32).write_bytes(b"of a shard that was replaced")
    evaluate()
    assert {*(tmp_path / "state" / "embeddings").rglob("*.npy")} == kept


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"query": "dev"}, r"evaluate\.query 'dev' has no samples; the shards hold evaluation, in"),
        ({"gallery": "dev"}, r"evaluate\.gallery 'dev' has no samples"),
        ({"metrics": ("H-AB",)}, r"evaluate\.metrics: no metric 'H-AB'; nearest is 'H-AP'"),
        ({"metrics": ("AP:town",)}, r"evaluate\.metrics: metric AP:town: level 'town' is none of"),
        ({"metrics": ()}, r"evaluate\.metrics is empty"),
        ({"device": "gpu"}, "device 'gpu' is unknown"),
    ],
)
def test_an_option_that_does_not_fit_is_one_clear_line(
    evaluate: Evaluate, changes: dict[str, Any], found: str
) -> None:
    with pytest.raises(UsageError, match=found):
        evaluate(**changes)


def test_models_stand_in_the_order_of_the_pipeline(evaluate: Evaluate, models: Path) -> None:
    report, _ = evaluate()
    assert list(report["models"]) == json.loads((models / "runs.json").read_text())["runs"]


def test_without_a_model_train_is_named(evaluate: Evaluate, tmp_path: Path) -> None:
    evaluate.models = tmp_path / "none"
    with pytest.raises(MissingInput, match="holds no model; run train first"):
        evaluate()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "'runs' is missing or empty"),
        ('{"runs": []}', "'runs' is missing or empty"),
        ('{"runs": "plain"}', "'runs' is no list of names; run train again"),
        ('{"runs": ["plain"], "seeds": []}', "'runs' is no list of names; run train again"),
        ('{"runs": ["a"], "seeds": {"a": 1}}', "'runs' is no list of names; run train again"),
    ],
)
def test_a_damaged_list_of_runs_is_one_clear_line(
    text: str, says: str, evaluate: Evaluate, tmp_path: Path
) -> None:
    (tmp_path / "runs.json").write_text(text)
    evaluate.models = tmp_path
    with pytest.raises(InvalidData, match=rf"runs\.json: {says}"):
        evaluate()


def test_a_gallery_of_the_query_alone_is_refused(
    evaluate: Evaluate, shards: Path, tmp_path: Path
) -> None:
    evaluate.shards = tmp_path / "one of each"
    evaluate.shards.mkdir()
    shutil.copy(shards / "manifest.json", evaluate.shards)
    put_index(evaluate.shards, read_index(shards).drop_duplicates("split"))
    with pytest.raises(UsageError, match=r"'evaluation' holds no other image than the query"):
        evaluate()


def test_a_model_of_another_architecture_is_one_clear_line(
    evaluate: Evaluate, models: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken" / "plain"
    broken.mkdir(parents=True)
    config = json.loads((models / "plain" / "config.json").read_text())
    del config["seal"], config["format"]
    (broken / "config.json").write_text(json.dumps({**config, "architecture": "test_vit"}))
    (broken / "model.safetensors").symlink_to(models / "plain" / "model.safetensors")
    (tmp_path / "broken" / "runs.json").write_text('{"runs": ["plain"]}')
    evaluate.models = tmp_path / "broken"
    with pytest.raises(InvalidData, match=r"another architecture than config\.json says"):
        evaluate()


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_model_folder_that_was_changed_is_not_measured(
    evaluate: Evaluate, models: Path, tmp_path: Path, file: str
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(models / "plain", folder)
    evaluate(models={"x": str(folder)})  # its embeddings are kept
    data = bytearray((folder / file).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / file).write_bytes(data)
    with pytest.raises(InvalidData, match=rf"folder/{file}: "):
        evaluate(models={"x": str(folder)})


def test_the_cpcc_of_a_model_is_a_mean_without_queries(
    evaluate: Evaluate, shards: Path, models: Path
) -> None:
    report, values = evaluate(gallery="train", metrics=("CPCC", "H-AP"))
    for name in ("plain", "trained"):
        rows, vectors = embed(shards, models / name, "train")
        expected = cpcc(torch.from_numpy(vectors), torch.from_numpy(labels_of(rows)))
        assert report["models"][name]["mean"]["CPCC"] == pytest.approx(expected, abs=1e-6)
    assert report["metrics"] == ["H-AP", "CPCC"] and "CPCC" not in set(values["metric"])
    with pytest.raises(UsageError, match="names no metric of queries"):
        evaluate(metrics=("CPCC",))
