"""How fast, and in how much memory, the dump road reads: ``python -m tests.benchmarks.dump``.

It makes a wiki of landmarks among many items that nobody asks for, with lines as long as
Wikidata's are on average, writes its dumps packed in each way, and reads them in a process of its
own as the scrape does, two readings of the entities included. Speeds count the processor's time.
"""

import multiprocessing
import sys
import tempfile
import time
from hashlib import sha1
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.config import ScrapeOptions, SourceOptions, StageContext, ToyOptions
from hgld.hierarchy.scrape.dump import read_dump
from hgld.hierarchy.scrape.dump_pages import read_blocks, read_rows
from hgld.sources.toy.wiki import describe_wiki
from hgld.sources.toy.world import imagine
from tests.benchmarks.meters import status_kb
from tests.hierarchy.made_dump import write_dumps

STATEMENTS = 36  # of an item; they make a line of 14 kB, Wikidata's average
PAGES_OF_EACH = 20  # Commons pages to an item


def measure(megabytes: int) -> None:
    """Print a line for each way of packing."""
    world = imagine(ToyOptions(landmarks=200))
    document = describe_wiki(world)
    items = megabytes * 1_000_000 // 14_000
    document["entities"] |= {
        f"Q{2_000_000_000 + n}": _item(2_000_000_000 + n) for n in range(items)
    }
    for number in range(items * PAGES_OF_EACH):
        document["pages"][f"Category:Somebody's_page {number} (nothing here)"] = {}
    rows = [(m.space, m.landmark_id, m.name, m.url) for m in world.landmarks]
    landmarks = pd.DataFrame(rows, columns=["split", "landmark_id", "name", "commons_url"])
    for ending in ("", ".gz", ".bz2"):
        with tempfile.TemporaryDirectory() as name:
            files = write_dumps(document, Path(name), ending)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(f"{ending or 'plain':<6}" + pool.apply(_read, (files, landmarks, Path(name))))


def _item(number: int) -> dict[str, Any]:
    statements = [_statement(number, i) for i in range(STATEMENTS)]
    return {
        "type": "item", "id": f"Q{number}", "labels": {}, "claims": {"P2": statements},
        "lastrevid": number,
    }  # fmt: skip


def _statement(number: int, i: int) -> dict[str, Any]:
    digest = sha1(f"{number} {i}".encode()).hexdigest()
    value = {"entity-type": "item", "numeric-id": int(digest[:6], 16), "id": f"Q{digest[:6]}"}
    snak = {"snaktype": "value", "property": "P2", "hash": digest, "datatype": "wikibase-item"}
    snak |= {"datavalue": {"value": value, "type": "wikibase-entityid"}}
    return {"mainsnak": snak, "type": "statement", "id": f"Q{number}${digest}", "rank": "normal"}


def _read(files: dict[str, Path], landmarks: pd.DataFrame, folder: Path) -> str:
    size = {key: sum(map(len, read_blocks(files[key], ""))) / 1e6 for key in ("entities", "page")}
    start = time.process_time()
    rows = sum(1 for _ in read_rows(files["page"], ("page_id", "page_namespace"), ""))
    sql_s, start = time.process_time() - start, time.process_time()
    options = ScrapeOptions(
        source="dump", dump_items=files["sitelinks"], dump_entities=files["entities"]
    )
    context = StageContext("2026-11-21", folder / "state", SourceOptions(), folder)
    read_dump(landmarks, options=options, context=context)
    json_s = time.process_time() - start
    return (
        f"entities {2 * size['entities'] / json_s:>5,.0f} MB/s of {size['entities']:,.0f} MB, "
        f"SQL {size['page'] / sql_s:>4,.0f} MB/s ({rows / sql_s / 1e6:.1f} M rows/s), "
        f"{status_kb('VmHWM') / 1e3:,.0f} MB of memory"
    )


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
