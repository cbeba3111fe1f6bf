import os
from collections.abc import Iterable, Iterator

import pytest

from hgld.errors import Resumable
from hgld.tasks import map_tasks, track, watched_by


def square(n: int) -> int:
    return n * n


def die(n: int) -> int:
    os._exit(1)


@pytest.mark.parametrize("processes", [1, 2])
def test_results_keep_the_order_of_the_tasks(processes: int) -> None:
    assert map_tasks(square, [3, 1, 2], "Squares", processes) == [9, 1, 4]


def test_a_dead_worker_is_noticed() -> None:
    with pytest.raises(Resumable, match="Squares: a worker process died"):
        map_tasks(die, [1, 2], "Squares", 2)


def test_progress_reaches_the_sink() -> None:
    seen: list[tuple[str, int | None]] = []

    def sink(items: Iterable[int], label: str, total: int | None) -> Iterator[int]:
        seen.append((label, total))
        yield from items

    with watched_by(sink):
        assert list(track([1, 2], "Reading", 2)) == [1, 2]
    assert list(track([1], "Unwatched")) == [1]
    assert seen == [("Reading", 2)]
