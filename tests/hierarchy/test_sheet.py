"""What spreadsheets and people do to a review sheet, and what is read out of it."""

import csv
import io
import zipfile
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from functools import reduce
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.artifacts import Vectors, records, table_of
from hgld.artifacts.cells import guard, unguard
from hgld.errors import InvalidData
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.decisions import Decided, row_id
from hgld.review.apply import apply_sheets
from hgld.review.row_base import base_of, evidence_of
from hgld.review.spreadsheet import SheetRow, read_files
from tests.hierarchy.test_decisions import in_a_row
from tests.listening import heard

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
NO_EDITS = table_of("cluster_edits", [])
NO_HINTS = table_of("class_hints", [])
VECTORS = Vectors(value_keys(CLUSTERS).tolist(), np.eye(len(CLUSTERS)), {})
HEADER = "decision,supercategory,kind,note,key"
UNDEFINED = b"\x81\x8d\x8f\x90\x9d"  # in Windows-1252, where programs keep them as they are


def decisions(*rows: tuple[str, ...]) -> pd.DataFrame:
    """Rows of (key, key_type, decision, supercategory, kind, when, why)."""
    names = ("key", "key_type", "decision", "supercategory", "kind", "when", "why")
    return in_a_row([{**dict(zip(names, row, strict=True)), "who": "a"} for row in rows])


def apply_paths(paths: Sequence[Path], before: pd.DataFrame = NONE) -> pd.DataFrame:
    after = apply_sheets(
        read_files(paths), CLUSTERS, VECTORS, TAXONOMY, before, NO_EDITS, NO_HINTS,
        who="b", when="2026-11-21",
    )  # fmt: skip
    assert after.cluster_edits.empty
    return after.decisions


def apply(folder: Path, data: str | bytes, before: pd.DataFrame = NONE) -> pd.DataFrame:
    path = folder / "review.csv"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    after = apply_paths([path], before)
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
            "supersedes": "", "evidence": evidence_of(CLUSTERS, {})[0], "undoes": "",
            "entry": "ainicina review.csv",
        }
    ]  # fmt: skip


def test_the_kind_comes_from_the_taxonomy_where_it_is_empty(tmp_path: Path) -> None:
    new = apply(tmp_path, f"{HEADER}\nmove,lake,,,Q2\n")
    assert short(new) == [["Q2", "move", "lake", "natural", ""]]


def test_a_changed_decision_names_the_one_that_it_replaces(tmp_path: Path) -> None:
    before = decisions(("Q1", "qid", "keep", "lake", "natural", "2026-01-02", ""))
    new = apply(tmp_path, f"{HEADER}\nkeep,church,,,Q1\n", before)
    assert new["supersedes"].tolist() == [row_id(before.iloc[0])]


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


def stale_sheet(**cells: str) -> tuple[pd.DataFrame, str]:
    """A decision on Q1 when it was called otherwise, and its row as the sheet shows it now."""
    decided = decisions(("Q1", "qid", "keep", "church", "human-made", "2026-01-02", "so"))
    before = decided.assign(evidence="aaaaaa")
    row = {
        "decision": "keep", "supercategory": "church", "kind": "human-made", "note": "so",
        "key": "Q1", "evidence": evidence_of(CLUSTERS, {})[0], "status": "stale", **cells,
    }  # fmt: skip
    return before, f"{','.join(row)}\n{','.join(row.values())}\n"


def test_a_stale_decision_is_confirmed_by_its_status_and_only_once(tmp_path: Path) -> None:
    before, text = stale_sheet(status="Decided")
    new = apply(tmp_path, text, before)
    assert short(new) == [["Q1", "keep", "church", "human-made", "so"]]
    assert new["evidence"].tolist() == evidence_of(CLUSTERS, {})[:1]
    assert short(apply(tmp_path, text, pd.concat([before, new], ignore_index=True))) == []


