"""Link the names of classes to items of Wikidata; what is not sure is left to a person.

A class is looked up by what people say of it in ``links.csv`` beside the decisions or in the CSV
``link.table`` (an id, a page), else by its name. Of the items that a search returns, those count
whose label, alias or page title is exactly the name. One such item is linked; of several
("Mercury") the one whose label and description are clearly nearest to the name and the topic of the
data set, or to the photos of the class in a CLIP, or none. Also a single one may be wrong: it is
linked only if its description is of the topic and the photos do not contradict it. Everything else
is in ``link_review.csv`` with its candidates, and goes on by its name.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax

from hgld.artifacts import ARTIFACTS, BY_LANDMARK, SPACE_OF_SPLIT, records, table_of
from hgld.artifacts.cells import guard_columns
from hgld.config import EmbedOptions, LinkOptions, StageContext
from hgld.hierarchy.embed import embed_sentences
from hgld.hierarchy.link_table import NONE, Said, read_links, read_said
from hgld.hierarchy.scrape.answers import (
    CATEGORY_CLASS,
    LookUp,
    NamedItem,
    is_item_id,
    lookup_key,
    wiki_of,
)
from hgld.hierarchy.scrape.items import DumpedItems, open_items
from hgld.hierarchy.scrape.subclasses import Knowledge
from hgld.tasks import say
from hgld.words import count_text, folded_name, spoken_name

PROPERTIES = ("P31", "P301")  # what an item is; what a category is about
SHOWN = 5  # candidates of a class in the sheet
NO_ITEM = NamedItem("")
CLIP_SCALE = 100  # of the cosines in CLIP's softmax, where its training ends
SORTS = (  # descriptions of common items; of a topic, few are near to it
    "human settlement in Germany", "village in Poland", "street in Amsterdam", "church in France",
    "family name", "male given name", "Canadian politician", "association football club",
    "scientific article", "novel", "2011 film", "television series episode", "song",
    "album by an American band", "painting by a Dutch artist", "musical instrument",
    "British manufacturer of cars", "American technology company", "computer program",
    "ship of the navy", "clothing", "dish", "species of insect", "species of plant", "disease",
    "chemical compound", "protein-coding gene", "galaxy", "asteroid", "concept in mathematics",
)  # fmt: skip
FAR = 2 / 3  # share of them that has to be farther from the topic, or from the photos
Look = Callable[[Mapping[str, Mapping[str, str]]], Mapping[tuple[str, str], float]]


@dataclass(frozen=True)
class Link:
    """Outcome of one class: its item and by what it was found, or a reason and the candidates."""

    item: NamedItem = NO_ITEM
    by: str = ""
    reason: str = ""
    detail: str = ""
    candidates: str = ""
    photo_scores: str = ""
    score: str = ""
    photo_score: str = ""


def link_classes(
    landmarks: pd.DataFrame,
    images: pd.DataFrame,
    links: pd.DataFrame,
    *,
    options: LinkOptions,
    context: StageContext,
    look: Look | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """One row a class before; one row of ``linked`` or of ``unlinked`` after.

    ``look`` compares photos with texts: from the texts of candidates by class name and item id it
    makes cosines by both, of the classes with photos.

    Reasons: ``not_found`` (no search and no page has such a name), ``no_exact_name``,
    ``ambiguous``, ``off_topic`` (the description of the only item, or the photos, contradict it),
    ``gone`` (a given item, page or id does not exist), ``none`` (a person found no item),
    ``no_name``.

    Returns:
        ``linked``, ``unlinked`` and ``link_review``, the sheet of those that a person may link.

    Raises:
        InvalidData: rows of links.csv or ``link.table`` that name no item; all of them.
        UsageError: ``scrape.contact`` is not set.
        Resumable: Wikidata cannot be reached now; finished look-ups are kept.
    """
    known = set(landmarks["name"])
    rows = {context.labels / ARTIFACTS["links"].file: links}
    if options.table is not None:
        rows = {options.table: read_links(options.table, options.table_name), **rows}
    said = read_said(rows, known, options)
    scrape = context.scrape
    languages, most = options.languages, options.candidates
    with open_items(scrape, context.state, languages, PROPERTIES, most) as (lookups, items):
        linker = Linker(lookups, items, options, context.embed, look)
        found = linker.link(sorted(known), said)
    if look is None and options.photos and any(link.candidates for link in found.values()):
        say(
            "candidates have no scores by photos, since the image encoder is no CLIP; their texts "
            "alone choose (embed.images names another encoder)"
        )
    return _tables(landmarks, images, found, (*languages, "mul"))


@dataclass(frozen=True)
class Linker:
    """Links names by look-ups; asks only for what is not known yet.

    Args:
        lookups: ids by search, page or statement.
        items: names and statements of items.
        options: languages, topic and margin.
        encoder: the text encoder.
        look: compares photos with texts (``link_classes``).
    """

    lookups: Knowledge[LookUp]
    items: Knowledge[NamedItem]
    options: LinkOptions
    encoder: EmbedOptions
    look: Look | None = None

    def link(self, names: Sequence[str], said: Mapping[str, Said]) -> dict[str, Link]:
        """Return the outcome of each name."""
        given = {name: said[name] for name in names if name in said}
        no_name = Link(reason="no_name", detail="the class has no name to look up")
        found = {name: no_name for name in names if not spoken_name(name)} | self._link_given(given)
        left = [name for name in names if name not in found]
        candidates: dict[str, dict[str, NamedItem]] = {name: {} for name in left}
        by: dict[str, str] = {}
        ways = [("search", "name", language, language) for language in self.options.languages]
        # A page may have a name that its item lacks.
        ways += [("page", "page", wiki_of(one), one) for one in self.options.languages]
        for kind, word, where, language in ways:
            open_names = [name for name in left if name not in by]
            found_here = self._look_up(open_names, kind, where)
            for name in open_names:
                candidates[name] |= found_here[name]
                if any(_is_named(item, name) for item in found_here[name].values()):
                    by[name] = f"{word} ({language})"
        shown = {name: list(some.values()) for name, some in candidates.items()}
        vectors = self._embed(shown)
        scores = {  # cosines of each name, with the topic, and the text of each candidate
            (name, item.item_id): round(
                float(vectors[self._asked(name)] @ vectors[self._text(item)]), 3
            )
            for name, some in shown.items()
            for item in some
        }
        seen = self._see(shown)
        far = self._off_topic([item for some in shown.values() for item in some], vectors)
        for name in left:
            found[name] = self._choose(name, candidates[name], scores, seen, far, by.get(name, ""))
        return found

    def _link_given(self, given: Mapping[str, Said]) -> dict[str, Link]:
        """Link what people said of a class, over a category's topic."""
        asked = {name: one for name, one in given.items() if one.key}
        ids = {name: [one.qid] for name, one in given.items() if is_item_id(one.qid)}
        answers = self.lookups.learn(one.key for one in asked.values())
        ids |= {name: list(answers[one.key].item_ids) for name, one in asked.items()}
        known = dict(self.items.learn(found[0] for found in ids.values() if found))
        topics = {key: topic for key, item in known.items() if (topic := _topic_of(item))}
        known |= self.items.learn(topics.values())
        links = {}
        for name, one in given.items():
            item_id = next(iter(ids.get(name, ())), "")
            item = known.get(topics.get(item_id, item_id), NO_ITEM)
            if one.qid == NONE:
                links[name] = Link(reason="none", detail=one.place)
            elif not item.item_id:
                topic = topics.get(item_id, "")
                what = f"{one.text}: its topic {topic} (P301)" if topic else one.text
                missing = f"{one.place}: {what} does not exist"
                if (topic or one.qid) and isinstance(self.items, DumpedItems):
                    missing += (
                        " in the dump; if the item was merged, give the id of the one that it was "
                        "merged into: dumps hold no merged items"
                    )
                links[name] = Link(reason="gone", detail=missing)
            else:
                links[name] = Link(item, one.column)
        return links

    def _look_up(
        self, names: Sequence[str], kind: str, where: str
    ) -> dict[str, dict[str, NamedItem]]:
        """Return the items that a look-up of each name returns, but for excluded ones."""
        keys = {name: lookup_key(kind, where, spoken_name(name)) for name in names}
        answers = self.lookups.learn(keys.values())
        ids = {name: answers[key].item_ids for name, key in keys.items()}
        known = self.items.learn(item_id for some in ids.values() for item_id in some)
        excluded = set(self.options.excluded)
        return {
            name: {
                item.item_id: item
                for item in (known[item_id] for item_id in some)
                if item.item_id and not excluded & set(_classes(item))
            }
            for name, some in ids.items()
        }

    def _embed(self, candidates: Mapping[str, Sequence[NamedItem]]) -> dict[str, np.ndarray]:
        """Return the vector of each text that is compared, all at once: the encoder is large."""
        items = [item for some in candidates.values() for item in some]
        if not items:
            return {}
        texts = {*map(self._asked, candidates), *map(self._text, items)}
        if self.options.about:
            texts |= {self.options.about, *SORTS, *filter(None, map(self._about, items))}
        ordered = sorted(texts)
        return dict(zip(ordered, embed_sentences(ordered, self.encoder)[0], strict=True))

    def _see(
        self, candidates: Mapping[str, Collection[NamedItem]]
    ) -> Mapping[tuple[str, str], float]:
        """Return what ``look`` sees of candidates; of a single one, also of ``SORTS``."""
        texts = {
            name: {item.item_id: self._text(item) for item in some}
            for name, some in candidates.items()
            if some
        }
        for name, shown in texts.items():
            exact = [item for item in candidates[name] if _is_named(item, name)]
            if len(exact) == 1:
                label = exact[0].named((*self.options.languages, "mul"))
                shown |= {sort: f"{label}: {sort}" for sort in SORTS}
        return self.look(texts) if self.look and texts else {}

    def _off_topic(self, items: Sequence[NamedItem], vectors: Mapping[str, np.ndarray]) -> set[str]:
        """Return the ids of the items whose description is not of the topic."""
        topic = vectors.get(self.options.about)
        if topic is None:
            return set()
        limit = np.quantile([vectors[sort] @ topic for sort in SORTS], FAR)
        return {
            item.item_id
            for item in items
            if (about := self._about(item)) and vectors[about] @ topic < limit
        }

    def _asked(self, name: str) -> str:
        return f"{spoken_name(name)}, {self.options.about}".rstrip(", ")

    def _about(self, item: NamedItem) -> str:
        return item.described((*self.options.languages, "mul"))

    def _text(self, item: NamedItem) -> str:
        label, about = item.named((*self.options.languages, "mul")), self._about(item)
        return f"{label}: {about}" if about else label

    def _choose(
        self,
        name: str,
        candidates: Mapping[str, NamedItem],
        scores: Mapping[tuple[str, str], float],
        seen: Mapping[tuple[str, str], float],
        far: Collection[str],
        by: str,
    ) -> Link:
        """Choose the item of exactly that name, if there is one or one is clearly the best.

        Texts choose by ``margin``, photos by ``sure``; if both choose, it has to be the same item.
        None of ``far`` is chosen, nor a single one that the photos contradict.
        """
        ordered = sorted(
            candidates.values(),
            key=lambda item: (not _is_named(item, name), -scores[name, item.item_id], item.item_id),
        )
        shown = "; ".join(
            f"{item.item_id} {self._text(item)} ({scores[name, item.item_id]:.2f})"
            for item in ordered[:SHOWN]
        )
        shown_seen = "; ".join(
            f"{item.item_id} ({seen[name, item.item_id]:.3f})"
            for item in ordered[:SHOWN]
            if (name, item.item_id) in seen
        )
        undecided = partial(Link, detail=shown, candidates=shown, photo_scores=shown_seen)
        exact = [item.item_id for item in ordered if _is_named(item, name)]
        if not ordered:
            tried = ", ".join(self.options.languages)
            return Link(reason="not_found", detail=f"no item of that name in {tried}")
        if not exact:
            return undecided(reason="no_exact_name")
        chosen = {exact[0]: by} if len(exact) == 1 else {}
        if len(exact) > 1:
            first, second = (scores[name, item_id] for item_id in exact[:2])
            chosen = {exact[0]: by} if first - second >= self.options.margin else {}
            cosines = [seen[name, item_id] for item_id in exact if (name, item_id) in seen]
            if len(cosines) == len(exact):
                shares = softmax(CLIP_SCALE * np.array(cosines))
                if shares.max() >= self.options.sure:
                    chosen[exact[int(shares.argmax())]] = f"{by}, photos"
        if len(chosen) != 1:
            return undecided(reason="ambiguous")
        (item_id,) = chosen
        key = (name, item_id)
        others = [seen[name, sort] for sort in SORTS if (name, sort) in seen]
        if item_id in far or (others and seen[key] < np.quantile(others, FAR)):
            return undecided(reason="off_topic")
        photo_score = f"{seen[key]:.3f}" if key in seen else ""
        return Link(
            candidates[item_id],
            chosen[item_id],
            score=f"{scores[key]:.3f}",
            photo_score=photo_score,
        )


