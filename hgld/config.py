"""A pipeline file (TOML) as frozen options, one model a stage.

Defaults are set here only, each with its meaning and source in the docstring below it. A pipeline
file overrides them, and ``--set stage.option=value`` overrides the file. Paths in a pipeline file
are relative to that file, paths on the command line (also in ``--set``) to the current folder. Both
may hold ``${NAME:-default}``.
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
    """Facts of a run that its stages may use.

    Attributes:
        now: date of the run, ISO 8601; the only date that may reach an output.
        state: folder for the stage's unfinished work; it survives a kill.
        source: folder and layout of the data set's own files.
        labels: folder of decisions by people (taxonomy, decisions, overrides, removals).
        scrape: options for all stages that ask Wikimedia.
        force: a person asked to run everything again; ignore notes of finished work.
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
    """Return an absolute path; other types are left for pydantic to refuse."""
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
    """Return a model's name unchanged, and a path as an absolute one."""
    if not isinstance(name, str) or name.partition(":")[0] in (
        "run",
        "timm",
        "open_clip",
        "offline",
    ):
        return name
    return str(_resolve(name, info))


def _resolve_shards(folder: Any, info: ValidationInfo) -> Any:
    """Return a URL unchanged, and a path as an absolute one."""
    if folder is None or (isinstance(folder, str) and "://" in folder):
        return folder
    return str(_resolve(folder, info))


def _require_web_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        sound = parts.scheme in ("http", "https") and host and parts.port != 0
    except ValueError:  # the port is not a number, or the host not a name
        sound = False
    if not sound:
        raise ValueError(f"{url!r} is not an address such as https://example.org/w/api.php")
    return url


LocalPath = Annotated[Path, BeforeValidator(_resolve)]
WebAddress = Annotated[str, AfterValidator(_require_web_address)]
ModelName = Annotated[str, BeforeValidator(_resolve_model)]
ShardFolder = Annotated[str | None, BeforeValidator(_resolve_shards)]
RunName = Annotated[str, AfterValidator(_refuse_odd_name)]


class Options(BaseModel):
    """Frozen options; a key that does not exist is an error.

    ``operational`` names the options that change how a stage works but not its results; changing
    them makes nothing stale. ``brought`` names the options that lead to a person's own files; a
    change of their content makes the stage stale.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )
    operational: ClassVar[frozenset[str]] = frozenset()
    brought: ClassVar[frozenset[str]] = frozenset()

    def brought_paths(self) -> dict[str, Path]:
        """Return option -> path of a person's own files."""
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
    """The drawn landmark world of the quickstart."""

    seed: int = 0
    """Draws the world; another seed is another world."""
    landmarks: int = Field(48, ge=6)
    """Number of train landmarks; the index has half as many others."""
    images: int = Field(8, ge=2)
    """Images of a landmark, on average."""
    size: int = Field(128, ge=32)
    """Side of an image in pixels."""


class INaturalistOptions(Options):
    """The file names and levels of iNaturalist 2018."""

    annotations: tuple[str, ...] = Field(("train2018.json", "val2018.json"), min_length=1)
    """Annotation files; the categories of the first are the taxonomy, all have authors and
    licences."""
    train_list: str = "Inat_dataset_splits/Inaturalist_train_set1.txt"
    """List of the training images, one path a line (split of Brown et al. 2020)."""
    test_list: str = "Inat_dataset_splits/Inaturalist_test_set1.txt"
    """List of the test images, likewise; its classes are others (open set)."""
    levels: Literal["full", "base"] = "full"
    """"full": the 7 levels from kingdom to species; "base": supercategory and species (Table V)."""


