"""Index any WebDataset, so that exact batches can be drawn from it, too.

A sample is the set of members that share a name up to its first dot, or up to its last one if asked
for. Its class is read from the ``.cls`` member, or from named keys of its JSON, coarse to fine; a
table may put the levels above it. The tars are not changed; only sidecars are written.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from hashlib import sha256
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unicodedata import normalize
from zlib import crc32

import numpy as np
import pandas as pd

from hgld.artifacts import (
    Json,
    hash_file,
    read_csv,
    read_header,
    row_in_file,
    write_csv,
    write_file,
)
from hgld.credit import CREDITS, UNKNOWN
from hgld.errors import HgldError, InvalidData, UsageError
from hgld.images import Undecodable, read_size
from hgld.shards.classes import Classes, number_classes
from hgld.shards.files import FileReader
from hgld.shards.index import is_export, read_manifest
from hgld.shards.schema import (
    CLASS,
    HIERARCHY,
    IMAGE_CRC32,
    INDEX_AGAIN,
    MOST_IMAGE,
    MOST_TEXT,
    RULES,
    index_columns,
    is_shard_name,
    numbered_levels,
)
from hgld.shards.sidecars import DROPPED, write_sidecars
from hgld.shards.tar import BLOCK, IN_SAMPLE, Member, padding, scan_tar
from hgld.storage import as_folder
from hgld.tasks import say, track
from hgld.words import count_text, describe_twins, some_of

IMAGES = ("jpg", "jpeg", "png", "webp")  # suffixes of members, the first one found counts
PACKED = re.compile(r".*\.(tgz|tbz2?|txz|tar\.(gz|bz2|xz|zst|lz4|z))", re.IGNORECASE)
# would break a name over lines; U+FFFD is the decoder's mark for bytes that are not UTF-8
CONTROL = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029\ufffd]")


@dataclass(frozen=True)
class SampleRules:
    """Rules that find samples and their classes in the tars.

    Attributes:
        levels: keys of the JSON, coarse to fine; none: the ``.cls`` member.
        last_dot: a sample's name ends at its last dot.
        skip_unlabelled: a sample without a class has the path "".
        skip_damaged: likewise one whose image cannot be decoded.
        hierarchy: class -> its path as JSON; empty: the class is the path. With one, a sample
            whose JSON lacks the key, or has it empty, has the class of its ``.cls`` member.
    """

    levels: tuple[str, ...] = ()
    last_dot: bool = False
    skip_unlabelled: bool = False
    skip_damaged: bool = False
    hierarchy: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the levels in the index, coarse to fine."""
        if self.hierarchy:
            return (*json.loads(next(iter(self.hierarchy.values()))),)
        return self.levels or (CLASS,)

    @property
    def wanted(self) -> str:
        """Describe the parts of a sample that state its class, for error messages."""
        if self.levels:
            member = ", or a .cls member" if self.hierarchy else ""
            return f"the JSON keys {', '.join(self.levels)}{member}, not empty"
        return "a .cls member that is not empty, or keys of the JSON (--level)"

    def split(self, name: str) -> tuple[str, str]:
        """Return the key of the sample that a member belongs to, and the member's suffix.

        Example:
            >>> SampleRules().split("v1.2/cat.1.jpg"), SampleRules(last_dot=True).split("cat.1.jpg")
            (('v1.2/cat', '1.jpg'), ('cat.1', 'jpg'))
        """
        folder, slash, file = name.rpartition("/")
        if self.last_dot and "." in file:
            stem, _, suffix = file.rpartition(".")
        else:
            stem, _, suffix = file.partition(".")
        return folder + slash + stem, suffix

    def write(self, folder: Path) -> None:
        """Write the rules beside the tars, if they are not the default ones."""
        if self == SampleRules(self.levels):
            (folder / RULES).unlink(missing_ok=True)
        else:
            facts = {**vars(self), "hierarchy": bool(self.hierarchy)}
            Json(RULES).write(facts, folder / RULES)

    @classmethod
    def read(cls, folder: Path) -> "SampleRules | None":
        """Return the rules that a folder was indexed by; None for the default ones.

        Raises:
            InvalidData: the file of the rules, or of the hierarchy, was changed.
        """
        if not (folder / RULES).is_file():
            return None
        facts: dict[str, Any] = Json(RULES).read(folder / RULES)
        try:
            given = {one.name: facts[one.name] for one in fields(cls)}
            given["levels"] = (*given["levels"],)
        except (KeyError, TypeError):
            raise InvalidData(f"{folder / RULES}: no rules of an index; {INDEX_AGAIN}") from None
        given["hierarchy"] = read_hierarchy(folder / HIERARCHY) if given["hierarchy"] else {}
        return cls(**given)


