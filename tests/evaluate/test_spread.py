"""However the embedding is spread, and however large the ranking, the bytes are the same."""

import re
import time
from collections.abc import Callable
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from hgld.artifacts.ranking_file import RankingFile
from hgld.config import EvaluateOptions
from hgld.errors import HgldError, InvalidData, UsageError
from hgld.evaluate import embeddings
from hgld.evaluate.embeddings import EmbeddingStore
from hgld.evaluate.models import Encoder, Model, find_models, loaded
from hgld.evaluate.ranking import measure_and_write, rank_sides
from hgld.evaluate.sides import Shards, Side
from hgld.model import build_image_model, save_model
from hgld.ranking.curves import CurveValues, by_chance
from hgld.shards.index import read_index
from hgld.tasks import watched_by
from tests.made_shards import make_shards, small_options
from tests.shards.shard_world import rot

CPU = EvaluateOptions(device="cpu")
SPLITS = ("train", "index", "evaluation", "test")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("run") / "model")


def make_model(folder: Path) -> Path:
    """An EfficientNet-Lite0, whose values change with the number of threads."""
    options = small_options(backbone="tf_efficientnet_lite0", image_size=64)
    save_model(build_image_model(options), folder, {"loss": "HAPPIER", "steps": 1})
    return folder


def embed(shards: Path, run: Path, state: Path, **options: object) -> dict[str, bytes]:
    store = EmbeddingStore(state, EvaluateOptions(**{"device": "cpu", **options}))
    (model,) = find_models({"m": str(run)}, Path("no runs"))
    found = Shards.read(shards)
    vectors = store.embed(model, [found.side(split, "query") for split in SPLITS])
    index = read_index(shards)
    assert all(len(v) == (index["split"] == split).sum() for split, v in vectors.items())
    return {path.name: path.read_bytes() for path in sorted(state.rglob("*.npy"))}


@pytest.mark.slow
def test_processes_and_threads_change_no_byte(shards: Path, run: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    one = embed(shards, run, tmp_path / "one")
    try:
        torch.set_num_threads(3)
        threads = embed(shards, run, tmp_path / "threads")
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    two = embed(shards, run, tmp_path / "two", processes=2)
    assert len(one) >= 4 and one == threads == two


def saved(vectors: np.ndarray) -> bytes:
    buffer = BytesIO()
    np.save(buffer, vectors)
    return buffer.getvalue()


def sealed(content: bytes) -> bytes:
    return content + sha256(content).digest()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.read_bytes()[:50],
        lambda path: b"",
        lambda path: path.read_bytes()[:-96] + bytes(64) + path.read_bytes()[-32:],
        lambda path: path.read_bytes()[:-32],
        lambda path: saved(np.load(path)[:, :4]),
        lambda path: sealed(saved(np.load(path)[:, 0])),
        lambda path: sealed(saved(np.load(path).astype(np.float64))),
    ],
    ids=["cut", "empty", "numbers", "unsealed", "narrow", "flat", "double"],
)
def test_a_damaged_file_of_embeddings_is_made_again(
    damage: Callable[[Path], bytes], shards: Path, run: Path, tmp_path: Path
) -> None:
    whole = embed(shards, run, tmp_path)
    path = next(tmp_path.rglob("*.npy"))
    path.write_bytes(damage(path))
    assert embed(shards, run, tmp_path) == whole


def test_files_of_embeddings_that_were_swapped_are_made_again(
    shards: Path, run: Path, tmp_path: Path
) -> None:
    whole = embed(shards, run, tmp_path)
    same_size = [p for p in tmp_path.rglob("*.npy") if len(np.load(p)) == 4]
    first, second = same_size[:2]
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)
    assert embed(shards, run, tmp_path) == whole


def test_an_image_that_changed_in_its_shard_is_named_and_not_embedded(
    run: Path, tmp_path: Path
) -> None:
    shards = make_shards(tmp_path / "rotten")
    row = read_index(shards).iloc[0].to_dict()
    good = (shards / row["shard"]).read_bytes()
    rot(shards, row)
    with pytest.raises(InvalidData, match=rf"{row['shard']}: key {row['key']}: .* were changed"):
        embed(shards, run, tmp_path / "state")
    (shards / row["shard"]).write_bytes(good)
    assert embed(shards, run, tmp_path / "state") == embed(shards, run, tmp_path / "new")


