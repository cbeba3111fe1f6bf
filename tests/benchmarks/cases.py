"""Embeddings that look trained, and the products that a loss of them is timed against."""

import numpy as np
import torch
from torch import Tensor

DIM = 512


def labels_of(size: int, layout: str) -> Tensor:
    """Classes of 4. ``2``: a coarse class is a tenth of the batch; ``2half``: half of it;
    ``5``: five levels, half of the batch positive."""
    fine = np.arange(size) // 4
    classes = fine[-1] + 1
    half = fine // max(1, classes // 2)
    if layout == "5":
        inner = fine % max(1, classes // 2)
        between = [half * 2**i + inner * 2**i // max(1, classes // 2) for i in (1, 2, 3)]
        return torch.from_numpy(np.stack([half, *between, fine], 1))
    coarse = fine // max(1, classes // 10) if layout == "2" else half
    return torch.from_numpy(np.stack([coarse, fine], 1))


def embeddings_of(labels: Tensor) -> Tensor:
    """(N, 512) unit vectors: a mean for each class of each level, and noise, in 64 dimensions."""
    make, spread = np.random.default_rng(0), 64
    vectors = 0.7 * make.normal(size=(len(labels), spread)).astype(np.float32)
    for column in labels.numpy().T:
        ids, which = np.unique(column, return_inverse=True)
        vectors += make.normal(size=(len(ids), spread)).astype(np.float32)[which]
    every = torch.zeros(len(labels), DIM)
    every[:, :spread] = torch.from_numpy(vectors)
    return torch.nn.functional.normalize(every, dim=1)


def three_products(embeddings: Tensor) -> None:
    """Similarity, and its two products on the way back."""
    scores = embeddings @ embeddings.T
    torch.mm(scores, embeddings)
    torch.mm(scores.T, embeddings)
