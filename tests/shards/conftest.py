from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shards.shard_world import World, make_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path, [1, 3, 4, 5, 9, 17, 20, 33])


@pytest.fixture
def build(tmp_path: Path) -> Callable[[list[int]], World]:
    return lambda sizes: make_world(tmp_path, sizes)
