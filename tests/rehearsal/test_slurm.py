"""The scripts of examples/slurm on a Slurm of one node on this machine (Debian's slurm-wlm).

It needs root and slurm-wlm, and is skipped without them. The cluster has its own keys, ports and
state, so that it disturbs no other.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.object_store import free_port
from tests.train.test_torchrun import losses, pipeline, run_alone

__all__ = ["pipeline"]
pytestmark = pytest.mark.rehearsal
NEEDED = "munged", "slurmctld", "slurmd", "sbatch"
CONF = """
ClusterName=rehearsal
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/d
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
Submit = Callable[..., str]


@pytest.fixture(scope="module")
def submit() -> Iterator[Submit]:
    """Start Slurm; yields a function that submits a script and returns what its tasks printed."""
    if os.geteuid() or any(shutil.which(name) is None for name in NEEDED):
        pytest.skip("needs root and slurm-wlm")
    with tempfile.TemporaryDirectory(prefix="hgld-slurm-") as name, ExitStack() as stack:
        folder, host = Path(name), socket.gethostname().partition(".")[0]
        for part in ("ctld", "d"):
            (folder / part).mkdir()
        ports = free_port(), free_port()
        (folder / "slurm.conf").write_text(CONF.format(host=host, folder=folder, ports=ports))
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {
            **os.environ,
            "PATH": path,
            "SLURM_CONF": f"{folder}/slurm.conf",
            "PYTHONPATH": str(Path.cwd()),
            "OMP_NUM_THREADS": "1",
        }

        def start(*words: str) -> None:
            log = stack.enter_context((folder / f"{words[0]}.log").open("wb"))
            process = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)

        places = [f"--{what}={folder}/munge.{what}" for what in ("socket", "pid-file", "log-file")]
        key, seed = f"--key-file={folder}/munge.key", f"--seed-file={folder}/munge.seed"
        start("munged", "--foreground", "--force", key, seed, *places)
        start("slurmctld", "-D")
        start("slurmd", "-D", "-N", host)
        until = time.monotonic() + 60
        while "idle" not in run(["sinfo", "-h", "-o", "%t"], environment):
            assert time.monotonic() < until, (folder / "slurmctld.log").read_text()
            time.sleep(0.5)

        def submitted(script: str, *words: str, options: tuple[str, ...]) -> str:
            output = folder / f"{script}.%a.log"
            given = ["sbatch", "--wait", f"--output={output}", *options]
            code = subprocess.run(
                [*given, f"examples/slurm/{script}", *words], env=environment, timeout=400
            ).returncode
            text = "".join(log.read_text() for log in folder.glob(f"{script}.*.log"))
            assert code == 0, text
            return text

        yield submitted


def run(words: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(words, env=environment, capture_output=True, text=True).stdout


def test_srun_torchrun_trains_the_model_of_one_process(submit: Submit, pipeline: Path) -> None:
    folder = pipeline.parent
    run_alone(folder, "train")
    expected = losses(folder)
    shutil.rmtree(folder / "work/models/run")
    two = "--ntasks=2", "--ntasks-per-node=2"
    submit("torchrun.sh", str(pipeline), str(folder / "work"), options=two)
    assert losses(folder) == pytest.approx(expected, rel=1e-4)


def test_an_array_trains_one_seed_in_each_work_folder(submit: Submit, pipeline: Path) -> None:
    work = pipeline.parent / "work"
    submit("seeds.sh", str(pipeline), f"{work}/", options=("--array=0-1",))
    models = [list(Path(f"{work}-seed-{n}/models").glob("*/model.safetensors")) for n in (0, 1)]
    assert [len(found) for found in models] == [1, 1]


def test_a_ray_cluster_in_a_job_runs_a_pipeline_to_its_report(
    submit: Submit, pipeline: Path
) -> None:
    own, work = pipeline.with_name("ray.toml"), pipeline.with_name("ray-work")
    splits = '[evaluate]\nquery = "train"\ngallery = "train"\n'
    own.write_text(pipeline.read_text() + splits)
    submit("ray.sh", str(own), str(work), options=("--nodes=1",))
    found = {path.name: path.read_bytes() for path in (work / "shards").glob("*.tar")}
    alone = pipeline.with_name("work") / "shards"
    assert found == {path.name: path.read_bytes() for path in alone.glob("*.tar")} != {}
    assert (work / "report/report.html").is_file()
