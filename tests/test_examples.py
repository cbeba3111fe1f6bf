"""The scripts of examples/ run on the quickstart's shards and see the same batches."""

import json
import runpy
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from hgld.errors import UsageError
from hgld.ranking.losses import HiMulCon
from hgld.ranking.torchmetrics import MutualRetrieval
from hgld.shards import BatchLoader, BatchOptions, ImageLoader, index_shards, read_index
from tests.made_shards import make_shards
from tests.warm import hgld, python

EXAMPLES = sorted(Path("examples").glob("*.py"))
STEPS = 6
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the other packages' own


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("quickstart")
    quickstart = ["run", "pipelines/quickstart.toml", "--now", "2026-01-01", "--until", "export"]
    hgld(Path(), *quickstart, "--work", work, code=0)
    return work / "shards"


def to_input(image: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(image.resize((32, 32)))).permute(2, 0, 1) / 255


def loader_of(folder: Path, **options: Any) -> BatchLoader:
    rows = read_index(folder).query("split == 'train'").reset_index(drop=True)
    return BatchLoader(folder, rows, to_input, BatchOptions(2, 2), seed=0, **options)


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[float]:
    """Losses of a plain loop."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 16))
    optimizer, found = torch.optim.SGD(model.parameters(), 0.1), []
    for (images, labels, _), _ in zip(loader_of(folder), range(STEPS), strict=False):
        loss = HiMulCon(num_levels=3)(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def main(name: str, *given: Any, **options: Any) -> Any:
    return runpy.run_path(f"examples/{name}.py")["main"](*given, **options)


@pytest.mark.parametrize("name", [path.stem for path in EXAMPLES])
def test_an_example_trains_as_a_plain_loop_does(name, folder, expected, tmp_path: Path) -> None:
    found = python(tmp_path, Path(f"examples/{name}.py").resolve(), folder)
    printed = [line.split() for line in found.stdout.splitlines()[-STEPS:]]
    assert [float(loss) for _, loss in printed] == pytest.approx(expected)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", [path.stem for path in EXAMPLES])
def test_an_example_trains_on_shards_of_other_levels(name, folder, tmp_path: Path) -> None:
    for tar in folder.glob("train-*.tar"):
        shutil.copy(tar, tmp_path)
    index_shards(tmp_path, ["kind", "landmark_id"])
    found = main(name, tmp_path, steps=2)
    losses = found[0].losses if name == "lightning_loop" else found
    assert len(losses) == 2


def test_two_processes_of_an_example_share_the_batches_of_one(folder: Path, tmp_path: Path) -> None:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    python(Path(), *launch, "tests/example_processes.py", folder, tmp_path)
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    one = [rows.tolist() for (*_, rows), _ in zip(loader_of(folder), range(STEPS), strict=False)]
    for name in ("torchdata_loop", "trainer_loop", "lightning_loop"):
        halves = [found[name]["BatchLoader"][:STEPS] for found in ranks]
        assert [left + right for left, right in zip(*halves, strict=True)] == one
    seen = [
        {row for rows in found["lightning_loop"]["ImageLoader"] for row in rows} for found in ranks
    ]
    assert not seen[0] & seen[1] and len(seen[0] | seen[1]) == len(
        read_index(folder).query("split == 'train'")
    )
    assert ranks[0]["H-AP"] == ranks[1]["H-AP"]


def test_processes_without_ranks_are_warned_of(folder: Path, monkeypatch) -> None:
    for name, value in (("is_initialized", True), ("get_world_size", 2), ("get_rank", 0)):
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    with pytest.warns(UserWarning, match="each of 2 processes loads all images of each batch"):
        loader_of(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader_of(folder, world_size=1)


def test_an_example_has_at_most_60_lines() -> None:
    assert len(EXAMPLES) == 4
    assert all(len(path.read_text().splitlines()) <= 60 for path in EXAMPLES)


def test_lightning_resumes_in_the_middle_of_an_epoch(folder, expected, tmp_path: Path) -> None:
    _, trainer = main("lightning_loop", folder, steps=2)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    model, _ = main("lightning_loop", folder, tmp_path / "model.ckpt")
    assert model.losses == pytest.approx(expected[2:])


def test_lightning_logs_the_exact_metric_of_each_epoch(tmp_path: Path) -> None:
    folder = make_shards(tmp_path)
    model, trainer = main("lightning_loop", folder, steps=2 * len(loader_of(folder)))
    metric = MutualRetrieval(["H-AP"])
    rows = read_index(folder).query("split == 'train'").reset_index(drop=True)
    with torch.inference_mode():
        for images, labels, _ in ImageLoader(folder, rows, to_input, batch_size=64):
            metric.update(nn.functional.normalize(model.net(images)), labels)
    assert trainer.callback_metrics["H-AP"] == pytest.approx(metric.compute()["H-AP"])


def test_accelerate_resumes_in_the_middle_of_an_epoch(folder, expected, tmp_path: Path) -> None:
    main("accelerate_loop", folder, steps=2, save=str(tmp_path))
    found = main("accelerate_loop", folder, str(tmp_path), steps=STEPS - 2)
    assert found == pytest.approx(expected[2:])


def test_torchdata_resumes_in_the_middle_of_an_epoch(folder, expected) -> None:
    assert main("torchdata_loop", folder, resume_at=2) == pytest.approx(expected)


def test_a_data_loader_passes_batches_on_and_its_workers_are_refused(folder) -> None:
    loader = loader_of(folder)
    own = [[rows.tolist() for _, _, rows in loader] for _ in range(2)]
    passed = DataLoader(loader_of(folder), batch_size=None)
    assert [[rows.tolist() for _, _, rows in passed] for _ in range(2)] == own
    for workers in (1, 2):
        with pytest.raises(UsageError, match="the same epoch again and again; give num_workers=0"):
            list(DataLoader(loader_of(folder), batch_size=None, num_workers=workers))
