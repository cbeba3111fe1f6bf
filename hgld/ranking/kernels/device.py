"""Decide whether kernels may run on a device; give them threads, memory and exact products.

A kernel is checked before its first use on a device in a process: a small case is computed by the
kernel and by plain torch (``agrees``). If the two differ, or the kernel cannot be compiled, plain
torch is used on that device for the rest of the process, with one warning. ``HGLD_KERNELS=off``
skips all kernels, on a CPU, too.

Triton comes with torch's GPU builds. Its kernels run on a GPU, or on a CPU in its interpreter
(``TRITON_INTERPRET=1``), which is slow and used for tests.

A caller may have autocast or TF32 on for the model. Both round the factors of a product, which
similarities must avoid (``whole_products``). TF32 is a setting of the process, so it is off while
any thread needs it off.

Large arrays are in temporary files without a name, which the system writes to disk when memory is
short. All kernels refuse scores that are nan or inf by the same check.
"""

import math
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from hgld.errors import HgldError, ShapeError, UsageError
from hgld.words import single_blanks

Compare = Callable[[], tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]
Watch = Callable[[Sequence[slice]], Iterable[slice]]  # wraps blocks, e.g. to show progress
COLUMN_BITS = 25  # with 7 bits of level and 32 of score in one integer: 33 million images
MOST_PART = (1 << COLUMN_BITS) - 1  # the kernels number the images of a part
PART_IMAGES = 1 << 20  # on a CPU: 2 GB of 512 dimensions
IN_MEMORY = 1 << 24  # bytes of an array
LEAST_ROWS = 16  # for fewer queries or images, BLAS adds the products of a pair in another order
LEAST_PART = 256  # the same for fewer images of a part of a gallery
LONG_VECTOR = 256  # dimensions; BLAS adds up those of longer vectors in several passes
IMAGES_AT_ONCE = 1 << 10  # for each thread: their scores stay in the cache between the passes
TILE = 96  # images; in float64, BLAS adds those of the last ones beyond a multiple in another order
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}  # relative to the largest value
DRIVER = Path("/proc/driver/nvidia/version")

_forced: ContextVar[Literal["off", "unchecked"] | None] = ContextVar("kernels", default=None)
_verdicts: dict[tuple[torch.device, Hashable], bool] = {}
_refused: set[torch.device] = set()


class KernelWarning(UserWarning):
    """A kernel failed its check on this machine, so plain torch is used instead, more slowly."""


@contextmanager
def using(kernels: Literal["off", "unchecked"]) -> Iterator[None]:
    """Within, skip all kernels, or use them without their check; for comparing the two."""
    before = _forced.set(kernels)
    try:
        yield
    finally:
        _forced.reset(before)


def wanted() -> bool:
    """Return whether kernels are switched on.

    Raises:
        UsageError: ``HGLD_KERNELS`` is neither "on" nor "off".
    """
    setting = os.environ.get("HGLD_KERNELS", "on")
    if setting not in ("on", "off", ""):
        raise UsageError(f"HGLD_KERNELS is {setting!r}; expected on or off")
    return (_forced.get() or setting) != "off"


