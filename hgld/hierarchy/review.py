"""The sheet on which a person decides what each value is, and the gate behind it.

The sheet has one row a value: four columns to edit come first (decision, supercategory, kind,
note), the rest is there to decide by. Values that are still open come first, those of most
landmarks before all. ``apply_sheet`` reads it back; see ``hgld.hierarchy.sheet``.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from hgld.artifacts import ARTIFACTS
from hgld.config import ReviewOptions, StageContext
from hgld.errors import WaitingForReview
from hgld.hierarchy.blanks import single_blanks
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.columns import columns_of, records
from hgld.hierarchy.decisions import Decided, Decision, key_types_of, kinds_of
from hgld.hierarchy.sheet import apply_sheet, guard

__all__ = ["apply_sheet", "require_decisions", "write_sheet"]

EXAMPLES = 3
GUARDED = ("supercategory", "note", "key", "instance_of", "examples", "cluster_name", "suggestion")


def write_sheet(
    clusters: pd.DataFrame,
    landmark_values: pd.DataFrame,
    landmarks: pd.DataFrame,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    *,
    options: ReviewOptions,
    context: StageContext,
) -> pd.DataFrame:
    """One row a value before and after; after, with the decision in force or a suggestion.

    A suggestion is the supercategory that most decided values of the cluster have, weighted by
    their landmarks; else a supercategory that has the value's very name; else nothing.
    """
    in_force = Decided(decisions).of_values(clusters)
    sheet = clusters.assign(
        key=value_keys(clusters),
        key_type=key_types_of(clusters),
        decision=[d.decision if d else "" for d in in_force],
        supercategory=[d.supercategory if d else "" for d in in_force],
        kind=[d.kind if d else "" for d in in_force],
        note=[d.why if d else "" for d in in_force],
        suggestion=_suggest(clusters, in_force, kinds_of(taxonomy)),
        open=[not (d and d.decides) for d in in_force],
    )
    sheet = sheet.assign(examples=sheet["key"].map(_examples(landmark_values, landmarks)))
    sheet = sheet.fillna({"examples": ""})
    sheet = sheet.sort_values(["open", "landmarks", "key"], ascending=[False, False, True])
    guarded = {name: sheet[name].map(guard) for name in GUARDED}
    return sheet.assign(**guarded)[columns_of("review")].reset_index(drop=True)


def require_decisions(
    clusters: pd.DataFrame,
    landmark_values: pd.DataFrame,
    landmarks: pd.DataFrame,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    *,
    options: ReviewOptions,
    context: StageContext,
) -> None:
    """Let the run pass when enough landmarks are decided; a landmark is, if all its values are.

    Raises:
        WaitingForReview: fewer than ``review.min_coverage``; says how many values are open.
    """
    decided = Decided(decisions)
    is_open = [not (d and d.decides) for d in decided.of_values(landmark_values)]
    open_rows = landmark_values[np.array(is_open, dtype=bool)]
    total = len(landmark_values[["split", "landmark_id"]].drop_duplicates())
    waiting = len(open_rows[["split", "landmark_id"]].drop_duplicates())
    if total - waiting >= options.min_coverage * total:
        return
    sheet, values = ARTIFACTS["review"].file, value_keys(open_rows).nunique()
    raise WaitingForReview(
        f"{_count(values, 'value')} of {_count(waiting, 'landmark')} "
        f"{'is' if values == 1 else 'are'} open "
        f"({1 - waiting / total:.1%} of {total} decided, review.min_coverage is "
        f"{options.min_coverage:.1%}): fill decision and supercategory of those rows in {sheet}, "
        "then `hgld review PIPELINE --apply` with the same PIPELINE, --work and --set"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)


def _suggest(
    clusters: pd.DataFrame, in_force: Sequence[Decision | None], kinds: Mapping[str, str]
) -> list[str]:
    votes: dict[int, Counter[str]] = defaultdict(Counter)
    rows = records(clusters)
    for row, decision in zip(rows, in_force, strict=True):
        if decision and decision.places:
            votes[row["cluster"]][decision.supercategory] += row["landmarks"]
    favourite = {
        cluster: min(count, key=lambda name: (-count[name], name))
        for cluster, count in votes.items()
    }
    names = {name.casefold(): name for name in kinds}
    return [
        ""
        if decision and decision.decides
        else favourite.get(row["cluster"], names.get(row["instance_of"].casefold(), ""))
        for row, decision in zip(rows, in_force, strict=True)
    ]


def _examples(landmark_values: pd.DataFrame, landmarks: pd.DataFrame) -> dict[str, str]:
    """Value key -> names of its first landmarks."""
    keyed = landmark_values.assign(key=value_keys(landmark_values))
    first = keyed.sort_values(["key", "split", "landmark_id"]).groupby("key").head(EXAMPLES)
    named = first.merge(landmarks, on=["split", "landmark_id"], how="left")
    names = named["name"].fillna("").map(single_blanks)
    joined = names.groupby(named["key"]).agg("; ".join)
    return {str(key): str(text) for key, text in joined.items()}
