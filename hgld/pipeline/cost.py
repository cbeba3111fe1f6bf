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


def costs_as_markdown() -> str:
    """The page of costs: a row a size, then the coefficients and where they come from."""
    lines = [
        "# What a run costs", "",
        "Estimates from measured coefficients; `hgld run PIPELINE --dry-run` prints that of the "
        "pipeline at hand. Download, scrape and training are not included. A machine has 2 cores "
        "and no GPU; collect, label and the plans run on one of them. Ranking is of "
        f"{QUERIES:,} queries.", "",
        "The memory is the largest peak of one process over `collect`, the plan of `export` and "
        "`evaluate`, which read tables of images in parts. `collect` joins within "
        "`collect.memory_gb`, measured at 1 (default: a quarter of the machine's), and sorts the "
        "rest on disk. `evaluate` ranks in parts. The plan holds numbers of each image (landmark, "
        "place, order): a line through two measured sizes, the larger with 20 images a landmark. "
        "`label` holds landmarks, not images, and the batches of an epoch are those of training; "
        "neither is in the column.", "",
        "| images | disk | memory | moved | "
        + " | ".join(f"hours on {n}" for n in MACHINES) + " |",
        "|---|---|---|---|" + "---|" * len(MACHINES),
    ]  # fmt: skip
    for cost in map(estimate_cost, SIZES):
        sizes = map(size_text, (cost.disk_bytes, cost.memory_bytes, cost.moved_bytes))
        cells = [f"{cost.images:,}", *sizes, *map(_digits, cost.hours.values())]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "", "## Coefficients", "",
        "`python -m pipelines.record pages` takes them from recorded figures.", "",
        "| coefficient | of a | value | measured as |", "|---|---|---|---|",
    ]  # fmt: skip
    for name, entry in coefficients().items():
        value = entry["value"]
        text = size_text(value) if entry["unit"] == "B" else f"{_digits(1e6 * value)} µs"
        lines.append(f"| {name} | {entry['of']} | {text} | {entry['from']} |")
    return "\n".join(lines) + "\n"


def _digits(number: float) -> str:
    """Three digits without an exponent.

    Example:
        >>> _digits(1484.2), _digits(0.03051)
        ('1,480', '0.0305')
    """
    return f"{float(f'{number:.3g}'):,.15g}"
