"""Small copies of data sets in exactly their published form, with photos of one colour.

Each writer follows the form that the data set's own files have: blanks, header lines, glued
headers, folder names. A test may write one of the files again to have it otherwise.
"""

import io
import json
import pickle
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

__all__ = [
    "SPECIES",
    "write_cub",
    "write_dyml",
    "write_gldv2",
    "write_ijb_c",
    "write_ilias",
    "write_inaturalist",
    "write_product",
    "write_revisited",
    "write_sfm_120k",
    "write_sop",
    "write_uned",
    "write_vggface2",
]

SPECIES = {  # category id: supercategory, then the ranks from kingdom to genus
    11: ("Plantae", "Plantae", "Tracheophyta", "Magnoliopsida", "Rosales", "Rosaceae", "Rosa"),
    12: ("Plantae", "Plantae", "Tracheophyta", "Magnoliopsida", "Rosales", "Rosaceae", "Rubus"),
    13: ("Aves", "Animalia", "Chordata", "Aves", "Anseriformes", "Anatidae", "Anas"),
    14: ("Aves", "Animalia", "Chordata", "Aves", "Anseriformes", "Anatidae", "Aix"),
    15: ("Aves", "Animalia", "Chordata", "Aves", "Passeriformes", "Corvidae", "Corvus"),
    16: ("Insecta", "Animalia", "Arthropoda", "Insecta", "Diptera", "Syrphidae", "Syrphus"),
}
CC = "https://creativecommons.org/licenses/by/4.0/"
RANKS = ("kingdom", "phylum", "class", "order", "family", "genus")


