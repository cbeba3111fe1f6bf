"""A pipeline file (TOML) as frozen options, one model a stage.

Defaults are set here only, each with its meaning and source in the docstring below it. A pipeline
file overrides them, and ``--set stage.option=value`` overrides the file. Paths in a pipeline file
are relative to that file, paths on the command line (also in ``--set``) to the current folder. Both
may begin with ``~/`` and hold ``${NAME:-default}``.
"""

import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from hgld.errors import UsageError
from hgld.words import nearest

__all__ = [
    "KIND_SEPARATOR",
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
    "LinkOptions",
    "LossName",
    "ModelOptions",
    "NativeKind",
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
    "model_options",
    "without_folders",
]

# pydantic's kinds of faults whose own words name Python types
EXPECTED = {
    "path_type": "a path",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
}
LEVEL_NAMES = ("kind", "supercategory", "landmark")  # coarse to fine, as H-GLDv2 publishes them
KIND_SEPARATOR = " > "  # between the classes above a supercategory, coarse to fine


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
        levels: names of the levels above the landmarks, coarse to fine.
        embed: the text encoder, for all stages that compare texts.
        languages: of the names of classes, the best first.
    """

    now: str
    state: Path
    source: "SourceOptions"
    labels: Path
    scrape: "ScrapeOptions" = field(default_factory=lambda: ScrapeOptions())
    force: bool = False
    title: str = ""
    levels: tuple[str, ...] = LEVEL_NAMES[:-1]
    embed: "EmbedOptions" = field(default_factory=lambda: EmbedOptions())
    languages: tuple[str, ...] = ("en",)


def _fill_in(variable: re.Match[str]) -> str:
    name, default = variable.groups()
    if default is None and not os.environ.get(name):  # an empty one would lead to the root
        raise ValueError(f"the variable {name} is not set; set it or write ${{{name}:-default}}")
    return os.environ.get(name) or default or ""


class _TextFrom(str):
    """Text from elsewhere than the pipeline file: a path in it is relative to ``folder``."""

    folder: Path


def _resolve(path: Any, info: ValidationInfo) -> Any:
    """Return an absolute path; other types are left for pydantic to refuse."""
    if not isinstance(path, str | Path):
        return path
    expanded = re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", _fill_in, str(path))
    folder = path.folder if isinstance(path, _TextFrom) else (info.context or {}).get("folder")
    if expanded.startswith("~/"):
        return Path(os.path.normpath(Path(expanded).expanduser()))
    return Path(os.path.normpath((folder or Path.cwd()) / expanded))


def _is_run_name(name: object) -> bool:
    return isinstance(name, str) and bool(re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name))


def _refuse_odd_name(name: str) -> str:
    if not _is_run_name(name):
        raise ValueError("a run's name is a folder's; use letters, digits, '_', '-' and inner '.'")
    return name


def _resolve_model(name: Any, info: ValidationInfo) -> Any:
    """Return a model's name unchanged, and a path in it as an absolute one."""
    if not isinstance(name, str):
        return name
    kind, _, rest = name.partition(":")
    if kind == "python":
        place, _, function = rest.rpartition(":")
        if not place or not function.isidentifier():
            raise ValueError("expected python:FILE.py:FUNCTION or python:MODULE:FUNCTION")
        if not place.endswith(".py"):
            return name
        marked = _mark(place, name.folder) if isinstance(name, _TextFrom) else place
        return f"python:{_resolve(marked, info)}:{function}"
    if kind in ("timm", "open_clip"):
        return _resolve_weights(name, info, tags=kind == "open_clip")
    return name if kind in ("run", "offline") else str(_resolve(name, info))


def _split_weights(source: str) -> tuple[str, str]:
    """Split MODEL/FILE or local-dir:FOLDER before its path, which is empty in any other source."""
    found = re.fullmatch(r"((?:timm:|open_clip:)?(?:local-dir:|[^/:]+/))(.*)", source, re.DOTALL)
    return (found[1], found[2]) if found else (source, "")


def _resolve_weights(source: str, info: ValidationInfo, tags: bool) -> str:
    """Return MODEL/FILE or local-dir:FOLDER with an absolute path; other sources unchanged.

    With ``tags``, MODEL/PRETRAINED has no file: a FILE has a dot or a slash.
    """
    start, path = _split_weights(source)
    if not path or (tags and start.endswith("/") and not {*path} & {*"./"}):
        return source
    marked = _mark(path, source.folder) if isinstance(source, _TextFrom) else path
    return f"{start}{_resolve(marked, info)}"


