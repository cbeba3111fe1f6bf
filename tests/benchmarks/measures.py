"""What is measured, each as rows of a table: measured value, bound, and whether it holds."""

import math
import os
import time
from functools import partial

import numpy as np
import torch
from torch import Tensor

from hgld.ranking import losses, metrics, rankings
from hgld.ranking.kernels import rank_cpu
from hgld.ranking.levels import ClassRanges, count_levels, look_up, relevance_table, shared_levels
from hgld.ranking.rankings import parse
from tests.benchmarks.cases import embeddings_of, labels_of, three_products
from tests.benchmarks.formulas import loop, metric_stack, metrics_by_cumsum, rows
from tests.benchmarks.memory import above_inputs, in_a_process
from tests.benchmarks.meters import Row, fastest


def suite_of(num_levels: int) -> list[str]:
    """Names of the metric suite: three of all levels, six of each level."""
    each = ("AP", "mAP@R", "R@1", "R@10", "R@100", "R@1000")
    levels = range(1, num_levels + 1)
    return ["H-AP", "NDCG", "ASI"] + [f"{name}:{at}" for at in levels for name in each]


SUITE = suite_of(2)


def loss_against_formulas(size: int = 1024, sampled: int = 16) -> list[Row]:
    """Sup-H-AP against the per-row formulas, on evenly spaced rows scaled to the batch."""
    labels = labels_of(size, "2")
    vectors = embeddings_of(labels)
    scores, levels = vectors @ vectors.T, shared_levels(labels, labels)
    some = torch.linspace(0, size - 1, sampled).long()
    rel = look_up(relevance_table(count_levels(levels, 2)), levels).float()[some]
    given = scores[some], levels[some], rel
    agree(given)
    works = {
        "rows": lambda: rows(*given),
        "loop": lambda: loop(*given),
        "kernel": kernel_work("sup_h_ap", scores, levels),
        "product": lambda: three_products(vectors),
    }
    best = fastest(works)
    scale = size / sampled
    return [
        Row(f"Sup-H-AP B={size} against rows", best["rows"] * scale / best["kernel"], "x", 1500),
        Row(f"Sup-H-AP B={size} against loop", best["loop"] * scale / best["kernel"], "x", 150),
        Row(
            f"Sup-H-AP B={size} over the products", best["kernel"] / best["product"], "x",
            most=1.2, seconds=best["kernel"], aim=1.0,
        ),
    ]  # fmt: skip


def agree(given) -> None:
    """Both formulas and the kernel give the same, to 1e-6, before any is timed."""
    scores, levels, rel = given
    leaf = scores.clone().requires_grad_()
    found = losses.sup_h_ap(leaf, levels, 2, relevance=rel)
    (gradient,) = torch.autograd.grad(found.sum(), leaf)
    for formula in (rows, loop):
        loss, slope = formula(scores.double(), levels, rel.double())
        assert (found - loss).abs().max() < 1e-6
        assert (gradient - slope).abs().max() / slope.abs().max() < 2e-6


LOSSES = {
    "sup_h_ap": lambda s, x: losses.sup_h_ap(s, x, int(x.max())),
    "sup_ap": lambda s, x: losses.sup_ap(s, (x >= int(x.max())).to(torch.int8)),
    "sup_ap coarse": losses.sup_ap,
    "sup_ndcg": losses.sup_ndcg,
    "sup_recall": lambda s, x: losses.sup_recall(s, (x >= int(x.max())).to(torch.int8)),
    "sup_recall coarse": losses.sup_recall,
    "smooth_ap coarse": losses.smooth_ap,
    "smooth_h_ap": lambda s, x: losses.smooth_h_ap(s, x, int(x.max())),
    "smooth_recall coarse": losses.smooth_recall,
}
MANY_POSITIVES = ("sup_h_ap", "sup_ap coarse", "sup_ndcg", "sup_recall coarse", "smooth_ap coarse")


def kernel_work(name, scores, levels):
    """Forward and backward of a loss of scores."""
    leaf = scores.clone().requires_grad_()

    def work():
        return torch.autograd.grad(LOSSES[name](leaf, levels).mean(), leaf)[0]

    return work


