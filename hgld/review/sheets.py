"""The review sheets for decisions on values and clusters, and the gate of the stage.

``review.csv`` has one row for each value: four columns to edit come first (decision, supercategory,
kind, note), the others are evidence. Rows are sorted by how much a decision gains: open values by
their images and the uncertainty of their cluster or suggestion (``review.order``). Decisions that
no longer fit stay visible.
``review_clusters.csv`` has one row for each cluster, to decide many values at once (see
``hgld.review.clusters``). Both are read back by ``hgld review PIPELINE --apply``.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import nan
from typing import Any, Literal

import numpy as np
import pandas as pd

from hgld.artifacts import BY_LANDMARK, Vectors, columns_of, records, table_of
from hgld.artifacts.cells import guard_columns, single_blanks_all
from hgld.config import ReviewOptions, StageContext
from hgld.errors import WaitingForReview
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.decisions import Decided, Decision, key_types_of, kinds_of, short_hash
from hgld.review.clusters import list_clusters
from hgld.review.row_base import EDITABLE, base_of, cells_of, evidence_of, has_changed
from hgld.review.suggestions import ValueModel, class_of_decision, fit_model, suggest
from hgld.review.taxonomy import NO_EDITS, former_kinds, list_taxonomy, present_names
from hgld.words import count_text, done_text, share_text, verb_text

EXAMPLES = 3
FIRST_TO_LAST = {"conflict": -1, "open": 0, "unsure": 0, "stale": 1, "decided": 2}
GONE = -1  # cluster of a value that no longer exists
HINTS = (  # columns that a blind copy may lack
    "cluster",
    "cluster_name",
    "distance",
    "margin",
    "hint",
    "suggestion",
    "probability",
    "reason",
)


def write_sheets(
    clusters: pd.DataFrame,
    cluster_summary: pd.DataFrame,
    landmark_values: pd.DataFrame,
    landmarks: pd.DataFrame,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    class_hints: pd.DataFrame,
    class_labels: pd.DataFrame,
    label_vectors: Vectors,
    taxonomy_vectors: Vectors,
    taxonomy_edits: pd.DataFrame,
    image_vectors: Vectors | None = None,
    ancestry: pd.DataFrame | None = None,
    *,
    options: ReviewOptions,
    context: StageContext,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Write the sheets, with one row for each value and each decision without a value.

    Returns:
        ``review``, ``review_clusters`` and ``review_taxonomy``.
    """
    of_values = (clusters, landmark_values, landmarks, taxonomy, decisions, class_hints)
    model = None
    if not all(
        decision and decision.decides for decision in Decided(decisions).of_values(clusters)
    ):
        nearness = label_vectors, taxonomy_vectors, taxonomy_edits, image_vectors, ancestry
        model = fit_decisions(clusters, taxonomy, decisions, *nearness)
    sheet = list_values(*of_values, class_labels, model, options.order, taxonomy_edits)
    return (
        guard_columns(sheet),
        guard_columns(list_clusters(sheet, cluster_summary)),
        guard_columns(list_taxonomy(sheet, taxonomy)),
    )


def fit_decisions(
    clusters: pd.DataFrame,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    label_vectors: Vectors,
    taxonomy_vectors: Vectors,
    taxonomy_edits: pd.DataFrame,
    image_vectors: Vectors | None = None,
    ancestry: pd.DataFrame | None = None,
) -> ValueModel | None:
    """Fit the model of suggestions to the decisions in force; None without a taxonomy."""
    answers = [class_of_decision(decision) for decision in Decided(decisions).of_values(clusters)]
    present = present_names(taxonomy, taxonomy_edits).items()
    earlier = {name: now for name, (now, _) in present if name != now}
    nearness = label_vectors, taxonomy_vectors, image_vectors, ancestry
    return fit_model(clusters, answers, taxonomy, *nearness, earlier)