def read_hierarchy(path: Path) -> dict[str, str]:
    """Return class -> its path as JSON, of a CSV with ``class`` and a column for each level.

    Raises:
        InvalidData: the CSV lacks the class or a level, has a class twice or an empty cell, or two
            classes have the same path.
    """
    header = read_header(path, (CLASS, "a column for each level"))
    levels = [name for name in header if name != CLASS]
    # An empty file has no levels, and cannot be read as a table.
    table = read_csv(path, dict.fromkeys((CLASS, *levels), "text")) if levels else pd.DataFrame()
    if table.empty:
        raise InvalidData(f"{path}: expected the column class, one column for each level, coarse "
                          "to fine, and a row for each class")  # fmt: skip
    table = table.map(_plain)  # as a class in the tars
    empty = (table == "").any(axis=1)
    if empty.any():
        row = int(empty.to_numpy().argmax())
        column = (table.iloc[row] == "").idxmax()
        raise InvalidData(f"{path} row {row_in_file(path, row)}: a cell is empty ({column}); name "
                          "each class at each level")  # fmt: skip
    for columns, what, advice in (
        ([CLASS], "the class", "give each class one row"),
        (levels, "the path of the class", "the last level must tell the classes apart"),
    ):
        twice = table[table[columns].duplicated()]
        if len(twice):
            raise InvalidData(
                f"{path} row {row_in_file(path, twice.index[0])}: {what} "
                f"'{twice.iloc[0][CLASS]}' is there twice; {advice}"
            )
    rows = table[levels].to_dict("records")
    return dict(zip(table[CLASS], map(json.dumps, rows), strict=True))


