"""Supercategories over time: a name may pass from one supercategory to another.

The log is walked forward, and each supercategory has a number, which renames, merges, removals and
their undos do not change. Only so it is known which one an old decision means: "lake" may have been
merged into another, and a pond may be called "lake" since.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import count

from hgld.hierarchy.decisions import Decision
from hgld.review.entries import Entry
from hgld.words import single_blanks

NAME = "supercategory"
Names = Mapping[str, tuple[str, str]]  # id of a decision, or name -> present name and kind


class Identities:
    """The supercategories of a log.

    Example:
        >>> found = Identities()
        >>> cells = {"table": "taxonomy", "column": "supercategory"}
        >>> lake = found.number_of("lake")
        >>> for action, old, new in (("merge", "lake", "tarn"), ("rename", "pond", "lake")):
        ...     found.edit([{**cells, "action": action, "before": old, "after": new}])
        >>> found.name_of(lake), found.name_of(found.number_of("lake"))
        ('tarn', 'lake')
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.now: dict[str, int] = {}  # name -> number
        self._had: dict[str, list[int]] = defaultdict(list)  # name -> numbers, the last one last
        self._numbers = count()
        self._decisions: dict[str, Decision] = {}  # by id
        self._of_decision: dict[str, int] = {}  # id -> number
        # name, whether an undo took its addition back -> numbers, the last one last
        self._gone: dict[tuple[str, bool], list[int]] = defaultdict(list)
        self._into: dict[int, int] = {}  # merged -> the other one; kept for a redo of the merge
        self._never: set[int] = set()  # their addition was taken back
        for entry in entries:
            self.take(entry)

    def take(self, entry: Entry) -> None:
        """Go past an entry: its edits, then its decisions, which have the names after them."""
        named = (name for row in entry.rows for name in row.undoes)
        taken = [self._decisions[name] for name in named if name in self._decisions]
        self.edit(entry.cells, entry.source, taken)
        rows = [*entry.rows]
        if entry.cells and rows:  # a sitting at a page goes on after it, in an earlier entry
            first = min(row.place for row in rows)
            known = self._decisions.values()
            rows += [row for row in known if row.place > first and row.when == entry.when]
        for row in rows:
            self._decisions[row.id] = row
            if row.supercategory:
                self._of_decision[row.id] = self.number_of(row.supercategory)

    def edit(
        self, cells: Iterable[Mapping[str, str]], source: str = "", taken: Iterable[Decision] = ()
    ) -> None:
        """Go past recorded cells.

        Args:
            cells: of taxonomy_edits.csv.
            source: that of their entry.
            taken: decisions that it takes back; those before them distinguish namesakes.
        """
        restored = {self._of_decision.get(name) for row in taken for name in row.supersedes}
        for cell in cells:
            if (cell["table"], cell["column"]) != ("taxonomy", NAME):
                continue
            before, after = single_blanks(cell["before"]), single_blanks(cell["after"])
            if not before:
                gone = self._gone[after, source == "redo"] or self._gone[after, source != "redo"]
                namesakes = [one for one in gone if one in restored] or gone
                # one that is added again is the same, unless the old one is another's part now
                if namesakes and (cell["action"] == "undo" or namesakes[-1] not in self._into):
                    self._name(after, namesakes[-1])
                    gone.remove(namesakes[-1])
                elif after not in self.now:
                    self._name(after, next(self._numbers))
                continue
            one = self.number_of(before)
            del self.now[before]
            if cell["action"] == "merge":
                self._into[one] = self.number_of(after)
            elif after:
                self._name(after, one)
                continue
            elif cell["action"] == "remove":
                self._into.pop(one, None)
            taken_back = cell["action"] == "undo" and source != "redo"
            if taken_back:
                self._never.add(one)
            self._gone[before, taken_back].append(one)

    def _name(self, name: str, one: int) -> None:
        # a decision of the same sitting had this name already
        if (other := self.now.get(name, one)) != one:
            self._into[other] = one
        self.now[name] = one
        self._had[name].append(one)
        self._never.discard(one)

    def number_of(self, name: str) -> int:
        """Return the number of the supercategory that has a name now; a new one if none has."""
        if name not in self.now:
            self._name(name, next(self._numbers))
        return self.now[name]

    def name_of(self, number: int) -> str:
        """Return the present name, of a merged one that of the other; empty if it is gone."""
        names, into = {one: name for name, one in self.now.items()}, dict(self._into)
        while number not in names and number in into and number not in self._never:
            number = into.pop(number)
        return names.get(number, "")

    def former_names(self) -> dict[str, str]:
        """Return each name that a supercategory had -> the present name of the last of these."""
        found = {}
        for name, had in self._had.items():
            made = [one for one in had if one not in self._never]
            found[name] = self.name_of(made[-1]) if made else ""
        return found

    def names(self, kinds: Mapping[str, str]) -> Names:
        """Return id of a decision, or name, -> name and kind now.

        Args:
            kinds: present name -> kind. A decision whose supercategory is gone has no name of it.
        """
        found = {name: (name, kind) for name, kind in kinds.items()}
        now_of = {number: self.name_of(number) for number in {*self._of_decision.values()}}
        for ident, number in self._of_decision.items():
            row = self._decisions[ident]
            if now_of[number] in kinds:
                found[ident] = found[now_of[number]]
            elif row.supercategory in self.now:  # another one has its name
                found[ident] = f"{row.supercategory} (removed)", row.kind
        return found
