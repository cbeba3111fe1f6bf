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
    photos = "images/images" if (source / "images" / "images").is_dir() else "images"
    files = {"train": "train", "val": "validation", "test": "test" if indexed else "evaluation"}
    files |= {"index": "index"} if indexed else {}
    for name, split in files.items():
        file = f"info_files/{domain}/{name}.json"
        if name in ("train", "val") and not (source / file).exists():
            continue
        side = "test" if name == "index" else name  # both have the same classes
        start = MOST * (len(SIDES) * DOMAINS.index(domain) + SIDES.index(side))
        for number, (path, class_id) in enumerate(_entries(source / file), start=1):
            yield {
                "path": f"{photos}/{path.removeprefix('images/')}",
                "split": split, "file": file, "line": number,
                "landmark_id": start + class_id,
                "domain": domain, "class": f"{domain} {side} {class_id}",
            }  # fmt: skip


def _entries(path: Path) -> Iterator[tuple[str, int]]:
    """Yield path and class of each entry; the first one, if it has several."""
    entries = read_json(path, "a list of the photos of a split")
    if not isinstance(entries, list) or not entries:
        raise InvalidData(f"{path}: no list of photos; expected one for each split; get it again")
    for number, entry in enumerate(entries, start=1):
        image = entry.get("path") if isinstance(entry, dict) else None
        found = entry.get("class_id") if isinstance(entry, dict) else None
        found = found[0] if isinstance(found, list) and found else found
        is_class = type(found) is int and 0 <= found < MOST
        if not isinstance(image, str) or not image or ".." in Path(image).parts or not is_class:
            raise InvalidData(
                f"{path} entry {number}: {str(entry)[:60]}; expected a path below images/ and a "
                f"class_id from 0 to {MOST - 1:,}; get it again"
            )
        assert isinstance(found, int)
        yield image, found