def loss_over_products(size: int, layout: str, names: tuple[str, ...]) -> list[Row]:
    """Each loss over the three products of similarity."""
    labels = labels_of(size, layout)
    return over_products(labels, embeddings_of(labels), f"layout {layout}", names)


def untrained(size: int) -> list[Row]:
    """The same for embeddings that say nothing: all scores lie close, so every window is full."""
    make = torch.Generator().manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.randn(size, 512, generator=make), dim=1)
    names = ("sup_h_ap", "smooth_ap coarse")
    return over_products(labels_of(size, "2half"), vectors, "untrained", names)


def over_products(labels, vectors, case: str, names: tuple[str, ...]) -> list[Row]:
    """Each loss of a batch over the three products of its similarity."""
    size = len(labels)
    scores, levels = vectors @ vectors.T, shared_levels(labels, labels)
    works = {name: kernel_work(name, scores, levels) for name in names}
    easy = 2.5 if labels.shape[1] == 2 else 4.0
    best = fastest({**works, "product": lambda: three_products(vectors)}, 2 if size > 4096 else 3)
    return [
        Row(f"{name} B={size} {case} over the products", best[name] / best["product"], "x",
            most=bound_over_products(name, size, case, easy if name.startswith("sup") else 4.0),
            seconds=best[name], aim=aim_over_products(name, size, case))
        for name in names
    ]  # fmt: skip


def bound_over_products(name: str, size: int, case: str, easy: float) -> float:
    """The bound of a loss over the three products: its aim where that holds with a margin."""
    kept = size == 1024 and (name == "smooth_ap coarse" or case in ("layout 2half", "layout 5"))
    return (aim_over_products(name, size, case) if kept else None) or easy


def aim_over_products(name: str, size: int, case: str) -> float | None:
    """The aim of a loss over the three products; none for losses and sizes without one."""
    if name == "smooth_ap coarse":
        return 2.5
    if name == "sup_h_ap" and case == "layout 2":
        return {256: 1.5, 1024: 1.0}.get(size)
    sup = {"layout 2half": 1.8, "layout 5": 2.5, "untrained": 2.0}
    return sup.get(case) if name.startswith("sup") else None


def growth(table: list[Row], small: int, large: int) -> list[Row]:
    """Growth exponent of Sup-H-AP between two batch sizes, for each layout."""
    found = []
    for layout, most in (("2", 2.2), ("2half", 2.2), ("5", 4.0)):
        seconds = [
            next(r.seconds for r in table if r.what.startswith(f"sup_h_ap B={b} layout {layout} "))
            for b in (small, large)
        ]
        exponent = math.log(seconds[1] / seconds[0]) / math.log(large / small)
        bound = most if layout != "5" else None
        found.append(Row(f"growth exponent {small}..{large} layout {layout}", exponent, "",
                         most=bound))  # fmt: skip
    return found


def accuracy() -> list[Row]:
    """Kernel against the plain loop, scores over the full range [-1, 1]."""
    make = torch.Generator().manual_seed(0)
    scores = torch.rand(64, 256, generator=make, dtype=torch.float64) * 2 - 1
    scores[:, 0], scores[:, 1] = 1.0, -1.0
    levels = torch.randint(0, 4, (64, 256), generator=make).to(torch.int8)
    rel = look_up(relevance_table(count_levels(levels, 3)), levels)
    loss, slope = loop(scores, levels, rel)
    table = []
    for dtype, bounds in ((torch.float64, (1e-12, 1e-10)), (torch.float32, (1e-6, 2e-6))):
        exact = (loss, slope) if dtype == torch.float64 else loop(
            scores.float().double(), levels, rel)  # fmt: skip
        leaf = scores.to(dtype).requires_grad_()
        found = losses.sup_h_ap(leaf, levels, 3)
        (gradient,) = torch.autograd.grad(found.sum(), leaf)
        error = float(((found.detach() - exact[0]) / exact[0]).abs().max())
        slope_error = float((gradient - exact[1]).abs().max() / exact[1].abs().max())
        kind = str(dtype).removeprefix("torch.")
        table.append(Row(f"{kind} loss, relative error", error, "", most=bounds[0]))
        table.append(Row(f"{kind} gradient, of the largest", slope_error, "", most=bounds[1]))
    return table


