import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hgld.artifacts import columns_of, declared_table
from tests.in_process import hgld

HEADER = ",".join(columns_of("train_labels"))
URL = "http://commons.wikimedia.org/wiki/Category:"
PATH = '{"kind": "human-made", "supercategory": "church", "landmark": "train:7"}'


def write(folder: Path, name: str, *rows: tuple[Any, ...]) -> Path:
    artifact = declared_table(name)
    artifact.write(pd.DataFrame(rows, columns=columns_of(name)), folder / artifact.file)
    return folder / artifact.file


@pytest.fixture
def run(tmp_path: Path) -> list[str]:
    """Arguments that name a run whose tables are there."""
    (tmp_path / "p.toml").write_text('labels = "labels"\n')
    work = tmp_path / "work"
    write(work, "landmarks", ("train", 7, "St Agnes", URL + "St_Agnes"),
          ("train", 8, "Old Mill", URL + "Old_Mill"))  # fmt: skip
    write(work, "instance_of", ("train", 7, "Q9", 5, 0, "Q1", "chapel", "normal", "{}"))
    write(work, "misses", ("train", 8, "no_item", "'Category:Old Mill' has no Wikidata item"))
    write(work, "landmark_values", ("train", 7, 0, "Q1", "chapel"))
    write(work, "hierarchy", ("train", 7, PATH))
    write(work, "label_dropped", ("train", 8, "no_item", "no Wikidata item"))
    write(
        tmp_path / "labels", "decisions",
        ("Q1", "qid", "keep", "church", "human-made", "bob", "2026-02-02",
         "small, and yet a house of prayer like any other of its kind", "", "", "", ""),
    )  # fmt: skip
    return [str(tmp_path / "p.toml"), "--work", str(work)]


def test_explain_fits_one_screen(run: list[str]) -> None:
    assert hgld("labels", "explain", *run, "7").out == (
        "landmark     train:7 St Agnes\n"
        "             http://commons.wikimedia.org/wiki/Category:St_Agnes\n"
        "item         Q9, read at revision 5\n"
        "             https://www.wikidata.org/wiki/Q9\n"
        "instance of  chapel (Q1)\n"
        "clean        goes by chapel (Q1)\n"
        "decision     keep church (human-made)\n"
        '             by bob, 2026-02-02: "small, and yet a house of prayer like any\n'
        '             other of its kind"\n'
        "             row 2 of decisions.csv, for qid 'Q1'\n"
        "path         human-made > church > train:7\n"
    )


def test_explain_tells_why_a_landmark_has_no_path(run: list[str]) -> None:
    lines = hgld("labels", "explain", *run, "Old Mill").out.splitlines()
    assert lines[2:] == [
        "scrape       nothing: no_item: 'Category:Old Mill' has no Wikidata item",
        "no path      no_item: no Wikidata item",
    ]


def test_explain_leaves_out_tables_of_other_landmarks(run: list[str], tmp_path: Path) -> None:
    """A class that came later has the number of another one in them."""
    label = {"function": "", "revision": 1, "options": {}, "outputs": {}}
    label |= {"inputs": {"landmarks": "of before"}}
    lock = {"stages": {"label": label}, "files": {}}
    (tmp_path / "work" / "lock.json").write_text(json.dumps(lock))
    found = hgld("labels", "explain", *run, "train:7")
    assert "chapel" in found.out and "\npath" not in found.out
    assert "hierarchy.csv, label_dropped.csv left out, older than landmarks.csv" in found.err


def test_explain_as_json_holds_the_facts(run: list[str]) -> None:
    done = hgld("labels", "explain", *run, "train:7", "--json")
    steps = {step["step"]: step for step in json.loads(done.out)}
    assert steps["item"] == {"step": "item", "item_id": "Q9", "revision": 5}
    assert (steps["decision"]["who"], steps["decision"]["row"]) == ("bob", 2)
    assert list(steps["path"]["path"].values()) == ["human-made", "church", "train:7"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 2, "no landmark 'nowhere'"),
        (["7", "--split", "test"], 2, "--split test: expected train or index"),
        (["7", "--work", "gone"], 1, "--work gone` first"),
    ],
)
def test_explain_says_what_is_wrong_in_one_line(
    arguments: list[str], code: int, message: str, run: list[str]
) -> None:  # fmt: skip
    error = hgld("labels", "explain", *run, *arguments, code=code).err
    assert message in error and error.count("\n") == 1


