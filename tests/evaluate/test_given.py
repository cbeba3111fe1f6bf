import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from hgld.errors import HgldError, InvalidData, UsageError
from hgld.evaluate.given import Given, read_given, read_labels, report_unmeasured, unit_rows
from hgld.evaluate.measured_files import measure_draws, measure_files
from hgld.ranking import metrics
from hgld.tasks import watched_by
from tests.listening import heard

VECTORS = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]], np.float32)
LABELS = np.array([["nature", "lake"], ["nature", "lake"], ["built", "mill"], ["built", "dam"]])


def write(folder: Path, form: str, vectors: np.ndarray = VECTORS) -> Path:
    path = folder / f"embeddings.{form}"
    ids = np.array([f"p{i}" for i in range(len(vectors))])
    if form == "npz":
        np.savez(path, vectors=vectors, ids=ids, labels=LABELS[: len(vectors)])
    elif form == "parquet":
        table = pd.DataFrame({"image_id": ids, "embedding": list(vectors)})
        table[["kind", "place"]] = LABELS[: len(vectors)]
        table.to_parquet(path)
    else:
        np.save(path, vectors)
    return path


@pytest.mark.parametrize("form", ["npy", "npz", "parquet"])
def test_the_three_forms_say_the_same(form: str, tmp_path: Path) -> None:
    given = read_given(write(tmp_path, form))
    np.testing.assert_array_equal(given.vectors, VECTORS)
    if form != "npy":
        assert given.ids is not None and given.ids.tolist() == ["p0", "p1", "p2", "p3"]
        assert given.labels is not None and given.labels.to_numpy().tolist() == LABELS.tolist()


@pytest.mark.parametrize("form", ["npz", "parquet"])
def test_embeddings_come_in_the_order_that_is_asked_for(form: str, tmp_path: Path) -> None:
    given = read_given(write(tmp_path, form))
    np.testing.assert_array_equal(given.of(np.array(["p3", "p0"])), VECTORS[[3, 0]])
    with pytest.raises(InvalidData, match="1 of 2 images has no embedding, first p9"):
        given.of(np.array(["p9", "p0"]))


