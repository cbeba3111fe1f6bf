"""Measure losses, metrics, shards, review and training: ``python -m tests.benchmarks``.

Ratios are taken inside one run, on one thread, of least CPU times over interleaved rounds. Parts
``engines``, ``full-size``, ``gallery``, ``growth``, ``hierarchies``, ``keys``, ``large-collect``,
``large-plan``, ``libraries`` and ``suspects`` take minutes each: they are measured if named.
``webdataset`` is in ``shards``, too.
``--quick`` is what a CI run can bear: smaller sizes, of the shards only reading, decoding and
export, and bounds eased by a third, since other work shares the machine. ``HGLD_CPU=avx2`` limits
both sides of each ratio to AVX2. The table goes to a JSON file too; ``make record`` keeps it beside
the pipelines.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path

import torch

from hgld.ranking.levels import RelevanceWarning
from pipelines.record import commit, machine
from tests.benchmarks import (
    engines,
    evaluate_stage,
    first_call,
    full_size,
    gallery_growth,
    hierarchies,
    instructions,
    libraries,
    measures,
    review_keys,
    review_page,
    shards,
    starting,
    store,
    suspects,
    training,
    training_rank,
)
from tests.benchmarks.measures import LOSSES, MANY_POSITIVES
from tests.benchmarks.meters import Row


def main() -> int:
    """Measure, print, write; 1 if a bound is not kept. A missed aim is shown only."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", action="append", choices=PARTS, help="repeatable")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    given = parser.parse_args()
    instructions.choose()
    names = given.part or USUAL
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", RelevanceWarning)
    table = [show(row) for name in names for part in PARTS[name](given.quick) for row in part]
    slack = 1.5 if given.quick else 1.0
    broken = [row for row in table if not eased(row, slack)]
    given.out.write_text(json.dumps(report(names, table), indent=2) + "\n")
    far = sum(not row.reached for row in table)
    kept = f"{len(table) - len(broken)} of {len(table)} keep their bounds, {far} miss their aim"
    print(f"{kept}; {given.out} written")
    return 1 if broken else 0


def ranking(quick: bool):
    """Accuracy, losses, the metric suite and memory."""
    yield measures.accuracy()
    yield measures.loss_against_formulas()
    sizes = (256, 1024) if quick else (256, 512, 1024, 2048, 3072, 4096, 6144, 8192)
    every = []
    for size in sizes:
        for layout in ("2", "2half", "5"):
            names = MANY_POSITIVES if layout == "2half" else ("sup_h_ap",)
            names = tuple(LOSSES) if layout == "2" and size <= 1024 else names
            found = measures.loss_over_products(size, layout, names)
            every += found
            yield found
    yield measures.untrained(1024 if quick else 4096)
    yield measures.growth(every, sizes[0], sizes[-1])
    yield measures.metric_suite(20_000 if quick else 60_000)
    yield measures.metric_suite_of_six_levels(20_000 if quick else 60_000)
    yield measures.two_threads(gallery=20_000 if quick else 60_000)
    yield measures.memory()
    yield measures.streaming(8192)


PARTS: dict[str, Callable[[bool], Iterable[list[Row]]]] = {
    "ranking": ranking,
    "shards": lambda quick: [shards.rows(quick)],
    "store": lambda quick: [store.rows(quick)],
    "review": lambda quick: [] if quick else [review_page.rows()],
    "keys": lambda quick: [review_keys.rows()],
    "hierarchies": lambda quick: [hierarchies.rows()],
    "suspects": lambda quick: [suspects.rows()],
    "starting": lambda quick: [first_call.rows(), starting.rows()],
    "training": lambda quick: [] if quick else [training.rows(), evaluate_stage.rows()],
    "full-size": lambda quick: [full_size.rows()],
    "gallery": lambda quick: [measures.streaming(32_768), measures.whole_gldv2()],
    "engines": lambda quick: [engines.rows()],
    "large-plan": lambda quick: [full_size.rows(works=("large plan",)), training_rank.rows()],
    "large-collect": lambda quick: [full_size.rows(works=("large collect",))],
    "webdataset": lambda quick: [shards.rows_of_batches()],
    "libraries": lambda quick: [libraries.rows()],
    "growth": lambda quick: [gallery_growth.rows()],
}
PACKAGES = (
    "torch", "numba", "numpy", "torchmetrics", "pytorch-metric-learning", "ranx", "faiss-cpu",
    "webdataset",
)  # fmt: skip
USUAL = ("ranking", "shards", "store", "review", "starting", "training")


def eased(row: Row, slack: float) -> bool:
    """Whether a row keeps its bound with some slack."""
    low = row.least is None or row.value * slack >= row.least
    return low and (row.most is None or row.value <= row.most * slack)


def show(row: Row) -> Row:
    """Print a row as it comes."""
    bound = f">= {row.least:g}" if row.least is not None else ""
    bound = f"<= {row.most:g}" if row.most is not None else bound
    mark = "" if not bound else ("ok" if row.holds else "NOT")
    aim = "" if row.aim is None else f"aim {row.aim:g}{'' if row.reached else ', missed'}"
    time = "" if row.seconds is None else f"{row.seconds * 1e3:10.2f} ms"
    values = f"{row.what:58} {row.value:10.4g} {row.unit:3} {bound:12} {mark:4}"
    print(f"{values}{aim:18}{time}", flush=True)
    return row


def report(parts: Sequence[str], table: list[Row]) -> dict[str, object]:
    """The table with the commit, date, machine and versions it was measured with."""
    versions = {found.name: found.version for found in distributions()}
    return {
        "parts": list(parts),
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "instructions": instructions.instructions(),
        "python": sys.version.split()[0],
        "versions": {name: versions[name] for name in PACKAGES if name in versions},
        "threads": torch.get_num_threads(),
        "rows": [{**asdict(row), "holds": row.holds, "reached": row.reached} for row in table],
    }


if __name__ == "__main__":
    raise SystemExit(main())
