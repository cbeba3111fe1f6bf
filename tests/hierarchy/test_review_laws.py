"""Laws of decisions, edits of the taxonomy, undo and redo, over random histories.

The model is a list of snapshots: undoing the last entry gives the state before it, redoing the
state after it, and no edit leaves a name behind that the taxonomy does not have.
"""

from contextlib import suppress
from copy import deepcopy

import pandas as pd
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hgld.artifacts import records, table_of
from hgld.errors import InvalidData
from hgld.hierarchy.decisions import Decided, check_decisions, kinds_of
from hgld.review import undo
from hgld.review.apply import apply_choices
from hgld.review.entries import FIRST, Entry, entry_of, find_entry, list_entries
from hgld.review.identities import Identities
from hgld.review.row_base import base_of
from hgld.review.taxonomy import Taxonomy, TaxonomyEdit

KEYS = ("Q1", "Q2", "Q3")
NAMES = ("lake", "pond", "church", "canal")
KINDS = ("natural", "natural", "human-made")
CLUSTERS = table_of(
    "clusters",
    [
        {"class_id": key, "instance_of": f"label {key}", "landmarks": 1, "images": 1, "cluster": 0,
         "cluster_name": "pond", "distance": 0.0, "margin": 0.0}
        for key in KEYS
    ],
)  # fmt: skip
ROOT = {"class_id": "Q7", "label": "tarn", "kind": "natural", "supercategory": "lake", "note": ""}
# what is done, and three numbers that choose the value and the names
Step = tuple[str, int, int, int]


def steps(*actions: str, most: int) -> st.SearchStrategy[list[Step]]:
    numbers = [st.integers(0, 3)] * 3
    return st.lists(st.tuples(st.sampled_from(actions), *numbers), max_size=most)


def answers_of(decided: Decided, key: str) -> list[tuple[str, str, str]]:
    """What holds for a value; more than one answer are a conflict."""
    now = decided.find(key, f"label {key}")
    sides = now.sides if now and now.decision != "open" else ()
    return sorted((side.decision, side.supercategory, side.kind) for side in sides)


class Labels:
    """The tables of a labels folder, edited as the command line edits the files."""

    def __init__(self) -> None:
        rows = zip(NAMES, KINDS, strict=False)
        taxonomy = [{"supercategory": n, "kind": k, "definition": ""} for n, k in rows]
        self.tables = {"taxonomy": pd.DataFrame(taxonomy), "class_roots": pd.DataFrame([ROOT])}
        names = ("decisions", "cluster_edits", "taxonomy_edits")
        self.decisions, self.cluster_edits, self.edits = (table_of(name, []) for name in names)
        self.who, self.when = "ann", "2026-01-01"

    def entries(self) -> list[Entry]:
        return list_entries(self.decisions, self.cluster_edits, self.edits)

    def snapshot(self) -> tuple[object, ...]:
        """The taxonomy, the answers in force of each value, and the names of class roots."""
        decided = Decided(self.decisions)
        rows = sorted(tuple(row.values()) for row in records(self.tables["taxonomy"]))
        roots = list(self.tables["class_roots"]["supercategory"])
        return rows, [answers_of(decided, key) for key in KEYS], roots

    def go(self, taken: list[Step]) -> "Labels":
        """Take the steps that can be made."""
        for step in taken:
            with suppress(InvalidData):
                self.take(step)
        return self

    def take(self, step: Step) -> None:
        """Take a step; InvalidData if it cannot be made."""
        action, *numbers = step
        names = sorted(self.tables["taxonomy"]["supercategory"])
        key, name, other = KEYS[numbers[0] % 3], *(names[i % len(names)] for i in numbers[1:])
        new, kind = NAMES[numbers[2]], KINDS[numbers[0] % 3]
        match action:
            case "decide" | "accept" | "contradict":
                self.decide(key, "" if numbers[2] == 3 else name, action)
            case "undo" | "redo":
                self.decisions = undo.undo_decisions(
                    self.decisions, CLUSTERS, [key], **self.signed(), redo=action == "redo"
                )
            case "take back":
                if entries := self.entries():
                    self.take_back(entries[(numbers[0] * 4 + numbers[1]) % len(entries)].id)
            case "add":
                self.edit(TaxonomyEdit("add", new, kind=kind))
            case "split":
                self.edit(TaxonomyEdit("split", name, new, keys=(key,)))
            case "rename":
                self.edit(TaxonomyEdit("rename", name, new))
            case "merge":
                self.edit(TaxonomyEdit("merge", name, other))
            case "describe":
                self.edit(TaxonomyEdit("describe", name, kind=kind))
            case "remove":
                self.edit(TaxonomyEdit("remove", name))

    def signed(self) -> dict[str, object]:
        names = Identities(self.entries()).names(kinds_of(self.tables["taxonomy"]))
        return {"who": self.who, "when": self.when, "why": "", "names": names}

    def decide(self, key: str, name: str, how: str = "decide") -> None:
        """Decide a value as a page does that was made just now; without a name, drop it.

        ``accept`` accepts it in a block, ``contradict`` is of a curator whose page is from before
        the first decision.
        """
        heads = Decided(self.decisions).heads(key, f"label {key}")
        kind = kinds_of(self.tables["taxonomy"]).get(name, "")
        cells = {"decision": "keep" if name else "drop", "supercategory": name, "kind": kind}
        base = base_of(key, () if how == "contradict" else heads)
        block = {"block": f"sure b{len(self.decisions)}"} if how == "accept" else {}
        choice = {"key": key, **cells, "base": str(base), **block}
        tables = (self.tables["taxonomy"], self.decisions, self.cluster_edits)
        self.decisions = apply_choices(
            [choice], CLUSTERS, *tables, table_of("class_hints", []),
            who="cora" if how == "contradict" else self.who, when=self.when, source="page",
        ).decisions  # fmt: skip

    def edit(self, edit: TaxonomyEdit) -> None:
        taxonomy = Taxonomy(self.tables, self.decisions)
        taxonomy.make(taxonomy.to_make([edit], self.edits))
        self.write(taxonomy, "taxonomy")

    def take_back(self, ident: str) -> None:
        entries = self.entries()
        entry = find_entry(entries, ident)
        source = "redo" if entry.source == "undo" else "undo"
        if entry.cells:
            taxonomy = Taxonomy(self.tables, self.decisions)
            taxonomy.undo(entry, entries)
            self.write(taxonomy, source)
        else:
            tables = (self.decisions, self.cluster_edits, CLUSTERS)
            self.decisions = undo.undo_entry(*tables, entry, **self.signed()).decisions

    def write(self, taxonomy: Taxonomy, source: str) -> None:
        if not taxonomy.record:
            return
        made_of = [str(len(self.edits)), *map(str, taxonomy.record)]
        entry = entry_of(made_of, self.who, self.when, source)
        rows = taxonomy.new_rows(self.who, self.when, entry)
        follows = next((one.id for one in self.entries()[::-1]), FIRST)
        edits = rows["taxonomy_edits"].assign(follows=follows)
        for name in self.tables:
            cells = list(taxonomy.state[name].values())
            self.tables[name] = pd.DataFrame(cells, columns=self.tables[name].columns).fillna("")
        self.decisions = pd.concat([self.decisions, rows["decisions"]], ignore_index=True)
        self.edits = pd.concat([self.edits, edits], ignore_index=True)


