"""SfM-120k: ``retrieval-SfM-120k.pkl``, and photos ``ims/YZ/WX/UV/...UVWXYZ`` named by their id.

The pickle has two tables, train and val, each with the id of every photo (``cids``) and the number
of the 3D model that it is part of (``cluster``); photos of one model show one landmark. Photos of
val search each other. The tuples of queries and positives that the file has, too, are not used:
batches are drawn from the models.
"""

from numbers import Integral
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.artifacts import read_plain_pickle
from hgld.config import SourceOptions
from hgld.errors import InvalidData
from hgld.sources.listing import Listing, require_file

LEVELS = ("model",)
FILE = "retrieval-SfM-120k.pkl"
SPLITS = {"train": "train", "val": "evaluation"}
EXPECTED = f"{FILE} of cmp.felk.cvut.cz: tables train and val with the lists cids and cluster"


def read(source: Path, _: SourceOptions) -> Listing:
    """Read the 3D models and photos of both tables.

    Raises:
        InvalidData: the file is missing, damaged or of another form.
    """
    file = require_file(source / FILE, EXPECTED)
    try:
        tables = read_plain_pickle(file)
    except ValueError as error:
        raise InvalidData(f"{file}: {error}; expected {EXPECTED}; get it again") from None
    lines = pd.concat([_read_table(file, tables, side) for side in SPLITS], ignore_index=True)
    # The numbers of the two tables may be the same: a class is a table and a number.
    lines["landmark_id"] = pd.factorize(lines["model"])[0] + 1
    return Listing.of_lines(lines, LEVELS)


def _read_table(file: Path, tables: Any, side: str) -> pd.DataFrame:
    try:
        ids, models = tables[side]["cids"], tables[side]["cluster"]
        pairs = list(zip(ids, models, strict=True))
    except (LookupError, TypeError, ValueError):
        raise InvalidData(
            f"{file}: no lists of one length in {side}; expected {EXPECTED}; get it again"
        ) from None
    for number, (photo, model) in enumerate(pairs):
        if not isinstance(photo, str) or not photo.isalnum() or len(photo) < 6:
            raise InvalidData(
                f"{file}: {side}.cids[{number}] is {photo!r}; expected a photo's id; get it again"
            )
        if not isinstance(model, Integral):
            raise InvalidData(
                f"{file}: {side}.cluster[{number}] is {model!r}; expected a number; get it again"
            )
    return pd.DataFrame(
        {
            "path": [f"ims/{p[-2:]}/{p[-4:-2]}/{p[-6:-4]}/{p}" for p, _ in pairs],
            "split": SPLITS[side],
            "file": f"{FILE} {side}.cids",
            "line": range(1, len(pairs) + 1),
            "model": [f"{side} {model}" for _, model in pairs],
        }
    )