def test_a_decision_of_a_kind_that_the_taxonomy_changed_is_confirmed_with_the_present_one(
    tmp_path: Path,
) -> None:
    now = evidence_of(CLUSTERS, {})[0]
    before = decisions(("Q1", "qid", "keep", "church", "natural", "2026-01-02", "so"))
    before = before.assign(evidence=now)
    row = f"keep,church,natural,so,Q1,{now},"
    text = f"{HEADER},evidence,status\n{row}"
    assert short(apply(tmp_path, f"{text}stale\n", before)) == []
    new = apply(tmp_path, f"{text}decided\n", before)
    assert short(new) == [["Q1", "keep", "church", "human-made", "so"]]
    assert new["supersedes"].tolist() == [row_id(before.iloc[0])]


def test_a_stale_decision_that_is_left_as_it_is_is_not_confirmed(tmp_path: Path) -> None:
    before, text = stale_sheet()
    assert short(apply(tmp_path, text, before)) == []


def test_a_sheet_from_before_the_value_changed_confirms_nothing(tmp_path: Path) -> None:
    before, text = stale_sheet(status="decided", evidence="aaaaaa")
    assert "the value has changed since this sheet was written" in faults(tmp_path, text, before)[1]


def test_a_decision_on_the_label_is_replaced_by_one_on_the_id(tmp_path: Path) -> None:
    before = decisions(("pond", "label", "drop", "", "", "2026-01-02", ""))
    new = apply(tmp_path, f"{HEADER}\nkeep,lake,,,Q2\n", before)
    found = new[["key", "key_type", "supersedes"]].to_numpy().tolist()
    assert found == [["Q2", "qid", row_id(before.iloc[0])]]


def test_a_blank_row_or_a_row_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    before = decisions(("Q1", "qid", "keep", "church", "human-made", "2026-01-02", ""))
    assert short(apply(tmp_path, f"{HEADER}\n,,,,Q1\n,,,,\n", before)) == []


def test_a_row_whose_kind_alone_was_cleared_does_not_contradict_a_newer_decision(
    tmp_path: Path,
) -> None:
    church = ("Q1", "qid", "keep", "church", "human-made", "2026-01-01", "")
    base = base_of("Q1", Decided(decisions(church)).heads("Q1", "chapel"))
    newer = decisions(church, ("Q1", "qid", "drop", "", "", "2026-01-02", ""))
    assert apply(tmp_path, f"{HEADER},base\nkeep,church,,,Q1,{base}\n", newer).empty


def test_drop_forgets_the_supercategory_and_kind(tmp_path: Path) -> None:
    new = apply(tmp_path, f"{HEADER}\ndrop,church,human-made,,Q1\n")
    assert short(new) == [["Q1", "drop", "", "", ""]]


def test_a_zero_byte_in_a_note_does_not_reach_the_decisions(tmp_path: Path) -> None:
    new = apply(tmp_path, f"{HEADER},{'x' * 200}\ndrop,,,a\0b,Q1,\n")
    assert short(new) == [["Q1", "drop", "", "", "ab"]]


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


def test_rows_that_a_spreadsheet_of_another_language_took_for_one_cell_are_read(
    tmp_path: Path,
) -> None:
    row = '"keep,church,,""so, it is"",Q1"'
    assert short(apply(tmp_path, f"{HEADER}\r\n{row}\r\n")) == [
        ["Q1", "keep", "church", "human-made", "so, it is"]
    ]


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


def notes_of(folder: Path, data: str | bytes) -> tuple[list[list[str]], list[str]]:
    """What is applied, and what is said about it."""
    with heard() as notes:
        return short(apply(folder, data)), notes


def test_a_column_that_a_person_renamed_is_reported(tmp_path: Path) -> None:
    text = "decision,supercategory,notes,key,comments\nkeep,church,so,Q1,a mine?\n"
    new, notes = notes_of(tmp_path, text)
    assert new == [["Q1", "keep", "church", "human-made", ""]]
    assert [note.partition("review.csv: ")[2] for note in notes] == [
        "has no column 'note'; did you mean 'notes'? Columns of other names are not read",
        "has no column 'comment'; did you mean 'comments'? Columns of other names are not read",
    ]


