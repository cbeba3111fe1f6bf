"""DeepFashion In-shop: ``Eval/list_eval_partition.txt``, one photo a line, below two head lines.

The first line states the number of photos, the second the columns: image_name, item_id and
evaluation_status (train, query or gallery). Photos are under ``Img/``; their path names department
and category (``img/WOMEN/Dresses/id_00000002/...``). Queries (split ``test``) search the gallery
(``index``), which has other items than training.
"""

import re
from pathlib import Path

from hgld.config import SourceOptions
from hgld.errors import InvalidData
from hgld.sources.listing import Listing, read_words, require_apart

LEVELS = ("department", "category", "item")
FILE = "Eval/list_eval_partition.txt"
SPLITS = {"train": "train", "query": "test", "gallery": "index"}
PATH = re.compile(r"img/([^/]+)/([^/]+)/id_([0-9]{1,18})/[^/]+")


def read(source: Path, _: SourceOptions) -> Listing:
    """Read the items and photos of the list.

    Raises:
        InvalidData: the list is missing, truncated or of another form, a path is not that of its
            item, or an item to train on is also searched for.
    """
    file = source / FILE
    columns = ("image_name", "item_id", "evaluation_status")
    lines = read_words(
        file, dict.fromkeys(columns, "text"), "the list of photos", header=True, counted=True
    )
    paths = lines["image_name"].str.extract(PATH)
    odd = paths[0].isna() | (lines["item_id"] != "id_" + paths[2].fillna(""))
    odd |= ~lines["evaluation_status"].isin(list(SPLITS))
    if odd.any():
        row = lines[odd].iloc[0]
        raise InvalidData(
            f"{file} line {row['line']}: '{row['image_name']} {row['item_id']} "
            f"{row['evaluation_status']}'; expected img/DEPARTMENT/CATEGORY/ID/PHOTO, the same ID, "
            f"and one of {', '.join(SPLITS)}; correct the line, or get the list again"
        )
    found = lines.assign(
        path="Img/" + lines["image_name"],
        split=lines["evaluation_status"].map(SPLITS).astype("str"),
        file=FILE,
        landmark_id=paths[2].astype("int64"),
        department=paths[0],
        category=paths[0] + "/" + paths[1],
        item=lines["item_id"],
    )
    require_apart(found, "item")
    return Listing.of_lines(found.drop(columns=list(columns)), LEVELS)
