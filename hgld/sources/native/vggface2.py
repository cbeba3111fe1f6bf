"""VGGFace2: ``train_list.txt`` and ``test_list.txt``, ``IDENTITY/PHOTO`` a line.

Photos are ``train/n000002/0001_01.jpg`` and ``test/...``; the identities of the two lists are
others. Each photo of the test list searches all others. The only level is the identity, named by
its number: the names of persons in ``identity_meta.csv`` are not read.

``bb_landmark/loose_bb_train.csv`` and ``loose_bb_test.csv`` have the box of the face in each photo:
NAME_ID (such as "n000002/0001_01"), X, Y, W, H in pixels. The published photos show more than the
authors trained on, which is the box grown by 0.3 of its sides, as far as the photo reaches (Cao et
al. 2018).
"""

from pathlib import Path

import pandas as pd

from hgld.artifacts import BOX, ColumnType, read_csv, row_in_file
from hgld.config import SourceOptions
from hgld.errors import InvalidData
from hgld.images import extended_boxes
from hgld.sources.listing import Listing, read_lists, require_apart, require_file

LEVELS = ("identity",)
SPLITS = {"train": "train", "test": "evaluation"}
PHOTO = r"^n([0-9]{1,18})/[^/]+$"
BOXES = "bb_landmark/loose_bb_{}.csv"
SIDES: dict[str, ColumnType] = dict.fromkeys(("X", "Y", "W", "H"), "int")


def read(source: Path, options: SourceOptions) -> Listing:
    """Read the identities and photos of both lists, and the box of each photo.

    Raises:
        InvalidData: a list or a file of boxes is missing or has another form, an identity is in
            both lists, or a photo has no box.
    """
    splits = {f"{side}_list.txt": split for side, split in SPLITS.items()}
    lines = read_lists(source, splits, {"photo": "text"}, "IDENTITY/PHOTO, a line each")
    identity = lines["photo"].str.extract(PHOTO)[0]
    if identity.isna().any():
        row = lines[identity.isna()].iloc[0]
        raise InvalidData(
            f"{source / row['file']} line {row['line']}: '{row['photo']}'; expected "
            "IDENTITY/PHOTO, such as n000002/0001_01.jpg; get the list again"
        )
    lines = lines.assign(
        path=lines["file"].str.removesuffix("_list.txt") + "/" + lines["photo"],
        landmark_id=identity.astype("int64"),
        identity="identity " + identity,
    )
    require_apart(lines, "identity")
    there = any((source / BOXES.format(side)).is_file() for side in SPLITS)
    if options.vggface2_boxes == "required" or (options.vggface2_boxes == "auto" and there):
        boxes = [_read_boxes(source, side, lines, options.vggface2_margin) for side in SPLITS]
        lines = lines.join(pd.concat(boxes))
    return Listing.of_lines(lines, LEVELS)


def _read_boxes(source: Path, side: str, lines: pd.DataFrame, margin: float) -> pd.DataFrame:
    """Boxes of the photos of a list, with the index of their lines."""
    file = source / BOXES.format(side)
    require_file(file, 'the box of each photo (bb_landmark.tar.gz), or vggface2_boxes = "none"')
    found = read_csv(file, {"NAME_ID": "text", **SIDES})
    _refuse(found, file, found["NAME_ID"].duplicated(), "one row for each photo")
    empty = (found[["W", "H"]] <= 0).any(axis=1)
    empty |= (found["X"] + found["W"] <= 0) | (found["Y"] + found["H"] <= 0)
    _refuse(found, file, empty, "W and H above 0, and a part of the box inside the photo")
    own = lines[lines["split"] == SPLITS[side]]
    names = own["photo"].str.replace(r"\.[^./]+$", "", regex=True)
    rows = pd.Index(found["NAME_ID"]).get_indexer(names)
    if (rows < 0).any():
        row = own[rows < 0].iloc[0]
        raise InvalidData(
            f"{file}: no row '{names[rows < 0].iloc[0]}', which {row['file']} line {row['line']} "
            f"lists ({(rows < 0).sum()} such photos); expected a box for each photo; get the file "
            'again, or set source.vggface2_boxes = "none"'
        )
    boxes = pd.DataFrame(extended_boxes(found[list(SIDES)], margin))
    return pd.DataFrame(boxes.to_numpy()[rows], index=own.index, columns=list(BOX))


def _refuse(found: pd.DataFrame, file: Path, wrong: "pd.Series[bool]", expected: str) -> None:
    """Raise for the first wrong row, if there is one."""
    if wrong.any():
        place = int(wrong.to_numpy().argmax())
        name, *sides = found.iloc[place]
        box = ", ".join(f"{side} {number}" for side, number in zip(SIDES, sides, strict=True))
        raise InvalidData(
            f"{file} row {row_in_file(file, place)}: '{name}' with {box}; expected {expected}; "
            "correct the row, or get the file again"
        )
