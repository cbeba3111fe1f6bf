"""Run the examples in each process that torchrun started, and save the rows that it loads.

torchrun --nproc_per_node 2 tests/example_processes.py SHARDS OUT
"""

import json
import os
import runpy
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")  # the other packages' own

import torch.distributed as dist  # noqa: E402

import hgld.model  # noqa: E402, F401  before lightning
from hgld import shards  # noqa: E402

SEEN: dict[str, list[list[int]]] = {}


def recorded(kind):
    class Recorded(kind):
        def __iter__(self):
            for batch in super().__iter__():
                SEEN.setdefault(kind.__name__, []).append(batch[2].tolist())
                yield batch

    return Recorded


def main(folder: str, out: str) -> None:
    dist.init_process_group("gloo")
    found = {}
    for name in ("BatchLoader", "ImageLoader"):
        setattr(shards, name, recorded(getattr(shards, name)))
    for name in ("torchdata_loop", "trainer_loop", "lightning_loop"):
        SEEN.clear()
        options = {"strategy": "ddp", "devices": 2} if name == "lightning_loop" else {}
        returned = runpy.run_path(f"examples/{name}.py")["main"](folder, **options)
        found[name] = dict(SEEN)
    found["H-AP"] = returned[1].callback_metrics["H-AP"].item()
    Path(out, f"{os.environ['RANK']}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
