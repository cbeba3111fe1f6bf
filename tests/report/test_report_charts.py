import io
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fontTools.ttLib import TTFont
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from hgld.artifacts import SPACE_OF_SPLIT
from hgld.artifacts.ranking_file import RankingFile
from hgld.errors import InvalidData
from hgld.evaluate.ranking import mean_classes
from hgld.figures import (
    DARK,
    LIGHT,
    WIDE,
    WIDTH,
    Bar,
    Theme,
    add_legend,
    draw_groups,
    draw_shares,
    draw_sunburst,
)
from hgld.report import charts
from hgld.report.class_map import ClassMap, draw_class_maps, place_classes
from hgld.report.confusion import count_confusion, draw_confusion
from hgld.report.counts import Counts
from hgld.report.curve_charts import plan_curves
from hgld.report.examples import Images, class_paths
from hgld.report.figures import draw_level_bars, draw_lines
from hgld.report.intervals import Intervals
from hgld.report.plans import ChartData
from hgld.words import verb_text
from tests.colours import contrast
from tests.listening import heard
from tests.made_run import WEIGHTS, MadeRun, make_run
from tests.report.reading import CHARTS, page, parse, text, write

LAKE, BAY, CHURCH = ("natural", "lake"), ("natural", "bay"), ("human-made", "church")


def test_confusion_counts_what_the_first_image_is_taken_for() -> None:
    found = count_confusion([(LAKE, LAKE), (LAKE, BAY), (BAY, BAY), (CHURCH, LAKE)])
    assert found.names == ("church", "bay", "lake")  # by path: human-made first
    assert found.counts.tolist() == [[0, 0, 1], [0, 1, 0], [0, 1, 1]]
    assert (found.wrong, found.queries) == (2, 4)


def test_classes_of_one_name_and_two_kinds_are_two() -> None:
    found = count_confusion([(("natural", "park"), ("human-made", "park"))])
    assert found.names == ("park", "park") and found.wrong == 1


def test_of_many_classes_the_most_mistaken_have_a_row_and_no_query_is_lost() -> None:
    right = [((f"c{i:02}",), (f"c{i:02}",)) for i in range(30) for _ in range(3)]
    found = count_confusion([*right, (("c28",), ("c29",))], shown=5)
    assert found.names == ("c00", "c01", "c28", "c29", "26 others")
    assert found.queries == 91 and found.counts[2].tolist() == [0, 0, 3, 1, 0, 0]
    assert found.counts[4, 4] == 78


def test_a_mistake_between_two_of_the_others_is_none_of_the_right_ones() -> None:
    names = [f"c{i:02}" for i in range(6)]
    mistakes = [(("c00",), ("c01",))] * 2 + [(("c04",), ("c05",))]
    found = count_confusion([*(((name,), (name,)) for name in names), *mistakes], shown=3)
    assert found.names == ("c00", "c01", "4 others")
    assert found.columns[2:] == ("4 others", "another of the others")
    assert found.counts.tolist() == [[1, 2, 0, 0], [0, 1, 0, 0], [0, 0, 4, 1]]
    assert found.counts.trace() == found.queries - found.wrong
    last = found.table().iloc[-1]
    assert (last["first image"], last["share"]) == ("another of the others", 0.2)
    assert draw_confusion(found, "group", LIGHT).png().startswith(b"\x89PNG")


def test_class_means_are_those_of_a_plain_loop() -> None:
    chance = np.random.default_rng(0)
    labels = chance.integers(0, 3, (50, 2))
    vectors = chance.normal(size=(50, 4)).astype(np.float32)
    classes, means = mean_classes(vectors, labels)
    assert len(classes) == len({tuple(row) for row in labels.tolist()})
    for row, mean in zip(classes, means, strict=True):
        assert mean == pytest.approx(vectors[(labels == row).all(axis=1)].mean(axis=0), abs=1e-6)


def test_of_very_many_classes_the_same_ones_are_drawn() -> None:
    labels = np.arange(100)[:, None]
    vectors = np.arange(100, dtype=np.float32)[:, None]
    classes, means = mean_classes(vectors, labels, limit=10)
    assert len(classes) == 10 and means.ravel().tolist() == classes.ravel().tolist()
    assert mean_classes(vectors, labels, limit=10)[0].tolist() == classes.tolist()


