"""Fills the release folder: tables, shards where they are asked for, card, Croissant, checksums.

The folder is made beside the old one and takes its place as a whole. Shards are linked rather than
copied where the disk allows it: they are never written in place, so a link costs no space and
cannot change.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.artifacts import (
    ARTIFACTS,
    BY_LANDMARK,
    Json,
    Table,
    atomic_folder,
    declared_table,
    hash_file,
)
from hgld.artifacts.cells import guard_formulas
from hgld.config import LEVEL_NAMES, PublishOptions, StageContext
from hgld.errors import InvalidData
from hgld.hierarchy.label_file import classes_of, labels_now
from hgld.publish.card import draw_pictures, write_card
from hgld.publish.content import (
    Photos,
    Release,
    ReleaseTable,
    classes_of_labels,
    classes_of_paths,
    count_levels,
    sheet_of_images,
    sheet_of_paths,
    splits_of_classes,
)
from hgld.publish.croissant import describe_release
from hgld.shards.classes import number_classes
from hgld.shards.index import local_copy
from hgld.shards.location import tar_folder
from hgld.shards.sidecars import write_checksums
from hgld.shards.verify import verify_shard

SHARDS = "shards"  # folder of the shards in a release
REMOVALS = Table(
    "removals.csv", {"image_id": "text"}, ("image_id",)
)  # not why: that may be private


def write_release(
    train_labels: pd.DataFrame,
    index_labels: pd.DataFrame,
    hierarchy: pd.DataFrame,
    label_dropped: pd.DataFrame,
    lineage: pd.DataFrame,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    agreement: Mapping[str, Any],
    *photos: Any,
    options: PublishOptions,
    context: StageContext,
    out: Path,
    **linking: pd.DataFrame,
) -> None:
    """Release labels that were built from reviewed decisions.

    Args:
        train_labels: landmarks of the train id space in the published columns.
        index_labels: the same for the index id space.
        hierarchy: the class of each landmark at each level, which a person may have edited since.
        label_dropped: landmarks without a label, and why.
        lineage: where each label comes from.
        taxonomy: the supercategories and their kinds.
        decisions: every decision, with the ids of those that it supersedes.
        agreement: what two annotators agree on; empty where it was not measured.
        photos: nothing, or shards, evaluation, export_dropped and removals.
        options: name, version and parts of the release.
        context: gives the date and the kind of source.
        out: the release folder; it is replaced as a whole.
        linking: of ``scrape.source = "items"``, how the classes got their items: linked, links and
            ancestry.

    Raises:
        InvalidData: the shards have no ``attribution.csv``, or hold an image that was to go.
    """
    classes_now = classes_of(hierarchy)
    labels = labels_now(classes_now, {"train": train_labels, "index": index_labels})
    tables = {
        **{f"{space}_labels": rows for space, rows in labels.items()},
        "lineage": _lineage_now(classes_now, lineage),
        "taxonomy": taxonomy,
        "decisions": decisions,
    }
    levels = (*context.levels, LEVEL_NAMES[-1])
    if levels != LEVEL_NAMES:  # the published columns name the levels of H-GLDv2
        tables["hierarchy"] = hierarchy
    sheets = _sheets({**tables, **_filled(linking)})
    classes = classes_of_labels(labels)
    held = Photos(*photos) if photos else None
    release = Release(
        options, context, "decisions", sheets, classes, label_dropped, agreement, held, levels
    )
    _write(release, out)


def release_published(
    train_labels: pd.DataFrame,
    index_labels: pd.DataFrame,
    hierarchy: pd.DataFrame,
    label_dropped: pd.DataFrame,
    *photos: Any,
    options: PublishOptions,
    context: StageContext,
    out: Path,
) -> None:
    """Release labels that were published before, as this run used them (see ``write_release``)."""
    given = {"train": train_labels, "index": index_labels}
    labels = labels_now(classes_of(hierarchy), given)
    tables = {f"{space}_labels": rows for space, rows in labels.items()}
    sheets = _sheets(tables)
    classes = classes_of_labels(labels)
    held = Photos(*photos) if photos else None
    _write(Release(options, context, "published", sheets, classes, label_dropped, {}, held), out)


def release_folder(
    hierarchy: pd.DataFrame,
    label_dropped: pd.DataFrame,
    images: pd.DataFrame,
    *photos: Any,
    options: PublishOptions,
    context: StageContext,
    out: Path,
    removals: pd.DataFrame | None = None,
    judged: Mapping[str, pd.DataFrame] | None = None,
    agreement: Mapping[str, Any] | None = None,
) -> None:
    """Release the hierarchy of a folder and which image is of which class (see ``write_release``).

    Label paths belong to the id space of their class; the release names the splits in which the
    class has images, so that held-out classes can be distinguished from those that train. Without
    shards, the images of ``removals`` are left out here. ``judged`` are the tables of the review
    and the links, if there are any.

    Raises:
        InvalidData: no class has a label.
    """
    if hierarchy.empty:
        raise InvalidData("no class has a label, so that there is nothing to release")
    held = Photos(*photos) if photos else None
    if removals is not None:
        images = images[~images["image_id"].isin(removals["image_id"])]
    paths = number_classes(hierarchy)
    splits = splits_of_classes(hierarchy[BY_LANDMARK], held.index if held else images)
    sheets = [
        sheet_of_paths(paths, splits),
        sheet_of_images(paths, images, held.index if held else None),
        *_sheets(judged or {}),
    ]
    counts = count_levels(paths, splits)
    release = Release(
        options,
        context,
        "folder",
        sheets,
        classes_of_paths(paths, splits),
        splits_of_classes(label_dropped, images),
        agreement or {},
        held,
        list(counts),
        counts,
    )
    _write(release, out)


def release_reviewed(
    hierarchy: pd.DataFrame,
    label_dropped: pd.DataFrame,
    images: pd.DataFrame,
    lineage: pd.DataFrame,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    agreement: Mapping[str, Any],
    *photos: Any,
    options: PublishOptions,
    context: StageContext,
    out: Path,
    removals: pd.DataFrame | None = None,
    **linking: pd.DataFrame,
) -> None:
    """Release a folder's hierarchy that was built from reviewed decisions, with these.

    ``linking`` is as in ``write_release``, ``removals`` as in ``release_folder``.

    Raises:
        InvalidData: no class has a label.
    """
    lineage = _lineage_now(classes_of(hierarchy), lineage)
    judged = {"lineage": lineage, "taxonomy": taxonomy, "decisions": decisions}
    judged |= _filled(linking)
    given: dict[str, Any] = {"options": options, "context": context, "out": out}
    given |= {"removals": removals, "judged": judged, "agreement": agreement}
    release_folder(hierarchy, label_dropped, images, *photos, **given)


def _lineage_now(classes: pd.DataFrame, lineage: pd.DataFrame) -> pd.DataFrame:
    """Return the lineage with the classes of the hierarchy; who edited them is not known."""
    keys = pd.MultiIndex.from_frame(lineage[BY_LANDMARK])
    own = classes.reindex(keys, fill_value="").reset_index(drop=True)
    edited = (own != lineage[[*own]].reset_index(drop=True)).any(axis=1).to_numpy()
    lineage = lineage.reset_index(drop=True).assign(**own)
    lineage.loc[edited, ["decided_by", "who", "when", "agreement"]] = "edit", "", "", ""
    return lineage


def _sheets(tables: Mapping[str, pd.DataFrame]) -> list[ReleaseTable]:
    return [ReleaseTable(name, declared_table(name), rows) for name, rows in tables.items()]


def _filled(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the tables with rows; nobody may have answered about a class."""
    return {name: rows for name, rows in tables.items() if len(rows)}


