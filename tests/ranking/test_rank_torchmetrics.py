"""Metrics for torchmetrics, and losses with the call of pytorch-metric-learning."""

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_metric_learning.distances import DotProductSimilarity
from pytorch_metric_learning.losses import SupConLoss
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from torch.nn import functional as F

from hgld.errors import ShapeError, UsageError
from hgld.ranking import losses, metrics
from hgld.ranking.metric_learning import MetricLearningLoss
from hgld.ranking.torchmetrics import MutualRetrieval, RetrievalFromGallery
from tests.ranks import run_to_end

NAMES = ["H-AP", "CPCC", "NDCG", "AP:1", "R@1", "MS", "mAP@1k"]
pytestmark = pytest.mark.filterwarnings("ignore::hgld.ranking.levels.RelevanceWarning")


def images(count: int = 24, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    make = torch.Generator().manual_seed(seed)
    landmark = torch.randint(0, 6, (count,), generator=make)
    vectors = F.normalize(torch.randn(count, 5, generator=make), dim=1)
    return vectors, torch.stack([landmark // 3, landmark], 1)


def test_queries_that_come_in_batches_have_the_means_of_all() -> None:
    (query, q_labels), gallery = images(), images(40, 1)
    metric = RetrievalFromGallery(NAMES, *gallery)
    for part in torch.arange(24).split(7):
        metric.update(query[part], q_labels[part])
    expected = metrics.evaluate(query, q_labels, *gallery, NAMES).mean()
    assert {n: float(v) for n, v in metric.compute().items()} == pytest.approx(expected)
    metric.reset()
    assert not metric.counts.any()


def test_metrics_of_a_collection_are_computed_one_by_one() -> None:
    """Those that were equal after the first batch were taken for one."""
    from torchmetrics import MetricCollection  # it imports torchvision, as hgld's module does

    vectors, labels = torch.eye(4), torch.arange(4)[:, None]
    found, alone = (
        {
            "one": RetrievalFromGallery(["R@1"], vectors, labels),
            "other": RetrievalFromGallery(["R@1"], vectors, labels[[0, 1, 3, 2]]),
            "last": RetrievalFromGallery(["P@2"], vectors, labels),
        }
        for _ in range(2)
    )
    collection = MetricCollection(found)
    for part in torch.arange(4).split(2):
        for metric in (collection, *alone.values()):
            metric.update(vectors[part], labels[part])
    expected = [value.item() for metric in alone.values() for value in metric.compute().values()]
    assert expected == [1.0, 0.5, 0.5]
    values = collection.compute()
    assert [values["one_R@1"], values["other_R@1"], values["last_P@2"]] == expected


@pytest.mark.parametrize("convert", ["half", "bfloat16", "to"])
def test_a_metric_keeps_its_precision_in_a_module_of_half_precision(convert) -> None:
    """Lightning's bf16-true: sums of queries had three digits, and R@1 was above 1."""
    (query, q_labels), (gallery, g_labels) = images(), images(40, 1)
    metrics_of = RetrievalFromGallery(NAMES, gallery, g_labels), MutualRetrieval(NAMES)
    module = torch.nn.ModuleList(metrics_of)
    metrics_of[1].update(query, q_labels)
    getattr(module, convert)(*[torch.bfloat16] * (convert == "to"))
    for _ in range(20):
        metrics_of[0].update(query, q_labels)
    expected = (
        metrics.evaluate(query, q_labels, gallery, g_labels, NAMES),
        metrics.evaluate(query, q_labels, query, q_labels, NAMES, exclude_self=True),
    )
    for metric, one in zip(metrics_of, expected, strict=True):
        found = {name: float(value) for name, value in metric.compute().items()}
        assert found == pytest.approx(one.mean())


def test_a_gallery_moves_with_its_metric_and_is_no_buffer() -> None:
    """DistributedDataParallel sent a buffer to all processes at each step of training."""
    metric = RetrievalFromGallery(["R@1"], *images())
    assert not [*metric.buffers()] and not metric.state_dict()
    metric.to("meta")
    assert metric.gallery.is_meta and metric.gallery_labels.is_meta and metric.sums.is_meta


def test_levels_that_weigh_less_are_warned_of_once(recwarn: pytest.WarningsRecorder) -> None:
    labels = torch.tensor([[0, 0]] * 9 + [[0, 1]])
    warnings.simplefilter("always")
    metric = RetrievalFromGallery(["H-AP"], torch.randn(10, 4), labels)
    for size in (1, 2):
        metric.update(torch.randn(size, 4), labels[:size])
    metric.compute()
    assert [str(found.message)[:20] for found in recwarn] == ["3 of 3 queries have "]


def test_all_against_all_leaves_each_query_out() -> None:
    vectors, labels = images()
    metric = MutualRetrieval(NAMES)
    for part in torch.arange(24).split(7):
        metric.update(vectors[part], labels[part])
    expected = metrics.evaluate(vectors, labels, vectors, labels, NAMES, exclude_self=True).mean()
    found = {name: value.item() for name, value in metric.compute().items()}
    assert found == expected  # all digits


def test_a_level_that_the_labels_lack_is_refused_before_any_ranking() -> None:
    """MutualRetrieval refused it when it computed, after all images had been embedded."""
    vectors, labels = images()
    for levels in (None, ["kind", "landmark"]):
        with pytest.raises(UsageError, match="R@1:genus: level 'genus' is none of"):
            MutualRetrieval(["R@1:genus"], levels).update(vectors, labels)
        with pytest.raises(UsageError, match="R@1:genus: level 'genus' is none of"):
            RetrievalFromGallery(["R@1:genus"], vectors, labels, levels)


def test_cpcc_alone_ranks_nothing() -> None:
    metric = RetrievalFromGallery(["CPCC"], *images(40, 1))
    metric.update(*images())
    assert metric.compute()["CPCC"].item() == metrics.cpcc(*images(40, 1))


def test_one_name_and_other_arrays_are_refused_in_words() -> None:
    vectors, labels = images()
    for make in (MutualRetrieval, lambda names: RetrievalFromGallery(names, vectors, labels)):
        with pytest.raises(ShapeError, match="names is 'R@1'; expected a list of metrics"):
            make("R@1")
    with pytest.raises(ShapeError, match="gallery is of type ndarray"):
        RetrievalFromGallery(["R@1"], vectors.numpy(), labels)
    with pytest.raises(ShapeError, match="labels is of type list"):
        MutualRetrieval(["R@1"]).update(vectors, labels.tolist())


def test_metrics_without_images_and_batches_that_do_not_fit_are_refused_in_words() -> None:
    vectors, labels = images()
    metric = MutualRetrieval(["R@1"])
    with pytest.warns(UserWarning), pytest.raises(ShapeError, match="no images; call update"):
        metric.compute()
    metric.update(vectors[:0], labels[:0])
    with pytest.raises(ShapeError, match="no images; call update"):
        metric.compute()
    with pytest.raises(ShapeError, match=r"embeddings have shape \(24, 5\) and labels \(24,\)"):
        metric.update(vectors, labels[:, 1])
    with pytest.raises(ShapeError, match=r"\(images, 5\) of torch.float32 and \(images, 4\) of"):
        metric.update(vectors[:, 1:], labels)
    with pytest.raises(ShapeError, match=r"labels are \(images, 2\).* and \(images, 1\)"):
        metric.update(vectors, labels[:, :1])
    with pytest.raises(ShapeError, match=r"gallery_labels have shape \(23, 2\); expected \(24"):
        RetrievalFromGallery(["R@1"], vectors, labels[1:])


def of_two_processes(folder: str) -> None:
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    vectors, labels = images()
    own = slice(0, 15) if rank == 0 else slice(15, 24)
    found = []
    for metric in (RetrievalFromGallery(NAMES, *images(40, 1)), MutualRetrieval(NAMES)):
        metric.update(vectors[own], labels[own])
        found.append(metric.compute())
    mutual = MutualRetrieval(NAMES)
    if rank == 0:
        mutual.update(vectors, labels)
    found.append(mutual.compute())
    with pytest.raises(ShapeError, match="no images"):
        MutualRetrieval(NAMES).compute()
    mutual.update(vectors, labels[:, rank:])  # one column in the other process
    with pytest.raises(ShapeError, match="labels are"):
        mutual.compute()
    torch.save(found, Path(folder) / f"rank{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_find_the_metrics_of_one(tmp_path: Path) -> None:
    code = f"from {__name__} import of_two_processes; of_two_processes({str(tmp_path)!r})"
    run_to_end(2, "-c", code)
    vectors, labels = images()
    expected = [
        metrics.evaluate(vectors, labels, *images(40, 1), NAMES).mean(),
        *[metrics.evaluate(vectors, labels, vectors, labels, NAMES, exclude_self=True).mean()] * 2,
    ]
    for rank in range(2):
        for found, one in zip(torch.load(tmp_path / f"rank{rank}.pt"), expected, strict=True):
            assert {n: float(v) for n, v in found.items()} == pytest.approx(one)


def test_metrics_of_the_libraries_are_those_under_their_names_here() -> None:
    from torchmetrics.functional import retrieval

    (query, q_labels), (gallery, g_labels) = images(), images(40, 1)
    q_labels[3] = 99  # nothing is relevant to it
    by_torchmetrics = {
        "P@R": retrieval.retrieval_r_precision,
        "MRR": retrieval.retrieval_reciprocal_rank,
        "MRR@3": partial(retrieval.retrieval_reciprocal_rank, top_k=3),
        "R@3": partial(retrieval.retrieval_hit_rate, top_k=3),
        "P@3": partial(retrieval.retrieval_precision, top_k=3),
        "AP": retrieval.retrieval_average_precision,
        "NDCG": retrieval.retrieval_normalized_dcg,
    }
    by_metric_learning = {
        "R@1": "precision_at_1",
        "P@R": "r_precision",
        "MRR": "mean_reciprocal_rank",
        "AP": "mean_average_precision",
        "mAP@R": "mean_average_precision_at_r",
    }
    sides = query, q_labels[:, 1:], gallery, g_labels[:, 1:]
    found = metrics.evaluate(*sides, [*by_torchmetrics, "R@1", "mAP@R"])
    scores = query @ gallery.T + 1  # torchmetrics' AP counts no positive with a score of 0 or less
    relevant = q_labels[:, 1:] == g_labels[:, 1]
    for i in relevant.any(1).nonzero()[:, 0].tolist():
        for name, function in by_torchmetrics.items():
            value = found.per_query[name][i].item()
            assert value == pytest.approx(function(scores[i], relevant[i]).item(), abs=1e-6), name
    nearest = CustomKNN(DotProductSimilarity())
    calculator = AccuracyCalculator([*by_metric_learning.values()], knn_func=nearest, k=None)
    values = calculator.get_accuracy(query, q_labels[:, 1], gallery, g_labels[:, 1])
    for name, other in by_metric_learning.items():
        assert found.mean()[name] == pytest.approx(values[other], abs=1e-6), name


def test_a_loss_is_called_as_the_librarys() -> None:
    (vectors, labels), (others, other_labels) = images(), images(40, 1)
    own, library = MetricLearningLoss(losses.SupCon()), SupConLoss()
    given = vectors, labels[:, 1], None, others, other_labels[:, 1]
    torch.testing.assert_close(own(*given), library(*given))
    torch.testing.assert_close(own(*given[:2]), library(*given[:2]))
    hierarchical = MetricLearningLoss(losses.SupHAP(2))
    assert hierarchical(vectors, labels) == losses.SupHAP(2)(vectors, labels)


@pytest.mark.parametrize("loss", ["SupAP", losses.SupAP, None])
def test_a_loss_that_is_no_module_is_refused_in_words(loss: Any) -> None:
    with pytest.raises(ShapeError, match=r"expected a module such as .*SupAP\(\)"):
        MetricLearningLoss(loss)


def test_mined_pairs_and_references_without_use_are_refused() -> None:
    vectors, labels = images()
    with pytest.raises(ShapeError, match="call without a miner"):
        MetricLearningLoss(losses.SupAP())(vectors, labels, (labels,) * 3)
    proxies = MetricLearningLoss(losses.NormSoftmax(6, 5))
    with pytest.raises(ShapeError, match="ProxyCalibration learns from the batch alone"):
        proxies(vectors, labels, ref_emb=vectors, ref_labels=labels)
