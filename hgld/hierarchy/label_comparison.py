"""Differences of two sets of labels: per landmark, level, supercategory, and the confused pairs.

Both sides are label files, published or made here, or folders that hold them. Ids of train
and index are different spaces and are never compared with each other. Of landmarks that both sides
have, one is the ``same`` or has ``moved``; the others are ``lost`` (only in A) or ``added`` (only
in B), so every row of either side is in exactly one count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.artifacts import ARTIFACTS, BY_LANDMARK, ID_SPACES, SPACE_OF_SPLIT, declared_table
from hgld.config import LEVEL_NAMES
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.label_file import (
    LabelFile,
    classes_of,
    files_of_paths,
    labels_now,
    read_label_file,
)
from hgld.hierarchy.scrape.titles import as_stored, title_of_url

CHANGES = ("same", "moved", "lost", "added")
FILES = {split: ARTIFACTS[f"{split}_labels"].file for split in ID_SPACES}


@dataclass(frozen=True)
class LabelComparison:
    """Agreement and differences of the labels of A and B.

    Attributes:
        landmarks: one row a landmark of either side: split, landmark_id, label_a, kind_a,
            label_b, kind_b, change; of classes also the name, as class.
        other_page: landmarks of both sides whose Commons pages differ, a sign of other ids.
        noun: "landmark", or "class" of data whose classes are known by name.
        levels: of the levels above that both sides have, coarse to fine, how many landmarks of
            both sides have the same class there. If the finest of A and B have different names,
            "A's / B's" counts these two.
        levels_of_one: level that one side lacks -> the side that has it, A or B.
    """

    landmarks: pd.DataFrame
    other_page: int
    noun: str
    levels: Mapping[str, int]
    levels_of_one: Mapping[str, str]

    @property
    def as_published(self) -> bool:
        """Whether both sides have H-GLDv2's landmarks and levels: a label and its kind."""
        return self.noun == LEVEL_NAMES[-1] and tuple(self.levels) == LEVEL_NAMES[:-1]

    def counts(self) -> dict[str, int]:
        """Landmarks by change, and how many of those on both sides have the same kind."""
        found = self.landmarks["change"].value_counts()
        counts = {change: int(found.get(change, 0)) for change in CHANGES}
        both = self.landmarks["change"].isin(["same", "moved"])
        same_kind = both & (self.landmarks["kind_a"] == self.landmarks["kind_b"])
        return {
            **counts,
            "a": counts["same"] + counts["moved"] + counts["lost"],
            "b": counts["same"] + counts["moved"] + counts["added"],
            "both": counts["same"] + counts["moved"],
            "same_kind": int(same_kind.sum()),
        }

    def confusions(self) -> pd.DataFrame:
        """label_a, label_b, landmarks of those that moved, the most frequent first."""
        moved = self.landmarks[self.landmarks["change"] == "moved"]
        pairs = moved.groupby(["label_a", "label_b"]).size().rename("landmarks").reset_index()
        order = ["landmarks", "label_a", "label_b"]
        return pairs.sort_values(order, ascending=[False, True, True], ignore_index=True)

    def supercategories(self) -> pd.DataFrame:
        """A row a label: a = same + left + lost, b = same + came + added; most changed first."""
        rows, change = self.landmarks, self.landmarks["change"]
        counts = {
            "a": rows["label_a"],
            "b": rows["label_b"],
            "same": rows["label_a"][change == "same"],
            "left": rows["label_a"][change == "moved"],
            "came": rows["label_b"][change == "moved"],
            "lost": rows["label_a"][change == "lost"],
            "added": rows["label_b"][change == "added"],
        }
        series = {name: labels[labels != ""].value_counts() for name, labels in counts.items()}
        table = pd.DataFrame(series).fillna(0).astype("int64").rename_axis("label").reset_index()
        changed = table[["left", "came", "lost", "added"]].sum(axis=1)
        # Ties by name, so that the same labels give the same table.
        order = table.assign(_changed=changed).sort_values(
            ["_changed", "label"], ascending=[False, True], ignore_index=True
        )
        return order.drop(columns="_changed")

    def to_json(self) -> dict[str, Any]:
        """Everything but the landmarks, as JSON values."""
        return {
            **self.counts(),
            "levels": dict(self.levels),
            "levels_of_one": dict(self.levels_of_one),
            "other_page": self.other_page,
            "supercategories": self.supercategories().to_dict("records"),
            "confusions": self.confusions().to_dict("records"),
        }


def read_labels(path: Path, split: str = "") -> dict[str, LabelFile]:
    """Split -> label file, of one file, a work folder or a release.

    The split of a file is ``split``, or what its name says; one that says nothing is "". A file of
    classes has a column of it.

    Raises:
        InvalidData: nothing there, or no label file.
    """
    if not path.is_dir():
        file = read_label_file(path)
        if file.noun == "class":
            return _by_split(file, split)
        # A name with both words, such as train_and_index.csv, says nothing.
        said = [name for name in ID_SPACES if name in path.name.casefold()]
        return {split or (said[0] if len(said) == 1 else ""): file}
    paths = path / ARTIFACTS["hierarchy"].file
    hierarchy = declared_table("hierarchy").read(paths) if paths.is_file() else pd.DataFrame()
    try:
        classes = None if hierarchy.empty else classes_of(hierarchy)
    except InvalidData as error:
        raise InvalidData(f"{path}: {error}") from None
    if classes is not None and (deep := files_of_paths(hierarchy, paths)):
        return {name: file for name, file in deep.items() if split in ("", name)}
    there = {name: path / file for name, file in FILES.items() if (path / file).is_file()}
    found = {name: read_label_file(file) for name, file in there.items() if split in ("", name)}
    if classes is not None:
        now = labels_now(classes, {name: file.labels for name, file in found.items()})
        found = {name: replace(file, labels=now[name]) for name, file in found.items()}
    released = path / "labels.csv"
    if not found and released.is_file():
        return read_labels(released, split)
    if not found:
        raise InvalidData(f"{path}: no label file in it; expected {' or '.join(FILES.values())}")
    return found


