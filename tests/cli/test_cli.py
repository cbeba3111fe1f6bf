import errno
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.main import get_command

from hgld.__main__ import main as hgld_main
from hgld.artifacts import named_in_errors
from hgld.cli import app, guarded
from hgld.cli.arguments import name_to_sign, open_workspace
from hgld.cli.console import Printer, warnings_as_notes
from hgld.cli.overview import print_plan
from hgld.pipeline.cost import estimate_cost
from hgld.pipeline.lock import Workspace
from hgld.pipeline.plan import Disk, Plan
from hgld.pipeline.stages import STAGES, stage_names
from hgld.review.apply import Applied, ValueChange
from hgld.review.values import WantedDecision
from tests.in_process import hgld

GLDV2 = "pipelines/gldv2.toml"


def in_a_process(*arguments: str, stdout: int = subprocess.PIPE, **environment: str):
    return subprocess.run(
        [sys.executable, "-m", "hgld", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("words", [("index",), ("copy", "copy-%d.tar")])
def test_kernels_that_no_folder_keeps_are_a_note(words: tuple[str, ...], tmp_path: Path) -> None:
    nowhere = {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    nowhere["NUMBA_CACHE_DIR"] = "/dev/null/kernels"
    done = in_a_process("shards", words[0], str(tmp_path), *words[1:], **nowhere)
    *notes, error = done.stderr.splitlines()
    assert all(line.lstrip().startswith("note: ") for line in notes)
    assert error.startswith(f"hgld: {tmp_path}")


def run_small(pipeline: Path, *options: str) -> list[str]:
    """The arguments that run the README's example with a small backbone, offline."""
    small = ("train.backbone=offline:efficientnet-lite0", "train.image_size=32")
    small += ("train.defaults.steps=1", "train.dim=8")
    sets = [word for setting in small for word in ("--set", setting)]
    return ["run", str(pipeline), "--work", str(pipeline.parent / "work"), *sets, *options]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The README's "Your own hierarchy", run to its end on drawn photos."""
    folder = tmp_path_factory.mktemp("own") / "é"
    rows = ["path,group,species"]
    for number in range(16):
        for photo in range(4):
            path = folder / "photos" / f"{number}-{photo}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            noise = np.random.default_rng([number, photo]).integers(0, 256, (32, 32, 3), np.uint8)
            Image.fromarray(noise).save(path)
            rows.append(f"{path.name},group {number % 4},species {number}")
    (folder / "photos" / "labels.csv").write_text("\n".join(rows) + "\n")
    readme = Path("README.md").read_text("utf-8")
    (folder / "own.toml").write_text(readme.split("```toml\n")[1].split("```")[0], "utf-8")
    hgld(*run_small(folder / "own.toml"))
    return folder / "own.toml"


def test_help_lists_every_verb_within_80_columns() -> None:
    text = hgld("--help").out
    for verb in [*stage_names(), "run", "status", "options", "doctor"]:
        assert re.search(rf"^  {verb}\s+\S", text, re.M), verb
    assert max(map(len, text.splitlines())) <= 80
    assert "..." not in text.split("Whole pipelines:")[1]


def commands(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    """Every command and group below one, by its words."""
    for name, command in group.commands.items():
        yield " ".join((*path, name)), command
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)


COMMANDS = dict(commands(get_command(app)))


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_help_within_80_columns(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = hgld(*words.split(), "--help").out
    assert f" {words} [OPTIONS]" in text and max(map(len, text.splitlines())) <= 80
    assert not re.search(r"^  \w.*\.\.\.$", text, re.M)  # no command's line is cut
    assert COMMANDS[words].help and all(param.help for param in COMMANDS[words].params)


INSPECT = {
    "": "run status doctor options",
    "evaluations": "measure compare score revisited ijb-c",
    "labels": "compare explain check",
    "reviews": "diff agree log conflicts check comments",
    "shards": "ls stats verify",
}


@pytest.mark.parametrize("group", INSPECT)
def test_every_command_that_inspects_prints_json_if_asked(group: str) -> None:
    for name in INSPECT[group].split():
        command = COMMANDS[f"{group} {name}".strip()]
        assert "--json" in {flag for param in command.params for flag in param.opts}, name


VERBS = {"Show", "List", "Check", "Compare", "Write", "Measure", "Undo"}
VERBS |= {"Add", "Rename", "Merge", "Split", "Describe", "Remove"}  # of supercategories


def test_the_help_of_a_tool_begins_with_one_of_a_few_verbs() -> None:
    tools = {words: str(c.help).split()[0] for words, c in COMMANDS.items() if " " in words}
    assert {words: verb for words, verb in tools.items() if verb not in VERBS} == {}


def test_a_file_to_write_is_named_by_one_option() -> None:
    flags = {
        words: [p.opts for p in command.params if any(o in ("--out", "-o") for o in p.opts)]
        for words, command in COMMANDS.items()
    }
    writes = {words: found for words, found in flags.items() if found}
    assert {tuple(opts) for found in writes.values() for opts in found} == {("--out", "-o")}
    assert set(writes) == {
        "evaluations measure", "evaluations compare", "evaluations export", "evaluations map",
        "evaluations embed", "evaluations duplicates",
        "labels compare", "labels check", "labels suspects", "labels tree",
        "new", "reviews agree", "reviews blind", "reviews conflicts", "shards cat",
    }  # fmt: skip


def test_the_plan_is_data_if_json_is_asked_for(tmp_path: Path) -> None:
    plan = json.loads(hgld("run", GLDV2, "--dry-run", "--json", "--work", tmp_path).out)
    assert list(plan["stages"]) == [name for name in stage_names() if name != "link"]
    assert plan["stages"]["clean"]["reads"] == [
        "landmarks.csv",
        "images.parquet",
        "instance_of.csv",
    ]
    assert plan["downloads"][0]["bytes"] > 0 and plan["disks"][0]["need_bytes"] > 0
    hgld("run", GLDV2, "--json", "--work", tmp_path, code=2)


def test_the_plan_of_a_run_up_to_a_stage_ends_there(tmp_path: Path) -> None:
    command = ("run", GLDV2, "--dry-run", "--json", "--work", tmp_path, "--until")
    plan = json.loads(hgld(*command, "collect").out)
    assert list(plan["stages"]) == ["fetch", "collect"] and plan["downloads"]
    assert "did you mean 'collect'" in hgld(*command, "colect", code=2).err


def test_the_version_is_data() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", hgld("--version").out)


def test_a_dry_run_estimates_a_million_if_the_list_of_images_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "images.parquet").write_bytes(b"garbage")
    done = hgld("run", GLDV2, "--dry-run", "--json", "--work", tmp_path)
    plan = json.loads(done.out)
    assert [cost["images"] for cost in plan["costs"]] == [10**6] and not plan["images_counted"]


@pytest.mark.parametrize("name", ["gldv2", "h-gldv2", "quickstart"])
def test_a_dry_run_prints_the_plan_and_writes_nothing(name: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    text = hgld("run", f"pipelines/{name}.toml", "--dry-run", "--work", work).out
    assert re.search(r"^export +missing ", text, re.M) and re.search(r"^disk ", text, re.M)
    assert not work.exists()


def test_the_plan_of_gldv2_names_its_downloads(tmp_path: Path) -> None:
    text = hgld("run", GLDV2, "--dry-run", "--work", tmp_path).out
    assert re.search(r"^ +500 GB +500 x train/images_\*\.tar$", text, re.M)
    assert re.search(r"^ +85 GB +100 x index/images_\*\.tar$", text, re.M)
    assert "recognition_solution_v2.1.csv" in text


def test_the_plan_prints_what_a_million_images_cost_and_fits_a_terminal(tmp_path: Path) -> None:
    text = hgld("run", GLDV2, "--dry-run", "--work", tmp_path).out
    assert max(map(len, text.splitlines())) <= 80
    cost = estimate_cost(10**6).describe()
    assert f"{cost} an example, as only collect counts" in " ".join(text.split())
    assert re.fullmatch(
        r"[\d,]+ images: disk \S+ .B, memory \S+ .B, moved \S+ .B; "
        r"\d+ h \d+ min on 1, \d+ \S+( \d+ \S+)? on 8, \d+ \S+( \d+ \S+)? on 64 machines",
        cost,
    )
    assert " images: " in text and text.count(" images: ") == 1
    assert text.endswith("without download, scrape, training and the start of programs\n")
    assert estimate_cost(72).describe().endswith("; 1 s on 1, 1 s on 8, 1 s on 64 machines")


def test_a_stage_before_its_input_names_the_stage_to_run(tmp_path: Path) -> None:
    error = hgld("clean", GLDV2, "--work", tmp_path, code=1).err.splitlines()[-1]
    words = f"pipelines/gldv2.toml --work {tmp_path}"
    assert error.startswith("hgld: ") and f"run `hgld collect {words}` first" in error


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("run", "nowhere.toml"), 2, "no such pipeline file"),
        (("run", GLDV2, "--set", "cluster.cluster=3"), 2, "did you mean 'clusters'?"),
        (("run", GLDV2, "--set", "trian.dim=3"), 2, "did you mean 'train'?"),
        (("run", GLDV2, "--dry-run", "--now", "yesterday"), 2, "expected a date such as"),
        (("run", GLDV2, "--nonsense"), 2, "No such option"),
        (("fetch", "pipelines/quickstart.toml", "--tars", "0"), 2, "list no tars"),
        (("fetch", GLDV2, "--estimate", "--bandwidth", "inf"), 2, "megabytes a second above 0"),
        (("nonsense",), 2, "No such command"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], code: int, says: str
) -> None:
    assert says in hgld(*arguments, code=code).err


def test_status_is_data_where_json_is_asked_for(tmp_path: Path) -> None:
    states = json.loads(hgld("status", GLDV2, "--work", tmp_path, "--json").out)
    assert list(states) == [name for name in stage_names() if name != "link"]
    assert states["fetch"] == {"state": "missing", "reasons": ["not yet run"]}


def test_status_names_files_that_other_options_left(tmp_path: Path) -> None:
    for name in ("linked.csv", "image_vectors.npz"):
        (tmp_path / name).touch()
    states = json.loads(hgld("status", GLDV2, "--work", tmp_path, "--json").out)
    found = ["left from other options: linked.csv"]
    assert states["link"] == {"state": "left out", "reasons": found}
    assert states["embed"]["reasons"][1:] == ["left from other options: image_vectors.npz"]
    lines = hgld("status", GLDV2, "--work", tmp_path).out.splitlines()
    assert "link      left out left from other options: linked.csv" in lines


@pytest.mark.parametrize("device", ["gpu", "mps", "cpu:1", "CUDA"])
def test_a_device_of_embed_is_refused_in_one_line(device: str, tmp_path: Path) -> None:
    command = ["evaluations", "embed", "offline:efficientnet-lite0", "--images", tmp_path]
    found = hgld(*command, "--out", tmp_path / "out", "--device", device, code=2)
    assert found.err.startswith("hgld: --device: device: expected auto, cpu, cuda, ")
    assert found.err.count("\n") == 1


def test_doctor_knows_this_machine() -> None:
    facts = json.loads(hgld("doctor", "--json").out)
    assert int(facts["cores"]) >= 1 and facts["offline text encoder"] == "installed"


def test_doctor_works_on_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    facts = json.loads(hgld("doctor", "--json").out)
    assert int(facts["cores"]) >= 1
    assert facts["system"] == "Darwin: not tested; hgld is made for Linux"


def test_windows_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from hgld.__main__ import main

    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(SystemExit, match=r"^hgld: needs Linux, found Windows; install it in WSL"):
        main()


def test_an_encoding_that_would_misread_names_of_files_is_refused_in_one_line() -> None:
    done = in_a_process("--version", LC_ALL="C", PYTHONUTF8="0")
    assert done.stderr == "hgld: names of files are read as ascii; set PYTHONUTF8=1\n"
    assert done.returncode == 1 and done.stdout == ""
    assert in_a_process("--version", LC_ALL="C", PYTHONUTF8="1").returncode == 0


def compare_kernels_on_a_small_size(monkeypatch: pytest.MonkeyPatch) -> None:
    from hgld.ranking import kernel_comparison

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(kernel_comparison, "SIZES", ((64, 64),))


def test_doctor_compares_kernels_with_plain_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    compare_kernels_on_a_small_size(monkeypatch)
    lines = hgld("doctor", "--gpu").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line.endswith("same")] == [
        *(["sup_ap", "sup_h_ap", "sup_ndcg", "sup_recall"] * 3), "evaluation",
    ]  # fmt: skip


@pytest.mark.parametrize("fault", ["differs", "fails"])
def test_doctor_ends_with_1_if_a_kernel_is_wrong(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hgld.ranking.kernels import loss_cpu

    compare_kernels_on_a_small_size(monkeypatch)
    solve = loss_cpu.solve_rows

    def wrong(*given: Any) -> Any:
        if fault == "fails":
            raise RuntimeError("no compiler")
        return solve(*given)[0], 1.1 * solve(*given)[1]

    monkeypatch.setattr(loss_cpu, "solve_rows", wrong)
    shown = hgld("doctor", "--gpu", "--json", code=1)
    rows = json.loads(shown.out)["rows"]
    assert [row["same"] for row in rows] == [False] * 12 + [True]
    assert rows[0]["gradient"] == (None if fault == "fails" else pytest.approx(0.1, rel=0.1))
    assert rows[0]["error"] == ("RuntimeError: no compiler" if fault == "fails" else "")
    assert "12 of 13 kernel computations differ from plain torch" in shown.err


@pytest.mark.parametrize("name", ["pandas", "torch"])
def test_doctor_works_where_a_package_is_missing(name: str) -> None:
    code = f"import sys; sys.modules['{name}'] = None; from hgld.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "doctor", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    unknown = json.loads(done.stdout)["GPU"].startswith("not known: import of torch halted")
    assert unknown == (name == "torch")


def test_a_full_disk_is_one_line_and_resumable(capsys: pytest.CaptureFixture[str]) -> None:
    def fill() -> None:
        with Path("/dev/full").open("w") as file:
            file.write("x")
            file.flush()

    assert guarded(fill) == 75
    assert "disk is full" in capsys.readouterr().err


def test_a_full_disk_is_told_with_the_copy_and_not_with_its_source(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def copy() -> None:
        raise OSError(errno.ENOSPC, "No space left", "cache/0.tar", None, "release/0.tar")

    assert guarded(copy) == 75
    assert capsys.readouterr().err.startswith("hgld: release/0.tar: the disk is full")


def test_a_file_beyond_the_limit_of_its_size_is_one_line_and_resumable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def write() -> None:
        with named_in_errors(tmp_path / "x.tar"):
            raise OSError(errno.EFBIG, "File too large")

    assert guarded(write) == 75
    says = "larger than a file may become here; raise the limit (ulimit -f) and run the same "
    assert capsys.readouterr().err == f"hgld: {tmp_path / 'x.tar'}: {says}command again\n"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError(), "out of memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out of memory"),
        (RuntimeError("unable to mmap 8 bytes: Cannot allocate memory (12)"), "out of memory"),
        (ImportError("libx.so: failed to map segment from shared object"), "out of memory"),
        (RuntimeError("can't start new thread"), "no more threads or processes can start"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "no more threads"),
    ],
    ids=["data", "map", "tensor", "library", "thread", "process"],
)
def test_a_lack_of_memory_or_threads_is_one_line_and_resumable(
    error: Exception, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def allocate() -> None:
        raise error

    assert guarded(allocate) == 75
    shown = capsys.readouterr().err
    assert re.fullmatch(rf"hgld: {says}[^\n]*; [^\n]* and run the same command again\n", shown)


def test_an_import_that_fails_otherwise_is_a_fault_of_hgld() -> None:
    def load() -> None:
        raise ImportError("no name x")

    with pytest.raises(ImportError, match="no name x"):
        guarded(load)


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from hgld.cli import app; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"torch", "pandas", "numpy", "pydantic", "rich.progress"} & set(loaded)


