"""Models that can be evaluated: trained runs, checkpoints, pretrained models, given embeddings.

The key of a model contains everything that decides its embeddings (the hash of the weights, above
all), so that cached embeddings are reused as long as they are valid. Weights are loaded only when
an image has to be embedded; so are timm and torchvision, which take two seconds to import.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from hgld.artifacts import hash_file
from hgld.config import ModelOptions, TrainOptions, require_crop_inside, without_folders
from hgld.errors import InvalidData, MissingWeights, UsageError
from hgld.model.clip import LOCAL, find_clip, load_clip_tower
from hgld.model.custom import CustomNetwork, build_custom, custom_digest, custom_file
from hgld.model.model_folder import (
    CONFIG,
    LOSSES,
    WEIGHTS,
    ImageConfig,
    check_model,
    models_by_run,
)
from hgld.model.weights import split_name
from hgld.tasks import say
from hgld.words import nearest

if TYPE_CHECKING:
    from hgld.model import TextEncoder
    from hgld.model.transforms import ImageTransform

TEXT_KINDS = ("open_clip", "python")
HELPS = "download them elsewhere and name the file"
COMMAND_LINE = "--model"  # of the commands that search an evaluated set with one model
SOURCES = (
    "run:NAME, timm:MODEL, open_clip:MODEL/PRETRAINED, offline:efficientnet-lite0, "
    "python:FILE.py:FUNCTION or a path"
)


@dataclass(frozen=True)
class Encoder:
    """Network and preprocessing that turn photos into unit vectors.

    Attributes:
        network: (B, 3, H, W) -> (B, D).
        transform: photo -> (3, H, W), the preprocessing of the network.
        own_size: photos keep their size, so that a batch is one photo.
    """

    network: nn.Module
    transform: "ImageTransform"
    own_size: bool = False


@dataclass(frozen=True)
class Model:
    """One model of an evaluation.

    Attributes:
        name: in tables and files.
        kind: checkpoint, timm, open_clip, python or given.
        source: folder, name of the pretrained model, or file of embeddings.
        run: name shared by the models of several seeds; with one seed, equal to ``name``.
        file: of its weights, or config.json of a checkpoint; None: searched for when needed.
        options: preparation of the photos, if the pipeline file has a table for the model.
        option: what names the model, for errors: an option, or ``MODEL`` or ``--model`` of a
            command; empty: ``evaluate.models.NAME``.
        seed: that it was trained with, if the pipeline file says so.
    """

    name: str
    kind: str
    source: str
    run: str
    file: Path | None = None
    options: ModelOptions | None = None
    option: str = ""
    seed: int | None = None

    @property
    def preparation(self) -> dict[str, Any]:
        """Options of the photos that differ from those of the pretrained model."""
        return {} if self.options is None else self.options.preparation

    def key(self) -> str:
        """Cache key of everything that decides the embeddings."""
        # not the place of the weights: a copy in another folder has the same embeddings
        architecture, weights = "", ""
        if self.kind in ("timm", "open_clip"):
            architecture, weights = split_name(self.source)
        # A tag of open_clip says how photos are prepared; a file of the same weights does not.
        is_tag = self.kind == "open_clip" and not self.source.startswith(LOCAL)
        if is_tag and Path(weights) != self._decisive_file():
            architecture = self.source
        facts = f"{self.kind} {architecture} {self._digest()}"
        if self.kind == "python":
            facts += " one call at a time"  # earlier embeddings may be those of another photo
            # functions of one file may build networks of the same weights, such as two poolings
            facts += f" {self.source.rpartition(':')[2]}"
        if self.kind == "timm" and isinstance(self._own_view().eval_resize, tuple):
            facts += " squeezed and cropped"  # earlier embeddings are of the whole photo
        if self.preparation:
            facts += f" {json.dumps(self.preparation, sort_keys=True)}"
        return sha256(facts.encode()).hexdigest()

    def _own_view(self) -> TrainOptions:
        """Options that prepare photos for a timm model as it expects them."""
        from hgld.model.backbones import pretrained_view

        with self._in_its_option():
            return pretrained_view(self.source, self.preparation.get("image_size"))

    def _view(self) -> TrainOptions:
        """The same with the options of the model's table."""
        names = {"pooling", "eval_resize", "eval_crop"}
        own = {name: value for name, value in self.preparation.items() if name in names}
        view = self._own_view().model_copy(update=own)
        if own.keys() - {"pooling"}:
            try:
                require_crop_inside(view.eval_crop, view.eval_resize or view.image_size)
            except ValueError as error:
                raise UsageError(f"{self.option_name}: {error}") from None
        return view

    def _digest(self) -> str:
        if self.kind == "python":
            with self._in_its_option():
                return custom_digest(self.source)
        file = self._decisive_file()
        files = [file, *self._beside(file)]
        if len(files) == 1:
            return hash_file(file)
        return sha256(
            " ".join(f"{one.name} {hash_file(one)}" for one in files).encode()
        ).hexdigest()

    def facts(self) -> dict[str, Any]:
        """Return loss, steps, backbone and hash of the weights, and how it was trained."""
        facts: dict[str, Any]
        if self.kind == "checkpoint":
            config = json.loads(self._decisive_file().read_text(encoding="utf-8"))
            facts = {name: config.get(name) for name in ("loss", "steps", "backbone")}
            facts |= {"steps": facts["steps"] or 0, "weights_sha256": config["sha256"]}
            trained = ("seed", "split", "recipe") if facts["steps"] else ()
            facts |= {name: config.get(name) for name in trained}
        else:
            loss, backbone = "pretrained", without_folders(f"{self.kind}:{self.source}")
            if self.kind == "python":  # a path would differ from machine to machine
                loss, backbone = "given network", f"python:{Path(self.source).name}"
            elif self.kind == "given":
                loss, backbone = "given embeddings", Path(self.source).name
            own = self.kind == "python"
            digest = self._digest() if own else hash_file(self._decisive_file())
            facts = {"loss": loss, "steps": 0, "backbone": backbone, "weights_sha256": digest}
        if self.seed is not None:
            facts["seed"] = self.seed
        return facts | ({"preparation": self.preparation} if self.preparation else {})

    def require(self) -> None:
        """Find the file of weights or embeddings; download the weights of a pretrained model.

        Raises:
            MissingWeights: the weights are neither local nor downloadable.
            UsageError: unknown architecture, a function that builds no network, or a crop that is
                larger than the photo.
        """
        if self.kind == "python":
            self._digest()
        else:
            self._decisive_file()  # a hash of gigabytes of weights is for the evaluation itself
        if self.kind == "timm":
            self._view()

    def located(self) -> "Model":
        """Return the model with its file, so that another machine need not search for it."""
        # each machine has a package, or an installed module
        is_module = self.kind == "python" and custom_file(self.source) is None
        packaged = is_module or self.source.startswith("offline:")
        return self if packaged else replace(self, file=self._decisive_file())

    def files(self) -> list[Path]:
        """Files from which a located model is loaded."""
        if self.file is None:
            return []
        if self.kind == "checkpoint":
            return [self.file, self.file.with_name(WEIGHTS)]
        return [self.file, *self._beside(self.file)]

    def _beside(self, file: Path) -> list[Path]:
        """Configuration and tokenizer, which open_clip reads from the folder of the weights."""
        return sorted(file.parent.glob("*.json")) if self.source.startswith(LOCAL) else []

    def moved(self, place: Callable[[Path], Path]) -> "Model":
        """Return the model as it is loaded from copies of its files, each at ``place(file)``."""
        if self.file is None:
            return self
        file, source = place(self.file), self.source
        if self.kind == "checkpoint":
            source = str(file.parent)
        elif self.kind == "timm":
            source = f"{split_name(source)[0]}/{file}"
        elif self.kind == "python":
            source = f"{file}:{source.rpartition(':')[2]}"
        elif source.startswith(LOCAL):
            source = f"{LOCAL}{file.parent}"
        return replace(self, source=source, file=file)

    def load(self, device: torch.device) -> Encoder:
        """Return the model on a device, ready to embed."""
        from hgld.model.image import MultiScale, build_image_model, load_model
        from hgld.model.transforms import evaluation_transform, own_size_transform

        given = self.preparation
        max_side, scales = given.pop("max_side", None), given.pop("scales", (1.0,))

        def encoder(network: nn.Module, config: ImageConfig) -> Encoder:
            if max_side is None:
                return Encoder(network, evaluation_transform(config))
            return Encoder(MultiScale(network, scales), own_size_transform(config, max_side), True)

        if self.kind == "checkpoint":
            trained = load_model(Path(self.source), device, any_size=max_side is not None)
            return encoder(trained, trained.config)
        with self._in_its_option():
            if self.kind == "open_clip":
                file = self._decisive_file()
                return Encoder(*load_clip_tower(self.source, file, device, **given))
            if self.kind == "python":
                built, transform = build_custom(self.source)
                if transform is None:
                    return encoder(built.to(device), _imagenet_config(given))
                if self.preparation:
                    raise UsageError(
                        f"{self.option_name}: {self.source} returns its own transform, so that "
                        f"{', '.join(self.preparation)} would change nothing; delete them here"
                    )
                return Encoder(built.to(device), transform)
            own = ("mean", "std", "interpolation")
            look: dict[str, Any] = {name: given[name] for name in own if name in given}
            view, any_size = self._view(), max_side is not None
            network = build_image_model(view, head=False, preparation=look, any_size=any_size)
            return encoder(network.eval().to(device), network.config)

    def load_text(self, device: torch.device) -> "TextEncoder | CustomNetwork":
        """Return the model's encoder of texts.

        Raises:
            UsageError: it embeds no texts.
        """
        if self.kind not in TEXT_KINDS:
            raise UsageError(
                f"{self.option_name}: {self.kind}:{self.source} embeds no texts, so that names "
                "cannot query; take open_clip:MODEL/PRETRAINED, python: or given embeddings of "
                "the names"
            )
        with self._in_its_option():
            if self.kind == "python":
                return build_custom(self.source)[0].to(device)
            from hgld.model import load_text_encoder  # imports transformers

            return load_text_encoder(self.source, str(device))

    def _decisive_file(self) -> Path:
        """Return the file that names the others: a checkpoint's config.json names its weights."""
        if self.file is not None:
            return self.file
        if self.kind == "given":
            return Path(self.source)
        if self.kind == "checkpoint":
            return Path(self.source) / CONFIG
        if self.kind == "python":
            file = custom_file(self.source)
            assert file is not None  # a module is not located
            return file
        with self._in_its_option():
            if self.kind == "open_clip":
                return find_clip(self.source, self.option_name, f"{HELPS}: open_clip:MODEL/FILE")
            from hgld.model.backbones import find_backbone

            file = find_backbone(TrainOptions(backbone=self.source))[1]
            assert file is not None  # a pretrained model has weights
            return file

    @property
    def option_name(self) -> str:
        """The option that names the model."""
        return self.option or f"evaluate.models.{self.name}"

    @property
    def stage(self) -> str:
        """The stage that embeds with the model."""
        at_hand = self.option in ("", COMMAND_LINE)
        return "evaluate" if at_hand else self.option.partition(".")[0]

    @contextmanager
    def _in_its_option(self) -> Iterator[None]:
        """Name the option of this stage in an error of a pretrained model, instead of train's."""
        try:
            yield
        except MissingWeights as error:
            what = str(error).partition("; set train.backbone")[0]
            what = what.replace("train.backbone", self.option_name).partition(
                "; set embed.encoder"
            )[0]
            family = "open_clip" if self.kind == "open_clip" else "timm"
            helps = "" if f"{family}:MODEL/FILE" in what else f"; {HELPS}: {family}:MODEL/FILE"
            raise MissingWeights(what + helps) from None
        except UsageError as error:
            own = f"{self.option_name}: {error}" if self.kind == "python" else str(error)
            for option in ("train.backbone", "train.pooling", "embed.encoder"):
                own = own.replace(option, self.option_name)
            raise UsageError(own) from None