def _resolve_encoder(name: Any, info: ValidationInfo) -> Any:
    return _resolve_weights(name, info, tags=True) if isinstance(name, str) else name


def _resolve_backbone(name: Any, info: ValidationInfo) -> Any:
    return _resolve_weights(name, info, tags=False) if isinstance(name, str) else name


def without_folders(source: str) -> str:
    """Return MODEL/FILE or local-dir:FOLDER without its path, which other machines do not have.

    Example:
        >>> without_folders("open_clip:ViT-B-32//data/w.pt"), without_folders("timm:resnet50")
        ('open_clip:ViT-B-32/w.pt', 'timm:resnet50')
    """
    start, path = _split_weights(source)
    return start + Path(path).name if path.startswith("/") else source


def _resolve_start(name: Any, info: ValidationInfo) -> Any:
    """Return the name of a run unchanged, and any other text as an absolute path."""
    is_path = isinstance(name, str) and name and not _is_run_name(name)
    return str(_resolve(name, info)) if is_path else name


def _resolve_shards(folder: Any, info: ValidationInfo) -> Any:
    """Return a URL without credentials, and a path as an absolute one."""
    if folder is None:
        return folder
    if isinstance(folder, str) and "://" in folder:
        return _require_shard_url(folder)
    return str(_resolve(folder, info))


def _require_rising(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] > ends[1]:
        raise ValueError("expected the least, then the largest")
    return ends


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


def _require_shard_url(url: str) -> str:
    parts = urlsplit(url)
    if "://" not in url or not (parts.netloc or parts.path.strip("/")):
        raise ValueError(f"{url!r} is not a URL; expected one such as s3://bucket/set")
    if "//" in parts.path.rstrip("/"):  # S3 has such folders, but its drivers do not list them
        raise ValueError(f"{url!r} has a folder without a name; expected one / between names")
    if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        raise ValueError(f"{url!r} has a relative path; expected one such as file:///data/set")
    if ":" in parts.netloc.rpartition("@")[0] or parts.query:
        raise ValueError(
            f"the URL of {parts.scheme}:// holds credentials or a query; the driver reads "
            "credentials from the environment or a profile"
        )
    return url.rstrip("/")


def _files_of_models(sources: Mapping[str, str]) -> dict[str, Path]:
    """Return option -> folder or file, of the models that are no part of a package."""
    paths = {}
    for name, source in sources.items():
        kind, _, rest = source.partition(":")
        if kind in ("timm", "open_clip"):  # MODEL/FILE, MODEL/PRETRAINED or local-dir:FOLDER
            inner, _, folder = rest.partition(":")
            file = folder if inner == "local-dir" else rest.partition("/")[2]
            paths[name] = Path(file).absolute() if file and Path(file).exists() else Path()
        else:
            paths[name] = Path(rest.rpartition(":")[0] if kind == "python" else source)
    return {name: path for name, path in paths.items() if path.is_absolute()}


LocalPath = Annotated[Path, BeforeValidator(_resolve)]
WebAddress = Annotated[str, AfterValidator(_require_web_address)]
ModelName = Annotated[str, BeforeValidator(_resolve_model)]
TextEncoderName = Annotated[str, BeforeValidator(_resolve_encoder)]
BackboneName = Annotated[str, BeforeValidator(_resolve_backbone)]
StartModel = Annotated[str, BeforeValidator(_resolve_start)]
ShardUrl = Annotated[str, AfterValidator(_require_shard_url)]
ShardFolder = Annotated[str | None, BeforeValidator(_resolve_shards)]
RunName = Annotated[str, AfterValidator(_refuse_odd_name)]


