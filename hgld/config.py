"""A pipeline file (TOML) as frozen options, one model a stage.

This is the one place for defaults: each stands here with its meaning and its source. A pipeline
file overrides them, ``--set stage.option=value`` overrides the file, and there is no fourth place.
Paths in a pipeline file are relative to that file and may hold ``${NAME:-default}``.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo

from hgld.errors import UsageError

__all__ = [
    "LEVEL_NAMES",
    "CleanOptions",
    "ClusterOptions",
    "CollectOptions",
    "Download",
    "EmbedOptions",
    "EvaluateOptions",
    "ExportOptions",
    "FetchOptions",
    "LabelOptions",
    "Options",
    "Pipeline",
    "PublishOptions",
    "ReportOptions",
    "ReviewOptions",
    "RunOptions",
    "SamplingOptions",
    "ScrapeOptions",
    "SourceOptions",
    "StageContext",
    "ToyOptions",
    "TrainOptions",
    "load_pipeline",
    "nearest",
]

LEVEL_NAMES = ("kind", "supercategory", "landmark")  # coarse to fine, as H-GLDv2 publishes them


@dataclass(frozen=True)
class StageContext:
    """What a stage may know of the run it belongs to.

    Attributes:
        now: date of the run, ISO 8601; the only date that may reach an output.
        state: a folder of the stage's own for unfinished work; it survives a kill.
        source: where the data set's own files lie, and in which layout.
        labels: folder of what people decide (taxonomy, decisions, overrides, removals).
    """

    now: str
    state: Path
    source: "SourceOptions"
    labels: Path


def _fill_in(variable: re.Match[str]) -> str:
    name, default = variable.groups()
    if default is None and not os.environ.get(name):  # an empty one would lead to the root
        raise ValueError(f"the variable {name} is not set; set it or write ${{{name}:-default}}")
    return os.environ.get(name) or default or ""


def _resolve(path: Path, info: ValidationInfo) -> Path:
    expanded = re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", _fill_in, str(path))
    folder = (info.context or {}).get("folder", Path.cwd())
    return Path(os.path.normpath(folder / expanded))


def _refuse_odd_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name):
        raise ValueError("a run's name is a folder's; use letters, digits, '_', '-' and inner '.'")
    return name


LocalPath = Annotated[Path, AfterValidator(_resolve)]
RunName = Annotated[str, AfterValidator(_refuse_odd_name)]


class Options(BaseModel):
    """Frozen options; a key that does not exist is an error.

    ``operational`` names those that change how a stage works but not what it makes; changing
    them makes nothing stale.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    operational: ClassVar[frozenset[str]] = frozenset()

    def decisive(self) -> dict[str, Any]:
        """The options that decide the stage's output, as JSON values."""
        return self.model_dump(mode="json", exclude=set(self.operational))


class ToyOptions(Options):
    """The made landmark world of the quickstart."""

    seed: int = 0
    landmarks: int = Field(48, ge=6, description="train landmarks; half as many in the index")
    images: int = Field(8, ge=2, description="images of a landmark, on average")
    size: int = Field(128, ge=32, description="side of an image in pixels")


class SourceOptions(Options):
    """Where the data set's own files lie, and in which layout."""

    kind: Literal["gldv2", "folder", "toy"] = "gldv2"
    folder: LocalPath | None = Field(None, description="default: source/ in the work folder")
    labels_csv: str = Field("labels.csv", description="folder: path, then levels coarse to fine")
    toy: ToyOptions = ToyOptions()


class Download(Options):
    """One file, or ``count`` files numbered in ``{number}``, below ``fetch.base_url``."""

    url: str
    count: int = 1
    megabytes: float = Field(description="size of one file, for the plan")
    md5_url: str = Field("", description="file whose first word is the MD5; empty: not published")