def index_shards(
    folder: Path | str,
    levels: Sequence[str] = (),
    *,
    hierarchy: Path | str | None = None,
    skip_unlabelled: bool = False,
    skip_damaged: bool = False,
    last_dot: bool = False,
    replace_export: bool = False,
) -> pd.DataFrame:
    """Index all tars of a folder and write the sidecars beside them.

    Args:
        folder: holds SPLIT-NUMBER.tar or SPLIT-NUMBER-of-COUNT.tar files, or such with "_"; of
            NUMBER.tar the split is train, and a tar with another name is its own split.
        levels: keys of the JSON that hold the classes, coarse to fine; none: the ``.cls`` member.
        hierarchy: a CSV with the column ``class``, as in the tars, and a column for each level,
            coarse to fine; the last one tells the classes apart. A copy is kept beside the tars.
            A sample whose JSON lacks the level, or has it empty, has the class of its ``.cls``
            member.
        skip_unlabelled: leave samples without a class out, and list them in ``index_dropped.csv``.
        skip_damaged: likewise samples whose images cannot be decoded, by their headers.
        last_dot: the name of a sample ends at its last dot, not at the first one.
        replace_export: also replace the index that ``export_shards`` wrote, which has more facts.

    Returns:
        The index, as ``read_index`` returns it.

    Raises:
        InvalidData: a sample has no class or no decodable image, its members are not adjacent, or
            its key is used twice in a shard; the tars hold no sample, or none with a class; the
            shards are compressed, or those of an export.
        UsageError: a level is given twice, several with a hierarchy, or the folder is a URL.
    """
    folder = as_folder(folder)
    if isinstance(folder, str):
        raise UsageError(
            f"{folder}: a URL; index the tars in a folder on this machine, and copy the files that "
            "the index adds beside the tars at the URL: readers then take it"
        )
    twice = [level for level in levels if list(levels).count(level) > 1]
    if twice:
        raise UsageError(f"the level '{twice[0]}' stands twice; give each JSON key once")
    tars = _find_tars(folder)
    if not replace_export and is_export(folder):
        raise InvalidData(
            f"{folder}: hgld export wrote these shards and their index, which says more than "
            "another could; give --force to replace it"
        )
    if hierarchy is not None and len(levels) > 1:
        raise UsageError("a hierarchy takes one class of a sample; give one level, or none")
    given = None if hierarchy is None else Path(hierarchy)
    paths = read_hierarchy(given) if given else {}
    rules = SampleRules((*levels,), last_dot, skip_unlabelled, skip_damaged, paths)
    watched = track(tars, "Indexing shards", len(tars))
    rows = [row for tar in watched for row in describe_tar(tar, rules)]
    labelled = [row for row in rows if row["path"]]
    if not rows:
        raise InvalidData(f"{folder}: its tars hold no sample; expected images with their classes")
    if not labelled:
        has = "a class and a decodable image" if skip_damaged else "a class"
        raise InvalidData(f"{folder}: none of {count_text(len(rows), 'sample')} has {has}; "
                          f"expected {rules.wanted}")  # fmt: skip
    index, classes = number_rows(pd.DataFrame(labelled), rules.names)
    index = index[index_columns(len(classes.levels))]
    parts = {str(name): rows for name, rows in index.groupby("shard")}
    shards: list[tuple[pd.DataFrame, dict[str, Any]]] = []
    for tar in tars:
        own = parts.get(tar.name, index[:0])
        fact = {
            "file": tar.name,
            "split": _split_of(tar),
            "sha256": hash_file(tar),
            "bytes": tar.stat().st_size,
            "samples": len(own),
            "runs": int(own["run"].nunique()),
        }
        shards.append((own, fact))
    shards.sort(key=lambda shard: (shard[1]["split"], shard[1]["file"]))  # as the index
    _report_keys_in_several(index)
    by_level = classes.table.groupby("level")["name"]
    for level, (_, names) in zip(classes.levels, by_level, strict=True):
        if twins := describe_twins(dict.fromkeys(names, "")):
            say(f"{level} {twins}")
    _report_fine_to_coarse(classes)
    _report_odd_ends(tars, rows)
    labels = sha256(classes.table.to_csv(index=False).encode()).hexdigest()
    dropped = [row for row in rows if not row["path"]]
    _replace_rules(folder, rules, given, dropped)
    with TemporaryDirectory() as name:
        spill = Path(name)
        write_sidecars(folder, shards, classes, options={}, labels_sha256=labels, spill=spill)
    return index


def _report_keys_in_several(index: pd.DataFrame) -> None:
    """Report keys that several shards use: copies of an image may be on both sides of a split."""
    again = index[index["key"].duplicated(keep=False)]
    if again.empty:
        return
    first = again[again["key"] == again["key"].iloc[0]]
    what = "one image" if first["sha256"].nunique() == 1 else "different images"
    say(f"{count_text(again['key'].nunique(), 'key')} in several shards, first "
        f"{first['key'].iloc[0]} in {some_of([*first['shard']], 3)} ({what}); leave out the rows "
        "that are copies")  # fmt: skip


def _report_fine_to_coarse(classes: Classes) -> None:
    """Report levels whose order seems reversed: each upper class has one lower class.

    Classes are told apart by their paths, so the order of levels is never an error.
    """
    for number, (upper, lower) in enumerate(pairwise(classes.levels), start=1):
        names = [f"name_{number}", f"name_{number + 1}"]
        pairs = classes.landmarks[names].drop_duplicates()
        again = pairs[names[1]][pairs[names[1]].duplicated()]
        if len(again) and pairs[names[0]].is_unique:
            say(f"the levels seem to run fine to coarse: each {upper} has one {lower}, but {lower} "
                f"'{again.iloc[0]}' is below several; give them coarse to fine")  # fmt: skip


