import csv
import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest

from hgld.artifacts import hash_file
from hgld.evaluate import given
from hgld.ranking.interchange import read_kaggle, read_trec_qrels, read_trec_run
from hgld.words import columns_of
from tests.evaluate.made_evaluation import write_evaluation, write_levels
from tests.in_process import hgld

IDS = ("a", "b", "c", "d")
ODD_IDS = ("my cat.jpg", "50% off.jpg", 'a,"b".jpg', "caf\u00e9\u00a0x.jpg")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return write_work(tmp_path, IDS)


def write_work(tmp_path: Path, ids: Sequence[str]) -> Path:
    values = {"old": {"H-AP": (0.5, 0.5, 0.5, 0.5)}, "new": {"H-AP": (0.9, 0.4, 0.5, 0.7)}}
    write_evaluation(tmp_path, values, ids)
    write_levels(tmp_path, "old", ids, [3, 0, 0, 1])
    write_levels(tmp_path, "new", ids, [3, 3, 2, 1])
    labels = [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]]
    rows = [("test", name, labels[0]) for name in ids]
    rows += [("index", name, label) for name, label in zip("wxyz", labels, strict=True)]
    texts = dict.fromkeys(("author", "license", "title", "url"), "unknown")
    index = pd.DataFrame([{"key": f"{s}-{number}", "image_id": i, "split": s, "landmark_id": number,
                           "shard": f"{s}-000000.tar", "offset": 1024 * number + 512,
                           "size_bytes": 9, "json_offset": 0, "json_size": 0,
                           "extent_start": 1024 * number, "extent_bytes": 1024, "crc32": 0,
                           "run": number, "sha256": "0" * 64, "width": 1, "height": 1, **texts,
                           "level_1": a, "level_2": b, "level_3": c}
                          for number, (s, i, (a, b, c)) in enumerate(rows)])  # fmt: skip
    (tmp_path / "shards").mkdir()
    index.to_parquet(tmp_path / "shards" / "index.parquet")
    shards = [{"file": file, "split": part["split"].iloc[0], "sha256": "0" * 64, "bytes": 9216,
               "samples": len(part), "runs": len(part)}
              for file, part in index.groupby("shard")]  # fmt: skip
    manifest = {"levels": ["kind", "supercategory", "landmark"], "splits": {}, "shards": shards,
                "index_sha256": hash_file(tmp_path / "shards" / "index.parquet")}  # fmt: skip
    (tmp_path / "shards" / "manifest.json").write_text(json.dumps(manifest))
    return tmp_path


@pytest.fixture
def embeddings(tmp_path: Path) -> Path:
    vectors = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]], np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    rows = ["kind,place", "nature,lake", "nature,lake", "built,mill", "built,dam"]
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_measure_prints_the_metrics_of_embeddings(embeddings: Path) -> None:
    vectors, labels = embeddings / "vectors.npy", embeddings / "labels.csv"
    text = hgld("evaluations", "measure", vectors, "--labels", labels).out
    assert text.splitlines()[:2] == [
        "4 queries against all others; kind > place",
        "2 queries have no other image of their place in the gallery",
    ]
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines()[3:]}
    assert rows["H-AP"] == ["100.0", "4", "100.0", "to", "100.0"]
    assert rows["AP:place"] == ["100.0", "2", "-"]  # two queries of one class
    assert text.splitlines()[-1] == "in percent; intervals over 3 classes"
    assert max(map(len, text.splitlines())) <= 80
    np.save(vectors, np.eye(3, dtype=np.float32))
    labels.write_text("place\nlake\nlake\nmill\n")
    text = hgld("evaluations", "measure", vectors, "--labels", labels).out
    assert text.splitlines()[1] == "1 query has no other image of its place in the gallery"


def test_measure_says_how_to_leave_out_a_column_that_is_no_level(embeddings: Path) -> None:
    vectors, labels = embeddings / "vectors.npy", embeddings / "labels.csv"
    pd.read_csv(labels).assign(file=[*"abcd"]).to_csv(labels, index=False)
    text = hgld("evaluations", "measure", vectors, "--labels", labels).out
    assert "\nif file is no level: --level kind --level place\n" in text


