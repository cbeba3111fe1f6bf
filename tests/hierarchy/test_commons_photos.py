import io
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from PIL import Image

from hgld.artifacts import table_of
from hgld.config import ScrapeOptions
from hgld.errors import Resumable
from hgld.hierarchy.scrape.client import ApiClient
from hgld.review.commons_photos import CommonsPhotos

CC = "https://creativecommons.org/licenses/by-sa/4.0"


@dataclass
class Commons:
    """A server that answers as the API and as the host of thumbnails."""

    pages: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    photo_status: int = 200
    url: str = ""

    def add(self, title: str, licence: str = CC, **facts: Any) -> None:
        """Add a file to the only category."""
        metadata = {
            "Artist": {"value": '<a href="//commons.wikimedia.org/wiki/User:Ann">Ann &amp; Co</a>'},
            "LicenseUrl": {"value": licence},
        }
        info = {
            "thumburl": f"{self.url}/250px-{len(self.pages)}.jpg",
            "descriptionurl": f"https://commons.wikimedia.org/wiki/{title}",
            "mime": "image/jpeg",
            "extmetadata": metadata,
            **facts,
        }
        self.pages.append({"title": title, "imageinfo": [info]})


def photo() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (250, 200), (90, 120, 60)).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.fixture
def commons() -> Iterator[Commons]:
    wiki = Commons()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            wiki.asked.append(body["gcmtitle"][0])
            self.answer(200, json.dumps({"query": {"pages": wiki.pages}}).encode())

        def do_GET(self) -> None:
            wiki.asked.append(self.path)
            self.answer(wiki.photo_status, photo())

        def answer(self, status: int, data: bytes) -> None:
            assert "(me@example.org)" in self.headers["User-Agent"]
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    wiki.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield wiki
    server.shutdown()
    server.server_close()


PhotosOf = Callable[..., CommonsPhotos]


@pytest.fixture
def photos_of(commons: Commons, tmp_path: Path) -> Iterator[PhotosOf]:
    """Makes what looks for the photos of a pond, of some licences."""
    place = {"split": "train", "landmark_id": 7}
    values = [{**place, "order": 0, "class_id": "Q1", "instance_of": "pond"}]
    url = "http://commons.wikimedia.org/wiki/Category:Pond"
    landmarks = [{**place, "name": "Big Pond", "commons_url": url}]
    with ApiClient(ScrapeOptions(contact="me@example.org"), sleep=lambda _: None) as client:
        yield lambda *licenses: CommonsPhotos(
            table_of("landmark_values", values),
            table_of("landmarks", landmarks),
            client=client,
            api=commons.url,
            licenses=licenses or ("*",),
            folder=tmp_path / "photos",
            per_value=3,
        )


def test_the_first_photo_of_a_category_is_shown_with_its_credit_and_asked_for_once(
    commons: Commons, photos_of: PhotosOf
) -> None:
    commons.add("File:Plan.svg", mime="image/svg+xml")
    commons.add("File:Pond.jpg")
    (shown,) = photos_of().list("Q1")
    assert {name: text for name, text in shown.items() if name != "src"} == {
        "landmark": "Big Pond", "title": "Pond.jpg", "byline": "by Ann & Co",
        "url": "https://commons.wikimedia.org/wiki/File:Pond.jpg", "terms": "CC BY-SA 4.0",
        "license_url": f"{CC}/",
    }  # fmt: skip
    again = photos_of()
    jpeg = again.read(shown["src"].removeprefix("photos/"))
    assert jpeg and Image.open(io.BytesIO(jpeg)).size == (176, 141)
    assert again.list("Q1") == [shown] and again.list("Q2") == []
    assert commons.asked == ["Category:Pond", "/250px-1.jpg"]


def test_a_photo_under_a_licence_that_is_not_permitted_is_not_asked_for(
    commons: Commons, photos_of: PhotosOf
) -> None:
    commons.add("File:Closed.jpg", licence="")
    commons.add("File:Pond.jpg", licence="http://creativecommons.org/publicdomain/zero/1.0/deed.en")
    (shown,) = photos_of("https://creativecommons.org/publicdomain/*").list("Q1")
    assert shown["title"] == "Pond.jpg" and commons.asked == ["Category:Pond", "/250px-1.jpg"]
    assert photos_of("*/by/*").list("Q1") == []


def test_a_photo_is_shown_once_its_licence_is_permitted(
    commons: Commons, photos_of: PhotosOf
) -> None:
    commons.add("File:Pond.jpg")
    assert photos_of("*/zero/*").list("Q1") == []
    (shown,) = photos_of("*/by-sa/*").list("Q1")
    assert shown["title"] == "Pond.jpg"


def test_a_thumbnail_elsewhere_is_not_asked_for(commons: Commons, photos_of: PhotosOf) -> None:
    commons.add("File:Pond.jpg", thumburl="http://192.0.2.1/250px-Pond.jpg")
    assert photos_of().list("Q1") == []
    assert commons.asked == ["Category:Pond"]


def test_a_busy_host_is_asked_again_later(commons: Commons, photos_of: PhotosOf) -> None:
    commons.add("File:Pond.jpg")
    commons.photo_status = 429
    photos = photos_of()
    with pytest.raises(Resumable, match="try again later"):
        photos.list("Q1")
    commons.photo_status = 200
    assert len(photos.list("Q1")) == 1


def test_a_name_that_leads_out_of_the_folder_is_no_photo(
    photos_of: PhotosOf, tmp_path: Path
) -> None:
    (tmp_path.parent / "secret.jpg").write_bytes(b"secret")
    photos = photos_of()
    assert photos.read("../../secret") is None and photos.read("") is None
