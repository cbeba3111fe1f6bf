import os
import shutil
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import hgld.model  # noqa: F401  first: its import hook has to precede torchvision, timm, open_clip
from hgld.config import SourceOptions, StageContext
from tests.object_store import Bucket, make_bucket, serve_s3

os.environ.setdefault("HF_HUB_OFFLINE", "1")
settings.register_profile("patient", settings(), deadline=None)  # a busy machine is slow
settings.load_profile("patient")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores Ctrl-C
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and nohup what it is named after

DEFAULT_REAL_DATA = Path(__file__).parent.parent.parent / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of the real photos and labels; in CI it has to be there."""
    folder = Path(os.environ.get("HGLD_REAL_DATA", DEFAULT_REAL_DATA)).resolve()
    if not folder.is_dir():
        message = f"no real data in {folder}; HGLD_REAL_DATA names the folder"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="session", autouse=True)
def one_core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The quota of a container with one core: the other cores have other tests to do."""
    quota = tmp_path_factory.mktemp("quota") / "cpu.max"
    quota.write_text("100000 100000", "ascii")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hgld.tasks.CPU_MAX", quota)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_disk_to_wait_for() -> Iterator[None]:
    """Files are not forced to the disk: only a loss of power shows it, and none comes in tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        yield


@pytest.fixture
def context(tmp_path: Path) -> StageContext:
    """What a stage is told of its run."""
    source = SourceOptions(folder=tmp_path / "source")
    return StageContext("2026-11-21", tmp_path / "state", source, tmp_path / "labels")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Address of an S3 server in a process of its own."""
    with serve_s3() as address:
        yield address


QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


PATIENCE_MS = 120_000  # for what a browser waits for: a busy machine is slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser that asks for nothing on its own; in CI it has to be there."""
    # the shell has no window and opens a page in a third of the CPU seconds
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if path is None:
        assert not os.environ.get("CI"), "chromium is missing; run make system"
        pytest.skip("chromium is missing; run make system")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=QUIET)
        started.on("context", lambda context: context.set_default_timeout(PATIENCE_MS))
        yield started
        started.close()


@pytest.fixture
def chromium(browser: Any) -> Iterator[Any]:
    """The browser; closes the pages of a test, which would look for their servers for ever."""
    yield browser
    for context in browser.contexts:
        context.close()


_numbers = count()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty bucket; this process reaches it through its environment."""
    made = make_bucket(s3_server, f"bucket-{next(_numbers)}")
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made
