import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t, ttest_1samp

from hgld.artifacts.ranking_file import RankingFile
from hgld.figures import DARK, LIGHT
from hgld.report.class_table import class_means
from hgld.report.confusion import confusion_by_class, draw_icicle
from hgld.report.latex import frame_cells, frame_latex
from tests.made_run import MadeRun
from tests.report.reading import parse, text, write

ENDS = ("mean", "low", "high")


def test_a_class_has_the_mean_and_the_t_interval_of_its_queries() -> None:
    values = np.array([[0.2], [0.3], [0.7], [0.9], [np.nan]])
    means, ends = class_means(values, np.array([0, 0, 0, 1, 1]), np.arange(5))
    expected = ttest_1samp(values[:3, 0], 0).confidence_interval()
    assert means[:, 0].tolist() == pytest.approx([0.4, 0.9])
    assert ends[:, 0, 0] == pytest.approx(np.clip([*expected], 0, 1))
    assert np.isnan(ends[:, 1]).all()  # of one query


def test_queries_of_one_landmark_count_as_one_unit_of_the_classes_above() -> None:
    values = np.array([[0.2], [0.2], [0.2], [0.6], [0.6]])
    units = np.array([0, 0, 0, 1, 1])
    means, ends = class_means(values, np.zeros(5, int), units)
    mean = 1.8 / 5
    rest = np.array([0.6 - 3 * mean, 1.2 - 2 * mean])  # of the ratio of sums
    reach = t.ppf(0.975, 1) * np.sqrt(2 * (rest**2).sum()) / 5
    assert means[0, 0] == pytest.approx(mean)
    assert ends[:, 0, 0] == pytest.approx(np.clip([mean - reach, mean + reach], 0, 1))


def test_the_interval_of_a_class_holds_the_mean_as_often_as_it_says() -> None:
    chance, inside = np.random.default_rng(0), []
    for _ in range(400):
        values = 0.5 + 0.1 * chance.standard_normal((40, 1))
        _, ends = class_means(values, np.repeat(np.arange(5), 8), np.arange(40))
        inside += ((ends[0, :, 0] <= 0.5) & (ends[1, :, 0] >= 0.5)).tolist()
    assert abs(np.mean(inside) - 0.95) < 0.02