class SourceOptions(Options):
    """The folder and layout of the data set's own files."""

    brought: ClassVar[frozenset[str]] = frozenset({"class_table"})
    kind: Literal["gldv2", "folder", "toy", "sop", "inaturalist", "cub", "dyml"] = "gldv2"
    """Layout of the data set: GLDv2, a folder of images with a CSV of labels, the drawn world of
    the quickstart ("toy"), or Stanford Online Products, iNaturalist 2018, CUB-200-2011 or DyML as
    published."""
    folder: LocalPath | None = None
    """Folder of the data set's own files; default: source/ in the work folder."""
    labels_csv: str = "labels.csv"
    """For a folder: CSV of image path, then one column a level, coarse to fine."""
    repeated_names: Literal["refuse", "qualify"] = "refuse"
    """For a folder, if two parents have a class of the same name: "refuse" it, or "qualify" it as
    NAME (PARENT)."""
    class_table: LocalPath | None = None
    """For CUB: CSV of class_id, then one column a level, coarse to fine."""
    cub_split: Literal["classes", "images"] = "classes"
    """For CUB: "classes" holds out the last 100 species (the split of retrieval papers); "images"
    uses train_test_split.txt, with all species on both sides."""
    inaturalist: INaturalistOptions = INaturalistOptions()
    toy: ToyOptions = ToyOptions()


class Download(Options):
    """One file, or ``count`` numbered files, below ``fetch.base_url``."""

    operational: ClassVar[frozenset[str]] = frozenset(
        {"columns", "megabytes", "kept_megabytes", "shards_megabytes"}
    )
    url: str
    """Address below fetch.base_url; {number} is replaced, as in images_{number:03d}.tar."""
    count: int = Field(1, ge=1)
    """Number of files, numbered from 0."""
    megabytes: float = Field(ge=0, le=1e9)
    """Size of one file in MB, for the plan. A file of more than four times this size (or, without
    md5_url, less than a quarter) is refused."""
    md5_url: str = ""
    """Address of the file whose first word is the MD5; empty: no MD5 is published."""
    columns: tuple[str, ...] = ()
    """Columns that a CSV without md5_url must have."""
    wanted_csv: str = ""
    """With short_side: CSV that names the photos to keep; empty: all."""
    labelled_csv: str = ""
    """With short_side: CSV of the landmarks with a hierarchical_label, whose photos alone are kept;
    empty: all."""
    kept_megabytes: float = 0.0
    """Size in MB of what is kept of one file with short_side, for the plan."""
    shards_megabytes: float = 0.0
    """Size in MB of the labelled photos of one file in the shards, for the plan."""


class FetchOptions(Options):
    """Files to download, and the form in which they are kept."""

    operational: ClassVar[frozenset[str]] = frozenset({"parallel"})
    base_url: str = "https://s3.amazonaws.com/google-landmark/"
    """Address that all downloads share; the default is GLDv2's own."""
    downloads: tuple[Download, ...] = ()
    """Files to download; empty: the files are there already."""
    parallel: int = Field(6, ge=1)
    """Downloads at a time; 6 as in GLDv2's own script."""
    tars: str = ""
    """Numbers to fetch of numbered files: 0-9 or 0,5-7; empty: all."""
    short_side: int | None = Field(None, ge=1)
    """Keep only the wanted photos of each tar and shrink them to this short side in pixels;
    default: keep the tars as they are."""
    jpeg_quality: int = Field(75, ge=1, le=100)
    """JPEG quality of the photos that short_side shrinks."""


