import os
import re
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hgld.errors import HgldError, Resumable, UsageError
from hgld.hierarchy.scrape.answers import Item, Page, Statement, WikiClass
from hgld.hierarchy.scrape.route import Redirect
from hgld.hierarchy.scrape.store import FactStore, open_store
from tests.listening import heard
from tests.sources.small_disk import small_disk

ITEM = Item("Q2", 7, (Statement(0, "Q16970", "normal", "{}"),), "Q3")


def test_facts_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "state" / "scrape.sqlite"
    with open_store(path, "wiki") as store:
        store.add({"Category:A": Page("Q1"), "Category:B": Page("", "no_page", "é")})
        store.add({"Category:C": Redirect("Category:A"), "Q1": ITEM})
        store.add({"Q16970": WikiClass("Q16970", "church building")})
    with open_store(path, "wiki") as store:
        assert store.load(Page, ["Category:B", "Category:X"]) == {
            "Category:B": Page("", "no_page", "é")
        }
        assert store.load(Redirect, ["Category:C"]) == {"Category:C": Redirect("Category:A")}
        assert store.load(Item, ["Q1", "Q16970"]) == {"Q1": ITEM}
        assert store.load(WikiClass, ["Q16970"])["Q16970"].label == "church building"


def test_many_keys_are_looked_up_at_once(tmp_path: Path) -> None:
    keys = [f"Category:{i}" for i in range(5000)]
    with open_store(tmp_path / "s", "wiki") as store:
        store.add({key: Page("Q1") for key in keys})
        assert len(store.load(Page, keys)) == 5000


