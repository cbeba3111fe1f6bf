"""Draw samples of a made tree of classes, in which the orderings of the papers can appear.

1,200 classes in 20 groups, 10 samples each. A sample is its group's and its class's point in 16
directions with noise, beside 16 directions that say nothing of the class and vary more; all are
mixed and bent into 64 features. So a network has something to learn that serves unseen classes, and
a batch is small beside the classes, as with the data of the papers. The constants are the first
that were tried.
"""

import numpy as np
import torch

from pipelines.claims.features import Photos

CLASSES, GROUPS, SAMPLES = 1200, 20, 10
DIRECTIONS, FEATURES = 16, 64
CLASS, NOISE, NUISANCE = 0.7, 0.45, 1.5  # deviations; that of the groups is 1


def draw_tree(seed: int) -> Photos:
    """12,000 samples of one tree.

    Returns:
        (12000, 64) features and (12000, 2) labels: group, class.

    Example:
        >>> tree = draw_tree(0)
        >>> tuple(tree.features.shape), tree.labels.max(0).tolist()
        ((12000, 64), [19, 1199])
    """
    chance = np.random.default_rng(seed)
    group = np.arange(CLASSES) % GROUPS
    centres = chance.normal(size=(GROUPS, DIRECTIONS))[group]
    centres += CLASS * chance.normal(size=centres.shape)
    label = np.repeat(np.arange(CLASSES), SAMPLES)
    shown = centres[label] + NOISE * chance.normal(size=(len(label), DIRECTIONS))
    nuisance = NUISANCE * chance.normal(size=shown.shape)
    mixing = chance.normal(size=(2 * DIRECTIONS, FEATURES)) / (2 * DIRECTIONS) ** 0.5
    features = np.tanh(np.hstack([shown, nuisance]) @ mixing).astype(np.float32)
    labels = np.column_stack([group[label], label])
    return Photos(torch.from_numpy(features), labels, f"made tree {seed}")
