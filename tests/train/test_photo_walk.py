"""The modules that a photo crosses between its shard and the loss, in a call trace."""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from PIL import Image

import hgld
from hgld.config import RunOptions
from hgld.shards.load import LoadedBatch
from hgld.tasks import watched_by

PACKAGE = Path(hgld.__file__).parent
WALK = {  # module -> from where a photo comes into it
    "shards/load": "train/loop",
    "shards/read": "shards/load",
    "shards/files": "shards/read",
    "images/decode": "shards/read",
    "images/jpeg": "images/decode",
    "train/learner": "train/loop",
    "model/image": "train/learner",
}


def module_of(frame: FrameType | None) -> str | None:
    path = Path(frame.f_code.co_filename) if frame is not None else Path()
    inside = path.is_relative_to(PACKAGE)
    return str(path.relative_to(PACKAGE).with_suffix("")) if inside else None


def is_photo(value: Any) -> bool:
    """Bytes, an image, or a batch of images of 32 pixels; nothing else that is numbers."""
    if isinstance(value, np.ndarray | torch.Tensor):
        return value.ndim >= 3 and (value.shape[-3:] == (3, 32, 32) or value.shape[2:] == (3,))
    if isinstance(value, tuple):
        return any(map(is_photo, value))
    return isinstance(value, bytes | memoryview | Image.Image | LoadedBatch)


class Trace:
    """Module -> modules that hand a photo to it, or get one from it, by calling it."""

    def __init__(self) -> None:
        self.callers: defaultdict[str, set[str]] = defaultdict(set)

    def first_step(self, items: Iterable[Any], label: object, _: int | None) -> Iterator[Any]:
        for number, item in enumerate(items):
            if number == 0 and str(label).startswith("Training"):
                sys.setprofile(self.watch)
            yield item
            sys.setprofile(None)

    def watch(self, frame: FrameType, event: str, value: Any) -> None:
        here, above = module_of(frame), frame.f_back
        if here is None or event not in ("call", "return"):
            return
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
        given = [frame.f_locals.get(name) for name in names] if event == "call" else [value]
        while above is not None and module_of(above) is None:
            above = above.f_back
        caller = module_of(above)
        if caller not in (None, here) and any(map(is_photo, given)):
            self.callers[here].add(str(caller))


def test_a_photo_crosses_eight_modules_and_enters_none_twice(train) -> None:
    trace = Trace()
    run = RunOptions(loss="HAPPIER", steps=2)
    with watched_by(trace.first_step):
        train({"run": run})
    assert trace.callers == {module: {caller} for module, caller in WALK.items()}
    assert len({*WALK, *WALK.values()}) == 8
