"""Networks built by a function of the user, ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION``.

The code is run, so it must be trusted. The function takes no arguments and returns an ``nn.Module``
from photos (B, 3, H, W) to vectors (B, D), or the module and a transform from a Pillow image to
(3, H, W). A module with a method ``encode_text(texts)`` also embeds N texts as (N, D).
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hgld.artifacts import hash_file
from hgld.errors import InvalidData, UsageError
from hgld.model.devices import is_short_of_memory
from hgld.model.weights import one_line

if TYPE_CHECKING:
    from hgld.model.transforms import ImageTransform


class CustomNetwork(nn.Module):
    """A network of the user as an encoder: photos (B, 3, H, W) to unit vectors (B, D)."""

    def __init__(self, network: nn.Module, source: str) -> None:
        super().__init__()
        self.network, self.source = network, source

    def forward(self, images: Tensor) -> Tensor:
        """Embed photos; refuse an output that is not (B, D) numbers."""
        try:
            found = self.network(images)
        except (TypeError, ValueError, RuntimeError) as error:  # code of the user
            if is_short_of_memory(error):
                raise
            raise InvalidData(
                f"{self.source}: its network raised {type(error).__name__} for photos "
                f"{tuple(images.shape)}: {one_line(error)}"
            ) from error
        return self._unit(found, len(images), "its network")

    @torch.inference_mode()
    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Embed N texts as unit vectors (N, D), float32."""
        encode: Callable[[list[str]], Tensor] | None = getattr(self.network, "encode_text", None)
        if encode is None:
            raise UsageError(
                f"{self.source}: embeds no texts; it needs a method encode_text(texts)"
            )
        found = self._unit(encode(list(texts)), len(texts), "encode_text")
        return found.float().cpu().numpy()

    def _unit(self, vectors: object, count: int, what: str) -> Tensor:
        if not isinstance(vectors, Tensor) or vectors.shape[:-1] != (count,) or not vectors.numel():
            shape = tuple(vectors.shape) if isinstance(vectors, Tensor) else type(vectors).__name__
            raise InvalidData(
                f"{self.source}: {what} returned {shape}; expected ({count}, D), D > 0"
            )
        return F.normalize(vectors.float(), dim=-1)


def build_custom(source: str) -> "tuple[CustomNetwork, ImageTransform | None]":
    """Call the function of ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION``.

    torch draws from seed 0, so that every process builds the same network.

    Returns:
        The network in evaluation mode, and its transform if the function returned one.

    Raises:
        UsageError: no such file, module or function; the function raised or returned no network.
    """
    place, _, name = source.rpartition(":")
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            function = getattr(_import(place), name)
            torch.manual_seed(0)  # what an import draws must not count: it happens only once
            made = function()
    except Exception as error:  # any code of the user
        raise UsageError(f"{source}: {type(error).__name__}: {one_line(error)}") from error
    network, transform = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(network, nn.Module) or not (transform is None or callable(transform)):
        raise UsageError(
            f"{source}: returned {type(made).__name__}; expected an nn.Module, or one and a "
            "transform of photos"
        )
    return CustomNetwork(network, source).eval(), transform


@lru_cache(maxsize=8)
def custom_digest(source: str) -> str:
    """SHA-256 of a network's code and weights.

    The code is that of the file or module and of all modules imported from its folder (of the
    package, for a module in one).
    """
    network = build_custom(source)[0].network
    digest = sha256()
    for file in _code(source.rpartition(":")[0]):
        digest.update(hash_file(file).encode())
    for name, value in sorted(network.state_dict().items()):
        # type and shape, since the same bytes may be another tensor
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        flat = value.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy() if flat.numel() else b"")
    return digest.hexdigest()


def custom_file(source: str) -> Path | None:
    """The file of ``FILE.py:FUNCTION``; None for a module."""
    place = source.rpartition(":")[0]
    return Path(place) if place.endswith(".py") else None


def _import(place: str) -> ModuleType:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    name = "hgld_custom_" + sha256(place.encode()).hexdigest()[:16]
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, place)
    assert spec is not None and spec.loader is not None  # the suffix is .py
    sys.modules[name] = module = module_from_spec(spec)  # dataclasses look themselves up
    folder = str(Path(place).parent)
    sys.path.insert(0, folder)  # modules beside the file
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(folder)
    return module


def _code(place: str) -> list[Path]:
    own = _import(place)
    package = own if place.endswith(".py") else sys.modules[place.partition(".")[0]]
    file = Path(str(package.__file__))
    inside = place.endswith(".py") or file.name == "__init__.py"
    files = {str(getattr(m, "__file__", None)) for m in [*sys.modules.values()]}
    above = str(file.parent / "_")[:-1]  # Paths of thousands of modules take half a second
    beside = {Path(one) for one in files if inside and one.startswith(above)}
    installed = {one for one in beside if "site-packages" in one.relative_to(file.parent).parts}
    return sorted(one for one in {file, *beside} - installed if one.suffix == ".py")
