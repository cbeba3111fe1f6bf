"""Reader of a sheet of values: decision, faults and doubts of each row.

Two read-only columns are checked: a label or a base that belongs to another key shows that columns
were sorted separately, so that every decision would go to a wrong value. Spreadsheets often change
the other columns (``0,25``), which have no effect; a notice reports differences.

An unchanged row has no effect, even if the value was decided since. Each decision names the heads
that its row shows (``hgld.review.row_base``), so that a conflict with a newer decision is noticed.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import factorial, prod

from hgld.artifacts import DECISIONS, columns_of
from hgld.hierarchy.decisions import EDITS, PLACING, Decision, in_force
from hgld.hierarchy.kinds import kinds_to_choose
from hgld.review.row_base import EDITABLE, Base, base_of, cells_of, has_changed, hash_cells
from hgld.review.spreadsheet import Sheet, SheetRow, plain_digits
from hgld.tasks import say
from hgld.words import count_text, nearest, single_blanks

NEEDED = ("key", "decision", "supercategory")
HINTED = 20  # unknown keys with a "did you mean"; the search among thousands of keys is slow
ORDERED = ("key", "instance_of", "landmarks", "images")  # columns by which rows may be sorted
OPTIONAL = ("kind", "note", "comment")  # columns that a person fills in and a sheet may lack
COMPARED = ("landmarks", "images", "cluster")  # read-only cells; a notice reports differences
MOVED_FROM = 6  # changed rows; fewer may be ordinary corrections
MOVED_SHARE = 0.75  # of changed rows with another row's decision; 1 if columns were sorted
BLOCK = re.compile(r"(sure|rule) \w+")  # a block that the page accepted: its source and id
BY_CHANCE = Fraction(1, 100_000)  # largest chance probability for an order to count as sorted


@dataclass(frozen=True)
class Value:
    """A value, or a decision without one, with which the sheet's row of its key is compared.

    Attributes:
        history: all decisions on it.
        heads: those of them that a new decision replaces.
        cells: of the value in ``clusters``.
        key: of the value, also if the sheet has another one; empty without a value.
        also: parts of the evidence that count as unchanged (``earlier_hints``).
    """

    key_type: str
    label: str
    evidence: str
    history: Sequence[Decision]
    heads: Sequence[Decision]
    cells: Mapping[str, object]
    key: str = ""
    also: Collection[str] = ()

    @cached_property
    def in_force(self) -> Decision | None:
        """The decision in force, with its rivals; None if there is none."""
        return in_force(self.heads)


@dataclass(frozen=True)
class WantedDecision:
    """Decision of a row of the sheet, completed from the taxonomy.

    Attributes:
        confirmed: it repeats the decision in force although the value changed.
        supersedes: ids of the decisions that the row was made from.
        block: source and id of the block with which the page accepted it, or empty.
    """

    decision: str
    supercategory: str
    kind: str
    why: str
    confirmed: bool = field(default=False, compare=False)
    supersedes: tuple[str, ...] = field(default=(), compare=False)
    block: str = field(default="", compare=False)


@dataclass
class Reading:
    """Decisions of a sheet by key; faults by row; a sign that columns were sorted apart."""

    wanted: dict[str, WantedDecision] = field(default_factory=dict)
    faults: list[tuple[int, str]] = field(default_factory=list)
    moved: str = ""


def read_values(
    sheet: Sheet,
    values: Mapping[str, Value],
    kinds: Mapping[str, str],
    present: Mapping[str, tuple[str, str]],
    former_kinds: Mapping[str, Collection[str]],
) -> Reading:
    """Read the rows of a sheet of values (``keyed``).

    ``present`` has name and kind now of renamed and merged supercategories, ``former_kinds`` the
    kinds that one had; a row with such a kind has the present one.
    """
    sheet.require([*NEEDED, *(column for column in OPTIONAL if column in sheet.twice)])
    rows = [_completed(row, sheet.columns, values.get(row["key"])) for row in sheet.rows]
    reading = Reading(faults=_key_faults(rows, values))
    outdated, cleared, foreign = 0, list[int](), list[int]()
    known = {old.id for one in values.values() for old in one.history}
    for row in rows:
        value, base = values.get(row["key"]), Base.parse(row["base"])
        spoilt = row.damaged(EDITABLE) + (_mismatch(row, base, value) if value else [])
        if not known.issuperset(base.heads):
            foreign.append(row.number)
        found: WantedDecision | str | None = _untouched(row, value, kinds)
        if found is None and base and hash_cells(row.cells) == base.cells:
            shown = followed(base.heads, value.history) if value else ()
            outdated += value is not None and set(shown) != {head.id for head in value.heads}
        elif found is None:
            row_now = _as_named_now(row, base, value, kinds, present, former_kinds)
            found = _read_decision(row_now, kinds)
            if row["decision"].casefold() == "open" and value is not None:
                # a row that was written from an undone first decision shows it; without a base,
                # it was written from the present one
                heads = base.heads or [head.id for head in value.heads]
                if any(old.decision == "open" and old.id in heads for old in value.history):
                    found = WantedDecision("open", "", "", row["note"])  # a side of the conflict
            if found is None and base:
                cleared.append(row.number)
        if isinstance(found, WantedDecision):
            made_from = base.heads if base else _made_from(found, value, kinds)
            made_from = followed(made_from, value.history) if value else made_from
            reading.wanted[row["key"]] = replace(found, supersedes=made_from, block=row["block"])
        elif found:
            spoilt.append(found)
        if row["block"] and not BLOCK.fullmatch(row["block"]):
            spoilt.append(row.fault("block", "nothing, or the cell that the review page wrote"))
        reading.faults += [(row.number, fault) for fault in spoilt]
    reading.moved = _moved(rows, values)
    _say_differences(replace(sheet, rows=rows), values, outdated)
    if cleared:
        say(
            f"{sheet.name}: the decision is cleared in {count_text(len(cleared), 'row')}, the "
            f"first is row {cleared[0]}; the one in force stays: write unsure to open the value "
            "again"
        )
    if foreign:
        say(
            f"{sheet.name}: was written from decisions that decisions.csv does not have, in "
            f"{count_text(len(foreign), 'row')}, the first is row {foreign[0]}; is it the sheet "
            "of another labels folder?"
        )
    return reading


def _completed(row: SheetRow, columns: Collection[str], value: Value | None) -> SheetRow:
    """Add editable columns that the sheet lacks, from the shown decision if the rest agrees.

    So is an empty kind, which means that of the taxonomy.
    """
    cells = {name: row[name] for name in EDITABLE}
    missing = [n for n in EDITABLE if n not in columns or (n == "kind" and not row[n])]
    shown = cells_of(_shown(Base.parse(row["base"]), value)) if missing and value else cells
    same = all(cells[name].casefold() == shown[name].casefold() for name in NEEDED[1:])
    cells |= {name: shown[name] for name in missing if same}
    return replace(row, cells={**row.cells, **cells})


def _shown(base: Base, value: Value | None) -> Decision | None:
    """Return the decision that the row was written from; without a base, the one in force."""
    if value is None or not base:
        return value.in_force if value else None
    return in_force([decision for decision in value.history if decision.id in base.heads])


def followed(ids: Sequence[str], history: Sequence[Decision]) -> tuple[str, ...]:
    """Return ids of decisions with those that only an edit of the taxonomy replaced exchanged.

    A decision that follows a renamed supercategory is the same decision as the one before.
    """
    now, edits = set(ids), set[str]()
    rows = [row for row in history if row.entry.endswith(EDITS) and row.supersedes]
    # the rows of a file may be in any order
    while more := {row.id for row in rows if edits.issuperset(row.undoes)} - edits:
        edits |= more
    rows = [row for row in rows if row.id in edits]
    while row := next((one for one in rows if now.issuperset(one.supersedes)), None):
        now = now.difference(row.supersedes) | {row.id}
    return tuple(sorted(now))


def _made_from(
    wanted: WantedDecision, value: Value | None, kinds: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the ids of the decisions that a row without a base was made from.

    That is the present state, unless the row repeats a decision that was replaced since: then the
    sheet is older, and its row must not replace the newer decision.
    """
    if value is None:
        return ()
    heads = {head.id for head in value.heads}
    older = [old for old in value.history if old.id not in heads]
    repeated = [old.id for old in older if as_wanted(old, kinds) == wanted]
    return tuple(repeated[-1:]) or tuple(sorted(heads))


