"""GLDv2's metadata and tars, made, at any share of their true size.

Counts are those that the data set publishes. How many photos a landmark has is log-normal with
mu = 2.115 and sigma = 1.343: the two numbers that give 38 % of the landmarks at most 5 photos and
57 % at most 10, as Weyand et al. (2020) report. Their mean, 20.4, is then that of the published
totals (4,132,914 / 203,094 = 20.3) without having been asked for. The real tail is longer: the
largest landmark has 6,272 clean photos, the largest here about half of that.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.full_size.made_tars import write_tar

__all__ = ["MU", "SIGMA", "Made", "Sizes", "draw_sizes", "make_world", "sizes_of"]

MU, SIGMA = 2.115, 1.343
PIECE = 250_000  # rows written at a time
PLACES = ("G%C3%B6ttingen", "Rome", "New_South_Wales", "%C3%8Ele-de-France", "O'Hara", "Kyoto")
KINDS = ("Church", "Bridge", "Lake", "Castle_(ruin)", "Museum", "Mount", "Town_hall", "Waterfall")
LICENSES = (
    "https://creativecommons.org/licenses/by-sa/3.0/",
    "https://creativecommons.org/licenses/by/2.0/",
    "http://creativecommons.org/licenses/by/4.0",
)
ADDRESS = "http://commons.wikimedia.org/wiki/Category:"


@dataclass(frozen=True)
class Sizes:
    """How much of everything there is."""

    train_images: int
    train_landmarks: int
    clean_images: int
    clean_landmarks: int
    index_images: int
    index_landmarks: int
    test_images: int
    public: int
    private: int
    train_tars: int
    index_tars: int
    test_tars: int


FULL = Sizes(4_132_914, 203_094, 1_580_470, 81_313, 761_757, 101_297, 117_577, 379, 750,
             500, 100, 20)  # fmt: skip


@dataclass(frozen=True)
class Made:
    """What was made: ids (ASCII, 16 bytes) and landmarks of the photos (test: 0 where unknown)."""

    train: np.ndarray
    train_landmarks: np.ndarray
    clean: np.ndarray  # rows of train
    index: np.ndarray
    index_landmarks: np.ndarray
    test: np.ndarray
    test_landmarks: np.ndarray


def sizes_of(share: float) -> Sizes:
    """The true sizes times a share; at least one of each."""
    return Sizes(*(max(1, round(value * share)) for value in vars(FULL).values()))


def make_world(
    folder: Path, share: float, seed: int = 0, in_tars: float = 1.0, all_tars: bool = False
) -> Made:
    """Write all CSVs in GLDv2's layout, and tars that hold a share of the photos.

    The same share and seed give the same bytes. ``all_tars``: as many tars as there truly are,
    each with fewer photos.
    """
    sizes, random = sizes_of(share), np.random.default_rng(seed)
    tars = FULL if all_tars else sizes
    for part in ("metadata", "ground_truth"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    made = _draw(sizes, random)
    _write_train(folder / "metadata", made, sizes, random)
    _write_index(folder / "ground_truth", made, sizes)
    _write_solutions(folder, made, sizes, random)
    for split, ids, landmarks, count in (
        ("train", made.train, made.train_landmarks, tars.train_tars),
        ("index", made.index, made.index_landmarks, tars.index_tars),
        ("test", made.test, made.test_landmarks, tars.test_tars),
    ):
        held = np.arange(round(len(ids) * in_tars))
        for number, rows in enumerate(np.array_split(held, count)):
            write_tar(folder / split / f"images_{number:03d}.tar", ids[rows], landmarks[rows])
    return made


def draw_sizes(classes: int, total: int, random: np.random.Generator) -> np.ndarray:
    """Photos of each landmark: log-normal, each at least 1, together exactly ``total``."""
    drawn = np.maximum(np.exp(random.normal(MU, SIGMA, classes)) - 1, 0)
    scaled = drawn * ((total - classes) / drawn.sum())
    counts = 1 + np.floor(scaled).astype(np.int64)
    most = np.argsort(scaled % 1)[::-1][: total - int(counts.sum())]
    counts[most] += 1
    return counts


def _draw(sizes: Sizes, random: np.random.Generator) -> Made:
    train = _landmarks(sizes.train_landmarks, sizes.train_images, random)
    index = _landmarks(sizes.index_landmarks, sizes.index_images, random)
    return Made(
        _ids(sizes.train_images, random), train, _clean(train, sizes, random),
        np.sort(_ids(sizes.index_images, random)), index, _ids(sizes.test_images, random),
        np.zeros(sizes.test_images, np.int64),
    )  # fmt: skip


def _landmarks(classes: int, total: int, random: np.random.Generator) -> np.ndarray:
    """Landmark of each photo, in no order."""
    counts = draw_sizes(classes, total, random)
    return random.permutation(np.repeat(np.arange(classes), counts))


def _clean(landmarks: np.ndarray, sizes: Sizes, random: np.random.Generator) -> np.ndarray:
    """Rows of the clean list: landmarks drawn among those with 4 photos, 2 of each, then any."""
    counts = np.bincount(landmarks, minlength=sizes.train_landmarks)
    chosen = random.permutation(np.flatnonzero(counts >= 4))[: sizes.clean_landmarks]
    rows = np.flatnonzero(np.isin(landmarks, chosen))
    rows = rows[np.argsort(landmarks[rows], kind="stable")]
    first = np.r_[True, landmarks[rows[1:]] != landmarks[rows[:-1]]]
    sure = first | np.r_[False, first[:-1]]
    more = random.permutation(rows[~sure])[: max(0, sizes.clean_images - int(sure.sum()))]
    kept = np.concatenate([rows[sure], more])
    return kept[np.argsort(landmarks[kept], kind="stable")]


def _ids(count: int, random: np.random.Generator) -> np.ndarray:
    """Ids of 16 hexadecimal digits."""
    return np.frombuffer(random.bytes(8 * count).hex().encode(), "S16")


def _write_train(folder: Path, made: Made, sizes: Sizes, random: np.random.Generator) -> None:
    rows = len(made.train)
    authors, licenses = random.integers(0, 150_000, rows), random.integers(0, len(LICENSES), rows)

    def images(part: slice) -> pa.Array:
        landmarks = pc.cast(pa.array(made.train_landmarks[part]), pa.string())
        return _line(_text(made.train[part]), _urls(part, made), landmarks)

    def attributions(part: slice) -> pa.Array:
        number = pc.cast(pa.array(authors[part]), pa.string())
        odd = pa.array(authors[part] % 5 == 0)  # a comma in every fifth name
        name = pc.if_else(odd, _join('"Mole ', number, ', Ann"'), _join("Photographer ", number))
        licence = pa.array(np.array(LICENSES)[licenses[part]])
        title = _join("File:Photo of a place, seen from the south ", number, ".jpg")
        title = _join('"', title, '"')
        return _line(_text(made.train[part]), _urls(part, made), name, licence, title)

    _write(folder / "train.csv", "id,url,landmark_id", rows, images)
    _write(folder / "train_attribution.csv", "id,url,author,license,title", rows, attributions)
    _write_categories(folder / "train_label_to_category.csv", sizes.train_landmarks)
    ids, landmarks = made.train[made.clean], made.train_landmarks[made.clean]
    _write_groups(folder / "train_clean.csv", "landmark_id,images", ids, landmarks)


def _write_index(folder: Path, made: Made, sizes: Sizes) -> None:
    def images(part: slice) -> pa.Array:
        landmarks = pc.cast(pa.array(made.index_landmarks[part]), pa.string())
        return _line(_text(made.index[part]), landmarks)

    _write(folder / "index_image_to_landmark.csv", "id,landmark_id", len(made.index), images)
    _write_categories(folder / "index_label_to_category.csv", sizes.index_landmarks)


def _write_solutions(folder: Path, made: Made, sizes: Sizes, random: np.random.Generator) -> None:
    """Public and Private queries have all photos of a landmark as answers; the rest is Ignored."""
    usage = np.full(len(made.test), "Ignored", dtype=object)
    relevant = np.full(len(made.test), "None", dtype=object)
    landmarks = np.full(len(made.test), "", dtype=object)
    queries = random.permutation(len(made.test))[: sizes.public + sizes.private]
    usage[queries] = ["Public"] * sizes.public + ["Private"] * sizes.private
    of_landmark = np.argsort(made.index_landmarks, kind="stable")
    sizes_there = np.bincount(made.index_landmarks)
    starts = np.cumsum(sizes_there) - sizes_there
    for query, landmark in zip(queries, random.integers(0, len(starts), len(queries)), strict=True):
        place = slice(starts[landmark], starts[landmark] + sizes_there[landmark])
        relevant[query] = b" ".join(made.index[of_landmark[place]]).decode()
        landmarks[query] = str(landmark)
        made.test_landmarks[query] = landmark
    known = np.where(usage == "Ignored", "Private", usage)  # there the others are without landmark
    for name, head, answers, use in (
        ("retrieval", "images", relevant, usage),
        ("recognition", "landmarks", landmarks, known),
    ):
        path = folder / "ground_truth" / f"{name}_solution_v2.1.csv"
        cells = [_text(made.test), pa.array(answers), pa.array(use)]
        lines = partial(_line_of, cells)
        _write(path, f"id,{head},Usage", len(made.test), lines)
    for name, ids in (("index", made.index), ("test", made.test)):
        path = folder / "metadata" / f"{name}.csv"
        _write(path, "id", len(ids), partial(_line_of, [_text(ids)]))


def _urls(part: slice, made: Made) -> pa.Array:
    ids = _text(made.train[part])
    folder = pc.utf8_slice_codeunits(ids, 0, 1), "/", pc.utf8_slice_codeunits(ids, 0, 2)
    secure = pa.array(np.arange(part.start, part.stop) % 3 > 0)
    start = pc.if_else(secure, "https", "http")
    return _join(start, "://upload.wikimedia.org/wikipedia/commons/", *folder, "/A_photo_of_some_",
                 "landmark_%28", ids, "%29.jpg")  # fmt: skip


def _write_categories(path: Path, landmarks: int) -> None:
    def categories(part: slice) -> pa.Array:
        numbers = np.arange(part.start, part.stop)
        kind = pa.array(np.array(KINDS)[numbers % len(KINDS)])
        place = pa.array(np.array(PLACES)[numbers // 7 % len(PLACES)])
        number = pc.cast(pa.array(numbers), pa.string())
        plain = _join(ADDRESS, kind, "_", number, "_in_", place)
        quoted = _join('"', ADDRESS, kind, "_", number, ",_", place, '"')
        return _line(number, pc.if_else(pa.array(numbers % 4 == 0), quoted, plain))

    _write(path, "landmark_id,category", landmarks, categories)


def _write_groups(path: Path, head: str, ids: np.ndarray, landmarks: np.ndarray) -> None:
    """One row a landmark; its ids stand in one cell. Rows are sorted by landmark."""
    starts = np.flatnonzero(np.r_[True, landmarks[1:] != landmarks[:-1]])
    bounds = pa.array(np.r_[starts, len(ids)].astype(np.int32))
    cells = pc.binary_join(pa.ListArray.from_arrays(bounds, _text(ids)), " ")
    numbers = pc.cast(pa.array(landmarks[starts]), pa.string())
    _write(path, head, len(starts), lambda p: _line(numbers[p], cells[p]))


def _write(path: Path, head: str, rows: int, lines: Callable[[slice], pa.Array]) -> None:
    with path.open("wb") as file:
        file.write(head.encode() + b"\n")
        for part in _pieces(rows):
            array = lines(part)
            start, end = array.buffers()[1], array.buffers()[2]
            offsets = np.frombuffer(start, np.int32)[array.offset : array.offset + len(array) + 1]
            file.write(memoryview(end)[offsets[0] : offsets[-1]])


def _pieces(rows: int) -> Iterator[slice]:
    for first in range(0, rows, PIECE):
        yield slice(first, min(first + PIECE, rows))


def _text(ids: np.ndarray) -> pa.Array:
    """Ids as strings, without a loop: they all have 16 bytes."""
    data = np.ascontiguousarray(ids)
    offsets = np.arange(len(data) + 1, dtype=np.int32) * 16
    return pa.StringArray.from_buffers(len(data), pa.py_buffer(offsets), pa.py_buffer(data))


def _line_of(cells: list[pa.Array], part: slice) -> pa.Array:
    return _line(*(cell[part] for cell in cells))


def _join(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _line(*cells: pa.Array) -> pa.Array:
    joined = pc.binary_join_element_wise(*cells, ",") if len(cells) > 1 else cells[0]
    return _join(joined, "\n")
