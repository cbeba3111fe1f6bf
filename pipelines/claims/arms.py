"""The arms of the experiments: every loss of the papers' tables, each a way to train.

An arm that several experiments have is trained once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
        chosen_by: metric, on held-out training landmarks, that its learning rates are chosen by.
        rates_of: arm whose rates it takes; if empty, its own are chosen.
    """

    name: str
    loss: str
    options: Options = field(default_factory=dict)
    memory: int = 0
    classes: int = 16
    images: int = 4
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


def _hierarchical(name: str, loss: str, **options: float | str | tuple[float, ...]) -> Arm:
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

SEMI_HARD: Options = {"mining": "semi-hard"}
TRIPLET, NSM = Arm("Triplet", "Triplet", SEMI_HARD), Arm("NSM", "NormSoftmax")
NCA = Arm("NCA++", "ProxyNCA")
SIGMA_TRIPLET = _hierarchical("Σ Triplet", "SigmaTriplet", mining="semi-hard")
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

SUP_CON, HI_MUL_CON = Arm("SupCon", "SupCon"), _hierarchical("HiMulCon", "HiMulCon")
PROXY_ANCHOR = Arm("Proxy-Anchor", "ProxyAnchor")
ARC_FACE, SUB_CENTER = Arm("ArcFace", "ArcFace"), Arm("Sub-center ArcFace", "SubCenterArcFace")
COS_FACE = Arm("CosFace", "CosFace")
HIERARCHICAL_PROXIES = _hierarchical("hierarchical proxies", "HierarchicalProxies")

# A batch of 64 is the usual one. Each size chooses its own rates.
SIZES, SIZES_MADE = (4, 16, 64), (4, 16)
BY_SIZE = {
    classes: tuple(
        arm
        if classes == arm.classes
        else replace(arm, name=f"{arm.name}, B {4 * classes}", classes=classes)
        for arm in (SUP_AP, ROADMAP)
    )
    for classes in SIZES
}
BY_SIZE_MADE = {
    classes: tuple(
        replace(arm, name=f"{arm.name}, B {4 * classes}", classes=classes)
        for arm in (SUP_AP, ROADMAP_PAIR, ROADMAP)
    )
    for classes in SIZES_MADE
}
WIDE = replace(SMOOTH_AP, name="Smooth-AP, B 256", classes=64)
