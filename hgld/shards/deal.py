"""Deal items of many kinds into rows of distinct kinds, as many full rows as possible.

Batches of P classes and pairs of supercategories are the same problem: kind c has ``counts[c]``
items, a row takes at most one item of a kind, and every row is full. n rows can be filled exactly
if ``sum(min(counts, n)) >= n * width``; dealing kind after kind around the rows then never puts
two items of a kind in one row. That layout is regular; random swaps that keep it valid shuffle it.
"""

import numpy as np

from hgld.compiled import kernel

__all__ = ["count_rows", "deal_rows"]

SWAPS = 6  # proposed per item; after two or three the regular layout is no longer visible


def count_rows(counts: np.ndarray, width: int) -> int:
    """The most rows of ``width`` different kinds that the counts can fill.

    Example:
        >>> count_rows(np.array([5, 1, 1]), 2)  # the first kind lacks partners
        2
    """
    # Binary search: if n rows can be filled, so can fewer.
    low, high = 0, int(counts.sum()) // width
    while low < high:
        middle = (low + high + 1) // 2
        enough = int(np.minimum(counts, middle).sum()) >= middle * width
        low, high = (middle, high) if enough else (low, middle - 1)
    return low


def deal_rows(counts: np.ndarray, width: int, random: np.random.Generator) -> np.ndarray:
    """Kinds in rows: each row has ``width`` different ones, none more often than its count.

    Returns:
        (rows, width) kind numbers, with as many rows as the counts allow.
    """
    rows = count_rows(counts, width)
    kinds = random.permutation(len(counts))
    used = np.minimum(counts, rows)[kinds]
    _take_away(used, int(used.sum()) - rows * width, random)
    items = np.repeat(kinds, used).astype(np.int64)
    # Item i goes to row i % rows; no kind has more items than rows, so none is in a row twice.
    table = np.ascontiguousarray(items.reshape(width, rows).T)
    picks = random.integers(0, max(1, items.size), (SWAPS * items.size, 2))
    _swap(table, picks)
    return np.asarray(table[random.permutation(rows)])


def _take_away(used: np.ndarray, surplus: int, random: np.random.Generator) -> None:
    """Leave out ``surplus`` items, drawn at random (fewer than a row's width)."""
    if surplus:
        gone = random.choice(int(used.sum()), surplus, replace=False)
        np.subtract.at(used, np.searchsorted(np.cumsum(used), gone, side="right"), 1)


@kernel
def _swap(table: np.ndarray, picks: np.ndarray) -> None:
    """Exchange two cells if both rows still hold different kinds afterwards."""
    width = table.shape[1]
    for n in range(picks.shape[0]):
        row, column = picks[n, 0] // width, picks[n, 0] % width
        other, place = picks[n, 1] // width, picks[n, 1] % width
        one, two = table[row, column], table[other, place]
        if row == other or one == two:
            continue
        valid = True
        for i in range(width):
            if table[row, i] == two or table[other, i] == one:
                valid = False
                break
        if valid:
            table[row, column], table[other, place] = two, one
