"""The runner of a pipeline as the command line names it, for stages and tools alike.

Nothing heavy is imported before it is asked for.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hgld.errors import UsageError

if TYPE_CHECKING:
    from hgld.run import Runner

__all__ = ["login_name", "open_runner"]


def open_runner(
    pipeline_file: Path,
    settings: Sequence[str] | None,
    work: Path | None,
    now: str | None = None,
) -> "Runner":
    """The runner of a pipeline file with its settings, in its work folder, as of a date."""
    from hgld import console
    from hgld.config import load_pipeline
    from hgld.lock import Workspace
    from hgld.run import Runner

    pipeline = load_pipeline(pipeline_file, settings or ())
    workspace = Workspace(pipeline_file, pipeline, work or Path("work") / pipeline_file.stem)
    return Runner(workspace, _date(now), console.Printer())


def login_name() -> str:
    """Who is at work, for what is signed.

    Raises:
        UsageError: the login has no name.
    """
    from getpass import getuser

    try:
        return getuser()
    except (KeyError, OSError):
        raise UsageError("this login has no name; say who decides: --set review.who=NAME") from None


def _date(now: str | None) -> str:
    from datetime import UTC, date, datetime

    try:
        return (datetime.now(UTC).date() if now is None else date.fromisoformat(now)).isoformat()
    except ValueError:
        raise UsageError(f"--now {now}: expected a date such as 2026-01-31") from None
