"""Makes an index of any WebDataset, so that exact batches can be drawn from it too.

A sample is what shares a name up to its first dot. Its class comes from the ``.cls`` member, or
from named keys of its JSON, coarse to fine. The tars stay as they are; only sidecars are written.
"""

import io
import json
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
from PIL import Image

from hgld.artifacts import hash_file
from hgld.errors import InvalidData, UsageError
from hgld.shards.classes import Classes, number_classes
from hgld.shards.files import FileReader, local_folder
from hgld.shards.index import is_export
from hgld.shards.scan import Member, scan_tar
from hgld.shards.sidecars import write_sidecars
from hgld.tasks import track

__all__ = ["index_shards"]

IMAGES = ("jpg", "jpeg", "png", "webp")
PACKED = re.compile(r".*\.(tgz|tbz2?|txz|tar\.(gz|bz2|xz|zst|lz4|Z))")


def index_shards(
    folder: Path | str, levels: Sequence[str] = (), *, replace_export: bool = False
) -> pd.DataFrame:
    """Index all tars of a folder and write the sidecars beside them.

    Args:
        folder: holds SPLIT-NUMBER.tar files (a tar of another name is a split of its own).
        levels: keys of the JSON that hold the classes, coarse to fine; none: the ``.cls`` member.
        replace_export: index even shards that ``export_shards`` wrote, whose own index says more.

    Returns:
        The index, as ``read_index`` gives it.

    Raises:
        InvalidData: a sample without image or class, with members apart, or a key used twice in a
            shard; no sample at all; compressed shards; the shards are those of an export.
        UsageError: a level stands twice.
    """
    folder = local_folder(folder)
    twice = [level for level in levels if list(levels).count(level) > 1]
    if twice:
        raise UsageError(f"the level '{twice[0]}' stands twice; give each JSON key once")
    tars = _find_tars(folder)
    if not replace_export and is_export(folder):
        raise InvalidData(
            f"{folder}: hgld export wrote these shards and their index, which says more than "
            "another could; give --force to replace it"
        )
    reader = FileReader(folder)
    watched = track(tars, "Indexing shards", len(tars))
    rows = [row for tar in watched for row in _index_tar(tar, reader, levels)]
    reader.close()
    if not rows:
        raise InvalidData(f"{folder}: its tars hold no sample; expected images with their classes")
    index, classes = _number(pd.DataFrame(rows), tuple(levels) or ("class",))
    facts = [_describe_shard(tar, index[index["shard"] == tar.name]) for tar in tars]
    labels = sha256(classes.table.to_csv(index=False).encode()).hexdigest()
    write_sidecars(folder, index, facts, classes, options={}, labels_sha256=labels)
    return index


def _find_tars(folder: Path) -> list[Path]:
    packed = sorted(path.name for path in folder.glob("*") if PACKED.fullmatch(path.name))
    if packed:
        raise InvalidData(
            f"{folder / packed[0]}: is compressed ({len(packed)} such files), so its samples have "
            "no place; unpack it to a .tar, or move it away"
        )
    tars = sorted(folder.glob("*.tar"))
    if not tars:
        raise InvalidData(f"{folder}: holds no tar file; expected shards of a WebDataset")
    return tars


def _index_tar(tar: Path, reader: FileReader, levels: Sequence[str]) -> Iterator[dict[str, Any]]:
    split = re.sub(r"[-_]?\d*$", "", tar.stem) or tar.stem
    seen: set[str] = set()
    samples = list(_group(tar))
    ends = [*(members[0].start for _, members in samples[1:]), -1][: len(samples)]
    for (key, members), end in zip(samples, ends, strict=True):
        if key in seen:
            raise InvalidData(f"{tar}: key {key}: its members stand apart, or twice")
        seen.add(key)
        last = members[-1]
        stop = end if end >= 0 else last.offset + last.size_bytes + -last.size_bytes % 512
        yield _describe_sample(tar, split, key, members, stop, reader, levels)


def _group(tar: Path) -> Iterator[tuple[str, list[Member]]]:
    """Neighbours that share a key."""
    key, members = "", list[Member]()
    for member in scan_tar(tar):
        folder, slash, file = member.name.rpartition("/")
        own = folder + slash + file.partition(".")[0]
        if own != key and members:
            yield key, members
            members = []
        key = own
        members.append(member)
    if members:
        yield key, members