def test_labels_join_by_id_or_by_row(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("image_id,place\np3,dam\np0,lake\np1,lake\np2,mill\n")
    table = read_labels(tmp_path / "labels.csv")
    by_id = read_given(write(tmp_path, "npz")).with_labels(table, tmp_path / "labels.csv")
    assert by_id.labels is not None
    assert by_id.labels["place"].tolist() == ["lake", "lake", "mill", "dam"]
    by_row = read_given(write(tmp_path, "npy")).with_labels(table, tmp_path / "labels.csv")
    assert by_row.labels is not None
    assert by_row.labels["place"].tolist() == ["dam", "lake", "lake", "mill"]
    assert by_row.ids is not None  # also those of the rows: a comparison of two models needs them
    assert by_row.ids.tolist() == ["p3", "p0", "p1", "p2"]


def test_ids_are_found_in_the_index_of_pandas_and_in_npz_and_embeddings_are_no_level(
    tmp_path: Path,
) -> None:
    given = read_given(write(tmp_path, "npz"))
    table = pd.DataFrame({"image_id": ["p3", "p0", "p1", "p2"], "place": list("dabc")})
    indexed, exported = tmp_path / "indexed.parquet", tmp_path / "exported.npz"
    table.assign(embedding=list(VECTORS)).set_index("image_id").to_parquet(indexed)
    assert read_given(indexed).ids is not None
    np.savez(exported, vectors=VECTORS, ids=table["image_id"].to_numpy(str), labels=[4, 1, 2, 3])
    for path, labels in ((indexed, list("abcd")), (exported, [1, 2, 3, 4])):
        found = given.with_labels(read_labels(path), path).labels
        assert found is not None and [column.tolist() for _, column in found.items()] == [labels]


@pytest.mark.parametrize("nothing", ["", " ", None, np.nan, "-1", -1, "nan", "None", "<NA>"])
def test_queries_without_a_label_are_refused_and_may_be_in_the_gallery(nothing: object) -> None:
    """Else they would be of one class, and each the right answer to the others."""
    table = pd.DataFrame({"kind": ["n", "n", "b", "b"], "place": ["x", "x", nothing, nothing]})
    ids = np.array(["p0", "p1", "p2", "p3"])
    given = Given(Path("q.npz"), VECTORS, ids, table)
    with pytest.raises(InvalidData, match=r"q.npz: 2 of 4 queries .* p2 \(row 2\): no 'place'"):
        measure_files(given)
    query = Given(Path("q.npz"), VECTORS[:2], ids[:2], table[:2])
    assert measure_files(query, given).unmatched == {"kind": 0, "place": 0}


def test_whole_numbers_beside_missing_labels_are_the_same_classes() -> None:
    sides = [
        Given(Path("x"), VECTORS, None, pd.DataFrame({"place": places}))
        for places in ([1, 1, 2, 3], [1, 1, 2, np.nan])
    ]
    found = measure_files(*sides, metrics=["R@1"])
    assert found.unmatched == {"place": 1} and found.result.mean() == {"R@1": 1.0}
    with_halves = [replace(side, labels=side.labels + 0.5) for side in sides]
    assert measure_files(*with_halves, metrics=["R@1"]).result.mean() == {"R@1": 1.0}


def test_classes_of_one_name_below_two_parents_are_drawn_apart() -> None:
    kinds, places = ["church", "church", "bridge", "bridge"], ["other", "other", "other", "new"]
    table = pd.DataFrame({"kind": kinds, "place": places})
    given = Given(Path("x"), VECTORS, None, table)
    found = measure_files(given, metrics=["R@1", "R@1:kind"])
    assert found.facts()["bootstrap"]["units"] == 3
    assert found.table()["class"][2] == "bridge > other"
    table["place"] = ["other", "other", "old", "new"]
    found = measure_files(Given(Path("x"), VECTORS, None, table), metrics=["R@1"])
    assert found.table()["class"].tolist() == table["place"].tolist()


def test_blanks_around_a_label_do_not_count() -> None:
    sides = [
        Given(Path("x"), VECTORS, None, pd.DataFrame({"place": words}))
        for words in (["a", "a", "b", "c"], ["a ", "a", " b", "c"])
    ]
    found = measure_files(*sides, metrics=["AP"])
    assert found.result.mean() == {"AP": 1.0} and found.classes.tolist() == ["a", "a", "b", "c"]


def test_arrays_of_the_other_byte_order_are_read(tmp_path: Path) -> None:
    numbers = np.array([[0, 0], [0, 0], [1, 1], [1, 2]])
    arrays = {"vectors": VECTORS.astype(">f8"), "ids": np.arange(4).astype(">i8")}
    np.savez(tmp_path / "a.npz", **arrays, labels=numbers.astype(">i4"))
    found = measure_files(read_given(tmp_path / "a.npz"), metrics=["AP:2"])
    assert found.ids.tolist() == ["0", "1", "2", "3"] and found.result.mean() == {"AP:2": 1.0}


def test_a_row_without_an_embedding_is_named(tmp_path: Path) -> None:
    table = pd.DataFrame({"image_id": list("abcd"), "embedding": [*VECTORS[:2], None, VECTORS[3]]})
    table.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InvalidData, match=r"1 of 4 rows has no embedding, first row 2; embed"):
        read_given(tmp_path / "a.parquet")


def test_both_forms_of_an_accented_letter_are_one_class() -> None:
    labels = pd.DataFrame({"place": ["caf\u00e9", "cafe\u0301", "b", "b"]})
    found = measure_files(Given(Path("x"), np.eye(4), None, labels), metrics=["AP"])
    assert found.unmatched == {"place": 0}


def test_a_label_column_that_only_capitals_make_a_level_is_refused() -> None:
    labels = pd.DataFrame({"Split": ["train"] * 4, "place": list("aabb")})
    given = Given(Path("x.npz"), VECTORS, None, labels)
    with pytest.raises(
        InvalidData, match=r"the label column 'Split' would be a level; rename it to split"
    ):
        measure_files(given)
    assert measure_files(given, levels=["Split", "place"]).levels == ("Split", "place")


