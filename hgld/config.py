"""A pipeline file (TOML) as frozen options, one model a stage.

This is the one place for defaults: each stands here with its meaning and its source. A pipeline
file overrides them, ``--set stage.option=value`` overrides the file, and there is no fourth place.
Paths in a pipeline file are relative to that file, paths on the command line (``--set``, too) are
relative to the current folder. Both may hold ``${NAME:-default}``.
"""

import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from hgld.errors import UsageError
from hgld.words import nearest

__all__ = [
    "LEVEL_NAMES",
    "AugmentationOptions",
    "CleanOptions",
    "ClusterOptions",
    "CollectOptions",
    "Download",
    "EmbedOptions",
    "EvaluateOptions",
    "ExportOptions",
    "FetchOptions",
    "HintOptions",
    "INaturalistOptions",
    "LabelOptions",
    "LossName",
    "Options",
    "Pipeline",
    "PublishOptions",
    "ReportOptions",
    "ReviewOptions",
    "RunOptions",
    "SamplingOptions",
    "ScrapeOptions",
    "Size",
    "SourceOptions",
    "StageContext",
    "ToyOptions",
    "TrainOptions",
    "default_work",
    "load_pipeline",
]

# pydantic's kinds of faults whose own words name Python types
EXPECTED = {
    "path_type": "a path",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
}
LEVEL_NAMES = ("kind", "supercategory", "landmark")  # coarse to fine, as H-GLDv2 publishes them


@dataclass(frozen=True)
class StageContext:
    """What a stage may know of the run it belongs to.

    Attributes:
        now: date of the run, ISO 8601; the only date that may reach an output.
        state: a folder of the stage's own for unfinished work; it survives a kill.
        source: where the data set's own files lie, and in which layout.
        labels: folder of what people decide (taxonomy, decisions, overrides, removals).
        scrape: how Wikimedia is asked, for whatever stage asks it.
        force: a person asked to make everything again: trust no note of finished work.
        title: of the pipeline, for pages.
    """

    now: str
    state: Path
    source: "SourceOptions"
    labels: Path
    scrape: "ScrapeOptions" = field(default_factory=lambda: ScrapeOptions())
    force: bool = False
    title: str = ""


def _fill_in(variable: re.Match[str]) -> str:
    name, default = variable.groups()
    if default is None and not os.environ.get(name):  # an empty one would lead to the root
        raise ValueError(f"the variable {name} is not set; set it or write ${{{name}:-default}}")
    return os.environ.get(name) or default or ""


class _Typed(str):
    """Text of the command line: a path in it is relative to the current folder."""


def _resolve(path: Any, info: ValidationInfo) -> Any:
    """A path as one that begins at the root; anything else is left for the type to refuse."""
    if not isinstance(path, str | Path):
        return path
    expanded = re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", _fill_in, str(path))
    folder = None if isinstance(path, _Typed) else (info.context or {}).get("folder")
    return Path(os.path.normpath((folder or Path.cwd()) / expanded))


def _refuse_odd_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name):
        raise ValueError("a run's name is a folder's; use letters, digits, '_', '-' and inner '.'")
    return name


def _resolve_model(name: Any, info: ValidationInfo) -> Any:
    """A model's name as it is, a path as one that begins at the root."""
    if not isinstance(name, str) or name.partition(":")[0] in (
        "run",
        "timm",
        "open_clip",
        "offline",
    ):
        return name
    return str(_resolve(name, info))


def _require_web_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        sound = parts.scheme in ("http", "https") and host and parts.port != 0
    except ValueError:  # also if the port is no number, or the host cannot be a name
        sound = False
    if not sound:
        raise ValueError(f"{url!r} is not an address such as https://example.org/w/api.php")
    return url


LocalPath = Annotated[Path, BeforeValidator(_resolve)]
WebAddress = Annotated[str, AfterValidator(_require_web_address)]
ModelName = Annotated[str, BeforeValidator(_resolve_model)]
RunName = Annotated[str, AfterValidator(_refuse_odd_name)]


