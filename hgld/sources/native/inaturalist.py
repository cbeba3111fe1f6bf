"""iNaturalist 2018: COCO-like JSON with a taxonomy, and the lists of the retrieval split.

The lists (``Inaturalist_train_set1.txt``, ``..._test_set1.txt``; Brown et al. 2020) put 5,690
species into training and 2,452 others into evaluation, with all images of the data set's own
training and validation parts. A line is a path ``.../SUPERCATEGORY/CATEGORY/NAME.jpg``; the JSON
files have the photographers and the ranks above the species. "base" has the 13 supercategories
above the species, "full" the six ranks from kingdom to genus.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from hgld.config import SourceOptions
from hgld.credit import UNKNOWN
from hgld.errors import InvalidData
from hgld.sources.listing import Listing, distinct_names, read_json, read_lists, require_apart

RANKS = ("kingdom", "phylum", "class", "order", "family", "genus")
ABOVE = {"full": RANKS, "base": ("supercategory",)}


def read(source: Path, options: SourceOptions) -> Listing:
    """Read the species and photos of both lists.

    Raises:
        InvalidData: a file is missing or has another form; a path does not name a category; a
            category is in both lists.
    """
    own = options.inaturalist
    files = [source / name for name in own.annotations]
    documents = [read_json(file, "the annotations of the data set") for file in files]
    for file, document in zip(files, documents, strict=True):
        if not isinstance(document, dict) or not {"images", "categories"} <= document.keys():
            raise InvalidData(
                f"{file}: expected a JSON object with images and categories; get it again"
            )
    levels = (*ABOVE[own.levels], "species")
    classes = _classes(documents[0], files[0], levels)
    lists = {own.train_list: "train", own.test_list: "evaluation"}
    what = "a path a line, the retrieval split of Brown et al. 2020"
    images = read_lists(source, lists, {"path": "text"}, what)
    images["file"] = images["file"].map(lambda file: Path(file).name)
    # An image's folder is the number of its category.
    folders = images["path"].str.rsplit("/", n=2).str[-2].fillna("")
    known = folders.isin(classes["landmark_id"].astype("str"))
    if not known.all():
        row = images[~known].iloc[0]
        raise InvalidData(
            f"{row['file']} line {row['line']}: '{row['path']}' lies in the folder of no category; "
            "expected SUPERCATEGORY/CATEGORY/NAME.jpg with a category's number; get the list again"
        )
    images["landmark_id"] = folders.astype("int64")
    require_apart(images, "category")
    credit = pd.concat(map(_credit_of, documents, files))
    credit = credit[~credit.index.duplicated()]
    return Listing(images.join(credit, on="path"), classes, levels)


def _classes(document: dict[str, Any], path: Path, levels: tuple[str, ...]) -> pd.DataFrame:
    """Return one row for each category."""
    table = pd.DataFrame(document["categories"])
    missing = [name for name in ("id", "name", *levels[:-1]) if name not in table]
    if missing:
        raise InvalidData(
            f"{path}: its categories have no '{missing[0]}'; expected the file of 2018, whose "
            "categories hold the ranks from kingdom to genus; get it again"
        )
    empty = table[["name", *levels[:-1]]].isin([None, "", float("nan")])
    if empty.any(axis=None):
        place = int(empty.any(axis=1).to_numpy().argmax())
        row, rank = table.iloc[place], empty.columns[empty.iloc[place]][0]
        raise InvalidData(
            f"{path}: category {row['id']} ('{row['name']}') has an empty {rank} "
            f"({empty.any(axis=1).sum()} of {len(table)} such categories); fill it in, or set "
            'source.inaturalist.levels = "base", which reads the supercategory alone'
        )
    table["species"] = distinct_names(table["name"].astype("str"), table["id"])
    table = table[["id", *levels]].astype(dict.fromkeys(levels, "str"))
    return table.rename(columns={"id": "landmark_id"}).assign(space="train", name=table["species"])


def _credit_of(document: dict[str, Any], path: Path) -> pd.DataFrame:
    """Return author and licence by path."""
    try:
        licenses = {entry["id"]: str(entry["url"]) for entry in document.get("licenses", [])}
        rows = [
            (
                str(image["file_name"]),
                str(image.get("rights_holder") or UNKNOWN),
                licenses.get(image.get("license"), UNKNOWN),
            )
            for image in document["images"]
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise InvalidData(
            f"{path}: its images or licenses are of another form ({error}); expected file_name of "
            "each image, id and url of each licence; get it again"
        ) from None
    return pd.DataFrame(rows, columns=["path", "author", "license"]).set_index("path")
