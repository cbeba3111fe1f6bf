import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import lxml.html
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from hgld.errors import InvalidData, UsageError
from hgld.report.embedding_map import MapSide, write_map
from hgld.report.examples import Images, class_paths
from hgld.tasks import watched_by
from tests.made_run import LEVELS, MadeRun
from tests.report.reading import open_page

FIFTYONE = Path("build/fiftyone/bin/python")
VECTORS = np.repeat(np.eye(5, 8, dtype=np.float32), 2, axis=0)  # the photos of a landmark agree


def side(run: MadeRun) -> MapSide:
    paths, names = class_paths(run.hierarchy), {"train:5": "Landmark 5"}
    images = Images(run.shards, run.index, "evaluation", paths, names)
    return MapSide(images, run.index["image_id"].to_numpy(), VECTORS)


def draw(run: MadeRun, **options: Any) -> Path:
    out = run.folder / "map"
    write_map(out, [side(run)], LEVELS, title="good", **options)
    return out


def test_a_map_of_many_images_says_how_long_it_takes(run: MadeRun, monkeypatch) -> None:
    monkeypatch.setattr("hgld.report.embedding_map.QUICK", 9)
    said: list[str] = []
    with watched_by(lambda items, *_: iter(items), said.append):
        draw(run)
    assert said == ["t-SNE of 10 images: about 1 min on one free core"]


def test_the_table_has_the_columns_that_other_tools_read(run: MadeRun) -> None:
    table = pq.read_table(draw(run) / "map.parquet")
    types = {field.name: field.type for field in table.schema}
    text = (pa.string(), pa.large_string())
    assert all(types[name] in text for name in ("image_id", "split", "name", *LEVELS))
    assert types["projection_x"] == types["projection_y"] == pa.float64()
    assert types["embedding"] == pa.list_(pa.float32(), 8)
    near = {"ids": pa.list_(pa.int32()), "distances": pa.list_(pa.float32())}
    assert types["neighbors"] == pa.struct(near)
    assert types["image"] == pa.struct({"bytes": pa.binary()})
    assert table["name"].to_pylist()[-1] == "Landmark 5"
    assert table["supercategory"].to_pylist()[-1] == "lake"


def test_a_level_with_the_name_of_another_column_has_a_column_of_its_own(run: MadeRun) -> None:
    levels = ["name", *LEVELS[1:]]
    page, path = write_map(run.folder / "map", [side(run)], levels, title="good")
    table = pq.read_table(path)
    assert [table[name].to_pylist()[-1] for name in ("name", "name_")] == ["Landmark 5", "natural"]
    assert '"Landmark 5"' in page.read_text("utf-8")


def example_of_fiftyone() -> str:
    text = Path("docs/evaluate.md").read_text("utf-8")
    code = re.search(r"```py\n(import fiftyone.*?)```", text, re.S)
    assert code is not None
    return code[1]


@pytest.mark.skipif(not FIFTYONE.exists(), reason="make fiftyone installs it")
def test_fiftyone_itself_shows_the_points_and_finds_the_neighbours_of_the_table(
    run: MadeRun,
) -> None:
    read_back = """
import json
dataset.set_values("embedding", [list(row) for row in table["embedding"]])
fob.compute_similarity(dataset, embeddings="embedding", brain_key="near")
near = [dataset.sort_by_similarity(one.id, brain_key="near", k=2) for one in dataset]
json.dump({
    "points": dataset.load_brain_results("map").points.tolist(),
    "labels": dataset.values("landmark.label"),
    "tags": dataset.values("tags"),
    "near": [[int(Path(path).stem) for path in view.values("filepath")] for view in near],
}, open("found.json", "w"))
"""
    table = pq.read_table(draw(run) / "map.parquet").to_pandas()
    settings = {"DO_NOT_TRACK": "true", "DATABASE_VALIDATION": "false"}
    given = {f"FIFTYONE_{name}": value for name, value in settings.items()}
    command = [str(FIFTYONE.absolute()), "-c", example_of_fiftyone() + read_back]
    home = {"HOME": str(run.folder), "PATH": os.environ["PATH"]}
    subprocess.run(command, cwd=run.folder / "map", env=given | home, check=True)
    found = json.loads((run.folder / "map" / "found.json").read_text())
    assert found["points"] == table[["projection_x", "projection_y"]].to_numpy().tolist()
    assert found["labels"] == table["name"].tolist()
    assert found["tags"] == [[split] for split in table["split"]]
    assert [{*rows} for rows in found["near"]] == [
        {row, near["ids"][0]} for row, near in enumerate(table["neighbors"])
    ]


def test_the_example_for_fiftyone_reads_the_table(run: MadeRun, monkeypatch) -> None:
    example = example_of_fiftyone()
    draw(run)
    monkeypatch.chdir(run.folder / "map")
    fiftyone = MagicMock()  # the package needs MongoDB and has an environment of its own
    monkeypatch.setitem(sys.modules, "fiftyone", fiftyone)
    monkeypatch.setitem(sys.modules, "fiftyone.brain", fiftyone.brain)
    exec(example, {})
    photos = [Path(call.args[0]).read_bytes() for call in fiftyone.Sample.call_args_list]
    assert [Image.open(io.BytesIO(photo)).size for photo in photos] == [(48, 32)] * 10
    assert fiftyone.Classification.call_args.kwargs == {"label": "Landmark 5"}
    assert fiftyone.brain.compute_visualization.call_args.kwargs["points"].shape == (10, 2)


