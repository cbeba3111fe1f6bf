"""``hgld taxonomy`` on a small labels folder, through the command line."""

import csv
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hgld.artifacts import declared_table, table_of
from hgld.cli.arguments import open_runner
from hgld.cli.review_actions import edit_taxonomy
from hgld.errors import InvalidData
from hgld.file_lock import hold
from hgld.hierarchy.decisions import Decided
from hgld.review.agreement import measure_agreement
from hgld.review.annotations import Annotation
from hgld.review.entries import Entry, list_entries
from hgld.review.taxonomy import Taxonomy, TaxonomyEdit, rename_above
from tests.in_process import Printed, hgld

PIPELINE = """
labels = "labels"
[source]
kind = "folder"
[review]
who = "anna"
"""
TAXONOMY = (
    "\ufeffsupercategory,source,kind,definition\r\n"
    'church,"a, b",human-made,"Christian, any size"\r\n'
    "\r\n"
    "parks,c,natural,\r\n"
    "pub ,'d',human-made,serves beer\r\n"
)
ROOTS = "class_id,label,kind,supercategory,note\nQ1,park,natural,parks,'x'\nQ2,lake,natural,\n"
ROOTS = ROOTS.replace("natural,\n", "natural,,\n")
OVERRIDES = (
    "split,landmark_id,supercategory,kind,who,when,why\n"
    'train,7,parks,natural,ben,2026-01-01,"seen, there"\n'
    "index,7,pub,human-made,ben,2026-01-01,\n"
)
DECISIONS = (
    "key,key_type,decision,supercategory,kind,who,when,why,supersedes,mine\n"
    "Q1,qid,keep,church,human-made,ben,2026-01-01,first,,1\n"
    "Q1,qid,move,parks,natural,ben,2026-01-02,green,2026-01-01,2\n"
    "Q5,qid,keep,church,human-made,ben,2026-01-01,,,3\n"
    "lawn,label,keep,parks,natural,ben,2026-01-01,,,4\n"
    "Q9,qid,drop,,,ben,2026-01-01,,,5\n"
)
FILES = {
    "taxonomy.csv": TAXONOMY,
    "class_roots.csv": ROOTS,
    "overrides.csv": OVERRIDES,
    "decisions.csv": DECISIONS,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    (tmp_path / "labels").mkdir()
    for name, text in FILES.items():
        (tmp_path / "labels" / name).write_bytes(text.encode())
    return tmp_path


def taxonomy(
    folder: Path, action: str, *words: str, now: str = "2026-11-22", code: int = 0
) -> Printed:
    where = ["--work", folder / "work", *(["--now", now] if action != "list" else [])]
    return hgld("taxonomy", action, folder / "pipeline.toml", *words, *where, code=code)


def text_of(folder: Path, name: str) -> str:
    return (folder / "labels" / name).read_bytes().decode()


def texts(folder: Path) -> dict[str, str]:
    return {p.name: p.read_bytes().decode() for p in sorted((folder / "labels").glob("*.csv"))}


def new_decisions(folder: Path) -> list[list[str]]:
    """Key, decision, supercategory, kind, who and reason of the appended rows."""
    rows = list(csv.DictReader(text_of(folder, "decisions.csv").splitlines()))
    columns = ("key", "decision", "supercategory", "kind", "who", "why")
    return [[row[c] for c in columns] for row in rows[5:]]


def test_a_rename_changes_the_cells_with_the_name_and_nothing_else(folder: Path) -> None:
    taxonomy(folder, "rename", "parks", "park")
    assert text_of(folder, "taxonomy.csv") == TAXONOMY.replace("parks,c", "park,c")
    assert text_of(folder, "class_roots.csv") == ROOTS.replace("parks", "park")
    assert text_of(folder, "overrides.csv") == OVERRIDES.replace("parks", "park")
    kept = zip(text_of(folder, "decisions.csv").splitlines(), DECISIONS.splitlines(), strict=False)
    assert all(now.startswith(before) for now, before in kept)
    assert new_decisions(folder) == [
        ["Q1", "move", "park", "natural", "anna", "green"],
        ["lawn", "keep", "park", "natural", "anna", ""],
    ]


def test_the_record_has_each_changed_cell(folder: Path) -> None:
    taxonomy(folder, "rename", "parks", "park")
    rows = list(csv.DictReader(text_of(folder, "taxonomy_edits.csv").splitlines()))
    cells = [[row[c] for c in ("table", "key", "column", "before", "after")] for row in rows]
    assert cells == [
        ["taxonomy", "parks", "supercategory", "parks", "park"],
        ["class_roots", "Q1", "supercategory", "parks", "park"],
        ["overrides", "train:7", "supercategory", "parks", "park"],
    ]
    assert {(row["action"], row["who"], row["when"]) for row in rows} == {
        ("rename", "anna", "2026-11-22")
    }


def test_the_agreement_of_annotators_follows_a_rename_and_its_undo(folder: Path) -> None:
    rows = [{"supercategory": "parks", "share": 0.5}, {"supercategory": "(drop)", "share": 1.0}]
    measured = {"confused": [{"pair": ["parks", "pub"]}], "supercategories": rows}
    text = json.dumps(measured, indent=1) + "\n"
    (folder / "labels" / "agreement.json").write_text(text)
    taxonomy(folder, "rename", "parks", "park")
    assert text_of(folder, "agreement.json") == text.replace("parks", "park")
    undo(folder, last_entry(folder))
    assert text_of(folder, "agreement.json") == text


def test_the_agreement_of_annotators_follows_a_merge_and_its_undo(folder: Path) -> None:
    answers = [("parks", "parks"), ("parks", "garden"), ("garden", "parks"), ("garden", "drop")]
    answers += [("drop", "parks"), ("pub", "garden")]

    def said(key: str, name: str) -> Annotation:
        decision = "drop" if name == "drop" else "keep"
        return Annotation(key, f"value {key}", decision, name, "natural", "", 0, "", {})

    def measured(*merged: str) -> dict[str, Any]:
        pairs = [["garden" if name in merged else name for name in pair] for pair in answers]
        one, other = (
            {str(i): said(str(i), pair[side]) for i, pair in enumerate(pairs)} for side in (0, 1)
        )
        return measure_agreement(one, other, ("a", "b"))

    path = folder / "labels" / "agreement.json"
    path.write_text(json.dumps(measured(), indent=1) + "\n")
    before = path.read_text()
    taxonomy(folder, "add", "garden", "--kind", "natural")
    taxonomy(folder, "merge", "parks", "garden")
    merge = last_entry(folder)
    found, wanted = json.loads(path.read_text()), measured("parks")
    for part in ("supercategories", "confused"):
        assert found[part] == wanted[part]
    assert found["measures"] == json.loads(before)["measures"]
    taxonomy(folder, "rename", "garden", "green")
    assert json.loads(path.read_text())["supercategories"][0]["supercategory"] == "green"
    undo(folder, last_entry(folder))
    assert json.loads(path.read_text()) == found
    undo(folder, merge)
    assert path.read_text() == before
    undo(folder, last_entry(folder))  # a redo
    assert json.loads(path.read_text()) == found


def test_a_rename_stops_at_a_damaged_agreement(folder: Path) -> None:
    path, before = folder / "labels" / "agreement.json", text_of(folder, "taxonomy.csv")
    path.write_text("{")
    assert f"{path}: not a JSON document" in taxonomy(folder, "rename", "parks", "park", code=3).err
    assert text_of(folder, "taxonomy.csv") == before


def test_a_merge_removes_the_row_and_moves_what_used_it(folder: Path) -> None:
    taxonomy(folder, "add", "lake", "--kind", "natural")
    taxonomy(folder, "merge", "parks", "LAKE")
    assert "parks" not in text_of(folder, "taxonomy.csv")
    assert text_of(folder, "overrides.csv") == OVERRIDES.replace("parks", "lake")
    assert [row[:3] for row in new_decisions(folder)] == [
        ["Q1", "move", "lake"],
        ["lawn", "keep", "lake"],
    ]


def test_a_new_supercategory_goes_to_its_place_by_name(folder: Path) -> None:
    taxonomy(folder, "add", "lake", "--kind", "natural", "--definition", "still, deep")
    parks = "parks,c"
    expected = TAXONOMY.replace(parks, f'lake,,natural,"still, deep"\r\n{parks}')
    assert text_of(folder, "taxonomy.csv") == expected


def test_a_split_moves_the_named_values_only(folder: Path) -> None:
    taxonomy(folder, "split", "parks", "lawn", "lawn", "--definition", "mown")
    assert "lawn,,natural,mown" in text_of(folder, "taxonomy.csv")
    assert new_decisions(folder) == [["lawn", "keep", "lawn", "natural", "anna", ""]]
    assert text_of(folder, "overrides.csv") == OVERRIDES


@pytest.mark.parametrize("words", [("rename", "parks", "park"), ("split", "parks", "park", "lawn")])
def test_a_decision_that_two_branches_made_alike_follows_on_both(
    folder: Path, words: tuple[str, ...]
) -> None:
    with (folder / "labels" / "decisions.csv").open("a") as file:
        file.write("lawn,label,keep,parks,natural,carl,2026-01-01,,,\n")
    taxonomy(folder, *words)
    decisions = declared_table("decisions").read(folder / "labels" / "decisions.csv")
    found = Decided(decisions).find("", "lawn")
    assert found is not None and found.answer == "keep park" and not found.rivals


def test_a_definition_of_several_lines_is_kept_in_one(folder: Path) -> None:
    taxonomy(folder, "add", "moor", "--kind", "natural", "--definition", "wet\n low")
    assert "moor,,natural,wet low" in text_of(folder, "taxonomy.csv")


def test_a_split_without_keys_lists_the_values(folder: Path) -> None:
    said = taxonomy(folder, "split", "parks", "lawn", code=2)
    assert [line.split()[0] for line in said.out.splitlines()] == ["Q1", "lawn"]
    assert "name the keys" in said.err and len(said.err.splitlines()) == 1
    assert texts(folder) == FILES


def test_another_kind_follows_in_all_files(folder: Path) -> None:
    taxonomy(folder, "describe", "parks", "--kind", "human-made", "--definition", "g")
    assert text_of(folder, "taxonomy.csv") == TAXONOMY.replace("c,natural,", "c,human-made,g")
    assert text_of(folder, "class_roots.csv") == ROOTS.replace("natural,parks", "human-made,parks")
    assert [row[3] for row in new_decisions(folder)] == ["human-made", "human-made"]


def test_an_unused_supercategory_is_removed(folder: Path) -> None:
    (folder / "labels" / "overrides.csv").unlink()
    taxonomy(folder, "remove", "pub")
    assert text_of(folder, "taxonomy.csv") == "".join(TAXONOMY.splitlines(keepends=True)[:-1])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rename", "park", "green"), "'park' is not in taxonomy.csv; did you mean 'parks'?"),
        (("rename", "parks", "Church"), "'Church' is in taxonomy.csv already, as 'church'"),
        (("rename", "parks", " "), "a new supercategory needs a name"),
        (("rename", "parks", "parks"), "'parks' has this name already"),
        (("rename", "parks", "a\nb"), "the name 'a\\nb' holds a line break"),
        (("merge", "parks", "Parks"), "'parks' cannot be merged into itself"),
        (("merge", "parks", "pub"), "'parks' is natural, 'pub ' is human-made"),
        (("add", "PUB", "--kind", "natural"), "'PUB' is in taxonomy.csv already, as 'pub '"),
        (("add", "bar", "--kind", "made"), "kind 'made': expected natural or human-made"),
        (("add", "", "--kind", "natural"), "a new supercategory needs a name"),
        (("remove", "parks"), "in use by 2 decisions, 1 class root, 1 override; merge it"),
        (("split", "parks", "lawn", "Q5"), "'Q5' is not decided as 'parks'"),
        (("describe", "parks"), "give --definition or --kind"),
        (("rename", "parks", "Drop"), "'Drop' is a decision, so no supercategory"),
    ],
)
def test_a_faulty_edit_is_one_line_and_changes_nothing(
    folder: Path, words: tuple[str, ...], said: str
) -> None:
    code = 2 if words[0] == "describe" else 3
    (line,) = taxonomy(folder, *words, code=code).err.splitlines()
    assert said in line
    assert texts(folder) == FILES


