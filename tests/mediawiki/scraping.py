"""Run ``hgld scrape`` against a wiki: as a person does, in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.artifacts import declared_table
from tests.mediawiki.wiki import Wiki

__all__ = ["Run", "prepare_run"]

PIPELINE = """\
title = "A scrape of a test wiki"
labels = "labels"
[source]
kind = "gldv2"
folder = "source"
[scrape]
contact = "someone@example.org"
"""
OUTPUTS = ("instance_of", "misses")


@dataclass(frozen=True)
class Run:
    """A pipeline file and a work folder that holds landmarks, ready for the scrape."""

    pipeline: Path
    work: Path

    def command(self, wiki: Wiki, *more: str) -> list[str]:
        """The command line."""
        urls = [f"scrape.{name}={wiki.url}" for name in ("commons_api", "wikidata_api")]
        settings = [part for url in urls for part in ("--set", url)]
        program = [sys.executable, "-m", "hgld", "scrape", str(self.pipeline)]
        return [*program, "--work", str(self.work), "--now", "2026-11-21", *settings, *more]

    def scrape(self, wiki: Wiki, *more: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        command = self.command(wiki, *more)
        return subprocess.run(command, capture_output=True, text=True, env=environment())

    def start(self, wiki: Wiki) -> subprocess.Popen[bytes]:
        """Run it in the background."""
        quiet = subprocess.DEVNULL
        return subprocess.Popen(self.command(wiki), stdout=quiet, stderr=quiet, env=environment())

    def output(self, name: str) -> pd.DataFrame:
        """One of the two tables that it left."""
        return declared_table(name).read(self.work / declared_table(name).file)

    def output_bytes(self) -> dict[str, bytes]:
        """Both tables as they lie on the disk."""
        return {name: (self.work / declared_table(name).file).read_bytes() for name in OUTPUTS}


def prepare_run(folder: Path, landmarks: Sequence[Mapping[str, Any]]) -> Run:
    """Write the pipeline file and, as the stage before would, the landmarks."""
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(folder / "scrape.toml", folder / "work")
    run.pipeline.write_text(PIPELINE)
    table = declared_table("landmarks")
    run.work.mkdir()
    table.write(pd.DataFrame(landmarks, columns=list(table.columns)), run.work / table.file)
    return run


def environment() -> dict[str, str]:
    """One thread, so that figures and other work on the machine do not suffer."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}
