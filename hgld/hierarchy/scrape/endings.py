"""From known facts to the two tables: each landmark ends with statements or with one reason.

The endings are counted, so that no landmark is lost or counted twice. Finished parts of the tables
are kept as tables, which take a tenth of the memory of their rows.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd

from hgld.artifacts import table_of
from hgld.hierarchy.scrape.answers import WikiClass
from hgld.hierarchy.scrape.crawl import AT_ONCE, follow_all, in_parts
from hgld.hierarchy.scrape.route import Ending
from hgld.hierarchy.scrape.store import Facts
from hgld.hierarchy.scrape.titles import title_of_url
from hgld.tasks import say
from hgld.words import count_text, part_text, single_blanks, verb_text

REASONS = {  # as in misses.csv
    "no_item": "the page has no Wikidata item",
    "no_page": "the page does not exist",
    "no_p31": 'its item has no "instance of"',
    "only_deprecated": "all its values are deprecated",
    "unknown_value": "its value is unknown or none",
    "category_without_topic": "its item is only a category",
    "redirect_loop": "circular, or too many redirects",
    "bad_url": "not the URL of a Commons page",
}
OK = "ok"


class Accounts:
    """Counts the landmarks by status, and the ways by which they got there."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.over_topic = 0
        self.over_redirects = 0

    def add(self, ending: Ending) -> None:
        """Count one landmark."""
        self.statuses[ending.reason or OK] += 1
        if not ending.reason:
            self.over_topic += ending.over_topic
            self.over_redirects += ending.hops > 0

    def describe(self, classes: Mapping[str, WikiClass], advice: str = "") -> str:
        """Number of landmarks with labels, and why the others have none, a line a reason.

        ``advice`` says what can be done about the others.
        """
        total, ok = self.statuses.total(), self.statuses[OK]
        missed = total - ok
        have = part_text(ok, total, "landmark", "have")
        lines = [f"{have} labels" + (", the others:" if missed else "")]
        lines += [
            f"{count:>9,} {reason:<23}{REASONS[reason]}"
            for reason, count in self.statuses.most_common()
            if reason != OK
        ]
        ways = {"their category's topic": self.over_topic, "a soft redirect": self.over_redirects}
        lines += [f"found through {way}: {n:,} of the labelled" for way, n in ways.items() if n]
        if ids := sorted({c.class_id for c in classes.values() if c.label == c.class_id}):
            what = f"{count_text(len(ids), 'class')} {verb_text(len(ids), 'have')}"
            more = ", ..." if len(ids) > 2 else ""
            lines.append(f"{what} no English label: {', '.join(ids[:2])}{more}")
        if missed:
            lines.append(f"misses.csv lists them{advice and '; '}{advice}")
        return "\n".join(lines)


def tell_reasons(landmarks: pd.DataFrame, misses: pd.DataFrame, noun: str, where: str) -> None:
    """Report for routes without a wiki how many classes have values, and why the others have none.

    Args:
        landmarks: all classes.
        misses: those without values.
        noun: the source's word for a class.
        where: the values come from.
    """
    if landmarks.empty:
        return
    missed, total = Counter(misses["reason"]), len(landmarks)
    lines = [f"{part_text(total - missed.total(), total, noun, 'have')} values {where}"]
    lines += [f"{count:>9,} {reason}" for reason, count in missed.most_common()]
    say("\n".join([*lines, "misses.csv lists them"] if missed else lines))


def settle(
    landmarks: pd.DataFrame,
    facts: Facts,
    classes: Mapping[str, WikiClass],
    follow_topics: bool,
    advice: str,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """``instance_of`` and ``misses``, once everything is known that is needed; report the counts.

    ``advice`` says what can be done about the landmarks without labels.
    """
    accounts = Accounts()
    parts: dict[str, list[pd.DataFrame]] = {"instance_of": [], "misses": []}
    titles = [title_of_url(url) for url in landmarks["commons_url"]]
    endings = follow_all(filter(None, titles), facts, follow_topics)
    cells = (landmarks[name] for name in ("split", "landmark_id", "commons_url"))
    for some in in_parts(zip(*cells, titles, strict=True), AT_ONCE):
        rows: dict[str, list[dict[str, Any]]] = {name: [] for name in parts}
        for split, landmark_id, url, title in some:
            detail = f"not the URL of a Commons page: {url!r}"
            ending = next(endings)[1] if title else Ending(reason="bad_url", detail=detail)
            assert isinstance(ending, Ending)
            accounts.add(ending)
            key = {"split": split, "landmark_id": landmark_id}
            if ending.reason:
                rows["misses"].append({**key, "reason": ending.reason, "detail": ending.detail})
                continue
            item = {"item_id": ending.item.item_id, "revision": ending.item.revision}
            rows["instance_of"] += [
                {
                    **key,
                    **item,
                    "order": said.order,
                    "class_id": named.class_id,
                    "instance_of": single_blanks(named.label) or named.class_id,
                    "rank": said.rank,
                    "qualifiers": said.qualifiers,
                }
                for said in ending.item.statements
                if said.class_id
                for named in [classes[said.class_id]]
            ]
        for name, part in parts.items():
            part.append(table_of(name, rows[name]))
    assert accounts.statuses.total() == len(landmarks), "landmarks in = landmarks out"
    instance_of, misses = (
        pd.concat(part or [table_of(name, [])], ignore_index=True) for name, part in parts.items()
    )
    say(accounts.describe(classes, advice))
    return instance_of, misses