def test_a_description_of_nothing_is_refused_before_the_pipeline_is_read(folder: Path) -> None:
    (folder / "pipeline.toml").unlink()
    done = taxonomy(folder, "describe", "parks", code=2)
    assert "describe: give --definition or --kind" in done.err


def test_the_same_edit_again_changes_nothing(folder: Path) -> None:
    for words in (
        ("rename", "parks", "park"),
        ("merge", "park", "lake"),
        ("split", "lake", "lawn", "lawn"),
        ("remove", "tower"),
    ):
        if words[0] == "merge":
            taxonomy(folder, "add", "lake", "--kind", "natural")
        if words[0] == "remove":
            taxonomy(folder, "add", "tower", "--kind", "human-made")
        taxonomy(folder, *words)
        after = texts(folder)
        taxonomy(folder, *words)
        assert texts(folder) == after


def test_the_same_edit_again_changes_nothing_at_one_level(folder: Path) -> None:
    (folder / "pipeline.toml").write_text(f'{PIPELINE}[cluster]\nlevels = ["group"]\n')
    for path in (folder / "labels").iterdir():
        path.unlink()
    (folder / "labels" / "taxonomy.csv").write_text("supercategory,kind,definition\nchurch,,\n")
    for words in (
        ("add", "tower"),
        ("rename", "tower", "mast"),
        ("remove", "mast"),
        ("add", "mast"),
    ):
        taxonomy(folder, *words)
        after = texts(folder)
        taxonomy(folder, *words)
        assert texts(folder) == after


