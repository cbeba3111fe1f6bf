"""Source of GLDv2: its CSVs and tars as tables of landmarks, images and queries, not extracted.

Every row and every tar member ends in exactly one table: ``images``, or ``images_dropped`` with the
reason. Train and index landmark ids are different numbers, so a landmark is always given with its
id space. DuckDB does all joins over images: the full set has 4.1 million train images, and other
sets have more than the memory holds.

The scan of each tar is cached with the tar's name, size and times and a checksum, so that the next
run does not open the 600 tars again, and a killed scan resumes. A cached scan that is damaged or
belongs to another tar is made again.
"""

import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from hgld.artifacts import (
    ColumnType,
    LargeTable,
    Table,
    declared_table,
    engine,
    query_csv,
    read_sealed,
    row_in_file,
    sql_text,
    write_query,
    write_sealed,
)
from hgld.config import CollectOptions, StageContext
from hgld.credit import CREDITS, UNKNOWN
from hgld.errors import InvalidData, UsageError
from hgld.shards.tar import list_stems
from hgld.sources.exclusion import (
    DECISION,
    INDEX_SPLITS,
    LISTS,
    list_columns,
    report_strange,
)
from hgld.sources.open_set import describe_counts, split_classes
from hgld.tasks import say, track
from hgld.words import count_text, verb_text

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

FREE = "CC0 / public domain"  # GLDv2's statement for its index and test images
CATEGORIES = Table("", {"landmark_id": "int", "category": "text"}, ("landmark_id",))
SOLUTION = Table("", {"id": "text", "images": "text", "Usage": "text"}, ("id",))
PLACES = {"image_id": "string", "path": "string", "offset": "int64", "size_bytes": "int64"}
TOGETHER = 500_000  # members that are handed to DuckDB at a time
# What str.split takes for white space; DuckDB's own words for it mean ASCII only.
BLANKS = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
BLANKS += "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
Tables = tuple[pd.DataFrame, LargeTable, pd.DataFrame, LargeTable]

# Rows of an image CSV: its first row with an id counts, unless it already has a reason.
JUDGED = """
    CREATE VIEW judged_{split} AS SELECT rows.*,
        CASE WHEN own <> '' THEN own WHEN n > first THEN 'duplicate' ELSE '' END AS why
    FROM rows_{split} AS rows LEFT JOIN (
        SELECT image_id, min(n) AS first FROM rows_{split} GROUP BY image_id HAVING count(*) > 1
    ) USING (image_id)
"""
# One join finds the rows without a file and the files without a row.
LOCATED = """
    CREATE TABLE located_{split} AS SELECT
        coalesce(rows.image_id, files.image_id) AS image_id, landmark_id, url, rows.n,
        tar, "offset", size_bytes,
        CASE WHEN rows.n IS NULL THEN 'not in csv' WHEN why = '' AND tar IS NULL THEN 'not in tar'
            ELSE why END AS reason,
        detail
    FROM judged_{split} AS rows FULL JOIN (
        SELECT * FROM files_{split} ANTI JOIN repeated_{split} USING (n)
    ) AS files ON rows.image_id = files.image_id
"""
REPEATED = """
    CREATE TABLE repeated_{split} AS SELECT n, image_id, tar FROM files_{split} JOIN (
        SELECT image_id, min(n) AS first FROM files_{split} GROUP BY image_id HAVING count(*) > 1
    ) USING (image_id) WHERE n > first
"""
LEFT_OUT = """
    SELECT '{split}' AS split, image_id, reason, 0 AS part, n, CASE
        WHEN reason = 'not in csv' AND n IS NULL THEN 'in ' || path
        WHEN detail <> '' THEN detail
        WHEN reason = 'duplicate' THEN 'again in ' || $file
        WHEN reason = 'not clean' THEN 'not in ' || $clean
        ELSE 'no file of that name in ' || $pattern
    END AS detail
    FROM located_{split} LEFT JOIN tars USING (tar) WHERE reason <> ''
    UNION ALL SELECT '{split}', image_id, 'duplicate', 1, n, 'again in ' || path
    FROM repeated_{split} JOIN tars USING (tar)
"""
# The detail of an image that is dropped several times for one reason counts them.
DROPPED = """
    SELECT split, image_id, reason, detail FROM left_out
    WHERE reason NOT IN ('duplicate', 'ignored query')
    UNION ALL SELECT split, image_id, reason, CASE count(*) WHEN 1 THEN min(detail)
        ELSE count(*) || ' times: ' || string_agg(detail, '; ' ORDER BY part, n) END
    FROM left_out WHERE reason IN ('duplicate', 'ignored query') GROUP BY split, image_id, reason
    ORDER BY split, image_id, reason
"""