def test_a_command_ends_without_a_search_for_garbage() -> None:
    code = """if True:
        from hgld import cli
        class Garbage:
            def __init__(self):
                self.itself = self
            def __del__(self):
                print("found")
        cli.app = Garbage
        cli.main()"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_duckdb_reports_nothing_as_a_command_ends() -> None:
    code = "from hgld import cli; import duckdb{}; cli.app = duckdb.connect; cli.main()"
    for frozen in ("", ", gc; gc.freeze()"):  # as after the import of a later stage
        ended = [sys.executable, "-c", code.format(frozen)]
        done = subprocess.run(ended, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


RAISE = "raise KeyboardInterrupt"


@pytest.mark.parametrize(
    ("given", "load", "spins"),
    [
        ({}, 1.0, "20000"),
        ({}, 1.6, "2000"),
        ({"GOMP_SPINCOUNT": "7"}, 1.6, "7"),
        ({"OMP_WAIT_POLICY": "active"}, 1.6, None),
    ],
)
def test_threads_that_wait_leave_the_cores_to_others_unless_told(
    given: dict[str, str], load: float, spins: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    unset = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    environment = unset | given
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(os, "getloadavg", lambda: (load * (os.cpu_count() or 1), 0.0, 0.0))
    monkeypatch.setattr("hgld.cli.main", lambda: None)
    hgld_main()
    assert environment.get("GOMP_SPINCOUNT") == spins


@pytest.mark.parametrize("interrupt", [RAISE, f"exec({RAISE!r})"])
def test_an_interrupt_of_the_imports_ends_in_one_line_and_130(
    tmp_path: Path, interrupt: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"""if True:
        import sys
        class Interrupt:
            def find_spec(self, name, *_):
                if name == "typer":
                    {interrupt}
        sys.meta_path.insert(0, Interrupt())""")
    done = subprocess.run(
        [sys.executable, "-m", "hgld"],
        env={**os.environ, "PYTHONPATH": tmp_path},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (130, "hgld: interrupted before it began\n")


def after_sighup(handler: str) -> "subprocess.CompletedProcess[str]":
    """A command that is hung up on within a library's ``except Exception``."""
    code = f"""if True:
        import os, signal
        from hgld import cli
        def command():
            try:
                os.kill(os.getpid(), signal.SIGHUP)
            except Exception:
                pass
        signal.signal(signal.SIGHUP, signal.{handler})
        cli.app = command
        cli.main()"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_a_request_to_stop_is_not_swallowed_on_the_way() -> None:
    done = after_sighup("SIG_DFL")
    says = "hgld: stopped by SIGHUP; the same command goes on from here\n"
    assert (done.returncode, done.stderr) == (75, says)


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 75), ("SIGINT", 130)])
def test_a_request_within_a_finalizer_is_heard_after_it(name: str, code: int) -> None:
    work = f"""if True:
        import os, signal, time
        from hgld import cli
        class Last:
            def __del__(self):
                os.kill(os.getpid(), signal.{name})
        @cli.app.command("work")
        def work():
            Last()
            time.sleep(600)
        cli.main()"""
    given = [sys.executable, "-c", work, "work"]
    done = subprocess.run(given, capture_output=True, text=True, timeout=300)
    assert done.returncode == code
    assert re.fullmatch(r"hgld: .*; the same command goes on from here\n", done.stderr)


def test_a_request_that_interrupts_the_wait_for_a_thread_does_not_end_python_beneath_it() -> None:
    """Before 3.13, Python takes a thread as ended if a signal interrupts its join."""
    code = """if True:
        import atexit, os, signal, threading, time
        from concurrent.futures import ThreadPoolExecutor
        from hgld import cli
        asked, done = threading.Event(), []
        def ask():
            os.kill(os.getpid(), signal.SIGTERM)
            asked.set()
        def work():
            asked.wait()
            time.sleep(1)
            done.append(True)
        def command():
            with ThreadPoolExecutor(1) as pool:
                pool.submit(work)
                threading.Timer(0.5, ask).start()  # the end of the block waits by now
        atexit.register(lambda: print(done))
        cli.app = command
        cli.main()"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    says = "hgld: stopped by SIGTERM; the same command goes on from here\n"
    assert (found.returncode, found.stdout, found.stderr) == (75, "[True]\n", says)


