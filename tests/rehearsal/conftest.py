import tempfile
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from tests.mediawiki.conftest import template  # noqa: F401  the fixture


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that goes away afterwards: a drill leaves half a gigabyte."""
    with tempfile.TemporaryDirectory(prefix="hgld-rehearsal-") as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def no_driver_of_an_earlier_test() -> None:
    """A process keeps one driver of S3, even when the address of the server changes."""
    fsspec.get_filesystem_class("s3").clear_instance_cache()
