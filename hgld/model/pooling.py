"""Pool the features of all positions of an image into one vector: average, maximum or GeM.

The built-in pooling of backbones differs (a class token, a norm after the mean), so the pooling
that a recipe names is implemented here, on the features of any backbone.
"""

import torch
from torch import Tensor, nn

__all__ = ["GeM", "Pooling"]

LEAST = 1e-6  # 0 to a power has no gradient


class Pooling(nn.Module):
    """Pool (B, F, H, W), (B, H, W, F) or (B, tokens, F) features to (B, F).

    Args:
        how: avg, max or gem.
        features: F.
        prefix_tokens: leading tokens that are not image positions (the class token).

    Example:
        >>> Pooling("max", 2)(torch.tensor([[[[1.0, 5.0]], [[2.0, 3.0]]]])).tolist()
        [[5.0, 3.0]]
    """

    def __init__(self, how: str, features: int, prefix_tokens: int = 0) -> None:
        super().__init__()
        self.how, self.features, self.prefix_tokens = how, features, prefix_tokens
        self.gem = GeM() if how == "gem" else None

    def forward(self, features: Tensor) -> Tensor:
        """Pool over all positions."""
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
    """Generalised mean over positions (Radenovic et al. 2019): (mean x^p)^(1/p), p learned.

    Example:
        >>> round(GeM(2.0)(torch.tensor([[[1.0], [7.0]]])).item(), 4)
        5.0
    """

    def __init__(self, p: float = 3.0) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.tensor(p))

    def forward(self, places: Tensor) -> Tensor:
        """(B, N, F) to (B, F), in float32 at least: powers exceed the range of half precision."""
        half = places.dtype in (torch.float16, torch.bfloat16)
        with torch.autocast(places.device.type, enabled=False):
            powers = (places.float() if half else places).clamp(min=LEAST) ** self.p
            pooled: Tensor = powers.mean(1) ** (1.0 / self.p)
            return pooled