def index_tars(folder: Path, pattern: str, state: Path) -> Iterator[pa.Table]:
    """Yield the files in each matching tar: image_id, path (of the tar), offset, size_bytes.

    Args:
        folder: the source folder, to which pattern and path are relative.
        pattern: such as ``train/images_*.tar``; empty: there are none.
        state: folder of cached scans.

    Raises:
        InvalidData: no tar matches; a tar is empty, truncated or not a tar.
        UsageError: the pattern is absolute, or not one.
    """
    try:
        tars = sorted(folder.glob(pattern)) if pattern else []
    except (NotImplementedError, ValueError) as error:
        raise UsageError(
            f"'{pattern}' is no pattern below {folder} ({error}); expected one as "
            "train/images_*.tar"
        ) from None
    if pattern and not tars:
        raise InvalidData(
            f"{folder}: no tar matches '{pattern}'; correct the pattern, or set it to '' if "
            "this part is missing"
        )
    threads = ThreadPoolExecutor(2)
    try:
        tables = threads.map(partial(_index_tar, folder=folder, state=state), tars)
        yield from track(tables, "Reading tars", len(tars))
    finally:  # after a stop request or an error, no further tar is read
        threads.shutdown(cancel_futures=True)


def _index_tar(tar: Path, folder: Path, state: Path) -> pa.Table:
    """Read the cached scan; else scan the tar and cache the result."""
    facts, name = tar.stat(), tar.relative_to(folder).as_posix()
    # part of the seal, so a scan of another tar does not match
    identity = f"{name}\n{facts.st_size}\n{facts.st_mtime_ns}\n{facts.st_ctime_ns}\n"
    # The name is hashed, since it may hold a folder or be too long.
    kept = state / "tars" / f"{sha256(os.fsencode(name)).hexdigest()[:32]}.scan"
    content = read_sealed(kept, identity)
    schema = pa.schema(list(PLACES.items()))
    if content is not None:
        return parquet.read_table(pa.BufferReader(content)).select(list(PLACES)).cast(schema)
    found = list_stems(tar)
    places = [found["stem"], pa.array([name] * len(found), pa.string()), *found.columns[1:]]
    table = pa.table(places, schema=schema)
    buffer = pa.BufferOutputStream()
    parquet.write_table(table, buffer)
    write_sealed(kept, memoryview(buffer.getvalue()), identity)
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
    no image CSV), ``not clean``, ``excluded`` (by a list of ``options.exclude`` or
    ``options.only``), ``ignored query``, ``duplicate`` (the first one is kept).

    Returns:
        landmarks, images, queries, images_dropped.

    Raises:
        InvalidData: a file has unexpected content; tars are expected but missing.
        HgldError: ``options.memory_gb`` is too small.
    """
    solution = _read_solution(source, options)
    with engine(context.state, options.memory_gb) as tables:
        tables.execute("CREATE TABLE tars (tar INTEGER, path VARCHAR)")
        query = ("CREATE TABLE rows_index AS SELECT n, id AS image_id, landmark_id, '' AS url, "
                 "'' AS detail, '' AS own FROM {csv}")  # fmt: skip
        columns: dict[str, ColumnType] = {"id": "text", "landmark_id": "int"}
        _load_rows(tables, "rows_index", query, source, options.index_image_csv, columns)
        _load_queries(tables, solution, source, options)
        _locate(tables, "index", source, options.index_tars, context.state)
        _locate(tables, "test", source, options.test_tars, context.state)
        _load_train(tables, source, options)
        _exclude(tables, options)
        _locate(tables, "train", source, options.train_tars, context.state)
        train, others = _ids(tables, "train"), _ids(tables, "index", "test")
        dropped = _write_dropped(tables, context.state, options)
        _credit(tables, source, options)
        images = _write_images(tables, context.state, train, options)
    landmarks = [
        _landmarks("train", options.train_category_csv, source, train),
        _landmarks("index", options.index_category_csv, source, others),
    ]
    names = {"id": "image_id", "Usage": "usage", "images": "relevant"}
    queries = solution.rename(columns=names)[["image_id", "usage", "relevant"]]
    return pd.concat(landmarks, ignore_index=True), images, queries, dropped


def name_landmark(category_url: str) -> str:
    """Return a readable name from a Commons category URL.

    Example:
        >>> name_landmark("http://commons.wikimedia.org/wiki/Category:Caf%C3%A9_%22A%2B%22,_Rome")
        'Café "A+", Rome'
    """
    title = re.sub(r"^.*?/wiki/", "", category_url)
    return unquote(title).replace("_", " ").removeprefix("Category:").strip()


def _load_train(tables: "DuckDBPyConnection", source: Path, options: CollectOptions) -> None:
    """Load rows of train.csv or of the clean list; ``own`` is the reason that drops a row."""
    columns: dict[str, ColumnType] = {"id": "text", "url": "text", "landmark_id": "int"}
    tables.execute("CREATE TABLE clean (n BIGINT, image_id VARCHAR, landmark_id BIGINT)")
    if options.train_clean_csv:
        query_csv(
            tables,
            "INSERT INTO clean SELECT row_number() OVER () - 1, image_id, landmark_id FROM ("
            f"SELECT landmark_id, unnest(string_split_regex(images, '[{BLANKS}]+')) "
            "AS image_id FROM {csv}) WHERE image_id <> ''",
            source / options.train_clean_csv,
            {"landmark_id": "int", "images": "text"},
        )
    if not options.train_csv:
        tables.execute("CREATE TABLE rows_train AS SELECT *, '' AS url, '' AS own, '' AS detail "
                       "FROM clean")  # fmt: skip
        tables.execute("DROP TABLE clean")
        return
    refused = bool(options.train_clean_csv) and options.clean_only
    # URLs need gigabytes; those of photos that are not taken are not used.
    query = f"""CREATE TABLE rows_train AS SELECT csv.n, csv.id AS image_id, csv.landmark_id,
            CASE WHEN {refused} AND low IS NULL THEN '' ELSE url END AS url, '' AS detail,
            CASE WHEN {refused} AND low IS NULL THEN 'not clean' ELSE '' END AS own,
            low <> csv.landmark_id OR high <> csv.landmark_id AS differs
        FROM {{csv}} AS csv LEFT JOIN (SELECT image_id AS id, min(landmark_id) AS low,
            max(landmark_id) AS high FROM clean GROUP BY image_id) USING (id)"""
    if _load_rows(tables, "rows_train", query, source, options.train_csv, columns):
        # A repeated row is a duplicate, even with another fault.
        tables.execute("""UPDATE rows_train SET own = 'duplicate', differs = false FROM (
            SELECT image_id, min(n) AS first FROM rows_train GROUP BY image_id HAVING count(*) > 1
        ) AS again WHERE rows_train.image_id = again.image_id AND n > first""")
    wrong = tables.sql("""SELECT image_id, clean.landmark_id, rows.landmark_id
        FROM clean JOIN rows_train AS rows USING (image_id)
        WHERE differs AND clean.landmark_id <> rows.landmark_id ORDER BY clean.n""").fetchall()
    if wrong:
        image, listed, other = wrong[0]
        raise InvalidData(
            f"{source / options.train_clean_csv}: image {image} is under landmark {listed}, but "
            f"train.csv says {other} ({len(wrong)} such images); do the two files belong together?"
        )
    tables.execute("ALTER TABLE rows_train DROP differs")
    tables.execute(
        """INSERT INTO rows_train SELECT n + (SELECT count(*) FROM rows_train), image_id,
            landmark_id, '', $detail,
            CASE WHEN n > min(n) OVER (PARTITION BY image_id) THEN 'duplicate'
                ELSE 'not in csv' END
        FROM clean ANTI JOIN rows_train USING (image_id)""",
        {"detail": f"in {options.train_clean_csv}, not in {options.train_csv}"},
    )
    tables.execute("DROP TABLE clean")


def _exclude(tables: "DuckDBPyConnection", options: CollectOptions) -> None:
    """Give the train rows that a list leaves out their reason."""
    for option, relation in LISTS:
        for path in getattr(options, option):
            columns = list_columns(path, option, landmarks=True)
            column = next(iter(columns))
            key = "landmark_id" if column == "landmark_id" else "image_id"
            cell = f"unnest(string_split_regex(images, '[{BLANKS}]+'))"
            query = f"CREATE TABLE listed AS SELECT {cell if column == 'images' else column} AS key"
            query += " FROM {csv} WHERE true"
            if DECISION in columns:
                query += f" AND lower(trim({DECISION}, '{BLANKS}')) = 'drop'"
            if "split" in columns:
                query += f" AND split NOT IN {INDEX_SPLITS}"
            query_csv(tables, query, path, columns, numbered=False)
            counted = "SELECT count(DISTINCT nullif(CAST(key AS VARCHAR), '')) FROM listed"
            strange, count = (
                tables.execute(counted + join).fetchall()[0][0]
                for join in (f" ANTI JOIN rows_train ON {key} = key", "")
            )
            report_strange(path, columns, strange, count)
            tables.execute(
                f"""UPDATE rows_train SET own = 'excluded', detail = $1 WHERE own = '' AND
                ({key} IN (SELECT key FROM listed)) = {option == "exclude"}""",
                [f"{relation} {path.name}"],
            )
            tables.execute("DROP TABLE listed")


def _load_rows(
    tables: "DuckDBPyConnection",
    name: str,
    query: str,
    source: Path,
    file: str,
    columns: Mapping[str, ColumnType],
) -> bool:
    """Load a CSV of images by a query that makes a table; return whether an id occurs twice.

    Without a file, the table is empty.
    """
    if not file:
        empty = {"int": "CAST(0 AS BIGINT)", "text": "''"}
        cells = ", ".join(f"{empty[kind]} AS {column}" for column, kind in columns.items())
        tables.execute(query.replace("{csv}", f"(SELECT 0 AS n, {cells} WHERE false)"))
        return False
    path = source / file
    query_csv(tables, query, path, columns, numbered=False)
    repeated = f"SELECT 1 FROM {name} GROUP BY image_id HAVING count(*) > 1 LIMIT 1"
    if not tables.execute(repeated).fetchall():
        return False
    # Only to find the first of several rows must they be numbered, which one core does.
    tables.execute(f"DROP TABLE {name}")
    query_csv(tables, query, path, columns)
    return True


def _read_solution(source: Path, options: CollectOptions) -> pd.DataFrame:
    if not options.retrieval_solution_csv:
        return SOLUTION.empty()
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


def _load_queries(
    tables: "DuckDBPyConnection", solution: pd.DataFrame, source: Path, options: CollectOptions
) -> None:
    """Load one row for each test image with the landmark of its first relevant index image."""
    path = source / options.retrieval_solution_csv
    queries = pa.table({
        "n": pa.array(range(len(solution)), pa.int64()),
        "image_id": pa.array(solution["id"], pa.string()),
        "images": pa.array(solution["images"], pa.string()),
        "ignored": pa.array(solution.get("ignored", []), pa.bool_()),
    })  # fmt: skip
    tables.register("queries", queries)
    # The official solution lists images only; the landmark is that of the first one.
    tables.execute(
        """CREATE TABLE rows_test AS SELECT queries.n, queries.image_id,
            coalesce(landmark_id, -1) AS landmark_id, '' AS url,
            CASE WHEN ignored THEN $detail ELSE '' END AS detail,
            CASE WHEN ignored THEN 'ignored query' ELSE '' END AS own
        FROM queries LEFT JOIN (
            SELECT image_id AS first, arg_min(landmark_id, n) AS landmark_id FROM rows_index
            WHERE image_id IN (SELECT split_part(images, ' ', 1) FROM queries) GROUP BY image_id
        ) ON split_part(images, ' ', 1) = first AND images <> ''""",
        {"detail": f"without relevant images in {options.retrieval_solution_csv}"},
    )
    lost = tables.sql("""SELECT n, first FROM (
            SELECT n, split_part(images, ' ', 1) AS first FROM queries WHERE NOT ignored
        ) ANTI JOIN rows_index ON first = image_id ORDER BY n LIMIT 1""").fetchall()
    if lost:
        raise InvalidData(
            f"{path} row {row_in_file(path, lost[0][0])}: image {lost[0][1]} is "
            f"not in {options.index_image_csv}; do the two files belong together?"
        )
    # A sign that a long cell was truncated.
    unknown = tables.sql("""SELECT n, image_id FROM (
            SELECT n, unnest(string_split(images, ' ')) AS image_id FROM queries WHERE images <> ''
        ) ANTI JOIN rows_index USING (image_id) ORDER BY n""").fetchall()
    if unknown:
        row = row_in_file(path, unknown[0][0])
        ids = f"{count_text(len(unknown), 'relevant id')} {verb_text(len(unknown), 'are')}"
        say(
            f"{path}: {ids} of no index image, such as "
            f"'{unknown[0][1]}' in row {row}; is the file cut short?"
        )
    tables.unregister("queries")


def _locate(
    tables: "DuckDBPyConnection", split: str, source: Path, pattern: str, state: Path
) -> None:
    """Find each row's image in the tars; rows and members without a match have a reason."""
    tables.execute(f"CREATE TABLE files_{split} (n BIGINT, image_id VARCHAR, tar INTEGER, "
                   '"offset" BIGINT, size_bytes BIGINT)')  # fmt: skip
    held: list[pa.Table] = []
    count, before = 0, tables.execute("SELECT count(*) FROM tars").fetchall()[0][0]

    def flush() -> None:
        if held:
            tables.register("held", pa.concat_tables(held))
            tables.execute(f"INSERT INTO files_{split} SELECT * FROM held")
            tables.unregister("held")
            held.clear()

    # A tar without members has no number, since the next split goes on from the number of rows.
    for number, members in enumerate(filter(len, index_tars(source, pattern, state)), before):
        path, size = members["path"][0].as_py(), len(members)
        tables.execute("INSERT INTO tars VALUES ($1, $2)", [number, path])
        held.append(pa.table({
            "n": np.arange(count, count + size), "image_id": members["image_id"],
            "tar": np.full(size, number, np.int32), "offset": members["offset"],
            "size_bytes": members["size_bytes"],
        }))  # fmt: skip
        count += size
        if sum(map(len, held)) > TOGETHER:
            flush()
    flush()
    for query in (JUDGED, REPEATED, LOCATED):
        tables.execute(query.replace("{split}", split))
    rows, taken, dropped = tables.execute(
        f"""SELECT (SELECT count(*) FROM rows_{split}), count(*) FILTER (reason = ''),
        count(*) FILTER (reason <> '' AND n IS NOT NULL) FROM located_{split}"""
    ).fetchall()[0]
    assert rows == taken + dropped, "rows in = rows out + dropped"
    tables.execute(f"DROP VIEW judged_{split}")
    tables.execute(f"DROP TABLE rows_{split}")
    tables.execute(f"DROP TABLE files_{split}")


