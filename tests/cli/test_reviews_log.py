"""Conflicts, log, undo and redo of decisions, through the command line and a merge in git."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import in_process
from tests.cli.test_reviews import (
    decide,
    decided,
    desk,  # noqa: F401  the fixture and what it is made from
    fill,
    fill_clusters,
    hgld,
    made,  # noqa: F401
    rows_of,
    sheet_of,
    tool,
)
from tests.in_process import Printed

UNSURE = "label,unsure,,,c,2026-01-01,,\n"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(desk: Path) -> Iterator[Path]:  # noqa: F811
    yield desk


def apply(folder: Path, **values: str) -> None:
    """Decide in the sheet of the work folder and apply it."""
    decide(folder, values)


def of_work(folder: Path, name: str, *words: object) -> Printed:
    """Run a tool that takes no date on the work folder."""
    return tool(name, folder / "pipeline.toml", "--work", folder / "work", *words)


def log(folder: Path) -> list[dict[str, Any]]:
    return json.loads(of_work(folder, "log", "--json").out)


def test_each_apply_is_an_entry_that_is_undone_and_redone_whole(folder: Path) -> None:
    apply(folder, inn="drop", pub="restaurant")
    apply(folder, inn="restaurant", chapel="church")
    first, second = log(folder)
    assert first["counts"] == {"drop": 1, "keep": 1} and first["source"] == "review.csv"
    assert (second["number"], second["who"], second["when"]) == (2, "a person", "2026-11-21")
    hgld(folder, "reviews", "undo", "--apply", "2")
    assert decided(folder) == {"inn": "drop", "pub": "restaurant", "chapel": "open"}
    hgld(folder, "reviews", "redo")
    assert decided(folder) == {"inn": "restaurant", "pub": "restaurant", "chapel": "church"}
    assert [entry["source"] for entry in log(folder)][2:] == ["undo", "redo"]


def test_sure_suggestions_are_accepted_as_an_entry_that_is_undone_alone(folder: Path) -> None:
    apply(folder, inn="drop")
    before = decided(folder)
    names = folder / "labels" / "taxonomy.csv"
    names.write_text(names.read_text("utf-8") + "pub,human-made,\n", "utf-8")
    hgld(folder, "review", "--accept-sure", "0.9", code=20)
    entry = log(folder)[-1]
    _, *accepted = rows_of(folder / "labels" / "decisions.csv")
    assert (entry["source"], entry["counts"]) == ("sure", {"keep": len(accepted)})
    assert "pub" in [row["key"] for row in accepted if row["key"] == row["supercategory"]]
    assert all(re.fullmatch(r"accepted at 9\d %: its own name", row["why"]) for row in accepted)
    hgld(folder, "reviews", "undo", "--apply", "2")
    assert decided(folder) == before | {row["key"]: "open" for row in accepted}


def test_suggestions_are_accepted_only_beside_applied_sheets(folder: Path) -> None:
    fill(folder / "work" / "review.csv", {"church": "drop"})
    done = hgld(folder, "review", "--accept-sure", "0.9", code=2)
    assert "review.csv: holds edits that are not applied; add --apply" in done.err
    hgld(folder, "review", "--apply", "--accept-sure", "0.9", code=20)
    assert decided(folder)["church"] == "drop"
    assert [entry["source"] for entry in log(folder)] == ["review.csv", "sure"]


@pytest.mark.parametrize("words", [["2"], ["0"], ["0.9", "--dry-run", "--apply"]])
def test_accepting_needs_a_probability(folder: Path, words: list[str]) -> None:
    done = hgld(folder, "review", "--accept-sure", *words, code=2)
    assert "expected a probability above 0" in done.err


def test_only_what_is_still_in_force_is_taken_back_and_the_rest_is_named(folder: Path) -> None:
    apply(folder, inn="drop", pub="restaurant")
    apply(folder, inn="restaurant")
    (first, _) = log(folder)
    done = hgld(folder, "reviews", "undo", "--apply", str(first["id"]))
    assert "changed since, stays as it is: inn" in done.err
    assert decided(folder) == {"inn": "restaurant", "pub": "open"}
    done = hgld(folder, "reviews", "undo", "--apply", str(first["id"]), code=3)
    assert "nothing of entry 1" in done.err


def test_three_undos_are_made_good_by_three_redos(folder: Path) -> None:
    for place in ("church", "restaurant", "drop"):
        apply(folder, inn=place)
    seen = []
    for verb in ("undo", "undo", "undo", "redo", "redo", "redo"):
        hgld(folder, "reviews", verb, "inn")
        seen.append(decided(folder)["inn"])
    assert seen == ["restaurant", "church", "open", "church", "restaurant", "drop"]
    done = hgld(folder, "reviews", "redo", "inn", code=3)
    assert "no decision on 'inn' was taken back" in done.err
    hgld(folder, "reviews", "undo", "inn")
    hgld(folder, "reviews", "undo", "inn")
    assert decided(folder)["inn"] == "church"
    for expected in ("restaurant", "drop"):
        hgld(folder, "reviews", "redo")
        assert decided(folder)["inn"] == expected
    assert "no undo is left" in hgld(folder, "reviews", "redo", code=3).err


def test_redo_takes_back_undos_only_and_a_key_counts_once(folder: Path) -> None:
    apply(folder, inn="drop")
    done = hgld(folder, "reviews", "redo", "--apply", "1", code=2)
    assert "entry 1" in (said := done.err) and "is no undo" in said
    assert decided(folder) == {"inn": "drop"}
    assert "1 decision taken back" in hgld(folder, "reviews", "undo", "inn", "inn").err
    assert len(rows_of(folder / "labels" / "decisions.csv")) == 2


def test_edits_of_clusters_are_undone_with_their_entry(folder: Path) -> None:
    before = {row["instance_of"]: row["cluster"] for row in sheet_of(folder)}
    into = before["lake"]
    fill(folder / "work" / "review.csv", {"lake": "lake"})
    merge = {"action": "merge", "into": into}
    fill_clusters(folder / "work" / "review_clusters.csv", inn=merge)
    hgld(folder, "review", "--apply", code=20)
    hgld(folder, "reviews", "undo", "--apply", "1")
    edits = rows_of(folder / "labels" / "cluster_edits.csv")
    assert [row["action"] for row in edits] == ["merge", "merge", "undo", "undo"]
    assert {row["with_key"] for row in edits[2:]} == {""}
    assert decided(folder) == {"lake": "open"}
    hgld(folder, "reviews", "redo")
    edits = rows_of(folder / "labels" / "cluster_edits.csv")
    assert [row["with_key"] for row in edits[4:]] == [row["with_key"] for row in edits[:2]]


def test_a_dry_run_prints_what_would_change_and_writes_nothing(folder: Path) -> None:
    older = shutil.copy(folder / "work" / "review.csv", folder / "older.csv")
    apply(folder, inn="drop", pub="restaurant", lake="lake")
    before = (folder / "labels" / "decisions.csv").read_bytes()
    fill(folder / "work" / "review.csv", {"chapel": "church", "church": "church", "pub": "drop"})
    merge = {"action": "merge", "into": sheet_of(folder)[0]["cluster"]}
    other = next(r for r in sheet_of(folder) if r["cluster"] != merge["into"])["instance_of"]
    fill_clusters(folder / "work" / "review_clusters.csv", **{other: merge})
    said = hgld(folder, "review", "--apply", "--dry-run").out.splitlines()
    assert said[0] == "      2 first decisions: chapel: 'keep church'; church: 'keep church'"
    assert said[1] == "      1 changed: pub: 'keep restaurant' by a person, 2026-11-21 -> 'drop'"
    assert said[2].startswith("      2 cluster merge: ") and len(said) == 3
    fill(older, {"inn": "restaurant"})
    done = hgld(folder, "review", older, "--apply", "--dry-run")
    assert done.out.startswith("      1 conflict: inn: 'drop' by a person")
    assert (folder / "labels" / "decisions.csv").read_bytes() == before
    assert not (folder / "labels" / "cluster_edits.csv").exists()
    hgld(folder, "review", "--dry-run", code=2)


def test_a_conflict_on_a_label_that_sheets_guard_has_its_sides(folder: Path) -> None:
    header = "key,key_type,decision,supercategory,kind,who,when,why,supersedes\n"
    (folder / "labels" / "decisions.csv").write_text(
        f"{header}007,label,drop,,,ann,2026-01-01,,\n007,{UNSURE}"
    )
    (row,) = json.loads(of_work(folder, "conflicts", "--json").out)
    assert (row["key"], row["instance_of"]) == ("007", "007")
    assert sorted(side["decision"] for side in row["sides"]) == ["drop", "unsure"]
    assert of_work(folder, "conflicts").out.startswith("007 007:")


def test_a_dry_run_fails_as_the_apply_would(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hgld.review.apply.MANY", 2)
    apply(folder, inn="drop", pub="restaurant")
    fill(folder / "work" / "review.csv", {"inn": "restaurant", "pub": "drop"})
    said = hgld(folder, "review", "--apply", "--dry-run", code=3)
    assert said.out.startswith("      2 changed: ") and "would change 2 of 2" in said.err
    assert all(len(line) <= 80 for line in said.out.splitlines())
    hgld(folder, "review", "--apply", "--dry-run", "--yes")
    hgld(folder, "review", "--apply", code=3)
    hgld(folder, "review", "--port", "1", code=2)


def test_keys_and_an_entry_together_are_a_usage_error(folder: Path) -> None:
    hgld(folder, "reviews", "undo", code=2)
    hgld(folder, "reviews", "undo", "inn", "--apply", "1", code=2)
    hgld(folder, "reviews", "redo", "inn", "--apply", "1", code=2)
    apply(folder, inn="drop")
    hgld(folder, "reviews", "undo", "--apply", "7", code=2)


def disagree(folder: Path) -> None:
    """Ann's older sheet decides inn otherwise than Ben did since."""
    older = shutil.copy(folder / "work" / "review.csv", folder / "older.csv")
    fill(folder / "work" / "review.csv", {"inn": "drop", "pub": "restaurant"})
    hgld(folder, "review", "--apply", "--set", "review.who=ben", code=20)
    fill(older, {"inn": "restaurant"})
    hgld(folder, "review", older, "--apply", "--set", "review.who=ann", code=20)


