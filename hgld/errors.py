"""The errors that hgld raises.

    HgldError                 exit 1   what, where, what was expected, what to do
    ├── UsageError            exit 2   a command, option or pipeline key that does not exist
    ├── InvalidData           exit 3   a file or table from the user is wrong
    │   └── DamagedImage      exit 3   one image of a shard was changed or cannot be decoded
    ├── ShapeError            exit 1   tensors that do not fit together (also a ValueError)
    ├── MissingInput          exit 1   a stage was run before the stage that makes its input
    ├── MissingWeights        exit 1   a model's weights are neither local nor downloadable
    ├── WaitingForReview      exit 20  decisions are open; once made, the same command continues
    └── Resumable             exit 75  stopped before the end; the same command continues

Code raises a short message at the place of the fault; the caller that knows the file and row adds
them once. Only ``hgld.cli`` prints an error and turns it into an exit code.
"""

import os
from collections.abc import Sequence
from errno import EACCES, EAGAIN, EDQUOT, EFBIG, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC, EPERM, ESTALE
from pathlib import Path

_STEERING = dict.fromkeys([*range(32), *range(127, 160), 0x2028, 0x2029], " ")
OF_SYSTEM = (EACCES, EAGAIN, EIO, EMFILE, ENFILE, ENOMEM, EPERM, ESTALE)
DISK_FULL = {  # errno of an OSError -> what is full, and what to do
    ENOSPC: "the disk is full; make space",
    EDQUOT: "the disk quota is used up; make space",
    EFBIG: "larger than a file may become here; raise the limit (ulimit -f)",
}
NO_MEMORY = "out of memory; give the process more (ulimit -v, the limit of the job)"
NO_THREAD = "no more threads or processes can start; allow more (ulimit -u, the limit of the job)"
SHORT_BY_ERRNO = {**DISK_FULL, EAGAIN: NO_THREAD, ENOMEM: NO_MEMORY}
SHORT_BY_WORDS = {  # words of an ImportError or RuntimeError -> likewise
    "allocate memory": NO_MEMORY,
    "failed to map segment": NO_MEMORY,  # a library does not fit
    "can't start new thread": NO_THREAD,
}


class HgldError(Exception):
    r"""An error that the user can fix; its message is one line, or one line a fault.

    Several faults are several arguments. Text from files (a column's name, a label) may hold
    characters that break a line or control a terminal: each is replaced by a blank.

    Example:
        >>> print(InvalidData("labels.csv: 2 faults", "  row 2: no name", "  row\n3: no name"))
        labels.csv: 2 faults
          row 2: no name
          row 3: no name
    """

    exit_code = 1

    def __str__(self) -> str:
        return "\n".join(str(line).translate(_STEERING) for line in self.args)


class UsageError(HgldError):
    """A command, option or pipeline key that does not exist or does not fit."""

    exit_code = 2


class InvalidData(HgldError):
    """A file or table is not as expected; the message names file, row, found and expected value."""

    exit_code = 3


class DamagedImage(InvalidData):
    """The bytes of one image in a shard have changed, or cannot be decoded."""


class ShapeError(HgldError, ValueError):
    """The shapes, values or number of levels of tensors do not fit together."""


class MissingInput(HgldError):
    """A stage needs a file that the named earlier stage makes."""


class MissingWeights(HgldError):
    """A model's weights are neither on this machine nor downloadable from it."""


class WaitingForReview(HgldError):
    """A person has to make decisions before the run can continue."""

    exit_code = 20


class Resumable(HgldError):
    """The run stopped early with all finished work kept; the same command resumes it."""

    exit_code = 75


def is_of_system(error: Exception) -> bool:
    """Whether a file could not be read for want of a permission, memory, threads or open files.

    Readers wrap such errors in many classes, but keep the system's words, or raise ``MemoryError``.

    Example:
        >>> is_of_system(RuntimeError("unable to mmap 8 bytes: Cannot allocate memory (12)"))
        True
        >>> is_of_system(OSError("Couldn't deserialize thrift"))
        False
    """
    words = (os.strerror(number) for number in OF_SYSTEM)
    return isinstance(error, MemoryError) or any(text in str(error) for text in words)


def shortage(error: Exception) -> str:
    """Return what the system is short of and what to do, if that is the error; else nothing.

    Example:
        >>> shortage(OSError(ENOSPC, "No space left on device")), shortage(ValueError("x"))
        ('the disk is full; make space', '')
    """
    if isinstance(error, MemoryError):
        return NO_MEMORY
    if isinstance(error, OSError):
        return SHORT_BY_ERRNO.get(error.errno or 0, "")
    words = SHORT_BY_WORDS if isinstance(error, ImportError | RuntimeError) else ()
    return next((SHORT_BY_WORDS[text] for text in words if text in str(error)), "")


def unreadable(path: Path, kind: str, error: Exception, advice: str) -> HgldError:
    """Return the error for a file whose reader raised this; the file may be undamaged.

    Args:
        path: of the file.
        kind: of file: "index".
        error: of the reader.
        advice: on a damaged file, such as to make it again.
    """
    reason = " ".join(str(error).split()) or type(error).__name__
    if is_of_system(error):
        return HgldError(f"{path}: cannot be read ({reason}); correct that and run it again")
    return InvalidData(f"{path}: not a readable {kind} ({reason}); {advice}")


def require_no_faults(path: Path, faults: Sequence[str]) -> None:
    """Raise ``InvalidData`` with all faults of a file, the first one behind its path.

    Args:
        path: of the file.
        faults: each with its row; none raises nothing.
    """
    if faults:
        raise InvalidData(f"{path} {faults[0]}", *(f"  {fault}" for fault in faults[1:]))
