"""The folder of a run: its model, its measurements, and the checkpoint to resume from.

NAME/model.safetensors   the trained weights
NAME/config.json         written last: architecture, options and fingerprint
NAME/metrics.jsonl       loss of each step
NAME/.timings.jsonl      seconds of each step
NAME/.checkpoint.pt      model, proxies, optimisers, memory, damaged images after the last save
NAME/.tensorboard/       the same as curves, if requested

The hidden files differ between two trainings that end in the same model, so they are not outputs
of the run.
"""

import io
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any, TextIO
from zipfile import ZipFile

import torch

from hgld.artifacts import write_file
from hgld.errors import HgldError, InvalidData, is_of_system
from hgld.model.model_folder import (
    CONFIG,
    LOSSES,
    RUNS,
    WEIGHTS,
    check_model,
    hash_weights,
    parse_record,
    run_names,
)
from hgld.model.weights import one_line
from hgld.tasks import say
from hgld.words import duration_text, share_text

TRAIN_AGAIN = "delete the run's folder and train again"
TIMINGS, CHECKPOINT = ".timings.jsonl", ".checkpoint.pt"
BAD_BATCH = "bad_batch.json"  # keys of a batch whose loss is nan or infinite
CURVES, PARTS = ".tensorboard", ("data", "model", "loss", "optimizer")
FILES = (LOSSES, TIMINGS, CHECKPOINT, CONFIG, WEIGHTS, BAD_BATCH, CURVES)  # all files of a run
UNDECODABLE = "undecodable"  # key of a checkpoint's damaged images
WORTH_TELLING_S = 60.0  # shorter epochs are reported together


def verify_models(folder: Path) -> None:
    """Check that each run's weights and losses match its config.json.

    Raises:
        InvalidData: a file is missing, unreadable or changed.
    """
    if not (folder / RUNS).is_file():
        raise InvalidData(f"{folder}: holds no model; run train")
    for name in run_names(folder):
        _verify_run(folder / name)


def list_models(folder: Path) -> list[Path]:
    """List ``runs.json`` and the files of the runs that it names, without hidden files."""
    found = (path for name in run_names(folder) for path in sorted((folder / name).glob("[!.]*")))
    return [folder / RUNS, *(path for path in found if path.is_file())]


def _verify_run(run: Path) -> dict[str, Any]:
    """The config of a finished run, after checking its files against it."""
    config, losses = check_model(run), run / LOSSES
    lines = list[bytes]()
    with suppress(OSError):
        lines = losses.read_bytes().splitlines()
    # A line counts up to the first that is not the next step's.
    records = enumerate(map(parse_record, lines), start=1)
    right = (r.get("step") == number and "loss" in r for number, r in records)
    steps, found = config.get("steps", 0), sum(takewhile(bool, right))
    if steps and found != steps:
        raise InvalidData(f"{losses}: holds {found} of {steps} steps; {TRAIN_AGAIN}")
    return config