def _moved(rows: Sequence[SheetRow], values: Mapping[str, Value]) -> str:
    """Return a sign that decisions were sorted separately from their keys, or an empty text."""
    now, was = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for row in rows:
        value, base = values.get(row["key"]), Base.parse(row["base"])
        one, other = _place(row.cells), _place(cells_of(_shown(base, value)))
        if one != other and (base or (one[0] and other[0])):
            now[one] += 1
            was[other] += 1
    changed = now.total()
    # a sorted column permutes decisions: the changed rows have the same decisions as before
    if changed >= MOVED_FROM and (now & was).total() >= MOVED_SHARE * changed:
        return f"{count_text(changed, 'row')} hold the decisions of other rows"
    said = [_place(row.cells) for row in rows if row["supercategory"]]
    if _ascend(rows) and (_is_sorted(said) or _is_sorted([names[1:] for names in said])):
        return "the decisions are sorted, while the keys are in the order of writing"
    return ""


def _place(cells: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(cells[name].casefold() for name in NEEDED[1:])


def _ascend(rows: Sequence[SheetRow]) -> bool:
    """Whether all rows have the order in which they were written.

    Without bases, sorted keys, labels or numbers are taken as a sign of it.
    """
    places = [Base.parse(row["base"]).row for row in rows]
    if all(places):
        return all((len(a), a) < (len(b), b) for a, b in pairwise(places))
    orders = ([(f"{len(row[name]):9}", row[name]) for row in rows] for name in ORDERED)
    return any(_is_sorted(order) or _is_sorted([cells[1:] for cells in order]) for order in orders)


def _is_sorted(said: Sequence[tuple[str, ...]]) -> bool:
    """Whether texts are sorted or grouped so that chance is unlikely (below ``BY_CHANCE``)."""
    count_of = Counter(said)
    changes = sum(one != other for one, other in pairwise(said))
    in_order = list(said) in (sorted(said), sorted(said, reverse=True))
    if not in_order and changes >= len(count_of):
        return False
    orders = 2 if in_order else factorial(len(count_of))  # orders of the groups of equal texts
    # share of all permutations that look as ordered as this one
    return orders * prod(map(factorial, count_of.values())) < BY_CHANCE * factorial(len(said))


def keyed(sheet: Sheet) -> Sheet:
    """Return the sheet; without keys, labels serve, which are the keys of values without id."""
    if "key" in sheet.columns or "instance_of" not in sheet.columns:
        return sheet
    rows = [SheetRow(row.number, {**row.cells, "key": row["instance_of"]}) for row in sheet.rows]
    return replace(sheet, columns=[*sheet.columns, "key"], rows=rows)


def _mismatch(row: SheetRow, base: Base, value: Value) -> list[str]:
    """Return a fault if label or base belong to another key, or the value changed since."""
    label = single_blanks(value.label)
    if base and base.key != base_of(row["key"]).key:
        why = f"the base of {row['key']}; was a column sorted or pasted by itself?"
        return [row.fault("base", why)]
    if row["instance_of"] and label and row["instance_of"] != label:
        why = f"{label!r}, the label of {row['key']}; was a column sorted or pasted by itself?"
        return [row.fault("instance_of", why)]
    if (
        row["evidence"]
        and row["decision"]
        and has_changed(row["evidence"], value.evidence, value.also)
    ):
        now = f"{value.evidence!r}; the value has changed since this sheet was written"
        return [row.fault("evidence", now)]
    return []


def _untouched(
    row: SheetRow, value: Value | None, kinds: Mapping[str, str]
) -> WantedDecision | None:
    """Return the decision in force if the row repeats it; then it need not fit the taxonomy."""
    decision = value.in_force if value else None
    wanted = as_wanted(decision, kinds)
    if value is None or decision is None or wanted is None:
        return None
    cells = cells_of(decision)
    if row["note"] != cells["note"] or any(
        row[column].casefold() != cells[column].casefold() for column in EDITABLE
    ):
        return None
    # a person may set the status of a stale decision to "decided"
    kind = kinds.get(decision.supercategory, wanted.kind)
    confirmed = (
        (kind != wanted.kind or has_changed(decision.evidence, value.evidence, value.also))
        and row["status"].casefold() == "decided"
        and row["evidence"] == value.evidence
    )
    return replace(wanted, kind=kind, confirmed=True) if confirmed else wanted


def _as_named_now(
    row: SheetRow,
    base: Base,
    value: Value | None,
    kinds: Mapping[str, str],
    present: Mapping[str, tuple[str, str]],
    former_kinds: Mapping[str, Collection[str]],
) -> SheetRow:
    """Return a row with the present name and kind of a supercategory that was edited since.

    A row that kept its supercategory has that to which edits moved the decision: after a split, or
    a rename and an add, the old name is that of another supercategory. The kind that the sheet had
    counts only with the supercategory that it had.
    """
    shown, name, kind = _shown(base, value), row["supercategory"], row["kind"]
    if name not in present:  # a spreadsheet capitalises words
        name = {one.casefold(): one for one in (*present, *kinds)}.get(name.casefold(), name)
    was, history = cells_of(shown), value.history if value else ()

    def edited(old: Decision) -> tuple[str, str]:
        """Return the name and kind that edits gave to a decision; those of the row if none did."""
        (ident,) = followed([old.id], history)
        now = next(one for one in history if one.id == ident)
        return (name, kind) if now.id == old.id else (now.supercategory, now.kind)

    same = {column: row[column].casefold() == was[column].casefold() for column in EDITABLE}
    if row["decision"] and same["kind"] and not same["supercategory"]:
        kind = ""
    if shown and name and name.casefold() == shown.supercategory.casefold():
        name, kind = edited(shown)
    if name not in kinds and name in present and value:
        name, kind = present[name]
    elif value and not (name in kinds and kind in ("", kinds[name])):
        named = (old for old in history if old.supercategory.casefold() == name.casefold())
        found = (now for now in map(edited, named) if now != (name, kind))
        name, kind = next(found, (name, kind))
    if kind in former_kinds.get(name, ()):
        kind = kinds[name]
    return replace(row, cells={**row.cells, "supercategory": name, "kind": kind})


def _read_decision(row: SheetRow, kinds: Mapping[str, str]) -> "WantedDecision | str | None":
    """Return the decision of a row or its fault; None for an empty row."""
    decision = row["decision"].casefold()
    if not decision:
        filled = [name for name in EDITABLE[1:] if row[name]]
        expected = f"keep, move, drop or unsure, since {' and '.join(filled)} is filled in"
        return row.fault("decision", expected) if filled else None
    if decision not in DECISIONS:
        return row.fault("decision", f"one of {', '.join(DECISIONS)}", DECISIONS)
    if decision == "drop":
        return WantedDecision(decision, "", "", row["note"])
    kind = row["kind"].casefold()
    known = {one.casefold(): one for one in kinds_to_choose(kinds.values()) if one}
    if kind and kind not in known:
        return row.fault("kind", f"{' or '.join(known)}, or nothing", known)
    kind = known.get(kind, "")
    if not row["supercategory"] and decision not in PLACING:
        return WantedDecision(decision, "", kind, row["note"])
    names = {name.casefold(): name for name in kinds}
    name = names.get(row["supercategory"].casefold())
    if name is None:
        return row.fault("supercategory", "a name that is in taxonomy.csv", names)
    if kind and kind != kinds[name]:
        return row.fault("kind", f"{kinds[name]!r}, which '{name}' is in taxonomy.csv")
    return WantedDecision(decision, name, kinds[name], row["note"])


def _key_faults(rows: Sequence[SheetRow], known: Collection[str]) -> list[tuple[int, str]]:
    """Return faults for unknown keys, and for keys with two contradictory rows."""
    seen: dict[str, SheetRow] = {}
    faults: list[tuple[int, str]] = []
    for row in rows:
        key = row["key"]
        if key not in known:
            near = nearest(key, sorted(known)) if len(faults) < HINTED else ""
            fault = row.fault("key", "the key of a value in clusters.csv") + near
            faults.append((row.number, fault))
        elif any(row[name] != seen.get(key, row)[name] for name in EDITABLE):
            fault = row.fault("key", f"each key once; it stands in row {seen[key].number} too")
            faults.append((row.number, fault))
        seen.setdefault(key, row)
    return faults


def as_wanted(decision: Decision | None, kinds: Mapping[str, str]) -> WantedDecision | None:
    """Return a decision in force as an unchanged row would give it; None in a conflict."""
    if decision is None or decision.rivals:
        return None
    kind = decision.kind or kinds.get(decision.supercategory, "")
    why = single_blanks(decision.why)
    return WantedDecision(decision.decision, decision.supercategory, kind, why)


def _say_differences(sheet: Sheet, values: Mapping[str, Value], outdated: int) -> None:
    if outdated:
        say(
            f"{sheet.name}: was written before {count_text(outdated, 'newer decision')} on values "
            "that it leaves as they were; the newer ones hold"
        )
    own = [column for column in sheet.columns if column not in columns_of("review")]
    for column in OPTIONAL:
        if column not in sheet.columns and (near := nearest(column, own)):
            say(f"{sheet.name}: has no column '{column}'{near} Columns of other names are not read")
    for column in COMPARED:
        rows = [
            row.number
            for row in sheet.rows
            if (value := values.get(row["key"]))
            and row[column]
            and column in value.cells
            and plain_digits(row[column]) != str(value.cells[column])
        ]
        if rows:
            say(
                f"{sheet.name}: {column} differs from clusters.csv in "
                f"{count_text(len(rows), 'row')}, the first is row {rows[0]}; "
                "the column is only there to be read and changes nothing"
            )