def test_a_conflict_is_shown_with_both_sides_and_settled_by_its_sheet(folder: Path) -> None:
    disagree(folder)
    done = tool("check", folder / "labels" / "decisions.csv", code=3)
    assert "'inn' is in conflict: 'drop' by ben" in done.err
    (row,) = json.loads(of_work(folder, "conflicts", "--json").out)
    assert {side["who"]: side["decision"] for side in row["sides"]} == {
        "ben": "drop",
        "ann": "keep",
    }
    said = of_work(folder, "conflicts", "--out", folder / "settle.csv")
    assert "'keep restaurant' by ann, 2026-11-21" in said.out
    fill(folder / "settle.csv", {"inn": "restaurant"})
    hgld(folder, "review", folder / "settle.csv", "--apply", code=20)
    tool("check", folder / "pipeline.toml")
    assert decided(folder)["inn"] == "restaurant"
    hgld(folder, "reviews", "undo", "inn")  # both sides are back
    said = of_work(folder, "conflicts")
    assert "1 value in conflict" in said.err
    assert "'keep restaurant' by a person, 2026-11-21 (as ann, 2026-11-21)" in said.out
    assert "'drop' by a person, 2026-11-21 (as ben, 2026-11-21)" in " ".join(said.out.split())
    assert "settle it" in hgld(folder, "reviews", "undo", "inn", code=3).err
    hgld(folder, "reviews", "redo", "inn")
    tool("check", folder / "pipeline.toml")


