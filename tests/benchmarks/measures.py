"""What is measured, each as rows of a table: measured value, bound, and whether it holds."""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch

from hgld.ranking import losses, metrics, rankings
from hgld.ranking.kernels.rank_cpu import rank_rows
from hgld.ranking.levels import ClassRanges, count_levels, look_up, relevance_table, shared_levels
from hgld.ranking.rankings import parse
from tests.benchmarks.cases import embeddings_of, fastest, labels_of, three_products
from tests.benchmarks.formulas import loop, metric_stack, metrics_by_cumsum, rows
from tests.benchmarks.memory import in_a_process

SUITE = ["H-AP", "NDCG", "ASI"] + [
    f"{name}:{at}" for at in (1, 2) for name in ("AP", "mAP@R", "R@1", "R@10", "R@100", "R@1000")
]


@dataclass(frozen=True)
class Row:
    """One line of the table; ``bound`` is the least or the most that is asked for."""

    what: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None
    seconds: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the value keeps to its bound."""
        low = self.least is None or self.value >= self.least
        return low and (self.most is None or self.value <= self.most)


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
            most=1.2, seconds=best["kernel"],
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
    return over_products(labels, embeddings_of(labels), f"B={size} layout {layout}", names)


def untrained(size: int) -> list[Row]:
    """The same for embeddings that say nothing: all scores lie close, so every window is full."""
    make = torch.Generator().manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.randn(size, 512, generator=make), dim=1)
    names = ("sup_h_ap", "smooth_ap coarse")
    return over_products(labels_of(size, "2half"), vectors, f"B={size} untrained", names)


def over_products(labels, vectors, case: str, names: tuple[str, ...]) -> list[Row]:
    """Each loss of a batch over the three products of its similarity."""
    size = len(labels)
    scores, levels = vectors @ vectors.T, shared_levels(labels, labels)
    works = {name: kernel_work(name, scores, levels) for name in names}
    best = fastest({**works, "product": lambda: three_products(vectors)}, 2 if size > 4096 else 3)
    return [
        Row(f"{name} {case} over the products", best[name] / best["product"], "x",
            most=2.5 if labels.shape[1] == 2 and name.startswith("sup") else 4.0,
            seconds=best[name])
        for name in names
    ]  # fmt: skip


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
    make = torch.Generator().manual_seed(0)
    fine = torch.randint(0, size // 5, (size,), generator=make)
    labels = torch.stack([fine * 12 // (size // 5), fine], 1)
    vectors = embeddings_of(labels)
    some = torch.linspace(0, size - 1, queries).long()
    query, q_labels = vectors[some].contiguous(), labels[some]
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
            seconds=suite),
        Row(f"metric suite N={size} against topk and cumsum", best["stack"] / 16 / suite, "x", 40),
        Row(f"metric suite N={size} against lean cumsum", best["lean"] / 16 / suite, "x"),
        Row(f"evaluate N={size}, {queries} queries, set-up too, over its product", whole / product,
            "x"),
    ]  # fmt: skip


def suite_work(query, q_labels, vectors, labels):
    """Ranks and all metrics of scores that are there; the gallery is sorted by label once."""
    classes = ClassRanges.of(q_labels, labels)
    ranges = classes.places().numpy(), classes.starts.numpy(), classes.ends.numpy()
    counts, own = classes.counts().numpy(), np.full(len(query), -1)
    scores = (query @ vectors.T).numpy()
    plan = rankings._plan([parse(name) for name in SUITE], ("1", "2"), classes.counts())
    levels, first = np.empty(scores.shape, np.int8), np.empty((len(query), 0), np.int32)

    def work() -> None:
        rank_rows(scores, *ranges, own, levels, first)
        rankings.values_of(levels, counts, *plan)

    return work


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
    from tests.benchmarks.memory import above_inputs

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
    return [
        Row("GLDv2 size evaluation over its product", seconds / product, "x", most=1.6,
            seconds=seconds),
        Row("GLDv2 size evaluation, memory beyond embeddings", peak, "MB", most=4096),
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
