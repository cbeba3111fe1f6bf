"""The papers' claims as a table of experiments: what is trained, what is measured, who should win.

An arm is one way to train. An experiment sets arms side by side, as a table or a figure of the
papers does, and says what the paper claims of them: the sum of some arms above the sum of others.
To add an experiment, add a row; an arm that another experiment has too is trained once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

__all__ = ["EXPERIMENTS", "Arm", "Claim", "Experiment"]

Options = Mapping[str, float | str | tuple[float, ...]]
FINE, HIERARCHICAL = "mAP@R:landmark", "H-AP"


@dataclass(frozen=True)
class Arm:
    """One way to train.

    Attributes:
        name: of the row.
        loss: as in ``train.runs``; empty: nothing is learned.
        options: of the loss.
        memory: embeddings of earlier batches that are references, too.
        classes: in a batch.
        images: of each class.
        steps: where they are others than the budget's.
        chosen_by: metric, on held-out training landmarks, that its learning rates are chosen by.
        rates_of: arm whose rates it takes; its own are chosen unless given.
    """

    name: str
    loss: str
    options: Options = field(default_factory=dict)
    memory: int = 0
    classes: int = 16
    images: int = 4
    steps: int = 0
    chosen_by: str = FINE
    rates_of: str = ""

    def but(self, name: str, **options: float) -> "Arm":
        """The same arm with other options of its loss; its rates stay."""
        varied = {**self.options, **options}
        return replace(self, name=name, options=varied, rates_of=self.rates_of or self.name)

    def of(self, name: str, classes: int, images: int = 4) -> "Arm":
        """The same arm with other batches; its rates stay."""
        rates_of = self.rates_of or self.name
        return replace(self, name=name, classes=classes, images=images, rates_of=rates_of)


@dataclass(frozen=True)
class Claim:
    """The arms of ``above`` (summed) are better than those of ``below``, as the paper has it."""

    above: tuple[str, ...]
    below: tuple[str, ...]
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class Experiment:
    """Arms side by side.

    Attributes:
        name: of the paper's table or figure.
        about: what it is to show.
        arms: its rows.
        metrics: its columns.
        claims: what the paper says of them.
    """

    name: str
    about: str
    arms: tuple[Arm, ...]
    metrics: tuple[str, ...]
    claims: tuple[Claim, ...]


def better(above: str, below: str, *metrics: str) -> Claim:
    """One arm is better than another."""
    return Claim((above,), (below,), metrics)


def each_better(above: str, below: tuple[str, ...], *metrics: str) -> tuple[Claim, ...]:
    """One arm is better than each of the others."""
    return tuple(better(above, other, *metrics) for other in below)


def _hierarchical(name: str, loss: str, **options: float | tuple[float, ...]) -> Arm:
    return Arm(name, loss, options, chosen_by=HIERARCHICAL)


FROZEN = Arm("frozen features", "")
FAST_AP, SOFT_BIN = Arm("FastAP", "FastAP"), Arm("SoftBin-AP", "SoftBinAP")
BLACKBOX = Arm("Blackbox-AP", "BlackBoxAP")
SMOOTH_AP, SUP_AP = Arm("Smooth-AP", "SmoothAP"), Arm("Sup-AP", "SupAP")
ROADMAP_PAIR = Arm("ROADMAP, L_DG", "ROADMAP", {"calibration": "pair"})
ROADMAP = Arm("ROADMAP, L*_DG", "ROADMAP")
SMOOTH_RECALL = Arm("Smooth-R@k", "SmoothRecall")
SUP_RECALL = Arm("Sup-R@k", "SupRecall")
ROD_PAIR = Arm("ROD-R@k, L_DG", "RODRecall", {"calibration": "pair"})
ROD_RECALL = Arm("ROD-R@k, L*_DG", "RODRecall")
XBM = Arm("XBM", "XBMContrastive", memory=4096, classes=32)

TRIPLET, NSM = Arm("Triplet", "Triplet"), Arm("NSM", "NormSoftmax")
NCA = Arm("NCA++", "ProxyNCA")
SIGMA_TRIPLET = _hierarchical("Σ Triplet", "SigmaTriplet")
SIGMA_NSM = _hierarchical("Σ NSM", "SigmaNormSoftmax")
SIGMA_NCA = _hierarchical("Σ NCA++", "SigmaProxyNCA")
CSL = _hierarchical("CSL", "CSL")
ROD_NDCG = _hierarchical("ROD-NDCG", "RODNDCG")
HAPPIER = _hierarchical("HAPPIER", "HAPPIER")
HAPPIER_F = replace(_hierarchical("HAPPIER_F", "HAPPIER", alpha=5.0), chosen_by=FINE)
SMOOTH_H_AP = _hierarchical("Smooth-H-AP", "SmoothHAP")
SUP_H_AP = _hierarchical("Sup-H-AP", "SupHAP")
SUP_W_AP = _hierarchical("Sup-ΣwAP", "SupHAP", weights=(1 / 3, 1 / 3, 1 / 3))
SUP_W_AP = replace(SUP_W_AP, chosen_by="wAP")

SIZES = (4, 8, 16, 32, 64)
BY_SIZE = {
    classes: tuple(
        arm if classes == arm.classes else arm.of(f"{arm.name}, B {4 * classes}", classes)
        for arm in (SUP_AP, ROADMAP)
    )
    for classes in SIZES
}
SMALL, LARGE = BY_SIZE[SIZES[0]], BY_SIZE[SIZES[-1]]
LAMBDAS = (0.3, 0.5, 0.9)
ALPHAS = (0.0, 0.5, 2.0, 3.0)

AP_LOSSES = ("FastAP", "SoftBin-AP", "Blackbox-AP", "Smooth-AP")
FINE_COLUMNS = ("R@1:landmark", "mAP@R:landmark")
HIERARCHY = ("R@1:landmark", "AP:landmark", "H-AP", "ASI", "NDCG")
BY_LEVEL = ("R@1:landmark", "AP:landmark", "AP:supercategory", "AP:kind")

EXPERIMENTS = (
    Experiment(
        "Table I",
        "ROADMAP against other ways to approximate AP",
        (FROZEN, FAST_AP, SOFT_BIN, BLACKBOX, SMOOTH_AP, ROADMAP),
        FINE_COLUMNS,
        each_better("ROADMAP, L*_DG", AP_LOSSES, *FINE_COLUMNS),
    ),
    Experiment(
        "Table II",
        "SupRank in place of the sigmoid, and the two decomposability losses",
        (SMOOTH_AP, SUP_AP, ROADMAP_PAIR, ROADMAP, SMOOTH_RECALL, SUP_RECALL, ROD_PAIR, ROD_RECALL),
        FINE_COLUMNS,
        (
            better("Sup-AP", "Smooth-AP", *FINE_COLUMNS),
            better("ROADMAP, L_DG", "Sup-AP", *FINE_COLUMNS),
            better("ROADMAP, L*_DG", "Sup-AP", *FINE_COLUMNS),
            better("Sup-R@k", "Smooth-R@k", *FINE_COLUMNS),
            better("ROD-R@k, L_DG", "Sup-R@k", *FINE_COLUMNS),
            better("ROD-R@k, L*_DG", "Sup-R@k", *FINE_COLUMNS),
        ),
    ),
    Experiment(
        "Table III",
        "ROADMAP against a memory of all photos (XBM, batches of 128)",
        (XBM, ROADMAP),
        FINE_COLUMNS,
        (better("ROADMAP, L*_DG", "XBM", *FINE_COLUMNS),),
    ),
    Experiment(
        "Table V",
        "losses of landmarks alone against losses of the hierarchy",
        (
            *(TRIPLET, NSM, NCA, SMOOTH_AP),
            *(SIGMA_TRIPLET, SIGMA_NSM, SIGMA_NCA, CSL, ROD_NDCG, HAPPIER, HAPPIER_F),
        ),
        HIERARCHY,
        (
            *each_better("HAPPIER", ("NSM", "NCA++", "Smooth-AP"), "H-AP", "ASI", "NDCG"),
            *each_better("HAPPIER", ("Σ Triplet", "Σ NSM", "Σ NCA++"), "H-AP", "ASI", "NDCG"),
            better("HAPPIER", "CSL", "H-AP", "ASI", "NDCG"),
            better("HAPPIER", "ROD-NDCG", "H-AP", "ASI", "NDCG"),
            better("ROD-NDCG", "Smooth-AP", "H-AP", "ASI", "NDCG"),
            better("HAPPIER_F", "HAPPIER", "R@1:landmark", "AP:landmark"),
            better("HAPPIER_F", "Smooth-AP", "R@1:landmark", "AP:landmark", "H-AP"),
        ),
    ),
    Experiment(
        "Tables VI and IX",
        "every level of the hierarchy",
        (TRIPLET, NSM, NCA, SMOOTH_AP, ROADMAP, CSL, HAPPIER, HAPPIER_F),
        BY_LEVEL,
        (
            *each_better("HAPPIER", ("NSM", "Smooth-AP"), "AP:supercategory", "AP:kind"),
            better("HAPPIER", "CSL", "AP:landmark", "AP:supercategory", "AP:kind"),
            better("HAPPIER", "HAPPIER_F", "AP:kind"),
        ),
    ),
    Experiment(
        "Table VII",
        "landmarks",
        (SOFT_BIN, SMOOTH_AP, SMOOTH_RECALL, ROADMAP, CSL, HAPPIER, HAPPIER_F),
        ("mAP@100:landmark", "H-AP", "ASI", "NDCG"),
        (
            better("ROADMAP, L*_DG", "Smooth-AP", "mAP@100:landmark"),
            better("Smooth-AP", "SoftBin-AP", "mAP@100:landmark"),
            better("HAPPIER_F", "ROADMAP, L*_DG", "mAP@100:landmark", "H-AP"),
            better("HAPPIER", "ROADMAP, L*_DG", "H-AP", "ASI"),
            better("HAPPIER", "CSL", "mAP@100:landmark", "H-AP"),
            better("CSL", "HAPPIER", "ASI"),
        ),
    ),
    Experiment(
        "Table X",
        "each part of HAPPIER",
        (SMOOTH_H_AP, SUP_H_AP, HAPPIER),
        ("H-AP",),
        (better("Sup-H-AP", "Smooth-H-AP", "H-AP"), better("HAPPIER", "Sup-H-AP", "H-AP")),
    ),
    Experiment(
        "Table XI",
        "the relevance of Eq. 20 against the sum of APs",
        (SUP_H_AP, SUP_W_AP),
        ("H-AP", "wAP", "NDCG"),
        (better("Sup-H-AP", "Sup-ΣwAP", "H-AP"), better("Sup-ΣwAP", "Sup-H-AP", "wAP")),
    ),
    Experiment(
        "Fig. 6",
        "what L*_DG adds to Sup-AP at each batch size, and the decomposability gap",
        (*chain.from_iterable(BY_SIZE.values()), ROADMAP_PAIR),
        ("mAP@R:landmark", "gap"),
        (
            Claim((SMALL[1].name,), (SMALL[0].name,), ("mAP@R:landmark",)),
            Claim(
                (SMALL[1].name, LARGE[0].name),
                (SMALL[0].name, LARGE[1].name),
                ("mAP@R:landmark",),
            ),
            better("Sup-AP", "ROADMAP, L*_DG", "gap"),
            better("Sup-AP", "ROADMAP, L_DG", "gap"),
        ),
    ),
    Experiment(
        "Fig. 7a",
        "λ of ROADMAP",
        (
            SUP_AP,
            ROADMAP,
            *(ROADMAP.but(f"ROADMAP, λ {value:g}", lam=value) for value in LAMBDAS),
            NSM,
        ),
        FINE_COLUMNS,
        each_better("ROADMAP, λ 0.3", ("Sup-AP", "NSM"), *FINE_COLUMNS),
    ),
    Experiment(
        "Fig. 7b",
        "the slope ρ of Sup-AP",
        (
            *(SUP_AP.but(f"Sup-AP, ρ {value:g}", rho=value) for value in (0.0, 1.0, 10.0)),
            SUP_AP,
            *(SUP_AP.but(f"Sup-AP, ρ {value:g}", rho=value) for value in (1e3, 1e4)),
        ),
        FINE_COLUMNS,
        (
            better("Sup-AP, ρ 10", "Sup-AP, ρ 0", "mAP@R:landmark"),
            better("Sup-AP", "Sup-AP, ρ 0", "mAP@R:landmark"),
            better("Sup-AP", "Sup-AP, ρ 10000", "mAP@R:landmark"),
        ),
    ),
    Experiment(
        "Fig. 8a",
        "α of the relevance in HAPPIER",
        (
            *(HAPPIER.but(f"HAPPIER, α {value:g}", alpha=value) for value in ALPHAS[:2]),
            HAPPIER,
            *(HAPPIER.but(f"HAPPIER, α {value:g}", alpha=value) for value in (*ALPHAS[2:], 5.0)),
        ),
        ("AP:landmark", "AP:kind", "H-AP"),
        (
            better("HAPPIER, α 3", "HAPPIER", "AP:landmark"),
            better("HAPPIER", "HAPPIER, α 0", "AP:landmark"),
            better("HAPPIER, α 0", "HAPPIER, α 5", "AP:kind"),
        ),
    ),
    Experiment(
        "Fig. 8b",
        "λ of HAPPIER",
        (
            SUP_H_AP,
            HAPPIER,
            *(HAPPIER.but(f"HAPPIER, λ {value:g}", lam=value) for value in LAMBDAS),
        ),
        ("H-AP",),
        (
            better("HAPPIER", "Sup-H-AP", "H-AP"),
            better("HAPPIER", "HAPPIER, λ 0.9", "H-AP"),
        ),
    ),
    Experiment(
        "Smooth-AP, Table 5",
        "its temperature, the photos of a class in a batch, and the batch size",
        (
            *(SMOOTH_AP.but(f"Smooth-AP, τ {value:g}", tau=value) for value in (0.001, 0.1)),
            SMOOTH_AP,
            *(SMOOTH_AP.of(f"Smooth-AP, K {images}", 64 // images, images) for images in (8, 16)),
            *(SMOOTH_AP.of(f"Smooth-AP, B {4 * classes}", classes) for classes in (32, 64)),
        ),
        ("R@1:landmark", "AP:landmark"),
        (
            *each_better("Smooth-AP", ("Smooth-AP, τ 0.1", "Smooth-AP, τ 0.001"), "AP:landmark"),
            *each_better("Smooth-AP", ("Smooth-AP, K 8", "Smooth-AP, K 16"), "AP:landmark"),
            better("Smooth-AP, B 256", "Smooth-AP", "AP:landmark"),
        ),
    ),
    Experiment(
        "ROADMAP 2021, Fig. 4c",
        "the margin α - β of L_DG",
        (
            SUP_AP,
            *(
                ROADMAP_PAIR.but(f"L_DG, margin {value:g}", pair_beta=0.9 - value)
                for value in (0.1, 0.6)
            ),
            ROADMAP_PAIR,
        ),
        FINE_COLUMNS,
        (
            *each_better("L_DG, margin 0.1", ("Sup-AP",), "mAP@R:landmark"),
            better("ROADMAP, L_DG", "Sup-AP", "mAP@R:landmark"),
            better("L_DG, margin 0.6", "Sup-AP", "mAP@R:landmark"),
        ),
    ),
)