def test_the_nearest_image_is_the_other_photo_of_the_landmark(run: MadeRun) -> None:
    table = pq.read_table(draw(run) / "map.parquet")
    near = table["neighbors"].to_pylist()
    assert [one["ids"][0] for one in near] == [1, 0, 3, 2, 5, 4, 7, 6, 9, 8]
    assert near[0]["distances"][:2] == [0, 1] and len(near[0]["ids"]) == 9
    photo = Image.open(io.BytesIO(table["image"][9].as_py()["bytes"]))
    assert photo.size == (48, 32)
    assert np.array_equal(np.array(table["embedding"].to_pylist()), VECTORS)


def test_the_same_embeddings_give_the_same_bytes(run: MadeRun) -> None:
    first = {path.name: path.read_bytes() for path in draw(run).iterdir()}
    assert first == {path.name: path.read_bytes() for path in draw(run).iterdir()}
    assert set(first) == {"map.html", "map.parquet"}


def test_equal_embeddings_have_a_map(run: MadeRun) -> None:
    collapsed = replace(side(run), vectors=np.full((10, 8), 0.35, np.float32))
    _, path = write_map(run.folder / "map", [collapsed], LEVELS, title="good")
    places = pq.read_table(path).to_pandas()[["projection_x", "projection_y"]]
    assert np.isfinite(places.to_numpy()).all()


def test_of_many_images_some_are_drawn_by_chance(run: MadeRun) -> None:
    out = draw(run, points=6)
    table = pq.read_table(out / "map.parquet").to_pandas()
    rows = [int(name, 16) for name in table["image_id"]]
    assert len(rows) == 6 and rows == sorted(rows)
    assert np.array_equal(np.stack(table["embedding"]), VECTORS[rows])
    assert "6 of 10 images" in (out / "map.html").read_text()


def test_too_few_images_and_other_files_are_refused(run: MadeRun) -> None:
    with pytest.raises(InvalidData, match="3 images are too few"):
        few = MapSide(side(run).images, side(run).ids[:3], VECTORS[:3])
        write_map(run.folder / "map", [few], LEVELS, title="good")
    with pytest.raises(UsageError, match="holds other files"):
        write_map(run.shards, [side(run)], LEVELS, title="good")
    out = draw(run)
    (out / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"other files, such as notes\.txt"):
        draw(run)


@pytest.mark.parametrize("width", [400, 1280])
def test_the_map_is_searched_and_moved_with_the_keyboard(
    run: MadeRun, width: int, chromium: Any
) -> None:
    path = draw(run) / "map.html"
    document = lxml.html.fromstring(path.read_text("utf-8"))
    assert not document.xpath("//script[@src] | //iframe") and "url(" not in path.read_text("utf-8")
    data = json.loads(document.xpath("string(//script[@id='data'])"))
    assert [g["name"] for g in data["groups"]] == [*LEVELS, "split"]
    view, said = open_page(chromium, path, width)
    painted = "document.querySelector('canvas').getContext('2d').getImageData(0, 0, 900, 600)"
    assert view.evaluate(f"{painted}.data.some((value) => value > 0)")
    view.locator("input").focus()
    view.keyboard.type("lake 5")
    assert view.inner_text("[role=status]") == "2 of 10 images found"
    view.keyboard.press("Enter")
    tip = view.inner_text(".tip")
    before = view.evaluate("left")
    view.locator("canvas").focus()
    for key in ("ArrowLeft", "+"):
        view.keyboard.press(key)
    moved = view.evaluate("left") != before
    view.keyboard.press("Enter")
    second = view.inner_text(".tip")
    view.keyboard.press("0")
    view.locator(".classes-list button").first.click()
    pressed = view.get_attribute(".classes-list button", "aria-pressed")
    shown = view.locator(".tip img").count()
    overflow = view.evaluate("document.documentElement.scrollWidth - innerWidth")
    view.close()
    assert tip.startswith("Landmark 5\nlake · natural · evaluation\n0000000000000008")
    assert moved and second.splitlines()[-1] == "0000000000000009"
    assert (pressed, shown) == ("true", 1) and overflow <= 0 and said == []


@pytest.mark.slow
def test_a_map_of_many_points_is_painted_searched_and_moved(
    run: MadeRun, chromium: Any, monkeypatch
) -> None:
    chance, copies = np.random.default_rng(0), 2_000
    plane = chance.normal(size=(10 * copies, 2))
    monkeypatch.setattr("hgld.report.embedding_map.project", lambda *_, **__: plane)
    small = Image.new("RGB", (1, 1))
    monkeypatch.setattr("hgld.report.examples.Images.thumbnail", lambda *_: small)
    one = side(run)
    vectors = chance.normal(size=(10 * copies, 8)).astype(np.float32)
    many = MapSide(one.images, np.tile(one.ids, copies), vectors)
    page, table = write_map(run.folder / "map", [many], LEVELS, title="many")
    assert pq.read_metadata(table).num_rows == 20_000
    assert page.stat().st_size < 4_000_000  # names, but no thumbnails
    view, said = open_page(chromium, page)
    painted = "document.querySelector('canvas').getContext('2d').getImageData(0, 0, 400, 400).data"
    assert view.evaluate(f"{painted}.filter((value) => value > 0).length") > 10_000
    view.locator("input").focus()
    view.keyboard.type("lake 5")
    assert view.inner_text("[role=status]") == "4,000 of 20,000 images found"
    view.keyboard.press("Enter")
    assert view.inner_text(".tip").startswith("Landmark 5\nlake · natural · evaluation")
    before = view.evaluate("left")
    view.locator("canvas").focus()
    view.keyboard.press("ArrowLeft")
    moved = view.evaluate("left") != before
    overflow = view.evaluate("document.documentElement.scrollWidth - innerWidth")
    view.close()
    assert moved and overflow <= 0 and said == []