def test_a_map_lays_near_classes_near_and_is_the_same_each_time() -> None:
    chance = np.random.default_rng(0)
    centres = np.repeat(np.eye(3), 8, axis=0)
    means = (centres + 0.05 * chance.normal(size=centres.shape)).astype(np.float32)
    groups = [(name,) for name in "abc" for _ in range(8)]
    found, again = place_classes(means, groups), place_classes(means, groups)
    assert found is not None and again is not None and found.together == 1.0
    assert (found.places == again.places).all()
    middles = found.places.reshape(3, 8, 2).mean(axis=1)
    within = np.linalg.norm(found.places.reshape(3, 8, 2) - middles[:, None], axis=2).max()
    assert within < min(np.linalg.norm(middles[i] - middles[i - 1]) for i in range(3))


def test_the_nearest_class_is_found_by_angle_not_length() -> None:
    means = np.array([[1, 0], [9, 1], [0, 1], [1, 9], [1, 8]], np.float32)
    found = place_classes(means, [("a",), ("a",), ("b",), ("b",), ("a",)])
    assert found is not None and found.together == pytest.approx(3 / 5)


@pytest.mark.parametrize(
    ("kept", "title", "caption"),
    [
        (5, "of the classes the nearest one is of the same super", "each landmark of the"),
        (4, "of 4 random classes the nearest of these is of the same super", "4 of the 5 landmark"),
    ],
)
def test_a_map_of_some_classes_says_so(run: MadeRun, kept: int, title: str, caption: str) -> None:
    measured = measure(run)
    some = {
        name: replace(found, classes=found.classes[:kept], means=found.means[:kept])
        for name, found in measured.rankings.items()
    }
    (plan,) = charts._plan_map(replace(measured, rankings=some))
    assert title in plan.title and caption in plan.caption
    assert ("among these classes alone" in plan.caption) == (kept < 5)


def test_maps_of_some_models_say_how_many(run: MadeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    (all_models,) = charts._plan_map(measure(run))
    monkeypatch.setattr(charts, "MAPS", 1)
    (one,) = charts._plan_map(measure(run))
    assert one.caption == f"{all_models.caption} 1 of 2 models are drawn."


def test_too_few_classes_or_a_single_coarse_one_have_no_map() -> None:
    assert place_classes(np.eye(3), [("a",), ("a",), ("b",)]) is None
    assert place_classes(np.eye(5), [("a",)] * 5) is None


def test_shares_count_classes_and_images(run: MadeRun) -> None:
    counts = Counts(run.hierarchy, run.index, run.levels)
    assert counts.shares == {
        "landmark classes": {"human-made": 3, "natural": 2},
        "evaluation images": {"human-made": 6, "natural": 4},
    }
    assert counts.largest_share() == ("human-made", 0.6)
    assert counts.by_group[LAKE] == 2 and sum(counts.by_group.values()) == 5


def test_one_query_finds_and_others_find() -> None:
    assert [verb_text(number, "find") for number in (1, 0, 2)] == ["finds", "find", "find"]


def test_a_class_of_both_id_spaces_is_counted_once_and_its_images_in_both() -> None:
    paths = [json.dumps({"group": "a", "leaf": leaf}) for leaf in "xxy"]
    rows = {"split": ["train", "index", "index"], "landmark_id": [0, 0, 1], "path": paths}
    hierarchy = pd.DataFrame(rows)
    counts = Counts(hierarchy, hierarchy[["split", "landmark_id"]], ("group", "leaf"))
    assert counts.by_group == {("a",): 2}
    assert [(bar.classes, bar.images) for bar in counts.bars] == [(2, 3)]


def test_classes_that_are_called_so_are_named_once() -> None:
    plans = {p.name: p for p in charts._plan_counts(counts_of(("a", "b", "class"), ["xyz"]))}
    assert plans["groups"].caption == "Labelled classes of each b, and their exported images."
    rings = draw_sunburst({("x", "y"): 58}, ("a", "b", "class"), LIGHT).figure
    assert "58\nclasses" in [label.get_text() for label in rings.axes[0].texts]


def test_the_tables_of_counts_have_half_images_and_all_classes_above() -> None:
    counts = counts_of(tuple("abcd"), ["afx0", "agx1"])
    counts = replace(counts, index=counts.index.loc[[0, 0, 1, 1, 1]])
    sizes, groups, *_ = charts._plan_counts(counts)
    assert sizes.table is not None and sizes.table["median class"].tolist() == ["2.5"]
    assert groups.table is not None
    assert groups.table[["c", "within"]].to_numpy().tolist() == [["x", "a > f"], ["x", "a > g"]]


def counts_of(levels: tuple[str, ...], paths: list[str]) -> Counts:
    rows = [(i, json.dumps(dict(zip(levels, path, strict=True)))) for i, path in enumerate(paths)]
    hierarchy = pd.DataFrame(rows, columns=["landmark_id", "path"]).assign(split="train")
    return Counts(hierarchy, hierarchy[["split", "landmark_id"]], levels)


@pytest.mark.parametrize(
    ("paths", "title"),
    [
        (["a0", "a1", "b2"], "a is the largest of 2 group classes"),
        (["a0", "a1", "b2", "b3"], "How many leaf classes each group has"),
    ],
)
def test_of_groups_of_equal_size_none_is_called_the_largest(paths: list[str], title: str) -> None:
    _, groups, *_ = charts._plan_counts(counts_of(("group", "leaf"), paths))
    assert groups.title == title and groups.table is not None
    assert groups.table["group"].tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("paths", "title"),
    [
        (["a0", "a1", "b2"], "67 % of the leaf classes are a"),
        (["a0", "b1"], "How the leaf classes divide by top group"),
    ],
)
def test_of_equal_shares_none_is_called_the_largest(paths: list[str], title: str) -> None:
    *_, shares = charts._plan_counts(counts_of(("top_group", "leaf"), paths))
    assert shares.title == title
    assert shares.caption.startswith("Share of each top group in")