def test_what_another_server_on_this_machine_said_is_forgotten(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", "127.0.0.1 127.0.0.1 one world") as store:
        store.add({"Category:A": Page("Q1")})
    with open_store(tmp_path / "s", "127.0.0.1 127.0.0.1 another") as store:
        assert store.load(Page, ["Category:A"]) == {}


def test_what_a_server_elsewhere_said_is_not_thrown_away_for_another(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", "commons.example wikidata.example") as store:
        store.add({"Category:A": Page("Q1")})
    with (
        pytest.raises(UsageError, match=r"holds what commons\.example wikidata\.example said"),
        open_store(tmp_path / "s", "commons.example test.example"),
    ):
        pass
    with open_store(tmp_path / "s", "commons.example wikidata.example") as store:
        assert store.load(Page, ["Category:A"]) == {"Category:A": Page("Q1")}


def test_a_store_of_another_version_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("hgld.hierarchy.scrape.store.VERSION", 0)
        with open_store(tmp_path / "s", "wiki") as store:
            store.add({"A": Page("Q1")})
    with open_store(tmp_path / "s", "wiki") as store:
        assert store.load(Page, ["A"]) == {}


def test_a_batch_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", "wiki") as store:
        with pytest.raises(TypeError):
            store.add({"A": Page("Q1"), "B": Page(detail=object())})  # type: ignore[arg-type]
        assert store.load(Page, ["A"]) == {}


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("no database, but a text that is long enough to look like one " * 9)
    with (
        pytest.raises(HgldError, match="delete the file to start the scrape over"),
        open_store(tmp_path / "s", "wiki"),
    ):
        pass


def test_a_full_disk_is_a_resumable_stop_that_keeps_what_is_there(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", "wiki") as store:
        store.add({"A": Page("Q1")})
        store._connection.execute("PRAGMA max_page_count = 1")
        with pytest.raises(Resumable, match="the disk is full; make space and run the same"):
            store.add({f"{i}": Page(detail="x" * 1000) for i in range(100)})
        assert store.load(Page, ["A", "0"]) == {"A": Page("Q1")}
        store._connection.execute("PRAGMA max_page_count = 100000")
        store.add({"0": Page("Q2")})
        assert store._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("pages", [2, 6, 8, 14])
def test_a_disk_that_is_full_from_the_start_is_told_as_full(tmp_path: Path, pages: int) -> None:
    with (
        small_disk(tmp_path / "disk", pages << 12),
        pytest.raises(Resumable, match="the disk is full; make space and run the same"),
        open_store(tmp_path / "disk" / "s", "wiki") as store,
    ):
        store.add({f"{i}": Page(detail="x" * 1000) for i in range(100)})


def test_every_batch_is_synced_to_the_disk(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", "wiki") as store:
        modes = [store._connection.execute(f"PRAGMA {p}").fetchone()[0]
                 for p in ("journal_mode", "synchronous")]  # fmt: skip
    assert modes == ["wal", 2]  # 2: FULL


@pytest.fixture
def aged(tmp_path: Path) -> FactStore:
    """A store with a fact of now, one of ten days ago, and one of a hundred."""
    with open_store(tmp_path / "aged.sqlite", "wiki") as store:
        store.add({key: Page("Q1") for key in ("now", "ten", "hundred")})
        for key, days in (("ten", 10), ("hundred", 100)):
            then = int(time.time()) - days * 86400
            store._connection.execute("UPDATE facts SET retrieved = ? WHERE key = ?", (then, key))
        store._connection.commit()
        yield store


@pytest.mark.parametrize(
    ("days", "left"), [(365, {"now", "ten", "hundred"}), (30, {"now", "ten"}), (5, {"now"})]
)
def test_what_is_older_than_so_many_days_counts_as_unknown(
    days: int, left: set[str], aged: FactStore
) -> None:
    aged.outdate_older(days)
    assert aged.load(Page, ["now", "ten", "hundred"]).keys() == left


def test_an_outdated_fact_stays_until_a_new_one_takes_its_place(aged: FactStore) -> None:
    aged.outdate({Page: ["ten", "hundred"]})
    assert aged.is_outdated()
    aged.add({"ten": Page("Q9"), "hundred": Page("Q8")})
    assert not aged.is_outdated()
    assert aged.load(Page, ["ten"]) == {"ten": Page("Q9")}


def test_outdated_facts_that_nobody_asks_for_can_be_let_go(aged: FactStore) -> None:
    aged.outdate({Page: ["ten"]})
    aged.forget_outdated()
    assert not aged.is_outdated()
    assert aged.load(Page, ["now", "ten"]).keys() == {"now"}


HOLDER = """
import sys, time
from pathlib import Path
from hgld.hierarchy.scrape.store import open_store
with open_store(Path(sys.argv[1]), "wiki"):
    print("open", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_told_who_is_there_and_a_killed_one_does_not_block(
    tmp_path: Path,
) -> None:
    path = tmp_path / "scrape.sqlite"
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        who = rf"at work on it \(process {holder.pid} on .+ since \d{{4}}-.+\); wait for it"
        with pytest.raises(HgldError, match=who) as raised, open_store(path, "wiki"):
            pass
        assert "\n" not in str(raised.value)
        holder.kill()
    with open_store(path, "wiki") as store:
        store.add({"A": Page("Q1")})
        named = (tmp_path / "scrape.lock").read_text()
    assert re.match(rf"process {os.getpid()} on ", named)


def cells(path: Path, question: str, *values: object) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    with connection:
        found = connection.execute(question, values).fetchall()
    connection.close()
    return found


def test_every_changed_bit_of_a_fact_is_noticed_and_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with open_store(path, "wiki") as store:
        store.add({"Q1": ITEM})
    ((text, digest),) = cells(path, "SELECT fact, digest FROM facts")
    flipped = [
        (f"Q{i}", text[:i] + chr(ord(text[i]) ^ 1) + text[i + 1 :], digest)
        for i in range(len(text))
    ]
    with sqlite3.connect(path) as connection:
        insert = "INSERT OR REPLACE INTO facts VALUES ('Item', ?, ?, 0, ?, 0)"
        connection.executemany(insert, flipped)
    connection.close()
    cells(path, "INSERT INTO facts VALUES ('Item', 'Q999', ?, 0, ?, 0)", text, digest)  # another's
    cells(path, "INSERT INTO facts VALUES ('Item', 'Q998', CAST(x'ff' AS TEXT), 0, ?, 0)", digest)
    with heard() as said, open_store(path, "wiki") as store:
        assert store.load(Item, [f"Q{i}" for i in range(1000)]) == {}
    assert said == [f"{path}: {len(text) + 2} damaged facts, asked for again"]
    assert cells(path, "SELECT count(*) FROM facts") == [(0,)]


@pytest.mark.parametrize("place", range(0, 31, 3))
def test_a_store_with_a_damaged_name_is_refused_and_not_started_over(
    place: int, tmp_path: Path
) -> None:
    with open_store(tmp_path / "s", "a.example b.example") as store:
        store.add({"A": Page("Q1")})
    ((about,),) = cells(tmp_path / "s", "SELECT server FROM about")
    damaged = about[:place] + chr(ord(about[place]) ^ 1) + about[place + 1 :]
    cells(tmp_path / "s", "UPDATE about SET server = ?", damaged)
    with (
        pytest.raises(HgldError, match=r"is damaged; delete the file to start the scrape over"),
        open_store(tmp_path / "s", "a.example b.example"),
    ):
        pass
    assert cells(tmp_path / "s", "SELECT key FROM facts") == [("A",)]
