"""Conflicts between decisions, and other faults of a file of decisions after a merge in git."""

from collections.abc import Mapping

import pandas as pd

from hgld.artifacts.columns import records
from hgld.hierarchy.decisions import Decided, fault_of_place, kinds_of

__all__ = ["check_decisions", "sides_of"]

SIDE = ("id", "decision", "supercategory", "kind", "who", "when", "why", "entry")


def sides_of(decisions: pd.DataFrame, sheet: pd.DataFrame) -> dict[str, list[Mapping[str, str]]]:
    """Return key -> the decisions in force on the value of each row of a review sheet.

    More than one with different answers are a conflict.
    """
    decided = Decided(decisions)
    return {
        row["key"]: [
            {name: getattr(head, name) for name in SIDE}
            for head in decided.heads(row["key"], row["instance_of"] or row["key"])
        ]
        for row in records(sheet)
    }


def check_decisions(decisions: pd.DataFrame, taxonomy: pd.DataFrame) -> list[tuple[int, str]]:
    """Return the faults of decisions: place of the row from 0 on, and what is wrong.

    A fault is a conflict, a name in ``supersedes`` or ``undoes`` that is no row of the file, or a
    decision in force whose supercategory or kind is not in the taxonomy.
    """
    decided, kinds = Decided(decisions), kinds_of(taxonomy)
    rows, faults = decided.rows(), []
    known = {row.id for row in rows} | {row.when for row in rows}
    for row in rows:
        for name in {*row.supersedes, *row.undoes} - known:
            faults.append((row.place, f"'{row.key}' replaces {name}, which is no row of the file"))
    for decision in decided.all():
        if decision.rivals:
            faults.append((decision.place, f"'{decision.key}' is in conflict: {decision.conflict}"))
        elif decision.places and (
            fault := fault_of_place(decision.supercategory, decision.kind, kinds)
        ):
            faults.append((decision.place, f"'{decision.key}': {fault}"))
    return sorted(faults)
