"""The rows of ``instance_of`` and ``misses``, collected a landmark at a time.

Finished parts are kept as tables, which take a tenth of the memory of their rows.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from hgld.hierarchy.columns import table_of
from hgld.hierarchy.scrape.answers import Statement, WikiClass
from hgld.hierarchy.scrape.route import Ending
from hgld.words import single_blanks

__all__ = ["Rows"]

PART = 5000  # rows


class Rows:
    """Collects what landmarks have and why others have nothing.

    Args:
        classes: of all statements, by the id that the statement names.
    """

    def __init__(self, classes: Mapping[str, WikiClass]) -> None:
        self._classes = classes
        self._rows: dict[str, list[dict[str, Any]]] = {"instance_of": [], "misses": []}
        self._parts: dict[str, list[pd.DataFrame]] = {"instance_of": [], "misses": []}

    def add(self, split: str, landmark_id: int, ending: Ending) -> None:
        """Add the landmark's statements that name a class, or the reason why it has none."""
        key = {"split": split, "landmark_id": landmark_id}
        if ending.reason:
            self._keep("misses", {**key, "reason": ending.reason, "detail": ending.detail})
            return
        item = {"item_id": ending.item.item_id, "revision": ending.item.revision}
        for statement in ending.item.statements:
            if statement.class_id:
                self._keep("instance_of", {**key, **item, **self._cells(statement)})

    def table(self, name: str) -> pd.DataFrame:
        """One of both tables in its declared columns."""
        if self._rows[name] or not self._parts[name]:
            self._finish(name)
        return pd.concat(self._parts[name], ignore_index=True)

    def _cells(self, statement: Statement) -> dict[str, Any]:
        named = self._classes[statement.class_id]
        return {
            "order": statement.order,
            "class_id": named.class_id,
            "instance_of": single_blanks(named.label) or named.class_id,
            "rank": statement.rank,
            "qualifiers": statement.qualifiers,
        }

    def _keep(self, name: str, row: dict[str, Any]) -> None:
        self._rows[name].append(row)
        if len(self._rows[name]) >= PART:
            self._finish(name)

    def _finish(self, name: str) -> None:
        self._parts[name].append(table_of(name, self._rows[name]))
        self._rows[name] = []