def test_what_nohup_has_told_to_ignore_is_ignored() -> None:
    done = after_sighup("SIG_IGN")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_request_that_comes_while_it_exits_changes_nothing(name: str) -> None:
    """Neither amid what runs at exit nor after that, when Python undoes its handlers."""
    code = f"""if True:
        import atexit, os, signal
        from hgld import cli
        def ask(kill=os.kill, process=os.getpid(), number=signal.{name}):
            kill(process, number)
        class Last:
            def __del__(self, ask=ask):
                ask()
        last = Last()
        atexit.register(ask)
        cli.app = lambda: None
        cli.main()"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def in_a_shell(words: str, folder: Path, rest: str) -> "subprocess.CompletedProcess[bytes]":
    """``hgld`` with these words, and what the shell is told of its streams."""
    command = f"{sys.executable} -m hgld {words} --work '{folder}' {rest}"
    return subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True)


@pytest.mark.parametrize(
    ("words", "rest", "code"),
    [
        (f"status {GLDV2}", ">&-", 0),
        (f"status {GLDV2} --json", ">&-", 0),
        (f"status {GLDV2}", "2>&-", 0),
        ("status nowhere.toml", ">&- 2>&-", 2),
        ("status nowhere.toml", "2>/dev/full", 2),
        ("status nowhere.toml", "2>&1 >&- | true", 2),
    ],
)
def test_streams_that_take_nothing_change_no_exit_code(
    words: str, rest: str, code: int, tmp_path: Path
) -> None:
    done = in_a_shell(words, tmp_path, rest)
    assert (done.returncode, done.stderr) == (code, b"")


@pytest.mark.slow
@pytest.mark.parametrize("rest", ["2>/dev/full", "2>&1 | true", "2>&-"])
def test_a_log_that_cannot_be_written_ends_no_work(rest: str, tmp_path: Path) -> None:
    words = "collect pipelines/quickstart.toml --set 'source.toy={landmarks=6, images=2, size=48}'"
    assert in_a_shell(words, tmp_path, ">/dev/null").returncode == 1  # fetch comes first
    assert in_a_shell(words.replace("collect", "fetch", 1), tmp_path, rest).returncode == 0
    assert in_a_shell(words, tmp_path, rest).returncode == 0


def test_a_current_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    command = f"mkdir gone; cd gone; rmdir ../gone; {sys.executable} -m hgld status x.toml"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    says = "hgld: the current folder does not exist any more; change into another\n"
    assert (done.returncode, done.stderr) == (1, says)


@pytest.mark.parametrize("inside", [False, True], ids=["named", "current"])
def test_a_name_that_is_not_utf_8_is_refused(inside: bool, tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/caf\xe9"
    Path(os.fsdecode(odd)).mkdir()
    command = [sys.executable, "-m", "hgld", "status", str(Path(GLDV2).absolute())]
    extra = {"cwd": odd} if inside else {}
    named = [] if inside else [b"--work", odd]
    done = subprocess.run([*command, *named], capture_output=True, text=True, **extra)
    says = "\\udce9: holds a byte that is not UTF-8; rename the file or folder\n"
    assert done.returncode == 2 and done.stderr == f"hgld: {tmp_path}/caf{says}"


def test_a_place_that_cannot_be_a_work_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = hgld("collect", GLDV2, "--work", tmp_path / "file" / "x", code=1)
    says = "cannot be the work folder (Not a directory); give --work another folder\n"
    assert done.err == f"hgld: {tmp_path / 'file' / 'x'}: {says}"


def test_an_interrupt_ends_in_one_line_and_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: sys.exit(130)) == 130
    assert capsys.readouterr().err == "hgld: interrupted; the same command goes on from here\n"


def test_a_warning_is_a_note_and_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings_as_notes():
        warnings.simplefilter("default")
        for _ in range(2):
            warnings.warn("mind the gap", stacklevel=1)
    assert capsys.readouterr().err.strip() == "note: mind the gap"


@pytest.mark.slow
def test_the_readme_example_of_your_own_hierarchy_runs_up_to_a_report(own: Path) -> None:
    assert (own.parent / "work" / "report" / "report.html").is_file()


def test_a_path_that_the_encoding_lacks_is_printed_escaped(own: Path) -> None:
    done = in_a_process(*run_small(own), PYTHONIOENCODING="ascii:strict")
    assert done.returncode == 0, done.stderr
    assert "\\xe9/work/report/report.html" in done.stdout


def test_a_run_shows_only_what_it_reached(own: Path) -> None:
    shown = hgld(*run_small(own, "--until", "train"))
    assert "All stages up to train are fresh" in shown.err and shown.out == ""
    text = hgld(*run_small(own, "--until", "evaluate")).out
    assert "AP:species" in text and "report:" not in text


def test_a_changed_folder_is_stale_in_words_and_in_json(own: Path) -> None:
    file = own.parent / "work" / "models" / "model" / "config.json"
    before = file.read_bytes()
    file.write_bytes(before + b"\n")
    status = ["status", *run_small(own)[1:]]
    words = dict(line.split()[:2] for line in hgld(*status).out.splitlines())
    states = json.loads(hgld(*status, "--json").out)
    file.write_bytes(before)
    assert words == {name: facts["state"] for name, facts in states.items()}
    assert [words[name] for name in ("export", "train", "evaluate")] == ["fresh", "stale", "stale"]
    assert states["train"]["reasons"] == ["models was changed since"]


@pytest.mark.parametrize("buffered", [(), ("--json",)], ids=["rich", "plain"])
def test_a_reader_that_has_gone_ends_it_without_a_word(
    buffered: tuple[str, ...], tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = in_a_process("status", GLDV2, "--work", tmp_path, *buffered, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_square_brackets_in_an_option_are_shown_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Printer().starts(STAGES[0], ["source.folder: [/x] -> :smile:"])
    assert capsys.readouterr().err.strip() == "fetch     source.folder: [/x] -> :smile:"


def test_the_plan_says_when_the_disk_is_too_small(capsys: pytest.CaptureFixture[str]) -> None:
    disk = Disk("files and shards", Path("work"), "--work", need_bytes=3000, free_bytes=1000)
    print_plan(Plan([], "", [], (disk,), estimate_cost(1), is_counted=True, notes=()))
    assert "NOT ENOUGH: up to 2 kB more" in capsys.readouterr().out


@pytest.mark.parametrize(("count", "says"), [(1, "1 decision added"), (2, "2 decisions added")])
def test_decisions_are_counted_in_words_that_fit(
    count: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = WantedDecision("drop", "", "", "")
    changes = [ValueChange("pub", "pub", "first decision", None, wanted)] * count
    applied = Applied(pd.DataFrame(), pd.DataFrame(), changes)
    monkeypatch.setattr(
        "hgld.cli.review_actions.apply_review", lambda runner, who, sheets, sure: applied
    )
    monkeypatch.setattr("hgld.pipeline.run.Runner.run_one", lambda runner, name, force: False)
    settings = ("--set", "review.who=a person", "--work", tmp_path)
    assert says in hgld("review", GLDV2, "--apply", *settings).err


@pytest.mark.parametrize("name", ["Ann", "root", ""])
def test_decisions_are_signed_with_the_name_that_git_signs_with_or_with_none(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = workspace_of(tmp_path, name, monkeypatch)
    signs = name if name == "Ann" else "unsigned"
    assert name_to_sign(workspace) == signs
    assert ("review.who=NAME" in capsys.readouterr().err) == (signs == "unsigned")


def workspace_of(folder: Path, git_name: str, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A pipeline of a person whose git has this name."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(folder / "gitconfig"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    (folder / "gitconfig").write_text(f"[user]\nname = {git_name}\n")
    (folder / "x.toml").write_text('labels = "labels"')
    return open_workspace(folder / "x.toml", None, folder)


def test_a_person_on_a_terminal_is_asked_for_a_name_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = workspace_of(tmp_path, "root", monkeypatch)
    with monkeypatch.context() as patch:
        answers = iter(["  ", " Ann\u00a0 Lee "])
        patch.setattr("typer.prompt", lambda *words, err: next(answers))
        patch.setattr("sys.stdin.isatty", lambda: True)
        patch.setattr("sys.stderr.isatty", lambda: True)
        assert name_to_sign(workspace) == "Ann Lee"
    assert name_to_sign(workspace) == "Ann Lee"
    assert (tmp_path / "config" / "hgld" / "name").read_text() == "Ann Lee\n"
    assert capsys.readouterr().err.startswith("kept in ")


def test_a_release_needs_a_name(tmp_path: Path) -> None:
    words = ("publish", GLDV2, "--work", tmp_path, "--set", 'publish.name=""')
    assert "publish needs publish.name; set it in the file" in hgld(*words, code=2).err
