import subprocess
import sys


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_torchvision_timm_and_open_clip_import_whatever_torch_build_is_there() -> None:
    done = run("import hgld, torchvision.transforms.v2, timm, open_clip; print('ok')")
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_an_operator_that_is_there_is_not_declared_again() -> None:
    declare = "_torchvision.declare_missing_operators()"
    done = run(f"from hgld import _torchvision; {declare}; {declare}; import torchvision")
    assert done.returncode == 0, done.stderr


def test_hgld_itself_imports_neither_torch_nor_torchvision() -> None:
    done = run("import hgld, sys; print('torch' in sys.modules, 'torchvision' in sys.modules)")
    assert done.stdout == "False False\n"


def test_the_hook_is_installed_once() -> None:
    done = run(
        "import sys, hgld; from hgld import _torchvision; _torchvision.install();"
        "print(sum('Declare' in type(f).__name__ for f in sys.meta_path))"
    )
    assert done.stdout == "1\n"
