from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from hgld.artifacts import Vectors, table_of
from hgld.config import ClusterOptions
from hgld.errors import UsageError
from hgld.hierarchy.cluster_choice import (
    draw_range,
    in_range,
    measure_levels,
    measure_range,
    suggested,
)

OPTIONS = ClusterOptions(clusters=2, restarts=3)
DEGREES = [0, 4, 8, 90, 94, 98, 200, 204, 208]  # three clusters, plain to see
NAMES = [f"v{i}" for i in range(len(DEGREES))]
VALUES = table_of(
    "values",
    [{"class_id": "", "instance_of": name, "landmarks": 1, "images": 0} for name in NAMES],
)
ANGLES = np.radians(DEGREES)
VECTORS = Vectors(NAMES, np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1), {})


def test_the_number_of_clusters_that_are_there_stands_out() -> None:
    found = measure_range(VALUES, VECTORS, [2, 3, 4, 5], OPTIONS)
    assert suggested(found) == (3, "its silhouette is the largest")
    assert found["inertia"].is_monotonic_decreasing


def test_inertia_and_silhouette_are_those_of_the_formulas() -> None:
    points = VECTORS.vectors.astype(float)
    groups = np.repeat([0, 1, 2], 3)
    centres = np.array([points[groups == g].mean(axis=0) for g in range(3)])
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    scores = []
    for i, group in enumerate(groups):
        own = apart[i][groups == group].sum() / 2
        other = min(apart[i][groups == g].mean() for g in range(3) if g != group)
        scores.append((other - own) / max(own, other))
    (row,) = measure_range(VALUES, VECTORS, [3], OPTIONS).to_dict("records")
    assert row["inertia"] == pytest.approx(((points - centres[groups]) ** 2).sum(), abs=1e-6)
    assert row["silhouette"] == pytest.approx(np.mean(scores), abs=1e-6)


def test_the_curves_are_drawn_and_the_same_each_time(tmp_path: Path) -> None:
    found = measure_range(VALUES, VECTORS, [2, 3, 4], OPTIONS)
    for name in ("a.png", "b.png"):
        draw_range(found, 78, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with Image.open(tmp_path / "a.png") as image:
        assert image.size == (960, 720)


@pytest.mark.parametrize("text", ["20", "20:x", "1:5", "9:5", "2:9:0", "2:3:4:5"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--suggest .*: expected"):
        in_range(text)


def test_a_range_beyond_the_values_is_refused() -> None:
    with pytest.raises(UsageError, match=r"up to 9 clusters, but 9 different values.* 8 at most"):
        measure_range(VALUES, VECTORS, [3, 9], OPTIONS)


def test_the_smallest_among_equals_is_suggested() -> None:
    assert suggested(pd.DataFrame({"clusters": [5, 6], "silhouette": [0.2, 0.2]}))[0] == 5


def test_where_the_silhouette_still_rises_the_bend_of_the_inertia_is_suggested() -> None:
    rising = {"clusters": [2, 4, 6, 8], "silhouette": [0.1, 0.2, 0.3, 0.4]}
    found = suggested(pd.DataFrame({**rising, "inertia": [100.0, 30.0, 20.0, 10.0]}))
    assert found[0] == 4 and "silhouette still rises at the end" in found[1]


def test_each_level_above_is_measured_on_the_centres_below() -> None:
    options = ClusterOptions(clusters=9, levels=("a", "b", "c"), above=(2, 3))
    found = measure_levels(VALUES, VECTORS, options)
    assert list(found) == ["b", "a"]
    assert suggested(found["b"]) == (3, "its silhouette is the largest")
    assert list(measure_levels(VALUES, VECTORS, ClusterOptions(clusters=9, levels=("a",)))) == []
