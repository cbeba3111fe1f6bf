"""What spreadsheets and people do to a review sheet, and what is read out of it."""

import csv
import io
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import InvalidData
from hgld.hierarchy.columns import records, table_of
from hgld.hierarchy.sheet import apply_sheet, guard, unguard

TAXONOMY = table_of(
    "taxonomy",
    [
        {"supercategory": name, "kind": kind, "definition": ""}
        for name, kind in (
            ("church", "human-made"), ("lake", "natural"), ("castle / fort", "human-made"),
        )
    ],
)  # fmt: skip
CLUSTERS = table_of(
    "clusters",
    [
        {"class_id": class_id, "instance_of": label, "landmarks": 1, "images": 1,
         "cluster": 0, "cluster_name": "c", "distance": 0.0, "margin": 0.0}
        for class_id, label in (
            ("Q1", "chapel"), ("Q2", "pond"), ("", "=odd"), ("Q4", "fort"), ("", "quarter of x"),
        )
    ],
)  # fmt: skip
NONE = table_of("decisions", [])
HEADER = "decision,supercategory,kind,note,key"


def decisions(*rows: tuple[str, ...]) -> pd.DataFrame:
    """Rows of (key, key_type, decision, supercategory, kind, when, why)."""
    names = ("key", "key_type", "decision", "supercategory", "kind", "when", "why")
    more = {"who": "a", "supersedes": ""}
    return table_of("decisions", [{**dict(zip(names, row, strict=True)), **more} for row in rows])


def apply(folder: Path, data: str | bytes, before: pd.DataFrame = NONE) -> pd.DataFrame:
    path = folder / "review.csv"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    after = apply_sheet(path, CLUSTERS, TAXONOMY, before, who="b", when="2026-11-21")
    pd.testing.assert_frame_equal(after[: len(before)], before)
    return after[len(before) :]


def short(new: pd.DataFrame) -> list[list[str]]:
    return new[["key", "decision", "supercategory", "kind", "why"]].to_numpy().tolist()


def faults(folder: Path, data: str, before: pd.DataFrame = NONE) -> list[str]:
    with pytest.raises(InvalidData) as error:
        apply(folder, data, before)
    return str(error.value).split("\n  ")


def test_a_decided_row_is_appended_with_who_and_when(tmp_path: Path) -> None:
    new = apply(tmp_path, f"{HEADER}\nkeep,church,human-made,a small one,Q1\n,,,,Q2\n")
    assert records(new) == [
        {
            "key": "Q1", "key_type": "qid", "decision": "keep", "supercategory": "church",
            "kind": "human-made", "who": "b", "when": "2026-11-21", "why": "a small one",
            "supersedes": "",
        }
    ]  # fmt: skip


def test_the_kind_comes_from_the_taxonomy_where_it_is_empty(tmp_path: Path) -> None:
    new = apply(tmp_path, f"{HEADER}\nmove,lake,,,Q2\n")
    assert short(new) == [["Q2", "move", "lake", "natural", ""]]


def test_a_changed_decision_names_the_one_that_it_replaces(tmp_path: Path) -> None:
    before = decisions(("Q1", "qid", "keep", "lake", "natural", "2026-01-02", ""))
    new = apply(tmp_path, f"{HEADER}\nkeep,church,,,Q1\n", before)
    assert new["supersedes"].tolist() == ["2026-01-02"]


def test_untouched_rows_are_not_appended(tmp_path: Path) -> None:
    before = decisions(
        ("Q1", "qid", "keep", "church", "human-made", "2026-01-02", "so  it is"),
        ("Q2", "qid", "keep", "lake", "", "2026-01-02", ""),
        ("fort", "label", "drop", "", "", "2026-01-02", ""),
    )
    text = f"{HEADER}\nkeep,church,human-made,so it is,Q1\nkeep,lake,,,Q2\ndrop,,,,Q4\n"
    assert short(apply(tmp_path, text, before)) == []


def test_a_sheet_that_is_applied_twice_changes_nothing_the_second_time(tmp_path: Path) -> None:
    text = f"{HEADER}\nkeep,church,,note,Q1\nunsure,,,,Q2\ndrop,,,no,'=odd\n"
    once = apply(tmp_path, text)
    assert len(once) == 3
    assert short(apply(tmp_path, text, once)) == []


def test_a_decision_on_the_label_is_replaced_by_one_on_the_id(tmp_path: Path) -> None:
    before = decisions(("pond", "label", "drop", "", "", "2026-01-02", ""))
    new = apply(tmp_path, f"{HEADER}\nkeep,lake,,,Q2\n", before)
    found = new[["key", "key_type", "supersedes"]].to_numpy().tolist()
    assert found == [["Q2", "qid", "2026-01-02"]]


def test_a_blank_row_or_a_row_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    before = decisions(("Q1", "qid", "keep", "church", "human-made", "2026-01-02", ""))
    assert short(apply(tmp_path, f"{HEADER}\n,,,,Q1\n,,,,\n", before)) == []


