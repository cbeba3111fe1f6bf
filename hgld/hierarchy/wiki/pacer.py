"""When the next request may be sent: requests keep apart, and further apart for a busy server."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["MOST_PER_SECOND", "Pacer", "pause_before"]

MOST_PER_SECOND = 3.0  # Wikimedia allows 200 a minute
LEAST_PER_SECOND = 0.1
LONGEST_BACKOFF_S = 120.0


@dataclass
class Pacer:
    """Keeps requests apart, whatever the clock on the wall does; never below a third of a second.

    Example:
        >>> Pacer(50).requests_per_second
        3.0
    """

    requests_per_second: float
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _free_at: float = -1.0

    def __post_init__(self) -> None:
        fastest = min(self.requests_per_second, MOST_PER_SECOND)
        self._full = self.requests_per_second = max(LEAST_PER_SECOND, fastest)

    def wait(self) -> None:
        """Return when the next request may be sent."""
        pause = self._free_at - self.clock()
        if pause > 0:
            self.sleep(pause)
        self._free_at = self.clock() + 1 / self.requests_per_second

    def slow_down(self) -> None:
        """Halve the rate, down to one request in ten seconds."""
        self.requests_per_second = max(LEAST_PER_SECOND, self.requests_per_second / 2)

    def speed_up(self) -> None:
        """Come back to the full rate, by a twentieth with each good answer."""
        self.requests_per_second = min(self._full, self.requests_per_second * 1.05)


def pause_before(times: int, asked_s: float) -> float:
    """Seconds before asking again: at least what the server asks for, never in step with others.

    Args:
        times: failures in a row so far; the pause doubles with each, up to two minutes.
        asked_s: what the server asks for, 0 where it does not.
    """
    backoff = min(LONGEST_BACKOFF_S, 2.0 ** min(times - 1, 10))
    return max(asked_s, backoff, 1.0) * random.uniform(1.0, 1.1)