def test_the_groups_that_have_no_bar_are_not_called_smaller() -> None:
    bars = [Bar(f"g{number}", "", 4, 8) for number in range(81)]
    (axes,) = draw_groups(bars, "leaf", LIGHT).figure.axes
    assert axes.get_xlabel() == "number of leaf classes (1 other not shown)"


@pytest.mark.parametrize(
    ("levels", "title", "left_out"),
    [("abcde", "From a to d", ""), ("abcdef", "From a to d", " Levels below d are not drawn.")],
)
def test_the_rings_are_called_by_the_levels_that_they_show(levels, title, left_out) -> None:
    plans = charts._plan_counts(counts_of(tuple(levels), ["x" * len(levels)]))
    (rings,) = (plan for plan in plans if plan.name == "sunburst")
    assert rings.title == title and rings.caption.endswith(f"level is inside.{left_out}")


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ([2, 4, 2], "The largest of 3 evaluation classes holds 50 % of the images"),
        ([*range(1, 20), 10], "The 2 largest of 20 evaluation classes hold 18 % of the images"),
    ],
)
def test_the_long_tail_names_how_many_classes_hold_the_images(run: MadeRun, sizes, says) -> None:
    counts = Counts(run.hierarchy, run.index, run.levels)
    counts.__dict__["class_sizes"] = {"evaluation": sizes}
    assert counts.long_tail() == says


def test_the_rows_of_a_ranking_are_read_one_by_one(run: MadeRun) -> None:
    path = run.ranked_levels / "good.npz"
    ranking, ids = RankingFile.load(path), run.index["image_id"].tolist()
    with np.load(path) as data:
        expected = data["levels"]
    assert (ranking.levels([ids[7], ids[2]]) == expected[[7, 2]]).all()
    with pytest.raises(InvalidData, match=r"gone\.npz: not a readable ranking"):
        gone = path.with_name("gone.npz")
        RankingFile(gone, np.array(["a"]), *[np.empty(0)] * 5, {}).levels(["a"])


def test_titles_say_what_is_to_be_seen(report: Path) -> None:
    titles = [text(title) for title in parse(report).xpath("//section[picture]/h3")]
    # Each finds image 0 first, a church, the first query image 1: of ten four are churches.
    assert "6 of 10 queries find another supercategory first" in titles
    assert "60 % of the landmark classes are human-made" in titles
    assert "In 3 steps the loss of good went from 1 to 0.33" in titles
    said = text(parse(report))
    assert "4 of another kind, 6 of another supercategory, 8 of another landmark" in said


