"""Measure the scrape against a real MediaWiki: ``python -m tests.benchmarks.scrape``.

Prints what the rehearsals find (requests, overhead, memory, kills, storm, full disk) and writes it
to a JSON file with the machine it was measured on. ``--landmarks`` is for a quick look.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import requests

from tests.mediawiki.made import GLDV2
from tests.mediawiki.wiki import install, what_is_missing
from tests.rehearsal.scrape_full_disk import fill_the_disk
from tests.rehearsal.scrape_full_size import full_size
from tests.rehearsal.scrape_kills import kill_often
from tests.rehearsal.scrape_storm import storm

Drill = Callable[[Path, Path], Any]


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--landmarks", type=int, default=GLDV2)
    parser.add_argument("--out", type=Path, default=Path("bench-scrape.json"))
    given = parser.parse_args()
    if missing := what_is_missing():
        print(f"{missing}; `make system` installs it", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        found = dict(measure(Path(folder), given.landmarks))
    given.out.write_text(json.dumps({**machine(), **found}, indent=2) + "\n")
    print(f"{given.out} written")
    return 0


def measure(folder: Path, landmarks: int) -> Iterator[tuple[str, Any]]:
    """Each drill's name and figures, printed as they come."""
    template = install(folder / "template")
    for name, drill in drills(landmarks).items():
        start = time.perf_counter()
        figures = drill(template, folder / name)
        print(f"{name} ({time.perf_counter() - start:.0f} s)", flush=True)
        for row in figures if isinstance(figures, list) else [figures]:
            print("\n".join(f"    {key:24} {value}" for key, value in row.items()), flush=True)
        yield name, figures


def drills(landmarks: int) -> dict[str, Drill]:
    """What can be measured here; a full disk only by root, who may mount a small one."""
    found: dict[str, Drill] = {
        "full size": lambda template, folder: full_size(template, folder, landmarks),
        "kills": kill_often,
        "storm": storm,
    }
    return found if os.geteuid() else {**found, "full disk": fill_the_disk}


def machine() -> dict[str, Any]:
    """What the figures were measured with."""
    return {
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "requests": requests.__version__,
    }


if __name__ == "__main__":
    raise SystemExit(main())
