"""How much longer other libraries take for the same values, all in one run on the same input.

Each pair computes one value by hgld and by another library (extra ``bench``), on one thread; the
values must agree. A figure above 1 means that hgld is faster. ranx gets a run that is already built
and sorted, faiss returns the first 100 images only; hgld always begins with the embeddings and
ranks the whole gallery. open-metric-learning has an environment of its own (``make oml``); without
it the row is missing. Shards are read from the page cache, one image at a time.
"""

import json
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import simplejpeg
import torch
from torch import Tensor

from hgld.ranking import losses, metrics
from hgld.ranking.levels import shared_levels
from hgld.shards import read_index
from tests.benchmarks.cases import embeddings_of, labels_of
from tests.benchmarks.meters import Row, fastest
from tests.benchmarks.shards import make_source, open_images, webdataset_of, write_shards

FIRST = 100
OML = Path("build/oml")
Pair = tuple[Callable[[], float], Callable[[], float]]  # by hgld, by the other
Sides = tuple[Tensor, Tensor, Tensor, Tensor]  # query, its labels, gallery, its labels


def rows(
    size: int = 20_000, queries: int = 64, batch: int = 1024, samples: int = 3000
) -> list[Row]:
    """Metrics, a search, a loss and the reading of shards; named ``WORK, of LIBRARY``."""
    labels = labels_of(size, "2")
    vectors = embeddings_of(labels)
    chosen = torch.arange(size) % (size // queries) == 0
    sides = vectors[chosen], labels[chosen], vectors[~chosen], labels[~chosen]
    with tempfile.TemporaryDirectory() as folder:
        table = []
        pairs = _rankings(sides, vectors, labels, batch) | _readings(Path(folder), samples)
        for name, (ours, theirs) in pairs.items():
            assert abs(ours() - theirs()) < 1e-4, (name, ours(), theirs())
            best = fastest({"ours": ours, "theirs": theirs})
            table.append(Row(name, best["theirs"] / best["ours"], "x", seconds=best["ours"]))
        if (OML / "installed").exists():
            table.append(_open_metric_learning(Path(folder), sides))
        else:
            print("open-metric-learning is not installed: it has no row (make oml installs it)")
        return table


def _own(sides: Sides, name: str) -> Callable[[], float]:
    return lambda: metrics.evaluate(*sides, [name]).mean()[name]


def _rankings(sides: Sides, vectors: Tensor, labels: Tensor, batch: int) -> dict[str, Pair]:
    _, q_labels, _, g_labels = sides
    return {
        "AP, of plain numpy": (_own(sides, "AP"), _numpy("AP", *sides)),
        "H-AP, of plain numpy": (_own(sides, "H-AP"), _numpy("H-AP", *sides)),
        "AP, of torchmetrics": (_own(sides, "AP"), _torchmetrics(*sides)),
        "mAP@R, of pytorch-metric-learning": (_own(sides, "mAP@R"), _metric_learning(*sides)),
        "AP, of ranx": (_own(sides, "AP"), _ranx("map", *sides)),
        "NDCG, of ranx": (_own(sides, "NDCG"), _ranx("ndcg_burges", *sides)),
        f"first {FIRST} images, of faiss": (
            lambda: _share_of_class(
                metrics.rank_gallery(*sides, first=FIRST).first, q_labels, g_labels
            ),
            _faiss(*sides),
        ),
        "SupCon, of pytorch-metric-learning": _sup_con(vectors[:batch], labels[:batch]),
    }


def _numpy(name: str, query: Tensor, q_labels: Tensor, gallery: Tensor, g_labels: Tensor):
    """All queries at once: argsort, cumulative sums, Eq. 20."""
    queries, images = query.numpy(), gallery.numpy()
    q_classes, g_classes = q_labels.numpy(), g_labels.numpy()
    depth = q_classes.shape[1]
    places = np.arange(1, len(images) + 1)

    def work() -> float:
        same = q_classes[:, None, :] == g_classes  # (Q, G, L)
        levels = np.logical_and.accumulate(same, axis=2).sum(2)
        ranked = np.take_along_axis(levels, np.argsort(-(queries @ images.T), axis=1), 1)
        some = ranked[(ranked == depth).any(1)] if name == "AP" else ranked
        above = [(some >= level).cumsum(1) for level in range(1, depth + 1)]
        if name == "AP":
            hits = some == depth
            return float(((above[-1] / places * hits).sum(1) / hits.sum(1)).mean())
        counts = [(some == level).sum(1) for level in range(1, depth + 1)]
        shares = [level / depth / np.maximum(n, 1) for level, n in enumerate(counts, 1)]
        # min(r, s) as a sum of steps: a finer level counts more here
        steps = np.diff([np.zeros(len(some)), *shares], axis=0)
        relevance, h_rank = np.zeros(some.shape), np.zeros(some.shape)
        for level, step in enumerate(steps, 1):
            relevance += step[:, None] * (some >= level)
            h_rank += step[:, None] * above[level - 1] * (some >= level)
        return float(((h_rank / places).sum(1) / relevance.sum(1)).mean())

    return work


def _readings(folder: Path, samples: int) -> dict[str, Pair]:
    shards = write_shards(folder, "shards", make_source(folder / "source", samples))
    index, images = read_index(shards), open_images(shards)
    files = sorted(shards.glob("*.tar"))
    order = np.random.default_rng(0).permutation(samples).tolist()
    tars = {file.name: tarfile.open(file) for file in files}  # noqa: SIM115 (read until the end)
    members = {(name, m.offset_data): m for name, tar in tars.items() for m in tar.getmembers()}
    keys = list(zip(index["shard"][order], index["offset"][order], strict=True))

    def in_order() -> float:
        return sum(len(bytes(jpeg)) for _, jpeg in images.iterate(range(samples)))

    def by_tarfile() -> float:
        total = 0
        for file in files:
            with tarfile.open(file) as tar:
                jpegs = (member for member in tar if member.name.endswith(".jpg"))
                total += sum(len(tar.extractfile(jpeg).read()) for jpeg in jpegs)
        return total

    def pixels(jpegs) -> float:
        decode = simplejpeg.decode_jpeg
        return sum(decode(jpeg, colorspace="RGB").nbytes for jpeg in jpegs)

    return {
        "read in order, of webdataset": (
            in_order,
            lambda: sum(len(sample["jpg"]) for sample in webdataset_of(files)),
        ),
        "read in order, of tarfile": (in_order, by_tarfile),
        "read at random, of tarfile": (
            lambda: sum(len(images.read_bytes(row)) for row in order),
            lambda: sum(len(tars[at[0]].extractfile(members[at]).read()) for at in keys),
        ),
        "read in order and decode, of webdataset": (
            lambda: pixels(jpeg for _, jpeg in images.iterate(range(samples))),
            lambda: sum(sample["jpg"].nbytes for sample in webdataset_of(files, "rgb8")),
        ),
    }


def _torchmetrics(query: Tensor, q_labels: Tensor, gallery: Tensor, g_labels: Tensor):
    from torchmetrics.functional.retrieval import retrieval_average_precision

    def work() -> float:
        scores = query @ gallery.T
        relevant = q_labels[:, -1:] == g_labels[:, -1]
        some = relevant.any(1).nonzero()[:, 0]
        found = [retrieval_average_precision(scores[q], relevant[q]) for q in some]
        return float(torch.stack(found).mean())

    return work


def _open_metric_learning(folder: Path, sides: Sides) -> Row:
    query, q_labels, gallery, g_labels = (side.numpy() for side in sides)
    classes = {"query_classes": q_labels[:, -1], "gallery_classes": g_labels[:, -1]}
    np.savez(folder / "sides.npz", query=query, gallery=gallery, **classes)
    script = Path(__file__).with_name("open_metric_learning.py")
    command = [OML / "bin" / "python", script, folder / "sides.npz"]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    ours = _own(sides, "AP")
    assert abs(ours() - found["AP"]) < 1e-4, (ours(), found)
    seconds = fastest({"ours": ours})["ours"]
    name = "AP, of " + " with ".join(" ".join(one) for one in found["versions"].items())
    return Row(name, found["seconds"] / seconds, "x", seconds=seconds)


def _metric_learning(query: Tensor, q_labels: Tensor, gallery: Tensor, g_labels: Tensor):
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN

    name = "mean_average_precision_at_r"
    knn = CustomKNN(CosineSimilarity())
    calculator = AccuracyCalculator((name,), k="max_bin_count", knn_func=knn)
    fine = query, q_labels[:, -1], gallery, g_labels[:, -1]
    return lambda: calculator.get_accuracy(*fine)[name]


def _ranx(name: str, query: Tensor, q_labels: Tensor, gallery: Tensor, g_labels: Tensor):
    from ranx import Qrels, Run, evaluate

    numba.set_num_threads(1)
    shared = shared_levels(q_labels, g_labels)
    if name == "map":
        shared = (shared == shared.max()).to(shared)
    ids = [f"g{number}" for number in range(len(gallery))]
    relevant: dict[str, dict[str, int]] = {}
    scores: dict[str, dict[str, float]] = {}
    for q, (levels, found) in enumerate(zip(shared, (query @ gallery.T).tolist(), strict=True)):
        if levels.max() <= 0:
            continue
        relevant[f"q{q}"] = {ids[g]: int(levels[g]) for g in levels.nonzero()[:, 0].tolist()}
        scores[f"q{q}"] = dict(zip(ids, found, strict=True))
    qrels, run = Qrels(relevant), Run(scores)
    return lambda: float(evaluate(qrels, run, name))


def _faiss(query: Tensor, q_labels: Tensor, gallery: Tensor, g_labels: Tensor):
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(gallery.shape[1])
    index.add(gallery.numpy())

    def work() -> float:
        _, found = index.search(query.numpy(), FIRST)
        return _share_of_class(found, q_labels, g_labels)

    return work


def _share_of_class(first: Tensor | np.ndarray, q_labels: Tensor, g_labels: Tensor) -> float:
    found = g_labels[torch.as_tensor(first).long(), 0]  # (Q, FIRST) coarse classes
    return float((found == q_labels[:, :1]).double().mean())


def _sup_con(vectors: Tensor, labels: Tensor) -> tuple[Callable[[], float], Callable[[], float]]:
    from pytorch_metric_learning.losses import SupConLoss

    def differentiate(loss: Callable[..., Tensor], classes: Tensor) -> float:
        given = vectors.clone().requires_grad_()
        found = loss(given, classes)
        found.backward()
        return float(found)

    return (
        lambda: differentiate(losses.SupCon(), labels),
        lambda: differentiate(SupConLoss(), labels[:, -1]),
    )
