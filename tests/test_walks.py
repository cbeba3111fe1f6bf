"""The modules that one piece of work crosses, in the order in which they are entered.

python -m tests.test_walks        writes them into docs/code.md
"""

import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import hgld
from hgld.config import RunOptions
from hgld.ranking import losses, metrics
from hgld.shards.load import LoadedBatch
from hgld.tasks import watched_by
from hgld.train import train_models
from tests.made_shards import make_context, make_shards, small_options

PAGE = Path("docs/code.md")
BLOCK = (
    "<!-- walk {name}: written by python -m tests.test_walks -->\n{text}<!-- end of walk {name} -->"
)
ROOT = Path(hgld.__file__).parent
AT_MOST = {"photo": 8, "loss": 10, "score": 7}  # modules; lower it when a walk gets shorter
LABELS = torch.tensor([[0, 0], [0, 0], [0, 1], [1, 2]])  # (B, L)


def crossed(work: Callable[[], object]) -> list[str]:
    """Modules of hgld whose functions some work calls, each where it is called first."""
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(ROOT):
            found[".".join(file.relative_to(ROOT.parent).with_suffix("").parts)] = None

    work()  # once before, as the first time compiles, caches and checks
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a profile sees its own thread alone
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        torch.set_num_threads(threads)
    return [name.removesuffix(".__init__") for name in found]


class Photo:
    """The modules that pass on the photos of a training's first step, and who calls each."""

    def __init__(self, folder: Path) -> None:
        self.callers: dict[str, set[str]] = {}
        run = {"run": RunOptions(loss="HAPPIER", steps=2)}
        context, shards = make_context(folder), make_shards(folder)
        with watched_by(self._first_step):
            train_models(shards, options=small_options(runs=run), context=context, out=folder)

    def _first_step(
        self, items: Iterable[Any], label: object, _: int | None, done: int
    ) -> Iterator[Any]:
        for number, item in enumerate(items):
            if number == 0 and str(label).startswith("Training"):
                sys.setprofile(self._note)
            yield item
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, value: object) -> None:
        here, above = module_of(frame), frame.f_back
        if here is None or event not in ("call", "return"):
            return
        while above is not None and module_of(above) is None:
            above = above.f_back
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
        passed = [frame.f_locals.get(name) for name in names] if event == "call" else [value]
        caller = module_of(above) if above is not None else None
        if caller not in (None, here) and any(map(is_photo, passed)):
            self.callers.setdefault(here, set()).add(str(caller))


def module_of(frame: FrameType) -> str | None:
    file = Path(frame.f_code.co_filename)
    if not file.is_relative_to(ROOT):
        return None
    return ".".join(file.relative_to(ROOT.parent).with_suffix("").parts)


def is_photo(value: object) -> bool:
    """Bytes, an image, or a batch of images of 32 pixels; nothing else that is numbers."""
    if isinstance(value, np.ndarray | torch.Tensor):
        return value.ndim >= 3 and (value.shape[-3:] == (3, 32, 32) or value.shape[2:] == (3,))
    if isinstance(value, tuple):
        return any(map(is_photo, value))
    return isinstance(value, bytes | memoryview | Image.Image | LoadedBatch)


def photo(callers: dict[str, set[str]]) -> list[str]:
    """From the shard to the model, whose embedding the loss gets: who calls, before the called."""
    order: list[str] = []
    waiting = ["hgld.train.loop"]
    while waiting:
        order.append(waiting.pop(0))
        waiting = sorted(m for m, by in callers.items() if order[-1] in by) + waiting
    return order


def loss() -> list[str]:
    """A batch of embeddings to HAPPIER's loss and back."""
    labels = torch.arange(64)[:, None] // torch.tensor([32, 8, 2])  # enough for the CPU's kernel
    embeddings = torch.randn(64, 8, requires_grad=True)
    happier = losses.HAPPIER(num_levels=3, num_classes=32, dim=8)
    return crossed(lambda: happier(embeddings, labels).backward())


def score() -> list[str]:
    """Embeddings to H-AP and recall."""
    vectors = torch.nn.functional.normalize(torch.randn(4, 8), dim=1)
    sides = (vectors, LABELS, vectors, LABELS)
    names = ["H-AP", "R@1"]
    return crossed(lambda: metrics.evaluate(*sides, names, exclude_self=True))


def walks() -> dict[str, list[str]]:
    """Name of each walk -> modules."""
    with tempfile.TemporaryDirectory() as folder:
        found = photo(Photo(Path(folder)).callers)
        return {"photo": found, "loss": loss(), "score": score()}


def filled(page: str, found: dict[str, list[str]]) -> str:
    """The page with each walk written between its marks."""
    for name, modules in found.items():
        lines = "".join(f"{number}. `{module}`\n" for number, module in enumerate(modules, 1))
        pattern = re.compile(BLOCK.format(name=name, text=".*?"), re.S)
        page = pattern.sub(BLOCK.format(name=name, text=f"\n{lines}\n"), page)
    return page


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    return walks()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="profilers see no kernels there")
def test_the_walks_in_the_pages_are_those_of_a_small_run(found: dict[str, list[str]]) -> None:
    page = PAGE.read_text("utf-8")
    assert filled(page, found) == page, "run python -m tests.test_walks"


@pytest.mark.parametrize("name", AT_MOST)
def test_a_walk_does_not_get_longer(name: str, found: dict[str, list[str]]) -> None:
    assert 3 <= len(found[name]) <= AT_MOST[name]


def test_a_photo_enters_no_module_twice(tmp_path: Path) -> None:
    callers = Photo(tmp_path).callers
    assert {module: len(by) for module, by in callers.items()} == dict.fromkeys(callers, 1)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text("utf-8"), walks()), encoding="utf-8")