def _write(release: Release, out: Path) -> None:
    if release.photos is not None:
        _require_rights(release.photos)
    with atomic_folder(out) as folder:
        for sheet in release.sheets:
            sheet.artifact.write(guard_formulas(sheet.rows), folder / sheet.file)
        if release.agreement:
            agreement = Json(ARTIFACTS["agreement"].file)
            agreement.write(release.agreement, folder / agreement.file)
        sums = {}
        if release.photos is not None:
            sums = _add_shards(release.photos, folder)  # hashes of the tars are in the manifest
        pictures = draw_pictures(release, folder)
        write_card(release, folder, pictures)  # after the files, whose bytes it states
        written = sorted(path for path in folder.rglob("*") if path.is_file())
        names = [path.relative_to(folder).as_posix() for path in written]
        sums |= {name: hash_file(folder / name) for name in names if name not in sums}
        # The document lists every other file with its hash, and SHA256SUMS lists it, too.
        croissant = folder / "croissant.json"
        Json(croissant.name).write(describe_release(release, folder, sums), croissant)
        sums[croissant.name] = hash_file(croissant)
        write_checksums(folder, sums)


def _require_rights(photos: Photos) -> None:
    source = photos.folder / "attribution.csv"
    if not source.is_file():
        raise InvalidData(
            f"{source}: does not exist, and no photo is released without its author and licence; "
            "run the export stage again"
        )
    removed = set(photos.removals["image_id"]) & set(photos.index["image_id"])
    if removed:
        raise InvalidData(
            f"{photos.folder}: holds image {min(removed)}, which removals.csv says must go "
            f"(of {len(removed)}); run the export stage again"
        )


def _add_shards(photos: Photos, folder: Path) -> dict[str, str]:
    """Put in the shards, their sidecars and the removal list; the hashes of the tars."""
    (folder / SHARDS).mkdir()
    for file in sorted(photos.folder.iterdir()):
        is_card = file.name == "README.md"  # the release has its own, written through a link
        if file.is_file() and not file.name.startswith(".") and not is_card:
            copied = folder / SHARDS / file.name
            try:
                os.link(file, copied)
            except OSError:  # another disk, or one that knows no links
                shutil.copyfile(file, copied)
    there = tar_folder(photos.folder)
    if there != photos.folder:
        for shard in photos.shards:
            rows = photos.index[photos.index["shard"] == shard["file"]]
            with local_copy(there, shard["file"]) as here:
                verify_shard(here, shard, rows)  # SHA256SUMS states the hash of the manifest
                shutil.copyfile(here / shard["file"], folder / SHARDS / shard["file"])
    REMOVALS.write(guard_formulas(photos.removals), folder / REMOVALS.file)
    return {f"{SHARDS}/{shard['file']}": str(shard["sha256"]) for shard in photos.shards}
