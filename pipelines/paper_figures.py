"""Measures and draws the small figures of the papers on made scores.

    python -m pipelines.paper_figures     measures for half a minute and records
    python -m pipelines.record pages      draws docs/images/paper-*.svg from what is recorded

The scores are made, so the figures show how the functions behave, not how a model ranks. The sweep
of the temperature and the times of the losses are those of ``make claims`` and ``make bench``.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.ticker import StrMethodFormatter

from hgld.figures import LIGHT, Drawing, add_axes, add_legend, open_figure
from hgld.ranking import losses, metrics
from hgld.ranking.blackbox import interpolated_loss
from hgld.ranking.curves import gaps_by_batch
from hgld.ranking.steps import UpperStep, operating_region
from pipelines.record import commit, machine

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "pipelines" / "results"

TAUS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
BATCHES = (16, 32, 64, 128, 256, 512, 1024)
PHOTOS = 59_551  # of an epoch: the training photos of Stanford Online Products
TIMED = {"sup_ap": "Sup-AP", "sup_h_ap": "Sup-H-AP", "smooth_ap coarse": "Smooth-AP",
         "sup_recall": "Sup-R@k", "sup_ndcg": "Sup-NDCG"}  # fmt: skip
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]


def measure_paper_figures() -> dict[str, Any]:
    """Return figure -> name of a line -> its x and y, rounded to six digits."""
    chance = torch.Generator().manual_seed(0)
    levels = (torch.rand(100, 400, generator=chance) < 0.05).long()
    # the positives score higher by one deviation: AP is near 0.3
    scores = 0.15 * torch.randn(100, 400, generator=chance).double() + 0.15 * levels
    found: dict[str, Any] = {
        "ap-error": {},
        "region": {},
        "blackbox": {},
        "gap": {},
        "quantised-ap": {},
    }
    for spread in (0.12, 0.04, 0.02):
        name = f"scores of a class ± {spread:g}"
        found["quantised-ap"][name] = _quantised_against_exact_ap(spread)
    approximations: dict[str, Callable[[float], torch.Tensor]] = {
        "Smooth-AP": lambda tau: losses.smooth_ap(scores, levels, tau),
        "Sup-AP": lambda tau: losses.sup_ap(scores, levels, UpperStep(tau=tau)),
        "SoftBin-AP, 20 bins": lambda tau: losses.soft_bin_ap(scores, levels),
    }
    for name, loss in approximations.items():
        errors = [metrics.ap_approximation_error(loss(tau), scores, levels) for tau in TAUS]
        found["ap-error"][name] = [TAUS, [float(error.nanmean()) for error in errors]]
    for tau in (0.001, 0.01, 0.1):
        regions = []
        for batch in BATCHES:
            vectors = torch.randn(batch, 64, generator=chance)
            vectors = torch.nn.functional.normalize(vectors, dim=1)
            regions.append(float(operating_region(vectors @ vectors.T, tau).mean()))
        found["region"][f"tau {tau:g}"] = [BATCHES, regions]
    line = torch.linspace(-1, 1, 401, dtype=torch.float64)
    points = torch.stack([torch.zeros_like(line), line, torch.full_like(line, 0.4)], dim=1)
    weights = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    for lam in (1e-9, 0.2, 0.5, 1.0):
        name = "the loss" if lam < 1e-6 else f"lambda {lam:g}"
        found["blackbox"][name] = [line.tolist(), interpolated_loss(points, weights, lam).tolist()]
    for positives in (4, 16, 64):
        numbers = np.random.default_rng(0)
        gallery = numbers.standard_normal((50, 4096))
        gallery[:, :positives] += 2  # the class of the query
        order = np.argsort(-gallery, axis=1)
        gaps = gaps_by_batch(order < positives, BATCHES)
        found["gap"][f"{positives} positives"] = [list(gaps), [100 * v for v in gaps.values()]]
    return {
        figure: {
            name: [[float(f"{v:.6g}") for v in part] for part in xy] for name, xy in own.items()
        }
        for figure, own in found.items()
    }


def _quantised_against_exact_ap(spread: float) -> list[list[float]]:
    """AP and quantised AP of 200 queries of unequal difficulty (Revaud et al., Fig. 1).

    Args:
        spread: standard deviation of the scores of a class, in cosine units; a bin has 0.04.
    """
    chance = torch.Generator().manual_seed(0)
    levels = (torch.rand(200, 600, generator=chance) < 0.05).long()
    gap = 0.4 + 4.2 * torch.rand(200, 1, generator=chance)  # of the positives, in deviations
    noise = torch.randn(200, 600, generator=chance)
    scores = (spread * (noise + levels * gap)).clamp(-1, 1).double()
    quantised = 1 - losses.soft_bin_ap(scores, levels, 25, 0.0, 1.0)
    return [metrics.average_precision(scores, levels, 1).tolist(), quantised.tolist()]


def draw_paper_figures() -> dict[Path, str]:
    """Return each file -> SVG, from the recorded results of this script, claims and bench."""
    texts = [(RESULTS / f"{name}.json").read_text("utf-8") for name in ("paper-figures", "bench")]
    recorded, bench = map(json.loads, texts)
    measured = recorded["figures"]
    claims = RESULTS / "claims-head.json"
    times = _loss_times(bench["rows"])
    epochs = {
        name: (sizes, [s * PHOTOS / size for size, s in zip(sizes, seconds, strict=True)])
        for name, (sizes, seconds) in times.items()
    }
    milliseconds = {name: (x, [1000 * v for v in y]) for name, (x, y) in times.items()}
    batch = "photos in a batch"
    figures = {
        "ap-error": _draw(measured["ap-error"], ("temperature tau", "AP error"), "log", "log"),
        "region": _draw(measured["region"], (batch, "share of pairs with a gradient"), "log"),
        "blackbox": _draw(measured["blackbox"], ("score of one image", "loss"), dots=False),
        "gap": _draw(measured["gap"], (batch, "decomposability gap (points of AP)"), "log"),
        "quantised-ap": _draw_correlation(measured["quantised-ap"]),
        "loss-times": _draw(milliseconds, (batch, "loss and gradient (ms)"), "log", "log"),
        "epoch-times": _draw(epochs, (batch, "seconds of an epoch in the loss"), "log", "log"),
    }
    if claims.is_file():
        sweep = _tau_sweep(json.loads(claims.read_text("utf-8")))
        figures["tau"] = _draw(sweep, ("temperature tau", "AP (%)"), "log")
    images = ROOT / "docs" / "images"
    return {images / f"paper-{name}.svg": text for name, text in figures.items()}


def _tau_sweep(claims: Mapping[str, Any]) -> Lines:
    table = next(e for e in claims["experiments"] if e["name"] == "Smooth-AP, Table 5")["rows"]
    values = {0.01: table["Smooth-AP"]["AP:landmark"][0]}
    for row, found in table.items():
        if match := re.fullmatch(r"Smooth-AP, τ ([\d.]+)", row):
            values[float(match[1])] = found["AP:landmark"][0]
    return {"Smooth-AP, AP of landmarks": (sorted(values), [values[t] for t in sorted(values)])}


def _loss_times(rows: Sequence[Mapping[str, Any]]) -> Lines:
    found: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        match = re.fullmatch(r"(.+) B=(\d+) layout 2 over the products", row["what"])
        if match and match[1] in TIMED and int(match[2]).bit_count() == 1:  # powers of two
            x, y = found.setdefault(TIMED[match[1]], ([], []))
            x.append(int(match[2]))
            y.append(row["seconds"])
    return found


def _draw_correlation(points: Lines) -> str:
    with open_figure(LIGHT, 5.2, 3.4) as figure:
        axes = add_axes(figure, LIGHT, grid_axis="both")
        for number, (name, (x, y)) in enumerate(points.items()):
            label = f"{name}, r = {np.corrcoef(x, y)[0, 1]:.3f}"
            axes.scatter(x, y, s=12, color=LIGHT.series[number], label=label, linewidths=0)
        axes.axline((0, 0), slope=1, color=LIGHT.ink, linewidth=0.8)
        axes.set(xlabel="AP of a query", ylabel="quantised AP", xlim=(0, 1), ylim=(0, 1))
        add_legend(axes, LIGHT, columns=1, inside="best")
    return Drawing(figure, LIGHT).vector("svg").decode("utf-8")


def _draw(
    lines: Lines,
    axis: tuple[str, str],
    across: str = "linear",
    up: str = "linear",
    dots: bool = True,
) -> str:
    with open_figure(LIGHT, 5.2, 3.4) as figure:
        axes = add_axes(figure, LIGHT, grid_axis="both")
        for number, (name, (x, y)) in enumerate(lines.items()):
            style: dict[str, Any] = {"linestyle": DASHES[number], "color": LIGHT.series[number]}
            style |= {"marker": "os^Dv"[number], "markersize": 5} if dots else {}
            axes.plot(x, y, label=name, linewidth=1.8, **style)
        axes.set(xscale=across, yscale=up, xlabel=axis[0], ylabel=axis[1])
        if across == "log":
            ticks = sorted({value for x, _ in lines.values() for value in x})
            axes.set_xticks(ticks, [f"{value:g}" for value in ticks])
        if up == "log":
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.minorticks_off()
        add_legend(axes, LIGHT, columns=1, inside="best")
    return Drawing(figure, LIGHT).vector("svg").decode("utf-8")


if __name__ == "__main__":
    about = {"commit": commit(), "date": datetime.now(UTC).date().isoformat()}
    about["machine"] = machine()
    text = json.dumps({**about, "figures": measure_paper_figures()}) + "\n"
    (RESULTS / "paper-figures.json").write_text(text, encoding="utf-8")
