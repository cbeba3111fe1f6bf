"""Kernels in a wheel: where they are loaded, and where kernels are compiled instead."""

from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core import codegen, config

from hgld import compiled

HASWELL = ",".join(f"+{feature}" for feature in compiled.AVX2.split())
SKYLAKE = ",".join(f"+{feature}" for feature in compiled.AVX512.split())


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(compiled, "MACHINE_CODE", tmp_path / "wheel")
    monkeypatch.setattr(compiled, "LEVEL", "here")
    monkeypatch.setattr(compiled, "KERNELS", [])
    _, made = new_kernels()
    assert made(3.0) == 0.75
    store = compiled.machine_code(made.py_func, tmp_path / "wheel/here")
    (tmp_path / "wheel/here").mkdir(parents=True)
    ((signature, result),) = made.overloads.items()
    store.save(signature, result._reduce())
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "empty"))
    return tmp_path


def new_kernels() -> tuple[Any, Any]:
    """A function within kernels, and a kernel that calls it."""

    @compiled.inner
    def half(x: float) -> float:
        return x / 2.0

    @compiled.kernel
    def quarter(x: float) -> float:
        return half(half(x))

    return half, quarter


def is_compiled(wheel: Path) -> bool:
    _, found = new_kernels()
    assert found(3.0) == 0.75
    kept = any(wheel.glob("empty/*/*.nbc"))
    assert kept == (not found.stats.cache_hits)
    return kept


def test_a_kernel_is_kept_in_one_file_with_all_that_it_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    half, quarter = new_kernels()
    assert (half(3.0), quarter(3.0)) == (1.5, 0.75)
    assert [file.name.split("-")[0] for file in tmp_path.rglob("*.nbc")] == [
        "test_machine_code.new_kernels.locals.quarter"
    ]


def test_a_kernel_in_the_wheel_is_not_compiled(wheel: Path) -> None:
    assert not is_compiled(wheel)


def test_another_signature_is_compiled(wheel: Path) -> None:
    assert new_kernels()[1](3) == 0.75
    assert any(wheel.glob("empty/*/*.nbc"))


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        (compiled, "LEVEL", "other"),
        (compiled, "LEVEL", ""),
        (compiled, "STAMP", "of other sources"),
        (numba, "__version__", "0.1"),
        (config, "USING_SVML", "another"),
    ],
)
def test_a_kernel_is_compiled_where_that_of_the_wheel_does_not_fit(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, place, name, value
) -> None:
    monkeypatch.setattr(place, name, value)
    assert is_compiled(wheel)


def test_a_kernel_of_another_python_is_compiled(wheel: Path, monkeypatch) -> None:
    monkeypatch.setattr(compiled.sysconfig, "get_config_var", lambda _: "cpython-399-other")
    assert is_compiled(wheel)


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_a_damaged_kernel_is_compiled_again(wheel: Path, ending: str) -> None:
    def cut(folder: str) -> None:
        (file,) = (wheel / folder).rglob(f"*.{ending}")
        file.write_bytes(file.read_bytes()[:-1])

    cut("wheel")
    assert is_compiled(wheel)
    cut("empty")
    for hits in (0, 1):
        _, found = new_kernels()
        assert found(3.0) == 0.75 and sum(found.stats.cache_hits.values()) == hits


def test_kernels_of_the_wheel_need_no_writable_folder(wheel: Path, monkeypatch) -> None:
    monkeypatch.setattr(config, "CACHE_LOCATOR_CLASSES", "IPythonCacheLocator")  # finds none
    assert new_kernels()[1](3.0) == 0.75  # a warning would be an error


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (SKYLAKE, ["x86-64-v4", "x86-64-v3"]),
        (SKYLAKE.replace("+avx512dq", "-avx512dq"), ["x86-64-v3"]),
        (HASWELL, ["x86-64-v3"]),
        (SKYLAKE.replace("+fma", "-fma"), []),
        ("", []),
    ],
)
def test_a_cpu_has_a_level_if_it_has_all_of_its_features(monkeypatch, features, expected) -> None:
    monkeypatch.setattr(codegen, "get_host_cpu_features", lambda: features)
    assert compiled.levels_of_cpu() == expected
    monkeypatch.setattr(config, "CPU_NAME", None)
    monkeypatch.setattr(config, "CPU_FEATURES", None)
    assert compiled._choose_vectors() == (expected or [""])[0]


@pytest.mark.parametrize("setting", ["CPU_NAME", "CPU_FEATURES"])
def test_a_chosen_cpu_has_no_kernels_in_the_wheel(monkeypatch, setting) -> None:
    monkeypatch.setattr(codegen, "get_host_cpu_features", lambda: SKYLAKE)
    monkeypatch.setattr(config, "CPU_NAME", None)
    monkeypatch.setattr(config, "CPU_FEATURES", None)
    monkeypatch.setattr(config, setting, "")
    assert compiled._choose_vectors() == ""
