import io
import json
import math
import shutil
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from hgld.artifacts.ranking_file import RankingFile
from hgld.config import ReportOptions
from hgld.credit import name_license
from hgld.errors import InvalidData, UsageError
from hgld.figures import DARK, LIGHT, Bar, draw_groups, draw_shares, draw_sunburst
from hgld.report import charts, write_report
from hgld.report.counts import Counts
from hgld.report.examples import Images, choose_queries
from hgld.report.figures import draw_class_sizes, draw_level_bars, draw_lines
from hgld.report.galleries import find_galleries
from hgld.report.intervals import Intervals
from hgld.report.plans import ChartData
from hgld.tasks import map_tasks
from tests.made_run import MadeRun, context, make_run
from tests.report.reading import CHARTS, look, open_page, page, parse, text, write


def frames(figures: list[Any]) -> list[str]:
    return [figure.get("class") for figure in figures]


def test_the_page_loads_nothing_from_elsewhere(report: Path) -> None:
    document = parse(report)
    loaded = document.xpath("//@src | //@srcset | //link/@href")
    assert loaded and all(source.startswith("data:") for source in loaded)
    assert not document.xpath("//script[@src] | //iframe | //object")
    assert "url(" not in document.xpath("string(//style)")


def test_the_charts_in_the_page_are_the_files_beside_it(report: Path) -> None:
    document = parse(report)
    inside = {
        b64decode(source.partition("base64,")[2])
        for source in document.xpath("//picture//@src | //picture//@srcset")
    }
    beside = {
        (report / f"{name}{scheme}.png").read_bytes() for name in CHARTS for scheme in ("", "-dark")
    }
    assert inside == beside


def test_the_same_run_gives_the_same_bytes(
    report: Path, run: MadeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "map_tasks", map_tasks)  # they are drawn again
    again = write(run, vector_figures=("svg", "pdf"))
    names = sorted(file.name for file in report.iterdir())
    assert names == sorted(file.name for file in again.iterdir())
    for name in names:
        assert (report / name).read_bytes() == (again / name).read_bytes(), name


def test_a_report_replaces_the_one_before_it(run: MadeRun) -> None:
    (run.folder / "report").mkdir()
    (run.folder / "report" / "old.png").write_bytes(b"")
    assert not (write(run, grid_queries=0) / "old.png").exists()


def test_a_hierarchy_or_a_ranking_of_other_shards_is_named(run: MadeRun) -> None:
    whole = run.hierarchy
    run.hierarchy = whole[whole["landmark_id"] != run.index["landmark_id"].iloc[0]]
    with pytest.raises(
        InvalidData, match=r"hierarchy\.csv: lacks landmark \d+ of the shards' split"
    ):
        write(run)
    run.hierarchy, gone = whole, str(run.index["image_id"].iloc[0])
    run.index = run.index.iloc[1:].reset_index(drop=True)
    run.write_index()
    with pytest.raises(
        InvalidData, match=rf"images that are not in the shards, such as {gone}; run"
    ):
        write(run)


def test_the_page_opens_with_the_facts_of_the_run(report: Path) -> None:
    document = parse(report)
    assert "2026-01-01" in text(document.xpath("//header/p")[0])
    tiles = [text(tile) for tile in document.xpath("//header//li")]
    assert tiles == [
        "10 images in all splits",
        "2 kind level 1",
        "3 supercategory level 2",
        "5 landmark level 3",
        "10 evaluation images 5 classes",
    ]


def test_the_best_of_each_column_is_marked_unless_all_are_equal(report: Path) -> None:
    rows = parse(report).xpath("//tbody/tr")
    cells = [[(text(c), c.get("class") == "best") for c in row.xpath("td")] for row in rows]
    cells[0][0] = (cells[0][0][0].split()[0], cells[0][0][1])  # without its interval
    assert cells == [
        [("75.0", True), ("90.0", False), ("50.0", False), ("25.0", True)],
        [("50.0", False), ("90.0", False), ("62.5", True), ("–", False)],
    ]


def test_a_model_without_rivals_is_not_called_best(run: MadeRun) -> None:
    del run.evaluation["models"]["plain"], run.evaluation["runs"]["plain"]
    assert not page(run, grid_queries=1).xpath("//td[@class='best']")


