"""The pipelines for Google Landmarks v2 say what the data set and the papers say.

Expected values are typed from the data set's own page (cvdfoundation/google-landmark) and from
Ramzi et al. 2024, section VI and Table VII.
"""

import csv
from pathlib import Path

import pytest

from hgld.config import Download, Pipeline, load_pipeline

FROM_SCRATCH, PUBLISHED = Path("pipelines/gldv2.toml"), Path("pipelines/h-gldv2.toml")
BOTH = pytest.mark.parametrize("path", [FROM_SCRATCH, PUBLISHED], ids=lambda path: path.stem)
CSVS = {
    "metadata/train.csv",
    "metadata/train_clean.csv",
    "metadata/train_attribution.csv",
    "metadata/train_label_to_category.csv",
    "metadata/index.csv",
    "metadata/test.csv",
    "ground_truth/index_image_to_landmark.csv",
    "ground_truth/index_label_to_category.csv",
    "ground_truth/retrieval_solution_v2.1.csv",
}
LABELS = {
    "metadata/train_label_to_hierarchical.csv",
    "ground_truth/index_label_to_hierarchical.csv",
}
TABLE_VII = """
    SoftBin        39.0  35.2  74.6  94.4
    Smooth-AP      42.5  37.3  76.9  94.7
    R@k            41.6  36.8  77.1  94.7
    ROADMAP        42.9  37.0  75.0  94.4
    CSL            37.5  36.2  85.4  95.7
    HAPPIER        41.6  38.8  83.8  95.7
    HAPPIER_F      43.7  38.3  77.5  94.8
"""
NATURAL = {
    "mountain", "parks", "lake", "island", "river", "garden", "waterfall", "canal", "ocean area",
    "cave", "beach", "agricultural land", "volcano", "trail", "tree", "stone", "wetland", "cliff",
}  # fmt: skip


def downloads(pipeline: Pipeline) -> dict[str, Download]:
    return {download.url: download for download in pipeline.fetch.downloads}


@BOTH
def test_the_files_are_those_that_google_publishes(path: Path) -> None:
    pipeline = load_pipeline(path)
    assert pipeline.fetch.base_url == "https://s3.amazonaws.com/google-landmark/"
    listed = {url for url in downloads(pipeline) if url.endswith(".csv")}
    assert listed >= CSVS
    assert (listed >= LABELS) == (path == PUBLISHED)


@BOTH
@pytest.mark.parametrize(
    ("split", "count", "gigabytes"), [("train", 500, 500), ("index", 100, 85), ("test", 20, 10)]
)
def test_the_tars_are_620_of_595_gigabytes(
    path: Path, split: str, count: int, gigabytes: int
) -> None:
    tars = downloads(load_pipeline(path))[f"{split}/images_{{number:03d}}.tar"]
    assert (tars.count, tars.count * tars.megabytes / 1000) == (count, gigabytes)
    assert tars.url.format(number=7) == f"{split}/images_007.tar"
    assert tars.md5_url.format(number=7) == f"md5sum/{split}/md5.images_007.txt"


@BOTH
@pytest.mark.parametrize(
    ("file", "rows", "row_bytes"),  # an id has 16 digits; a landmark's number up to 6
    [
        ("metadata/index.csv", 761_757, 17),
        ("metadata/test.csv", 117_577, 17),
        ("metadata/train_clean.csv", 1_580_470, 17 + 81_313 * 6 / 1_580_470),
        ("ground_truth/index_image_to_landmark.csv", 761_757, 23),
        ("metadata/train.csv", 4_132_914, 127),  # with an address, as those at hand
    ],
)
def test_the_sizes_of_files_are_those_of_their_published_rows(
    path: Path, file: str, rows: int, row_bytes: float
) -> None:
    stated = downloads(load_pipeline(path))[file].megabytes
    assert stated == pytest.approx(rows * row_bytes / 1e6, rel=0.1)


@BOTH
def test_every_file_that_collect_and_label_read_is_fetched(path: Path) -> None:
    pipeline = load_pipeline(path)
    fetched = set(downloads(pipeline))
    named = {v for k, v in pipeline.collect.model_dump().items() if k.endswith("_csv")}
    assert named <= fetched
    if pipeline.label.source == "published":
        assert {pipeline.label.train_csv, pipeline.label.index_csv} == LABELS


@BOTH
def test_the_splits_are_the_papers(path: Path) -> None:
    pipeline = load_pipeline(path)
    assert pipeline.collect.clean_only and pipeline.collect.evaluation_share == 0
    assert (pipeline.evaluate.query, pipeline.evaluate.gallery) in (("test", "index"), ("", ""))
    assert pipeline.source.kind == "gldv2"


def test_the_numbers_told_are_the_published_ones() -> None:
    assert "1,580,470 images of 81,313 landmarks" in FROM_SCRATCH.read_text("utf-8")
    text = PUBLISHED.read_text("utf-8")
    assert "970,981 training photos of 46,593 landmarks" in text
    assert all(f"# {line}\n" in text for line in TABLE_VII.splitlines() if line)


def test_labels_are_made_as_the_authors_made_them() -> None:
    pipeline = load_pipeline(FROM_SCRATCH)
    assert pipeline.embed.encoder == "ViT-L-14/laion2b_s32b_b82k"
    assert pipeline.embed.prompt == "A picture of a {label}"
    assert pipeline.cluster.clusters > 78 and pipeline.scrape.source == "wikimedia"


def test_the_taxonomy_has_18_natural_and_60_human_made_supercategories() -> None:
    with Path("labels/gldv2/taxonomy.csv").open(encoding="utf-8", newline="") as file:
        kinds = {row["supercategory"]: row["kind"] for row in csv.DictReader(file)}
    assert len(kinds) == 78
    assert {name for name, kind in kinds.items() if kind == "natural"} == NATURAL
    assert sum(kind == "human-made" for kind in kinds.values()) == 60


@BOTH
def test_politeness_is_within_what_wikimedia_allows(path: Path) -> None:
    scrape = load_pipeline(path).scrape
    assert scrape.requests_per_second * 60 <= 200 and scrape.batch_size <= 50
    assert scrape.maxlag == 5


@BOTH
def test_a_release_holds_labels_alone_unless_a_person_asks_for_more(path: Path) -> None:
    assert load_pipeline(path).publish.parts == "labels"