def _report_odd_ends(tars: Sequence[Path], rows: Sequence[Mapping[str, Any]]) -> None:
    """Report tars that end with their last sample, or go on behind their end mark."""
    ends = {row["shard"]: row["extent_start"] + row["extent_bytes"] for row in rows}
    cut = [tar.name for tar in tars if tar.stat().st_size <= ends.get(tar.name, -1)]
    if cut:
        say(f"{count_text(len(cut), 'tar')} without an end mark: {some_of(cut, 3)}; compare with "
            "the source, as samples are missing if it was cut short")  # fmt: skip
    more = [tar.name for tar in tars if tar.name in ends and _goes_on(tar, ends[tar.name])]
    if more:
        say(f"{count_text(len(more), 'tar')} with more behind the end mark, where all readers "
            f"stop: {some_of(more, 3)}; split tars that were joined")  # fmt: skip


def _goes_on(tar: Path, end: int) -> bool:
    """Whether anything follows the end mark behind the last sample."""
    with tar.open("rb") as file:
        file.seek(end)
        if file.read(BLOCK).strip(b"\0"):  # a member that is none of a sample
            return False
        return any(part.strip(b"\0") for part in iter(partial(file.read, 1 << 20), b""))


def _replace_rules(
    folder: Path, rules: SampleRules, hierarchy: Path | None, dropped: Sequence[Mapping[str, Any]]
) -> None:
    """Write the rules of a new index, and delete files of the index before that are not replaced.

    The manifest, which names them, goes before new rules are written, so that these are never taken
    for those of the old index.
    """
    with suppress(HgldError):  # there is none, or it is damaged
        for split in read_manifest(folder)["splits"]:
            (folder / f"{split}.wids.json").unlink(missing_ok=True)
    (folder / "manifest.json").unlink(missing_ok=True)
    rules.write(folder)
    if hierarchy is None:
        (folder / HIERARCHY).unlink(missing_ok=True)
    elif hierarchy.resolve() != (folder / HIERARCHY).resolve():
        write_file(folder / HIERARCHY, hierarchy.read_bytes())
    if not (rules.skip_unlabelled or rules.skip_damaged):
        (folder / DROPPED).unlink(missing_ok=True)
        return
    table = pd.DataFrame(dropped, columns=["shard", "key", "reason"])
    write_csv(table, folder / DROPPED)
    for reason, rows in table.groupby("reason", sort=False):
        say(f"{count_text(len(rows), 'sample')} left out, {reason}, first {rows['key'].iloc[0]}; "
            f"{DROPPED} lists them")  # fmt: skip


def _find_tars(folder: Path) -> list[Path]:
    if not folder.is_dir():
        what = "a file" if folder.is_file() else "no such folder"
        raise InvalidData(f"{folder}: {what}; give the folder that holds the tars")
    names = sorted(path.name for path in folder.iterdir())
    packed = [name for name in names if PACKED.fullmatch(name)]
    if packed:
        raise InvalidData(
            f"{folder / packed[0]}: is compressed ({len(packed)} such files), so its samples have "
            "no place; unpack it to a .tar, or move it away"
        )
    for name in names:  # it would be passed over, and readers look for shards by their ending
        if name.lower().endswith(".tar") and not name.endswith(".tar"):
            raise InvalidData(f"{folder / name}: its ending is not in small letters; rename it to "
                              f"{name[:-4]}.tar")  # fmt: skip
    tars = [folder / name for name in names if name.endswith(".tar")]
    for tar in tars:
        if not tar.is_file():
            raise InvalidData(f"{tar}: not a regular file; move it away")
        if not is_shard_name(tar.name):
            raise InvalidData(f"{folder}: the name {tar.name!r} is not UTF-8 or has control "
                              "characters; rename the tar")  # fmt: skip
    if not tars:
        below = sorted({tar.parent.name for tar in folder.glob("*/*.tar")})
        more = f"; its folders {some_of(below, 3)} do: index each" if below else ""
        raise InvalidData(f"{folder}: holds no tar file; expected shards of a WebDataset{more}")
    return tars


