"""A review of full size: 5,700 values from a table to labels, and clustered anew in other ways.

The 1,003 real values and made variants of them, as many as GLDv2 has. Two minutes on one core.
"""

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from hgld.artifacts import declared_table, read_csv, table_of
from tests.cli.test_reviews import hgld, rows_of, write_rows
from tests.made_clip import save_clip

VALUES = 5_700
LANDMARKS_OF_A_VALUE = 12  # at most
VARIANTS = ("ruined", "former", "listed", "medieval", "small", "wooden", "national")
PIPELINE = """
labels = "labels"
[source]
kind = "folder"
[scrape]
source = "table"
table = "words.csv"
[embed]
encoder = "offline:minilm"
[cluster]
clusters = 150
restarts = 1
[review]
who = "a person"
"""
LIMIT_S = 400


@pytest.fixture(scope="module")
def words(real_data: Path) -> pd.DataFrame:
    """label, count: the real values, then made variants of them."""
    path = real_data / "instance-of" / "all_instance_of_labels.csv"
    real = read_csv(path, {"label": "text", "count": "int"})
    real = real[real["label"] != "Wikimedia category"]
    made = [real.assign(label=word + " " + real["label"]) for word in VARIANTS]
    return pd.concat([real, *made], ignore_index=True).drop_duplicates("label")[:VALUES]


def set_up(folder: Path, words: pd.DataFrame, taxonomy: Path) -> None:
    """A work folder with the landmarks of each word, and nothing decided."""
    (folder / "pipeline.toml").write_text(PIPELINE)
    (folder / "labels").mkdir()
    (folder / "labels" / "taxonomy.csv").write_bytes(taxonomy.read_bytes())
    times = words["count"].clip(upper=LANDMARKS_OF_A_VALUE)
    labels = words["label"].repeat(times).tolist()
    ids = range(len(labels))
    table = pd.DataFrame({"landmark_id": ids, "supercategory": labels})
    table.to_csv(folder / "words.csv", index=False)
    places = pd.DataFrame({"split": "train", "landmark_id": ids, "name": labels, "commons_url": ""})
    write(folder, "landmarks", places)
    write(folder, "images", table_of("images", []))


def write(folder: Path, name: str, table: pd.DataFrame) -> None:
    artifact = declared_table(name)
    artifact.write(table, folder / "work" / artifact.file)


def drawn(text: str, names: Sequence[str]) -> str:
    """One of the names, always the same for a text."""
    return names[int(hashlib.sha256(text.encode()).hexdigest(), 16) % len(names)]


def decide(folder: Path, names: Sequence[str]) -> None:
    """A third of the values one by one, the others by their cluster."""
    sheets = [folder / "work" / name for name in ("review.csv", "review_clusters.csv")]
    values, clusters = map(rows_of, sheets)
    for row in values[::3]:
        place = drawn(row["instance_of"], [*names, "drop"])
        row.update(decision="drop") if place == "drop" else row.update(
            decision="keep", supercategory=place
        )
    for row in clusters:
        row.update(action="accept", supercategory=drawn(row["cluster_name"], names))
    for sheet, rows in zip(sheets, (values, clusters), strict=True):
        write_rows(sheet, rows, ";")  # as a German spreadsheet saves it


def decided(folder: Path) -> dict[str, tuple[str, ...]]:
    """What the sheet says of each value, and that it is decided."""
    columns = ("decision", "supercategory", "kind", "status")
    rows = rows_of(folder / "work" / "review.csv")
    return {row["key"]: tuple(row[name] for name in columns) for row in rows}


@pytest.mark.rehearsal
def test_5700_values_go_from_a_table_to_labels_and_no_clustering_loses_a_decision(
    words: pd.DataFrame, tmp_path: Path
) -> None:
    start = time.perf_counter()
    set_up(tmp_path, words, Path("labels/gldv2/taxonomy.csv"))
    for verb in ("scrape", "clean", "embed", "cluster"):
        hgld(tmp_path, verb)
    hgld(tmp_path, "review", code=20)
    names = [row["supercategory"] for row in rows_of(tmp_path / "labels" / "taxonomy.csv")]
    decide(tmp_path, names)
    hgld(tmp_path, "review", "--apply")
    first = decided(tmp_path)
    assert len(first) == len(words) == VALUES
    assert {cells[-1] for cells in first.values()} == {"decided"}
    hgld(tmp_path, "label")
    labels = (tmp_path / "work" / "train_label_to_hierarchical.csv").read_bytes()

    hgld(tmp_path, "cluster", "--set", "cluster.clusters=90")
    hgld(tmp_path, "review")
    assert decided(tmp_path) == first

    (tmp_path / "clip").mkdir()
    save_clip(tmp_path / "clip")
    other = f"embed.encoder=local-dir:{tmp_path / 'clip'}"
    hgld(tmp_path, "embed", "--set", other)
    said = hgld(tmp_path, "cluster", "--set", other).err
    assert "clusters against those before" in said
    hgld(tmp_path, "review")
    assert decided(tmp_path) == first
    hgld(tmp_path, "label")
    assert (tmp_path / "work" / "train_label_to_hierarchical.csv").read_bytes() == labels
    assert time.perf_counter() - start < LIMIT_S
