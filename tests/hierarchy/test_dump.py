"""The road over dumps gives what the road over the API gives, for the same made wiki."""

import gzip
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hgld.artifacts import table_of
from hgld.config import ScrapeOptions, SourceOptions, StageContext, ToyOptions
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.scrape import dump_pages
from hgld.hierarchy.scrape.dump import read_dump, read_entities
from hgld.hierarchy.scrape.dump_pages import describe_table, read_rows, text_of
from hgld.hierarchy.scrape.stand_in import stand_in
from hgld.hierarchy.scrape.wikimedia import scrape
from hgld.sources.toy.wiki import describe_wiki
from hgld.sources.toy.world import imagine
from hgld.tasks import watched_by
from tests.hierarchy.made_dump import DECOY, Document, write_dumps
from tests.listening import heard

Tables = tuple[pd.DataFrame, pd.DataFrame]


@pytest.fixture(scope="module")
def document() -> Document:
    return describe_wiki(imagine(ToyOptions(landmarks=48)))


@pytest.fixture(scope="module")
def landmarks() -> pd.DataFrame:
    rows = [
        {"split": m.space, "landmark_id": m.landmark_id, "name": m.name, "commons_url": m.url}
        for m in imagine(ToyOptions(landmarks=48)).landmarks
    ]
    rows += [
        {"split": "train", "landmark_id": 900 + i, "name": "", "commons_url": url}
        for i, url in enumerate(("http://example.org/A", "http://commons.wikimedia.org/wiki/%5B"))
    ]
    return table_of("landmarks", rows)


@pytest.fixture(scope="module")
def asked(
    document: Document, landmarks: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> Tables:
    """What the API road gives."""
    folder = tmp_path_factory.mktemp("asked")
    (folder / "wiki.json").write_text(json.dumps(document))
    context = StageContext("2026-11-21", folder / "state", SourceOptions(), folder)
    with stand_in(folder) as (commons, wikidata):
        options = ScrapeOptions(commons_api=commons, wikidata_api=wikidata, contact="a@example.org")
        return scrape(landmarks, options=options, context=context)


@dataclass
class Dumps:
    """Dumps of the made wiki, and the road over them."""

    document: Document
    landmarks: pd.DataFrame
    folder: Path
    context: StageContext

    def write(self, ending: str = "", **parts: Any) -> None:
        """Write them anew, with some parts of the wiki changed."""
        self.files = write_dumps({**self.document, **parts}, self.folder, ending)

    def bring(self, items: str = "page_props", **more: Any) -> Tables:
        options = ScrapeOptions(
            source="dump",
            dump_items=self.files[items],
            dump_pages=self.files["page"],
            dump_redirects=self.files["redirect"],
            dump_entities=self.files["entities"],
        )
        options = options.model_copy(update=more)
        return read_dump(self.landmarks, options=options, context=self.context)


@pytest.fixture
def dumps(
    document: Document, landmarks: pd.DataFrame, tmp_path: Path, context: StageContext
) -> Dumps:
    made = Dumps(document, landmarks, tmp_path / "dumps", context)
    made.write()
    return made


def without_soft(tables: Tables, document: Document) -> tuple[list[Any], list[Any]]:
    """Rows of both tables, sorted, without the landmarks whose page is a soft redirect.

    Those are the one thing that dumps cannot tell: where they lead to stands in a page's text.
    """
    softly = {title for title, page in document["pages"].items() if "text" in page}
    soft = {
        (m.space, m.landmark_id)
        for m in imagine(ToyOptions(landmarks=48)).landmarks
        if f"Category:{m.name}" in softly
    }
    assert len(soft) == 1
    rows = [sorted(map(tuple, table.to_numpy().tolist())) for table in tables]
    values, misses = ([row for row in some if row[:2] not in soft] for some in rows)
    return values, misses


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2"])
@pytest.mark.parametrize("items", ["page_props", "sitelinks"])
def test_the_same_wiki_gives_the_same_rows(
    items: str, ending: str, dumps: Dumps, asked: Tables
) -> None:
    dumps.write(ending)
    values, misses = without_soft(dumps.bring(items), dumps.document)
    assert (values, misses) == without_soft(asked, dumps.document)
    assert len(values) > 60 and len(misses) > 5
    assert {row[2] for row in misses} >= {"no_page", "no_item", "bad_url", "only_deprecated"}


def test_a_soft_redirect_ends_without_an_item(dumps: Dumps) -> None:
    pages = {**dumps.document["pages"], "Category:Moved": {"pageid": 1}}
    dumps.write(pages=pages)
    moved = "http://commons.wikimedia.org/wiki/Category:Moved"
    row = {"split": "train", "landmark_id": 1, "name": "", "commons_url": moved}
    dumps.landmarks = table_of("landmarks", [row])
    _, misses = dumps.bring()
    assert misses["reason"].tolist() == ["no_item"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "is empty or contains only the name of a namespace."),
        ("A&amp;amp;B", 'contains invalid characters: "&amp;".'),  # one entity is decoded
        ("Y" * 256, "is too long. It must be no longer than 255 bytes in UTF-8 encoding."),
    ],
)
def test_a_title_that_mediawiki_refuses_has_the_reason_that_its_api_gives(
    name: str, reason: str, dumps: Dumps
) -> None:
    url = f"http://commons.wikimedia.org/wiki/Category:{name}"
    row = {"split": "train", "landmark_id": 1, "name": "", "commons_url": url}
    dumps.landmarks = table_of("landmarks", [row])
    _, misses = dumps.bring()
    found = misses[["reason", "detail"]].to_numpy().tolist()
    assert found == [["bad_url", f"The requested page title {reason}"]]


