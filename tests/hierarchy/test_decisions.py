import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from hgld.artifacts import ARTIFACTS, Table, columns_of, table_of
from hgld.hierarchy.decisions import Decided, row_id

ROOT = Path(__file__).parents[2]


def decisions(*rows: tuple[str, str, str, str]) -> pd.DataFrame:
    """Rows of (key, key_type, decision, supercategory)."""
    more = {"kind": "", "who": "a", "when": "2026-01-01", "why": ""}
    names = ("key", "key_type", "decision", "supercategory")
    return in_a_row([{**dict(zip(names, row, strict=True)), **more} for row in rows])


def in_a_row(rows: Sequence[Mapping[str, str]]) -> pd.DataFrame:
    """Each row supersedes the one before it."""
    made: list[dict[str, str]] = []
    for row in rows:
        blank = dict.fromkeys(columns_of("decisions"), "")
        made.append({**blank, **row, "supersedes": row_id(made[-1]) if made else ""})
    return table_of("decisions", made)


def found(table: pd.DataFrame, class_id: str, label: str) -> tuple[int, str] | None:
    decision = Decided(table).find(class_id, label)
    return decision and (decision.place, decision.supercategory)


def test_the_row_that_supersedes_the_others_of_its_key_is_in_force() -> None:
    table = decisions(("Q1", "qid", "keep", "lake"), ("Q2", "qid", "drop", ""),
                      ("Q1", "qid", "keep", "canal"))  # fmt: skip
    table.loc[2, "supersedes"] = row_id(table.iloc[0])
    assert found(table, "Q1", "x") == (2, "canal")


def test_a_decision_on_the_id_goes_before_one_on_the_label() -> None:
    table = decisions(("Q1", "qid", "keep", "lake"), ("pond", "label", "keep", "parks"))
    assert found(table, "Q1", "pond") == (0, "lake")


def test_a_decision_on_the_label_holds_where_none_names_the_id() -> None:
    table = decisions(("pond", "label", "keep", "lake"))
    assert found(table, "Q1", "pond") == (0, "lake")
    assert found(table, "", "pond") == (0, "lake")
    assert found(table, "", "Pond") is None


def test_a_label_that_looks_like_an_id_is_none() -> None:
    table = decisions(("Q1", "label", "keep", "lake"))
    assert found(table, "Q1", "pond") is None


def test_a_file_from_before_there_was_evidence_is_read(tmp_path: Path) -> None:
    path = tmp_path / "decisions.csv"
    header = "key,key_type,decision,supercategory,kind,who,when,why,supersedes"
    path.write_text(f"{header}\nQ1,qid,keep,lake,natural,a,2026-01-01,,\n")
    artifact = ARTIFACTS["decisions"]
    assert isinstance(artifact, Table)
    decision = Decided(artifact.read(path)).find("Q1", "")
    assert decision is not None and decision.evidence == ""


def test_git_keeps_what_two_people_decided_in_two_branches(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    def decide(rows: str, branch: str) -> None:
        with path.open("a") as file:
            file.write(rows)
        git("add", ".")
        git("commit", "-m", branch)

    path = tmp_path / "labels" / "mine" / "decisions.csv"
    path.parent.mkdir(parents=True)
    shutil.copy(ROOT / ".gitattributes", tmp_path)
    git("init", "-b", "main")
    decide("key,decision\n", "start")
    git("checkout", "-b", "other")
    decide("pub,drop\n", "other")
    git("checkout", "main")
    decide("inn,keep\n", "main")
    git("merge", "other")
    assert sorted(path.read_text().splitlines()) == ["inn,keep", "key,decision", "pub,drop"]


def test_a_row_that_a_merge_doubled_does_not_replace_itself() -> None:
    first = ("Q1", "qid", "keep", "lake", "natural", "a", "2026-01-01", "", "")
    second = ("Q1", "qid", "drop", "", "", "a", "2026-01-01", "", "2026-01-01")
    names = (
        "key",
        "key_type",
        "decision",
        "supercategory",
        "kind",
        "who",
        "when",
        "why",
        "supersedes",
    )
    table = pd.DataFrame([first, second, second], columns=names)
    decision = Decided(table).find("Q1", "")
    assert decision is not None and decision.decision == "drop" and not decision.rivals


def test_a_value_that_is_decided_very_often_is_read_in_linear_time() -> None:
    rows = [("Q1", "qid", "drop" if i % 2 else "keep", f"lake {i}") for i in range(4000)]

    def seconds(count: int) -> float:
        table, times = decisions(*rows[:count]), []
        for _ in range(3):
            began = time.process_time()
            assert found(table, "Q1", "") == (count - 1, rows[count - 1][3])
            times.append(time.process_time() - began)
        return min(times)

    assert seconds(4000) < 20 * seconds(500)  # 8 times as many rows; quadratic: 64 times


def test_unsure_leaves_a_value_open() -> None:
    decision = Decided(decisions(("pond", "label", "unsure", "lake"))).find("", "pond")
    assert decision is not None
    assert (decision.decides, decision.places) == (False, False)