@pytest.mark.parametrize(
    ("edits", "names"),
    [
        ((("add", "inn", ""), ("merge", "inn", "garden")), {"church", "garden"}),
        ((("rename", "church", "chapel"), ("rename", "chapel", "kirk")), {"kirk", "garden"}),
        ((("split", "garden", "lawn"), ("merge", "lawn", "church")), {"church", "garden"}),
        (
            (("rename", "church", "x"), ("rename", "garden", "church"), ("rename", "x", "garden")),
            {"church", "garden"},
        ),
    ],
)
def test_a_list_of_edits_may_be_applied_again(
    edits: tuple[tuple[str, str, str], ...], names: set[str]
) -> None:
    tables = {"taxonomy": table_of("taxonomy", [
        {"supercategory": name, "kind": "human-made", "definition": name}
        for name in ("church", "garden")
    ])}  # fmt: skip
    recorded, decisions = table_of("taxonomy_edits", []), table_of("decisions", [])
    wanted = [
        TaxonomyEdit(do, name, into, "human-made" * (do == "add")) for do, name, into in edits
    ]
    found = []
    for entry in ("a", "b"):
        taxonomy = Taxonomy(tables, decisions)
        taxonomy.make(taxonomy.to_make(wanted, recorded))
        new = taxonomy.new_rows("ann", "2026-01-01", entry)["taxonomy_edits"]
        recorded = pd.concat([recorded, new], ignore_index=True)
        tables = {"taxonomy": taxonomy.table}
        found.append(taxonomy.table)
    assert set(found[0]["supercategory"]) == names
    pd.testing.assert_frame_equal(*found)


