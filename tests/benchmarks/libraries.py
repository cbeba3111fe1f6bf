"""How much longer other libraries take for the same values, all in one run on the same input.

Each pair computes one value by hgld and by another library (extra ``bench``), on one thread; the
values must agree. A figure above 1 means that hgld is faster. ranx gets a run that is already built
and sorted, faiss returns the first 100 images only; hgld always begins with the embeddings and
ranks the whole gallery.
"""

from collections.abc import Callable

import numba
import numpy as np
import torch
from torch import Tensor

from hgld.ranking import losses, metrics
from tests.benchmarks.cases import embeddings_of, fastest, labels_of
from tests.benchmarks.measures import Row

FIRST = 100


def rows(size: int = 20_000, queries: int = 64, batch: int = 1024) -> list[Row]:
    """Four metrics, a search and a loss."""
    labels = labels_of(size, "2")
    vectors = embeddings_of(labels)
    chosen = torch.arange(size) % (size // queries) == 0
    query, q_labels = vectors[chosen], labels[chosen]
    gallery, g_labels = vectors[~chosen], labels[~chosen]
    sides = query, q_labels, gallery, g_labels

    def own(name: str) -> Callable[[], float]:
        return lambda: metrics.evaluate(*sides, [name]).mean()[name]

    pairs = {
        "AP, of torchmetrics": (own("AP"), _torchmetrics(*sides)),
        "mAP@R, of pytorch-metric-learning": (own("mAP@R"), _metric_learning(*sides)),
        "AP, of ranx": (own("AP"), _ranx("map", *sides)),
        "NDCG, of ranx": (own("NDCG"), _ranx("ndcg_burges", *sides)),
        f"first {FIRST} images, of faiss": (
            lambda: _share_of_class(
                metrics.rank_gallery(*sides, first=FIRST).first, q_labels, g_labels
            ),
            _faiss(*sides),
        ),
        "SupCon, of pytorch-metric-learning": _sup_con(vectors[:batch], labels[:batch]),
    }
    table = []
    for name, (ours, theirs) in pairs.items():
        assert abs(ours() - theirs()) < 1e-4, (name, ours(), theirs())
        best = fastest({"ours": ours, "theirs": theirs})
        table.append(Row(name, best["theirs"] / best["ours"], "x", seconds=best["ours"]))
    return table


def _torchmetrics(query: Tensor, q_labels: Tensor, gallery: Tensor, g_labels: Tensor):
    from torchmetrics.functional.retrieval import retrieval_average_precision

    def work() -> float:
        scores = query @ gallery.T
        relevant = q_labels[:, -1:] == g_labels[:, -1]
        some = relevant.any(1).nonzero()[:, 0]
        found = [retrieval_average_precision(scores[q], relevant[q]) for q in some]
        return float(torch.stack(found).mean())

    return work


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
    shared = metrics.grades.shared_levels(q_labels, g_labels)
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
