"""Models that can be evaluated: trained runs, checkpoints, pretrained models, given embeddings.

The key of a model contains everything that decides its embeddings (the hash of the weights, above
all), so that cached embeddings are reused as long as they are valid. Weights are loaded only when
an image has to be embedded.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from hgld.artifacts import hash_file
from hgld.config import TrainOptions
from hgld.errors import InvalidData, MissingWeights, UsageError
from hgld.model import build_image_model, load_model
from hgld.model.backbones import find_backbone, pretrained_view
from hgld.model.clip import find_clip, load_clip_tower
from hgld.model.image import evaluation_transform
from hgld.model.model_folder import CONFIG, LOSSES, check_model, models_by_run
from hgld.model.weights import split_name
from hgld.tasks import say
from hgld.words import nearest

__all__ = ["Encoder", "Model", "find_given", "find_models", "loaded"]

HELPS = "download them elsewhere and name the file"


@dataclass(frozen=True)
class Encoder:
    """Network and preprocessing that turn photos into unit vectors.

    Attributes:
        network: (B, 3, H, W) -> (B, D).
        transform: photo -> (3, H, W), the preprocessing of the network.
    """

    network: nn.Module
    transform: Callable[[Image.Image], Tensor]


@dataclass(frozen=True)
class Model:
    """One model of an evaluation.

    Attributes:
        name: in tables and files.
        kind: checkpoint, timm, open_clip or given.
        source: folder, name of the pretrained model, or file of embeddings.
        run: name shared by the models of several seeds; with one seed, equal to ``name``.
    """

    name: str
    kind: str
    source: str
    run: str

    def key(self) -> str:
        """Cache key of everything that decides the embeddings."""
        architecture = split_name(self.source)[0] if self.kind in ("timm", "open_clip") else ""
        facts = f"{self.kind} {architecture} {hash_file(self._decisive_file())}"
        return sha256(facts.encode()).hexdigest()

    def facts(self) -> dict[str, Any]:
        """Return loss, steps, backbone and hash of the weights, and how it was trained."""
        file = self._decisive_file()
        if self.kind == "checkpoint":
            config = json.loads(file.read_text(encoding="utf-8"))
            facts = {name: config.get(name) for name in ("loss", "steps", "backbone")}
            facts |= {"steps": facts["steps"] or 0, "weights_sha256": config["sha256"]}
            trained = ("seed", "split", "recipe") if facts["steps"] else ()
            return {**facts, **{name: config.get(name) for name in trained}}
        given = self.kind == "given"
        return {
            "loss": "given embeddings" if given else "pretrained",
            "steps": 0,
            "backbone": file.name if given else f"{self.kind}:{self.source}",
            "weights_sha256": hash_file(file),
        }

    def require(self) -> None:
        """Find the file of weights or embeddings; download the weights of a pretrained model.

        Raises:
            MissingWeights: the weights are neither local nor downloadable.
            UsageError: unknown architecture.
        """
        self._decisive_file()

    def load(self, device: torch.device) -> Encoder:
        """Return the model on a device, ready to embed."""
        if self.kind == "checkpoint":
            network = load_model(Path(self.source), device)
            return Encoder(network, evaluation_transform(network.config))
        with self._in_its_option():
            if self.kind == "open_clip":
                return Encoder(*load_clip_tower(self.source, self._decisive_file(), device))
            network = build_image_model(pretrained_view(self.source), head=False).eval().to(device)
            return Encoder(network, evaluation_transform(network.config))

    def _decisive_file(self) -> Path:
        """Return the file that names the others: a checkpoint's config.json names its weights."""
        if self.kind == "given":
            return Path(self.source)
        if self.kind == "checkpoint":
            return Path(self.source) / CONFIG
        with self._in_its_option():
            if self.kind == "open_clip":
                return find_clip(self.source, self._option, f"{HELPS}: open_clip:MODEL/FILE")
            file = find_backbone(TrainOptions(backbone=self.source))[1]
            assert file is not None  # a pretrained model has weights
            return file

    @property
    def _option(self) -> str:
        return f"evaluate.models.{self.name}"

    @contextmanager
    def _in_its_option(self) -> Iterator[None]:
        """Name the option of this stage in an error of a pretrained model, instead of train's."""
        try:
            yield
        except MissingWeights as error:
            what = str(error).partition("; set train.backbone")[0]
            what = what.replace("train.backbone", self._option)
            helps = "" if "open_clip:MODEL/FILE" in what else f"; {HELPS}: timm:MODEL/FILE"
            raise MissingWeights(what + helps) from None
        except UsageError as error:
            raise UsageError(str(error).replace("train.backbone", self._option)) from None


