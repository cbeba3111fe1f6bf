"""A small wiki on a loopback address that answers in the shapes of MediaWiki and Wikibase."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

HIGHEST_ID = 2**31 - 1


@dataclass
class Fault:
    """What the server answers instead of the truth (with status 0 the truth, though).

    ``cut`` announces more bytes than it sends.
    """

    status: int
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False


@dataclass
class Wiki:
    """The world that the server knows, what it shall do wrong next, and what it was asked."""

    items_of: dict[str, str] = field(default_factory=dict)  # title -> item id, "" for none
    redirects: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)  # of soft redirects, by title
    entities: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    most_entities: int = 50
    asked: list[dict[str, str]] = field(default_factory=list)
    came: list[float] = field(default_factory=list)  # seconds of one clock, by what was asked
    url: str = ""

    @property
    def paced_url(self) -> str:
        """An address of this machine that does not look like one, so that requests are paced."""
        return self.url.replace("127.0.0.1", "0.0.0.0")

    def item(self, item_id: str, *classes: str, **more: Any) -> None:
        """Add an item with normal "instance of" statements."""
        claims = {"P31": [statement(c) for c in classes], **more}
        for name, some in claims.items():
            for claim in some:
                claim["mainsnak"]["property"] = name
        self.entities[item_id] = {
            "pageid": 1,
            "lastrevid": 1000 + len(self.entities),
            "type": "item",
            "id": item_id,
            "labels": {},
            "claims": {name: found for name, found in claims.items() if found},
        }

    def moved_softly(self, title: str, target: str) -> None:
        """Add a page whose template leads elsewhere."""
        self.items_of[title] = ""
        self.texts[title] = f"{{{{Category redirect|{target.removeprefix('Category:')}}}}}"

    def label(self, class_id: str, text: str, language: str = "en") -> None:
        """Add a class with a label."""
        labels = {language: {"language": language, "value": text}}
        self.entities[class_id] = {"type": "item", "id": class_id, "labels": labels, "claims": {}}

    def answer(self, question: dict[str, str]) -> dict[str, Any]:
        """The JSON answer of api.php."""
        if question["action"] == "query":
            return self.query(question["titles"].split("|"), question["prop"].split("|"))
        return self.get_entities(question["ids"].split("|"))

    def query(self, titles: list[str], props: list[str]) -> dict[str, Any]:
        """Answer of action=query with redirects=1."""
        if len(titles) > 50:
            return too_many("titles")
        steps, pages = {}, {}
        for title in titles:
            while title in self.redirects and title not in steps:
                steps[title] = self.redirects[title]
                title = steps[title]
            if title not in steps:
                pages[title] = self.page(title, props)
        moved = [{"from": a, "to": b} for a, b in steps.items()]
        query = {"redirects": moved, "pages": list(pages.values())}
        return {"batchcomplete": True, "query": query}

    def page(self, title: str, props: list[str]) -> dict[str, Any]:
        """One entry of ``pages``."""
        if "[" in title:
            reason = 'The requested page title contains invalid characters: "[".'
            return {"title": title, "invalidreason": reason, "invalid": True}
        if title not in self.items_of:
            return {"ns": 14, "title": title, "missing": True}
        page: dict[str, Any] = {"pageid": 1, "ns": 14, "title": title}
        if self.items_of[title] and "pageprops" in props:
            page["pageprops"] = {"wikibase_item": self.items_of[title]}
        if title in self.texts and "categories" in props:
            page["categories"] = [{"ns": 14, "title": "Category:Category redirects"}]
        if "revisions" in props:
            content = self.texts.get(title, "")
            page["revisions"] = [{"slots": {"main": {"content": content}}}]
        return page

    def get_entities(self, ids: list[str]) -> dict[str, Any]:
        """Answer of wbgetentities; more than the limit is left out with only a warning."""
        if len(ids) > 50:
            return too_many("ids")
        for item_id in ids:
            if int(item_id[1:]) > HIGHEST_ID:
                info = f'Could not find an entity with the ID "{item_id}".'
                return {"error": {"code": "no-such-entity", "info": info, "id": item_id}}
        found = {i: self.entities.get(i, {"id": i, "missing": ""}) for i in ids}
        if len(found) <= self.most_entities:
            return {"entities": found, "success": 1}
        kept = dict(list(found.items())[: self.most_entities])
        warnings = {"result": {"warnings": "This result was truncated because it would ..."}}
        return {"warnings": warnings, "entities": kept, "success": 1}


def statement(class_id: str, rank: str = "normal", **more: Any) -> dict[str, Any]:
    """A statement that names an item; an empty id is an unknown value."""
    snak: dict[str, Any] = {"snaktype": "somevalue", "property": "P31", "datatype": "wikibase-item"}
    if class_id:
        value = {"entity-type": "item", "numeric-id": int(class_id[1:]), "id": class_id}
        datavalue = {"value": value, "type": "wikibase-entityid"}
        snak |= {"snaktype": "value", "datavalue": datavalue}
    return {"mainsnak": snak, "type": "statement", "rank": rank, **more}


def too_many(name: str) -> dict[str, Any]:
    """The error of more than 50 values."""
    info = f'Too many values supplied for parameter "{name}". The limit is 50.'
    return {"error": {"code": "toomanyvalues", "info": info, "limit": 50}}


def handler_for(wiki: Wiki) -> type[BaseHTTPRequestHandler]:
    """The request handler of a wiki."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            pairs = parse_qs(urlsplit(self.path).query) | parse_qs(body)
            question = {name: values[0] for name, values in pairs.items()}
            wiki.came.append(time.monotonic())
            wiki.asked.append({**question, "User-Agent": self.headers["User-Agent"]})
            fault = wiki.faults.pop(0) if wiki.faults else Fault(0)
            if fault.status:
                self.send(fault)
            elif "(" not in self.headers["User-Agent"]:
                self.send(Fault(403, "Please set a user-agent and respect our robot policy"))
            else:
                self.send(Fault(200, json.dumps(wiki.answer(question))))

        def send(self, answer: Fault) -> None:
            data = answer.body.encode()
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data) + (1000 if answer.cut else 0)))
            self.end_headers()
            self.wfile.write(data)
            self.close_connection = answer.cut

        def log_message(self, *args: object) -> None: ...

    return Handler


@contextmanager
def serve(wiki: Wiki) -> Iterator[None]:
    """Serve the wiki; its ``url`` is set before the first request."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(wiki))
    wiki.url = f"http://127.0.0.1:{server.server_port}/w/api.php"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
