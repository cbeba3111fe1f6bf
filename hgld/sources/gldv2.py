"""Source of GLDv2: its CSVs and tars as tables of landmarks, images and queries, not extracted.

Every row and every tar member ends in exactly one table: ``images``, or ``images_dropped`` with the
reason. Train and index landmark ids are different numbers, so a landmark is always given with its
id space. All joins are vectorised: the full set has 4.1 million train images.

The scan of each tar is cached with the tar's name, size and times and a checksum, so that the next
run does not open the 600 tars again, and a killed scan resumes. A cached scan that is damaged or
belongs to another tar is made again.
"""

import os
import re
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from hgld.artifacts import (
    ColumnType,
    Table,
    columns_of,
    read_csv,
    read_sealed,
    row_in_file,
    write_sealed,
)
from hgld.config import CollectOptions, StageContext
from hgld.credit import UNKNOWN
from hgld.errors import InvalidData, UsageError
from hgld.shards.tar import scan_tar
from hgld.sources.open_set import describe_splits, split_classes
from hgld.sources.tables import ABOUT
from hgld.tasks import say, track

__all__ = ["collect", "index_tars", "name_landmark"]
FREE = "CC0 / public domain"  # GLDv2's statement for its index and test images
CATEGORIES = Table("", {"landmark_id": "int", "category": "text"}, ("landmark_id",))
SOLUTION = Table("", {"id": "text", "images": "text", "Usage": "text"}, ("id",))
Tables = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]
Split = tuple[pd.DataFrame, pd.DataFrame]  # images and dropped of one split


def index_tars(folder: Path, pattern: str, state: Path) -> pd.DataFrame:
    """List the files in all matching tars: image_id, path (of the tar), offset, size_bytes.

    Args:
        folder: the source folder, to which pattern and path are relative.
        pattern: such as ``train/images_*.tar``; empty: there are none.
        state: folder of cached scans.

    Raises:
        InvalidData: no tar matches; a tar is empty, truncated or not a tar.
    """
    tars = sorted(folder.glob(pattern)) if pattern else []
    if pattern and not tars:
        raise InvalidData(
            f"{folder}: no tar matches '{pattern}'; mend the pattern, or set it to '' where this "
            "part is not there"
        )
    parts = [_index_tar(tar, folder, state) for tar in track(tars, "Reading tars", len(tars))]
    columns = {"image_id": "str", "path": "str", "offset": "int64", "size_bytes": "int64"}
    empty = pd.DataFrame(columns=list(columns)).astype(columns)
    return pd.concat([empty, *parts], ignore_index=True).astype(columns)


def _index_tar(tar: Path, folder: Path, state: Path) -> pd.DataFrame:
    """Read the cached scan; else scan the tar and cache the result."""
    facts, name = tar.stat(), tar.relative_to(folder).as_posix()
    # part of the seal, so a scan of another tar does not match
    identity = f"{name}\n{facts.st_size}\n{facts.st_mtime_ns}\n{facts.st_ctime_ns}\n"
    # The name is hashed, since it may hold a folder or be too long.
    kept = state / "tars" / f"{sha256(os.fsencode(name)).hexdigest()[:32]}.scan"
    content = read_sealed(kept, identity)
    if content is not None:
        return pd.read_parquet(BytesIO(content))
    members = list(scan_tar(tar))
    table = pd.DataFrame(
        {
            "image_id": [m.name.rpartition("/")[2].partition(".")[0] for m in members],
            "path": name,
            "offset": [m.offset for m in members],
            "size_bytes": [m.size_bytes for m in members],
        }
    )
    buffer = BytesIO()
    table.to_parquet(buffer, index=False)
    write_sealed(kept, buffer.getbuffer(), identity)
    return table


