"""Encode one sample as the three members of its shard: JPEG, JSON metadata and class number.

A JPEG is copied byte for byte unless it is larger than requested, its EXIF orientation rotates it
or a box cuts a part of it out; such a JPEG is encoded again, upright, so that readers that ignore
EXIF see it upright, too. An image that cannot be decoded is never written, since a training run of
days must not stop on it. A baseline JPEG is checked by its structure; any other image is decoded
once. The JSON always has the same keys and never a null, since readers infer their schema from the
first samples.
"""

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from hgld.artifacts import BOX
from hgld.images import (
    cut_out,
    decoding,
    describe_changes,
    is_sound_jpeg,
    is_turned,
    is_whole_jpeg,
    jpeg_size,
    open_image,
    read_headers,
    read_note,
    require_size,
    resize,
    upright_rgb,
)

LONGEST_KEY = 90  # a name in a tar header has 100 bytes; the suffix needs some of them
Box = tuple[float, ...]
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
FIXED_KEYS = (
    "key",
    "image_id",
    "split",
    "landmark_id",
    "label",
    "hierarchical_path",
    "run_id",
    "width",
    "height",
    "orig_width",
    "orig_height",
    "size_bytes",
    "sha256",
    "source_url",
    "author",
    "license",
    "license_url",
    "title",
    "changes",
    "labels_version",
)


@dataclass(frozen=True)
class Encoding:
    """Options for encoding an image.

    Attributes:
        short_side: images with a longer short side are reduced to this; None: no limit.
        jpeg_quality: quality of images that are encoded again.
        decode_all: check that JPEGs that are only copied can be decoded, too.
    """

    short_side: int | None
    jpeg_quality: int
    decode_all: bool = True


@dataclass(frozen=True)
class Encoded:
    """A JPEG, its size, the upright size of its source, and the changes made to it."""

    data: bytes
    width: int
    height: int
    orig_width: int
    orig_height: int
    changes: str


def box_of(row: Mapping[Any, Any]) -> Box | None:
    """Box of a planned sample; None: it is the whole photo."""
    return tuple(row[name] for name in BOX) if BOX[0] in row else None


def sample_key(split: str, image_id: str) -> str:
    """The key of a sample: unique, without dots or slashes, at most 90 bytes.

    Example:
        >>> sample_key("train", "6e158a47eb2ca3f6")
        'train-6e158a47eb2ca3f6'
        >>> sample_key("train", "a/b.png")
        'train-a%2Fb%2Epng'
    """
    text = re.sub(rb"[^A-Za-z0-9_-]", lambda m: b"%%%02X" % m[0][0], image_id.encode()).decode()
    key = f"{split}-{text}"
    if len(key) <= LONGEST_KEY:
        return key
    # The hash keeps shortened keys distinct.
    return f"{key[: LONGEST_KEY - 17]}~{sha256(key.encode()).hexdigest()[:16]}"


def encode_image(data: bytes, encoding: Encoding, box: Box | None = None) -> Encoded:
    """Check that an image can be decoded, and return it, or its part in a box, as a JPEG.

    Args:
        data: the image's file.
        encoding: options.
        box: left, top, right, bottom in pixels of the upright photo; None: the whole photo.

    Raises:
        OutsidePhoto: nothing of the photo is in the box.
        Undecodable: the bytes cannot be decoded.
    """
    note, size = read_note(data), jpeg_size(data)
    made: Encoded | None = None
    if size is not None:
        require_size(size, len(data), "JPEG")
        if box is None and _keeps_size(size, encoding):
            headers = read_headers(data)
            # Quick tests whether the JPEG is upright and decodable; if they fail, Pillow decides.
            if headers.upright and (
                not encoding.decode_all or is_sound_jpeg(data, headers) or is_whole_jpeg(data)
            ):
                made = Encoded(data, *size, *size, "none")
    if made is None:
        with decoding():
            made = _encode_by_pillow(data, encoding, box)
    if note is None:
        return made
    # the photo was resized before the export: its original size and the changes are restored
    changes = note.changes if made.changes == "none" else f"{note.changes}, {made.changes}"
    return replace(made, orig_width=note.width, orig_height=note.height, changes=changes)


def _keeps_size(size: tuple[int, int], encoding: Encoding) -> bool:
    return encoding.short_side is None or min(size) <= encoding.short_side


def _encode_by_pillow(data: bytes, encoding: Encoding, box: Box | None) -> Encoded:
    with open_image(data) as image:
        turned, whole = is_turned(image), box is None and _keeps_size(image.size, encoding)
        if image.format == "JPEG" and whole and not turned:
            if encoding.decode_all:
                image.load()
            return Encoded(data, *image.size, *image.size, "none")
        upright = upright_rgb(image)
    part = upright if box is None else cut_out(upright, box)
    short_side = None if _keeps_size(part.size, encoding) else encoding.short_side
    made = part if short_side is None else resize(part, short_side)
    buffer = io.BytesIO()
    made.save(buffer, "JPEG", quality=encoding.jpeg_quality)
    changes = describe_changes(turned, short_side, encoding.jpeg_quality, box is not None)
    return Encoded(buffer.getvalue(), *made.size, *upright.size, changes)


def describe(
    row: Mapping[str, Any], image: Encoded, levels: Sequence[str], labels_version: str
) -> bytes:
    """The JSON metadata of a sample.

    Args:
        row: a planned sample: the columns of images, level_1 .., name_1 .., key, run, sha256.
        image: its JPEG.
        levels: names of the levels, coarse to fine; a group's name and number are stored under its
            key (``level_keys``).
        labels_version: first digits of the hash of the labels.
    """
    names = [str(row[f"name_{i + 1}"]) for i in range(len(levels))]
    known = {
        "key": row["key"],
        "image_id": row["image_id"],
        "split": row["split"],
        "landmark_id": int(row["landmark_id"]),
        "label": int(row[f"level_{len(levels)}"]),
        "hierarchical_path": "/".join(names),
        "run_id": int(row["run"]),
        "width": image.width,
        "height": image.height,
        "orig_width": image.orig_width,
        "orig_height": image.orig_height,
        "size_bytes": len(image.data),
        "sha256": row["sha256"],
        "source_url": row["url"],
        "author": row["author"],
        "license": row["license"],
        "license_url": row["license"] if row["license"].startswith("http") else "",
        "title": row["title"],
        "changes": image.changes,
        "labels_version": labels_version,
    }
    for i, (key, name) in enumerate(zip(level_keys(levels[:-1]), names[:-1], strict=True)):
        known |= {key: name, f"{key}_id": int(row[f"level_{i + 1}"])}
    return _JSON.encode(known).encode()


def level_keys(levels: Sequence[str]) -> list[str]:
    """JSON keys of the class names of some levels; with ``_id`` appended, of their class numbers.

    A level is stored under its name; a name that is taken already is prefixed with ``level_``.

    Example:
        >>> level_keys(["kind", "split", "kind_id"])
        ['kind', 'level_split', 'level_kind_id']
    """
    taken, keys = set(FIXED_KEYS), list[str]()
    for key in levels:
        while taken & {key, f"{key}_id"}:
            key = f"level_{key}"
        taken |= {key, f"{key}_id"}
        keys.append(key)
    return keys
