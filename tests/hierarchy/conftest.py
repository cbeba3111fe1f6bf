from collections.abc import Iterator
from pathlib import Path

import pytest

from hgld.config import SourceOptions, StageContext
from tests.hierarchy.small_wiki import Wiki, serve


@pytest.fixture
def wiki() -> Iterator[Wiki]:
    """An empty wiki that is being served."""
    world = Wiki()
    with serve(world):
        yield world


@pytest.fixture
def context(tmp_path: Path) -> StageContext:
    """What a stage is told of its run."""
    source = SourceOptions(folder=tmp_path / "source")
    return StageContext("2026-11-21", tmp_path / "state", source, tmp_path / "labels")
