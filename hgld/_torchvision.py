"""Lets torchvision be imported beside a torch of another build (CPU torch, CUDA torchvision).

Such a torchvision cannot load its compiled operators, and its import then fails with "operator
torchvision::nms does not exist", which takes open_clip and timm with it although neither calls
the operator. Declaring the two schemas that its Python part registers against is enough. The hook
waits until torchvision has tried its own library, so nothing is declared where builds match.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

__all__ = ["install"]

_REGISTRATIONS = {"torchvision._autograd_registrations", "torchvision._meta_registrations"}
_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


class _DeclareBeforeRegistrations(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname in _REGISTRATIONS:
            declare_missing_operators()
        return None  # the ordinary finders load the module


def declare_missing_operators() -> None:
    """Declare each schema that torchvision's own library has not declared."""
    import torch

    for name, schema in _SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", schema.removeprefix(name))


def install() -> None:
    """Put the hook in place once; imports nothing."""
    if not any(isinstance(finder, _DeclareBeforeRegistrations) for finder in sys.meta_path):
        sys.meta_path.insert(0, _DeclareBeforeRegistrations())
