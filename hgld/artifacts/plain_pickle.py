"""Reads pickles of published data sets that hold data alone; any other could run any code."""

import pickle
from pathlib import Path
from typing import Any

from hgld.words import single_blanks

# all that a numpy array needs of numpy; to import another module of it could run code
MODULES = {"numpy", "numpy.core.multiarray", "numpy._core.multiarray"}
ARRAYS = {"_reconstruct", "dtype", "ndarray", "scalar"}
BYTES = {("_codecs", "encode"), ("__builtin__", "bytes"), ("builtins", "bytes")}  # and of Python


def read_plain_pickle(path: Path) -> Any:
    """Read a pickle of texts, numbers, lists, dictionaries and numpy arrays.

    Raises:
        ValueError: it is damaged, or asks for anything else.
    """
    with path.open("rb") as file:
        try:
            return _Plain(file).load()
        except Exception as error:  # pickle and numpy raise many types for damaged files
            raise ValueError(single_blanks(str(error)) or type(error).__name__) from None


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        of_array = module in MODULES and name in ARRAYS
        if not of_array and (module, name) not in BYTES:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is no data")
        return super().find_class(module, name)
