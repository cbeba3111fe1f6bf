"""What the command line shows on a terminal."""

import io
import os
import pty
import re
import subprocess
import sys
from itertools import count
from time import monotonic, sleep
from typing import Any

import pytest
from rich.console import Console

from hgld.cli import console, guarded
from hgld.cli.overview import _metrics_tables
from hgld.errors import WaitingForReview
from hgld.pipeline.run import Summary
from hgld.pipeline.stages import STAGES

SHOW = """
from hgld.cli.console import show_note, show_progress
for number in show_progress(range(3), lambda: f"{number} requests" if number else "none", 3):
    if number == 1:
        show_note("first line\\nsecond line")
"""


def on_a_terminal(code: str) -> str:
    """What the code writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    command = [sys.executable, "-c", "number = 0\n" + code]
    with subprocess.Popen(command, stderr=theirs, env=environment):
        os.close(theirs)
        written = b""
        try:
            while part := os.read(ours, 4096):
                written += part
        except OSError:  # the other side has closed it
            pass
    os.close(ours)
    return written.decode()


def test_a_note_stands_above_the_bar_and_takes_none_of_it_along() -> None:
    written = on_a_terminal(SHOW)
    plain = re.sub(r"\x1b\[[\d;]*m", "", written)
    assert re.search(r"\r\x1b\[2K +note: first line\r?\n {16}second line\r?\n", plain)


def test_a_bar_with_a_label_that_changes_shows_the_last_one() -> None:
    assert "2 requests" in on_a_terminal(SHOW)


def test_a_long_note_is_broken_between_words_below_its_own_beginning() -> None:
    words = "a word that is told " * 5
    written = on_a_terminal(f"from hgld.cli.console import show_note\nshow_note({words!r})")
    plain = re.sub(r"\x1b\[[\d;]*m", "", written).replace("\r\n", "\n")
    first, second = plain.rstrip("\n").split("\n")
    assert len(first) <= 80 and second.startswith(" " * 16 + "word that is")
    assert f"{first.removeprefix(' ' * 10 + 'note:')} {second.strip()}".split() == words.split()


def test_a_long_reason_is_broken_below_its_own_beginning() -> None:
    reason = "failed: /home/somebody/photos/saved: no such folder; expected saved pages of a wiki"
    code = "from hgld.cli.console import Printer\nfrom hgld.pipeline.stages import STAGES\n"
    written = on_a_terminal(f"{code}Printer().starts(STAGES[0], [{reason!r}])")
    plain = re.sub(r"\x1b\[[\d;]*m", "", written).replace("\r\n", "\n")
    first, second = plain.rstrip("\n").split("\n")
    assert len(first) <= 80 and second.startswith(" " * 10)
    assert f"{first.removeprefix('fetch')} {second}".split() == reason.split()


def test_an_error_is_broken_between_words_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = "14 values of 67 landmarks are open (0.0 % of 67 decided); " * 3
    code = f"from hgld.cli.output import print_wrapped\nprint_wrapped({said!r}, 6, err=True)"
    lines = on_a_terminal(code).replace("\r\n", "\n").rstrip("\n").split("\n")
    assert len(lines) == 3 and all(len(line) <= 80 for line in lines)
    assert all(line.startswith(" " * 6) for line in lines[1:])
    assert " ".join(lines).split() == said.split()

    def wait() -> None:
        raise WaitingForReview(said)

    assert guarded(wait) == 20 and capsys.readouterr().err == f"hgld: {said}\n"


LINES = """
import io, sys, time
from hgld.cli import console
console.LINE_S = 0.01
sys.stderr = shown = io.StringIO()
for item in console.show_progress(range(4), "Training", None):
    while item == 3 and "75 %" not in shown.getvalue():
        time.sleep(0.01)
sys.__stderr__.write(shown.getvalue())
"""


def test_without_a_terminal_a_line_shows_the_progress_now_and_then() -> None:
    command = [sys.executable, "-c", LINES]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert re.fullmatch(r" {10}Training: 75 % \(3 of 4\), [\d.]+/s, about \d+ s left", lines[-1])


def test_many_short_progresses_show_lines_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "LINE_S", 0.3)
    monkeypatch.setattr(console, "_silent_since", [])
    end = monotonic() + 120
    while "Model" not in capsys.readouterr().err:
        assert monotonic() < end
        for _ in console.show_progress(range(1), "Model", None):
            sleep(0.1)


def heard(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What is printed on stderr until a text is in it."""
    found, end = "", monotonic() + 120
    while text not in found:
        assert monotonic() < end, found
        sleep(0.01)
        found += capsys.readouterr().err
    return found


def test_a_stage_without_progress_says_that_it_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "LINE_S", 0.02)
    # a busy machine takes longer until the first line
    monkeypatch.setattr(console, "monotonic", count(0, 0.005).__next__)
    with console.Printer().working(STAGES[-1]):
        written = heard("\n", capsys)
        for _ in console.show_progress(range(1), "Copying", None):
            written += heard("Copying: ", capsys)
    lines = [line.strip() for line in written.splitlines()]
    assert lines[0] == "publish: running for 1 s" and lines[-1] == "Copying: 0 % (0 of 1)"


def test_of_progress_inside_of_progress_the_innermost_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "LINE_S", 0.01)
    monkeypatch.setattr(console, "_silent_since", [])
    for _ in console.show_progress(range(1), "Models", None):
        for _ in console.show_progress(range(1), "Photos", None):
            assert heard("Photos: 0 % (0 of 1)", capsys)


@pytest.mark.parametrize("width", [40, 80])
def test_metrics_of_more_runs_than_fit_beside_each_other_are_several_tables(width: int) -> None:
    metrics = ["H-AP", "AP:a level with a long name"]
    runs = {f"model-{i}": {"mean": dict.fromkeys(metrics, i / 100)} for i in range(12)}
    buffer = io.StringIO()
    screen = Console(file=buffer, width=width)
    for table in _metrics_tables({"metrics": metrics, "runs": runs}, width):
        screen.print(table)
    lines = buffer.getvalue().splitlines()
    assert max(map(len, lines)) <= width and "…" not in buffer.getvalue()
    rows = [line.split() for line in lines]
    assert [name for row in rows if row[0] == "%" for name in row[1:]] == [*runs]
    found = [value for row in rows if row[0] == "H-AP" for value in row[1:]]
    assert found == [f"{i}.0" for i in range(12)]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ((1, 1, 0, "class"), "label     1 class in, 1 out, 0 dropped, 0.5 s"),
        ((None, 1, 0, "class met"), "label     1 class met, 0.5 s"),
        ((None, 1200, 3, "query"), "label     1,200 queries, 3 dropped, 0.5 s"),
        ((None, 7, 0, ""), "label     0.5 s"),
    ],
)
def test_a_stage_counts_its_rows_by_their_noun(rows: Any, says: str, capsys: Any) -> None:
    console.Printer().finished(Summary("label", *rows, 0.5))
    assert capsys.readouterr().err == f"{says}\n"
