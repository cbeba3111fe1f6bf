"""Scrape the "instance of" values of landmarks from Wikimedia, politely and with nothing lost.

Commons is asked first which Wikidata item a category page has: it normalises titles, follows
redirects and says why where there is none, which Wikidata's own look-up by title does not. Then
Wikidata is asked for the items. A famous landmark's category often has a separate item that
says only "Wikimedia category"; from there one hop leads to its topic (P301), as the infobox on the
page does. Every statement is kept with its order, rank and qualifiers: which one counts is decided
when cleaning. What is learnt goes into a store batch by batch, and the tables are written from it.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from itertools import chain
from math import ceil
from urllib.parse import urlsplit

import pandas as pd

from hgld.config import ScrapeOptions, StageContext
from hgld.hierarchy.scrape.answers import WikiClass
from hgld.hierarchy.scrape.client import ApiClient, on_this_machine
from hgld.hierarchy.scrape.crawl import Crawl, ask_for, follow_all, in_parts
from hgld.hierarchy.scrape.endings import settle
from hgld.hierarchy.scrape.route import Ending, Fact, NextQuestion, follow
from hgld.hierarchy.scrape.store import Facts, FactStore, Trail, open_store
from hgld.hierarchy.scrape.titles import title_of_url
from hgld.tasks import say, track
from hgld.words import count_text, duration_text, part_text

QUESTIONS_OF_A_TITLE = 1.75  # its page, the item of two thirds, topic and redirect of a few
MOST_CLASSES = 6_000  # at full size; a thirtieth of the titles in a part of it
NOTE_EVERY_S = 300.0
RETRY = "hgld scrape ... --retry misses asks again"


class Progress:
    """Count landmarks and requests, and report them.

    Args:
        client: counts its requests.
        landmarks: how many there are.
        clock: seconds; a parameter so that tests need not wait.
    """

    def __init__(
        self, client: ApiClient, landmarks: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.client = client
        self.landmarks = landmarks
        self.clock = clock
        self.start = self.told = clock()
        self.done = 0
        self.known = 0  # landmarks done before anything had to be asked for

    def announce(
        self, titles: int, new_titles: int, batch_size: int, requests_per_second: float | None
    ) -> None:
        """Say how much there is to ask, and how long it will take at this rate (None: unpaced)."""
        if not new_titles:
            return
        requests = ceil(new_titles * QUESTIONS_OF_A_TITLE / batch_size)
        requests += ceil(min(MOST_CLASSES, new_titles / 30) / batch_size)
        known = f", {titles - new_titles:,} of them known" if new_titles < titles else ""
        text = f"{titles:,} titles to look up{known}: about {requests:,} requests"
        if requests_per_second is not None:
            hours = duration_text(requests / requests_per_second)
            text += f",\nat least {hours} at {requests_per_second:g} a second; it may be stopped"
            text += "\nat any time (Ctrl-C), the same command goes on"
        say(text)

    def watch(self, titles: Iterable[str], landmarks_of: Callable[[str], int]) -> None:
        """Go through the titles as they get done, with a step of progress for each landmark."""
        done = (title for title in titles for _ in range(landmarks_of(title)))
        for _ in track(done, self.label, self.landmarks):
            self.done += 1
            if not self.client.requests:
                self.known, self.start = self.done, self.clock()
                self.told = self.start
            if self.clock() - self.told > NOTE_EVERY_S:
                self.told = self.clock()
                elapsed = self.clock() - self.start
                left_s = (self.landmarks - self.done) * elapsed / (self.done - self.known)
                say(
                    f"{self.done:,} of {self.landmarks:,} landmarks, {self.client.requests:,} "
                    f"requests, {self.rate():.1f}/s,\n{duration_text(left_s)} to go"
                )

    def label(self) -> str:
        """Requests and their rate, beside the bar that counts the landmarks."""
        return f"{count_text(self.client.requests, 'request')}, {self.rate():.1f}/s"

    def rate(self) -> float:
        """Requests a second so far."""
        return self.client.requests / max(1e-9, self.clock() - self.start)

    @contextmanager
    def told_when_stopped(self) -> Iterator[None]:
        """Say how far it got where the block is left by an error or Ctrl-C."""
        try:
            yield
        except BaseException:
            are = part_text(self.done, self.landmarks, "landmark", "are")
            say(f"stopped: {are} looked up and kept")
            raise


def scrape(
    landmarks: pd.DataFrame, *, options: ScrapeOptions, context: StageContext
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row a landmark before; one row a statement after, or one row a landmark without any.

    Returns:
        ``instance_of`` and ``misses``. A landmark is in exactly one of them; its reason there is
        one of ``hgld.hierarchy.scrape.endings.REASONS``.

    Raises:
        UsageError: ``scrape.contact`` is not set.
        Resumable: Wikimedia cannot be reached now, or the disk is full; finished batches are kept.
    """
    urls = (options.commons_api, options.wikidata_api)
    server = " ".join(urlsplit(url).hostname or "" for url in urls)
    if any(on_this_machine(url) for url in urls):
        # It is a different one for each made world, so the titles count, too; its port does not,
        # since it changes with each start.
        lines = landmarks[["split", "landmark_id", "commons_url"]].to_csv(index=False)
        server += f" {sha256(lines.encode()).hexdigest()}"
    path = context.state / "scrape.sqlite"
    with ApiClient(options) as client, open_store(path, server) as store:
        return scrape_with(client, store, landmarks, options)


