"""Rows of a kernel shared among torch's threads.

Kernels let go of the interpreter lock, so plain threads run them side by side; numba's own thread
pools are not needed, which neither survive a fork nor two callers at once. Threads stay behind in a
fork, so a forked process starts its own.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise

import torch

__all__ = ["over_rows"]


@lru_cache(maxsize=4)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="hgld-ranking")


os.register_at_fork(after_in_child=_pool.cache_clear)


def over_rows(work: Callable[[slice], None], rows: int) -> None:
    """Call ``work`` with slices that together are all rows, one for each of torch's threads."""
    threads = min(torch.get_num_threads(), rows)
    if threads <= 1:
        work(slice(0, rows))
        return
    cuts = [rows * i // threads for i in range(threads + 1)]
    parts = [slice(a, b) for a, b in pairwise(cuts)]
    list(_pool(threads).map(work, parts))