def test_without_pages_a_missing_page_is_one_without_an_item(dumps: Dumps, asked: Tables) -> None:
    none = {"dump_pages": None, "dump_redirects": None}
    values, misses = dumps.bring("sitelinks", **none)
    assert "no_page" not in set(misses["reason"])
    assert len(values) < len(asked[0])  # redirects are not followed either
    assert len(values) > 60


def test_the_dump_is_read_twice_for_topics_and_never_again(dumps: Dumps) -> None:
    dumps.write(".gz")
    with heard() as notes:
        first = dumps.bring()
        readings = [note for note in notes if ", reading " in note]
        again = dumps.bring()
    assert len(readings) == 2
    assert [note for note in notes if ", reading " in note] == readings
    assert first[0].equals(again[0]) and first[1].equals(again[1])


def test_a_stopped_run_reads_only_what_is_left(dumps: Dumps, tmp_path: Path) -> None:
    dumps.write(".gz")

    def stop(items: Any, label: object, total: int | None, done: int) -> Any:
        if label == "Reading 2":
            raise KeyboardInterrupt
        return iter(items)

    with pytest.raises(KeyboardInterrupt), watched_by(stop):
        dumps.bring()
    with heard() as notes:
        again = dumps.bring()
    dumps.context = replace(dumps.context, state=tmp_path / "other")
    whole = dumps.bring()
    assert sum(", reading " in note for note in notes) == 1
    assert again[0].equals(whole[0]) and again[1].equals(whole[1])


def test_an_item_or_class_that_is_not_in_the_dump_ends_there(dumps: Dumps, asked: Tables) -> None:
    gone = asked[0]["item_id"].iloc[0]
    left = {k: v for k, v in dumps.document["entities"].items() if k not in (gone, "Q8502")}
    dumps.write(entities=left)
    values, misses = dumps.bring()
    assert gone not in set(values["item_id"])
    assert f"item {gone}" in set(misses["detail"][misses["reason"] == "no_item"])
    assert set(values["instance_of"][values["class_id"] == "Q8502"]) == {"Q8502"}


