"""The levels above the supercategories, at any depth.

A supercategory has one kind: the path of its classes above, coarse to fine, joined by " > ". With
H-GLDv2's levels this is natural or human-made; with one level above the classes it is empty.
Decisions name a supercategory alone, so that a change of the levels above it changes none of them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pandas as pd

from hgld.artifacts import KINDS, faults_by_row
from hgld.config import KIND_SEPARATOR, LEVEL_NAMES
from hgld.errors import InvalidData, require_no_faults
from hgld.hierarchy.scrape.ancestors import steps_up
from hgld.words import nearest, single_blanks


def classes_above(kind: str) -> list[str]:
    """Return the classes above a supercategory, coarse to fine.

    Example:
        >>> classes_above("food > bakery"), classes_above("natural"), classes_above("")
        (['food', 'bakery'], ['natural'], [])
    """
    return kind.split(KIND_SEPARATOR) if kind else []


def read_kind(text: str, levels: Sequence[str]) -> str:
    """Return a kind in the spelling of the taxonomy.

    Args:
        text: as a person wrote it.
        levels: names of the levels above the landmarks, coarse to fine.

    Raises:
        InvalidData: it does not have a class for each level above the supercategory.

    Example:
        >>> read_kind("food >  bakery", ("section", "aisle", "shelf"))
        'food > bakery'
        >>> read_kind("Natural", ("kind", "supercategory"))
        'natural'
    """
    if tuple(levels) == LEVEL_NAMES[:-1]:
        kind = text.strip().casefold()
        if kind not in KINDS:
            expected = " or ".join(KINDS)
            raise InvalidData(f"kind '{text}': expected {expected}{nearest(kind, KINDS)}")
        return kind
    kind = single_blanks(text)
    found = classes_above(kind)
    if len(found) != len(levels) - 1 or not all(one.strip(" >") for one in found):
        expected = KIND_SEPARATOR.join(levels[:-1]).upper() or "nothing"
        raise InvalidData(f"kind '{text}': expected {expected}, as cluster.levels has")
    return kind


def require_kinds(
    taxonomy: pd.DataFrame, levels: Sequence[str], path: Path, *, other_levels: bool = False
) -> None:
    """Require different names, and kinds of these levels that form a tree.

    With ``other_levels`` a kind may have another number of classes, also none, as after the levels
    of the pipeline were changed.

    Raises:
        InvalidData: all faults, with their rows.
    """
    faults = []
    names: dict[str, str] = {}
    for place, name in enumerate(taxonomy["supercategory"].map(single_blanks)):
        if not name:
            faults.append((place, "supercategory is empty; fill it in, or delete the row"))
        elif name.casefold() in names:
            twin = names[name.casefold()]
            faults.append((place, f"supercategory '{name}' is there already, as '{twin}'"))
        names.setdefault(name.casefold(), name)
    for place, kind in enumerate(taxonomy["kind"]):
        if other_levels and not is_of_levels(kind, levels):
            continue
        try:
            if read_kind(kind, levels) != kind:
                expected = f"expected {read_kind(kind, levels)!r}"
                faults.append((place, f"kind is {kind!r}; {expected}"))
        except InvalidData as fault:
            faults.append((place, str(fault) if kind else f"{fault}; fill it in"))
    if not faults:
        rows = zip(taxonomy["supercategory"], taxonomy["kind"], strict=True)
        faults = list(tree_faults(rows, levels))
    lines = faults_by_row(path, faults)
    if lines and not all(is_of_levels(kind, levels) for kind in taxonomy["kind"]):
        lines.append("`hgld taxonomy propose` fills in empty kinds, and those of other levels, by "
                     "the clusters above, `hgld taxonomy describe` with --kind that of one "
                     "supercategory, a changed review_taxonomy.csv all of them")  # fmt: skip
    require_no_faults(path, lines)


def is_of_levels(kind: str, levels: Sequence[str]) -> bool:
    """Whether a kind has a class for each level above the supercategories.

    Example:
        >>> is_of_levels("food > bakery", ("a", "b", "c")), is_of_levels("food", ("a", "b", "c"))
        (True, False)
    """
    return len(classes_above(kind)) == len(levels) - 1


def kinds_to_choose(kinds: Iterable[str]) -> Sequence[str]:
    """Return the kinds that a person may choose: H-GLDv2's two, or those of the taxonomy.

    Example:
        >>> kinds_to_choose(["natural"]), kinds_to_choose(["food", "tools"])
        (('natural', 'human-made'), ['food', 'tools'])
    """
    found = set(kinds)
    return KINDS if found <= set(KINDS) else sorted(found)


def tree_faults(
    kinds: Iterable[tuple[str, str]], levels: Sequence[str]
) -> Iterator[tuple[int, str]]:
    """Yield place and fault of each row that puts a class under another parent than a row before.

    A class is known by level and name. Where one is above another in one row and below it in
    another, two names were interchanged; a class may have the name of the one right below it.
    Kinds of other levels are left out.

    Args:
        kinds: of each row the supercategory and its kind.
        levels: names of the levels above the landmarks, coarse to fine.

    Example:
        >>> kinds = [("bread", "food > bakery"), ("oven", "tools > bakery")]
        >>> [fault] = tree_faults(kinds, ("a", "b", "c"))
        >>> fault
        (1, "b 'bakery' is below 'tools' here and below 'food' above; a class has one parent")
    """
    first: dict[tuple[str, str], str] = {}
    parents = defaultdict[str, set[str]](set)
    for place, (supercategory, kind) in enumerate(kinds):
        if not is_of_levels(kind, levels):
            continue
        above = classes_above(kind)
        for depth, (level, name) in enumerate(zip(levels, above, strict=False)):
            here = KIND_SEPARATOR.join(above[:depth])
            there = first.setdefault((level, name), here)
            if there != here:
                fault = f"{level} '{name}' is below '{here}' here and below '{there}' above"
                yield place, f"{fault}; a class has one parent"
        for parent, child in pairwise([*above, supercategory]):
            if parent != child and child in steps_up(parent, lambda one: parents.get(one, ())):
                fault = f"'{child}' is below '{parent}' here and above it in the rows above"
                yield place, f"{fault}; write the classes of a row coarse to fine"
            else:
                parents[child].add(parent)
