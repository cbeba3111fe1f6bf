"""Declare torchvision's operators if its build does not fit torch's (CPU torch, CUDA torchvision).

Such a torchvision cannot load its compiled operators. Its import then fails with "operator
torchvision::nms does not exist", and timm and open_clip fail with it although neither calls the
operator. Declaring the two schemas that torchvision's Python code registers against is enough. The
import hook waits until torchvision has tried its own library, so builds that fit are not touched.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

_REGISTRATIONS = {"torchvision._autograd_registrations", "torchvision._meta_registrations"}
_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
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
            torch.library.define(f"torchvision::{name}", schema)


def install_hook() -> None:
    """Install the import hook once; imports neither torch nor torchvision."""
    if not any(isinstance(finder, _DeclareBeforeRegistrations) for finder in sys.meta_path):
        sys.meta_path.insert(0, _DeclareBeforeRegistrations())
