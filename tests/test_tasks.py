import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest

from hgld.errors import Resumable
from hgld.tasks import count_cores, map_tasks, start_aside, track, watched_by


def square(n: int) -> int:
    return n * n


def fail_first(task: tuple[int, Path]) -> None:
    number, folder = task
    if number == 0:
        raise ValueError("the first")
    time.sleep(0.05)
    (folder / str(number)).touch()


def die(n: int) -> int:
    os._exit(1)


@pytest.mark.parametrize("processes", [1, 2])
def test_results_keep_the_order_of_the_tasks(processes: int) -> None:
    assert map_tasks(square, [3, 1, 2], "Squares", processes) == [9, 1, 4]


def wait_for(file: Path) -> str:
    end = time.monotonic() + 60
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize("processes", [1, 2])
def test_other_work_is_done_while_tasks_run(tmp_path: Path, processes: int) -> None:
    file = tmp_path / "done"
    meanwhile = partial(file.write_text, "meanwhile", encoding="utf-8")
    found = map_tasks(wait_for, [file, file], "Waiting", processes, meanwhile=meanwhile)
    assert found == ["meanwhile"] * 2


def test_a_dead_worker_is_noticed() -> None:
    with pytest.raises(Resumable, match="Squares: a worker process died"):
        map_tasks(die, [1, 2], "Squares", 2)


def fail_or_sleep(seconds: int) -> None:
    if not seconds:
        raise ValueError
    Path(os.environ["BEGUN"]).touch()
    time.sleep(seconds)


@pytest.mark.parametrize("first", [600, 0], ids=["at work", "after an error"])
def test_a_stop_request_does_not_wait_for_the_tasks_that_run(tmp_path: Path, first: int) -> None:
    code = f"""if True:
        import atexit, os, signal, threading, time
        from concurrent.futures import process
        from hgld import cli
        from hgld.tasks import map_tasks
        from tests.test_tasks import fail_or_sleep
        def stop():
            while not os.path.exists(os.environ["BEGUN"]):
                time.sleep(0.05)
            time.sleep(1)  # until the error is known, too
            os.kill(os.getpid(), signal.SIGTERM)
        class Slow(process._ExecutorManagerThread):
            def run(self):
                atexit.register(os.write, 2, b"ended before its threads: semaphores may leak")
                super().run()
                time.sleep(1)
                atexit.unregister(os.write)
        process._ExecutorManagerThread = Slow
        @cli.app.command("work")
        def work():
            threading.Thread(target=stop).start()
            map_tasks(fail_or_sleep, [{first}, 600, 600], "Work", 2)
        cli.main()"""
    command = [sys.executable, "-c", code, "work"]
    environment = {**os.environ, "BEGUN": str(tmp_path / "begun")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    says = "hgld: stopped by SIGTERM; the same command goes on from here\n"
    assert (done.returncode, done.stderr) == (75, says)


def kill_the_idle_one(task: tuple[int, Path]) -> None:
    number, folder = task
    (folder / str(os.getpid())).touch()
    if number == 0:
        while len(idle := [p for p in folder.iterdir() if p.name != str(os.getpid())]) < 1:
            time.sleep(0.01)
        time.sleep(0.5)  # now it holds the lock of the queue, waiting for a task
        os.kill(int(idle[0].name), signal.SIGKILL)
        time.sleep(0.5)


def test_an_idle_worker_that_dies_leaves_nobody_waiting(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.test_tasks import *\n"
        "try: map_tasks(kill_the_idle_one, [(n, Path(sys.argv[1])) for n in (0, 1)], 'Work', 2)\n"
        "except Resumable as error: print(error)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("Work: a worker process died")


def test_workers_have_the_environment_of_their_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in "ab":
        monkeypatch.setenv("HGLD_TEST", value)
        assert map_tasks(os.getenv, ["HGLD_TEST", "HGLD_TEST"], "", 2) == [value, value]
    monkeypatch.delenv("HGLD_TEST")
    assert map_tasks(os.getenv, ["HGLD_TEST", "HGLD_TEST"], "", 2) == [None, None]


def test_a_temporary_folder_of_any_length_is_enough(tmp_path: Path) -> None:
    long = tmp_path / ("long" * 30)
    long.mkdir()
    code = 'from hgld.tasks import map_tasks; print(map_tasks(abs, [-1, 2], "", 2))'
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(long)}
    )
    assert (done.stdout, done.stderr) == ("[1, 2]\n", "")


def test_a_fault_in_a_task_ends_the_others_before_it_is_told(tmp_path: Path) -> None:
    tasks = [(i, tmp_path) for i in range(400)]  # many, since the fault may be heard late
    with pytest.raises(ValueError, match="the first"):
        map_tasks(fail_first, tasks, "Failing", 2)
    after = len(list(tmp_path.iterdir()))
    time.sleep(0.3)
    assert len(list(tmp_path.iterdir())) == after < 399


def test_work_aside_ends_with_its_parent_also_while_it_starts() -> None:
    process = start_aside(partial(time.sleep, 600))
    process.terminate()
    process.join(300)
    assert process.exitcode == -signal.SIGTERM


def test_work_aside_has_a_process_of_its_own(tmp_path: Path) -> None:
    start_aside((tmp_path / "made").mkdir).join()
    assert (tmp_path / "made").is_dir()


def test_progress_reaches_the_sink() -> None:
    seen: list[tuple[str, int | None]] = []

    def sink(items: Iterable[int], label: str, total: int | None, done: int) -> Iterator[int]:
        seen.append((label, total))
        yield from items

    with watched_by(sink):
        assert list(track([1, 2], "Reading", 2)) == [1, 2]
    assert list(track([1], "Unwatched")) == [1]
    assert seen == [("Reading", 2)]


INTERRUPTED = """
import os, signal, time
from threading import Thread
from hgld.tasks import map_tasks, prepare_workers

def interrupt():
    for _ in range(60):
        time.sleep(0.02)
        os.killpg(0, signal.SIGINT)

signal.signal(signal.SIGINT, lambda *_: None)
prepare_workers("builtins")
interrupting = Thread(target=interrupt)
interrupting.start()
print(map_tasks(abs, [-1, 2], "", 2))
interrupting.join()
"""


def test_ctrl_c_for_the_whole_group_leaves_starting_workers_silent() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    assert (done.stdout, done.stderr) == ("[1, 2]\n", "")


@pytest.mark.parametrize(
    ("text", "cores"),
    [("150000 100000\n", 2), ("50000 100000", 1), ("900000 100000", 4), ("max 100000\n", 4)],
)
def test_a_container_with_a_quota_has_as_many_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, cores: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr("hgld.tasks.CPU_MAX", tmp_path / "cpu.max")
    assert count_cores() == 4
    (tmp_path / "cpu.max").write_text(text)
    assert count_cores() == cores