def collect(source: Path, *, options: CollectOptions, context: StageContext) -> Tables:
    """List landmarks, images and queries of the official files.

    Landmarks are the rows of the two category CSVs; one that only an image names is added with an
    empty ``commons_url``. Train images are the rows of train.csv (of train_clean.csv if train.csv
    is not listed), restricted to train_clean.csv if ``options.clean_only`` is set and that file is
    listed. Index images are all with a landmark. Test images are the queries that the
    retrieval solution uses; their landmark is that of the first relevant index image (the paper's
    protocol), so they carry index ids.

    ``options.evaluation_share`` of the train landmarks with images, or those that
    ``options.evaluation_classes`` lists by id, become the split ``evaluation`` (see
    ``hgld.sources.open_set``). ``options.validation_share`` of the others become the split
    ``validation``, for choosing options without the evaluation classes.

    Dropped, with a reason: ``not in tar``, ``not in csv`` (in a tar, or in the clean list, but in
    no image CSV), ``not clean``, ``ignored query``, ``duplicate`` (the first one is kept).

    Returns:
        landmarks, images, queries, images_dropped.

    Raises:
        InvalidData: a file has unexpected content; tars are expected but missing.
    """
    solution = _read_solution(source, options)
    index_rows = _index_rows(source, options)
    queries = _query_rows(solution, index_rows, source, options)
    train, train_dropped = _locate(
        "train", _train_rows(source, options), source, options.train_tars, context.state
    )
    index, index_dropped = _locate("index", index_rows, source, options.index_tars, context.state)
    test, test_dropped = _locate("test", queries, source, options.test_tars, context.state)
    landmarks = pd.concat(
        [
            _landmarks("train", options.train_category_csv, source, train),
            _landmarks("index", options.index_category_csv, source, pd.concat([index, test])),
        ],
        ignore_index=True,
    )
    train = _credit(train, source, options)
    ids = train["landmark_id"].drop_duplicates()
    splits = pd.Series(split_classes(ids.astype(str).tolist(), options), index=ids)
    train["split"] = train["landmark_id"].map(splits).astype("str")
    images = pd.concat([train, index, test], ignore_index=True)[columns_of("images")]
    say(describe_splits(images))
    dropped = pd.concat([train_dropped, index_dropped, test_dropped], ignore_index=True)
    names = {"id": "image_id", "Usage": "usage", "images": "relevant"}
    queries = solution.rename(columns=names)[["image_id", "usage", "relevant"]]
    return landmarks, images, queries, dropped


def name_landmark(category_url: str) -> str:
    """Return a readable name from a Commons category URL.

    Example:
        >>> name_landmark("http://commons.wikimedia.org/wiki/Category:Caf%C3%A9_%22A%2B%22,_Rome")
        'Café "A+", Rome'
    """
    title = re.sub(r"^.*?/wiki/", "", category_url)
    return unquote(title).replace("_", " ").removeprefix("Category:").strip()


def _train_rows(source: Path, options: CollectOptions) -> pd.DataFrame:
    """Return rows of train.csv or of the clean list; ``reason`` is empty if a row is taken."""
    clean = _read_clean(source, options)
    if not options.train_csv:
        return _rows(clean, options.train_clean_csv)
    columns: dict[str, ColumnType] = {"id": "text", "url": "text", "landmark_id": "int"}
    taken = pd.Index(clean["id"].unique())

    def less(piece: pd.DataFrame) -> pd.DataFrame:
        """Clear the URLs of photos that are not taken, which are half of the file."""
        # 4.1 million URLs need gigabytes; those of dropped photos are never used.
        if not options.train_clean_csv or not options.clean_only:
            return piece
        return piece.assign(url=piece["url"].where(taken.get_indexer(piece["id"]) >= 0, ""))

    rows = _rows(read_csv(source / options.train_csv, columns, each=less), options.train_csv)
    if not options.train_clean_csv:
        return rows
    path = source / options.train_clean_csv
    first = rows.index[rows["reason"] == ""]
    place = _find(clean["id"], rows["image_id"].loc[first])
    listed = first[place[place >= 0]]
    _require_same_landmarks(rows.loc[listed], clean[place >= 0], path)
    if options.clean_only:
        refused = first.difference(listed)
        rows.loc[refused, "reason"] = "not clean"
        rows.loc[refused, "detail"] = f"not in {options.train_clean_csv}"
    lost = _rows(clean[place < 0], options.train_clean_csv)
    lost["reason"] = lost["reason"].where(lost["reason"] != "", "not in csv")
    lost["detail"] = f"in {options.train_clean_csv}, not in {options.train_csv}"
    return pd.concat([rows, lost], ignore_index=True)


def _read_clean(source: Path, options: CollectOptions) -> pd.DataFrame:
    """Read the clean list as one row for each image: id, landmark_id."""
    if not options.train_clean_csv:
        return pd.DataFrame({"id": pd.Series(dtype="str"), "landmark_id": pd.Series(dtype="int64")})
    path = source / options.train_clean_csv
    table = read_csv(path, {"landmark_id": "int", "images": "text"})
    ids = table["images"].str.split().explode()
    rows = pd.DataFrame({"id": ids, "landmark_id": table["landmark_id"].loc[ids.index].to_numpy()})
    return rows.dropna(subset="id").astype({"id": "str"}).reset_index(drop=True)