def test_a_gallery_of_queries_and_distractors_is_shown_with_the_classes_of_both(
    run: MadeRun,
) -> None:
    others = run.index.index >= 6
    shutil.copy(run.shards / "evaluation-000000.tar", run.shards / "validation-000000.tar")
    run.index.loc[others, ["split", "shard"]] = ["validation", "validation-000000.tar"]
    assert SPACE_OF_SPLIT["validation"] == SPACE_OF_SPLIT["evaluation"]
    run.write_index()
    run.evaluation["protocol"]["gallery"] = "evaluation+validation"
    for path in run.ranked_levels.glob("*.npz"):
        with np.load(path) as data:
            arrays = {name: data[name] for name in data}
        rows = {name: arrays[name][:6] for name in ("levels", "order", "query_ids")}
        np.savez(path, **{**arrays, **rows})
    run.per_query = run.per_query[:6]
    document = page(run, grid_queries=1, grid_images=9)
    assert text(document.xpath("//div[@class='found']/figure[9]//b")[0]).startswith("another kind")


@pytest.mark.parametrize(
    ("levels", "lacking"),
    [
        (("supercategory", "landmark"), {"sunburst"}),
        (("landmark",), {"alpha", "map", "icicle", "groups", "sunburst", "shares"}),
    ],
)
def test_flatter_hierarchies_have_fewer_charts(
    tmp_path: Path, levels: tuple[str, ...], lacking: set[str]
) -> None:
    out = write(make_run(tmp_path / "flat", levels), grid_queries=0)
    assert CHARTS - {path.stem for path in out.glob("*.png")} == lacking


def test_charts_are_as_wide_as_the_page_needs_at_twice_its_pixels(report: Path) -> None:
    for name in CHARTS:
        for scheme in ("", "-dark"):
            with Image.open(report / f"{name}{scheme}.png") as image:
                assert image.width == (2280 if name == "map" else 1120), name


def test_every_chart_is_there_as_svg_and_pdf_with_its_words(report: Path) -> None:
    for name in CHARTS:
        assert (report / f"{name}.svg").read_bytes().startswith(b"<?xml")
        pdf = (report / f"{name}.pdf").read_bytes()
        assert pdf.startswith(b"%PDF") and b"/Type3" not in pdf


def test_fonts_in_a_pdf_have_outlines_and_no_tables_that_move_letters() -> None:
    pdf = draw_shares({"images": {"natural": 3, "human-made": 1}}, LIGHT).vector("pdf")
    streams = map(zlib.decompress, re.findall(rb"stream\n(x.*?)\nendstream", pdf, re.DOTALL))
    fonts = [TTFont(io.BytesIO(data)) for data in streams if data.startswith(b"\0\1\0\0")]
    assert fonts and all("glyf" in font for font in fonts)
    assert not any(table in font for font in fonts for table in ("GDEF", "GPOS", "GSUB"))


def test_another_process_writes_the_same_vector_files(tmp_path: Path) -> None:
    script = (
        "import sys; from hgld.figures import LIGHT, draw_shares\n"
        "drawing = draw_shares({'images é': {'natural': 3, 'human-made': 1}}, LIGHT)\n"
        "sys.stdout.buffer.write(drawing.vector('svg') + drawing.vector('pdf'))"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "SOURCE_DATE_EPOCH": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1] and b"Date" not in found[0].replace(b"dc:date", b"Date")


def test_all_files_of_a_chart_have_the_same_layout() -> None:
    drawing = draw_shares({"images": {"natural": 3, "human-made": 1}}, LIGHT)
    before = [axes.get_position().bounds for axes in drawing.figure.axes]
    drawing.png()
    drawing.vector("svg")
    assert drawing.figure.get_layout_engine() is None  # with one, each file takes two drawings
    assert [axes.get_position().bounds for axes in drawing.figure.axes] == before


