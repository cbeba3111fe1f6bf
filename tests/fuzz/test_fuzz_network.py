"""Answers and files from other people's servers: damaged, cut, or made to do harm."""

import gzip
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from hgld.config import ScrapeOptions
from hgld.hierarchy.scrape.answers import (
    Item,
    Page,
    WikiClass,
    read_classes,
    read_items,
    read_pages,
)
from hgld.hierarchy.scrape.client import ApiClient
from hgld.hierarchy.scrape.dump import read_entities
from hgld.hierarchy.scrape.dump_pages import read_dumped_pages
from hgld.hierarchy.scrape.route import read_redirects
from hgld.hierarchy.scrape.saved import read_page
from hgld.hierarchy.scrape.store import open_store
from hgld.hierarchy.scrape.subclasses import read_superclasses
from hgld.hierarchy.scrape.verdict import classify
from hgld.sources import download
from hgld.sources.download import RemoteFile
from hgld.tasks import watched_by
from tests.fuzz.driver import fuzz
from tests.hierarchy.small_wiki import Wiki, statement

RECORDED = Path(__file__).parents[2].parent / "shared" / "wikimedia"
TITLES = ["Category:A", "Category:B", "Category:Soft", "Category:Moved", "Category:None"]
IDS = ["Q1", "Q2", "Q5"]
TOKENS = [b"null", b"true", b"[]", b"{}", b'""', b'"Q1"', b"-1", b"1e999", b"NaN", b'"\\ud800"']
TOKENS += [b'"missing":""', b'"error":{"code":"maxlag"}', b"1" + b"0" * 30, b"[" * 3000]
HTTP_TOKENS = [b"Content-Length: 99\r\n", b"Transfer-Encoding: chunked\r\n", b"\r\n\r\n", b"-1"]
HTTP_TOKENS += [b"Content-Encoding: gzip\r\n", b"Location: file:///etc/passwd\r\n", b"ffffffff\r\n"]
HTTP_TOKENS += [b"HTTP/1.1 302 Found\r\n", b"HTTP/1.1 206 x\r\n", b"Retry-After: 9\r\n", b"\xff"]
DAMAGE = (None, 7, "x", True)


def small_wiki() -> Wiki:
    """A wiki with pages and entities of every kind."""
    wiki = Wiki(items_of={"Category:A": "Q1", "Category:B": "", "Category:New": "Q2"})
    wiki.redirects["Category:Moved"] = "Category:New"
    wiki.moved_softly("Category:Soft", "Category:A")
    years = [{"snaktype": "value", "property": "P580", "datavalue": {"value": "+1172"}}]
    wiki.item("Q1", "Q5", "", P301=[statement("Q2", qualifiers={"P580": years})])
    wiki.item("Q2", "Q5", P279=[statement("Q5", "preferred")])
    wiki.label("Q5", "bridge")
    wiki.entities["Q5"]["lastrevid"] = 3
    for item_id in IDS:
        wiki.entities[item_id]["labels"] = {"en": {"language": "en", "value": f"label {item_id}"}}
    return wiki


@cache
def documents() -> dict[str, Any]:
    """Sound answers by what was asked."""
    wiki = small_wiki()
    return {
        "pages": wiki.query(TITLES, ["pageprops", "categories"]),
        "texts": wiki.query(TITLES, ["revisions"]),
        "entities": wiki.get_entities([*IDS, "Q9"]),
    }


def answers() -> list[bytes]:
    """Sound answers, and captured ones if they are there."""
    made = [json.dumps(document).encode() for document in documents().values()]
    captured = [json.loads(p.read_text("utf-8")) for p in sorted(RECORDED.glob("wik*/[wq]*.json"))]
    found = [one["response"]["json"] for one in captured if "json" in one.get("response", {})]
    return made + [json.dumps(document).encode() for document in found][::4]


def read_answer(data: bytes, folder: Path) -> None:
    """Read an answer in every way; each fact must fit the store and the tables."""
    document = classify(200, {}, data).document
    for facts in (
        read_pages(document, TITLES),
        read_redirects(document, TITLES),
        read_items(document, IDS),
        read_classes(document, IDS),
        read_superclasses(document, IDS),
    ):
        for fact in facts.values():
            json.dumps(asdict(fact), ensure_ascii=False).encode()
            assert getattr(fact, "revision", 0) < 2**63


