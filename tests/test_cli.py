import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from hgld.cli import app, guarded
from hgld.console import warnings_as_notes
from hgld.stages import stage_names

GLDV2 = "pipelines/gldv2.toml"


def hgld(*arguments: str) -> int:
    return guarded(lambda: app(list(arguments)))


def test_help_lists_every_verb_within_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert hgld("--help") == 0
    text = capsys.readouterr().out
    for verb in [*stage_names(), "run", "status", "doctor"]:
        assert re.search(rf"^  {verb}\s+\S", text, re.M), verb
    assert max(map(len, text.splitlines())) <= 80
    assert "..." not in text.split("Commands:")[1]


@pytest.mark.parametrize("verb", [*stage_names(), "run", "status", "doctor"])
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert hgld(verb, "--help") == 0
    assert "Usage: " in capsys.readouterr().out


def test_the_version_is_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert hgld("--version") == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize("name", ["gldv2", "h-gldv2", "quickstart"])
def test_a_dry_run_prints_the_plan_and_writes_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = tmp_path / "work"
    assert hgld("run", f"pipelines/{name}.toml", "--dry-run", "--work", str(work)) == 0
    text = capsys.readouterr().out
    assert re.search(r"^export +missing ", text, re.M) and re.search(r"^disk ", text, re.M)
    assert not work.exists()


def test_the_plan_of_gldv2_names_its_downloads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hgld("run", GLDV2, "--dry-run", "--work", str(tmp_path))
    text = capsys.readouterr().out
    assert re.search(r"^ +500 GB +500 x train/images_\*\.tar$", text, re.M)
    assert re.search(r"^ +85 GB +100 x index/images_\*\.tar$", text, re.M)
    assert "recognition_solution_v2.1.csv" in text


def test_a_stage_before_its_input_names_the_stage_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hgld("clean", GLDV2, "--work", str(tmp_path)) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("hgld: ") and "run `hgld collect pipelines/gldv2.toml` first" in error


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("run", "nowhere.toml"), 2, "no such pipeline file"),
        (("run", GLDV2, "--set", "cluster.cluster=3"), 2, "did you mean 'clusters'?"),
        (("run", GLDV2, "--set", "trian.dim=3"), 2, "did you mean 'train'?"),
        (("run", GLDV2, "--nonsense"), 2, "No such option"),
        (("nonsense",), 2, "No such command"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hgld(*arguments) == code
    assert says in capsys.readouterr().err


def test_status_is_data_where_json_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hgld("status", GLDV2, "--work", str(tmp_path), "--json") == 0
    states = json.loads(capsys.readouterr().out)
    assert list(states) == stage_names()
    assert states["fetch"] == {"state": "missing", "reasons": ["not yet run"]}


def test_doctor_knows_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert hgld("doctor", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert int(facts["cores"]) >= 1 and facts["offline text encoder"] == "installed"


def test_a_full_disk_is_one_line_and_resumable(capsys: pytest.CaptureFixture[str]) -> None:
    def fill() -> None:
        with Path("/dev/full").open("w") as file:
            file.write("x")
            file.flush()

    assert guarded(fill) == 75
    assert "disk is full" in capsys.readouterr().err


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from hgld.cli import app; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"torch", "pandas", "numpy", "pydantic", "rich.progress"} & set(loaded)


def test_an_interrupt_ends_in_one_line_and_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: sys.exit(130)) == 130
    assert capsys.readouterr().err == "hgld: interrupted; the same command goes on from here\n"


def test_a_warning_is_a_note_and_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings_as_notes():
        warnings.simplefilter("default")
        for _ in range(2):
            warnings.warn("mind the gap", stacklevel=1)
    assert capsys.readouterr().err.strip() == "note: mind the gap"