def test_a_mean_stands_above_its_interval_where_its_queries_are_known(report: Path) -> None:
    # Ten queries from 0.05 to 0.95 in even steps: their mean's standard error is 0.0908.
    cells = parse(report).xpath("//tbody/tr[1]/td")
    low, high = map(float, text(cells[0].xpath("small")[0]).split("–"))
    assert abs(low - (50 - 1.96 * 9.08)) < 3 and abs(high - (50 + 1.96 * 9.08)) < 3
    assert not cells[1].xpath("small")


def test_queries_without_a_value_are_counted(report: Path) -> None:
    assert "AP:landmark: 10" in text(parse(report).xpath("//section")[0])


def test_queries_that_have_no_severity_are_not_called_those_without_a_right_image(
    run: MadeRun,
) -> None:
    run.evaluation["metrics"] += ["MS", "MS over kind"]
    run.evaluation["models"]["good"]["skipped"] |= {"MS": 4}
    words = text(page(run, grid_queries=0).xpath("//section")[0])
    assert "left out: AP:landmark: 10. MS: only queries whose first image is wrong have" in words


def test_inverted_queries_are_counted_below_the_figures(report: Path, run: MadeRun) -> None:
    assert [text(one) for one in parse(report).xpath("//p[starts-with(., 'H-AP: for')]")] == [
        "H-AP: for 7 of 10 queries, so many images share a finer class that each counts less than "
        "one of a coarser class; the order by class is then not the best one."
    ]
    run.evaluation["metrics"] = ["AP:landmark"]  # not by relevance
    assert not page(run, grid_queries=1).xpath("//p[starts-with(., 'H-AP: for')]")


def test_frames_tell_how_much_query_and_image_share(run: MadeRun) -> None:
    # Worst is image 0, of landmark 1; the others come in their own order: its second photo, the
    # other church, the bridge, the lakes. The query itself is not among them.
    document = page(run, grid_queries=2, grid_images=9)
    worst = document.xpath("//h3[text()='Worst queries']/following-sibling::div")[0]
    figures = worst.xpath(".//div[@class='found']/figure")
    assert frames(figures) == ["same", "near", "near"] + ["far"] * 6
    words = [text(figure.xpath(".//b")[0]) for figure in figures]
    assert words[:2] == ["same landmark", "same supercategory"]
    assert words[3:6] == ["same kind", "same kind", "another kind"]
    ranks = [text(figure.xpath(".//div/span")[0]) for figure in figures]
    assert ranks == [str(rank) for rank in range(1, 10)]


def test_best_and_worst_are_those_of_the_best_model(run: MadeRun) -> None:
    document = page(run, grid_queries=3)
    assert text(document.xpath("//section[last()]/h2")[0]) == "What good finds"
    queries = [text(figure) for figure in document.xpath("//figure[@class='query']")]
    assert "Photo 9.jpg" in queries[0] and "H-AP 95.0" in queries[0]
    assert "Photo 0.jpg" in queries[1] and "H-AP 5.0" in queries[1]
    assert len(queries) == 3


def test_every_photo_names_title_author_and_licence(report: Path) -> None:
    photos = parse(report).xpath("//figure")
    assert len(photos) == 6 * 7
    for photo in photos:
        number = photo.xpath(".//img/@alt")[0].removeprefix("Photo ").removesuffix(".jpg")
        caption = photo.xpath("figcaption")[0]
        assert f"Photo {number}.jpg" in text(caption)
        assert f"by Author {number}" in text(caption)
        assert "CC BY-SA 3.0" in text(caption)
        assert caption.xpath(".//a/@href")[1].startswith("https://creativecommons.org/")


def test_a_caption_names_the_classes_of_each_level_the_fine_one_first(run: MadeRun) -> None:
    captions = page(run, grid_queries=1, grid_images=9).xpath("//figure/figcaption")
    words = [[text(part) for part in caption.xpath("em | em/following-sibling::span[1]")]
             for caption in captions]  # fmt: skip
    assert words[0] == ["Landmark 5", "lake · natural"]  # the query
    assert words[1:3] == [["Landmark 1", "church · human-made"]] * 2


