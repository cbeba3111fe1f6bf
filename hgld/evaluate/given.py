"""Reader of embedding files from other programs: checks them and brings rows into a given order.

Three formats:

.npy       (N, D) numbers; ids and labels come from other files
.npz       ``vectors`` (or ``embeddings``) (N, D); optional ``ids`` (N,) and ``labels`` (N,) or
           (N, L), coarse to fine
.parquet   a column ``embedding`` (or ``vector``) of lists; optional ``image_id`` (or ``id``,
           ``path``), also as the index of pandas; all other columns are labels, coarse to fine

Pickles are never read, since they can run code.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from pandas.api.types import is_float_dtype
from pyarrow import parquet

from hgld.artifacts import read_array, read_arrays, read_csv, read_header, row_in_file
from hgld.errors import InvalidData
from hgld.evaluate.mapped_vectors import ROWS_AT_ONCE, MappedVectors
from hgld.model.weights import one_line
from hgld.ranking.kernels.device import score_rows
from hgld.sources.tables import listed_paths
from hgld.tasks import say
from hgld.words import part_text

IDS = ("image_id", "id", "ids", "key", "path")  # the first one present is used
VECTORS = ("embedding", "embeddings", "vector", "vectors")
SHOWN = 6  # columns that a message names: a number of the embedding may be in each


@dataclass(frozen=True)
class Given:
    """Embeddings of one side, queries or gallery.

    Attributes:
        path: of the file, for error messages.
        vectors: (N, D) float32.
        ids: (N,) image ids; None: rows are identified by their number.
        labels: (N,) rows; levels coarse to fine and other columns of the images; None: the file
            has no labels.
    """

    path: Path
    vectors: np.ndarray
    ids: np.ndarray | None = None
    labels: pd.DataFrame | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def of(self, ids: np.ndarray) -> np.ndarray:
        """Return the (n, D) embeddings of these images.

        Raises:
            InvalidData: no ids, an id twice, or an image that has no embedding.
        """
        return np.asarray(self.vectors[self.places(ids, "embedding")])

    def rows(self, chosen: np.ndarray) -> "Given":
        """Return a copy of some rows, where ``chosen``, (N,), is true."""
        ids = None if self.ids is None else self.ids[chosen]
        labels = None if self.labels is None else self.labels[chosen].reset_index(drop=True)
        return replace(self, vectors=np.asarray(self.vectors[chosen]), ids=ids, labels=labels)

    def places(self, ids: np.ndarray, what: str, remedy: str = "") -> np.ndarray:
        """Return the (n,) rows of these images; an error has the remedy as its end."""
        if self.ids is None:
            raise InvalidData(
                f"{self.path}: has no ids, so nobody can tell which image a row is; give .npz with "
                "ids, or .parquet with a column image_id"
            )
        known = self.distinct_ids()
        place = known.get_indexer(pd.Index(ids))
        if (place < 0).any():
            lost = ids[place < 0]
            have = part_text(len(lost), len(ids), "image", "have")
            raise InvalidData(
                f"{self.path}: {have} no {what}, first {lost[0]}"
                + (f"; its own ids are such as {known[0]}" if len(known) else "")
                + remedy
            )
        return np.asarray(place)

    def distinct_ids(self) -> pd.Index:
        """Return the ids, none if the file has none.

        Raises:
            InvalidData: an id is there twice; the image would be its own nearest neighbour.
        """
        known = pd.Index([] if self.ids is None else self.ids)
        if known.has_duplicates:
            first = known[known.duplicated()][0]
            raise InvalidData(f"{self.path}: id {first} is there twice; keep one row of it")
        return known

    def with_labels(self, table: pd.DataFrame, path: Path) -> "Given":
        """Return a copy with labels from a table: joined by id if both have ids, else by row.

        Embeddings without ids have those of the rows.

        Raises:
            InvalidData: an image without labels, or another number of rows.
        """
        column = next((name for name in IDS if name in table), None)
        levels, ids = table, self.ids
        if column is not None:
            levels, known = table.drop(columns=column), _texts_of(table[column], path)
            known = _as_listed(known, column)
            if ids is None:
                ids = known
            else:
                listed = Given(path, np.empty((len(table), 0)), known)
                remedy = "; add rows for these, in the gallery with empty levels if of no class"
                own = _as_listed(ids, column)
                levels = levels.iloc[listed.places(own, f"label by {column}", remedy)]
        if len(levels) != len(self):
            remedy = "name the column of these ids image_id" if self.ids is not None else (
                "without ids they are joined by row; numpy.savez(FILE, vectors=VECTORS, ids=IDS) "
                "writes ids, to join by a column image_id"
            )  # fmt: skip
            raise InvalidData(
                f"{path}: {len(table)} rows of labels for {len(self)} embeddings in {self.path}; "
                + remedy
            )
        if column is not None and self.ids is None:
            say(f"{self.path}: has no ids, so its rows are taken for those of {path}, in order")
        return replace(self, labels=levels.reset_index(drop=True), ids=ids)


def read_given(path: Path) -> Given:
    """Read the embeddings of a file.

    Raises:
        InvalidData: the file is missing, in none of the three formats, empty, or has numbers that
            are not finite.
    """
    reader = {
        ".npy": lambda path: Given(path, read_array(path)),
        ".npz": _read_npz,
        ".parquet": _read_parquet,
    }.get(path.suffix)
    if reader is None:
        raise InvalidData(f"{path}: expected embeddings as .npy, .npz or .parquet; "
                          "numpy.savez(FILE, vectors=VECTORS, ids=IDS) writes them")  # fmt: skip
    if not path.is_file():
        raise InvalidData(f"{path}: no such file; expected embeddings as .npy, .npz or .parquet")
    try:
        given = reader(path)
    except InvalidData:
        raise
    except Exception as error:  # numpy and pyarrow raise many types for damaged files
        raise InvalidData(f"{path}: not readable as embeddings ({one_line(error)})") from None
    vectors: Any = given.vectors
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or 0 in vectors.shape:
        raise InvalidData(
            f"{given.path}: embeddings of shape {vectors.shape} and type {vectors.dtype}; expected "
            "(images, dim) floating-point numbers, at least one"
        )
    for name, rows in (("ids", given.ids), ("labels", given.labels)):
        if rows is not None and len(rows) != len(vectors):
            raise InvalidData(f"{given.path}: {len(rows)} {name} for {len(vectors)} embeddings")
    require_finite(given.vectors, str(path), partial(name_row, given.ids))
    zero = np.flatnonzero(~given.vectors.any(axis=1))
    if len(zero):
        hold = part_text(len(zero), len(given), "embedding", "hold")
        say(f"{path}: {hold} zeros only, first {name_row(given.ids, int(zero[0]))}; zeros have no "
            "direction")  # fmt: skip
    return given


def read_labels(path: Path) -> pd.DataFrame:
    """Read the labels of a file, coarse to fine: .csv or .parquet with names, .npy or .npz without.

    Ids are a column of the table; embeddings beside the labels are left out.

    Raises:
        InvalidData: the file is missing or not readable.
    """
    if not path.is_file():
        raise InvalidData(f"{path}: no such file; expected labels as .csv, .parquet or .npy")
    if path.suffix not in (".csv", ".parquet", ".npy", ".npz"):
        raise InvalidData(f"{path}: expected labels as .csv, .parquet, .npy or .npz; a table has a "
                          "column image_id, then one a level, coarse to fine")  # fmt: skip
    if path.suffix == ".csv":
        table = read_csv(path, dict.fromkeys(read_header(path, ()), "text"))
        return table[(table != "").any(axis=1)]  # Excel writes rows of commas
    try:
        if path.suffix == ".parquet":
            table = _read_table(path)
            return table.drop(columns=[name for name in VECTORS if name in table])
        if path.suffix == ".npy":
            return _label_table(read_array(path), path)
        data = read_arrays(path)
        table, ids = _label_table(_array(data, ("labels",), path), path), _ids_of(data, path)
        return table if ids is None else table.assign(image_id=ids)
    except InvalidData:
        raise
    except Exception as error:  # numpy and pyarrow raise many types for damaged files
        raise InvalidData(f"{path}: not readable as labels ({one_line(error)})") from None


def report_unmeasured(table: pd.DataFrame, path: Path, *sides: Given) -> None:
    """Report labelled images without an embedding: a smaller set gives other values."""
    ids = next((name for name in IDS if name in table), None)
    if ids is None or any(side.ids is None for side in sides):
        return
    listed = pd.Index(_as_listed(_texts_of(table[ids], path), ids))
    rest = listed[~listed.isin(_as_listed(np.concatenate([side.ids for side in sides]), ids))]
    if len(rest):
        files = " nor ".join(dict.fromkeys(str(side.path) for side in sides))
        are = part_text(len(rest), len(listed), "image", "are")
        say(f"{path}: {are} not in {files}, first {rest[0]}, and not measured")


def require_finite(
    vectors: MappedVectors | np.ndarray, whose: str, name: Callable[[int], str]
) -> None:
    """Refuse embeddings with nan or infinite values; ``name`` names a row in a message.

    Raises:
        InvalidData: some are not finite; gives their number and the first one.
    """
    blocks = MappedVectors.of(vectors).blocks()
    wrong = np.flatnonzero(~np.concatenate([np.isfinite(block).all(axis=1) for block in blocks]))
    if len(wrong):
        hold = part_text(len(wrong), len(vectors), "embedding", "hold")
        raise InvalidData(
            f"{whose}: {hold} nan or inf, first {name(int(wrong[0]))}; a model that trained to "
            "nan, or half precision that overflowed, does that"
        )


def name_row(ids: Sequence[str] | np.ndarray | None, row: int) -> str:
    """Return the id and the number of a row, for a message.

    Example:
        >>> name_row(["a", "b"], 1), name_row(None, 1)
        ('b (row 1)', 'row 1')
    """
    return f"row {row}" if ids is None else f"{ids[row]} (row {row})"


def require_same_dim(query: Given, gallery: Given) -> None:
    """Refuse embeddings of different lengths.

    Raises:
        InvalidData: the lengths differ; gives both.
    """
    if query.vectors.shape[1] != gallery.vectors.shape[1]:
        raise InvalidData(
            f"{gallery.path}: embeddings of {gallery.vectors.shape[1]} numbers, but those of "
            f"{query.path} have {query.vectors.shape[1]}; both sides need the same model"
        )


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Return (N, D) float32 unit vectors without overflow for large numbers; a zero row stays zero.

    Example:
        >>> unit_rows(np.array([[0.0, 4.0], [0.0, 0.0]])).tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    unit = np.empty(vectors.shape, np.float32)
    # few rows at a time: the scaled copies of a gallery would take its memory again
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        wide = vectors[rows].astype(np.promote_types(vectors.dtype, np.float32), copy=False)
        # Squares of large float32 numbers overflow, those of small ones vanish. A power of two,
        # which is exact, brings the largest number of each row near 1.
        _, exponents = np.frexp(np.abs(wide).max(axis=1, keepdims=True))
        unit[rows] = np.ldexp(wide, -exponents)
    lengths = np.sqrt(np.einsum("nd,nd->n", unit, unit, dtype=np.float64))
    unit /= np.where(lengths == 0, 1, lengths)[:, None].astype(np.float32)
    return unit


def inner_products(query: np.ndarray, gallery: np.ndarray) -> np.ndarray:
    """Return the (Q, G) float32 inner products of (Q, D) and (G, D) float32 vectors.

    Those of equal vectors are equal, whatever their rows: numpy's can differ by a last bit.
    """
    found = torch.empty(len(query), len(gallery))
    score_rows(torch.from_numpy(query), torch.from_numpy(gallery), found)
    return found.numpy()


def _read_npz(path: Path) -> Given:
    data = read_arrays(path)
    labels = _label_table(data["labels"], path) if "labels" in data else None
    given = Given(path, _array(data, VECTORS, path), _ids_of(data, path), labels)
    if unread := [name for name in data if name not in (*IDS, *VECTORS, "labels")]:
        say(f"{path}: not read: {', '.join(unread)}; ids are an array 'ids', labels one 'labels' "
            "(images, levels)")  # fmt: skip
    return given


def _array(data: Mapping[str, np.ndarray], names: Sequence[str], path: Path) -> np.ndarray:
    """Return the array with the first of the names that is there."""
    for name in names:
        if name in data:
            return data[name]
    raise InvalidData(f"{path}: has no array '{names[-1]}' (it has {', '.join(data) or 'none'})")


def _ids_of(data: Mapping[str, np.ndarray], path: Path) -> np.ndarray | None:
    name = next((name for name in IDS if name in data), None)
    if name is None:
        return None
    ids = data[name]
    if ids.ndim != 1:
        raise InvalidData(f"{path}: {name} of shape {ids.shape}; expected one of each image")
    return _texts_of(pd.Series(ids if ids.dtype.kind == "f" else ids.astype(str), name=name), path)


def _texts_of(ids: "pd.Series[Any]", path: Path) -> np.ndarray:
    """Return (N,) ids as texts; refuse missing ones, which would be called "nan" or "None"."""
    _require_each(ids.where(ids != ""), path, "give each image its id")
    return as_integers(ids).astype(str).to_numpy(dtype=str)


def _require_each(column: "pd.Series[Any]", path: Path, remedy: str) -> None:
    missing = np.flatnonzero(column.isna())
    if len(missing):
        have, first = part_text(len(missing), len(column), "row", "have"), missing[0]
        row = row_in_file(path, column.index[first]) if path.suffix == ".csv" else first
        raise InvalidData(f"{path}: {have} no {column.name}, first row {row}; {remedy}")


def _as_listed(ids: np.ndarray, column: str) -> np.ndarray:
    """Return the ids of a column ``path`` as the source of a folder reads them, others as is."""
    return listed_paths(pd.Series(ids)).to_numpy(dtype=str) if column == "path" else ids


def as_integers(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a column of floats that are whole numbers as integers; any other column as it is.

    A column of integers with gaps has floats, and must equal one without.
    """
    return column.convert_dtypes() if is_float_dtype(column) else column


