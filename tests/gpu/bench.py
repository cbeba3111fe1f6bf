"""Losses and evaluation on a GPU over their matrix products: ``python -m tests.gpu.bench``.

Times are CUDA events around a piece of work, least of interleaved rounds after warming up, so that
what the host takes between launches counts where the GPU waits for it. Products are float32, TF32
off. Prints a table, ``--out`` writes it as JSON; ``--sweep`` tries other tiles, ``--quick`` leaves
the largest out.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from hgld.ranking import losses as rank_losses
from hgld.ranking import metrics
from hgld.ranking.evaluation import rank_blocks
from hgld.ranking.kernels import loss_gpu, rank_gpu
from hgld.ranking.levels import RelevanceWarning, count_levels, relevance_table, shared_levels
from hgld.ranking.rankings import measure
from hgld.ranking.steps import UpperStep
from hgld.ranking.surrogates import Goal
from pipelines.record import commit
from tests.benchmarks.cases import embeddings_of, labels_of, three_products

GOALS = {"loss": 3.0, "evaluation": 1.5}  # most, over the product
LOSSES = {
    "sup_h_ap": rank_losses.sup_h_ap,
    "sup_ap coarse": rank_losses.sup_ap,
    "sup_ndcg": rank_losses.sup_ndcg,
    "sup_recall": rank_losses.sup_recall,
}


def main() -> int:
    """Measure, print; 1 where there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="measured; where git cannot tell", default=None)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here", file=sys.stderr)
        return 1
    warnings.simplefilter("ignore", RelevanceWarning)
    torch.backends.cuda.matmul.allow_tf32 = False
    table = []
    for size in (256, 1024) if given.quick else (256, 512, 1024, 2048, 4096, 8192):
        for layout in ("2", "2half", "5"):
            table += losses(size, layout)
    table += evaluation("SOP", *sop(20_000 if given.quick else 60_500))
    if not given.quick:
        table += evaluation("GLDv2", *gldv2())
    if given.sweep:
        table += sweep_losses() + sweep_evaluation()
    result = {
        "commit": given.commit or commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "rows": table,
    }
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def machine() -> dict[str, str]:
    """What the numbers were measured with."""
    import triton

    return {
        "gpu": torch.cuda.get_device_name(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "triton": triton.__version__,
    }


def fastest(works: dict[str, Callable[[], object]], rounds: int = 20) -> dict[str, float]:
    """Least milliseconds of each piece of work over interleaved rounds, after three to warm up."""
    best = dict.fromkeys(works, float("inf"))
    for turn in range(rounds + 3):
        for name, work in works.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            start.record()
            work()
            end.record()
            end.synchronize()
            if turn >= 3:
                best[name] = min(best[name], start.elapsed_time(end))
    return best


def row(what: str, ms: float, product: float, most: float | None = None) -> dict[str, object]:
    """A line of the table, printed as it comes."""
    ratio = ms / product
    mark = "" if most is None else ("ok" if ratio <= most else "NOT")
    print(f"{what:60} {ms:10.4f} ms {ratio:8.3f} x {mark}", flush=True)
    return {"what": what, "ms": ms, "product_ms": product, "ratio": ratio, "most": most}


def losses(size: int, layout: str) -> list[dict[str, object]]:
    """Each loss from scores, forward and backward, over the three products of similarity."""
    labels = labels_of(size, layout)
    vectors = embeddings_of(labels).cuda()
    scores, levels = vectors @ vectors.T, shared_levels(labels, labels).cuda()
    works: dict[str, Callable[[], object]] = {
        name: both_ways(loss, scores, levels) for name, loss in LOSSES.items()
    }
    works["kernels alone, sup_h_ap"] = kernels_alone(scores, levels)
    works["product"] = lambda: three_products(vectors)
    best = fastest(works, 20 if size <= 1024 else 5)
    most = GOALS["loss"] if size == 1024 else None
    return [
        row(f"{name} B={size} layout {layout}", best[name], best["product"], most)
        for name in works
        if name != "product"
    ]


def both_ways(loss: Callable[..., Tensor], scores: Tensor, levels: Tensor):
    """Forward and backward of a public loss."""
    leaf = scores.clone().requires_grad_()
    more = (int(levels.max()),) if loss is rank_losses.sup_h_ap else ()
    return lambda: torch.autograd.grad(loss(leaf, levels, *more).mean(), leaf)


def kernels_alone(scores: Tensor, levels: Tensor):
    """The kernels of Sup-H-AP, without checks, tables and autograd."""
    num_levels = int(levels.max())
    table = relevance_table(count_levels(levels, num_levels))
    goal = Goal("ratio", UpperStep())
    return lambda: loss_gpu.solve_rows(scores, levels, table, goal)


def sop(size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All against all: 12 coarse classes, fine ones of 5."""
    make = torch.Generator().manual_seed(0)
    fine = torch.randint(0, size // 5, (size,), generator=make)
    labels = torch.stack([fine * 12 // (size // 5), fine], 1)
    vectors = embeddings_of(labels).cuda()
    return vectors, labels.cuda(), vectors, labels.cuda()


def gldv2(queries: int = 1129, gallery: int = 761_757) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries and gallery of the size of GLDv2, three levels; kind holds most of the gallery."""
    make = torch.Generator().manual_seed(0)
    landmark = torch.randint(0, 100_000, (gallery,), generator=make)
    group = landmark % 78
    labels = torch.stack([(group < 60).long(), group, landmark], 1).cuda()
    vectors = torch.randn(gallery, 512, generator=make).cuda()
    vectors /= vectors.norm(dim=1, keepdim=True)
    some = torch.randint(0, gallery, (queries,), generator=make).cuda()
    query = vectors[some] + 0.02 * torch.randn(queries, 512, generator=make).cuda()
    return query, labels[some], vectors, labels


def evaluation(
    name: str, query: Tensor, q_labels: Tensor, gallery: Tensor, g_labels: Tensor
) -> list[dict[str, object]]:
    """The whole suite of metrics, start to end, over the product of the scores."""
    finest = q_labels.shape[1]
    each = ("AP", "mAP@R", "R@1", "R@10", "R@100", "R@1000")
    names = ["H-AP", "NDCG", "ASI", *(f"{n}:{at}" for at in range(1, finest + 1) for n in each)]
    rows = max(1, rank_gpu.CELLS_AT_ONCE // len(gallery))

    def products() -> None:
        for start in range(0, len(query), rows):
            query[start : start + rows] @ gallery.T

    works = {
        "evaluation": lambda: metrics.evaluate(query, q_labels, gallery, g_labels, names),
        "product": products,
    }
    quarters = {"part": -(-len(gallery) // 4)}
    works["in four parts"] = lambda: measure(
        rank_blocks(query, q_labels, gallery, g_labels, **quarters), names
    )
    best = fastest(works, 3)
    what = f"{name}: {len(names)} metrics, {len(query)} x {len(gallery)}, L = {finest}"
    return [
        row(what, best["evaluation"], best["product"], GOALS["evaluation"]),
        row(f"{name}: the same, in four parts", best["in four parts"], best["product"]),
        *stages(name, works),
    ]


def stages(name: str, works: dict[str, Callable[[], object]]) -> list[dict[str, object]]:
    """Milliseconds of each kernel in one evaluation, the slowest first."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        works["evaluation"]()
        torch.cuda.synchronize()
    times = {e.key: e.device_time_total / 1e3 for e in found.key_averages()}
    every = sorted(times.items(), key=lambda pair: -pair[1])[:14]
    whole = sum(times.values()) or 1.0
    return [row(f"{name} kernel {key[:40]}", ms, whole) for key, ms in every]


def sweep_losses() -> list[dict[str, object]]:
    """Sup-H-AP at B = 1024 with other tiles."""
    labels = labels_of(1024, "2")
    vectors = embeddings_of(labels).cuda()
    scores, levels = vectors @ vectors.T, shared_levels(labels, labels).cuda()
    table = []
    for cells, widest, registers in product((2048, 4096, 8192, 16_384), (4096, 8), (None, 96, 128)):
        found = {"CELLS": cells, "WIDEST": widest, "REGISTERS": registers}
        before = {name: getattr(loss_gpu, name) for name in found}
        settings(loss_gpu, found)
        works = {"work": kernels_alone(scores, levels), "p": lambda: three_products(vectors)}
        best = fastest(works)
        table.append(row(f"B=1024 {found}", best["work"], best["p"]))
        settings(loss_gpu, before)
    return table


def sweep_evaluation() -> list[dict[str, object]]:
    """A SOP-like gallery with other bins and tiles."""
    given, table = sop(60_500), []
    for bins, block in product((1, 2, 4), (512, 1024, 2048)):
        settings(rank_gpu, {"BINS": bins, "BLOCK": block})
        table += evaluation(f"SOP BINS={bins} BLOCK={block}", *given)[:1]
    settings(rank_gpu, {"BINS": 2, "BLOCK": 1024})
    return table


def settings(module: object, numbers: dict[str, object]) -> None:
    """Set a module's numbers for the measurements that follow."""
    for name, value in numbers.items():
        setattr(module, name, value)


if __name__ == "__main__":
    raise SystemExit(main())