def test_measure_reads_a_file_of_labels_once(
    embeddings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, read_labels = list[Path](), given.read_labels

    def count(path: Path) -> pd.DataFrame:
        read.append(path)
        return read_labels(path)

    monkeypatch.setattr(given, "read_labels", count)
    vectors, labels = embeddings / "vectors.npy", embeddings / "labels.csv"
    hgld("evaluations", "measure", vectors, vectors, "--labels", labels)
    assert read == [labels]


def test_measure_reports_labelled_images_without_an_embedding(tmp_path: Path) -> None:
    query, gallery, labels = (tmp_path / name for name in ("q.npz", "g.npz", "labels.csv"))
    labels.write_text("path,kind\na,lake\nb,lake\nc,mill\nd,mill\n")
    np.savez(query, vectors=np.eye(2), ids=np.array(["a", "b"]))
    np.savez(gallery, vectors=np.eye(2), ids=np.array(["b", "d"]))
    words = ("evaluations", "measure", query, gallery, "--labels", labels)
    done = hgld(*words)
    said = f"{labels}: 1 of 4 images is not in {query} nor {gallery}, first c, and not measured"
    assert said in done.err
    np.savez(gallery, vectors=np.eye(3)[:, :2], ids=np.array(["b", "d", "c"]))
    assert "not in" not in hgld(*words).err
    done = hgld("evaluations", "measure", query, "--labels", labels)
    said = f"{labels}: 2 of 4 images are not in {query}, first c, and not measured"
    assert said in done.err


def test_measure_as_data_and_query_by_query(embeddings: Path) -> None:
    vectors, labels = embeddings / "vectors.npy", embeddings / "labels.csv"
    words = ("--metric", "R@1:place", "--metric", "AP:kind", "--json", "--out")
    out = embeddings / "queries.csv"
    done = hgld("evaluations", "measure", vectors, vectors, "--labels", labels, *words, out)
    found = json.loads(done.out)
    assert found["mean"] == {"R@1:place": 1.0, "AP:kind": 1.0}
    assert found["protocol"]["name"] == "query-gallery"
    assert found["interval"] == {"R@1:place": [1.0, 1.0], "AP:kind": [1.0, 1.0]}
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["image_id"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["class"] for row in rows] == ["lake", "lake", "mill", "dam"]


def test_measure_takes_labels_of_the_query_for_no_other_gallery_by_row(embeddings: Path) -> None:
    query, gallery = embeddings / "vectors.npy", embeddings / "gallery.npz"
    vectors, words = np.load(query), ("--labels", embeddings / "labels.csv", "--metric", "R@1:kind")
    np.savez(gallery, vectors=vectors[::-1])
    done = hgld("evaluations", "measure", query, gallery, *words, code=2)
    assert "give its labels by --gallery-labels, or ids in both" in done.err
    kinds, places = ["built", "built", "nature", "nature"], ["dam", "mill", "lake", "lake"]
    np.savez(gallery, vectors=vectors[::-1], labels=np.array([kinds, places]).T)
    words = (*words, "--json")
    done = hgld("evaluations", "measure", query, gallery, *words)
    assert json.loads(done.out)["mean"] == {"R@1:kind": 1.0}


def test_measure_prints_a_metric_of_the_gallery_without_queries(embeddings: Path) -> None:
    given = embeddings / "vectors.npy", "--labels", embeddings / "labels.csv", "--metric", "CPCC"
    for words, names in (((), ["CPCC"]), (("--metric", "mAP@1k:kind"), ["mAP@1000:kind", "CPCC"])):
        done = hgld("evaluations", "measure", *given, *words)
        rows = [line.split() for line in done.out.splitlines()[4:-1]]
        assert [row[0] for row in rows] == names and rows[-1][2:] == ["-", "-"]


@pytest.mark.parametrize("out", ["vectors.npy", "labels.csv", "link.csv"])
def test_measure_writes_over_no_file_that_it_reads(out: str, embeddings: Path, monkeypatch) -> None:
    monkeypatch.chdir(embeddings)
    Path("link.csv").symlink_to("labels.csv")
    before = {path.name: path.read_bytes() for path in embeddings.iterdir()}
    words = ("vectors.npy", "--labels", "labels.csv", "--out", out)
    done = hgld("evaluations", "measure", *words, code=2)
    assert f"--out {out}: the command reads this file" in done.err
    assert {path.name: path.read_bytes() for path in embeddings.iterdir()} == before


def test_measure_draws_galleries_of_one_image_a_class(embeddings: Path) -> None:
    words = ("--labels", embeddings / "labels.csv", "--draws", "10", "--metric", "R@1:place")
    words += ("--out", embeddings / "draws.csv")
    done = hgld("evaluations", "measure", embeddings / "vectors.npy", *words)
    head, _, columns, row, last = done.out.splitlines()
    assert head == "1 query against 3 gallery images, one a class; kind > place"
    assert (columns.split(), row.split()) == (
        ["metric", "mean", "deviation"],
        ["R@1:place", "100.0", "0.0"],
    )
    assert last == "in percent, over 10 draws"
    rows = (embeddings / "draws.csv").read_text().splitlines()
    assert rows[:2] == ["draw,R@1:place", "1,1.0"] and len(rows) == 11
    both = (embeddings / "vectors.npy",) * 2
    done = hgld("evaluations", "measure", *both, *words, code=2)
    assert "--draws takes the galleries from" in done.err


def test_measure_by_chosen_levels(embeddings: Path) -> None:
    words = ("--labels", embeddings / "labels.csv", "--level", "place", "--json")
    done = hgld("evaluations", "measure", embeddings / "vectors.npy", *words)
    assert json.loads(done.out)["protocol"]["levels"] == ["place"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("none.npy",), 3, "none.npy: no such file; expected embeddings"),
        (("vectors.npy",), 3, "has no labels; give them in the file, or beside it: --labels"),
        (("vectors.npy", "--labels", "labels.csv", "--metric", "H-AB"), 2, "nearest is 'H-AP'"),
        (("vectors.npy", "--labels", "labels.csv", "--metric", "AP:town"), 2, "level 'town'"),
        (("vectors.npy", "--labels", "labels.csv", "--level", "town"), 2, "no level 'town'"),
        (
            ("vectors.npy", "--labels", "labels.csv", "--level", "place", "--level", "place"),
            2,
            "a level is there twice: place, place",
        ),
        (("vectors.npy", "--labels", "none.csv"), 3, "none.csv: no such file"),
        (("vectors.npy", "--gallery-labels", "labels.csv"), 2, "there is no GALLERY to label"),
        (("vectors.npy", "--gallery-labels", "labels.csv", "--draws", "2"), 2, "no GALLERY"),
    ],
)
def test_measure_says_in_one_line_what_is_wrong(
    words: tuple[str, ...], code: int, says: str, embeddings: Path, monkeypatch
) -> None:
    monkeypatch.chdir(embeddings)
    (line,) = hgld("evaluations", "measure", *words, code=code).err.splitlines()
    assert line.startswith("hgld: ") and says in line


