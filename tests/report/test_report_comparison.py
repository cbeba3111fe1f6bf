import json
from pathlib import Path
from typing import Any

import lxml.html
import pandas as pd
import pytest

from hgld.artifacts import ARTIFACTS
from hgld.cli import app, guarded
from tests.made_run import MadeRun
from tests.report.reading import look, text


def compare(*words: object) -> int:
    return guarded(lambda: app(["evaluations", "compare", *map(str, words)]))


@pytest.fixture
def work(run: MadeRun) -> Path:
    """A work folder in which the two models have opposite values."""
    other = run.per_query.assign(model="plain", value=run.per_query["value"].to_numpy()[::-1])
    per_query = pd.concat([run.per_query, other], ignore_index=True)
    run.evaluation["metrics"] = ["H-AP"]
    names = [f"Landmark {i}" for i in run.landmarks["landmark_id"]]
    landmarks = run.landmarks.assign(name=names, commons_url="unknown")
    tables = {"evaluation": run.evaluation, "per_query": per_query}
    tables |= {"landmarks": landmarks, "hierarchy": run.hierarchy}
    for name, table in tables.items():
        ARTIFACTS[name].write(table, run.folder / ARTIFACTS[name].file)  # type: ignore[union-attr]
    return run.folder


def open_page(folder: Path) -> Any:
    return lxml.html.fromstring((folder / "comparison.html").read_text("utf-8"))


def test_the_queries_of_largest_gain_and_loss_are_shown_under_both(work: Path, capsys) -> None:
    out = work.parent / "page"
    assert compare(f"{work}:good", f"{work}:plain", "--rows", 2, "--out", out) == 0
    assert f"page: {out / 'comparison.html'}" in capsys.readouterr().out
    document = open_page(out)
    assert [text(title) for title in document.xpath("//h3")] == [
        "Better under plain",
        "Better under good",
    ]
    queries = [text(figure) for figure in document.xpath("//figure[@class='query']")]
    photos = [next(w for w in one.split() if w.endswith(".jpg")) for one in queries]
    assert photos == ["0.jpg", "1.jpg", "9.jpg", "8.jpg"]
    heads = [text(title) for title in document.xpath("//h4")]
    assert heads[:2] == ["good: H-AP 5.0", "plain: H-AP 95.0"]
    lines = document.xpath("(//*[local-name()='svg'])[1]/*[@class='line1' or @class='line2']/@d")
    assert lines == ["M0 0.0L100.0 0.0"] * 2  # image 1, of the same landmark, is the first found
    assert not document.xpath("//script") and all(
        source.startswith("data:") for source in document.xpath("//@src")
    )


def test_the_tables_of_the_comparison_are_beside_the_page(work: Path) -> None:
    out = work.parent / "page"
    assert compare(f"{work}:good", f"{work}:plain", "--out", out) == 0
    links = open_page(out).xpath("//p[@class='files']/a/@href")
    assert {"metrics.csv", "metrics.tex", "queries.csv", "first-image.tex"} <= {*links}
    assert all((out / link).is_file() for link in links)
    row = pd.read_csv(out / "metrics.csv").iloc[0]
    assert row["good"] == row["plain"] == 0.5 and row["difference low"] < 0 < row["difference high"]
    assert "difference low" not in (out / "metrics.tex").read_text()
    labels = open_page(out).xpath("//*[@role='region']/@aria-label")
    assert labels == ["Difference of each metric", "First image found"]
    says = "in percent; difference: plain minus good"
    assert says in text(open_page(out).xpath("//section[1]/p")[0])
    queries = pd.read_csv(out / "queries.csv")
    assert [*queries] == ["image_id", "good", "plain", "difference"] and len(queries) == 10
    assert "image_id & good & plain" in (out / "queries.tex").read_text().replace("\\_", "_")


def test_a_folder_of_other_files_is_not_replaced(work: Path, capsys) -> None:
    assert compare(f"{work}:good", f"{work}:plain", "--out", work) == 2
    assert "holds other files" in capsys.readouterr().err
    assert (work / "report.json").is_file()
    out = work.parent / "page"
    for _ in range(2):  # an earlier page is replaced
        assert compare(f"{work}:good", f"{work}:plain", "--out", out, "--json") == 0
        assert len(json.loads(capsys.readouterr().out)["queries"]) == 10
    (out / "notes.txt").write_text("mine")
    assert compare(f"{work}:good", f"{work}:plain", "--out", out) == 2
    assert "such as notes.txt" in capsys.readouterr().err


def test_a_lower_distance_is_a_gain(work: Path) -> None:
    path = work / ARTIFACTS["per_query"].file
    table = pd.read_parquet(path).assign(metric="AHD@1")
    ARTIFACTS["per_query"].write(table, path)  # type: ignore[union-attr]
    report = json.loads((work / "report.json").read_text())
    report["metrics"] = ["AHD@1"]
    (work / "report.json").write_text(json.dumps(report))
    out = work.parent / "page"
    assert compare(f"{work}:good", f"{work}:plain", "--rows", 1, "--out", out) == 0
    heads = [text(title) for title in open_page(out).xpath("//h4")]
    assert heads[:2] == ["good: AHD@1 95.0", "plain: AHD@1 5.0"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_comparison_is_readable_on_a_phone(
    run: MadeRun, work: Path, scheme: str, chromium: Any
) -> None:
    run.index["title"] = [f"photos/{'0123456789' * 9}/{i}.jpg" for i in range(len(run.index))]
    run.index["author"] = "Somebody_with_a_name_that_nobody_would_break_into_two_lines " * 2
    run.write_index()
    out = work.parent / "page"
    assert compare(f"{work}:good", f"{work}:plain", "--rows", 2, "--out", out) == 0
    found = look(chromium, out / "comparison.html", scheme=scheme)
    assert found["beyond"] == [] and found["cut"] == [] and found["silent"] == []
    assert found["page"] <= 0 and found["blank"] == 0 and found["said"] == []
    assert min(found["widths"]) >= 90  # pixels of a photo