@pytest.fixture
def sides(tmp_path: Path) -> list[Path]:
    kinds = {"lake": "natural", "castle / fort": "human-made", "church": "human-made"}
    both = {
        "a": ["lake", "church", "church", "castle / fort"],
        "b": ["lake", "castle / fort", "castle / fort", ""],
    }
    return [
        write(tmp_path / side, "train_labels", *(
            (i, f"{URL}{i}", "v", label, kinds[label]) for i, label in enumerate(labels) if label
        ))
        for side, labels in both.items()
    ]  # fmt: skip


def test_compare_shows_what_changed(
    sides: list[Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    out = hgld("labels", "compare", "a", "b/train_label_to_hierarchical.csv").out
    assert out == (
        "A            a\n"
        "B            b/train_label_to_hierarchical.csv\n"
        "landmarks    A 4, B 3, both 3\n"
        "             only in A (lost) 1, only in B (added) 0\n"
        "same label   1 of 3 (33.3 %)\n"
        "same kind    3 of 3 (100.0 %)\n"
        "\n"
        "label                          A       B    same    left    came    lost   added\n"
        "castle / fort                  1       2       0       0       2       1       0\n"
        "church                         2       0       0       2       0       0       0\n"
        "\n"
        "A says                  B says                  landmarks\n"
        "church                  castle / fort                   2\n"
    )
    assert max(map(len, out.splitlines())) <= 80


def test_compare_aligns_long_labels_of_wide_letters(tmp_path: Path) -> None:
    one, other = "歴史的建造物と文化財の保護区域", "湖"
    sides = [
        write(tmp_path / side, "train_labels", (0, f"{URL}0", "v", label, "natural"))
        for side, label in (("a", one), ("b", other))
    ]
    assert hgld("labels", "compare", *sides).out.endswith(
        "A says                  B says                  landmarks\n"
        "歴史的建造物と文化財の… 湖                              1\n"
    )


def test_compare_says_how_many_rows_it_leaves_out(sides: list[Path]) -> None:
    done = hgld("labels", "compare", *sides, "--rows", 1)
    assert "1 more labels that changed: --rows, or --json for all" in done.out


def test_compare_as_json_holds_all_of_it(sides: list[Path]) -> None:
    found = json.loads(hgld("labels", "compare", *sides, "--json").out)
    assert (found["same"], found["moved"], found["lost"], found["added"]) == (1, 2, 1, 0)
    assert [row["label"] for row in found["supercategories"]][2:] == ["lake"]
    assert found["confusions"] == [
        {"label_a": "church", "label_b": "castle / fort", "landmarks": 2}
    ]


def test_compare_writes_every_landmark(sides: list[Path], tmp_path: Path) -> None:
    hgld("labels", "compare", *sides, "--out", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().splitlines()[1:3] == [
        "train,0,lake,natural,lake,natural,same",
        "train,1,church,human-made,castle / fort,human-made,moved",
    ]


def test_compare_writes_over_no_file_that_it_reads(sides: list[Path], tmp_path: Path) -> None:
    read = tmp_path / "b" / "train_label_to_hierarchical.csv"
    before = read.read_bytes()
    done = hgld("labels", "compare", sides[0], read, "--out", read, code=2)
    assert "the command reads this file" in done.err
    assert read.read_bytes() == before


def test_compare_tells_a_file_that_is_none(sides: list[Path], tmp_path: Path) -> None:
    done = hgld("labels", "compare", sides[0], tmp_path / "none.csv", code=3)
    assert "none.csv: no such file" in done.err


def test_check_counts_and_writes_back(sides: list[Path], tmp_path: Path) -> None:
    done = hgld("labels", "check", sides[0], "--out", tmp_path / "again.csv")
    assert "4 landmarks with one of 3 labels (1 natural, 2 human-made)" in done.out
    assert (tmp_path / "again.csv").read_bytes() == sides[0].read_bytes()
    found = json.loads(hgld("labels", "check", sides[0], "--json").out)
    assert (found["labelled"], found["labels"]) == (4, {"natural": 1, "human-made": 2})


@pytest.mark.real
def test_real_labels_are_compared_with_themselves(real_data: Path) -> None:
    file = real_data / "gldv2-labels" / "index_label_to_hierarchical.csv"
    assert "same label   55,529 of 55,529 (100.0 %)" in hgld("labels", "compare", file, file).out


def test_a_label_file_without_rows_is_refused_by_check(tmp_path: Path) -> None:
    for header, noun in (("split,class_id,group,species", "class"), (HEADER, "landmark")):
        (tmp_path / "labels.csv").write_text(f"{header}\n")
        done = hgld("labels", "check", tmp_path / "labels.csv", code=3)
        says = f"labels.csv: has no row below its header; expected one for each {noun}"
        assert says in done.err