def test_confusion_of_many_classes_keeps_the_font_and_takes_both_columns() -> None:
    pairs = [((f"c{i:02}",), (f"c{i:02}",)) for i in range(20)]
    wide = draw_confusion(count_confusion(pairs), "group", LIGHT)
    narrow = draw_confusion(count_confusion(pairs[:4]), "group", LIGHT)
    assert (narrow.size[0], wide.size[0]) == (WIDTH, WIDE)
    sizes = {
        text.get_fontsize()
        for drawing in (narrow, wide)
        for text in drawing.figure.axes[0].get_xticklabels()
    }
    assert sizes == {8.5}


def test_the_names_of_the_axes_of_a_small_confusion_are_within_the_figure() -> None:
    names = ("Kleidung & Schuhe", "bird", "furniture", "tool")
    found = count_confusion([((name,), (name,)) for name in names])
    figure = draw_confusion(found, "supercategory", LIGHT).figure
    figure.canvas.draw()
    inside = figure.bbox.padded(1).get_points()
    for label in (figure.axes[0].xaxis.label, figure.axes[0].yaxis.label):
        box = label.get_window_extent().get_points()
        assert (box[0] >= inside[0]).all() and (box[1] <= inside[1]).all()


SECTIONS = [f"{part} & everything else of a shop, {part}" for part in ("Home", "Toys", "Garden")]


@pytest.mark.parametrize("length", [20, 30, 200])
def test_names_of_a_shop_leave_room_for_the_panel_and_stay_in_the_figure(length: int) -> None:
    names = [f"{i} {SECTIONS[i % 3]}"[:length].ljust(length, "-") for i in range(20)]
    groups = {name: i + 1 for i, name in enumerate(names)}
    bars = [Bar(name, names[i % 6], i + 1, 0) for i, name in enumerate(names)]
    found = ClassMap(np.eye(20, 2), tuple((name,) for name in names), 0.5)
    for figure in (
        draw_groups(bars, "class", LIGHT).figure,
        draw_shares({"classes": groups, "images": groups}, LIGHT).figure,
        draw_class_maps({"m": found}, ["m"], "section", LIGHT).figure,
        draw_confusion(count_confusion([((n,), (n,)) for n in names[:4]]), "aisle", LIGHT).figure,
    ):
        figure.canvas.draw()
        (axes,) = figure.axes[:1]
        legends = [*figure.legends, *([axes.get_legend()] if axes.get_legend() else [])]
        for box in (legend.get_window_extent() for legend in legends):
            assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
        assert axes.get_window_extent().width > figure.bbox.width / 4


def test_the_smallest_of_many_shares_are_added_up() -> None:
    figure = draw_shares({"classes": {f"g{i}": i for i in range(9)}}, LIGHT).figure
    shown = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert shown == ["g8", "g7", "g6", "g5", "g4", "4 others"]
    assert sum(bar.get_width() for bar in figure.axes[0].patches) == pytest.approx(100)


def test_folders_beside_the_runs_are_not_read_for_losses(run: MadeRun) -> None:
    same = json.dumps({"sha256": WEIGHTS["good"]})
    for name, content in (("other program's", "{"), ("left out", same)):
        (run.models / name).mkdir()
        (run.models / name / "config.json").write_text(content)
    assert list(charts.find_losses(run.evaluation["models"], run.models)) == ["good"]


def test_losses_are_those_of_the_weights_that_were_measured(run: MadeRun) -> None:
    """A run by another name keeps its curve; another model by the name of a run has none."""
    run.evaluation["models"]["plain"] |= {"weights_sha256": WEIGHTS["good"], "steps": 3}
    run.evaluation["models"]["good"]["weights_sha256"] = "2" * 64
    with heard() as said:
        (plan,) = charts._plan_losses(measure(run), run.models)
    assert plan.title == "In 3 steps the loss of plain went from 1 to 0.33"
    assert said == [f"report: {run.models} has no losses of the weights of good; none are drawn"]


def measure(run: MadeRun) -> ChartData:
    images = Images(run.shards, run.index, "evaluation", class_paths(run.hierarchy), {})
    rankings = {p.stem: RankingFile.load(p) for p in sorted(run.ranked_levels.iterdir())}
    return ChartData(run.evaluation, run.levels, Intervals(), rankings, images, images)


