"""Published hyper-parameters of the rank losses, each with its source.

``paper`` has the values in the texts of Ramzi et al. (2024, or 2021 if that gives none), and the
authors' configuration if neither text has a value; ``suprank_sop`` and ``suprank_inat`` are the two
sets in the authors' configuration files, with the choices of their code, which differ from the
text. The defaults of the losses are those of ``paper``. ``text`` is ``paper`` with each choice of
the code as the papers' texts have it: relevances compared instead of levels, calibration by pairs,
and the blackbox losses without the query and without dividing ranks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from hgld.errors import UsageError
from hgld.ranking.steps import UpperStep

Option = float | str | bool


@dataclass(frozen=True)
class Preset:
    """One published set of hyper-parameters.

    Args:
        step: H-minus of every Sup-loss.
        lam: weight of the calibration in ROADMAP, HAPPIER and ROD-NDCG.
        recall_lam: weight of the calibration in ROD-R@k.
        alpha: of Eq. 20 in HAPPIER.
        fine_alpha: of Eq. 20 in HAPPIER_F.
        eta: temperature of the proxies.
        ks: cut-offs of Sup-R@k.
        temperature: tau* of Sup-R@k, in ranks.
        pair_alpha: similarity that positive pairs should reach (Eq. 7).
        pair_beta: similarity that negative pairs should stay below (Eq. 7).
        others: hyper-parameters of the baseline losses, by loss and name.
        bounds: whether Sup-AP, Sup-H-AP and Sup-NDCG are upper bounds of the exact losses, ties
            included.
        sources: source of each value.
    """

    step: UpperStep
    lam: float
    recall_lam: float
    alpha: float
    fine_alpha: float
    eta: float
    ks: tuple[int, ...]
    temperature: float
    pair_alpha: float
    pair_beta: float
    bounds: bool
    sources: Mapping[str, str] = field(hash=False)
    others: Mapping[str, Mapping[str, Option]] = field(hash=False)


Published = Mapping[str, tuple[Option, str]]  # "LOSS.OPTION" -> value, source
CONFIGURED = "no value in the texts of Ramzi et al.; the authors' configuration files"
RAMBO = "Rolinek et al. 2020, table 9, Online Products (0.2 and 0.02 on CUB, 0.2 and 0.05 in-shop)"
BASELINES: Published = {
    "ArcFace.margin": (0.5, "Deng et al. 2019, section 3.1: 0.5 radians"),
    "ArcFace.scale": (64.0, "Deng et al. 2019, section 3.1: 64"),
    "BlackBoxAP.lam": (4.0, RAMBO),
    "BlackBoxAP.margin": (0.02, RAMBO),
    "BlackBoxRecall.lam": (4.0, RAMBO),
    "BlackBoxRecall.margin": (0.02, RAMBO),
    "CSL.scale": (32.0, "its only public code: 32"),
    "CosFace.margin": (0.35, "Wang et al. 2018, section 4: 0.35"),
    "CosFace.scale": (64.0, "Wang et al. 2018, the authors' code: 64"),
    "FastAP.bins": (10, f"{CONFIGURED}: 10"),
    "HiMulCon.temperature": (0.07, "Zhang et al. 2022, the authors' code: 0.07"),
    "ProxyAnchor.margin": (0.1, "Kim et al. 2020, section 4.2: 0.1"),
    "ProxyAnchor.scale": (32.0, "Kim et al. 2020, section 4.2: 32"),
    "ProxyNCA.scale": (9.0, f"{CONFIGURED}: T = 1/9"),
    "SmoothAP.tau": (0.01, "Brown et al. 2020, table 5: 0.01"),
    "SmoothHAP.tau": (0.01, "as Smooth-AP"),
    "SmoothRecall.tau": (0.01, "no value in the text; the code of reference [28]: 0.01"),
    "SoftBinAP.bins": (20, f"{CONFIGURED}: 20 (25 on [0, 1] in the code of Revaud et al. 2019)"),
    "SoftBinAP.low": (-1.0, f"{CONFIGURED}: -1"),
    "SoftBinAP.high": (1.0, f"{CONFIGURED}: 1"),
    "SubCenterArcFace.margin": (0.5, "Deng et al. 2020, as ArcFace: 0.5 radians"),
    "SubCenterArcFace.scale": (64.0, "Deng et al. 2020, as ArcFace: 64"),
    "SubCenterArcFace.sub_centers": (3, "Deng et al. 2020, table 1: 3"),
    "SupCon.temperature": (0.1, "Khosla et al. 2020, section 4: 0.1"),
    "Triplet.margin": (0.05, f"{CONFIGURED}: 0.05"),
    "XBMContrastive.margin": (0.5, f"{CONFIGURED}: 0.5"),
}
LEFT_OUT = "Rolinek et al. 2020, section 5.1: each image with itself left out"
AS_PRINTED: Published = {
    **BASELINES,
    "BlackBoxAP.include_self": (False, LEFT_OUT),
    "BlackBoxAP.ranks": ("count", "Rolinek et al. 2020, Algorithm 1: ranks are not divided"),
    "BlackBoxRecall.include_self": (False, "as Blackbox AP"),
    "BlackBoxRecall.ranks": ("count", "as Blackbox AP"),
    "HAPPIER.compare": ("relevance", "Ramzi et al. 2024, Eq. 3 and 5: lower by relevance"),
    "ROADMAP.calibration": ("pair", "Ramzi et al. 2021, Eq. 7, per query (Eq. 7 in 2024, too)"),
    "RODRecall.calibration": ("pair", "Ramzi et al. 2024, Eq. 17 with Eq. 7, per query"),
    "SupHAP.compare": ("relevance", "Ramzi et al. 2024, Eq. 3 and 5: lower by relevance"),
}
OWN = True, "the authors' code: the query is among its own positives"
COARSER = "level", "the authors' code: images of a coarser shared level rank lower"
CALIBRATED = (
    "proxy",
    "the authors' files ROADMAP_pp, ROADRatk_pp; their ROADMAP, ROADRatk have pair-pooled",
)
INCLUDING = (
    "BlackBoxAP HAPPIER ROADMAP RODNDCG RODRecall SmoothAP SmoothHAP SmoothRecall SoftBinAP SupAP "
    "SupHAP SupNDCG SupRecall"
)
AUTHORS: Published = {
    **BASELINES,
    **{f"{loss}.include_self": OWN for loss in INCLUDING.split()},
    **{f"{loss}.compare": COARSER for loss in ("HAPPIER", "SupHAP")},
    **{f"{loss}.calibration": CALIBRATED for loss in ("RODRecall", "ROADMAP")},
}
TEXT = {
    "step.tau": "Ramzi et al. 2021 (ROADMAP), settings of section 4: 0.01, as Smooth-AP",
    "step.rho": "Ramzi et al. 2021 (ROADMAP), settings of section 4: 100; no value in 2024",
    "step.delta": "Ramzi et al. 2024, appendix A-C: tau ln((1 - eps) / eps), eps = 0.01: 0.05",
    "step.start": "Ramzi et al. 2024, Eq. 4: 0.5",
    "step.offset": "Ramzi et al. 2024, Eq. 4: sigma(delta / tau) + 0.5, continuous at delta",
    "lam": "Ramzi et al. 2024, section VII-A4: 0.1 (0.5 in Ramzi et al. 2021)",
    "recall_lam": "no value for ROD-R@k in the text; the 0.1 of section VII-A4",
    "alpha": "Ramzi et al. 2024, section V-A1: 1",
    "fine_alpha": "Ramzi et al. 2024, appendix C-A3: 5 on SOP (3 on iNat-base)",
    "eta": "no value in the text; the authors' configuration files: 0.05",
    "ks": "no values in the text (it follows reference [28]); the authors' files: 1, 2, 4, 8, 16",
    "temperature": "no value in the text; the authors' code: 1 rank",
    "pair_alpha": "Ramzi et al. 2021 (ROADMAP), settings of section 4: 0.9",
    "pair_beta": "Ramzi et al. 2021 (ROADMAP), settings of section 4: 0.6",
}


def _by_loss(published: Published) -> Mapping[str, Mapping[str, Option]]:
    found: dict[str, dict[str, Option]] = {}
    for name, (value, _) in published.items():
        loss, _, option = name.partition(".")
        found.setdefault(loss, {})[option] = value
    return MappingProxyType(found)


def _sources(published: Published) -> dict[str, str]:
    return TEXT | {name: source for name, (_, source) in published.items()}


OTHERS = _by_loss(BASELINES)
CODE = {
    **_sources(AUTHORS),
    "recall_lam": "the authors' configuration files leave it out: halves, 0.5",
    "fine_alpha": "the authors' configuration files keep alpha at 1 and raise lambda to 0.5",
}

PAPER = Preset(
    step=UpperStep(),
    lam=0.1,
    recall_lam=0.1,
    alpha=1.0,
    fine_alpha=5.0,
    eta=0.05,
    ks=(1, 2, 4, 8, 16),
    temperature=1.0,
    pair_alpha=0.9,
    pair_beta=0.6,
    bounds=True,
    sources=_sources(BASELINES),
    others=OTHERS,
)
SUPRANK = replace(
    PAPER, recall_lam=0.5, fine_alpha=1.0, bounds=False, sources=CODE, others=_by_loss(AUTHORS)
)  # with the step of its data set
PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "paper": PAPER,
        "text": replace(PAPER, sources=_sources(AS_PRINTED), others=_by_loss(AS_PRINTED)),
        "suprank_sop": replace(
            SUPRANK,
            step=UpperStep(offset=1.44, tie=0.5),
            sources={
                **CODE,
                "step.offset": "the authors' files for SOP, CUB, DyML, landmarks: 1.44",
                "step.tie": "the authors' code: sigma(0) = 0.5 at a tie, so no bound there",
            },
        ),
        "suprank_inat": replace(
            SUPRANK,
            step=UpperStep(start=0.0, offset=1.0),
            sources={
                **CODE,
                "step.start": "the authors' files for iNaturalist: 0, no upper bound",
                "step.offset": "the authors' files for iNaturalist: 1",
            },
        ),
    }
)


def preset(name: str) -> Preset:
    """Return a preset by its name.

    Example:
        >>> preset("suprank_sop").step.end
        1.44
    """
    if name not in PRESETS:
        raise UsageError(f"no preset {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]
