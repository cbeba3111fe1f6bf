"""Rankings of a gallery, and the computation of metrics by name.

A ranking stores the shared level of the image at each rank, which is all that a metric needs. A
gallery is ranked once, and other cut-offs, alphas or levels are computed from the same ranking.
``measure`` is the only implementation of the metrics, for rankings from every device.

A metric is identified by its name: ``mAP@100:landmark`` is parsed, computed, and the result's key.
NAME[(option=value)][@k][:level]. The level is one of the data set's level names or its number, 1
for the coarsest; the default is the finest. ``@1k`` is ``@1000``.
"""

import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from hgld.errors import ShapeError, UsageError
from hgld.ranking import levels as grades
from hgld.ranking.kernels.device import new_array, over_rows
from hgld.ranking.structure import ClassSums, find_winners

Array = np.ndarray[Any, Any]
RANKS_AT_ONCE = 1 << 18
FORMS: dict[str, tuple[str | None, Literal["no", "may", "must"], bool]] = {
    # metric: (option, @k, has a level)
    "AHD": (None, "must", False),
    "AP": (None, "no", True),
    "ASI": (None, "no", True),
    "CPCC": (None, "no", False),
    "H-AP": ("alpha", "no", False),
    "H-P": ("alpha", "must", False),
    "H-R": ("alpha", "must", False),
    "HC": (None, "must", False),
    "HCA": (None, "must", False),
    "HOPS": (None, "may", False),
    "MRR": (None, "may", True),
    "MS": (None, "no", False),
    "NDCG": (None, "may", False),
    "P": (None, "must", True),
    "R": (None, "must", True),
    "TR": (None, "must", True),
    "hF": (None, "must", False),
    "hP": (None, "must", False),
    "hR": (None, "must", False),
    "mAP": (None, "must", True),
    "mMP": (None, "must", True),
    "wAP": ("weights", "no", False),
}
CPCC = "CPCC"  # of the classes of the gallery: no query has a value
VOTES = ("HC", "HCA")  # the only ones that need to know which wrong class an image has
PATTERN = re.compile(
    r"(?P<metric>[A-Za-z-]+)(\((?P<option>\w+)=(?P<value>[^()]*)\))?(@(?P<k>R|[0-9]+k?))?"
    r"(:(?P<level>.+))?"  # last, so that it may hold any sign
)
EXAMPLES = "H-AP, NDCG, ASI, AP:landmark, mAP@R:landmark, mAP@100:landmark, R@1:kind"


@dataclass(frozen=True)
class MetricName:
    """A parsed metric name; ``str`` returns the name.

    Args:
        metric: H-AP, NDCG, ASI, AP, mAP, MRR, R, TR, P, mMP, H-R, H-P, wAP, MS, AHD, hP, hR, hF,
            HOPS, HC, HCA or CPCC.
        alpha: of Eq. 20; None: 1.
        weights: of wAP, one per level, coarse to fine; empty: equal weights.
        k: cut-off; 0: R, the query's number of positives; None: the whole list.
        level: a level's name or number; None: the finest, or of ASI all levels together.
        query: whether Eq. 20 counts the query among the images of its finest level.
    """

    metric: str
    alpha: float | None = None
    weights: tuple[float, ...] = ()
    k: int | None = None
    level: str | None = None
    query: bool = False

    def __str__(self) -> str:
        option = "" if self.alpha is None else f"(alpha={_text(self.alpha)})"
        option = "(query=1)" if self.query else option
        if self.weights:
            option = f"(weights={'/'.join(_text(weight) for weight in self.weights)})"
        cut = "" if self.k is None else f"@{self.k or 'R'}"
        return f"{self.metric}{option}{cut}" + ("" if self.level is None else f":{self.level}")

    @property
    def kind(self) -> int:
        """Number of the metric in the kernels."""
        from hgld.ranking.kernels.metrics_cpu import KINDS

        if self.metric == "ASI" and self.level is not None:
            return KINDS["ASI:"]
        return KINDS[self.metric]

    @property
    def is_by_eq_20(self) -> bool:
        """Whether it is H-AP, H-P or H-R."""
        return FORMS[self.metric][0] == "alpha"

    def relevance_key(self, num_levels: int) -> tuple[float, ...]:
        """Key of the relevance that it uses: alpha of Eq. 20, or -1 and the weights of Property 1.

        -2 is Eq. 20 with the query counted.

        Raises:
            UsageError: the number of weights is not that of the levels, or their sum is not 1.
        """
        if self.metric != "wAP":
            return (-2.0,) if self.query else (1.0 if self.alpha is None else self.alpha,)
        weights = self.weights or (1.0 / num_levels,) * num_levels
        if len(weights) != num_levels or abs(sum(weights) - 1.0) > 1e-6:
            raise UsageError(
                f"metric {self}: {len(weights)} weights with sum {sum(weights):g}; "
                f"expected one for each of {num_levels} levels, with sum 1"
            )
        return (-1.0, *weights)

    def at_level(self, level_names: tuple[str, ...]) -> int:
        """Number of the level, 1 for the coarsest.

        Example:
            >>> parse("R@1:kind").at_level(("kind", "landmark"))
            1
        """
        if self.level is None:
            return len(level_names)
        if self.level in level_names:
            return level_names.index(self.level) + 1
        if self.level.isdecimal() and 1 <= int(self.level) <= len(level_names):
            return int(self.level)
        raise UsageError(
            f"metric {self}: level {self.level!r} is none of {', '.join(level_names)} "
            f"(nor 1..{len(level_names)})"
        )

    def require_levels(self, level_names: tuple[str, ...]) -> None:
        """Raise UsageError unless its level is one of these, and it has a weight for each."""
        self.at_level(level_names)
        self.relevance_key(len(level_names))


