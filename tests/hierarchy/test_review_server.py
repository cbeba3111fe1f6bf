import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pandas as pd
import pytest
from PIL import Image

from hgld.errors import InvalidData, UsageError
from hgld.review.live_decisions import LiveDecisions
from hgld.review.photos import PhotoReader
from hgld.review.review_page import photos_of_classes
from hgld.review.server import LARGEST_BODY, ReviewServer, Site

TOKEN = "secret-token"


@dataclass
class Desk(Site):
    """A site whose decisions are a JSON file, and what was said to it."""

    file: Path
    notices: list[str] = field(default_factory=list)
    fails: Exception | None = None
    decisions: LiveDecisions = field(init=False)

    def read(self) -> Mapping[str, Mapping[str, Any]]:
        return {"rows": json.loads(self.file.read_text())}

    def page(self) -> str:
        return "<p>page"

    def photos(self, key: str) -> list[dict[str, str]]:
        return [{"src": "photos/7"}] if key == "Q1" else []

    def photo(self, name: str) -> bytes | None:
        return b"jpeg" if name == "7" else None

    def save(
        self, who: str, rows: Sequence[Mapping[str, str]], sitting: str
    ) -> Mapping[str, object]:
        if self.fails:
            raise self.fails
        there = json.loads(self.file.read_text())
        there |= {row["key"]: {"decision": row["decision"], "who": who} for row in rows}
        self.write(there)
        return {"done": {row["key"]: "changed" for row in rows}, "sitting": sitting}

    def write(self, there: object) -> None:
        other = self.file.with_suffix(".new")
        other.write_text(json.dumps(there))
        other.replace(self.file)

    def undo(self, who: str, entry: str, rows: Sequence[str]) -> Mapping[str, object]:
        return {"left": [who, entry, *rows]}

    def comment(self, who: str, key: str, text: str) -> None:
        self.notices.append(f"{who} on {key}: {text}")

    def edit_taxonomy(
        self, who: str, edit: Mapping[str, str], keys: Sequence[str]
    ) -> Mapping[str, object]:
        return {"entry": " ".join([who, edit["action"], *keys])}


@contextmanager
def served(desk: Desk, host: str = "127.0.0.1", port: int = 0) -> Iterator[ReviewServer]:
    desk.write({})
    desk.decisions = LiveDecisions([desk.file], desk.read)
    server = ReviewServer(host, port, TOKEN, desk, desk.notices.append)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "decisions.json")


@pytest.fixture
def server(desk: Desk) -> Iterator[ReviewServer]:
    with served(desk) as running:
        yield running


