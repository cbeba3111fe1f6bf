"""What pytest looks at: the Triton kernels only where Triton is, which not every machine has.

Imports and collected tests are kept out of searches for garbage, which took a third of the time.
"""

import atexit
import gc
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

collect_ignore = (
    []
    if find_spec("triton")
    else [f"hgld/ranking/kernels/{name}_triton.py" for name in ("loss", "rank")]
)
gc.disable()
atexit.register(gc.unfreeze)  # DuckDB reports each of its objects that is not found at the end


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Search for garbage again once all is collected, and only in what comes later."""
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