def parse(name: str) -> MetricName:
    """Parse the name of a metric.

    Raises:
        UsageError: there is no such metric, or a part of the name is missing or not allowed.

    Example:
        >>> parse("mAP@R:landmark")
        MetricName(metric='mAP', alpha=None, weights=(), k=0, level='landmark', query=False)
        >>> str(parse("H-AP(alpha=2)"))
        'H-AP(alpha=2)'
        >>> str(parse("mAP@1k"))
        'mAP@1000'
    """
    match = PATTERN.fullmatch(name)
    if match is None or match["metric"] not in FORMS:
        word, by_lower = match["metric"] if match else name, {form.lower(): form for form in FORMS}
        near = difflib.get_close_matches(word.lower(), by_lower, 1)
        nearest = f" nearest is {by_lower[near[0]]!r};" if near else ""
        raise UsageError(f"no metric {name!r};{nearest} examples: {EXAMPLES}")
    option, cut, levelled = FORMS[match["metric"]]
    query = option == "alpha" and match["option"] == "query"
    if match["option"] not in (None, option) and not query:
        raise UsageError(f"metric {name!r} takes {option or 'no option'}, not {match['option']}")
    if (match["k"] is None and cut == "must") or (match["k"] is not None and cut == "no"):
        raise UsageError(f"metric {name!r} {'needs' if cut == 'must' else 'takes no'} @k")
    if match["k"] == "R" and match["metric"] not in ("mAP", "P"):
        raise UsageError(f"metric {name!r}: only mAP and P are cut at R")
    if match["level"] and not levelled:
        raise UsageError(f"metric {name!r} takes no level: it is over all levels")
    numbers = _numbers(name, match["value"], several=option == "weights")
    if query and numbers not in ((0.0,), (1.0,)):
        raise UsageError(f"metric {name!r}: query is 1 (counted in Eq. 20) or 0")
    return MetricName(
        match["metric"],
        numbers[0] if option == "alpha" and numbers and not query else None,
        numbers if option == "weights" else (),
        _cut(name, match["k"]),
        match["level"],
        query and numbers == (1.0,),
    )


def parse_all(names: Sequence[str]) -> list[MetricName]:
    """Parse the names of several metrics, as ``parse`` does; refuse a single text."""
    if isinstance(names, str):
        raise ShapeError(f"names is {names!r}; expected a list of metrics")
    return [parse(name) for name in names]


def name_levels(level_names: Sequence[str] | None, num_levels: int) -> tuple[str, ...]:
    """Return the names of L levels, coarse to fine; without names they are 1..L.

    Raises:
        ShapeError: there are not L names, or two are the same.
    """
    names = tuple(level_names or map(str, range(1, num_levels + 1)))
    if len(names) != num_levels:
        raise ShapeError(f"{len(names)} level names for {num_levels} levels")
    if len(set(names)) < num_levels:
        raise ShapeError(f"level_names is {names}; expected a different name for each level")
    return names