@dataclass(frozen=True)
class RunFolder:
    """The files of one run.

    Attributes:
        path: the folder.
        fingerprint: hash of everything that decides the run's model.
        count_whole: counts how many of some images, by key or row number, are intact. A model that
            was trained without images that are intact now has to be trained again.
        weights: SHA-256 of the file of pretrained weights; empty: they have a name.
        start: folder of the model that the run starts from; None: of pretrained or random weights.
    """

    path: Path
    fingerprint: str
    count_whole: Callable[[Collection[str | int]], int] = len
    weights: str = ""
    start: Path | None = None

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return (self.path / CHECKPOINT).is_file()

    @cached_property
    def start_sha256(self) -> str:
        """Of the weights that the run starts from, for when it begins; empty: it has no start."""
        return hash_weights(self.start)

    def is_finished(self) -> bool:
        """Whether the model is complete, and made from the same images, options and start."""
        try:
            config = _verify_run(self.path)
        except InvalidData:
            return False
        if self.weights and config.get("pretrained_sha256") != self.weights:
            return False
        # Not start_sha256: the start may get other weights before this run begins.
        if config.get("init_sha256", "") != hash_weights(self.start):
            return False
        replaced = config.get(UNDECODABLE, {}).get("keys", [])
        return config.get("made_from") == self.fingerprint and not self.count_whole(replaced)

    def prepare(self) -> None:
        """Create the folder or mark it unfinished; remove the files of a different run."""
        self.path.mkdir(parents=True, exist_ok=True)
        found = _checkpoint_of(self.path) if self.has_checkpoint else None
        why = self._why_anew(found) if self.has_checkpoint else ""
        if why:
            say(f"{self.path.name}: {why}; it starts again")
        if why or found is None:
            for name in FILES:
                _remove(self.path / name)
        else:  # restored from the checkpoint: a damaged file costs no step
            write_file(self.path / LOSSES, found[LOSSES])
        # Without config.json the run counts as unfinished until it is saved again. The step of a
        # bad batch comes again: if it passes now, its keys must not stay among the model's files.
        for name in (CONFIG, WEIGHTS, BAD_BATCH):
            _remove(self.path / name)

    def _why_anew(self, found: dict[str, Any] | None) -> str:
        """The reason for not resuming from the checkpoint; empty if it can be used."""
        if found is None:
            return f"{CHECKPOINT} is damaged"
        done = int(found["step"])
        if found["made_from"] != self.fingerprint:
            return f"its checkpoint at step {done} was made with other options or shards"
        if found.get("weights", self.weights) != self.weights:
            return f"its checkpoint at step {done} was made with other pretrained weights"
        if self.start is not None and found.get("start") != self.start_sha256:
            return f"its checkpoint at step {done} started from other weights of {self.start.name}"
        healed = self.count_whole(found[UNDECODABLE]["rows"])
        if not healed:
            return ""
        return f"{healed} images that were damaged when it was trained are undamaged now"

    def save(self, done: int, parts: Mapping[str, Any]) -> None:
        """Write the state of all parts after ``done`` steps as the checkpoint, atomically."""
        state = {name: part.state_dict() for name, part in parts.items()}
        buffer = io.BytesIO()
        made_from = {"made_from": self.fingerprint, "weights": self.weights}
        made_from |= {"start": self.start_sha256} if self.start else {}
        path = self.path / LOSSES
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        losses = "".join(lines[:done])
        torch.save({"step": done, **made_from, LOSSES: losses, **state}, buffer)
        write_file(self.path / CHECKPOINT, buffer.getvalue())

    def resume(self, parts: Mapping[str, Any], device: torch.device) -> int:
        """Load the state of all parts, if there is a checkpoint; return the number of steps done.

        Raises:
            InvalidData: it is the state of another run.
        """
        if not self.has_checkpoint:
            return 0
        path = self.path / CHECKPOINT
        state = torch.load(path, map_location=device, weights_only=True)
        if state.get("made_from") != self.fingerprint:
            raise InvalidData(
                f"{path}: was made with other options or shards than the run; {TRAIN_AGAIN}"
            )
        try:
            for name, part in parts.items():
                part.load_state_dict(state[name])
        except (KeyError, RuntimeError, ValueError) as error:
            raise InvalidData(
                f"{path}: holds the state of another architecture than the pipeline's "
                f"({one_line(error)}); {TRAIN_AGAIN}"
            ) from None
        return int(state["step"])

    @contextmanager
    def metrics(self, done: int, curves: bool = False) -> Iterator["Metrics"]:
        """Open the files of measurements after the step ``done``; later lines are removed.

        Args:
            done: steps that are kept.
            curves: write TensorBoard's file too.
        """
        with (
            _open_behind(self.path / LOSSES, done) as losses,
            _open_behind(self.path / TIMINGS, done) as timings,
            _open_curves(self.path / CURVES, done) if curves else nullcontext() as drawn,
        ):
            yield Metrics(losses, timings, drawn)

    def seconds(self, after: int, until: int) -> dict[str, float]:
        """Seconds of the steps after .. until, by part and in total."""
        lines = map(parse_record, (self.path / TIMINGS).read_bytes().splitlines())
        steps = [found for found in lines if found.get("step") in range(after + 1, until + 1)]
        parts = {part: sum(found.get(f"{part}_s", 0.0) for found in steps) for part in PARTS}
        return {**parts, "all": sum(parts.values())}


