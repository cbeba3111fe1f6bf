from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from hgld.hierarchy.scrape.answers import Item, Page, Statement
from hgld.hierarchy.scrape.crawl import AT_ONCE, Crawl
from hgld.hierarchy.scrape.route import Fact, Redirect
from hgld.hierarchy.scrape.store import MOST_AT_HAND, Facts, Trail, open_store


class Server:
    """Two titles an item, every tenth title over a soft redirect; notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[type[Fact], list[str]]] = []

    def __call__(self, kind: type[Fact], keys: Sequence[str]) -> Mapping[str, Fact]:
        self.asked.append((kind, list(keys)))
        return {key: self._answer(kind, key) for key in keys}

    def _answer(self, kind: type[Fact], key: str) -> Fact:
        if kind is Redirect:
            return Redirect(f"{key} (moved)")
        if kind is Item:
            return Item(key, 1, (Statement(0, f"Q1{key[1:]}", "normal", "{}"),))
        number = int(key.split()[0])
        softly = number % 10 == 0 and not key.endswith("(moved)")
        return Page(moved_softly=True) if softly else Page(f"Q{1 + number // 2}")

    def keys(self, kind: type[Fact]) -> list[str]:
        return [key for asked, keys in self.asked if asked is kind for key in keys]


def crawl(path: Path, titles: Sequence[str], server: Server) -> tuple[list[str], set[str]]:
    """The titles in the order in which they were done, and the classes."""
    with open_store(path, "wiki") as store:
        found = Crawl(Facts(store), server, 50, True)
        return list(found.run(titles)), found.classes


TITLES = [f"{i:04}" for i in range(1234)]


def test_every_title_is_done_once_and_every_key_asked_for_once(tmp_path: Path) -> None:
    server = Server()
    done, classes = crawl(tmp_path / "s", TITLES, server)
    assert sorted(done) == TITLES
    assert classes == {f"Q1{1 + i // 2}" for i in range(1234)}
    for kind, number in ((Page, 1234 + 124), (Redirect, 124), (Item, 617)):
        keys = server.keys(kind)
        assert (len(keys), len(set(keys))) == (number, number)


def test_all_batches_are_full_but_the_last_ones(tmp_path: Path) -> None:
    server = Server()
    crawl(tmp_path / "s", TITLES, server)
    sizes = [len(keys) for _, keys in server.asked]
    first_partial = next(i for i, size in enumerate(sizes) if size < 50)
    assert len(sizes) - first_partial <= 5
    assert len(sizes) <= 28 + 3 + 13 + 3  # as many as are full, and a rest of each kind


def test_landmarks_get_done_on_the_way_and_not_only_at_the_end(tmp_path: Path) -> None:
    server = Server()
    with open_store(tmp_path / "s", "wiki") as store:
        for number, _ in enumerate(Crawl(Facts(store), server, 50, True).run(TITLES), 1):
            assert len(server.keys(Page)) - number <= 4 * 50 + 124  # few are under way


def test_what_is_known_is_not_asked_for_again(tmp_path: Path) -> None:
    crawl(tmp_path / "s", TITLES[:700], Server())
    server = Server()
    done, classes = crawl(tmp_path / "s", TITLES, server)
    assert sorted(done) == TITLES
    assert len(classes) == 617
    assert min(server.keys(Page)) == "0700"
    assert len(server.keys(Item)) == 617 - 350


def test_a_way_that_was_left_in_its_middle_is_gone_on_from_there(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", "wiki") as store:
        store.add({"0010": Page(moved_softly=True)})
    server = Server()
    crawl(tmp_path / "s", ["0010"], server)
    assert [(kind.__name__, keys) for kind, keys in server.asked] == [
        ("Redirect", ["0010"]),
        ("Page", ["0010 (moved)"]),
        ("Item", ["Q6"]),
    ]


def test_what_is_let_go_of_is_still_known(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", "wiki") as store:
        facts = Facts(store)
        facts.add({"A": Page("Q1")})
        facts.preload(f"{i}" for i in range(MOST_AT_HAND + AT_ONCE))
        facts.preload(["B"])
        assert facts.get(Page, "A") == Page("Q1")
        assert facts.get(Page, "B") is None


def test_a_trail_remembers_what_was_looked_at(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", "wiki") as store:
        trail = Trail(Facts(store))
        assert trail.get(Page, "A") is None
        assert trail.keys == [(Page, "A")]


@pytest.mark.parametrize("size", [0, 1, 49, 50, 51])
def test_any_number_of_titles_will_do(size: int, tmp_path: Path) -> None:
    done, _ = crawl(tmp_path / "s", TITLES[1 : 1 + size], Server())
    assert len(done) == size