@pytest.mark.parametrize("column", ["kind", "note", "comment"])
def test_a_second_column_of_notes_is_refused(column: str, tmp_path: Path) -> None:
    text = f"decision,supercategory,key,{column},{column}\ndrop,,Q1,,\n"
    assert faults(tmp_path, text)[0].endswith(f"has two columns '{column}'; keep one of them")


def test_a_decision_that_is_cleared_holds_and_is_reported(tmp_path: Path) -> None:
    before = decisions(("Q1", "qid", "keep", "church", "human-made", "2026-01-02", ""))
    base = base_of("Q1", Decided(before).heads("Q1", "chapel"), 1)
    with heard() as notes:
        assert short(apply(tmp_path, f"{HEADER},base\n,,,,Q1,{base}\n", before)) == []
    (note,) = notes
    assert note.endswith(
        "the decision is cleared in 1 row, the first is row 2; the one in force stays: write "
        "unsure to open the value again"
    )


def test_a_row_from_decisions_that_the_file_lacks_is_reported(tmp_path: Path) -> None:
    elsewhere = decisions(("Q1", "qid", "keep", "church", "human-made", "2026-01-02", ""))
    base = base_of("Q1", Decided(elsewhere).heads("Q1", "chapel"), 1)
    new, notes = notes_of(tmp_path, f"{HEADER},base\nkeep,lake,,,Q1,{base}\n")
    assert new == [["Q1", "keep", "lake", "natural", ""]]
    assert notes[0].endswith(
        "was written from decisions that decisions.csv does not have, in 1 row, the first is row "
        "2; is it the sheet of another labels folder?"
    )


def test_a_row_from_the_decision_on_a_former_label_is_of_this_folder(tmp_path: Path) -> None:
    before = decisions(("kirk", "label", "keep", "church", "human-made", "2026-01-02", ""))
    base = base_of("Q1", Decided(before).heads("Q1", "kirk"), 1)  # the label is "chapel" now
    with heard() as notes:
        new = short(apply(tmp_path, f"{HEADER},base\nkeep,lake,,,Q1,{base}\n", before))
    assert (new, notes) == ([["Q1", "keep", "lake", "natural", ""]], [])


def test_windows_1252_is_read_with_a_note(tmp_path: Path) -> None:
    text = f"{HEADER}\nkeep,church,,caf\u00e9 \u2013 \u201cyes\u201d,Q1\n"
    new, notes = notes_of(tmp_path, text.encode("cp1252"))
    assert new[0][-1] == "caf\u00e9 \u2013 \u201cyes\u201d"
    assert "review.csv is not UTF-8 and was read as Windows-1252" in notes[0]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-8"])
def test_utf_8_that_was_opened_as_windows_1252_is_put_right(tmp_path: Path, encoding: str) -> None:
    note = "Á ”so” – œuf"
    data = f"{HEADER}\nkeep,church,,{note},Q1\ndrop,,,,Q2\n".encode(encoding)
    opened = "".join(bytes([b]).decode("latin-1" if b in UNDEFINED else "cp1252")
                     for b in data)  # fmt: skip
    typed = opened.replace("drop,,,,", "drop,,,château,")  # afterwards, in the spreadsheet
    new, notes = notes_of(tmp_path, typed.encode())
    assert new == [["Q1", "keep", "church", "human-made", note], ["Q2", "drop", "", "", "château"]]
    assert "was opened as Windows-1252 where it is UTF-8" in notes[0]


def test_a_label_that_the_wiki_itself_has_misread_is_kept(tmp_path: Path) -> None:
    rows = "keep,church,,cafÃ©,Q1\nkeep,church,,château,Q2\nkeep,church,,œuf,Q4\n"
    new, notes = notes_of(tmp_path, f"{HEADER}\n{rows}".encode())
    assert [row[-1] for row in new] == ["cafÃ©", "château", "œuf"] and not notes


