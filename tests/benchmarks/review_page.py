"""Measures the review page: making it, opening it in Chromium, deciding on it.

5,700 values, as a whole scrape of GLDv2 gives: the real values of ``labels/gldv2/decisions.csv``
and made variants of them, clustered by the letters that they share, with photos up to the page's
size. ``python -m tests.benchmarks.review_page [FILE]`` prints the figures and keeps the page. On
the page of a server with the same values, a decision is timed until it is saved.
"""

import csv
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import HashingVectorizer

from hgld.artifacts import VectorFile, Vectors, columns_of, declared_table, records, table_of
from hgld.config import ReviewOptions
from hgld.review.review_page import render_page
from hgld.review.suggestions import DROP, fit_model
from tests.benchmarks.meters import Row
from tests.benchmarks.shards import draw_photo

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LABELS = Path("labels/gldv2")
VARIANTS = ("{}", "former {}", "{} complex", "ruined {}", "{} in Japan", "listed {}")
MORE = ("{}", "{} of the 19th century", "small {}", "{} of Norway", "group of {}s", "{} site")
ROUNDS = 3
CHROMIUM = shutil.which("chromium")
Tables = dict[str, Any]


def make_tables(values: int, source: Path, photos: int = 60) -> Tables:
    """What ``render_page`` takes, for so many values; ``source`` gets a tar of drawn photos."""
    labels = _labels(values)
    vectors = _vectors(labels)
    clusters = _clusters(labels, vectors)
    taxonomy = declared_table("taxonomy").read(LABELS / "taxonomy.csv")
    keys = clusters["class_id"].tolist()
    texts = taxonomy["supercategory"].tolist()
    places = [("train", n, key) for n, key in enumerate(key for key in keys for _ in range(3))]
    return {
        "sheet": _sheet(clusters, taxonomy),
        "clusters": clusters,
        "cluster_summary": _summary(clusters),
        "label_vectors": Vectors(keys, vectors, {}),
        "taxonomy": taxonomy,
        "taxonomy_vectors": Vectors(texts, _vectors(texts), {}),
        "landmark_values": pd.DataFrame(
            [(split, n, 0, key, key) for split, n, key in places],
            columns=columns_of("landmark_values"),
        ),
        "landmarks": pd.DataFrame(
            [(split, n, f"Place {n}", "") for split, n, _ in places],
            columns=columns_of("landmarks"),
        ),
        "images": _images(source, len(places), photos),
    }  # fmt: skip


def make_page(tables: Tables, source: Path, **options: Any) -> str:
    """The page of the tables."""
    shown = dict(tables)
    vectors = shown["label_vectors"], shown.pop("taxonomy_vectors")
    ancestry = shown.pop("ancestry", None)
    answers = [
        row["decision"] if row["decision"] == DROP else row["supercategory"]
        for row in records(shown["sheet"])
    ]
    return render_page(
        **shown,
        model=fit_model(shown["clusters"], answers, shown["taxonomy"], *vectors, ancestry=ancestry),
        options=ReviewOptions(**options),
        source=source,
        title="5,700 values",
        name="values",
        command="hgld review PIPELINE --apply review.csv",
    )


