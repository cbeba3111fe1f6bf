"""Commands of hgld and scripts, each in a fork of a process that has imported the heavy libraries.

PyTorch, timm and open_clip take seconds to import, which is most of a command on a small folder.
Arguments, folder, environment, streams, signals and exit code are those of ``python -m hgld``, or
of ``python``. All forks hash strings alike, so of two runs whose bytes a test compares one is a
process of its own.
"""

import atexit
import gc
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import threading
from functools import cache
from importlib import import_module
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import Any
from weakref import finalize

from numba import njit

from hgld import tasks

HEAVY = [
    "hgld.cli.console",
    "hgld.pipeline.run",
    "hgld.ranking.kernels.metrics_cpu",
    "hgld.ranking.kernels.rank_cpu",
    "hgld.model.text",
    "hgld.hierarchy.embed",
    "hgld.hierarchy.link",
    "hgld.hierarchy.cluster",
    "hgld.review.review_page",
    "hgld.shards.write",
    "hgld.evaluate.models",
    "hgld.train.loop",
    "sklearn.cluster",
    "transformers.modeling_utils",
]


def hgld(
    folder: Path, *words: str | Path, code: int | None = None
) -> subprocess.CompletedProcess[str]:
    """What a command returns and prints that runs in a folder, as by ``subprocess.run``.

    It must end with the exit code, unless that is None.
    """
    return _run_to_end(Command, folder, words, code)


def python(
    folder: Path, *words: str | Path, code: int | None = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """As ``hgld``, of a script: a file, or -c and a text; with more environment variables."""
    return _run_to_end(Script, folder, words, code, {**os.environ, **environment})


def _run_to_end(
    kind: "type[Command]", folder: Path, words: Any, code: int | None, environment: Any = None
) -> subprocess.CompletedProcess[str]:
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with kind(words, cwd=folder, env=environment, **piped) as process:
        out, err = process.communicate()
    ended = process.returncode
    assert code in (None, ended), f"exit code {ended}: {err}"
    return subprocess.CompletedProcess(process.args, ended, out, err)


class Command(subprocess.Popen[Any]):
    """A running command: ``Popen`` of the words after ``hgld``, with its streams, folder,
    environment and process group."""

    program: tuple[str, ...] = ("-m", "hgld")

    def _execute_child(self, args: Any, *given: Any) -> None:
        """Ask for a fork in place of a new process."""
        folder, environment, new_session, group = given[4], given[5], given[-2], given[-1]
        pipes = given[9:15]  # stdin, stdout, stderr: each what is read and what is written
        named = {
            "words": [*self.program, *map(str, args)],
            "folder": str(Path(folder or "").absolute()),
            "environment": {key: str(value) for key, value in (environment or os.environ).items()},
            "session": new_session,
            "group": group,
        }
        ends = zip((pipes[0], pipes[3], pipes[5]), (0, 1, 2), strict=True)
        self.pid = _ask(named, [own if end == -1 else end for end, own in ends])
        self._child_created = True
        self._ended = os.pidfd_open(self.pid)
        self._close_pipe_fds(*pipes)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """As ``os.waitpid``, of which only the parent of the fork is capable."""
        if not select.select([self._ended], [], [], None if wait_flags == 0 else 0)[0]:
            return 0, 0
        os.close(self._ended)
        return self.pid, _ask({"ended": self.pid})

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and (found := self._try_wait(os.WNOHANG))[0]:
            self._handle_exitstatus(found[1])
        return self.returncode


class Script(Command):
    """A running script: ``Popen`` of the words after ``python``: a file, or -c and a text."""

    program = ()


_one_question = threading.Lock()


def _ask(question: dict[str, Any], streams: list[int] | None = None) -> int:
    with _one_question:
        parent = _parent()
        socket.send_fds(parent, [json.dumps(question).encode()], streams or [])
        answer = parent.recv(100)
    assert answer, "the process that forks commands has ended"
    return int(answer)


@cache
def _parent() -> socket.socket:
    """Connection to the process that forks; it ends when this process closes it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.warm", str(theirs.fileno())]
        # Arrow's own allocator reserves a gigabyte at once, which fuzzing would count as used.
        environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
        process = subprocess.Popen(
            command, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
    atexit.register(process.wait)
    atexit.register(ours.close)  # first
    return ours


def _serve(connection: socket.socket) -> None:
    """Fork a command for each message, or tell how one ended; return in the fork."""
    tasks.count_cores = lambda: 1  # first; the other cores have other tests to do
    os.fsync = lambda _: None  # type: ignore[assignment]  # as in tests/conftest.py
    for name in HEAVY:
        import_module(name)
    from torch._dynamo.utils import dump_compile_times  # no other process of tests needs it

    njit(lambda: 0)()  # loads what numba needs for a first kernel
    # In each fork torch would take back its operators and print how long it compiled: half of what
    # the end of a command takes.
    for one in list(finalize._registry):  # type: ignore[attr-defined]
        one.atexit = False
    atexit.unregister(dump_compile_times)
    gc.freeze()  # a search for cycles in a fork would copy the memory of all of them
    while True:
        message, streams, *_ = socket.recv_fds(connection, 1 << 20, 3)
        if not message:
            sys.exit()
        named = json.loads(message)
        if "ended" in named:
            connection.send(b"%d" % os.waitpid(named["ended"], 0)[1])
            continue
        child = os.fork()
        if child == 0:
            connection.close()
            _become(named, streams)
            return
        for stream in streams:
            os.close(stream)
        connection.send(b"%d" % child)


def _become(named: dict[str, Any], streams: list[int]) -> None:
    """Take the streams, process group, folder, environment and arguments of the command."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for number, name in (
        (1, "stdout"),
        (2, "stderr"),
    ):  # Python asked whether the parent's can seek
        old = getattr(sys, name)
        raw = BufferedWriter(FileIO(number, "w", closefd=False))
        new = TextIOWrapper(raw, old.encoding, old.errors, line_buffering=old.line_buffering)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    if named["session"]:
        os.setsid()
    if named["group"] != -1:
        os.setpgid(0, named["group"])
    os.chdir(named["folder"])
    os.environ.clear()
    os.environ.update(named["environment"])
    sys.path[0], sys.argv = str(Path.cwd()), named["words"]


def _run() -> int:
    """Run what ``sys.argv`` names, as Python does; return the exit code."""
    try:
        if sys.argv[0] == "-m":
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        elif sys.argv[0] == "-c":
            exec(sys.argv.pop(1), {"__name__": "__main__"})
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        return end.code or 0
    return 0


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    code = _run()
    # As Python ends, but for freeing a million objects one by one, which copies their memory.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
