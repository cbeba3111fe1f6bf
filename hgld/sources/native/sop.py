"""Stanford Online Products: ``Ebay_train.txt`` and ``Ebay_test.txt``, one image a line.

A line is ``image_id class_id super_class_id path``; the folder in the path names the super class
(``bicycle_final/...``). The two files have no product in common: the open-set split.
"""

from pathlib import Path

from hgld.artifacts import ColumnType
from hgld.config import SourceOptions
from hgld.errors import InvalidData
from hgld.sources.listing import Listing, read_lists, require_apart

LEVELS = ("super_class", "product")
FILES = {"Ebay_train.txt": "train", "Ebay_test.txt": "evaluation"}
COLUMNS: dict[str, ColumnType] = {
    "image_id": "int",
    "class_id": "int",
    "super_class_id": "int",
    "path": "text",
}


def read(source: Path, _: SourceOptions) -> Listing:
    """Read the products and photos of both files.

    Raises:
        InvalidData: a file is missing or has another form, a super class has two folders, a product
            is in both files.
    """
    lines = read_lists(source, FILES, COLUMNS, "the lines of a split", header=True)
    require_apart(lines, "product", "class_id")
    # The name of a super class is its folder without the suffix.
    folders = lines["path"].str.partition("/")[0].str.removesuffix("_final")
    pairs = lines.assign(folder=folders).drop_duplicates(["super_class_id", "folder"])
    odd = pairs[pairs["super_class_id"].duplicated()]
    if not odd.empty:
        row = odd.iloc[0]
        raise InvalidData(
            f"{row['file']} line {row['line']}: super class {row['super_class_id']} has photos in "
            f"'{row['folder']}' and in another folder; expected one folder a super class; get the "
            "list again"
        )
    found = lines[["path", "split", "file", "line"]].assign(
        landmark_id=lines["class_id"],
        super_class=folders,
        product="product " + lines["class_id"].astype("str"),
    )
    return Listing.of_lines(found, LEVELS)
