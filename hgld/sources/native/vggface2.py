"""VGGFace2: ``train_list.txt`` and ``test_list.txt``, ``IDENTITY/PHOTO`` a line.

Photos are ``train/n000002/0001_01.jpg`` and ``test/...``; the identities of the two lists are
others. Each photo of the test list searches all others. The only level is the identity, named by
its number: the names of persons in ``identity_meta.csv`` are not read.
"""

from pathlib import Path

import pandas as pd

from hgld.config import SourceOptions
from hgld.errors import InvalidData
from hgld.sources.listing import Listing, read_words, require_apart

__all__ = ["LEVELS", "read"]

LEVELS = ("identity",)
SPLITS = {"train": "train", "test": "evaluation"}
PHOTO = r"^n([0-9]{1,18})/[^/]+$"


def read(source: Path, _: SourceOptions) -> Listing:
    """Read the identities and photos of both lists.

    Raises:
        InvalidData: a list is missing or has another form, or an identity is in both.
    """
    lines = pd.concat([_read_list(source, side) for side in SPLITS], ignore_index=True)
    require_apart(lines, "identity")
    return Listing.of_lines(lines, LEVELS)


def _read_list(source: Path, side: str) -> pd.DataFrame:
    file = f"{side}_list.txt"
    lines = read_words(source / file, {"photo": "text"}, "IDENTITY/PHOTO, a line each")
    identity = lines["photo"].str.extract(PHOTO)[0]
    if identity.isna().any():
        row = lines[identity.isna()].iloc[0]
        raise InvalidData(
            f"{source / file} line {row['line']}: '{row['photo']}'; expected IDENTITY/PHOTO, such "
            "as n000002/0001_01.jpg"
        )
    return pd.DataFrame(
        {
            "path": f"{side}/" + lines["photo"],
            "split": SPLITS[side],
            "landmark_id": identity.astype("int64"),
            "file": file,
            "line": lines["line"],
            "identity": "identity " + identity,
        }
    )
