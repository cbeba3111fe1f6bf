"""The scrape at full size, killed, in a storm and on a full disk; run by ``make rehearse``."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.rehearsal.scrape_full_disk import fill_the_disk
from tests.rehearsal.scrape_full_size import full_size
from tests.rehearsal.scrape_kills import kill_often
from tests.rehearsal.scrape_storm import storm

pytestmark = pytest.mark.rehearsal


def can_mount(folder: Path) -> bool:
    """Whether this process may mount a small disk."""
    if os.geteuid() or shutil.which("mount") is None:
        return False
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True).returncode:
        return False
    subprocess.run(["umount", folder], check=True)
    return True


def test_the_full_size_takes_few_requests_and_little_memory(template: Path, folder: Path) -> None:
    figures = full_size(template, folder)
    print(figures)
    assert figures["landmarks"] == 203_094
    assert figures["requests"] <= 9_000
    assert figures["memory_mb"] < 500
    assert figures["client_cpu_ms_a_request"] < 30


def test_thirty_kills_lose_nothing_and_leave_nothing_twice(template: Path, folder: Path) -> None:
    figures = kill_often(template, folder)
    print(figures)
    assert figures["kills"] == 30
    assert figures["requests_repeated"] <= 30 * 3


def test_a_storm_is_waited_out_as_long_as_it_asks(template: Path, folder: Path) -> None:
    figures = storm(template, folder)
    print(figures)
    words = figures["answers_by_kind"]
    assert words["429"] > 0.4 * figures["requests"]
    assert {"ok", "429", "lag", "html", "cut", "half"} == set(words)
    assert figures["seconds_lagging"] >= 60
    assert figures["early_requests"] == 0


def test_a_full_disk_is_one_line_and_the_same_command_goes_on(template: Path, folder: Path) -> None:
    if not can_mount(folder):
        pytest.skip("NOT TESTED on a full disk: this needs root, to mount a small one")
    for figures in fill_the_disk(template, folder):
        print(figures)
        assert figures["exit_code"] == 75
        assert "full" in figures["message"] and "same command" in figures["message"]
        assert figures["facts_kept"] > 0