class CollectOptions(Options):
    """File names in the source folder (empty: there is no such file), and the classes to hold out.

    The defaults are GLDv2's own layout (cvdfoundation/google-landmark).
    """

    train_csv: str = "metadata/train.csv"
    """Training images: id, url, landmark_id."""
    train_clean_csv: str = "metadata/train_clean.csv"
    """Clean training images: landmark_id, images."""
    train_attribution_csv: str = "metadata/train_attribution.csv"
    """Author, licence and title of each training image."""
    train_category_csv: str = "metadata/train_label_to_category.csv"
    """Wikimedia Commons category of each train landmark."""
    index_image_csv: str = "ground_truth/index_image_to_landmark.csv"
    """Landmark of each index image: id, landmark_id."""
    index_category_csv: str = "ground_truth/index_label_to_category.csv"
    """Wikimedia Commons category of each index landmark."""
    retrieval_solution_csv: str = "ground_truth/retrieval_solution_v2.1.csv"
    """Official answers of the test queries: id, images, Usage."""
    train_tars: str = "train/images_*.tar"
    """Tars of training images, as a pattern."""
    index_tars: str = "index/images_*.tar"
    """Tars of index images, as a pattern."""
    test_tars: str = "test/images_*.tar"
    """Tars of test images, as a pattern."""
    clean_only: bool = True
    """Take only the images of train_clean.csv, as the paper trains."""
    evaluation_share: float = Field(0.0, ge=0, lt=1)
    """Share of the train classes held out for evaluation (open set), exactly; of a folder, the same
    share of each coarsest class."""
    evaluation_classes: tuple[str, ...] | LocalPath = ()
    """Hold out these classes instead: names of a folder's finest level or landmark ids of GLDv2, or
    a text file with one a line."""
    validation_share: float = Field(0.0, ge=0, lt=1)
    """Share of the other train classes held out for choosing options."""
    seed: int = 0
    """Draws the held-out classes."""

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
    """Origin of the "instance of" values, and the manners of asking for them."""

    operational: ClassVar[frozenset[str]] = frozenset(
        {"contact", "requests_per_second", "maxlag", "batch_size", "retry", "refresh_older_than"}
        | {"answer_timeout"}
    )
    brought: ClassVar[frozenset[str]] = frozenset(
        {"table", "html_folder", "dump_items", "dump_pages", "dump_redirects", "dump_entities"}
    )
    source: Literal["wikimedia", "table", "html", "dump"] = "wikimedia"
    """Origin of the "instance of" values: Wikimedia's API, a table (CSV), saved Commons pages, or
    Wikimedia's dumps."""
    stand_in: bool = False
    """Ask the toy world's own server on this machine instead of Wikimedia."""
    commons_api: WebAddress = "https://commons.wikimedia.org/w/api.php"
    """Address of the Wikimedia Commons API."""
    wikidata_api: WebAddress = "https://www.wikidata.org/w/api.php"
    """Address of the Wikidata API."""
    contact: str = ""
    """E-mail or URL in the User-Agent; Wikimedia requires one."""
    requests_per_second: float = Field(1.5, ge=0.1, le=3)
    """Highest rate of requests; Wikimedia allows 200 a minute."""
    maxlag: int = Field(5, ge=0)
    """Wait while Wikimedia's servers lag by more than these seconds; 0: do not ask."""
    answer_timeout: float = Field(120, gt=0, le=3600)
    """Seconds for one answer, from connecting to its last byte."""
    batch_size: int = Field(50, ge=1, le=50)
    """Titles or items in a request; Wikimedia allows 50."""
    follow_topics: bool = True
    """Use the item of a category's main topic (P301) in place of the category's own item."""
    retry: Literal["", "misses"] = ""
    """Ask again for "misses", the landmarks without values; set by hgld scrape --retry."""
    refresh_older_than: int | None = Field(None, ge=0)
    """Ask again for answers older than these days; set by hgld scrape --refresh-older-than."""
    table: LocalPath | None = None
    """With source = "table": the CSV."""
    table_id: str = "landmark_id"
    """Column of the table with the landmark ids."""
    table_value: str = "supercategory"
    """Column of the table with the "instance of" values."""
    table_split: Literal["train", "index"] = "train"
    """Split whose landmark ids the table has."""
    html_folder: LocalPath | None = None
    """With source = "html": the folder of saved pages."""
    html_row: str = "Instance of"
    """Title of the infobox row to read, in the language of the pages."""
    dump_items: LocalPath | None = None
    """With source = "dump": page_props.sql of Commons or wb_items_per_site.sql."""
    dump_pages: LocalPath | None = None
    """With source = "dump": page.sql of Commons."""
    dump_redirects: LocalPath | None = None
    """With source = "dump": redirect.sql of Commons."""
    dump_entities: LocalPath | None = None
    """With source = "dump": all.json of Wikidata."""


