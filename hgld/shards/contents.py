"""List the shards of a folder, read one sample by its key, and count samples by split."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.errors import InvalidData
from hgld.shards.files import FileReader
from hgld.shards.index import read_index, read_manifest
from hgld.shards.location import tar_folder
from hgld.shards.schema import numbered_levels
from hgld.storage import join_location
from hgld.words import nearest


@dataclass(frozen=True)
class Sample:
    """One sample: its row of the index, its JSON and its JPEG."""

    row: dict[str, Any]
    known: dict[str, Any]
    jpeg: bytes


def list_shards(folder: Path | str) -> pd.DataFrame:
    """One row per shard: file, split, samples, runs, bytes, sha256."""
    columns = ["file", "split", "samples", "runs", "bytes", "sha256"]
    return pd.DataFrame(read_manifest(folder)["shards"], columns=columns)


def read_sample(folder: Path | str, key: str) -> Sample:
    """Read the sample with a key, or with an image id that is in one split only.

    Raises:
        InvalidData: no sample matches (the nearest key is named), several match, or the bytes of
            its image were changed.
    """
    index = read_index(folder, columns=["key", "image_id", "shard"])
    found = index[index["key"] == key]
    found = index[index["image_id"] == key] if found.empty else found
    if found.empty:
        # Not all keys: a comparison with millions of them is slow.
        near = nearest(key, [*index["key"].head(10_000), *index["image_id"].head(10_000)])
        raise InvalidData(f"{folder}: no sample has the key or image id '{key}'{near}")
    if not found["key"].is_unique:
        shards = ", ".join(found["shard"])
        raise InvalidData(
            f"{folder}: the key '{found['key'].iloc[0]}' stands in several shards: {shards}; give "
            "read_image the row of read_index that you mean"
        )
    if len(found) > 1:
        keys = ", ".join(found["key"])
        raise InvalidData(f"{folder}: the image id '{key}' has several samples; give a key: {keys}")
    rows = read_index(folder, [found["shard"].iloc[0]])
    row: dict[str, Any] = rows[rows["key"] == found["key"].iloc[0]].iloc[0].to_dict()
    reader = FileReader(tar_folder(folder))
    jpeg = reader.read_image(row)
    size = row["json_size"]  # 0: shards of other programs may have no JSON
    text = reader.read(row["shard"], row["json_offset"], size) if size else b"{}"
    try:
        return Sample(row, json.loads(text), jpeg)
    except ValueError:
        raise InvalidData(
            f"{join_location(reader.folder, row['shard'])}: key {row['key']}: its JSON is not what "
            "the index states; run `hgld shards verify`"
        ) from None


def count_shards(folder: Path | str) -> dict[str, Any]:
    """Counts of each split: samples, shards, bytes, classes and their sizes, licences."""
    shards, levels = list_shards(folder), read_manifest(folder)["levels"]
    classes = numbered_levels(len(levels))
    counts = dict[str, Any]()
    for split, part in read_index(folder, columns=["split", "license", *classes]).groupby("split"):
        own, size = shards[shards["split"] == split], part.groupby(classes[-1]).size()
        counts[str(split)] = {
            "samples": len(part),
            "shards": len(own),
            "bytes": int(own["bytes"].sum()),
            "classes": dict(zip(levels, part[classes].nunique().tolist(), strict=True)),
            "images_of_a_class": {
                "least": int(size.min()),
                "median": float(size.median()),
                "most": int(size.max()),
            },
            "classes_below_4_images": int((size < 4).sum()),
            "licenses": {str(name): int(n) for name, n in part["license"].value_counts().items()},
        }
    return counts