def test_a_table_with_a_column_for_each_number_is_refused_in_a_short_line(tmp_path: Path) -> None:
    pd.DataFrame(np.zeros((2, 512)), columns=[f"d{i}" for i in range(512)]).to_parquet(
        tmp_path / "wide.parquet"
    )
    says = (
        r"of lists \(it has d0, d1, d2, d3, d4, d5, \.\.\.\); put the numbers of an image into one"
    )
    with pytest.raises(InvalidData, match=says):
        read_given(tmp_path / "wide.parquet")


def test_an_image_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """Else it finds itself, e.g. after a sampler that fills up the last batch."""
    labels = pd.DataFrame({"place": list("abca")})
    given = Given(tmp_path / "q.npz", VECTORS, np.array(["p0", "p1", "p2", "p0"]), labels)
    with pytest.raises(InvalidData, match="id p0 is there twice; keep one row of it"):
        measure_files(given)


def test_queries_that_are_in_the_gallery_too_are_told(tmp_path: Path) -> None:
    given, said = read_given(write(tmp_path, "npz")), list[str]()
    other = replace(given, vectors=np.where(np.arange(4)[:, None] < 3, VECTORS, 1 - VECTORS))
    without = [
        replace(side, ids=None, path=Path(name)) for side, name in ((given, "a"), (given, "b"))
    ]
    with watched_by(None, said.append):
        measure_files(given, other, ["R@1"])
        measure_files(without[0], without[0], ["R@1"])
        measure_files(*without, ["R@1"])
    assert [text.partition(" queries are in the gallery")[0] for text in said] == [
        "3 of 4",
        "4 of 4",
        "4 of 4",
    ]


def test_labels_with_ids_of_embeddings_without_are_said_to_be_taken_in_order() -> None:
    """A table in another order gave other values without a word."""
    table, notices = pd.DataFrame({"image_id": list("abcd"), "c": list("xxyy")}), list[str]()
    given = Given(Path("q.npy"), VECTORS)
    with watched_by(None, notices.append):
        given.with_labels(table[["c"]], Path("l.csv"))
        replace(given, ids=np.array(list("abcd"))).with_labels(table, Path("l.csv"))
        assert not notices
        given.with_labels(table, Path("l.csv"))
    assert notices == ["q.npy: has no ids, so its rows are taken for those of l.csv, in order"]


def test_the_row_numbers_of_pandas_are_no_level(tmp_path: Path) -> None:
    pd.DataFrame({"image_id": list("abcd"), "place": list("abcd")}).to_csv(tmp_path / "labels.csv")
    with pytest.raises(InvalidData, match=r"labels\.csv: column 1 has no name; name or remove it"):
        read_labels(tmp_path / "labels.csv")


FOLDER = """path,split,kind,place,author,url
a/p3.jpg,evaluation,built,dam,Ann,u3
a/p0.jpg,evaluation,nature,lake,Ann,u0
a/p2.jpg,evaluation,built,mill,Bob,u2
a/p1.jpg,evaluation,nature,lake,Bob,u1
"""


def with_paths(folder: Path, *paths: str) -> Path:
    np.savez(folder / "q.npz", vectors=VECTORS[: len(paths)], ids=np.array(paths))
    (folder / "labels.csv").write_text(FOLDER)
    return folder / "q.npz"


def test_the_csv_of_a_folder_labels_embeddings_by_path_and_its_levels_alone_count(
    tmp_path: Path,
) -> None:
    query = read_given(with_paths(tmp_path, *(f"a/p{n}.jpg" for n in range(4))))
    given = query.with_labels(read_labels(tmp_path / "labels.csv"), tmp_path / "labels.csv")
    found, whole = measure_files(given), measure_files(read_given(write(tmp_path, "parquet")))
    assert found.levels == ("kind", "place")
    assert found.result.mean() == whole.result.mean()
    assert measure_files(given, levels=["author", "split"]).levels == ("author", "split")