class FetchOptions(Options):
    """Which files to download."""

    operational: ClassVar[frozenset[str]] = frozenset({"parallel"})
    base_url: str = "https://s3.amazonaws.com/google-landmark/"
    downloads: tuple[Download, ...] = ()
    parallel: int = Field(6, ge=1, description="downloads at a time, as in GLDv2's own script")


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
        0.0, ge=0, lt=1, description="share of train landmarks held out for evaluation (open set)"
    )
    validation_share: float = Field(
        0.0, ge=0, lt=1, description="share of the others held out for choosing options"
    )
    seed: int = Field(0, description="draws the held-out landmarks")


class ScrapeOptions(Options):
    """Where "instance of" values come from."""

    operational: ClassVar[frozenset[str]] = frozenset(
        {"contact", "requests_per_second", "maxlag", "batch_size"}
    )
    source: Literal["wikimedia", "table"] = "wikimedia"
    stand_in: bool = Field(False, description="ask the toy world's own server on this machine")
    commons_api: str = "https://commons.wikimedia.org/w/api.php"
    wikidata_api: str = "https://www.wikidata.org/w/api.php"
    contact: str = Field("", description="e-mail or URL in the User-Agent; required")
    requests_per_second: float = Field(1.5, gt=0, le=3, description="Wikimedia allows 200/minute")
    maxlag: int = Field(5, ge=0, description="seconds of server lag to wait out; 0: do not ask")
    batch_size: int = Field(50, ge=1, le=50, description="titles or items a request")
    table: LocalPath | None = Field(None, description='source = "table": the CSV')
    table_id: str = "landmark_id"
    table_value: str = "supercategory"
    table_split: Literal["train", "index"] = "train"


class CleanOptions(Options):
    """Which statements of a landmark count."""

    policy: Literal["first-best", "single-only", "all"] = Field(
        "first-best", description="single-only is the paper's text, first-best its likely practice"
    )
    irrelevant_ids: tuple[str, ...] = ("Q4167836", "Q4167410", "Q13406463", "Q17442446")
    irrelevant_labels: tuple[str, ...] = ("Wikimedia category", "Wikimedia disambiguation page")


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

    clusters: int = Field(78, ge=1, description="the paper ends with 78 supercategories")
    seed: int = Field(0, ge=0, lt=2**32)
    restarts: int = Field(10, ge=1)


class ReviewOptions(Options):
    """When the run may pass the review."""

    min_coverage: float = Field(
        1.0, ge=0, le=1, description="share of labelled landmarks whose value is decided"
    )
    who: str = Field("", description="name written into decisions; default: the login name")


class LabelOptions(Options):
    """Where the hierarchy comes from: reviewed decisions, published CSVs, or the folder's CSV."""

    source: Literal["decisions", "published", "folder"] = "decisions"
    train_csv: str = "metadata/train_label_to_hierarchical.csv"
    index_csv: str = "ground_truth/index_label_to_hierarchical.csv"


class ExportOptions(Options):
    """How images become shards."""

    operational: ClassVar[frozenset[str]] = frozenset({"processes", "ray"})
    shard_megabytes: float = Field(256.0, gt=0)
    run_length: int = Field(16, ge=1, description="consecutive images of a class in a shard")
    seed: int = Field(0, ge=0)
    short_side: int | None = Field(
        None, ge=1, description="resize to this; default: copy the JPEG bytes"
    )
    jpeg_quality: int = Field(90, ge=1, le=100)
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


class RunOptions(Options):
    """One training run: everything that two runs of a comparison may differ in."""

    loss: Literal[
        "SmoothAP", "ROADMAP", "HAPPIER", "RODNDCG", "CSL", "SupAP", "SupHAP", "SupNDCG"
    ] = "HAPPIER"
    steps: int = Field(500, ge=0, description="0: the pretrained backbone as it is")
    lr: float = Field(1e-4, gt=0, description="backbone")
    head_lr: float = Field(2e-4, gt=0, description="linear head; twice the backbone's (authors)")
    proxy_lr: float = Field(1e-2, gt=0, description="learned class vectors")
    weight_decay: float = 1e-4
    loss_options: dict[str, float] = Field(default_factory=dict, description="lam, alpha, tau ...")


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
        "drop", description="classes with too few images: left out, or their images repeated"
    )


