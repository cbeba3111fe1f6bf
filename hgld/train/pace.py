"""Report how fast a run trains and how its time is divided, once per epoch."""

from hgld.tasks import say
from hgld.train.runs import RunFolder

__all__ = ["Pace"]

WORTH_TELLING_S = 60.0  # shorter epochs are reported together


class Pace:
    """Report the speed of a run from the timings in its folder.

    Args:
        folder: of the run; holds the seconds of each step.
        start: steps done before.
        steps: of the whole run.
    """

    def __init__(self, folder: RunFolder, start: int, steps: int) -> None:
        self.folder, self.steps = folder, steps
        self.told, self.epoch = start, -1

    def tell(self, done: int, epoch: int, images: int) -> None:
        """Report the pace of an epoch, at the first step of the next or the last of the run.

        Args:
            done: steps done.
            epoch: of the last of them, counted from 0.
            images: of a step.
        """
        if self.epoch not in (-1, epoch):
            self._tell(done - 1, images)
        self.epoch = epoch
        if done == self.steps:
            self._tell(done, images)

    def _tell(self, until: int, images: int) -> None:
        seconds = self.folder.seconds(self.told, until)
        if seconds["all"] < WORTH_TELLING_S and until < self.steps:
            return
        speed = images * (until - self.told) / max(seconds["all"], 1e-9)
        shares = ", ".join(
            f"{part} {100 * seconds[part] / max(seconds['all'], 1e-9):.0f} %"
            for part in ("data", "model", "loss")
        )
        say(
            f"{self.folder.path.name}: epoch {self.epoch + 1}, step {until} of {self.steps}: "
            f"{speed:.3g} images/s; of the time {shares}"
        )
        self.told = until
