"""Explain the path of a landmark, or why it has none, from the tables of a run.

Each step of the flow adds what it did with the landmark, in the order of the flow: its page, how it
got its item, its statements, the values that count, their cluster and hint, the decision in force,
an override. The last line is the path or the reason why there is none. Steps that have not been
run, or that a pipeline does not have, say nothing.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.artifacts import ARTIFACTS, ID_SPACES, ITEM_IDS, records, row_in_file
from hgld.errors import UsageError
from hgld.hierarchy.decisions import Decided, Decision
from hgld.hierarchy.kinds import classes_above
from hgld.hierarchy.scrape.titles import as_stored, title_of_url
from hgld.words import count_text, folded_name, nearest, share_text, single_blanks, some_of

TABLES = (
    "landmarks",
    "links",
    "linked",
    "unlinked",
    "instance_of",
    "misses",
    "landmark_values",
    "clean_dropped",
    "class_hints",
    "clusters",
    "decisions",
    "overrides",
    "train_labels",
    "index_labels",
    "hierarchy",
    "lineage",
    "label_dropped",
)
MOST_NAMED = 5  # landmarks in an error
Row = dict[str, Any]
Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Step:
    """One thing that happened to the landmark; ``facts`` holds it as data."""

    head: str
    text: str
    facts: Row


def find_landmark(landmarks: pd.DataFrame, asked: str, split: str = "") -> Row:
    """The one landmark that a person means: ``split:id``, id, name or URL.

    Raises:
        UsageError: there is none, or more than one.
    """
    rows = landmarks[landmarks["split"] == split] if split else landmarks
    space, colon, number = asked.rpartition(":")
    if number.isascii() and number.isdigit() and (not colon or space in ID_SPACES):
        is_id = rows["landmark_id"] == int(number)
        # folders of classes may have numbers as names
        found = rows[is_id & (rows["split"] == space) if colon else is_id | (rows["name"] == asked)]
    elif title := title_of_url(asked):
        named = rows["commons_url"].map(lambda url: as_stored(title_of_url(url) or ""))
        found = rows[named == as_stored(title)]
    else:
        name = folded_name(asked)
        names = rows["name"].map(folded_name)
        found = rows[rows["name"] == asked]
        found = rows[names == name] if found.empty else found
        if found.empty:
            found = rows[names.str.contains(name, regex=False)] if name else found
    if len(found) == 1:
        return records(found)[0]
    if found.empty:
        # among more names the search for a similar one takes too long
        near = nearest(asked, landmarks["name"]) if len(landmarks) <= 10_000 else ""
        expected = "expected split:id (train:12), a name, or the URL of its Commons page"
        raise UsageError(f"no landmark '{asked}' in landmarks.csv; {expected}{near}")
    each = [f"{row['split']}:{row['landmark_id']} ({row['name']})" for row in records(found)]
    raise UsageError(f"'{asked}' is {some_of(each, MOST_NAMED)}; say which one")


def explain(landmark: Row, tables: Tables, labels: Path, noun: str = "landmark") -> list[Step]:
    """The steps of one landmark.

    Args:
        landmark: its row of ``landmarks``.
        tables: those of ``TABLES`` that are there, by artifact name.
        labels: the folder of decisions and overrides, to name their rows.
        noun: the source's word for a class.
    """
    of: dict[str, list[Row]] = {}
    for name, table in tables.items():
        if "landmark_id" in table:
            rows = table[table["landmark_id"] == landmark["landmark_id"]]
            if "split" in rows:  # label files hold one split and no column for it
                rows = rows[rows["split"] == landmark["split"]]
            of[name] = records(rows)
    text = f"{landmark['split']}:{landmark['landmark_id']} {landmark['name']}"
    first = Step(noun, f"{text}\n{landmark['commons_url']}", landmark)
    decided = Decided(tables["decisions"]) if "decisions" in tables else None
    steps = [first, *_linked(of, tables, labels), *_scraped(of)]
    steps += [Step("clean", f"dropped: {_because(r)}", r) for r in of.get("clean_dropped", ())]
    steps += _reviewed(of, tables, decided, labels, noun)
    steps += _labelled(of, landmark["split"])
    if decided is not None and not of.get("overrides"):
        steps += _outdated(of, decided)
    return steps


def _linked(of: Mapping[str, Sequence[Row]], tables: Tables, labels: Path) -> Iterator[Step]:
    """Say by what the class got its item, and who said so; or why it has none."""
    for row in of.get("unlinked", ()):
        answered = row["reason"] in ("none", "gone")
        name = of["landmarks"][0]["name"]
        said = _answer(name, tables, labels) if answered else ""
        yield Step("link", f"no item: {_because(row)}{said}", row)
    for row in of.get("linked", ()):
        found = f"{row['item_id']} {row['label']}, by {row['by']}"
        about = f"\n{row['description']}" if row["description"] else ""
        said = _answer(row["name"], tables, labels) if row["by"] in ITEM_IDS else ""
        yield Step("link", found + about + said, row)


def _answer(name: str, tables: Tables, labels: Path) -> str:
    """Return who answered in links.csv what the class is; empty if link.table says it."""
    links = tables.get("links")
    if links is None:
        return ""
    rows = records(links)
    known = {single_blanks(row["name"]): place for place, row in enumerate(rows)}  # the last one
    place = known.get(single_blanks(name))
    if place is None:
        return ""
    file = labels / ARTIFACTS["links"].file
    return f"{_signed(rows[place])}\nrow {row_in_file(file, place)} of {file.name}"


def _scraped(of: Mapping[str, Sequence[Row]]) -> Iterator[Step]:
    for row in of.get("misses", ()):
        yield Step("scrape", f"nothing: {_because(row)}", row)
    rows = sorted(of.get("instance_of", ()), key=lambda row: row["order"])
    if rows and rows[0]["item_id"]:
        item, revision = rows[0]["item_id"], rows[0]["revision"]
        read = f", read at revision {revision}" if revision else ""
        text = f"{item}{read}\nhttps://www.wikidata.org/wiki/{item}"
        yield Step("item", text, {"item_id": item, "revision": revision})
    for row in rows:
        rank = f", {row['rank']}" if row["rank"] != "normal" else ""
        found = json.loads(row["qualifiers"] or "{}")
        words = [f"{name} {_short(value)}" for name, values in found.items() for value in values]
        qualifiers = f"; {', '.join(words)}" if words else ""
        yield Step("instance of", _value(row) + rank + qualifiers, row)


def _value(row: Row) -> str:
    return f"{row['instance_of']} ({row['class_id']})" if row["class_id"] else row["instance_of"]


def _short(value: Any) -> str:
    """A qualifier's value: the id, or the known part of the date.

    Example:
        >>> _short({"time": "+1172-00-00T00:00:00Z"}), _short({"id": "Q5"}), _short("somevalue")
        ('1172', 'Q5', 'somevalue')
    """
    if not isinstance(value, dict):
        return str(value)
    if "time" in value:
        return re.sub(r"(-00)*T.*", "", value["time"]).lstrip("+")
    shown = value.get("id") or value.get("amount") or value.get("text")
    return str(shown or json.dumps(value))


def _reviewed(
    of: Mapping[str, Sequence[Row]],
    tables: Tables,
    decided: Decided | None,
    labels: Path,
    noun: str,
) -> Iterator[Step]:
    """The values that count; cluster, hint and decision of each; then the override."""
    values = sorted(of.get("landmark_values", ()), key=lambda row: row["order"])
    if values:
        facts = {"values": [{k: row[k] for k in ("class_id", "instance_of")} for row in values]}
        yield Step("clean", f"goes by {'; '.join(map(_value, values))}", facts)
    for row in values:
        yield from _clustered(row, tables, noun)
        found = decided.find(row["class_id"], row["instance_of"]) if decided else None
        yield _decision(row, found, labels)
    for row in of.get("overrides", ()):
        text = _placed(row["supercategory"], row["kind"]) + _signed(row)
        file = labels / ARTIFACTS["overrides"].file
        here = [tables["overrides"][name] == row[name] for name in ("split", "landmark_id")]
        number = row_in_file(file, int((here[0] & here[1]).to_numpy().argmax()))
        yield Step("override", f"{text}\nrow {number} of {file.name}", row)


def _clustered(value: Row, tables: Tables, noun: str) -> Iterator[Step]:
    clusters = tables.get("clusters")
    if clusters is not None:
        same = clusters["class_id"] == value["class_id"]
        for row in records(clusters[same & (clusters["instance_of"] == value["instance_of"])]):
            size = sum(clusters["cluster"] == row["cluster"])
            text = (
                f"{row['cluster']} '{row['cluster_name']}', "
                f"{f'one of {size} values' if size > 1 else 'the only value'}\n"
                f"distance {row['distance']:.3f}, margin {row['margin']:.3f}, "
                f"a value of {count_text(row['landmarks'], noun)}"
            )
            yield Step("cluster", text, row)
    hints = tables.get("class_hints")
    if hints is not None and value["class_id"]:
        for row in records(hints[hints["class_id"] == value["class_id"]]):
            said = ": ".join(filter(None, (row["kind_hint"], row["supercategory_hint"])))
            text = f"{said}; steps up to a known class: {row['root']}"
            yield Step("hint", text, row)


def _decision(value: Row, decision: Decision | None, labels: Path) -> Step:
    if decision is None:
        return Step("decision", f"none yet for {value['instance_of']}", {"decision": ""})
    if decision.rivals:
        return Step("decision", f"in conflict: {decision.conflict}", {"decision": ""})
    where = _placed(decision.supercategory, decision.kind)
    facts = {name: getattr(decision, name) for name in ("key", "decision", "supercategory", "kind")}
    facts |= {"who": decision.who, "when": decision.when, "why": decision.why}
    text = f"{decision.decision} {where}".strip() + _signed(facts)
    file = labels / ARTIFACTS["decisions"].file
    number = row_in_file(file, decision.place)
    row = f"row {number} of {file.name}, for {decision.key_type} '{decision.key}'"
    before = f"; it replaces {decision.number - 1} earlier" if decision.number > 1 else ""
    return Step("decision", f"{text}\n{row}{before}", {**facts, "row": number})


def _placed(supercategory: str, kind: str) -> str:
    """A supercategory with its kind, if there are kinds."""
    return f"{supercategory} ({kind})" if kind else supercategory


def _signed(row: Row) -> str:
    why = f': "{single_blanks(row["why"])}"' if row["why"] else ""
    return f"\nby {row['who'] or 'somebody'}, {row['when'] or 'some day'}{why}"


def _labelled(of: Mapping[str, Sequence[Row]], split: str) -> Iterator[Step]:
    lineage = of.get("lineage", ())
    for row in () if lineage else of.get(f"{split}_labels", ()):
        said = f" '{row['supercategory']}'" if row["supercategory"] else ""
        label = f"{row['hierarchical_label']} ({row['natural_or_human_made']})"
        yield Step("published", f"{label}{said}", row)
    for row in of.get("hierarchy", ()):
        path = json.loads(row["path"])
        text = " > ".join(path.values())
        for origin in lineage:  # by what it was decided, and how sure two annotators were of it
            share = origin["agreement"]
            built = [*classes_above(origin["kind"]), origin["supercategory"]]
            edited = [*path.values()][:-1] != built
            text += f", by {'an edit of hierarchy.csv' if edited else origin['decided_by']}"
            if share and not edited:
                text += f"\ntwo annotators agree on {share_text(float(share))} of its values"
        yield Step("path", text, {"path": path})
    for row in of.get("label_dropped", ()):
        yield Step("no path", _because(row), row)


def _outdated(of: Mapping[str, Sequence[Row]], decided: Decided) -> Iterator[Step]:
    """Report labels that were built before the decisions that are in force now."""
    values = of.get("landmark_values", ())
    found = [decided.find(row["class_id"], row["instance_of"]) for row in values]
    now = {d.supercategory for d in found if d and d.places}
    built = {row["supercategory"] for row in of.get("lineage", ())}
    reasons = {row["reason"] for row in of.get("label_dropped", ())}
    done = bool(found) and all(d and d.decides for d in found)
    if (built and built != now) or (done and "undecided" in reasons):
        text = "the labels are older than the decisions; run `hgld label`"
        yield Step("but", text, {"decided_now": sorted(now)})


def _because(row: Row) -> str:
    return f"{row['reason']}: {row['detail']}" if row["detail"] else str(row["reason"])