def describe_tar(tar: Path, rules: SampleRules) -> Iterator[dict[str, Any]]:
    """Yield the index columns of each sample of a tar, and the path of its class.

    Of a sample that is left out, whose path is "", there are shard, key, extent and reason.
    """
    found = list[tuple[str, Member]]()
    for member in scan_tar(tar, end_mark=False):  # webdataset's own readers do not require it
        if CONTROL.search(member.name):
            raise InvalidData(
                f"{tar}: byte {member.start}: the member's name {member.name[:100]!r} is not UTF-8 "
                "or has control characters; pack the tar with other names"
            )
        key, suffix = rules.split(member.name)
        if suffix and IN_SAMPLE.fullmatch(member.name):
            found.append((key, member))
    samples = [(key, [member for _, member in own]) for key, own in groupby(found, itemgetter(0))]
    reader = FileReader(tar.parent)
    # Before a part of one is read, which has no image or no class.
    times = Counter(key for key, _ in samples)
    if twice := next((key for key in times if times[key] > 1), None):
        raise InvalidData(f"{tar}: key {twice}: its members stand apart, or twice; pack the tar "
                          "with the members of a sample together (tar --sort=name)")  # fmt: skip
    for number, (key, members) in enumerate(samples, start=1):
        # A sample's extent ends at the next sample's first header, else at its own last member.
        last = members[-1]
        stop = last.offset + last.size_bytes + padding(last.size_bytes)
        if number < len(samples):
            stop = samples[number][1][0].start
        yield _describe_sample(tar, key, members, stop, reader, rules)


def _split_of(tar: Path) -> str:
    """Split of a tar: its name without the number at the end; "train" if nothing is left.

    Example:
        >>> [_split_of(Path(name)) for name in ("val-003-of-128.tar", "00017.tar", "all.tar")]
        ['val', 'train', 'all']
    """
    return re.sub(r"[-_]?\d*(\d([-_])of\2\d+)?$", "", tar.stem) or "train"


def _describe_sample(
    tar: Path,
    key: str,
    members: Sequence[Member],
    stop: int,
    reader: FileReader,
    rules: SampleRules,
) -> dict[str, Any]:
    name = f"{tar}: key {key}"
    levels = rules.levels
    by_suffix = {rules.split(m.name)[1].lower(): m for m in members}
    if len(by_suffix) < len(members):
        raise InvalidData(f"{name}: a member stands twice; give each sample its own key")
    text, label = by_suffix.get("json"), by_suffix.get("cls")
    known = _parse(_read_text(reader, tar.name, text, name), name, bool(levels)) if text else {}
    path = [_text_of(known, level, rules, name) for level in levels]
    if label and (not levels or (rules.hierarchy and not path[0])):
        found = _read_text(reader, tar.name, label, name)
        try:
            path = [_plain(found.decode("utf-8-sig"))]
        except UnicodeDecodeError:
            raise InvalidData(f"{name}: its class {found[:100]!r} is not UTF-8") from None
    unlabelled = not path or not all(path)
    image = next((by_suffix[s] for s in IMAGES if s in by_suffix), None)
    dotted = next((s for s in by_suffix if s.rpartition(".")[2] in IMAGES), "")
    if image is None and (dotted or not (unlabelled and rules.skip_unlabelled)):
        why = f"; names end at the first dot, which leaves the suffix '{dotted}': give --last-dot"
        raise InvalidData(f"{name}: no image ({', '.join(IMAGES)}){why if dotted else ''}")
    if unlabelled and not rules.skip_unlabelled:
        has = f"; its JSON has {some_of([*known], 5)}" if known else ""
        raise InvalidData(f"{name}: no class; expected {rules.wanted}{has}; --skip-unlabelled "
                          "leaves such samples out")  # fmt: skip
    start = members[0].start
    extent = {"extent_start": start, "extent_bytes": stop - start}
    if unlabelled:
        return {"key": key, "shard": tar.name, **extent, "path": "", "reason": "no class"}
    assert image is not None  # or there would be no class
    class_path = json.dumps(dict(zip(levels or (CLASS,), path, strict=False)))
    if rules.hierarchy:
        class_path = rules.hierarchy.get(path[0], "")
        if not class_path:
            raise InvalidData(f"{name}: the hierarchy has no class '{path[0]}'; add it (it has "
                              f"{some_of([*rules.hierarchy], 3)})")  # fmt: skip
    own = known.get("image_id")
    image_id = key if own is None or own == "" else str(own)  # 0 is an id, too
    if min(image_id) < " ":
        raise InvalidData(f"{name}: its image_id {image_id[:100]!r} has control characters; pack "
                          "the tar with another one")  # fmt: skip
    if image.size_bytes > MOST_IMAGE:
        raise InvalidData(f"{name}: its image has {image.size_bytes:,} bytes; {MOST_IMAGE:,} are "
                          "read at most")  # fmt: skip
    data = reader.read(tar.name, image.offset, image.size_bytes)
    try:
        width, height = read_size(data)
    except Undecodable as error:
        if rules.skip_damaged:
            return {"key": key, "shard": tar.name, **extent, "path": "", "reason": "not decodable"}
        raise InvalidData(f"{name}: the image cannot be decoded ({error}); --skip-damaged leaves "
                          "such samples out") from None  # fmt: skip
    number = str(known.get("landmark_id"))  # GLDv2's, if the JSON has it
    credit = {name: str(known.get(name) or UNKNOWN) for name in CREDITS}
    return {
        "key": key,
        "image_id": image_id,
        "split": _split_of(tar),
        "landmark_id": int(number) if re.fullmatch(r"[0-9]{1,18}", number) else -1,
        "shard": tar.name,
        "offset": image.offset,
        "size_bytes": image.size_bytes,
        "json_offset": text.offset if text else -1,
        "json_size": text.size_bytes if text else 0,
        "sha256": sha256(data).hexdigest(),
        "width": width,
        "height": height,
        **credit,
        "url": str(known.get("source_url") or credit["url"]),
        **extent,
        "crc32": reader.crc32(tar.name, start, stop - start),
        IMAGE_CRC32: crc32(data),
        "path": class_path,
    }