def _require_same_landmarks(rows: pd.DataFrame, clean: pd.DataFrame, path: Path) -> None:
    """Require that each image has the same landmark in train.csv and in the clean list."""
    wrong = (rows["landmark_id"].to_numpy() != clean["landmark_id"].to_numpy()).nonzero()[0]
    if len(wrong):
        listed, row = clean.iloc[wrong[0]], rows.iloc[wrong[0]]
        raise InvalidData(
            f"{path}: image {listed['id']} is under landmark {listed['landmark_id']}, but "
            f"train.csv says {row['landmark_id']} ({len(wrong)} such images); do the two files "
            "belong together?"
        )


def _index_rows(source: Path, options: CollectOptions) -> pd.DataFrame:
    columns = {"id": pd.Series(dtype="str"), "landmark_id": pd.Series(dtype="int64")}
    table = pd.DataFrame(columns)
    if options.index_image_csv:
        path = source / options.index_image_csv
        table = read_csv(path, {"id": "text", "landmark_id": "int"})
    rows = _rows(table, options.index_image_csv)
    rows["license"] = FREE
    return rows


def _read_solution(source: Path, options: CollectOptions) -> pd.DataFrame:
    if not options.retrieval_solution_csv:
        return pd.DataFrame(columns=list(SOLUTION.columns), dtype="str")
    if not options.index_image_csv:
        raise UsageError(
            "collect.retrieval_solution_csv needs collect.index_image_csv, which gives the queries "
            "their landmarks; name that file too, or set retrieval_solution_csv to ''"
        )
    solution = SOLUTION.read(source / options.retrieval_solution_csv)
    # The official file marks queries without an answer in both ways.
    ignored = (solution["Usage"] == "Ignored") | solution["images"].str.strip().isin(["None", ""])
    return solution.assign(
        images=solution["images"].str.split().str.join(" ").mask(ignored, ""), ignored=ignored
    )


def _query_rows(
    solution: pd.DataFrame, index: pd.DataFrame, source: Path, options: CollectOptions
) -> pd.DataFrame:
    """Return one row for each test image with the landmark of its first relevant index image."""
    first = solution["images"].str.partition(" ")[0] if len(solution) else solution["images"]
    # The official solution lists images only; the landmark is that of the first one.
    landmark_of = index.drop_duplicates("image_id").set_index("image_id")["landmark_id"]
    found = first.map(landmark_of)
    ignored = solution["ignored"].to_numpy(bool) if len(solution) else np.zeros(0, bool)
    lost = found.isna().to_numpy() & ~ignored
    if lost.any():
        row, file = int(lost.argmax()), source / options.retrieval_solution_csv
        raise InvalidData(
            f"{file} row {row_in_file(file, row)}: image {first.iloc[row]} is "
            f"not in {options.index_image_csv}; do the two files belong together?"
        )
    _warn_of_unknown(solution, index, source / options.retrieval_solution_csv)
    table = pd.DataFrame({"id": solution["id"], "landmark_id": found.fillna(-1).astype("int64")})
    rows = _rows(table, options.retrieval_solution_csv)
    rows["license"] = FREE
    rows.loc[ignored, "reason"] = "ignored query"
    rows.loc[ignored, "detail"] = f"without relevant images in {options.retrieval_solution_csv}"
    return rows


def _warn_of_unknown(solution: pd.DataFrame, index: pd.DataFrame, path: Path) -> None:
    """Send a notice of relevant ids without index image: a sign that a long cell was truncated."""
    relevant = solution["images"].str.split().explode().dropna()
    unknown = relevant[~relevant.isin(index["image_id"])]
    if len(unknown):
        row = row_in_file(path, int(unknown.index[0]))
        say(
            f"{path}: {len(unknown):,} relevant ids are those of no index image, such as "
            f"'{unknown.iloc[0]}' in row {row}; is the file cut short?"
        )


def _rows(table: pd.DataFrame, file: str) -> pd.DataFrame:
    """Return the rows of an image CSV in a common form; repeated rows have a reason."""
    rows = pd.DataFrame({"image_id": table["id"], "landmark_id": table["landmark_id"]})
    if "url" in table:
        rows["url"] = table["url"]
    # A row is a repeat if an earlier row has its id.
    again = _find(rows["image_id"], rows["image_id"]) != np.arange(len(rows))
    rows["reason"] = pd.Series("", index=rows.index, dtype="str").mask(again, "duplicate")
    rows["detail"] = pd.Series("", index=rows.index, dtype="str").mask(again, f"again in {file}")
    return rows