def test_a_class_without_a_known_name_is_named_as_its_labels_do(run: MadeRun) -> None:
    *inputs, landmarks = run.report_inputs
    out = run.folder / "report"
    write_report(*inputs, landmarks.assign(name="unknown"),
                 options=ReportOptions(grid_queries=1, vector_figures=()),
                 context=context(run.folder), out=out)  # fmt: skip
    assert text(parse(out).xpath("//figcaption/em")[0]) == "train:5"


def test_the_title_of_the_pipeline_is_that_of_page_and_tab(run: MadeRun) -> None:
    out = run.folder / "report"
    titled = replace(context(run.folder), title="Shoes & <bags>")
    options = ReportOptions(grid_queries=0, vector_figures=())
    write_report(*run.report_inputs, options=options, context=titled, out=out)
    document = parse(out)
    assert document.xpath("string(//h1)") == "Shoes & <bags>"
    assert document.xpath("string(//title)") == "Shoes & <bags>: retrieval report"


def test_what_is_linked_lies_beside_the_page(report: Path) -> None:
    links = [link for link in parse(report).xpath("//a/@href") if "://" not in link]
    assert {"metrics.csv", "metrics.tex", "levels.pdf", "levels.svg", "levels.png"} <= {*links}
    assert all((report / link).is_file() for link in links)


def test_a_long_path_loses_its_middle_and_keeps_its_end(run: MadeRun) -> None:
    run.index["title"] = "unknown"
    run.index["image_id"] = [f"photos/2019/summer/holiday/{i:030}.jpg" for i in range(10)]
    path = run.ranked_levels / "good.npz"
    with np.load(path) as data:
        ids = run.index["image_id"].to_numpy(dtype=str)
        np.savez(path, **{**data, "query_ids": ids, "gallery_ids": ids})
    shutil.copy(path, run.ranked_levels / "plain.npz")
    run.per_query["image_id"] = run.index["image_id"]
    run.write_index()
    title = page(run, grid_queries=1).xpath("//figure[@class='query']//span[@title]")[0]
    assert text(title).startswith("image photos/") and text(title).endswith("000009.jpg")
    assert len(text(title)) == 44 and title.get("title").endswith(run.index["image_id"].iloc[9])


def test_the_same_queries_are_shown_under_two_models(run: MadeRun) -> None:
    both_measured(run)
    document = page(run, grid_queries=0, compared_queries=3)
    section = document.xpath("//main/section[last()]")[0]
    assert text(section.xpath("h2")[0]) == "The same queries under good and plain"
    groups = [text(title) for title in section.xpath("h3[@class='group']")]
    assert groups == ["Better under good", "Better under plain", "Random queries"]
    card = section.xpath(".//div[@class='card example']")[0]
    assert "Photo 9.jpg" in text(card.xpath("figure")[0])
    rows = [text(title) for title in card.xpath(".//h4")]
    assert rows == ["good: H-AP 95.0", "plain: H-AP 5.0"]
    assert [len(row) for row in card.xpath(".//div[@class='found']")] == [6, 6]
    for name in ("gain", "loss", "random"):
        assert (run.folder / "report" / f"comparison-{name}.png").exists()


def test_a_person_chooses_the_two_models(run: MadeRun) -> None:
    both_measured(run)
    document = page(run, grid_queries=0, compared=("plain", "good"), compared_queries=1)
    assert text(document.xpath("//main/section[last()]/h2")[0]).endswith("under plain and good")
    with pytest.raises(UsageError, match=r"report\.compared: no model 'god' .*did you mean 'good'"):
        page(run, compared=("plain", "god"))


def charted(run: MadeRun, *levels: str) -> ChartData:
    paths = Counts(run.hierarchy, run.index, run.levels).paths
    images = Images(run.shards, run.index, "evaluation", paths, {})
    rankings = {
        name: RankingFile.load(run.ranked_levels / f"{name}.npz") for name in ("good", "plain")
    }
    return ChartData(run.evaluation, levels, Intervals(), rankings, images, images)