def ask(
    server: ReviewServer, path: str, body: object = None, **headers: str
) -> tuple[int, bytes, http.client.HTTPMessage]:
    """GET a path below the token, or POST a body as the page does."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=120)
    given = {name.replace("_", "-"): text for name, text in headers.items()}
    if body is None:
        connection.request("GET", path, headers=given)
    else:
        own = {
            "Origin": f"http://127.0.0.1:{server.server_port}",
            "Content-Type": "application/json",
        }
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", path, body=text, headers=own | given)
    answer = connection.getresponse()
    found = answer.status, answer.read(), answer.headers
    connection.close()
    return found


def saved(key: str = "Q1", **more: object) -> dict[str, object]:
    rows = [{"key": key, "base": "", "decision": "drop"}]
    return {"who": "Ann", "rows": rows, **more}


def test_the_page_needs_the_token(server: ReviewServer) -> None:
    assert ask(server, f"/{TOKEN}/")[:2] == (200, b"<p>page")
    wrong = ("/", f"/{TOKEN}", f"/{TOKEN}x/", f"/{TOKEN[:-1]}/", "//", "/%00/", f"/x/{TOKEN}/")
    assert [ask(server, path)[0] for path in wrong] == [404] * len(wrong)
    assert server.url == f"http://127.0.0.1:{server.server_port}/{TOKEN}/"


def test_nothing_is_kept_framed_or_passed_on(server: ReviewServer) -> None:
    headers = ask(server, f"/{TOKEN}/")[2]
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert not any("Access-Control" in name for name in headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:80"},
        {"Host": ""},
        {"Host": "["},
        {"Origin": "https://evil.example"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
    ],
)
def test_another_name_or_page_is_refused(server: ReviewServer, headers: dict[str, str]) -> None:
    assert ask(server, f"/{TOKEN}/", **headers)[0] == 403
    assert ask(server, f"/{TOKEN}/decisions", saved(), **headers)[0] == (
        200 if "Sec_Fetch_Site" in headers else 403  # its origin is the page's
    )


def test_a_link_from_a_mail_opens_the_page(server: ReviewServer) -> None:
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert ask(server, f"/{TOKEN}/", **link)[0] == 200


def test_a_form_of_another_page_cannot_decide(server: ReviewServer, desk: Desk) -> None:
    form = {"Content_Type": "text/plain"}
    assert ask(server, f"/{TOKEN}/decisions", saved(), **form)[0] == 403
    assert ask(server, f"/{TOKEN}/decisions", saved(), Origin="null")[0] == 403
    assert desk.file.read_text() == "{}"


def test_a_decision_is_in_the_file_before_it_is_answered(server: ReviewServer, desk: Desk) -> None:
    status, text, _ = ask(server, f"/{TOKEN}/decisions", saved())
    answer = json.loads(text)
    fact = {"decision": "drop", "who": "Ann"}
    assert status == 200 and json.loads(desk.file.read_text()) == {"Q1": fact}
    assert answer["done"] == {"Q1": "changed"} and answer["news"] == {"rows": {"Q1": fact}}
    status, text, _ = ask(server, f"/{TOKEN}/undo", {"who": "Ben", "entry": "e1"})
    assert status == 200 and json.loads(text)["left"] == ["Ben", "e1"]
    assert ask(server, f"/{TOKEN}/undo", {"who": "Ben"})[0] == 422
    part = {"who": "Ben", "entry": "e1", "rows": ["r1"]}
    assert json.loads(ask(server, f"/{TOKEN}/undo", part)[1])["left"] == ["Ben", "e1", "r1"]
    assert ask(server, f"/{TOKEN}/undo", {**part, "rows": "r1"})[0] == 422


@pytest.mark.parametrize(
    "body",
    [
        b"no json",
        [],
        {},
        saved(who=""),
        saved(who=" \n"),
        saved(who=3),
        saved(who="x" * 2001),
        saved(rows={}),
        saved(rows=["Q1"]),
        saved(rows=[{"key": 1}]),
        saved(rows=[{"key": "x" * 2001}]),
        saved(who="Ann \ud83d"),  # half of an emoji
        saved(rows=[{"key": "Q1", "note": "\ud83d"}]),
        b"[" * 100_000,
    ],
)
def test_a_body_of_another_form_is_refused_in_words(server: ReviewServer, body: object) -> None:
    status, text, _ = ask(server, f"/{TOKEN}/decisions", body)
    assert status == 422 and json.loads(text)["error"].count("expected") == 1


def test_a_body_without_a_length_or_too_long_is_not_read(server: ReviewServer) -> None:
    for length in ("x", "-1", str(LARGEST_BODY + 1)):
        assert ask(server, f"/{TOKEN}/decisions", b"{}", Content_Length=length)[0] == 422


def test_a_refused_decision_and_a_full_disk_are_told_to_the_page(
    server: ReviewServer, desk: Desk
) -> None:
    desk.fails = InvalidData("chruch: not in taxonomy.csv")
    status, text, _ = ask(server, f"/{TOKEN}/decisions", saved())
    assert (status, json.loads(text)["error"]) == (422, "chruch: not in taxonomy.csv")
    desk.fails = OSError(28, "No space left on device", "decisions.csv")
    status, text, _ = ask(server, f"/{TOKEN}/decisions", saved())
    assert status == 503 and "decisions.csv: the disk is full" in json.loads(text)["error"]
    assert desk.notices == [json.loads(text)["error"]]
    desk.fails = KeyError("a fault of hgld")
    status, text, _ = ask(server, f"/{TOKEN}/decisions", saved())
    assert (status, desk.notices[1]) == (500, "unexpected KeyError: 'a fault of hgld'")
    assert json.loads(text)["error"] == desk.notices[1]


def test_a_comment_needs_a_key_and_a_text(server: ReviewServer, desk: Desk) -> None:
    said = {"who": "Ann", "key": "Q1", "text": "a  mine?"}
    assert ask(server, f"/{TOKEN}/comments", said)[0] == 200
    assert ask(server, f"/{TOKEN}/comments", {**said, "text": " "})[0] == 422
    assert desk.notices == ["Ann on Q1: a mine?"]


def test_an_edit_of_the_taxonomy_is_passed_on_if_its_form_is_right(server: ReviewServer) -> None:
    body = {"who": "Ann", "edit": {"action": "split"}, "keys": ["Q1"]}
    status, text, _ = ask(server, f"/{TOKEN}/taxonomy", body)
    assert (status, json.loads(text)["entry"]) == (200, "Ann split Q1")
    faults = [{"who": " "}, {"edit": []}, {"edit": {"action": 1}}, {"keys": "Q1"}, {"keys": [1]}]
    for fault in faults:
        assert ask(server, f"/{TOKEN}/taxonomy", {**body, **fault})[0] == 422


def test_photos_are_listed_by_key_and_sent_by_name(server: ReviewServer) -> None:
    assert json.loads(ask(server, f"/{TOKEN}/photos?key=Q1")[1]) == [{"src": "photos/7"}]
    assert json.loads(ask(server, f"/{TOKEN}/photos?key=Q2")[1]) == []
    status, jpeg, headers = ask(server, f"/{TOKEN}/photos/7")
    assert (status, jpeg, headers["Content-Type"]) == (200, b"jpeg", "image/jpeg")
    assert ask(server, f"/{TOKEN}/photos/8")[0] == 404
    assert ask(server, f"/{TOKEN}/photos/../7")[0] == 404


@pytest.mark.parametrize("image_id", ["7", "arch bridge/0#1.jpg", "Brücke?/50%41.jpg", "a'b&c.jpg"])
def test_a_photo_is_sent_whatever_characters_its_path_has(
    server: ReviewServer, tmp_path: Path, image_id: str
) -> None:
    (tmp_path / image_id).parent.mkdir(exist_ok=True)
    Image.new("RGB", (8, 8)).save(tmp_path / image_id, "JPEG")
    landmarks = pd.DataFrame({"split": ["train"], "landmark_id": [1], "name": ["bridge"]})
    image = {"image_id": image_id, "split": "train", "landmark_id": 1, "path": image_id}
    image |= {"offset": 0, "size_bytes": (tmp_path / image_id).stat().st_size}
    image |= dict.fromkeys(("author", "license", "title", "url"), "unknown")
    photos = PhotoReader(photos_of_classes(landmarks, pd.DataFrame([image]), per_class=1), tmp_path)
    server.site.photo = photos.read  # type: ignore[method-assign]
    (shown,) = photos.list("bridge")
    path = urlsplit(urljoin(server.url, shown["src"])).path
    assert ask(server, path)[0] == 200


def listen(server: ReviewServer, who: str, since: str = "") -> Iterator[dict[str, Any]]:
    """Open a stream; return its events."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=120)
    connection.request("GET", f"/{TOKEN}/events?who={who}&since={since}")
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"
    lines = iter(answer.readline, b"")
    return (json.loads(line[6:]) for line in lines if line.startswith(b"data: "))