@dataclass(frozen=True)
class Result:
    """Values of each query and of the gallery, under the requested names.

    Args:
        per_query: name -> (Q,) float64; nan if the query has no relevant image.
        queries: Q.
        gallery: G.
        inverted: queries for which Eq. 20 gives a finer level less relevance than a coarser one,
            with the alpha of one of the metrics, or 1 if none is by Eq. 20.
        of_gallery: name -> value of a metric of the gallery, CPCC; nan if it has none.
    """

    per_query: dict[str, Tensor]
    queries: int
    gallery: int
    inverted: int = 0
    of_gallery: dict[str, float] = field(default_factory=dict)

    @property
    def skipped(self) -> dict[str, int]:
        """Number of queries without a value of each metric."""
        return {name: int(v.isnan().sum()) for name, v in self.per_query.items()}

    def mean(self) -> dict[str, float]:
        """Mean of each metric over the queries that have a value; nan if none has one.

        Metrics of the gallery follow, as they are.
        """
        means = {name: float(values.nanmean()) for name, values in self.per_query.items()}
        return means | self.of_gallery

    def to_json(self) -> str:
        """Means, skipped queries and sizes, as JSON with sorted keys; a mean of none is null."""
        means = {n: None if math.isnan(v) else v for n, v in self.mean().items()}
        content = {
            "gallery": self.gallery,
            "inverted": self.inverted,
            "mean": means,
            "queries": self.queries,
            "skipped": self.skipped,
        }
        return json.dumps(content, indent=2, sort_keys=True)


@dataclass(frozen=True)
class Ranking:
    """The ranked images of each query, as levels by rank.

    Args:
        levels: (Q, G) int8 shared level of the image at each rank; an image that is not in the
            query's gallery (the query itself) comes last, as -1.
        counts: (Q, L + 1) int64 gallery images on each level, level 0 first.
        first: (Q, K) int32 gallery rows of the first K ranks; K is 0 unless requested.

    Example:
        >>> ranking = Ranking.of(torch.tensor([[1, 0, 2]]), num_levels=2)
        >>> ranking.evaluate(["AP:1", "R@1:2"]).mean()
        {'AP:1': 0.8333333333333333, 'R@1:2': 0.0}
    """

    levels: Array
    counts: Array
    first: Array

    @classmethod
    def of(cls, ranked: Tensor, num_levels: int) -> "Ranking":
        """Build a ranking from (Q, G) levels in ranked order.

        Images that are not in the gallery (level -1) have no rank, wherever they are.
        """
        grades.check_levels(ranked, num_levels)
        levels = ranked.to("cpu", torch.int8)
        absent = levels < 0
        if bool((absent[:, :-1] & ~absent[:, 1:]).any()):
            levels = levels.gather(1, absent.to(torch.int8).argsort(dim=1, stable=True))
        counts = grades.count_levels(levels, num_levels)
        return cls(levels.numpy(), counts.numpy(), np.empty((len(levels), 0), np.int32))

    @classmethod
    def join(cls, blocks: Iterable["Ranking"]) -> "Ranking":
        """Concatenate the rankings of consecutive blocks of queries."""
        arrays = zip(*((b.levels, b.counts, b.first) for b in blocks), strict=True)
        return cls(*map(np.concatenate, arrays))

    def evaluate(
        self,
        names: Sequence[str],
        level_names: Sequence[str] | None = None,
        gallery_labels: Tensor | None = None,
        class_sums: ClassSums | None = None,
    ) -> Result:
        """Compute any metrics of this ranking, as ``metrics.evaluate`` does.

        Args:
            names: metrics by name; HC@k and HCA@k need the gallery rows of the first k ranks.
            level_names: (L,) names of the levels, coarse to fine; default: 1..L.
            gallery_labels: (G, L) label paths, for HC@k and HCA@k.
            class_sums: of the gallery's embeddings, for CPCC.

        Returns:
            Values of each query; the gallery size excludes a query that is left out of it.

        Raises:
            ShapeError: there are not L level names; labels or sums that a metric needs are missing.
            UsageError: a name is not that of a metric, or of a level.
        """
        return measure([self], names, level_names, gallery_labels, class_sums, stacklevel=3)

    def to_arrays(self) -> dict[str, Array]:
        """Return the arrays to save, e.g. with ``numpy.savez_compressed``."""
        return {"levels": self.levels, "counts": self.counts, "first": self.first}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> "Ranking":
        """Build a ranking from the arrays that ``to_arrays`` returned.

        Raises:
            ShapeError: arrays are missing or do not fit together.
        """
        missing = {"levels", "counts", "first"} - set(arrays)
        if missing:
            raise ShapeError(f"a ranking without {', '.join(sorted(missing))}")
        ranking = cls(*(np.asarray(arrays[name]) for name in ("levels", "counts", "first")))
        if not len(ranking.levels) == len(ranking.counts) == len(ranking.first):
            raise ShapeError("a ranking whose levels, counts and first differ in number")
        if len(ranking.levels):
            again = cls.of(torch.from_numpy(ranking.levels.copy()), ranking.counts.shape[1] - 1)
            pairs = (again.levels, ranking.levels), (again.counts, ranking.counts)
            if not all(np.array_equal(*pair) for pair in pairs):
                raise ShapeError("a ranking whose counts are not those of its levels by rank")
        return ranking


