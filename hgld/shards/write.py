"""Export the labelled images as shards: class-grouped, reproducible, resumable.

A shard is the unit of work: it is fully planned before its first image is read, so any process may
write it, and a finished shard leaves a marker with its index rows. A run that resumes, or finds
shards damaged or missing, writes only the shards that do not match their markers. No file has its
final name before it is complete, and the manifest is written after all that it describes.
"""

import json
import shutil
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pyarrow as pa

from hgld.artifacts import BOX, Json, LargeTable, declared_table, engine, sql_text, write_query
from hgld.config import ExportOptions, StageContext
from hgld.errors import InvalidData
from hgld.file_lock import hold
from hgld.images import Undecodable
from hgld.ray_tasks import Reserve
from hgld.shards.classes import number_classes
from hgld.shards.export_plan import LabelledImages, label_in_parts, write_plan
from hgld.shards.files import FileReader
from hgld.shards.index import is_export
from hgld.shards.location import LOCATION
from hgld.shards.sample import Encoding, box_of, encode_image
from hgld.shards.schema import numbered_levels
from hgld.shards.shard import ShardTask, is_intact, read_markers, stamp_files, write_or_keep
from hgld.shards.shard_plan import SplitPlan, count_reasons, plan_split
from hgld.shards.shard_url import WRITER, ShardUrl
from hgld.shards.sidecars import outdated_files, write_sidecars
from hgld.tasks import map_tasks, prepare_workers, say

WRITING = "Writing shards"
PLANS = "plan-"  # prefix of the folder of a plan, which is deleted at the end
FORMAT = 3  # revision of the stage; raised when the same input and options give other bytes


def export_shards(
    source: Path,
    images: LargeTable | pd.DataFrame,
    hierarchy: pd.DataFrame,
    removals: pd.DataFrame | None = None,
    *,
    options: ExportOptions,
    context: StageContext,
    out: Path,
) -> LargeTable:
    """Write every labelled, decodable image once into the shards of its split.

    Args:
        source: folder that the images' paths are relative to.
        images: one row per image, with the file, offset and size of its bytes; with the columns
            ``BOX``, the image is that part of it. A large table is sorted by split and image_id.
        hierarchy: one row per landmark, with its label path.
        removals: images to leave out on request of their authors or others (image_id, why).
        options: sizes, seed, encoding.
        context: its ``state`` folder keeps the markers of finished shards.
        out: the folder of shards; shards of other input or options are removed from it. With the
            option ``out``, a URL, the shards are there, and this folder has the other files.

    Returns:
        export_dropped: the images that are in no shard, each with its reason.

    Raises:
        InvalidData: no image is left to export, or a source file is not as listed.
        Resumable: the disk is full, or a worker died; the same command resumes.
    """
    if options.processes > 1 and options.ray is None:  # Ray starts its own workers
        prepare_workers(__name__)
    context.state.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=PLANS, dir=context.state) as name:
        plans = Path(name)
        if isinstance(images, pd.DataFrame):
            images = LargeTable.of(images.sort_values(["split", "image_id"]), plans / "images")
        classes = number_classes(hierarchy)
        # Sorted, so that the order of rows changes no shard.
        labels = hierarchy.sort_values(["split", "landmark_id"]).to_csv(
            index=False, lineterminator="\n"
        )
        labels_hash = sha256(labels.encode()).hexdigest()
        labelled = label_in_parts(
            images, classes, removals, options.licenses, source=source, dropped=plans / "dropped"
        )
        if not labelled.splits:
            raise InvalidData(
                f"export: no image is left to export: {count_reasons(labelled.reasons)}"
            )
        encoding = Encoding(options.short_side, options.jpeg_quality, options.decode_all)
        scale = _scale(labelled, source, encoding)
        split_plans = plan_splits(labelled, scale, options)
        planned, planned_hash = write_plan(labelled, split_plans, plans / "planned")
        document = [FORMAT, labels_hash, planned_hash, options.decisive()]
        made_from = sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
        tasks = [
            ShardTask(
                shard,
                source,
                out,
                context.state,
                classes.levels,
                labels_hash[:12],
                encoding,
                made_from,
                options.out,
            )
            for shard in planned
        ]
        remote = None if options.out is None else ShardUrl(options.out, out)
        _require_own(out)
        if remote is not None:
            remote.require_own(labels_hash, options.decisive())
        if options.ray is not None:  # refused before shards of an earlier export are removed
            map_tasks(abs, [0], WRITING, cluster=options.ray, reserve=_reserve(options))
        out.mkdir(parents=True, exist_ok=True)
        taken = f"{out}: another process is writing shards here"
        with (
            hold(out / WRITER, taken, "or choose another folder"),
            nullcontext() if remote is None else remote.held(),
        ):
            keep = {task.file for task in tasks}
            here = keep if remote is None else set()
            _clear(out, context.state, made_from, here, context.force, plans)
            if remote is not None:
                remote.clear(keep)
            _write_all(tasks, options)
            undecodable: list[dict[str, str]] = []
            write_sidecars(
                out,
                read_markers(tasks, undecodable),
                classes,
                options=options.decisive(),
                labels_sha256=labels_hash,
                spill=plans,
                memory_gb=options.memory_gb,
            )
            if remote is not None:
                remote.finish()
        left_out = labelled.reasons + Counter(row["reason"] for row in undecodable)
        left_out.pop("removed", None)  # the user's own list asked for these
        if left_out:
            say(f"left out: {count_reasons(left_out)}; export_dropped.parquet names the images")
        declared = declared_table("export_dropped")
        with engine(plans, options.memory_gb) as tables:
            schema = pa.schema([(name, pa.string()) for name in declared.columns])
            tables.register("undecodable", pa.Table.from_pylist(undecodable, schema))
            names = ", ".join(declared.columns)
            return write_query(
                tables,
                f"SELECT {names} FROM read_parquet({sql_text(str(plans / 'dropped'))}) "
                f"UNION ALL SELECT {names} FROM undecodable ORDER BY {', '.join(declared.key)}",
                context.state / declared.file,
                declared.columns,
            )


