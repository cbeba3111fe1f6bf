import math

import pytest
import torch

from hgld.config import RunOptions
from hgld.model import build_image_model
from hgld.train.learner import build_optimizers, learning_rate, set_rates
from hgld.train.objective import build_loss
from tests.made_shards import small_options
from tests.train.test_objective import LABELS


def optimizers_of(run: RunOptions, **options: object) -> list[torch.optim.Optimizer]:
    model = build_image_model(small_options(**options))
    return build_optimizers(model, build_loss(run, LABELS, 8, 0), run)


def test_backbone_head_and_proxies_learn_at_their_own_rates() -> None:
    run = RunOptions(lr=1e-5, head_lr=2e-5, proxy_lr=1.0, weight_decay=4e-4, proxy_weight_decay=0.5)
    (optimizer,) = optimizers_of(run)
    set_rates([optimizer], run, 0)
    found = [(g["part"], g["lr"], g["weight_decay"]) for g in optimizer.param_groups]
    assert found == [("backbone", 1e-5, 4e-4), ("head", 2e-5, 4e-4), ("proxies", 1.0, 0.5)]
    model = build_image_model(small_options())
    assert sum(len(g["params"]) for g in optimizer.param_groups) == len([*model.parameters()]) + 1


def test_a_loss_without_proxies_has_no_group() -> None:
    (optimizer,) = optimizers_of(RunOptions(loss="SmoothAP"))
    assert [group["part"] for group in optimizer.param_groups] == ["backbone", "head"]


def test_the_power_of_gem_learns_with_the_backbone() -> None:
    plain, gem = (optimizers_of(RunOptions(), pooling=pooling)[0] for pooling in ("avg", "gem"))
    counts = [len(o.param_groups[0]["params"]) for o in (plain, gem)]
    assert counts[1] == counts[0] + 1


def test_proxies_keep_adam_where_the_model_has_another_optimiser() -> None:
    sgd, adam = optimizers_of(RunOptions(optimizer="sgd"))
    assert isinstance(sgd, torch.optim.SGD) and isinstance(adam, torch.optim.Adam)
    assert sgd.param_groups[0]["nesterov"] and sgd.param_groups[0]["momentum"] == 0.9
    assert [group["part"] for group in adam.param_groups] == ["proxies"]
    (both,) = optimizers_of(RunOptions(optimizer="sgd", proxy_optimizer="sgd"))
    assert len(both.param_groups) == 3


def test_cosine_ends_at_each_parts_own_least_rate() -> None:
    run = RunOptions(steps=100, lr=1.0, min_lr=0.2, proxy_lr=10.0, proxy_min_lr=0.1)
    half = learning_rate(run, "backbone", 50)
    assert half == pytest.approx(0.6)  # the middle of 1 and 0.2
    near = 0.5 * (1 + math.cos(math.pi * 0.99))
    assert learning_rate(run, "backbone", 99) == pytest.approx(0.2 + 0.8 * near)
    assert learning_rate(run, "proxies", 99) == pytest.approx(0.1 + 9.9 * near)


def test_the_backbone_stands_still_in_the_warm_up_and_the_schedule_begins_behind_it() -> None:
    run = RunOptions(steps=10, warmup_steps=4, lr=1.0, head_lr=2.0, proxy_lr=3.0)
    rates = [[learning_rate(run, part, step) for step in (0, 3, 4, 7)] for part in
             ("backbone", "head", "proxies")]  # fmt: skip
    assert rates[0] == pytest.approx([0.0, 0.0, 1.0, 0.5])
    assert rates[1] == pytest.approx([2.0, 2.0, 2.0, 1.0])
    assert rates[2] == pytest.approx([3.0, 3.0, 3.0, 1.5])


def test_a_constant_rate_stays() -> None:
    run = RunOptions(steps=9, schedule="constant", lr=0.3)
    assert {learning_rate(run, "backbone", step) for step in range(9)} == {0.3}