def test_faults_of_decisions_are_printed_as_json(tmp_path: Path) -> None:
    path, row = tmp_path / "decisions.csv", "label,drop,,,a,2026-01-01,,\n"
    head = "key,key_type,decision,supercategory,kind,who,when,why,supersedes\n"
    (tmp_path / "taxonomy.csv").write_text("supercategory,kind,definition\n")
    path.write_text(f"{head}inn,{row}pub,{row}\ninn,{UNSURE}")
    said = tool("check", path, "--json", code=3)
    found = json.loads(said.out)
    (fault,) = found.pop("faults")
    assert found == {"file": str(path), "rows": 3}
    assert fault["row"] == 5 and fault["fault"].startswith("'inn' is in conflict: ")
    assert f"row 5: {fault['fault']}" in said.err
    assert tool("check", "/", code=3).said.startswith("hgld: /: a folder")
    path.write_text(f"{head}inn,{row}pub,{row}")
    assert json.loads(tool("check", path, "--json").out) == {
        "file": str(path),
        "rows": 2,
        "faults": [],
    }


def test_one_side_of_a_conflict_is_taken_back_by_its_entry(folder: Path) -> None:
    disagree(folder)
    entries = log(folder)
    assert [entry["source"] for entry in entries] == ["review.csv", "older.csv"]
    hgld(folder, "reviews", "undo", "--apply", "2")
    tool("check", folder / "pipeline.toml")
    assert decided(folder) == {"inn": "drop", "pub": "restaurant"}
    hgld(folder, "reviews", "redo")
    tool("check", folder / "pipeline.toml", code=3)


