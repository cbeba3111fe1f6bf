"""Every file between two stages: its name, its place, its columns, and how it is read and written.

A stage hands over tables and folders; only this package knows their file names and formats. A
table is checked when it is written and again when it is read, since a person may edit it in
between; a fault names the file, the row as a spreadsheet counts it, and what was expected.
Writing is atomic: a temporary file in the same folder, fsync, rename.
"""

from hgld.artifacts.atomic import atomic_folder, atomic_path, hash_file, left_behind
from hgld.artifacts.catalogue import (
    ARTIFACTS,
    CHANGES,
    DECISIONS,
    ID_SPACES,
    KINDS,
    SPACE_OF_SPLIT,
    SPLITS,
)
from hgld.artifacts.checks import ColumnType
from hgld.artifacts.csv_files import read_csv, row_in_file, write_csv
from hgld.artifacts.formats import Artifact, Folder, Json, Table, VectorFile, Vectors

__all__ = [
    "ARTIFACTS",
    "CHANGES",
    "DECISIONS",
    "ID_SPACES",
    "KINDS",
    "SPACE_OF_SPLIT",
    "SPLITS",
    "Artifact",
    "ColumnType",
    "Folder",
    "Json",
    "Table",
    "VectorFile",
    "Vectors",
    "atomic_folder",
    "atomic_path",
    "hash_file",
    "left_behind",
    "read_csv",
    "row_in_file",
    "write_csv",
]