def until(events: Iterator[dict[str, Any]], **wanted: object) -> dict[str, Any]:
    return next(e for e in events if all(e[name] == fact for name, fact in wanted.items()))


def test_a_stream_tells_what_another_program_writes_and_who_is_here(
    server: ReviewServer, desk: Desk
) -> None:
    ann = listen(server, "Ann")
    assert next(ann)["people"] == ["Ann"]
    ben = listen(server, "Ben")
    until(ann, people=["Ann", "Ben"])
    desk.write({"Q2": {"decision": "keep"}})
    for events in (ann, ben):
        event = until(events, news={"rows": {"Q2": {"decision": "keep"}}})
    later = listen(server, "Cy", since=event["at"])
    assert next(later)["news"] == {}
    assert next(listen(server, "Di", since="other:1"))["news"]["rows"] == {
        "Q2": {"decision": "keep"}
    }


def test_a_damaged_file_is_reported_once_and_the_page_goes_on(
    server: ReviewServer, desk: Desk
) -> None:
    def read() -> Mapping[str, Mapping[str, Any]]:
        raise InvalidData("decisions.csv: damaged")

    server.site.decisions.read = read
    desk.write("damaged")
    waits = threading.Event()
    for _ in range(2400):
        if desk.notices or waits.wait(0.05):
            break
    waits.wait(0.5)
    assert desk.notices == ["decisions.csv: damaged; the page shows the decisions of before"]
    assert ask(server, f"/{TOKEN}/")[0] == 200


def test_streams_end_with_the_server(desk: Desk) -> None:
    with served(desk) as server:
        events = listen(server, "Ann")
        next(events)
    assert list(events)[1:] == []


def test_a_port_in_use_is_one_line(server: ReviewServer, desk: Desk) -> None:
    with pytest.raises(UsageError, match=r"in use.*choose another port with --port"):
        ReviewServer("127.0.0.1", server.server_port, TOKEN, server.site, desk.notices.append)
    with pytest.raises(UsageError, match="--host"):
        ReviewServer("192.0.2.1", 0, TOKEN, server.site, desk.notices.append)
    with pytest.raises(UsageError, match="--port"):
        ReviewServer("127.0.0.1", 70_000, TOKEN, server.site, desk.notices.append)


def test_a_connection_that_sends_rubbish_ends_and_nothing_is_printed(
    server: ReviewServer, capfd: pytest.CaptureFixture[str]
) -> None:
    for text in (b"rubbish\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00", b""):
        with socket.create_connection(("127.0.0.1", server.server_port)) as raw:
            raw.sendall(text)
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(4096):
                pass
    assert ask(server, f"/{TOKEN}/")[0] == 200
    assert capfd.readouterr() == ("", "")