def _write_all(tasks: list[ShardTask], options: ExportOptions) -> None:
    if options.ray is None:
        map_tasks(write_or_keep, tasks, WRITING, options.processes)
        return
    # Only this machine has the finished shards and the source files with their times.
    intact = map_tasks(is_intact, tasks, "Checking shards", options.processes)
    waiting = [task for task, kept in zip(tasks, intact, strict=True) if not kept]
    stamped = [replace(task, stamp=stamp_files(task)) for task in waiting]
    reserve = _reserve(options)
    map_tasks(write_or_keep, stamped, WRITING, cluster=options.ray, reserve=reserve)


def _reserve(options: ExportOptions) -> Reserve:
    return Reserve(options.cpus_per_task, memory_gb=options.memory_gb_per_task)


def plan_splits(
    labelled: LabelledImages, scale: float, options: ExportOptions
) -> dict[str, SplitPlan]:
    """Return the plan of each split; ``scale`` is the expected size of encoded images."""
    finest = numbered_levels(len(labelled.classes.levels))[-2:]
    numbers = labelled.classes.landmarks[finest].to_numpy(np.int32)
    return {
        split: plan_split(
            numbers[labelled.landmarks[labelled.rows_of(split)]],
            labelled.size_bytes[split] * scale,
            split=split,
            run_length=options.run_length,
            shard_bytes=options.shard_megabytes * 1e6,
            seed=options.seed,
        )
        for split in labelled.splits
    }


def _scale(labelled: LabelledImages, source: Path, encoding: Encoding) -> float:
    """Expected size of encoded images relative to the files', from a sample of them."""
    boxes = [name for name in BOX if name in labelled.images.columns()]
    if encoding.short_side is None and not boxes:
        return 1.0
    reader, before, after = FileReader(source), 0, 0
    rows = np.flatnonzero(labelled.landmarks >= 0)
    rows = rows[:: max(1, len(rows) // 64)]
    chosen, start = [], 0
    for batch in labelled.images.batches(["path", "offset", "size_bytes", *boxes]):
        first, last = np.searchsorted(rows, [start, start + len(batch)])
        chosen += batch.take(pa.array(rows[first:last] - start)).to_pylist()
        start += len(batch)
    for row in chosen:
        data = reader.read(row["path"], row["offset"], row["size_bytes"])
        try:
            made = encode_image(data, encoding, box_of(row))
        except Undecodable:
            continue
        before, after = before + len(data), after + len(made.data)
    return after / before if before else 1.0


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


def _clear(
    out: Path, state: Path, input_hash: str, planned: set[str], everything: bool, plans: Path
) -> None:
    """Delete outputs of other input, or all outputs; keep finished shards of this input."""
    note = state / "input.json"
    try:
        noted = Json(note.name).read(note).get("sha256")  # of the input that the state belongs to
    except (OSError, InvalidData):
        noted = None
    other = everything or noted != input_hash
    for path in state.iterdir():
        if path.name != plans.name and (other or path.name.startswith(PLANS)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if other:
        planned = set()
        Json(note.name).write({"sha256": input_hash}, note)
    outdated = outdated_files([path.name for path in out.iterdir()], planned)
    for file in [*(out / name for name in outdated), *out.glob(".*.tmp"), out / LOCATION]:
        file.unlink(missing_ok=True)
