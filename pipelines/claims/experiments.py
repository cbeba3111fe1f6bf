"""The papers' claims as a table of experiments: arms, metrics and expected order.

An experiment sets arms side by side, as a table or a figure of the papers does, and lists what the
paper claims of them: the sum of some arms above the sum of others. To add an experiment, add a row.
A comparison is part of one experiment of a budget only, by the metric that the paper discusses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from pipelines.claims.arms import (
    ARC_FACE,
    BLACKBOX,
    BY_SIZE,
    BY_SIZE_MADE,
    COS_FACE,
    CSL,
    FAST_AP,
    FROZEN,
    HAPPIER,
    HAPPIER_F,
    HI_MUL_CON,
    HIERARCHICAL_PROXIES,
    NCA,
    NSM,
    PROXY_ANCHOR,
    ROADMAP,
    ROADMAP_PAIR,
    ROD_NDCG,
    ROD_PAIR,
    ROD_RECALL,
    SIGMA_NCA,
    SIGMA_NSM,
    SIGMA_TRIPLET,
    SMOOTH_AP,
    SMOOTH_H_AP,
    SMOOTH_RECALL,
    SOFT_BIN,
    SUB_CENTER,
    SUP_AP,
    SUP_CON,
    SUP_H_AP,
    SUP_RECALL,
    SUP_W_AP,
    TRIPLET,
    WIDE,
    XBM,
    Arm,
)


@dataclass(frozen=True)
class Claim:
    """The arms of ``above`` (summed) are better than those of ``below``, as the paper has it.

    Attributes:
        above: names of arms.
        below: as many others.
        metric: by which they are compared.
        paper: the paper's differences, in points; empty if it gives none.
    """

    above: tuple[str, ...]
    below: tuple[str, ...]
    metric: str
    paper: str = ""

    @property
    def terms(self) -> list[tuple[int, str]]:
        """The arms of the difference, each with its sign."""
        return [(1, name) for name in self.above] + [(-1, name) for name in self.below]


@dataclass(frozen=True)
class Experiment:
    """Arms side by side.

    Attributes:
        name: of the paper's table or figure.
        about: its purpose.
        arms: its rows.
        metrics: its columns.
        claims: of the paper.
    """

    name: str
    about: str
    arms: tuple[Arm, ...]
    metrics: tuple[str, ...]
    claims: tuple[Claim, ...]


def better(above: str, below: str, metric: str, paper: str = "") -> Claim:
    """One arm is better than another."""
    return Claim((above,), (below,), metric, paper)


def each_better(above: str, below: Mapping[str, str], metric: str) -> tuple[Claim, ...]:
    """One arm is better than each of the others: their names with the paper's differences."""
    return tuple(better(above, other, metric, paper) for other, paper in below.items())


def gain_grows(
    small: tuple[Arm, ...], large: tuple[Arm, ...], metric: str, paper: str = ""
) -> Claim:
    """The last arm gains more over the first in small batches than in large ones."""
    above, below = (small[-1].name, large[0].name), (small[0].name, large[-1].name)
    return Claim(above, below, metric, paper)


LAMBDAS = (0.3, 0.9)
ALPHAS = (0.0, 3.0, 5.0)

FINE, FINE_COLUMNS = "mAP@R:landmark", ("R@1:landmark", "mAP@R:landmark")
LANDMARK, SUPER, KIND = "AP:landmark", "AP:supercategory", "AP:kind"
HIERARCHY = ("R@1:landmark", LANDMARK, "H-AP", "ASI", "NDCG")