def _ids(tables: "DuckDBPyConnection", *splits: str) -> "pd.Series[int]":
    """Landmark ids of the images of some splits."""
    parts = " UNION ALL ".join(
        f"SELECT landmark_id FROM located_{split} WHERE reason = ''" for split in splits
    )
    found = tables.sql(
        f"SELECT DISTINCT landmark_id FROM ({parts}) ORDER BY landmark_id"
    ).fetchall()
    return pd.Series([row[0] for row in found], dtype="int64")


def _credit(tables: "DuckDBPyConnection", source: Path, options: CollectOptions) -> None:
    """Join the taken train images with author, license, title and url of the attribution CSV."""
    columns: dict[str, ColumnType] = {"id": "text", **dict.fromkeys(CREDITS, "text")}
    known = ", ".join(_first_filled(name, f"csv.{name}") for name in CREDITS[:-1])
    query = f"""CREATE TABLE images_train AS SELECT csv.n, image_id, landmark_id, tar, "offset",
            size_bytes, {known}, {_first_filled("url", "rows.url", "csv.url")}
        FROM {{csv}} AS csv JOIN located_train AS rows ON image_id = csv.id WHERE reason = ''"""
    file = options.train_attribution_csv
    if _load_rows(tables, "images_train", query, source, file, columns):
        tables.execute("""DELETE FROM images_train USING (
            SELECT image_id, min(n) AS first FROM images_train GROUP BY image_id HAVING count(*) > 1
        ) AS again WHERE images_train.image_id = again.image_id AND n > first""")
    tables.execute(f"""INSERT INTO images_train SELECT 0, image_id, landmark_id, tar, "offset",
            size_bytes, '{UNKNOWN}', '{UNKNOWN}', '{UNKNOWN}', {_first_filled("url", "rows.url")}
        FROM located_train AS rows ANTI JOIN images_train USING (image_id) WHERE reason = ''""")
    tables.execute("DROP TABLE located_train")