class Options(BaseModel):
    """Frozen options; a key that does not exist is an error.

    ``operational`` names those that change how a stage works but not what it makes; changing
    them makes nothing stale. ``brought`` names those that lead to files a person brings: what
    stands in these decides too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    operational: ClassVar[frozenset[str]] = frozenset()
    brought: ClassVar[frozenset[str]] = frozenset()

    def brought_paths(self) -> dict[str, Path]:
        """Option -> where the files lie that a person brings."""
        paths = {name: getattr(self, name) for name in sorted(self.brought)}
        return {name: path for name, path in paths.items() if path is not None}

    def decisive(self) -> dict[str, Any]:
        """The options that decide the stage's output, as JSON values."""
        values = self.model_dump(mode="json", exclude=set(self.operational))
        return {name: _decisive(getattr(self, name), value) for name, value in values.items()}


def _decisive(option: object, value: Any) -> Any:
    """The JSON value of an option, without what is operational in options that it holds."""
    if isinstance(option, Options):
        return option.decisive()
    if isinstance(option, tuple):
        return [_decisive(*pair) for pair in zip(option, value, strict=True)]
    return value


class ToyOptions(Options):
    """The made landmark world of the quickstart."""

    seed: int = 0
    landmarks: int = Field(48, ge=6, description="train landmarks; half as many in the index")
    images: int = Field(8, ge=2, description="images of a landmark, on average")
    size: int = Field(128, ge=32, description="side of an image in pixels")


class INaturalistOptions(Options):
    """File names of iNaturalist 2018, and how many of its levels are used."""

    annotations: tuple[str, ...] = Field(
        ("train2018.json", "val2018.json"),
        min_length=1,
        description="the first one's categories are the taxonomy; all tell authors and licences",
    )
    train_list: str = "Inat_dataset_splits/Inaturalist_train_set1.txt"
    test_list: str = "Inat_dataset_splits/Inaturalist_test_set1.txt"
    levels: Literal["full", "base"] = Field(
        "full", description='"full": kingdom to species, 7; "base": supercategory and species'
    )


class SourceOptions(Options):
    """Where the data set's own files lie, and in which layout."""

    brought: ClassVar[frozenset[str]] = frozenset({"class_table"})
    kind: Literal["gldv2", "folder", "toy", "sop", "inaturalist", "cub", "dyml"] = "gldv2"
    folder: LocalPath | None = Field(None, description="default: source/ in the work folder")
    labels_csv: str = Field("labels.csv", description="folder: path, then levels coarse to fine")
    repeated_names: Literal["refuse", "qualify"] = Field(
        "refuse",
        description='folder: of a class name below several parents; "qualify": NAME (PARENT)',
    )
    class_table: LocalPath | None = Field(
        None, description="cub: CSV of class_id and one column a level, coarse to fine"
    )
    cub_split: Literal["classes", "images"] = Field(
        "classes", description='"images": train_test_split.txt, all species in both halves'
    )
    inaturalist: INaturalistOptions = INaturalistOptions()
    toy: ToyOptions = ToyOptions()


class Download(Options):
    """One file, or ``count`` files numbered in ``{number}``, below ``fetch.base_url``."""

    operational: ClassVar[frozenset[str]] = frozenset(
        {"columns", "megabytes", "kept_megabytes", "shards_megabytes"}
    )
    url: str
    count: int = Field(1, ge=1)
    megabytes: float = Field(
        ge=0,
        le=1e9,
        description="size of one file, for the plan; more than four times of it (and, without "
        "md5_url, less than a quarter) is refused as another file",
    )
    md5_url: str = Field("", description="file whose first word is the MD5; empty: not published")
    columns: tuple[str, ...] = Field(
        (), description="that a CSV without md5_url has to have, or it is refused"
    )
    wanted_csv: str = Field(
        "", description="with short_side: CSV that names the photos to keep; empty: all"
    )
    labelled_csv: str = Field(
        "", description="likewise: CSV of the landmarks with a hierarchical_label; empty: any"
    )
    kept_megabytes: float = Field(0.0, description="size of what is kept of one, for the plan")
    shards_megabytes: float = Field(
        0.0, description="likewise: of its photos that have a label, resized, in the shards"
    )


class FetchOptions(Options):
    """Which files to download."""

    operational: ClassVar[frozenset[str]] = frozenset({"parallel"})
    base_url: str = "https://s3.amazonaws.com/google-landmark/"
    downloads: tuple[Download, ...] = ()
    parallel: int = Field(6, ge=1, description="downloads at a time, as in GLDv2's own script")
    tars: str = Field("", description="numbers to fetch of numbered files: 0-9 or 0,5-7; all")
    short_side: int | None = Field(
        None,
        ge=1,
        description="keep of each tar the wanted photos alone, larger ones made smaller, to this",
    )
    jpeg_quality: int = Field(75, ge=1, le=100, description="of photos resized by short_side")


