"""The rows of the benchmarks, at the smallest size that each offers."""

from pathlib import Path

import pytest

from tests.benchmarks import evaluate_stage, gallery_growth, measures, review_keys, training
from tests.benchmarks.measures import aim_over_products
from tests.benchmarks.meters import Row


def test_an_aim_is_reached_in_the_direction_of_the_bound() -> None:
    assert Row("x", 2.0, "x", least=1.0, aim=1.8).reached
    assert not Row("x", 1.5, "x", least=1.0, aim=1.8).reached
    assert Row("x", 1.0, "x", aim=1.0).reached and Row("x", 9.0, "x").reached
    missed = Row("x", 1.1, "x", most=1.2, aim=1.0)
    assert missed.holds and not missed.reached


@pytest.mark.parametrize(
    ("name", "size", "case", "aim"),
    [
        ("sup_h_ap", 256, "layout 2", 1.5),
        ("sup_h_ap", 512, "layout 2", None),
        ("sup_h_ap", 1024, "layout 2", 1.0),
        ("sup_ndcg", 4096, "layout 2half", 1.8),
        ("sup_h_ap", 4096, "layout 5", 2.5),
        ("sup_h_ap", 4096, "untrained", 2.0),
        ("smooth_ap coarse", 4096, "untrained", 2.5),
        ("smooth_h_ap", 1024, "layout 2", None),
    ],
)
def test_aims_of_losses(name, size, case, aim) -> None:
    assert aim_over_products(name, size, case) == aim


@pytest.mark.filterwarnings("ignore::hgld.ranking.levels.RelevanceWarning")
def test_rows_of_six_levels_and_of_two_threads() -> None:
    (six,) = measures.metric_suite_of_six_levels(1000, 8)
    assert six.value > 0 and six.aim == 0.45
    assert all(row.value > 0 for row in measures.two_threads(64, 1000, 8))


def test_the_parts_of_a_training_step_are_its_whole() -> None:
    found = training.step(
        3, 40, 40, backbone="test_resnet", pretrained=False, dim=8, image_size=32,
        classes_per_batch=2, images_per_class=2, workers=0,
    )  # fmt: skip
    parts = ("data", "model", "loss", "optimizer", "logging")
    assert sum(found[part] for part in parts) == pytest.approx(found["all"])
    assert all(found[part] > 0 for part in parts)


def test_the_growth_of_the_stage_s_memory_is_that_over_all_sizes() -> None:
    stage = [600.0, 900.0, 1500.0, 500.0]
    sizes = (1_000_000, 4_000_000, 16_000_000, 40_000_000)
    _, spread, largest, _ = gallery_growth.memory_rows([1.0] * 4, stage, sizes, "x")
    assert "stage, largest over smallest" in spread.what
    assert (spread.value, spread.most, largest.value) == (3.0, 1.3, 1500.0)


@pytest.mark.slow
def test_the_rest_of_the_evaluate_stage_is_measured() -> None:
    rest, memory = evaluate_stage.rows(40, 64)
    assert rest.value > 0 and memory.value >= 0


@pytest.mark.slow
def test_published_decisions_are_replayed_from_the_file_of_training_labels(tmp_path: Path) -> None:
    names = "landmark_id,category,supercategory,hierarchical_label,natural_or_human_made"
    labels = ["chapel,church", "chapel,church ", "chapel,house", "pond,lake", ",church", "abbey,"]
    kinds = {"church": "human-made", "house": "human-made", "lake": "natural", "": ""}
    rows = [
        f"{i},,{cells},{kinds[cells.partition(',')[2].strip()]}" for i, cells in enumerate(labels)
    ]
    (tmp_path / "labels.csv").write_text("\n".join([names, *rows]) + "\n")
    case = review_keys.published(tmp_path / "labels.csv", clusters=2)
    found = dict(zip(case.sheet["instance_of"], case.wanted, strict=True))
    assert found == {"chapel": "church", "pond": "lake"}
    assert case.sheet["landmarks"].tolist() == [3, 1]
    points = review_keys.curve(case, review_keys.WAYS[1])
    assert points[-1][0] == 2 and points[-1][2] == 1.0


@pytest.mark.slow
def test_a_part_of_the_published_decisions_is_replayed() -> None:
    case = review_keys.published_part()
    found = dict(zip(case.sheet["instance_of"], case.wanted, strict=True))
    assert (len(found), case.sheet["landmarks"].sum()) == (163, 1271)
    assert (found["abbey"], found["citadel"]) == ("church", "castle / fort")
    done = case.replay()
    assert done.keys <= 130 and done.right >= 140
