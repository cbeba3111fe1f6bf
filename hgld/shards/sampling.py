"""Options of a batch, the samples to draw from, and the array operations that all plans share.

The orders "random" and "shards" choose classes differently, but count groups of K images and turn
chosen classes into row numbers in the same way.

Batches of P classes and pairs of supercategories are the same problem: kind c has ``counts[c]``
items, a row takes at most one item of a kind, and every row is full. n rows can be filled exactly
if ``sum(min(counts, n)) >= n * width``; dealing kind after kind around the rows then never puts
two items of a kind in one row. That layout is regular; random swaps that keep it valid shuffle it.
"""

from dataclasses import dataclass
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from numbers import Integral
from typing import Literal, get_args

import numpy as np
import pandas as pd
from numba.np.random.random_methods import random_interval

from hgld.compiled import kernel, prefetch
from hgld.errors import InvalidData, UsageError
from hgld.shards.image_table import (
    PIECE,
    ImageTable,
    classes_and_shards,
    in_file,
    pieces,
    runs_of,
)
from hgld.shards.index import require_columns
from hgld.shards.schema import MOST_CLASSES
from hgld.words import count_text, part_text, verb_text

Order = Literal["random", "shards", "combinations"]
SmallClasses = Literal["drop", "repeat", "pad"]
SWAPS = 6  # proposed per item; after two or three the regular layout is no longer visible
AHEAD = 12  # swaps whose rows the processor fetches while it makes others
DRAWN = 1 << 10  # places drawn at a time: their rows fit into the processor's smallest cache
LINE = 16  # cells that the processor fetches together
BUCKET = 1 << 16  # rows that are grouped by class together, within the processor's second cache


@dataclass(frozen=True)
class BatchOptions:
    """Composition of a batch, and how it is drawn.

    Attributes:
        classes_per_batch: P.
        images_per_class: K.
        order: "random" draws any image at any time; "shards" draws from the runs that a reader
            holds in memory while it reads shards sequentially; "combinations" draws any image, and
            the batches of a combination follow each other (Rolinek et al. 2020, appendix A).
        window: runs that are open at a time in the order "shards".
        lanes: parallel sequences into which the shards are dealt (order "shards"); as many readers
            can share the work.
        images_cap: most images of a class in an epoch (H-GLDv2 in the paper: 8); None: all.
        groups_per_batch: supercategories in a batch, each with the same number of classes (SOP in
            the paper: 2); None: unconstrained. In the order "shards" a run stays open, in addition
            to the window, until enough classes of its group are open.
        batches_per_combination: batches in an epoch of each combination of ``groups_per_batch``
            supercategories (FastAP on SOP: 5 of each of 66 pairs); None: as many batches as the
            images fill, so that large groups meet more often.
        small_classes: treatment of classes with fewer than K images: drop them, repeat their
            images up to K, or pad with the row number -1.
    """

    classes_per_batch: int
    images_per_class: int
    order: Order = "random"
    window: int = 512
    lanes: int = 1
    images_cap: int | None = None
    groups_per_batch: int | None = None
    batches_per_combination: int | None = None
    small_classes: SmallClasses = "drop"

    def __post_init__(self) -> None:
        """Check the options one by one and against each other."""
        counts = ["classes_per_batch", "images_per_class", "window", "lanes"]
        optional = ("images_cap", "groups_per_batch", "batches_per_combination")
        for name in counts + [name for name in optional if getattr(self, name) is not None]:
            # a number of numpy would have another repr, and so another fingerprint
            object.__setattr__(self, name, require_count(name, getattr(self, name)))
        for name, words in (("order", Order), ("small_classes", SmallClasses)):
            if getattr(self, name) not in get_args(words):
                expected = ", ".join(get_args(words))
                raise UsageError(f"{name} is {getattr(self, name)!r}; expected one of {expected}")
        for name in ("groups_per_batch", "lanes"):
            divisor, classes = getattr(self, name) or 1, self.classes_per_batch
            if classes % divisor:
                raise UsageError(f"{name} {divisor} does not divide classes_per_batch {classes}")
        if self.batches_per_combination and (not self.groups_per_batch or self.order == "shards"):
            raise UsageError(
                "batches_per_combination is of groups of classes at random; it needs "
                'groups_per_batch and the order "random" or "combinations"'
            )
        if self.order == "combinations" and not self.batches_per_combination:
            raise UsageError('the order "combinations" needs batches_per_combination')
        if self.order == "shards" and (self.groups_per_batch or self.lanes) % self.lanes:
            raise UsageError(
                f"lanes {self.lanes} does not divide groups_per_batch {self.groups_per_batch}; "
                "each lane gives whole groups to a batch"
            )
        if self.images_cap is not None and self.images_cap < self.images_per_class:
            raise UsageError(
                f"images_cap {self.images_cap} is below images_per_class "
                f"{self.images_per_class}, which leaves no class"
            )


