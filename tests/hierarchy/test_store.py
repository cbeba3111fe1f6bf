from pathlib import Path

import pytest

from hgld.errors import HgldError, Resumable
from hgld.hierarchy.answers import Item, Page, Statement, WikiClass
from hgld.hierarchy.store import open_store

ITEM = Item("Q2", 7, (Statement(0, "Q16970", "normal", "{}"),), "Q3")


def test_facts_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "state" / "scrape.sqlite"
    with open_store(path, "wiki") as store:
        store.add({"Category:A": Page("Q1"), "Category:B": Page(reason="no_page", detail="é")})
        store.add({"Q1": ITEM})
        store.add({"Q16970": WikiClass("Q16970", "church building")})
    with open_store(path, "wiki") as store:
        assert store.pages()["Category:B"] == Page("", "no_page", "é")
        assert store.items() == {"Q1": ITEM}
        assert store.classes()["Q16970"].label == "church building"


def test_what_another_server_said_is_forgotten(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", "wiki") as store:
        store.add({"Category:A": Page("Q1")})
    with open_store(tmp_path / "s", "another wiki") as store:
        assert store.pages() == {}


def test_a_batch_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", "wiki") as store:
        with pytest.raises(TypeError):
            store.add({"A": Page("Q1"), "B": Page(detail=object())})  # type: ignore[arg-type]
        assert store.pages() == {}


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
        with pytest.raises(Resumable, match="database or disk is full"):
            store.add({f"{i}": Page(detail="x" * 1000) for i in range(100)})
        assert list(store.pages()) == ["A"]