class Options(BaseModel):
    """Frozen options; a key that does not exist is an error.

    ``operational`` names the options that change how a stage works but not its results; changing
    them makes nothing stale. ``brought`` names the options that lead to a person's own files; a
    change of their content makes the stage stale.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
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


# data sets in their own published layout
NativeKind = Literal[
    "sop",
    "inaturalist",
    "cub",
    "dyml",
    "in_shop",
    "vehicle_id",
    "sfm_120k",
    "vggface2",
    "ilias",
    "uned",
]


class SourceOptions(Options):
    """The folder and layout of the data set's own files."""

    brought: ClassVar[frozenset[str]] = frozenset({"class_table"})
    kind: Literal["gldv2", "folder", "toy", NativeKind] = "gldv2"
    """Layout of the data set: GLDv2, a folder of images with a CSV of labels, the drawn world of
    the quickstart ("toy"), or Stanford Online Products, iNaturalist 2018, CUB-200-2011, DyML,
    DeepFashion In-shop, VehicleID, SfM-120k, VGGFace2, ILIAS or UnED as published."""
    folder: LocalPath | None = None
    """Folder of the data set's own files; default: source/ in the work folder."""
    labels_csv: str = "labels.csv"
    """For a folder: CSV of image path, then one column a level, coarse to fine. Empty: there is no
    CSV, each sub-folder is a class (below train/, val/ and test/ if these are the only ones)."""
    repeated_names: Literal["refuse", "qualify"] = "refuse"
    """For a folder, if two parents have a class of the same name: "refuse" it, or "qualify" it as
    NAME (PARENT)."""
    class_table: LocalPath | None = None
    """For CUB: CSV of class_id, then one column a level, coarse to fine."""
    cub_split: Literal["classes", "images"] = "classes"
    """For CUB: "classes" holds out the last 100 species (the split of retrieval papers); "images"
    uses train_test_split.txt, with all species on both sides."""
    vehicle_id_test: Literal["small", "medium", "large"] = "small"
    """For VehicleID: the test set of 800, 1,600 or 2,400 vehicles."""
    vggface2_boxes: Literal["auto", "required", "none"] = "auto"
    """For VGGFace2: export cuts each photo to its box in bb_landmark/loose_bb_train.csv and
    loose_bb_test.csv. "auto": if these files are there; "none": the photos stay whole."""
    vggface2_margin: float = Field(0.3, ge=0, le=10)
    """For VGGFace2: share by which a box grows, half on each side; 0.3 as published, 1 is about the
    photo as it is."""
    inaturalist: INaturalistOptions = INaturalistOptions()
    toy: ToyOptions = ToyOptions()

    @property
    def family(self) -> str:
        """The kind, or "native" for a data set in its own published layout."""
        return "native" if self.kind in get_args(NativeKind) else self.kind

    @property
    def class_noun(self) -> str:
        """The word of messages for a finest class: landmark or class."""
        return "landmark" if self.kind in ("gldv2", "toy") else "class"


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

    operational: ClassVar[frozenset[str]] = frozenset(
        {"parallel", "ray", "cpus_per_task", "memory_gb_per_task"}
    )
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
    ray: str | None = None
    """Address of a Ray cluster that shrinks the photos, as many tars at a time as parallel; auto:
    this machine's. This machine downloads."""
    cpus_per_task: float = Field(1.0, gt=0)
    """Cores of the Ray cluster that a tar reserves while its photos are shrunk."""
    memory_gb_per_task: float = Field(0.0, ge=0)
    """Memory in GB that a tar reserves on its node of the Ray cluster; 0: none."""


class CollectOptions(Options):
    """File names in the source folder (empty: there is no such file), and the classes to hold out.

    The defaults are GLDv2's own layout (cvdfoundation/google-landmark).
    """

    operational: ClassVar[frozenset[str]] = frozenset({"memory_gb"})
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
    exclude: tuple[LocalPath, ...] = ()
    """Lists (CSV) of training images to leave out, such as those that an evaluation set also has:
    a column image_id, id or images (several in a cell), or for GLDv2 landmark_id alone. If there is
    a column decision, as in the sheets of `hgld labels suspects`, only its rows with drop count."""
    only: tuple[LocalPath, ...] = ()
    """Lists of the same form; training images that one of them lacks are left out. RGLDv2-clean is
    such a list: GLDv2-clean without the landmarks of ROxford and RParis (Song et al. 2024)."""
    seed: int = 0
    """Draws the held-out classes."""
    memory_gb: float | None = Field(None, ge=1)
    """Memory in GB for the joins of the tables of GLDv2; what exceeds it goes to the disk. Default:
    a quarter of the machine's."""

    @model_validator(mode="after")
    def _holds_out_once(self) -> Self:
        if self.evaluation_share and self.evaluation_classes:
            raise ValueError("set evaluation_share or evaluation_classes, not both")
        return self

    def brought_paths(self) -> dict[str, Path]:
        """The list of classes, if it is a file, and the lists of images."""
        classes = self.evaluation_classes
        found = {"evaluation_classes": classes} if isinstance(classes, Path) else {}
        for name, lists in (("exclude", self.exclude), ("only", self.only)):
            found |= {f"{name}.{i}": path for i, path in enumerate(lists)}
        return found


