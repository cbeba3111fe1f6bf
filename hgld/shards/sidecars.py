"""Write the files beside the shards: index, manifest, attribution, and descriptors for other tools.

The index locates samples, the manifest verifies a copy, and the attribution gives credit. The
manifest is written after the files that it describes and contains the hash of the index, so a
folder with a manifest is complete.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from braceexpand import braceexpand
from pyarrow import parquet

from hgld.artifacts import (
    Json,
    LargeTable,
    atomic_path,
    engine,
    hash_file,
    sql_text,
    write_csv,
    write_file,
)
from hgld.artifacts.cells import guard_formulas
from hgld.shards.classes import Classes
from hgld.shards.schema import HIERARCHY, RULES, numbered_levels
from hgld.tasks import say
from hgld.words import count_text

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

DROPPED = "index_dropped.csv"  # samples that `hgld shards index` left out: shard, key, reason
SIDECARS = (
    "SHA256SUMS",
    "attribution.csv",
    "classes.csv",
    "index.parquet",
    "manifest.json",
    "sizes.json",  # open_clip: samples of each tar
    "__len__",  # open_clip: samples of all
    RULES,
    HIERARCHY,
    DROPPED,
)
ROWS = 1 << 18  # rows of a table that are converted to text at a time
ATTRIBUTION = ["split", "image_id", "title", "author", "license", "url"]


def write_sidecars(
    out: Path,
    shards: Iterable[tuple[pd.DataFrame, Mapping[str, Any]]],
    classes: Classes,
    *,
    options: Mapping[str, Any],
    labels_sha256: str,
    spill: Path,
    memory_gb: float | None = None,
) -> None:
    """Write all sidecars of a finished set of shards.

    Args:
        out: the folder of shards.
        shards: of each shard, sorted by split and name, its rows of the index and its facts: file,
            split, sha256, bytes, samples and runs.
        classes: the classes of all levels.
        options: those that decide the shards.
        labels_sha256: hash of the hierarchy.
        spill: folder for temporary tables.
        memory_gb: memory for sorting; None: a quarter of the machine's.
    """
    with atomic_path(out / "index.parquet") as temporary:
        facts, splits = _write_index(shards, numbered_levels(len(classes.levels)), temporary)
    write_csv(guard_formulas(classes.table), out / "classes.csv")
    with engine(spill, memory_gb) as tables:
        write_credits(out / "index.parquet", out, tables)
        write_descriptors(out, facts)
        manifest = {
            "levels": list(classes.levels),
            "splits": splits,
            "shards": facts,
            "options": dict(options),
            "labels_sha256": labels_sha256,
            "index_sha256": hash_file(out / "index.parquet"),
        }
        Json("manifest.json").write(manifest, out / "manifest.json")
        # Last, since SHA256SUMS covers the manifest, too.
        write_checksums(out, checksums(out, facts))
        _report_copies(out / "index.parquet", len(classes.levels), tables)


def _write_index(
    shards: Iterable[tuple[pd.DataFrame, Mapping[str, Any]]], levels: Sequence[str], path: Path
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Write one row group a shard, so that a reader of some shards decodes only theirs.

    Returns:
        The facts of the shards, and counts of each split, as the manifest has them.
    """
    facts, schema = list[dict[str, Any]](), pa.schema([])
    files = defaultdict[str, list[str]](list)  # of each split
    numbers = defaultdict[tuple[str, str], set[int]](set)  # classes of each split and level
    with ExitStack() as stack:
        writer: parquet.ParquetWriter | None = None
        for rows, fact in shards:
            if writer is None:
                schema = pa.Schema.from_pandas(rows, preserve_index=False)
                writer = stack.enter_context(
                    parquet.ParquetWriter(path, schema, compression="zstd")
                )
            if len(rows):
                writer.write_table(pa.Table.from_pandas(rows, schema, preserve_index=False))
                split = str(fact["split"])
                files[split].append(str(fact["file"]))
                for level in levels:
                    numbers[split, level].update(rows[level].unique().tolist())
            facts.append(dict(fact))
        if writer is not None and not files:
            writer.write_table(schema.empty_table())
    splits = {
        split: {
            "samples": sum(fact["samples"] for fact in facts if fact["split"] == split),
            "classes": len(numbers[split, levels[-1]]),
            "classes_per_level": [len(numbers[split, level]) for level in levels],
            "shards": len(files[split]),
            "brace": brace_string(files[split]),
        }
        for split in sorted(files)
    }
    return sorted(facts, key=lambda fact: str(fact["file"])), splits


