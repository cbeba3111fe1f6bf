"""The modules that one piece of work crosses, in the order in which they are entered.

python -m tests.test_walks        writes them into docs/code.md
"""

import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import hgld
from hgld.ranking import losses, metrics
from hgld.shards import BatchLoader, BatchOptions, read_index
from tests.made_shards import make_shards

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


def photo(folder: Path) -> list[str]:
    """A photo from its shard into a batch."""
    shards = make_shards(folder)
    rows = read_index(shards).query("split == 'train'").reset_index(drop=True)
    loader = BatchLoader(shards, rows, _to_input, BatchOptions(2, 2), seed=0)
    batches = iter(loader)
    return crossed(lambda: next(batches))


def _to_input(image: Any) -> torch.Tensor:
    return torch.zeros(3, 8, 8) + image.width


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
        return {"photo": photo(Path(folder)), "loss": loss(), "score": score()}


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


def test_the_walks_in_the_pages_are_those_of_a_small_run(found: dict[str, list[str]]) -> None:
    page = PAGE.read_text("utf-8")
    assert filled(page, found) == page, "run python -m tests.test_walks"


@pytest.mark.parametrize("name", AT_MOST)
def test_a_walk_does_not_get_longer(name: str, found: dict[str, list[str]]) -> None:
    assert 3 <= len(found[name]) <= AT_MOST[name]


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text("utf-8"), walks()), encoding="utf-8")
