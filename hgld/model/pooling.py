"""One vector of an image from the features of its places: average, maximum, or between the two.

A backbone's own pooling differs from one to the next (a class token, a norm after the mean), so
what a recipe asks for by name is done here, on the features of any backbone.
"""

import torch
from torch import Tensor, nn

__all__ = ["GeM", "Pooling"]

LEAST = 1e-6  # a power of 0 has no slope


class Pooling(nn.Module):
    """(B, F, H, W), (B, H, W, F) or (B, tokens, F) features to (B, F).

    Args:
        how: avg, max or gem.
        features: F.
        prefix_tokens: tokens in front that stand for no place (the class token).

    Example:
        >>> Pooling("max", 2)(torch.tensor([[[[1.0, 5.0]], [[2.0, 3.0]]]])).tolist()
        [[5.0, 3.0]]
    """

    def __init__(self, how: str, features: int, prefix_tokens: int = 0) -> None:
        super().__init__()
        self.how, self.features, self.prefix_tokens = how, features, prefix_tokens
        self.gem = GeM() if how == "gem" else None

    def forward(self, features: Tensor) -> Tensor:
        """Pool over all places."""
        places = self._places(features)  # (B, N, F)
        if self.gem is not None:
            pooled: Tensor = self.gem(places)
            return pooled
        return places.amax(1) if self.how == "max" else places.mean(1)

    def _places(self, features: Tensor) -> Tensor:
        if features.ndim == 3:
            return features[:, self.prefix_tokens :]
        if features.shape[1] == self.features:
            return features.flatten(2).transpose(1, 2)
        return features.flatten(1, 2)


class GeM(nn.Module):
    """Generalised mean over places (Radenovic et al. 2019): (mean x^p)^(1/p), p learned.

    Example:
        >>> round(GeM(2.0)(torch.tensor([[[1.0], [7.0]]])).item(), 4)
        5.0
    """

    def __init__(self, p: float = 3.0) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.tensor(p))

    def forward(self, places: Tensor) -> Tensor:
        """(B, N, F) to (B, F), in float32 at least: a power leaves the range of half precision."""
        half = places.dtype in (torch.float16, torch.bfloat16)
        with torch.autocast(places.device.type, enabled=False):
            powers = (places.float() if half else places).clamp(min=LEAST) ** self.p
            pooled: Tensor = powers.mean(1) ** (1.0 / self.p)
            return pooled