def require_count(name: str, value: object, least: int = 1) -> int:
    """Return a whole number as an int; refuse any other value, and one that is too small.

    Raises:
        UsageError: it is not.

    Example:
        >>> require_count("workers", np.int64(0), least=0)
        0
    """
    if not isinstance(value, Integral) or int(value) < least:
        raise UsageError(f"{name} is {value!r}; expected a whole number, {least} or more")
    return int(value)


@dataclass(frozen=True)
class Samples:
    """Labels, runs and shards of the samples, as arrays: the input of a plan.

    Of more than ``MANY`` samples the arrays are in temporary files without a name, in the folder
    that TMPDIR names. A plan reads them from front to back, so they need no memory.

    Attributes:
        labels: (N, L) class numbers, coarse to fine.
        runs: (N,) run number of each sample, in its shard; samples of a run are adjacent.
        shards: (N,) number of the shard, in the order of their names.
    """

    labels: np.ndarray
    runs: np.ndarray
    shards: np.ndarray

    @classmethod
    def of_labels(cls, labels: np.ndarray) -> "Samples":
        """Samples in one run of one shard; sufficient for the order "random"."""
        nowhere = np.broadcast_to(np.int64(0), len(labels))
        return cls(in_file(labels), nowhere, nowhere)

    @classmethod
    def of_index(cls, rows: pd.DataFrame | ImageTable) -> "Samples":
        """Build from rows of the index, in their order; an ImageTable shares its columns.

        Raises:
            InvalidData: a column is missing, or does not hold whole numbers that are valid class
                numbers.
        """
        if isinstance(rows, pd.DataFrame):
            require_columns(rows, ["shard", "level_1"])
            labels, _, shards = classes_and_shards(rows)
            runs = runs_of(rows)
        elif rows.runs is None:
            raise InvalidData("the images have no runs; expected those of ImageTable.read")
        else:
            labels, runs, shards = rows.labels, rows.runs, rows.shards
        ends = [end for part in pieces(labels) if part.size for end in (part.min(), part.max())]
        if ends and not 0 <= min(ends) <= max(ends) < MOST_CLASSES:
            raise InvalidData(
                f"the rows' classes are numbered {min(ends)} to {max(ends)}; expected 0 to "
                f"{MOST_CLASSES - 1}, as read_index gives them"
            )
        return cls(labels, runs, shards)


