"""Embedding on a GPU against embedding on the CPU, in each precision; skipped without a GPU."""

import re
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.evaluate.test_spread import embed, make_model
from tests.listening import heard
from tests.made_shards import make_shards

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Shards and a model."""
    folder = tmp_path_factory.mktemp("embedded")
    return make_shards(folder), make_model(folder / "model")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("precision", "least"), [("float32", 0.999), ("bf16", 0.99), ("fp16", 0.99)]
)
def test_embeddings_of_a_gpu_are_those_of_the_cpu(
    workers: int, precision: str, least: float, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    here = embed(*folders, tmp_path / "here")
    with heard() as said:
        there = embed(
            *folders, tmp_path / "there", device="cuda", workers=workers, precision=precision
        )
    for one, other in zip(sorted(here), sorted(there), strict=True):
        a, b = np.load(BytesIO(here[one])), np.load(BytesIO(there[other]))
        np.testing.assert_allclose(np.linalg.norm(b, axis=1), 1, atol=1e-5)
        assert ((a * b).sum(1) > least).all()
    assert re.search(
        r" images/s; reading and decoding \d+ % of the time, the network \d+ %$", said[0]
    )