def metric_suite(size: int = 60_000, queries: int = 128) -> list[Row]:
    """All metrics of a SOP-like gallery, all against all, over the product of their scores."""
    query, q_labels, vectors, labels = gallery_case(size, queries, (12,))
    levels = shared_levels(q_labels[:16], labels)
    scores = query[:16] @ vectors.T
    works = {
        "all": lambda: metrics.evaluate(query, q_labels, vectors, labels, SUITE),
        "suite": suite_work(query, q_labels, vectors, labels),
        "product": lambda: query @ vectors.T,
        "stack": lambda: metric_stack(scores, q_labels[:16], labels),
        "lean": lambda: metrics_by_cumsum(scores, levels, 2),
    }
    slow = metrics_by_cumsum(scores.double(), levels, 2)
    stack = metric_stack(scores.double(), q_labels[:16], labels)
    fast = metrics.evaluate(query, q_labels, vectors, labels, SUITE).per_query
    for name in SUITE:
        for other in (slow[name], stack[name]):
            assert (fast[name][:16] - other).abs().nan_to_num(0.0).max() < 1e-5, name
    best = fastest(works)
    product = best["product"] / queries
    suite, whole = best["suite"] / queries, best["all"] / queries
    return [
        Row(f"metric suite N={size} over its product", suite / product, "x", most=0.4,
            seconds=suite, aim=0.35),
        Row(f"metric suite N={size} against topk and cumsum", best["stack"] / 16 / suite, "x", 40),
        Row(f"metric suite N={size} against lean cumsum", best["lean"] / 16 / suite, "x"),
        Row(f"evaluate N={size}, {queries} queries, set-up too, over its product", whole / product,
            "x", most=1.6, aim=1.2),
    ]  # fmt: skip


def metric_suite_of_six_levels(size: int = 60_000, queries: int = 128) -> list[Row]:
    """The metric suite of six levels over its product."""
    given = gallery_case(size, queries, (3, 12, 48, 96, 192))
    works = {"suite": suite_work(*given), "product": lambda: given[0] @ given[2].T}
    best = fastest(works)
    return [
        Row(f"metric suite N={size}, six levels, over its product",
            best["suite"] / best["product"], "x", seconds=best["suite"] / queries, aim=0.45)
    ]  # fmt: skip


