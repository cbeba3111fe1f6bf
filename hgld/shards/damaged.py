"""Count damaged images against a budget, and choose replacements for them.

One flipped bit should not end a run of days, but a disk that loses images should. Images that were
changed or cannot be decoded are counted; within the budget each is replaced by another image of
its class. The choice depends on the plan and on the damaged image alone, so that all readers,
ranks and workers produce the same batch.

Each process that loads images knows the damaged ones that it found itself. The process that yields
the batches merges them: the budget applies to all processes and epochs together, and each image is
reported once.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from hgld.errors import InvalidData
from hgld.shards.batches import GlobalBatch
from hgld.shards.files import OTHER
from hgld.shards.sampling import require_count
from hgld.tasks import say_or_warn
from hgld.words import count_text


def exceeded(fault: str, images: int, budget: int) -> InvalidData:
    """The error for more damaged images than the budget tolerates.

    Example:
        >>> print(exceeded("a.tar: key 7: the image cannot be decoded", 3, 2))
        a.tar: key 7: the image cannot be decoded (3 undecodable images; \
undecodable_budget allows 2)
    """
    return InvalidData(
        f"{fault} ({count_text(images, 'undecodable image')}; undecodable_budget allows {budget})"
    )


class DamagedImages:
    """The images that could not be decoded, by row number.

    Args:
        budget: number of damaged images to tolerate.
        name: shard and key of a row.
        speaks: whether this process reports them.

    Attributes:
        rows: row numbers of all damaged images found so far.
    """

    def __init__(self, budget: int, name: Callable[[int], str], *, speaks: bool = True) -> None:
        require_count("undecodable_budget", budget, least=0)
        self.budget, self.speaks = budget, speaks
        self.rows: set[int] = set()
        self._name = name

    def hold(self, met: Collection[int]) -> None:
        """Add row numbers of damaged images, known ones included, and report each new one.

        Raises:
            InvalidData: there are now more of them than the budget.
        """
        new = sorted(set(met) - self.rows)
        self.rows.update(new)
        if met and len(self.rows) > self.budget:
            fault = f"{self._name(max(new or met))}: the image was changed or cannot be decoded"
            raise exceeded(f"{fault}, {OTHER}", len(self.rows), self.budget)
        for row in new if self.speaks else ():
            say_or_warn(
                f"{self._name(row)}: is damaged; another image of its class takes its place"
            )

    def state_dict(self) -> dict[str, Any]:
        """The row numbers found so far, to be saved."""
        return {"rows": sorted(self.rows)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the row numbers of a saved state."""
        self.rows = set(map(int, state["rows"]))


def spare_rows(batch: GlobalBatch, at: int, labels: np.ndarray, seed: int) -> Iterator[int]:
    """Candidates to replace the image at cell ``at`` of a global batch, best first.

    Images outside the batch come first. Each cell of the class has its own share of them, so that
    two damaged images are not replaced by the same one. If the class has no other image, an image
    that is already in the batch is repeated.
    """
    finest = labels[:, -1]
    label = finest[batch.rows[at]]
    together = np.flatnonzero((batch.rows >= 0) & (finest[batch.rows] == label))  # its K places
    nth = int(np.searchsorted(together, at))
    # Sorted and shuffled by seed, so that all processes choose alike.
    others = np.setdiff1d(np.flatnonzero(finest == label), batch.rows[together])
    np.random.default_rng([seed, batch.epoch, batch.step, int(label)]).shuffle(others)
    for turn in range(len(together)):
        yield from others[(nth + turn) % len(together) :: len(together)].tolist()
    yield from batch.rows[np.roll(together, -nth)[1:]].tolist()
