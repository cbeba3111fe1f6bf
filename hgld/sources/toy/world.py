"""Facts of the synthetic data set: its classes, landmarks and pictures, before drawing.

Everything is derived from the seed by ``random.Random`` and SHA-256, whose results never change.
Classes have their real Wikidata ids and labels; the landmarks, their names and items are invented.
At most a quarter of the train landmarks have a quirk of the real wiki, the most important quirks
first, so that a very small world has some quirks and stays usable.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from random import Random
from urllib.parse import quote

from hgld.config import ToyOptions


@dataclass(frozen=True)
class ToyClass:
    """An "instance of" class, its supercategory, and the pattern of its landmarks' names."""

    class_id: str
    label: str
    supercategory: str = ""
    kind: str = ""
    naming: str = ""


CLASSES = (
    ToyClass("Q16970", "church building", "church", "human-made", "St {saint}'s Church, {place}"),
    ToyClass("Q8502", "mountain", "mountain", "natural", "Mount {place}"),
    ToyClass("Q23413", "castle", "castle / fort", "human-made", "{place} Castle"),
    ToyClass("Q23397", "lake", "lake", "natural", "Lake {place}"),
    ToyClass("Q12280", "bridge", "bridge", "human-made", "Bridge of {place}"),
    ToyClass("Q34038", "waterfall", "waterfall", "natural", "{place} Falls"),
    ToyClass("Q39715", "lighthouse", "lighthouse", "human-made", "{place} Lighthouse"),
    ToyClass("Q38720", "windmill", "windmill", "human-made", "Windmill of {place}"),
    ToyClass("Q108325", "chapel", "church", "human-made", "Chapel of St {saint} ({place})"),
    ToyClass("Q54050", "hill", "mountain", "natural", "{place} Hill"),
    ToyClass("Q57831", "fortress", "castle / fort", "human-made", "{place} Fortress"),
    ToyClass("Q131681", "reservoir", "lake", "natural", "{place} Reservoir"),
    ToyClass("Q158438", "arch bridge", "bridge", "human-made", "{place} Old Bridge"),
)
TRAIN_QUIRKS = (
    "no page",  # the Commons category does not exist
    "no item",  # the page exists, without an item
    "only category",  # the item is a Wikimedia category and no more
    "two values",  # its class and, in second place, "tourist attraction"
    "category item",  # the page's item is a category whose main topic (P301) has the class
    "redirect",  # the page redirects to the one with the item
    "preferred",  # "tourist attraction" comes first, its class is preferred
    "qualified",  # its class held from one year to another
    "only attraction",  # an uninformative value, which the review drops
    "deprecated",  # its only statement is deprecated
)
INDEX_QUIRKS = ("category item", "redirect", "no item")
FIRSTS = (
    "Alder", "Bram", "Cor", "Dun", "Éra", "Fenn", "Glas", "Höll", "Ivel", "Kes", "Lor", "Mar",
    "Nor", "Øst", "Pen", "Quill", "Raven", "Sand", "Thorn", "Ulm", "Vail", "Wyn", "Yar", "Zell",
)  # fmt: skip
SECONDS = (
    "bruck", "combe", "dale", "feld", "gard", "holm", "mere", "minster", "mond", "rath", "stad",
    "sund", "ton", "vale", "wick", "worth",
)  # fmt: skip
SAINTS = ("Agnes", "Brendan", "Cecilia", "Étienne", "Gudrun", "Anne", "Martin", "Olaf")
AUTHORS = ("Ada Brush", "Ben Pencil, Jr.", "Chloé Crayon", 'D. "Dip" Inkwell', "Øyvind Easel")
LICENSES = ("CC BY 4.0", "CC BY-SA 3.0", "CC BY-SA 4.0", "CC0 1.0")


@dataclass(frozen=True)
class Landmark:
    """One landmark of one id space; ``design`` seeds its looks, ``item_id`` is made up too."""

    space: str
    landmark_id: int
    name: str
    toy_class: ToyClass
    quirk: str
    design: str
    item_id: str

    @property
    def url(self) -> str:
        """The Commons category as GLDv2 writes it: percent-encoded, mostly without the signs."""
        safe = "(),'" if self.landmark_id % 2 else "(),"
        title = quote(self.name.replace(" ", "_"), safe=safe)
        return f"http://commons.wikimedia.org/wiki/Category:{title}"


