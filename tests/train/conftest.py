from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from hgld.config import RunOptions
from hgld.shards.batches import BatchPlan
from hgld.train import train_models
from hgld.train.data import TrainingData, batch_options
from tests.made_shards import harm, make_context, make_shards, small_options

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
def harmed(tmp_path: Path) -> tuple[Path, list[str]]:
    """Shards of their own in which each of the first two steps meets one damaged image; its key."""
    folder = make_shards(tmp_path / "harmed")
    options = small_options()
    data = TrainingData.read(folder, options)
    plan = BatchPlan(data.samples, batch_options(options), seed=options.seed)
    first, landmarks = plan.at(0).rows, data.labels[:, -1]
    others = [r for r in plan.at(1).rows if r not in first and landmarks[r] != landmarks[first[0]]]
    return folder, sorted(harm(folder, int(row))["key"] for row in (first[0], others[0]))


@pytest.fixture
def train(shards: Path, tmp_path: Path) -> Train:
    """Trains small runs into a folder; other keywords change the trainer's options."""
    made = shards

    def run(
        runs: dict[str, RunOptions],
        out: Path | None = None,
        shards: Path = made,
        **changes: object,
    ) -> Path:
        out = out or tmp_path / "models"
        options = small_options(runs=runs, **changes)
        train_models(shards, options=options, context=make_context(tmp_path), out=out)
        return out

    return run