def test_of_a_distance_the_least_value_is_the_best(run: MadeRun) -> None:
    both_measured(run)
    run.per_query["metric"] = "AHD@5"
    run.evaluation["metrics"] = ["AHD@5"]
    for name, mean in (("plain", 0.4), ("good", 0.2)):
        run.evaluation["runs"][name]["mean"] = {"AHD@5": mean}
    options = ReportOptions(grid_queries=2, grid_images=1, compared_queries=2)
    galleries = list(find_galleries(run.per_query, charted(run, *run.levels), options))
    shown = {
        name: [result.value for result in examples[0].results]
        for gallery in galleries
        for name, examples in gallery.groups.items()
    }
    assert galleries[0].about.startswith("Queries of the model with the best AHD@5,")
    assert shown["best"] == [0.05] and shown["worst"] == [0.95]
    assert shown["gain"] == pytest.approx([0.05, 0.95])
    assert shown["loss"] == pytest.approx([0.95, 0.05])


def test_the_models_are_named_beside_a_level_called_model(run: MadeRun) -> None:
    for model in run.evaluation["runs"].values():
        model["mean"]["AP:model"] = 0.5
    run.evaluation["metrics"] = ["AP:make", "AP:model"]
    (plan,) = charts._plan_levels(charted(run, "make", "model"))
    assert plan.table is not None
    assert plan.table[["run", "model"]].to_numpy().tolist() == [["good", 0.5], ["plain", 0.5]]


def both_measured(run: MadeRun) -> None:
    """Give the second model values as well, in the opposite order."""
    other = run.per_query.assign(model="plain", value=run.per_query["value"].to_numpy()[::-1])
    run.per_query = pd.concat([run.per_query, other], ignore_index=True)


def test_an_image_without_title_is_named_by_its_id(run: MadeRun) -> None:
    run.index["title"] = "unknown"
    run.write_index()
    assert "image 0000000000000009" in text(page(run, grid_queries=1).xpath("//figure")[0])


def test_what_strangers_wrote_stays_text(run: MadeRun) -> None:
    run.index["title"] = "<img src=x onerror=alert(1)>"
    run.index["author"] = "unknown"
    run.index["license"] = "unknown"
    run.index["url"] = "javascript:alert(1)"
    run.write_index()
    document = page(run, grid_queries=1)
    caption = document.xpath("//figure/figcaption")[0]
    assert "<img src=x" in text(caption)
    assert "unknown" not in text(caption)
    assert "Not on record: author and licence of these photos." in text(document)
    assert not document.xpath("//figcaption//img | //figcaption//a")


def test_the_photos_in_the_page_are_those_of_the_shards(run: MadeRun) -> None:
    sources = page(run, grid_queries=1).xpath("//figure[@class='query']//img/@src")
    image = Image.open(io.BytesIO(b64decode(sources[0].partition("base64,")[2])))
    assert image.size == (48, 32)
    expected = (25 * 9, 200 - 15 * 9, 90)  # the colour of image 9, the best
    assert np.abs(np.array(image)[16, 24].astype(int) - expected).max() <= 6


def test_no_queries_asked_for_gives_no_pictures_of_retrieval(run: MadeRun) -> None:
    assert not page(run, grid_queries=0).xpath("//figure")
    assert {path.stem for path in (run.folder / "report").glob("retrieval*")} == set()


def test_models_that_were_not_trained_have_no_curve(run: MadeRun) -> None:
    shutil.rmtree(run.models / "good")
    write(run, grid_queries=0)
    assert not (run.folder / "report" / "losses.png").exists()


@pytest.mark.parametrize("levels", [("landmark",), ("supercategory", "landmark")])
def test_other_hierarchies_have_other_depths(tmp_path: Path, levels: tuple[str, ...]) -> None:
    run = make_run(tmp_path / "work", levels)
    document = page(run, grid_queries=2, grid_images=9)
    worst = document.xpath("//h3[text()='Worst queries']/following-sibling::div")[0]
    between = ["near", "near"] if len(levels) == 2 else ["far", "far"]
    assert frames(worst.xpath(".//figure"))[1:] == ["same", *between] + ["far"] * 6
    assert (run.folder / "report" / "groups.png").exists() == (len(levels) == 2)


def test_a_damaged_line_of_metrics_is_named(run: MadeRun) -> None:
    (run.models / "good" / "metrics.jsonl").write_text('{"step": 1, "loss": 2}\n{"st')
    with pytest.raises(InvalidData, match=r"good/metrics\.jsonl line 2: not a JSON object"):
        write(run)