def test_the_files_of_the_classes_have_every_level_metric_and_run(report: Path) -> None:
    with (report / "classes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == (2 + 3 + 5) * 4 * 2
    church = next(row for row in rows if row["class"] == "church" and row["model"] == "good")
    assert (church["within"], church["queries"]) == ("human-made", "4")
    assert float(church["mean"]) == pytest.approx((0.05 + 0.15 + 0.25 + 0.35) / 4)
    assert float(church["low"]) < 0.2 < float(church["high"])
    latex = (report / "classes.tex").read_text()
    lake = r"natural \textgreater{} lake"
    assert rf"landmark & Landmark 5 & {lake} & 2 & H-AP & good & 90.0" in latex
    cells = [line.removesuffix(r" \\").split(" & ") for line in latex.splitlines() if "&" in line]
    assert cells[0] == ["level", "class", "within", "queries", "metric", "model", "mean"]
    assert len(cells) == 1 + len(rows)
    for cell, row in zip(cells[1:], rows, strict=True):
        names = [name.replace(r"\textgreater{}", ">") for name in cell[:6]]
        assert names == [row[name] for name in cells[0][:6]]
        mean, low, high = (row[name] and f"{100 * float(row[name]):.1f}" for name in ENDS)
        assert cell[6] == (f"{mean} ({low}--{high})" if low else mean)


def test_mistakes_of_several_seeds_have_the_mean_over_the_seeds_as_the_run_has(
    run: MadeRun,
) -> None:
    # one seed errs on two queries, the other on one of them; of the natural classes on none
    images = run.index["image_id"].tolist()
    severe = [("good", images[0], 0.25), ("good", images[1], 0.75), ("plain", images[0], 1.0)]
    mistakes = pd.DataFrame(severe, columns=["model", "image_id", "value"])
    mistakes = mistakes.assign(metric="MS", **{"class": "1"})
    other = run.per_query.assign(model="plain")
    run.per_query = pd.concat([run.per_query, other, mistakes], ignore_index=True)
    run.evaluation["metrics"] = ["H-AP", "MS"]
    for name, mean in (("good", 0.5), ("plain", 1.0)):
        run.evaluation["models"][name]["mean"] = {"H-AP": 0.5, "MS": mean}
    run.evaluation["runs"] = {
        "net": {"models": ["good", "plain"], "mean": {"H-AP": 0.5, "MS": 0.75}}
    }
    table = pd.read_csv(write(run, grid_queries=0) / "classes.csv")
    found = table[table["metric"] == "MS"].set_index("class")
    assert found.loc["human-made", "mean"] == found.loc["church", "mean"] == 0.75
    assert np.isnan(found.loc[["natural", "bridge"], "mean"]).all()
    assert np.isnan(found["low"]).all()  # the seeds have values of different queries
    # a seed that errs on no query at all has no mean, so the run has none either
    run.per_query = run.per_query.query("not (model == 'plain' and metric == 'MS')")
    run.evaluation["models"]["plain"]["mean"]["MS"] = None
    run.evaluation["runs"]["net"]["mean"]["MS"] = None
    table = pd.read_csv(write(run, grid_queries=0) / "classes.csv")
    found = table[table["metric"] == "MS"]
    assert len(found) and found[[*ENDS]].isna().all(axis=None)


def test_latex_breaks_a_long_table_and_escapes_what_people_wrote() -> None:
    few = pd.DataFrame({"a_b": ["50 % & more"], "share": [0.5], "n": [1234]})
    assert frame_latex(few).splitlines()[1:] == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"a\_b & share & n \\",
        r"\midrule",
        r"50 \% \& more & 50.0 & 1,234 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    many = frame_latex(pd.concat([few] * 50))
    assert r"\begin{longtable}{lrr}" in many and "booktabs, longtable" in many


def test_latex_has_minus_signs_and_no_letters_that_its_default_font_lacks() -> None:
    """In OT1, < > | are other letters, and a hyphen is shorter than a minus."""
    shares = {"x": [-0.085], "x low": [-0.128], "x high": [0.037]}
    *_, row, _, _ = frame_latex(pd.DataFrame({"model": ["a-1 > <b>|c"], **shares})).splitlines()
    name = r"a-1 \textgreater{} \textless{}b\textgreater{}\textbar{}c"
    assert row == rf"{name} & $-$8.5 ($-$12.8 to 3.7) \\"
    empty = pd.DataFrame({"model": [], "x": np.empty(0)})
    assert frame_latex(empty).splitlines()[3:6] == [r"model & x \\", r"\midrule", r"\bottomrule"]


def test_latex_of_counts_alone_does_not_call_them_shares() -> None:
    counts = pd.DataFrame({"first image": ["same landmark"], "good": [404]})
    first, *_, row, _, _ = frame_latex(counts).splitlines()
    assert first == r"% Needs \usepackage{booktabs}." and row == r"same landmark & 404 \\"


def test_a_missing_value_is_an_empty_cell_and_an_interval_is_part_of_its_cell() -> None:
    table = pd.DataFrame({"x": [np.nan, 0.5], "x low": [np.nan, 0.4], "x high": [np.nan, 0.6]})
    assert frame_cells(table)["x"].tolist() == ["", "50.0 (40.0–60.0)"]


def test_confusion_is_counted_at_every_level(run: MadeRun) -> None:
    # every query finds image 0, of landmark 1, or image 1 if it is image 0
    ranking = RankingFile.load(run.ranked_levels / "good.npz")
    assert ranking.first_levels().tolist() == [3, 3, 2, 2, 1, 1, 0, 0, 0, 0]
    write(run, grid_queries=0)
    table = pd.read_csv(run.folder / "report" / "icicle.csv", keep_default_na=False)
    found = {row["class"]: (row["queries"], row["confused"]) for row in table.to_dict("records")}
    assert found["human-made"] == (6, 0) and found["natural"] == (4, 1)
    assert found["church"] == (4, 0) and found["bridge"] == (2, 1)
    assert found["Landmark 1"] == (2, 0) and found["Landmark 2"] == (2, 1)
    assert table["class"].tolist()[:2] == ["human-made", "church"]  # larger first, parents first


def test_an_icicle_takes_any_name_and_any_number_of_classes() -> None:
    pairs = [((f"${i % 3}$", f"<b> {i % 90} " * 5, f"leaf {i}"), i % 4) for i in range(3000)]
    levels = ("kind", "group", "leaf")
    for theme, some in ((LIGHT, pairs), (DARK, pairs[:300])):
        table = confusion_by_class(some, levels, {})
        assert draw_icicle(table, levels, theme).png().startswith(b"\x89PNG")


def test_the_values_of_a_chart_are_in_the_page_and_beside_it(report: Path) -> None:
    card = parse(report).xpath("//section[.//a[@href='icicle.csv']]")[0]
    rows = [[text(cell) for cell in row] for row in card.xpath(".//details//tr")]
    assert rows[:2] == [
        ["level", "class", "within", "queries", "confused"],
        ["kind", "human-made", "", "6", "0.0"],
    ]
    assert "icicle.tex" in card.xpath(".//a/@href")
    for name in ("levels", "recall", "alpha", "confusion", "sizes", "groups", "shares"):
        assert len(pd.read_csv(report / f"{name}.csv")), name
        assert r"\toprule" in (report / f"{name}.tex").read_text()


def test_the_page_holds_the_numbers_of_the_classes_in_percent(report: Path) -> None:
    data = json.loads(parse(report).xpath("string(//script[@id='classes'])"))
    assert data["levels"] == ["kind", "supercategory", "landmark"]
    assert data["runs"] == ["good", "plain"]
    *labels, cells = data["rows"][-1]
    assert labels == ["landmark", "Landmark 5", "natural > lake", 2]
    assert cells[0][0] == 90 and cells[1] == [None, None, None]


@pytest.mark.parametrize("width", [400, 1280])
def test_classes_are_searched_and_sorted_with_the_keyboard(
    report: Path, width: int, chromium: Any
) -> None:
    view = chromium.new_page(viewport={"width": width, "height": 900})
    view.goto((report / "report.html").resolve().as_uri())
    names = "[...document.querySelectorAll('.classes tbody th')].map(e => e.firstChild.data)"
    worst_first = view.evaluate(names)
    view.locator(".classes thead button").nth(2).focus()
    view.keyboard.press("Enter")
    best_first = view.evaluate(names)
    direction = view.get_attribute(".classes thead th:nth-child(3)", "aria-sort")
    view.locator(".classes input").focus()
    view.keyboard.type("LAKE")
    found = view.evaluate(names)
    status = view.inner_text(".classes [role=status]")
    view.select_option(".classes [name=level]", "0")
    view.fill(".classes input", "")
    kinds = view.evaluate(names)
    view.close()
    assert worst_first == [f"Landmark {i}" for i in range(1, 6)]
    assert best_first == worst_first[::-1] and direction == "descending"
    assert found == ["Landmark 5", "Landmark 4"]
    assert status == "2 of 5 classes of the level “landmark”"
    assert kinds == ["natural", "human-made"]
