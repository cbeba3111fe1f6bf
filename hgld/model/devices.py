"""Device and precision that a network computes with, and whether memory is short."""

import ctypes
import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hgld.config import EmbedOptions, EvaluateOptions, StageContext, TrainOptions
from hgld.errors import HgldError, UsageError

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}
TRIM_THRESHOLD, MMAP_MAX = -1, -4  # parameters of glibc's mallopt
# parts of the messages with which torch reports a lack of memory on a CPU
SHORT_OF_MEMORY = ("t allocate memory", "allocate shared memory", "to mmap", "size calculation")

_keeping = 0  # blocks within ``kept_memory``
_lock = threading.Lock()


def choose_device(name: str) -> torch.device:
    """The device of that name; ``auto`` is the GPU if there is one.

    Raises:
        UsageError: the name is unknown, or names a GPU and there is none.

    Example:
        >>> choose_device("cpu")
        device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    unknown = UsageError(f"device '{name}' is unknown; expected auto, cpu, cuda or cuda:1")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise unknown from None
    if device.type not in ("cpu", "cuda"):
        raise unknown
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device '{name}': there is no GPU here that torch can use; try cpu")
    if device.type == "cuda" and (device.index or 0) >= (count := torch.cuda.device_count()):
        last = "the only one is cuda:0" if count == 1 else f"the last is cuda:{count - 1}"
        raise UsageError(f"device '{name}': there is no such GPU here; {last}")
    return device


def check_device(
    *, options: EmbedOptions | TrainOptions | EvaluateOptions, context: StageContext
) -> None:
    """Refuse a GPU that this machine lacks, before earlier stages take their hours.

    Raises:
        UsageError: as ``choose_device``.
    """
    if getattr(options, "ray", None) is None:  # else it is the device of a node
        choose_device(options.device)


def worker_device(name: str) -> torch.device:
    """Return the device of that name; with several GPUs, worker processes take them in turn."""
    device = choose_device(name)
    # worker processes are numbered from 1; the main process has no number
    number = next(iter(multiprocessing.current_process()._identity), None)
    if device.type == "cuda" and device.index is None and number is not None:
        return torch.device("cuda", (number - 1) % torch.cuda.device_count())
    return device


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return the context in which a network computes in float32, bf16 or fp16.

    Example:
        >>> with autocast(torch.device("cpu"), "bf16"):
        ...     (torch.eye(2) @ torch.eye(2)).dtype
        torch.bfloat16
    """
    kind = PRECISIONS.get(precision)
    return torch.autocast(device.type, kind, enabled=kind is not None)


def is_slow(device: torch.device, precision: str) -> bool:
    """Whether a network would compute in fp16 on a CPU, many times slower than in float32."""
    return device.type == "cpu" and precision == "fp16"


def require_precision(device: torch.device, precision: str) -> None:
    """Refuse to embed in a precision that is slow on the device.

    Raises:
        UsageError: it is.
    """
    if is_slow(device, precision):
        raise UsageError("evaluate.precision fp16 needs a GPU; on a CPU set float32 or bf16")


@contextmanager
def kept_memory(device: torch.device) -> Iterator[None]:
    """Within, memory that a network on the CPU frees is kept for its next step.

    By default glibc returns each large block to the system, which clears its pages again for the
    next step: a third to a half of the time at 224 px. Another C library is left unchanged.
    """
    global _keeping
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if device.type != "cpu" or mallopt is None:
        yield
        return
    with _lock:
        _keeping += 1
        mallopt(MMAP_MAX, 0)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        with _lock:
            _keeping -= 1
            if not _keeping:
                mallopt(MMAP_MAX, 1 << 16)
                mallopt(TRIM_THRESHOLD, 1 << 26)
                ctypes.CDLL(None).malloc_trim(0)


def is_short_of_memory(error: BaseException) -> bool:
    """Whether an error reports a lack of memory, of the machine or of its GPU."""
    found = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return found or any(words in str(error) for words in SHORT_OF_MEMORY)


@contextmanager
def enough_memory(message: str) -> Iterator[None]:
    """Raise an error with this message if the block does not fit in the memory of its device.

    Raises:
        HgldError: out of memory.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # torch raises plain RuntimeError for other faults, too
        if not is_short_of_memory(error):
            raise
        raise HgldError(message) from None
