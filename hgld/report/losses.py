"""Read the loss of each training step from a run's ``metrics.jsonl``."""

import json
from pathlib import Path
from typing import Any

from hgld.errors import InvalidData

__all__ = ["LossCurve", "read_losses"]

LossCurve = tuple[list[float], list[float]]  # steps and losses


def read_losses(run: Path) -> LossCurve | None:
    """Return steps and losses of a run; None if it was not trained.

    Raises:
        InvalidData: a line is not a JSON object.
    """
    path = run / "metrics.jsonl"
    if not path.is_file():
        return None
    records = [
        _parse_line(line, path, number)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    ]
    pairs = [(float(r["step"]), float(r["loss"])) for r in records if "step" in r and "loss" in r]
    return ([step for step, _ in pairs], [loss for _, loss in pairs]) if pairs else None


def _parse_line(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        record: dict[str, Any] = dict(json.loads(line))
    except (ValueError, TypeError):
        raise InvalidData(
            f"{path} line {number}: not a JSON object; delete the run's folder and train again"
        ) from None
    return record