class CleanOptions(Options):
    """Choice of the values that count for a landmark."""

    policy: Literal["first-best", "single-only", "all"] = "first-best"
    """Values that count for a landmark with several: the first of the best rank, none (only
    landmarks with a single value are kept), or all. The paper's text (Sec. VI) says single-only,
    its practice was probably first-best."""
    infobox_style: bool = False
    """Write values with their years, as infoboxes do: "church building (1172–1954)"."""
    irrelevant_ids: tuple[str, ...] = ("Q4167836", "Q4167410", "Q13406463", "Q17442446")
    """Wikidata classes that are dropped: pages about Wikimedia itself."""
    irrelevant_labels: tuple[str, ...] = ("Wikimedia category", "Wikimedia disambiguation page")
    """Values that are dropped, of any class."""


class HintOptions(Options):
    """Suggestions from Wikidata's own classes to the reviewer."""

    ask: bool = True
    """Ask Wikidata; false: no hints."""
    most_hops: int = Field(8, ge=0)
    """Most superclass steps between a value and a known class."""
    languages: tuple[Annotated[str, Field(pattern=r"^[a-z]+(-[a-z0-9]+)*$")], ...] = ()
    """Codes of languages, such as de or pt-br, in which the review shows the labels of Wikidata's
    classes beside the English ones."""


class EmbedOptions(Options):
    """The text encoder of the "instance of" values."""

    operational: ClassVar[frozenset[str]] = frozenset({"batch_size", "device"})
    encoder: str = "ViT-L-14/laion2b_s32b_b82k"
    """Text encoder: MODEL/PRETRAINED or MODEL/FILE of open_clip, local-dir:FOLDER, or
    offline:minilm. The default is that of the authors' code."""
    prompt: str = "A picture of a {label}"
    """Text that is encoded for a value (authors' code)."""
    batch_size: int = Field(256, ge=1)
    """Texts encoded at a time."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu or cuda."""


class ClusterOptions(Options):
    """k-means on the vectors of the values (Sec. VI of the paper)."""

    clusters: int = Field(78, ge=1)
    """Number of clusters k; H-GLDv2 has 78."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Draws the first centres of k-means."""
    restarts: int = Field(10, ge=1)
    """Runs of k-means from other first centres; the one with the least inertia counts."""
    seeds: Literal["random", "decided"] = "random"
    """First centres: "random", or "decided": the mean of each decided supercategory's values, so
    that each decision changes the clusters."""


class ReviewOptions(Options):
    """The review, and the share of decisions that lets a run pass it."""

    operational: ClassVar[frozenset[str]] = frozenset(
        {"who", "sure", "largest_change", "page_photos", "page_megabytes", "thumbnails"}
    )
    min_coverage: float = Field(1.0, ge=0, le=1)
    """Share of labelled landmarks whose value must be decided before the run goes on."""
    who: str = ""
    """Name that signs decisions; default: git's user.name, else it is asked for once."""
    largest_change: float = Field(0.2, ge=0, le=1)
    """Share of the decisions in force that an apply may change, if it changes ten or more, without
    --yes."""
    sure: float = Field(0.95, gt=0, le=1)
    """For --html: probability from which suggestions are in the list of sure ones."""
    page_photos: int = Field(3, ge=0)
    """For --html: photos of a value, each of another landmark."""
    page_megabytes: float = Field(12.0, gt=0)
    """For --html: size of the page in MB; photos fill the space that the rows leave."""
    thumbnails: Literal["none", "commons"] = "none"
    """For --serve: values without a photo on this machine show one of Wikimedia Commons; needs
    scrape.contact."""


class LabelOptions(Options):
    """Origin of the hierarchy.

    "folder" is the CSV of a folder, "native" what the files of SOP, iNaturalist, CUB or DyML say.
    """

    source: Literal["decisions", "published", "folder", "native"] = "decisions"
    """Origin of the hierarchy: reviewed decisions, published CSVs, the CSV of a folder, or the
    files of SOP, iNaturalist, CUB or DyML ("native")."""
    train_csv: str = "metadata/train_label_to_hierarchical.csv"
    """Published labels of the train landmarks."""
    index_csv: str = "ground_truth/index_label_to_hierarchical.csv"
    """Published labels of the index landmarks."""


