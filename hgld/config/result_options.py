"""Options of the stages that measure models and show the results: evaluate, report, publish."""

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from hgld.config.option_types import (
    SEED,
    DeviceName,
    ModelName,
    Options,
    RayAddress,
    RayAmount,
    RunName,
    files_of_models,
)
from hgld.config.training_options import Positive, Seed, Size, require_crop_inside


class ModelOptions(Options):
    """A model to evaluate, with the preparation of its photos; a text is its source alone.

    Trained runs and model folders are evaluated as they were trained, or at the photos' own size.
    """

    source: ModelName
    """"run:NAME" of train, "timm:MODEL", "timm:MODEL/FILE", "open_clip:MODEL/PRETRAINED",
    "open_clip:MODEL/FILE", "offline:efficientnet-lite0", a model's folder, a file of embeddings
    with image ids (.npz, .parquet), or "python:FILE.py:FUNCTION" or "python:MODULE:FUNCTION", whose
    code is run."""
    seeds: tuple[Seed, ...] | None = None
    """Seeds that a model was trained with elsewhere. Each gives a model, NAME-s0, NAME-s1, ..., in
    whose source it replaces {seed}; results are then means over the seeds."""
    image_size: int | None = Field(None, ge=1, le=16384)
    """Side in pixels of the photos; default: that of the pretrained model, 224 for python."""
    pooling: Literal["default", "avg", "max", "gem", "token"] | None = None
    """Pooling of a timm model, as in train.pooling; "token" is DINOv2 and DINOv3 as published."""
    eval_resize: Size | None = None
    """First resize to this short side, or to [height, width], in pixels; default: as the pretrained
    model, for python a square of image_size. Not for open_clip."""
    eval_crop: int | None = Field(None, ge=1)
    """Then cut out the centre, a square of this side in pixels; default: as the pretrained model,
    no crop for python. Not for open_clip."""
    interpolation: Literal["bilinear", "bicubic"] | None = None
    """Interpolation of the resize; default: as the pretrained model, bicubic for python."""
    mean: tuple[float, float, float] | None = None
    """Mean of red, green and blue (0 to 1) that is subtracted; default: as the pretrained model,
    ImageNet's for python."""
    std: tuple[Positive, Positive, Positive] | None = None
    """Standard deviation by which the difference is divided."""
    max_side: int | None = Field(None, ge=16, le=16384)
    """Embed each photo at its own size, one at a time, after it was shrunk to this longer side in
    pixels if it is larger; 1024 for landmarks (Radenovic et al. 2019). Not for open_clip."""
    scales: tuple[Annotated[float, Field(gt=0, le=8)], ...] | None = Field(None, min_length=1)
    """With max_side: factors of this size whose unit vectors are averaged; [0.7071, 1, 1.4142] is
    multi-scale testing of landmarks. Default: [1]."""

    @property
    def preparation(self) -> dict[str, Any]:
        """The options that are set beside the source."""
        return self.model_dump(mode="python", exclude={"source", "seeds"}, exclude_none=True)

    def by_name(self, name: str) -> "dict[str, ModelOptions]":
        """Return the model of each seed by its name; without seeds this one under the given name.

        Example:
            >>> found = ModelOptions(source="/a-{seed}.npz", seeds=(0, 7)).by_name("a")
            >>> {name: model.source for name, model in found.items()}
            {'a-s0': '/a-0.npz', 'a-s7': '/a-7.npz'}
        """
        if not self.seeds:
            return {name: self}
        sources = {seed: self.source.replace(SEED, str(seed)) for seed in self.seeds}
        return {
            f"{name}-s{seed}": self.model_copy(update={"source": source, "seeds": None})
            for seed, source in sources.items()
        }

    @model_validator(mode="after")
    def _fits_the_source(self) -> Self:
        seeds = list(self.seeds or ())
        if (SEED in self.source) != bool(seeds) or len(set(seeds)) < len(seeds):
            raise ValueError(
                f"source is {self.source} and seeds are {seeds}; seeds, each once, and "
                f"{SEED} in the source need each other"
            )
        own_size = {"max_side", "scales"}
        allowed = {
            "timm": set(type(self).model_fields),
            "offline": set(type(self).model_fields),
            "python": set(type(self).model_fields) - {"pooling"},
            "open_clip": {"image_size", "interpolation", "mean", "std"},
        }.get(self.source.partition(":")[0], own_size)
        if wrong := [name for name in self.preparation if name not in allowed]:
            raise ValueError(
                f"{wrong[0]} is not for {self.source}: "
                + (
                    f"it takes {', '.join(sorted(allowed - {'source'}))}"
                    if allowed != own_size
                    else "a trained model takes max_side and scales, given embeddings nothing"
                )
            )
        if self.scales is not None and self.max_side is None:
            raise ValueError("scales needs max_side, the size that they multiply")
        resized = self.eval_resize
        if self.source.startswith("python:"):
            resized = resized or self.image_size or 224
        if resized is not None:
            require_crop_inside(self.eval_crop, resized)
        given = self.preparation
        if self.max_side and (crop := given.keys() & {"image_size", "eval_resize", "eval_crop"}):
            raise ValueError(f"max_side keeps the size of a photo; delete {min(crop)}")
        return self


