"""The joins of ``collect`` in DuckDB and in polars: ``python -m tests.benchmarks --part engines``.

Both read GLDv2's list of train images and their attributions (made, a quarter of them) and join
them by id, once with and once without a sort and a Parquet file of the result. Each work is in a
process of its own. DuckDB has the limit that ``collect.memory_gb = 1`` gives it; polars runs in its
streaming engine, which has no limit to set.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.meters import Row, from_process, status_kb

ABOUT = ("author", "license", "title", "url")


def rows(share: float = 0.25) -> list[Row]:
    """Seconds of the processor and peak of the memory of each engine and work."""
    from tests.full_size.made_world import make_world

    found = []
    with tempfile.TemporaryDirectory(prefix="hgld-engines-") as name:
        folder = Path(name)
        make_world(folder, share, in_tars=0.001)  # no tar is read
        for work in ("count", "write"):
            for engine in ENGINES:
                seconds, megabytes = from_process(
                    "-m", "tests.benchmarks.engines", engine, work, folder, POLARS_MAX_THREADS="2"
                )
                what = f"{work} the joined rows of {share:.0%} of GLDv2: {engine}"
                found.append(Row(what, seconds, "s"))
                found.append(Row(f"{what}, peak memory", megabytes, "MB"))
    return found


def _join_in_duckdb(folder: Path, work: str) -> int:
    from hgld.artifacts import engine

    about = ", ".join(f"csv.{name}" for name in ABOUT)
    joined = (
        f"SELECT id, landmark_id, {about} FROM "
        f"read_csv('{folder}/metadata/train.csv', all_varchar = true) AS rows "
        f"JOIN read_csv('{folder}/metadata/train_attribution.csv', all_varchar = true) AS csv "
        "USING (id)"
    )
    with engine(folder / "spill", 1) as tables:
        if work == "write":
            # In two steps, as collect: a join and a sort at once do not fit into the limit.
            tables.execute(f"CREATE TABLE joined AS {joined}")
            tables.execute(
                f"COPY (FROM joined ORDER BY id) TO '{folder}/{work}.parquet' "
                "(FORMAT parquet, COMPRESSION zstd)"
            )
            counted = f"SELECT count(*) FROM read_parquet('{folder}/{work}.parquet')"
        else:
            counted = f"SELECT count(author) FROM ({joined})"
        return int(tables.sql(counted).fetchall()[0][0])


def _join_in_polars(folder: Path, work: str) -> int:
    import polars

    rows, csv = (
        polars.scan_csv(folder / "metadata" / name, infer_schema=False)
        for name in ("train.csv", "train_attribution.csv")
    )
    joined = rows.drop("url").join(csv, on="id").select("id", "landmark_id", *ABOUT)
    if work == "count":
        counted = joined.select(polars.col("author").count())
        return int(counted.collect(engine="streaming").item())
    path = folder / f"{work}.parquet"
    joined.sort("id").sink_parquet(path, compression="zstd")
    return int(polars.scan_parquet(path).select(polars.len()).collect().item())


ENGINES: dict[str, Callable[[Path, str], int]] = {
    "DuckDB": _join_in_duckdb,
    "polars": _join_in_polars,
}


def main() -> None:
    """One work of one engine, in a process of its own."""
    engine, work, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    ENGINES[engine](folder, work)
    print(json.dumps([time.process_time(), status_kb("VmHWM") / 1e3]))


if __name__ == "__main__":
    main()