def test_a_merge_of_two_branches_shows_each_contradiction(folder: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)

    def decide_on(branch: str, **places: str) -> None:
        git("checkout", "main")
        git("checkout", "-b", branch)
        work = folder / f"work-{branch}"
        shutil.copytree(folder / "work", work)
        fill(work / "review.csv", places)
        pipeline = ["review", folder / "pipeline.toml", "--apply", "--work", work]
        signed = ["--set", f"review.who={branch}", "--now", "2026-11-22"]
        in_process.hgld(*pipeline, *signed, code=20)
        git("commit", "-am", branch)

    (folder / ".gitattributes").write_text("labels/decisions.csv merge=union\n")
    (folder / ".gitignore").write_text("work*\nlabels/.lock\n")
    apply(folder, church="church", lake="lake")
    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "start")
    decide_on("ann", inn="restaurant", church="restaurant", pub="restaurant")
    decide_on("ben", inn="drop", church="drop", pub="restaurant", pond="lake")
    for first, second in (("ann", "ben"), ("ben", "ann")):
        git("checkout", "main")
        git("checkout", "-b", f"{first}-{second}")
        git("merge", first)
        git("merge", second)
        said = tool("check", folder / "pipeline.toml", code=3).err
        assert said.count("is in conflict") == 2 and "'inn'" in said and "'church'" in said
        hgld(folder, "review", code=20)
        status = {row["instance_of"]: row["status"] for row in sheet_of(folder)}
        assert {value for value, word in status.items() if word == "conflict"} == {"inn", "church"}
        assert status["pub"] == status["pond"] == status["lake"] == "decided"


def test_a_hook_of_git_stops_a_merge_with_a_conflict(folder: Path) -> None:
    def git(*words: str) -> int:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, check=False)
        return done.returncode

    head = "key,key_type,decision,supercategory,kind,who,when,why,supersedes\n"
    path, row = folder / "labels" / "decisions.csv", "label,drop,,,a,2026-01-01,,\n"
    (folder / ".gitattributes").write_text("labels/decisions.csv merge=union\n")
    path.write_text(head)
    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "start")
    hook = folder / ".git" / "hooks" / "pre-merge-commit"
    hook.write_text(f"#!/bin/sh\n{sys.executable} -m hgld reviews check labels/decisions.csv\n")
    hook.chmod(0o755)
    for branch, rows in (("ann", f"inn,{row}"), ("ben", f"pub,{row}"), ("cat", f"inn,{UNSURE}")):
        git("checkout", "-b", branch, "main")
        path.write_text(head + rows)
        git("commit", "-am", branch)
    git("checkout", "ann")
    assert git("merge", "ben") == 0
    assert git("merge", "cat") == 1