# Errors show these tags as parts of an option's name; messages leave them out.
ModelChoice = Annotated[
    Annotated[ModelName, Tag("<text>")] | Annotated[ModelOptions, Tag("<table>")],
    Discriminator(lambda model: "<text>" if isinstance(model, str | Path) else "<table>"),
]


class EvaluateOptions(Options):
    """Queries, gallery, models and metrics."""

    operational: ClassVar[frozenset[str]] = frozenset(
        {
            "batch_size",
            "workers",
            "device",
            "processes",
            "ray",
            "cpus_per_task",
            "gpus_per_task",
            "memory_gb_per_task",
        }
    )
    protocol: Literal["auto", "all-vs-all", "query-gallery", "gldv2-paper", "gldv2-official"] = (
        "auto"
    )
    """"all-vs-all": each image queries all others of its split (open set). "query-gallery": one
    split against another. "auto" chooses between these two. "gldv2-paper": test against index,
    labelled landmarks only, as in the paper. "gldv2-official": that, and mAP@100 on the full index
    by the official answers."""
    query: str = "evaluation"
    """Split of the queries, or several, "A+B". A query is never searched among itself."""
    queries: Literal["images", "names"] = "images"
    """"names": the names of the classes of the query split search the photos of the gallery, with
    models that embed texts (open_clip, python, or given embeddings of the names)."""
    name_level: str | None = None
    """For names: their level; default: the finest, by the names of landmarks.csv."""
    prompts: tuple[str, ...] = ("a photo of a {}",)
    """For names: texts with {} for the name; of several the mean embedding queries (CLIP)."""
    gallery: str = "evaluation"
    """Split of the gallery. The same as query: all against all. "QUERY+OTHER": the queries search
    among themselves and distractors (DyML)."""
    models: dict[RunName, ModelChoice] = Field(default_factory=dict)
    """Models by name: a source such as "run:NAME" or "timm:MODEL", or a table with it and the
    preparation of photos. Default: all runs. Without any run here and without a section [train],
    nothing is trained."""
    metrics: tuple[str, ...] | None = None
    """Metrics by name; default: H-AP, NDCG, ASI, AP of each level, R@1 and mAP@100 of the finest
    level."""
    mean_over: str | None = None
    """Level whose classes count equally in a second mean of each metric, as `R@1 over domain`
    (UnED's mean over its domains)."""
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    """Precision of the network's layers that allow it (autocast); fp16 needs a GPU. Scores and
    metrics are always computed from float32 vectors."""
    keep_ranks: int = Field(1000, ge=100)
    """First ranks of each query whose levels are kept in `ranked_levels`; metrics and curves are
    measured over all ranks."""
    batch_size: int = Field(64, ge=1)
    """Photos embedded at a time on a GPU; a CPU takes a few for each thread."""
    workers: int = Field(0, ge=0)
    """Processes that read and decode photos for a GPU."""
    device: DeviceName = "auto"
    """Device that embeds and ranks: auto (a GPU if there is one), cpu or cuda."""
    processes: int = Field(1, ge=1)
    """Processes that embed and, for a large gallery, rank; with GPUs, each uses one of them."""
    ray: RayAddress | None = None
    """Address of a Ray cluster that embeds and ranks; auto: this machine's."""
    cpus_per_task: RayAmount = Field(1.0, gt=0)
    """Cores of the Ray cluster that a task reserves."""
    gpus_per_task: float | None = Field(None, ge=0)
    """GPUs of the Ray cluster that a task reserves, a whole number; below 1, tasks share one.
    Default: 1 for the device cuda, 0 for cpu; for auto 1 if the cluster has a GPU."""
    memory_gb_per_task: float = Field(0.0, ge=0)
    """Memory in GB that a task reserves on its node of the Ray cluster; 0: none."""

    @model_validator(mode="before")
    @classmethod
    def _fill_splits(cls, values: Any) -> Any:
        """Fill in the splits that GLDv2's protocols imply."""
        if isinstance(values, dict) and str(values.get("protocol")).startswith("gldv2"):
            return {"query": "test", "gallery": "index", **values}
        return values

    @model_validator(mode="after")
    def _fits_the_protocol(self) -> Self:
        sides = self.query, self.gallery
        if self.queries == "names":
            self._names_fit()
        elif self.name_level is not None:
            raise ValueError('name_level is for queries = "names"')
        self._is_each_split_once()
        if self.protocol.startswith("gldv2") and sides != ("test", "index"):
            found = " against ".join(sides)
            raise ValueError(f"{self.protocol} is test against index, not {found}")
        if self.protocol == "all-vs-all" and self.query != self.gallery:
            raise ValueError("all-vs-all needs one split as query and as gallery")
        if self.protocol == "query-gallery" and self.query == self.gallery:
            raise ValueError("query-gallery needs two splits; one against itself is all-vs-all")
        gpus = self.gpus_per_task or 0
        if (gpus > 1 and gpus % 1) or round(gpus, 4) != gpus:
            raise ValueError(
                f"gpus_per_task is {gpus:g}; Ray reserves whole GPUs, or a share of one with four "
                "decimals at most"
            )
        if self.ray is not None and self.device.startswith("cuda:"):
            raise ValueError(
                f"device is {self.device}, but Ray chooses the GPUs of its tasks; expected cuda"
            )
        return self

    def _is_each_split_once(self) -> None:
        """Refuse a query photo that is in the gallery, but not where it is left out."""
        query, gallery = self.query.split("+"), self.gallery.split("+")
        shared = 0 if self.queries == "names" else len({*query} & {*gallery})
        is_unique = len({*query}) == len(query) and len({*gallery}) == len(gallery)
        if query[:shared] != gallery[:shared] or not is_unique:
            raise ValueError(
                f"query '{self.query}' against gallery '{self.gallery}' has a split twice, so that "
                "its images would find themselves; write each split once a side, those of both "
                'sides first: query "A+B", gallery "A+C"'
            )

    def _names_fit(self) -> None:
        if self.protocol != "auto":
            raise ValueError(f"{self.protocol} is about photos; names query under protocol auto")
        wrong = [text for text in self.prompts if text.count("{}") != 1]
        if wrong or not self.prompts:
            raise ValueError(f"prompts: expected texts with one {{}} each, not {wrong}")
        for name, source in self.sources.items():
            if source.partition(":")[0] in ("run", "timm", "offline"):
                raise ValueError(
                    f"models.{name}: {source} embeds no texts, so that names cannot query"
                )
        if not self.models:
            raise ValueError("names need models that embed texts; name them in evaluate.models")

    def brought_paths(self) -> dict[str, Path]:
        """Folders and files among the models."""
        return files_of_models({f"models.{name}": source for name, source in self.sources.items()})

    @property
    def sources(self) -> dict[str, str]:
        """The source of each model by name."""
        found = dict[str, str]()
        for name, model in self.models.items():
            if isinstance(model, str):
                found[name] = model
            else:
                found |= {own: one.source for own, one in model.by_name(name).items()}
        return found