LanguageCode = Annotated[str, Field(pattern=r"^[a-z]+(-[a-z0-9]+)*$")]
ItemId = Annotated[str, Field(pattern=r"^Q[1-9]\d*$")]


class LinkOptions(Options):
    """Look-up of Wikidata items by the names of classes, with scrape.source = "items"."""

    brought: ClassVar[frozenset[str]] = frozenset({"table"})
    table: LocalPath | None = None
    """CSV of what is known of the classes, such as the CSV of labels: a column of names, and any of
    qid, wikipedia (title or URL), commons_url, wordnet and gbif. links.csv overrides it."""
    table_name: str = "name"
    """Column of the table with the names."""
    languages: tuple[LanguageCode, ...] = Field(("en",), min_length=1)
    """Languages of the names, such as de or pt-br; each next one is asked for names that fit no
    label, alias or page title in those before. Values have their labels in the first of these that
    has one, else in English."""
    candidates: int = Field(7, ge=1, le=50)
    """Most items that a search returns for a name."""
    about: str = ""
    """Topic of the classes, such as "animals", which tells items of one name apart. An item found
    by name is linked only if its description, if it has one, is nearer to the topic than two thirds
    of 30 descriptions of all sorts."""
    margin: float = Field(0.1, ge=0, le=2)
    """Of several items of exactly that name the best is linked if its score (cosine between the
    texts, in [-1, 1]) exceeds that of the next by this; else a person decides."""
    photos: int = Field(5, ge=0)
    """If the image encoder is a CLIP (embed.images): most photos of a class whose mean is compared
    with the texts of its candidates; 0: none. A single item is linked only if they are nearer to
    its text than to two thirds of its label with descriptions of all sorts."""
    sure: float = Field(0.9, gt=0.5, le=1)
    """Of several items of exactly that name the photos choose the one that has at least this
    probability, softmax(100 cos), as in CLIP; if photos and texts choose differently, a person
    decides."""
    excluded: tuple[ItemId, ...] = (
        "Q4167410",
        "Q22808320",
        "Q4167836",
        "Q13406463",
        "Q17442446",
        "Q101352",
    )
    """Items that are an instance of these (P31) are no candidates: disambiguation pages, Wikimedia
    categories, lists and other internal items, family names."""


class ScrapeOptions(Options):
    """Origin of the "instance of" values, and the manners of asking for them."""

    operational: ClassVar[frozenset[str]] = frozenset(
        {"contact", "requests_per_second", "maxlag", "batch_size", "retry", "refresh_older_than"}
        | {"answer_timeout"}
    )
    brought: ClassVar[frozenset[str]] = frozenset(
        {"table", "html_folder", "dump_items", "dump_pages", "dump_redirects", "dump_entities"}
    )
    source: Literal["wikimedia", "table", "html", "dump", "names", "items"] = "wikimedia"
    """Origin of the "instance of" values: Wikimedia's API, a table (CSV), saved Commons pages,
    Wikimedia's dumps, the names of the classes themselves, or the Wikidata items of these names."""
    properties: tuple[Annotated[str, Field(pattern=r"^P[1-9]\d*$")], ...] = Field(
        ("P31",), min_length=1
    )
    """With source = "items": properties whose statements are the values, such as P31 (instance of)
    for places, P279 (subclass of) for products, P171 (parent taxon) for species."""
    roots: tuple[ItemId, ...] = ()
    """With source = "items": items at which the way up over the properties ends."""
    most_hops: int = Field(0, ge=0, le=50)
    """With source = "items": most steps of that way, which ancestry.csv records."""
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
    """With source = "dump", and with "items" in place of the API: all.json of Wikidata."""

    @property
    def gives_hints(self) -> bool:
        """Whether Wikidata may be asked for hints: the values are its own, or a contact is set."""
        return self.source == "wikimedia" or bool(self.contact)


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
    languages: tuple[LanguageCode, ...] = ()
    """Codes of languages, such as de or pt-br, in which the review shows the labels of Wikidata's
    classes beside the English ones."""