def list_values(
    clusters: pd.DataFrame,
    landmark_values: pd.DataFrame,
    landmarks: pd.DataFrame,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    class_hints: pd.DataFrame,
    class_labels: pd.DataFrame | None = None,
    model: ValueModel | None = None,
    order: Literal["images", "gain"] = "images",
    taxonomy_edits: pd.DataFrame = NO_EDITS,
) -> pd.DataFrame:
    """Return the sorted rows of ``review.csv``, each with the decision in force or a suggestion.

    A value is ``open`` without a decision, ``unsure`` if a person was, in ``conflict`` if people
    decided it differently without seeing each other's decision, ``stale`` if its label, its class
    or its supercategory changed since the decision, else ``decided``. Decisions whose value no
    longer exists are in the last rows, ``stale`` and without a cluster.

    A suggestion is the supercategory with the same name as the value; else the hint of its class;
    else the answer of the model of the decisions, if there is one; else the most frequent one of
    the decided values in the cluster, weighted by their landmarks. A single decided value is not
    enough for the last one.
    """
    decided, kinds = Decided(decisions), kinds_of(taxonomy)
    in_force = decided.of_values(clusters)
    hints = hints_of(class_hints)
    evidence = evidence_of(clusters, hints)
    also = earlier_hints(class_hints, taxonomy, taxonomy_edits)
    suggestions = suggest(clusters, in_force, kinds, class_hints, model)
    sheet = clusters.assign(
        key=value_keys(clusters),
        key_type=key_types_of(clusters),
        **_decided_cells(in_force),
        hint=[hints.get(class_id, "") for class_id in clusters["class_id"]],
        suggestion=[suggestion.name for suggestion in suggestions],
        probability=[round(s.probability, 2) if s.name else nan for s in suggestions],
        reason=[suggestion.reason for suggestion in suggestions],
        evidence=evidence,
        status=[
            _status(d, now, kinds, also.get(class_id, ()))
            for d, now, class_id in zip(in_force, evidence, clusters["class_id"], strict=True)
        ],
        conflict=[decision.conflict if decision else "" for decision in in_force],
    )
    keyed = landmark_values.assign(key=value_keys(landmark_values))
    named = keyed.merge(landmarks, on=BY_LANDMARK, how="left")
    named = named.assign(name=single_blanks_all(named["name"].fillna("")))
    distinct = named.sort_values(["key", *BY_LANDMARK]).drop_duplicates(["key", "name"])
    joined = distinct.groupby("key").head(EXAMPLES).groupby("key")["name"].agg("; ".join)
    examples = {str(key): str(text) for key, text in joined.items()}
    sheet = sheet.assign(examples=[examples.get(key, "") for key in sheet["key"]], base="")
    sheet = sheet[columns_of("review")]
    rows = pd.concat([sheet, _gone(decided, clusters)], ignore_index=True)
    sheet = in_review_order(rows, order)
    bases = (
        base_of(row["key"], decided.heads(row["key"] * (row["key_type"] == "qid"), label), number)
        for number, row in enumerate(records(sheet), 1)
        for label in [row["instance_of"] or row["key"]]
    )
    sheet = sheet.assign(base=list(map(str, bases)))
    if class_labels is not None:  # a column for each language, beside the English labels
        place = list(sheet.columns).index("instance_of")
        for language, rows in sorted(class_labels.groupby("language"), reverse=True):
            labels = dict(zip(rows["class_id"], rows["label"], strict=True))
            column = [labels.get(key, "") for key in sheet["key"]]
            sheet.insert(place + 1, f"label_{language}", pd.Series(column, dtype="str"))
    return sheet


def blind_sheet(
    clusters: pd.DataFrame,
    landmark_values: pd.DataFrame,
    landmarks: pd.DataFrame,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    class_hints: pd.DataFrame,
    class_labels: pd.DataFrame | None = None,
    *,
    seed: int,
    hints: bool,
) -> pd.DataFrame:
    """Return the sheet for one of several annotators, without decisions and optionally hints.

    Its rows are shuffled by the seed, so that fatigue affects different values of each annotator.
    The base of a row records that it was written without a decision, and its place in this order.
    """
    none = decisions[:0]
    sheet = list_values(
        clusters, landmark_values, landmarks, taxonomy, none, class_hints, class_labels
    )
    order = np.random.default_rng(seed).permutation(len(sheet))
    sheet = sheet.iloc[order].drop(columns=["status", "conflict", *([] if hints else HINTS)])
    bases = (base_of(key, (), row) for row, key in enumerate(sheet["key"], 1))
    return guard_columns(sheet.assign(base=list(map(str, bases))))