def test_a_misread_label_that_alone_is_not_ascii_is_kept_by_its_evidence(tmp_path: Path) -> None:
    values = pd.DataFrame({"class_id": ["Q1"], "instance_of": ["cafÃ©"]})
    (evidence,), sheet = evidence_of(values, {}), tmp_path / "review.csv"
    for label in ("cafÃ©", "cafÃƒÂ©"):  # as it was written, and opened as Windows-1252
        row = f"keep,church,,,Q1,{label},{evidence}"
        sheet.write_text(f"{HEADER},instance_of,evidence\n{row}\n", encoding="utf-8")
        (found,) = read_files([sheet])[sheet]
        assert found.rows[0]["instance_of"] == "cafÃ©"


@pytest.mark.parametrize("data", [b"keep,church,,\x81,Q1\n", b"\xd0\xcf\x11\xe0\0\0keep\n"])
def test_what_is_no_text_is_told(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"not UTF-8 text.*save it as CSV in UTF-8"):
        apply(tmp_path, f"{HEADER},\n".encode() * 20 + data)


def test_a_column_that_stands_there_twice_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="has two columns 'decision'; keep one of them"):
        apply(tmp_path, f"{HEADER},Decision\n,,,,Q1,drop\n")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_that_does_not_say_so_is_read(encoding: str, tmp_path: Path) -> None:
    assert short(apply(tmp_path, as_csv("\t", "\r\n").encode(encoding))) == MEANT


def test_a_zero_byte_near_the_start_makes_no_utf_16_of_a_sheet(tmp_path: Path) -> None:
    assert short(apply(tmp_path, f"{HEADER}\ndrop,,,a\0b,Q1\n")) == [["Q1", "drop", "", "", "ab"]]


def test_rows_that_say_the_same_twice_are_accepted(tmp_path: Path) -> None:
    row = "keep,church,,so,Q1"
    assert short(apply(tmp_path, f"{HEADER}\n{row}\n{row}\n")) == [
        ["Q1", "keep", "church", "human-made", "so"]
    ]


def test_a_damaged_workbook_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"not a readable workbook .*; save it as CSV"):
        apply(tmp_path, b"PK\x03\x04 no more")


def workbook(folder: Path, rows: Sequence[str], change: Callable[[bytes], bytes]) -> Path:
    """A workbook whose parts another program wrote a little differently."""
    book, path, changed = openpyxl.Workbook(), folder / "book.xlsx", folder / "changed.xlsx"
    for row in rows:
        book.worksheets[0].append(row.split(","))
    book.save(path)
    with zipfile.ZipFile(path) as parts, zipfile.ZipFile(changed, "w") as out:
        for name in parts.namelist():
            out.writestr(name, change(parts.read(name)))
    return changed


def test_rows_below_the_size_that_a_workbook_declares_are_read(tmp_path: Path) -> None:
    rows = [HEADER, "drop,,,,Q1", "drop,,,,Q2"]
    path = workbook(tmp_path, rows, lambda part: part.replace(b'ref="A1:E3"', b'ref="A1:E2"'))
    assert apply_paths([path])["key"].tolist() == ["Q1", "Q2"]


