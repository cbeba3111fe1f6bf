"""Requests to stop: when they are heard, and by whom."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import sleep
from types import SimpleNamespace

import pytest

from hgld.compiled import kernel
from hgld.pipeline.stages import load_function
from hgld.stopping import (
    blocked_for_children,
    handle_with,
    heard_despite_library,
    stop_requests,
)
from tests.hearing import Heard, hearing

# As torch does where the import of numpy within its own fails.
SWALLOWS = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGTERM)
    whole = True
except BaseException:
    whole = False
"""


@pytest.mark.parametrize("heeds", [False, True])
def test_a_wish_that_nobody_heeds_is_heard_in_the_end(heeds: bool) -> None:
    with hearing(), pytest.raises(ValueError if heeds else Heard), stop_requests() as asked:
        assert not asked()
        signal.raise_signal(signal.SIGTERM)
        assert asked()
        if heeds:
            raise ValueError


def test_a_request_that_another_thread_takes_interrupts_no_start_of_a_child() -> None:
    started = False
    with hearing(), pytest.raises(Heard), blocked_for_children():
        other = Thread(target=os.kill, args=(os.getpid(), signal.SIGTERM))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # of which it has a copy
        other.start()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        other.join()
        sleep(0.01)
        started = True
    assert started


@pytest.mark.parametrize("error", [None, RuntimeError])
def test_a_request_that_a_library_drops_or_replaces_is_heard(error: type[Exception] | None) -> None:
    with hearing(), pytest.raises(Heard), heard_despite_library(int):
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            if error is not None:
                raise error from None


def test_a_request_while_a_kernel_is_compiled_is_heard_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twice = kernel(lambda number: 2 * number)

    def drop(*_: object) -> None:  # as a callback of LLVM does
        with suppress(Heard):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(twice, "_cache", SimpleNamespace(load_overload=drop, save_overload=drop))
    with hearing(), pytest.raises(Heard):
        twice(1)


@pytest.mark.parametrize("was", [signal.SIG_IGN, None])
def test_what_is_ignored_or_another_languages_stays(
    monkeypatch: pytest.MonkeyPatch, was: signal.Handlers | None
) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: was)
    assert handle_with(print, [signal.SIGTERM]) == {}


def test_a_request_amid_an_import_is_heard_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "swallows.py").write_text(SWALLOWS)
    monkeypatch.syspath_prepend(tmp_path)
    with hearing(), pytest.raises(Heard):
        load_function("swallows:whole")
    assert sys.modules.pop("swallows").whole
