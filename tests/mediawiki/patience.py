"""Whether a caller waited as long as the wiki's answers asked it to, told from the wiki's log."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

__all__ = ["early_requests", "pause_of"]

LAG_PAUSE_S = 5.0  # what MediaWiki asks for at maxlag=5


def pause_of(word: str) -> float:
    """Seconds that an answer of the plan asks to wait; a date is exact to a second."""
    kind, *rest = word.split()
    if kind == "lag":
        return LAG_PAUSE_S
    if kind not in ("429", "503") or not rest:
        return 0.0
    return float(rest[1]) - 1 if rest[0] == "date" else float(rest[0])


def early_requests(requests: Sequence[dict[str, Any]], speed: float = 1.0) -> list[dict[str, Any]]:
    """Requests that came sooner after the answer before them than that one asked for.

    Args:
        requests: lines of the log of one caller, in order.
        speed: how many times as fast as ours the caller's clock runs.
    """
    return [
        later
        for earlier, later in pairwise(requests)
        if (later["came"] - earlier["answered"]) * speed < pause_of(earlier["word"]) * 1e9
    ]
