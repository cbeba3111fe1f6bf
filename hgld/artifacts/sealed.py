"""Sealed cache files: each ends with a hash of its bytes and of a description of its content.

A file that is damaged, truncated, or swapped with another one fails the check and is made again.
"""

from hashlib import sha256
from pathlib import Path

from hgld.artifacts.atomic import atomic_path

__all__ = ["read_sealed", "write_sealed"]

SEAL = sha256().digest_size  # bytes at the end of the file, which readers of .npy ignore


def write_sealed(path: Path, content: bytes | memoryview, holds: str) -> None:
    """Write atomically; ``holds`` describes the content and its inputs and is part of the hash."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.write(_seal(content, holds))
        file.flush()


def read_sealed(path: Path, holds: str) -> memoryview | None:
    """Return the content, or None if the file is missing, damaged, or sealed for other content."""
    if not path.is_file():  # reading a pipe or a device might never end
        return None
    try:
        whole = memoryview(path.read_bytes())
    except OSError:
        return None
    content = whole[:-SEAL]
    return content if _seal(content, holds) == whole[-SEAL:] else None


def _seal(content: bytes | memoryview, holds: str) -> bytes:
    digest = sha256(holds.encode())
    digest.update(b"\0")
    digest.update(content)
    return digest.digest()
