"""Dry run: the stages that a run would execute, its downloads and the disk space it needs."""

import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hgld.artifacts import LargeTable
from hgld.pipeline.cost import Cost, estimate_cost
from hgld.pipeline.lock import Freshness, Workspace, foresee
from hgld.pipeline.run import Runner, without_effect
from hgld.pipeline.stages import Stage, load_function

EXAMPLE = 1_000_000  # images, while their number is unknown


@dataclass(frozen=True)
class Disk:
    """Space on one disk.

    Attributes:
        what: content that is written there.
        folder: path on the disk.
        chosen_by: the option that moves it to another folder.
        need_bytes: upper bound, in addition to existing files.
        free_bytes: free space now.
    """

    what: str
    folder: Path
    chosen_by: str
    need_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class Plan:
    """Plan of a run: state, reads and writes of each stage; downloads; disk space; cost.

    Attributes:
        cost: of the images that collect has listed, else of a million as an example.
        is_counted: whether it is of the listed images.
        notes: on options without effect.
    """

    stages: list[tuple[Stage, Freshness]]
    base_url: str
    downloads: list[tuple[str, Path, int]]
    disks: tuple[Disk, ...]
    cost: Cost
    is_counted: bool
    notes: tuple[str, ...]


def plan(runner: Runner, until: str | None = None) -> Plan:
    """Return the plan of a run up to a stage (None: to the end) without executing it."""
    pipeline, source = runner.workspace.pipeline, runner.workspace.source
    last = runner.stages.index(runner.stage(until)) if until else len(runner.stages)
    stages = list(foresee(runner.stages, runner.lock))[: last + 1]
    runs = {stage.name for stage, now in stages if now.state != "fresh"}
    images = None
    with suppress(OSError, ValueError):  # missing, or damaged: a run makes it again
        images = len(LargeTable(runner.workspace.path("images")))
    plan_downloads = load_function("hgld.sources.fetch:plan_downloads")
    return Plan(
        stages,
        pipeline.fetch.base_url,
        plan_downloads(pipeline.fetch, source) if "fetch" in runs else [],
        find_disks(runner.workspace, estimate_fetch(runner), runs),
        estimate_cost(EXAMPLE if images is None else images),
        images is not None,
        tuple(note for stage, _ in stages for note in without_effect(stage, pipeline)),
    )


def estimate_fetch(runner: Runner) -> Any:
    """Estimate the cost of the fetch stage: files, bytes to download, bytes on the disk."""
    pipeline, source = runner.workspace.pipeline, runner.workspace.source
    resized = pipeline.export.short_side is not None
    return load_function("hgld.sources.fetch:estimate_fetch")(pipeline.fetch, source, resized)


def find_disks(
    workspace: Workspace, estimate: Any, runs: Collection[str] = ("fetch", "export")
) -> tuple[Disk, ...]:
    """Return the space needed by files and shards; one entry if both folders share a disk.

    Args:
        workspace: its source folder holds the files, its work folder the shards, unless
            ``export.out`` names a URL for them.
        estimate: of the fetch.
        runs: names of the stages that will run; the outputs of the others exist.
    """
    source, work, there = workspace.source, workspace.work, estimate.there_bytes
    most, stay = estimate.peak_bytes - there, estimate.stays_bytes - there
    most, stay = (most, stay) if "fetch" in runs else (0, 0)
    stored = "export" in runs and workspace.pipeline.export.out is None
    shards = estimate.shards_bytes if stored else 0
    if _nearest(source).stat().st_dev == _nearest(work).stat().st_dev:
        both = max(most, stay + shards)
        return (Disk("files and shards", work, "--work", both, _free_bytes(work)),)
    return (
        Disk("files", source, "source.folder", most, _free_bytes(source)),
        Disk("shards", work, "--work", shards, _free_bytes(work)),
    )


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(_nearest(folder)).free


def _nearest(folder: Path) -> Path:
    """Return the folder, or its nearest existing ancestor."""
    folder = folder.resolve()
    while not folder.exists():
        folder = folder.parent
    return folder