def test_ids_that_labels_do_not_have_are_one_line_that_shows_what_they_have(
    tmp_path: Path,
) -> None:
    query, path = read_given(with_paths(tmp_path, "p0", "p1")), tmp_path / "labels.csv"
    says = r"labels\.csv: 2 of 2 images have no label by path, first p0; its own ids are such as a/"
    says += r".*; add rows for these, in the gallery with empty levels if of no class"
    with pytest.raises(InvalidData, match=says):
        query.with_labels(read_labels(path), path)


def test_a_csv_of_windows_labels_embeddings_by_path(tmp_path: Path) -> None:
    query, path = read_given(with_paths(tmp_path, "a/p0.jpg", "a/p1.jpg")), tmp_path / "labels.csv"
    path.write_text(path.read_text().replace("a/p", "a\\p"))
    table = read_labels(path)
    given = query.with_labels(table, path)
    assert given.labels is not None and len(given.labels) == 2
    assert given.ids is not None and given.ids.tolist() == ["a/p0.jpg", "a/p1.jpg"]
    said = list[str]()
    with watched_by(lambda *_: None, said.append):
        report_unmeasured(table, path, given)
    assert len(said) == 1 and "2 of 4 images" in said[0]


def test_rows_of_commas_are_no_labels_and_rows_are_counted_as_in_the_file(tmp_path: Path) -> None:
    query, path = read_given(with_paths(tmp_path, "a/p0.jpg", "a/p1.jpg")), tmp_path / "labels.csv"
    head, *rows = path.read_text().splitlines()
    commas = "," * head.count(",")  # as Excel writes them
    path.write_text("\n".join([head, commas, rows[0], "", commas, *rows[1:]]))
    given = query.with_labels(read_labels(path), path)
    assert given.labels is not None and given.labels["kind"].tolist() == LABELS[:2, 0].tolist()
    path.write_text(path.read_text().replace(rows[1], rows[1][rows[1].index(",") :]))
    with pytest.raises(InvalidData, match=r"1 of 4 rows has no path, first row 6; give each"):
        query.with_labels(read_labels(path), path)


def test_image_ids_count_before_paths(tmp_path: Path) -> None:
    table = pd.DataFrame({"path": list("dcba"), "image_id": ["p3", "p2", "p1", "p0"]})
    table["place"] = LABELS[::-1, 1]
    given = read_given(write(tmp_path, "npz")).with_labels(table, tmp_path / "labels.csv")
    assert measure_files(given, metrics=["R@1"]).levels == ("place",)
    assert given.labels is not None and given.labels["place"].tolist() == LABELS[:, 1].tolist()


def test_a_landmark_is_the_finest_level_or_the_levels_are_named(tmp_path: Path) -> None:
    table = pd.DataFrame({"landmark_id": list("aabc"), "kind": LABELS[:, 0]})
    given = Given(tmp_path / "q.npy", VECTORS, None, table)
    with pytest.raises(InvalidData, match="landmark_id is the finest level, but kind stands after"):
        measure_files(given)
    last = ("kind", "landmark_id")
    assert measure_files(given, levels=last).levels == last
    assert measure_files(replace(given, labels=table[list(last)])).levels == last


def test_labels_without_a_level_are_told(tmp_path: Path) -> None:
    table = pd.DataFrame({"split": ["test"] * 4, "url": list("abcd")})
    with pytest.raises(InvalidData, match=r"no level among its labels \(columns: split, url\)"):
        measure_files(Given(tmp_path / "q.npy", VECTORS, None, table))