@pytest.mark.parametrize("damage", [{"claims": None}, {"labels": None}])
def test_a_damaged_entity_is_not_a_missing_one(damage: dict[str, Any], dumps: Dumps) -> None:
    entities = {key: {**entity, **damage} for key, entity in dumps.document["entities"].items()}
    dumps.write(entities=entities)
    with pytest.raises(InvalidData, match=r"all\.json: entity Q\d+ is damaged; download"):
        dumps.bring()


def test_an_item_of_a_page_that_is_no_item_id_is_refused(dumps: Dumps) -> None:
    path = dumps.files["page_props"]
    text = path.read_text("utf-8").replace("'wikibase_item','Q", "'wikibase_item','X")
    path.write_text(text, "utf-8")
    with pytest.raises(InvalidData, match=r"props\.sql: .* expected an id such as Q243"):
        dumps.bring()


def test_a_dump_without_revisions_gives_revision_0(dumps: Dumps) -> None:
    entities = {
        key: {name: cell for name, cell in entity.items() if name != "lastrevid"}
        for key, entity in dumps.document["entities"].items()
    }
    dumps.write(entities=entities)
    values, _ = dumps.bring()
    assert set(values["revision"]) == {0}


def test_texts_that_look_like_rows_are_texts(tmp_path: Path, document: Document) -> None:
    page = write_dumps(document, tmp_path)["page"]
    assert describe_table(page)[0] == "page"
    rows = list(read_rows(page, ("page_title", "page_id"), "x"))
    assert (text_of(rows[-2][0]), rows[-2][1]) == (DECOY, b"2")
    assert len(rows) == len(document["pages"]) + len(document["redirects"]) + 3


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    text = (
        "CREATE TABLE `t` (\n  `b` int,\n  `a` text\n);\nINSERT INTO `t` VALUES (1,'x'),(2,'');\n"
    )
    (tmp_path / "t.sql").write_text(text)
    assert list(read_rows(tmp_path / "t.sql", ("a", "b"), "x")) == [(b"'x'", b"1"), (b"''", b"2")]
    assert list(read_rows(tmp_path / "t.sql", ("b",), "x")) == [(b"1",), (b"2",)]
    with pytest.raises(InvalidData, match="has no column c; it has b, a"):
        list(read_rows(tmp_path / "t.sql", ("c",), "x"))


def test_rows_on_lines_of_their_own_are_read_as_mariadb_writes_them(tmp_path: Path) -> None:
    head = "CREATE TABLE `t` (\n  `b` int,\n  `a` text\n);\n"
    rows = "INSERT INTO `t` VALUES\n(1,'x;'),\n(2,'O\\'Hara');\n"
    (tmp_path / "t.sql").write_text(f"{head}{rows}UNLOCK TABLES;\n{rows}")
    found = [(b"1", b"'x;'"), (b"2", rb"'O\'Hara'")]
    assert list(read_rows(tmp_path / "t.sql", ("b", "a"), "x")) == found * 2
    for cut in (rows[:23], rows[:27], rows[:32], rows[:-3], rows[:-5]):
        (tmp_path / "t.sql").write_text(head + rows + cut)
        with pytest.raises(InvalidData, match="an INSERT is cut"):
            list(read_rows(tmp_path / "t.sql", ("b",), "x"))


def test_newer_dumps_are_read_from_the_start(dumps: Dumps) -> None:
    dumps.bring("sitelinks")
    left = {key: entity for key, entity in dumps.document["entities"].items() if key != "Q8502"}
    dumps.write(entities=left)
    with heard() as notes:
        values, _ = dumps.bring("sitelinks")
    assert "the dumps are not those of before; they are read from the start" in notes[0]
    assert set(values["instance_of"][values["class_id"] == "Q8502"]) == {"Q8502"}


