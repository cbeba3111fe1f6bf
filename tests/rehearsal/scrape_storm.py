"""A server in trouble: the scrape waits as long as it is asked to, and ends with the truth.

Time runs faster here: with ``SPEED`` 100 a pause of 100 s takes one second, on both sides.
"""

import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.config import ScrapeOptions
from hgld.hierarchy.scrape.client import ApiClient
from hgld.hierarchy.scrape.store import open_store
from hgld.hierarchy.scrape.wikimedia import scrape_with
from tests.mediawiki.patience import early_requests, pause_of
from tests.mediawiki.wiki import Wiki, serve
from tests.rehearsal.scrape_scene import Figures, Scene, set_up

__all__ = ["storm"]

SPEED = 100


def storm(template: Path, folder: Path, landmarks: int = 2_500, seed: int = 0) -> Figures:
    """429 on half of all answers, a minute of lag, cut and wrong bodies; all is true in the end.

    Time runs ``SPEED`` times as fast: a pause of 100 s takes one second, on both sides.
    """
    scene = set_up(template, folder, landmarks)
    plan = _storm_plan(random.Random(seed))
    with serve(scene.wiki) as wiki:
        wiki.plan(plan)
        start = time.perf_counter()
        found, missed = _scrape_fast(scene, wiki)
        seconds = time.perf_counter() - start
        requests = wiki.requests()
    assert len(requests) < len(plan), "the storm was over before the scrape was"
    scene.require_truth(found, missed)
    words = Counter(line["word"].split()[0] for line in requests)
    asked = sum(pause_of(line["word"]) for line in requests)
    return {
        "landmarks": landmarks,
        "requests": len(requests),
        "answers_by_kind": dict(words),
        "seconds_asked_to_wait": round(asked),
        "seconds_lagging": round(SPEED * _longest_lag(requests)),
        "early_requests": len(early_requests(requests, SPEED)),
        "seconds": round(seconds, 1),
        "times_as_fast": SPEED,
    }


def _storm_plan(chance: random.Random, hundreds: int = 30) -> list[str]:
    """Of each 100 answers 50 are 429, 5 cut, 2 HTML; early on the server lags six times."""
    plan: list[str] = []
    for _ in range(hundreds):
        words = [f"429 {chance.randint(2, 30)}" for _ in range(25)]
        words += [f"429 date {chance.randint(2, 30)}" for _ in range(25)]
        words += ["cut", "half", "cut", "half", "cut", "html", "html", *["ok"] * 43]
        plan += chance.sample(words, len(words))
    plan[20:20] = ["lag 7"] * 6
    return plan


def _scrape_fast(scene: Scene, wiki: Wiki) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scrape with a client whose pauses are as much shorter as the storm is faster."""
    options = ScrapeOptions(
        commons_api=wiki.url, wikidata_api=wiki.url, contact="someone@example.org"
    )
    with (
        ApiClient(options, sleep=lambda s: time.sleep(s / SPEED)) as client,
        open_store(scene.folder / "scrape.sqlite", wiki.url) as store,
    ):
        return scrape_with(client, store, pd.DataFrame(scene.landmarks), options)


def _longest_lag(requests: Sequence[dict[str, Any]]) -> float:
    """Seconds from the first answer that the server lags to the first one after the last."""
    lags = [i for i, line in enumerate(requests) if line["word"].startswith("lag")]
    return float(requests[lags[-1] + 1]["came"] - requests[lags[0]]["answered"]) / 1e9