def test_the_metrics_of_files_are_those_of_the_library(tmp_path: Path) -> None:
    """A second route: scores and levels by hand, metric by metric."""
    found = measure_files(read_given(write(tmp_path, "parquet")))
    unit = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    scores = torch.from_numpy(unit @ unit.T)
    levels = torch.tensor([[-1, 2, 0, 0], [2, -1, 0, 0], [0, 0, -1, 1], [0, 0, 1, -1]])
    values = found.result.per_query
    assert values["H-AP"].tolist() == pytest.approx(metrics.h_ap(scores, levels, 2).tolist())
    assert values["AP:kind"].tolist() == [1, 1, 1, 1]
    assert values["R@1:place"].nan_to_num(9).tolist() == [1, 1, 9, 9]
    assert found.unmatched == {"kind": 0, "place": 2}
    assert found.facts()["protocol"]["name"] == "all-vs-all"


def test_cpcc_of_files_is_that_of_the_library(tmp_path: Path) -> None:
    given = read_given(write(tmp_path, "parquet"))
    found = measure_files(given, metrics=["CPCC", "R@1"])
    labels = torch.from_numpy(np.stack([pd.factorize(c)[0] for _, c in given.labels.items()], 1))
    expected = metrics.cpcc(torch.from_numpy(unit_rows(given.vectors)), labels)
    assert found.facts()["mean"]["CPCC"] == pytest.approx(expected)
    assert list(found.intervals) == ["R@1"]


@pytest.mark.parametrize("none", ["", "-1", "nan"])
def test_a_distractor_is_no_class_of_cpcc(none: str) -> None:
    vectors = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    names = ["nature"] * 4 + ["built"] * 2, ["lake", "lake", "hill", "sea", "mill", "dam"]
    labels = pd.DataFrame({"kind": [*names[0], none], "place": [*names[1], none]})
    query = Given(Path("q"), vectors[:6], None, labels[:6])
    whole = Given(Path("g"), vectors, None, labels)
    found = [
        measure_files(query, gallery, metrics=["CPCC", "AP:place"]).result.mean()
        for gallery in (query, whole)
    ]
    assert found[0]["CPCC"] == found[1]["CPCC"] and not math.isnan(found[0]["CPCC"])


def test_a_gallery_stays_on_the_cpu_and_a_device_without_memory_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = []

    def short(query: torch.Tensor, _: object, gallery: torch.Tensor, *__: object, **___: object):
        places.extend([query.device.type, gallery.device.type])
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")

    monkeypatch.setattr("hgld.evaluate.measured_files.evaluate", short)
    given = read_given(write(tmp_path, "npz"))
    for device, helps in (("cpu", "measure fewer"), ("meta", "to rank on the CPU, put")):
        monkeypatch.setattr(
            "hgld.evaluate.measured_files.choose_device", lambda _, d=device: torch.device(d)
        )
        says = f"^evaluate: out of memory while ranking on {device}; {helps}[^\n]*$"
        with pytest.raises(HgldError, match=says):
            measure_files(given)
    assert places == ["cpu", "cpu", "meta", "cpu"]


def test_a_class_that_the_gallery_lacks_is_counted_and_is_no_error(tmp_path: Path) -> None:
    query = read_given(write(tmp_path, "npz"))
    (tmp_path / "few").mkdir()
    gallery = read_given(write(tmp_path / "few", "npz", VECTORS[:3]))
    found = measure_files(query, gallery, ["AP:2"])
    assert found.unmatched == {"1": 0, "2": 1} and found.result.skipped == {"AP:2": 1}
    assert found.result.mean() == {"AP:2": 1.0}


def test_words_are_matched_by_the_whole_path() -> None:
    """A park of nature and a park that was built share no level, though the word is one."""
    table = pd.DataFrame({"kind": ["nature", "built", "built"], "group": ["park", "park", "park"]})
    query = Given(Path("x.npy"), np.eye(3, dtype=np.float32), None, table)
    assert measure_files(query, metrics=["R@1:group"]).result.skipped == {"R@1:group": 1}


def test_the_inner_product_counts_where_it_is_asked_for() -> None:
    """By cosine the second image is nearest to the first; by inner product the long third is."""
    vectors = np.array([[1, 0], [2, 0.1], [9, 9]], np.float32)
    given = Given(Path("x"), vectors, None, pd.DataFrame({"c": ["a", "a", "b"]}))
    assert measure_files(given, metrics=["R@1"]).result.per_query["R@1"][0] == 1
    assert measure_files(given, metrics=["R@1"], cosine=False).result.per_query["R@1"][0] == 0


