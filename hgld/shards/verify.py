"""Verify a folder of shards: every byte, and whether index and sidecars match the shards.

A shard is compared with its hash in the manifest. The index is then compared with the contents of
the tars, since a wrong row could be in index and manifest alike. The other sidecars are generated
again from the index and compared, and all files with SHA256SUMS.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from hgld.artifacts import engine, hash_file
from hgld.credit import CREDITS, UNKNOWN
from hgld.errors import InvalidData
from hgld.shards.files import FileReader
from hgld.shards.foreign import SampleRules, describe_tar, number_rows
from hgld.shards.index import local_copy, read_index, read_manifest
from hgld.shards.location import tar_folder
from hgld.shards.sample import level_keys
from hgld.shards.schema import HIERARCHY, RULES, index_columns, level_columns, wrong_index
from hgld.shards.sidecars import SIDECARS, checksums, write_credits, write_descriptors
from hgld.storage import RemoteFolder, as_folder, join_location
from hgld.tasks import track

# columns that can be read from the shard itself
FOUND = [name for name in index_columns(0) if name not in ("shard", "run")]
PLACE = ["split", "shard", "offset"]
REWRITE = "run export again"  # it writes only the damaged shards
RESTORE = "restore the shard, or run `hgld shards index` again if the change was intended"


def verify_shards(folder: Path | str) -> None:
    """Check that shards, index and sidecars match the manifest and each other.

    Raises:
        InvalidData: shards are missing, changed or of another size (each is named, with a key); a
            tar is not in the manifest; the index does not match manifest or tars; a sidecar is
            missing or differs, also at the URL of an export.
    """
    place = tar_folder(folder)
    manifest, index = read_manifest(folder), read_index(folder)
    tars = {s["file"] for s in manifest["shards"]}
    there = place.iterdir() if isinstance(place, Path) else map(Path, RemoteFolder(place).list())
    strange = {path.name for path in there if path.suffix == ".tar"} - tars
    if strange:
        raise InvalidData(
            f"{join_location(place, min(strange))}: a shard unknown to manifest.json; remove it"
        )
    exported = bool(manifest.get("options"))
    with local_copy(folder, RULES, HIERARCHY) as here:
        rules = None if exported else SampleRules.read(here)
    found, faults = list[pd.DataFrame](), list[str]()
    for shard in track(manifest["shards"], "Verifying shards"):
        rows = index[index["shard"] == shard["file"]]
        try:
            with local_copy(place, shard["file"]) as here:  # of a URL one shard at a time
                verify_shard(here, shard, rows, REWRITE if exported else RESTORE)
                known = rules or _rules_of(here / shard["file"], manifest["levels"], exported)
                found.append(_verify_rows(here, shard["file"], rows, known))
        except InvalidData as error:
            faults.append(str(error))
    if faults:
        raise InvalidData(*faults)
    others = [*SIDECARS, *(f"{split}.wids.json" for split in manifest["splits"])]
    with local_copy(folder, *others) as here:
        _verify_classes(here, index, pd.concat(found, ignore_index=True), exported)
        _verify_sidecars(here, manifest, index)
        if place != as_folder(folder):
            kept = [name for name in others if (here / name).is_file()]
            with local_copy(place, *kept) as beside:
                for name in kept:  # beside the tars, at a URL
                    copy = beside / name
                    if not copy.is_file() or hash_file(copy) != hash_file(here / name):
                        raise InvalidData(
                            f"{copy}: missing, or not the file of {here}; run export again"
                        )


def verify_shard(
    folder: Path, shard: Mapping[str, Any], rows: pd.DataFrame, advice: str = REWRITE
) -> None:
    """Check that a shard of a folder has the size, hash and number of samples of its manifest.

    Args:
        folder: of the shard.
        shard: its entry in the manifest.
        rows: its rows of the index.
        advice: what to do about a shard that is missing or another.

    Raises:
        InvalidData: it is missing or another; names the key that is damaged.
    """
    path = folder / shard["file"]
    if not path.is_file():
        raise InvalidData(f"{path}: the shard is missing; {advice}")
    size = path.stat().st_size
    if size != shard["bytes"]:
        cut = rows[rows["offset"] + rows["size_bytes"] > size]
        first = f"; the first key cut off is {cut['key'].iloc[0]}" if len(cut) else ""
        raise InvalidData(f"{path}: {size} bytes; expected {shard['bytes']}{first}; {advice}")
    if hash_file(path) != shard["sha256"]:
        fault = "the end of the archive was changed; its samples are undamaged"
        reader = FileReader(folder)
        for row in rows.to_dict("records"):
            if reader.crc32(row["shard"], row["extent_start"], row["extent_bytes"]) != row["crc32"]:
                image = reader.read(row["shard"], row["offset"], row["size_bytes"])
                harmed = sha256(image).hexdigest() != row["sha256"]
                what = "the image" if harmed else "a header, the JSON or the class"
                fault = f"{what} of key {row['key']} was changed"
                break
        raise InvalidData(f"{path}: {fault}; {advice}")
    if len(rows) != shard["samples"]:
        fault = f"{len(rows)} samples in index.parquet, {shard['samples']} in manifest.json"
        raise wrong_index(path, fault)


def _rules_of(tar: Path, levels: Sequence[str], exported: bool) -> SampleRules:
    """The default rules, with the JSON keys of a sample's classes; none for the .cls member."""
    if exported:
        return SampleRules((*(f"{key}_id" for key in level_keys(levels[:-1])), "label"))
    if list(levels) == ["class"]:  # the word for the .cls member, and maybe a key
        with suppress(InvalidData):
            next(describe_tar(tar, SampleRules()), None)
            return SampleRules()
    return SampleRules(tuple(levels))