class ExportOptions(Options):
    """Images as WebDataset shards."""

    operational: ClassVar[frozenset[str]] = frozenset({"processes", "ray"})
    shard_megabytes: float = Field(256.0, gt=0)
    """Size of a shard in MB, at which the next one begins."""
    run_length: int = Field(16, ge=1)
    """Most images of a class that are consecutive in a shard."""
    seed: int = Field(0, ge=0)
    """Draws the order of the classes' runs in the shards."""
    short_side: int | None = Field(None, ge=1)
    """Shrink larger images to this short side in pixels; smaller ones are never enlarged. Default:
    no image is resized."""
    jpeg_quality: int = Field(90, ge=1, le=100)
    """JPEG quality of images that are encoded again: resized, turned upright (EXIF) or not JPEG.
    Other JPEGs are copied byte for byte."""
    decode_all: bool = True
    """Decode every image to check it; false: trust the JPEGs that are copied."""
    licenses: tuple[str, ...] = ("*",)
    """Licences that may be exported, as patterns with * and ?; only the word "unknown" itself
    permits images of unknown licence."""
    processes: int = Field(1, ge=1)
    """Processes that write shards."""
    ray: str | None = None
    """Address of a Ray cluster that writes the shards; auto: this machine's."""


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
    """One training run: everything in which two runs of a comparison may differ."""

    loss: LossName = "HAPPIER"
    """Class of hgld.ranking.losses, or a baseline."""
    steps: int = Field(500, ge=0)
    """Optimiser steps; 0: measure the pretrained backbone, untrained."""
    lr: float = Field(1e-4, gt=0)
    """Learning rate of the backbone."""
    head_lr: float = Field(2e-4, gt=0)
    """Learning rate of the linear head; twice that of the backbone in the authors' code."""
    proxy_lr: float = Field(1e-2, gt=0)
    """Learning rate of the proxies (learned class vectors)."""
    weight_decay: float = 1e-4
    """Weight decay of backbone and head; 1e-4 in the authors' code for SOP and H-GLDv2."""
    loss_options: dict[str, float | bool | str | tuple[float, ...]] = Field(default_factory=dict)
    """Arguments of the loss: lam, alpha, tau, ... "level" chooses a level, 1 is the coarsest;
    "preset" fills in the rest: "paper", "suprank_sop" or "suprank_inat"."""
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


class SamplingOptions(Options):
    """The classes and images of a training batch, and how they are read."""

    operational: ClassVar[frozenset[str]] = frozenset({"reader", "folder"})
    reader: Literal["indexed", "stream"] = "indexed"
    """"indexed": each image at its place. "stream": shards from front to back, from a slow disk or
    a URL; it needs order "shards" and gives the same batches."""
    folder: ShardFolder = None
    """Path or URL of a copy of the shards to read from, such as "s3://bucket/shards"; default: the
    shards of the work folder."""
    order: Literal["random", "shards"] = "random"
    """"random": any image at any step. "shards": classes from the runs of the shards that are open,
    for disks that seek slowly."""
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
        if self.batches_per_combination and not (self.groups_per_batch and self.order == "random"):
            raise ValueError('batches_per_combination needs groups_per_batch and order = "random"')
        if self.reader == "indexed" and "://" in (self.folder or ""):
            raise ValueError(f'folder {self.folder} is a URL, which needs reader = "stream"')
        return self


Size = Annotated[int, Field(ge=1)] | tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]
Range = tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]]


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