@lru_cache(maxsize=1)
def loaded(model: Model, key: str, device: torch.device) -> Encoder:
    """Return the loaded model; the cache keeps the last one for the next shard."""
    return model.load(device)


def find_models(wanted: Mapping[str, str], runs: Path) -> list[Model]:
    """Return the models that an evaluation names, or else all trained runs, in their order.

    A run that was trained with several seeds gives one model for each: NAME-s0, NAME-s1 ...

    Args:
        wanted: name -> ``run:NAME``, ``timm:MODEL``, ``open_clip:MODEL/PRETRAINED``,
            ``offline:MODEL``, or a path.
        runs: folder of the trained runs.

    Raises:
        MissingInput: nothing was trained.
        UsageError: no such run, or two models of one name.
        InvalidData: a path is neither a model's folder nor a file of embeddings; the files of a
            model were not saved together.
    """
    wanted = wanted or {run: f"run:{run}" for run in models_by_run(runs)}
    found = [model for name, text in wanted.items() for model in _find(name, text, runs)]
    names = [model.name for model in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"evaluate.models: two models would be called {twice[0]}; rename one")
    for model in found:
        if model.kind == "checkpoint":
            facts, losses = check_model(Path(model.source)), Path(model.source) / LOSSES
            if facts.get("metrics_sha256") and not losses.exists():  # not needed for embeddings
                say(f"{losses}: is missing; {model.name} is measured, but its losses are not drawn")
    return found


def find_given(wanted: Mapping[str, str]) -> list[Model]:
    """Return the models that an evaluation names, without trained runs.

    Raises:
        InvalidData: a path is neither a model's folder nor a file of embeddings.
    """
    given = {name: text for name, text in wanted.items() if not text.startswith("run:")}
    return [model for name, text in given.items() for model in _find(name, text, Path())]


def _find(name: str, text: str, runs: Path) -> list[Model]:
    kind, _, source = text.partition(":")
    if kind == "run":
        return _find_trained(name, source, runs)
    if kind in ("timm", "open_clip"):
        return [Model(name, kind, source, name)]
    if kind == "offline":  # a name of a backbone as in train.backbone
        return [Model(name, "timm", text, name)]
    path = Path(text)
    if path.is_file():
        return [Model(name, "given", text, name)]
    if not (path / CONFIG).is_file():
        raise InvalidData(
            f"evaluate.models.{name}: {path} is neither a model's folder (with config.json) nor a "
            "file of embeddings; expected run:NAME, timm:MODEL, open_clip:MODEL/PRETRAINED, "
            "offline:efficientnet-lite0 or a path"
        )
    return [Model(name, "checkpoint", text, name)]


def _find_trained(name: str, run: str, runs: Path) -> list[Model]:
    """Return the models of a run, or the one model of that name."""
    known = models_by_run(runs)
    known |= {model: [model] for models in known.values() for model in models}
    if run not in known:
        raise UsageError(
            f"evaluate.models.{name}: train has no run '{run}' (it has {', '.join(known)})"
            + nearest(run, known)
        )
    return [
        Model(name + model.removeprefix(run), "checkpoint", str(runs / model), name)
        for model in known[run]
    ]