class Greedy(torch.nn.Module):
    """Asks for more memory than there is."""

    def forward(self, photos: torch.Tensor) -> torch.Tensor:
        return torch.empty(len(photos), 1 << 50)


def test_out_of_memory_names_what_would_need_less(
    shards: Path, run: Path, tmp_path: Path, monkeypatch
) -> None:
    greedy = Encoder(Greedy(), lambda photo: torch.zeros(3, 8, 8))
    monkeypatch.setattr(Model, "load", lambda model, device: greedy)
    with pytest.raises(HgldError, match=r"lower evaluate\.batch_size .*evaluate\.processes"):
        embed(shards, run, tmp_path, batch_size=63)
    loaded.cache_clear()


def test_a_gpu_that_is_not_there_is_one_line(shards: Path, run: Path, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(UsageError, match="there is no GPU here that torch can use; try cpu"):
        embed(shards, run, tmp_path, device="cuda", processes=2)


def test_a_ranking_in_blocks_is_the_ranking(tmp_path: Path, monkeypatch) -> None:
    random = np.random.default_rng(0)
    vectors = random.integers(-2, 3, (50, 3)).astype(np.float32)  # many ties
    labels = random.integers(0, 2, (50, 3))
    ids = pd.DataFrame({"image_id": [f"{i:02}" for i in range(50)]})
    side = Side("s", [ids], labels, Path(), {})
    (ranking,) = rank_sides((vectors, labels), (vectors, labels), exclude_self=True, first=100)
    monkeypatch.setattr("hgld.ranking.kernels.rank_cpu.BLOCK_ROWS", 7)
    given = {"s": vectors}, side, side, ["AP"], "abc", CPU
    result = measure_and_write(tmp_path / "a.npz", *given)
    with np.load(tmp_path / "a.npz") as data:
        np.testing.assert_array_equal(data["levels"], ranking.levels)
        np.testing.assert_array_equal(data["order"], ranking.first)
        assert data["query_ids"].tolist() == data["gallery_ids"].tolist() == [*side.image_ids]
    assert result.mean() == ranking.evaluate(["AP"]).mean()
    measure_and_write(tmp_path / "b.npz", *given)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_only_the_first_ranks_are_kept_and_the_curves_are_of_all(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    vectors = random.normal(size=(300, 3)).astype(np.float32)
    labels = random.integers(0, 3, (300, 2))
    side = Side("s", [pd.DataFrame({"image_id": np.arange(300).astype(str)})], labels, Path(), {})
    given = {"s": vectors}, side, side, ["AP", "H-AP"], "ab"
    results = [
        measure_and_write(
            tmp_path / f"{n}.npz", *given, EvaluateOptions(device="cpu", keep_ranks=n)
        )
        for n in (100, 300)
    ]
    few, every = (RankingFile.load(tmp_path / f"{n}.npz") for n in (100, 300))
    queries = ["7", "0"]
    assert (few.levels(queries) == every.levels(queries)[:, :100]).all()
    assert (few.counts == every.counts).all() and few.counts.sum(1).tolist() == [299] * 300
    assert results[0].mean() == results[1].mean()
    levels = every.levels(by_chance(list(map(str, range(300)))))[:, :-1]
    for ranking in (few, every):
        found, truth = CurveValues(**ranking.curves), CurveValues.of(levels, 2)
        for name, values in vars(truth).items():
            np.testing.assert_array_equal(vars(found)[name], values, err_msg=name)


def test_keys_of_parts_are_of_the_bytes_and_places_of_their_images(shards: Path) -> None:
    """Written out, since another key would make all kept embeddings useless."""
    found, index = Shards.read(shards), read_index(shards)
    for part, key in found.side("train+index").parts():
        rows = index[index["shard"] == part[["shard"]]["shard"].iloc[0]]
        places = rows[["offset", "size_bytes", "image_crc32"]].to_numpy(np.int64)
        file = found.hashes[rows["shard"].iloc[0]]
        assert key == sha256(file.encode() + places.tobytes()).hexdigest()[:32]


def test_negative_zeros_and_infinite_lows_sort_as_numbers_do() -> None:
    query = np.array([[1, 0]], np.float32)
    gallery = np.array([[-0.0, 1], [0.0, 1], [-1e-40, 0], [1e-40, 0], [-3e38, 0]], np.float32)
    labels = np.array([[1], [0], [0], [0], [0]])
    (found,) = rank_sides((query, np.array([[1]])), (gallery, labels), first=100)
    assert found.first.tolist() == [[3, 1, 0, 2, 4]]  # of the two zeros the less relevant first
    assert found.levels.tolist() == [[0, 0, 1, 0, 0]]


def test_a_gallery_that_does_not_fit_the_device_is_one_line(monkeypatch) -> None:
    def short(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")

    monkeypatch.setattr("hgld.evaluate.ranking.rank_blocks", short)
    side = np.eye(2, dtype=np.float32), np.eye(2, dtype=np.int64)
    with pytest.raises(HgldError, match=r"out of memory while ranking on cpu; .*evaluate\.device"):
        next(rank_sides(side, side, device="cpu"))


def test_half_precision_has_embeddings_of_its_own(shards: Path, run: Path, tmp_path: Path) -> None:
    exact = embed(shards, run, tmp_path / "x")
    half = embed(shards, run, tmp_path / "y", precision="bf16")
    assert not set(exact.values()) & set(half.values())
    for one, other in zip(sorted(exact), sorted(half), strict=True):
        a, b = (np.load(BytesIO(found[name])) for found, name in ((exact, one), (half, other)))
        np.testing.assert_allclose(np.linalg.norm(b, axis=1), 1, atol=1e-6)
        assert ((a * b).sum(1) > 0.99).all()
    with pytest.raises(UsageError, match=r"evaluate\.precision fp16 needs a GPU"):
        embed(shards, run, tmp_path / "z", precision="fp16")


def test_the_rate_and_the_share_of_loading_are_reported(
    shards: Path, run: Path, tmp_path: Path
) -> None:
    heard: list[str] = []
    with watched_by(None, heard.append):
        embed(shards, run, tmp_path)
        embed(shards, run, tmp_path)  # all files are intact
    (line,) = heard
    assert re.fullmatch(
        r"Embedding with m: \d+ images, [\d,]+ images/s; reading and decoding \d+ % of the time, "
        r"the network \d+ %",
        line,
    )


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_as_for_a_gpu_have_the_same_vectors(
    workers: int, shards: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = embed(shards, run, tmp_path / "threads")
    monkeypatch.setattr(embeddings, "_embed_in_threads", embeddings._embed_read_ahead)
    ahead = embed(shards, run, tmp_path / "ahead", batch_size=5, workers=workers)
    for name, content in threads.items():
        found, truth = (np.load(BytesIO(one)) for one in (ahead[name], content))
        np.testing.assert_allclose(found, truth, atol=1e-5, err_msg=name)


def test_as_for_a_gpu_the_next_batch_is_read_while_the_network_computes(
    shards: Path, run: Path, tmp_path: Path
) -> None:
    (model,) = find_models({"m": str(run)}, Path("no runs"))
    store = EmbeddingStore(tmp_path, EvaluateOptions(batch_size=1))
    tasks = store._tasks(model, "", Shards.read(shards).side("train"))
    task = max(tasks, key=lambda task: len(task.rows))
    read, computed = list[object](), list[object]()

    def load(photo: object) -> torch.Tensor:
        read.append(photo)
        return torch.zeros(1)

    def compute(photos: torch.Tensor) -> np.ndarray:
        computed.append(photos)
        until = time.monotonic() + 120
        while len(read) < min(len(computed) + 1, len(task.rows)):
            assert time.monotonic() < until, "the next photo is not read meanwhile"
            time.sleep(0.001)
        return photos.numpy()

    given = task, Encoder(torch.nn.Identity(), load), compute
    found = list(embeddings._embed_read_ahead(*given))
    assert len(found) == len(computed) == len(read) == len(task.rows) >= 4