class EmbedOptions(Options):
    """The text encoder of the "instance of" values."""

    operational: ClassVar[frozenset[str]] = frozenset({"batch_size", "device"})
    encoder: TextEncoderName = "ViT-L-14/laion2b_s32b_b82k"
    """Text encoder: MODEL/PRETRAINED or MODEL/FILE of open_clip (with a dot or a slash in FILE),
    local-dir:FOLDER, or offline:minilm. The default is that of the authors' code."""
    prompt: str = "A picture of a {label}"
    """Text that is encoded for a value (authors' code)."""
    images: ModelName | None = None
    """Image encoder of cluster.on = "images" and "text+images", and of link if it is a CLIP:
    "open_clip:MODEL/PRETRAINED", "timm:MODEL", "offline:efficientnet-lite0", a model's folder or
    "python:FILE.py:FUNCTION". Default: the image tower of the CLIP in encoder, or
    offline:efficientnet-lite0 beside offline:minilm."""
    photos: int = Field(20, ge=1)
    """Most photos of a landmark that are embedded, spread evenly over its image ids."""
    batch_size: int = Field(256, ge=1)
    """Texts encoded at a time."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu or cuda."""

    @property
    def image_encoder(self) -> str:
        """The image encoder, or its default beside the text encoder."""
        bundled = self.encoder.startswith("offline:")
        return self.images or (
            "offline:efficientnet-lite0" if bundled else f"open_clip:{self.encoder}"
        )

    @property
    def compares_photos(self) -> bool:
        """Whether the image encoder is a CLIP, which embeds texts and photos alike."""
        return self.image_encoder.startswith("open_clip:")

    def brought_paths(self) -> dict[str, Path]:
        """The folder or file of each encoder, if it is none of a package."""
        images = {"images": self.images} if self.images else {}
        return _files_of_models({"encoder": f"open_clip:{self.encoder}", **images})


class ClusterOptions(Options):
    """Clusters of the vectors of the values (Sec. VI of the paper)."""

    levels: tuple[str, ...] = LEVEL_NAMES[:-1]
    """Names of the levels above the classes, coarse to fine; the default is H-GLDv2's, whose kinds
    are natural and human-made. In the review the finest is the supercategory, those above it are
    its kind: their classes, coarse to fine, joined by " > "."""
    clusters: int = Field(78, ge=1)
    """Number of clusters k of the finest level; H-GLDv2 has 78."""
    above: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Number of clusters of each level above the finest, coarse to fine; each groups the centres of
    the level below. Default: none; people name these levels."""
    method: Literal["k-means", "ward", "average"] = "k-means"
    """k-means, or agglomerative clustering with Ward's or average linkage (Euclidean)."""
    on: Literal["text", "images", "text+images"] = "text"
    """Vectors that are clustered: those of the values' texts, the mean embeddings of their photos
    (embed.images), or both."""
    image_weight: float = Field(0.5, gt=0, lt=1)
    """With on = "text+images": share w of the photos in a squared distance, d2 = (1 - w) d2(text) +
    w d2(photos)."""
    ancestry: int = Field(0, ge=0)
    """With scrape.source = "items": values with the same nearest shared ancestor at most this many
    steps up in ancestry.csv are in one cluster; 0: none. scrape.most_hops limits these steps."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Draws the first centres of k-means."""
    restarts: int = Field(10, ge=1)
    """Runs of k-means from other first centres; the one with the least inertia counts."""
    seeds: Literal["random", "decided"] = "random"
    """First centres: "random", or "decided": the mean of each decided supercategory's values, so
    that each decision changes the clusters."""

    @model_validator(mode="after")
    def _is_a_tree(self) -> Self:
        names, above = self.levels, self.above
        if not names or len({*names, LEVEL_NAMES[-1], "class"}) < len(names) + 2:
            raise ValueError("levels need different names, and none is 'landmark' or 'class'")
        if odd := [name for name in names if not name.strip() or KIND_SEPARATOR in name]:
            raise ValueError(f"levels: {odd[0]!r} is no name of a level")
        if above and len(above) != len(names) - 1:
            raise ValueError(
                f"above has {len(above)} numbers, but {len(names) - 1} levels are above the finest"
            )
        if sorted((*above, self.clusters)) != [*above, self.clusters]:
            raise ValueError("above: from coarse to fine, no level has fewer clusters")
        if self.seeds == "decided" and self.method != "k-means":
            raise ValueError('seeds = "decided" needs method = "k-means"')
        return self

    @property
    def holds_together(self) -> bool:
        """Whether ancestry.csv decides which values are in one cluster."""
        return self.ancestry > 0


