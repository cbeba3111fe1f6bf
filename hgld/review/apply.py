"""Apply review sheets: validate them, and append the new decisions.

If any cell is invalid, all faults are reported at once with row and column, and nothing is applied.
Deleted and unchanged rows change nothing: to reopen a value, write ``unsure``. The row of a value
takes precedence over the row of its cluster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from hgld.artifacts import Vectors
from hgld.errors import InvalidData
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.columns import records, table_of
from hgld.hierarchy.decisions import Decided, key_types_of, kinds_of
from hgld.review.clusters import Bulk, Fault, read_bulk
from hgld.review.evidence import evidence_of
from hgld.review.sheets import hints_of
from hgld.review.spreadsheet import Sheet, read_sheets
from hgld.review.values import Reading, Value, WantedDecision, as_wanted, keyed, read_values
from hgld.words import count_text

__all__ = ["apply_sheets"]

SHOWN = 5  # doubtful rows named in an error


def apply_sheets(
    sheets: Sequence[Path],
    clusters: pd.DataFrame,
    label_vectors: Vectors,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    cluster_edits: pd.DataFrame,
    class_hints: pd.DataFrame,
    *,
    who: str,
    when: str,
    sure: bool = False,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return ``decisions`` and ``cluster_edits`` with a new row for each change in the sheets.

    Sheets of values and of clusters are recognised by their columns; a workbook has both. Each new
    decision names in ``supersedes`` the date of the decision that it replaces. A decision already
    in force is not written again, so a sheet may be applied twice, for example after a kill.

    Doubtful rows are applied only if the caller is ``sure``: rows that replace a newer decision
    which their sheet does not show, and decisions that seem to have moved to other keys.

    Raises:
        InvalidData: all faults of all sheets, with row, column, found and expected value; or,
            unless ``sure``, doubtful rows.
    """
    values = _values(clusters, decisions, hints_of(class_hints))
    kinds = kinds_of(taxonomy)
    wanted, bulk = _read_all(sheets, values, clusters, label_vectors, kinds, sure)
    accepted = {
        key: WantedDecision("keep", supercategory, kinds[supercategory], why)
        for key, (supercategory, why) in bulk.accepted.items()
        if values[key].in_force is None
    }
    new = _new_decisions({**accepted, **wanted}, values, kinds, who, when)
    together = dict(zip(cluster_edits["key"], cluster_edits["with_key"], strict=True))
    edits = [
        {**edit, "who": who, "when": when}
        for edit in bulk.edits
        if together.get(edit["key"]) != edit["with_key"]
    ]
    return (
        pd.concat([decisions, table_of("decisions", new)], ignore_index=True),
        pd.concat([cluster_edits, table_of("cluster_edits", edits)], ignore_index=True),
    )


def _read_all(
    paths: Sequence[Path],
    values: Mapping[str, Value],
    clusters: pd.DataFrame,
    label_vectors: Vectors,
    kinds: Mapping[str, str],
    sure: bool,
) -> tuple[dict[str, WantedDecision], Bulk]:
    """Read the rows of values and of clusters in all sheets; raise all faults together."""
    sheets = [sheet for path in paths for sheet in read_sheets(path)]
    of_clusters = [sheet for sheet in sheets if {"action", "cluster"} <= set(sheet.columns)]
    bulk, faults = Bulk({}, []), dict[str, list[Fault]]()
    if of_clusters:
        bulk, faults = read_bulk(of_clusters, clusters, label_vectors, kinds)
    wanted: dict[str, WantedDecision] = {}
    doubts: list[str] = []
    for sheet in [keyed(sheet) for sheet in sheets if sheet not in of_clusters]:
        found = read_values(sheet, values, kinds)
        faults[sheet.name] = found.faults + _twice(sheet, found.wanted, wanted)
        doubts += _doubts(sheet.name, found)
        wanted |= found.wanted
    lines = [line for name, faulty in faults.items() if faulty for line in _report(name, faulty)]
    if lines or (doubts and not sure):
        raise InvalidData(*(lines or doubts))
    return wanted, bulk


def _doubts(name: str, found: Reading) -> list[str]:
    """Return the doubts that a person should check before the sheet is applied, in lines."""
    if found.moved:
        return [
            f"{name}: {found.moved}, nothing was applied; were columns sorted without the others? "
            "Undo that, or add --yes if the rows are meant so"
        ]
    if not found.reverts:
        return []
    lines = found.reverts[:SHOWN]
    if more := len(found.reverts) - len(lines):
        lines.append(f"and {more:,} more")
    return [
        f"{name}: would replace {count_text(len(found.reverts), 'decision')} newer than the sheet, "
        "nothing was applied; take these rows out, or add --yes to replace them",
        *(f"  {line}" for line in lines),
    ]


def _values(
    clusters: pd.DataFrame, decisions: pd.DataFrame, hints: Mapping[str, str]
) -> dict[str, Value]:
    """Return key -> value; including decisions without a value, since the sheet shows them."""
    decided = Decided(decisions)
    gone = {
        d.key: Value(d.key_type, label, d.evidence, decided.history(d.key, label), {})
        for d in decided.all()
        for label in [d.key if d.key_type == "label" else ""]
    }
    columns = zip(
        key_types_of(clusters),
        clusters["instance_of"],
        evidence_of(clusters, hints),
        map(decided.history, clusters["class_id"], clusters["instance_of"]),
        records(clusters),
        strict=True,
    )
    keyed = zip(value_keys(clusters), columns, strict=True)
    return {**gone, **{key: Value(*cells) for key, cells in keyed}}  # a current value wins


def _new_decisions(
    wanted: Mapping[str, WantedDecision],
    values: Mapping[str, Value],
    kinds: Mapping[str, str],
    who: str,
    when: str,
) -> list[dict[str, str]]:
    return [
        {
            "key": key,
            "key_type": values[key].key_type,
            **{name: cell for name, cell in asdict(now).items() if name != "confirmed"},
            "who": who,
            "when": when,
            "supersedes": before.when if (before := values[key].in_force) else "",
            "evidence": values[key].evidence,
        }
        for key, now in sorted(wanted.items())
        if now.confirmed or now != as_wanted(values[key].in_force, kinds)
    ]


def _twice(
    sheet: Sheet, found: Mapping[str, WantedDecision], before: Mapping[str, WantedDecision]
) -> list[Fault]:
    """Return values that an earlier sheet decides differently."""
    expected = "what the other sheet says of this key; apply one of them only"
    return [
        (row.number, row.fault("decision", expected))
        for row in sheet.rows
        if (now := found.get(row["key"])) and before.get(row["key"], now) != now
    ]


def _report(name: str, faults: Sequence[Fault]) -> list[str]:
    """Return the faults in lines, by row."""
    texts = [text for _, text in sorted(faults, key=lambda fault: fault[0])]
    head = f"{name}: {count_text(len(texts), 'fault')}, nothing was applied"
    return [head, *(f"  {text}" for text in texts)]
