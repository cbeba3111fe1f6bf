"""Makes the API reference: one page a public module, from its docstrings.

    python docs/api.py [FOLDER]      default: build/api

Every module that does not begin with an underscore has a page, with the names in its ``__all__``.
A module that cannot be imported and an annotation that names nothing are errors.
"""

import importlib
import pkgutil
import sys
import warnings
from pathlib import Path

import pdoc
import pdoc.render

import hgld

LEFT_OUT = "hgld.__main__", "hgld.ranking.kernels"  # kernels have no users but this package


def modules() -> list[str]:
    """Names of the public modules, sorted."""
    found = pkgutil.walk_packages(hgld.__path__, "hgld.", onerror=_raise)
    names = [module.name for module in found if "._" not in module.name]
    return ["hgld", *sorted(name for name in names if not name.startswith(LEFT_OUT))]


def build(folder: Path) -> None:
    """Write the pages into a folder."""
    pdoc.render.configure(docformat="google", show_source=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", module="pdoc")
        warnings.filterwarnings("ignore", "The module specification")  # named twice: one page
        warnings.filterwarnings("ignore", ".*' is not subscriptable")  # shown as written
        warnings.filterwarnings("ignore", ".*for requests.sessions.Session")  # inherited from there
        for name in modules():
            _load(name)
        pdoc.pdoc(*modules(), output_directory=folder)


def _load(name: str) -> None:
    """Import a module with all its public names, also those that it imports when asked for."""
    module = importlib.import_module(name)
    for word in getattr(module, "__all__", ()):
        setattr(module, word, getattr(module, word))


def _raise(name: str) -> None:
    raise ImportError(f"{name} cannot be imported")


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else "build/api"))
