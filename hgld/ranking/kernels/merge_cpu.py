"""Merge the sorted runs of a gallery's parts into levels by rank, in numba.

A run is a part's ranking of one query: for each image one key, the score's 32 bits in descending
order above 8 bits of level. Keys of all runs are gathered in chunks between two samples of the
runs, sorted like a row, and written as levels, so that the buffers do not grow with the gallery.
"""

import numpy as np

from hgld.compiled import Array, inner, kernel
from hgld.ranking.kernels.sort import BELOW, BITS, sort_keys

STEP = 1 << 10  # keys of a run for each of its samples
CHUNK = 1 << 17  # keys that are sorted at a time: they stay in the cache
APART = CHUNK // STEP  # samples from one end of a chunk to the next


@kernel
def merge_rows(runs: Array, cuts: Array, levels: Array) -> None:
    """Write the levels by rank of each row of runs.

    Args:
        runs: (Q, G) uint64 keys, ascending within each part.
        cuts: (P + 1,) int64 bounds of the parts.
        levels: (Q, G) int8, written.
    """
    parts = cuts.shape[0] - 1
    size = CHUNK + STEP * (parts + 1)
    keys, more = np.empty(size, np.uint64), np.empty(size, np.uint64)
    samples = np.empty(runs.shape[1] // STEP + 1, np.uint64)
    heads, ends = np.empty(parts, np.int64), np.empty(parts, np.int64)
    for q in range(runs.shape[0]):
        run, m, done = runs[q], 0, 0
        for p in range(parts):
            for j in range(cuts[p] + STEP - 1, cuts[p + 1], STEP):
                samples[m] = run[j]
                m += 1
        samples[:m].sort()
        samples[m] = 1 << BELOW  # above all keys
        heads[:] = cuts[:-1]
        for chunk in range(m // APART + 1):
            top, n = samples[min((chunk + 1) * APART, m)], 0
            for p in range(parts):
                ends[p] = heads[p] + np.searchsorted(run[heads[p] : cuts[p + 1]], top)
                for j in range(heads[p], ends[p]):
                    keys[n] = run[j]
                    n += 1
            sort_near(keys[:n], more[:n])
            for j in range(n):
                levels[q, done + j] = np.int8(keys[j] & np.uint64(0xFF))
            done += n
            # keys equal to ``top`` may fill the gallery, if a model gives all images one score;
            # they need no sort, since their levels are equal, too
            for p in range(parts):
                stop = ends[p]
                while stop < cuts[p + 1] and run[stop] == top:
                    stop += 1
                equal = stop - ends[p]
                levels[q, done : done + equal] = np.int8(top & np.uint64(0xFF))
                done += equal
                heads[p] = stop


@inner
def sort_near(keys: Array, more: Array) -> None:
    """Sort keys of BELOW bits: their bins are even steps between the first and the last."""
    if keys.shape[0] < 2:
        return
    low, high = keys.min(), keys.max()
    shift = np.uint64(0)
    while (high - low) >> shift >= np.uint64(1 << (BITS - BELOW)):
        shift += np.uint64(1)
    for j in range(keys.shape[0]):
        keys[j] |= ((keys[j] - low) >> shift) << np.uint64(BELOW)
    sort_keys(keys, more)
