"""CUB-200-2011: numbered text files, and a separate table of orders and families.

``images.txt`` has the path of each image, ``image_class_labels.txt`` its species, ``classes.txt``
the names of the species. Retrieval trains on the first half of the species and evaluates on the
others; ``train_test_split.txt`` is the classification split, in which both halves have all species.
The data set has no hierarchy; ``source.class_table`` names the file with it, if there is one.
"""

from pathlib import Path

import pandas as pd

from hgld.artifacts import ColumnType, columns_of, read_csv, read_header, rows_in_file
from hgld.config import SourceOptions
from hgld.errors import InvalidData
from hgld.sources.listing import CLASS, Listing, distinct_names, read_words
from hgld.sources.tables import several_parents
from hgld.words import some_of

SPECIES = "species"
SHOWN = 3  # faults named in an error
RESERVED = (*columns_of("landmarks"), *CLASS, "path")


def read(source: Path, options: SourceOptions) -> Listing:
    """Read the species and photos, split by ``options.cub_split``.

    Raises:
        InvalidData: a file is missing or has another form, or lacks an image or a species; a class
            of the table has two parents.
    """
    images = _read_table(source / "images.txt", {"id": "int", "path": "text"}, "id and path")
    images["class_id"] = _look_up(source / "image_class_labels.txt", "class_id", images)
    levels = [SPECIES]
    if options.class_table is not None:
        header = read_header(options.class_table, ["class_id"])
        levels = [*(name for name in header if name not in ("class_id", SPECIES)), SPECIES]
        if wrong := [name for name in levels if name in RESERVED]:
            raise InvalidData(
                f"{options.class_table}: the column {wrong[0]} cannot be a level; rename or remove "
                "it; expected class_id, then one column a level, coarse to fine"
            )
    # all species with their path: names from the data set, coarser levels from the table
    columns: dict[str, ColumnType] = {"class_id": "int", "name": "text"}
    names = _read_table(source / "classes.txt", columns, "id and name").drop_duplicates("class_id")
    names = names.reset_index(drop=True)
    above = _read_above(options.class_table, names, levels[:-1]) if options.class_table else names
    species = names["name"].str.partition(".")[2].str.replace("_", " ", regex=False)
    named = distinct_names(species.where(species != "", names["name"]), names["class_id"])
    classes = above[levels[:-1]].assign(
        space="train", landmark_id=names["class_id"], name=named, **{SPECIES: named}
    )
    lost = images[~images["class_id"].isin(classes["landmark_id"])]
    if not lost.empty:
        raise InvalidData(
            f"{source / 'classes.txt'}: no line for class {lost['class_id'].iloc[0]}, which image "
            f"{lost['id'].iloc[0]} has in image_class_labels.txt; expected all; get it again"
        )
    if options.cub_split == "images":
        trains = _look_up(source / "train_test_split.txt", "is_training_image", images) == 1
    else:
        ordered = sorted(classes["landmark_id"])
        trains = images["class_id"].isin(ordered[: len(ordered) // 2])
    images["split"] = trains.map({True: "train", False: "evaluation"}).astype("str")
    listed = pd.DataFrame(
        {
            "path": "images/" + images["path"],
            "split": images["split"],
            "landmark_id": images["class_id"],
            "file": "images.txt",
            "line": images["line"],
        }
    )
    return Listing(listed, classes, tuple(levels))


def _read_table(path: Path, columns: dict[str, ColumnType], what: str) -> pd.DataFrame:
    """Read lines of an id and its value, of which an id has one.

    Raises:
        InvalidData: as ``read_words``, or an id has two values.
    """
    table = read_words(path, columns, what)
    number, value = columns
    other = table[table[value] != table.groupby(number)[value].transform("first")]
    if not other.empty:
        row = other.iloc[0]
        first = table[table[number] == row[number]].iloc[0]
        raise InvalidData(
            f"{path} line {row['line']}: {row[number]} is '{row[value]}', but '{first[value]}' in "
            f"line {first['line']}; expected {what}, one line for each; get it again"
        )
    return table


def _look_up(path: Path, column: str, images: pd.DataFrame) -> "pd.Series[int]":
    """Return a number for each image from a file of lines ``id number``."""
    table = _read_table(path, {"id": "int", column: "int"}, f"id and {column} of each image")
    found = images["id"].map(table.drop_duplicates("id").set_index("id")[column])
    if found.isna().any():
        row = images[found.isna()].iloc[0]
        raise InvalidData(
            f"{path}: no line for image {row['id']} ({row['path']}, images.txt line "
            f"{row['line']}); expected one for each image; get it again"
        )
    return found.astype("int64")


def _read_above(path: Path, names: pd.DataFrame, levels: list[str]) -> pd.DataFrame:
    """Read the coarser levels of each species from the table."""
    table = read_csv(path, {"class_id": "int", **dict.fromkeys(levels, "text")})
    places = [f"row {number}" for number in rows_in_file(path, len(table))]
    faults = [fault for _, fault in several_parents(table.set_axis(places), levels)]
    if faults:
        raise InvalidData(
            f"{path}: {some_of(faults, SHOWN, '; ')}; a class has one parent; write the columns "
            "coarse to fine and correct the rows"
        )
    table = table.drop_duplicates("class_id").set_index("class_id")
    lost = names[~names["class_id"].isin(table.index)]
    if not lost.empty:
        raise InvalidData(
            f"{path}: no row for class {lost['class_id'].iloc[0]} ({lost['name'].iloc[0]}; "
            f"{len(lost)} of {len(names)} such classes); expected one for each; add the rows"
        )
    return table.loc[names["class_id"]].reset_index(drop=True)
