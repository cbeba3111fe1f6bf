"""A user without a home folder: a container may run as a number that no user has."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hgld.cli.arguments import name_to_sign, open_workspace
from hgld.config import load_pipeline
from hgld.errors import UsageError
from hgld.hierarchy.scrape.pacer import turn_file
from hgld.ranking.first_call import plan_compiling


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setattr(os, "getuid", lambda: 123_456_789)


def sign(folder: Path) -> str:
    (folder / "p.toml").write_text('labels = "."')
    return name_to_sign(open_workspace(folder / "p.toml", [], folder))


@pytest.mark.parametrize(
    ("use", "variable"),
    [(sign, "XDG_CONFIG_HOME"), (lambda _: turn_file(), "XDG_CACHE_HOME")],
)
def test_what_needs_one_names_the_variable_to_set(
    use: Callable[[Path], object], variable: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"^{variable}: not set, and .*; name a folder$"):
        use(tmp_path)


def test_a_path_below_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('labels = "."\n[source]\nfolder = "~/x"')
    with pytest.raises(UsageError, match=r"source\.folder.* no home folder; write the whole path"):
        load_pipeline(tmp_path / "p.toml")


def test_kernels_are_compiled_without_one() -> None:
    plan_compiling()