@lru_cache(maxsize=1)
def loaded(model: Model, key: str, device: torch.device) -> Encoder:
    """Return the loaded model; the cache keeps the last one for the next shard."""
    return model.load(device)


def _imagenet_config(given: Mapping[str, Any]) -> ImageConfig:
    """Preparation for a network that names none: 224 pixels, bicubic, ImageNet's statistics."""
    from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

    own = {"mean": IMAGENET_DEFAULT_MEAN, "std": IMAGENET_DEFAULT_STD}
    return ImageConfig(
        backbone="",
        architecture="",
        dim=None,
        freeze_batch_norm=False,
        pretrained_sha256="",
        **{**own, "image_size": 224, "interpolation": "bicubic", **given},
    )


def find_models(
    wanted: Mapping[str, str | ModelOptions], runs: Path, option: str = ""
) -> list[Model]:
    """Return the models that an evaluation names, or else all trained runs, in their order.

    A run that was trained with several seeds gives one model for each: NAME-s0, NAME-s1 ...

    Args:
        wanted: name -> ``run:NAME``, ``timm:MODEL``, ``open_clip:MODEL/PRETRAINED``,
            ``offline:MODEL``, ``python:FILE.py:FUNCTION``, a path, or options with such a source.
        runs: folder of the trained runs.
        option: as of ``Model``.

    Raises:
        MissingInput: nothing was trained.
        UsageError: no such run, or two models of one name.
        InvalidData: a path is neither a model's folder nor a file of embeddings; the files of a
            model were not saved together.
    """
    wanted = wanted or {run: f"run:{run}" for run in models_by_run(runs)}
    found = [model for name, text in wanted.items() for model in _find(name, text, runs, option)]
    names = [model.name for model in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"evaluate.models: two models would be called {twice[0]}; rename one")
    for model in found:
        if model.kind == "checkpoint":
            facts, losses = check_model(Path(model.source)), Path(model.source) / LOSSES
            if facts.get("metrics_sha256") and not losses.exists():  # not needed for embeddings
                say(f"{losses}: is missing; {model.name} is measured, but its losses are not drawn")
    return found


