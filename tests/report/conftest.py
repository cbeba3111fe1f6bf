from pathlib import Path

import pytest

from tests.made_run import MadeRun, make_run
from tests.report.reading import write


@pytest.fixture
def run(tmp_path: Path) -> MadeRun:
    return make_run(tmp_path / "work")


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One report with all defaults, for the tests that only look."""
    return write(make_run(tmp_path_factory.mktemp("made") / "work"))