def scrape_with(
    client: ApiClient, store: FactStore, landmarks: pd.DataFrame, options: ScrapeOptions
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Do as ``scrape``: ask the client for what the store does not know yet."""
    count_of = Counter(title_of_url(url) or "" for url in landmarks["commons_url"])
    titles, follow_topics = sorted(count_of.keys() - {""}), options.follow_topics
    progress = Progress(client, len(landmarks))
    ask = partial(ask_for, client=client, options=options)
    with progress.told_when_stopped():
        _mark_outdated(store, titles, options)
        facts = Facts(store)
        known = follow_all(titles, facts, follow_topics)
        new = sum(isinstance(ending, NextQuestion) for _, ending in known)
        paced = not on_this_machine(options.commons_api)
        rate = client.pacer.requests_per_second if paced else None
        progress.announce(len(titles), new, options.batch_size, rate)
        crawl = Crawl(facts, ask, options.batch_size, follow_topics)
        unusable = [""] if count_of[""] else []  # for all URLs that are not of a page
        progress.watch(chain(unusable, crawl.run(titles)), count_of.__getitem__)
        wanted = sorted(crawl.classes)
        unnamed = sorted(crawl.classes - store.load(WikiClass, wanted).keys())
        batches = list(in_parts(unnamed, options.batch_size))
        for batch in track(batches, "Labels", len(batches)):
            store.add(ask(WikiClass, batch))
        classes = store.load(WikiClass, wanted)
    store.forget_outdated()
    return settle(landmarks, facts, classes, follow_topics, RETRY)


def _mark_outdated(store: FactStore, titles: Sequence[str], options: ScrapeOptions) -> None:
    """Have asked for again what the options say; a refresh that was stopped goes on first."""
    if store.is_outdated():
        say("a refresh that was stopped on the way goes on")
        return
    if options.refresh_older_than is not None:
        store.outdate_older(options.refresh_older_than)
    if options.retry == "misses":
        # The facts by which titles have no class; what cannot be a title stays so.
        facts, behind = Facts(store), dict[type[Fact], set[str]]()
        for title, ending in follow_all(titles, facts, options.follow_topics):
            if isinstance(ending, Ending) and ending.reason not in ("", "bad_url"):
                trail = Trail(facts)
                follow(title, trail, options.follow_topics)
                for kind, key in trail.keys:
                    behind.setdefault(kind, set()).add(key)
        store.outdate(behind)