def has_triton(device: torch.device) -> bool:
    """Return whether Triton kernels can run on a device and are switched on."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return device.type == ("cpu" if interpreted else "cuda") and _found("triton") and wanted()


@lru_cache(maxsize=2)
def _found(package: str) -> bool:
    return find_spec(package) is not None


def agrees(device: torch.device, case: Hashable, compare: Compare) -> bool:
    """Return whether a kernel and plain torch give the same values on a device.

    Args:
        device: the device the kernel runs on.
        case: the kernel's name, or a tuple of it and the parameters it is compiled for; each case
            is compared once per process.
        compare: computes a small case by the kernel, then in plain torch: two tuples of tensors.

    Example:
        >>> agrees(torch.device("cpu"), "sum", lambda: ((torch.ones(2),), (torch.ones(2),)))
        True
    """
    if not wanted() or device in _refused:
        return False
    if _forced.get() == "unchecked":
        return True
    key = device, case
    if key not in _verdicts:
        with torch.inference_mode(False), torch.autocast(device.type, enabled=False):
            fault = _fault(compare)
        _verdicts[key] = not fault
        if fault:
            _refused.add(device)
            _warn(device, case, fault)
    return _verdicts[key]


def _fault(compare: Compare) -> str:
    """Describe the fault of a kernel; "" if there is none."""
    try:
        found, truth = compare()
    except (HgldError, torch.OutOfMemoryError):
        raise  # errors of the data or the machine, which plain torch would raise as well
    except Exception as error:  # compilers raise errors of any class
        return f"it failed with {type(error).__name__}: {single_blanks(str(error))[:200]}"
    worst = max(largest_difference(*pair) for pair in zip(found, truth, strict=True))
    limit = max(TOLERANCE.get(part.dtype, 0.0) for part in truth)
    return "" if worst <= limit else f"it differs from plain torch by {worst:.1e} of the value"


def largest_difference(found: Tensor, truth: Tensor) -> float:
    """Return the largest difference relative to the largest value; inf if only one is finite.

    Example:
        >>> largest_difference(torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0]))
        0.25
    """
    found, truth = found.double().cpu(), truth.double().cpu()
    same = (found == truth) | (found.isnan() & truth.isnan())
    apart = torch.where(same, 0.0, (found - truth).abs()).nan_to_num(nan=torch.inf)
    scale = truth.abs().nan_to_num(nan=0.0).max().clamp(min=1e-30)
    return float(apart.max() / scale)


def _warn(device: torch.device, case: Hashable, fault: str) -> None:
    name = case[0] if isinstance(case, tuple) else case
    warnings.warn(
        f"the kernel for {name} is not used on {describe(device)}: {fault}. Plain torch computes "
        "on this device from now on: the same values, more slowly. Please report this message with "
        "the output of `hgld doctor --gpu`; HGLD_KERNELS=off skips kernels without this check",
        KernelWarning,
        stacklevel=2,
    )


def describe(device: torch.device) -> str:
    """Return the device with the versions that its kernels depend on, in one line."""
    packages = ("torch", "triton") if has_triton(device) else ("torch", "numba", "numpy")
    versions = [f"{name} {_version(name)}" for name in packages]
    if device.type != "cuda":
        return f"the CPU ({', '.join(versions)})"
    try:  # "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release ..."
        words = DRIVER.read_text(encoding="utf-8").split()
        driver = next(word for word in words if word[:1].isdigit() and "." in word)
    except (OSError, StopIteration):
        driver = "of unknown version"
    return f"{torch.cuda.get_device_name(device)} (driver {driver}, {', '.join(versions)})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


@lru_cache(maxsize=4)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="hgld-ranking")


os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork


def over_rows(work: Callable[[slice], None], rows: int) -> None:
    """Call ``work`` with slices that partition the rows, one for each of torch's threads.

    Kernels release the interpreter lock, so plain threads run them in parallel. numba's own thread
    pools support neither a fork nor two simultaneous callers.
    """
    threads = min(torch.get_num_threads(), rows)
    if threads <= 1:
        work(slice(0, rows))
        return
    cuts = [rows * i // threads for i in range(threads + 1)]
    parts = [slice(a, b) for a, b in pairwise(cuts)]
    list(_pool(threads).map(work, parts))


def blocks_of(rows: int, step: int) -> list[slice]:
    """Return slices of at most ``step`` rows that partition the rows, in order.

    Example:
        >>> blocks_of(5, 2)
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(at, min(at + step, rows)) for at in range(0, rows, step)]


