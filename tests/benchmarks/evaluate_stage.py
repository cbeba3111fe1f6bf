"""Measures the ``evaluate`` stage beside its embedding: time of all the rest, and memory.

The stage runs twice in one process, the second time with kept embeddings: that run is the rest.
Drawn photos and the network that a package ships, untrained on landmarks; CPU seconds of one
thread. ``python -m tests.benchmarks.evaluate_stage`` prints it.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch

from hgld.config import EvaluateOptions, SourceOptions, StageContext
from hgld.evaluate import evaluate_models
from hgld.ranking.kernels import rank_cpu
from tests.benchmarks.memory import above_inputs
from tests.benchmarks.meters import Row, from_process
from tests.benchmarks.shards import make_source, write_shards

MODEL = "offline:efficientnet-lite0"
DIM = 1280


def rows(images: int = 600, side: int = 224) -> list[Row]:
    """The rest of the stage, of its embedding, and its peak memory."""
    found = from_process("-m", "tests.benchmarks.evaluate_stage", images, side)
    part = min(rank_cpu.BLOCK_CELLS, images * images)
    most = 4 * (1.2 * images * DIM + part) / 2**20
    of = f"evaluate stage, {images} images,"
    return [
        Row(f"{of} all but embedding, of it", 100 * found["rest_share"], "%", aim=10),
        Row(f"{of} memory beyond its input", found["megabytes"], "MB", aim=round(most, 1)),
    ]


def measure(images: int, side: int) -> dict[str, float]:
    """Share of the rest, and MB that it needs beyond what was there before."""
    with tempfile.TemporaryDirectory() as name:
        _Stage(Path(name) / "small", 40, side).run()  # loads kernels and packages
        stage = _Stage(Path(name) / "all", images, side)
        start = time.process_time()
        stage.run()
        embedded = time.process_time()
        megabytes = above_inputs(stage.run)
        rest = time.process_time() - embedded
    return {"rest_share": rest / (embedded - start - rest), "megabytes": megabytes}


class _Stage:
    """The stage on shards of drawn photos."""

    def __init__(self, folder: Path, images: int, side: int) -> None:
        folder.mkdir()
        self.folder = folder
        self.shards = write_shards(folder, "shards", make_source(folder / "source", images, side))
        self.context = StageContext(
            "2026-01-01", folder / "state", SourceOptions(folder=folder), folder
        )
        self.options = EvaluateOptions(
            query="train", gallery="train", models={"plain": MODEL}, device="cpu"
        )

    def run(self) -> None:
        """Embed what is not embedded yet, and rank."""
        evaluate_models(
            self.shards, self.folder / "models", options=self.options, context=self.context,
            out=self.folder / "ranked",
        )  # fmt: skip


def main() -> None:
    """Print one measurement as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("images", type=int, nargs="?", default=600)
    parser.add_argument("side", type=int, nargs="?", default=224)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(measure(given.images, given.side)))


if __name__ == "__main__":
    main()
