import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hgld.errors import HgldError
from hgld.file_lock import hold

HOLDER = """
import os, sys, time
from pathlib import Path
from hgld.file_lock import hold
with hold(Path(sys.argv[1]), "taken"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_one_is_told_who_holds_it_since_when_and_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    who = rf"process {os.getpid()} on .+ since \d{{4}}-\d\d-\d\d .+"
    says = rf"x: taken \({who}\); wait for it, or go"
    with hold(path, ""), pytest.raises(HgldError, match=says), hold(path, "x: taken", "or go"):
        pass


def test_it_is_free_again_after_the_block_also_when_that_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), hold(tmp_path / "lock", "taken"):
        _ = 1 / 0
    with hold(tmp_path / "lock", "taken"):
        pass


def test_a_killed_owner_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(HgldError, match=f"process {holder.pid} "), hold(path, "taken"):
            pass
        holder.kill()
    with hold(path, "taken"):
        assert path.read_text().startswith(f"process {os.getpid()} ")


def test_a_worker_that_outlives_a_killed_owner_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    # one write each: the two processes print at once
    fork = "    os.write(1, b'%d\\n' % os.fork())\n    time.sleep(60)\n"
    command = [sys.executable, "-c", HOLDER.replace("    time.sleep(60)\n", fork), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        _, *forks = [holder.stdout.readline() for _ in range(3)]
        worker = max(map(int, forks))
        with pytest.raises(HgldError, match=f"process {holder.pid} "), hold(path, "taken"):
            pass
        holder.kill()
        holder.wait()
        try:
            with hold(path, "taken"):
                os.kill(worker, 0)
        finally:
            os.kill(worker, signal.SIGKILL)


def test_a_disk_that_takes_no_more_keeps_nobody_from_a_place(tmp_path: Path) -> None:
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
    command = [sys.executable, "-c", full + HOLDER.replace("60", "0"), str(tmp_path / "lock")]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "held\n"


def test_an_owner_that_wrote_no_text_is_told_too(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with hold(path, ""):
        path.write_bytes(b"\xff\xfe \n owner")
        with (
            pytest.raises(HgldError, match=r"^x: taken \(.* owner\); wait"),
            hold(path, "x: taken"),
        ):
            pass


def test_a_pipe_in_the_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(HgldError, match="not a file; move it away"), hold(tmp_path / "lock", ""):
        pass