def test_an_undo_makes_no_taxonomy_that_is_no_tree() -> None:
    rows = [{"supercategory": n, "kind": "food > oven", "definition": ""} for n in ("bread", "pie")]
    levels = ("section", "aisle", "shelf")
    first = Taxonomy({"taxonomy": table_of("taxonomy", rows)}, table_of("decisions", []), levels)
    first.make([TaxonomyEdit("describe", name, kind="home > oven") for name in ("bread", "pie")])
    made = [cell for cell in first.record if cell["key"] == "bread"]
    entry = Entry(1, "a", "ann", "2026-01-01", "taxonomy", [], [], made)
    again = Taxonomy({"taxonomy": first.table}, table_of("decisions", []), levels)
    with pytest.raises(InvalidData, match="aisle 'oven' is below 'home' here and below 'food'"):
        again.undo(entry, [entry])


def test_the_first_supercategory_needs_the_levels_of_the_pipeline() -> None:
    tables = {"taxonomy": table_of("taxonomy", [])}
    taxonomy = Taxonomy(tables, table_of("decisions", []), ("section", "aisle", "shelf"))
    with pytest.raises(InvalidData, match="'bread' needs a kind: SECTION > AISLE"):
        taxonomy.make([TaxonomyEdit("add", "bread")])


def test_capitals_make_no_second_class_above() -> None:
    rows = [{"supercategory": "bread", "kind": "food > bakery", "definition": ""}]
    taxonomy = Taxonomy(
        {"taxonomy": table_of("taxonomy", rows)}, table_of("decisions", []), ("a", "b", "c")
    )
    taxonomy.make([TaxonomyEdit("add", "pie", kind="Food > Bakery")])
    assert set(taxonomy.table["kind"]) == {"food > bakery"}


