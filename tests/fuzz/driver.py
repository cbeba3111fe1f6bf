"""Fuzz a reader of untrusted bytes: mutate good inputs and read each in a bounded process.

A target is a function at the top of its module, ``target(data, folder)``: it reads ``data``, in any
way it likes, and may write files into ``folder``, which stays between cases. A case is accepted if
the target returns or raises an HgldError of one line. Everything else fails: another exception, a
crash, more than 1 GB of memory above what the good inputs need, or no end.

Case N of seed S is always the same bytes, so a failure names S:N and is repeated by

    HGLD_FUZZ_CASE=S:N python -m pytest tests/fuzz/test_fuzz_shards.py -n 0 -k NAME

HGLD_FUZZ_SECONDS is the time that each target gets, HGLD_FUZZ_SEED the seed.
"""

import faulthandler
import os
import pickle
import random
import re
import resource
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from signal import SIGABRT
from tempfile import TemporaryDirectory

from hgld.errors import HgldError
from tests.warm import Script

__all__ = ["Counts", "FuzzFailure", "fuzz", "mutate"]

Target = Callable[[bytes, Path], object]
Repair = Callable[[bytes], bytes]

SECONDS = 1.0  # for each target; make rehearse sets 60
LEAST_CASES = 40  # also on a busy machine or before kernels are compiled: some of them are refused
MEMORY = 1 << 30  # bytes beyond what the good inputs need
HANG_S = 120.0  # without an end of a case; a case takes milliseconds, even on a busy machine
MOST_MUTATIONS = 6
SERVE = "from tests.fuzz.driver import serve; serve()"  # forked with the libraries loaded
NUMBERS = [0, 1, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63]
DIGITS = [b"0", b"1", b"-1", b"-9", b"65536", b"2147483648", b"9223372036854775808", b"9" * 40]
DIGITS += [b"1e308", b"NaN", b"-Infinity", b"077", b"0.5", b"1_0"]


class FuzzFailure(AssertionError):
    """A case that ends in neither success nor an HgldError of one line."""


@dataclass(frozen=True)
class Counts:
    """How many cases the target took, and how many it refused in one line."""

    accepted: int
    refused: int