class ReportOptions(Options):
    """Contents of the report."""

    grid_queries: int = Field(6, ge=0)
    """Queries that are shown with their first images."""
    grid_images: int = Field(6, ge=1)
    """Images that are shown of each query's ranking."""
    compared: tuple[str, str] | None = None
    """Two models that are shown side by side for the same queries; default: the best, and the best
    of another run."""
    compared_queries: int = Field(3, ge=0)
    """Queries that are shown for both of these models."""
    vector_figures: tuple[Literal["svg", "pdf"], ...] = ("svg", "pdf")
    """Formats of each figure beside PNG."""
    bootstrap: Literal["auto", "classes", "queries"] = "auto"
    """Unit that the intervals draw: "classes" with all their queries, or "queries". "auto": classes
    if no model was trained on a class of the queries (open set)."""

    @model_validator(mode="after")
    def _compares_two(self) -> Self:
        if self.compared is not None and len(set(self.compared)) < 2:
            raise ValueError(f"compared names {self.compared[0]} twice; name two models")
        return self


class PublishOptions(Options):
    """The release folder."""

    name: Annotated[str, StringConstraints(strip_whitespace=True)] = ""
    """Name of the release; empty: no release is made."""
    version: str = Field("1.0.0", pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")
    """major.minor.patch: raise major if labels changed, minor if there are more, patch if the same
    ones are written again."""
    parts: Literal["labels", "labels+shards"] = "labels"
    """labels need no image; shards are released with the authors and licences of their images."""
    license: str = ""
    """Licence of the labels, as Hugging Face names it; empty: cc-by-4.0 for landmarks."""
    creators: tuple[Annotated[str, StringConstraints(strip_whitespace=True)], ...] = ()
    """Names of those who release; empty: those who decided."""
    url: str = Field("", pattern=r"^(https?://\S+)?$")
    """Web page of the release; empty: its own card."""

    @model_validator(mode="after")
    def _fits_a_card(self) -> Self:
        if not re.fullmatch(r"[a-z0-9.-]*", self.license):
            raise ValueError(
                f"license is {self.license!r}; expected Hugging Face's name of one, as cc-by-4.0"
            )
        if "" in self.creators or len(set(self.creators)) < len(self.creators):
            raise ValueError(f"creators are {[*self.creators]}; expected different names")
        return self