def list_decisions(
    clusters: pd.DataFrame,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    class_hints: pd.DataFrame,
    taxonomy_edits: pd.DataFrame = NO_EDITS,
) -> dict[str, dict[str, Any]]:
    """Return for each key the cells of ``review.csv`` that decisions change, and its history."""
    decided, kinds = Decided(decisions), kinds_of(taxonomy)
    also = earlier_hints(class_hints, taxonomy, taxonomy_edits)
    evidence = evidence_of(clusters, hints_of(class_hints))
    here = set(value_keys(clusters))
    values = [
        *zip(
            value_keys(clusters),
            clusters["class_id"],
            clusters["instance_of"],
            evidence,
            strict=True,
        ),
        *(
            (d.key, d.key * (d.key_type == "qid"), d.key, "")
            for d in decided.all_heads()  # also of values that an undo left open
            if d.key not in here
        ),
    ]
    found = {}
    for key, class_id, label, now in values:
        heads = decided.heads(class_id, label)
        decision = decided.find(class_id, label)
        gone = key not in here and decision is not None and not decision.rivals
        found[key] = {
            **cells_of(decision),
            "status": "stale" if gone else _status(decision, now, kinds, also.get(key, ())),
            "conflict": decision.conflict if decision else "",
            "base": str(base_of(key, heads)),
            "history": list_history(decided, class_id, label),
        }
    return found


def list_history(decided: Decided, class_id: str, instance_of: str) -> list[list[Any]]:
    """Return all decisions on a value, newest first.

    Returns:
        decision, supercategory, who, when, why, and whether it holds, of each; more than one holds
        if people are in conflict.
    """
    heads = {head.id for head in decided.heads(class_id, instance_of)}
    return [
        [one.decision, one.supercategory, one.who, one.when, one.why, one.id in heads]
        for one in reversed(decided.history(class_id, instance_of))
    ]


def in_review_order(
    sheet: pd.DataFrame, order: Literal["images", "gain"] = "images"
) -> pd.DataFrame:
    """Return the rows of ``review.csv`` in the order of the review.

    Conflicts first, then open and unsure values, stale ones, decided ones, and decisions without a
    value; among them by impact x uncertainty: the images (or landmarks, if more) that a decision
    reaches, times 1 - margin, which is 1 halfway between two clusters. With the order ``gain`` it
    is times 1 - probability of the suggestion; without a suggestion it is 1.
    """
    impact = np.maximum(sheet["images"], sheet["landmarks"])
    sure = sheet["margin"] if order == "images" else sheet["probability"].astype(float).fillna(0)
    ordered = sheet.assign(
        _gone=sheet["cluster"] == GONE,
        _status=sheet["status"].map(FIRST_TO_LAST),
        _weight=impact * (1 - sure.clip(0, 1)),
    ).sort_values(
        ["_gone", "_status", "_weight", "key"], ascending=[True, True, False, True], kind="stable"
    )
    return ordered[list(sheet.columns)].reset_index(drop=True)


def sure_choices(sheet: pd.DataFrame, least: float) -> list[dict[str, str]]:
    """Return the cells that accept the suggestions of open values from a probability on.

    Args:
        sheet: the rows of ``list_values``.
        least: probability in (0, 1], compared with the column ``probability``.
    """
    sure = sheet[(sheet["status"] == "open") & (sheet["probability"] >= least)]
    return [
        {
            "key": row["key"],
            "decision": "drop" if row["suggestion"] == "drop" else "keep",
            "supercategory": "" if row["suggestion"] == "drop" else row["suggestion"],
            "note": f"accepted at {share_text(row['probability'])}: {row['reason']}",
            "base": row["base"],
        }
        for row in records(sure)
    ]


def hints_of(class_hints: pd.DataFrame) -> dict[str, str]:
    """Return class id -> suggestion of its superclasses, as text.

    Example:
        >>> hints_of(pd.DataFrame({"class_id": ["Q1"], "kind_hint": ["natural"],
        ...     "supercategory_hint": ["lake"]}))
        {'Q1': 'natural: lake'}
    """
    columns = ("class_id", "kind_hint", "supercategory_hint")
    rows = zip(*(class_hints[name] for name in columns), strict=True)
    texts = ((class_id, ": ".join(filter(None, hint))) for class_id, *hint in rows)
    return {class_id: text for class_id, text in texts if class_id and text}


def earlier_hints(
    class_hints: pd.DataFrame, taxonomy: pd.DataFrame, taxonomy_edits: pd.DataFrame
) -> dict[str, set[str]]:
    """Return class id -> the hint's part of the evidence before edits of the taxonomy.

    They change name and kind of a supercategory, but no class of Wikidata.
    """
    names, kinds = defaultdict[str, set[str]](set), former_kinds(taxonomy, taxonomy_edits)
    for old, (now, _) in present_names(taxonomy, taxonomy_edits).items():
        names[now].add(old)
    return {
        row["class_id"]: {
            short_hash(": ".join(filter(None, (kind, old))))
            for old in names[row["supercategory_hint"]]
            for kind in {row["kind_hint"], *kinds.get(row["supercategory_hint"], ())}
        }
        for row in records(class_hints)
        if row["supercategory_hint"]
    }