def test_ids_in_a_column_of_another_name_are_no_level(embeddings: Path) -> None:
    labels = embeddings / "labels.csv"
    table = pd.read_csv(labels, dtype=str).drop(columns="image_id", errors="ignore")
    table.insert(0, "sku", [f"s{i}" for i in range(len(table))])
    table.to_csv(embeddings / "sku.csv", index=False)
    words = "measure", embeddings / "vectors.npy", "--labels", embeddings / "sku.csv"
    said = " ".join(hgld("evaluations", *words, code=3).err.split())
    assert "; if 'sku' holds the ids of images, name the column image_id" in said


def test_compare_takes_what_measure_wrote_of_two_models(embeddings: Path) -> None:
    vectors, labels = embeddings / "vectors.npy", embeddings / "labels.csv"
    worse = embeddings / "worse.npy"
    np.save(worse, np.load(vectors)[[0, 2, 1, 3]])
    for one in (vectors, worse):
        out = one.with_suffix(".csv")
        hgld("evaluations", "measure", one, "--labels", labels, "--out", out)
    a, b = vectors.with_suffix(".csv"), worse.with_suffix(".csv")
    text = hgld("evaluations", "compare", a, b, "--metric", "AP:place").out
    assert "4 queries in both, of which 2 have a value of AP:place" in text
    assert "95 % intervals over 3 classes" in text and "first image found" not in text
    values = [pd.read_csv(one)["H-AP"].mean() for one in (a, b)]
    row = next(line.split() for line in text.splitlines() if line.startswith("H-AP"))
    assert row[1:4] == [f"{100 * values[0]:.1f}", f"{100 * values[1]:.1f}",
                        f"{100 * (values[1] - values[0]):+.1f}"]  # fmt: skip


