from collections.abc import Iterator

import pytest

from tests.hierarchy.small_wiki import Wiki, serve


@pytest.fixture
def wiki() -> Iterator[Wiki]:
    """An empty wiki that is being served."""
    world = Wiki()
    with serve(world):
        yield world
