"""What pytest looks at: the Triton kernels only where Triton is, which not every machine has."""

from importlib.util import find_spec

collect_ignore = (
    []
    if find_spec("triton")
    else [f"hgld/ranking/kernels/{name}_triton.py" for name in ("loss", "rank")]
)