def _is_named(item: NamedItem, name: str) -> bool:
    """Whether a label, an alias or a page title is exactly the name; case counts for nothing."""
    names = [*item.labels.values(), *item.titles]
    names += [alias for some in item.aliases.values() for alias in some]
    return folded_name(name) in map(folded_name, names)


def _classes(item: NamedItem) -> list[str]:
    return [class_id for name, class_id, _ in item.statements if name == "P31"]


def _topic_of(item: NamedItem) -> str:
    """The topic of a category's item, else nothing."""
    topics = [target for name, target, _ in item.statements if name == "P301"]
    return topics[0] if topics and CATEGORY_CLASS in _classes(item) else ""


def _tables(
    landmarks: pd.DataFrame,
    images: pd.DataFrame,
    found: Mapping[str, Link],
    languages: Sequence[str],
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    linked: list[dict[str, Any]] = []
    unlinked: list[dict[str, Any]] = []
    for row in records(landmarks):
        link, key = found[row["name"]], {name: row[name] for name in BY_LANDMARK}
        if link.reason:
            unlinked.append({**key, "reason": link.reason, "detail": link.detail})
            continue
        item = link.item
        linked.append(
            {
                **key,
                "name": row["name"],
                "item_id": item.item_id,
                "revision": item.revision,
                "label": item.named(languages),
                "description": item.described(languages),
                "by": link.by,
                "score": link.score,
                "photo_score": link.photo_score,
            }
        )
    spaces = images[["landmark_id"]].assign(split=images["split"].map(SPACE_OF_SPLIT))
    counts = spaces.merge(landmarks, on=BY_LANDMARK)["name"].value_counts()
    closed = ("", "none", "no_name")
    open_ones = {name: link for name, link in found.items() if link.reason not in closed}
    sheet = [
        {
            "qid": "",
            "note": "",
            "name": name,
            "images": int(counts.get(name, 0)),
            "reason": link.reason,
            "candidates": link.candidates,
            "photo_scores": link.photo_scores,
        }
        for name, link in sorted(
            open_ones.items(), key=lambda pair: (-counts.get(pair[0], 0), pair[0])
        )
    ]
    with_item = sum(not link.reason for link in found.values())
    without = len(found) - with_item - len(open_ones)
    text = f"{with_item:,} of {count_text(len(found), 'class')} linked"
    text += f", {without:,} without an item" if without else ""
    more = "; link_review.csv lists the others: write an item or none, then hgld link ... --apply"
    say(text + (more if open_ones else ""))
    return (
        table_of("linked", linked),
        table_of("unlinked", unlinked),
        guard_columns(table_of("link_review", sheet)),
    )