class TrainOptions(Options):
    """The trainer."""

    operational: ClassVar[frozenset[str]] = frozenset({"workers", "device", "checkpoint_steps"})
    backbone: str = Field("resnet50", description="a timm model, or offline:efficientnet-lite0")
    pretrained: bool = True
    dim: int = Field(512, ge=2)
    image_size: int = Field(224, ge=32)
    classes_per_batch: int = Field(64, ge=2)
    images_per_class: int = Field(4, ge=2)
    batches: SamplingOptions = SamplingOptions()
    split: str = "train"
    seed: int = Field(0, ge=0)
    workers: int = Field(0, ge=0)
    device: str = "auto"
    checkpoint_steps: int = Field(100, ge=1)
    defaults: RunOptions = Field(RunOptions(), description="what all runs share")
    runs: dict[RunName, RunOptions] = Field(
        default_factory=lambda: {"model": RunOptions()},
        min_length=1,
        description="name -> what differs",
    )


class EvaluateOptions(Options):
    """Which images query which, and what is measured."""

    operational: ClassVar[frozenset[str]] = frozenset({"batch_size", "workers", "device"})
    query: str = Field("evaluation", description="split of the queries")
    gallery: str = Field(
        "evaluation", description="split of the gallery; the same: all against all"
    )
    metrics: tuple[str, ...] = (
        "H-AP",
        "NDCG",
        "ASI",
        "AP:kind",
        "AP:supercategory",
        "AP:landmark",
        "R@1:landmark",
        "mAP@100:landmark",
    )
    batch_size: int = Field(64, ge=1)
    workers: int = Field(0, ge=0)
    device: str = "auto"


class ReportOptions(Options):
    """What the report shows."""

    grid_queries: int = Field(6, ge=0, description="queries shown with their first images")
    grid_images: int = Field(6, ge=1)


class PublishOptions(Options):
    """The release folder."""

    name: str = "H-GLDv2"
    version: str = "1.0.0"


class Pipeline(Options):
    """All that a pipeline file says."""

    title: str = ""
    labels: LocalPath
    source: SourceOptions = SourceOptions()
    fetch: FetchOptions = FetchOptions()
    collect: CollectOptions = CollectOptions()
    scrape: ScrapeOptions = ScrapeOptions()
    clean: CleanOptions = CleanOptions()
    embed: EmbedOptions = EmbedOptions()
    cluster: ClusterOptions = ClusterOptions()
    review: ReviewOptions = ReviewOptions()
    label: LabelOptions = LabelOptions()
    export: ExportOptions = ExportOptions()
    train: TrainOptions = TrainOptions()
    evaluate: EvaluateOptions = EvaluateOptions()
    report: ReportOptions = ReportOptions()
    publish: PublishOptions = PublishOptions()


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
        raise UsageError(f"{path}: {_describe(error)}") from None


def _read_toml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UsageError(f"{path}: no such pipeline file; pipelines/ holds those that ship")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a TOML file: {error}") from None


def _apply(values: dict[str, Any], setting: str) -> None:
    """Write one ``a.b=value`` into the nested values; the value is TOML, else plain text."""
    name, found, text = setting.partition("=")
    if not found:
        raise UsageError(f"--set {setting}: expected stage.option=value")
    *parents, last = name.strip().split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise UsageError(f"--set {setting}: '{parent}' holds a value, not options")
    try:
        values[last] = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        values[last] = text


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
    return "; ".join(_describe_one(item) for item in error.errors())


def _describe_one(item: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in item["loc"])
    if item["type"] != "extra_forbidden":
        says = item["msg"].removeprefix("Value error, ")
        return f"{where}: {says[0].lower()}{says[1:]} (found {item['input']!r})"
    *parents, key = item["loc"]
    return f"unknown key '{where}'{nearest(str(key), _keys_at(parents))}"


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


def nearest(word: str, words: Iterable[str]) -> str:
    """A "did you mean" clause, or nothing where no word is near.

    Example:
        >>> nearest("cluster", ["clusters", "seed"])
        "; did you mean 'clusters'?"
        >>> nearest("x", ["clusters"])
        ''
    """
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""
