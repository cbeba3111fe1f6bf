import numpy as np
import pytest
from torch import nn

from hgld.config import RunOptions
from hgld.errors import UsageError
from hgld.model import build_image_model
from hgld.ranking.steps import UpperStep
from hgld.train.objective import build_loss, parameter_groups
from tests.made_shards import small_options

LABELS = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]])


def loss_of(name: str, **options: float) -> nn.Module:
    return build_loss(RunOptions(loss=name, loss_options=options), LABELS, 8, 0)


def test_a_loss_gets_the_levels_classes_and_dimensions_that_it_wants() -> None:
    assert loss_of("HAPPIER").proxies.shape == (4, 8)
    assert loss_of("CSL").class_labels.tolist() == LABELS.tolist()
    assert not list(loss_of("SupHAP").parameters())


def test_options_reach_the_loss_and_its_step() -> None:
    loss = loss_of("HAPPIER", lam=0.5, alpha=3.0, rho=7.0)
    assert loss.lam == 0.5 and loss.rank.alpha == 3.0
    assert loss.rank.step == UpperStep(rho=7.0)


def test_an_option_that_the_loss_does_not_have_is_named_with_the_nearest() -> None:
    with pytest.raises(
        UsageError, match="the loss HAPPIER has no option 'lamb'; did you mean 'lam'"
    ):
        loss_of("HAPPIER", lamb=0.1)


def test_the_proxies_are_drawn_from_the_seed() -> None:
    again = build_loss(RunOptions(loss="HAPPIER"), LABELS, 8, 0)
    other = build_loss(RunOptions(loss="HAPPIER"), LABELS, 8, 1)
    assert (loss_of("HAPPIER").proxies == again.proxies).all()
    assert (again.proxies != other.proxies).any()


def test_backbone_head_and_proxies_learn_at_their_own_rates() -> None:
    run = RunOptions(lr=1e-5, head_lr=2e-5, proxy_lr=1.0, weight_decay=4e-4)
    model = build_image_model(small_options())
    groups = parameter_groups(model, loss_of("HAPPIER"), run)
    assert [(g["lr"], g["weight_decay"]) for g in groups] == [(1e-5, 4e-4), (2e-5, 4e-4), (1.0, 0)]
    assert sum(len(g["params"]) for g in groups) == len(list(model.parameters())) + 1


def test_a_loss_without_proxies_has_no_group() -> None:
    assert (
        len(parameter_groups(build_image_model(small_options()), loss_of("SmoothAP"), RunOptions()))
        == 2
    )