def _describe_sample(
    tar: Path,
    split: str,
    key: str,
    members: Sequence[Member],
    stop: int,
    reader: FileReader,
    levels: Sequence[str],
) -> dict[str, Any]:
    name = f"{tar}: key {key}"
    by_suffix = {m.name.rpartition("/")[2].partition(".")[2].lower(): m for m in members}
    if len(by_suffix) < len(members):
        raise InvalidData(f"{name}: a member stands twice; give each sample a key of its own")
    image = next((by_suffix[s] for s in IMAGES if s in by_suffix), None)
    if image is None:
        raise InvalidData(f"{name}: no image ({', '.join(IMAGES)})")
    text, label = by_suffix.get("json"), by_suffix.get("cls")
    known = _parse(reader.read(tar.name, text.offset, text.size_bytes), name) if text else {}
    if levels:
        path = [known.get(level) for level in levels]
    else:
        found = reader.read(tar.name, label.offset, label.size_bytes) if label else None
        path = [None if found is None else found.decode("utf-8", "replace").strip()]
    if any(value is None or not str(value).strip() for value in path):
        wanted = f"the JSON keys {', '.join(levels)}" if levels else "a .cls member"
        raise InvalidData(f"{name}: no class; expected {wanted}, not empty")
    start = members[0].start
    whole = reader.read(tar.name, start, stop - start)
    data = whole[image.offset - start : image.offset - start + image.size_bytes]
    width, height = _size_of(data, name)
    credit = {name: str(known.get(name) or "unknown") for name in ("author", "license", "title")}
    return {
        "key": key,
        "image_id": str(known.get("image_id") or key),
        "split": split,
        "landmark_id": _whole_number(known.get("landmark_id")),
        "shard": tar.name,
        "offset": image.offset,
        "size_bytes": image.size_bytes,
        "json_offset": text.offset if text else -1,
        "json_size": text.size_bytes if text else 0,
        "sha256": sha256(data).hexdigest(),
        "width": width,
        "height": height,
        **credit,
        "url": str(known.get("source_url") or known.get("url") or "unknown"),
        "extent_start": start,
        "extent_bytes": len(whole),
        "crc32": crc32(whole),
        "path": json.dumps(dict(zip(levels or ("class",), map(str, path), strict=True))),
    }


def _parse(text: bytes, name: str) -> dict[str, Any]:
    try:
        known = json.loads(text)
    except ValueError:
        raise InvalidData(f"{name}: its JSON cannot be read") from None
    if not isinstance(known, dict):
        raise InvalidData(f"{name}: its JSON is no object with keys")
    return known


def _whole_number(value: object) -> int:
    """GLDv2's number of a landmark, -1 where the JSON says something else."""
    return int(value) if isinstance(value, int | str) and str(value).isdecimal() else -1


def _size_of(data: bytes, name: str) -> tuple[int, int]:
    try:
        with Image.open(io.BytesIO(data)) as image:
            return image.size
    except OSError:
        raise InvalidData(f"{name}: its image is of no known format") from None


def _number(rows: pd.DataFrame, levels: tuple[str, ...]) -> tuple[pd.DataFrame, Classes]:
    """Give classes and runs their numbers; a run is a stretch of one class in a shard."""
    paths = pd.DataFrame({"path": sorted(rows["path"].unique())})
    classes = number_classes(paths.assign(split="", landmark_id=np.arange(len(paths))))
    numbers = [f"level_{i + 1}" for i in range(len(levels))]
    table = classes.landmarks.assign(path=paths["path"])[["path", *numbers]]
    rows = rows.merge(table, on="path", how="left", validate="many_to_one").drop(columns="path")
    rows = rows.sort_values(["split", "shard", "offset"], ignore_index=True)
    place = rows[["split", "shard", numbers[-1]]]
    starts = (place != place.shift()).any(axis=1)
    run = starts.groupby(rows["split"]).cumsum() - 1
    at = list(rows.columns).index("json_size") + 1
    rows.insert(at, "run", run.astype("int64"))
    return rows, classes


def _describe_shard(tar: Path, rows: pd.DataFrame) -> dict[str, Any]:
    return {
        "file": tar.name,
        "split": str(rows["split"].iloc[0]) if len(rows) else tar.stem,
        "sha256": hash_file(tar),
        "bytes": tar.stat().st_size,
        "samples": len(rows),
        "runs": int(rows["run"].nunique()),
    }