def _verify_rows(folder: Path, file: str, rows: pd.DataFrame, rules: SampleRules) -> pd.DataFrame:
    """Compare the index rows of a shard with its contents; return the class paths found."""
    labelled = (row for row in describe_tar(folder / file, rules) if row["path"])
    found = pd.DataFrame(labelled, columns=[*FOUND, "shard", "path"])
    if len(found) != len(rows):
        fault = f"{len(found)} samples, but {len(rows)} in index.parquet"
        raise wrong_index(folder / file, fault)
    for name in FOUND:
        if name in rows:  # the index of another program may lack the images' checksums
            # describe_tar reports missing credits as unknown.
            said = rows[name].replace("", UNKNOWN) if name in CREDITS else rows[name]
            _require_same(folder, rows, name, said, found[name])
    return found[[*PLACE, "path"]]


def _verify_classes(folder: Path, index: pd.DataFrame, found: pd.DataFrame, exported: bool) -> None:
    """Compare the class numbers of the index with the names or numbers of classes in the tars.

    Args:
        folder: of the shards.
        index: in the order of the shards in the manifest.
        found: split, shard, offset and class path of each sample, in the same order.
        exported: whether the paths consist of the class numbers themselves.
    """
    levels = level_columns(index)
    rows = index.sort_values(PLACE, ignore_index=True)
    if exported:
        found = found.sort_values(PLACE, ignore_index=True)
        paths = found["path"].map(lambda path: tuple(json.loads(path).values()))
        found = found.assign(**{name: [path[i] for path in paths] for i, name in enumerate(levels)})
        # The paths in the shards are text.
        rows = rows.astype(dict.fromkeys(levels, "str"))
    else:
        found, levels = number_rows(found, levels)[0], [*levels, "run"]
    for name in levels:
        _require_same(folder, rows, name, rows[name], found[name])


def _verify_sidecars(folder: Path, manifest: dict[str, Any], index: pd.DataFrame) -> None:
    """Compare the other sidecars with ones generated from the index, and all with SHA256SUMS."""
    with TemporaryDirectory() as name:
        made = Path(name)
        with engine(made / "tables", None) as tables:
            write_credits(folder / "index.parquet", made, tables)
        write_descriptors(made, manifest["shards"])
        for file in sorted(path for path in made.iterdir() if path.is_file()):
            if not (folder / file.name).is_file():
                raise wrong_index(folder / file.name, "is missing")
            if (folder / file.name).read_bytes() != file.read_bytes():
                raise wrong_index(folder / file.name, "says something else than index.parquet")
    sums = checksums(folder, manifest["shards"])
    try:
        text = (folder / "SHA256SUMS").read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise wrong_index(folder / "SHA256SUMS", "cannot be read") from None
    lines = dict(line.split("  ", 1)[::-1] for line in text.splitlines() if "  " in line)
    for listed in sorted(sums.keys() | lines.keys()):
        if lines.get(listed) != sums.get(listed):
            raise wrong_index(folder / listed, "is not the file that SHA256SUMS lists")


def _require_same(
    folder: Path,
    rows: pd.DataFrame,
    name: str,
    said: "pd.Series[Any]",
    found: "pd.Series[Any]",
) -> None:
    by_index, by_tar = said.to_numpy(object), found.to_numpy(object)
    wrong = by_index != by_tar
    if wrong.any():
        row = int(wrong.argmax())
        fault = f"{name} is {by_tar[row]!r} in the shard, but {by_index[row]!r} in index.parquet"
        path, key = folder / rows["shard"].iloc[row], rows["key"].iloc[row]
        raise wrong_index(path, f"key {key}: {fault}")
