import io

import numpy as np
import pytest

from hgld.shards.stream import HeldImages


@pytest.mark.parametrize("in_memory", [0, 20_000, 10**9])
def test_what_is_taken_is_what_was_put_wherever_it_lay(in_memory: int) -> None:
    random = np.random.default_rng(0)
    held, there = HeldImages(io.BytesIO(), in_memory), dict[int, bytes]()
    for row in range(400):
        there[row] = random.bytes(int(random.integers(1, 9000)))
        held.put(row, there[row])
        if row % 3:
            other = int(random.choice(list(there)))
            assert other in held and held.take(other) == there.pop(other)
            assert other not in held
    assert there and all(held.take(row) == jpeg for row, jpeg in there.items())


def test_the_memory_is_bounded_and_the_file_takes_its_room_again() -> None:
    file = io.BytesIO()
    held = HeldImages(file, 10_000)
    for row in range(500):
        held.put(row, bytes(5000))
        if row >= 20:  # twenty are held: two in memory
            assert held.take(row - 20) == bytes(5000)
    assert sum(map(len, held._here.values())) <= 10_000
    assert file.seek(0, io.SEEK_END) <= 20 * 8192
