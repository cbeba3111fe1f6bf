"""A small server on this machine that answers as Commons and Wikidata do, from ``wiki.json``.

It serves the two actions that the scrape needs, ``query`` with page properties, categories, texts
and redirects and ``wbgetentities``, with their title normalisation, limits and errors, so that the
real client runs without a network. It refuses callers without a proper User-Agent, as Wikimedia
does.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from hgld.artifacts import Json
from hgld.hierarchy.scrape.titles import as_stored, fault_of_title

Answer = dict[str, Any]
Parameters = Mapping[str, str]

LIMIT = 50
PROPER_USER_AGENT = re.compile(r"[\w.-]+/\S+ \(.*(https?://\S+|\S+@\S+).*\)")
TURNED_AWAY = (
    "Please set a user-agent and respect our robot policy https://w.wiki/4wJS. See also T400119."
)


@contextmanager
def stand_in(folder: Path) -> Iterator[tuple[str, str]]:
    """Serve the wiki of a drawn world; yields the URLs of the Commons and the Wikidata API.

    Args:
        folder: the source folder that ``draw_world`` filled.
    """
    server = _Server(Wiki(Json("wiki.json").read(folder / "wiki.json")))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        host = f"http://127.0.0.1:{server.server_address[1]}"
        yield f"{host}/commons/w/api.php", f"{host}/wikidata/w/api.php"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Wiki:
    """Answers from a ``wiki.json`` document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.pages: Mapping[str, Any] = document["pages"]
        self.redirects: Mapping[str, str] = document["redirects"]
        self.entities: Mapping[str, Any] = document["entities"]

    @cached_property
    def item_of(self) -> dict[str, str]:
        """Title of a page -> id of the item whose sitelink leads to it."""
        return {t: page["item"] for t, page in self.pages.items() if "item" in page}

    def answer(self, site: str, parameters: Parameters) -> Answer:
        """The answer of a wiki's API to the parameters of one request."""
        action = parameters.get("action", "help")
        if site == "commons" and action == "query":
            return self._query(parameters)
        if site == "wikidata" and action == "wbgetentities":
            return self._entities(parameters)
        return _error("badvalue", f'Unrecognized value for parameter "action": {action}.')

    def _query(self, parameters: Parameters) -> Answer:
        titles = _values(parameters, "titles")
        if len(titles) > LIMIT:
            return _too_many("titles")
        modern = parameters.get("formatversion") == "2"
        normal = {title: as_stored(title) for title in titles}
        named = {title for title in normal.values() if not fault_of_title(title)}
        moved = {}
        if "redirects" in parameters:
            moved = {title: self.redirects[title] for title in named if title in self.redirects}
        ends = dict.fromkeys(moved.get(title, title) for title in normal.values())
        query: Answer = {}
        changes = [(a, b) for a, b in normal.items() if a != b]
        if changes:
            more = {"fromencoded": False} if modern else {}
            query["normalized"] = [{**more, "from": a, "to": b} for a, b in changes]
        if moved:
            query["redirects"] = [{"from": a, "to": b} for a, b in moved.items()]
        if ends:
            props = parameters.get("prop", "").split("|")
            query["pages"] = _as_pages([self._page(title, props) for title in ends], modern)
        return {"batchcomplete": True if modern else "", **({"query": query} if query else {})}

    def _page(self, title: str, props: list[str]) -> Answer:
        if reason := fault_of_title(title):
            return {"title": title, "invalidreason": reason, "invalid": True}
        page = self.pages.get(title)
        if page is None and title in self.redirects:
            return {"pageid": 1, "ns": 14, "title": title}
        if page is None:
            return {"ns": 14, "title": title, "missing": True}
        found = {"pageid": page["pageid"], "ns": 14, "title": title}
        if "item" in page and "pageprops" in props:
            found["pageprops"] = {"wikibase_item": page["item"]}
        if "text" in page and "categories" in props:
            found["categories"] = [{"ns": 14, "title": "Category:Category redirects"}]
        if "revisions" in props:
            found["revisions"] = [{"slots": {"main": {"content": page.get("text", "")}}}]
        return found

    def _entities(self, parameters: Parameters) -> Answer:
        ids, titles = _values(parameters, "ids"), _values(parameters, "titles")
        if not ids and not (titles and parameters.get("sites")):
            return _error("param-missing", 'Either provide the Item "ids" or pairs of "sites" and '
                          '"titles" for corresponding page')  # fmt: skip
        for name, values in (("ids", ids), ("titles", titles)):
            if len(values) > LIMIT:
                return _too_many(name)
        for entity_id in ids:
            if not re.fullmatch(r"Q[1-9]\d*", entity_id):
                info = f'Could not find an entity with the ID "{entity_id}".'
                return _error("no-such-entity", info, id=entity_id)
        found = {entity_id: self._entity(entity_id, parameters) for entity_id in ids}
        return {"entities": {**self._by_title(titles, parameters), **found}, "success": 1}

    def _by_title(self, titles: list[str], parameters: Parameters) -> Answer:
        """Entities by sitelink; hardly any normalisation, as the real module."""
        found: Answer = {}
        for title in titles:
            entity_id = self.item_of.get(title.replace("_", " ").strip())
            if entity_id:
                found[entity_id] = self._entity(entity_id, parameters)
            else:
                missing = {"site": parameters["sites"], "title": title, "missing": ""}
                found[str(-1 - sum(key.startswith("-") for key in found))] = missing
        return found

    def _entity(self, entity_id: str, parameters: Parameters) -> Answer:
        entity = self.entities.get(entity_id)
        if entity is None:
            return {"id": entity_id, "missing": ""}
        props = parameters.get("props", "claims|labels|sitelinks").split("|")
        kept = {"type", "id"} | (set(props) & {"claims", "labels", "sitelinks"})
        if "info" in props:
            kept |= {"pageid", "ns", "title", "lastrevid", "modified"}
        answer = {key: value for key, value in entity.items() if key in kept}
        if "labels" in answer and parameters.get("languages"):
            wanted = parameters["languages"].split("|")
            answer["labels"] = {k: v for k, v in answer["labels"].items() if k in wanted}
        return answer