class CollectOptions(Options):
    """File names inside the source folder (an empty name: not there) and what to take.

    The defaults are GLDv2's own layout (cvdfoundation/google-landmark).
    """

    train_csv: str = "metadata/train.csv"
    train_clean_csv: str = "metadata/train_clean.csv"
    train_attribution_csv: str = "metadata/train_attribution.csv"
    train_category_csv: str = "metadata/train_label_to_category.csv"
    index_image_csv: str = "ground_truth/index_image_to_landmark.csv"
    index_category_csv: str = "ground_truth/index_label_to_category.csv"
    retrieval_solution_csv: str = "ground_truth/retrieval_solution_v2.1.csv"
    train_tars: str = "train/images_*.tar"
    index_tars: str = "index/images_*.tar"
    test_tars: str = "test/images_*.tar"
    clean_only: bool = Field(True, description="train_clean.csv only, as the paper trains")
    evaluation_share: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the train classes held out for evaluation (open set), exactly; of a "
        "folder in equal parts of each coarsest class",
    )
    evaluation_classes: tuple[str, ...] | LocalPath = Field(
        (),
        description="or these classes: names of a folder's finest level, landmark ids of GLDv2; "
        "or a text file with one a line",
    )
    validation_share: float = Field(
        0.0, ge=0, lt=1, description="share of the others held out for choosing options"
    )
    seed: int = Field(0, description="draws the held-out classes")

    @model_validator(mode="after")
    def _holds_out_once(self) -> Self:
        if self.evaluation_share and self.evaluation_classes:
            raise ValueError("set evaluation_share or evaluation_classes, not both")
        return self

    def brought_paths(self) -> dict[str, Path]:
        """The list of classes, if it is a file."""
        listed = self.evaluation_classes
        return {"evaluation_classes": listed} if isinstance(listed, Path) else {}


class ScrapeOptions(Options):
    """Where "instance of" values come from."""

    operational: ClassVar[frozenset[str]] = frozenset(
        {"contact", "requests_per_second", "maxlag", "batch_size", "retry", "refresh_older_than"}
        | {"answer_timeout"}
    )
    brought: ClassVar[frozenset[str]] = frozenset(
        {"table", "html_folder", "dump_items", "dump_pages", "dump_redirects", "dump_entities"}
    )
    source: Literal["wikimedia", "table", "html", "dump"] = "wikimedia"
    stand_in: bool = Field(False, description="ask the toy world's own server on this machine")
    commons_api: WebAddress = "https://commons.wikimedia.org/w/api.php"
    wikidata_api: WebAddress = "https://www.wikidata.org/w/api.php"
    contact: str = Field("", description="e-mail or URL in the User-Agent; required")
    requests_per_second: float = Field(1.5, ge=0.1, le=3, description="Wikimedia allows 200/minute")
    maxlag: int = Field(5, ge=0, description="seconds of server lag to wait out; 0: do not ask")
    answer_timeout: float = Field(
        120, gt=0, le=3600, description="seconds for an answer, from connecting to its last byte"
    )
    batch_size: int = Field(50, ge=1, le=50, description="titles or items a request")
    follow_topics: bool = Field(True, description="leave a category's item for its topic (P301)")
    retry: Literal["", "misses"] = Field(
        "", description="what to ask for again; hgld scrape --retry"
    )
    refresh_older_than: int | None = Field(
        None, ge=0, description="days, likewise; hgld scrape --refresh-older-than"
    )
    table: LocalPath | None = Field(None, description='source = "table": the CSV')
    table_id: str = "landmark_id"
    table_value: str = "supercategory"
    table_split: Literal["train", "index"] = "train"
    html_folder: LocalPath | None = Field(None, description='source = "html": the saved pages')
    html_row: str = Field("Instance of", description="the infobox row to read, as pages show it")
    dump_items: LocalPath | None = Field(
        None, description='source = "dump": page_props.sql of Commons or wb_items_per_site.sql'
    )
    dump_pages: LocalPath | None = Field(None, description="page.sql of Commons")
    dump_redirects: LocalPath | None = Field(None, description="redirect.sql of Commons")
    dump_entities: LocalPath | None = Field(None, description="all.json of Wikidata")