def test_unit_rows_divide_before_they_are_rounded() -> None:
    vectors = np.random.default_rng(0).normal(size=(20, 5))
    unit = unit_rows(vectors)
    for scale in (1e300, 1e-300):
        np.testing.assert_allclose(unit_rows(vectors * scale), unit, rtol=3e-7)
    few = vectors.astype(np.float32)
    lengths = np.sqrt((few.astype(np.float64) ** 2).sum(axis=1))[:, None].astype(np.float32)
    np.testing.assert_array_equal(unit_rows(few), few / lengths)  # as ever, to the bit
    np.testing.assert_array_equal(unit_rows(few * np.float32(2**125)), unit_rows(few))
    small = np.array([[6e-8, 0], [0, 0]], np.float16)
    assert unit_rows(small).tolist() == [[1, 0], [0, 0]]


@pytest.mark.parametrize("kind", [np.float64, np.longdouble])
def test_inner_products_beyond_float32_name_the_file(kind: type, tmp_path: Path) -> None:
    given = read_given(write(tmp_path, "npz", VECTORS.astype(kind) * 1e300))
    with pytest.raises(InvalidData, match=r"embeddings\.npz, as float32: 4 of 4 .*first p0"):
        measure_files(given, cosine=False)


def test_nan_is_told_with_the_first_image(tmp_path: Path) -> None:
    vectors = VECTORS.copy()
    vectors[2:] = np.nan, np.inf
    with pytest.raises(InvalidData, match=r"2 of 4 embeddings hold nan or inf, first p2 \(row 2\)"):
        read_given(write(tmp_path, "npz", vectors))


def test_zero_embeddings_are_told_with_the_first_image(tmp_path: Path) -> None:
    vectors, said = VECTORS.copy(), list[str]()
    vectors[1:3] = 0
    with watched_by(None, said.append):
        read_given(write(tmp_path, "npz", vectors))
    assert len(said) == 1 and "2 of 4 embeddings hold zeros only, first p1 (row 1)" in said[0]


def test_sides_that_do_not_fit_together_are_one_line_each(tmp_path: Path) -> None:
    given = read_given(write(tmp_path, "npz"))
    (tmp_path / "wide").mkdir()
    wide = read_given(write(tmp_path / "wide", "npz", np.hstack([VECTORS, VECTORS])))
    with pytest.raises(InvalidData, match=r"embeddings of 4 numbers, but those of .* have 2"):
        measure_files(given, wide)
    flat = given.with_labels(pd.DataFrame({"place": ["a"] * 4}), tmp_path)
    with pytest.raises(InvalidData, match=r"labels of 1 levels, but those of .* have 2"):
        measure_files(given, flat)
    with pytest.raises(InvalidData, match="has no labels; give them in the file, or beside it"):
        measure_files(read_given(write(tmp_path, "npy")))
    with pytest.raises(UsageError, match="has no level 'town'; its labels are 1, 2"):
        measure_files(given, levels=["town"])
    for side, remedy in (
        (given, "name the column of these ids image_id"),
        (
            replace(given, ids=None),
            "without ids they are joined by row",
        ),
    ):
        with pytest.raises(
            InvalidData, match=rf"3 rows of labels for 4 embeddings in .*; {remedy}"
        ):
            side.with_labels(pd.DataFrame({"place": ["a"] * 3}), tmp_path)