EXPERIMENTS = (
    Experiment(
        "Table I",
        "ROADMAP against other ways to approximate AP",
        (FROZEN, FAST_AP, SOFT_BIN, BLACKBOX, SMOOTH_AP, ROADMAP),
        FINE_COLUMNS,
        each_better(
            "ROADMAP, L*_DG",
            {
                "FastAP": "SOP +5.2, iNat +5.5",
                "SoftBin-AP": "SOP +3.0, iNat +4.1",
                "Blackbox-AP": "SOP +2.6, iNat +14.3",
                "Smooth-AP": "SOP +1.4, iNat +3.0",
            },
            FINE,
        ),
    ),
    Experiment(
        "Table II",
        "SupRank in place of the sigmoid, and the two decomposability losses",
        (SMOOTH_AP, SUP_AP, ROADMAP_PAIR, ROADMAP, SMOOTH_RECALL, SUP_RECALL, ROD_PAIR, ROD_RECALL),
        FINE_COLUMNS,
        (
            better("Sup-AP", "Smooth-AP", FINE, "SOP +0.5, iNat +1.0"),
            better("ROADMAP, L_DG", "Sup-AP", FINE, "SOP +0.9, iNat +0.1"),
            better("ROADMAP, L*_DG", "Sup-AP", FINE, "SOP +0.9, iNat +2.0"),
            better("Sup-R@k", "Smooth-R@k", FINE, "SOP +0.5, iNat +0.9"),
            better("ROD-R@k, L_DG", "Sup-R@k", FINE, "SOP +2.4, iNat +0.6"),
            better("ROD-R@k, L*_DG", "Sup-R@k", FINE, "SOP +1.6, iNat +3.4"),
        ),
    ),
    Experiment(
        "Table III",
        "ROADMAP in batches of 256 against a cross-batch memory, batches of 128",
        (XBM, BY_SIZE[64][1]),
        FINE_COLUMNS,
        (
            better("ROADMAP, L*_DG, B 256", "XBM", "R@1:landmark", "SOP +1.3, iNat +12.5"),
            better("ROADMAP, L*_DG, B 256", "XBM", FINE, "SOP +0.8, iNat +11.0"),
        ),
    ),
    Experiment(
        "Tables V, VI and IX",
        "losses of landmarks alone against losses of the hierarchy",
        (
            *(TRIPLET, NSM, NCA, SMOOTH_AP),
            *(SIGMA_TRIPLET, SIGMA_NSM, SIGMA_NCA, CSL, ROD_NDCG, HAPPIER, HAPPIER_F),
        ),
        (*HIERARCHY, SUPER, KIND),
        (
            *each_better(
                "HAPPIER",
                {
                    "NSM": "SOP +16.6, iNat +16.3",
                    "NCA++": "SOP +16.4, iNat +14.8",
                    "Smooth-AP": "SOP +16.5, iNat +13.0",
                    "Σ Triplet": "SOP +6.3, iNat +10.3",
                    "Σ NSM": "SOP +9.0, iNat +6.4",
                    "Σ NCA++": "SOP +9.9, iNat +5.4",
                    "CSL": "SOP +6.6, iNat +4.2",
                    "ROD-NDCG": "SOP +1.1, iNat +1.2",
                },
                "H-AP",
            ),
            better("HAPPIER", "Smooth-AP", "ASI", "SOP +45.3, iNat +25.1"),
            better("ROD-NDCG", "Smooth-AP", "NDCG", "SOP +12.9, iNat +4.7"),
            better("HAPPIER", "CSL", LANDMARK, "SOP +2.4, iNat +6.5"),
            better("HAPPIER", "Smooth-AP", SUPER, "SOP +45.0, iNat +35.5"),
            better("HAPPIER", "Smooth-AP", KIND, "iNat-full +24.5"),
            better("HAPPIER", "HAPPIER_F", KIND, "iNat-full +11.3"),
            better("HAPPIER_F", "HAPPIER", LANDMARK, "SOP +1.8, iNat +1.1"),
            better("HAPPIER_F", "Smooth-AP", LANDMARK, "SOP +1.4, iNat +2.6"),
        ),
    ),
    Experiment(
        "Table VII",
        "landmarks",
        (SOFT_BIN, SMOOTH_AP, SMOOTH_RECALL, ROADMAP, CSL, HAPPIER, HAPPIER_F),
        ("mAP@100:landmark", "H-AP", "ASI", "NDCG"),
        (
            better("ROADMAP, L*_DG", "Smooth-AP", "mAP@100:landmark", "+0.4"),
            better("Smooth-AP", "SoftBin-AP", "mAP@100:landmark", "+3.5"),
            better("HAPPIER_F", "ROADMAP, L*_DG", "mAP@100:landmark", "+0.8"),
            better("HAPPIER", "ROADMAP, L*_DG", "H-AP", "+1.8"),
            better("CSL", "HAPPIER", "ASI", "+1.6"),
        ),
    ),
    Experiment(
        "Table X",
        "each part of HAPPIER",
        (SMOOTH_H_AP, SUP_H_AP, HAPPIER),
        ("H-AP",),
        (
            better("Sup-H-AP", "Smooth-H-AP", "H-AP", "iNat +0.8"),
            better("HAPPIER", "Sup-H-AP", "H-AP", "iNat +1.2"),
        ),
    ),
    Experiment(
        "Table XI",
        "the relevance of Eq. 20 against the sum of APs",
        (SUP_H_AP, SUP_W_AP),
        ("H-AP", "wAP", "NDCG"),
        (
            better("Sup-H-AP", "Sup-ΣwAP", "H-AP", "iNat +1.1"),
            better("Sup-ΣwAP", "Sup-H-AP", "wAP", "iNat +0.7"),
        ),
    ),
    Experiment(
        "Fig. 6",
        "what L*_DG adds to Sup-AP at each batch size, and the decomposability gap",
        tuple(chain.from_iterable(BY_SIZE.values())),
        (FINE, "gap"),
        (
            better("ROADMAP, L*_DG, B 16", "Sup-AP, B 16", FINE),
            gain_grows(BY_SIZE[4], BY_SIZE[64], FINE),
            better("Sup-AP", "ROADMAP, L*_DG", "gap"),
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
        (
            better("ROADMAP, λ 0.3", "Sup-AP", "R@1:landmark", "iNat +3.2"),
            better("ROADMAP, λ 0.3", "NSM", "R@1:landmark"),
        ),
    ),
    Experiment(
        "Fig. 7b",
        "the slope ρ of Sup-AP",
        (
            *(SUP_AP.but(f"Sup-AP, ρ {value:g}", rho=value) for value in (0.0, 10.0)),
            SUP_AP,
            SUP_AP.but("Sup-AP, ρ 10000", rho=1e4),
        ),
        FINE_COLUMNS,
        (
            better("Sup-AP, ρ 10", "Sup-AP, ρ 0", FINE),
            better("Sup-AP", "Sup-AP, ρ 0", FINE),
            better("Sup-AP", "Sup-AP, ρ 10000", FINE),
        ),
    ),
    Experiment(
        "Fig. 8a",
        "α of the relevance in HAPPIER",
        (HAPPIER, *(HAPPIER.but(f"HAPPIER, α {value:g}", alpha=value) for value in ALPHAS)),
        (LANDMARK, KIND, "H-AP"),
        (
            better("HAPPIER, α 3", "HAPPIER", LANDMARK),
            better("HAPPIER", "HAPPIER, α 0", LANDMARK),
            better("HAPPIER, α 0", "HAPPIER, α 5", KIND),
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
        (better("HAPPIER", "HAPPIER, λ 0.9", "H-AP"),),
    ),
    Experiment(
        "Smooth-AP, Table 5",
        "its temperature, the photos of a class in a batch, and the batch size",
        (
            *(SMOOTH_AP.but(f"Smooth-AP, τ {value:g}", tau=value) for value in (0.001, 0.1)),
            SMOOTH_AP,
            *(SMOOTH_AP.of(f"Smooth-AP, K {images}", 64 // images, images) for images in (8, 16)),
            WIDE,
        ),
        ("R@1:landmark", LANDMARK),
        (
            *each_better(
                "Smooth-AP",
                {
                    "Smooth-AP, τ 0.1": "faces +2.0",
                    "Smooth-AP, τ 0.001": "faces +0.5",
                    "Smooth-AP, K 8": "faces +1.1",
                    "Smooth-AP, K 16": "faces +2.0",
                },
                LANDMARK,
            ),
            better("Smooth-AP, B 256", "Smooth-AP", LANDMARK, "faces +2.9"),
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
            better("L_DG, margin 0.1", "Sup-AP", FINE),
            better("L_DG, margin 0.6", "Sup-AP", FINE),
        ),
    ),
    Experiment(
        "Other losses",
        "losses of contrast, proxies and angular margins, of other papers",
        (
            *(SUP_CON, HI_MUL_CON, NCA, PROXY_ANCHOR, HIERARCHICAL_PROXIES),
            *(NSM, ARC_FACE, SUB_CENTER, COS_FACE),
        ),
        HIERARCHY,
        (
            better("HiMulCon", "SupCon", "H-AP"),
            better("Proxy-Anchor", "NCA++", LANDMARK),
            better("hierarchical proxies", "Proxy-Anchor", LANDMARK),
            better("ArcFace", "NSM", LANDMARK),
            better("ArcFace", "CosFace", LANDMARK),
            better("Sub-center ArcFace", "ArcFace", LANDMARK),
        ),
    ),
)

# On made data: a network from random weights, small batches beside the data.
MADE = (
    Experiment(
        "Fig. 6 and Table II",
        "what each decomposability loss adds to Sup-AP at each batch size",
        tuple(chain.from_iterable(BY_SIZE_MADE.values())),
        (FINE, "gap"),
        (
            better("ROADMAP, L*_DG, B 16", "Sup-AP, B 16", FINE),
            gain_grows(BY_SIZE_MADE[4], BY_SIZE_MADE[16], FINE),
            *(
                better(arms[1].name, arms[0].name, FINE, "SOP +0.9, iNat +0.1")
                for arms in BY_SIZE_MADE.values()
            ),
        ),
    ),
    Experiment(
        "Tables II, V and X",
        "losses of classes alone against losses of the hierarchy, batches of 64",
        (SMOOTH_AP, BY_SIZE_MADE[16][0], SUP_H_AP, HAPPIER),
        (FINE, "H-AP", "ASI", SUPER),
        (
            better("Sup-AP, B 64", "Smooth-AP", FINE, "SOP +0.5, iNat +1.0"),
            better("HAPPIER", "Smooth-AP", "H-AP", "SOP +16.5, iNat +13.0"),
            better("HAPPIER", "Smooth-AP", "ASI", "SOP +45.3, iNat +25.1"),
            better("HAPPIER", "Smooth-AP", SUPER, "SOP +45.0, iNat +35.5"),
            better("HAPPIER", "Sup-H-AP", "H-AP", "iNat +1.2"),
        ),
    ),
)

# The whole network, on the photos.
FINE_TUNED = (
    Experiment(
        "Tables II and V",
        "losses of landmarks alone against a loss of the hierarchy, batches of 64",
        (FROZEN, SMOOTH_AP, SUP_AP, HAPPIER),
        (*HIERARCHY, FINE),
        (
            better("Sup-AP", "Smooth-AP", FINE, "SOP +0.5, iNat +1.0"),
            better("HAPPIER", "Smooth-AP", "H-AP", "SOP +16.5, iNat +13.0"),
            better("HAPPIER", "Smooth-AP", "ASI", "SOP +45.3, iNat +25.1"),
        ),
    ),
    Experiment(
        "Fig. 6",
        "what L*_DG adds to Sup-AP in batches of 16 and of 64",
        (*BY_SIZE[4], *BY_SIZE[16]),
        (FINE, "gap"),
        (
            better("ROADMAP, L*_DG, B 16", "Sup-AP, B 16", FINE),
            gain_grows(BY_SIZE[4], BY_SIZE[16], FINE),
        ),
    ),
)