class ReviewOptions(Options):
    """The review, and the share of decisions that lets a run pass it."""

    operational: ClassVar[frozenset[str]] = frozenset(
        {"who", "sure", "largest_change", "page_photos", "page_megabytes", "thumbnails"}
    )
    min_coverage: float = Field(1.0, ge=0, le=1)
    """Share of labelled landmarks whose value must be decided before the run goes on."""
    order: Literal["images", "gain"] = "images"
    """Which open values come first: "images" by images x (1 - margin of their cluster), "gain" by
    images x (1 - probability of their suggestion), for fewer decisions until most images are
    right."""
    who: str = ""
    """Name that signs decisions; default: git's user.name, else it is asked for once."""
    largest_change: float = Field(0.2, ge=0, le=1)
    """Share of the decisions in force that an apply may change, if it changes ten or more, without
    --yes."""
    sure: float = Field(0.95, gt=0, le=1)
    """For --html: probability from which suggestions are in the list of sure ones."""
    page_photos: int = Field(3, ge=0)
    """For the page: photos of a value, of different landmarks where it has them."""
    page_megabytes: float = Field(12.0, gt=0)
    """For --html: size of the page in MB; photos fill the space that the rows leave."""
    thumbnails: Literal["none", "commons"] = "none"
    """For --serve: values without a photo on this machine show one of Wikimedia Commons; needs
    scrape.contact."""


class LabelOptions(Options):
    """Origin of the hierarchy.

    "folder" is the CSV of a folder, "native" what the files of a published layout say.
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

    operational: ClassVar[frozenset[str]] = frozenset(
        {"out", "processes", "memory_gb", "ray", "cpus_per_task", "memory_gb_per_task"}
    )
    out: ShardUrl | None = None
    """URL of a folder for the shards, such as "s3://bucket/set"; the work folder then keeps only
    their index and other sidecars. Default: the work folder."""
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
    """JPEG quality of images that are encoded again: resized, cut out of a photo, turned upright
    (EXIF) or not JPEG. Other JPEGs are copied byte for byte."""
    decode_all: bool = True
    """Decode every image to check it; false: trust the JPEGs that are copied."""
    licenses: tuple[str, ...] = ("*",)
    """Licences that may be exported, as patterns with * and ?; only the word "unknown" itself
    permits images of unknown licence."""
    processes: int = Field(1, ge=1)
    """Processes that write shards."""
    memory_gb: float | None = Field(None, ge=1)
    """Memory in GB for sorting tables of images; beyond it they are sorted on disk. Default: a
    quarter of the machine's."""
    ray: str | None = None
    """Address of a Ray cluster that writes the shards; auto: this machine's."""
    cpus_per_task: float = Field(1.0, gt=0)
    """Cores of the Ray cluster that one shard reserves while it is written."""
    memory_gb_per_task: float = Field(0.0, ge=0)
    """Memory in GB that one shard reserves on its node of the Ray cluster; 0: none."""


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
    weight_decay: float = 1e-4
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
        return self


Size = Annotated[int, Field(ge=1)] | tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]
Range = Annotated[
    tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]],
    AfterValidator(_require_rising),
]


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


