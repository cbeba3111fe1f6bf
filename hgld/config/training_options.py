"""Options of training: the model, its batches, its augmentation, and the runs to compare."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, Tag, ValidationInfo, field_validator, model_validator

from hgld.config.option_types import (
    BackboneName,
    DeviceName,
    Options,
    RunName,
    ShardFolder,
    StartModel,
    files_of_models,
    is_run_name,
)
from hgld.words import nearest

LossName = Literal[
    "SmoothAP",
    "SmoothHAP",
    "SmoothRecall",
    "SupAP",
    "SupHAP",
    "SupNDCG",
    "SupRecall",
    "SoftBinAP",
    "BlackBoxAP",
    "BlackBoxRecall",
    "FastAP",
    "Triplet",
    "NormSoftmax",
    "ProxyNCA",
    "XBMContrastive",
    "PairCalibration",
    "PooledCalibration",
    "ROADMAP",
    "RODRecall",
    "RODNDCG",
    "HAPPIER",
    "CSL",
    "CLCD",
    "SupCon",
    "HiMulCon",
    "ProxyAnchor",
    "ArcFace",
    "SubCenterArcFace",
    "CosFace",
    "HierarchicalProxies",
    "SigmaTriplet",
    "SigmaNormSoftmax",
    "SigmaProxyNCA",
    "SigmaSupCon",
    "SigmaProxyAnchor",
    "SigmaArcFace",
    "SigmaSubCenterArcFace",
    "SigmaCosFace",
]


class RunOptions(Options):
    """One training run: everything in which two runs of a comparison may differ."""

    loss: LossName = "HAPPIER"
    """Class of hgld.ranking.losses, or a baseline."""
    init_from: StartModel = ""
    """Fine-tune: start from the final weights of this run, which trains first, or of a model's
    folder (a path such as ./NAME); proxies are drawn as always. Empty: from train.pretrained."""
    steps: int = Field(500, ge=0)
    """Optimiser steps; 0: measure the pretrained backbone, untrained."""
    lr: float = Field(1e-4, gt=0)
    """Learning rate of the backbone."""
    head_lr: float = Field(2e-4, gt=0)
    """Learning rate of the linear head; twice that of the backbone in the authors' code."""
    proxy_lr: float = Field(1e-2, gt=0)
    """Learning rate of the proxies (learned class vectors)."""
    weight_decay: float = Field(1e-4, ge=0)
    """Weight decay of backbone and head; 1e-4 in the authors' code for SOP and H-GLDv2."""
    loss_options: dict[str, float | bool | str | tuple[float, ...]] = Field(default_factory=dict)
    """Arguments of the loss: lam, alpha, tau, ... "level" chooses a level, 1 is the coarsest;
    "preset" fills in the rest: "paper", "text", "suprank_sop" or "suprank_inat"."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Optimiser of backbone and head; "sgd" has Nesterov momentum 0.9 (DyML)."""
    proxy_optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Optimiser of the proxies (authors' code: Adam)."""
    proxy_weight_decay: float = Field(0.0, ge=0)
    """Weight decay of the proxies."""
    schedule: Literal["cosine", "step", "constant"] = "cosine"
    """Schedule of all rates over the steps after the warm-up."""
    min_lr: float = Field(0.0, ge=0)
    """For cosine: last learning rate of backbone and head."""
    proxy_min_lr: float = Field(0.0, ge=0)
    """For cosine: last learning rate of the proxies."""
    milestones: tuple[int, ...] = ()
    """For step: steps after which the rates fall."""
    gamma: float = Field(0.3, gt=0)
    """For step: factor by which the rates fall."""
    warmup_steps: int = Field(0, ge=0)
    """First steps, in which the backbone is frozen (authors' code on SOP: 5 epochs)."""
    memory: int = Field(0, ge=0)
    """Embeddings of earlier batches that are further references (XBM); 0: none."""
    memory_start: int = Field(0, ge=0)
    """First steps, in which the memory is not used (authors' code: 5 epochs)."""
    memory_loss: Literal["joint", "mean"] = "joint"
    """"joint": one loss over batch and memory. "mean": the mean of that and of the loss over the
    batch alone (authors' code)."""

    @property
    def init_folder(self) -> Path | None:
        """The model's folder that ``init_from`` names; None: it names a run, or nothing."""
        folder = Path(self.init_from)
        return folder if folder.is_absolute() else None

    def scaled(self, times: float) -> Self:
        """Return these options with all counts of steps multiplied; a run keeps one step or more.

        Example:
            >>> run = RunOptions(steps=66_000, milestones=(19_800, 46_200)).scaled(128 / 384)
            >>> run.steps, run.milestones
            (22000, (6600, 15400))
        """
        counts = ("steps", "warmup_steps", "memory_start")
        changes: dict[str, Any] = {name: round(getattr(self, name) * times) for name in counts}
        changes["steps"] = max(changes["steps"], min(self.steps, 1))
        changes["milestones"] = tuple(round(step * times) for step in self.milestones)
        return self.model_copy(update=changes)


class SamplingOptions(Options):
    """The classes and images of a training batch, and how they are read."""

    operational: ClassVar[frozenset[str]] = frozenset({"reader", "folder", "cache_gb"})
    reader: Literal["indexed", "stream"] = "indexed"
    """"indexed": each image at its place. "stream": shards from front to back, from a slow disk, or
    from a URL without a cache; it needs order "shards" and gives the same batches."""
    folder: ShardFolder = None
    """Path or URL of a copy of the shards to read from, such as "s3://bucket/shards"; default: the
    shards of the work folder."""
    cache_gb: float = Field(20.0, ge=0)
    """For shards at a URL and the reader "indexed": size in GB of the cache on this machine's disk,
    which all its processes share; 0: no cache. HGLD_CACHE names its folder."""
    order: Literal["random", "shards", "combinations"] = "random"
    """"random": any image at any step. "shards": classes from the runs of the shards that are open,
    for disks that seek slowly. "combinations": as "random", and the batches_per_combination follow
    each other (RaMBO)."""
    window: int = Field(512, ge=1)
    """For order "shards": runs that are open at a time."""
    lanes: int = Field(1, ge=1)
    """For order "shards": parts of the shards that are read side by side. With as many lanes as
    processes of torchrun, the reader "stream" reads each byte once."""
    images_cap: int | None = Field(None, ge=2)
    """Most images of a class in an epoch (authors' code on H-GLDv2: 8); default: all."""
    groups_per_batch: int | None = Field(None, ge=1)
    """Supercategories in a batch, in equal parts (the paper on SOP: 2); default: any."""
    batches_per_combination: int | None = Field(None, ge=1)
    """Batches in an epoch of each combination of groups_per_batch supercategories (FastAP on SOP: 5
    of each pair); default: as many as the images fill, large supercategories more often."""
    small_classes: Literal["drop", "repeat"] = "drop"
    """Classes with fewer images than images_per_class: leave them out, or repeat their images."""

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        if self.reader == "stream" and self.order != "shards":
            raise ValueError('reader = "stream" needs order = "shards"')
        if self.batches_per_combination and (not self.groups_per_batch or self.order == "shards"):
            raise ValueError(
                'batches_per_combination needs groups_per_batch and the order "random" or '
                '"combinations"'
            )
        if self.order == "combinations" and not self.batches_per_combination:
            raise ValueError('order = "combinations" needs batches_per_combination')
        return self


def _require_rising(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] > ends[1]:
        raise ValueError("expected the least, then the largest")
    return ends


def require_crop_inside(crop: int | None, resized: "Size") -> None:
    """Refuse a crop that is larger than the photo, which torchvision would fill up with black.

    Args:
        crop: side of the square that is cut out; None: there is no crop.
        resized: short side, or (height, width), of the photo before the crop.

    Raises:
        ValueError: the crop is larger.
    """
    least = resized if isinstance(resized, int) else min(resized)
    if crop is not None and crop > least:
        raise ValueError(
            f"eval_crop is {crop}, but photos are resized to {least} before it, so that they would "
            f"get a black border; lower it, or set eval_resize to {crop} or more"
        )


Side = Annotated[int, Field(ge=1)]
Size = Annotated[Side, Tag("<side>")] | Annotated[tuple[Side, Side], Tag("<sides>")]
Positive = Annotated[float, Field(gt=0)]
Range = Annotated[tuple[Positive, Positive], AfterValidator(_require_rising)]


class AugmentationOptions(Options):
    """Random changes of a training photo; the result is a square of ``train.image_size``."""

    resize: Size | None = None
    """First resize to this short side, or to [height, width], in pixels (SOP: 256); smaller photos
    are enlarged. Default: no resize."""
    crop: bool = True
    """Cut out a random part; false: squeeze the whole photo into a square."""
    crop_scale: Range = (0.16, 1.0)
    """Least and largest share of the photo's area in a crop (authors' code)."""
    crop_ratio: Range = (0.75, 1.33)
    """Least and largest width by height of a crop (authors' code)."""
    flip: bool = True
    """Mirror half of the photos left to right."""


Seed = Annotated[int, Field(ge=0, lt=2**63)]


def _order_runs(starts: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return the names of runs and of those that they start from, which come first.

    Args:
        starts: name of each run -> value of its init_from, which is not validated yet.
        names: of the wanted runs.

    Raises:
        ValueError: a run starts from an unknown run, or from itself, also by way of others.

    Example:
        >>> _order_runs({"a": "b", "b": "", "c": None}, ["c", "a"])
        ['c', 'b', 'a']
    """
    ordered: dict[str, None] = {}
    for name in names:
        chain = [name]
        while is_run_name(start := starts[chain[-1]]):
            where = f"runs.{chain[-1]}.init_from"
            if start not in starts:
                raise ValueError(
                    f"{where}: unknown run {start!r}{nearest(start, starts)} (there are "
                    f"{', '.join(starts)}; a folder is a path such as ./{start})"
                )
            if start in chain:
                circle = " -> ".join([*chain[chain.index(start) :], start])
                raise ValueError(
                    f'{where}: {circle} leads back; name a run that trains before, or ""'
                )
            chain.append(start)
        ordered |= dict.fromkeys(reversed(chain))
    return list(ordered)


def _times_as_many_batches(info: ValidationInfo) -> float:
    """Batches that show as many images as one of ``steps_at_batch``; 1 if that is not given."""
    found = info.data  # an option with a fault is missing
    batch = found.get("classes_per_batch", 1) * found.get("images_per_class", 1)
    return float((found.get("steps_at_batch") or batch) / batch)


class TrainOptions(Options):
    """The model, its batches and the runs that train it."""

    operational: ClassVar[frozenset[str]] = frozenset(
        {"workers", "undecodable_budget", "device", "checkpoint_steps", "tensorboard", "only"}
        | {"steps_at_batch"}  # the counts of steps themselves decide
    )
    backbone: BackboneName = "resnet50"
    """A timm model, MODEL/FILE with a file of its weights, or offline:efficientnet-lite0."""
    pretrained: bool = True
    """Start from pretrained weights; false: from random ones."""
    dim: int = Field(512, ge=2)
    """Dimension D of an embedding."""
    image_size: int = Field(224, ge=32, lt=2**20)
    """Side in pixels of the square that the model sees in training."""
    pooling: Literal["default", "avg", "max", "gem", "token"] = "default"
    """Pooling of the last feature map: the backbone's own, mean, maximum, generalised mean with
    learned p, 3 at first ("gem"), or the class token of a ViT ("token"; DINOv3 as published)."""
    head_norm: Literal["layer_norm", "l2", "none"] = "layer_norm"
    """Normalisation of the pooled features, without learned weights (H-GLDv2: l2)."""
    head_init: Literal["random", "pca_whitening"] = "random"
    """First weights of the linear head; pca_whitening: from the pretrained features (H-GLDv2)."""
    head_init_images: int = Field(10_000, ge=2)
    """For pca_whitening: number of images, drawn by the seed."""
    freeze_batch_norm: bool | None = None
    """Keep the statistics of batch normalisation; default: only if they are pretrained (authors'
    code)."""
    augmentation: AugmentationOptions = AugmentationOptions()
    eval_resize: Size | None = None
    """In evaluation, first resize to this short side, or to [height, width], in pixels (SOP: [256,
    256]); smaller photos are enlarged. Default: squeeze the whole photo into a square of image_size
    (H-GLDv2)."""
    eval_crop: int | None = Field(None, ge=1)
    """Then cut out the centre, a square of this side in pixels (SOP: 224)."""
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    """Number format of the model; the loss is always in float32 (authors' code: fp16)."""
    micro_batch: int | None = Field(None, ge=1)
    """Images embedded at a time, for batches larger than the memory allows; gradients stay exact
    if batch-norm is frozen."""
    classes_per_batch: int = Field(64, ge=2)
    """Number P of classes in a batch of P x K images; the paper has 256 images."""
    images_per_class: int = Field(4, ge=2)
    """Number K of images of each class in a batch; the paper has 4."""
    steps_at_batch: int | None = Field(None, ge=1)
    """Images of the batch that the runs' steps, warmup_steps, milestones, memory_start and
    batches_per_combination are given for. With another batch they are scaled, so that a run sees as
    many images and the rates fall after as many. Default: they are used as they are."""
    batches: SamplingOptions = SamplingOptions()
    split: str = "train"
    """Split to train on."""
    seed: Seed = 0
    """Draws weights, batches and crops."""
    seeds: tuple[Seed, ...] = ()
    """Train every run once with each of these seeds, as NAME-s0, NAME-s1, ...; results are then
    means over the seeds. Empty: once, with seed."""
    workers: int = Field(0, ge=0)
    """Processes that read and decode photos; 0: the training process does."""
    undecodable_budget: int = Field(0, ge=0)
    """Undecodable images that a run tolerates; each is replaced by another image of its class."""
    device: DeviceName = "auto"
    """auto (a GPU if there is one), cpu or cuda."""
    checkpoint_steps: int = Field(100, ge=1)
    """Steps between two checkpoints, from which a stopped run resumes."""
    tensorboard: bool = False
    """Write curves to NAME/.tensorboard (needs hgld[tensorboard])."""
    defaults: RunOptions = RunOptions()
    """Options that all runs share."""
    runs: dict[RunName, RunOptions] = Field(
        default_factory=lambda: {"model": RunOptions()}, min_length=1
    )
    """Runs by name, each with the options in which it differs from train.defaults; default: one
    run, model."""
    only: tuple[RunName, ...] = ()
    """Train and evaluate these runs only, and those that they start from (init_from); empty: all.
    Models of other runs stay where they are."""

    @field_validator("batches")
    @classmethod
    def _scale_sampling(cls, batches: SamplingOptions, info: ValidationInfo) -> SamplingOptions:
        each = batches.batches_per_combination
        if each is None:
            return batches
        scaled = max(1, round(each * _times_as_many_batches(info)))
        return batches.model_copy(update={"batches_per_combination": scaled})

    @field_validator("runs")
    @classmethod
    def _scale_runs(
        cls, runs: dict[str, RunOptions], info: ValidationInfo
    ) -> dict[str, RunOptions]:
        times = _times_as_many_batches(info)
        return {name: run.scaled(times) for name, run in runs.items()}

    @model_validator(mode="before")
    @classmethod
    def _chosen(cls, values: Any) -> Any:
        """Leave out the runs that ``only`` does not name; put a run behind that it starts from."""
        if not isinstance(values, dict):
            return values
        runs, only = values.get("runs", {"model": {}}), values.get("only")
        if not isinstance(runs, dict):
            return values
        known = list(runs)  # a list, as a table or list among the names has no hash
        names = only if only and isinstance(only, list | tuple) else known
        for name in names:
            if name not in known:
                raise ValueError(
                    f"only: unknown run {name!r}{nearest(str(name), known)} (there are "
                    f"{', '.join(known)})"
                )
        starts = {
            name: run.get("init_from") if isinstance(run, dict) else getattr(run, "init_from", None)
            for name, run in runs.items()
        }
        return {**values, "runs": {name: runs[name] for name in _order_runs(starts, names)}}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if isinstance(self.eval_resize, int) and self.eval_crop is None:
            raise ValueError(
                "eval_resize of the short side alone leaves photos of many shapes; set eval_crop "
                "too, or eval_resize = [height, width]"
            )
        require_crop_inside(self.eval_crop, self.eval_resize or self.image_size)
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds names a seed twice")
        for name, run in self.runs.items():
            if run.init_from and not all(r.steps for r in (run, self.runs.get(run.init_from, run))):
                raise ValueError(
                    f"runs.{name}.init_from: {name if not run.steps else run.init_from} has 0 "
                    "steps, so it is the pretrained backbone, which has no head; set its steps, or "
                    f'init_from = "" for {name}'
                )
        names = [name for models in self.models().values() for name in models]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two models would be called {twice[0]}; rename the run of that name")
        return self

    def brought_paths(self) -> dict[str, Path]:
        """The file of the pretrained weights, if the backbone names one, and folders of models."""
        files = files_of_models({"backbone": f"timm:{self.backbone}"} if self.pretrained else {})
        starts = {f"runs.{name}.init_from": run.init_folder for name, run in self.runs.items()}
        return files | {name: folder for name, folder in starts.items() if folder is not None}

    def models(self) -> dict[str, dict[str, int]]:
        """Return the models of each run and their seeds.

        A run without steps learns nothing, so it has one model for all seeds.

        Example:
            >>> runs = {"a": RunOptions(), "pretrained": RunOptions(steps=0)}
            >>> TrainOptions(seeds=(0, 7), runs=runs).models()
            {'a': {'a-s0': 0, 'a-s7': 7}, 'pretrained': {'pretrained': 0}}
        """
        return {
            name: {f"{name}-s{seed}": seed for seed in self.seeds}
            if self.seeds and run.steps
            else {name: self.seed}
            for name, run in self.runs.items()
        }