def fuzz(
    target: Target,
    seeds: Sequence[bytes],
    *,
    tokens: Sequence[bytes] = (),
    repair: Repair | None = None,
    seconds: float | None = None,
) -> Counts:
    """Give the target mutations of the seeds until its time is over.

    Args:
        target: reads the bytes; a function at the top of its module.
        seeds: good inputs, which the target has to accept.
        tokens: words of the format that mutations put in, such as b"../".
        repair: makes mutated bytes sound again where they would be refused at once (a checksum).
        seconds: time for the mutations; default: HGLD_FUZZ_SECONDS.

    Raises:
        FuzzFailure: a case failed; the text says how to repeat it.
    """
    wanted = seconds or float(os.environ.get("HGLD_FUZZ_SECONDS", SECONDS))
    seed, only = int(os.environ.get("HGLD_FUZZ_SEED", 0)), None
    if "HGLD_FUZZ_CASE" in os.environ:
        seed, only = map(int, os.environ["HGLD_FUZZ_CASE"].split(":"))
    with (
        TemporaryDirectory(prefix="hgld-fuzz-") as folder,  # here, as the process may die
        Script(["-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
    ):
        job = _Job(target, list(seeds), list(tokens), repair, seed, wanted, only, Path(folder))
        try:
            with Connection(os.dup(process.stdout.fileno())) as told:
                pickle.dump(job, process.stdin)
                process.stdin.close()
                return _watch(told, job, lambda: process.send_signal(SIGABRT), process.wait)
        finally:
            process.kill()


def mutate(
    seeds: Sequence[bytes], tokens: Sequence[bytes], seed: int, number: int, repair: Repair | None
) -> bytes:
    """Return the bytes of a case."""
    draw = random.Random(f"{seed}:{number}")
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.randint(1, MOST_MUTATIONS)):
        change = draw.choices(_CHANGES, _WEIGHTS)[0]
        change(data, draw, seeds, tokens)
    mutated = bytes(data)
    return repair(mutated) if repair is not None and draw.random() < 0.9 else mutated


@dataclass(frozen=True)
class _Job:
    target: Target
    seeds: list[bytes]
    tokens: list[bytes]
    repair: Repair | None
    seed: int
    seconds: float
    only: int | None
    folder: Path

    def case(self, number: int) -> bytes:
        return mutate(self.seeds, self.tokens, self.seed, number, self.repair)

    def name(self, number: int | None) -> str:
        return "a good input" if number is None else f"case {self.seed}:{number}"


def _watch(
    pipe: Connection, job: _Job, abort: Callable[[], None], join: Callable[[], object]
) -> Counts:
    """Follow the process from case to case."""
    number: int | None = None
    try:
        while pipe.poll(HANG_S if number is not None else 10 * HANG_S):
            found = pipe.recv()
            if isinstance(found, Counts):
                return found
            if isinstance(found, str):
                raise _failure(job, number, found)
            number = found
    except EOFError:
        raise _failure(job, number, "the process died; see stderr for its stack") from None
    abort()  # faulthandler writes where it is
    join()
    raise _failure(job, number, f"no end after {HANG_S:g} s; see stderr for its stack")


def _failure(job: _Job, number: int | None, what: str) -> FuzzFailure:
    data = b"" if number is None else job.case(number)
    again = "" if number is None else f"; repeat it with HGLD_FUZZ_CASE={job.seed}:{number}"
    head = f"{job.target.__name__}, {job.name(number)} of {len(data)} bytes{again}\n"
    return FuzzFailure(f"{head}{data[:200]!r}\n{what}")


def serve() -> None:
    """Run the cases; say which one is at work, and at the end how many there were."""
    job: _Job = pickle.load(sys.stdin.buffer)
    pipe = Connection(os.dup(1), readable=False)
    os.dup2(2, 1)  # what a target prints is no message
    faulthandler.enable()
    accepted = refused = 0
    try:
        for data in job.seeds:
            job.target(data, job.folder)
    except Exception:
        pipe.send(traceback.format_exc())
        return
    most = _memory() + MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    end = time.monotonic() + job.seconds
    for done, number in enumerate(count() if job.only is None else [job.only], 1):
        pipe.send(number)
        fault = _fault_of(job, job.case(number), job.folder)
        if fault:
            pipe.send(fault)
            return
        accepted, refused = accepted + (fault is None), refused + (fault == "")
        if time.monotonic() > end and done >= LEAST_CASES:
            break
    pipe.send(Counts(accepted, refused))


def _fault_of(job: _Job, data: bytes, folder: Path) -> str | None:
    """None: accepted; empty: refused in one line; else what is wrong."""
    try:
        job.target(data, folder)
    except HgldError as error:
        return _fault_in(error)
    except MemoryError:
        return f"more than {MEMORY >> 20} MB\n{traceback.format_exc()}"
    except BaseException:
        return traceback.format_exc()
    return None


def _fault_in(error: HgldError) -> str:
    text = str(error)
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"an error that cannot be printed: {text!r}"
    if len(text.splitlines()) != 1:
        return f"an error of {len(text.splitlines())} lines: {text!r}"
    cause: BaseException | None = error
    while cause := cause.__cause__ or cause.__context__:
        if isinstance(cause, MemoryError):
            return f"more than {MEMORY >> 20} MB, told as: {text}"
    return ""


def _memory() -> int:
    """Bytes of memory that the process may write, as RLIMIT_DATA counts them."""
    found = re.search(r"VmData:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


Change = Callable[[bytearray, random.Random, Sequence[bytes], Sequence[bytes]], None]


def _place(data: bytearray, draw: random.Random) -> int:
    return draw.randrange(len(data)) if data else 0


def _flip(data: bytearray, draw: random.Random, *_: object) -> None:
    if data:
        data[_place(data, draw)] ^= 1 << draw.randrange(8)


def _set_byte(data: bytearray, draw: random.Random, *_: object) -> None:
    if data:
        data[_place(data, draw)] = draw.choice([0, 0x0A, 0x20, 0x22, 0x7F, 0x80, 0xFE, 0xFF])


def _set_number(data: bytearray, draw: random.Random, *_: object) -> None:
    size = draw.choice([1, 2, 4, 8])
    value = draw.choice(NUMBERS) * draw.choice([1, -1]) % (1 << 8 * size)
    place = _place(data, draw)
    data[place : place + size] = value.to_bytes(size, draw.choice(["little", "big"]))


def _set_digits(data: bytearray, draw: random.Random, *_: object) -> None:
    found = [*re.finditer(rb"\d+", data)]
    if found:
        first, last = draw.choice(found).span()
        data[first:last] = draw.choice(DIGITS)


def _cut(data: bytearray, draw: random.Random, *_: object) -> None:
    del data[_place(data, draw) :]


def _delete(data: bytearray, draw: random.Random, *_: object) -> None:
    place = _place(data, draw)
    del data[place : place + draw.choice([1, 2, 8, 64, 512])]


def _insert(data: bytearray, draw: random.Random, *_: object) -> None:
    place = _place(data, draw)
    data[place:place] = draw.randbytes(draw.choice([1, 2, 8, 64, 512]))


def _copy(data: bytearray, draw: random.Random, seeds: Sequence[bytes], _: object) -> None:
    other = draw.choice(seeds)
    start, size = draw.randrange(len(other) or 1), draw.choice([1, 8, 64, 512, 4096])
    place = _place(data, draw)
    data[place : place + size * draw.randrange(2)] = other[start : start + size]


def _splice(data: bytearray, draw: random.Random, seeds: Sequence[bytes], _: object) -> None:
    other = draw.choice(seeds)
    place = _place(data, draw)
    data[place:] = other[min(place, len(other)) :]


def _put_token(
    data: bytearray, draw: random.Random, _: Sequence[bytes], tokens: Sequence[bytes]
) -> None:
    token, place = draw.choice([*tokens, b"\0", b"\xff\xfe", b"\r\n"]), _place(data, draw)
    data[place : place + len(token) * draw.randrange(2)] = token


_CHANGES: list[Change] = [_flip, _set_byte, _set_number, _set_digits, _cut]
_CHANGES += [_delete, _insert, _copy, _splice, _put_token]
_WEIGHTS = [4, 3, 3, 3, 1, 1, 1, 2, 1, 3]
