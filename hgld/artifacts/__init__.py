"""The files between two stages: their names, paths and columns, and how to read and write them.

Stages exchange tables and folders; only this package knows their file names and formats. A table is
checked when it is written and again when it is read, since a person may edit it in between; an
error names the file, the row as a spreadsheet counts it, and the expected value. Writes are atomic:
a temporary file in the same folder, fsync, rename.
"""

from hgld.artifacts.atomic import (
    atomic_files,
    atomic_folder,
    atomic_path,
    file_stamp,
    finish_files,
    hash_file,
    left_behind,
    map_sealed,
    named_in_errors,
    read_sealed,
    require_file,
    require_folder,
    write_sealed,
)
from hgld.artifacts.catalogue import (
    ARTIFACTS,
    BOX,
    BY_LANDMARK,
    CHANGES,
    DECISIONS,
    ID_SPACES,
    ITEM_IDS,
    KINDS,
    SPACE_OF_SPLIT,
    SPLITS,
    columns_of,
    declared_table,
)
from hgld.artifacts.csv_files import (
    edit_csv,
    parse_csv,
    read_csv,
    read_header,
    row_in_file,
    rows_in_file,
    write_csv,
)
from hgld.artifacts.formats import (
    Artifact,
    Folder,
    Json,
    Table,
    VectorFile,
    Vectors,
    read_array,
    read_arrays,
    read_plain_pickle,
)
from hgld.artifacts.large_tables import (
    LargeTable,
    engine,
    query_csv,
    sql_text,
    write_query,
)
from hgld.artifacts.table_checks import ColumnType
from hgld.artifacts.tree import Tree, list_tree, size_of_file

__all__ = [
    "ARTIFACTS",
    "BOX",
    "BY_LANDMARK",
    "CHANGES",
    "DECISIONS",
    "ID_SPACES",
    "ITEM_IDS",
    "KINDS",
    "SPACE_OF_SPLIT",
    "SPLITS",
    "Artifact",
    "ColumnType",
    "Folder",
    "Json",
    "LargeTable",
    "Table",
    "Tree",
    "VectorFile",
    "Vectors",
    "atomic_files",
    "atomic_folder",
    "atomic_path",
    "columns_of",
    "declared_table",
    "edit_csv",
    "engine",
    "file_stamp",
    "finish_files",
    "hash_file",
    "left_behind",
    "list_tree",
    "map_sealed",
    "named_in_errors",
    "parse_csv",
    "query_csv",
    "read_array",
    "read_arrays",
    "read_csv",
    "read_header",
    "read_plain_pickle",
    "read_sealed",
    "require_file",
    "require_folder",
    "row_in_file",
    "rows_in_file",
    "size_of_file",
    "sql_text",
    "write_csv",
    "write_query",
    "write_sealed",
]
