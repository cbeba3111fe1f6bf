"""AP of soft score bins (Revaud et al. 2019), a loss without ranks."""

import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking.checks import check_count, check_finite
from hgld.ranking.levels import check_pairs


def soft_bin_ap(
    scores: Tensor, levels: Tensor, bins: int = 20, low: float = -1.0, high: float = 1.0
) -> Tensor:
    """Quantised AP loss of each query (Revaud et al. 2019): 1 - sum_m P_m (r_m - r_{m-1}).

    Each score is spread over two of ``bins`` triangular bins between high and low; precision and
    recall are computed bin by bin, best first. The two published ranges are bins=20 on [-1, 1] and
    bins=25 on [0, 1]; beyond the range the first and last bin are flat, so that a score there has
    its full weight and no gradient.

    More bins bring it closer to the exact AP, and it is exact for scores on bin centres. It does
    not converge to AP otherwise: a positive between two centres is counted in parts, and the first
    part does not count all of the positive itself.

    Args:
        scores: (Q, G) similarities.
        levels: (Q, G); positives are levels > 0, -1 is not in the gallery.
        bins: number of bin centres, 2 or more.
        low: last centre.
        high: first centre.

    Returns:
        (Q,) in [0, 1]; 0 with a zero gradient if a query has no positive.

    Example:
        >>> soft_bin_ap(torch.tensor([[1.0, -1.0]]), torch.tensor([[1, 0]])).tolist()
        [0.0]
    """
    scores = check_pairs(scores, levels)
    check_count(bins=bins)
    check_finite(low=low, high=high)
    if bins < 2 or not low < high:
        raise ShapeError(f"{bins} bins from {low} to {high}; expected at least 2 and low < high")
    place = ((high - scores) * ((bins - 1) / (high - low))).clamp(0.0, bins - 1.0)
    # Clamped, so that a score at the last centre has a next bin, too.
    first = place.detach().floor().clamp(max=bins - 2).long()
    share = place - first  # of the score's weight that goes to the next bin
    present, positive = (levels >= 0).to(scores.dtype), (levels > 0).to(scores.dtype)
    every = _spread(first, share, present, bins)
    hits = _spread(first, share, positive, bins)
    tiny = torch.finfo(scores.dtype).tiny
    precision = hits.cumsum(1) / every.cumsum(1).clamp(min=tiny)
    found = positive.sum(1)
    loss = 1.0 - (precision * hits).sum(1) / found.clamp(min=1.0)
    return torch.where(found > 0, loss, 0.0)


def _spread(first: Tensor, share: Tensor, weight: Tensor, bins: int) -> Tensor:
    """Weight of each bin, (Q, bins): each score adds to two neighbouring bins."""
    empty = share.new_zeros(len(share), bins)
    near = empty.scatter_add(1, first, (1.0 - share) * weight)
    return near.scatter_add(1, first + 1, share * weight)
