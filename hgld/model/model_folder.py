"""Files of trained models: the list of runs, and the check that a model is complete and unchanged.

``runs.json`` lists the runs of the pipeline, in its order. Folders with other names are ignored:
they are models of earlier options, or the user's own.

A model's ``config.json`` has the SHA-256 of its weights and, if it was trained, of its losses; a
seal over the whole document detects any later change. A model folder can therefore be verified
after it was copied anywhere. It includes the preparation of photos: a model is evaluated as it was
trained, even if the pipeline has other options by then.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from hgld.artifacts import Json, hash_file, named_in_errors, require_file, write_file
from hgld.config import Size
from hgld.errors import InvalidData, MissingInput

RUNS, CONFIG, WEIGHTS, LOSSES = "runs.json", "config.json", "model.safetensors", "metrics.jsonl"
SEALED = 2  # the first format whose config.json always has a seal
RESTORE = "restore it from a copy, or delete the model's folder and train again"


@dataclass(frozen=True)
class ImageConfig:
    """Everything needed to rebuild a model, except its weights.

    Attributes:
        backbone: as the pipeline names it.
        architecture: timm's name.
        dim: outputs of the linear head; None: no head.
        freeze_batch_norm: keep the pretrained statistics during training, as the papers do; a
            backbone with random weights has none to keep.
        pretrained_sha256: of the file of pretrained weights; empty: random.
        pooling: of the backbone's features: default (its own), avg, max, gem or token.
        head_norm: between pooling and head: layer_norm, l2 or none.
        eval_resize: short side, or (height, width); None: a square of image_size.
        eval_crop: side of the centre crop that follows; None: no crop.
    """

    backbone: str
    architecture: str
    dim: Annotated[int, Field(ge=1, le=65536)] | None
    image_size: Annotated[int, Field(ge=1, le=16384)]
    mean: tuple[float, ...]
    std: tuple[Annotated[float, Field(gt=0)], ...]
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
    freeze_batch_norm: bool
    pretrained_sha256: str
    pooling: Literal["default", "avg", "max", "gem", "token"] = "default"
    head_norm: Literal["layer_norm", "l2", "none"] = "layer_norm"
    eval_resize: Size | None = None
    eval_crop: Annotated[int, Field(ge=1)] | None = None


def models_by_run(models: Path) -> dict[str, list[str]]:
    """Models of each trained run, one per seed, in the order of the pipeline file.

    Raises:
        InvalidData: ``runs.json`` is damaged.
        MissingInput: there is no ``runs.json``.
    """
    path = models / RUNS
    if not path.is_file():
        raise MissingInput(f"{models}: holds no model; run train first")
    found = Json(RUNS, keys=("runs",)).read(path)
    names, seeds = found["runs"], found.get("seeds", {})
    listed = isinstance(seeds, dict) and all(isinstance(own, list) for own in seeds.values())
    if not isinstance(names, list) or not listed:
        raise InvalidData(f"{path}: 'runs' is no list of names; run train again")
    run_of = {model: run for run, own in seeds.items() for model in own}
    # A dict keeps the order and merges the models of a run with several seeds.
    runs_in_order = dict.fromkeys(run_of.get(str(name), str(name)) for name in names)
    return {run: seeds.get(run, [run]) for run in runs_in_order}


def run_names(models: Path) -> list[str]:
    """Names of all trained models.

    Raises:
        InvalidData: ``runs.json`` is damaged.
        MissingInput: there is no ``runs.json``.
    """
    return [str(name) for own in models_by_run(models).values() for name in own]


def parse_record(line: bytes) -> dict[str, Any]:
    """Parse a line of ``metrics.jsonl``, the measurements of a step; empty if it is damaged."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def hash_weights(folder: Path | None) -> str:
    """SHA-256 of the weights in a model's folder; empty: there are none."""
    path = None if folder is None else folder / WEIGHTS
    return hash_file(path) if path is not None and path.is_file() else ""


def write_config(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write ``config.json`` with the facts, the hashes of the other files and the seal."""
    losses = folder / LOSSES
    hashes = {"sha256": hash_file(folder / WEIGHTS)}
    if losses.is_file():
        hashes["metrics_sha256"] = hash_file(losses)
    document = {**facts, **hashes, "format": SEALED}
    document["seal"] = _seal(document)  # over everything else, so any later edit shows
    write_file(folder / CONFIG, json.dumps(document, indent=1, sort_keys=True) + "\n")


def check_model(folder: Path) -> dict[str, Any]:
    """Return the facts of a model after checking that its files were saved together.

    A ``config.json`` written by hand has no seal; then only the weights are compared.

    Raises:
        InvalidData: a file is missing, unreadable or changed.
    """
    path, facts = folder / CONFIG, None
    if not path.exists():
        raise InvalidData(f"{path}: no such file, so the run is not finished; run train again")
    require_file(path)
    with suppress(ValueError, RecursionError), named_in_errors(path):
        facts = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(facts, dict):
        raise InvalidData(f"{path}: not the config.json of a model; {RESTORE}")
    unsealed = "seal" not in facts and "format" not in facts
    if not unsealed and facts.get("seal") != _seal(facts):
        raise InvalidData(f"{folder / CONFIG}: was changed since the model was saved; {RESTORE}")
    if not (folder / WEIGHTS).is_file():
        raise InvalidData(f"{folder / WEIGHTS}: no such file; {RESTORE}")
    named = {WEIGHTS: facts.get("sha256"), LOSSES: facts.get("metrics_sha256")}
    # Losses are optional: a pretrained model has none.
    for path in (folder / name for name, digest in named.items() if digest or name == WEIGHTS):
        if path.exists() and hash_file(path) != named[path.name]:
            raise InvalidData(f"{path}: is not the file that {CONFIG} was written for; {RESTORE}")
    return facts


def _seal(facts: Mapping[str, Any]) -> str:
    others = {name: value for name, value in facts.items() if name != "seal"}
    return sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()
