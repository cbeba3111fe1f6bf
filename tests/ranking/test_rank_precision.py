"""Similarities stay whole whatever a caller has on for the model: TF32, bfloat16, autocast."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch

from hgld.ranking import losses, metrics
from hgld.ranking.kernels.device import whole_products
from hgld.ranking.parts import rank_part

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no GPU"))]  # fmt: skip


def products(device):
    return torch.backends.cuda.matmul if device == "cuda" else torch.backends.mkldnn.matmul


@contextmanager
def rounding(device):
    """Within, products of float32 have rounded factors."""
    before = products(device).fp32_precision
    products(device).fp32_precision = "tf32" if device == "cuda" else "bf16"
    try:
        yield
    finally:
        products(device).fp32_precision = before


ROUNDED = {"rounding": rounding, "autocast": lambda device: torch.autocast(device, torch.bfloat16)}


def batch(device, size=64):
    make = torch.Generator().manual_seed(0)
    labels = torch.arange(size)[:, None] // torch.tensor([8, 2])
    vectors = torch.nn.functional.normalize(torch.randn(size, 512, generator=make), dim=1)
    return vectors.to(device), labels.to(device)


def drawn(kind, device, **options):
    """A loss with the same weights each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return kind(**options).to(device)


RUNS = {
    "triplets": lambda e, x: losses.Triplet()(e, x),
    "mined triplets": lambda e, x: losses.Triplet(mining="semi-hard")(e, x),
    "concepts": lambda e, x: drawn(losses.CLCD, e.device, num_levels=2, dim=512)(e, x).detach(),
    "rank loss": lambda e, x: losses.SupHAP(2)(e, x),
    "pooled": lambda e, x: losses.XBMContrastive()(e, x),
    "proxies": lambda e, x: losses.proxy_calibration(e, x[:, 1], e.flip(0)),
    "evaluate": lambda e, x: metrics.evaluate(e, x, e, x, ["AP:1"], exclude_self=True).per_query[
        "AP:1"
    ],
    "parts": lambda e, x: torch.from_numpy(rank_part(e, x, e, x).runs >> 8).long(),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("way", ROUNDED)
def test_similarities_are_whole_whatever_is_on(name, device, way) -> None:
    given = batch(device)
    expected = RUNS[name](*given)
    with ROUNDED[way](device):
        found = RUNS[name](*given)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


class Seen(losses.SupAP):
    """Keeps what was on where its scores were made."""

    def per_query(self, scores, levels):
        self.on = products(scores.device.type).fp32_precision
        return super().per_query(scores, levels)


@pytest.mark.parametrize("device", DEVICES)
def test_scores_of_a_loss_are_made_with_rounding_off(device) -> None:
    loss = Seen()
    with rounding(device):
        loss(*batch(device))
    assert loss.on == "ieee"


@pytest.mark.parametrize("device", DEVICES)
def test_what_was_on_is_on_again_afterwards_even_after_an_error(device) -> None:
    with rounding(device):
        before = products(device).fp32_precision
        with pytest.raises(ZeroDivisionError), whole_products(torch.device(device)):
            assert products(device).fp32_precision == "ieee" != before
            raise ZeroDivisionError
        assert products(device).fp32_precision == before


@pytest.mark.parametrize("device", DEVICES)
def test_rounding_is_off_until_the_last_of_two_threads_has_left(device) -> None:
    second_entered, first_left = threading.Event(), threading.Event()

    def second() -> str:
        with whole_products(torch.device(device)):
            second_entered.set()
            assert first_left.wait(120)
            return products(device).fp32_precision

    with rounding(device), ThreadPoolExecutor(1) as thread:
        before = products(device).fp32_precision
        with whole_products(torch.device(device)):
            found = thread.submit(second)
            assert second_entered.wait(120)
        first_left.set()
        assert found.result() == "ieee"
        assert products(device).fp32_precision == before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_parts_of_a_gallery_in_half_precision_are_scored_in_float32(dtype) -> None:
    vectors, labels = (part[:8] for part in batch("cpu"))
    half = vectors.to(dtype)
    found = rank_part(half, labels, half, labels).runs
    wide = rank_part(half.float(), labels, half.float(), labels).runs
    assert found.dtype == wide.dtype and (found == wide).all()
