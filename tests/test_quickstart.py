"""The whole road on the made world, as a newcomer runs it."""

import re
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.warm import Command, hgld

pytestmark = pytest.mark.slow

PIPELINE = "pipelines/quickstart.toml"
# Of labels that decisions and taxonomy alone determine, in H-GLDv2's three levels.
LABELS = {
    "hierarchy.csv": "05ee63cb33c4c9bd",
    "train_label_to_hierarchical.csv": "5145a79f6774d972",
    "index_label_to_hierarchical.csv": "4f4072121391f5f7",
    "lineage.csv": "8b89e832c208658d",
}


def words(work: Path, *more: str) -> list[str]:
    return ["run", PIPELINE, "--work", str(work), "--now", "2026-01-01", *more]


def stop_after(work: Path, stage: str, with_signal: signal.Signals) -> int:
    """Start a run and stop it soon after a stage has finished; its exit code."""
    with Command(words(work), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any(line.startswith(f"{stage} ") for line in process.stderr)
        time.sleep(0.5)
        process.send_signal(with_signal)
        process.stderr.read()
    return process.returncode


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    work = tmp_path_factory.mktemp("quickstart")
    command = [sys.executable, "-m", "hgld", *words(work)]
    return work, subprocess.run(command, capture_output=True, text=True, check=False)


def outputs(work: Path) -> dict[str, bytes]:
    """CSVs, tables, shards and their index, by name."""
    files = [*work.glob("*.csv"), *work.glob("images*.parquet"), *work.glob("shards/*")]
    return {str(path.relative_to(work)): path.read_bytes() for path in files}


def test_the_status_of_a_finished_run_needs_no_heavy_library(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    heavy = "{'torch', 'sklearn', 'webdataset', 'duckdb', 'pandas', 'numpy', 'pyarrow'}"
    code = (
        "import sys; from hgld.cli import app\n"
        f"app(['status', {PIPELINE!r}, '--work', {str(finished[0])!r}], standalone_mode=False)\n"
        f"print({heavy} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {line.split()[1] for line in done.stdout.splitlines()[:-1]} == {"fresh"}
    assert done.stdout.splitlines()[-1] == "set()"


def test_it_ends_with_the_metrics_and_the_report(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    work, done = finished
    assert done.returncode == 0, done.stderr
    assert re.search(r"^H-AP +\d+\.\d", done.stdout, re.M)
    assert done.stdout.splitlines()[-1] == f"report: {work}/report/report.html"
    assert (work / "report" / "report.html").stat().st_size > 10_000
    page = " ".join((work / "report" / "report.html").read_text("utf-8").split())
    assert re.search(r"\d+ images of “test” searched among \d+ images of “index”\.", page)


def test_the_three_levels_keep_their_bytes(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    found = {n: sha256((finished[0] / n).read_bytes()).hexdigest()[:16] for n in LABELS}
    assert found == LABELS, "a version that changes these tables says why in the changelog"


def test_a_second_run_does_nothing_and_says_so(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    done = hgld(Path(), *words(finished[0]), code=0)
    assert "All stages are fresh; nothing to do." in done.stderr


def test_a_killed_and_an_interrupted_run_go_on_to_the_same_bytes(
    finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    assert stop_after(tmp_path, "fetch", signal.SIGKILL) == -signal.SIGKILL
    assert stop_after(tmp_path, "scrape", signal.SIGTERM) == 75
    assert stop_after(tmp_path, "clean", signal.SIGINT) == 130
    hgld(Path(), *words(tmp_path, "--until", "export"), code=0)
    undisturbed = outputs(finished[0])
    assert len(undisturbed) > 15 and outputs(tmp_path) == undisturbed


def test_the_screen_in_the_pages_is_what_explain_shows(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    shown = Path("docs/labels.md").read_text("utf-8").split("```\nlandmark ")[1].split("```")[0]
    done = hgld(Path(), "labels", "explain", PIPELINE, "train:40", "--work", finished[0])
    numbers = re.compile(r"^(cluster|  +distance).*\n", re.M)  # k-means may differ elsewhere
    assert numbers.sub("", done.stdout) == numbers.sub("", f"landmark {shown}")


def test_a_model_is_drawn_as_a_map_and_compared_in_pictures(
    finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    work, out, pages = finished[0], tmp_path / "map", tmp_path / "pages"
    done = hgld(Path(), "evaluations", "map", f"{work}:happier", "--out", out)
    assert done.stdout.splitlines() == [f"{out}/map.html", f"{out}/map.parquet"]
    table = pq.read_table(out / "map.parquet")
    assert table["split"].value_counts().to_pylist() == [
        {"values": "index", "counts": 192},
        {"values": "test", "counts": 57},
    ]
    models = [f"{work}:smooth_ap", f"{work}:happier"]
    done = hgld(Path(), "evaluations", "compare", *models, "--out", pages)
    assert done.stdout.splitlines()[-1] == f"page: {pages}/comparison.html"
    assert (pages / "comparison-gain.png").is_file()
