"""All losses of the papers, importable from one module.

Functions take (Q, G) scores and levels and return (Q,) losses; modules take embeddings and label
paths and return one number to train on. Each docstring gives the equation.
"""

from hgld.ranking.baselines import FastAP, LevelSum, NormSoftmax, ProxyNCA, Triplet
from hgld.ranking.binary import pair_calibration, pooled_calibration, soft_bin_ap
from hgld.ranking.blackbox import (
    ScoreMemory,
    blackbox_ap,
    blackbox_ap_all_classes,
    blackbox_recall,
)
from hgld.ranking.modules import (
    CSL,
    HAPPIER,
    ROADMAP,
    RODNDCG,
    BlackBoxAP,
    BlackBoxRecall,
    ProxyCalibration,
    RobustDecomposable,
    RODRecall,
    SmoothAP,
    SmoothHAP,
    SmoothRecall,
    SoftBinAP,
    SupAP,
    SupHAP,
    SupNDCG,
    SupRecall,
    proxy_calibration,
)
from hgld.ranking.pooled import (
    PairCalibration,
    PooledCalibration,
    XBMContrastive,
    xbm_contrastive,
)
from hgld.ranking.rank_loss import RankLoss
from hgld.ranking.surrogates import (
    smooth_ap,
    smooth_h_ap,
    smooth_recall,
    sup_ap,
    sup_h_ap,
    sup_ndcg,
    sup_recall,
)

__all__ = [
    "CSL",
    "HAPPIER",
    "ROADMAP",
    "RODNDCG",
    "BlackBoxAP",
    "BlackBoxRecall",
    "FastAP",
    "LevelSum",
    "NormSoftmax",
    "PairCalibration",
    "PooledCalibration",
    "ProxyCalibration",
    "ProxyNCA",
    "RODRecall",
    "RankLoss",
    "RobustDecomposable",
    "ScoreMemory",
    "SmoothAP",
    "SmoothHAP",
    "SmoothRecall",
    "SoftBinAP",
    "SupAP",
    "SupHAP",
    "SupNDCG",
    "SupRecall",
    "Triplet",
    "XBMContrastive",
    "blackbox_ap",
    "blackbox_ap_all_classes",
    "blackbox_recall",
    "pair_calibration",
    "pooled_calibration",
    "proxy_calibration",
    "smooth_ap",
    "smooth_h_ap",
    "smooth_recall",
    "soft_bin_ap",
    "sup_ap",
    "sup_h_ap",
    "sup_ndcg",
    "sup_recall",
    "xbm_contrastive",
]
