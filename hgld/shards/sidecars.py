"""Write the files beside the shards: index, manifest, attribution, and descriptors for other tools.

The index locates samples, the manifest verifies a copy, and the attribution gives credit. The
manifest is written after the files that it describes and contains the hash of the index, so a
folder with a manifest is complete.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from webdataset.shardlists import expand_urls

from hgld.artifacts import Json, atomic_path, hash_file, write_csv
from hgld.artifacts.cells import guard_formulas
from hgld.shards.classes import Classes

__all__ = [
    "SIDECARS",
    "brace_string",
    "checksums",
    "write_checksums",
    "write_credits",
    "write_descriptors",
    "write_sidecars",
    "write_texts",
]

SIDECARS = (
    "SHA256SUMS",
    "attribution.csv",
    "classes.csv",
    "index.parquet",
    "manifest.json",
    "sizes.json",  # open_clip: samples of each tar
    "__len__",  # open_clip: samples of all
)
ROWS = 1 << 18  # rows of a table that are converted to text at a time
ATTRIBUTION = ["split", "image_id", "title", "author", "license", "url"]


def write_sidecars(
    out: Path,
    rows: pd.DataFrame,
    shards: Sequence[Mapping[str, Any]],
    classes: Classes,
    *,
    options: Mapping[str, Any],
    labels_sha256: str,
) -> None:
    """Write all sidecars of a finished set of shards.

    Args:
        out: the folder of shards.
        rows: the index, sorted.
        shards: file, split, sha256, bytes, samples and runs of each shard.
        classes: the classes of all levels.
        options: those that decide the shards.
        labels_sha256: hash of the hierarchy.
    """
    with atomic_path(out / "index.parquet") as temporary:
        rows.to_parquet(temporary, index=False, compression="zstd")
    with atomic_path(out / "classes.csv") as temporary:
        write_csv(guard_formulas(classes.table), temporary)
    write_credits(rows, out)
    write_descriptors(out, shards)
    manifest = {
        "levels": list(classes.levels),
        "splits": _count_splits(rows, len(classes.levels)),
        "shards": [dict(shard) for shard in shards],
        "options": dict(options),
        "labels_sha256": labels_sha256,
        "index_sha256": hash_file(out / "index.parquet"),
    }
    Json("manifest.json").write(manifest, out / "manifest.json")
    # Last, since SHA256SUMS covers the manifest, too.
    write_checksums(out, shards)


def write_credits(rows: pd.DataFrame, out: Path) -> None:
    """Write attribution.csv: author and licence of each image in the index."""
    with atomic_path(out / "attribution.csv") as temporary:
        credit = guard_formulas(rows[ATTRIBUTION])  # authors and titles come from strangers
        write_texts(credit.sort_values(["split", "image_id"]), temporary)


def brace_string(files: Sequence[str]) -> str:
    """Return the shard list of one split; webdataset expands it to exactly these files.

    Example:
        >>> brace_string(["train-000000.tar", "train-000001.tar", "train-000002.tar"])
        'train-{000000..000002}.tar'
        >>> brace_string(["test-000000.tar"])
        'test-000000.tar'
        >>> brace_string(["photos-0.tar", "photos-2.tar"])
        'photos-0.tar::photos-2.tar'
    """
    files = sorted(files)
    split, _, first = files[0].removesuffix(".tar").rpartition("-")
    last = files[-1].removesuffix(".tar").rpartition("-")[2]
    brace = f"{split}-{{{first}..{last}}}.tar"
    whole = len(files) > 1 and expand_urls(brace) == files  # not if a number is missing
    return brace if whole else "::".join(files)


def write_descriptors(out: Path, shards: Sequence[Mapping[str, Any]]) -> None:
    """Write what open_clip (sizes.json, __len__) and wids (SPLIT.wids.json) read."""
    samples = {str(shard["file"]): int(shard["samples"]) for shard in shards}
    Json("sizes.json").write(samples, out / "sizes.json")
    with atomic_path(out / "__len__") as temporary:
        temporary.write_text(str(sum(samples.values())))
    for split in {str(shard["split"]) for shard in shards}:
        parts = [
            {"url": str(s["file"]), "nsamples": int(s["samples"])}
            for s in shards
            if s["split"] == split
        ]
        document = {"wids_version": 1, "name": split, "shardlist": parts}
        Json("wids").write(document, out / f"{split}.wids.json")


def write_checksums(out: Path, shards: Sequence[Mapping[str, Any]]) -> None:
    """Write SHA256SUMS for `sha256sum --check`: the shards and all other sidecars."""
    sums = checksums(out, shards)
    with atomic_path(out / "SHA256SUMS") as temporary:
        temporary.write_text("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))


def checksums(out: Path, shards: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """SHA-256 of each shard, from the manifest, and of each other sidecar, from its file."""
    sums = {str(shard["file"]): str(shard["sha256"]) for shard in shards}
    others = [*out.glob("*.wids.json"), *(out / name for name in SIDECARS)]
    sums |= {p.name: hash_file(p) for p in others if p.is_file() and p.name != "SHA256SUMS"}
    return sums


def write_texts(table: pd.DataFrame, path: Path) -> None:
    """Write the same bytes as ``write_csv`` for columns of text, in a quarter of the time."""
    with path.open("wb") as file:
        file.write(",".join(table.columns).encode() + b"\n")
        for first in range(0, len(table), ROWS):
            part = table.iloc[first : first + ROWS]
            cells = [_quote(_as_texts(part[name])) for name in part]
            cells[-1] = pc.binary_join_element_wise(cells[-1], "\n", "")
            lines = pc.binary_join_element_wise(*cells, ",")
            file.write(lines.buffers()[2])  # the texts of an array are contiguous


def _as_texts(column: "pd.Series[Any]") -> pa.Array:
    cells = pa.array(column, pa.string())
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def _quote(cells: pa.Array) -> pa.Array:
    special = pc.match_substring_regex(cells, '[,"\r\n]')
    if not pc.any(special).as_py():
        return cells
    doubled = pc.replace_substring(cells, '"', '""')
    return pc.if_else(special, pc.binary_join_element_wise('"', doubled, '"', ""), cells)


def _count_splits(rows: pd.DataFrame, levels: int) -> dict[str, dict[str, Any]]:
    return {
        str(split): {
            "samples": len(part),
            "classes": int(part[f"level_{levels}"].nunique()),
            "classes_per_level": [int(part[f"level_{i + 1}"].nunique()) for i in range(levels)],
            "shards": int(part["shard"].nunique()),
            "brace": brace_string([str(name) for name in part["shard"].unique()]),
        }
        for split, part in rows.groupby("split", sort=True)
    }