@pytest.mark.parametrize("name", ["a.json", "a.tsv"])
def test_labels_of_another_format_are_refused_with_those_that_are_read(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(InvalidData, match=r"expected labels as \.csv, \.parquet, \.npy or \.npz"):
        read_labels(tmp_path / name)


def test_arrays_that_are_not_read_are_named(tmp_path: Path) -> None:
    """Paths under a name of their own were no ids, without a word: rows were joined in order."""
    np.savez(tmp_path / "a.npz", vectors=VECTORS, image_paths=np.array(list("abcd")))
    with heard() as notes:
        read_given(tmp_path / "a.npz")
    assert len(notes) == 1 and "a.npz: not read: image_paths; ids are an array 'ids'" in notes[0]


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.txt", b"", r"expected embeddings as \.npy, \.npz or \.parquet; numpy\.savez\(FILE"),
        ("a.npy", None, "no such file"),
        ("a.npy", b"\x80\x04K\x01.", "not readable as embeddings"),  # a pickle
        ("a.npz", b"PK", "not readable as embeddings"),
        ("a.parquet", b"PAR1", "not readable as embeddings"),
    ],
)
def test_what_is_no_embedding_is_refused(
    name: str, content: bytes | None, found: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidData, match=found):
        read_given(tmp_path / name)


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (np.zeros((0, 3), np.float32), r"shape \(0, 3\).*at least one"),
        (np.zeros(3, np.float32), r"shape \(3,\)"),
        (np.zeros((2, 3), np.int64), "type int64"),
    ],
)
def test_arrays_of_another_shape_are_refused(array: np.ndarray, found: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", array)
    labels = np.zeros((len(array), 2), np.int64)
    np.savez(tmp_path / "a.npz", vectors=array, labels=labels)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(InvalidData, match=found):
            read_given(tmp_path / name)


@pytest.mark.parametrize("ids", [np.arange(3)[:, None], np.array("a")])
def test_ids_that_are_no_list_are_refused(ids: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", vectors=np.eye(3), ids=ids)
    with pytest.raises(InvalidData, match=r"ids of shape \(.*\); expected one of each image"):
        read_given(tmp_path / "x.npz")


def test_a_file_without_the_array_that_is_read_names_those_it_has(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=np.eye(2, dtype=np.float32))
    with pytest.raises(InvalidData, match=r"has no array 'vectors' \(it has features\)"):
        read_given(tmp_path / "a.npz")
    with pytest.raises(InvalidData, match=r"has no array 'labels' \(it has features\)"):
        read_labels(tmp_path / "a.npz")


def test_a_pickled_array_is_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InvalidData, match="holds Python objects"):
        read_given(tmp_path / "a.npy")


def test_the_facts_are_json(tmp_path: Path) -> None:
    given = read_given(write(tmp_path, "npz"))
    alone = given.with_labels(pd.DataFrame({"c": list("abcd")}), tmp_path)
    facts = measure_files(alone, metrics=["R@1"]).facts()
    assert facts["mean"] == {"R@1": None} and facts["skipped"] == {"R@1": 4}
    json.dumps(facts, allow_nan=False)


def test_levels_from_fine_to_coarse_are_refused_with_the_right_order(tmp_path: Path) -> None:
    table = pd.DataFrame({"species": list("abcd"), "group": list("xxyy")})
    given = Given(tmp_path / "q.npy", VECTORS, None, table)
    with pytest.raises(InvalidData, match="coarse to fine: --level group --level species"):
        measure_files(given)
    assert measure_files(given, levels=["group", "species"]).levels == ("group", "species")


def test_one_image_of_each_class_is_drawn_as_the_gallery_and_the_others_query_it() -> None:
    """One of three images of a is like b: 2 of 3 queries are right, or none if it is drawn."""
    vectors = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [0, 1]], np.float32)
    given = Given(Path("x.npz"), vectors, None, pd.DataFrame({"vehicle": list("aaabb")}))
    found = measure_draws(given, 100, ["R@1"])
    values = found.draws["R@1"].to_numpy()
    assert {float(round(value, 6)) for value in values} == {0.0, 0.666667}
    assert values.mean() == pytest.approx(2 / 3 * 2 / 3, abs=0.12)  # each is drawn as often
    facts = found.facts()
    assert facts["protocol"] == {
        "name": "one-of-each",
        "draws": 100,
        "queries": 3,
        "gallery_images": 2,
        "levels": ["vehicle"],
    }
    assert facts["mean"]["R@1"] == pytest.approx(values.mean())
    assert facts["deviation"]["R@1"] == pytest.approx(np.std(values, ddof=1))
    assert measure_draws(given, 100, ["R@1"]).draws.equals(found.draws)