EDITS = ("add", "split", "rename", "merge", "describe", "remove")


@settings(max_examples=40, deadline=None, derandomize=True)
@given(steps("decide", "decide", "undo", "redo", "take back", *EDITS, most=8), st.integers(1, 8))
@example([("remove", 3, 0, 1), ("decide", 0, 3, 1), ("merge", 1, 3, 0)], 3)
@example([("decide", 0, 0, 0), ("undo", 0, 0, 0)], 2)
# canal takes the name of lake, which pond has taken in
@example([("decide", 0, 2, 0), ("merge", 0, 2, 3), ("rename", 0, 0, 0)], 3)
@example([("decide", 1, 2, 2), ("take back", 1, 3, 0), ("take back", 0, 0, 1)], 3)
@example([("decide", 3, 1, 1), ("take back", 3, 1, 1), ("contradict", 3, 3, 0)], 3)
@example([("decide", 0, 0, 0), ("decide", 0, 1, 1), ("remove", 2, 0, 1), ("add", 1, 3, 2)], 4)
def test_taking_the_last_entries_back_and_again_gives_the_states_before_and_after(
    taken: list[Step], back: int
) -> None:
    labels = Labels()
    states, made = [labels.snapshot()], list[str]()
    for step in taken:
        before = len(labels.decisions), len(labels.edits)
        try:
            labels.take(step)
        except InvalidData:  # nothing was made
            assert (len(labels.decisions), len(labels.edits)) == before
        if (len(labels.decisions), len(labels.edits)) != before:
            made.append(labels.entries()[-1].id)
            states.append(labels.snapshot())
    undone = list[str]()
    for number in range(len(made), max(0, len(made) - back), -1):
        labels.take_back(made[number - 1])
        undone.append(labels.entries()[-1].id)
        assert labels.snapshot() == states[number - 1]
    for number, ident in enumerate(reversed(undone), len(made) - len(undone) + 1):
        labels.take_back(ident)
        assert labels.snapshot() == states[number]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(steps("decide", "decide", "undo", "redo", "take back", *EDITS, most=9))
def test_no_history_leaves_a_name_behind_that_the_taxonomy_does_not_have(taken: list[Step]) -> None:
    labels = Labels()
    for step in taken:
        with suppress(InvalidData):
            labels.take(step)
        taxonomy = labels.tables["taxonomy"]
        assert not check_decisions(labels.decisions, taxonomy)
        roots = labels.tables["class_roots"]["supercategory"]
        assert {*roots} <= {*taxonomy["supercategory"]}


BRANCH = steps("decide", "decide", "undo", "redo", "take back", most=4)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(BRANCH, BRANCH, BRANCH)
def test_two_branches_merge_to_the_same_answers_in_either_order(
    common: list[Step], left: list[Step], right: list[Step]
) -> None:
    base = Labels().go(common)
    ours, theirs = deepcopy(base), deepcopy(base)
    theirs.who = "ben"
    branches = (ours.go(left), theirs.go(right))
    count = len(base.decisions)
    merged = []
    for one, other in (branches, branches[::-1]):
        rows = pd.concat([one.decisions, other.decisions[count:]], ignore_index=True)
        merged.append(Decided(rows))
    for key in KEYS:
        first, second = (answers_of(decided, key) for decided in merged)
        assert first == second
        changed = [one for one in branches if key in {*one.decisions["key"][count:]}]
        if len(changed) < 2:  # nobody else changed it
            assert first == answers_of(Decided((*changed, base)[0].decisions), key)