def _read_table(path: Path) -> pd.DataFrame:
    """Read a .parquet; ids that pandas wrote as the index of its table become a column."""
    # beside a gap, as floats, large numbers would become equal
    table: pd.DataFrame = parquet.read_table(path).to_pandas(integer_object_nulls=True)
    is_index = table.index.name in IDS and not any(name in table for name in IDS)
    return table.reset_index() if is_index else table


def _read_parquet(path: Path) -> Given:
    table = _read_table(path)
    vectors = next((str(name) for name in table if name in VECTORS), None)
    if vectors is None:
        names = ", ".join(map(str, table.columns[:SHOWN])) + ", ..." * (table.shape[1] > SHOWN)
        raise InvalidData(
            f"{path}: has no column 'embedding' of lists (it has {names}); put the numbers of an "
            "image into one list"
        )
    _require_each(table[vectors], path, "embed these images, or leave them out")
    lengths = table[vectors].map(len)
    if lengths.nunique() > 1:
        row = int((lengths != lengths.iloc[0]).to_numpy().argmax())
        raise InvalidData(
            f"{path} row {row}: {lengths.iloc[row]} numbers, row 0 has {lengths.iloc[0]}"
        )
    ids = next((name for name in IDS if name in table), None)
    labels = table.drop(columns=[name for name in (vectors, ids) if name])
    matrix = np.stack(table[vectors].to_list()) if len(table) else np.empty((0, 0))
    known = _texts_of(table[ids], path) if ids else None
    return Given(path, matrix, known, labels if labels.shape[1] else None)


def _label_table(labels: np.ndarray, path: Path) -> pd.DataFrame:
    """Return (N,) or (N, L) labels as a table; columns are level numbers, 1 is the coarsest."""
    if labels.ndim not in (1, 2) or labels.dtype.kind not in "iuUS":
        raise InvalidData(
            f"{path}: labels of shape {labels.shape} and type {labels.dtype}; expected (N,) or "
            "(N, levels) whole numbers or words, coarse to fine"
        )
    table = labels[:, None] if labels.ndim == 1 else labels  # of no images, too
    return pd.DataFrame(table, columns=[str(i + 1) for i in range(table.shape[1])])
