import os
from pathlib import Path

import pytest

from hgld.ranking import first_call


def test_a_wheel_with_kernels_compiles_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_call, "__file__", str(tmp_path / "ranking/first_call.py"))
    (tmp_path / "machine_code").mkdir()
    assert first_call.plan_compiling() is None


def test_kernels_are_compiled_anew_if_the_code_is_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    kept = [tmp_path / f"{name}.kernel-1.py311.nbi" for name in first_call.KERNELS]
    assert first_call.plan_compiling() is first_call.compile_metrics
    for file in kept:
        file.touch()
    assert first_call.plan_compiling() is None
    os.utime(kept[1], (0, 0))
    assert first_call.plan_compiling() is first_call.compile_metrics
