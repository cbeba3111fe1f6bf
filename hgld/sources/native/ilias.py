"""ILIAS: objects in ``ilias_core/``, lists of ids in ``image_ids/``, distractors in ``yfcc100m/``.

``image_query_ids.txt`` and ``positive_ids.txt`` list a photo at the start of each line, before the
first comma, as OBJECT/query/PHOTO and OBJECT/pos/PHOTO below ``ilias_core/``. An object's name ends
in its number. ``text_query_ids.txt``, if it is there, lists OBJECT/query/TEXT.txt, a description
that becomes the name of the object: with ``evaluate.queries = "names"`` these texts query.
``taxonomy.json``, from the authors' repository (``misc/``), has three levels above the objects.
Queries (split ``test``) search the positives and, if there are any, the photos of the tars of
YFCC100M (``index``), which show none of the objects: one further class at every level. The
benchmark reports mAP@1000. It has nothing to train on.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd

from hgld.config import SourceOptions
from hgld.errors import InvalidData
from hgld.shards.tar import list_stems
from hgld.sources.listing import Listing, read_json, read_text
from hgld.words import single_blanks

LEVELS = ("domain", "category", "subcategory", "object")
LISTS = {  # file: folder of its photos, split
    "image_ids/image_query_ids.txt": ("query", "test"),
    "image_ids/positive_ids.txt": ("pos", "index"),
}
TEXTS = "image_ids/text_query_ids.txt"
TAXONOMY = ("taxonomy.json", "misc/taxonomy.json")
DISTRACTOR = 1_000_000  # number of the class of the distractors


def read(source: Path, _: SourceOptions) -> Listing:
    """Read the objects and photos of both lists, and the distractors that are there.

    Raises:
        InvalidData: a list is missing or has another form, the taxonomy lacks an object.
    """
    file, places = _read_taxonomy(source)
    rows = [row for name in LISTS for row in _read_list(source, name)]
    for row in rows:
        if row["object"] not in places:
            raise InvalidData(
                f"{source / str(row['file'])} line {row['line']}: {file} has no object "
                f"'{row['object']}'; expected the taxonomy of the same release; get both again"
            )
        row |= dict(zip(LEVELS, places[str(row["object"])], strict=False))
    lines = pd.DataFrame(rows)
    found = Listing.of_lines(pd.concat([lines, *_distractors(source)], ignore_index=True), LEVELS)
    texts: dict[str, str] = {}  # object -> its description, on one line
    if (source / TEXTS).is_file():
        for line in read_text(source / TEXTS, "the ids of the texts").split():
            path = source / "ilias_core" / line
            text = single_blanks(read_text(path, "the text of a query"))
            if not text:
                raise InvalidData(f"{path}: empty; get it again")
            texts[line.partition("/")[0]] = text
    names = [texts.get(name, name) for name in found.classes["name"]]
    return replace(found, classes=found.classes.assign(name=names))


def _read_taxonomy(source: Path) -> tuple[str, dict[str, tuple[str, str, str]]]:
    """Return the name of the file, and object -> its classes, qualified by those above them."""
    name = next((name for name in TAXONOMY if (source / name).is_file()), TAXONOMY[0])
    document = read_json(source / name, "the taxonomy of the objects, from misc/ of the repository")
    try:
        return name, {
            str(item): (domain, f"{domain}/{category}", f"{domain}/{category}/{finer}")
            for domain, categories in document.items()
            for category, finest in categories.items()
            for finer, objects in finest.items()
            for item in objects
        }
    except (AttributeError, TypeError) as error:
        raise InvalidData(
            f"{source / name}: not the taxonomy ({error}); expected JSON of three levels, the last "
            "with lists of objects; get it again"
        ) from None


def _read_list(source: Path, name: str) -> Iterator[dict[str, object]]:
    """Yield path, split, landmark_id, object, file and line of each photo."""
    folder, split = LISTS[name]
    form = re.compile(rf"([^/,]*_(\d{{1,6}}))/{folder}/[^/,]+")
    lines = read_text(source / name, "the ids of the photos").splitlines()
    if not "".join(lines).strip():
        raise InvalidData(f"{source / name}: no lines; expected the ids of photos; get it again")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        path = line.partition(",")[0].strip()
        found = form.fullmatch(path)
        if found is None:
            raise InvalidData(
                f"{source / name} line {number}: '{path}'; expected OBJECT_NUMBER/{folder}/PHOTO; "
                "get it again"
            )
        yield {
            "path": f"ilias_core/{path}", "split": split, "landmark_id": int(found[2]),
            "object": found[1], "file": name, "line": number,
        }  # fmt: skip


def _distractors(source: Path) -> Iterator[pd.DataFrame]:
    """Yield the photos in each tar of distractors; their id is TAR/NAME, as in the lists."""
    for tar in sorted((source / "yfcc100m").glob("*.tar")):
        name = tar.relative_to(source).as_posix()
        found = list_stems(tar).to_pandas()
        yield pd.DataFrame(
            {
                "path": name,
                "image_id": tar.name + "/" + found["stem"].astype("str"),
                "offset": found["offset"],
                "size_bytes": found["size_bytes"],
                "split": "index",
                "landmark_id": DISTRACTOR,
                **dict.fromkeys(LEVELS, "distractor"),
                "file": name,
                "line": found.index + 1,
            }
        )
