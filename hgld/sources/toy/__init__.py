"""Synthetic data set: drawn landmarks with a known hierarchy, and a matching wiki.

``world`` has the facts, ``drawing`` and ``landmarks`` draw them, ``wiki`` describes them as Commons
and Wikidata would. ``draw_world`` writes everything with GLDv2's file names, columns and tars.

The quirks of the official files are included: one CSV has a BOM, one CRLF; an image may be in a CSV
but not in a tar, or the reverse; queries without a landmark are ``None`` and ``Ignored``. The tars
hold ``a/b/c/id.jpg`` without time and owner, so that the same world gives the same bytes.
"""

import csv
import io
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

from hgld.artifacts import Json, atomic_path
from hgld.config import FetchOptions, StageContext, ToyOptions
from hgld.sources.toy.drawing import (
    LIGHTS,
    Canvas,
    Design,
    draw_foreground,
    draw_sky,
    draw_surroundings,
)
from hgld.sources.toy.landmarks import DRAWINGS
from hgld.sources.toy.wiki import describe_wiki
from hgld.sources.toy.world import Picture, World, imagine
from hgld.tasks import track

__all__ = ["draw_picture", "draw_world"]


def draw_world(*, options: FetchOptions, context: StageContext) -> None:
    """Draw the world into the source folder, in GLDv2's layout, with its ``wiki.json``.

    The same options give the same bytes (the JPEGs as far as Pillow's version is the same).
    """
    toy, folder = context.source.toy, context.source.folder
    assert folder is not None
    world = imagine(toy)
    for split, tars in (("train", 2), ("index", 1), ("test", 1)):
        pictures = [picture for picture in world.of_split(split) if picture.in_tar]
        for number in range(tars):
            some, form = pictures[number::tars], tarfile.USTAR_FORMAT
            with (
                atomic_path(folder / split / f"images_{number:03}.tar") as path,
                tarfile.open(path, "w", format=form) as tar,
            ):
                for picture in track(some, "Drawing the world", len(some)):
                    data = draw_picture(picture, toy)
                    name = f"{'/'.join(picture.image_id[:3])}/{picture.image_id}.jpg"
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    _write_csvs(world, folder / "metadata", folder / "ground_truth")
    Json("wiki.json").write(describe_wiki(world), folder / "wiki.json")


def draw_picture(picture: Picture, options: ToyOptions) -> bytes:
    """The JPEG of a picture: the same landmark, another moment, light and camera each time."""
    moment = Random(f"{options.seed}:{picture.image_id}")
    design = Design(picture.landmark.design if picture.landmark else picture.image_id)
    light = design.light if moment.random() < 0.3 else moment.choice(LIGHTS)
    canvas = Canvas(options.size, light, moment)
    draw_sky(canvas, moment)
    draw_surroundings(canvas, design)
    if picture.landmark and picture.clean:
        DRAWINGS[picture.landmark.toy_class.label](canvas, design, moment)
    draw_foreground(canvas, design, moment)
    return canvas.encode(moment)


def _write_csvs(world: World, metadata: Path, truth: Path) -> None:
    train, index = ([p for p in world.of_split(split) if p.in_csv] for split in ("train", "index"))
    queries, landmarks = world.of_split("test"), world.of_space("train")
    ids = {landmark.design: landmark.landmark_id for landmark in landmarks}
    of_train = [(p, p.landmark.landmark_id) for p in train if p.landmark]
    clean = {of: [p.image_id for p in train if p.clean and p.landmark == of] for of in landmarks}
    relevant = {
        of: [p.image_id for p in index if p.landmark == of] for of in world.of_space("index")
    }
    usage = ["Public" if q.public else "Private" if q.landmark else "Ignored" for q in queries]
    asked = list(zip(queries, usage, strict=True))
    _write(metadata / "train.csv", "id,url,landmark_id",
           ((p.image_id, p.url, of) for p, of in of_train))  # fmt: skip
    _write(metadata / "train_clean.csv", "landmark_id,images",
           ((of.landmark_id, " ".join(found)) for of, found in clean.items()),
           encoding="utf-8-sig")  # fmt: skip
    _write(metadata / "train_attribution.csv", "id,url,author,license,title",
           ((p.image_id, p.url, p.author, p.license, p.title)
            for p, of in of_train if (of, p.number) != (0, 1)))  # fmt: skip
    _write(metadata / "train_label_to_category.csv", "landmark_id,category",
           ((of.landmark_id, of.url) for of in landmarks))  # fmt: skip
    _write(metadata / "index.csv", "id", ((p.image_id,) for p in index))
    _write(metadata / "test.csv", "id", ((q.image_id,) for q in queries))
    _write(truth / "index_image_to_landmark.csv", "id,landmark_id",
           ((p.image_id, p.landmark.landmark_id) for p in index if p.landmark))  # fmt: skip
    _write(truth / "index_label_to_category.csv", "landmark_id,category",
           ((of.landmark_id, of.url) for of in relevant), line_end="\r\n")  # fmt: skip
    _write(truth / "retrieval_solution_v2.1.csv", "id,images,Usage",
           ((q.image_id, " ".join(relevant[q.landmark]) if q.landmark else "None", use)
            for q, use in asked))  # fmt: skip
    _write(truth / "recognition_solution_v2.1.csv", "id,landmarks,Usage",
           ((q.image_id, ids.get(q.landmark.design, "") if q.landmark else "", use)
            for q, use in asked))  # fmt: skip


def _write(
    path: Path,
    header: str,
    rows: Iterable[Sequence[object]],
    encoding: str = "utf-8",
    line_end: str = "\n",
) -> None:
    with atomic_path(path) as temporary, temporary.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, lineterminator=line_end)
        writer.writerow(header.split(","))
        writer.writerows(rows)
