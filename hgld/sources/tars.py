"""Index of the images in the tars of a data set, so that they are read in place, not extracted.

The scan of each tar is cached with the tar's name, size and times and a checksum, so that the next
run does not open the 600 tars of GLDv2 again, and a killed scan resumes. A cached scan that is
damaged or belongs to another tar is made again.
"""

import os
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import pandas as pd

from hgld.artifacts import read_sealed, write_sealed
from hgld.errors import InvalidData
from hgld.shards.tar import scan_tar
from hgld.tasks import track

__all__ = ["index_tars"]


def index_tars(folder: Path, pattern: str, state: Path) -> pd.DataFrame:
    """List the files in all matching tars: image_id, path (of the tar), offset, size_bytes.

    Args:
        folder: the source folder, to which pattern and path are relative.
        pattern: such as ``train/images_*.tar``; empty: there are none.
        state: folder of cached scans.

    Raises:
        InvalidData: no tar matches; a tar is empty, truncated or not a tar.
    """
    tars = sorted(folder.glob(pattern)) if pattern else []
    if pattern and not tars:
        raise InvalidData(
            f"{folder}: no tar matches '{pattern}'; mend the pattern, or set it to '' where this "
            "part is not there"
        )
    parts = [_index_tar(tar, folder, state) for tar in track(tars, "Reading tars", len(tars))]
    columns = {"image_id": "str", "path": "str", "offset": "int64", "size_bytes": "int64"}
    empty = pd.DataFrame(columns=list(columns)).astype(columns)
    return pd.concat([empty, *parts], ignore_index=True).astype(columns)


def _index_tar(tar: Path, folder: Path, state: Path) -> pd.DataFrame:
    """Read the cached scan; else scan the tar and cache the result."""
    facts, name = tar.stat(), tar.relative_to(folder).as_posix()
    # part of the seal, so a scan of another tar does not match
    identity = f"{name}\n{facts.st_size}\n{facts.st_mtime_ns}\n{facts.st_ctime_ns}\n"
    kept = state / "tars" / f"{sha256(os.fsencode(name)).hexdigest()[:32]}.scan"
    content = read_sealed(kept, identity)
    if content is not None:
        return pd.read_parquet(BytesIO(content))
    members = list(scan_tar(tar))
    table = pd.DataFrame(
        {
            "image_id": [m.name.rpartition("/")[2].partition(".")[0] for m in members],
            "path": name,
            "offset": [m.offset for m in members],
            "size_bytes": [m.size_bytes for m in members],
        }
    )
    buffer = BytesIO()
    table.to_parquet(buffer, index=False)
    write_sealed(kept, buffer.getbuffer(), identity)
    return table
