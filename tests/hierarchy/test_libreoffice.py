"""A real LibreOffice opens a review sheet and saves it again; what was decided must be the same."""

import csv
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hgld.artifacts import Vectors, declared_table, table_of
from hgld.artifacts.cells import guard_columns
from hgld.review.apply import apply_sheets
from hgld.review.sheets import list_values
from hgld.review.spreadsheet import read_files
from hgld.review.workbook import write_workbook
from tests.listening import heard

pytestmark = pytest.mark.slow

OFFICE = shutil.which("soffice")
LABELS = (
    *("007", "1/2", "1-2", "1E5", "3.14", "TRUE", "=1+1", "+cmd|' /C calc'!A0", "@home", "Mar 1"),
    *("château", "Ordish–Lefeuvre system", "'t Hof", "a; b", 'so "called"', "mill"),
)
TAXONOMY = table_of(
    "taxonomy",
    [
        {"supercategory": "castle / fort", "kind": "human-made", "definition": ""},
        {"supercategory": "lake", "kind": "natural", "definition": ""},
    ],
)
CLUSTERS = table_of(
    "clusters",
    [
        {"class_id": "", "instance_of": label, "landmarks": 1222, "images": 1234567,
         "cluster": i, "cluster_name": label, "distance": 0.25, "margin": 0.125}
        for i, label in enumerate(LABELS)
    ],
)  # fmt: skip
NONE = table_of("decisions", [])
NO_HINTS = table_of("class_hints", [])
NOTES = {label: f"{label} – “so”, it is" for label in LABELS}
NOTHING = (table_of("landmark_values", []), table_of("landmarks", []))
SHEET = list_values(CLUSTERS, *NOTHING, TAXONOMY, NONE, NO_HINTS)
TEXT = "Text - txt - csv (StarCalc)"
LANGUAGES = {"en": 1033, "de": 1031, "fr": 1036}
UTF_8, WINDOWS, UTF_16 = 76, 1, 65535

Convert = Callable[..., Path]


@pytest.fixture
def convert(tmp_path: Path) -> Convert:
    """Open a file and save it as another, by a LibreOffice with a profile of its own."""
    if OFFICE is None:
        message = "no soffice: apt-get install libreoffice-calc-nogui"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)

    def run(path: Path, to: str, reads_as: str = "") -> Path:
        out = tmp_path / f"saved-{len(list(tmp_path.iterdir()))}"
        profile = f"-env:UserInstallation=file://{tmp_path / 'profile'}"
        more = [f"--infilter={reads_as}"] if reads_as else []
        words = [OFFICE, profile, "--headless", "--norestore", *more, "--convert-to", to]
        subprocess.run(
            [*words, "--outdir", out, path], check=True, capture_output=True, timeout=120
        )
        return out / f"{path.stem}.{to.split(':')[0]}"

    return run


def filled(folder: Path) -> Path:
    """The sheet as hgld writes it, with every value decided, the last one as unsure."""
    decisions = ["keep"] * (len(SHEET) - 1) + ["unsure"]
    notes = [NOTES[key] for key in SHEET["key"]]
    rows = SHEET.assign(decision=decisions, supercategory="lake", note=notes)
    artifact = declared_table("review")
    artifact.write(guard_columns(rows), folder / artifact.file)
    return folder / artifact.file


def applied(path: Path) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """What the sheet decides by key, and what is said about it."""
    with heard() as notes:
        after = apply_sheets(
            read_files([path]), CLUSTERS, Vectors(list(LABELS), np.eye(len(LABELS)), {}),
            TAXONOMY, NONE, table_of("cluster_edits", []), NO_HINTS, who="a", when="2026-11-21",
        ).decisions  # fmt: skip
    columns = ("decision", "supercategory", "kind", "why")
    return {row["key"]: tuple(row[c] for c in columns) for _, row in after.iterrows()}, notes


def meant(folder: Path) -> dict[str, tuple[str, ...]]:
    found, notes = applied(filled(folder))
    assert set(found) == set(LABELS) and not notes
    assert found["007"] == ("keep", "lake", "natural", NOTES["007"])
    return found