def test_compare_notes_that_rows_without_ids_are_paired_by_number(embeddings: Path) -> None:
    vectors, labels = embeddings / "vectors.npy", embeddings / "labels.csv"
    a, b = embeddings / "a.csv", embeddings / "b.csv"
    note = "note: queries have row numbers, as of embeddings without ids, so that row is compared"
    hgld("evaluations", "measure", vectors, "--labels", labels, "--out", a)
    assert " ".join(hgld("evaluations", "compare", a, a).out.split()).count(note) == 1
    table = pd.read_csv(a)
    table.assign(image_id=[f"p{row}" for row in table["image_id"]]).to_csv(b, index=False)
    assert note not in " ".join(hgld("evaluations", "compare", b, b).out.split())


@pytest.mark.parametrize(("metric", "gain"), [("H-AP", 0.5), ("AHD@4", -0.5)])
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_job_fails_if_b_is_surely_worse(
    metric: str, gain: float, more: tuple[str, ...], tmp_path: Path
) -> None:
    for name, value in (("bad", 0.5), ("good", 0.5 + gain)):
        rows = "".join(f"{n},{n % 10},{value + n / 1000},{n % 7}\n" for n in range(40))
        (tmp_path / f"{name}.csv").write_text(f"image_id,class,{metric},NDCG\n{rows}")
    bad, good = tmp_path / "bad.csv", tmp_path / "good.csv"
    compare = "evaluations", "compare", "--fail-if-worse", *more
    assert hgld(*compare, bad, good).err == "" and hgld(*compare, good, good).err == ""
    done = hgld(*compare, good, bad, code=1)
    assert f"{bad}: worse than {good} in {metric}; their" in " ".join(done.err.split())
    assert done.out == hgld("evaluations", "compare", *more, good, bad).out