class CleanOptions(Options):
    """Which statements of a landmark count."""

    policy: Literal["first-best", "single-only", "all"] = Field(
        "first-best", description="single-only is the paper's text, first-best its likely practice"
    )
    infobox_style: bool = Field(
        False, description='values with their years, "church building (1172–1954)", as infoboxes do'
    )
    irrelevant_ids: tuple[str, ...] = ("Q4167836", "Q4167410", "Q13406463", "Q17442446")
    irrelevant_labels: tuple[str, ...] = ("Wikimedia category", "Wikimedia disambiguation page")


class HintOptions(Options):
    """What Wikidata's own classes may suggest to the reviewer."""

    ask: bool = Field(True, description="False: no hints, and nothing is asked")
    most_hops: int = Field(8, ge=0, description="superclasses between a value and a root")


class EmbedOptions(Options):
    """How "instance of" values become vectors."""

    operational: ClassVar[frozenset[str]] = frozenset({"batch_size", "device"})
    encoder: str = Field(
        "ViT-L-14/laion2b_s32b_b82k",
        description="MODEL/PRETRAINED, MODEL/FILE, local-dir:FOLDER or offline:minilm",
    )
    prompt: str = Field("A picture of a {label}", description="authors' code")
    batch_size: int = Field(256, ge=1)
    device: str = "auto"


class ClusterOptions(Options):
    """k-means on the value vectors."""

    clusters: int = Field(78, ge=1, description="Number of clusters k; H-GLDv2 has 78.")
    seed: int = Field(0, ge=0, lt=2**32)
    restarts: int = Field(10, ge=1)
    seeds: Literal["random", "decided"] = Field(
        "random",
        description='"decided": a centre starts at the mean of each decided supercategory\'s '
        "values; every decision then makes the clusters anew",
    )


class ReviewOptions(Options):
    """When the run may pass the review."""

    operational: ClassVar[frozenset[str]] = frozenset({"who", "page_photos", "page_megabytes"})
    min_coverage: float = Field(
        1.0, ge=0, le=1, description="share of labelled landmarks whose value is decided"
    )
    who: str = Field("", description="name written into decisions; default: git's user.name")
    page_photos: int = Field(3, ge=0, description="--html: photos of a value, each of a landmark")
    page_megabytes: float = Field(
        12.0, gt=0, description="--html: size of the page; photos fill what the rows leave of it"
    )


class LabelOptions(Options):
    """Where the hierarchy comes from: reviewed decisions, published CSVs, or the data set itself.

    "folder" is the CSV of a folder, "native" what the files of SOP, iNaturalist, CUB or DyML say.
    """

    source: Literal["decisions", "published", "folder", "native"] = "decisions"
    train_csv: str = "metadata/train_label_to_hierarchical.csv"
    index_csv: str = "ground_truth/index_label_to_hierarchical.csv"


class ExportOptions(Options):
    """How images become shards."""

    operational: ClassVar[frozenset[str]] = frozenset({"processes", "ray"})
    shard_megabytes: float = Field(256.0, gt=0)
    run_length: int = Field(16, ge=1, description="consecutive images of a class in a shard")
    seed: int = Field(0, ge=0)
    short_side: int | None = Field(
        None,
        ge=1,
        description="shrink larger images to this; smaller ones are never enlarged; "
        "default: no image is resized",
    )
    jpeg_quality: int = Field(
        90,
        ge=1,
        le=100,
        description="of images encoded again: resized, turned upright (EXIF), or not JPEG; other "
        "JPEGs are copied",
    )
    decode_all: bool = Field(
        True,
        description="see of every image that it can be decoded; False: trust copied JPEGs",
    )
    licenses: tuple[str, ...] = Field(
        ("*",),
        description="licences that may be exported, as patterns (* and ?); where a licence is "
        '"unknown", only the word itself lets it pass',
    )
    processes: int = Field(1, ge=1)
    ray: str | None = Field(None, description="address of a Ray cluster; auto: this machine's")


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
    "SigmaTriplet",
    "SigmaNormSoftmax",
    "SigmaProxyNCA",
]


