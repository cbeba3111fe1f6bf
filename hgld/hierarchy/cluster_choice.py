"""Quality of the clusters over a range of k, so that a person can choose the number of clusters.

Two figures describe each k. Inertia (the squared distances to the centres) always falls; where its
curve bends, more clusters begin to gain little. The silhouette (how much nearer a value is to
its own cluster than to the next one) is largest where the clusters are most distinct. One k is
suggested; the pipeline file says which one is taken, since what it makes must not depend on a look.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits

from hgld.artifacts import Vectors
from hgld.config import ClusterOptions
from hgld.errors import UsageError
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.cluster import DIGITS, vectors_of
from hgld.hierarchy.vector_clusters import count_different, find_clusters, means_of
from hgld.tasks import track

STEPS = 20  # parts of a range where the range does not say
SAMPLE = 4_000  # values of which the silhouette is taken, where there are more
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#666666"


def in_range(text: str) -> list[int]:
    """The numbers of clusters that "FIRST:LAST" or "FIRST:LAST:STEP" means.

    Example:
        >>> in_range("20:100:40"), len(in_range("20:200"))
        ([20, 60, 100], 21)

    Raises:
        UsageError: no such range.
    """
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(part.isdecimal() for part in parts):
        raise UsageError(f"--suggest {text}: expected FIRST:LAST or FIRST:LAST:STEP, as 20:200")
    first, last, *step = map(int, parts)
    step = step or [max(1, -(-(last - first) // STEPS))]
    if not 2 <= first <= last or step[0] < 1:
        raise UsageError(f"--suggest {text}: expected a range that starts at 2 or more and rises")
    return list(range(first, last + 1, step[0]))


def measure_range(
    values: pd.DataFrame, label_vectors: Vectors, clusters: Sequence[int], options: ClusterOptions
) -> pd.DataFrame:
    """A row for each number of clusters: clusters, inertia, silhouette.

    Raises:
        UsageError: the range goes beyond the different values.
    """
    vectors = vectors_of(sorted(value_keys(values)), label_vectors)
    most = count_different(vectors) - 1
    if max(clusters) > most:
        raise UsageError(
            f"--suggest goes up to {max(clusters)} clusters, but {most + 1} different values have "
            f"a silhouette for {most} at most"
        )
    return _measure_all(vectors, clusters, options)


def measure_levels(
    values: pd.DataFrame, label_vectors: Vectors, options: ClusterOptions
) -> dict[str, pd.DataFrame]:
    """A table of ``measure_range`` for each level above the finest, from fine to coarse.

    The centres of the level below are clustered: of ``clusters`` at first, then of the number in
    ``above``, or of the suggested one where none is set.
    """
    below = vectors_of(sorted(value_keys(values)), label_vectors)
    numbers = [*options.above[::-1], *[0] * len(options.levels)]
    chosen, found = min(options.clusters, count_different(below)), dict[str, pd.DataFrame]()
    for level, number in zip(options.levels[-2::-1], numbers, strict=False):
        below = means_of(below, find_clusters(below, chosen, options).labels)
        most = count_different(below) - 1
        if most < 2:  # nothing to choose from
            break
        found[level] = _measure_all(below, in_range(f"2:{most}"), options)
        chosen = min(number or suggested(found[level])[0], most)
    return found


def _measure_all(
    vectors: np.ndarray, clusters: Sequence[int], options: ClusterOptions
) -> pd.DataFrame:
    rows = []
    for k in track(clusters, "Numbers of clusters", len(clusters)):
        found = find_clusters(vectors, k, options)
        with threadpool_limits(limits=1):
            silhouette = silhouette_score(
                vectors,
                found.labels,
                sample_size=SAMPLE if len(vectors) > SAMPLE else None,
                random_state=options.seed,
            )
        numbers = {"inertia": found.inertia, "silhouette": float(silhouette)}
        rows.append({"clusters": k, **{name: round(x, DIGITS) for name, x in numbers.items()}})
    return pd.DataFrame(rows)


def suggested(measured: pd.DataFrame) -> tuple[int, str]:
    """A number of clusters and why: that of largest silhouette, the smallest among equals.

    On words the silhouette often rises as far as one looks. A largest one at the end of the range
    says nothing; then it is the number at which the inertia bends.

    Example:
        >>> suggested(pd.DataFrame({"clusters": [2, 3, 4], "silhouette": [0.1, 0.3, 0.2]}))
        (3, 'its silhouette is the largest')
    """
    silhouette = measured["silhouette"].to_numpy()
    at, last = int(silhouette.argmax()), len(silhouette) - 1
    if at < last or last < 2:
        return int(measured["clusters"].iloc[at]), "its silhouette is the largest"
    of_both = measured[["clusters", "inertia"]]
    passed = (of_both - of_both.iloc[0]) / (of_both.iloc[-1] - of_both.iloc[0])
    # the row that is farthest below the line from the first to the last inertia
    bend = int((passed["inertia"] - passed["clusters"]).to_numpy().argmax())
    why = "the inertia bends there; the silhouette still rises at the end of the range"
    return int(measured["clusters"].iloc[bend]), why


def draw_range(measured: pd.DataFrame, now: int, path: Path) -> None:
    """Draw both curves, the suggested number and that of the pipeline, as a PNG."""
    figure = Figure(figsize=(8, 6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    top, bottom = figure.subplots(2, 1, sharex=True)
    best, _ = suggested(measured)
    for axes, name, colour, title in (
        (top, "silhouette", BLUE, "Silhouette: how distinct the clusters are"),
        (bottom, "inertia", ORANGE, "Inertia: squared distances to the centres"),
    ):
        axes.plot(measured["clusters"], measured[name], color=colour, marker="o", markersize=4)
        axes.set_title(title, loc="left", fontsize=11)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        marks = {now: f"cluster.clusters = {now}", best: f"suggested: {best}"}
        for number, text in marks.items():
            if not measured["clusters"].min() <= number <= measured["clusters"].max():
                continue
            axes.axvline(number, color=GREY, linestyle="--", linewidth=1)
            axes.annotate(
                text if axes is top else "", (number, 0.03), xycoords=("data", "axes fraction"),
                rotation=90, ha="right", va="bottom", fontsize=9, color=GREY,
                textcoords="offset points", xytext=(-3, 0),
            )  # fmt: skip
    bottom.set_xlabel("number of clusters")
    bottom.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    figure.savefig(path, metadata={"Software": None}, format="png")