class OneAnswer:
    """A server that sends some bytes to the first connection and a sound answer to all others."""

    def __init__(self) -> None:
        self.first, self.then = b"", b""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            connection = self.listener.accept()[0]
            data, self.first = self.first or self.then, b""
            with connection:
                try:
                    asked = connection.recv(1 << 16)
                    if asked.startswith(b"POST") and asked.endswith(b"\r\n\r\n"):
                        connection.recv(1 << 16)
                    connection.sendall(data)
                    connection.shutdown(socket.SHUT_WR)
                except OSError:
                    continue


@cache
def server() -> OneAnswer:
    return OneAnswer()


def response(body: bytes, *more: str) -> bytes:
    head = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *more, "Connection: close", "", ""]
    return "\r\n".join(head).encode() + body


BODY = json.dumps({"entities": {}, "warnings": {"main": {"warnings": "new"}}}).encode()
CHUNKED = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
RESPONSES = [
    response(BODY),
    response(gzip.compress(BODY), "Content-Encoding: gzip"),
    (CHUNKED % (len(BODY), BODY.decode())).encode(),
    response(BODY, "Retry-After: Wed, 21 Oct 2026 07:28:00 GMT", "X-Wmf-Ratelimit-Class: x"),
]
FILE = b"id,url\n" * 300
FILES = [
    response(FILE, 'ETag: "a"', "Content-Type: text/csv"),
    response(gzip.compress(FILE), "Content-Encoding: gzip"),
    (CHUNKED % (len(FILE), FILE.decode())).encode(),
]


def ask_once(data: bytes, folder: Path) -> None:
    """The client over a connection: each answer is read or asked for again."""
    server().first, server().then = data, RESPONSES[0]
    said: list[str] = []
    with (
        watched_by(None, said.append),
        ApiClient(
            ScrapeOptions(contact="a@example.org", answer_timeout=5), sleep=lambda _: None
        ) as client,
    ):
        client.ask(f"http://127.0.0.1:{server().port}/api.php", "query", {"titles": "A"})
    "".join(said).encode()


def load_once(data: bytes, folder: Path) -> None:
    """A download over a connection: the file is right, or refused."""
    download.PAUSE_S = 0.0
    server().first, server().then = data, FILES[0]
    url = f"http://127.0.0.1:{server().port}/a.csv"
    file = RemoteFile(url, folder / "a.csv", len(FILE), "", ("id", "url"))
    file.path.unlink(missing_ok=True)
    download.download(file, folder / "notes", Event(), again=True)


def read_sql_dump(data: bytes, folder: Path) -> None:
    path = folder / "dump"
    path.write_bytes(data)
    read_dumped_pages(TITLES, ScrapeOptions(dump_items=path))


def read_json_dump(data: bytes, folder: Path) -> None:
    path = folder / "dump"
    path.write_bytes(data)
    entities = dict(read_entities(path, IDS, "x", lambda line: b"P279" in line))
    read_items({"entities": entities}, IDS)


PAGE = """<!DOCTYPE html><html lang="en"><head><link rel="canonical"
href="https://commons.wikimedia.org/wiki/Category:A"><title>Category:A - Wikimedia Commons</title>
</head><body><table id="wdinfobox"><tr><th class="wikidatainfobox-lcell">Instance of</th><td>
<div class="plainlist"><ul><li>bridge<sup>1</sup><br>x</li></ul></div></td></tr></table>
<div class="category-redirect-header"><a href="/wiki/Category:B">B</a></div>
<li id="t-wikibase"><a href="https://www.wikidata.org/wiki/Q1">x</a></li></body></html>"""


def read_saved_page(data: bytes, folder: Path) -> None:
    path = folder / "Category:A.html"
    path.write_bytes(data)
    json.dumps(asdict(read_page(path, "Instance of")), ensure_ascii=False).encode()


