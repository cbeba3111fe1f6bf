import subprocess
import sys
import time
from pathlib import Path

import pandas as pd

from hgld.config import StageContext
from tests.hierarchy.scraping import big_world, scraped
from tests.hierarchy.small_wiki import Fault, Wiki, serve

KILLED = """
import sys, json
from pathlib import Path
import pandas as pd
from hgld.config import ScrapeOptions, SourceOptions, StageContext
from hgld.hierarchy.scrape.wikimedia import scrape
url, folder = sys.argv[1], Path(sys.argv[2])
context = StageContext("2026-11-21", folder / "killed", SourceOptions(), folder)
options = ScrapeOptions(
    commons_api=url, wikidata_api=url, contact="someone@example.org", batch_size=10
)
table = pd.read_csv(folder / "landmarks.csv")
for frame, name in zip(scrape(table, options=options, context=context), ("found", "misses")):
    frame.to_csv(folder / f"{name}.csv", index=False)
"""


def test_a_killed_scrape_goes_on_and_ends_the_same(tmp_path: Path, context: StageContext) -> None:
    wiki = Wiki()
    table = big_world(wiki, 200)
    table.to_csv(tmp_path / "landmarks.csv", index=False)
    with serve(wiki):
        whole = scraped(wiki, table, context, batch_size=10)
        needed = len(wiki.asked)
        wiki.asked.clear()
        # After a half it waits for as long as the server asks.
        wiki.faults = [Fault(0)] * (needed // 2) + [Fault(429, "", {"Retry-After": "300"})]
        process = subprocess.Popen([sys.executable, "-c", KILLED, wiki.url, str(tmp_path)])
        while len(wiki.asked) <= needed // 2:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.wait()
        before = len(wiki.asked)
        assert before < needed
        context = StageContext(context.now, tmp_path / "killed", context.source, context.labels)
        resumed = scraped(wiki, table, context, batch_size=10)
    assert len(wiki.asked) <= needed + 1  # only the batch under way is asked for twice
    for one, other in zip(whole, resumed, strict=True):
        pd.testing.assert_frame_equal(one, other)
