"""Train a small model in the processes of torchrun, and stop as if the power went.

python stopped_training.py SHARDS OUT READER [STEP]
"""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from hgld.config import RunOptions, SamplingOptions
from hgld.tasks import watched_by
from hgld.train import train_models
from hgld.train.ranks import joined
from tests.made_shards import make_context, small_options


def stop_after(step: int, items: Iterable[Any], label: str) -> Iterator[Any]:
    for done, item in enumerate(items):
        if label.startswith("Training") and done == step:
            os._exit(1)
        yield item


def train(shards: Path, out: Path, reader: Any, step: int = -1) -> None:
    torch.set_num_threads(1)
    options = small_options(
        classes_per_batch=2,
        freeze_batch_norm=True,
        checkpoint_steps=1,
        batches=SamplingOptions(order="shards", window=4, lanes=2, reader=reader),
        runs={"run": RunOptions(loss="ROADMAP", steps=8, memory=6)},
    )
    with (
        joined(),
        watched_by(lambda items, label, total, done: stop_after(step, items, str(label))),
    ):
        train_models(shards, options=options, context=make_context(out), out=out)


if __name__ == "__main__":
    shards, out, reader, *step = sys.argv[1:]
    train(Path(shards), Path(out), reader, *map(int, step))
