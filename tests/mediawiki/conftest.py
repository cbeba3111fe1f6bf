from pathlib import Path

import pytest

from tests.mediawiki.wiki import install, require_mediawiki


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty wiki, installed once."""
    require_mediawiki()
    return install(tmp_path_factory.mktemp("mediawiki") / "template")