def rank_columns(scores: Tensor, levels: Tensor) -> Tensor:
    """(Q, G) columns by score, best first; images not in the gallery (level -1) go last.

    Among equal scores the less relevant comes first, so that no metric gains by ties and only votes
    (HC@k, HCA@k) of other classes depend on the order of the gallery; then the lower column.

    Example:
        >>> rank_columns(torch.tensor([[0.5, 0.5, 0.9]]), torch.tensor([[2, 1, 0]])).tolist()
        [[2, 1, 0]]
    """
    finite = scores.masked_fill(levels < 0, -torch.inf)
    # Two stable sorts: images of equal score stay sorted by level.
    by_level = levels.argsort(dim=1, stable=True)
    by_score = finite.gather(1, by_level).argsort(dim=1, descending=True, stable=True)
    return by_level.gather(1, by_score)


def measure(
    rankings: Iterable[Ranking],
    names: Sequence[str],
    level_names: Sequence[str] | None = None,
    gallery_labels: Tensor | None = None,
    class_sums: ClassSums | None = None,
    *,
    stacklevel: int = 2,
) -> Result:
    """Compute any metrics of the rankings of consecutive blocks of queries, as one result.

    Args:
        rankings: over one gallery; each is released before the next is requested.
        names: metrics by name.
        level_names: (L,) names of the levels, coarse to fine; default: 1..L.
        gallery_labels: (G, L) label paths, for HC@k and HCA@k.
        class_sums: of the gallery's embeddings, for CPCC.
        stacklevel: of the warning that a finer level weighs less than a coarser one.

    Raises:
        ShapeError: there are not L level names; labels or sums that a metric needs are missing.
        UsageError: a name is not that of a metric, or of a level.

    Example:
        >>> halves = (Ranking.of(torch.tensor([row]), 1) for row in ([1, 0], [0, 1]))
        >>> measure(halves, ["AP"]).per_query["AP"].tolist()
        [1.0, 0.5]
    """
    whole, names = of_gallery(names, class_sums), of_queries(names)
    # map releases each ranking before the next one is computed
    values_of_block = partial(
        BlockValues.of, names=names, level_names=level_names, gallery_labels=gallery_labels
    )
    blocks = map(values_of_block, rankings)
    found = BlockValues.join(blocks, names)
    warn_if_concerned(names, found.inverted, found.queries, stacklevel + 1)
    return replace(found, of_gallery=whole)


def warn_if_concerned(
    names: Sequence[str], inverted: int, queries: int, stacklevel: int = 2
) -> None:
    """Warn of inverted queries if a metric is by Eq. 20."""
    if inverted and any(name.is_by_eq_20 for name in parse_all(names)):
        grades.warn_of_inverted(inverted, queries, stacklevel + 1)