def count_groups(size: np.ndarray, options: BatchOptions) -> np.ndarray:
    """Number of groups of K images that a class (or run) of each size gives in an epoch."""
    groups = size // options.images_per_class
    if options.small_classes != "drop":
        groups = np.maximum(groups, 1)
    if options.images_cap is not None:
        groups = np.minimum(groups, options.images_cap // options.images_per_class)
    return np.asarray(groups)


def shuffle_classes(
    classes: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shuffle rows and group them by class, in memory of 6 bytes a row beside that of the classes.

    The order is that of ``random.shuffle`` and a stable sort, which wait for the memory at each
    row. Here rows go to buckets of neighbouring classes while they are shuffled, and the processor
    fetches what the next ones need; a bucket is then grouped within the processor's caches.

    Args:
        classes: (N,) class numbers, 0 or more.
        random: draws the order.

    Returns:
        (N,) row numbers, class by class, shuffled within each; first place and size of each class.

    Example:
        >>> order, first, size = shuffle_classes(np.array([7, 3, 7]), np.random.default_rng(0))
        >>> order[0].item(), sorted(order[1:].tolist()), first.tolist(), size.tolist()
        (1, [0, 2], [0, 1], [1, 2])
    """
    classes, sizes = count_classes(classes)
    number = sizes.dtype.type
    places = np.cumsum(sizes, dtype=number) - sizes
    first, size = places[sizes > 0], sizes[sizes > 0]
    # A bucket has the rows whose classes start within some places of the order.
    ends = np.cumsum(np.bincount(first // BUCKET, size).astype(number), dtype=number)
    bucket = np.empty(len(classes), np.uint16 if number is np.int32 else np.uint32)
    _look_up(places // BUCKET, classes, bucket)
    rows = np.arange(len(classes), dtype=number)
    # Its pages are in memory only once they are written, while those of rows are freed; numpy's own
    # arrays have pages of two megabytes, of which each bucket would take one at once.
    held = mmap(-1, max(1, rows.nbytes), flags=MAP_PRIVATE | MAP_ANONYMOUS)
    order = np.frombuffer(held, number, len(rows))
    starts = ends.copy()
    while len(rows):
        left = max(0, len(rows) - PIECE)
        _shuffle_into_buckets(rows, left, random, bucket, starts, order)
        rows.resize(left, refcheck=False)
    _look_up(places % BUCKET, classes, bucket)
    _group_buckets(order, bucket, ends)
    return order, first, size


def count_classes(classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Count the rows of each class.

    Returns:
        (N,) class numbers that an array can be indexed by: those given, unless they are negative or
        large; and number of rows of each number, 0 for those that no row has.

    Example:
        >>> count_classes(np.array([2, 0, 2]))[1].tolist()
        [1, 0, 2]
    """
    most = -1
    for part in pieces(classes):
        most = max(most, int(part.max()) if part.min() >= 0 else MOST_CLASSES)
    if most >= MOST_CLASSES:
        classes = np.unique(classes, return_inverse=True)[1]
        most = int(classes.max())
    sizes = np.zeros(most + 1, np.int32 if len(classes) < 1 << 31 else np.int64)
    for part in pieces(classes):
        _count(part.astype(np.int32), sizes)
    return classes, sizes


def _look_up(table: np.ndarray, classes: np.ndarray, found: np.ndarray) -> None:
    """The number of each row's class in the table."""
    first = 0
    for part in pieces(classes):
        found[first : first + len(part)] = table[part]
        first += len(part)


@kernel
def _count(classes: np.ndarray, sizes: np.ndarray) -> None:
    for number in classes:
        sizes[number] += 1


@kernel
def _shuffle_into_buckets(
    rows: np.ndarray,
    left: int,
    random: np.random.Generator,
    bucket: np.ndarray,
    starts: np.ndarray,
    order: np.ndarray,
) -> None:
    """Shuffle as ``random.shuffle`` does, from the end; move what is shuffled into its bucket.

    That is, all rows from ``left`` on. A bucket is filled from its end, so that rows keep their
    order in it.
    """
    drawn = np.empty(DRAWN, np.int64)
    stop = len(rows)
    while stop > left:
        number = min(DRAWN, stop - left)
        for i in range(number):
            drawn[i] = random_interval(random.bit_generator, stop - 1 - i)  # type: ignore[no-untyped-call]
            prefetch(rows, drawn[i])
        for i in range(number):
            place, other = stop - 1 - i, drawn[i]
            rows[place], rows[other] = rows[other], rows[place]
            prefetch(bucket, rows[place])
        for i in range(number):
            row = rows[stop - 1 - i]
            starts[bucket[row]] -= 1
            order[starts[bucket[row]]] = row
        stop -= number


@kernel
def _group_buckets(order: np.ndarray, place: np.ndarray, ends: np.ndarray) -> None:
    """Group the rows of each bucket by class, stably; ``place`` is that of its class in it."""
    begin = 0
    for number, end in enumerate(ends):
        rows = order[begin:end].copy()
        taken = np.zeros(BUCKET, order.dtype)
        for i in range(len(rows)):
            prefetch(place, rows[min(i + 2 * AHEAD, len(rows) - 1)])
            own = place[rows[i]]
            order[number * BUCKET + own + taken[own]] = rows[i]
            taken[own] += 1
        begin = end


def parents_of(labels: np.ndarray) -> np.ndarray:
    """The parent of each row's class: its class one level above the finest."""
    return labels[:, -2] if labels.shape[1] > 1 else np.zeros(len(labels), np.int64)


def require_classes(
    groups: np.ndarray,
    options: BatchOptions,
    classes: np.ndarray | None = None,
    at_random: np.ndarray | None = None,
) -> None:
    """Refuse labels that do not fill a single batch.

    Args:
        groups: how often each class, or run, can give K images.
        options: of the batches.
        classes: class of each run; None: groups are of classes.
        at_random: likewise, how often each class could in the order "random".
    """
    eligible, there = int(np.count_nonzero(groups)), len(groups)
    if classes is not None:
        eligible, there = len(np.unique(classes[groups > 0])), len(np.unique(classes))
    if eligible >= options.classes_per_batch:
        return
    wanted, remedy = options.classes_per_batch, "lower classes_per_batch"
    if options.small_classes != "drop" and eligible == there:
        found = f"{verb_text(there, 'are')} {count_text(there, 'class')}"
        raise InvalidData(f"there {found}, but a batch needs {wanted}; {remedy}")
    have, remedy = f"{options.images_per_class} images or more", f"{remedy} or images_per_class"
    if at_random is not None:
        have = f"a run of {have}"
        if np.count_nonzero(at_random) >= wanted:
            remedy += ', or take the order "random", which needs no runs'
    some = part_text(eligible, there, "class", "have")
    raise InvalidData(f"{some} {have}, but a batch needs {wanted} of them; {remedy}")


def count_up(table: np.ndarray) -> np.ndarray:
    """Count, for each cell, the earlier cells with the same number.

    Example:
        >>> count_up(np.array([[4, 2], [2, 4], [4, 3]])).tolist()
        [[0, 0], [1, 1], [2, 0]]
    """
    cells = table.reshape(-1)
    seen = np.zeros(int(table.max(initial=-1)) + 1, np.int32)
    _count(cells, seen)
    found = np.empty(len(cells), np.min_scalar_type(seen.max(initial=0)))  # mostly one byte each
    seen[:] = 0
    _count_up(cells, seen, found)
    return found.reshape(table.shape)


@kernel
def _count_up(cells: np.ndarray, seen: np.ndarray, found: np.ndarray) -> None:
    for i in range(len(cells)):
        found[i] = seen[cells[i]]
        seen[cells[i]] += 1


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
    kinds = random.permutation(len(counts)).astype(np.int32)
    used = np.minimum(counts, rows)[kinds]
    if surplus := int(used.sum()) - rows * width:  # fewer than a row's width
        gone = random.choice(int(used.sum()), surplus, replace=False)
        np.subtract.at(used, np.searchsorted(np.cumsum(used), gone, side="right"), 1)
    table = np.empty((rows, width), np.int32)
    _deal(kinds, used, table)
    for first in range(0, SWAPS * table.size, PIECE):
        number = min(PIECE, SWAPS * table.size - first)
        _swap(table, random.integers(0, table.size, (number, 2)))
    order = random.permutation(rows)
    for column in table.T:  # one by one, since a copy of a large table takes its memory again
        column[:] = column[order]
    return table


@kernel
def _deal(kinds: np.ndarray, used: np.ndarray, table: np.ndarray) -> None:
    """Put item i into row i % rows: no kind has more items than rows, so no row has it twice."""
    row, column = 0, 0
    for kind, number in zip(kinds, used):  # noqa: B905 - numba has no strict
        for _ in range(number):
            table[row, column] = kind
            row += 1
            if row == len(table):
                row, column = 0, column + 1


@kernel
def _swap(table: np.ndarray, picks: np.ndarray) -> None:
    """Exchange two cells if both rows still hold different kinds afterwards."""
    width, cells = table.shape[1], table.reshape(-1)
    for n in range(picks.shape[0]):
        coming = min(n + AHEAD, picks.shape[0] - 1)
        for pick in picks[coming]:
            for cell in range(pick - pick % width, pick - pick % width + width, LINE):
                prefetch(cells, cell)
        row, column = picks[n, 0] // width, picks[n, 0] % width
        other, place = picks[n, 1] // width, picks[n, 1] % width
        one, two = table[row, column], table[other, place]
        if row == other or one == two:
            continue
        same = 0
        for i in range(width):  # to the end, since a loop with a break is not vectorised
            same += (table[row, i] == two) | (table[other, i] == one)
        if same == 0:
            table[row, column], table[other, place] = two, one