def test_the_list_counts_a_value_once_and_aligns_names_of_any_script(folder: Path) -> None:
    decisions = folder / "labels" / "decisions.csv"
    twice = "Q5,qid,keep,church,human-made,anna,2026-01-03,,,6\n"  # as ben did
    decisions.write_text(decisions.read_text() + twice)
    taxonomy(folder, "rename", "parks", "公园")
    head, church, parks, _ = taxonomy(folder, "list").out.splitlines()
    assert church.split() == ["church", "human-made", "1", "0", "0"]
    assert head.index("kind") == church.index("human-made") == parks.index("natural") + 2


def test_capitals_of_a_name_can_be_changed(folder: Path) -> None:
    taxonomy(folder, "rename", "parks", "Parks")
    assert "Parks,c,natural" in text_of(folder, "taxonomy.csv")


def test_both_unicode_forms_of_a_name_are_one(folder: Path) -> None:
    kind = ("--kind", "human-made")
    taxonomy(folder, "add", "cafe\u0301", *kind)
    taxonomy(folder, "add", "Caf\u00e9", *kind, code=3)
    taxonomy(folder, "rename", "cafe\u0301", "bar")
    assert "bar," in text_of(folder, "taxonomy.csv")


def test_the_list_counts_what_uses_a_supercategory(folder: Path) -> None:
    lines = taxonomy(folder, "list").out.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["church", "human-made", "1", "0", "0"],
        ["parks", "natural", "2", "1", "1"],
        ["pub", "human-made", "0", "0", "1"],
    ]


