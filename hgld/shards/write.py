"""Export the labelled images as shards: class-grouped, reproducible, resumable.

A shard is the unit of work: it is fully planned before its first image is read, so any process may
write it, and a finished shard leaves a marker with its index rows. A run that resumes, or finds
shards damaged or missing, writes only the shards that do not match their markers. No file has its
final name before it is complete, and the manifest is written after all that it describes.
"""

import json
import shutil
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.artifacts import Json
from hgld.config import ExportOptions, StageContext
from hgld.errors import InvalidData
from hgld.file_lock import hold
from hgld.images import Undecodable
from hgld.shards.classes import Classes, label_images, number_classes
from hgld.shards.files import FileReader
from hgld.shards.index import is_export
from hgld.shards.sample import Encoding, encode_image
from hgld.shards.shard import ShardTask, read_markers, write_or_keep
from hgld.shards.shard_plan import DROPPED, count_reasons, plan_shards, withhold
from hgld.shards.sidecars import SIDECARS, write_sidecars
from hgld.tasks import map_tasks, start_workers
from hgld.words import level_noun

__all__ = ["FORMAT", "export_shards"]

FORMAT = 3  # revision of the stage; raised when the same input and options give other bytes
WRITER = ".writer"  # lock of a folder of shards; it also shows that hgld wrote the folder


def export_shards(
    source: Path,
    images: pd.DataFrame,
    hierarchy: pd.DataFrame,
    removals: pd.DataFrame | None = None,
    *,
    options: ExportOptions,
    context: StageContext,
    out: Path,
) -> pd.DataFrame:
    """Write every labelled, decodable image once into the shards of its split.

    Args:
        source: folder that the images' paths are relative to.
        images: one row per image, with the file, offset and size of its bytes.
        hierarchy: one row per landmark, with its label path.
        removals: images to leave out on request of their authors or others (image_id, why).
        options: sizes, seed, encoding.
        context: its ``state`` folder keeps the markers of finished shards.
        out: the folder of shards; shards of other input or options are removed from it.

    Returns:
        export_dropped: the images that are in no shard, each with its reason.

    Raises:
        InvalidData: no image is left to export, or a source file is not as listed.
        Resumable: the disk is full, or a worker died; the same command resumes.
    """
    # Ray starts its own workers.
    processes = 1 if options.ray else options.processes
    with start_workers(write_or_keep, processes) as workers:
        return _export(source, images, hierarchy, removals, options, context, out, workers)


def _export(
    source: Path,
    images: pd.DataFrame,
    hierarchy: pd.DataFrame,
    removals: pd.DataFrame | None,
    options: ExportOptions,
    context: StageContext,
    out: Path,
    workers: ProcessPoolExecutor | None,
) -> pd.DataFrame:
    classes = number_classes(hierarchy)
    images, withheld = withhold(images, removals, options.licenses)
    labelled, unlabelled = _label(images, classes)
    dropped = pd.concat([withheld, unlabelled], ignore_index=True)
    if labelled.empty:
        raise InvalidData(f"export: no image is left to export: {count_reasons(dropped)}")
    _require_files(labelled["path"], source)
    samples = plan_shards(
        labelled.assign(expected_bytes=_expect_bytes(labelled, source, options)),
        run_length=options.run_length,
        shard_bytes=options.shard_megabytes * 1e6,
        seed=options.seed,
    )
    # Sorted, so that the order of rows changes no shard.
    labels = hierarchy.sort_values(["split", "landmark_id"]).to_csv(
        index=False, lineterminator="\n"
    )
    labels_hash = sha256(labels.encode()).hexdigest()
    made_from = _hash_input(samples, labels_hash, options)
    tasks = _cut_tasks(
        samples, classes, labels_hash, source, out, context.state, options, made_from
    )
    _require_own(out)
    out.mkdir(parents=True, exist_ok=True)
    taken = f"{out}: another process is writing shards here"
    with hold(out / WRITER, taken, "or choose another folder"):
        keep = {task.file for task in tasks}
        _clear(out, context.state, made_from, keep, context.force)
        map_tasks(write_or_keep, tasks, "Writing shards", options.processes, options.ray, workers)
        rows, facts, undecodable = read_markers(tasks)
        write_sidecars(
            out,
            rows.sort_values(["split", "shard", "offset"], ignore_index=True),
            facts,
            classes,
            options=options.decisive(),
            labels_sha256=labels_hash,
        )
    return pd.concat([dropped, undecodable], ignore_index=True)