def _remove(path: Path) -> None:
    """Remove a file or a folder, if it exists; of a symlink, only the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _open_behind(path: Path, done: int) -> TextIO:
    lines = path.read_bytes().splitlines()[:done] if path.is_file() else []
    # A kill can leave half a line.
    whole = [line for line in lines if parse_record(line).get("step") in range(1, done + 1)]
    write_file(path, b"".join(line + b"\n" for line in whole))
    return path.open("a", encoding="utf-8")


@contextmanager
def _open_curves(path: Path, done: int) -> Iterator[Any]:
    """Open TensorBoard's writer, to continue after the step ``done``."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        raise HgldError(
            'train.tensorboard: TensorBoard is not installed; pip install "hgld[tensorboard]"'
        ) from None
    # Steps after the checkpoint are computed again; their old points must not stay.
    with SummaryWriter(str(path), purge_step=done + 1) as writer:
        yield writer


@dataclass(frozen=True)
class Metrics:
    """Write one line per step to both files, and a point to each curve."""

    losses: TextIO
    timings: TextIO
    curves: Any = None

    def write(self, step: int, loss: float, seconds: Mapping[str, float]) -> None:
        """Write the loss of a step (counted from 1) and the seconds of its parts, by ``PARTS``."""
        rounded = {f"{part}_s": round(seconds[part], 4) for part in PARTS}
        self.losses.write(json.dumps({"step": step, "loss": loss}) + "\n")
        self.timings.write(json.dumps({"step": step, **rounded}) + "\n")
        # After each step, so that `hgld status` and a killed run show it.
        self.losses.flush()
        self.timings.flush()
        if self.curves is not None:
            for name, value in {"loss": loss, **rounded}.items():
                self.curves.add_scalar(name, value, step)

    def sync(self) -> None:
        """Force the losses to disk, before the checkpoint that counts on them."""
        os.fsync(self.losses.fileno())


def _checkpoint_of(run: Path) -> dict[str, Any] | None:
    """A run's checkpoint; None if any byte of it was changed.

    Raises:
        MemoryError, OSError, RuntimeError: the system does not let it be read now.
    """
    path = run / CHECKPOINT
    try:
        with ZipFile(path) as parts:
            if parts.testzip() is not None:  # torch itself does not verify checksums
                return None
        # mmap: only the facts are used here, not the tensors.
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        facts = {"made_from": str(found["made_from"]), "step": int(found["step"])}
        return {**found, **facts, LOSSES: str(found[LOSSES]), UNDECODABLE: found[UNDECODABLE]}
    except Exception as error:  # a damaged file makes torch raise many classes of errors
        if is_of_system(error):
            raise  # else an undamaged checkpoint would be deleted
        return None


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Use only deterministic algorithms on CPU; a GPU keeps its fast ones.

    Nothing here reads memory before it is written, so torch's filling of it would only cost time.
    """
    memory: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(before[0] or device.type == "cpu")
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        memory.fill_uninitialized_memory = before[1]


class Pace:
    """Report the speed of a run from the timings in its folder.

    Args:
        folder: of the run; holds the seconds of each step.
        start: steps done before.
        steps: of the whole run.
    """

    def __init__(self, folder: RunFolder, start: int, steps: int) -> None:
        self.folder, self.steps = folder, steps
        self.told, self.epoch = start, -1
        # where the last epoch begins, and the steps of one: unknown if resumed in the middle of it
        self.begun, self.length = (None if start else 0), 0

    def tell(self, done: int, epoch: int, images: int) -> None:
        """Report the pace of an epoch, at the first step of the next or the last of the run.

        Minutes an epoch are those of its whole length, as Table 2 of ROADMAP 2021 states them.

        Args:
            done: steps done.
            epoch: of the last of them, counted from 0.
            images: of a step.
        """
        if self.epoch not in (-1, epoch):
            self.length = self.length if self.begun is None else done - 1 - self.begun
            self.begun = done - 1
            self._tell(done - 1, images)
        self.epoch = epoch
        if done == self.steps:
            self._tell(done, images)

    def _tell(self, until: int, images: int) -> None:
        seconds = self.folder.seconds(self.told, until)
        if seconds["all"] < WORTH_TELLING_S and until < self.steps:
            return
        steps = until - self.told
        speed = images * steps / max(seconds["all"], 1e-9)
        shares = ", ".join(
            f"{part} {share_text(seconds[part] / max(seconds['all'], 1e-9))}" for part in PARTS
        )
        length = ""
        if self.length and seconds["all"] >= WORTH_TELLING_S:
            length = f"; an epoch takes {duration_text(seconds['all'] / steps * self.length)}"
        say(
            f"{self.folder.path.name}: epoch {self.epoch + 1}, step {until} of {self.steps}: "
            f"{speed:.3g} images/s; of the time {shares}{length}"
        )
        self.told = until