def test_drop_forgets_the_supercategory_and_kind(tmp_path: Path) -> None:
    new = apply(tmp_path, f"{HEADER}\ndrop,church,human-made,,Q1\n")
    assert short(new) == [["Q1", "drop", "", "", ""]]


def test_new_rows_stand_in_the_order_of_their_keys(tmp_path: Path) -> None:
    new = apply(tmp_path, f"{HEADER}\ndrop,,,,Q4\ndrop,,,,'=odd\ndrop,,,,Q1\n")
    assert new["key"].tolist() == ["=odd", "Q1", "Q4"]


ROWS = [
    ["Decision", " supercategory", "mine", "note", "key", "kind", "margin"],
    ["Keep", "Castle \u00a0/ fort", "x", "so\u202fso; \u201cyes\u201d, é", "Q4", "", "0,25"],
    ["UNSURE", "", "", "'=see", "'=odd", "", "1 222,00"],
    ["", "", "", "", "", "", ""],
    ["drop ", "", "", "", "quarter\u00a0 of x", "", ""],
]
MEANT = [
    ["=odd", "unsure", "", "", "=see"],
    ["Q4", "keep", "castle / fort", "human-made", "so so; \u201cyes\u201d, é"],
    ["quarter of x", "drop", "", "", ""],
]


def as_csv(delimiter: str, line_end: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator=line_end).writerows(ROWS)
    return text.getvalue()


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_what_a_spreadsheet_made_of_it_is_read_as_it_was_meant(
    delimiter: str, line_end: str, encoding: str, tmp_path: Path
) -> None:
    assert short(apply(tmp_path, as_csv(delimiter, line_end).encode(encoding))) == MEANT


def test_a_line_that_names_the_delimiter_is_passed_over(tmp_path: Path) -> None:
    assert short(apply(tmp_path, "sep=;\n" + as_csv(";", "\r\n"))) == MEANT


def test_all_faults_are_told_at_once_with_row_and_column(tmp_path: Path) -> None:
    text = "\n".join(
        [
            HEADER,
            "keep,chruch,,,Q1",
            "maybe,,,,Q2",
            ",church,,,=odd",
            "keep,lake,human-made,,Q4",
            "keep,lake,natura,,quarter of x",
            "drop,,,,Q99",
            "drop,,,,Q1",
            "keep,,,,Q2",
        ]
    )
    assert faults(tmp_path, text) == [
        f"{tmp_path / 'review.csv'}: 9 faults, nothing was applied",
        "row 2, column supercategory: found 'chruch'; expected a name that is in taxonomy.csv"
        "; did you mean 'church'?",
        "row 3, column decision: found 'maybe'; expected one of keep, move, drop, unsure",
        "row 4, column decision: found ''; expected keep, move, drop or unsure, "
        "since supercategory is filled in",
        "row 5, column kind: found 'human-made'; expected 'natural', "
        "which 'lake' is in taxonomy.csv",
        "row 6, column kind: found 'natura'; expected natural or human-made, or nothing"
        "; did you mean 'natural'?",
        "row 7, column key: found 'Q99'; expected the key of a value in clusters.csv",
        "row 8, column key: found 'Q1'; expected each key once; it stands in row 2 too",
        "row 9, column key: found 'Q2'; expected each key once; it stands in row 3 too",
        "row 9, column supercategory: found ''; expected a name that is in taxonomy.csv",
    ]


def test_one_fault_and_nothing_at_all_is_applied(tmp_path: Path) -> None:
    found = faults(tmp_path, f"{HEADER}\nkeep,church,,,Q1\nkeep,pub,,,Q2\n")
    assert found[0].endswith("1 fault, nothing was applied")


def test_a_note_without_a_decision_is_not_lost_silently(tmp_path: Path) -> None:
    assert "since note is filled in" in faults(tmp_path, f"{HEADER}\n,,,look again,Q1\n")[1]


def test_a_missing_column_is_told(tmp_path: Path) -> None:
    found = faults(tmp_path, "decison,supercategory,kind,note,key\n")
    assert "column 'decision' is missing" in found[0]
    assert "did you mean 'decison'?" in found[0]


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_file_is_told(text: str, tmp_path: Path) -> None:
    assert "column 'key' is missing" in faults(tmp_path, text)[0]


def test_text_that_is_not_utf_8_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"not UTF-8 text.*save it as CSV in UTF-8"):
        apply(tmp_path, f"{HEADER}\nkeep,church,,caf\u00e9,Q1\n".encode("latin-1"))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="no such file; `hgld review` writes it"):
        apply_sheet(tmp_path / "x.csv", CLUSTERS, TAXONOMY, NONE, who="b", when="2026-11-21")


@given(st.text(alphabet="'=+-@\ta\u00a0"))
def test_a_guarded_cell_is_no_formula_and_comes_back(cell: str) -> None:
    assert unguard(guard(cell)) == cell
    assert not guard(cell).startswith(("=", "+", "-", "@", "\t"))