def _read_text(reader: FileReader, tar: str, member: Member, name: str) -> bytes:
    if member.size_bytes > MOST_TEXT:
        raise InvalidData(f"{name}: its JSON or class has {member.size_bytes:,} bytes; "
                          f"{MOST_TEXT:,} are read at most")  # fmt: skip
    return reader.read(tar, member.offset, member.size_bytes)


def _text_of(known: Mapping[str, Any], level: str, rules: SampleRules, name: str) -> str:
    """A class of the JSON as text; 3.0 is 3, as pandas writes it beside gaps.

    With a hierarchy it is not, since pandas may have written that one, too.
    """
    value = known.get(level)
    if isinstance(value, list | dict):
        raise InvalidData(f"{name}: the JSON key {level} holds several values; expected one class, "
                          "a text or a number")  # fmt: skip
    if not rules.hierarchy and isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else _plain(str(value))


def _plain(name: str) -> str:
    """A class without blanks around it, in Unicode's composed form: macOS decomposes names."""
    return normalize("NFC", name.strip())


def _parse(text: bytes, name: str, has_class: bool) -> dict[str, Any]:
    """The keys of a JSON; none if it is a list, such as boxes, and the class is elsewhere."""
    try:
        known = json.loads(text)
        if b"\\u" in text:  # half a surrogate pair cannot be written as UTF-8
            json.dumps(known, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise InvalidData(f"{name}: its JSON cannot be read") from None
    if not isinstance(known, dict):
        if not has_class:
            return {}
        raise InvalidData(f"{name}: its JSON is not an object with keys")
    # pandas writes nan for a value that is missing
    return {key: value for key, value in known.items() if value == value}


def number_rows(rows: pd.DataFrame, levels: Sequence[str]) -> tuple[pd.DataFrame, Classes]:
    """Number the classes and the runs; a run is a stretch of one class in a shard."""
    paths = pd.DataFrame({"path": sorted(rows["path"].unique())})
    classes = number_classes(paths.assign(split="", landmark_id=np.arange(len(paths))))
    numbers = numbered_levels(len(levels))
    table = classes.landmarks.assign(path=paths["path"])[["path", *numbers]]
    rows = rows.merge(table, on="path", how="left", validate="many_to_one").drop(columns="path")
    rows = rows.sort_values(["split", "shard", "offset"], ignore_index=True)
    place = rows[["split", "shard", numbers[-1]]]
    starts = (place != place.shift()).any(axis=1)
    run = starts.groupby(rows["split"]).cumsum() - 1
    return rows.assign(run=run.astype("int64")), classes