class TrainOptions(Options):
    """The model, its batches and the runs that train it."""

    operational: ClassVar[frozenset[str]] = frozenset(
        {"workers", "undecodable_budget", "device", "checkpoint_steps", "tensorboard"}
    )
    backbone: str = "resnet50"
    """A timm model, or offline:efficientnet-lite0."""
    pretrained: bool = True
    """Start from pretrained weights; false: from random ones."""
    dim: int = Field(512, ge=2, lt=2**31)
    """Dimension D of an embedding."""
    image_size: int = Field(224, ge=32, lt=2**20)
    """Side in pixels of the square that the model sees in training."""
    pooling: Literal["default", "avg", "max", "gem"] = "default"
    """Pooling of the last feature map: the backbone's own, mean, maximum, or generalised mean with
    learned p, 3 at first ("gem")."""
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
    """Images embedded at a time, for batches larger than the memory allows; gradients stay exact.
    """
    classes_per_batch: int = Field(64, ge=2)
    """Number P of classes in a batch of P x K images; the paper has 256 images."""
    images_per_class: int = Field(4, ge=2)
    """Number K of images of each class in a batch; the paper has 4."""
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
    device: str = "auto"
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


class EvaluateOptions(Options):
    """Queries, gallery, models and metrics."""

    operational: ClassVar[frozenset[str]] = frozenset(
        {"batch_size", "workers", "device", "processes", "ray"}
    )
    protocol: Literal["auto", "all-vs-all", "query-gallery", "gldv2-paper", "gldv2-official"] = (
        "auto"
    )
    """"all-vs-all": each image queries all others of its split (open set). "query-gallery": one
    split against another. "auto" chooses between these two. "gldv2-paper": test against index,
    labelled landmarks only, as in the paper. "gldv2-official": that, and mAP@100 on the full index
    by the official answers."""
    query: str = "evaluation"
    """Split of the queries."""
    gallery: str = "evaluation"
    """Split of the gallery. The same as query: all against all. "QUERY+OTHER": the queries search
    among themselves and distractors (DyML)."""
    models: dict[RunName, ModelName] = Field(default_factory=dict)
    """Models by name: "run:NAME" of train, "timm:MODEL", "open_clip:MODEL/PRETRAINED",
    "offline:efficientnet-lite0", a model's folder, or a file of embeddings with image ids (.npz,
    .parquet). Default: all runs. Without any run here and without a section [train], nothing is
    trained."""
    metrics: tuple[str, ...] | None = None
    """Metrics by name; default: H-AP, NDCG, ASI, AP of each level, R@1 and mAP@100 of the finest
    level."""
    batch_size: int = Field(64, ge=1)
    """Photos embedded at a time on a GPU; a CPU takes a few for each thread."""
    workers: int = Field(0, ge=0)
    """Processes that read and decode photos for a GPU."""
    device: str = "auto"
    """Device that embeds and ranks: auto (a GPU if there is one), cpu or cuda."""
    processes: int = Field(1, ge=1)
    """Processes that embed; with GPUs, each uses one of them."""
    ray: str | None = None
    """Address of a Ray cluster that embeds; auto: this machine's."""

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


class PublishOptions(Options):
    """The release folder."""

    name: str = ""
    """Name of the release; empty: no release is made."""
    version: str = Field("1.0.0", pattern=r"^\d+\.\d+\.\d+$")
    """major.minor.patch: raise major if labels changed, minor if there are more, patch if the same
    ones are written again."""
    parts: Literal["labels", "labels+shards"] = "labels"
    """labels need no image; shards are released with the authors and licences of their images."""
    license: str = ""
    """Licence of the labels, as Hugging Face names it; empty: cc-by-4.0 for landmarks."""
    creators: tuple[str, ...] = ()
    """Names of those who release; empty: those who decided."""
    url: str = Field("", pattern=r"^(https?://\S+)?$")
    """Web page of the release; empty: its own card."""


class Pipeline(Options):
    """Everything in a pipeline file."""

    title: str = ""
    """Title of report and release; empty: the name of the work folder."""
    labels: LocalPath
    """Folder of the decisions, taxonomy and removals, kept in git."""
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
    """Describe all faults; one of train.defaults once, although each run inherits it."""
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