def test_a_file_of_decisions_is_checked_for_names_and_ids(tmp_path: Path) -> None:
    shutil.copy(ROOT / "labels" / "gldv2" / "taxonomy.csv", tmp_path)
    head = "key,key_type,decision,supercategory,kind,who,when,why,supersedes\n"
    (tmp_path / "decisions.csv").write_text(
        f"{head}pub,label,keep,chruch,human-made,a,2026-01-01,,\ninn,label,drop,,,a,2026-01-01,,abcdefgh\n"
    )
    said = tool("check", tmp_path / "decisions.csv", code=3).err
    assert "row 2: 'pub': supercategory 'chruch' is not in taxonomy.csv; did you mean" in said
    assert "row 3: 'inn' replaces abcdefgh, which is no row of the file" in said
    (tmp_path / "taxonomy_edits.csv").write_text(
        "entry,action,table,key,column,before,after,who,when\n"
        "e1 taxonomy,rename,taxonomy,chruch,supercategory,chruch,church,ben,2026-01-01\n"
    )
    now = "row 2: 'pub': supercategory 'chruch' is 'church' now; decide the value again"
    said = tool(
        "check", tmp_path / "decisions.csv", code=3
    )  # decided on a branch without the rename
    assert now in said.err
    rows = (f"v{i},label,drop,,,a,2026-01-01,,abcdefgh\n" for i in range(60))
    (tmp_path / "decisions.csv").write_text(head + "".join(rows))
    lines = tool("check", tmp_path / "decisions.csv", code=3).err.splitlines()
    assert "60 faults" in lines[0] and len(lines) == 52 and lines[-1].strip() == "and 10 more"


def test_the_shipped_decisions_hold_no_conflict() -> None:
    for labels in ("gldv2", "toy"):
        tool("check", ROOT / "labels" / labels / "decisions.csv")


def test_edits_of_one_day_are_in_the_order_in_which_they_were_made(folder: Path) -> None:
    apply(folder, inn="drop")
    into = {row["instance_of"]: row["cluster"] for row in sheet_of(folder)}["lake"]
    fill_clusters(folder / "work" / "review_clusters.csv", inn={"action": "merge", "into": into})
    apply(folder)
    apply(folder, pub="restaurant")
    kinds = [[*entry["counts"]] for entry in log(folder)]
    assert kinds == [["drop"], ["cluster merge"], ["keep"]]
    hgld(folder, "reviews", "undo", "--apply", "2")
    hgld(folder, "reviews", "undo", "--apply", "3")
    assert [entry["source"] for entry in log(folder)][3:] == ["undo", "undo"]
    hgld(folder, "reviews", "redo")
    assert decided(folder) == {"inn": "drop", "pub": "restaurant"}
    hgld(folder, "reviews", "redo")
    edits = rows_of(folder / "labels" / "cluster_edits.csv")
    assert edits[0]["with_key"] == edits[-1]["with_key"] != ""


def test_an_edit_before_the_first_decision_of_its_day_is_the_first_entry(folder: Path) -> None:
    into = {row["instance_of"]: row["cluster"] for row in sheet_of(folder)}["lake"]
    fill_clusters(folder / "work" / "review_clusters.csv", inn={"action": "merge", "into": into})
    apply(folder)
    apply(folder, pub="restaurant")
    assert [[*entry["counts"]] for entry in log(folder)] == [["cluster merge"], ["keep"]]


def in_review(folder: Path) -> dict[str, str]:
    """Status of each value, and its supercategory if it is decided."""
    hgld(folder, "review", code=20)
    rows = sheet_of(folder)
    return {row["instance_of"]: f"{row['status']} {row['supercategory']}".strip() for row in rows}


