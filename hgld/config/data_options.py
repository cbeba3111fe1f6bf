"""Options of the data set itself: its layout, its download, its classes to hold out, its shards."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self, get_args

from pydantic import Field, Tag, model_validator

from hgld.config.option_types import LocalPath, Options, RayAddress, RayAmount, ShardUrl


class ToyOptions(Options):
    """The drawn landmark world of the quickstart."""

    seed: int = 0
    """Draws the world; another seed is another world."""
    landmarks: int = Field(48, ge=6)
    """Number of train landmarks; the index has half as many others."""
    images: int = Field(8, ge=2)
    """Images of a landmark, on average."""
    size: int = Field(128, ge=32, le=16384)
    """Side of an image in pixels."""


class INaturalistOptions(Options):
    """The file names and levels of iNaturalist 2018."""

    in_source: ClassVar[frozenset[str]] = frozenset({"annotations", "train_list", "test_list"})
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
    in_source: ClassVar[frozenset[str]] = frozenset({"labels_csv"})
    kind: Literal["gldv2", "folder", "toy", NativeKind] = "gldv2"
    """Layout of the data set: GLDv2, a folder of images with a CSV of labels, the drawn world of
    the quickstart ("toy"), or Stanford Online Products, iNaturalist 2018, CUB-200-2011, DyML,
    DeepFashion In-shop, VehicleID, SfM-120k, VGGFace2, ILIAS or UnED as published."""
    folder: LocalPath | None = None
    """Folder of the data set's own files; default: source/ in the work folder."""
    labels_csv: str = "labels.csv"
    """For a folder: CSV of image path, then one column a level, coarse to fine. Empty: there is no
    CSV, each sub-folder is a class (below train/, val/ and test/, or train/, query/ and gallery/,
    if these are the only ones)."""
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
    uncropped photo."""
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
    in_source: ClassVar[frozenset[str]] = frozenset({"wanted_csv"})
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
    empty: all. Labels that change later do not fetch again."""
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
    tars: str = Field("", coerce_numbers_to_str=True)
    """Numbers to fetch of numbered files: 0-9 or 0,5-7; empty: all."""
    short_side: int | None = Field(None, ge=1)
    """Keep only the wanted photos of each tar and shrink them to this short side in pixels;
    default: keep the tars as they are."""
    jpeg_quality: int = Field(75, ge=1, le=100)
    """JPEG quality of the photos that short_side shrinks."""
    ray: RayAddress | None = None
    """Address of a Ray cluster that shrinks the photos, as many tars at a time as parallel; auto:
    this machine's. This machine downloads."""
    cpus_per_task: RayAmount = Field(1.0, gt=0)
    """Cores of the Ray cluster that a tar reserves while its photos are shrunk."""
    memory_gb_per_task: float = Field(0.0, ge=0)
    """Memory in GB that a tar reserves on its node of the Ray cluster; 0: none."""


class CollectOptions(Options):
    """File names in the source folder (empty: there is no such file), and the classes to hold out.

    The defaults are GLDv2's own layout (cvdfoundation/google-landmark).
    """

    operational: ClassVar[frozenset[str]] = frozenset({"memory_gb"})
    in_source: ClassVar[frozenset[str]] = frozenset(
        {
            "train_csv",
            "train_clean_csv",
            "train_attribution_csv",
            "train_category_csv",
            "index_image_csv",
            "index_category_csv",
            "retrieval_solution_csv",
        }
    )
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
    evaluation_classes: (
        Annotated[tuple[Annotated[str, Field(coerce_numbers_to_str=True)], ...], Tag("<list>")]
        | Annotated[LocalPath, Tag("<path>")]
    ) = ()
    """Hold out these classes instead: names of a folder's finest level or landmark ids of GLDv2, or
    a text file with one a line."""
    validation_share: float = Field(0.0, ge=0, lt=1)
    """Share of the other train classes held out for choosing options."""
    exclude: tuple[LocalPath, ...] = ()
    """Lists (CSV) of training images to leave out, such as those that an evaluation set also has,
    before classes are held out: images of evaluation_share, evaluation_classes and validation_share
    are left out, too, those of the data set's own other splits are not. A list has a column
    image_id, id or images (several in a cell), or for GLDv2 landmark_id alone (with split: train
    landmarks count). If there is a column decision, as in the sheets of `hgld labels
    suspects` (that of classes: GLDv2 only), only its rows with drop count."""
    only: tuple[LocalPath, ...] = ()
    """Lists of the same form; images that one of them lacks are left out, as by exclude.
    RGLDv2-clean is such a list: GLDv2-clean without the landmarks of ROxford and RParis (Song et
    al. 2024)."""
    seed: int = 0
    """Draws the held-out classes."""
    memory_gb: float | None = Field(None, ge=1, le=1e6)
    """Memory in GB for the joins of the tables of GLDv2; what exceeds it goes to the disk. Default:
    a quarter of the machine's, or of its container's or job's."""

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
    memory_gb: float | None = Field(None, ge=1, le=1e6)
    """Memory in GB for sorting tables of images; beyond it they are sorted on disk. Default: a
    quarter of the machine's, or of its container's or job's."""
    ray: RayAddress | None = None
    """Address of a Ray cluster that writes the shards; auto: this machine's."""
    cpus_per_task: RayAmount = Field(1.0, gt=0)
    """Cores of the Ray cluster that one shard reserves while it is written."""
    memory_gb_per_task: float = Field(0.0, ge=0)
    """Memory in GB that one shard reserves on its node of the Ray cluster; 0: none."""