def test_the_numbers_beside_the_curves_are_those_of_the_table(run: MadeRun) -> None:
    """Curves of some of the queries have another mean than the table, which is of all."""
    some = measure(run)
    for ranking in some.rankings.values():
        few = {name: ranking.curves[name][:4] for name in ("precision", "by_alpha", "gaps")}
        ranking.curves.update(few)
    recall = next(plan for plan in plan_curves(some) if plan.name == "recall")
    legend = recall.draw(LIGHT).figure.axes[0].get_legend()
    assert legend is not None
    words = [line.get_text() for line in legend.get_texts()]
    assert words == ["good: H-AP 75.0", "plain: H-AP 50.0"]
    assert recall.caption.endswith("Lines over 4 of 10 queries. The numbers are over all.")


@pytest.mark.parametrize(
    ("better", "title"),
    [
        ("plain", "Average precision at each level"),  # best at two levels, at the third as good
        ("good", "No model has the highest AP at every level"),
    ],
)
def test_a_model_that_is_as_good_at_a_level_also_leads_there(
    run: MadeRun, better: str, title: str
) -> None:
    measured = measure(run)
    measured.evaluation["models"]["plain"]["mean"]["AP:landmark"] = 0.5
    measured.evaluation["models"][better]["mean"]["AP:supercategory"] = 0.7
    levels, *_ = charts._plan_levels(measured)
    assert levels.title == title
    ties = {metric: frozenset({"plain"}) for metric in measured.evaluation["metrics"]}
    sure, *_ = charts._plan_levels(replace(measured, intervals=Intervals(ties=ties)))
    assert sure.title == title.replace(
        "Average precision at each level", "plain has the highest AP at every level"
    )


def test_a_tie_at_one_alpha_is_no_other_leader(run: MadeRun) -> None:
    measured = measure(run)
    curves = measured.rankings["plain"].curves
    tie = np.arange(curves["by_alpha"].shape[1]) == 0
    for factor, title in ((1.1, "H-AP against alpha"), (0.9, "H-AP against alpha")):
        curves["by_alpha"] = measured.rankings["good"].curves["by_alpha"] * np.where(tie, 1, factor)
        (alpha,) = [plan for plan in plan_curves(measured) if plan.name == "alpha"]
        assert alpha.title == title
    curves["by_alpha"] = measured.rankings["good"].curves["by_alpha"] * np.where(tie, 1.1, 0.9)
    (alpha,) = [plan for plan in plan_curves(measured) if plan.name == "alpha"]
    assert alpha.title == "Which model leads depends on alpha"


def test_runs_and_levels_may_be_called_as_the_columns_of_the_tables(run: MadeRun) -> None:
    measured = measure(run)
    measured.evaluation["runs"] = {
        name: {"models": [model], "mean": measured.evaluation["models"][model]["mean"]}
        for name, model in (("recall", "good"), ("alpha", "plain"), ("batch", "plain"))
    }
    for ranking in measured.rankings.values():
        ranking.curves.update(gaps=np.eye(10)[:, :2], sizes=np.array([8, 16]))
    tables = {plan.name: plan.table for plan in plan_curves(measured)}
    assert list(tables) == ["recall", "alpha", "gap"]
    for axis, table in zip(measured.runs, tables.values(), strict=True):
        assert table is not None and [*table] == [f"{axis} (axis)", "recall", "alpha", "batch"]
    for level in ("within", "images"):
        _, groups, *_ = charts._plan_counts(counts_of(("a", level, "c"), ["xyz"]))
        assert groups.table is not None and [*groups.table][:2] == ["class", "within"]


