"""Which landmarks are held out for evaluation (open set: none of their images is trained on).

A landmark is drawn by the hash of the seed and its own key, compared with the share. Whether it is
held out so depends on no other landmark: a run on more or fewer landmarks keeps every earlier
choice. The price is that the share is met on average, not exactly.
"""

from collections.abc import Iterable
from hashlib import sha256

import numpy as np

__all__ = ["draw_splits", "hold_out"]


def draw_splits(keys: Iterable[str], evaluation: float, validation: float, seed: int) -> np.ndarray:
    """Split of each landmark: train, validation (to choose options on) or evaluation.

    Landmarks for evaluation leave first, so that no choice of options ever sees them.

    Returns:
        (N,) text, in the order of the keys.

    Example:
        >>> draw_splits(["0", "1", "4"], evaluation=0.3, validation=0.4, seed=0).tolist()
        ['train', 'validation', 'evaluation']
    """
    keys = list(keys)
    validated = hold_out([f"validation:{key}" for key in keys], validation, seed)
    splits = np.where(validated, "validation", "train")
    return np.where(hold_out(keys, evaluation, seed), "evaluation", splits)


def hold_out(keys: Iterable[str], share: float, seed: int) -> np.ndarray:
    """For each key whether it is held out: SHA-256 of ``SEED:KEY``, as a fraction, is below share.

    Args:
        keys: one a landmark.
        share: in [0, 1).
        seed: another seed draws others.

    Returns:
        (N,) bool, in the order of the keys.

    Example:
        >>> hold_out(["0", "1", "2"], 0.5, seed=0).tolist()
        [False, False, False]
        >>> hold_out(["0", "1", "2"], 0.0, seed=0).any()
        np.False_
    """
    return np.array([_fraction(f"{seed}:{key}") < share for key in keys], dtype=bool)


def _fraction(text: str) -> float:
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") / 2**64
