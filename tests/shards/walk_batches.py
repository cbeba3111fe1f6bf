"""Walks through batches in a process of its own: one line of JSON a step, with keys and state.

python walk_batches.py SHARDS OUT STEPS WORKERS PAUSE_S READER:ORDER ...: goes on after the last
line of OUT/READER-ORDER. Under torchrun the ranks' slices are put together and rank 0 writes.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image

from hgld.shards import read_index
from hgld.shards.load import BatchLoader
from hgld.shards.sampling import BatchOptions


def noisy(image: Image.Image) -> torch.Tensor:
    """A tensor with random numbers in it, as augmentation has."""
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float()
    return pixels + torch.rand(3, 1, 1)


def gather(part: Any) -> list[Any]:
    if not dist.is_initialized():
        return [part]
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, part)
    return parts


def walk_steps(
    folder: Path,
    out: Path,
    steps: int,
    reader: Any,
    order: Any,
    workers: int,
    pause_s: float = 0,
) -> None:
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    rows = read_index(folder).query("split == 'train'").reset_index(drop=True)
    loader = BatchLoader(
        folder,
        rows,
        noisy,
        BatchOptions(4, 4, order=order, window=8, lanes=2),
        seed=3,
        reader=reader,
        rank=rank,
        world_size=world,
        workers=workers,
    )
    lines = (
        [line for line in out.read_text().splitlines() if line.endswith("}")]
        if out.exists()
        else []
    )
    if lines:
        loader.load_state_dict(json.loads(lines[-1])["state"])
    done = len(lines)
    while done < steps:
        for images, _labels, numbers in loader:
            keys = rows["key"].to_numpy()[numbers.numpy()].tolist()
            sums = [round(float(x.double().sum()), 3) for x in images]
            parts = gather((keys, sums))
            if rank == 0:
                line = {
                    "keys": [key for part, _ in parts for key in part],
                    "sums": [value for _, part in parts for value in part],
                    "state": loader.state_dict(),
                }
                with out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
            done += 1
            if done == steps:
                break
            time.sleep(pause_s)


if __name__ == "__main__":
    folder, out, steps, workers, pause_s, *ways = sys.argv[1:]
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        dist.init_process_group("gloo")
    for way in ways:
        named = (Path(folder), Path(out, way.replace(":", "-")), int(steps), *way.split(":"))
        walk_steps(*named, int(workers), float(pause_s))
    if dist.is_initialized():
        dist.destroy_process_group()
