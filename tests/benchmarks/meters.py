"""A row of the table, and meters of time and memory, here and in a process of its own.

Imports no torch, whose memory and start are not those of the work.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Key = TypeVar("Key")
# Of a ratio of two ways to decode: where the buffers of a process lie moves it by some percent, for
# as long as the process runs. Such a row is the median of so many.
PROCESSES = 5


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        least: bound that holds today: a smaller value fails.
        most: bound that holds today: a larger value fails.
        aim: value to reach some day, in the direction of the bound (without one: at most).
    """

    what: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None
    seconds: float | None = None
    aim: float | None = None

    @property
    def reached(self) -> bool:
        """Whether the value reaches its aim, or has none."""
        if self.aim is None:
            return True
        return self.value >= self.aim if self.least is not None else self.value <= self.aim

    @property
    def holds(self) -> bool:
        """Whether the value keeps to its bound."""
        low = self.least is None or self.value >= self.least
        return low and (self.most is None or self.value <= self.most)


def fastest(
    works: dict[Key, Callable[[], object]],
    rounds: int = 3,
    clock: Callable[[], float] = time.thread_time,
    warm_up: bool = True,
) -> dict[Key, float]:
    """Least seconds of each piece of work over interleaved rounds, after one to warm up."""
    best = dict.fromkeys(works, float("inf"))
    for turn in range(1 - warm_up, rounds + 1):
        for name, work in works.items():
            start = clock()
            work()
            if turn:
                best[name] = min(best[name], clock() - start)
    return best


def reset_peak() -> None:
    """Let the peak of this process's memory (VmHWM) start at what it holds now."""
    Path("/proc/self/clear_refs").write_text("5")


def status_kb(field: str) -> int:
    """VmRSS, VmHWM or RssAnon of this process, in kB; getrusage counts the parent's memory too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def from_process(*words: object, **environment: str) -> Any:
    """Run Python with these arguments in a new process; return the JSON that it prints last."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        check=True, capture_output=True, text=True, env={**os.environ, **environment},
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])
