"""Three people decide at once: two on the page of a server, one on a sheet in a branch of git.

300 decisions, 20 conflicts, two kills of the server, an old sheet and a merge of two branches; at
the end every decision is accounted for. Two minutes on one core.
"""

import csv
import json
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pandas as pd
import pytest

from tests.hierarchy.test_review_live import Colleague, rows_of, serving
from tests.hierarchy.test_review_page import Road, hgld, hgld_without_date
from tests.rehearsal.test_review_size import PIPELINE, write

# the word of a value says who decides it: "first" and "second" both while the server is killed,
# "old" Ben and an old sheet, "git" Ann and a branch
VALUES = {"ann": 110, "ben": 110, "cy": 40, "first": 5, "second": 5, "old": 5, "git": 5}
LABELS = [f"{word} thing {n}" for word, count in VALUES.items() for n in range(count)]
DECISIONS, CONFLICTS = 300, 20


def git(folder: Path, *words: str) -> None:
    own = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run(["git", "-C", folder, *own, *words], check=True, capture_output=True)


@pytest.fixture
def made(folder: Path) -> Road:
    """A pipeline that waits for its review, in a repository."""
    home = folder / "home"
    (home / "labels").mkdir(parents=True)
    shutil.copy("labels/gldv2/taxonomy.csv", home / "labels")
    text = PIPELINE.replace("clusters = 150", "clusters = 12").replace('who = "a person"', "")
    (home / "toy.toml").write_text(text)
    ids = range(len(LABELS))
    table = pd.DataFrame({"landmark_id": ids, "supercategory": LABELS})
    table.to_csv(home / "words.csv", index=False)
    # a search finds names of places, and of clusters, which are labels: so places have their own
    names = [f"place-of-{label}" for label in LABELS]
    places = table.assign(split="train", name=names, commons_url="")
    write(home, "landmarks", places[["split", "landmark_id", "name", "commons_url"]])
    write(home, "images", pd.DataFrame(columns=_columns("images")))
    road = Road(home)
    for verb in ("scrape", "clean", "embed", "cluster", "review"):
        done = hgld(verb, *road.at)
        assert done.returncode in (0, 20), done.stderr
    (home / ".gitattributes").write_text("labels/*.csv merge=union\n")
    (home / ".gitignore").write_text("work/\nlabels/.lock\n")
    git(home, "init", "-q", "-b", "main")
    (home / "labels" / "decisions.csv").write_text(_header())
    git(home, "add", ".")
    git(home, "commit", "-qm", "start")
    return road


def _columns(name: str) -> list[str]:
    from hgld.artifacts import columns_of

    return columns_of(name)


def _header() -> str:
    return ",".join(_columns("decisions")) + "\n"


def fill(sheet: Path, copy: Path, words: Sequence[str]) -> None:
    """A copy of a sheet in which the values of some words are unsure."""
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if row["instance_of"].split()[0] in words:
            row["decision"] = "unsure"
    with copy.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def decide(person: Colleague, word: str, key: str, count: int) -> None:
    """Search a word, and press a key so often; on a value that is decided so it does nothing."""
    person.press("/")
    person.view.fill("#search", f"place-of-{word}")
    person.press("Enter", *[key] * count)


def account(road: Road) -> Counter[tuple[str, str, str]]:
    """How often each person has said what of each word."""
    return Counter((row["who"], row["key"].split()[0], row["decision"]) for row in rows_of(road))