def test_compare_aligns_long_ids(tmp_path: Path) -> None:
    for name, values in (("a", (0.5, 0.25)), ("b", (0.25, 0.5))):
        rows = zip(("x" * 60, "熊" * 20), ("p", "q"), values, strict=True)
        lines = ["image_id,class,AP", *(f"{one},{kind},{value}" for one, kind, value in rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    lines = hgld("evaluations", "compare", tmp_path / "a.csv", tmp_path / "b.csv").out.splitlines()
    tables = [one for one in lines if one.startswith(("gained", "lost", "x", "熊"))]
    assert len(tables) == 4 and {columns_of(line) for line in tables} == {61 + 22}


def test_numbers_beside_a_long_name_of_a_level_are_below_their_heads(tmp_path: Path) -> None:
    metric = f"AP:{'long ' * 8}熊"
    for name, value in (("a", 0.5), ("b", 0.25)):
        lines = [f'image_id,class,"{metric}",AP', f"x,p,{value},0.5", f"y,q,{value},0.25"]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    said = hgld("evaluations", "compare", tmp_path / "a.csv", tmp_path / "b.csv").out
    rows = [line for line in said.splitlines() if line.startswith(("metric", "AP"))]
    assert {columns_of(line) for line in rows} == {columns_of(metric) + 1 + 55}
    vectors, labels = tmp_path / "vectors.npy", tmp_path / "labels.csv"
    np.save(vectors, np.eye(4, dtype=np.float32))
    labels.write_text(f"{metric[3:]},b\nx,1\nx,1\ny,2\ny,2\n", encoding="utf-8")
    said = hgld("evaluations", "measure", vectors, "--labels", labels).out
    head, *rows = (one for one in said.splitlines() if one.startswith(("metric", "AP")))
    assert head.endswith("queries   95 % interval")
    ends = {columns_of(row[: row.index("  4  ") + 3]) for row in rows}
    assert len(rows) == 2 and ends == {columns_of(head.removesuffix("   95 % interval"))}


def test_compare_of_equal_values_names_no_query(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("image_id,class,AP\nx,p,0.5\ny,q,0.25\n")
    said = hgld("evaluations", "compare", tmp_path / "a.csv", tmp_path / "b.csv").out
    assert "+0.0 to +0.0" in said and "gained most" not in said and "lost most" not in said


def test_a_comparison_of_one_class_has_no_interval(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("image_id,class,AP\nx,p,0.5\ny,p,0.25\n")
    said = hgld("evaluations", "compare", tmp_path / "a.csv", tmp_path / "a.csv").out
    assert "95 % intervals over 1 class;" in said and "+0.0  -" in said


def test_a_metric_without_any_value_has_no_difference(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("image_id,class,AP,NDCG\nx,p,,0.5\ny,q,,0.25\n")
    said = hgld("evaluations", "compare", tmp_path / "a.csv", tmp_path / "a.csv").out
    assert next(line.split() for line in said.splitlines() if line.startswith("AP")) == [
        *("AP", "-", "-", "-", "-", "0/0")
    ]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("image_id,class\na,x\n", "holds no metric"),
        ("image_id,class,AP\na,x,1\na,x,0\n", "the image a is there twice"),
        ("image_id,class,AP\na,x,1\n,x,0\n", "a.csv row 3: image_id is empty; expected the id"),
        ("image_id,class,AP\na,x,high\n", "row 2: AP is 'high'; expected a number"),
        ("image_id,class,AP\na,x,1\nb,x,-inf\n", "row 3: AP is infinite; expected a number"),
        ("path,class,AP\na,x,1\n", "column 'image_id' is missing"),
    ],
)
def test_compare_says_what_is_wrong_with_a_csv(tmp_path: Path, rows: str, says: str) -> None:
    (tmp_path / "a.csv").write_text(rows)
    done = hgld("evaluations", "compare", tmp_path / "a.csv", tmp_path / "a.csv", code=3)
    assert says in done.said


def test_compare_notes_csvs_of_another_gallery_or_of_other_levels(embeddings: Path) -> None:
    """H-AP of fewer levels was 9 points better, surely, without a word."""
    vectors, labels = embeddings / "vectors.npy", embeddings / "labels.csv"
    words = ("evaluations", "measure", vectors, "--labels", labels, "--metric", "H-AP")
    hgld(*words, "--out", embeddings / "a.csv")
    hgld(*words, "--level", "place", "--out", embeddings / "b.csv")
    table = pd.read_csv(embeddings / "a.csv")
    table.assign(gallery_images=9).to_csv(embeddings / "c.csv", index=False)
    table[["image_id", "class", "H-AP"]].to_csv(embeddings / "d.csv", index=False)
    said = {}
    for name in "abcd":
        done = hgld("evaluations", "compare", embeddings / "a.csv", embeddings / f"{name}.csv")
        said[name] = done.out
    assert "not measured alike: levels is kind > place in A, place in B" in said["b"]
    assert "not measured alike: gallery_images is 4 in A, 9 in B" in said["c"]
    assert "not measured alike" not in said["a"] + said["d"]


def test_compare_takes_two_csvs_or_none(work: Path) -> None:
    table = work / "a.csv"
    table.write_text("image_id,class,H-AP\na,x,1\nb,y,0.5\n")
    done = hgld("evaluations", "compare", table, f"{work}:new", code=2)
    assert "compare two of one kind" in done.said


def test_compare_writes_the_tables_of_two_csvs(tmp_path: Path) -> None:
    for name, value in (("a", 0.5), ("b", 0.75)):
        (tmp_path / f"{name}.csv").write_text(f"image_id,class,AP\nx,p,{value}\ny,q,0.25\n")
    out = tmp_path / "tables"
    done = hgld("evaluations", "compare", tmp_path / "a.csv", tmp_path / "b.csv", "--out", out)
    assert done.out.splitlines()[-1] == f"tables: {out}"
    names = {f"{name}.{form}" for name in ("metrics", "queries") for form in ("csv", "tex")}
    assert {file.name for file in out.iterdir()} == names
    assert (out / "queries.csv").read_text().splitlines()[1] == "x,0.5,0.75,0.25"
    assert r"AP & 37.5 & 50.0 & 12.5 (0.0--25.0) & 1 & 0 \\" in (out / "metrics.tex").read_text()


def test_compare_refuses_rows_of_other_images(tmp_path: Path) -> None:
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    a.write_text("image_id,class,AP,R@1\nrow 0,x,1,1\nrow 1,y,0.5,0\n")
    b.write_text("image_id,class,AP,R@1\nrow 0,x,1,1\nrow 1,z,0.5,0\n")
    done = hgld("evaluations", "compare", a, b, code=3)
    assert "the class of row 1 is 'z', but 'y' in" in done.said


def test_compare_prints_differences_queries_and_mistakes(work: Path) -> None:
    text = hgld("evaluations", "compare", f"{work}:old", f"{work}:new", "--rows", "1").out
    lines = [line.split() for line in text.splitlines()]
    assert ["4", "queries", "in", "both;", "only", "in", "A", "0,", "only", "in", "B", "0"] in lines
    h_ap = next(line for line in lines if line[:1] == ["H-AP"])
    assert h_ap[1:4] == ["50.0", "62.5", "+12.5"] and h_ap[-1] == "2/1"
    assert ["a", "50.0", "90.0", "+40.0"] in lines and ["b", "50.0", "40.0", "-10.0"] in lines
    assert ["d", "50.0", "70.0", "+20.0"] not in lines  # --rows
    assert ["same", "landmark", "1", "2", "+1"] in lines
    assert ["another", "kind", "2", "0", "-2"] in lines
    assert max(map(len, text.replace(str(work), "W").splitlines())) <= 80


def test_compare_counts_queries_in_both_and_those_with_a_value(tmp_path: Path) -> None:
    gap, values = np.nan, {"H-AP": (0.5, 0.5, 0.5, 0.5)}
    old, new = {**values, "MS": (gap, 0.5, 0.5, 1)}, {**values, "MS": (0.5, gap, 0.5, 0.5)}
    write_evaluation(tmp_path, {"old": old, "new": new}, IDS)
    for name in ("old", "new"):
        write_levels(tmp_path, name, IDS, [3, 3, 2, 1])
    words = (f"{tmp_path}:old", f"{tmp_path}:new", "--metric", "MS")
    done = hgld("evaluations", "compare", *words)
    head = "4 queries in both, of which 2 have a value of MS; only in A 0, only in B 0"
    assert head in done.out.splitlines()
    found = json.loads(hgld("evaluations", "compare", *words, "--json").out)
    assert (found["in_both"], len(found["queries"])) == (4, 2)


def test_compare_as_data_holds_every_query(work: Path) -> None:
    found = json.loads(hgld("evaluations", "compare", f"{work}:old", f"{work}:new", "--json").out)
    assert [row["image_id"] for row in found["queries"]] == ["a", "d", "c", "b"]
    assert found["differences"][0]["difference"] == pytest.approx(0.125)
    assert [row["b"] for row in found["first_image"]] == [2, 1, 1, 0]


def test_compare_asks_for_a_model(work: Path) -> None:
    done = hgld("evaluations", "compare", work, f"{work}:new", code=2)
    assert f"holds old, new; say which: {work}:old" in done.err


def test_export_writes_what_the_readers_of_others_read(work: Path) -> None:
    done = hgld("evaluations", "export", f"{work}:new", "--depth", "2")
    run = read_trec_run(done.out.splitlines())
    assert [run[query][0] for query in IDS] == ["w", "w", "x", "y"]
    assert {len(images) for images in run.values()} == {2}
    done = hgld("evaluations", "export", f"{work}:new", "--format", "trec-qrels")
    qrels = read_trec_qrels(done.out.splitlines())
    assert qrels == {query: {"w": 7, "x": 3, "y": 1} for query in IDS}
    words = ("--format", "trec-qrels", "--at-least", "3")
    done = hgld("evaluations", "export", f"{work}:new", *words)
    assert read_trec_qrels(done.out.splitlines())["a"] == {"w": 7}


def test_ids_that_hold_spaces_are_encoded_alike_in_run_qrels_and_submission(tmp_path: Path) -> None:
    place = f"{write_work(tmp_path, ODD_IDS)}:new"
    found = []
    for form, read in (
        ("trec-run", read_trec_run),
        ("trec-qrels", read_trec_qrels),
        ("kaggle", read_kaggle),
    ):
        text = hgld("evaluations", "export", place, "--format", form)
        assert "4 ids with white space" in text.err and "'50% off.jpg'" in text.err
        found.append(list(read(text.out.splitlines())))
    assert found[0] == found[1] == found[2]
    assert [unquote(query) for query in found[0]] == list(ODD_IDS)


@pytest.mark.parametrize("form", ["trec-run", "trec-qrels", "kaggle"])
def test_what_cannot_be_exported_is_refused_before_the_first_line(
    form: str, tmp_path: Path
) -> None:
    place = f"{write_work(tmp_path, ('a', 'b', 'c', ''))}:new"
    text = hgld("evaluations", "export", place, "--format", form, code=3)
    assert text.out == "" and "the query holds an image without an id" in text.err


@pytest.mark.parametrize("depth", ["0", "-1", "ten", "1.5"])
def test_a_depth_is_a_number_from_1_or_all(work: Path, depth: str) -> None:
    done = hgld("evaluations", "export", f"{work}:new", f"--depth={depth}", code=2)
    assert "expected a number from 1, or all" in done.err


def test_a_kaggle_file_is_scored_by_the_official_rules(work: Path) -> None:
    out, solution = work / "submission.csv", work / "solution.csv"
    hgld("evaluations", "export", f"{work}:new", "--format", "kaggle", "-o", out)
    assert read_kaggle(out.read_text().splitlines())["a"][0] == "w"
    solution.write_text("id,images,Usage\na,w,Public\nc,x w,Private\ne,w,Private\nd,None,Ignored\n")
    words = ("evaluations", "score", out, solution)
    assert "query b is not in the solution" in hgld(*words, code=3).err
    solution.write_text(solution.read_text() + "b,None,Ignored\n")
    found = json.loads(hgld(*words, "--json").out)
    run = read_kaggle(out.read_text().splitlines())["c"]
    place = run.index("w") + 1
    assert found["mAP@100"]["Public"] == 1
    assert found["mAP@100"]["Private"] == pytest.approx((1 + 2 / place) / 2 / 2)
    assert (found["queries"], found["missing"], found["ignored"]) == (3, 1, 2)


def test_a_submission_without_any_relevant_image_is_named(tmp_path: Path) -> None:
    solution, submission = tmp_path / "solution.csv", tmp_path / "submission.csv"
    solution.write_text("id,images,Usage\na,x y,Public\n")
    for images, named in (("img_x img_y", True), ("z y", False)):
        submission.write_text(f"id,images\na,{images}\n")
        done = hgld("evaluations", "score", submission, solution)
        assert ("no relevant image is found; compare" in done.out) is named


def test_an_unknown_format_is_named(work: Path) -> None:
    done = hgld("evaluations", "export", f"{work}:new", "--format", "trec", code=2)
    assert "expected trec-run, trec-qrels, kaggle, npz or parquet" in done.err


def test_revisited_prints_the_three_protocols(tmp_path: Path) -> None:
    turned = np.deg2rad(np.arange(6))
    np.save(tmp_path / "g.npy", np.stack([np.cos(turned), np.sin(turned)], 1).astype(np.float32))
    np.save(tmp_path / "q.npy", np.array([[1, 0]], np.float32))
    gnd = [{"bbx": [], "easy": [1], "hard": [3], "junk": [0]}]
    document = {"qimlist": ["q"], "imlist": list("abcdef"), "gnd": gnd}
    (tmp_path / "gnd.json").write_text(json.dumps(document))
    words = (tmp_path / "q.npy", tmp_path / "g.npy", "--answers", tmp_path / "gnd.json")
    rows = [line.split() for line in hgld("evaluations", "revisited", *words).out.splitlines()]
    assert rows[1] == ["easy", "100.0", "100.0", "100.0", "100.0", "1"]
    assert rows[2][:2] == ["medium", f"{100 * (1 + (1 / 2 + 2 / 3) / 2) / 2:.1f}"]
    assert rows[3][:2] == ["hard", f"{100 * (0 + 1 / 2) / 2:.1f}"]
