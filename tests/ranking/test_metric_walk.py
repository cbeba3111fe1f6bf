"""The walk of scores through ``metrics.evaluate``: few modules, none of them a detour."""

import torch

from hgld.ranking import metrics
from tests.walks import modules_passed

WALK = [
    "ranking.evaluation",  # products of a block of queries with the gallery
    "ranking.checks",  # tensors, precision
    "ranking.levels",  # label paths in, relevance of a level out
    "ranking.kernels.rank_cpu",  # scores to the level at each rank
    "ranking.rankings",  # names of metrics to what the kernel reads
    "ranking.kernels.metrics_cpu",  # levels by rank to values
]


def test_scores_cross_six_modules_to_their_metrics() -> None:
    make = torch.Generator().manual_seed(0)
    vectors = torch.randn(40, 8, generator=make)
    labels = torch.arange(40)[:, None] // torch.tensor([20, 10, 5])

    def work() -> None:
        metrics.evaluate(vectors, labels, vectors, labels, ["H-AP", "NDCG"], exclude_self=True)

    work()  # with the first use's check of the kernel
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a profile is of one thread
    try:
        assert modules_passed(work) == WALK
    finally:
        torch.set_num_threads(threads)
