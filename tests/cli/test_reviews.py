"""``hgld reviews`` and ``hgld review`` on a small review, through the command line."""

import csv
import json
import os
import re
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hgld.artifacts import Table, VectorFile, Vectors, columns_of, declared_table, table_of
from hgld.cli.arguments import open_runner, open_workspace
from hgld.cli.review_actions import apply_review
from hgld.cli.review_pages import write_page
from hgld.errors import WaitingForReview
from hgld.hierarchy.decisions import row_id
from hgld.pipeline.run import Runner
from hgld.review import suggestions
from hgld.review.row_base import Base, base_of
from hgld.review.spreadsheet import read_sheets
from hgld.review.workbook import write_workbook
from tests import in_process
from tests.in_process import Printed
from tests.listening import Notes
from tests.warm import python

PIPELINE = """
labels = "labels"
[source]
kind = "folder"
[scrape]
source = "table"
table = "words.csv"
[cluster]
clusters = 3
restarts = 2
[review]
who = "a person"
"""
WORDS = {"church": 0, "chapel": 9, "lake": 120, "pond": 127, "pub": 240, "inn": 251}  # degrees
TAXONOMY = (
    "supercategory,kind,definition\nchurch,human-made,\nlake,natural,\nrestaurant,human-made,\n"
)
PLACES = {"church": "church", "chapel": "church", "lake": "lake", "pond": "lake"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two landmarks a word, reviewed by nobody yet."""
    folder = tmp_path_factory.mktemp("review")
    (folder / "pipeline.toml").write_text(PIPELINE)
    rows = [(i, word) for i, word in enumerate(w for w in WORDS for _ in range(2))]
    lines = "".join(f"{i},{word}\n" for i, word in rows)
    (folder / "words.csv").write_text("landmark_id,supercategory\n" + lines)
    (folder / "labels").mkdir()
    (folder / "labels" / "taxonomy.csv").write_text(TAXONOMY)
    work = folder / "work"
    work.mkdir()
    places = "".join(f"train,{i},{word} no. {i},\n" for i, word in rows)
    (work / "landmarks.csv").write_text("split,landmark_id,name,commons_url\n" + places)
    _write_images(work, len(rows))
    angles = np.radians(list(WORDS.values()))
    vectors = Vectors(list(WORDS), np.stack([np.cos(angles), np.sin(angles)], 1), {})
    VectorFile("label_vectors.npz").write(vectors, work / "label_vectors.npz")
    none = Vectors([], np.zeros((0, 2)), {})  # no model: the suggestions are those of the clusters
    VectorFile("taxonomy_vectors.npz").write(none, work / "taxonomy_vectors.npz")
    for stage in ("scrape", "clean", "cluster"):
        hgld(folder, stage)
    hgld(folder, "review", code=20)
    return folder


def _write_images(work: Path, count: int) -> None:
    text = dict.fromkeys(("path", "author", "license", "title", "url"), "")
    rows = [
        {"image_id": f"{i:016x}", "split": "train", "landmark_id": i, "offset": 0,
         "size_bytes": 1, **text}
        for i in range(count)
    ]  # fmt: skip
    table = declared_table("images")
    table.write(table_of("images", rows), work / table.file)


@pytest.fixture
def desk(made: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(made, tmp_path / "desk")
    yield tmp_path / "desk"


def hgld(folder: Path, *words: object, code: int | None = 0) -> Printed:
    """Run a command on the pipeline of the folder."""
    verb = 1 if words[0] not in ("reviews", "taxonomy") else 2
    where = ["--work", folder / "work", "--now", "2026-11-21"]
    given = (*words[:verb], folder / "pipeline.toml", *words[verb:], *where)
    return in_process.hgld(*given, code=code)


def tool(*words: object, code: int = 0) -> Printed:
    return in_process.hgld("reviews", *words, code=code)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, rows: list[dict[str, str]], delimiter: str = ",") -> None:
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def fill(path: Path, decide: dict[str, str]) -> None:
    """Write decisions into a sheet: value -> supercategory, or drop."""
    rows = rows_of(path)
    for row in rows:
        place = decide.get(row["instance_of"])
        if place == "drop":
            row.update(decision="drop")
        elif place:
            row.update(decision="keep", supercategory=place)
    write_rows(path, rows)


def fill_clusters(path: Path, **cells: dict[str, str]) -> None:
    """Fill in the row of the cluster that holds a value; saved as a German spreadsheet does."""
    rows = rows_of(path)
    for value, filled in cells.items():
        next(row for row in rows if value in row["largest"]).update(filled)
    write_rows(path, rows, ";")


def sheet_of(desk: Path) -> list[dict[str, str]]:
    return rows_of(desk / "work" / "review.csv")


def decide(desk: Path, values: dict[str, str], code: int = 20) -> Printed:
    """Write decisions into the sheet of the work folder and apply it; by default some stay open."""
    fill(desk / "work" / "review.csv", values)
    return hgld(desk, "review", "--apply", code=code)


def decided(desk: Path) -> dict[str, str]:
    found = rows_of(desk / "labels" / "decisions.csv")
    return {row["key"]: row["supercategory"] or row["decision"] for row in found}


def test_a_sheet_that_a_spreadsheet_saved_beside_the_csv_is_reported(desk: Path) -> None:
    work = desk / "work"
    shutil.copy(work / "review.csv", work / "review.ods")
    os.utime(work / "review.ods", (time.time() + 9,) * 2)
    said = hgld(desk, "review", "--apply", code=20).said
    assert "review.ods is newer than review.csv and not read; `hgld review" in said
    os.utime(work / "review.csv", (time.time() + 99,) * 2)
    assert "review.ods" not in hgld(desk, "review", "--apply", code=20).said


def test_an_edited_sheet_is_applied_and_opens_the_gate(desk: Path) -> None:
    all_of_it = {**PLACES, "pub": "restaurant", "inn": "drop"}
    decide(desk, all_of_it, code=0)
    assert decided(desk) == all_of_it


def test_a_note_about_the_encoding_of_a_sheet_is_printed_once(desk: Path) -> None:
    sheet = desk / "work" / "review.csv"
    fill(sheet, {"pub": "restaurant"})
    text = sheet.read_text(encoding="utf-8-sig").replace("keep,restaurant,,", "keep,restaurant,,é")
    (desk / "mine.csv").write_bytes(text.encode("cp1252"))
    printed = "".join(hgld(desk, "review", desk / "mine.csv", "--apply", code=20))
    assert printed.count("is not UTF-8 and was read as Windows-1252") == 1


def test_the_gate_names_the_sheet_and_the_command_that_opens_it(desk: Path) -> None:
    said = hgld(desk, "review", code=20).err
    assert f"decide in {desk / 'work' / 'review.csv'}, then `hgld review" in said
    assert "--apply` (with your --set, if any), or on the page" in said  # none was given
    fill(desk / "work" / "review.csv", {**PLACES, "pub": "restaurant", "inn": "drop"})
    apply = next(words for words in re.findall(r"`hgld ([^`]+)`", said) if "--apply" in words)
    in_process.hgld(*shlex.split(apply))
    assert len(decided(desk)) == 6


def test_a_gate_that_let_a_run_pass_closes_when_a_decision_is_gone(desk: Path) -> None:
    decide(desk, {**PLACES, "pub": "restaurant", "inn": "drop"}, code=0)
    hgld(desk, "review")
    file = desk / "labels" / "decisions.csv"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    assert "1 value of 2 " in hgld(desk, "review", code=20).err


def test_a_sheet_from_anywhere_is_applied(desk: Path, tmp_path: Path) -> None:
    shutil.copy(desk / "work" / "review.csv", tmp_path / "mine.csv")
    fill(tmp_path / "mine.csv", {"inn": "drop"})
    hgld(desk, "review", tmp_path / "mine.csv", "--apply", code=20)  # five are open
    assert decided(desk) == {"inn": "drop"}


def test_an_older_sheet_that_decides_otherwise_is_a_conflict(desk: Path, tmp_path: Path) -> None:
    older = shutil.copy(desk / "work" / "review.csv", tmp_path / "older.csv")
    decide(desk, {"inn": "drop", "pub": "restaurant"})
    fill(older, {"inn": "restaurant", "chapel": "church"})
    said = hgld(desk, "review", older, "--apply", code=20).err
    assert "2 decisions added" in said and "1 value decided differently by others" in said
    assert "hgld reviews conflicts" in said
    (row, *_) = sheet_of(desk)
    assert (row["instance_of"], row["status"], row["decision"]) == ("inn", "conflict", "")
    assert row["conflict"].count("by a person, 2026-11-21") == 2
    command = f"hgld reviews conflicts {desk / 'pipeline.toml'} --work {desk / 'work'}"
    assert f"1 value in conflict: `{command}` shows" in said  # the gate
    decide(desk, {"inn": "restaurant"})
    places = {row["instance_of"]: row["status"] for row in sheet_of(desk)}
    assert (places["inn"], places["pub"], places["chapel"]) == ("decided",) * 3


def test_a_sheet_that_is_saved_while_it_is_applied_keeps_its_edits(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(desk / "work" / "review.csv", {"inn": "drop"})
    runner = open_runner(desk / "pipeline.toml", None, desk / "work", "2026-11-21")
    append = Table.append

    def append_and_save(table: Table, rows: pd.DataFrame, path: Path) -> None:
        append(table, rows, path)
        fill(desk / "work" / "review.csv", {"pub": "restaurant"})

    with monkeypatch.context() as patch:
        patch.setattr(Table, "append", append_and_save)
        assert len(apply_review(runner, "ann").decisions) == 1
    hgld(desk, "review", code=20)  # edits that are not applied
    hgld(desk, "review", "--apply", code=20)
    assert decided(desk) == {"inn": "drop", "pub": "restaurant"}


def test_a_sheet_that_is_saved_while_it_is_made_again_is_kept_as_a_copy(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = open_runner(desk / "pipeline.toml", None, desk / "work", "2026-11-21")
    call = Runner._call

    def save_and_call(self: Runner, *words: Any) -> object:
        outputs = call(self, *words)
        fill(desk / "work" / "review.csv", {"pub": "restaurant"})
        return outputs

    monkeypatch.setattr(Runner, "_call", save_and_call)
    with pytest.raises(WaitingForReview):
        runner.run_one("review", force=True)
    copy = rows_of(desk / "work" / "review.edited-1.csv")
    assert {row["instance_of"] for row in copy if row["decision"]} == {"pub"}


def test_two_applies_on_one_labels_folder_both_land(
    desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(desk / "work", tmp_path / "other")
    works = {"inn": desk / "work", "pub": tmp_path / "other"}
    for value, work in works.items():
        fill(work / "review.csv", {value: "drop"})
    append, waits, notes = Table.append, threading.Event(), Notes()
    notice = notes.notice

    def hear(text: str) -> None:
        notice(text)
        if "is adding decisions" in text:
            waits.set()

    def wait_and_append(table: Table, rows: pd.DataFrame, path: Path) -> None:
        waits.wait(120)  # until the other has read what there is, or waits for it
        append(table, rows, path)

    monkeypatch.setattr(Table, "append", wait_and_append)
    monkeypatch.setattr(notes, "notice", hear)
    workspaces = [open_workspace(desk / "pipeline.toml", None, work) for work in works.values()]
    runners = [Runner(workspace, "2026-11-21", notes) for workspace in workspaces]
    with ThreadPoolExecutor() as pool:
        applied = pool.map(lambda runner: apply_review(runner, "ann"), runners)
        assert [len(done.changes) for done in applied] == [1, 1]
    assert decided(desk) == {"inn": "drop", "pub": "drop"}
    assert any("is adding decisions" in text for text in notes.notices)


def test_a_sheet_without_apply_is_a_usage_error(desk: Path) -> None:
    done = hgld(desk, "review", "mine.csv", code=2)
    assert "mine.csv: a sheet is only read with --apply" in done.err


@pytest.mark.parametrize("flag", ["--yes", "--dry-run"])
def test_a_flag_of_apply_without_it_is_a_usage_error(desk: Path, flag: str) -> None:
    done = hgld(desk, "review", flag, code=2)
    assert f"{flag}: sheets are only read with --apply" in done.err


def test_comments_of_a_key_that_has_none_are_answered_in_a_line(desk: Path) -> None:
    hgld(desk, "reviews", "comments", "pub", "--add", "a sign?")
    assert "pub" in hgld(desk, "reviews", "comments", "pub").out
    done = hgld(desk, "reviews", "comments", "inn")
    assert (done.out, done.err) == ("", "no comment on inn\n")
    done = hgld(desk, "reviews", "comments", "chapell", code=2)
    assert "no value chapell in clusters.csv; did you mean 'chapel'?" in done.err


def test_a_faulty_sheet_is_refused_as_a_whole_with_exit_code_3(desk: Path) -> None:
    says = decide(desk, {"inn": "drop", "pub": "chruch", "lake": "see"}, code=3).err
    assert "2 faults, nothing was applied" in says and "did you mean 'church'?" in says
    assert not (desk / "labels" / "decisions.csv").exists()


def test_clusters_are_decided_and_made_anew_by_one_command(desk: Path) -> None:
    sheet = desk / "work" / "review_clusters.csv"
    fill_clusters(
        sheet,
        lake={"action": "accept", "supercategory": "lake"},
        inn={"action": "split", "into": "2"},
    )
    assert "2 decisions added" in hgld(desk, "review", "--apply", code=20).err
    assert decided(desk) == {"lake": "lake", "pond": "lake"}
    clusters = {row["instance_of"]: row["cluster"] for row in rows_of(desk / "work/clusters.csv")}
    assert clusters["inn"] != clusters["pub"] and {clusters["inn"], clusters["pub"]} == {"3", "4"}
    assert len(rows_of(sheet)) == 4 and not any(row["action"] for row in rows_of(sheet))


KILLED = """
import os, signal, sys
from pathlib import Path
from hgld.cli import main

replace, last = os.replace, sys.argv.pop(1)

def replace_and_die(source, target):
    replace(source, target)
    if Path(target).name == last:
        os.kill(os.getpid(), signal.SIGKILL)

os.replace = replace_and_die
main()
"""


@pytest.mark.parametrize("last", ["decisions.csv", "cluster_edits.csv", "clusters.csv"])
def test_an_apply_that_was_killed_is_finished_by_the_next(
    desk: Path, tmp_path: Path, last: str
) -> None:
    fill(desk / "work" / "review.csv", PLACES)
    merge = {"action": "merge", "into": cluster_of(desk, "lake")}
    fill_clusters(desk / "work" / "review_clusters.csv", inn=merge)
    whole = Path(shutil.copytree(desk, tmp_path / "whole"))
    words = ["review", desk / "pipeline.toml", "--apply", "--work", desk / "work"]
    python(Path(), "-c", KILLED, last, *words, "--now", "2026-11-21", code=-signal.SIGKILL)
    for folder in (desk, whole):
        hgld(folder, "review", "--apply", code=20)
    assert tables(desk) == tables(whole)


def cluster_of(desk: Path, value: str) -> str:
    return next(row["cluster"] for row in sheet_of(desk) if row["instance_of"] == value)


def tables(desk: Path) -> dict[str, bytes]:
    return {str(path.relative_to(desk)): path.read_bytes() for path in desk.rglob("*.csv")}


def test_applying_with_other_options_makes_no_other_clusters(desk: Path) -> None:
    before = (desk / "work" / "clusters.csv").read_bytes()
    fill_clusters(desk / "work" / "review_clusters.csv", inn={"action": "split", "into": "2"})
    done = hgld(desk, "review", "--apply", "--set", "cluster.clusters=2", code=20)
    assert "clusters are edited; the next `hgld run`" in done.err
    assert (desk / "work" / "clusters.csv").read_bytes() == before
    assert len(rows_of(desk / "labels" / "cluster_edits.csv")) == 2


def test_an_apply_counts_the_values_that_it_puts_into_other_clusters(desk: Path) -> None:
    merge = {"action": "merge", "into": cluster_of(desk, "lake")}
    fill_clusters(desk / "work" / "review_clusters.csv", inn=merge)
    said = hgld(desk, "review", "--apply", code=20).err
    assert "0 decisions added" in said
    assert "2 values put into other clusters, in cluster_edits.csv" in said


def test_no_clustering_loses_a_decision(desk: Path) -> None:
    all_of_it = {**PLACES, "pub": "restaurant", "inn": "drop"}
    decide(desk, all_of_it, code=0)
    first = {row["key"]: (row["supercategory"], row["status"]) for row in sheet_of(desk)}
    vectors = VectorFile("label_vectors.npz")
    path = desk / "work" / vectors.file
    for seed, clusters in enumerate((2, 5)):  # another encoder, another k
        drawn = np.random.default_rng(seed).normal(size=(len(WORDS), 8))
        vectors.write(Vectors(list(WORDS), drawn, {}), path)
        hgld(desk, "cluster", "--set", f"cluster.clusters={clusters}")
        hgld(desk, "review")
        again = {row["key"]: (row["supercategory"], row["status"]) for row in sheet_of(desk)}
        assert again == first and {status for _, status in again.values()} == {"decided"}
    assert decided(desk) == all_of_it


def test_decisions_can_seed_the_clusters(desk: Path) -> None:
    decide(desk, {**PLACES, "pub": "restaurant", "inn": "restaurant"}, code=0)
    done = hgld(desk, "cluster", "--set", "cluster.seeds=decided")
    assert "cluster.seeds: random -> decided" in done.err
    assert "fresh" in hgld(desk, "cluster", "--set", "cluster.seeds=decided").err
    few = ("--set", "cluster.seeds=decided", "--set", "cluster.clusters=2")
    assert "set cluster.clusters to 3 or more" in hgld(desk, "cluster", *few, code=2).err


def test_a_range_of_numbers_of_clusters_is_looked_at_and_changes_nothing(desk: Path) -> None:
    before = (desk / "work" / "clusters.csv").read_bytes()
    assert "suggested: cluster.clusters = 3" in hgld(desk, "cluster", "--suggest", "2:5").out
    assert [row["clusters"] for row in rows_of(desk / "work" / "cluster_range.csv")] == list("2345")
    assert (desk / "work" / "cluster_range.png").stat().st_size > 10_000
    assert (desk / "work" / "clusters.csv").read_bytes() == before


def test_an_edited_sheet_of_clusters_is_not_overwritten(desk: Path) -> None:
    sheet = desk / "work" / "review_clusters.csv"
    sheet.write_bytes(sheet.read_bytes() + b"\r\n")
    before = sheet.read_bytes()
    hgld(desk, "review", "--force", code=20)
    assert sheet.read_bytes() == before


def test_a_workbook_is_written_and_applied(desk: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    hgld(desk, "review", "--xlsx", code=20)
    path = desk / "work" / "review.xlsx"
    book = openpyxl.load_workbook(path)
    assert book.sheetnames == ["values", "clusters", "taxonomy", "lists"]
    page = book["values"]
    lists = {str(v.sqref).split("2:")[0]: v.formula1 for v in page.data_validations.dataValidation}
    assert lists == {"A": "lists!$A$1:$A$4", "B": "lists!$B$1:$B$3", "C": "lists!$C$1:$C$2"}
    names = [book["lists"].cell(row, 2).value for row in (1, 2, 3)]
    assert names == ["church", "lake", "restaurant"]
    row = next(r for r in range(2, 8) if page.cell(r, 7).value == "inn")
    page.cell(row, 1).value = "drop"
    book.save(path)
    hgld(desk, "review", path, "--apply", code=20)
    assert decided(desk) == {"inn": "drop"}


def test_an_edited_workbook_of_the_work_folder_is_applied_as_its_sheets_are(desk: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    hgld(desk, "review", "--xlsx", code=20)
    path = desk / "work" / "review.xlsx"
    book = openpyxl.load_workbook(path)
    page = book["values"]
    row = next(r for r in range(2, 8) if page.cell(r, 7).value == "inn")
    page.cell(row, 1).value = "drop"
    book.create_sheet("Sheet1")  # blank, as Excel adds them
    book.save(path)
    done = hgld(desk, "review", "--accept-sure", "0.99", code=2)
    assert "review.xlsx: holds edits that are not applied" in done.err
    for added in (1, 0):
        assert f"{added} decision" in hgld(desk, "review", "--apply", code=20).err
    assert decided(desk) == {"inn": "drop"}
    hgld(desk, "review", "--xlsx", code=20)
    assert not list((desk / "work").glob("review.edited-*.xlsx"))  # its edits are applied


def test_control_characters_stop_no_workbook_and_are_removed_from_what_is_read(
    tmp_path: Path,
) -> None:
    pytest.importorskip("openpyxl")
    rows = [dict.fromkeys(columns_of("review"), "") | {"key": "bell\x07 _x0041_"}]
    sheets = {
        "review": pd.DataFrame(rows, dtype="str"),
        "review_clusters": table_of("review_clusters", []),
    }
    taxonomy = pd.DataFrame({"supercategory": ["a\x01b"]}, dtype="str")
    write_workbook(sheets, taxonomy, tmp_path / "r.xlsx")
    (sheet, _) = read_sheets(tmp_path / "r.xlsx")
    assert sheet.rows[0]["key"] == "bell _x0041_"


def test_an_edited_workbook_is_not_overwritten_without_a_copy(desk: Path) -> None:
    pytest.importorskip("openpyxl")
    for _ in range(2):
        hgld(desk, "review", "--xlsx", code=20)
    assert not list((desk / "work").glob("review.edited-*.xlsx"))
    (desk / "work" / "review.xlsx").write_bytes(b"someone's work")
    hgld(desk, "review", "--xlsx", code=20)
    assert (desk / "work" / "review.edited-1.xlsx").read_bytes() == b"someone's work"


def test_the_same_workbook_has_the_same_bytes(desk: Path) -> None:
    pytest.importorskip("openpyxl")
    found = []
    for _ in range(2):
        hgld(desk, "review", "--xlsx", code=20)
        found.append((desk / "work" / "review.xlsx").read_bytes())
    assert found[0] == found[1]


def test_differences_are_told_in_words(desk: Path) -> None:
    sheet, other = desk / "work" / "review.csv", desk / "other.csv"
    fill(sheet, {"inn": "drop", "pub": "restaurant"})
    shutil.copy(sheet, other)
    fill(other, {"inn": "restaurant", "lake": "lake"})
    found = tool("diff", sheet, other)
    assert found.out == "inn: drop -> keep restaurant\nlake: open -> keep lake\n"
    assert found.err == "2 values decided differently\n"


def test_differences_are_data_too(desk: Path) -> None:
    other = desk / "other.csv"
    shutil.copy(desk / "work" / "review.csv", other)
    fill(other, {"inn": "drop"})
    (found,) = json.loads(tool("diff", desk / "work" / "review.csv", other, "--json").out)
    assert (found["before"]["decision"], found["after"]["decision"]) == ("", "drop")


def test_a_note_alone_is_a_difference_only_where_asked_for(tmp_path: Path) -> None:
    for name, note in (("a", "one"), ("b", "other")):
        (tmp_path / name).write_text(f"decision,supercategory,kind,note,key\ndrop,,,{note},pub\n")
    assert tool("diff", tmp_path / "a", tmp_path / "b").out == ""
    done = tool("diff", tmp_path / "a", tmp_path / "b", "--notes")
    assert done.out == "pub: drop, note 'one' -> 'other'\n"


def blind(desk: Path, name: str, *more: str) -> Path:
    where = ["--work", desk / "work", "--out", desk / name]
    tool("blind", desk / "pipeline.toml", *where, *more)
    return desk / name


def test_blind_copies_hide_what_is_decided_and_have_an_order_of_their_own(desk: Path) -> None:
    decide(desk, {"chapel": "church", "lake": "lake"})
    one, again, other = (
        rows_of(blind(desk, f"{i}.csv", "--seed", seed)) for i, seed in enumerate("115")
    )
    assert one == again and one != other
    assert sorted(r["key"] for r in one) == sorted(r["key"] for r in other) == sorted(WORDS)
    told = {row["instance_of"]: row["suggestion"] for row in one}
    assert not any(row["decision"] for row in one)
    assert told["church"] == "church" and told["pond"] == ""  # by its name, by no decision
    assert "status" not in one[0] and "cluster" in one[0]


def test_without_hints_no_column_says_what_a_value_may_be(desk: Path) -> None:
    (row, *_) = rows_of(blind(desk, "b.csv", "--seed", "1", "--no-hints"))
    assert list(row) == ["decision", "supercategory", "kind", "note", "key", "key_type",
                         "instance_of", "landmarks", "images", "examples", "evidence",
                         "base"]  # fmt: skip


def test_a_blind_copy_knows_the_order_in_which_its_rows_were_written(desk: Path) -> None:
    decide(desk, {"chapel": "church"})
    rows = rows_of(blind(desk, "b.csv", "--seed", "1"))
    bases = [Base.parse(row["base"]) for row in rows]
    assert bases == [base_of(row["key"], (), place) for place, row in enumerate(rows, 1)]


def test_a_blind_copy_never_replaces_a_decision_that_its_annotator_did_not_see(desk: Path) -> None:
    decide(desk, {"chapel": "church"})
    fill(blind(desk, "b.csv", "--seed", "1"), {"chapel": "drop"})
    done = hgld(desk, "review", desk / "b.csv", "--apply", code=20)
    assert "1 value decided differently" in done.err
    assert "'keep church' by a person" in sheet_of(desk)[0]["conflict"]


@pytest.mark.parametrize(
    ("name", "more", "ending"),
    [("b.xlsx", [], ".csv"), ("b.html", [], ".csv"), ("b.csv", ["--html"], ".html")],
)
def test_a_blind_copy_has_the_ending_of_its_kind(
    desk: Path, name: str, more: list[str], ending: str
) -> None:
    words = ("blind", desk / "pipeline.toml", "--work", desk / "work", "--out", desk / name)
    said = tool(*words, "--seed", "1", *more, code=2).said
    assert said.endswith(f"{name}: expected a name that ends in {ending}")
    assert not (desk / name).exists()


def test_a_blind_copy_overwrites_nothing(desk: Path) -> None:
    out = blind(desk, "b.csv", "--seed", "1")
    words = ("blind", desk / "pipeline.toml", "--out", out, "--seed", "1")
    assert "may hold someone's work" in tool(*words, code=2).err


def test_two_annotators_are_measured_and_their_disagreements_decided(desk: Path) -> None:
    a, b = (blind(desk, f"{name}.csv", "--seed", "1", "--no-hints") for name in "ab")
    fill(a, {**PLACES, "pub": "restaurant", "inn": "restaurant"})
    fill(b, {**PLACES, "pub": "restaurant", "inn": "drop"})
    lines = tool("agree", a, b, "--out", desk / "adjudication.csv").out.splitlines()
    assert lines[0] == "6 values decided by both, a: a, b: b"
    assert lines[3].split()[:3] == ["supercategory", "83.3", "%"]
    assert lines[4].startswith("supercategory, by images ")
    assert "    1  (drop) or restaurant: inn" in lines
    assert all(len(line) <= 80 for line in lines)
    (row,) = rows_of(desk / "adjudication.csv")
    assert (row["key"], row["a_decision"], row["b_decision"]) == ("inn", "keep", "drop")
    fill(desk / "adjudication.csv", {"inn": "drop"})
    hgld(desk, "review", desk / "adjudication.csv", "--apply", code=20)
    assert decided(desk) == {"inn": "drop"}


def test_agreement_is_data_too(desk: Path) -> None:
    a, b = (blind(desk, f"{name}.csv", "--seed", "1") for name in "ab")
    fill(a, {**PLACES, "pub": "restaurant"})
    fill(b, {**PLACES, "pub": "lake"})
    found = json.loads(tool("agree", a, b, "--json").out)
    assert found["annotators"] == ["a", "b"] and found["values"] == 5
    assert {row["by"] for row in found["measures"]} == {"values", "images"}
    assert found["confused"] == [{"pair": ["lake", "restaurant"], "values": 1, "examples": ["pub"]}]


def test_three_annotators_are_compared_value_by_value(tmp_path: Path) -> None:
    header = "decision,supercategory,kind,note,instance_of"
    for name, place in (("a", "x"), ("b", "x"), ("c", "y")):
        rows = f"keep,x,natural,,u\nkeep,{place},natural,,v\n"
        (tmp_path / f"{name}.csv").write_text(f"{header}\n{rows}")
    files = [tmp_path / f"{name}.csv" for name in "abc"]
    lines = tool("agree", *files, "--out", tmp_path / "values.csv").out.splitlines()
    assert lines[0] == "2 values decided by two or more of a, b, c"
    assert lines[3].split()[:3] == ["supercategory", "66.7", "%"]
    assert lines[-1] == "  33 %  v: x 2; y 1" and max(map(len, lines)) <= 80
    assert [row["label"] for row in rows_of(tmp_path / "values.csv")] == ["v", "u"]


@pytest.mark.parametrize("others", [[], ["c/sheet.csv"]])
def test_annotators_of_one_name_are_refused(tmp_path: Path, others: list[str]) -> None:
    places = ["a/sheets/one.csv", "b/sheets/one.csv", *others]
    done = tool("agree", *(tmp_path / place for place in places), code=2)
    assert "two annotators would be called sheets; rename the files" in done.err


def test_one_sheet_given_twice_has_no_agreement(tmp_path: Path) -> None:
    """A link to it had a name of its own, and kappa 1."""
    sheet, link = tmp_path / "a.csv", tmp_path / "b.csv"
    sheet.write_text("decision,supercategory,kind,note,instance_of\nkeep,x,natural,,u\n")
    link.symlink_to(sheet)
    for other in (sheet, link):
        error = tool("agree", sheet, other, code=2).err
        assert error.count("\n") == 1
        assert f"{other}: is given twice; expected a sheet of each annotator" in error


def test_counts_of_another_sheet_weigh_values(tmp_path: Path) -> None:
    header = "decision,supercategory,kind,note,instance_of"
    for name, place in (("a", "x"), ("b", "y")):
        folder = tmp_path / name
        folder.mkdir()
        rows = f"keep,x,natural,,u\nkeep,{place},natural,,v\n"
        (folder / "filled.csv").write_text(f"{header}\n{rows}")
    (tmp_path / "sheet.csv").write_text(f"{header},count\n,,,,v,1\n,,,,u,9\n")
    files = [tmp_path / name / "filled.csv" for name in "ab"]
    found = json.loads(tool("agree", *files, "--counts", tmp_path / "sheet.csv", "--json").out)
    told = {(row["of"], row["by"]): row["agreement"] for row in found["measures"]}
    assert found["annotators"] == ["a", "b"]
    assert told["supercategory", "values"] == 0.5 and told["supercategory", "count"] == 0.9


def test_counts_of_a_sheet_with_keys_weigh_values_of_sheets_without(tmp_path: Path) -> None:
    header = "decision,supercategory,kind,note,instance_of"
    for name, place in (("a", "x"), ("b", "y")):
        rows = f"keep,x,natural,,u\nkeep,{place},natural,,v\n"
        (tmp_path / f"{name}.csv").write_text(f"{header}\n{rows}")
    (tmp_path / "sheet.csv").write_text(f"{header},key,count\n,,,,v,Q1,1\n,,,,u,Q2,9\n")
    files = [tmp_path / f"{name}.csv" for name in "ab"]
    found = json.loads(tool("agree", *files, "--counts", tmp_path / "sheet.csv", "--json").out)
    told = {(row["of"], row["by"]): row["agreement"] for row in found["measures"]}
    assert told["supercategory", "count"] == 0.9


def test_a_decision_is_taken_back_by_a_new_row(desk: Path) -> None:
    for place in ("restaurant", "drop"):
        decide(desk, {"inn": place})
    hgld(desk, "reviews", "undo", "inn", "--why", "looked again")
    rows = rows_of(desk / "labels" / "decisions.csv")
    assert [row["decision"] for row in rows] == ["keep", "drop", "keep"]
    assert (rows[-1]["supercategory"], rows[-1]["why"]) == ("restaurant", "looked again")
    assert rows[-1]["supersedes"] == rows[-1]["undoes"] == row_id(rows[-2])


def test_a_first_decision_that_is_taken_back_leaves_the_value_open(desk: Path) -> None:
    decide(desk, {"inn": "drop"})
    hgld(desk, "reviews", "undo", "inn")
    assert rows_of(desk / "labels" / "decisions.csv")[-1]["decision"] == "open"


def test_what_was_never_decided_cannot_be_taken_back(desk: Path) -> None:
    decide(desk, {"inn": "drop"})
    done = hgld(desk, "reviews", "undo", "in", code=3)
    assert "no decision on 'in'; did you mean 'inn'?" in done.err


def edit_taxonomy(desk: Path, **rows: dict[str, str]) -> Path:
    """Write into the sheet of the taxonomy: supercategory -> cells; new ones are added."""
    path = desk / "work" / "review_taxonomy.csv"
    table = rows_of(path)
    for row in table:
        row.update(rows.pop(row["supercategory"], {}))
    table += [{**dict.fromkeys(table[0], ""), "supercategory": n, **c} for n, c in rows.items()]
    write_rows(path, table)
    return path


def taxonomy_of(desk: Path) -> dict[str, tuple[str, str]]:
    rows = rows_of(desk / "labels" / "taxonomy.csv")
    return {row["supercategory"]: (row["kind"], row["definition"]) for row in rows}


def test_the_sheet_of_the_taxonomy_counts_values_landmarks_and_images(desk: Path) -> None:
    decide(desk, PLACES)
    rows = rows_of(desk / "work" / "review_taxonomy.csv")
    counts = [[row[c] for c in ("supercategory", "values", "landmarks", "images")] for row in rows]
    assert counts == [
        ["church", "2", "4", "4"], ["lake", "2", "4", "4"], ["restaurant", "0", "0", "0"],
    ]  # fmt: skip


def test_taxonomy_and_values_are_edited_in_one_apply(desk: Path) -> None:
    decide(desk, PLACES)
    edit_taxonomy(
        desk,
        church={"action": "rename", "into": "chapel", "definition": "any size"},
        lake={"definition": "still water"},
        pier={"action": "add", "kind": "human-made"},
    )
    decide(desk, {"pub": "pier", "chapel": "drop"})
    assert taxonomy_of(desk) == {
        "chapel": ("human-made", "any size"), "lake": ("natural", "still water"),
        "pier": ("human-made", ""), "restaurant": ("human-made", ""),
    }  # fmt: skip
    rows = {row["instance_of"]: row for row in rows_of(desk / "work" / "review.csv")}
    assert {name: row["supercategory"] for name, row in rows.items()} == {
        "church": "chapel", "chapel": "", "lake": "lake", "pond": "lake", "pub": "pier",
        "inn": "",
    }  # fmt: skip
    assert {row["status"] for row in rows.values()} == {"decided", "open"}  # and no conflict


def test_a_sheet_of_the_taxonomy_may_be_applied_again(desk: Path, tmp_path: Path) -> None:
    path = edit_taxonomy(
        desk,
        lake={"action": "rename", "into": "pond", "definition": "still"},
        pier={"action": "add", "kind": "human-made"},
        restaurant={"action": "remove"},
    )
    shutil.copy(path, tmp_path / "mine.csv")
    hgld(desk, "review", "--apply", code=20)
    before = {p: p.read_bytes() for p in (desk / "labels").glob("*.csv")}
    hgld(desk, "review", tmp_path / "mine.csv", "--apply", code=20)
    assert {p: p.read_bytes() for p in (desk / "labels").glob("*.csv")} == before


def test_rows_of_an_older_sheet_of_the_taxonomy_that_nobody_changed_hinder_nothing(
    desk: Path,
) -> None:
    old = desk / "old.csv"
    shutil.copy(edit_taxonomy(desk, church={"definition": "Christian"}), old)
    hgld(desk, "taxonomy", "rename", "lake", "waters")
    hgld(desk, "review", old, "--apply", code=20)
    assert taxonomy_of(desk)["church"] == ("human-made", "Christian")
    rows = rows_of(old)
    next(row for row in rows if row["supercategory"] == "lake")["definition"] = "still"
    write_rows(old, rows)
    done = hgld(desk, "review", old, "--apply", code=3)
    assert "found 'lake'; expected a name that is in taxonomy.csv" in done.err


def test_a_sheet_of_before_a_rename_is_applied_with_the_new_name(desk: Path) -> None:
    decide(desk, PLACES)
    old = desk / "old.csv"
    shutil.copy(desk / "work" / "review.csv", old)
    hgld(desk, "taxonomy", "rename", "lake", "waters")
    rows = rows_of(old)
    for row in rows:
        if row["instance_of"] == "pond":
            row["note"] = "a small one"
    write_rows(old, rows)
    hgld(desk, "review", old, "--apply", code=20)
    found = {row["instance_of"]: row for row in rows_of(desk / "work" / "review.csv")}
    pond = found["pond"]
    assert (pond["status"], pond["supercategory"], pond["note"]) == (
        "decided", "waters", "a small one",
    )  # fmt: skip


def test_a_second_definition_in_a_sheet_of_the_taxonomy_is_refused(desk: Path) -> None:
    path = desk / "work" / "review_taxonomy.csv"
    header, *rows = path.read_text("utf-8-sig").splitlines()
    path.write_text("\n".join([f"{header},definition", *(f"{row},other" for row in rows)]))
    said = hgld(desk, "review", "--apply", code=3).said
    assert "has two columns 'definition'; keep one of them" in said


def test_the_kind_that_a_sheet_had_does_not_hinder_another_supercategory(desk: Path) -> None:
    sheet = desk / "work" / "review.csv"
    fill(sheet, {"pond": "lake"})
    hgld(desk, "review", "--apply", code=20)
    assert next(row for row in sheet_of(desk) if row["instance_of"] == "pond")["kind"] == "natural"
    fill(sheet, {"pond": "church"})
    hgld(desk, "review", "--apply", code=20)
    assert decided(desk)["pond"] == "church"
    rows = rows_of(sheet)
    next(row for row in rows if row["instance_of"] == "pond").update(kind="natural")
    write_rows(sheet, rows)
    assert "column kind: found 'natural'" in hgld(desk, "review", "--apply", code=3).err


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"lake": {"action": "renam", "into": "x"}}, "column action: found 'renam'; expected one"),
        ({"lake": {"into": "x"}}, "column action: found ''; expected one of rename, merge, split"),
        ({"lake": {"kind": ""}}, "column kind: found ''; expected 'natural' or another kind"),
        ({"lake": {"action": "merge"}}, "column into: found ''; expected a name"),
        ({"lake": {"action": "merge", "into": "church"}}, "'lake' is natural, 'church' is human"),
        ({"sea": {"kind": "natural"}}, "column supercategory: found 'sea'; expected a name"),
        ({"sea": {"action": "add"}}, "row 5: 'sea' needs a kind: natural or human-made"),
        ({"lake": {"kind": "wet"}}, "row 3: kind 'wet': expected natural or human-made"),
    ],
)
def test_faults_of_the_sheet_of_the_taxonomy_name_the_row(
    desk: Path, rows: dict[str, dict[str, str]], said: str
) -> None:
    edit_taxonomy(desk, **rows)
    assert said in hgld(desk, "review", "--apply", code=3).err
    assert (desk / "labels" / "taxonomy.csv").read_text() == TAXONOMY


def test_a_description_that_was_changed_since_is_not_replaced(desk: Path) -> None:
    path = edit_taxonomy(desk, lake={"definition": "mine"})
    text = TAXONOMY.replace("lake,natural,", "lake,natural,theirs")
    (desk / "labels" / "taxonomy.csv").write_text(text)
    assert "expected the present one: natural, 'theirs'; it was changed since" in (
        hgld(desk, "review", path, "--apply", code=3).err
    )


def test_the_model_of_the_decisions_is_fitted_once_for_the_page(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[int] = []
    keys_of = suggestions.value_keys
    monkeypatch.setattr(
        suggestions, "value_keys", lambda table: fitted.append(len(table)) or keys_of(table)
    )
    write_page(open_runner(desk / "pipeline.toml", None, desk / "work"), "review")
    assert len(fitted) == 1