def test_a_damaged_ranking_is_named_and_leaves_the_old_report(run: MadeRun) -> None:
    before = (write(run) / "report.html").read_bytes()
    (run.ranked_levels / "good.npz").write_bytes(b"PK")
    with pytest.raises(InvalidData, match=r"good\.npz: not a readable ranking"):
        write(run)
    assert (run.folder / "report" / "report.html").read_bytes() == before


def test_queries_of_different_groups_are_shown_first() -> None:
    values = pd.Series({"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.1, "e": 0.2, "f": np.nan})
    groups = {"a": 1, "b": 1, "c": 2, "d": 3, "e": 3, "f": 4}
    chosen = choose_queries(values, groups, 6)
    assert chosen["best"] == ["a", "c"]
    assert chosen["worst"] == ["d", "b"]
    assert chosen["random"] == ["e"]


def test_random_queries_stay_when_others_come() -> None:
    few = pd.Series({str(i): 0.5 for i in range(50)})
    groups = {str(i): i for i in range(60)}
    many = pd.concat([few, pd.Series({"best": 1.0, "worst": 0.0})])
    before = choose_queries(few, groups, 3)
    after = choose_queries(many, {**groups, "best": 98, "worst": 99}, 3)
    assert after["best"] == ["best"] and after["worst"] == ["worst"]
    assert after["random"] == before["random"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("http://creativecommons.org/licenses/by/2.0/", "CC BY 2.0"),
        ("https://creativecommons.org/licenses/by-sa/2.5/es/deed.en", "CC BY-SA 2.5"),
        ("http://creativecommons.org/publicdomain/zero/1.0/", "CC0 1.0"),
        ("https://creativecommons.org/publicdomain/mark/1.0/", "Public domain mark 1.0"),
        ("http://artlibre.org/licence/lal/en", "http://artlibre.org/licence/lal/en"),
        ("unknown", "unknown"),
    ],
)
def test_a_licence_has_its_usual_name(text: str, name: str) -> None:
    assert name_license(text) == (name, text if text.startswith("http") else "")


def test_charts_take_any_name_and_any_size() -> None:
    bars = [Bar(f"$x_{i}$ & <b>", "g", 10**6 // (i + 1), i) for i in range(90)]
    for theme in (LIGHT, DARK):
        assert draw_groups(bars, "leaf", theme).png().startswith(b"\x89PNG")
        assert draw_class_sizes({"train": [1]}, "leaf", theme).png().startswith(b"\x89PNG")
        values = {f"model {i}": {"leaf": float("nan")} for i in range(9)}
        assert draw_level_bars(values, {}, theme).png().startswith(b"\x89PNG")
        lines = {name: ([8.0, 16.0], [1.0, float("nan")]) for name in values}
        line = draw_lines(lines, list(values), ("$x$", "<y>"), theme, powers=True)
        assert line.png().startswith(b"\x89PNG")
        rings = {(f"kind {i % 9}", bar.name): bar.classes for i, bar in enumerate(bars)}
        assert draw_sunburst(rings, ("kind", "group", "leaf"), theme).png().startswith(b"\x89PNG")
        assert draw_shares({"none": {"$a": 0, "b": 0}}, theme).png().startswith(b"\x89PNG")


def test_a_long_name_of_a_class_leaves_its_values_in_sight(run: MadeRun, chromium: Any) -> None:
    names = [{**json.loads(path), "supercategory": "x" * 120} for path in run.hierarchy["path"]]
    run.hierarchy["path"] = [json.dumps(path) for path in names]
    view, said = open_page(chromium, write(run, grid_queries=0) / "report.html", width=1280)
    view.locator("select[name=level]").select_option(label="supercategory")
    box = view.locator(".classes .scroll")
    assert box.locator("tbody th").first.inner_text().startswith("x" * 60)
    assert box.evaluate("box => box.scrollWidth - box.clientWidth") <= 0 and said == []


def test_the_tabulator_stops_only_at_pictures_that_scroll(report: Path, chromium: Any) -> None:
    view, _ = open_page(chromium, report / "report.html", width=1280)
    stops = view.locator("picture[tabindex='0']")
    assert stops.count() == 0
    view.set_viewport_size({"width": 400, "height": 900})
    view.wait_for_function("document.querySelector('picture').tabIndex === 0")
    assert stops.count() == len(CHARTS)


def test_a_printed_report_has_all_columns_of_its_tables(long_report: Path, chromium: Any) -> None:
    view, _ = open_page(chromium, long_report / "report.html", width=718)  # of A4 without margins
    view.emulate_media(media="print")
    wide = "tables => tables.map(table => table.offsetWidth > table.parentElement.clientWidth)"
    found = view.locator(".scroll > table:visible").evaluate_all(wide)
    assert len(found) == 2 and not any(found)
    assert view.locator(".hint.shown:visible, .tools:visible").count() == 0
    view.close()


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_report_offline(
    report: Path, width: int, scheme: Any, chromium: Any
) -> None:
    address = (report / "report.html").resolve().as_uri()
    view = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    asked: list[str] = []
    said: list[str] = []
    view.on("request", lambda request: asked.append(request.url))
    view.on("console", lambda message: said.append(message.text))
    view.goto(address)
    sizes = view.evaluate("[...document.images].map(image => image.naturalWidth)")
    shown = view.evaluate("document.querySelector('picture img').currentSrc")
    overflow = view.evaluate("document.documentElement.scrollWidth - innerWidth")
    view.close()
    assert [url for url in asked if not url.startswith("data:")] == [address] and said == []
    assert len(sizes) == len(CHARTS) + 42 and min(sizes) > 0
    name = "levels-dark.png" if scheme == "dark" else "levels.png"
    assert b64decode(shown.partition("base64,")[2]) == (report / name).read_bytes()
    assert overflow <= 0


@pytest.mark.parametrize(
    ("width", "scheme"), [(400, "light"), (700, "dark"), (1280, "light"), (1800, "light")]
)
def test_nothing_is_cut_and_what_scrolls_says_so(
    long_report: Path, width: int, scheme: Any, chromium: Any
) -> None:
    found = look(chromium, long_report / "report.html", width, scheme)
    assert found["beyond"] == [] and found["cut"] == []
    assert found["silent"] == [] and found["idle"] == []
    assert found["page"] <= 0
    assert width > 1000 or "scroll" in found["scrollers"]


@pytest.mark.parametrize(("second", "widths"), [(0.75, (1100, 400)), (0.5, (1280, 1000))])
def test_eight_metrics_with_deviations_have_a_hint_to_scroll_only_on_a_page_that_is_too_narrow(
    run: MadeRun, second: float, widths: tuple[int, int], chromium: Any
) -> None:
    """The best of a column is marked, unless all are."""
    metrics = ["H-AP", "NDCG", "ASI", *(f"AP:{k}" for k in "abc"), "R@1:species", "mAP@100:species"]
    run.evaluation["metrics"] = metrics
    for name, mean in (("good", 0.75), ("plain", second)):
        means = {"mean": dict.fromkeys(metrics, mean)}
        run.evaluation["models"][name] |= means
        run.evaluation["runs"][name] |= {**means, "std": dict.fromkeys(metrics, 0.01)}
    wide, narrow = (look(chromium, write(run) / "report.html", width) for width in widths)
    assert wide["idle"] == narrow["idle"] == []
    hint = "Scroll the table sideways for all 8 columns."
    assert hint not in wide["hints"] and hint in narrow["hints"]


@pytest.mark.parametrize(
    "name", ["human-made", "tableware and kitchenware", "熊猫熊猫熊猫熊猫熊猫熊猫"]
)
def test_names_inside_a_sunburst_stay_within_their_ring(name: str) -> None:
    counts = {(name, "a name of 18 letters"): 75, ("natural", "lake"): 22, ("rare", "well"): 3}
    axes = draw_sunburst(counts, ("kind", "group", "leaf"), LIGHT).figure.axes[0]
    inside = [shown for shown in axes.texts if shown.get_weight() == "bold"]
    assert {shown.get_text()[:4] for shown in inside} == {name[:4], "natu"}
    origin, unit = axes.transData.transform([(0, 0), (1, 0)])
    for shown in inside:
        radius = math.hypot(*shown.get_position())
        shown.set_rotation(0)
        half = shown.get_window_extent().width / 2 / (unit[0] - origin[0])
        assert radius > 0.36 and math.hypot(radius, half) < 0.68  # the edges of the ring