def _order_runs(runs: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return the names of runs and of those that they start from, which come first.

    Raises:
        ValueError: a run starts from an unknown run, or from itself, also by way of others.

    Example:
        >>> _order_runs({"a": {"init_from": "b"}, "b": {}, "c": {}}, ["c", "a"])
        ['c', 'b', 'a']
    """
    ordered: dict[str, None] = {}
    for name in names:
        chain = [name]
        while _is_run_name(start := _start_of(runs[chain[-1]])):
            where = f"runs.{chain[-1]}.init_from"
            if start not in runs:
                raise ValueError(
                    f"{where}: unknown run {start!r}{nearest(start, runs)} (there are "
                    f"{', '.join(runs)}; a folder is a path such as ./{start})"
                )
            if start in chain:
                circle = " -> ".join([*chain[chain.index(start) :], start])
                raise ValueError(
                    f'{where}: {circle} leads back; name a run that trains before, or ""'
                )
            chain.append(start)
        ordered |= dict.fromkeys(reversed(chain))
    return list(ordered)


def _start_of(run: Any) -> Any:
    """Value of init_from in the options of a run, also before they are validated."""
    return run.get("init_from") if isinstance(run, dict) else getattr(run, "init_from", None)


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
    dim: int = Field(512, ge=2, lt=2**31)
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
    """Images embedded at a time, for batches larger than the memory allows; gradients stay exact.
    """
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
        return {**values, "runs": {name: runs[name] for name in _order_runs(runs, names)}}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if isinstance(self.eval_resize, int) and self.eval_crop is None:
            raise ValueError(
                "eval_resize of the short side alone leaves photos of many shapes; set eval_crop "
                "too, or eval_resize = [height, width]"
            )
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
        files = _files_of_models({"backbone": f"timm:{self.backbone}"} if self.pretrained else {})
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


class ModelOptions(Options):
    """A model to evaluate, with the preparation of its photos; a text is its source alone.

    Trained runs and model folders are evaluated as they were trained, or at the photos' own size.
    """

    source: ModelName
    """"run:NAME" of train, "timm:MODEL", "timm:MODEL/FILE", "open_clip:MODEL/PRETRAINED",
    "open_clip:MODEL/FILE", "offline:efficientnet-lite0", a model's folder, a file of embeddings
    with image ids (.npz, .parquet), or "python:FILE.py:FUNCTION" or "python:MODULE:FUNCTION", whose
    code is run."""
    image_size: int | None = Field(None, ge=1, le=16384)
    """Side in pixels of the photos; default: that of the pretrained model, 224 for python."""
    pooling: Literal["default", "avg", "max", "gem", "token"] | None = None
    """Pooling of a timm model, as in train.pooling; "token" is DINOv2 and DINOv3 as published."""
    eval_resize: Size | None = None
    """First resize to this short side, or to [height, width], in pixels; default: as the pretrained
    model, for python a square of image_size. Not for open_clip."""
    eval_crop: int | None = Field(None, ge=1)
    """Then cut out the centre, a square of this side in pixels. Not for open_clip."""
    interpolation: Literal["bilinear", "bicubic"] | None = None
    """Interpolation of the resize; default: as the pretrained model, bicubic for python."""
    mean: tuple[float, float, float] | None = None
    """Mean of red, green and blue (0 to 1) that is subtracted; default: as the pretrained model,
    ImageNet's for python."""
    std: (
        tuple[
            Annotated[float, Field(gt=0)],
            Annotated[float, Field(gt=0)],
            Annotated[float, Field(gt=0)],
        ]
        | None
    ) = None
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
        return self.model_dump(mode="python", exclude={"source"}, exclude_none=True)

    @model_validator(mode="after")
    def _fits_the_source(self) -> Self:
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
        given = self.preparation
        if self.max_side and (crop := given.keys() & {"image_size", "eval_resize", "eval_crop"}):
            raise ValueError(f"max_side keeps the size of a photo; delete {min(crop)}")
        return self


def model_options(source: str, **preparation: Any) -> ModelOptions:
    """Return a model to evaluate, checked; None keeps a default.

    Raises:
        UsageError: the options do not fit the model.
    """
    try:
        return ModelOptions.model_validate({"source": source, **preparation})
    except ValidationError as error:
        raise UsageError(f"{source}: {_describe(error)}") from None


# Errors show these tags as parts of an option's name; _describe_one leaves them out.
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
    device: str = "auto"
    """Device that embeds and ranks: auto (a GPU if there is one), cpu or cuda."""
    processes: int = Field(1, ge=1)
    """Processes that embed and, for a large gallery, rank; with GPUs, each uses one of them."""
    ray: str | None = None
    """Address of a Ray cluster that embeds and ranks; auto: this machine's."""
    cpus_per_task: float = Field(1.0, gt=0)
    """Cores of the Ray cluster that a task reserves."""
    gpus_per_task: float | None = Field(None, ge=0)
    """GPUs of the Ray cluster that a task reserves; below 1, tasks share one. Default: 1 for the
    device cuda, 0 for cpu; for auto 1 if the cluster has a GPU."""
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
        if wrong := [text for text in self.prompts if text.count("{}") != 1] or not self.prompts:
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
        return _files_of_models({f"models.{name}": source for name, source in self.sources.items()})

    @property
    def sources(self) -> dict[str, str]:
        """The source of each model by name."""
        found = self.models.items()
        return {name: model if isinstance(model, str) else model.source for name, model in found}


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
    """Title of the pages; empty: the name of the work folder."""
    labels: LocalPath
    """Folder of the decisions, taxonomy and removals, kept in git."""
    source: SourceOptions = SourceOptions()
    fetch: FetchOptions = FetchOptions()
    collect: CollectOptions = CollectOptions()
    link: LinkOptions = LinkOptions()
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
        models = self.evaluate.sources.values()
        given = bool(models) and not any(model.startswith("run:") for model in models)
        return not given or "train" in self.model_fields_set

    @model_validator(mode="after")
    def _has_levels(self) -> Self:
        of_files = self.source.kind == "cub" and self.label.source == "native"
        if of_files and self.source.class_table is None:
            raise ValueError(
                "source.class_table is not set, so the species have no orders and families; set it "
                "to labels/cub/classes.csv, or to a CSV of class_id and one column a level; or "
                'build them: label.source = "decisions"'
            )
        return self

    @model_validator(mode="after")
    def _has_items(self) -> Self:
        if self.link.table is not None and self.scrape.source != "items":
            raise ValueError(
                'link.table needs scrape.source = "items", which asks what the classes are'
            )
        if self.cluster.holds_together and self.scrape.source != "items":
            raise ValueError(
                'cluster.ancestry needs scrape.source = "items", which records what is above the '
                "items of the classes"
            )
        if self.cluster.ancestry > self.scrape.most_hops:
            raise ValueError(
                f"cluster.ancestry is {self.cluster.ancestry} steps, but ancestry.csv goes up "
                f"scrape.most_hops = {self.scrape.most_hops}; set that to as many"
            )
        return self

    @model_validator(mode="after")
    def _names_its_runs(self) -> Self:
        of_seeds = (name for models in self.train.models().values() for name in models)
        known = list(dict.fromkeys([*self.train.runs, *of_seeds]))
        for name, model in self.evaluate.sources.items():
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
    values = _read_pipeline(path)
    for setting in settings:
        _apply(values, setting)
    try:
        return Pipeline.model_validate(
            _merge_runs(values), context={"folder": path.resolve().parent}
        )
    except ValidationError as error:
        base = f" on its base {found!r}" if (found := _read_toml(path).get("base")) else ""
        where = f"{path}{base}" + (" with the options given" if settings else "")
        raise UsageError(f"{where}: {_describe(error)}") from None


def _read_pipeline(path: Path, above: Sequence[Path] = ()) -> dict[str, Any]:
    """Values of a pipeline file over those of the file that its ``base`` names.

    Tables are merged; any other value of the file replaces that of its base.
    """
    values = _read_toml(path)
    base = values.pop("base", None)
    if base is None:
        return values
    if not isinstance(base, str) or not base:
        raise UsageError(f"{path}: base is {base!r}; expected the path of another pipeline file")
    found = Path(os.path.normpath(path.resolve().parent / base))
    if Path(os.path.realpath(found)) in (*above, path.resolve()):
        raise UsageError(f"{path}: base = {base!r} leads back to this file")
    if not found.is_file():
        reason = "is not a file" if found.exists() else "does not exist"
        raise UsageError(f"{path}: base = {base!r}: {found} {reason}")
    return _merge(_mark(_read_pipeline(found, (*above, path.resolve())), found.parent), values)


def _merge(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in own.items():
        below = base.get(name)
        if isinstance(below, dict) and isinstance(value, dict):
            merged[name] = _merge(below, value)
        else:
            merged[name] = value
    return merged


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
    values[last] = _mark(read["v"] if len(read) == 1 else text, Path.cwd())


def _mark(value: Any, folder: Path) -> Any:
    """The value, with the folder that paths in its texts are relative to."""
    if isinstance(value, dict):
        return {name: _mark(inner, folder) for name, inner in value.items()}
    if isinstance(value, list):
        return [_mark(inner, folder) for inner in value]
    if not isinstance(value, str) or isinstance(value, _TextFrom):
        return value
    marked = _TextFrom(value)
    marked.folder = folder
    return marked


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
    loc = [part for part in item["loc"] if part not in ("<text>", "<table>")]
    where = ".".join(map(str, loc))
    if item["type"] == "missing":
        return f"{where} is missing; add it to the file, or give it by --set {where}=VALUE"
    if item["type"] in EXPECTED:
        return f"{where}: expected {EXPECTED[item['type']]} (found {item['input']!r})"
    if item["type"] != "extra_forbidden":
        says = re.sub(r"^Value error, | or instance of \w+$", "", item["msg"])
        found = "" if isinstance(item["input"], dict) else f" (found {item['input']!r})"
        return f"{where}: {says[0].lower()}{says[1:]}{found}".removeprefix(": ")
    *parents, key = loc
    return f"unknown key {where!r}{nearest(str(key), _keys_at(parents))}"


def _keys_at(section: Iterable[object]) -> list[str]:
    """Names of the options that a section of the pipeline file may hold."""
    model: Any = Pipeline
    for part in section:
        if part in ("runs", "models"):
            return list((RunOptions if part == "runs" else ModelOptions).model_fields)
        field = model.model_fields.get(part)
        model = field.annotation if field else None
        if not isinstance(model, type) or not issubclass(model, Options):
            return []
    return list(model.model_fields)