def browse(page: Path) -> dict[str, float]:
    """Milliseconds in Chromium, the least of some rounds, until what was asked for is drawn."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        rounds = [_look(browser, page) for _ in range(ROUNDS)]
        browser.close()
    return {name: min(one[name] for one in rounds) for name in rounds[0]}


def _look(browser: "Browser", page: Path) -> dict[str, float]:
    with browser.new_page(viewport={"width": 1280, "height": 900}) as view:
        view.goto(page.as_uri())
        return {name: float(view.evaluate(script)) for name, script in SCRIPTS.items()}


DRAWN = "performance.getEntriesByName('drawn')[0].startTime"
# Median of the time from a key until the browser has drawn what it changes.
DECIDE = """async () => {
  const times = [];
  for (let i = 0; i < 21; i += 1) {
    const start = performance.now();
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "d", bubbles: true }));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - start);
  }
  return times.sort((a, b) => a - b)[10];
}"""
SEARCH = """async () => {
  const field = document.getElementById("search"), start = performance.now();
  field.value = "church";
  field.dispatchEvent(new Event("input"));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const time = performance.now() - start;
  field.value = "";
  field.dispatchEvent(new Event("input"));
  return time;
}"""
SCROLL = """async () => {
  const list = document.getElementById("list"), step = list.scrollHeight / 61, gaps = [];
  for (let i = 1; i <= 60; i += 1) {
    const start = performance.now();
    list.scrollTop = i * step;
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    gaps.push(performance.now() - start);
  }
  return gaps.sort((a, b) => a - b)[30];
}"""
SCRIPTS = {"drawn": DRAWN, "decide": DECIDE, "search": SEARCH, "scroll": SCROLL}


def rows(values: int = 5700) -> list[Row]:
    """The figures with their bounds; none where there is no Chromium."""
    if CHROMIUM is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        source, page = Path(folder), Path(folder) / "review.html"
        tables = make_tables(values, source)
        start = time.perf_counter()  # all cores shrink photos
        page.write_text(make_page(tables, source), encoding="utf-8")
        made = time.perf_counter() - start
        found = browse(page)
        served = serve(tables, source / "served")
        size = page.stat().st_size / 1e6
    name = f"review page, {values:,} values:"
    return [
        Row(f"{name} made", made, "s", most=30, aim=3),
        Row(f"{name} size", size, "MB", most=12),
        Row(f"{name} opened and drawn", found["drawn"], "ms", most=2000),
        Row(f"{name} a decision, median of 21", found["decide"], "ms", most=50),
        Row(f"{name} a search", found["search"], "ms", most=100),
        Row(f"{name} a scroll to elsewhere, median of 60", found["scroll"], "ms", most=50),
        Row(f"{name} of a server, opened and drawn", served["drawn"], "ms", most=2000),
        Row(f"{name} of a server, a decision until saved", served["saved"], "ms", most=2000),
    ]


def serve(tables: Tables, folder: Path) -> dict[str, float]:
    """Milliseconds on the page of a real server, the least of some rounds."""
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "hgld", "review", str(folder / "pipeline.toml")]
    command += ["--work", str(folder / "work"), "--now", "2026-01-01", "--serve", "--port", "0"]
    _write_work_folder(tables, folder)
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().split()[1]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            view = browser.new_page(viewport={"width": 1280, "height": 900})
            view.goto(url)
            drawn = float(view.evaluate(DRAWN))
            view.keyboard.type("Ann")
            view.keyboard.press("Enter")
            times = []
            for _ in range(ROUNDS):
                view.wait_for_timeout(2000)  # for the fit of the model in the background
                start = time.perf_counter()
                view.keyboard.press("d")
                view.wait_for_selector('#people[title*="all saved"]', state="attached")
                times.append(1000 * (time.perf_counter() - start))
            browser.close()
    finally:
        server.terminate()
        server.wait()
    return {"drawn": drawn, "saved": min(times)}


def _write_work_folder(tables: Tables, folder: Path) -> None:
    """The tables as the stages before the review leave them."""
    labels, work = folder / "labels", folder / "work"
    shutil.copytree(LABELS, labels)
    work.mkdir()
    scrape = '[scrape]\nsource = "table"\ntable = "none.csv"\n'
    (folder / "pipeline.toml").write_text(f'labels = "labels"\n[source]\nkind = "folder"\n{scrape}')
    for name in ("clusters", "cluster_summary", "landmark_values", "landmarks"):
        declared_table(name).write(tables[name], work / declared_table(name).file)
    for name in ("label_vectors", "taxonomy_vectors"):
        VectorFile(f"{name}.npz").write(tables[name], work / f"{name}.npz")
    declared_table("images").write(tables["images"][:0], work / declared_table("images").file)


def _labels(count: int) -> list[str]:
    """The real values first, then variants of them, no text twice."""
    with (LABELS / "decisions.csv").open(encoding="utf-8", newline="") as file:
        real = [row["key"] for row in csv.DictReader(file) if row["key_type"] == "label"]
    patterns = [one.format(other) for other, one in product(MORE, VARIANTS)]
    texts = (pattern.format(label) for pattern in patterns for label in real)
    return list(islice(dict.fromkeys(texts), count))


def _vectors(labels: list[str]) -> np.ndarray:
    """Unit vectors (N, 96) of the letters: parts of three to five."""
    counted = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 5), n_features=4096)
    random = np.random.default_rng(0).normal(size=(4096, 96))
    vectors = counted.transform(labels) @ random
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def _clusters(labels: list[str], vectors: np.ndarray) -> pd.DataFrame:
    model = KMeans(78, n_init=1, random_state=0)
    own = model.fit_predict(vectors)
    distances = np.sort(model.transform(vectors), axis=1)
    names = {number: labels[int(np.flatnonzero(own == number)[0])] for number in range(78)}
    cells = [
        {
            "class_id": f"Q{n + 1}", "instance_of": label, "landmarks": 1 + 4000 // (n + 2),
            "images": 1 + 60_000 // (n + 3), "cluster": int(cluster),
            "cluster_name": names[cluster], "distance": round(near, 6),
            "margin": round(far - near, 6),
        }
        for n, (label, cluster, (near, far)) in enumerate(
            zip(labels, own, distances[:, :2].tolist(), strict=True)
        )
    ]  # fmt: skip
    return table_of("clusters", cells)


def _summary(clusters: pd.DataFrame) -> pd.DataFrame:
    """The clusters with the numbers beside their own for neighbours."""
    named = clusters.groupby(["cluster", "cluster_name"], as_index=False)
    table = named[["landmarks", "images"]].sum()
    near = [f"{(number + 1) % 78}; {(number + 2) % 78}" for number in table["cluster"]]
    return table.assign(values=1, nearest=near, change="new", related="")


def _sheet(clusters: pd.DataFrame, taxonomy: pd.DataFrame) -> pd.DataFrame:
    """Of 18 values two are kept, one is dropped and one is unsure; each cluster has its place."""
    fates = np.arange(len(clusters)) % 18
    words = np.select([fates % 14 == 0, fates == 9, fates == 4], ["keep", "drop", "unsure"], "")
    places = taxonomy.iloc[clusters["cluster"].to_numpy() % len(taxonomy)]
    kept, open_ = words == "keep", words == ""
    more = {name: "" for name in columns_of("review") if name not in clusters}
    return clusters.assign(
        **more
        | {
            "key": clusters["class_id"],
            "key_type": "qid",
            "decision": words,
            "supercategory": np.where(kept, places["supercategory"], ""),
            "kind": np.where(kept, places["kind"], ""),
            "suggestion": np.where(open_, places["supercategory"], ""),
            "probability": np.nan,
            "examples": [f"Place {3 * n}; Place {3 * n + 1}" for n in range(len(clusters))],
            "status": np.select([open_, words == "unsure"], ["open", "unsure"], "decided"),
        }
    )[columns_of("review")]


def _images(source: Path, count: int, photos: int) -> pd.DataFrame:
    """One image a landmark, from a tar in which the same drawn photos come again and again."""
    places = []
    with tarfile.open(source / "photos.tar", "w") as tar:
        for seed in range(photos):
            data = draw_photo(seed, 224)
            info = tarfile.TarInfo(f"{seed:04x}.jpg")
            info.size = len(data)
            places.append(("photos.tar", tar.offset + tarfile.BLOCKSIZE, len(data)))
            tar.addfile(info, io.BytesIO(data))
    credit = ("An Author", "https://creativecommons.org/licenses/by-sa/3.0/", "File:Place.jpg")
    cells = [
        (f"{n:016x}", "train", n, *places[n % photos], *credit, f"https://example.org/{n}")
        for n in range(count)
    ]
    return pd.DataFrame(cells, columns=columns_of("images"))


def main(arguments: list[str]) -> None:
    """Print the figures; with a file's name, keep the page there."""
    for row in rows():
        print(f"{row.what:58} {row.value:10.4g} {row.unit:3} <= {row.most:g}")
    if arguments:
        with tempfile.TemporaryDirectory() as folder:
            tables = make_tables(5700, Path(folder))
            Path(arguments[0]).write_text(make_page(tables, Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
