"""Two curators apply sheets at the same moment, a hundred times; no decision is lost."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hgld.artifacts import declared_table
from hgld.hierarchy.decisions import Decided
from tests.cli.test_reviews import desk, made  # noqa: F401  the fixture and what it is made from

pytestmark = pytest.mark.rehearsal
RACES = 100


class Curator:
    """A process that applies sheets from its own work folder."""

    def __init__(self, folder: Path, name: str) -> None:
        work = Path(shutil.copytree(folder / "work", folder / f"work-{name}"))
        words = ["-m", "tests.rehearsal.review_race", folder / "pipeline.toml", work, name]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, *words], text=True, **pipes)

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def test_of_a_hundred_races_no_decision_is_lost(desk: Path) -> None:  # noqa: F811
    ann, ben = curators = [Curator(desk, name) for name in ("ann", "ben")]
    path, table = desk / "labels" / "decisions.csv", declared_table("decisions")
    before, conflicts = b"", 0
    for race in range(RACES):
        # from one base both decide chapel in even races, and Ann settles it alone in odd ones
        place, both = ("drop", "restaurant")[race % 2], race % 2 == 0
        wanted = [{"inn": place, "chapel": "lake" if both else "church"}, {"pub": place}]
        wanted[1] |= {"chapel": "restaurant"} if both else {}
        for curator, places in zip(curators, wanted, strict=True):
            curator.tell(json.dumps(places))
        assert [curator.hear() for curator in curators] == ["ready"] * 2
        for curator in curators:
            curator.tell("go")
        done = [json.loads(curator.hear()) for curator in curators]
        assert all(
            kinds.keys() >= places.keys() for kinds, places in zip(done, wanted, strict=True)
        )
        now = path.read_bytes()
        rows = table.read(path)
        assert now.startswith(before) and "unchanged" not in {done[0]["inn"], done[1]["pub"]}
        assert now.count(b"\n") - before.count(b"\n") == sum(map(len, wanted)) + (not before)
        decided = Decided(rows)
        for value in ("inn", "pub"):
            found = decided.find("", value)
            assert found is not None and place in (found.decision, found.supercategory)
        chapel = decided.find("", "chapel")
        assert chapel is not None and {d.who for d in chapel.sides} == (
            {"ann", "ben"} if both else {"ann"}
        )
        conflicts += bool(chapel.rivals)
        before = now
    for curator in (ann, ben):
        curator.process.communicate()
        assert curator.process.returncode == 0
    assert conflicts == RACES / 2
    print(f"{RACES} races, {len(rows)} decisions, {conflicts} conflicts, none lost")