@dataclass(frozen=True)
class BlockValues:
    """Values of metrics of a block of queries; those of all blocks are one ``Result``.

    Attributes:
        values: (q, M) float64.
        inverted: queries as in ``Result``.
        gallery: images of each query's gallery, at most.
    """

    values: Array
    inverted: int
    gallery: int

    @classmethod
    def of(
        cls,
        ranking: Ranking,
        names: Sequence[str],
        level_names: Sequence[str] | None = None,
        gallery_labels: Tensor | None = None,
    ) -> "BlockValues":
        """Compute metrics of queries of a block; arguments and errors as in ``measure``."""
        level_names = name_levels(level_names, ranking.counts.shape[1] - 1)
        counts = torch.from_numpy(ranking.counts)
        parsed = parse_all(names)
        specs, tables = _plan(parsed, level_names, counts)
        values = values_of(ranking.levels, ranking.counts, specs, tables)
        for number, name in enumerate(parsed):
            if name.metric in VOTES:
                values[:, number] = _of_votes(ranking, name, gallery_labels)
        keys = {name.relevance_key(len(level_names)) for name in parsed if name.is_by_eq_20}
        relevances = [_table_for(key, counts) for key in keys or {(1.0,)}]
        inverted = grades.inverted_queries(torch.stack(relevances, 1), counts)
        return cls(values, inverted, int(counts.sum(1).max()))

    @staticmethod
    def join(blocks: Iterable["BlockValues"], names: Sequence[str]) -> Result:
        """Return the result of consecutive blocks of queries, for the names of their metrics."""
        found = list(blocks)
        table = torch.from_numpy(np.concatenate([block.values for block in found]))
        inverted = sum(block.inverted for block in found)
        per_query = {name: table[:, i].clone() for i, name in enumerate(names)}
        return Result(per_query, len(table), max(block.gallery for block in found), inverted)


def of_queries(names: Sequence[str]) -> list[str]:
    """Return the names of the metrics that have a value for each query: all but CPCC."""
    return [name for name, of in zip(names, parse_all(names), strict=True) if of.metric != CPCC]


def of_gallery(names: Sequence[str], class_sums: ClassSums | None) -> dict[str, float]:
    """Return the values of the metrics of the gallery: of CPCC, if it is among the names.

    Raises:
        ShapeError: it is, and there are no sums.
    """
    if CPCC not in names:
        return {}
    if class_sums is None:
        raise ShapeError("metric CPCC needs the embeddings of the gallery: give class_sums")
    return {CPCC: class_sums.cpcc()}


def first_ranks(names: Sequence[str]) -> int:
    """Return how many of the first ranks need their gallery rows, for metrics of votes.

    Example:
        >>> first_ranks(["H-AP", "HC@5", "HCA@10"])
        10
    """
    return max((name.k or 0 for name in parse_all(names) if name.metric in VOTES), default=0)


def _of_votes(ranking: Ranking, name: MetricName, gallery_labels: Tensor | None) -> Array:
    """(Q,) values of HC@k or HCA@k, from the class that wins at each level."""
    images, cut = ranking.counts.sum(1), name.k or 0
    if gallery_labels is None or (ranking.first.shape[1] < np.minimum(images, cut)).any():
        raise ShapeError(
            f"metric {name} needs gallery_labels and a ranking with the gallery rows of its first "
            f"{cut} images; rank with first={cut}"
        )
    shape = ranking.levels.shape[1], ranking.counts.shape[1] - 1
    if gallery_labels.shape != shape:
        raise ShapeError(
            f"gallery_labels have shape {tuple(gallery_labels.shape)}; the ranking is of {shape}"
        )
    rows = torch.from_numpy(ranking.first[:, :cut]).long()
    paths = gallery_labels.cpu()[rows].long().numpy()  # (Q, K, L)
    winners = find_winners(paths, images)
    each = np.arange(len(winners))[:, None]
    if name.metric == "HCA":
        deep = np.arange(1, winners.shape[1] + 1)
        found = (ranking.levels[each, winners] >= deep).all(1)
        return np.where(ranking.counts[:, -1] > 0, found, np.nan)
    paths = paths[each, winners]  # (Q, L, L)
    # a class is a path from the root, so ids may be numbered within each parent
    same = (paths == paths[:, -1:]).cumprod(2).diagonal(axis1=1, axis2=2)
    consistent = same.all(1) & (paths[:, -1, -1] != -1)  # -1: no image voted
    return np.where(ranking.counts[:, 1:].any(1), consistent, np.nan)


