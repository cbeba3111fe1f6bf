"""Scrape the "instance of" values of landmarks from Wikimedia, politely and with nothing lost.

Commons is asked first which Wikidata item a category page has: it normalises titles, follows
redirects and says why where there is none, which Wikidata's own look-up by title does not. Then
Wikidata is asked for the items. A famous landmark's category often has an item of its own that
says only "Wikimedia category"; from there one hop leads to its topic (P301), as the infobox on the
page does. Every statement is kept with its order, rank and qualifiers: which one counts is decided
when cleaning. Soft redirects ({{Category redirect}}) are not followed: such pages end as no_item.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pandas as pd

from hgld.config import ScrapeOptions, StageContext
from hgld.hierarchy.answers import (
    Item,
    Page,
    WikiClass,
    judge_item,
    read_classes,
    read_items,
    read_pages,
)
from hgld.hierarchy.blanks import single_blanks
from hgld.hierarchy.client import ApiClient, on_this_machine
from hgld.hierarchy.columns import records, table_of
from hgld.hierarchy.store import Fact, Store, open_store
from hgld.hierarchy.titles import title_of_url
from hgld.tasks import track

__all__ = ["Scraper", "scrape"]

SomeFact = TypeVar("SomeFact", bound=Fact)


def scrape(
    landmarks: pd.DataFrame, *, options: ScrapeOptions, context: StageContext
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row a landmark before; one row a statement after, or one row a landmark without any.

    Returns:
        ``instance_of`` and ``misses``. A landmark is in exactly one of them; its reason there is
        bad_url, no_page, redirect_loop, no_item, no_p31, only_deprecated, unknown_value or
        category_without_topic.

    Raises:
        UsageError: ``scrape.contact`` is not set.
        Resumable: Wikimedia cannot be reached now; finished batches are kept.
    """
    path = context.state / "scrape.sqlite"
    with (
        ApiClient(options.contact, options.requests_per_second, options.maxlag) as client,
        open_store(path, _server(landmarks, options)) as store,
    ):
        return Scraper(client, store, options).scrape(landmarks)


