from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import nn

from hgld.config import LossName, RunOptions
from hgld.errors import UsageError
from hgld.ranking.rank_loss import takes_references
from hgld.ranking.steps import UpperStep
from hgld.train.objective import build_loss, csl_margins

LABELS = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]])


def loss_of(name: str, **options: object) -> nn.Module:
    return build_loss(RunOptions(loss=name, loss_options=options), LABELS, 8, 0)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    embeddings = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))
    return embeddings, torch.from_numpy(LABELS[[0, 0, 1, 1, 2, 2, 3, 3]])


@pytest.mark.parametrize("name", get_args(LossName))
def test_every_loss_can_be_built_and_teaches(name: str) -> None:
    embeddings, labels = batch()
    loss = loss_of(name)(embeddings.requires_grad_(), labels)
    loss.backward()
    assert loss.shape == () and embeddings.grad.abs().sum() > 0


def test_a_loss_gets_the_levels_classes_and_dimensions_that_it_wants() -> None:
    assert loss_of("HAPPIER").proxies.shape == (4, 8)
    assert loss_of("CSL").class_labels.tolist() == LABELS.tolist()
    assert not list(loss_of("SupHAP").parameters())


def test_options_reach_the_loss_and_its_step() -> None:
    loss = loss_of("HAPPIER", lam=0.5, alpha=3.0, rho=7.0)
    assert loss.lam == 0.5 and loss.rank.alpha == 3.0
    assert loss.rank.step == UpperStep(rho=7.0)


def test_words_numbers_and_lists_reach_the_loss_as_it_wants_them() -> None:
    assert loss_of("ROADMAP", calibration="pair").calibration == "pair"
    ks = loss_of("SupRecall", ks=[1.0, 4.0]).ks
    assert ks == (1, 4) and all(isinstance(k, int) for k in ks)
    assert loss_of("SoftBinAP", bins=25, low=0).bins == 25
    assert loss_of("BlackBoxRecall", weight="loglog", include_self=True).include_self


def test_a_preset_fills_in_what_is_not_given() -> None:
    loss = loss_of("RODRecall", preset="suprank_inat", temperature=2.0)
    assert loss.lam == 0.5 and loss.rank.temperature == 2.0
    assert loss.rank.step == UpperStep(start=0.0, offset=1.0)
    assert loss_of("PairCalibration", preset="paper").alpha == 0.9
    assert loss_of("BlackBoxAP", preset="paper").lam == 4.0  # not the weight of a calibration
    assert loss_of("HAPPIER", preset="text").rank.compare == "relevance"
    assert loss_of("BlackBoxAP", preset="text").ranks == "count"
    for loss in ("ROADMAP", "RODRecall"):  # Eq. 12 and 17
        assert loss_of(loss, preset="text").calibration == "pair"
    for name in ("suprank_sop", "suprank_inat"):
        loss = loss_of("HAPPIER", preset=name).rank
        assert loss.compare == "level" and loss.include_self
        assert loss.step(torch.zeros(1)) == 0.5  # the authors' H-minus(0)
        assert loss_of("SmoothRecall", preset=name).include_self
        assert loss_of("ROADMAP", preset=name).calibration == "proxy"
    with pytest.raises(UsageError, match=r"no preset 'sop'; there are paper"):
        loss_of("HAPPIER", preset="sop")
    softmax = loss_of("NormSoftmax", preset="paper")  # the loss at each level
    assert loss_of("HierarchicalProxies", preset="paper").eta == softmax.eta


@pytest.mark.parametrize("name", ["SupAP", "Triplet", "NormSoftmax", "ROADMAP", "RODRecall"])
def test_a_loss_at_one_level_sees_no_finer_one(name: str) -> None:
    embeddings, labels = batch()
    other = labels.clone()
    other[:, 2] = other[:, 2].flip(0)
    loss = loss_of(name, level=1)
    assert loss(embeddings, labels) == loss(embeddings, other)
    assert loss(embeddings, labels) != loss_of(name)(embeddings, labels)
    if name in ("NormSoftmax", "ROADMAP", "RODRecall"):
        assert [p.shape for p in loss.parameters()] == [(2, 8)]


