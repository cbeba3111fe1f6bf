"""Estimate disk, memory, bytes moved and hours of a pipeline from its number of images.

Each coefficient is a figure that this project measured and committed. ``python -m pipelines.record
pages`` takes them from ``pipelines/results`` and writes ``templates/costs.json``, which ships with
hgld.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hgld.words import duration_text, size_text

SIZES = (1_000_000, 5_000_000, 100_000_000, 1_000_000_000)
MACHINES = (1, 8, 64)
QUERIES = 1_129  # of GLDv2's official answers
SERIAL = ("collect", "label", "plan")  # stages of one machine
SPREAD = ("export", "embed")  # each image is a task's


@dataclass(frozen=True)
class Cost:
    """Cost of a run over some images, without download, scrape and training.

    Attributes:
        images: how many.
        disk_bytes: of source tars, shards and embeddings.
        memory_bytes: largest peak of one process over collect with ``memory_gb = 1``, the plan of
            an export, and evaluate. Only that of the plan grows with the images.
        moved_bytes: tars read, shards written, and shards read once to embed them.
        hours: number of machines (2 cores each, no GPU) -> hours.
    """

    images: int
    disk_bytes: float
    memory_bytes: float
    moved_bytes: float
    hours: Mapping[int, float]

    def describe(self) -> str:
        """Describe the cost in one line."""
        times = ", ".join(f"{duration_text(3600 * h)} on {n}" for n, h in self.hours.items())
        return (
            f"{self.images:,} images: disk {size_text(self.disk_bytes)}, memory "
            f"{size_text(self.memory_bytes)}, moved {size_text(self.moved_bytes)}; {times} machines"
        )


@cache
def coefficients() -> dict[str, dict[str, Any]]:
    """Name of each coefficient -> value, unit, what it is of, and the figure that it comes from."""
    path = Path(__file__).parent.parent / "templates" / "costs.json"
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def estimate_cost(images: int) -> Cost:
    """Estimate the cost of a run.

    Disk, bytes moved and hours grow linearly, as the benchmarks show. Memory does not: tables of
    images are read in parts, and only the plan of an export holds numbers of each image.

    Example:
        >>> one, other = estimate_cost(1_000_000), estimate_cost(2_000_000)
        >>> other.disk_bytes == 2 * one.disk_bytes, one.hours[8] < one.hours[1]
        (True, True)
    """
    of = {
        name: entry["value"] * (images if entry["of"] == "image" else 1)
        for name, entry in coefficients().items()
    }
    alone = sum(of[f"{name} time"] for name in SERIAL)
    shared = sum(of[f"{name} time"] for name in SPREAD) + QUERIES * of["rank time"]
    return Cost(
        images,
        of["tars"] + of["shards"] + of["embeddings"],
        max(of["collect memory"], of["plan base"] + of["plan memory"], of["evaluate memory"]),
        of["tars"] + 2 * of["shards"],
        {n: (alone + shared / n) / 3600 for n in MACHINES},
    )