@pytest.mark.parametrize(
    ("language", "separator", "charset"),
    [("en", ",", UTF_8), ("de", ";", UTF_8), ("fr", ";", WINDOWS), ("fr", "\t", UTF_16)],
)
def test_a_csv_saved_by_libreoffice_says_the_same(
    language: str, separator: str, charset: int, convert: Convert, tmp_path: Path
) -> None:
    expected = meant(tmp_path)
    opened = f"{TEXT}:44,34,{UTF_8},1,,{LANGUAGES[language]},false,true"
    book = convert(tmp_path / "review.csv", "ods", opened)
    saved = f"csv:{TEXT}:{ord(separator)},34,{charset},1,,{LANGUAGES[language]},false,true,true"
    found, notes = applied(convert(book, saved))
    assert found == expected
    assert [n for n in notes if "Windows-1252" not in n] == []


def test_without_the_guards_libreoffice_would_spoil_the_keys(
    convert: Convert, tmp_path: Path
) -> None:
    (tmp_path / "bare.csv").write_text("key\n007\n1/2\n=1+1\n1E5\n")
    opened = f"{TEXT}:44,34,{UTF_8},1,,{LANGUAGES['en']},false,true"
    book = convert(tmp_path / "bare.csv", "ods", opened)
    lines = convert(book, f"csv:{TEXT}:44,34,{UTF_8},1").read_text().splitlines()
    assert not {"007", "1/2", "1E5"} & set(lines)


def test_a_csv_saved_as_a_workbook_says_the_same(convert: Convert, tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    expected = meant(tmp_path)
    opened = f"{TEXT}:44,34,{UTF_8},1,,{LANGUAGES['de']},false,true"
    found, notes = applied(convert(tmp_path / "review.csv", "xlsx", opened))
    assert found == expected and not notes


def test_a_csv_opened_in_the_wrong_encoding_says_the_same(convert: Convert, tmp_path: Path) -> None:
    expected = meant(tmp_path)
    opened = f"{TEXT}:44,34,{WINDOWS},1,,{LANGUAGES['en']},false,true"
    book = convert(tmp_path / "review.csv", "ods", opened)
    found, notes = applied(convert(book, f"csv:{TEXT}:44,34,{UTF_8},1"))
    assert found == expected and "letters like é are put right" in notes[0]


def test_our_workbook_saved_by_libreoffice_says_the_same(convert: Convert, tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    expected = meant(tmp_path)
    with (tmp_path / "review.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = pd.DataFrame(list(csv.DictReader(file)), dtype="str")
    clusters = table_of("review_clusters", [])
    write_workbook({"review": rows, "review_clusters": clusters}, TAXONOMY, tmp_path / "r.xlsx")
    assert applied(tmp_path / "r.xlsx")[0] == expected
    assert applied(convert(tmp_path / "r.xlsx", "xlsx"))[0] == expected
    assert applied(convert(tmp_path / "r.xlsx", "ods"))[0] == expected
    assert applied(convert(tmp_path / "r.xlsx", f"csv:{TEXT}:59,34,{UTF_8},1"))[0] == expected


def test_merged_cells_of_libreoffice_decide_each_of_their_rows(
    convert: Convert, tmp_path: Path
) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    page = book.worksheets[0]
    page.append(["decision", "supercategory", "note", "key"])
    for key in ("château", "mill", "a; b"):
        page.append(["keep", "lake", "a\tb", key])
    page.merge_cells("A2:A4")
    page.merge_cells("B3:B4")
    book.save(tmp_path / "merged.xlsx")
    for kind in ("ods", "xlsx"):
        found, _ = applied(convert(tmp_path / "merged.xlsx", kind))
        assert {key: row[:2] for key, row in found.items()} == dict.fromkeys(
            ("château", "mill", "a; b"), ("keep", "lake")
        )
    assert applied(convert(tmp_path / "merged.xlsx", "ods"))[0]["mill"][3] == "a b"