def compare_labels(a: Mapping[str, LabelFile], b: Mapping[str, LabelFile]) -> LabelComparison:
    """Compare the splits that both sides have: landmarks by number, named classes by name.

    Raises:
        UsageError: they have none in common.
    """
    # A file whose split nobody named has that of the other side, if this is only one.
    if list(a) == [""] and len(b) == 1:
        a = {next(iter(b)): a[""]}
    elif list(b) == [""] and len(a) == 1:
        b = {next(iter(a)): b[""]}
    common = [split for split in a if split in b]
    if not common:
        raise UsageError(
            f"A holds labels of {_names(a)} and B of {_names(b)}, whose ids are different "
            "landmarks; compare the same split (--split says which one a file holds)"
        )
    rows = pd.concat([_join(split, a[split], b[split]) for split in common], ignore_index=True)
    pages = [  # by name: the same page has URLs in several spellings
        rows[name].map(lambda url: as_stored(title) if (title := title_of_url(url)) else url)
        for name in ("category_a", "category_b")
    ]
    other = (pages[0] != pages[1]) & (pages[0] != "") & (pages[1] != "")
    columns = [*BY_LANDMARK, "label_a", "kind_a", "label_b", "kind_b", "change"]
    nouns = {file.noun for side in (a, b) for file in side.values()}
    noun = "class" if nouns == {"class"} else LEVEL_NAMES[-1]
    if noun == "class":
        columns.insert(len(BY_LANDMARK), "class")
        rows["class"] = rows["category_a"].where(rows["category_a"] != "", rows["category_b"])
    ours, theirs = ([str(name) for name in side[common[0]].above] for side in (a, b))
    one_sided = {level: "A" for level in ours if level not in theirs}
    one_sided |= {level: "B" for level in theirs if level not in ours}
    both = rows[rows["change"].isin(["same", "moved"])]
    places = {level: (ours.index(level), theirs.index(level)) for level in ours if level in theirs}
    if ours[-1] != theirs[-1]:
        places[f"{ours[-1]} / {theirs[-1]}"] = len(ours) - 1, len(theirs) - 1
    levels = {
        level: int((both[f"{here}_a"] == both[f"{there}_b"]).sum())
        for level, (here, there) in places.items()
    }
    rows = rows[columns].sort_values(BY_LANDMARK, ignore_index=True)
    return LabelComparison(rows, int(other.sum()), noun, levels, one_sided)


def _by_split(file: LabelFile, split: str) -> dict[str, LabelFile]:
    """Return the classes of a release by space of ids; one without images counts in each."""
    assert file.paths is not None
    spaces = [
        {SPACE_OF_SPLIT[name] for name in text.split("; ") if name in SPACE_OF_SPLIT}
        for text in file.cells["split"]
    ]
    found = {}
    for name in sorted(set().union(*spaces)) or [split]:
        rows = pd.Series([name in some or not some for some in spaces], dtype=bool)
        cells, labels, paths = (table[rows] for table in (file.cells, file.labels, file.paths))
        found[name] = replace(file, cells=cells, labels=labels, paths=paths)
    if split and split not in found:
        raise InvalidData(f"{file.path}: no class of {split}; it has classes of {_names(found)}")
    return {name: part for name, part in found.items() if split in ("", name)}


def _names(side: Mapping[str, LabelFile]) -> str:
    return " and ".join(name or "an unnamed split" for name in side)


def _join(split: str, a: LabelFile, b: LabelFile) -> pd.DataFrame:
    names = {"hierarchical_label": "label", "natural_or_human_made": "kind", "category": "category"}
    sides = []
    for file, end in ((a, "_a"), (b, "_b")):
        # Levels by place: one may have the name of another column.
        above = file.above.set_axis(range(file.above.shape[1]), axis="columns")
        shown = file.labels[["landmark_id", *names]].rename(columns=names)
        shown = pd.concat([shown, above], axis="columns")[file.labelled]
        sides.append(shown.set_index("landmark_id").add_suffix(end).reset_index())
    named = a.noun == b.noun == "class"
    if named and sides[0]["category_a"].is_unique and sides[1]["category_b"].is_unique:
        # Classes of B get the numbers of their names in A, and new ones follow: a class that one
        # side has more shifts the numbers of all after it.
        numbers = sides[0].set_index("category_a")["landmark_id"].to_dict()
        fresh = count(max(numbers.values(), default=-1) + 1)
        new = (name for name in sides[1]["category_b"] if name not in numbers)
        numbers |= dict(zip(new, fresh, strict=False))
        sides[1]["landmark_id"] = sides[1]["category_b"].map(numbers)
    rows = sides[0].merge(sides[1], on="landmark_id", how="outer", indicator="where")
    change = rows["where"].map({"left_only": "lost", "right_only": "added", "both": "moved"})
    same = (rows["label_a"] == rows["label_b"]) & (rows["where"] == "both")
    change = change.astype("str").where(~same, "same")
    return rows.drop(columns="where").fillna("").assign(split=split, change=change)