def largest_part(device: torch.device, dim: int) -> int:
    """Return the number of gallery images that are ranked at once on a device.

    On a GPU the part and its copy by class take at most half of the free memory.

    Example:
        >>> largest_part(torch.device("cpu"), 512)
        1048576
    """
    if device.type != "cuda":
        return PART_IMAGES
    return max(1, min(MOST_PART, torch.cuda.mem_get_info(device)[0] // (16 * dim)))


def new_array(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray[Any, Any]:
    """Return an array of arbitrary content, in a file below ``TMPDIR`` if it is large.

    Raises:
        HgldError: the disk is full.

    Example:
        >>> new_array((2, 3), np.int8).shape
        (2, 3)
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size <= IN_MEMORY:
        return np.empty(shape, dtype)
    try:
        with tempfile.TemporaryFile() as file:
            # reserved at once: a full disk would otherwise end the process by a signal
            os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as error:  # or the folder is gone
        raise HgldError(
            f"{tempfile.gettempdir()}: no room for {size / 1e9:.1f} GB while ranking "
            f"({error.strerror}); set TMPDIR to a folder on a larger disk"
        ) from None


class _Rounding:
    """Reduced precision of a backend's products: off while at least one caller is within."""

    def __init__(self, backend: str) -> None:
        self.products: Any = getattr(torch.backends, backend).matmul
        self.within, self.before = 0, "none"
        self.lock = threading.Lock()

    def enter(self) -> None:
        with self.lock:
            if not self.within:
                self.before = self.products.fp32_precision
                self._set("ieee")
            self.within += 1

    def leave(self) -> None:
        with self.lock:
            self.within -= 1
            if not self.within:
                self._set(self.before)

    def _set(self, precision: str) -> None:
        if self.before not in ("none", "ieee"):
            self.products.fp32_precision = precision


ROUNDINGS = {backend: _Rounding(backend) for backend in ("cuda", "mkldnn")}


@contextmanager
def whole_products(device: torch.device) -> Iterator[None]:
    """Within, no product's factors are rounded by autocast, TF32 or bfloat16."""
    rounding = ROUNDINGS["cuda" if device.type == "cuda" else "mkldnn"]
    with torch.autocast(device.type, enabled=False):
        rounding.enter()
        try:
            yield
        finally:
            rounding.leave()


def fill_up(vectors: Tensor, rows: int) -> Tensor:
    """Append some rows of zeros to (n, D) vectors; without a copy if there are none to append."""
    return pad(vectors, (0, 0, 0, rows)) if rows > 0 else vectors


def pair_scores(query: Tensor, gallery: Tensor) -> Tensor:
    """Return the (q, g) inner products; those of equal vectors tie, whatever their rows."""
    rest = -len(gallery) % TILE if gallery.dtype == torch.float64 else LEAST_ROWS - len(gallery)
    scores = fill_up(query, LEAST_ROWS - len(query)) @ fill_up(gallery, rest).T
    return scores[: len(query), : len(gallery)]


def score_rows(query: Tensor, gallery: Tensor, scores: Tensor) -> None:
    """Write the (q, g) inner products on a CPU, in float32.

    The bits of one depend neither on the rows beside it nor on its own: equal vectors tie. Of long
    vectors some images at a time are multiplied, in 0.75 to 0.9 of the time.
    """
    left, right = (fill_up(side, LEAST_ROWS - len(side)) for side in (query, gallery))
    few = left is not query or right is not gallery
    out = scores.new_empty(len(left), len(right)) if few else scores
    long = right.shape[1] >= LONG_VECTOR
    step = IMAGES_AT_ONCE * torch.get_num_threads() if long else len(right)
    cuts = [*range(0, max(1, len(right) - LEAST_PART), step), len(right)]
    with whole_products(query.device):
        for a, b in pairwise(cuts):
            torch.mm(left, right[a:b].T, out=out[:, a:b])
    if few:
        scores.copy_(out[: len(query), : len(gallery)])


def all_finite(numbers: Tensor) -> bool:
    """Whether no number is nan or inf; tests their sum first, which needs no temporary table."""
    # A sum of finite numbers can overflow, so a bad sum is checked number by number.
    return math.isfinite(numbers.sum().item()) or bool(torch.isfinite(numbers).all())


def check_scores(scores: Tensor) -> None:
    """Raise ShapeError if a score is nan or inf."""
    if not all_finite(scores):
        raise not_finite()


def not_finite() -> ShapeError:
    """The error for scores that are nan or inf."""
    return ShapeError("scores hold nan or inf; expected finite embeddings")