@pytest.mark.parametrize("moves", range(7))
def test_a_kill_between_two_files_is_repaired_by_the_same_command(
    folder: Path,
    moves: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    whole = tmp_path_factory.mktemp("whole")
    shutil.copytree(folder, whole, dirs_exist_ok=True)
    taxonomy(whole, "rename", "parks", "park")
    if (pid := os.fork()) == 0:
        _die_after(moves, monkeypatch)
        taxonomy(folder, "rename", "parks", "park")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (9 if moves < 6 else 0)
    ready = folder / "labels" / ".replacing"
    assert ready.exists() or texts(folder) in (FILES, texts(whole))
    taxonomy(folder, "rename", "parks", "park")
    assert texts(folder) == texts(whole)
    assert not list((folder / "labels").glob(".replacing*"))


def test_a_run_after_a_kill_between_two_files_has_all_of_the_edit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (pid := os.fork()) == 0:
        _die_after(3, monkeypatch)
        taxonomy(folder, "rename", "parks", "park")
    os.waitpid(pid, 0)
    assert "parks" in text_of(folder, "taxonomy.csv")
    done = hgld("run", folder / "pipeline.toml", "--work", folder / "work", code=3)
    assert "finished the edit of the taxonomy that was stopped" in done.err
    assert "parks" not in text_of(folder, "taxonomy.csv")
    assert ",park," in text_of(folder, "decisions.csv")


def _die_after(moves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left, rename = moves, os.rename

    def counted(self: Path, target: Path) -> Path:
        nonlocal left
        if self.parent.name == ".replacing" or self.name == ".replacing.tmp":
            if not left:
                os._exit(9)
            left -= 1
        rename(self, target)
        return Path(target)

    monkeypatch.setattr(Path, "replace", counted)
    monkeypatch.setattr(Path, "rename", counted)


def test_an_edit_waits_for_the_lock_of_the_labels(folder: Path) -> None:
    with ThreadPoolExecutor() as threads:
        with hold(folder / "labels" / ".lock"):
            waits = threads.submit(taxonomy, folder, "rename", "parks", "park")
            wait([waits], timeout=0.5)
            assert texts(folder) == FILES
        waits.result()
    assert "park,c" in text_of(folder, "taxonomy.csv")


def undo(folder: Path, *words: str, now: str = "2026-11-23", code: int = 0) -> Printed:
    """Take an entry of the log back (its number), or the last decision on values (keys)."""
    where = ["--work", folder / "work", "--now", now]
    said = ["--apply", *words] if words[0].isdigit() else words
    return hgld("reviews", "undo", folder / "pipeline.toml", *said, *where, code=code)


def log_text(folder: Path, *more: str) -> str:
    return hgld("reviews", "log", folder / "pipeline.toml", "--work", folder / "work", *more).out


def last_entry(folder: Path) -> str:
    return str(max(row["number"] for row in json.loads(log_text(folder, "--json"))))


UNSORTED = (
    "supercategory,kind,definition\n\npub,human-made,\nparks,natural,'x'\nchurch,human-made,\n"
)


@pytest.mark.parametrize("name", ["pub", "parks", "church"])
def test_a_merge_that_is_taken_back_leaves_the_order_of_the_rows(folder: Path, name: str) -> None:
    path = folder / "labels" / "taxonomy.csv"
    path.write_text(UNSORTED)
    taxonomy(folder, "add", "tower", "--kind", "natural" if name == "parks" else "human-made")
    before = path.read_text()
    taxonomy(folder, "merge", name, "tower")
    merge = last_entry(folder)
    merged = path.read_text()
    undo(folder, merge)
    assert path.read_text() == before
    undo(folder, last_entry(folder), now="2026-11-24")  # a redo
    assert path.read_text() == merged
    undo(folder, last_entry(folder), now="2026-11-25")
    assert path.read_text() == before
    taxonomy(folder, "remove", "tower", now="2026-11-26")
    undo(folder, last_entry(folder), now="2026-11-27")
    assert path.read_text() == before


def test_rows_that_one_entry_removed_come_back_in_their_order(folder: Path) -> None:
    path = folder / "labels" / "taxonomy.csv"
    path.write_text(UNSORTED)
    runner = open_runner(folder / "pipeline.toml", None, folder / "work", "2026-11-22")
    edits = [
        TaxonomyEdit("add", "tower", kind="human-made"),
        TaxonomyEdit("merge", "pub", "church"),
        TaxonomyEdit("merge", "church", "tower"),
    ]
    edit_taxonomy(runner, edits, "anna")
    assert path.read_text().splitlines()[1:] == ["", "parks,natural,'x'", "tower,human-made,"]
    undo(folder, last_entry(folder))
    assert path.read_text() == UNSORTED


def test_the_log_names_what_an_entry_is_about(folder: Path) -> None:
    taxonomy(folder, "rename", "parks", "park")
    taxonomy(folder, "merge", "church", "pub")
    taxonomy(folder, "add", "pier", "--kind", "human-made")
    lines = log_text(folder).splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    for what in ("1 taxonomy rename (parks -> park)", "1 taxonomy merge (church -> pub)",
                 "1 taxonomy add (pier)", "3 keep, 1 drop (Q1, Q5 and 2 more)"):  # fmt: skip
        assert what in text, text


@pytest.mark.parametrize(
    "words",
    [
        ("rename", "parks", "park"),
        ("merge", "parks", "lake"),
        ("split", "parks", "lawn", "lawn"),
        ("describe", "parks", "--kind", "human-made", "--definition", "green"),
        ("add", "pier", "--kind", "human-made"),
        ("remove", "lake"),
    ],
)
def test_an_edit_is_undone_and_redone_by_the_log(folder: Path, words: tuple[str, ...]) -> None:
    still = ("--kind", "natural", "--definition", "still")
    taxonomy(folder, "add", "lake", *still, now="2026-11-21")
    before, held = texts(folder), in_force(folder)
    taxonomy(folder, *words)
    after, edited = texts(folder), in_force(folder)
    undo(folder, last_entry(folder))
    appended = ("decisions.csv", "taxonomy_edits.csv")
    assert {n: t for n, t in texts(folder).items() if n not in appended} == {
        n: t for n, t in before.items() if n not in appended
    }
    assert in_force(folder) == held
    undo(folder, last_entry(folder), now="2026-11-24")
    assert {n: t for n, t in texts(folder).items() if n not in appended} == {
        n: t for n, t in after.items() if n not in appended
    }
    assert in_force(folder) == edited


def in_force(folder: Path) -> dict[str, tuple[str, str, str]]:
    decisions = declared_table("decisions").read(folder / "labels" / "decisions.csv")
    found = {d.key: (d.answer, d.kind, d.conflict) for d in Decided(decisions).all()}
    assert not any(conflict for *_, conflict in found.values())
    return found


def test_an_undo_leaves_what_was_decided_since_and_says_so(folder: Path) -> None:
    taxonomy(folder, "add", "lake", "--kind", "natural", now="2026-11-21")
    taxonomy(folder, "merge", "parks", "lake")
    entry = last_entry(folder)
    taxonomy(folder, "split", "lake", "lawn", "lawn", now="2026-11-23")
    assert "lawn: decided again since" in undo(folder, entry).err
    assert in_force(folder)["Q1"][0] == "keep parks"
    assert in_force(folder)["lawn"][0] == "keep lawn"


def test_a_split_is_undone_after_a_rename_of_where_it_came_from(folder: Path) -> None:
    taxonomy(folder, "split", "parks", "lawn", "lawn")
    entry = last_entry(folder)
    taxonomy(folder, "rename", "parks", "park")
    taxonomy(folder, "add", "parks", "--kind", "natural")  # another one
    undo(folder, entry)
    assert in_force(folder)["lawn"][:2] == ("keep park", "natural")


@pytest.mark.parametrize(
    "words", [("rename", "lake", "mere"), ("describe", "lake", "--kind", "human-made")]
)
def test_a_merge_is_undone_after_an_edit_that_changed_no_answer(
    folder: Path, words: tuple[str, ...]
) -> None:
    taxonomy(folder, "add", "lake", "--kind", "natural")
    taxonomy(folder, "merge", "parks", "lake")
    entry = last_entry(folder)
    taxonomy(folder, *words)
    edited = in_force(folder)
    assert "decided again" not in undo(folder, entry).err
    assert {in_force(folder)[key][:2] for key in ("Q1", "lawn")} == {("keep parks", "natural")}
    undo(folder, last_entry(folder), now="2026-11-24")
    assert in_force(folder) == edited


@pytest.mark.parametrize(
    ("edit", "then", "says"),
    [
        (("split", "church", "kirk", "Q5"), ("remove", "church"), "'Q5' would get back 'church'"),
        (
            ("rename", "church", "kirk"),
            ("add", "church", "--kind", "human-made"),
            "'church' is in taxonomy.csv already",
        ),
    ],
)
def test_an_undo_that_a_later_edit_hinders_changes_nothing(
    folder: Path, edit: tuple[str, ...], then: tuple[str, ...], says: str
) -> None:
    taxonomy(folder, *edit)
    entry = last_entry(folder)
    taxonomy(folder, *then)
    before = texts(folder)
    assert says in undo(folder, entry, code=3).err
    assert texts(folder) == before


def test_a_decision_that_comes_back_has_the_name_of_its_own_supercategory(folder: Path) -> None:
    taxonomy(folder, "rename", "church", "kirk")
    taxonomy(folder, "rename", "parks", "church")
    assert in_force(folder)["Q1"][0] == "keep church"  # the former parks
    undo(folder, "Q1")
    assert in_force(folder)["Q1"][0] == "keep kirk"  # the former church


def test_names_that_were_swapped_in_one_entry_are_swapped_back() -> None:
    rows = [{"supercategory": n, "kind": "natural", "definition": ""} for n in ("lake", "pond")]
    cells = {"key": "Q1", "key_type": "qid", "decision": "keep", "kind": "natural"}
    decisions = table_of("decisions", [{**cells, "supercategory": "lake", "when": "2026-01-01"}])
    first = Taxonomy({"taxonomy": table_of("taxonomy", rows)}, decisions)
    swap = (("lake", "x"), ("pond", "lake"), ("x", "pond"))
    first.make([TaxonomyEdit("rename", *names) for names in swap])
    new = first.new_rows("ann", "2026-01-02", "abcdefgh taxonomy")
    decisions = pd.concat([decisions, new["decisions"]], ignore_index=True)
    again = Taxonomy({"taxonomy": first.table}, decisions)
    log = list_entries(decisions, table_of("cluster_edits", []), new["taxonomy_edits"])
    again.undo(log[-1], log)
    undone = again.new_rows("ann", "2026-01-03", "hgfedcba undo")["decisions"]
    assert undone["supercategory"].tolist() == ["lake"]


def log_of(*edited: Taxonomy) -> tuple[Entry, list[Entry]]:
    """The first entry of a log of edits that changed no decision, and the log."""
    log = [
        Entry(i, "", "ann", "2026-01-02", "taxonomy", [], [], taxonomy.record)
        for i, taxonomy in enumerate(edited, 1)
    ]
    return log[0], log


def test_an_undo_brings_no_class_back_that_was_renamed_since() -> None:
    rows = [{"supercategory": n, "kind": "food > bakery", "definition": ""} for n in ("bun", "pie")]
    levels, none = ("section", "aisle", "shelf"), table_of("decisions", [])
    first = Taxonomy({"taxonomy": table_of("taxonomy", rows)}, none, levels)
    first.make([TaxonomyEdit("remove", "bun")])
    again = Taxonomy({"taxonomy": first.table}, none, levels)
    again.make(rename_above(again.table, levels, "aisle", "bakery", "oven"))
    last = Taxonomy({"taxonomy": again.table}, none, levels)
    with pytest.raises(InvalidData, match="'bun' would bring 'food > bakery' back"):
        last.undo(*log_of(first, again))
    then = Taxonomy({"taxonomy": first.table}, none, levels)
    then.make([TaxonomyEdit("remove", "pie")])
    alone = Taxonomy({"taxonomy": then.table}, none, levels)
    alone.undo(*log_of(first, then))
    assert alone.table["supercategory"].tolist() == ["bun"]


def test_what_is_in_use_since_is_not_undone(folder: Path) -> None:
    taxonomy(folder, "add", "lake", "--kind", "natural")
    entry = last_entry(folder)
    taxonomy(folder, "merge", "parks", "lake", now="2026-11-23")
    before = texts(folder)
    assert "'lake' is in use by 2 decisions" in undo(folder, entry, code=3).err
    assert texts(folder) == before