def outdated_files(names: Iterable[str], planned: Collection[str]) -> list[str]:
    """Sidecars, and shards that are not planned, among the files of an earlier export.

    The manifest is first: without it the folder counts as incomplete while shards are written.

    Example:
        >>> outdated_files(["other.tar", "train-000000.tar", "train-000001.tar", "manifest.json"],
        ...                planned={"train-000000.tar"})
        ['manifest.json', 'train-000001.tar']
    """
    shard = re.compile(r"(?s).*-[0-9]{6}\.tar")  # tars with other names are not hgld's
    found = [
        name
        for name in names
        if name in SIDECARS
        or name.endswith(".wids.json")
        or (shard.fullmatch(name) and name not in planned)
    ]
    return sorted(found, key=lambda name: (name != "manifest.json", name))


def write_credits(index: Path, out: Path, tables: "DuckDBPyConnection") -> None:
    """Write attribution.csv: author and licence of each image in the index, sorted by image.

    Args:
        index: the index of the shards.
        out: folder of the new file.
        tables: for sorting.
    """
    query = f"SELECT {', '.join(ATTRIBUTION)} FROM rows ORDER BY split, image_id, n"
    with atomic_path(out / "attribution.csv") as temporary:
        tables.register("rows", _number_rows(index))
        batches = tables.sql(query).to_arrow_reader(ROWS)
        # authors and titles come from strangers
        parts = (guard_formulas(batch.to_pandas()) for batch in batches)
        write_texts(ATTRIBUTION, parts, temporary)


def _number_rows(index: Path) -> pa.RecordBatchReader:
    """Read the credits with the number of each row, for DuckDB.

    By the reader of the index itself: an index from elsewhere that it accepts may fail in DuckDB's.
    """
    schema = parquet.read_schema(index)
    fields = [*(schema.field(name) for name in ATTRIBUTION), pa.field("n", pa.int64())]

    def batches() -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in LargeTable(index).batches(ATTRIBUTION):
            numbers = pa.array(np.arange(done, done + len(batch)))
            yield pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=pa.schema(fields))
            done += len(batch)

    return pa.RecordBatchReader.from_batches(pa.schema(fields), batches())


def _report_copies(index: Path, levels: int, tables: "DuckDBPyConnection") -> None:
    """Report images with the same bytes in two splits, which leak, or in two classes of a split."""
    table = f"read_parquet({sql_text(str(index))})"
    query = (
        # by their hashes first: few images are copies, and rows of all of them fill the memory
        f"WITH often AS (SELECT hash(sha256) AS h FROM {table} GROUP BY h HAVING count(*) > 1), "
        f"images AS (SELECT sha256, split, (level_{levels}, image_id) AS image "
        f"FROM {table} SEMI JOIN often ON hash(sha256) = h), "
        "copies AS (SELECT sha256, split, min(image) AS first, max(image) AS last "
        "FROM images GROUP BY sha256, split), "
        "leaks AS (SELECT min((first[2], split)) AS a, max((first[2], split)) AS b "
        "FROM copies GROUP BY sha256 HAVING count(*) > 1) "
        "SELECT 'splits', count(*), min((a, b)) FROM leaks UNION ALL "
        "SELECT 'classes', count(*), min(((first[2], split), (last[2], split))) "
        "FROM copies WHERE first[1] < last[1] ORDER BY 1"
    )
    for which, count, pair in tables.sql(query).fetchall():
        if count:
            (a, split_a), (b, split_b) = pair
            say(
                f"{count_text(count, 'image')} in several {which}, byte for byte: first {a} "
                f"({split_a}) and {b} ({split_b}); see docs/bring-your-own-hierarchy.md, Copies of "
                "a photo"
            )