class Scraper:
    """One scrape: asks the client for what the store does not know yet."""

    def __init__(self, client: ApiClient, store: Store, options: ScrapeOptions) -> None:
        self.client = client
        self.store = store
        self.options = options

    def scrape(self, landmarks: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        """``instance_of`` and ``misses`` of the landmarks."""
        titles = [title_of_url(url) or "" for url in landmarks["commons_url"]]
        pages = self._resolve({title for title in titles if title})
        items = self._fetch_items(page.item_id for page in pages.values())
        classes = self._label_classes(items.values())
        rows = _Rows(classes)
        for landmark, title in zip(records(landmarks), titles, strict=True):
            rows.add(landmark, pages.get(title) or _unusable(landmark["commons_url"]), items)
        return rows.tables()

    def _resolve(self, titles: set[str]) -> dict[str, Page]:
        self._fetch("Titles", titles - self.store.pages().keys(), self._ask_pages, read_pages)
        return {key: page for key, page in self.store.pages().items() if key in titles}

    def _fetch_items(self, asked: Iterable[str]) -> dict[str, Item]:
        """The asked items and the topics of those that only describe a category."""
        wanted = {item_id for item_id in asked if item_id}
        self._fetch("Items", wanted - self.store.items().keys(), self._ask_items, read_items)
        known = self.store.items()
        topics = {known[key].topic_id for key in wanted if known[key].is_category} - {""}
        self._fetch("Topics", topics - known.keys(), self._ask_items, read_items)
        return self.store.items()

    def _label_classes(self, items: Iterable[Item]) -> dict[str, WikiClass]:
        wanted = {s.class_id for item in items for s in item.statements if s.class_id}
        self._fetch("Labels", wanted - self.store.classes().keys(), self._ask_labels, read_classes)
        return self.store.classes()

    def _fetch(
        self,
        label: str,
        keys: Iterable[str],
        ask: Callable[[Sequence[str]], Mapping[str, Any]],
        read: Callable[[Mapping[str, Any], Sequence[str]], dict[str, SomeFact]],
    ) -> None:
        batches = list(_batches(sorted(keys), self.options.batch_size))
        for batch in track(batches, label, len(batches)):
            found = self.client.fetch_batch(batch, ask, read)
            self.store.add(found)

    def _ask_pages(self, titles: Sequence[str]) -> Mapping[str, Any]:
        question = {"prop": "pageprops", "ppprop": "wikibase_item", "redirects": "1"}
        return self._ask(self.options.commons_api, "query", "titles", titles, question)

    def _ask_items(self, item_ids: Sequence[str]) -> Mapping[str, Any]:
        question = {"props": "info|claims"}
        return self._ask(self.options.wikidata_api, "wbgetentities", "ids", item_ids, question)

    def _ask_labels(self, class_ids: Sequence[str]) -> Mapping[str, Any]:
        question = {"props": "labels", "languages": "en|mul"}
        return self._ask(self.options.wikidata_api, "wbgetentities", "ids", class_ids, question)

    def _ask(
        self, url: str, action: str, name: str, keys: Sequence[str], question: Mapping[str, str]
    ) -> Mapping[str, Any]:
        parameters = {**question, name: "|".join(keys)}
        return self.client.ask(url, action, parameters, may_split=len(keys) > 1)


class _Rows:
    """Collects the rows of both tables, a landmark at a time."""

    def __init__(self, classes: Mapping[str, WikiClass]) -> None:
        self.classes = classes
        self.statements: list[dict[str, Any]] = []
        self.misses: list[dict[str, Any]] = []

    def add(self, landmark: Mapping[str, Any], page: Page, items: Mapping[str, Item]) -> None:
        """Add the landmark's statements, or the reason why it has none."""
        key = {"split": landmark["split"], "landmark_id": landmark["landmark_id"]}
        item, reason, detail = _settle(page, items)
        if reason:
            self.misses.append({**key, "reason": reason, "detail": detail})
            return
        for statement in item.statements:
            if statement.class_id:
                named = self.classes[statement.class_id]
                self.statements.append(
                    {
                        **key,
                        "item_id": item.item_id,
                        "revision": item.revision,
                        "order": statement.order,
                        "class_id": named.class_id,
                        "instance_of": single_blanks(named.label) or named.class_id,
                        "rank": statement.rank,
                        "qualifiers": statement.qualifiers,
                    }
                )

    def tables(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Both tables in their declared columns."""
        return table_of("instance_of", self.statements), table_of("misses", self.misses)


def _settle(page: Page, items: Mapping[str, Item]) -> tuple[Item, str, str]:
    """The item that speaks for a page, with a reason and a detail where none does."""
    if page.reason:
        return Item(""), page.reason, page.detail
    item = items[page.item_id]
    detail = f"item {page.item_id}"
    if item.is_category:
        detail += f", topic {item.topic_id}" if item.topic_id else ", no topic (P301)"
        item = items[item.topic_id] if item.topic_id else item
        if item.is_category:
            return item, "category_without_topic", detail
    return item, judge_item(item), detail


def _unusable(url: str) -> Page:
    return Page(reason="bad_url", detail=f"not the URL of a Commons page: {url!r}")


def _server(landmarks: pd.DataFrame, options: ScrapeOptions) -> str:
    """Whose answers the store holds.

    A server on this machine is a different one for each made world, so the titles count too; its
    port does not, since it changes with each start.
    """
    urls = (options.commons_api, options.wikidata_api)
    hosts = " ".join(urlsplit(url).hostname or "" for url in urls)
    if not any(on_this_machine(url) for url in urls):
        return hosts
    lines = landmarks[["split", "landmark_id", "commons_url"]].to_csv(index=False)
    return f"{hosts} {sha256(lines.encode()).hexdigest()}"


def _batches(keys: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (keys[start : start + size] for start in range(0, len(keys), size))