def gallery_case(size: int, queries: int, coarse: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Queries, their labels, a gallery with classes of about 5, its labels; so many coarse ones."""
    make = torch.Generator().manual_seed(0)
    fine = torch.randint(0, size // 5, (size,), generator=make)
    labels = torch.stack([*(fine * count // (size // 5) for count in coarse), fine], 1)
    vectors = embeddings_of(labels)
    some = torch.linspace(0, size - 1, queries).long()
    return vectors[some].contiguous(), labels[some], vectors, labels


def suite_work(query, q_labels, vectors, labels):
    """Ranks and all metrics of scores that are there; the gallery is sorted by label once."""
    num_levels = labels.shape[1]
    classes = ClassRanges.of(q_labels, labels)
    ranges = classes.places().numpy(), classes.starts.numpy(), classes.ends.numpy()
    counts, own = classes.counts().numpy(), np.full(len(query), -1)
    scores = query @ vectors.T
    names = tuple(str(level + 1) for level in range(num_levels))
    plan = rankings._plan([parse(n) for n in suite_of(num_levels)], names, classes.counts())
    levels, first = np.empty(scores.shape, np.int8), np.empty((len(query), 0), np.int32)

    def work() -> None:
        rank_cpu.rank_scores(scores, (*ranges, own), levels, first)
        rankings.values_of(levels, counts, *plan)

    return work


def two_threads(size: int = 1024, gallery: int = 60_000, queries: int = 128) -> list[Row]:
    """Elapsed time on one thread over that on two; nothing on a single core."""
    if len(os.sched_getaffinity(0)) < 2:
        return []
    given = gallery_case(gallery, queries, (12,))
    labels = labels_of(size, "2")
    vectors = embeddings_of(labels)
    scores, levels = vectors @ vectors.T, shared_levels(labels, labels)
    works = {
        f"sup_h_ap B={size}": kernel_work("sup_h_ap", scores, levels),
        f"smooth_ap coarse B={size}": kernel_work("smooth_ap coarse", scores, levels),
        f"metric suite N={gallery}": suite_work(*given),
        f"evaluate N={gallery}": lambda: metrics.evaluate(*given, SUITE),  # type: ignore[call-arg]
    }
    every = {
        (name, threads): partial(on_threads, threads, work)
        for name, work in works.items()
        for threads in (1, 2)
    }
    best = fastest(every, clock=time.perf_counter)
    return [
        Row(f"{name}, 2 threads, of one", best[name, 1] / best[name, 2], "x", least=1, aim=1.8)
        for name in works
    ]


def on_threads(threads: int, work) -> None:
    """Work on so many threads of torch's."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        work()
    finally:
        torch.set_num_threads(before)


def whole_gldv2(queries: int = 1129, gallery: int = 761_757) -> list[Row]:
    """Queries and gallery of the size of GLDv2, three levels, one process, start to end."""
    make = torch.Generator().manual_seed(0)
    landmark = torch.randint(0, 100_000, (gallery,), generator=make)
    group = landmark % 78
    labels = torch.stack([(group < 60).long(), group, landmark], 1)
    vectors = torch.randn(gallery, 512, generator=make)
    vectors /= vectors.norm(dim=1, keepdim=True)
    some = torch.randint(0, gallery, (queries,), generator=make)
    query = vectors[some] + 0.02 * torch.randn(queries, 512, generator=make)
    q_labels = labels[some]
    names = ["H-AP", "NDCG", "ASI"] + [
        f"{name}:{at}" for at in (1, 2, 3) for name in ("AP", "mAP@R", "mAP@100", "R@1", "R@10")
    ]
    metrics.evaluate(query[:2], q_labels[:2], vectors[:1000], labels[:1000], names)

    def products() -> None:
        room = torch.empty(88, gallery)
        for start in range(0, queries, 88):
            part = query[start : start + 88]
            torch.mm(part, vectors.T, out=room[: len(part)])

    start = time.thread_time()
    products()
    product = time.thread_time() - start
    clock, start = time.perf_counter(), time.thread_time()
    peak = above_inputs(lambda: metrics.evaluate(query, q_labels, vectors, labels, names))
    seconds, wall = time.thread_time() - start, time.perf_counter() - clock
    # 1.2 x the embeddings and one part: a block of scores
    aim = (0.2 * vectors.nbytes + 4 * rank_cpu.BLOCK_CELLS) / 2**20
    return [
        Row("GLDv2 size evaluation over its product", seconds / product, "x", most=1.6,
            seconds=seconds),
        Row("GLDv2 size evaluation, memory beyond embeddings", peak, "MB", most=4096, aim=aim),
        Row("GLDv2 size evaluation, wall", wall, "s"),
    ]  # fmt: skip


def memory() -> list[Row]:
    """Peak of a loss over scores, above its inputs."""
    size = 2048
    peak = in_a_process("scores", size)
    bound = 2 * size * size * 4 / 2**20 + 16
    return [Row(f"Sup-H-AP B={size}, memory above inputs", peak, "MB", most=bound)]


def streaming(size: int) -> list[Row]:
    """Peak of a loss over embeddings without any B x B tensor, above its inputs."""
    vectors = size * 512 * 4 / 2**20  # unit vectors, gradients and their likes, none B x B
    peak, bound = in_a_process("streaming", size), 6 * vectors + 128
    return [Row(f"streaming B={size}, memory above inputs", peak, "MB", most=bound)]
