"""The papers' claims as a table of experiments: what is trained, what is measured, who should win.

An experiment sets arms side by side, as a table or a figure of the papers does, and says what the
paper claims of them: the sum of some arms above the sum of others. To add an experiment, add a row.
"""

from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from pipelines.claims.arms import (
    BLACKBOX,
    BY_SIZE,
    CSL,
    FAST_AP,
    FROZEN,
    HAPPIER,
    HAPPIER_F,
    LARGE,
    LONG,
    NCA,
    NSM,
    ROADMAP,
    ROADMAP_PAIR,
    ROD_NDCG,
    ROD_PAIR,
    ROD_RECALL,
    SIGMA_NCA,
    SIGMA_NSM,
    SIGMA_TRIPLET,
    SMALL,
    SMOOTH_AP,
    SMOOTH_H_AP,
    SMOOTH_RECALL,
    SOFT_BIN,
    SUP_AP,
    SUP_H_AP,
    SUP_RECALL,
    SUP_W_AP,
    TRIPLET,
    WIDE,
    XBM,
    Arm,
)

__all__ = ["EXPERIMENTS", "FINE_TUNED", "WHOLE", "Claim", "Experiment", "better"]


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
        on: evaluation; train asks what was learned, whether or not it carries over.
    """

    name: str
    about: str
    arms: tuple[Arm, ...]
    metrics: tuple[str, ...]
    claims: tuple[Claim, ...]
    on: Literal["evaluation", "train"] = "evaluation"

    def among(self, arms: tuple[Arm, ...]) -> "Experiment":
        """The rows of those arms, and what is claimed of them alone."""
        names = {arm.name for arm in arms}
        claims = tuple(claim for claim in self.claims if names >= {*claim.above, *claim.below})
        return replace(self, arms=arms, claims=claims)


def better(above: str, below: str, *metrics: str) -> Claim:
    """One arm is better than another."""
    return Claim((above,), (below,), metrics)


def each_better(above: str, below: tuple[str, ...], *metrics: str) -> tuple[Claim, ...]:
    """One arm is better than each of the others."""
    return tuple(better(above, other, *metrics) for other in below)


LAMBDAS = (0.3, 0.9)
ALPHAS = (0.0, 3.0, 5.0)

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
            SMOOTH_AP,
            *(SUP_AP.but(f"Sup-AP, ρ {value:g}", rho=value) for value in (0.0, 10.0)),
            SUP_AP,
            SUP_AP.but("Sup-AP, ρ 10000", rho=1e4),
        ),
        FINE_COLUMNS,
        (
            better("Sup-AP, ρ 10", "Smooth-AP", "mAP@R:landmark"),
            better("Sup-AP, ρ 10", "Sup-AP, ρ 0", "mAP@R:landmark"),
            better("Sup-AP", "Sup-AP, ρ 0", "mAP@R:landmark"),
            better("Sup-AP", "Sup-AP, ρ 10000", "mAP@R:landmark"),
        ),
    ),
    Experiment(
        "Fig. 8a",
        "α of the relevance in HAPPIER",
        (
            *(HAPPIER.but(f"HAPPIER, α {value:g}", alpha=value) for value in ALPHAS[:1]),
            HAPPIER,
            *(HAPPIER.but(f"HAPPIER, α {value:g}", alpha=value) for value in ALPHAS[1:]),
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
            WIDE[0],
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
    Experiment(
        "Tables I, II and V, on the training photos",
        "what the losses reach on the photos that they learn from",
        (FROZEN, FAST_AP, BLACKBOX, SMOOTH_AP, SUP_AP, ROADMAP_PAIR, ROADMAP, HAPPIER),
        ("mAP@R:landmark", "AP:supercategory", "AP:kind", "H-AP", "gap"),
        (
            *each_better("ROADMAP, L*_DG", ("FastAP", "Blackbox-AP", "Smooth-AP"), FINE_COLUMNS[1]),
            better("Sup-AP", "Smooth-AP", "mAP@R:landmark"),
            better("ROADMAP, L_DG", "Sup-AP", "mAP@R:landmark"),
            better("ROADMAP, L*_DG", "Sup-AP", "mAP@R:landmark"),
            better("Sup-AP", "ROADMAP, L*_DG", "gap"),
            better("Sup-AP", "ROADMAP, L_DG", "gap"),
            better("HAPPIER", "Smooth-AP", "AP:supercategory", "AP:kind", "H-AP"),
        ),
        on="train",
    ),
    Experiment(
        "Table II, three times as long",
        "whether more steps change the order",
        LONG,
        FINE_COLUMNS,
        (
            better(LONG[1].name, LONG[0].name, *FINE_COLUMNS),
            better(LONG[2].name, LONG[1].name, *FINE_COLUMNS),
        ),
    ),
    Experiment(
        "Tables V and IX, batches of 256",
        "the batch size of the paper, which holds more landmarks of a supercategory",
        WIDE,
        (*HIERARCHY, "AP:supercategory", "AP:kind"),
        (
            better(WIDE[2].name, WIDE[0].name, "H-AP", "ASI", "NDCG", "AP:supercategory"),
            better(WIDE[2].name, WIDE[1].name, "H-AP", "ASI", "NDCG", "AP:supercategory"),
        ),
    ),
)

BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}
WHOLE = (FROZEN, SMOOTH_AP, CSL, ROD_NDCG, HAPPIER, HAPPIER_F)
FINE_TUNED = tuple(
    BY_NAME[name].among(WHOLE) for name in ("Table V", "Tables VI and IX", "Table VII")
)
