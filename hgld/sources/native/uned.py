"""UnED: ``info_files/DOMAIN/SPLIT.json``, lists of ``{"path", "class_id"}``, photos in ``images/``.

Paths may begin with ``images/`` or not, and the archive of ``images/`` may be unpacked in a folder
of that name.

Eight data sets of products, animals, art, landmarks and food are one (Ypsilantis et al. 2023). In
``met``, ``gldv2`` and ``inshop`` the photos of test.json (split ``test``) search those of
index.json (``index``); in the others each photo of test.json searches all others (``evaluation``).
The standard protocol merges all galleries: ``evaluation+test`` query ``evaluation+index``. The
benchmark reports mMP@5 and R@1, as means over the domains (``evaluate.mean_over``). Class numbers
of training, validation and test are kept apart, since each counts from 0.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.config import SourceOptions
from hgld.errors import InvalidData
from hgld.sources.listing import Listing, read_json

LEVELS = ("domain", "class")
# as the authors number them
DOMAINS = ("cars", "sop", "inshop", "inat", "met", "gldv2", "food2k", "rp2k")
INDEXED = ("inshop", "met", "gldv2")
SIDES = ("train", "val", "test")
MOST = 100_000_000  # classes of a domain's split


def read(source: Path, _: SourceOptions) -> Listing:
    """Read the classes and photos of the domains that are there; train and val may be missing.

    Raises:
        InvalidData: all domains are missing, a list is missing or has another form.
    """
    folder = source / "info_files"
    present = [domain for domain in DOMAINS if (folder / domain).is_dir()]
    if not present:
        raise InvalidData(
            f"{folder}/DOMAIN: no such file; expected a folder of {', '.join(DOMAINS)}; set "
            "source.folder to where info_files/ and images/ are"
        )
    rows = [row for domain in present for row in _read_domain(source, domain)]
    return Listing.of_lines(pd.DataFrame(rows), LEVELS)


def _read_domain(source: Path, domain: str) -> Iterator[dict[str, object]]:
    indexed = domain in INDEXED
    twice = [path.name for path in source.glob("images/*")] == ["images"]
    photos = "images/images" if twice else "images"
    files = {"train": "train", "val": "validation", "test": "test" if indexed else "evaluation"}
    files |= {"index": "index"} if indexed else {}
    for name, split in files.items():
        file = f"info_files/{domain}/{name}.json"
        if name in ("train", "val") and not (source / file).exists():
            continue
        side = "test" if name == "index" else name  # both have the same classes
        start = MOST * (len(SIDES) * DOMAINS.index(domain) + SIDES.index(side))
        entries = read_json(source / file, "a list of the photos of a split")
        if not isinstance(entries, list) or not entries:
            raise InvalidData(
                f"{source / file}: no list of photos; expected one for each split; get it again"
            )
        for number, entry in enumerate(entries, start=1):
            path: Any = entry.get("path") if isinstance(entry, dict) else None
            class_id: Any = entry.get("class_id") if isinstance(entry, dict) else None
            if isinstance(class_id, list):  # the first one, if it has several
                class_id = next(iter(class_id), None)
            is_path = isinstance(path, str) and path and ".." not in Path(path).parts
            if not is_path or type(class_id) is not int or not 0 <= class_id < MOST:
                raise InvalidData(
                    f"{source / file} entry {number}: {str(entry)[:60]}; expected a path below "
                    f"images/ and a class_id from 0 to {MOST - 1:,}; get it again"
                )
            yield {
                "path": f"{photos}/{path.removeprefix('images/')}",
                "split": split, "file": file, "line": number,
                "landmark_id": start + class_id,
                "domain": domain, "class": f"{domain} {side} {class_id}",
            }  # fmt: skip
