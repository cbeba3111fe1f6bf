"""Build the hierarchical labels from the reviewed decisions, or read published ones.

A landmark gets its supercategory and kind from the decisions on its values, or from an override of
its own, which wins. A landmark without a label is listed with the reason; ``lineage`` has the
origin of each label.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.artifacts import (
    ARTIFACTS,
    BY_LANDMARK,
    ID_SPACES,
    columns_of,
    faults_by_row,
    records,
    table_of,
)
from hgld.config import LabelOptions, StageContext
from hgld.errors import require_no_faults
from hgld.hierarchy.decisions import Decided, Decision, fault_of_decision, fault_of_place, kinds_of
from hgld.hierarchy.label_file import hierarchy_of, read_published
from hgld.tasks import say
from hgld.words import count_text, part_text, single_blanks, verb_text

__all__ = ["build_labels", "read_published"]

UNKNOWN = {"item_id": "", "revision": 0, "class_id": "", "instance_of": ""}  # of a value
Key = tuple[str, int]
Row = dict[str, Any]


def build_labels(
    landmarks: pd.DataFrame,
    instance_of: pd.DataFrame,
    misses: pd.DataFrame,
    landmark_values: pd.DataFrame,
    clean_dropped: pd.DataFrame,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    overrides: pd.DataFrame,
    agreement: Mapping[str, Any] | None = None,
    *,
    options: LabelOptions,
    context: StageContext,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """One row a landmark before; one row of ``hierarchy`` or of ``label_dropped`` after.

    Of a landmark with several values those that the review dropped are left aside. It is dropped
    as ``undecided`` while one of the rest is open or in conflict, as ``conflicting_values`` where
    they lead to different supercategories, as ``dropped_in_review`` where none is left, and with
    the earlier stages' reasons where it had none.

    The finest level is "landmark" for GLDv2, by split and id; of other data it is "class", by name.
    Where two annotators were measured, ``lineage`` has beside each decided label the share of the
    values that either put into its supercategory that both did; overrides are not measured.

    Returns:
        ``train_labels``, ``index_labels``, ``hierarchy``, ``lineage``, ``label_dropped``.

    Raises:
        InvalidData: decisions or overrides that do not fit the taxonomy, or overrides of a class
            of another name; all of them, with rows.
    """
    kinds, decided = kinds_of(taxonomy), Decided(decisions)
    _check_decisions(decided, landmark_values, kinds, context.labels / ARTIFACTS["decisions"].file)
    names = None if context.source.kind in ("gldv2", "toy") else _unique_names(landmarks)
    _check_overrides(overrides, kinds, names, context.labels / ARTIFACTS["overrides"].file)
    # Cleaning keeps only what decisions need; the origin of a label is in the scraped table.
    origin = instance_of[[*BY_LANDMARK, "order", "item_id", "revision"]]
    values = landmark_values.merge(origin, on=[*BY_LANDMARK, "order"], how="left")
    # a person may have added values to landmark_values.csv
    values = values.fillna(UNKNOWN).sort_values([*BY_LANDMARK, "order"], kind="stable")
    labelled, reasons = _judge(values, decided)
    found = {d.key for d in decided.of_values(values) if d and d.rivals}
    if found:
        are = verb_text(len(found), "are")
        say(
            f"{count_text(len(found), 'value')} that people decided differently {are} left open; "
            f"`hgld reviews conflicts {context.words}` shows both sides"
        )
    # After the decisions: an override has priority over them.
    here = landmarks[BY_LANDMARK].merge(overrides, on=BY_LANDMARK)
    known = pd.MultiIndex.from_frame(here[BY_LANDMARK])
    others = overrides[~pd.MultiIndex.from_frame(overrides[BY_LANDMARK]).isin(known)]
    if len(others):  # with a typo in it, an override would change nothing, silently
        are = part_text(len(others), len(overrides), "override", "are")
        split, landmark_id = others[BY_LANDMARK].iloc[0]
        one = f"{context.source.class_noun} here, first {split}:{landmark_id}"
        say(f"overrides.csv: {are} of no {one}")
    first = values.drop_duplicates(BY_LANDMARK)
    # A landmark without any value may have an override, too.
    for row in records(here.merge(first, on=BY_LANDMARK, how="left").fillna(UNKNOWN)):
        name = single_blanks(row["supercategory"])
        own = {**row, "supercategory": name, "decided_by": "override"}
        labelled[row["split"], row["landmark_id"]] = own
    measured = (agreement or {}).get("supercategories", ())
    shares = {("decision", row["supercategory"]): f"{row['share']:.3f}" for row in measured}
    urls = landmarks.set_index(BY_LANDMARK)["commons_url"].to_dict()
    rows = [
        {
            **row,
            "commons_url": urls[key],
            "kind": kinds[row["supercategory"]],
            "agreement": shares.get((row["decided_by"], row["supercategory"]), ""),
        }
        for key, row in sorted(labelled.items())
    ]
    lineage = table_of("lineage", rows)
    # An override gives a label to landmarks that earlier stages dropped.
    done = pd.MultiIndex.from_frame(lineage[BY_LANDMARK])
    left = landmarks[~pd.MultiIndex.from_frame(landmarks[BY_LANDMARK]).isin(done)]
    why = pd.concat([misses, clean_dropped, reasons])[columns_of("label_dropped")]
    dropped = left[BY_LANDMARK].merge(why, on=BY_LANDMARK, how="inner")
    published = {
        "landmark_id": "landmark_id",
        "commons_url": "category",
        "instance_of": "supercategory",
        "supercategory": "hierarchical_label",
        "kind": "natural_or_human_made",
    }
    train, index = (
        lineage.loc[lineage["split"] == split, list(published)].rename(columns=published)
        for split in ID_SPACES
    )
    hierarchy = hierarchy_of(lineage, context.levels, names)
    return train, index, hierarchy, lineage[columns_of("lineage")], dropped


def _check_decisions(
    decided: Decided, values: pd.DataFrame, kinds: Mapping[str, str], path: Path
) -> None:
    """Only what is in force is checked: history may name supercategories that are gone.

    A decision on a label is history, too, where all values of that label go by their class ids.
    """
    in_use = {d.place for d in decided.of_values(values) if d}
    labels = set(values["instance_of"])
    faults = (
        (d.place, fault)
        for d in decided.all()
        if d.places and (d.place in in_use or d.key_type == "qid" or d.key not in labels)
        if (fault := fault_of_decision(d, kinds))
    )
    require_no_faults(path, faults_by_row(path, faults))


def _check_overrides(
    overrides: pd.DataFrame,
    kinds: Mapping[str, str],
    names: Mapping[Key, str] | None,
    path: Path,
) -> None:
    faults = (
        (place, fault)
        for place, row in enumerate(records(overrides))
        for fault in (
            fault_of_place(single_blanks(row["supercategory"]), row["kind"], kinds),
            "" if names is None else _fault_of_name(row, names),
        )
        if fault
    )
    require_no_faults(path, faults_by_row(path, faults))


def _fault_of_name(row: Row, names: Mapping[Key, str]) -> str:
    """Describe the fault of an override that is not of the class of its name.

    Classes are numbered by sorted name, so a class that comes or goes gives others new numbers.
    """
    name, of_number = single_blanks(row["name"]), names.get((row["split"], row["landmark_id"]), "")
    numbers = {single_blanks(n): i for (split, i), n in names.items() if split == row["split"]}
    where = f"{row['split']} {row['landmark_id']} is {repr(of_number) if of_number else 'no class'}"
    if not name:
        return f"the column name is empty or missing; write the name of the class ({where})"
    if name == single_blanks(of_number) or not (of_number or name in numbers):
        return ""
    now = f"landmark_id {numbers[name]}" if name in numbers else "no class; remove the row"
    return f"{where}, but its name is {name!r}, which is now {now}"


def _judge(values: pd.DataFrame, decided: Decided) -> tuple[dict[Key, Row], pd.DataFrame]:
    """Lineage of each landmark that gets a label, and the reasons of those that get none."""
    of_landmark: dict[Key, list[tuple[Row, Decision | None]]] = {}
    for row, decision in zip(records(values), decided.of_values(values), strict=True):
        of_landmark.setdefault((row["split"], row["landmark_id"]), []).append((row, decision))
    labelled: dict[Key, Row] = {}
    reasons: list[Row] = []
    for key, found in of_landmark.items():
        reason, detail = _why_not(found)
        if reason:
            cells = dict(zip(BY_LANDMARK, key, strict=True))
            reasons.append({**cells, "reason": reason, "detail": detail})
        else:
            row, decision = next((row, d) for row, d in found if d and d.places)
            signed = {"who": decision.who, "when": decision.when}
            name = decision.supercategory
            labelled[key] = {**row, **signed, "decided_by": "decision", "supercategory": name}
    return labelled, table_of("label_dropped", reasons)


def _why_not(found: Sequence[tuple[Row, Decision | None]]) -> tuple[str, str]:
    """Why a landmark with these values gets no label, as reason and detail; empty if it does."""
    still_open = [
        row["instance_of"] + (f" (in conflict: {d.conflict})" if d and d.rivals else "")
        for row, d in found
        if not (d and d.decides)
    ]
    if still_open:
        return "undecided", "; ".join(still_open)
    # Values that the review dropped have no say.
    placed = [(row["instance_of"], d.supercategory) for row, d in found if d and d.places]
    if not placed:
        return "dropped_in_review", "; ".join(row["instance_of"] for row, _ in found)
    if len({supercategory for _, supercategory in placed}) > 1:
        return "conflicting_values", "; ".join(f"{value}: {name}" for value, name in placed)
    return "", ""


def _unique_names(landmarks: pd.DataFrame) -> dict[Key, str]:
    """Names of the classes; of two classes of one name each gets its id, too."""
    shared = landmarks.duplicated(["split", "name"], keep=False)
    with_id = landmarks["name"] + " (" + landmarks["landmark_id"].astype("str") + ")"
    keys = zip(landmarks["split"], landmarks["landmark_id"], strict=True)
    return dict(zip(keys, landmarks["name"].mask(shared, with_id), strict=True))