@pytest.mark.rehearsal
def test_three_people_two_kills_and_a_merge_lose_no_decision(
    made: Road, chromium: Any, folder: Path
) -> None:
    shutil.copy(made.work / "review.csv", folder / "first.csv")
    clone = Road(folder / "clone")
    git(folder, "clone", "-q", str(made.folder), str(clone.folder))
    git(clone.folder, "checkout", "-qb", "cy")
    shutil.copytree(made.work, clone.work)
    fill(folder / "first.csv", folder / "cy.csv", ["cy", "git"])
    done = hgld("review", *clone.at, str(folder / "cy.csv"), "--apply", "--set", "review.who=Cy")
    assert "45 decisions added" in done.stderr, done.stderr
    git(clone.folder, "commit", "-qam", "decisions of Cy")

    with serving(made) as first:
        port = urlsplit(first.url).port or 0
        ann, ben = (Colleague(chromium, first.url, name) for name in ("Ann", "Ben"))
        decide(ann, "ann", "d", 60)
        decide(ben, "ben", "d", 60)
        first.end(signal.SIGKILL)  # while decisions are on their way
        decide(ann, "first", "d", 6)
        decide(ben, "first", "u", 6)
    with serving(made, port) as second:
        settle(ann, ben)
        decide(ann, "ann", "d", 55)
        decide(ben, "ben", "d", 55)
        decide(ben, "old", "d", 6)
        second.end(signal.SIGKILL)
        decide(ann, "second", "d", 6)
        decide(ben, "second", "u", 6)
    with serving(made, port) as third:
        settle(ann, ben)
        fill(folder / "first.csv", folder / "late.csv", ["old"])
        late = [str(folder / "late.csv"), "--apply", "--yes", "--set", "review.who=Cy"]
        assert "5 values decided differently" in hgld("review", *made.at, *late).stderr
        decide(ann, "git", "d", 6)
        settle(ann, ben)
        git(made.folder, "commit", "-qam", "decisions of Ann and Ben")
        git(made.folder, "pull", "-q", "--no-rebase", "--no-edit", str(clone.folder), "cy")

        said = account(made)
        assert said == {
            ("Ann", "ann", "drop"): 110, ("Ann", "first", "drop"): 5, ("Ann", "second", "drop"): 5,
            ("Ann", "git", "drop"): 5, ("Ben", "ben", "drop"): 110, ("Ben", "old", "drop"): 5,
            ("Ben", "first", "unsure"): 5, ("Ben", "second", "unsure"): 5,
            ("Cy", "cy", "unsure"): 40, ("Cy", "git", "unsure"): 5, ("Cy", "old", "unsure"): 5,
        }  # fmt: skip
        assert said.total() == DECISIONS
        for person in (ann, ben):
            person.saw(f".chip:has-text('conflict') small:text-is('{CONFLICTS}')")
        ann.view.click(".chip:has-text('conflict')")
        for left in range(CONFLICTS, 0, -1):
            ann.saw(f".chip:has-text('conflict') small:text-is('{left}')")
            ann.view.fill("#search", "place" if left % 2 else "")  # lists what is still in conflict
            ann.view.locator(".row:has(.dot.conflict)").first.click()
            ann.view.click(".sides div:has-text('drop') >> text=Take this")
        ben.saw("#statuses:not(:has-text('conflict'))")
        settle(ann, ben)
        code, errors = third.end()
        assert code == 20 and "conflict" not in errors, errors
    assert len(rows_of(made)) == DECISIONS + CONFLICTS
    log = json.loads(hgld_without_date("reviews", "log", *made.at, "--json").stdout)
    made_by = Counter((entry["source"], entry["who"]) for entry in log)
    sheets = {("cy.csv", "Cy"): 1, ("late.csv", "Cy"): 1}
    assert made_by == {("page", "Ann"): 1, ("page", "Ben"): 1, **sheets}  # a sitting is an entry
    assert sum(sum(entry["counts"].values()) for entry in log) == DECISIONS + CONFLICTS
    with (made.work / "review.csv").open(encoding="utf-8-sig", newline="") as file:
        final = Counter(
            (row["instance_of"].split()[0], row["decision"]) for row in csv.DictReader(file)
        )
    assert final == {(word, "unsure" if word == "cy" else "drop"): n for word, n in VALUES.items()}


def settle(ann: Colleague, ben: Colleague) -> None:
    """Wait until both pages have sent everything."""
    for person in (ann, ben):
        person.view.wait_for_selector(
            '#people[title*="all saved"]', state="attached", timeout=120_000
        )
        person.saw("#away[hidden]")