def test_merged_cells_decide_each_of_their_rows(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    page, path = book.worksheets[0], tmp_path / "merged.xlsx"
    for row in (HEADER, "keep,church,,so,Q1", ",,,,Q2", "", ",,,,Q4", "drop,,,,=odd"):
        page.append([cell or None for cell in row.split(",")])
    page["E6"].data_type = "s"
    for cells in ("A2:A5", "B2:B5", "A6:B6", "D3:D5"):
        page.merge_cells(cells)
    book.save(path)
    expected = [
        ["=odd", "drop", "", "", ""],
        ["Q1", "keep", "church", "human-made", "so"],
        ["Q2", "keep", "church", "human-made", ""],
        ["Q4", "keep", "church", "human-made", ""],
    ]
    assert short(apply_paths([path])) == expected


def test_a_day_of_a_workbook_has_no_time(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    page, path = book.worksheets[0], tmp_path / "days.xlsx"
    days = [date(2026, 3, 4), datetime(2026, 3, 4, 17, 30), time(17, 30)]
    page.append(HEADER.split(","))
    for number, day in enumerate(days):
        page.append(["drop", None, None, day, ["Q1", "Q2", "Q4"][number]])
    book.save(path)
    whys = apply_paths([path])["why"].tolist()
    assert whys == ["2026-03-04", "2026-03-04 17:30:00", "17:30:00"]


def test_a_formula_is_read_by_its_value_and_refused_without_one(tmp_path: Path) -> None:
    header = f"{HEADER},filled"
    path = workbook(tmp_path, [header, "=F2,,,=G2,Q1,drop"], lambda part: part)
    with pytest.raises(InvalidData, match=r"\(Sheet\), cell A2: a formula without its value"):
        apply_paths([path])

    def computed(part: bytes) -> bytes:
        part = part.replace(b'<c r="D2"><f>', b'<c r="D2" t="str"><f>')
        return part.replace(b'"A2"><f>F2</f><v></v>', b'"A2" t="str"><f>F2</f><v>drop</v>')

    path = workbook(tmp_path, [header, "=F2,,,=G2,Q1,drop"], computed)
    assert short(apply_paths([path])) == [["Q1", "drop", "", "", ""]]


@pytest.mark.filterwarnings("ignore:File contains an invalid specification")  # of openpyxl
def test_a_workbook_in_strict_open_xml_is_refused(tmp_path: Path) -> None:
    usual, strict = b"http://schemas.openxmlformats.org", b"http://purl.oclc.org/ooxml"
    namespaces = [(usual + b"/spreadsheetml/2006/main", strict + b"/spreadsheetml/main")]
    ending = b"/relationships"
    namespaces += [(usual + b"/officeDocument/2006" + ending, strict + b"/officeDocument" + ending)]

    def translated(part: bytes) -> bytes:
        return reduce(lambda data, names: data.replace(*names), namespaces, part)

    path = workbook(tmp_path, [HEADER, "drop,,,,Q1"], translated)
    with pytest.raises(InvalidData, match=r"no worksheet can be read; save it as an Excel"):
        apply_paths([path])


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="no such file; `hgld review` writes it"):
        apply_paths([tmp_path / "x.csv"])


def test_a_label_that_is_not_its_key_s_tells_of_a_column_sorted_by_itself(tmp_path: Path) -> None:
    text = f"{HEADER},instance_of\nkeep,church,,,Q1,chapel\nkeep,lake,,,Q2,fort\n,,,,Q4,pond\n"
    assert faults(tmp_path, text)[1:] == [
        "row 3, column instance_of: found 'fort'; expected 'pond', the label of Q2; was a column "
        "sorted or pasted by itself?",
        "row 4, column instance_of: found 'pond'; expected 'fort', the label of Q4; was a column "
        "sorted or pasted by itself?",
    ]


def test_a_decision_on_what_the_value_is_no_more_is_told(tmp_path: Path) -> None:
    now = evidence_of(CLUSTERS, {})[0]
    text = f"{HEADER},evidence\nkeep,church,,,Q1,zzzzzz\n,,,,Q2,zzzzzz\n"
    assert faults(tmp_path, text)[1:] == [
        f"row 2, column evidence: found 'zzzzzz'; expected {now!r}; the value has changed since "
        "this sheet was written"
    ]


def test_context_that_a_spreadsheet_has_spoilt_is_a_note_and_no_fault(tmp_path: Path) -> None:
    header = f"{HEADER},landmarks,images,cluster,margin"
    text = f'{header}\nkeep,church,,,Q1,1.0,"1,00",7,oops\nkeep,lake,,,Q2,1,1,\u00a00,\n'
    new, notes = notes_of(tmp_path, text)
    assert len(new) == 2
    assert len(notes) == 1
    assert "cluster differs from clusters.csv in 1 row, the first is row 2" in notes[0]


@pytest.mark.parametrize("cell", ["#NAME?", "#N/A", "Err:508", "x" * 32_767])
def test_a_cell_that_a_spreadsheet_has_spoilt_is_told(cell: str, tmp_path: Path) -> None:
    assert "row 2, column note" in faults(tmp_path, f"{HEADER}\nkeep,church,,{cell},Q1\n")[1]


def test_a_fault_shows_the_beginning_of_a_long_cell() -> None:
    fault = SheetRow(2, {"key": "x" * 3_000_000}).fault("key", "a key")
    assert fault == f"row 2, column key: found '{'x' * 100}'...; expected a key"


def test_an_untouched_row_stays_valid_when_the_taxonomy_has_moved_on(tmp_path: Path) -> None:
    before = decisions(("Q1", "qid", "keep", "gone", "natural", "2026-01-02", "old"))
    text = f"{HEADER}\nkeep,gone,natural,old,Q1\nkeep,lake,,,Q2\n"
    assert short(apply(tmp_path, text, before)) == [["Q2", "keep", "lake", "natural", ""]]


def test_a_decision_without_a_value_can_be_changed(tmp_path: Path) -> None:
    before = decisions(("Q9", "qid", "keep", "lake", "natural", "2026-01-02", ""),
                       ("mill", "label", "drop", "", "", "2026-01-02", ""))  # fmt: skip
    text = f"{HEADER},instance_of\ndrop,,,,Q9,\nkeep,lake,,,mill,mill\n"
    new = apply(tmp_path, text, before)
    assert new[["key", "key_type", "decision"]].to_numpy().tolist() == [
        ["Q9", "qid", "drop"], ["mill", "label", "keep"],
    ]  # fmt: skip


def test_a_sheet_without_keys_decides_values_without_id_by_their_label(tmp_path: Path) -> None:
    header = "decision,supercategory,kind,note,instance_of"
    assert short(apply(tmp_path, f"{header}\ndrop,,,,'=odd\n")) == [["=odd", "drop", "", "", ""]]
    assert "column key: found 'chapel'" in faults(tmp_path, f"{header}\ndrop,,,,chapel\n")[1]


@pytest.mark.parametrize(("column", "value"), [("key", "Q1"), ("instance_of", "'=odd")])
def test_two_sheets_that_say_two_things_of_a_value_are_told(
    column: str, value: str, tmp_path: Path
) -> None:
    for name, decision in (("a.csv", "keep,church"), ("b.csv", "drop,")):
        text = f"decision,supercategory,kind,note,{column}\n{decision},,,{value}\n"
        (tmp_path / name).write_text(text)
    with pytest.raises(InvalidData, match=r"b\.csv: 1 fault, .*\n.*the other sheet says of this"):
        apply_paths([tmp_path / "a.csv", tmp_path / "b.csv"])


def test_the_faults_of_all_sheets_are_told_at_once(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(f"{HEADER}\nkeep,pub,,,Q1\n")
    with pytest.raises(InvalidData) as error:
        apply_paths([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert str(error.value).count("1 fault, nothing was applied") == 2


@pytest.mark.parametrize(
    "cell",
    [
        *("007", "1/2", "1-2", "1E5", "12,5", "3.14", "TRUE", "vrai", "Mar 1", "1. Mai", "10%"),
        *("5 PM", "10:30am", "5月3日", "Ene 4", "gen 5", "12 dic", "1 мая", "₽5", "VERDADERO"),
    ],
)
def test_what_a_spreadsheet_would_take_for_a_number_or_a_date_is_guarded(cell: str) -> None:
    assert guard(cell) == f"'{cell}" and unguard(guard(cell)) == cell


@pytest.mark.parametrize(
    "cell", ["", "pub", "7 wonders", "may", "mosque", "'t Hof", "1st church", "5 a side"]
)
def test_plain_words_are_not_guarded(cell: str) -> None:
    assert guard(cell) == cell


@given(st.text(alphabet="'=+-@\ta\u00a01.,/\uff1d", max_size=12))
def test_a_guarded_cell_is_no_formula_and_comes_back(cell: str) -> None:
    assert unguard(guard(cell)) == cell
    assert not guard(cell).startswith(("=", "+", "-", "@", "\t", "\uff1d"))
