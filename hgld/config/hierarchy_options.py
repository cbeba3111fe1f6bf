"""Options of the stages that build the hierarchy, from the names of the classes to their labels."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from hgld.config.option_types import (
    KIND_SEPARATOR,
    LEVEL_NAMES,
    DeviceName,
    LocalPath,
    ModelName,
    Options,
    TextEncoderName,
    WebAddress,
    files_of_models,
)
from hgld.words import count_text

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
    """Topic of the classes, such as "animals", to distinguish items of one name. An item found
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
    """Items that are an instance of these (P31) are not candidates: disambiguation pages, Wikimedia
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
    table_name: str = ""
    """Column of the table with the names of the classes, in place of table_id."""
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
    device: DeviceName = "auto"
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
        return files_of_models({"encoder": f"open_clip:{self.encoder}", **images})


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

    @field_validator("levels", mode="before")
    @classmethod
    def _are_names(cls, levels: object) -> object:
        if isinstance(levels, list) and levels and all(type(level) is int for level in levels):
            *above, clusters = levels
            raise ValueError(
                f"{levels} are numbers, and levels are names; for that many clusters, coarse to "
                f"fine, give {count_text(len(levels), 'name')}, above = {above} and "
                f"clusters = {clusters}"
            )
        return levels

    @model_validator(mode="after")
    def _is_a_tree(self) -> Self:
        names, above = self.levels, self.above
        if not names or len({*names, LEVEL_NAMES[-1], "class"}) < len(names) + 2:
            raise ValueError(
                "levels need one or more different names, and none is 'landmark' or 'class', the "
                "name of the level below them"
            )
        if odd := [name for name in names if not name.strip() or KIND_SEPARATOR in name]:
            raise ValueError(f"levels: {odd[0]!r} is not a name of a level")
        if above and len(above) != len(names) - 1:
            raise ValueError(
                f"above has {count_text(len(above), 'number')}, but "
                f"{count_text(len(names) - 1, 'level')} above the finest in levels"
            )
        numbers = [*above, self.clusters]
        if sorted(numbers) != numbers:
            raise ValueError(
                f"above, then clusters: {', '.join(map(str, numbers))}; from coarse to fine, no "
                "level has fewer clusters: lower above, or raise clusters"
            )
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
    """Order of the open values: "images" by images x (1 - margin of their cluster), "gain" by
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

    in_source: ClassVar[frozenset[str]] = frozenset({"train_csv", "index_csv"})
    source: Literal["decisions", "published", "folder", "native"] = "decisions"
    """Origin of the hierarchy: reviewed decisions, GLDv2's published CSVs, the CSV of a folder, or
    the files of a data set as published, such as SOP or DyML ("native")."""
    train_csv: str = "metadata/train_label_to_hierarchical.csv"
    """Published labels of the train landmarks."""
    index_csv: str = "ground_truth/index_label_to_hierarchical.csv"
    """Published labels of the index landmarks."""