def test_a_cluster_is_accepted_with_values_that_an_undo_left_open(folder: Path) -> None:
    apply(folder, inn="drop")
    hgld(folder, "reviews", "undo", "inn")
    assert in_review(folder)["inn"] == "open"
    accept = {"action": "accept", "supercategory": "restaurant"}
    fill_clusters(folder / "work" / "review_clusters.csv", inn=accept)
    hgld(folder, "review", "--apply", code=20)
    assert in_review(folder)["inn"] == "decided restaurant"


def test_an_undo_contradicts_only_what_was_decided_with_the_undone_decision_in_sight(
    folder: Path,
) -> None:
    before = shutil.copy(folder / "work" / "review.csv", folder / "before.csv")
    apply(folder, inn="drop", pub="drop")
    hgld(folder, "review", code=20)
    after = shutil.copy(folder / "work" / "review.csv", folder / "after.csv")
    hgld(folder, "reviews", "undo", "inn", "pub")
    fill(before, {"inn": "restaurant"})
    fill(after, {"pub": "restaurant"})
    for sheet, kind in ((before, "first decision"), (after, "conflict")):
        assert f"1 {kind}: " in hgld(folder, "review", sheet, "--apply", "--dry-run").out
        applied = hgld(folder, "review", sheet, "--apply", code=20)
    assert "1 value decided differently" in applied.err
    status = in_review(folder)
    assert (status["inn"], status["pub"]) == ("decided restaurant", "conflict")
    decide(folder, {"inn": "church", "pub": "restaurant"})
    status = in_review(folder)
    assert (status["inn"], status["pub"]) == ("decided church", "decided restaurant")


def test_a_sheet_with_a_value_that_is_gone_and_undone_is_applied(folder: Path) -> None:
    row = "barn,label,keep,church,human-made,c,2026-01-01,,\n"
    head = "key,key_type,decision,supercategory,kind,who,when,why,supersedes\n"
    (folder / "labels" / "decisions.csv").write_text(head + row)
    assert in_review(folder)["barn"] == "stale church"
    older = shutil.copy(folder / "work" / "review.csv", folder / "older.csv")
    hgld(folder, "reviews", "undo", "barn")
    assert "barn" not in in_review(folder)
    fill(older, {"inn": "drop"})
    hgld(folder, "review", older, "--apply", code=20)
    assert decided(folder) == {"barn": "open", "inn": "drop"}


def test_an_undo_and_a_redo_go_past_a_rename_and_use_the_present_name(folder: Path) -> None:
    apply(folder, lake="lake", pond="church")
    apply(folder, lake="drop", pond="lake")
    hgld(folder, "taxonomy", "rename", "lake", "water")
    hgld(folder, "reviews", "undo", "lake", "pond")
    status = in_review(folder)
    assert (status["lake"], status["pond"]) == ("decided water", "decided church")
    hgld(folder, "taxonomy", "rename", "water", "waters")
    hgld(folder, "reviews", "undo", "lake", "pond")
    status = in_review(folder)
    assert status["lake"] == status["pond"] == "open"
    for expected in (("decided waters", "decided church"), ("decided", "decided waters")):
        hgld(folder, "reviews", "redo", "lake", "pond")
        status = in_review(folder)
        assert (status["lake"], status["pond"]) == expected


def test_an_entry_is_undone_and_redone_although_its_supercategory_was_renamed(
    folder: Path,
) -> None:
    apply(folder, lake="lake", inn="drop")
    hgld(folder, "taxonomy", "rename", "lake", "water")
    hgld(folder, "reviews", "undo", "--apply", "1")
    assert decided(folder) == {"lake": "open", "inn": "open"}
    hgld(folder, "taxonomy", "rename", "water", "waters")
    hgld(folder, "reviews", "redo")
    assert decided(folder) == {"lake": "waters", "inn": "drop"}


def test_an_undo_of_a_value_that_a_split_moved_moves_it_back(folder: Path) -> None:
    apply(folder, lake="lake", pond="lake")
    hgld(folder, "taxonomy", "split", "lake", "pool", "pond")
    hgld(folder, "reviews", "undo", "pond")
    assert decided(folder) == {"lake": "lake", "pond": "lake"}
