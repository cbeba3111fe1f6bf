"""The same losses and metrics on a GPU; skipped where there is none."""

import pytest
import torch

from hgld.ranking import losses, metrics
from tests.gpu.devices import needs_cpu_kernels
from tests.ranking.ranking_oracles import random_pairs

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.filterwarnings("ignore::hgld.ranking.levels.RelevanceWarning"),
]

LOSSES = {
    "sup_h_ap": lambda s, x: losses.sup_h_ap(s, x, 3),
    "sup_ap": losses.sup_ap,
    "sup_ndcg": losses.sup_ndcg,
    "sup_recall": losses.sup_recall,
    "smooth_ap": losses.smooth_ap,
    "soft_bin_ap": losses.soft_bin_ap,
    "blackbox_ap": losses.blackbox_ap,
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_the_same_on_a_gpu(name) -> None:
    scores, levels = random_pairs(0, queries=30, gallery=130)  # few enough for plain torch
    here, there = scores.requires_grad_(), scores.detach().cuda().requires_grad_()
    one, two = LOSSES[name](here, levels), LOSSES[name](there, levels.cuda())
    torch.testing.assert_close(one, two.cpu())
    one.sum().backward()
    two.sum().backward()
    torch.testing.assert_close(here.grad, there.grad.cpu())


def test_an_evaluation_is_the_same_on_a_gpu() -> None:
    needs_cpu_kernels()
    make = torch.Generator().manual_seed(0)
    # coordinates of 1/16 make every inner product exact on both machines
    gallery = torch.randint(-4, 5, (300, 8), generator=make) / 16
    labels = torch.randint(0, 3, (300, 2), generator=make)
    names = ["H-AP", "NDCG", "ASI", "AP:1", "R@5:2", "mAP@R:2"]
    one = metrics.evaluate(gallery, labels, gallery, labels, names, exclude_self=True)
    two = metrics.evaluate(
        gallery.cuda(), labels.cuda(), gallery.cuda(), labels.cuda(), names, exclude_self=True
    )
    for name in names:
        torch.testing.assert_close(one.per_query[name], two.per_query[name], equal_nan=True)
