"""The errors that hgld raises.

    HgldError                 exit 1   what, where, what was expected, what to do
    ├── UsageError            exit 2   a command, option or pipeline key that does not exist
    ├── InvalidData           exit 3   data given by a person does not hold what it should
    │   └── DamagedImage      exit 3   one image of a shard was changed or cannot be decoded
    ├── ShapeError            exit 1   tensors that do not fit together (also a ValueError)
    ├── MissingInput          exit 1   a stage was run before the stage that makes its input
    ├── MissingWeights        exit 1   a model's weights cannot be had from here
    ├── WaitingForReview      exit 20  decisions are open; once made, the same command goes on
    └── Resumable             exit 75  stopped on the way; the same command goes on

Code raises short, where the fault is seen; the file and row are added once, by whoever knows them.
Only ``hgld.cli`` prints an error and turns it into an exit code.
"""

from errno import EDQUOT, ENOSPC

__all__ = [
    "DISK_FULL",
    "DamagedImage",
    "HgldError",
    "InvalidData",
    "MissingInput",
    "MissingWeights",
    "Resumable",
    "ShapeError",
    "UsageError",
    "WaitingForReview",
]

_STEERING = dict.fromkeys({*range(32), *range(127, 160), 0x2028, 0x2029} - {ord("\n")}, " ")
DISK_FULL = (ENOSPC, EDQUOT)  # numbers of the OSError where no more can be written


class HgldError(Exception):
    """A fault that a person can understand and mend; its text is one line.

    Text of others (a column's name, a label) may hold characters that break a line or steer a
    terminal: each is a blank here. A newline stays: it parts the faults of a list.
    """

    exit_code = 1

    def __str__(self) -> str:
        return super().__str__().translate(_STEERING)


class UsageError(HgldError):
    """A command, option or pipeline key that does not exist or does not fit."""

    exit_code = 2


class InvalidData(HgldError):
    """Data given by a person is not what it should be: file, row, found, expected."""

    exit_code = 3


class DamagedImage(InvalidData):
    """The bytes of one image in a shard were changed, or cannot be decoded."""


class ShapeError(HgldError, ValueError):
    """Tensors whose shapes, values or number of levels do not fit together."""


class MissingInput(HgldError):
    """A stage needs a file that the named earlier stage makes."""


class MissingWeights(HgldError):
    """A model's weights are neither on this machine nor within reach."""


class WaitingForReview(HgldError):
    """A person has to decide before the run can go on."""

    exit_code = 20


class Resumable(HgldError):
    """Stopped on the way with all finished work kept; the same command resumes."""

    exit_code = 75
