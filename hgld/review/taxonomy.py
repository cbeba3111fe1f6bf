"""Edits of the taxonomy: add, rename, merge, split, describe and remove supercategories.

An edit changes the taxonomy and everything that names the supercategory: decisions in force (each
gets a new row), class roots and overrides. Edits are made on a copy of the tables; the difference
of both is the record, cell by cell, from which an edit can be undone.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain, count
from unicodedata import normalize

import pandas as pd

from hgld.artifacts import DECISIONS, declared_table, records, table_of
from hgld.config import KIND_SEPARATOR, LEVEL_NAMES
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.decisions import PLACING, Decided, Decision, kinds_of, row_id, short_hash
from hgld.hierarchy.kinds import classes_above, kinds_to_choose, read_kind, tree_faults
from hgld.review.entries import ROW, Entry
from hgld.review.identities import NAME, Identities
from hgld.review.spreadsheet import Sheet, SheetRow
from hgld.review.undo import ValueHistory
from hgld.words import count_text, holds_controls, nearest, single_blanks

ACTIONS = ("add", "rename", "merge", "split", "describe", "remove")
INTO = ("rename", "merge", "split")  # actions with another name
IN_ORDER = ("rename", "add", "split", "merge", "describe", "remove")  # of the edits of a sheet
EDITED = ("taxonomy", "class_roots", "overrides")  # tables whose cells an edit changes
CELLS = ("into", "kind", "definition")  # of a sheet, that an edit reads
NO_EDITS = table_of("taxonomy_edits", [])
USERS = {"decisions": "decision", "class_roots": "class root", "overrides": "override"}

Row = dict[str, str]
State = dict[str, dict[int, Row]]  # table -> place of the row in it -> cells


@dataclass(frozen=True)
class TaxonomyEdit:
    """An edit that a person wants.

    Attributes:
        action: one of ``ACTIONS``.
        name: the supercategory; for ``add`` the new one.
        into: the new name (rename, split), or the other supercategory (merge).
        kind: its classes of the levels above; needed by ``add``; empty: as it was.
        definition: None: as it was.
        keys: of the values that ``split`` puts into the new supercategory.
        place: sheet and row, for errors.
    """

    action: str
    name: str
    into: str = ""
    kind: str = ""
    definition: str | None = None
    keys: tuple[str, ...] = ()
    place: str = field(default="", compare=False)


class Taxonomy:
    """The taxonomy and what names its supercategories, while it is edited.

    Example:
        >>> taxonomy = pd.DataFrame({"supercategory": ["lake"], "kind": ["natural"],
        ...     "definition": [""]})
        >>> edited = Taxonomy({"taxonomy": taxonomy}, pd.DataFrame(columns=["key"]))
        >>> edited.make([TaxonomyEdit("rename", "lake", "pond")])
        >>> [(row["column"], row["before"], row["after"]) for row in edited.record]
        [('supercategory', 'lake', 'pond')]
    """

    def __init__(
        self,
        tables: Mapping[str, pd.DataFrame],
        decisions: pd.DataFrame,
        levels: Sequence[str] = LEVEL_NAMES[:-1],
    ) -> None:
        """Take the tables of ``EDITED``, with columns that people added, and the decisions.

        ``levels`` are the names of the levels above the landmarks, coarse to fine.
        """
        self.levels = levels
        self.state: State = {
            name: dict(enumerate(records(table))) for name, table in tables.items()
        }
        decided = Decided(decisions)
        self.state["decisions"] = {
            d.place: {"key": d.key, NAME: d.supercategory, "kind": d.kind}
            for d in decided.all_heads()
            if d.id not in decided.moot
        }
        self.before = deepcopy(self.state)
        self.decisions = records(decisions)
        self.rows = decided.rows()
        self.record: list[Row] = []
        self.index_of: dict[int, int] = {}  # place of a row that comes back -> where it was
        self.undone: dict[int, str] = {}  # place of a decision that is taken back -> its id

    def make(self, edits: Sequence[TaxonomyEdit]) -> None:
        """Make the edits in their order.

        Raises:
            InvalidData: all edits that cannot be made; none is.
        """
        faults = []
        for edit in edits:
            with self._recorded(edit.action, edit.into):
                try:
                    getattr(self, f"_{edit.action}")(edit)
                except InvalidData as fault:
                    faults.append(f"{edit.place}: {fault}" if edit.place else str(fault))
        if not faults:  # only now: a class gets another parent row by row
            faults = [fault for _, fault in tree_faults(kinds_of(self.table).items(), self.levels)]
        if faults:
            self.state, self.record = deepcopy(self.before), []
            raise InvalidData(*faults)

    def undo(self, entry: Entry, entries: Sequence[Entry]) -> list[str]:
        """Take the edits of an entry back; return what was changed since and stays, in lines.

        What names a supercategory that the undo renames follows it.

        Args:
            entry: of the log.
            entries: the log.

        Raises:
            InvalidData: the taxonomy itself was changed since, or a supercategory that would go is
                in use, or one that a decision would get back is gone.
        """
        names, stays = self._names(), list[str]()
        found, later = Identities(entries[: entry.number]), entries[entry.number :]
        then = dict(found.now)
        for one in later:
            found.take(one)
        now_of = {name: found.name_of(number) for name, number in then.items()}
        values = self._values(found)
        ids, restored = {row.id: row for row in self.rows}, dict[int, Decision]()
        for decision in entry.rows:
            heads = values[decision.key_type, decision.key].standing_for(decision)
            place = next((head.place for head in heads), None)
            if place is None:
                stays.append(f"{decision.key}: decided again since")
                continue
            old = next((ids[name] for name in decision.supersedes if name in ids), None)
            if old is None:  # changed by hand
                stays.append(f"{decision.key}: the decision before is not in the file any more")
                continue
            restored[place], self.undone[place] = old, decision.id
        with self._recorded("undo"):
            for row in reversed(entry.cells):
                if row["table"] != "taxonomy":
                    stays += self._put_back(row, now_of)
        recorded = [cell for one in later for cell in one.cells]
        edited = _classes(c["before"] for c in recorded if c["column"] == "kind" and c["after"])
        for key, cells in _rows_of(entry.cells):
            with self._recorded("undo"):
                self._follow(self._put_back_row(key, cells, edited))
        kinds = kinds_of(self.table)
        with self._recorded("undo"):
            self._follow({name: (name, kinds[name]) for name in kinds.keys() - names})
        found.edit(self.record, "redo" if entry.source == "undo" else "undo", entry.rows)
        present = found.names(kinds)
        for place, old in restored.items():  # last, since a name may be another's for a while
            name, _ = present.get(old.id, (old.supercategory, ""))
            if name not in kinds:
                raise InvalidData(
                    f"'{old.key}' would get back '{name}', not in taxonomy.csv any more; take the "
                    "later edit back first"
                )
            self.state["decisions"][place] |= {NAME: name, "kind": old.kind and kinds[name]}
        for name in names - self._names():
            self._require_unused(name)
        for row in self.state["taxonomy"].values():
            read_kind(row["kind"], self.levels)  # of other levels than now
        if faults := list(tree_faults(kinds_of(self.table).items(), self.levels)):
            raise InvalidData(*(fault for _, fault in faults))
        return stays

    def _values(self, found: Identities) -> dict[tuple[str, str], ValueHistory]:
        """Return key type and key -> the history of each value, with present names."""
        names, heads = found.names(kinds_of(self.table)), self.state["decisions"]
        rows: dict[tuple[str, str], list[Decision]] = defaultdict(list)
        for row in self.rows:
            rows[row.key_type, row.key].append(row)
        return {
            value: ValueHistory(history, {row.id for row in history if row.place in heads}, names)
            for value, history in rows.items()
        }

    def to_make(self, edits: Sequence[TaxonomyEdit], recorded: pd.DataFrame) -> list[TaxonomyEdit]:
        """Return the edits that are not made; of a list that was made in order, what follows it."""
        rows = recorded[(recorded["table"] == "taxonomy") & (recorded["action"] != "undo")]
        of_edit = rows.groupby(["entry", "action", "key"], sort=False)
        done = iter([
            (action, key, dict(zip(cells["column"], cells["after"], strict=True)).get(NAME, ""))
            for (_, action, key), cells in of_edit
        ])  # fmt: skip
        made = 0
        for number, edit in enumerate(edits, 1):
            key = single_blanks(edit.into if edit.action == "split" else edit.name)
            into = single_blanks(edit.into)
            if not any(
                (action, found) == (edit.action, key) and (action not in INTO[:2] or after == into)
                for action, found, after in done
            ):
                break
            made = number if self.is_made(edit, recorded) else made
        return [edit for edit in edits[made:] if not self.is_made(edit, recorded)]

    def require_present_classes(
        self, edits: Sequence[TaxonomyEdit], recorded: pd.DataFrame
    ) -> None:
        """Refuse edits of sheets with a class above that was renamed after they were written.

        Raises:
            InvalidData: all edits that would bring such a class back.
        """
        if tuple(self.levels) == LEVEL_NAMES[:-1]:  # of which both kinds may always be given
            return
        kinds = kinds_of(self.table)
        here, now = _classes(kinds.values()), dict[tuple[str, ...], str]()
        for name, earlier in sorted(former_kinds(self.table, recorded).items()):
            for path in _classes(earlier) - here:
                now[path] = KIND_SEPARATOR.join(classes_above(kinds[name])[: len(path)])
        faults = [
            f"{edit.place}: '{edit.name}' would bring '{KIND_SEPARATOR.join(gone)}' back, which is "
            f"'{now[gone]}' since; write that, or give the old one by `hgld taxonomy "
            f"{edit.action}` with --kind"
            for edit in edits
            if (gone := min(_classes([single_blanks(edit.kind)]) & now.keys(), default=()))
        ]
        if faults:
            raise InvalidData(*faults)

    def is_made(self, edit: TaxonomyEdit, recorded: pd.DataFrame) -> bool:
        """Whether the record has this edit and it still holds."""
        name, into, names = single_blanks(edit.name), single_blanks(edit.into), self._names()
        key = into if edit.action == "split" else name
        of_edit = {"action": edit.action, "table": "taxonomy", "key": key}
        rows = recorded[(recorded[list(of_edit)] == pd.Series(of_edit)).all(axis=1)]
        after = dict(zip(rows["column"], rows["after"], strict=True))
        if not after or edit.action == "describe":
            return False
        if edit.action in ("rename", "merge", "remove"):
            return name not in names and into == after[NAME] and (not into or into in names)
        # the record has no cell that stayed empty
        was = after.get("kind", ""), after.get("definition", "")
        moved = set(edit.keys) <= {*self.decided_as(key)} if key in names else False
        same = (edit.kind or was[0], edit.definition or "") == was
        return key in names and same and (edit.action == "add" or moved)

    def decided_as(self, name: str) -> list[str]:
        """Return the keys of the decisions in force that name a supercategory.

        Raises:
            InvalidData: it is not in the taxonomy.
        """
        name = single_blanks(self.state["taxonomy"][self._find(name)][NAME])
        rows = self.state["decisions"].values()
        return list(dict.fromkeys(row["key"] for row in rows if row[NAME] == name))

    def changes(self) -> dict[str, tuple[dict[int, Row | None], list[tuple[int | None, Row]]]]:
        """Return for each table its changed cells by the row's place, and its new rows.

        None instead of cells: the row is removed. With a new row comes its index, if it had one.
        """
        found = {}
        for table, before in self.before.items():
            after = self.state[table]
            if table == "decisions":
                continue
            changed = {
                place: now and {c: cell for c, cell in now.items() if cell != row.get(c, "")}
                for place, row in before.items()
                if (now := after.get(place)) != row
            }
            places = [place for place in after if place not in before]
            found[table] = changed, [(self.index_of.get(p), after[p]) for p in places]
        return found

    @property
    def table(self) -> pd.DataFrame:
        """The taxonomy as edited."""
        columns = declared_table("taxonomy").columns
        rows = [{c: row.get(c, "") for c in columns} for row in self.state["taxonomy"].values()]
        return table_of("taxonomy", rows)

    def new_rows(self, who: str, when: str, entry: str) -> dict[str, pd.DataFrame]:
        """Return the rows to append to ``decisions`` and to the record of edits."""
        before = self.before["decisions"]
        rows = [
            {**self.decisions[place], NAME: row[NAME], "kind": row["kind"], "who": who,
             "when": when, "entry": entry, "supersedes": row_id(self.decisions[place]),
             "undoes": self.undone.get(place, "")}
            for place, row in self.state["decisions"].items()
            if row != before[place]
        ]  # fmt: skip
        signed = {"entry": entry, "who": who, "when": when, "follows": ""}
        return {
            "decisions": table_of("decisions", rows),
            "taxonomy_edits": table_of("taxonomy_edits", [{**r, **signed} for r in self.record]),
        }

    def users(self, name: str) -> dict[str, int]:
        """Return how many decided values, class roots and overrides name a supercategory."""
        return {
            table: len(
                {
                    row.get("key", place)  # a value may be decided by several people
                    for place, row in self.state.get(table, {}).items()
                    if single_blanks(row[NAME]) == single_blanks(name)
                }
            )
            for table in USERS
        }

    def _add(self, edit: TaxonomyEdit) -> None:
        name = self._new_name(edit.name)
        if not edit.kind and len(self.levels) > 1:
            kinds = {row["kind"] for row in self.state["taxonomy"].values()}
            choice = kinds_to_choose(kinds)
            if not kinds and tuple(self.levels) != LEVEL_NAMES[:-1]:
                choice = [KIND_SEPARATOR.join(self.levels[:-1]).upper()]
            raise InvalidData(f"'{name}' needs a kind: {' or '.join(choice)}")
        definition = single_blanks(edit.definition or "")
        row = {NAME: name, "kind": self._spelled(edit.kind), "definition": definition}
        self.state["taxonomy"][self._free_place()] = row

    def _rename(self, edit: TaxonomyEdit) -> None:
        place = self._find(edit.name)
        row = self.state["taxonomy"][place]
        old, new = single_blanks(row[NAME]), self._new_name(edit.into, place)
        if old == new:
            raise InvalidData(f"'{old}' has this name already")
        row[NAME] = new
        self._follow({old: (new, row["kind"])})

    def _merge(self, edit: TaxonomyEdit) -> None:
        place, other = self._find(edit.name), self._find(edit.into)
        row, into = self.state["taxonomy"][place], self.state["taxonomy"][other]
        if place == other:
            raise InvalidData(f"'{row[NAME]}' cannot be merged into itself; name another one")
        if row["kind"] != into["kind"]:
            raise InvalidData(
                f"'{row[NAME]}' is {row['kind']}, '{into[NAME]}' is {into['kind']}; only "
                "supercategories of one kind are merged (describe changes a kind)"
            )
        del self.state["taxonomy"][place]
        self._follow({single_blanks(row[NAME]): (single_blanks(into[NAME]), into["kind"])})

    def _split(self, edit: TaxonomyEdit) -> None:
        row = self.state["taxonomy"][self._find(edit.name)]
        name = single_blanks(row[NAME])
        decided = [d for d in self.state["decisions"].values() if d[NAME] == name]
        keys = {d["key"] for d in decided}
        for key in edit.keys:
            if key not in keys:
                raise InvalidData(f"'{key}' is not decided as '{name}'{nearest(key, keys)}")
        definition = edit.definition or ""
        self._add(TaxonomyEdit("add", edit.into, "", edit.kind or row["kind"], definition))
        new = self.state["taxonomy"][max(self.state["taxonomy"])]
        for d in decided:
            if d["key"] in edit.keys:
                d |= {NAME: new[NAME], "kind": new["kind"]}

    def _describe(self, edit: TaxonomyEdit) -> None:
        row = self.state["taxonomy"][self._find(edit.name)]
        if edit.definition is not None:
            row["definition"] = single_blanks(edit.definition)
        if edit.kind:
            kind = read_kind(edit.kind, self.levels)
            same = kind.casefold() == row["kind"].casefold()  # other capitals are meant
            row["kind"] = kind if same else self._spelled(kind)
            name = single_blanks(row[NAME])
            self._follow({name: (name, row["kind"])})

    def _remove(self, edit: TaxonomyEdit) -> None:
        place = self._find(edit.name)
        self._require_unused(single_blanks(self.state["taxonomy"][place][NAME]))
        del self.state["taxonomy"][place]

    def _put_back(self, row: Mapping[str, str], now_of: Mapping[str, str]) -> list[str]:
        """Put a cell of class roots or overrides back; return a line if it was changed since.

        ``now_of`` has the present name of each supercategory.
        """
        key, column, after = row["key"], row["column"], row["after"]
        after = now_of.get(after, after) if column == NAME else after
        for cells in self.state.get(row["table"], {}).values():
            if _key(row["table"], cells) == key and cells[column] == after:
                cells[column] = row["before"]
                return []
        return [f"{row['table']}.csv {key}: {column} is not '{after}' any more; it stays"]

    def _put_back_row(
        self, key: str, cells: Mapping[str, Mapping[str, str]], edited: set[tuple[str, ...]]
    ) -> dict[str, tuple[str, str]]:
        """Put a row of the taxonomy back; return its name now -> its name and kind before.

        ``edited`` are the classes above that later edits changed.
        """
        rows = self.state["taxonomy"]
        name = cells[NAME]["after"] if NAME in cells else key
        if not name or cells.get(NAME, {}).get("action") == "merge":  # its row was removed
            row = {column: cell["before"] for column, cell in cells.items() if column != ROW}
            self._new_name(row[NAME])
            here = _classes(kinds_of(self.table).values())
            if len(self.levels) > 2 and (gone := (_classes([row["kind"]]) & edited) - here):
                raise InvalidData(
                    f"'{row[NAME]}' would bring '{KIND_SEPARATOR.join(min(gone))}' back, which was "
                    "edited since; take the later edit back first"
                )
            place = self._free_place()
            if ROW in cells:
                self.index_of[place] = int(cells[ROW]["before"]) - 1
            rows[place] = row
            return {}
        place = self._find(name)
        for column, cell in cells.items():
            if rows[place][column] != cell["after"]:
                raise InvalidData(
                    f"'{name}' cannot be taken back: its {column} is '{rows[place][column]}' now, "
                    f"not '{cell['after']}'; take the later edit back first"
                )
        if NAME in cells and not cells[NAME]["before"]:  # it was added
            del rows[place]
            return {}
        if NAME in cells:
            self._new_name(cells[NAME]["before"], place)
        rows[place] |= {column: cell["before"] for column, cell in cells.items()}
        return {name: (rows[place][NAME], rows[place]["kind"])}

    def _follow(self, renamed: Mapping[str, tuple[str, str]]) -> None:
        """Give everything that names a supercategory its new name and kind."""
        for table in USERS:
            for row in self.state.get(table, {}).values():
                name, kind = renamed.get(single_blanks(row[NAME]), ("", ""))
                if name:
                    row |= {NAME: name, "kind": row["kind"] and kind}

    @contextmanager
    def _recorded(self, action: str, into: str = "") -> Iterator[None]:
        """Record each cell that the block changes; an added or removed row with all its cells.

        A merged row has the name of the other one as its new name, a removed one has its number
        unless the rows are sorted.
        """
        earlier = deepcopy(self.state)
        yield
        first = [next(iter(row.values())).casefold() for row in self.before["taxonomy"].values()]
        for table in EDITED:
            old, new = earlier.get(table, {}), self.state.get(table, {})
            for place in sorted(old.keys() | new.keys()):
                one, other = old.get(place, {}), new.get(place, {})
                if table == "taxonomy" and not other and first != sorted(first):
                    one = {**one, ROW: str(sorted(old).index(place) + 1)}
                if action == "merge" and not other:
                    other = {NAME: self.state["taxonomy"][self._find(into)][NAME]}
                self.record += [
                    {"action": action, "table": table, "key": _key(table, one or other),
                     "column": column, "before": before, "after": after}
                    for column in {**one, **other}
                    if (before := one.get(column, "")) != (after := other.get(column, ""))
                ]  # fmt: skip

    def _spelled(self, text: str) -> str:
        """Return a kind with the spelling of the classes that are there; capitals are ignored."""
        known: dict[tuple[str, str], str] = {}
        for row in self.state["taxonomy"].values():
            for level, name in zip(self.levels, classes_above(row["kind"]), strict=False):
                known.setdefault((level, name.casefold()), name)
        found = zip(self.levels, classes_above(read_kind(text, self.levels)), strict=False)
        return KIND_SEPARATOR.join(known.get((level, one.casefold()), one) for level, one in found)

    def _names(self) -> set[str]:
        return {single_blanks(row[NAME]) for row in self.state["taxonomy"].values()}

    def _free_place(self) -> int:
        return max((*self.state["taxonomy"], *self.before["taxonomy"]), default=-1) + 1

    def _find(self, name: str) -> int:
        """Return the place of a supercategory; capitals are ignored."""
        if not name.strip():
            raise InvalidData("the name of a supercategory is missing")
        names = {single_blanks(row[NAME]): i for i, row in self.state["taxonomy"].items()}
        folded = {_folded(known): place for known, place in names.items()}
        wanted = single_blanks(name)
        if _folded(wanted) not in folded:
            raise InvalidData(f"'{wanted}' is not in taxonomy.csv{nearest(wanted, names)}")
        return names.get(wanted, folded[_folded(wanted)])

    def _new_name(self, name: str, own: int = -1) -> str:
        """Return a name, composed, that no other supercategory has, or raise."""
        if not name.strip():
            raise InvalidData("a new supercategory needs a name")
        if holds_controls(name):
            raise InvalidData(f"the name {name!r} holds a line break or control character")
        name = normalize("NFC", single_blanks(name))
        if name.casefold() in DECISIONS:
            raise InvalidData(f"'{name}' is a decision, so no supercategory can have this name")
        for place, row in self.state["taxonomy"].items():
            if place != own and _folded(single_blanks(row[NAME])) == _folded(name):
                raise InvalidData(
                    f"'{name}' is in taxonomy.csv already, as '{row[NAME]}'; to join two "
                    "supercategories, merge them (`hgld taxonomy merge`, or the action merge)"
                )
        return name

    def _require_unused(self, name: str) -> None:
        used = [count_text(n, USERS[table]) for table, n in self.users(name).items() if n]
        if used:
            raise InvalidData(
                f"'{name}' is in use by {', '.join(used)}; merge it into another one, or decide "
                "these again"
            )


def proposed_name(cluster: str) -> str:
    """Return the name of a cluster as one that a supercategory or a class above may have.

    Example:
        >>> proposed_name("tools > drills"), proposed_name("Drop"), proposed_name("oak  tree")
        ('tools, drills', 'Drop (group)', 'oak tree')
    """
    shown = "".join(letter for letter in cluster if not holds_controls(letter))
    name = single_blanks(shown.replace(KIND_SEPARATOR.strip(), " , ")).replace(" ,", ",")
    return f"{name} (group)" if name.casefold() in DECISIONS else name


def numbered_names(names: Sequence[str]) -> list[str]:
    """Return names of which no two are equal but for capitals: later ones of a name are numbered.

    Example:
        >>> numbered_names(["pizza", "Pizza", "pizza (2)", "soup"])
        ['pizza', 'Pizza (3)', 'pizza (2)', 'soup']
    """
    taken, seen, found = {name.casefold() for name in names}, set[str](), list[str]()
    for name in names:
        if name.casefold() in seen:
            numbered = (f"{name} ({number})" for number in count(2))
            name = next(one for one in numbered if one.casefold() not in taken)
            taken.add(name.casefold())
        seen.add(name.casefold())
        found.append(name)
    return found


def distinct_names(paths: Sequence[Sequence[str]], levels: Sequence[str]) -> dict[str, list[str]]:
    """Return supercategory -> its classes above, with names that no class below or beside has.

    A class that has the name of one below it, or of another of its level in other capitals, gets
    those of its largest supercategories: two, or as many as make a new name. One with too few of
    them gets its level in brackets.

    Args:
        paths: names of the clusters from coarse to fine, ending in a supercategory; the largest
            supercategories first. Equal beginnings are the same class.
        levels: names of the levels, coarse to fine.

    Example:
        >>> distinct_names([["lion", "lion", "lion"], ["lion", "lion", "tiger"],
        ...     ["lion", "wolf", "wolf"]], ("order", "family", "group"))["tiger"]
        ['lion, tiger, wolf', 'lion, tiger']
        >>> distinct_names([["wolf", "wolf"]], ("family", "group"))
        {'wolf': ['wolf (family)']}
        >>> distinct_names([["Fox", "dog"], ["fox", "owl"]], ("family", "group"))
        {'dog': ['Fox'], 'owl': ['fox (family)']}
    """
    names = {tuple(path): path[-1] for path in paths}
    for depth in range(len(levels) - 1, 0, -1):  # fine to coarse
        beside: set[str] = set()  # names of other classes of this level
        for above in dict.fromkeys(tuple(path[:depth]) for path in paths):
            below = [path for path in names if path[:depth] == above and len(path) > depth]
            members = [path[-1] for path in below if len(path) == len(levels)]
            taken = {names[path].casefold() for path in below} | beside
            joined = (", ".join(members[:most]) for most in range(2, len(members) + 1))
            level = f"{above[-1]} ({levels[depth - 1]}"
            told = chain([f"{level})"], (f"{level} {number})" for number in count(2)))
            free = (n for n in chain([above[-1]], joined, told) if n.casefold() not in taken)
            names[above] = next(free)
            beside.add(names[above].casefold())
    return {
        path[-1]: [names[tuple(path[:depth])] for depth in range(1, len(levels))] for path in paths
    }


def rename_above(
    taxonomy: pd.DataFrame, levels: Sequence[str], level: str, old: str, new: str
) -> list[TaxonomyEdit]:
    """Return the edits that rename a class above the supercategories; decisions follow.

    Args:
        taxonomy: its table.
        levels: names of the levels above the landmarks, coarse to fine.
        level: that of the class.
        old: its name; capitals are ignored.
        new: its new name, which no other class of the level may have.

    Raises:
        InvalidData: there is no such class, or the new name is taken or cannot be a name.
        UsageError: there is no such level above the supercategories.

    Example:
        >>> taxonomy = pd.DataFrame({"supercategory": ["bread"], "kind": ["food > bakery"]})
        >>> edits = rename_above(taxonomy, ("section", "aisle", "shelf"), "aisle", "bakery", "oven")
        >>> [(edit.name, edit.kind) for edit in edits]
        [('bread', 'food > oven')]
    """
    above = list(levels[:-1])
    if level not in above:
        expected = f"one of {', '.join(above)}" if above else "none, since no level is above"
        raise UsageError(f"--level {level}: expected {expected}{nearest(level, above)}")
    place, wanted, name = above.index(level), single_blanks(old).casefold(), single_blanks(new)
    paths = {row[NAME]: classes_above(row["kind"]) for row in records(taxonomy)}
    known = {path[place].casefold(): path[place] for path in paths.values() if place < len(path)}
    if wanted not in known:
        raise InvalidData(f"no {level} '{single_blanks(old)}'{nearest(wanted, known.values())}")
    if holds_controls(name) or not name or KIND_SEPARATOR.strip() in name:
        raise InvalidData(f"{level} {new!r}: expected a name without '{KIND_SEPARATOR.strip()}'")
    if name.casefold() != wanted and name.casefold() in known:
        raise InvalidData(
            f"{level} '{known[name.casefold()]}' is there already; `hgld taxonomy describe NAME "
            "--kind` moves a supercategory to it"
        )
    edits = []
    for supercategory, path in paths.items():
        if place < len(path) and path[place].casefold() == wanted:
            kind = KIND_SEPARATOR.join([*path[:place], name, *path[place + 1 :]])
            edits.append(TaxonomyEdit("describe", supercategory, kind=read_kind(kind, levels)))
    return edits


def list_taxonomy(sheet: pd.DataFrame, taxonomy: pd.DataFrame) -> pd.DataFrame:
    """Build the rows of ``review_taxonomy.csv`` from the taxonomy and ``review.csv``.

    Values, landmarks and images are those of the decided values of this run.
    """
    counted = sheet.assign(values=1)[sheet["decision"].isin(PLACING) & (sheet["cluster"] >= 0)]
    sums = counted.groupby("supercategory")[["values", "landmarks", "images"]].sum()
    rows: list[dict[str, object]] = []
    for row in records(taxonomy):
        name = single_blanks(row[NAME])
        found = {str(c): int(sums[c].get(name, 0)) for c in sums}
        cells = {"action": "", "into": "", "kind": row["kind"], "definition": row["definition"]}
        rows.append({**cells, NAME: name, **found, "base": _base(name, row)})
    return table_of("review_taxonomy", rows)


def list_renames(recorded: pd.DataFrame) -> dict[str, list[str]]:
    """Return name -> the name that it got by its last rename or merge, and the entry of that.

    The new name of one that was removed, or is there again, is empty.

    Example:
        >>> row = {"action": "rename", "table": "taxonomy", "key": "lake", "before": "lake",
        ...     "column": "supercategory", "after": "pond", "entry": "e1 taxonomy"}
        >>> list_renames(pd.DataFrame([row]))
        {'lake': ['pond', 'e1 taxonomy']}
    """
    names = recorded[(recorded["table"] == "taxonomy") & (recorded["column"] == NAME)]
    found = dict[str, list[str]]()
    for row in records(names):
        if row["before"]:
            found[row["before"]] = [row["after"], row["entry"]]
        if row["after"] in found:
            found[row["after"]] = ["", row["entry"]]
    return found


def present_names(taxonomy: pd.DataFrame, recorded: pd.DataFrame) -> dict[str, tuple[str, str]]:
    """Return the name of each supercategory, also a renamed or merged one -> name and kind now.

    Example:
        >>> taxonomy = pd.DataFrame({"supercategory": ["pond"], "kind": ["natural"]})
        >>> row = {"action": "rename", "table": "taxonomy", "key": "lake", "before": "lake",
        ...     "column": "supercategory", "after": "pond", "entry": "e1 taxonomy"}
        >>> present_names(taxonomy, pd.DataFrame([row]))
        {'pond': ('pond', 'natural'), 'lake': ('pond', 'natural')}
    """
    found, kinds = Identities(), kinds_of(taxonomy)
    for row in records(recorded):
        found.edit([row], row["entry"].partition(" ")[2])
    present = {name: (name, kind) for name, kind in kinds.items()}
    former = found.former_names().items()
    return present | {old: present[now] for old, now in former if old not in kinds and now in kinds}


def former_kinds(taxonomy: pd.DataFrame, recorded: pd.DataFrame) -> dict[str, set[str]]:
    """Return supercategory -> the kinds that it had before edits of it, or of a class above."""
    present, found = present_names(taxonomy, recorded), defaultdict[str, set[str]](set)
    of_kinds = (recorded["table"] == "taxonomy") & (recorded["column"] == "kind")
    for cell in records(recorded[of_kinds & (recorded["before"] != "")]):
        if cell["key"] in present:
            found[present[cell["key"]][0]].add(cell["before"])
    return dict(found)


def read_taxonomy_edits(sheets: Sequence[Sheet], taxonomy: pd.DataFrame) -> list[TaxonomyEdit]:
    """Return the edits that sheets of the taxonomy ask for, in the order in which they can be made.

    A row whose kind or definition was changed is described. A sheet without the column ``base`` is
    a list of edits in their order, as the review page saves it.

    Raises:
        InvalidData: all faults, with row, column, found and expected value.
    """
    current = {single_blanks(row[NAME]).casefold(): row for row in records(taxonomy)}
    edits: list[TaxonomyEdit] = []
    faults: list[str] = []
    seen: set[str] = set()
    for sheet in filter(is_taxonomy_sheet, sheets):
        sheet.require(("action", NAME, *(c for c in CELLS if c in sheet.twice)))
        is_list, of_sheet = "base" not in sheet.columns, list[TaxonomyEdit]()
        for row in sheet.rows:
            found = _read_row(row, sheet, current)
            if isinstance(found, list) and found and row[NAME].casefold() in seen and not is_list:
                found = row.fault(NAME, "each supercategory once")
            if isinstance(found, str):
                faults.append(f"{sheet.name}: {found}")
            else:
                seen |= {edit.name.casefold() for edit in found}
                of_sheet += found
        edits += of_sheet if is_list else sorted(of_sheet, key=lambda e: IN_ORDER.index(e.action))
    if faults:
        raise InvalidData(*faults)
    return edits


def is_taxonomy_sheet(sheet: Sheet) -> bool:
    """Whether a sheet is one of the taxonomy, by its columns."""
    return {"action", "definition", NAME} <= set(sheet.columns)


def _read_row(row: SheetRow, sheet: Sheet, current: Mapping[str, Row]) -> list[TaxonomyEdit] | str:
    """Return the edits of a row, or its fault."""
    if spoilt := row.damaged(("action", *CELLS, NAME)):
        return spoilt[0]
    action, name, into = row["action"].casefold(), row[NAME], row["into"]
    place = f"{sheet.name} row {row.number}"
    if action and action not in ACTIONS:
        return row.fault("action", f"one of {', '.join(ACTIONS)}", ACTIONS)
    if into and action not in INTO:
        return row.fault("action", f"one of {', '.join(INTO)}, since into is filled in")
    if action in INTO and not into:
        return row.fault("into", "a name, since action is filled in")
    if action == "add":
        return [TaxonomyEdit("add", name, "", row["kind"], row["definition"], place=place)]
    if action and "base" not in sheet.columns:
        if action == "describe":
            return [TaxonomyEdit(action, name, "", row["kind"], row["definition"], (), place)]
        return [TaxonomyEdit(action, name, into, place=place)]
    edits = [TaxonomyEdit(action, name, into, place=place)] if action in (*INTO, "remove") else []
    known = current.get(name.casefold()) or current.get(into.casefold(), {})
    if not known and not edits:
        if not action and row["base"] == _base(name, row.cells):
            return []  # not touched, and renamed, merged or removed since
        return row.fault(NAME, "a name that is in taxonomy.csv, or the action add", current)
    now = {c: single_blanks(known.get(c, "")) for c in ("kind", "definition")}
    described = {c: row[c] if c in sheet.columns else now[c] for c in now}
    if described["kind"].casefold() == now["kind"].casefold():  # a spreadsheet capitalises words
        described["kind"] = now["kind"]
    base, written = row["base"], _base(name, described)
    if not known or action in ("merge", "remove") or described == now or base == written:
        return edits
    if base and base.partition("-")[0] != written.partition("-")[0]:
        return row.fault("base", f"that of {name!r}; was a column sorted or pasted by itself?")
    if base and base != _base(name, known):
        said = f"{known['kind']}, {known['definition']!r}"
        return row.fault("definition", f"the present one: {said}; it was changed since")
    if now["kind"] and not described["kind"]:
        return row.fault("kind", f"{now['kind']!r} or another kind; it cannot be empty")
    target = into if action == "rename" else name
    return [
        *edits,
        TaxonomyEdit("describe", target, "", described["kind"], described["definition"], (), place),
    ]


def _base(name: str, row: Mapping[str, str]) -> str:
    """Return the base of a row: a hash of its name and one of its kind and definition."""
    cells = "\n".join(single_blanks(row.get(c, "")).casefold() for c in ("kind", "definition"))
    return f"{short_hash(name.casefold())}-{short_hash(cells)}"


def _classes(kinds: Iterable[str]) -> set[tuple[str, ...]]:
    """Return the classes above that kinds name, each with those above it."""
    paths = [tuple(classes_above(kind)) for kind in kinds]
    return {path[:depth] for path in paths for depth in range(1, len(path) + 1)}


def _folded(name: str) -> str:
    """Return a name as names are compared: macOS has its own form of accented letters."""
    return normalize("NFC", name).casefold()


def _key(table: str, row: Mapping[str, str]) -> str:
    return ":".join(row[column] for column in declared_table(table).key)


def _rows_of(
    recorded: Sequence[Mapping[str, str]],
) -> list[tuple[str, dict[str, Mapping[str, str]]]]:
    """Return key and recorded cells of each edited row of the taxonomy, the last edit first."""
    rows: list[tuple[tuple[str, str], dict[str, Mapping[str, str]]]] = []
    for cell in recorded:
        if cell["table"] != "taxonomy":
            continue
        edit = cell["action"], cell["key"]
        if not rows or rows[-1][0] != edit or cell["column"] in rows[-1][1]:
            rows.append((edit, {}))
        rows[-1][1][cell["column"]] = cell
    return [(key, cells) for (_, key), cells in reversed(rows)]