def draw(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(photo(number))


def photo(number: int) -> bytes:
    """A photo of noise around one colour, so that no two have the same bytes."""
    random = np.random.default_rng(number)
    colour = random.integers(40, 216, 3)
    pixels = np.clip(colour + random.normal(0, 12, (40, 48, 3)), 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")


def write_sop(folder: Path, photos: int = 4) -> Path:
    """Two super classes; products 1 to 4 train, 5 to 8 are searched for."""
    number = 0
    for name, first in (("train", 1), ("test", 5)):
        lines = ["image_id class_id super_class_id path"]
        for class_id in range(first, first + 4):
            group, super_name = ((1, "bicycle"), (2, "coffee_maker"))[class_id % 2]
            for shot in range(photos):
                number += 1
                path = f"{super_name}_final/1110851{class_id:05d}_{shot}.JPG"
                draw(folder / path, number)
                lines.append(f"{number} {class_id} {group} {path}")
        write(folder / f"Ebay_{name}.txt", lines)
    return folder


def write_in_shop(folder: Path, photos: int = 4) -> Path:
    """Eight items of two categories; the last four have a query and their other photos."""
    places = ("MEN/Shorts", "WOMEN/Shorts")
    lines = []
    for item in range(1, 9):
        for shot in range(photos):
            path = f"img/{places[item % 2]}/id_{item:08d}/{shot:02d}_1_front.jpg"
            draw(folder / "Img" / path, 10 * item + shot)
            side = "train" if item < 5 else "query" if shot == 0 else "gallery"
            lines.append(f"{path}    id_{item:08d} {side}")
    head = [str(len(lines)), "image_name item_id evaluation_status"]
    write(folder / "Eval" / "list_eval_partition.txt", [*head, *lines])
    return folder


def write_vehicle_id(folder: Path, photos: int = 4) -> Path:
    """Vehicles 1 to 4 train, 5 and 6 are the small test set, 5 to 8 the others."""
    lists: dict[str, list[str]] = {"train_list": [], "test_list_800": []}
    lists |= {"test_list_1600": [], "test_list_2400": []}
    for vehicle in range(1, 9):
        small = ["test_list_800"] if vehicle < 7 else []
        of = ["train_list"] if vehicle < 5 else [*small, "test_list_1600", "test_list_2400"]
        for shot in range(photos):
            image = f"{100 * vehicle + shot:07d}"
            draw(folder / "image" / f"{image}.jpg", 10 * vehicle + shot)
            for name in of:
                lists[name].append(f"{image} {vehicle}")
    for name, lines in lists.items():
        write(folder / "train_test_split" / f"{name}.txt", lines)
    return folder


def write_sfm_120k(folder: Path, photos: int = 4) -> Path:
    """Models 1 to 4 train, models 1 and 2 of the other table are searched for."""
    tables = {}
    for side, models in (("train", 4), ("val", 2)):
        clusters = [model for model in range(1, models + 1) for _ in range(photos)]
        ids = [f"{side == 'val':d}{number:039x}" for number in range(len(clusters))]
        for number, photo_id in enumerate(ids):
            place = folder / "ims" / photo_id[-2:] / photo_id[-4:-2] / photo_id[-6:-4]
            draw(place / photo_id, 1000 * (side == "val") + number)
        tables[side] = {"cids": ids, "cluster": clusters, "qidxs": [0], "pidxs": [1]}
    (folder / "retrieval-SfM-120k.pkl").write_bytes(pickle.dumps(tables))
    return folder


def write_revisited(folder: Path) -> Path:
    """Two queries, parts of photos that the gallery has not, and six photos of the gallery."""
    for number, name in enumerate(("all_souls_000013", "worcester_000001", *map(str, range(6)))):
        draw(folder / "jpg" / f"{name}.jpg", 1000 * number)
    gnd = [
        {"bbx": [3.5, 4.2, 40.1, 36.0], "easy": [0], "hard": [1], "junk": [2]},
        {"bbx": [0.0, 0.0, 30.0, 40.0], "easy": [3], "hard": [4], "junk": []},
    ]
    names = {"qimlist": ["all_souls_000013", "worcester_000001"], "imlist": [*map(str, range(6))]}
    (folder / "gnd_roxford5k.pkl").write_bytes(pickle.dumps({**names, "gnd": gnd}))
    return folder


FACES = "TEMPLATE_ID,SUBJECT_ID,FILENAME,SIGHTING_ID,FACE_X,FACE_Y,FACE_WIDTH,FACE_HEIGHT,GENDER"


def write_ijb_c(folder: Path) -> Path:
    """Persons 1 and 2 in one gallery, 3 and 4 in the other; a probe of each, photos and a video."""
    lists: dict[str, list[str]] = {"gallery_G1": [], "gallery_G2": [], "probe_mixed": []}
    shot = 0
    for person in (1, 2, 3, 4):
        gallery = "gallery_G1" if person < 3 else "gallery_G2"
        for name, template, media in ((gallery, person, 2), ("probe_mixed", 10 + person, 3)):
            for sighting in range(media):
                for _ in range(2 if sighting == 0 else 1):  # the first is a video
                    path = f"frames/{shot}.png" if sighting == 0 else f"img/{shot}.png"
                    draw(folder / path, 100 * person + shot)
                    row = f"{template},{person},{path},{100 * template + sighting},8,5,20,24,1"
                    lists[name].append(row)
                    shot += 1
    for name, rows in lists.items():
        write(folder / "protocols" / f"ijbc_1N_{name}.csv", [FACES, *rows])
    pairs = [f"{person},{10 + other}" for person in (1, 2, 3, 4) for other in (1, 2, 3, 4)]
    write(folder / "protocols" / "ijbc_11_G1_G2_matches.csv", pairs)
    return folder


def write_vggface2(folder: Path, photos: int = 4, boxes: bool = False) -> Path:
    """Identities 2 to 5 train, 1 and 9 are searched for; the box of the first photo is larger."""
    for side, identities in (("train", (2, 3, 4, 5)), ("test", (1, 9))):
        lines = [f"n{i:06d}/{shot:04d}_01.jpg" for i in identities for shot in range(photos)]
        for number, line in enumerate(lines):
            draw(folder / side / line, 1000 * (side == "test") + number)
        write(folder / f"{side}_list.txt", lines)
        if boxes:
            sides = ["-2,3,44,34", *["10,8,20,16"] * (len(lines) - 1)]
            rows = [f'"{line[:-4]}",{box}' for line, box in zip(lines, sides, strict=True)]
            write(folder / "bb_landmark" / f"loose_bb_{side}.csv", ["NAME_ID,X,Y,W,H", *rows])
    return folder


ILIAS = {  # object: its classes, coarse to fine
    "bold_bimp_000": ("product", "food", "cake"),
    "cozy_mib_225": ("product", "food", "other"),
    "bright_biff_052": ("landmark", "public art", "other"),
    "zippy_zootlenibble_999": ("toy", "stuffed", "plushie"),
}


def write_ilias(folder: Path, photos: int = 3) -> Path:
    """Four objects with a query and three positives each, and a tar of two distractors."""
    taxonomy: dict[str, dict[str, dict[str, list[str]]]] = {}
    queries, positives = [], []
    for number, (name, (domain, category, finest)) in enumerate(ILIAS.items()):
        objects = taxonomy.setdefault(domain, {}).setdefault(category, {}).setdefault(finest, [])
        objects.append(name)
        code = name[-3:]
        queries.append(f"{name}/query/Q{code}_00.jpg,1")
        positives += [f"{name}/pos/P{code}_{shot:02d}.jpg,0.25,{shot}" for shot in range(photos)]
        draw(folder / "ilias_core" / queries[-1].partition(",")[0], 10 * number)
        for shot, line in enumerate(positives[-photos:], start=1):
            draw(folder / "ilias_core" / line.partition(",")[0], 10 * number + shot)
    write(folder / "image_ids" / "image_query_ids.txt", queries)
    write(folder / "image_ids" / "positive_ids.txt", positives)
    (folder / "taxonomy.json").write_text(json.dumps(taxonomy), encoding="utf-8")
    (folder / "yfcc100m").mkdir(exist_ok=True)
    with tarfile.open(folder / "yfcc100m" / "yfcc100m_0000.tar", "w") as tar:
        for number in range(2):
            member = tarfile.TarInfo(f"{number:06d}.jpg")
            data = photo(500 + number)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return folder


def write_uned(folder: Path, photos: int = 3) -> Path:
    """Cars search among themselves, works of art in an index; class numbers count from 0."""
    sides = {"cars": ("train", "val", "test"), "met": ("train", "val", "test", "index")}
    for number, (domain, names) in enumerate(sides.items()):
        for at, name in enumerate(names):
            entries = []
            for class_id in range(3):
                for shot in range(photos):
                    path = f"{domain}/{name}/{class_id}_{shot}.jpg"
                    draw(folder / "images" / path, 1000 * number + 100 * at + 10 * class_id + shot)
                    several = domain == "met" and name == "test"
                    entries.append({"path": path, "class_id": [class_id] if several else class_id})
            file = folder / "info_files" / domain / f"{name}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(entries), encoding="utf-8")
    return folder


def write_photos(folder: Path, photos: int = 4) -> Path:
    """Any folder with labels.csv: 8 species of 4 families of 2 orders."""
    lines = ["path,order,family,species"]
    for number in range(8):
        for shot in range(photos):
            draw(folder / f"{number}/{shot}.jpg", 100 * number + shot)
            lines.append(
                f"{number}/{shot}.jpg,order {number % 2},family {number % 4},species {number}"
            )
    write(folder / "labels.csv", lines)
    return folder


def write_cub(folder: Path, photos: int = 4) -> Path:
    """Eight of the species, the first four of which train."""
    names = "Black_footed_Albatross Laysan_Albatross Sooty_Albatross Groove_billed_Ani "
    names += "Crested_Auklet Least_Auklet Parakeet_Auklet Rhinoceros_Auklet"
    birds = [f"{i:03d}.{name}" for i, name in enumerate(names.split(), start=1)]
    images = [(bird, shot) for bird in birds for shot in range(photos)]
    paths = [f"{bird}/{bird[4:]}_{shot:04d}_{i}.jpg" for i, (bird, shot) in enumerate(images)]
    for number, path in enumerate(paths, start=1):
        draw(folder / "images" / path, number)
    write(folder / "images.txt", [f"{i} {path}" for i, path in enumerate(paths, start=1)])
    write(folder / "classes.txt", [f"{i} {bird}" for i, bird in enumerate(birds, start=1)])
    classes = [f"{i} {int(bird[:3])}" for i, (bird, _) in enumerate(images, start=1)]
    write(folder / "image_class_labels.txt", classes)
    halves = [f"{i} {int(shot % 2 == 0)}" for i, (_, shot) in enumerate(images, start=1)]
    write(folder / "train_test_split.txt", halves)
    return folder


def write_inaturalist(folder: Path, photos: int = 4) -> Path:
    """Species 11 to 14 train; the JSON of training holds the taxonomy, both hold photos."""
    parts: dict[str, list[dict[str, object]]] = {"train2018.json": [], "val2018.json": []}
    lists: dict[str, list[str]] = {"train": [], "test": []}
    for number, (category, shot) in enumerate(_photos(photos)):
        path = f"train_val2018/{SPECIES[category][0]}/{category}/{number:032x}.jpg"
        draw(folder / path, number)
        image = {
            "id": number,
            "width": 48,
            "height": 40,
            "file_name": path,
            "license": 1 + shot % 2,
        }
        image["rights_holder"] = f"Observer {number}"
        parts["val2018.json" if shot == 0 else "train2018.json"].append(image)
        lists["train" if category < 15 else "test"].append(path)
    for name, images in parts.items():
        (folder / name).write_text(json.dumps(_annotations(images)), encoding="utf-8")
    for split, paths in lists.items():
        write(folder / f"Inat_dataset_splits/Inaturalist_{split}_set1.txt", paths)
    return folder


def _photos(photos: int) -> Iterator[tuple[int, int]]:
    return ((category, shot) for category in SPECIES for shot in range(photos))


def _annotations(images: list[dict[str, object]]) -> dict[str, object]:
    categories = [
        {"id": i, "name": f"{ranks[-1]} species{i}", "supercategory": group}
        | dict(zip(RANKS, ranks, strict=True))
        for i, (group, *ranks) in SPECIES.items()
    ]
    licenses = [
        {"id": i, "name": name, "url": f"http://creativecommons.org/licenses/{name}/4.0/"}
        for i, name in ((1, "by-nc"), (2, "by"))
    ]
    return {
        "info": {"year": 2018},
        "images": images,
        "categories": categories,
        "licenses": licenses,
    }


def write_dyml(folder: Path, photos: int = 4) -> Path:
    """Vehicle and Animal: train with three levels, three benchmarks with one level each.

    The queries are part of their gallery, as in the published sets.
    """
    _write_levels(folder / "train", photos, first=0)
    for offset, level in enumerate(("coarse", "middle", "fine"), start=1):
        queries, gallery = [], []
        for label in (3, 7):
            for shot in range(photos):
                name = f"{len(gallery)}.jpg"
                seed = 10_000 * offset + len(gallery)
                draw(folder / f"bmk_{level}/gallery/{name}", seed)
                gallery.append(f"{name}, {label}")
                if shot == 0:
                    copy = f"{len(queries)}.jpg"
                    draw(folder / f"bmk_{level}/query/{copy}", seed)
                    queries.append(f"{copy}, {label}")
        _write_glued(folder / f"bmk_{level}/query.csv", "fname, labels", queries)
        _write_glued(folder / f"bmk_{level}/gallery.csv", "fname, labels", gallery)
    return folder


def write_product(folder: Path, photos: int = 4) -> Path:
    """Product: train and one test set, both with three levels."""
    _write_levels(folder / "train", photos, first=0)
    _write_levels(folder / "mini-bmk_all_in_one", photos, first=1000)
    return folder


def _write_levels(folder: Path, photos: int, first: int) -> None:
    rows = []
    for fine in range(8):
        for _ in range(photos):
            name = f"{len(rows)}.jpg"
            draw(folder / "imgs" / name, 500_000 + first + len(rows))
            rows.append(f"{name}, {fine // 4}, {fine // 2}, {fine}")
    _write_glued(folder / "label.csv", "fname, coarse_id, middle_id, fine_id", rows)


def _write_glued(path: Path, header: str, rows: list[str]) -> None:
    """The header has no line break of its own."""
    path.write_text(header + "\n".join(rows), encoding="utf-8", newline="")


def write_gldv2(folder: Path, photos: int = 4) -> Path:
    """Google Landmarks v2 with the published hierarchy: four train landmarks, two in the index."""
    groups = {1: "church", 2: "church", 3: "bridge", 4: "lake"}
    train = {f"{i:016x}": 1 + i // photos for i in range(4 * photos)}
    index = {f"{256 + i:016x}": 1 + i // photos for i in range(2 * photos)}
    clean = [
        f"{landmark},{' '.join(i for i, of in train.items() if of == landmark)}"
        for landmark in groups
    ]
    first = [next(i for i, of in index.items() if of == landmark) for landmark in (1, 2)]
    files = {
        "metadata/train.csv": ["id,url,landmark_id", *(f"{i},,{of}" for i, of in train.items())],
        "metadata/train_clean.csv": ["landmark_id,images", *clean],
        "metadata/train_attribution.csv": [
            "id,url,author,license,title",
            *(f"{i},,Ann,{CC},File:{i}.jpg" for i in train),
        ],
        "metadata/train_label_to_category.csv": _categories(groups),
        "metadata/train_label_to_hierarchical.csv": _hierarchical(groups),
        "ground_truth/index_image_to_landmark.csv": [
            "id,landmark_id",
            *(f"{i},{of}" for i, of in index.items()),
        ],
        "ground_truth/index_label_to_category.csv": _categories({1: "lake", 2: "church"}),
        "ground_truth/index_label_to_hierarchical.csv": _hierarchical({1: "lake", 2: "church"}),
        "ground_truth/retrieval_solution_v2.1.csv": [
            "id,images,Usage",
            *(f"{900 + n:016x},{image},Public" for n, image in enumerate(first)),
        ],
    }
    for name, lines in files.items():
        write(folder / name, lines)
    queries = [f"{900 + n:016x}" for n in range(2)]
    for name, ids in (("train", train), ("index", index), ("test", queries)):
        _write_tar(folder / f"{name}/images_000.tar", list(ids))
    return folder


def _categories(groups: dict[int, str]) -> list[str]:
    link = "http://commons.wikimedia.org/wiki/Category:Place"
    return ["landmark_id,category", *(f"{i},{link}_{i}" for i in groups)]


def _hierarchical(groups: dict[int, str]) -> list[str]:
    link = "http://commons.wikimedia.org/wiki/Category:Place"
    kinds = {"lake": "natural"}
    rows = [
        f"{i},{link}_{i},{group},{group},{kinds.get(group, 'human-made')}"
        for i, group in groups.items()
    ]
    header = "landmark_id,category,supercategory,hierarchical_label,natural_or_human_made"
    return [header, *rows]


def _write_tar(path: Path, image_ids: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for image_id in image_ids:
            data = photo(int(image_id, 16))
            member = tarfile.TarInfo(f"{'/'.join(image_id[:3])}/{image_id}.jpg")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