def values_of(levels: Array, counts: Array, specs: Array, tables: Array) -> Array:
    """(Q, M) values of metrics of ranked levels.

    Args:
        levels: (Q, G) integers by rank; -1, at the end: not in the gallery.
        counts: (Q, L + 1) int64 images of each level.
        specs: (M, 4) int64 of each metric: kind, level, cut-off (0: none or R), table.
        tables: (Q, T, L + 1) float64 relevance of each level for each query.
    """
    from hgld.ranking.kernels.metrics_cpu import measure_rows

    values = np.empty((len(levels), len(specs)))
    if not len(specs):
        return values
    discounts = _discounts(levels.shape[1])
    # buffers of the ranks of positives, so long that they fit the query with the most
    most = int(counts[:, 1:].sum(1).max(initial=0)) + 1

    def work(part: slice) -> None:
        kinds = np.int32, np.int32, levels.dtype.type, levels.dtype.type
        buffers = [new_array((most,), kind) for kind in kinds]
        given = levels[part], counts[part], specs, tables[part], *discounts, *buffers
        measure_rows(*given, values[part])

    over_rows(work, len(levels))
    return values


def _plan(
    names: Sequence[MetricName], level_names: tuple[str, ...], counts: Tensor
) -> tuple[Array, Array]:
    """Convert metrics to the ``specs`` and ``tables`` of ``values_of``."""
    keys = [name.relevance_key(len(level_names)) for name in names]
    found = list(dict.fromkeys(keys))
    specs = [
        [name.kind, name.at_level(level_names), name.k or 0, found.index(key)]
        for name, key in zip(names, keys, strict=True)
    ]
    tables = [_table_for(key, counts) for key in found] or [counts.new_zeros(counts.shape).double()]
    return np.array(specs, np.int64).reshape(-1, 4), torch.stack(tables, 1).numpy()


def _table_for(key: tuple[float, ...], counts: Tensor) -> Tensor:
    """(Q, L + 1) relevance by level for a ``MetricName.relevance_key``."""
    if key[0] >= 0:
        return grades.relevance_table(counts, key[0])
    if key == (-2.0,):
        return grades.relevance_table(counts, count_query=True)
    return grades.weighted_table(counts, torch.tensor(key[1:], dtype=torch.float64))


@lru_cache(maxsize=2)
def _discounts(size: int) -> tuple[Array, Array, Array]:
    """Arrays by rank 0..``size``: 1 / log2(1 + r), its running sums, and those of 1 / r."""
    logs, sums, harmonic = (new_array((size + 2,), np.float64) for _ in range(3))
    sums_before = before = 0.0
    for start in range(0, size + 2, RANKS_AT_ONCE):
        ranks = np.arange(start, min(start + RANKS_AT_ONCE, size + 2))
        part = slice(start, start + len(ranks))
        with np.errstate(divide="ignore"):
            logs[part], inverse = 1.0 / np.log2(1 + ranks), 1.0 / ranks
        if not start:
            logs[0] = inverse[0] = 0.0
        # the sum so far is the first addend, so that the bits are those of one long sum
        sums[part] = np.cumsum(np.append(sums_before, logs[part]))[1:]
        harmonic[part] = np.cumsum(np.append(before, inverse))[1:]
        sums_before, before = sums[part][-1], harmonic[part][-1]
    return logs, sums, harmonic


def _text(number: float) -> str:
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)


def _numbers(name: str, text: str | None, several: bool) -> tuple[float, ...]:
    """Read the value of an option: one number, or several that are separated by "/"."""
    try:
        parts = [] if text is None else text.split("/") if several else [text]
        numbers = tuple(map(float, parts))
    except ValueError:
        hint = "; weights are separated by '/': wAP(weights=0.2/0.3/0.5)" if several else ""
        raise UsageError(f"metric {name!r}: {text!r} is not a number{hint}") from None
    if any(not 0 <= number < float("inf") for number in numbers):
        raise UsageError(f"metric {name!r}: {text!r}; expected numbers >= 0")
    return numbers


def _cut(name: str, text: str | None) -> int | None:
    if text is None or text == "R":
        return None if text is None else 0
    cut = int(text.removesuffix("k")) * (1000 if text.endswith("k") else 1)
    if cut < 1:
        raise UsageError(f"metric {name!r}: @{text}; expected 1 or more")
    if cut >= 1 << 63:  # kernels count in int64
        raise UsageError(f"metric {name!r}: expected a cut-off below 2**63")
    return cut
