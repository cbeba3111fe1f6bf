"""Metrics that are distances. No torch is loaded, which takes a second: the report asks, too."""

import re


def lower_is_better(name: str) -> bool:
    """Whether a metric is a distance, so that its least value is the best.

    Example:
        >>> lower_is_better("AHD@5"), lower_is_better("MS over kind"), lower_is_better("H-AP")
        (True, True, False)
    """
    return re.split("[@ ]", name)[0] in ("AHD", "MS")
