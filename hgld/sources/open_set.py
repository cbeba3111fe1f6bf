"""Open-set split: classes held out for evaluation, so that none of their images is trained on.

The share is exact: of N classes, round(share * N) are held out. If coarser classes are known, each
contributes its part by the method of largest remainders; of equal remainders, those of the coarser
classes with the smallest SHA-256 of ``SEED:NAME`` count. Within a coarser class, the classes with
the smallest SHA-256 of ``SEED:KEY`` are taken. So the draw depends on the seed and the classes
only, and if some classes are added or removed, few others change their split.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from hashlib import sha256
from unicodedata import normalize

import numpy as np
import pandas as pd

from hgld.artifacts import SPLITS
from hgld.config import CollectOptions
from hgld.errors import InvalidData, UsageError
from hgld.words import count_text, nearest, some_of

SHOWN = 3  # unknown classes named in an error


def split_classes(
    keys: Sequence[str], options: CollectOptions, groups: Iterable[Hashable] | None = None
) -> np.ndarray:
    """Return the split of each class: train, validation (for model selection) or evaluation.

    Evaluation classes are held out first, so that model selection never uses them.

    Args:
        keys: one unique key for each class.
        options: a share or a list for evaluation, a share of the others for validation, the seed.
        groups: the coarsest class of each; None: unknown.

    Returns:
        (N,) names of splits, in the order of the keys.

    Raises:
        InvalidData: the list is not readable, or names an unknown class.
        UsageError: only one class is held out, on which any ranking would be perfect.

    Example:
        >>> options = CollectOptions(evaluation_share=0.5, validation_share=0.5)
        >>> split_classes(["a", "b", "c", "d"], options).tolist()
        ['evaluation', 'validation', 'train', 'evaluation']
    """
    grouped = None if groups is None else np.array([str(group) for group in groups])
    if given := options.evaluation_classes:
        where = "collect.evaluation_classes"
        if isinstance(given, tuple):
            listed = list(given)
        else:
            where = f"{where}: {given}"
            try:
                listed = [line.strip() for line in given.read_text("utf-8-sig").splitlines()]
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidData(
                    f"{where}: not readable ({error}); expected a class a line"
                ) from None
        composed = {normalize("NFC", key): key for key in keys}  # macOS has another form
        listed = [composed.get(normalize("NFC", name), name) for name in listed]
        known = set(keys)
        unknown = [name for name in dict.fromkeys(listed) if name and name not in known]
        if unknown:
            names = some_of([*map(repr, unknown)], SHOWN)
            raise InvalidData(
                f"{where}: no class with images is named {names}{nearest(unknown[0], known)}"
            )
        held = np.isin(keys, listed)
    else:
        held = hold_out(keys, options.evaluation_share, options.seed, grouped)
    if held.sum() < 2 and (options.evaluation_classes or options.evaluation_share):
        how = "evaluation_classes" if options.evaluation_classes else "evaluation_share"
        raise UsageError(
            f"collect.{how} holds out {held.sum()} of {count_text(len(keys), 'class')}, "
            "but an evaluation needs 2 or more to distinguish; hold out more"
        )
    splits = np.where(held, "evaluation", "train").astype(object)
    rest = np.flatnonzero(~held)
    validated = hold_out(
        [f"validation:{key}" for key, is_held in zip(keys, held, strict=True) if not is_held],
        options.validation_share,
        options.seed,
        None if grouped is None else grouped[rest],
    )
    splits[rest[validated]] = "validation"
    return splits


def hold_out(
    keys: Iterable[str],
    share: float,
    seed: int,
    groups: Sequence[str] | np.ndarray | None = None,
) -> np.ndarray:
    """Choose the round(share * N) keys to hold out, in proportion from each group.

    Args:
        keys: one for each class.
        share: in [0, 1).
        seed: of the draw.
        groups: (N,) names; None: all keys are one group.

    Returns:
        (N,) bool, in the order of the keys.

    Example:
        >>> hold_out(["0", "1", "2", "3"], 0.5, seed=0).tolist()
        [False, False, True, True]
        >>> hold_out(["0", "1", "2", "3"], 0.5, seed=0, groups=["a", "a", "b", "b"]).tolist()
        [True, False, False, True]
    """
    fractions = _fractions(keys, seed)
    names, group = np.unique(
        np.zeros(len(fractions), str) if groups is None else groups, return_inverse=True
    )
    sizes = np.bincount(group)
    order = np.lexsort((fractions, group))
    first = (np.cumsum(sizes) - sizes)[group[order]]
    # Counts of the groups by largest remainders: an exact sum, each within one of its share.
    exact = sizes * share
    parts = np.floor(exact).astype(np.int64)
    missing = int(np.floor(sizes.sum() * share + 0.5)) - int(parts.sum())
    parts[np.lexsort((_fractions(names, seed), parts - exact))[:missing]] += 1
    held = np.zeros(len(fractions), dtype=bool)
    held[order] = np.arange(len(order)) - first < parts[group[order]]
    return held


def describe_splits(images: pd.DataFrame) -> str:
    """Describe the number of classes and images of each split in one line.

    Args:
        images: with split and landmark_id.

    Example:
        >>> images = pd.DataFrame({"split": ["train", "train"], "landmark_id": [7, 8]})
        >>> describe_splits(images)
        'train: 2 classes, 2 images'
    """
    found = {str(split): ids for split, ids in images.groupby("split")["landmark_id"]}
    return describe_counts({split: (ids.nunique(), len(ids)) for split, ids in found.items()})


def describe_counts(counts: Mapping[str, tuple[int, int]]) -> str:
    """Describe the classes and images of each split in one line.

    Example:
        >>> describe_counts({"index": (1, 2), "train": (2, 2)})
        'train: 2 classes, 2 images; index: 1 class, 2 images'
    """
    return "; ".join(
        f"{split}: {count_text(counts[split][0], 'class')}, {count_text(counts[split][1], 'image')}"
        for split in SPLITS
        if split in counts
    )


def _fractions(keys: Iterable[str], seed: int) -> np.ndarray:
    """Return a number in [0, 1) for each key, drawn by the seed."""
    digests = (sha256(f"{seed}:{key}".encode()).digest() for key in keys)
    return np.array([int.from_bytes(digest[:8], "big") / 2**64 for digest in digests])
