"""Hints from Wikidata's own classes for a value: the nearest known classes above it.

Known are the classes of ``class_roots.csv``, each by its id and the label under which a person
knew it. Of several the nearest counts; a tie between natural and human-made is a question to the
reviewer. Wikidata mixes classes, roles and places up, so a hint is shown and never decides.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.artifacts import ARTIFACTS, faults_by_row, records, table_of
from hgld.config import HintOptions, StageContext
from hgld.errors import require_no_faults
from hgld.hierarchy.decisions import fault_of_place, kinds_of
from hgld.hierarchy.scrape.ancestors import steps_up
from hgld.hierarchy.scrape.client import ApiClient
from hgld.hierarchy.scrape.subclasses import (
    Graph,
    ask_labels,
    ask_superclasses,
    walk_up,
)
from hgld.tasks import say
from hgld.words import count_text, single_blanks, some_of

SHOWN = 3  # renamed classes in a note
ASK = "ask"  # the kind of a class that is as near to natural as to human-made roots


@dataclass(frozen=True)
class Root:
    """A known class at which the way up ends; one without kind and supercategory says nothing."""

    class_id: str
    label: str
    kind: str
    supercategory: str


def hint_classes(
    values: pd.DataFrame,
    taxonomy: pd.DataFrame,
    class_roots: pd.DataFrame,
    *,
    options: HintOptions,
    context: StageContext,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """One row a value before; after, one row a class that has a known class above it.

    Nothing is asked if ``hint.ask`` is off, no value has a class id, or roots are missing and
    ``hint.languages``, too. A root whose label in Wikidata is another than in the file is left out,
    and that is said.

    Returns:
        ``class_hints``; ``superclasses`` with the classes that were met on the way; and
        ``class_labels`` with the labels in ``hint.languages``, empty if nothing was asked.

    Raises:
        InvalidData: a root whose supercategory or kind is not in the taxonomy.
        UsageError: ``scrape.contact`` is not set.
        Resumable: Wikidata cannot be reached now; finished batches are kept.
    """
    roots = _read_roots(class_roots, taxonomy, context.labels / ARTIFACTS["class_roots"].file)
    labels = {row["class_id"]: row["instance_of"] for row in records(values) if row["class_id"]}
    if not (labels and options.ask and (roots or options.languages)):
        return _no_hints()
    ask = context.scrape
    with ApiClient(ask) as client:
        learn = ask_superclasses(client, ask, context.state).learn
        known = learn(root.class_id for root in roots)
        below = labels if roots else {}
        # The roots that still have the label by which a person knew them.
        renamed = [
            f"{root.class_id} is '{label}' in Wikidata, but '{root.label}' there"
            for root in roots
            if (label := known[root.class_id].label) != root.label
        ]
        if renamed:
            say(
                f"class_roots.csv: {count_text(len(renamed), 'class')} with no hints, since "
                f"Wikidata has another label: {some_of(renamed, SHOWN, '; ')}"
            )
        roots = [root for root in roots if known[root.class_id].label == root.label]
        ends = {root.class_id for root in roots}
        graph = {**known, **walk_up(below, ends, options.most_hops, learn)}
        translated = labels if options.languages else {}
        named = ask_labels(client, ask, context.state, options.languages).learn(translated)
    hints = hints_above(labels, graph, roots, options.most_hops)
    say(f"classes below a known one: {len(hints)} of {len(labels)}")
    met = [
        {
            "class_id": class_id,
            "label": known_class.label,
            "revision": known_class.revision,
            "superclasses": " ".join(known_class.above),
        }
        for class_id, known_class in graph.items()
    ]
    rows = [
        {"class_id": class_id, "language": language, "label": label}
        for class_id, known_labels in sorted(named.items())
        for language, label in known_labels.labels.items()
    ]
    return (
        table_of("class_hints", hints),
        table_of("superclasses", met),
        table_of("class_labels", rows),
    )


def hint_nothing(
    values: pd.DataFrame,
    taxonomy: pd.DataFrame,
    class_roots: pd.DataFrame,
    *,
    options: HintOptions,
    context: StageContext,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return empty tables, for a pipeline that does not ask Wikidata: ``scrape.gives_hints``.

    Raises:
        InvalidData: as ``hint_classes``.
    """
    _read_roots(class_roots, taxonomy, context.labels / ARTIFACTS["class_roots"].file)
    if options.ask and (values["class_id"] != "").any():
        say("no hints: Wikidata is not asked without scrape.contact")
    return _no_hints()


def _no_hints() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    return table_of("class_hints", []), table_of("superclasses", []), table_of("class_labels", [])


def hints_above(
    labels: Mapping[str, str], graph: Graph, roots: Collection[Root], most_hops: int
) -> list[dict[str, Any]]:
    """Rows of ``class_hints`` for those of the classes (id -> label) that have a root above them.

    A class that is a root itself is 0 hops away from it.
    """
    ends = {root.class_id: root for root in roots}
    rows = []
    for class_id, label in sorted(labels.items()):
        steps = steps_up(
            class_id, lambda one: graph[one].above if one in graph else (), most_hops, ends
        )
        met = ((hops, ends[one]) for one, hops in steps.items() if one in ends)
        found = [(hops, root) for hops, root in met if root.kind or root.supercategory]
        if found:
            rows.append({"class_id": class_id, "instance_of": label, **_hint(found)})
    return rows


def _hint(found: Iterable[tuple[int, Root]]) -> dict[str, Any]:
    """The hint of the roots at these distances; of each kind, the nearest is named."""
    ordered = sorted(found, key=lambda pair: (pair[0], pair[1].label))
    # Roots of both kinds at the same distance: a person has to choose.
    kind = _of_nearest(ordered, "kind", ASK)
    # Some roots give only a kind, so the nearest with a supercategory may be farther.
    groups = [pair for pair in ordered if pair[1].kind == kind and pair[1].supercategory]
    told = {root.kind: f"{root.label} ({hops})" for hops, root in reversed(ordered)}
    return {
        "kind_hint": kind,
        "supercategory_hint": _of_nearest(groups, "supercategory", ""),
        "root": "; ".join(told[kind] for kind in dict.fromkeys(root.kind for _, root in ordered)),
        "hops": ordered[0][0],
    }


def _of_nearest(ordered: Sequence[tuple[int, Root]], name: str, otherwise: str) -> str:
    """Return the fact that all of the nearest roots have, if they have the same one."""
    found = {str(getattr(root, name)) for hops, root in ordered if hops == ordered[0][0]}
    return found.pop() if len(found) == 1 else otherwise


def _read_roots(class_roots: pd.DataFrame, taxonomy: pd.DataFrame, path: Path) -> list[Root]:
    """The roots, checked against the taxonomy; all faults at once."""
    kinds = kinds_of(taxonomy)
    rows = [{k: single_blanks(v) for k, v in row.items()} for row in records(class_roots)]
    faults = (
        (place, fault)
        for place, row in enumerate(rows)
        if (name := row["supercategory"])
        for kind in [row["kind"] or ("nothing" if kinds.get(name) else "")]  # if there are kinds
        if (fault := fault_of_place(name, kind, kinds))
    )
    require_no_faults(path, faults_by_row(path, faults))
    return [Root(**row) for row in rows]
