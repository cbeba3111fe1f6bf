"""The made world as files: GLDv2's own names, columns and tars, quirks included.

One CSV has a BOM, one CRLF, as the copies of the official files that go round have; an image may
stand in a CSV and in no tar, or the reverse; queries of nothing are ``None`` and ``Ignored``. The
tars hold ``a/b/c/id.jpg`` with no time and no owner, so that the same world gives the same bytes.
"""

import csv
import io
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

from hgld.artifacts import Json, atomic_path
from hgld.config import FetchOptions, StageContext, ToyOptions
from hgld.sources.toy.canvas import LIGHTS, Camera, Canvas, encode_jpeg
from hgld.sources.toy.drawings import DRAWINGS
from hgld.sources.toy.scenery import draw_foreground, draw_sky, draw_surroundings, new_design
from hgld.sources.toy.wiki import describe_wiki
from hgld.sources.toy.world import Landmark, Picture, World, imagine
from hgld.tasks import track

__all__ = ["TRAIN_TARS", "draw_picture", "draw_world"]

TRAIN_TARS = 2
JPEG_QUALITY = 88
GRAIN = 5  # of 255

Rows = Iterable[Sequence[object]]


def draw_world(*, options: FetchOptions, context: StageContext) -> None:
    """Draw the made world into the source folder, in GLDv2's layout, with its ``wiki.json``.

    The same options give the same bytes (the JPEGs as far as Pillow's version is the same).
    """
    toy, folder = context.source.toy, context.source.folder
    assert folder is not None
    world = imagine(toy)
    _write_tars(world, toy, folder)
    _write_train(world, folder / "metadata")
    _write_index(world, folder)
    _write_queries(world, folder)
    Json("wiki.json").write(describe_wiki(world), folder / "wiki.json")


def draw_picture(picture: Picture, options: ToyOptions) -> bytes:
    """The JPEG of a picture: the same landmark, another moment, light and camera each time."""
    moment = Random(f"{options.seed}:{picture.image_id}")
    design = new_design(picture.landmark.design if picture.landmark else picture.image_id)
    light = LIGHTS[design.light] if moment.random() < 0.3 else moment.choice(LIGHTS)
    canvas = Canvas(options.size, _place_camera(moment), light)
    draw_sky(canvas, moment)
    draw_surroundings(canvas, design)
    if picture.landmark and picture.clean:
        DRAWINGS[picture.landmark.toy_class.label](canvas, design, moment)
    draw_foreground(canvas, design, moment)
    return encode_jpeg(canvas.finish(moment, GRAIN), JPEG_QUALITY)


def _place_camera(moment: Random) -> Camera:
    return Camera(
        x=0.24 * (moment.random() - 0.5),
        y=0.12 * (moment.random() - 0.5),
        zoom=0.75 + 0.65 * moment.random(),
        turn=0.9 * (moment.random() - 0.5),
        tilt=0.08 * (moment.random() - 0.5),
    )


def _write_tars(world: World, options: ToyOptions, folder: Path) -> None:
    for split, tars in (("train", TRAIN_TARS), ("index", 1), ("test", 1)):
        pictures = [picture for picture in world.of_split(split) if picture.in_tar]
        for number in range(tars):
            with atomic_path(folder / split / f"images_{number:03}.tar") as path:
                _write_tar(pictures[number::tars], options, path)


def _write_tar(pictures: list[Picture], options: ToyOptions, path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for picture in track(pictures, "Drawing the world", len(pictures)):
            data = draw_picture(picture, options)
            folder = "/".join(picture.image_id[:3])
            member = tarfile.TarInfo(f"{folder}/{picture.image_id}.jpg")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def _write_train(world: World, folder: Path) -> None:
    pictures = [picture for picture in world.of_split("train") if picture.in_csv]
    _write(folder / "train.csv", "id,url,landmark_id",
           ((p.image_id, p.url, _landmark_id(p)) for p in pictures))  # fmt: skip
    _write(
        folder / "train_clean.csv", "landmark_id,images", _clean_rows(world), encoding="utf-8-sig"
    )
    credited = [p for p in pictures if not (_landmark_id(p) == 0 and p.number == 1)]
    _write(folder / "train_attribution.csv", "id,url,author,license,title",
           ((p.image_id, p.url, p.author, p.license, p.title) for p in credited))  # fmt: skip
    _write_categories(folder / "train_label_to_category.csv", world.of_space("train"))


def _clean_rows(world: World) -> Rows:
    clean = [p for p in world.of_split("train") if p.in_csv and p.clean]
    for landmark in world.of_space("train"):
        ids = [p.image_id for p in clean if p.landmark == landmark]
        yield landmark.landmark_id, " ".join(ids)


def _write_index(world: World, folder: Path) -> None:
    pictures = [picture for picture in world.of_split("index") if picture.in_csv]
    _write(folder / "metadata/index.csv", "id", ((p.image_id,) for p in pictures))
    _write(folder / "ground_truth/index_image_to_landmark.csv", "id,landmark_id",
           ((p.image_id, _landmark_id(p)) for p in pictures))  # fmt: skip
    path = folder / "ground_truth/index_label_to_category.csv"
    _write_categories(path, world.of_space("index"), line_end="\r\n")


def _write_queries(world: World, folder: Path) -> None:
    queries = world.of_split("test")
    index = [picture for picture in world.of_split("index") if picture.in_csv]
    train_ids = {landmark.design: landmark.landmark_id for landmark in world.of_space("train")}
    _write(folder / "metadata/test.csv", "id", ((q.image_id,) for q in queries))
    _write(folder / "ground_truth/retrieval_solution_v2.1.csv", "id,images,Usage",
           ((q.image_id, _relevant(q, index), _usage(q)) for q in queries))  # fmt: skip
    _write(folder / "ground_truth/recognition_solution_v2.1.csv", "id,landmarks,Usage",
           ((q.image_id, train_ids.get(q.landmark.design, "") if q.landmark else "", _usage(q))
            for q in queries))  # fmt: skip


def _relevant(query: Picture, index: list[Picture]) -> str:
    if query.landmark is None:
        return "None"
    return " ".join(p.image_id for p in index if p.landmark == query.landmark)


def _usage(query: Picture) -> str:
    if query.landmark is None:
        return "Ignored"
    return "Public" if query.public else "Private"


def _landmark_id(picture: Picture) -> int:
    assert picture.landmark is not None, "a picture of nothing stands in no label file"
    return picture.landmark.landmark_id


def _write_categories(path: Path, landmarks: list[Landmark], line_end: str = "\n") -> None:
    rows = ((landmark.landmark_id, landmark.url) for landmark in landmarks)
    _write(path, "landmark_id,category", rows, line_end=line_end)


def _write(
    path: Path, header: str, rows: Rows, encoding: str = "utf-8", line_end: str = "\n"
) -> None:
    with atomic_path(path) as temporary, temporary.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, lineterminator=line_end)
        writer.writerow(header.split(","))
        writer.writerows(rows)
