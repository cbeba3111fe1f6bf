"""Listeners that remember what a run did, and what code said."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from hgld.pipeline.run import Summary
from hgld.pipeline.stages import Stage
from hgld.tasks import watched_by


@contextmanager
def heard() -> Iterator[list[str]]:
    """Yield a list to which each notice inside the block is added."""
    notices = list[str]()
    with watched_by(None, notices.append):
        yield notices


class Notes:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.why: dict[str, str] = {}
        self.summaries: dict[str, Summary] = {}
        self.notices: list[str] = []

    def starts(self, stage: Stage, reasons: Sequence[str]) -> None:
        self.ran.append(stage.name)
        self.why[stage.name] = "; ".join(reasons)

    def working(self, stage: Stage) -> AbstractContextManager[None]:
        return nullcontext()

    def finished(self, summary: Summary) -> None:
        self.summaries[summary.stage] = summary

    def fresh(self, stage: Stage) -> None:
        pass

    def notice(self, text: str) -> None:
        self.notices.append(text)
