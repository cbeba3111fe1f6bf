"""What a run would do, before it does any of it: its stages, its downloads, the space it takes."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hgld.lock import Freshness
from hgld.run import Runner
from hgld.stages import Stage, load_function

__all__ = ["Plan", "estimate_fetch", "free_bytes", "plan"]


@dataclass(frozen=True)
class Plan:
    """What a run would do: per stage its state, reads and writes; downloads; disk space."""

    stages: list[tuple[Stage, Freshness]]
    base_url: str
    downloads: list[tuple[str, Path, int]]
    disk_bytes: int
    free_bytes: int


def plan(runner: Runner) -> Plan:
    """The plan of a run, without doing any of it."""
    pipeline = runner.workspace.pipeline
    downloads = load_function("hgld.sources.fetch:plan_downloads")(
        pipeline.fetch, runner.workspace.source
    )
    estimate = estimate_fetch(runner)
    return Plan(
        runner.judge_all(),
        pipeline.fetch.base_url,
        downloads,
        estimate.most_bytes - estimate.there_bytes,
        free_bytes(runner.workspace.work),
    )


def estimate_fetch(runner: Runner) -> Any:
    """What a fetch of the pipeline costs: files, bytes to load, bytes on the disk."""
    pipeline, source = runner.workspace.pipeline, runner.workspace.source
    resized = pipeline.export.short_side is not None
    return load_function("hgld.sources.fetch:estimate_fetch")(pipeline.fetch, source, resized)


def free_bytes(folder: Path) -> int:
    """Free space where a folder is, or will be."""
    folder = folder.resolve()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