def require_decisions(
    clusters: pd.DataFrame,
    cluster_summary: pd.DataFrame,
    landmark_values: pd.DataFrame,
    landmarks: pd.DataFrame,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    *_: object,
    options: ReviewOptions,
    context: StageContext,
) -> None:
    """Let the run pass if enough landmarks are decided, that is, all values of each are decided.

    It is called with the tables of ``write_sheets``.

    Raises:
        WaitingForReview: fewer than ``review.min_coverage``; gives the number of open values.
    """
    decided = Decided(decisions)
    found = decided.of_values(landmark_values)
    is_open = [not (d and d.decides) for d in found]
    open_rows = landmark_values[np.array(is_open, dtype=bool)]
    total = len(landmark_values[BY_LANDMARK].drop_duplicates())
    waiting = len(open_rows[BY_LANDMARK].drop_duplicates())
    if not total or (total - waiting) / total >= options.min_coverage:  # 0.55 * 100 is above 55
        return
    values = value_keys(open_rows).nunique()
    reached = np.array([bool(d and d.decides) for d in decided.of_values(clusters)], dtype=bool)
    images, shown = int(clusters["images"].sum()), int(clusters.loc[reached, "images"].sum())
    seen = f", with {done_text(shown, images, 1)} of {images:,} images" if images else ""
    in_conflict = [bool(d and d.rivals) for d in found]
    conflicts = value_keys(landmark_values[np.array(in_conflict, dtype=bool)]).nunique()
    more = ""
    if conflicts:
        more += (
            f"; {count_text(conflicts, 'value')} in conflict: `hgld reviews conflicts "
            f"{context.words}` shows both sides"
        )
    if taxonomy.empty:
        more += (
            f"; the taxonomy is empty: `hgld taxonomy propose {context.words}` makes each cluster "
            "a supercategory"
        )
    done = f"{done_text(total - waiting, total, 1)} of {total:,} decided"
    raise WaitingForReview(
        f"{count_text(values, 'value')} of {count_text(waiting, context.source.class_noun)} "
        f"{verb_text(values, 'are')} open ({done}{seen}; review.min_coverage is "
        f"{share_text(options.min_coverage, 1)}){more}"
    )


def _decided_cells(in_force: Sequence[Decision | None]) -> dict[str, list[str]]:
    """Return the editable cells, filled in from the decisions in force."""
    cells = [cells_of(decision) for decision in in_force]
    return {name: [row[name] for row in cells] for name in EDITABLE}


def _status(
    decision: Decision | None,
    evidence: str,
    kinds: Mapping[str, str],
    also: Collection[str] = (),
) -> str:
    if decision is None:
        return "open"
    if decision.rivals:
        return "conflict"
    if not decision.decides:
        return "unsure"
    fits = not decision.places or decision.kind in ("", kinds.get(decision.supercategory))
    known = not decision.places or decision.supercategory in kinds
    changed = has_changed(decision.evidence, evidence, also)
    return "decided" if fits and known and not changed else "stale"


def _gone(decided: Decided, clusters: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each decision in force whose value no longer exists."""
    here = {("qid", i) for i in clusters["class_id"]} | {("label", i) for i in value_keys(clusters)}
    here |= {("label", label) for label in clusters["instance_of"]}
    gone = [d for d in decided.all() if (d.key_type, d.key) not in here]
    gone = [d for d in gone if ("label", d.key) not in here]  # each key once in the sheet
    rows = [
        {
            "key": decision.key,
            "key_type": decision.key_type,
            "instance_of": decision.key if decision.key_type == "label" else "",
            "evidence": decision.evidence,
            "cluster": GONE,
            "status": "conflict" if decision.rivals else "stale",
            "conflict": decision.conflict,
            **dict.fromkeys(("landmarks", "images", "distance", "margin"), 0),
            "probability": nan,
            **dict.fromkeys(("examples", "cluster_name", "hint", "base"), ""),
            **dict.fromkeys(("suggestion", "reason"), ""),
        }
        for decision in gone
    ]
    table = table_of("review", rows).assign(**_decided_cells(gone))
    return table.drop_duplicates("key", keep="last").astype(
        dict.fromkeys(("distance", "margin", "probability"), float)
    )
