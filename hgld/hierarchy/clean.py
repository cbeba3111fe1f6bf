"""Choose the statements of a landmark that count, and count what values there are.

A landmark may have several "instance of" statements, of different rank, some of which say nothing
about it ("Wikimedia category"). Which of them count is a policy, and an explicit one: the paper's
text drops landmarks with several values (``single-only``), its numbers fit the first best one
(``first-best``), and ``all`` keeps every one for the review to distinguish. A line a step shows how
many landmarks are left, beside the paper's numbers (Ramzi et al. 2024, section VI), which are
rounded as it gives them; of what it removed it gives only "approximately 0.25 %" for several values
and irrelevant ones together.

The paper's labels were read from the infobox of Commons pages, which is why it has "church building
(1172–1954)" beside "church building": with ``infobox_style`` a statement's years follow the label.
Such a value is no longer a Wikidata class but a text.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from hgld.artifacts import BY_LANDMARK, ID_SPACES, SPACE_OF_SPLIT, columns_of
from hgld.artifacts.cells import single_blanks_all
from hgld.config import CleanOptions, StageContext
from hgld.errors import InvalidData
from hgld.tasks import say
from hgld.words import plural_text, single_blanks

PAPER = {  # step -> train, index
    "landmarks": ("203k", "101k"),
    "scraped": ("129.1k", "68.1k"),
    "several values": ("}", "}"),
    "irrelevant only": ("} 0.25 %", "} 0.25 %"),
    "kept": ("128.8k", "67.9k"),
}
PAPERS_VALUES = "5.7k"
POLICIES = {
    "first-best": "of several values the first of the best rank counts",
    "single-only": "landmarks with several values are dropped",
    "all": "of several values of the best rank all count",
}
START, END, POINT = "P580", "P582", "P585"  # start time, end time, point in time
CENTURY, DECADE, YEAR = 7, 8, 9  # Wikidata's precisions; the finer ones are days and months


def describe_funnel(
    steps: dict[str, pd.DataFrame], distinct_values: int, policy: str, beside_the_paper: bool
) -> str:
    """One line a step, one column an id space with landmarks, and the number of distinct values.

    Args:
        steps: the steps of ``PAPER`` in order, each a table with the rows of its landmarks.
        distinct_values: over both id spaces.
        policy: which statements count.
        beside_the_paper: show the paper's numbers as well.
    """
    paper = [f"{'paper':>10}"] if beside_the_paper else [""]
    known = ID_SPACES if beside_the_paper else {*next(iter(steps.values()))["split"]}
    held = [space for space in ID_SPACES if space in known]
    head = " " * 16 + "".join(f"{space:>10}" + paper[0] for space in held)
    lines = [head] if len(held) > 1 else []
    for (step, table), papers in zip(steps.items(), PAPER.values(), strict=True):
        own = table[BY_LANDMARK].drop_duplicates()["split"].value_counts()
        cells = [
            f"{own.get(space, 0):>10,}" + (f"{theirs:>10}" if beside_the_paper else "")
            for space, theirs in zip(ID_SPACES, papers, strict=True)
            if space in held
        ]
        lines.append(f"{step:<16}" + "".join(cells))
    total = f"{PAPERS_VALUES:>10}  (both)" if beside_the_paper else ""
    lines.append(f"{'distinct values':<16}{distinct_values:>10,}{total}")
    return "\n".join([*lines, f"{policy}: {POLICIES[policy]}"])


def clean_values(
    landmarks: pd.DataFrame,
    images: pd.DataFrame,
    instance_of: pd.DataFrame,
    *,
    options: CleanOptions,
    context: StageContext,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """One row a statement before; one row a value, and one a landmark and value, after.

    Returns:
        ``values``, ``landmark_values``, ``clean_dropped``. A landmark is dropped as
        ``only_deprecated``, ``only_irrelevant`` or (single-only) ``several_values``.
    """
    # Single blanks everywhere, and one label for each class id (the first in the alphabet).
    single = {name: single_blanks_all(instance_of[name]) for name in ("instance_of", "class_id")}
    table = instance_of.assign(**single)
    named = table[(table["class_id"] != "") & (table["instance_of"] != "")]
    label_of = named.groupby("class_id")["instance_of"].min().to_dict()
    pairs = zip(table["class_id"], table["instance_of"], strict=True)
    one = [label_of.get(class_id, label) or class_id for class_id, label in pairs]
    table = table.assign(instance_of=pd.Series(one, index=table.index, dtype="str"))
    statements = table.sort_values([*BY_LANDMARK, "order"], kind="stable")
    # the preferred statements of a landmark, else its normal ones; never deprecated ones
    usable = statements[statements["rank"] != "deprecated"]
    preferred = usable["rank"] == "preferred"
    has_preferred = preferred.groupby([usable[name] for name in BY_LANDMARK]).transform("any")
    best = usable[preferred | ~has_preferred.astype(bool)]
    labels = {single_blanks(label).casefold() for label in options.irrelevant_labels} | {""}
    by_label = best["instance_of"].str.casefold().isin(labels)
    irrelevant = best["class_id"].isin(list(options.irrelevant_ids)) | by_label
    if options.infobox_style:  # a value with years has no class id
        cells = zip(best["instance_of"], best["qualifiers"], strict=True)
        texts = [label if found == "{}" else with_years(label, found) for label, found in cells]
        styled = pd.Series(texts, index=best.index, dtype="str")
        plain = styled == best["instance_of"]
        best = best.assign(instance_of=styled, class_id=best["class_id"].where(plain, ""))
    relevant, distinct = best[~irrelevant], _first_of_each_value(best)
    chosen = _first_of_each_value(relevant)
    if options.policy == "first-best":
        chosen = chosen.drop_duplicates(BY_LANDMARK)
    elif options.policy == "single-only":  # it counts the irrelevant ones as values, too
        alone = distinct[~distinct.duplicated(BY_LANDMARK, keep=False)]
        chosen = chosen[_landmarks(chosen).isin(_landmarks(alone))]
    only_irrelevant = _dropped(best, relevant, "only_irrelevant")
    dropped = pd.concat(
        [
            _dropped(statements, best, "only_deprecated"),
            only_irrelevant,
            _dropped(relevant, chosen, "several_values"),
        ]
    )
    landmark_values = chosen[columns_of("landmark_values")].reset_index(drop=True)
    # landmarks and images of each value; train and index are counted together
    spaces = images["split"].map(SPACE_OF_SPLIT)
    per_landmark = images.groupby([spaces, images["landmark_id"]]).size().rename("images")
    counted = landmark_values.join(per_landmark, on=BY_LANDMARK).fillna({"images": 0})
    groups = counted.groupby(["class_id", "instance_of"], as_index=False)
    values = groups.agg(landmarks=("images", "size"), images=("images", "sum"))
    values = values.astype({"images": "int64"})[columns_of("values")]
    steps = {
        plural_text(context.source.class_noun): landmarks,
        "scraped": statements,
        "several values": distinct[distinct.duplicated(BY_LANDMARK)],
        "irrelevant only": only_irrelevant,
        "kept": chosen,
    }
    say(describe_funnel(steps, len(values), options.policy, context.source.kind == "gldv2"))
    return values, landmark_values, dropped


def value_keys(table: pd.DataFrame) -> "pd.Series[str]":
    """The key of a value: its class id, or its text if it has none.

    Example:
        >>> table = pd.DataFrame({"class_id": ["Q16970", ""], "instance_of": ["church", "pub"]})
        >>> value_keys(table).tolist()
        ['Q16970', 'pub']
    """
    return table["class_id"].where(table["class_id"] != "", table["instance_of"]).astype("str")


def _first_of_each_value(statements: pd.DataFrame) -> pd.DataFrame:
    keyed = statements.assign(key=value_keys(statements))
    return keyed.drop_duplicates([*BY_LANDMARK, "key"])


def _dropped(before: pd.DataFrame, after: pd.DataFrame, reason: str) -> pd.DataFrame:
    """The landmarks that were there before and are not after, with the values they had."""
    gone = before[~_landmarks(before).isin(_landmarks(after))]
    detail = gone.groupby(BY_LANDMARK)["instance_of"].agg("; ".join).rename("detail")
    return detail.reset_index().assign(reason=reason)[columns_of("clean_dropped")]


def _landmarks(table: pd.DataFrame) -> pd.MultiIndex:
    return pd.MultiIndex.from_frame(table[BY_LANDMARK])


def with_years(label: str, qualifiers: str) -> str:
    """The label with the years of its statement behind it, where the statement has any.

    Args:
        label: of the class.
        qualifiers: of the statement, as in ``instance_of``.

    Example:
        >>> year = '{"P582": [{"time": "+1954-06-01T00:00:00Z", "precision": 11}]}'
        >>> with_years("church building", year)
        'church building (–1954)'
    """
    try:
        found = json.loads(qualifiers)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidData(
            f"instance_of.csv: qualifiers are {qualifiers[:40]!r}; expected a JSON object, {{}} "
            "where there are none"
        )
    start, end, point = (_year(found.get(name, [])) for name in (START, END, POINT))
    if start or end:
        return f"{label} ({start}–{end})"
    return f"{label} ({point})" if point else label


def _year(values: Sequence[Any]) -> str:
    """The first value that is a date, to its precision, at the finest a year."""
    for value in values:
        if isinstance(value, Mapping) and (
            time := re.match(r"([+-])0*(\d+)-", str(value.get("time", "")))
        ):
            year, precision = int(time[2]), int(value.get("precision", YEAR))
            if precision < CENTURY:
                return ""
            century = -(-year // 100)
            teen = century % 100 in (11, 12, 13)
            ending = "th" if teen else {1: "st", 2: "nd", 3: "rd"}.get(century % 10, "th")
            words = {CENTURY: f"{century}{ending} century", DECADE: f"{year // 10 * 10}s"}
            return words.get(precision, str(year)) + " BC" * (time[1] == "-")
    return ""
