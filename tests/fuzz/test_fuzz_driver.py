import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hgld.errors import InvalidData
from tests.fuzz import driver
from tests.fuzz.driver import FuzzFailure, fuzz, mutate

GOOD = b"a good line\n"


def accept(data: bytes, folder: Path) -> None:
    (folder / "kept").write_bytes(data)


def refuse(data: bytes, folder: Path) -> None:
    if data != GOOD:
        raise InvalidData("x.txt: not what was expected; write it again")


def raise_another(data: bytes, folder: Path) -> None:
    if data != GOOD:
        data.index(GOOD)


def use_memory(data: bytes, folder: Path) -> None:
    if data != GOOD:
        bytes(2 << 30)


def hide_memory(data: bytes, folder: Path) -> None:
    try:
        use_memory(data, folder)
    except MemoryError:
        raise InvalidData("x.txt: cannot be read") from None


def say_two_lines(data: bytes, folder: Path) -> None:
    if data != GOOD:
        raise InvalidData("x.txt: not", "what was expected")


def crash(data: bytes, folder: Path) -> None:
    if data != GOOD:
        os.abort()


def sleep_on(data: bytes, folder: Path) -> None:
    if data != GOOD:
        time.sleep(1000)


def test_accepted_and_refused_cases_are_counted() -> None:
    assert fuzz(accept, [GOOD], seconds=0.1).accepted > 0
    assert fuzz(refuse, [GOOD], seconds=0.1).refused > 0


@pytest.mark.parametrize(
    ("target", "what"),
    [
        (raise_another, "ValueError: subsection not found"),
        (use_memory, "more than 1024 MB"),
        (hide_memory, "more than 1024 MB"),
        (say_two_lines, "an error of 2 lines"),
        (crash, "the process died"),
        (sleep_on, "no end"),
    ],
)
def test_whatever_else_happens_is_a_failure_that_can_be_repeated(
    target: Callable[[bytes, Path], None], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if target is sleep_on:
        monkeypatch.setattr(driver, "HANG_S", 3.0)
    with pytest.raises(FuzzFailure, match=rf"repeat it with HGLD_FUZZ_CASE=0:0\n(.*\n)*{what}"):
        fuzz(target, [GOOD], seconds=0.1)


def test_a_target_that_refuses_good_inputs_fails() -> None:
    with pytest.raises(FuzzFailure, match="a good input"):
        fuzz(refuse, [b"another"], seconds=0.1)


def test_a_case_is_the_same_bytes_each_time() -> None:
    cases = [mutate([GOOD, b"x" * 600], [b"../"], 0, number, None) for number in range(500)]
    again = [mutate([GOOD, b"x" * 600], [b"../"], 0, number, None) for number in range(500)]
    assert cases == again and len(set(cases)) > 400
