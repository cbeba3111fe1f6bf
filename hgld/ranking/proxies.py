"""Losses against learned class vectors (proxies): L*_DG, CSL.

Proxies are an ``nn.Parameter`` named ``proxies``, so that a trainer can give them an optimiser of
their own (the authors use Adam at learning rate 10 on SOP). They stay as long as they are and are
scaled to unit length where they are used.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hgld.errors import ShapeError
from hgld.ranking.checks import check_count, check_finite, check_positive, check_tensors
from hgld.ranking.kernels.device import whole_products
from hgld.ranking.levels import finest_ids
from hgld.ranking.sides import check_labels, unit_vectors

__all__ = [
    "CSL",
    "ProxyCalibration",
    "cosines_with_proxies",
    "new_proxies",
    "proxy_calibration",
]

INTEGERS = torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64


def new_proxies(num_classes: int, dim: int) -> nn.Parameter:
    """(C, D) proxies, uniform in +-1 / sqrt(dim)."""
    check_count(num_classes=num_classes, dim=dim)
    bound = 1.0 / math.sqrt(dim)
    return nn.Parameter(torch.empty(num_classes, dim).uniform_(-bound, bound))


def proxy_calibration(
    embeddings: Tensor, classes: Tensor, proxies: Tensor, eta: float = 0.05
) -> Tensor:
    """L*_DG (Eq. 8): cross-entropy of cosines with the proxies over eta, mean over the batch.

    Args:
        embeddings: (B, D).
        classes: (B,) in 0..C-1.
        proxies: (C, D).
        eta: temperature in cosine units.

    Example:
        >>> proxy_calibration(torch.eye(2), torch.tensor([0, 1]), torch.eye(2)).item() < 1e-6
        True
    """
    check_positive(eta=eta)
    cosines = cosines_with_proxies(embeddings, classes, proxies)
    return F.cross_entropy(cosines / eta, classes.long())


def cosines_with_proxies(embeddings: Tensor, classes: Tensor, proxies: Tensor) -> Tensor:
    """(B, C) cosines, in float32 at least, after all checks."""
    check_tensors(embeddings=embeddings, classes=classes, proxies=proxies)
    if classes.shape != embeddings.shape[:1] or classes.dtype not in INTEGERS:
        raise ShapeError(
            f"classes are {classes.dtype} of shape {tuple(classes.shape)}; "
            f"expected one integer for each of {len(embeddings)} images"
        )
    if embeddings.shape[-1] != proxies.shape[1]:
        raise ShapeError(
            f"embeddings have {embeddings.shape[-1]} dimensions, proxies {proxies.shape[1]}"
        )
    if bool((classes < 0).any()) or bool((classes >= len(proxies)).any()):
        raise ShapeError(
            f"classes run from {int(classes.min())} to {int(classes.max())}; "
            f"there are proxies for 0..{len(proxies) - 1}"
        )
    unit = unit_vectors(embeddings)
    with whole_products(embeddings.device):
        return unit @ F.normalize(proxies.to(unit.dtype), dim=1).T


class ProxyCalibration(nn.Module):
    """L*_DG (Eq. 8) on the finest label, the NormSoftmax of the baselines.

    Args:
        num_classes: C; labels[:, -1] are 0..C-1.
        dim: D of the embeddings.
        eta: temperature in cosine units.

    Example:
        >>> loss = ProxyCalibration(num_classes=3, dim=4)
        >>> loss(torch.eye(4)[:3], torch.tensor([[0], [1], [2]])).shape
        torch.Size([])
    """

    def __init__(self, num_classes: int, dim: int, eta: float = 0.05) -> None:
        super().__init__()
        check_positive(eta=eta)
        self.eta = eta
        self.proxies = new_proxies(num_classes, dim)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(B, D) and (B, L) label paths -> one number."""
        check_labels(labels, len(embeddings), None)
        return proxy_calibration(embeddings, finest_ids(labels), self.proxies, self.eta)


class CSL(nn.Module):
    """Cross-level similarity loss: one proxy a fine class; a coarse class is the set of its own.

    Sum over levels l of the batch mean of softplus(LSE_{z not in the class at l} scale s_z +
    LSE_{z is the fine class} -scale s_z + scale m_l): the own fine proxy stays ahead of all proxies
    outside the class at level l by m_l.

    Args:
        num_classes: C fine classes; labels[:, -1] are 0..C-1.
        dim: D of the embeddings.
        class_labels: (C, L) label path of each fine class, coarse to fine.
        margins: (L,) in cosine units, coarse to fine like the labels. The only public code has
            0.25, 0.35, 0.45 for three levels with the finest first; its authors' own was never
            released.
        scale: of the cosines.

    Example:
        >>> paths = torch.tensor([[0, 0], [0, 1], [1, 2]])
        >>> loss = CSL(num_classes=3, dim=4, class_labels=paths, margins=(0.45, 0.25))
        >>> loss(torch.eye(4)[:3], paths).shape
        torch.Size([])
    """

    class_labels: Tensor

    def __init__(
        self,
        num_classes: int,
        dim: int,
        class_labels: Tensor,
        margins: tuple[float, ...] = (0.45, 0.35, 0.25),
        scale: float = 32.0,
    ) -> None:
        super().__init__()
        check_tensors(class_labels=class_labels)
        if class_labels.shape != (num_classes, len(margins)):
            raise ShapeError(
                f"class_labels have shape {tuple(class_labels.shape)}; expected "
                f"({num_classes}, {len(margins)}), a path for each class and a margin a level"
            )
        check_labels(class_labels, num_classes, None, "class_")
        check_positive(scale=scale)
        for margin in margins:
            check_finite(margin=margin)
        self.proxies = new_proxies(num_classes, dim)
        self.margins, self.scale = tuple(margins), scale
        self.register_buffer("class_labels", class_labels.long(), persistent=False)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(B, D) and (B, L) label paths -> one number."""
        check_labels(labels, len(embeddings), len(self.margins))
        classes = labels[:, -1].long()
        scaled = self.scale * cosines_with_proxies(embeddings, classes, self.proxies)  # (B, C)
        other = (self.class_labels[classes] != labels).any(1)
        if bool(other.any()):
            path = labels[int(other.int().argmax())]
            raise ShapeError(
                f"labels hold the path {path.tolist()}, but class {int(path[-1])} has "
                f"{self.class_labels[path[-1]].tolist()} in class_labels; expected the same path"
            )
        own = scaled.gather(1, classes[:, None])[:, 0]
        paths = self.class_labels
        inside = torch.ones(scaled.shape, dtype=torch.bool, device=scaled.device)
        total = scaled.new_zeros(())
        for level, margin in enumerate(self.margins):
            inside = inside & (paths[classes, level][:, None] == paths[:, level][None, :])
            total = total + self._level_loss(scaled, own, inside, margin)
        return total

    def _level_loss(self, scaled: Tensor, own: Tensor, inside: Tensor, margin: float) -> Tensor:
        some = ~inside.all(1)  # a class that holds all proxies has no others to stay ahead of
        others = scaled.masked_fill(inside, -1e9).logsumexp(1)
        loss = F.softplus(others - own + self.scale * margin)
        return torch.where(some, loss, 0.0).mean()