class RunOptions(Options):
    """One training run: everything that two runs of a comparison may differ in."""

    loss: LossName = "HAPPIER"
    steps: int = Field(500, ge=0, description="0: the pretrained backbone as it is")
    lr: float = Field(1e-4, gt=0, description="backbone")
    head_lr: float = Field(2e-4, gt=0, description="linear head; twice the backbone's (authors)")
    proxy_lr: float = Field(1e-2, gt=0, description="learned class vectors")
    weight_decay: float = 1e-4
    loss_options: dict[str, float | bool | str | tuple[float, ...]] = Field(
        default_factory=dict,
        description='lam, alpha, tau ...; "level": 1 is the coarsest; "preset": "paper", '
        '"suprank_sop" or "suprank_inat" fills in what is not given',
    )
    optimizer: Literal["adam", "adamw", "sgd"] = Field(
        "adam", description='of backbone and head; "sgd" has Nesterov momentum 0.9 (DyML)'
    )
    proxy_optimizer: Literal["adam", "adamw", "sgd"] = Field(
        "adam", description="of the learned class vectors, whatever the model has (authors)"
    )
    proxy_weight_decay: float = Field(0.0, ge=0)
    schedule: Literal["cosine", "step", "constant"] = Field(
        "cosine", description="of all rates, over the steps after the warm-up"
    )
    min_lr: float = Field(0.0, ge=0, description="cosine: where backbone and head end")
    proxy_min_lr: float = Field(0.0, ge=0, description="cosine: where the proxies end")
    milestones: tuple[int, ...] = Field((), description="step: after which steps rates fall")
    gamma: float = Field(0.3, gt=0, description="step: what they are multiplied by")
    warmup_steps: int = Field(
        0, ge=0, description="first steps, in which the backbone stands still (SOP: 5 epochs)"
    )
    memory: int = Field(
        0, ge=0, description="embeddings of earlier batches as further references (XBM); 0: none"
    )
    memory_start: int = Field(
        0, ge=0, description="first steps, in which each batch stays alone (authors: 5 epochs)"
    )


class SamplingOptions(Options):
    """Which images of which classes meet in a training batch."""

    order: Literal["random", "shards"] = Field(
        "random",
        description='"random" draws any image at any time; "shards" draws from the runs of the '
        "shards that are open, which spares a disk that seeks slowly",
    )
    window: int = Field(512, ge=1, description='runs open at a time, order "shards"')
    images_cap: int | None = Field(
        None, ge=2, description="most images of a class in an epoch; the paper on H-GLDv2: 8"
    )
    groups_per_batch: int | None = Field(
        None, ge=1, description="supercategories in a batch, in equal parts; the paper on SOP: 2"
    )
    small_classes: Literal["drop", "repeat"] = Field(
        "drop",
        description="classes with too few images: left out, or their images repeated; own loops "
        "through hgld.shards may pad, too",
    )


Size = Annotated[int, Field(ge=1)] | tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]
Range = tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]]


class AugmentationOptions(Options):
    """What training sees of a photo; the side it ends with is ``train.image_size``."""

    resize: Size | None = Field(
        None,
        description="first: the short side, or [height, width] (SOP: 256); smaller photos are "
        "enlarged, since a model needs one size",
    )
    crop: bool = Field(True, description="a random part; False: the whole, squeezed into a square")
    crop_scale: Range = Field((0.16, 1.0), description="share of the area (authors)")
    crop_ratio: Range = Field((0.75, 1.33), description="width by height (authors)")
    flip: bool = True


Seed = Annotated[int, Field(ge=0, lt=2**63)]