def _find(ids: "pd.Series[str]", among: "pd.Series[str]") -> np.ndarray:
    """Return the first position of each id among others, or -1, without Python objects.

    Example:
        >>> _find(pd.Series(["b", "c"]), pd.Series(["a", "b", "b"])).tolist()
        [1, -1]
    """
    places = pc.index_in(pa.array(ids, pa.large_string()), pa.array(among, pa.large_string()))
    return np.asarray(pc.fill_null(places, -1)).astype(np.int64)


def _locate(split: str, rows: pd.DataFrame, source: Path, pattern: str, state: Path) -> Split:
    """Find each row's image in the tars; rows and members without a match are dropped."""
    members = index_tars(source, pattern, state)
    again = _find(members["image_id"], members["image_id"]) != np.arange(len(members))
    # Official tars repeat some members; the first one counts.
    twice = members[again]
    twice = twice.assign(reason="duplicate", detail="again in " + twice["path"])
    place = _find(rows["image_id"], members["image_id"])
    absent = (place < 0) & (rows["reason"] == "").to_numpy()
    rows.loc[absent, "reason"] = "not in tar"
    rows.loc[absent, "detail"] = f"no file of that name in {pattern or 'any tar (none listed)'}"
    taken = (rows["reason"] == "").to_numpy()
    located = members.drop(columns="image_id").iloc[place[taken]].reset_index(drop=True)
    about = rows[taken].assign(**{name: rows.get(name, UNKNOWN) for name in ABOUT}, split=split)
    about["url"] = about["url"].where(about["url"].str.strip() != "", UNKNOWN)
    images = pd.concat([about.reset_index(drop=True), located], axis="columns")
    # Members that no row names: every member ends in exactly one table.
    strange = ~again
    strange[place[place >= 0]] = False
    extra = members[strange]
    extra = extra.assign(reason="not in csv", detail="in " + extra["path"])
    dropped = pd.concat([part[["image_id", "reason", "detail"]]
                         for part in (rows[~taken], twice, extra)])  # fmt: skip
    assert len(rows) == len(images) + int((~taken).sum()), "rows in = rows out + dropped"
    return images, _count_repeats(dropped).assign(split=split)[columns_of("images_dropped")]


def _count_repeats(dropped: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each image and reason; the detail counts repeats."""
    key = ["image_id", "reason"]
    repeated = dropped.duplicated(key, keep=False)
    if not repeated.any():
        return dropped
    groups = dropped[repeated].groupby(key, as_index=False)["detail"]
    joined = groups.agg(lambda details: f"{len(details)} times: " + "; ".join(details))
    return pd.concat([dropped[~repeated], joined])


def _credit(images: pd.DataFrame, source: Path, options: CollectOptions) -> pd.DataFrame:
    """Add author, license and title of train images from the attribution CSV."""
    if not options.train_attribution_csv:
        return images
    path = source / options.train_attribution_csv
    columns: dict[str, ColumnType] = {"id": "text", **dict.fromkeys(ABOUT, "text")}
    ids = images["image_id"]
    known = pd.Index(ids)  # hashed once for all pieces
    table = read_csv(path, columns, each=lambda p: p[known.get_indexer(p["id"]) >= 0])
    place = _find(ids, table["id"])
    for column in ABOUT:
        found = table[column].take(np.maximum(place, 0)) if len(table) else images[column]
        found = found.set_axis(images.index)
        known = (place >= 0) & (found.str.strip() != "").to_numpy()
        if column == "url":
            known &= (images["url"] == UNKNOWN).to_numpy()  # train.csv takes precedence
        images[column] = images[column].mask(known, found)
    return images


def _landmarks(space: str, file: str, source: Path, images: pd.DataFrame) -> pd.DataFrame:
    """Return all landmarks of an id space: rows of the category CSV, then those only in images."""
    table = pd.DataFrame({"landmark_id": [], "category": []}).astype({"landmark_id": "int64"})
    if file:
        table = CATEGORIES.read(source / file)
    ids = pd.Series(images["landmark_id"].unique(), dtype="int64")
    extra = pd.DataFrame({"landmark_id": ids[~ids.isin(table["landmark_id"])], "category": ""})
    table = pd.concat([table, extra], ignore_index=True)
    names = table["category"].map(name_landmark).astype("str")
    unnamed = "landmark " + table["landmark_id"].astype(str)
    return pd.DataFrame(
        {
            "split": space,
            "landmark_id": table["landmark_id"],
            "name": names.where(names != "", unnamed),
            "commons_url": table["category"].astype("str"),
        }
    )
