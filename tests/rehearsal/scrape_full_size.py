"""The scrape of all of GLDv2's train landmarks: requests, time beside the server's, memory."""

import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mediawiki.made import GLDV2
from tests.mediawiki.scraping import environment
from tests.mediawiki.wiki import serve
from tests.rehearsal.scrape_scene import Figures, set_up, store_of

__all__ = ["full_size"]


@dataclass(frozen=True)
class Used:
    """What a process needed, as the kernel counts it."""

    seconds: float
    cpu_s: float
    memory_mb: float


def full_size(template: Path, folder: Path, landmarks: int = GLDV2, kilobytes: int = 8) -> Figures:
    """All of GLDv2's train landmarks; what comes out is true, or this raises."""
    scene = set_up(template, folder, landmarks, kilobytes)
    run = scene.run("full")
    with serve(scene.wiki) as wiki:
        used = _watch(run.command(wiki), folder / "stderr")
        requests = wiki.requests()
    scene.require_truth(run.output("instance_of"), run.output("misses"))
    served = sum(line["answered"] - line["came"] for line in requests) / 1e9
    return {
        "landmarks": len(scene.landmarks),
        "requests": len(requests),
        "requests_by_kind": _by_kind(requests),
        "seconds": round(used.seconds, 1),
        "server_ms_a_request": round(1e3 * served / len(requests), 2),
        "client_ms_a_request": round(1e3 * (used.seconds - served) / len(requests), 2),
        "client_cpu_ms_a_request": round(1e3 * used.cpu_s / len(requests), 2),
        "memory_mb": round(used.memory_mb),
        "store_mb": round(store_of(run).stat().st_size / 1e6),
        "hours_at_1.5_a_second": round(len(requests) / 1.5 / 3600, 2),
    }


def _watch(command: Sequence[str], stderr: Path) -> Used:
    """Run a command to its good end.

    Its peak memory is read while it runs: what is told at its end counts the process that started
    it too, as the two are one for a moment.
    """
    start, peak_kb = time.perf_counter(), 0
    with stderr.open("wb") as errors:
        process = subprocess.Popen(command, stderr=errors, env=environment())
        try:
            while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
                peak_kb = max(peak_kb, _peak_kb(process.pid))
                time.sleep(0.02)
        except BaseException:
            process.kill()
            raise
    _, status, used = ended
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, stderr.read_text()
    seconds = time.perf_counter() - start
    return Used(seconds, used.ru_utime + used.ru_stime, peak_kb / 1024)


def _peak_kb(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) if found else 0  # none: it has just ended


def _by_kind(requests: Sequence[dict[str, Any]]) -> dict[str, int]:
    return dict(Counter(f"{line['action']} {line['prop']}" for line in requests))