def test_drawn_queries_without_ids_are_in_no_gallery() -> None:
    given = Given(Path("x.npz"), VECTORS, None, pd.DataFrame({"vehicle": list("aabb")}))
    with heard() as notices:
        measure_draws(given, 2, ["R@1"])
    assert not notices  # none says that queries find themselves


@pytest.mark.parametrize("ids", [None, np.array(["w", "x", "y", "z"])])
def test_queries_in_a_gallery_of_another_file_are_reported(ids) -> None:
    """A copy without ids, or with others, gave R@1 of 100 % without a word."""
    table = pd.DataFrame({"c": list("aabb")})
    query = Given(Path("q.npz"), VECTORS, None if ids is None else np.array(list("abcd")), table)
    others = np.concatenate([2 * VECTORS[:3], -VECTORS[:1]])  # a length changes no cosine
    with heard() as notices:
        found = measure_files(query, Given(Path("g.npz"), others, ids, table), ["R@1"])
    assert [text.partition(" are")[0] for text in notices] == ["3 of 4 queries"]
    assert found.result.mean()["R@1"] == 1.0


def test_draws_without_a_query_are_refused() -> None:
    given = Given(Path("x.npz"), VECTORS, None, pd.DataFrame({"vehicle": list("abcd")}))
    with pytest.raises(InvalidData, match=r"x.npz: each of the 4 classes has one image"):
        measure_draws(given, 10)


def test_levels_of_the_gallery_are_matched_by_name() -> None:
    """By place, a query's species were compared with the gallery's genera."""
    table = pd.DataFrame({"kind": LABELS[:, 0], "place": LABELS[:, 1]})
    query, gallery = (
        Given(Path(f"{name}.npz"), VECTORS, None, labels)
        for name, labels in (("q", table), ("g", table[["place", "kind"]]))
    )
    alone = measure_files(query, replace(query, path=Path("g.npz")))
    found = measure_files(query, gallery)
    assert found.result.mean() == alone.result.mean() and found.levels == ("kind", "place")
    renamed = replace(gallery, labels=table.set_axis(["place", "kingdom"], axis=1))
    with pytest.raises(InvalidData, match=r"g.npz: 'place' is level 1 .* but level 2 of q.npz"):
        measure_files(query, renamed)
    numbered = replace(gallery, labels=table.set_axis(["1", "2"], axis=1))
    assert measure_files(query, numbered).result.mean() == alone.result.mean()


@pytest.mark.parametrize("form", ["npz", "parquet"])
@pytest.mark.parametrize("cells", [(1, None, 3, 4), (1, np.nan, 3, 4), ("a", "", "c", "d")])
def test_an_image_without_an_id_is_refused(form: str, cells: object, tmp_path: Path) -> None:
    path, ids = tmp_path / f"e.{form}", pd.Series(cells)
    if form == "npz":
        np.savez(path, vectors=VECTORS, ids=ids.tolist())
    else:
        pd.DataFrame({"ids": ids, "embedding": list(VECTORS)}).to_parquet(path)
    with pytest.raises(InvalidData, match=rf"e.{form}: 1 of 4 rows has no ids, first row 1; give"):
        read_given(path)


def test_numbers_beside_a_gap_stay_whole(tmp_path: Path) -> None:
    """As floats, 2**53 + 1 and 2**53 were one class, and the id 7 was "7.0"."""
    path, large = tmp_path / "e.parquet", [2**53 + 1, 2**53, None, 7]
    columns = {"id": [1.0, 2.0, 3.0, 4.0], "embedding": VECTORS.tolist(), "place": large}
    pq.write_table(pa.table(columns), path)
    given = read_given(path)
    assert given.ids is not None and given.ids.tolist() == ["1", "2", "3", "4"]
    query = given.rows(np.array([True, True, False, True]))
    assert measure_files(query, given, ["AP"]).classes.tolist() == [
        "9007199254740993",
        "9007199254740992",
        "7",
    ]
