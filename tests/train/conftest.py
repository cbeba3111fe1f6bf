from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from hgld.config import RunOptions
from hgld.train import train_models
from tests.made_shards import make_context, make_shards, small_options

Train = Callable[..., Path]


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("train"))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Networks as small as these are slower on two."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def train(shards: Path, tmp_path: Path) -> Train:
    """Trains small runs into a folder; keywords change the trainer's options."""

    def run(runs: dict[str, RunOptions], out: Path | None = None, **changes: object) -> Path:
        out = out or tmp_path / "models"
        options = small_options(runs=runs, **changes)
        train_models(shards, options=options, context=make_context(tmp_path), out=out)
        return out

    return run