def a_store(folder: Path) -> bytes:
    path = folder / "s.sqlite"
    with open_store(path, "a.example") as store:
        store.add({f"Category:{i}": Page(f"Q{i + 1}") for i in range(100)})
        store.add({"Q1": Item("Q1", 7), "Q5": WikiClass("Q5", "bridge")})
    return path.read_bytes()


def read_store(data: bytes, folder: Path) -> None:
    path = folder / "s.sqlite"
    for name in ("s.sqlite", "s.sqlite-wal", "s.sqlite-shm"):
        (folder / name).unlink(missing_ok=True)
    path.write_bytes(data)
    with (
        watched_by(None, lambda text: None),
        open_store(path, "a.example") as store,
    ):
        for title, page in store.load(Page, [f"Category:{i}" for i in range(100)]).items():
            assert page == Page(f"Q{int(title[9:]) + 1}")
        store.load(Item, ["Q1"])
        store.load(WikiClass, ["Q5"])
        store.add({"Category:1": Page("Q2")})


SQL = b"""CREATE TABLE `wb_items_per_site` (
  `ips_row_id` bigint(20),
  `ips_item_id` int(10),
  `ips_site_id` varbinary(32),
  `ips_site_page` varbinary(310),
  PRIMARY KEY (`ips_row_id`)
);
INSERT INTO `wb_items_per_site` VALUES (1,1,'commonswiki','Category:A'),(2,5,'x','It\\'s');
"""


def targets() -> list[tuple[Callable[[bytes, Path], None], list[bytes], list[bytes]]]:
    """What is fuzzed, from what, with which words."""
    entities = documents()["entities"]["entities"].values()
    lines = [json.dumps({"type": "item", **entity}, separators=(",", ":")) for entity in entities]
    dump = ("[\n" + ",\n".join(lines) + "\n]\n").encode()
    return [
        (read_answer, answers(), TOKENS),
        (ask_once, RESPONSES, TOKENS + HTTP_TOKENS),
        (load_once, FILES, HTTP_TOKENS),
        (read_sql_dump, [SQL, gzip.compress(SQL)], [b"'", b"\\", b"),(", b"NULL", b"INSERT"]),
        (read_json_dump, [dump, gzip.compress(dump)], TOKENS),
        (read_saved_page, [PAGE.encode(), PAGE.encode("utf-16")], [b"http://[x", b"<th>", b"&#0;"]),
    ]


@pytest.mark.parametrize(
    ("target", "seeds", "tokens"), targets(), ids=[one[0].__name__ for one in targets()]
)
def test_whatever_comes_is_read_or_refused_in_one_line(
    target: Callable[[bytes, Path], None], seeds: list[bytes], tokens: list[bytes]
) -> None:
    fuzz(target, seeds, tokens=tokens)


def test_any_damaged_store_is_refused_or_asked_for_again(tmp_path: Path) -> None:
    fuzz(read_store, [a_store(tmp_path)])


def paths(document: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Ways to every value of a JSON document."""
    inner = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in inner:
        yield (*way, key)
        if isinstance(value, dict | list):
            yield from paths(value, (*way, key))


def damaged(document: Any, way: tuple[Any, ...], value: Any) -> Any:
    copy = json.loads(json.dumps(document))
    inner = copy
    for key in way[:-1]:
        inner = inner[key]
    inner[way[-1]] = value
    return copy


@pytest.mark.parametrize("name", ["pages", "entities"])
def test_a_value_of_another_type_never_becomes_a_no(name: str) -> None:
    document = documents()[name]
    readers = {"pages": (read_pages, TITLES)}.get(name, (read_items, IDS))
    read: Any = readers[0]
    sound = read(document, readers[1])
    for way in paths(document):
        for value in DAMAGE:
            for key, fact in read(damaged(document, way, value), readers[1]).items():
                assert fact == sound[key] or has_more(fact, sound[key]), (way, value, fact)


def has_more(fact: Any, sound: Any) -> bool:
    """Whether a changed fact still says as much as the sound one."""
    if isinstance(fact, Page):
        return bool(fact.item_id) or not sound.item_id
    return len(fact.statements) == len(sound.statements) and bool(fact.item_id)