@pytest.mark.parametrize("level", [0, 4, 1.5, "fine", (1.0, 2.0)])
def test_a_level_that_the_labels_do_not_have_is_named(level: Any) -> None:
    with pytest.raises(
        UsageError, match=r"level is .*; the labels have levels 1 \(coarsest\) to 3"
    ):
        loss_of("SmoothAP", level=level)


def test_a_sum_over_levels_is_the_sum_of_its_parts() -> None:
    embeddings, labels = batch()
    found = loss_of("SigmaTriplet", margin=0.2)(embeddings, labels)
    parts = [loss_of("Triplet", margin=0.2, level=level)(embeddings, labels) for level in (1, 2, 3)]
    torch.testing.assert_close(found, sum(parts))
    shapes = [p.shape for p in loss_of("SigmaNormSoftmax").parameters()]
    assert shapes == [(2, 8), (3, 8), (4, 8)]


def test_margins_of_csl_are_the_published_ones_coarse_to_fine() -> None:
    assert csl_margins(2) == (0.45, 0.25)
    assert csl_margins(3) == (0.45, 0.35, 0.25)
    assert csl_margins(7) == (0.75, 0.65, 0.55, 0.45, 0.35, 0.25, 0.15)
    assert csl_margins(1) == (0.25,) and len(csl_margins(9)) == 9


@pytest.mark.parametrize(("name", "option"), [("CSL", "margins"), ("HAPPIER", "weights")])
def test_other_numbers_of_levels_are_named(name: str, option: str) -> None:
    with pytest.raises(UsageError, match=rf"{name} has 2 {option}, but the labels have 3 levels"):
        loss_of(name, **{option: [0.5, 0.5]})


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("HAPPIER", {"lamb": 0.1}, "the loss HAPPIER has no option 'lamb'; did you mean 'lam'"),
        ("HAPPIER", {"level": 1}, "the loss HAPPIER has no option 'level'"),
        ("SigmaTriplet", {"level": 1}, "the loss Triplet has no option 'level'"),
        ("HAPPIER", {"lam": 2}, "HAPPIER: lam is 2.0; expected 0..1"),
        ("ROADMAP", {"calibration": "pairs"}, "ROADMAP: calibration: input should be 'proxy'"),
        ("SupRecall", {"ks": [1.5]}, "SupRecall: ks: input should be a valid integer"),
        ("SupAP", {"tau": "small"}, "SupAP: tau: input should be a valid number"),
        ("SmoothAP", {"tau": 0}, "train.runs: SmoothAP: tau is 0.*; expected"),
        ("HAPPIER", {"alpha": -1}, "train.runs: HAPPIER: alpha is -1.*; expected"),
        ("HAPPIER", {"weights": [1, 1, 1]}, "HAPPIER: weights have sum 3; expected 1"),
        ("HAPPIER", {"weights": [0, 0, 1], "alpha": 2}, "HAPPIER: alpha has no effect with weig"),
        ("ROADMAP", {"pair_beta": 0.5}, r'pair_beta has no effect with .* = "proxy"; .* = "pair"'),
        ("RODRecall", {"preset": "text", "eta": 1}, 'eta has no effect with calibration = "pair"'),
        ("SupRecall", {"ks": [0]}, "SupRecall: k"),
        ("SupRecall", {"temperature": 0}, "SupRecall: temperature is 0.*; expected"),
        ("SoftBinAP", {"bins": 1}, "SoftBinAP: 1 bins"),
        ("BlackBoxAP", {"lam": 0}, "BlackBoxAP: lam is 0.*; expected"),
    ],
)
def test_an_option_that_does_not_fit_is_named(name: str, options: dict, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        loss_of(name, **options)


def test_the_proxies_are_drawn_from_the_seed() -> None:
    again = build_loss(RunOptions(loss="HAPPIER"), LABELS, 8, 0)
    other = build_loss(RunOptions(loss="HAPPIER"), LABELS, 8, 1)
    assert (loss_of("HAPPIER").proxies == again.proxies).all()
    assert (again.proxies != other.proxies).any()


def test_a_memory_for_a_loss_of_the_batch_alone_is_refused() -> None:
    assert takes_references(loss_of("ROADMAP")) and not takes_references(loss_of("CSL"))
    with pytest.raises(UsageError, match=r"Triplet learns from the batch alone .* set memory = 0"):
        build_loss(RunOptions(loss="Triplet", memory=8), LABELS, 8, 0)
