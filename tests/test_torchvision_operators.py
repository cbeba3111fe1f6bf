import subprocess
import sys

import pytest

OPERATORS = "from hgld import torchvision_operators as operators"


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_torchvision_timm_and_open_clip_import_whatever_torch_build_is_there() -> None:
    models = "import hgld.evaluate.models, sys; print('open_clip' in sys.modules)"
    done = run(f"{models}; import torchvision.transforms.v2, timm, open_clip; print('ok')")
    assert (done.stdout, done.stderr) == ("False\nok\n", "")  # only a CLIP loads open_clip


@pytest.mark.slow
def test_an_operator_that_is_there_is_not_declared_again() -> None:
    declare = "operators.declare_missing_operators()"
    done = run(f"import hgld.model, torchvision; {OPERATORS}; {declare}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", ["hgld", "hgld.ranking", "hgld.shards"])
def test_a_package_without_torchvision_installs_no_import_hook(package: str) -> None:
    done = run(f"import sys, {package}; print([type(finder) for finder in sys.meta_path])")
    assert done.returncode == 0 and "Declare" not in done.stdout, done.stderr


def test_hgld_itself_imports_neither_torch_nor_torchvision() -> None:
    done = run("import hgld, sys; print('torch' in sys.modules, 'torchvision' in sys.modules)")
    assert done.stdout == "False False\n"


def test_the_models_import_neither_torch_nor_torchvision_until_one_is_used() -> None:
    done = run("import hgld.model, sys; print({'torch', 'torchvision'} & set(sys.modules))")
    assert done.stdout == "set()\n"


def test_the_hook_is_installed_once() -> None:
    done = run(
        f"import sys; {OPERATORS}; operators.install_hook();"
        "print(sum('Declare' in type(f).__name__ for f in sys.meta_path))"
    )
    assert done.stdout == "1\n"