class TrainOptions(Options):
    """The trainer."""

    operational: ClassVar[frozenset[str]] = frozenset(
        {"workers", "undecodable_budget", "device", "checkpoint_steps", "tensorboard"}
    )
    backbone: str = Field("resnet50", description="a timm model, or offline:efficientnet-lite0")
    pretrained: bool = True
    dim: int = Field(512, ge=2, lt=2**31)
    image_size: int = Field(224, ge=32, lt=2**20)
    pooling: Literal["default", "avg", "max", "gem"] = Field(
        "default", description='"default" is the backbone\'s own; "gem" learns p, from 3 on'
    )
    head_norm: Literal["layer_norm", "l2", "none"] = Field(
        "layer_norm", description="of the pooled features, nothing learned; H-GLDv2: l2"
    )
    head_init: Literal["random", "pca_whitening"] = Field(
        "random", description="pca_whitening: of the pretrained features (H-GLDv2)"
    )
    head_init_images: int = Field(10_000, ge=2, description="that the PCA sees, drawn by the seed")
    freeze_batch_norm: bool | None = Field(
        None, description="keep its statistics; default: where they are pretrained (authors)"
    )
    augmentation: AugmentationOptions = AugmentationOptions()
    eval_resize: Size | None = Field(
        None,
        description="the short side, or [height, width] (SOP: [256, 256]), smaller photos are "
        "enlarged; default: the whole photo, squeezed into a square of image_size (H-GLDv2)",
    )
    eval_crop: int | None = Field(None, ge=1, description="then the centre (SOP: 224)")
    precision: Literal["float32", "bf16", "fp16"] = Field(
        "float32", description="of the model; the loss is always in float32 (authors: fp16)"
    )
    micro_batch: int | None = Field(
        None, ge=1, description="images embedded at a time, for batches beyond the memory"
    )
    classes_per_batch: int = Field(64, ge=2)
    images_per_class: int = Field(4, ge=2)
    batches: SamplingOptions = SamplingOptions()
    split: str = "train"
    seed: Seed = 0
    seeds: tuple[Seed, ...] = Field(
        (),
        description="train every run once with each of these, as NAME-s0, NAME-s1 ...; evaluation, "
        "report and comparisons then give means over the seeds; empty: once, with seed",
    )
    workers: int = Field(0, ge=0)
    undecodable_budget: int = Field(
        0, ge=0, description="damaged images of a run that others of their class replace"
    )
    device: str = "auto"
    checkpoint_steps: int = Field(100, ge=1)
    tensorboard: bool = Field(False, description="curves in NAME/.tensorboard (hgld[tensorboard])")
    defaults: RunOptions = Field(RunOptions(), description="what all runs share")
    runs: dict[RunName, RunOptions] = Field(
        default_factory=lambda: {"model": RunOptions()},
        min_length=1,
        description="name -> what differs",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if isinstance(self.eval_resize, int) and self.eval_crop is None:
            raise ValueError(
                "eval_resize of the short side alone leaves photos of many shapes; set eval_crop "
                "too, or eval_resize = [height, width]"
            )
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds names a seed twice")
        names = [name for models in self.models().values() for name in models]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two models would be called {twice[0]}; rename the run of that name")
        return self

    def models(self) -> dict[str, dict[str, int]]:
        """Return the models of each run and their seeds.

        A run without steps learns nothing, so it has one model whatever the seeds.

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


class EvaluateOptions(Options):
    """Which images query which, and what is measured of which models."""

    operational: ClassVar[frozenset[str]] = frozenset(
        {"batch_size", "workers", "device", "processes", "ray"}
    )
    protocol: Literal["auto", "all-vs-all", "query-gallery", "gldv2-paper", "gldv2-official"] = (
        Field(
            "auto",
            description='"auto": all-vs-all (open set) where query and gallery are one split, else '
            'query-gallery; "gldv2-paper": test against index, labelled landmarks only, as the '
            'paper; "gldv2-official": that, and the full index by the official list of answers',
        )
    )
    query: str = Field("evaluation", description="split of the queries")
    gallery: str = Field(
        "evaluation",
        description='split of the gallery; the same: all against all; "QUERY+OTHER": the queries '
        "search among themselves and distractors (DyML)",
    )
    models: dict[RunName, ModelName] = Field(
        default_factory=dict,
        description='name -> "run:NAME" of train, "timm:MODEL", "open_clip:MODEL/PRETRAINED", '
        '"offline:efficientnet-lite0", a model\'s folder, a file of embeddings with image ids '
        "(.npz, .parquet); default: all runs. If none of them is a run and there is no section "
        "[train], nothing is trained",
    )
    metrics: tuple[str, ...] | None = Field(
        None,
        description="default: H-AP, NDCG, ASI, AP of each level, R@1 and mAP@100 of the finest",
    )
    batch_size: int = Field(64, ge=1, description="on a GPU; a CPU takes a few photos a thread")
    workers: int = Field(0, ge=0, description="processes that read photos for a GPU")
    device: str = "auto"
    processes: int = Field(1, ge=1, description="that embed; with GPUs, each on one of them")
    ray: str | None = Field(None, description="address of a Ray cluster; auto: this machine's")

    @model_validator(mode="before")
    @classmethod
    def _fill_splits(cls, values: Any) -> Any:
        """GLDv2's protocols say which splits they mean."""
        if isinstance(values, dict) and str(values.get("protocol")).startswith("gldv2"):
            return {"query": "test", "gallery": "index", **values}
        return values

    @model_validator(mode="after")
    def _fits_the_protocol(self) -> Self:
        sides = self.query, self.gallery
        if self.protocol.startswith("gldv2") and sides != ("test", "index"):
            found = " against ".join(sides)
            raise ValueError(f"{self.protocol} is test against index, not {found}")
        if self.protocol == "all-vs-all" and self.query != self.gallery:
            raise ValueError("all-vs-all needs one split as query and as gallery")
        if self.protocol == "query-gallery" and self.query == self.gallery:
            raise ValueError("query-gallery needs two splits; one against itself is all-vs-all")
        return self

    def brought_paths(self) -> dict[str, Path]:
        """Folders and files among the models."""
        return {
            f"models.{name}": Path(model)
            for name, model in self.models.items()
            if Path(model).is_absolute()
        }


class ReportOptions(Options):
    """What the report shows."""

    grid_queries: int = Field(6, ge=0, description="queries shown with their first images")
    grid_images: int = Field(6, ge=1)
    compared: tuple[str, str] | None = Field(
        None,
        description="two models whose findings are shown side by side for the same queries; "
        "default: the best and the best of another run",
    )
    compared_queries: int = Field(3, ge=0, description="queries shown for both of these models")
    vector_figures: tuple[Literal["svg", "pdf"], ...] = Field(
        ("svg", "pdf"), description="formats of each figure beside PNG"
    )
    bootstrap: Literal["auto", "classes", "queries"] = Field(
        "auto",
        description="what the intervals draw: classes with all their queries, or queries; auto: "
        "classes if no model was trained on a class of the queries (open set)",
    )


class PublishOptions(Options):
    """The release folder."""

    name: str = Field("", description="of what is released; without it there is no release")
    version: str = Field(
        "1.0.0",
        pattern=r"^\d+\.\d+\.\d+$",
        description="major.minor.patch: what was there "
        "changed, more is there, the same is written anew",
    )
    parts: Literal["labels", "labels+shards"] = Field(
        "labels", description="labels alone need no image; shards come with authors and licences"
    )
    license: str = Field(
        "", description="of the labels, as Hugging Face names it; empty: cc-by-4.0 for landmarks"
    )
    creators: tuple[str, ...] = Field((), description="who releases it; empty: who decided")
    url: str = Field(
        "",
        pattern=r"^(https?://\S+)?$",
        description="page of the release; empty: its own card",
    )


class Pipeline(Options):
    """All that a pipeline file says."""

    title: str = ""
    labels: LocalPath
    source: SourceOptions = SourceOptions()
    fetch: FetchOptions = FetchOptions()
    collect: CollectOptions = CollectOptions()
    scrape: ScrapeOptions = ScrapeOptions()
    clean: CleanOptions = CleanOptions()
    hint: HintOptions = HintOptions()
    embed: EmbedOptions = EmbedOptions()
    cluster: ClusterOptions = ClusterOptions()
    review: ReviewOptions = ReviewOptions()
    label: LabelOptions = LabelOptions()
    export: ExportOptions = ExportOptions()
    train: TrainOptions = TrainOptions()
    evaluate: EvaluateOptions = EvaluateOptions()
    report: ReportOptions = ReportOptions()
    publish: PublishOptions = PublishOptions()

    @property
    def trains(self) -> bool:
        """Whether train is a stage: not if all models are given and there is no [train]."""
        models = self.evaluate.models.values()
        given = bool(models) and not any(model.startswith("run:") for model in models)
        return not given or "train" in self.model_fields_set

    @model_validator(mode="after")
    def _names_its_runs(self) -> Self:
        of_seeds = (name for models in self.train.models().values() for name in models)
        known = list(dict.fromkeys([*self.train.runs, *of_seeds]))
        for name, model in self.evaluate.models.items():
            kind, _, run = model.partition(":")
            if kind == "run" and run not in known:
                raise ValueError(
                    f"evaluate.models.{name}: train has no run '{run}' (it has {', '.join(known)})"
                    + nearest(run, known)
                )
        return self


def default_work(pipeline_file: Path) -> Path:
    """The work folder of a pipeline file if none is named: work/NAME beside the file.

    If the file is in a folder ``pipelines``, it is beside that folder. So it depends on the file
    alone, and every command finds it from everywhere.
    """
    file = pipeline_file.resolve()
    folder = file.parent.parent if file.parent.name == "pipelines" else file.parent
    work = folder / "work" / file.stem
    return work if pipeline_file.is_absolute() else Path(os.path.relpath(work))


def load_pipeline(path: Path, settings: Sequence[str] = ()) -> Pipeline:
    """Read a pipeline file and apply ``stage.option=value`` settings.

    Raises:
        UsageError: no such file, no TOML, an unknown key (the nearest is named), a wrong value.
    """
    values = _read_toml(path)
    for setting in settings:
        _apply(values, setting)
    try:
        return Pipeline.model_validate(
            _merge_runs(values), context={"folder": path.resolve().parent}
        )
    except ValidationError as error:
        where = f"{path} with the options given" if settings else f"{path}"
        raise UsageError(f"{where}: {_describe(error)}") from None


def _read_toml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UsageError(f"{path}: no such pipeline file; pipelines/ holds those that ship")
    try:
        return _parse_toml(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise UsageError(f"{path}: not a TOML file: {error}") from None


def _parse_toml(text: str) -> dict[str, Any]:
    """Values of a TOML text.

    Raises:
        ValueError: not TOML, or more than Python reads of it.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError:
        long = re.search(rf"[0-9_]{{{sys.get_int_max_str_digits()},}}", text)
        if long is None:
            raise
        line = text.count("\n", 0, long.start()) + 1
        raise ValueError(f"line {line}: a number of {len(long[0]):,} digits") from None


def _apply(values: dict[str, Any], setting: str) -> None:
    """Write one ``a.b=value`` into the nested values; the value is TOML, else plain text."""
    name, found, text = setting.partition("=")
    *parents, last = name.strip().split(".")
    if not found or not all((*parents, last)):
        raise UsageError(f"--set {setting}: expected stage.option=value")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise UsageError(f"--set {setting}: '{parent}' holds a value, not options")
    try:
        read = _parse_toml(f"v = {text}")
    except ValueError:
        read = {}
    values[last] = _typed(read["v"] if len(read) == 1 else text)


def _typed(value: Any) -> Any:
    """The value, each text in it marked as one of the command line."""
    if isinstance(value, dict):
        return {name: _typed(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_typed(inner) for inner in value]
    return _Typed(value) if isinstance(value, str) else value


def _merge_runs(values: dict[str, Any]) -> dict[str, Any]:
    """Fill each training run with what train.defaults says and the run does not."""
    train = values.get("train")
    if not isinstance(train, dict):
        return values
    defaults, runs = train.get("defaults", {}), train.get("runs", {"model": {}})
    if not isinstance(defaults, dict) or not isinstance(runs, dict):
        return values
    merged = {name: {**defaults, **r} if isinstance(r, dict) else r for name, r in runs.items()}
    return {**values, "train": {**train, "runs": merged}}


def _describe(error: ValidationError) -> str:
    """What is wrong; a fault of train.defaults once, although each run inherits it."""
    found = error.errors()
    shared = {item["loc"][2:] for item in found if item["loc"][:2] == ("train", "defaults")}
    inherited = [i["loc"][:2] == ("train", "runs") and i["loc"][3:] in shared for i in found]
    own = (item for item, again in zip(found, inherited, strict=True) if not again)
    return "; ".join(_describe_one(item) for item in own)


def _describe_one(item: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in item["loc"])
    if item["type"] == "missing":
        return f"{where} is missing; add it to the file, or give it by --set {where}=VALUE"
    if item["type"] in EXPECTED:
        return f"{where}: expected {EXPECTED[item['type']]} (found {item['input']!r})"
    if item["type"] != "extra_forbidden":
        says = re.sub(r"^Value error, | or instance of \w+$", "", item["msg"])
        found = "" if isinstance(item["input"], dict) else f" (found {item['input']!r})"
        return f"{where}: {says[0].lower()}{says[1:]}{found}".removeprefix(": ")
    *parents, key = item["loc"]
    return f"unknown key {where!r}{nearest(str(key), _keys_at(parents))}"


def _keys_at(section: Iterable[object]) -> list[str]:
    """Names of the options that a section of the pipeline file may hold."""
    model: Any = Pipeline
    for part in section:
        if part == "runs":
            return list(RunOptions.model_fields)
        field = model.model_fields.get(part)
        model = field.annotation if field else None
        if not isinstance(model, type) or not issubclass(model, Options):
            return []
    return list(model.model_fields)