@pytest.mark.parametrize("count", [1, 4, 5])
def test_the_names_of_a_legend_are_read_row_by_row(count: int) -> None:
    figure = Figure()
    axes = figure.add_subplot()
    for number in range(count):
        axes.plot([number], label=str(number))
    add_legend(axes, LIGHT)
    figure.draw_without_rendering()
    legend = axes.get_legend()
    assert legend is not None
    boxes = {text.get_text(): text.get_window_extent() for text in legend.get_texts()}
    read = sorted(boxes, key=lambda name: (-round(boxes[name].y0), boxes[name].x0))
    assert read == [str(number) for number in range(count)]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_numbers_of_a_confusion_differ_from_the_colour_of_their_cells(theme: Theme) -> None:
    """On a dark page, white numbers were on full orange, with a contrast of 1.6."""
    pairs = [(("a",), ("b",)), (("b",), ("b",)), (("b",), ("a",))]
    (axes,) = draw_confusion(count_confusion(pairs), "group", theme).figure.axes
    assert [word.get_text() for word in axes.texts] == ["100", "50", "50"]
    orange, *_ = axes.texts
    assert contrast(to_hex(orange.get_color()), theme.series[1]) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_names_within_rings_differ_from_the_colour_below_them(theme: Theme) -> None:
    """White on the pale beige of an outer ring had a contrast of 1.9."""
    counts = {(a, a + b, a + b + c): 5 for a in "xyz" for b in "12" for c in "34"}
    (axes,) = draw_sunburst(counts, ("a", "b", "c", "d"), theme).figure.axes
    fills = [wedge.get_facecolor() for wedge in axes.patches]
    for name, place in (("x 33 %", 0), ("x1 17 %", 3), ("x2 17 %", 4)):
        (word,) = [one for one in axes.texts if one.get_text() == name]
        assert contrast(to_hex(word.get_color()), to_hex(fills[place])) >= 3.5


@pytest.mark.parametrize("names", [[f"model-{i}" for i in range(12)], ["long " * 12, "n"]])
def test_a_legend_of_many_or_long_names_is_above_the_panel(names: list[str]) -> None:
    lines = {name: ([0.0, 1.0], [0.5, i / 12]) for i, name in enumerate(names)}
    values = {name: {"leaf": 0.5} for name in names}
    for figure in (
        draw_lines(lines, names, ("x", "y"), LIGHT).figure,
        draw_level_bars(values, {}, LIGHT).figure,
    ):
        figure.canvas.draw()
        (axes,) = figure.axes
        legend = axes.get_legend()
        assert legend is not None and len(legend.get_texts()) == len(names)
        box, panel = legend.get_window_extent(), axes.get_window_extent()
        assert box.y0 >= panel.y1 - 1 and box.y1 <= figure.bbox.y1 and box.x1 <= figure.bbox.x1
        assert panel.height > 2 * figure.dpi


def test_bars_of_more_models_than_colours_differ_in_their_hatches() -> None:
    values = {f"model-{i}": {"leaf": 0.5} for i in range(12)}
    (axes,) = draw_level_bars(values, {}, LIGHT).figure.axes
    looks = {(bar.get_facecolor(), bar.get_hatch()) for bar in axes.patches}
    assert len(looks) == 12


def test_charts_without_any_value_are_left_out(run: MadeRun) -> None:
    measured = measure(run)
    for one in measured.runs.values():
        one["mean"] = dict.fromkeys(one["mean"])
    for ranking in measured.rankings.values():
        ranking.curves.update({n: np.full_like(a, np.nan) for n, a in ranking.curves.items()})
    assert [*charts._plan_levels(measured), *plan_curves(measured)] == []


def test_a_run_of_several_seeds_is_one_row_one_line_and_one_panel(run: MadeRun) -> None:
    spread = {"H-AP": 0.17678, "AP:kind": 0.0, "AP:supercategory": 0.08839, "AP:landmark": None}
    mean = {"H-AP": 0.625, "AP:kind": 0.9, "AP:supercategory": 0.5625, "AP:landmark": None}
    run.evaluation["runs"] = {
        "net": {"models": ["good", "plain"], "mean": mean, "std": spread},
    }
    document = page(run, grid_queries=1)
    (row,) = document.xpath("//tbody/tr")
    assert text(row.xpath("th")[0]).startswith("net test_resnet, HAPPIER, 3 steps, 2 seeds")
    cells = [text(cell) for cell in row.xpath("td")]
    assert cells == ["62.5 ± 17.7", "90.0 ± 0.0", "56.2 ± 8.8", "–"]
    words = text(document)
    assert "and over the training seeds, ± their standard deviation" in words
    assert "What good finds" in words  # the first of its models
    (plan, *_) = plan_curves(measure(run))
    assert len(plan.draw(LIGHT).figure.axes[0].lines) == 1
    assert "Means over the seeds of a run." in plan.caption
