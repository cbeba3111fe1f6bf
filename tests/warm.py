"""Commands of hgld, each in a fork of a process that has imported the heavy libraries.

PyTorch, timm and open_clip take seconds to import, which is most of a command on a small folder.
Arguments, folder, environment, streams and exit code are those of ``python -m hgld``. All forks
hash strings alike, so a test that compares the bytes of two runs starts two processes instead.
"""

import atexit
import json
import os
import runpy
import socket
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile

HEAVY = [
    "hgld.cli.console",
    "hgld.model.text",
    "hgld.hierarchy.embed",
    "hgld.hierarchy.link",
    "hgld.hierarchy.cluster",
    "hgld.review.page",
    "hgld.shards.write",
    "hgld.evaluate.models",
    "hgld.train.loop",
    "sklearn.cluster",
    "transformers.modeling_utils",
]


def hgld(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """What a command returns and prints that runs in a folder, as by ``subprocess.run``."""
    named = {"words": [*map(str, words)], "folder": str(folder), "environment": dict(os.environ)}
    with TemporaryFile("w+", encoding="utf-8") as out, TemporaryFile("w+", encoding="utf-8") as err:
        parent = _parent()
        socket.send_fds(parent, [json.dumps(named).encode()], [out.fileno(), err.fileno()])
        answer = parent.recv(100)
        assert answer, "the process that forks commands has ended"
        for stream in (out, err):
            stream.seek(0)
        return subprocess.CompletedProcess(named["words"], int(answer), out.read(), err.read())


@cache
def _parent() -> socket.socket:
    """Connection to the process that forks; it ends when this process closes it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.warm", str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    atexit.register(process.wait)
    atexit.register(ours.close)  # first
    return ours


def _serve(connection: socket.socket) -> None:
    """Fork a command for each message; return in the fork."""
    for name in HEAVY:
        import_module(name)
    while True:
        message, streams, *_ = socket.recv_fds(connection, 1 << 20, 2)
        if not message:
            sys.exit()
        child = os.fork()
        if child == 0:
            connection.close()
            for stream, number in zip(streams, (1, 2), strict=True):
                os.dup2(stream, number)
            named = json.loads(message)
            os.chdir(named["folder"])
            os.environ.clear()
            os.environ.update(named["environment"])
            sys.path[0], sys.argv = str(Path.cwd()), ["hgld", *named["words"]]
            return
        for stream in streams:
            os.close(stream)
        connection.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("hgld", run_name="__main__", alter_sys=True)