def _first_filled(name: str, *columns: str) -> str:
    """SQL for the first of some cells with more than blanks, or unknown."""
    cases = ""
    for column in columns:
        # Most cells are recognised by their first letter.
        cases += f"WHEN ascii({column}) BETWEEN 33 AND 126 THEN {column} "
        cases += f"WHEN trim({column}, '{BLANKS}') <> '' THEN {column} "
    return f"CASE {cases} ELSE '{UNKNOWN}' END AS {name}"


def _write_images(
    tables: "DuckDBPyConnection", state: Path, ids: "pd.Series[int]", options: CollectOptions
) -> LargeTable:
    """Write the images of all splits, and report how many there are.

    ``ids`` are the landmarks of the train images.
    """
    splits = split_classes(ids.astype(str).tolist(), options)
    tables.register(
        "splits", pa.table({"landmark_id": pa.array(ids), "split": pa.array(splits, pa.string())})
    )
    parts = [
        f"""SELECT image_id, split, landmark_id, path, "offset", size_bytes, {", ".join(CREDITS)}
        FROM images_train JOIN splits USING (landmark_id) JOIN tars USING (tar)"""
    ]
    parts += [
        f"""SELECT image_id, '{split}', landmark_id, path, "offset", size_bytes, '{UNKNOWN}',
            '{FREE}', '{UNKNOWN}', '{UNKNOWN}'
        FROM located_{split} JOIN tars USING (tar) WHERE reason = ''"""
        for split in ("index", "test")
    ]
    declared = declared_table("images")
    query = f"SELECT * FROM ({' UNION ALL '.join(parts)}) ORDER BY split, image_id"
    images = write_query(tables, query, state / declared.file, declared.columns)
    counts = tables.execute(
        "SELECT split, count(DISTINCT landmark_id), count(*) FROM read_parquet($1) GROUP BY split",
        [str(images.path)],
    ).fetchall()
    say(describe_counts({split: (classes, rows) for split, classes, rows in counts}))
    return images


def _write_dropped(
    tables: "DuckDBPyConnection", state: Path, options: CollectOptions
) -> LargeTable:
    """Write the rows and files that are not taken, each with its reason."""
    files = {
        "train": (options.train_csv or options.train_clean_csv, options.train_tars),
        "index": (options.index_image_csv, options.index_tars),
        "test": (options.retrieval_solution_csv, options.test_tars),
    }
    parts = []
    for split, (file, pattern) in files.items():
        names = {"$file": file, "$clean": options.train_clean_csv,
                 "$pattern": pattern or "any tar (none listed)"}  # fmt: skip
        part = LEFT_OUT.replace("{split}", split)
        for name, value in names.items():
            part = part.replace(name, sql_text(value))
        parts.append(part)
    tables.execute("CREATE VIEW left_out AS " + " UNION ALL ".join(parts))
    declared = declared_table("images_dropped")
    return write_query(tables, DROPPED, state / declared.file, declared.columns)


def _landmarks(space: str, file: str, source: Path, ids: "pd.Series[int]") -> pd.DataFrame:
    """Return all landmarks of an id space: rows of the category CSV, then those only in images."""
    table = CATEGORIES.read(source / file) if file else CATEGORIES.empty()
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