def find_given(wanted: Mapping[str, str | ModelOptions], option: str = "") -> list[Model]:
    """Return the models that an evaluation, or another option, names, without trained runs.

    Args:
        wanted: as ``find_models``.
        option: as of ``Model``.

    Raises:
        InvalidData: a path is neither a model's folder nor a file of embeddings.
    """
    sources = {n: one if isinstance(one, str) else one.source for n, one in wanted.items()}
    given = [name for name, source in sources.items() if not source.startswith("run:")]
    return [model for name in given for model in _find(name, wanted[name], Path(), option)]


def _find(name: str, wanted: str | ModelOptions, runs: Path, option: str = "") -> list[Model]:
    if isinstance(wanted, ModelOptions) and wanted.seeds:
        own = zip(wanted.seeds, wanted.by_name(name).items(), strict=True)
        each = [(seed, model) for seed, one in own for model in _find(*one, runs, option)]
        return [replace(model, run=name, seed=seed) for seed, model in each]
    text = wanted if isinstance(wanted, str) else wanted.source
    options = None if isinstance(wanted, str) or not wanted.preparation else wanted
    kind, _, source = text.partition(":")
    found = Model(name, kind, source, name, options=options, option=option)
    if kind == "run":
        known = models_by_run(runs)
        known |= {model: [model] for models in known.values() for model in models}
        if source not in known:
            raise UsageError(
                f"{found.option_name}: train has no run '{source}' (it has {', '.join(known)})"
                + nearest(source, known)
            )
        return [
            replace(
                found,
                name=name + model.removeprefix(source),
                kind="checkpoint",
                source=str(runs / model),
            )
            for model in known[source]
        ]
    if kind in ("timm", "open_clip", "python"):
        return [found]
    if kind == "offline":  # a name of a backbone as in train.backbone
        return [replace(found, kind="timm", source=text)]
    path = Path(text)
    if path.is_file():
        if options is not None:
            raise UsageError(f"{found.option_name}: {path} holds embeddings; delete max_side")
        return [replace(found, kind="given", source=text)]
    if not (path / CONFIG).is_file():
        raise InvalidData(
            f"{found.option_name}: {path} is neither a model's folder (with config.json) nor a "
            f"file of embeddings; expected {SOURCES}"
        )
    return [replace(found, kind="checkpoint", source=text)]