def _values(parameters: Parameters, name: str) -> list[str]:
    """The values of a multi-valued parameter; U+001F in front makes it the separator."""
    text = parameters.get(name, "")
    if not text:
        return []
    values = text[1:].split("\x1f") if text.startswith("\x1f") else text.split("|")
    return list(dict.fromkeys(values))


def _as_pages(pages: list[Answer], modern: bool) -> list[Answer] | Answer:
    """A list, or in the old format a map by page id, negative where there is none."""
    pages = sorted(pages, key=lambda page: page.get("pageid", 0))
    if modern:
        return pages
    flags = {"missing", "invalid"}
    return {
        str(page.get("pageid", -1 - i)): {k: "" if k in flags else v for k, v in page.items()}
        for i, page in enumerate(pages)
    }


def _error(code: str, info: str, **more: object) -> Answer:
    return {"error": {"code": code, "info": info, **more, "*": "See api.php for API usage."}}


def _too_many(name: str) -> Answer:
    info = f'Too many values supplied for parameter "{name}". The limit is {LIMIT}.'
    return _error("toomanyvalues", info, limit=LIMIT, lowlimit=LIMIT, highlimit=500)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, wiki: Wiki) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.wiki = wiki


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # header and body leave in one packet
    timeout = 60  # an idle connection is closed
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._reply(b"")

    def do_POST(self) -> None:
        self._reply(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Stay quiet: standard error belongs to the progress."""

    def _reply(self, body: bytes) -> None:
        if not PROPER_USER_AGENT.match(self.headers.get("User-Agent", "")):
            self._send(403, TURNED_AWAY.encode(), "text/plain; charset=utf-8")
            return
        address = urlsplit(self.path)
        site = address.path.split("/")[1]
        pairs = parse_qsl(address.query, keep_blank_values=True)
        pairs += parse_qsl(body.decode(), keep_blank_values=True)
        assert isinstance(self.server, _Server)
        answer = self.server.wiki.answer(site, dict(pairs))
        code = answer.get("error", {}).get("code", "")
        data = json.dumps(answer, ensure_ascii=False).encode()
        self._send(200, data, "application/json; charset=utf-8", code)

    def _send(self, status: int, data: bytes, content_type: str, error: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        if error:
            self.send_header("MediaWiki-API-Error", error)
        self.end_headers()
        self.wfile.write(data)