def _label(images: pd.DataFrame, classes: Classes) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Give each image the classes of its landmark; drop images of landmarks without a row."""
    labelled = label_images(images, classes)
    missing = labelled["level_1"].isna()
    finest = level_noun(classes.levels[-1])
    dropped = labelled.loc[missing, ["split", "image_id", "landmark_id"]].assign(
        reason="unlabelled",
        detail=lambda t: f"{finest} " + t["landmark_id"].astype(str) + " has no hierarchy row",
    )
    kept = labelled[~missing]
    numbers = {f"level_{i + 1}": "int64" for i in range(len(classes.levels))}
    kept = kept.astype(numbers).sort_values(["split", "image_id"], ignore_index=True)
    return kept, dropped[DROPPED]


def _require_files(paths: "pd.Series[str]", source: Path) -> None:
    missing = [path for path in sorted(paths.unique()) if not (source / path).is_file()]
    if missing:
        raise InvalidData(
            f"{source / missing[0]}: no such file ({len(missing)} of {paths.nunique()} that "
            "images.parquet names); bring it back, or run collect again to list what is there"
        )


def _expect_bytes(samples: pd.DataFrame, source: Path, options: ExportOptions) -> "pd.Series[Any]":
    """Expected size of each encoded image, for cutting shards: scaled by a sample of them."""
    if options.short_side is None:
        return samples["size_bytes"].astype("float64")
    reader, before, after = FileReader(source), 0, 0
    for row in samples.iloc[:: max(1, len(samples) // 64)].to_dict("records"):
        data = reader.read(row["path"], row["offset"], row["size_bytes"])
        try:
            made = encode_image(data, _encoding(options))
        except Undecodable:
            continue
        before, after = before + len(data), after + len(made.data)
    reader.close()
    return samples["size_bytes"] * (after / before if before else 1.0)


def _encoding(options: ExportOptions) -> Encoding:
    return Encoding(options.short_side, options.jpeg_quality, options.decode_all)


def _cut_tasks(
    samples: pd.DataFrame,
    classes: Classes,
    labels_hash: str,
    source: Path,
    out: Path,
    state: Path,
    options: ExportOptions,
    made_from: str,
) -> list[ShardTask]:
    return [
        ShardTask(
            str(file),
            source,
            out,
            state,
            part,
            classes.levels,
            labels_hash[:12],
            _encoding(options),
            made_from,
        )
        for file, part in samples.groupby("shard", sort=True)
    ]


def _hash_input(samples: pd.DataFrame, labels_hash: str, options: ExportOptions) -> str:
    """Hash of everything that decides the shards, except the images' bytes (see the markers)."""
    rows = pd.util.hash_pandas_object(samples, index=False).to_numpy()
    planned = [list(samples.columns), sha256(rows.tobytes()).hexdigest()]
    document = [FORMAT, labels_hash, planned, options.decisive()]
    return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _require_own(out: Path) -> None:
    """Refuse a folder with tars that hgld did not write, since unplanned shards are deleted."""
    if (out / WRITER).exists() or is_export(out):
        return
    strange = sorted(path.name for path in out.glob("*.tar"))
    if strange:
        raise InvalidData(
            f"{out}: holds {strange[0]}, which hgld export did not write ({len(strange)} such "
            "tars); choose another folder, or move them away"
        )


def _clear(out: Path, state: Path, input_hash: str, planned: set[str], everything: bool) -> None:
    """Delete outputs of other input, or all outputs; keep finished shards of this input."""
    note = state / "input.json"
    if everything or _noted(note) != input_hash:
        planned = set()
        shutil.rmtree(state, ignore_errors=True)
        state.mkdir(parents=True)
        Json(note.name).write({"sha256": input_hash}, note)
    shards = out.glob("*-" + "[0-9]" * 6 + ".tar")  # tars with other names are not hgld's
    strange = [shard for shard in shards if shard.name not in planned]
    sidecars = [*out.glob("*.wids.json"), *(out / name for name in SIDECARS)]
    # Without a manifest the folder counts as incomplete while shards are written.
    for file in [*strange, *out.glob(".*.tmp"), *sidecars]:
        file.unlink(missing_ok=True)


def _noted(note: Path) -> str | None:
    """Hash of the input that the state belongs to; None if it cannot be read."""
    try:
        return str(Json(note.name).read(note).get("sha256"))
    except (OSError, InvalidData):
        return None
