from pathlib import Path

import pytest

from hgld.config import SourceOptions, StageContext


@pytest.fixture
def context(tmp_path: Path) -> StageContext:
    """What a stage is told of its run."""
    source = SourceOptions(folder=tmp_path / "source")
    return StageContext("2026-11-21", tmp_path / "state", source, tmp_path / "labels")
