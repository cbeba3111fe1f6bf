"""A small server on this machine that answers as Commons and Wikidata do, from ``wiki.json``.

It serves the two actions that the scrape needs, in the form in which it asks: POST requests of
``query`` with page properties, categories, texts and redirects and of ``wbgetentities`` with ids,
with their title normalisation, limits and errors, so that the real client runs without a network.
It refuses callers without a proper User-Agent, as Wikimedia does.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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

    def answer(self, site: str, parameters: Parameters) -> Answer:
        """The answer of a wiki's API to the parameters of one request."""
        action = parameters.get("action", "help")
        if site == "commons" and action == "query":
            return self._query(parameters)
        if site == "wikidata" and action == "wbgetentities":
            return self._entities(parameters)
        return _error("badvalue", f'Unrecognized value for parameter "action": {action}.')

    def _query(self, parameters: Parameters) -> Answer:
        titles = list(dict.fromkeys(parameters["titles"].split("|")))
        if len(titles) > LIMIT:
            return _too_many("titles")
        normal = {title: as_stored(title) for title in titles}
        named = {title for title in normal.values() if not fault_of_title(title)}
        moved = {}
        if "redirects" in parameters:
            moved = {title: self.redirects[title] for title in named if title in self.redirects}
        ends = dict.fromkeys(moved.get(title, title) for title in normal.values())
        query: Answer = {}
        changes = [(a, b) for a, b in normal.items() if a != b]
        if changes:
            query["normalized"] = [{"fromencoded": False, "from": a, "to": b} for a, b in changes]
        if moved:
            query["redirects"] = [{"from": a, "to": b} for a, b in moved.items()]
        props = parameters["prop"].split("|")
        pages = [self._page(title, props) for title in ends]
        query["pages"] = sorted(pages, key=lambda page: page.get("pageid", 0))
        return {"batchcomplete": True, "query": query}

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
        ids = list(dict.fromkeys(parameters["ids"].split("|")))
        if len(ids) > LIMIT:
            return _too_many("ids")
        for entity_id in ids:
            if not re.fullmatch(r"Q[1-9]\d*", entity_id):
                info = f'Could not find an entity with the ID "{entity_id}".'
                return _error("no-such-entity", info, id=entity_id)
        found = {entity_id: self._entity(entity_id, parameters) for entity_id in ids}
        return {"entities": found, "success": 1}

    def _entity(self, entity_id: str, parameters: Parameters) -> Answer:
        entity = self.entities.get(entity_id)
        if entity is None:
            return {"id": entity_id, "missing": ""}
        props = parameters["props"].split("|")
        kept = {"type", "id"} | (set(props) & {"claims", "labels", "sitelinks"})
        if "info" in props:
            kept |= {"pageid", "ns", "title", "lastrevid", "modified"}
        answer = {key: value for key, value in entity.items() if key in kept}
        if "labels" in answer and parameters.get("languages"):
            wanted = parameters["languages"].split("|")
            answer["labels"] = {k: v for k, v in answer["labels"].items() if k in wanted}
        return answer


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

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Stay quiet: standard error belongs to the progress."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
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
