"""Losses, evaluation and embedding on a GPU: ``python -m tests.gpu.bench``.

Losses and evaluation are measured over their matrix products, the embedding of photos in shards
over the network alone. Times are CUDA events around a piece of work, least of interleaved rounds
after warming up, so that what the host takes between launches counts where the GPU waits for it.
Products are float32, TF32 off. Prints a table, ``--out`` writes it as JSON; ``--sweep`` tries other
tiles, ``--quick`` leaves the largest out. With ``TRITON_INTERPRET=1`` a CPU computes the rows of
tiny sizes, to check the command itself.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from hgld.config import EvaluateOptions, TrainOptions
from hgld.evaluate.embeddings import EmbeddingStore
from hgld.evaluate.models import find_models
from hgld.evaluate.sides import Shards
from hgld.images import decode_rgb
from hgld.model import build_image_model, save_model
from hgld.model.devices import autocast
from hgld.ranking import losses as rank_losses
from hgld.ranking import metrics
from hgld.ranking.evaluation import rank_blocks
from hgld.ranking.kernels import loss_gpu, rank_gpu
from hgld.ranking.levels import RelevanceWarning, count_levels, relevance_table, shared_levels
from hgld.ranking.rankings import measure
from hgld.ranking.steps import UpperStep
from hgld.ranking.surrogates import Goal
from hgld.tasks import watched_by
from pipelines.record import commit
from tests.benchmarks.cases import embeddings_of, labels_of, three_products
from tests.benchmarks.shards import draw_photo, make_source, write_shards
from tests.gpu.devices import DEVICE, INTERPRETED

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
    if not (INTERPRETED or torch.cuda.is_available()):
        print("no GPU here", file=sys.stderr)
        return 1
    warnings.simplefilter("ignore", RelevanceWarning)
    torch.backends.cuda.matmul.allow_tf32 = False
    sizes = (256, 1024) if given.quick else (256, 512, 1024, 2048, 4096, 8192)
    photos, gallery = (2_000, 20_000) if given.quick else (6_000, 60_500)
    if INTERPRETED:
        sizes, photos, gallery = (16,), 40, 20
    table = [
        row for size in sizes for layout in ("2", "2half", "5") for row in losses(size, layout)
    ]
    table += evaluation("SOP", *sop(gallery))
    if not (given.quick or INTERPRETED):
        table += evaluation("GLDv2", *gldv2())
    table += embedding(photos)
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
        "gpu": "Triton's interpreter" if INTERPRETED else torch.cuda.get_device_name(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "triton": triton.__version__,
    }


def fastest(works: dict[str, Callable[[], object]], rounds: int = 20) -> dict[str, float]:
    """Least milliseconds of each piece of work over interleaved rounds, after three to warm up."""
    best = dict.fromkeys(works, float("inf"))
    rounds, warm = (1, 0) if INTERPRETED else (rounds, 3)
    for turn in range(rounds + warm):
        for name, work in works.items():
            found = elapsed_ms(work)
            if turn >= warm:
                best[name] = min(best[name], found)
    return best


def elapsed_ms(work: Callable[[], object]) -> float:
    """Milliseconds of a piece of work, once."""
    if INTERPRETED:
        begin = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - begin)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def row(what: str, ms: float, product: float, most: float | None = None) -> dict[str, object]:
    """A line of the table, printed as it comes."""
    ratio = ms / product
    mark = "" if most is None else ("ok" if ratio <= most else "NOT")
    print(f"{what:60} {ms:10.4f} ms {ratio:8.3f} x {mark}", flush=True)
    return {"what": what, "ms": ms, "product_ms": product, "ratio": ratio, "most": most}


def losses(size: int, layout: str) -> list[dict[str, object]]:
    """Each loss from scores, forward and backward, over the three products of similarity."""
    labels = labels_of(size, layout)
    vectors = embeddings_of(labels).to(DEVICE)
    scores, levels = vectors @ vectors.T, shared_levels(labels, labels).to(DEVICE)
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
    vectors = embeddings_of(labels).to(DEVICE)
    return vectors, labels.to(DEVICE), vectors, labels.to(DEVICE)


def gldv2(queries: int = 1129, gallery: int = 761_757) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries and gallery of the size of GLDv2, three levels; kind holds most of the gallery."""
    make = torch.Generator().manual_seed(0)
    landmark = torch.randint(0, 100_000, (gallery,), generator=make)
    group = landmark % 78
    labels = torch.stack([(group < 60).long(), group, landmark], 1).to(DEVICE)
    vectors = torch.randn(gallery, 512, generator=make).to(DEVICE)
    vectors /= vectors.norm(dim=1, keepdim=True)
    some = torch.randint(0, gallery, (queries,), generator=make).to(DEVICE)
    query = vectors[some] + 0.02 * torch.randn(queries, 512, generator=make).to(DEVICE)
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

    if INTERPRETED:
        return []
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        works["evaluation"]()
        torch.cuda.synchronize()
    times = {e.key: e.device_time_total / 1e3 for e in found.key_averages()}
    every = sorted(times.items(), key=lambda pair: -pair[1])[:14]
    whole = sum(times.values()) or 1.0
    return [row(f"{name} kernel {key[:40]}", ms, whole) for key, ms in every]


def embedding(photos: int) -> list[dict[str, object]]:
    """Photos of 224 px in shards through a ResNet-50, per image, over the network alone."""
    backbone, side = ("test_resnet", 32) if INTERPRETED else ("resnet50", 224)
    train = TrainOptions(backbone=backbone, pretrained=False, image_size=side, dim=512)
    with TemporaryDirectory() as name:
        folder = Path(name)
        shards = write_shards(folder, "shards", make_source(folder / "source", photos))
        save_model(build_image_model(train), folder / "model", {"loss": "HAPPIER", "steps": 1})
        ways = [("float32", 0), ("bf16", 0)]
        if not INTERPRETED:
            ways = list(product(("float32", "bf16", "fp16"), (0, 4, 8)))
        return [embedding_row(folder, shards, photos, *way) for way in ways]


def embedding_row(
    folder: Path, shards: Path, photos: int, precision: str, workers: int
) -> dict[str, object]:
    """One precision and number of processes that decode; prints images/s and the share of each."""
    (model,) = find_models({"m": str(folder / "model")}, folder)
    encoder, together = model.load(DEVICE), min(photos, EvaluateOptions().batch_size)
    decoded = [decode_rgb(draw_photo(seed, 224)) for seed in range(together)]
    batch = torch.stack([encoder.transform(photo) for photo in decoded]).to(DEVICE)

    @torch.inference_mode()
    def network() -> None:
        with autocast(DEVICE, precision):
            encoder.network(batch)

    alone = fastest({"network": network})["network"] / together
    options = EvaluateOptions(device=DEVICE.type, precision=precision, workers=workers)
    store = EmbeddingStore(folder / f"{precision}-{workers}", options)
    sides = [Shards.read(shards).side("train")]
    with watched_by(None, print):
        taken = elapsed_ms(lambda: store.embed(model, sides)) / photos
    return row(f"embed an image of {photos}, {precision}, {workers} workers", taken, alone)


def sweep_losses() -> list[dict[str, object]]:
    """Sup-H-AP at B = 1024 with other tiles."""
    labels = labels_of(1024, "2")
    vectors = embeddings_of(labels).to(DEVICE)
    scores, levels = vectors @ vectors.T, shared_levels(labels, labels).to(DEVICE)
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