@dataclass(frozen=True)
class Picture:
    """One image: of a landmark, or of some place that is none.

    Attributes:
        split: train, index or test: in which tars and CSVs it is listed.
        in_csv, in_tar, clean: whether it is there.
        public: whether a query counts in the public part of the challenge.
    """

    image_id: str
    split: str
    landmark: Landmark | None
    number: int
    in_csv: bool = True
    in_tar: bool = True
    clean: bool = True
    public: bool = False
    author: str = ""
    license: str = ""

    @property
    def title(self) -> str:
        """The title that a photographer would give; it holds a comma."""
        return f"{self.landmark.name if self.landmark else 'Somewhere'}, view {self.number + 1}"

    @property
    def url(self) -> str:
        """An address that can lead nowhere (the reserved domain ``.example``)."""
        scheme = "http" if self.number % 4 == 0 else "https"
        name = quote(self.title.replace(" ", "_"), safe="(),'")
        return f"{scheme}://upload.toy.example/{self.image_id[0]}/{self.image_id[:2]}/{name}.jpg"


@dataclass(frozen=True)
class World:
    """All landmarks and pictures; nothing else is in any file."""

    landmarks: tuple[Landmark, ...]
    pictures: tuple[Picture, ...]

    def of_split(self, split: str) -> list[Picture]:
        """The pictures of a split by id, as the official files are sorted."""
        return sorted((p for p in self.pictures if p.split == split), key=lambda p: p.image_id)

    def of_space(self, space: str) -> list[Landmark]:
        """The landmarks of an id space by id."""
        return [landmark for landmark in self.landmarks if landmark.space == space]


def imagine(options: ToyOptions) -> World:
    """The world that the options describe.

    Half as many landmarks are in the index; the first of them are train landmarks too.

    Example:
        >>> world = imagine(ToyOptions(landmarks=6))
        >>> len(world.of_space("train")), len(world.of_space("index"))
        (6, 3)
    """
    number = max(3, options.landmarks // 2)
    train = _landmarks("train", options.landmarks, TRAIN_QUIRKS[: options.landmarks // 4], options)
    index = _landmarks("index", number, INDEX_QUIRKS[: number // 6], options)
    for i, twin in enumerate(train[1 : 1 + number // 12]):
        index[i] = replace(twin, space="index", landmark_id=i)
    return World((*train, *index), tuple(_pictures((*train, *index), options)))


def _landmarks(
    space: str, total: int, quirks: tuple[str, ...], options: ToyOptions
) -> list[Landmark]:
    """The last landmarks carry the quirks, the very last the first of them."""
    places = [first + second for first in FIRSTS for second in SECONDS]
    Random(f"places:{options.seed}").shuffle(places)
    found = []
    for number in range(total):
        at = number if space == "train" else options.landmarks + number
        again, rest = divmod(at, len(places))
        toy_class, saint = CLASSES[number % len(CLASSES)], SAINTS[(at + options.seed) % len(SAINTS)]
        place = places[rest] + (f" {again + 1}" if again else "")
        name = toy_class.naming.format(place=place, saint=saint)
        quirk = quirks[total - 1 - number] if total - 1 - number < len(quirks) else ""
        design = f"{options.seed}:{space}:{number}"
        item_id = f"Q{900_000_001 + at}"
        found.append(Landmark(space, number, name, toy_class, quirk, design, item_id))
    return found


def _pictures(landmarks: tuple[Landmark, ...], options: ToyOptions) -> Iterator[Picture]:
    """Train or index pictures of each landmark, an index landmark's queries, pictures of none."""
    spread = min(options.images - 2, options.images // 2)
    for of in landmarks:
        number = options.images + Random(f"number:{of.design}").randint(-spread, spread)
        for i in range(number):
            yield _picture(of.space, of, i, options)
        if of.landmark_id == 1:
            yield _picture(of.space, of, number, options, in_tar=False)
        if of.space == "train" and of.landmark_id % 6 == 0:
            yield _picture("train", of, number + 1, options, clean=False)
        for i in range(2 + of.landmark_id % 2) if of.space == "index" else ():
            yield _picture("test", of, i, options, public=of.landmark_id % 3 == 0)
    for i in range(max(2, options.landmarks // 4)):
        yield _picture("test", None, i, options)
    for split in ("train", "index"):
        yield _picture(split, None, 0, options, in_csv=False)


def _picture(
    split: str, landmark: Landmark | None, number: int, options: ToyOptions, **flags: bool
) -> Picture:
    owner = f"{landmark.space}:{landmark.landmark_id}" if landmark else "nowhere"
    digest = sha256(f"{options.seed}:{split}:{owner}:{number}".encode()).hexdigest()
    image_id, drawn = digest[:16], int(digest[16:24], 16)
    if (split, owner, number) == ("train", "train:0", 0):  # an id of digits alone
        image_id = f"0{int(digest, 16) % 10**15:015}"
    author, licence = AUTHORS[drawn % len(AUTHORS)], LICENSES[drawn % len(LICENSES)]
    return Picture(image_id, split, landmark, number, author=author, license=licence, **flags)
