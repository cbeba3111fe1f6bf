"""What the command line shows on a terminal."""

import os
import pty
import re
import subprocess
import sys

SHOW = """
from hgld.console import show_note, show_progress
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
    written = on_a_terminal(f"from hgld.console import show_note\nshow_note({words!r})")
    plain = re.sub(r"\x1b\[[\d;]*m", "", written).replace("\r\n", "\n")
    first, second = plain.rstrip("\n").split("\n")
    assert len(first) <= 80 and second.startswith(" " * 16 + "word that is")
    assert f"{first.removeprefix(' ' * 10 + 'note:')} {second.strip()}".split() == words.split()