def test_lines_of_another_shape_are_read_too(tmp_path: Path) -> None:
    lines = ["[", '{"id":"Q1","type":"item"},', '{"type":"item","id":"Q2"}', "]"]
    (tmp_path / "a.json").write_text("\n".join(lines))
    found = dict(read_entities(tmp_path / "a.json", {"Q1", "Q2"}, "x"))
    assert set(found) == {"Q1", "Q2"}


def test_an_item_is_known_by_its_id_where_a_filter_left_out_its_type(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"id":"Q1","claims":{}}\n{"id":"P31","claims":{}}\n')
    assert [key for key, _ in read_entities(tmp_path / "a.ndjson", {"Q1", "P31"}, "x")] == ["Q1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[\n{"type":"item","id":"Q1"},\n{"type":"item","id":"Q2","la', "a line is not an entity"),
        ('{"entities":{"Q1":{"type":"item","id":"Q1"}}}', "a line is not an entity"),
        ('[\n{"type":"lexeme","id":"L1"}\n]\n', "no item in it; expected a JSON dump"),
        ("", "no item in it; expected a JSON dump"),
        ('{"type":"item","id":"Q1","labels":{"en":"fox"}}\n', "its entities are simplified"),
    ],
)
def test_a_file_in_which_items_would_be_missed_is_refused(
    text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "all.json").write_text(text)
    with pytest.raises(InvalidData, match=rf"all\.json: {message}"):
        list(read_entities(tmp_path / "all.json", {"Q9"}, "x"))


@pytest.mark.parametrize("ending", [".gz", ".bz2"])
def test_a_file_that_is_cut_short_is_told(ending: str, tmp_path: Path, document: Document) -> None:
    path = write_dumps(document, tmp_path, ending)["entities"]
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InvalidData, match=r"all\.json.* is cut short or damaged"):
        list(read_entities(path, {"Q1"}, "x"))


def test_files_that_are_no_dumps_are_told(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("<html>404</html>")
    with pytest.raises(InvalidData, match="no CREATE TABLE in it"):
        describe_table(tmp_path / "x")
    with pytest.raises(InvalidData, match="expected a JSON dump of Wikidata"):
        list(read_entities(tmp_path / "x", set(), "x"))
    (tmp_path / "cut.sql").write_text(
        "CREATE TABLE `t` (\n  `b` int\n);\nINSERT INTO `t` VALUES (1"
    )
    with pytest.raises(InvalidData, match="an INSERT is cut"):
        list(read_rows(tmp_path / "cut.sql", ("b",), "x"))
    (tmp_path / "cut.sql").write_text(
        "CREATE TABLE `t` (\n  `b` int\n);\nINSERT INTO `t` VALUES 1);\n"
    )
    with pytest.raises(InvalidData, match="an INSERT is cut"):
        list(read_rows(tmp_path / "cut.sql", ("b",), "x"))


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        ({"dump_items": None}, r"scrape\.dump_items is not set"),
        ({"dump_entities": None}, r"scrape\.dump_entities is not set"),
        ({"dump_pages": None}, r"scrape\.dump_pages is not set; page_props\.sql names pages"),
    ],
)
def test_what_is_not_set_is_told(gone: dict[str, None], message: str, dumps: Dumps) -> None:
    with pytest.raises(UsageError, match=message):
        dumps.bring(**gone)


def test_a_dump_of_another_table_is_told(dumps: Dumps) -> None:
    with pytest.raises(InvalidData, match="holds table redirect; expected page_props or"):
        dumps.bring("redirect")


def test_a_packed_line_without_an_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_pages, "BLOCK", 1 << 16)
    monkeypatch.setattr(dump_pages, "LONGEST_LINE", 1 << 20)
    path = tmp_path / "all.json.gz"
    path.write_bytes(gzip.compress(b"[" + bytes(1 << 22)))
    with pytest.raises(InvalidData, match=r"all\.json\.gz: a line has more than 1 MB"):
        list(dump_pages.read_blocks(path, "x"))
