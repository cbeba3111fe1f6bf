"""Columns common to the tables of all sources: levels, attribution, dropped files."""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pandas as pd

from hgld.artifacts import ITEM_IDS, SPACE_OF_SPLIT, columns_of, list_tree
from hgld.credit import CREDITS, UNKNOWN
from hgld.images import IMAGE_ENDINGS, UNREAD_ENDINGS
from hgld.tasks import say
from hgld.words import count_text

# landmarks, images, queries, images_dropped
Tables = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]
NO_LEVELS = ("path", "split", *CREDITS, *ITEM_IDS)


def level_columns(names: Iterable[object]) -> list[str]:
    """Return those columns of a label file that are levels, coarse to fine.

    Example:
        >>> level_columns(["path", "split", "order", "family", "license"])
        ['order', 'family']
    """
    return [str(name) for name in names if name not in NO_LEVELS]


def misnamed_level(levels: Iterable[str]) -> str:
    """Return the first level that is called as another column but for capitals, or nothing.

    Example:
        >>> misnamed_level(["order", "Split"]), misnamed_level(["order"])
        ('Split', '')
    """
    return next((name for name in levels if name.strip().casefold() in NO_LEVELS), "")


def listed_paths(paths: "pd.Series[str]") -> "pd.Series[str]":
    r"""Return paths of a CSV as those of files are: Windows writes backslashes.

    Example:
        >>> listed_paths(pd.Series([r"a\0001.jpg", "./b/2.jpg"])).tolist()
        ['a/0001.jpg', 'b/2.jpg']
    """
    return paths.str.replace("\\", "/", regex=False).map(os.path.normpath)


def several_parents(rows: pd.DataFrame, levels: Sequence[str]) -> Iterator[tuple[bool, str]]:
    """Yield for each class with several parents whether one is empty, and the fault.

    Args:
        rows: with the levels; the index names their places.
        levels: columns, coarse to fine.
    """
    for coarse, fine in pairwise(levels):
        pairs = rows[rows[fine] != ""].drop_duplicates([coarse, fine])
        for name, group in pairs[pairs[fine].duplicated(keep=False)].groupby(fine):
            (one, first), (two, second) = list(group[coarse].items())[:2]
            if not (first and second):
                empty, full = (two, one) if first else (one, two)
                yield (
                    True,
                    f"{empty}: {coarse} is empty, but {fine} '{name}' is under "
                    f"'{first or second}' in {full}",
                )
                continue
            yield (
                False,
                f"{two}: {fine} '{name}' is under {coarse} '{second}', but "
                f"under '{first}' in {one}",
            )


def drop_where(
    rows: pd.DataFrame, wrong: "pd.Series[bool]", reason: str, detail: "str | pd.Series[str]"
) -> pd.DataFrame:
    """Give wrong rows a reason and a detail, which are empty so far; another reason stays."""
    wrong = wrong & (rows["reason"] == "")
    reasons, details = rows["reason"].mask(wrong, reason), rows["detail"].mask(wrong, detail)
    return rows.assign(reason=reasons, detail=details)


def drop_unlisted(source: Path, listed: Collection[str], reason: str, detail: str) -> pd.DataFrame:
    """List the files of a source folder that its list of images lacks: path, split, reason, detail.

    Args:
        source: the folder.
        listed: paths of the listed images, relative to the folder.
        reason: for an image file that is not listed.
        detail: likewise.

    Returns:
        These files; also photos of formats that hgld does not read (``unknown format``), of which a
        notice is sent, skipped links, pipes and devices (``not a file``), and files whose names are
        not UTF-8, which a list cannot contain (``name not UTF-8``).
    """
    tree = list_tree(source)
    unread = report_unread(source, (path for path in tree.files if path.name[0] != "."))
    rows = [
        *((path, reason, detail) for path in tree.files if path.suffix.lower() in IMAGE_ENDINGS),
        *((path, "unknown format", "convert it to JPEG") for path in unread),
        *((path, "not a file", why) for path, why in tree.passed_over.items()),
    ]
    found = []
    for path, why, more in rows:
        name = path.relative_to(source).as_posix()
        if name in listed:
            continue
        readable = os.fsencode(name).decode("utf-8", "backslashreplace")
        if readable != name:
            why, more = "name not UTF-8", "no list can name this file; rename it"
        found.append((readable, "train", why, more))
    return pd.DataFrame(sorted(found), columns=["path", "split", "reason", "detail"], dtype="str")


def report_unread(folder: Path, files: Iterable[Path]) -> list[Path]:
    """Return the photos of formats that hgld does not read, and send a notice of them."""
    unread = sorted(path for path in files if path.suffix.lower() in UNREAD_ENDINGS)
    if unread:
        say(
            f"{count_text(len(unread), 'photo')} in a format that hgld does not read, first "
            f"{unread[0].relative_to(folder).as_posix()}; convert them to JPEG"
        )
    return unread


def report_missing(paths: "pd.Series[str]", count: int, source: Path) -> None:
    """Send a notice of listed images that are not in the source folder.

    Args:
        paths: of these images; the index names their places in the list.
        count: of all listed images.
        source: the folder.
    """
    if len(paths):
        say(
            f"{len(paths):,} of {count_text(count, 'listed image')} not in {source}, first "
            f"{paths.iloc[0]} ({paths.index[0]}); images_dropped.parquet lists them"
        )


def with_credits(images: pd.DataFrame, known: pd.DataFrame) -> pd.DataFrame:
    """Add author, license, title and url; unknown values become ``UNKNOWN``.

    Args:
        images: one row for each image.
        known: the same rows, with some of the columns; an empty cell is unknown, too.
    """
    nothing = pd.Series(UNKNOWN, index=known.index, dtype="str")
    about = {name: known.get(name, nothing).fillna("").replace("", UNKNOWN) for name in CREDITS}
    return images.assign(**about)


def landmarks_of(images: pd.DataFrame, names: "pd.Series[str]") -> pd.DataFrame:
    """Return ``landmarks``: one row for each class and id space in which it has images.

    Args:
        images: split and landmark_id.
        names: of the class of each image.
    """
    spaces = images["split"].map(SPACE_OF_SPLIT).astype("str")
    found = images.assign(split=spaces, name=names, commons_url="")
    return found.drop_duplicates(["split", "landmark_id"])[columns_of("landmarks")]


def join_repeats(dropped: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each image and reason, with the details of all its rows."""
    key = ["split", "image_id", "reason"]
    joined = dropped.groupby(key, sort=False)["detail"].agg("; ".join)
    return joined.reset_index().astype("str")