def brace_string(files: Sequence[str]) -> str:
    """Return the shard list of one split; webdataset expands it to exactly these files.

    Example:
        >>> brace_string(["train-000000.tar", "train-000001.tar", "train-000002.tar"])
        'train-{000000..000002}.tar'
        >>> brace_string(["test-000000.tar"])
        'test-000000.tar'
        >>> brace_string(["photos-0.tar", "photos-2.tar"])
        'photos-0.tar::photos-2.tar'
    """
    files = sorted(files)
    split, _, first = files[0].removesuffix(".tar").rpartition("-")
    last = files[-1].removesuffix(".tar").rpartition("-")[2]
    brace = f"{split}-{{{first}..{last}}}.tar"
    whole = len(files) > 1 and list(braceexpand(brace)) == files  # not if a number is missing
    return brace if whole else "::".join(files)


def write_descriptors(out: Path, shards: Sequence[Mapping[str, Any]]) -> None:
    """Write what open_clip (sizes.json, __len__) and wids (SPLIT.wids.json) read."""
    samples = {str(shard["file"]): int(shard["samples"]) for shard in shards}
    Json("sizes.json").write(samples, out / "sizes.json")
    write_file(out / "__len__", str(sum(samples.values())))
    for split in {str(shard["split"]) for shard in shards}:
        parts = [
            {"url": str(s["file"]), "nsamples": int(s["samples"])}
            for s in shards
            if s["split"] == split
        ]
        document = {"wids_version": 1, "name": split, "shardlist": parts}
        Json("wids").write(document, out / f"{split}.wids.json")


def write_checksums(out: Path, sums: Mapping[str, str]) -> None:
    """Write SHA256SUMS for `sha256sum --check` from the hash of each file."""
    write_file(out / "SHA256SUMS", "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))


def checksums(out: Path, shards: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """SHA-256 of each shard, from the manifest, and of each other sidecar, from its file."""
    sums = {str(shard["file"]): str(shard["sha256"]) for shard in shards}
    others = [*out.glob("*.wids.json"), *(out / name for name in SIDECARS)]
    sums |= {p.name: hash_file(p) for p in others if p.is_file() and p.name != "SHA256SUMS"}
    return sums


def write_texts(columns: Sequence[str], parts: Iterable[pd.DataFrame], path: Path) -> None:
    """Write the same bytes as ``write_csv`` for columns of text, in a quarter of the time.

    Args:
        columns: their names.
        parts: the rows, some at a time, each with these columns.
        path: of the new file.
    """
    schema = pa.schema([(name, pa.string()) for name in columns])
    with path.open("wb") as file:
        file.write(",".join(columns).encode() + b"\n")
        for rows in parts:
            if rows.empty:
                continue
            table = pa.Table.from_pandas(rows, schema, preserve_index=False)
            cells = []
            for name in columns:
                texts = table[name].combine_chunks()
                special = pc.match_substring_regex(texts, '[,"\r\n]')
                if pc.any(special).as_py():
                    doubled = pc.replace_substring(texts, '"', '""')
                    quoted = pc.binary_join_element_wise('"', doubled, '"', "")
                    texts = pc.if_else(special, quoted, texts)
                cells.append(texts)
            cells[-1] = pc.binary_join_element_wise(cells[-1], "\n", "")
            lines = pc.binary_join_element_wise(*cells, ",")
            file.write(lines.buffers()[2])  # the texts of an array are contiguous
