"""The facts of the made world: its classes, landmarks and pictures, before anything is drawn.

Everything follows from the seed through ``random.Random`` and SHA-256, whose results never change.
Classes carry their real Wikidata ids and labels; the landmarks, their names and items are made up.
A quarter of the train landmarks at most carry a quirk of the real wiki, the ones that matter most
first, so that a very small world still has some and stays usable.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from urllib.parse import quote

from hgld.config import ToyOptions

__all__ = [
    "CLASSES",
    "INDEX_QUIRKS",
    "TRAIN_QUIRKS",
    "Landmark",
    "Picture",
    "ToyClass",
    "World",
    "imagine",
]


@dataclass(frozen=True)
class ToyClass:
    """An "instance of" class and where a reviewer put it."""

    class_id: str
    label: str
    supercategory: str
    kind: str


CLASSES = (
    ToyClass("Q16970", "church building", "church", "human-made"),
    ToyClass("Q8502", "mountain", "mountain", "natural"),
    ToyClass("Q23413", "castle", "castle / fort", "human-made"),
    ToyClass("Q23397", "lake", "lake", "natural"),
    ToyClass("Q12280", "bridge", "bridge", "human-made"),
    ToyClass("Q34038", "waterfall", "waterfall", "natural"),
    ToyClass("Q39715", "lighthouse", "lighthouse", "human-made"),
    ToyClass("Q38720", "windmill", "windmill", "human-made"),
    ToyClass("Q108325", "chapel", "church", "human-made"),
    ToyClass("Q54050", "hill", "mountain", "natural"),
    ToyClass("Q57831", "fortress", "castle / fort", "human-made"),
    ToyClass("Q131681", "reservoir", "lake", "natural"),
    ToyClass("Q158438", "arch bridge", "bridge", "human-made"),
)
TRAIN_QUIRKS = (
    "no page",  # the Commons category does not exist
    "no item",  # the page is there, without an item
    "only category",  # the item is a Wikimedia category and no more
    "two values",  # its class and, in second place, "tourist attraction"
    "category item",  # the page's item is a category whose main topic (P301) has the class
    "redirect",  # the page redirects to the one with the item
    "preferred",  # "tourist attraction" stands first, its class is preferred
    "qualified",  # its class held from one year to another
    "only attraction",  # a value that says nothing, which the review drops
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
NAMES = {
    "arch bridge": "{place} Old Bridge",
    "bridge": "Bridge of {place}",
    "castle": "{place} Castle",
    "chapel": "Chapel of St {saint} ({place})",
    "church building": "St {saint}'s Church, {place}",
    "fortress": "{place} Fortress",
    "hill": "{place} Hill",
    "lake": "Lake {place}",
    "lighthouse": "{place} Lighthouse",
    "mountain": "Mount {place}",
    "reservoir": "{place} Reservoir",
    "waterfall": "{place} Falls",
    "windmill": "Windmill of {place}",
}
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
        split: train, index or test: in which tars and CSVs it stands.
        in_csv, in_tar, clean: whether it stands there.
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
        """What a photographer would have called it; holds a comma."""
        return f"{self.landmark.name if self.landmark else 'Somewhere'}, view {self.number + 1}"

    @property
    def url(self) -> str:
        """An address that can lead nowhere (the reserved domain ``.example``)."""
        scheme = "http" if self.number % 4 == 0 else "https"
        name = quote(self.title.replace(" ", "_"), safe="(),'")
        return f"{scheme}://upload.toy.example/{self.image_id[0]}/{self.image_id[:2]}/{name}.jpg"


@dataclass(frozen=True)
class World:
    """All landmarks and pictures; what is in no list is in no file."""

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

    Example:
        >>> world = imagine(ToyOptions(landmarks=6))
        >>> len(world.of_space("train")), len(world.of_space("index"))
        (6, 3)
    """
    landmarks = (*_train_landmarks(options), *_index_landmarks(options))
    return World(landmarks, tuple(_all_pictures(landmarks, options)))


def _train_landmarks(options: ToyOptions) -> list[Landmark]:
    quirks = TRAIN_QUIRKS[: options.landmarks // 4]
    return [
        _new_landmark("train", i, _quirk_at(i, options.landmarks, quirks), options)
        for i in range(options.landmarks)
    ]


def _index_landmarks(options: ToyOptions) -> list[Landmark]:
    """Half as many, under numbers of their own; the first ones are train landmarks as well."""
    number = max(3, options.landmarks // 2)
    quirks = INDEX_QUIRKS[: number // 6]
    made = [_new_landmark("index", i, _quirk_at(i, number, quirks), options) for i in range(number)]
    twins = _train_landmarks(options)[1 : 1 + number // 12]
    shared = [
        Landmark("index", i, t.name, t.toy_class, t.quirk, t.design, t.item_id)
        for i, t in enumerate(twins)
    ]
    return shared + made[len(shared) :]


def _quirk_at(number: int, total: int, quirks: tuple[str, ...]) -> str:
    """The last landmarks carry the quirks, the very last the first of them."""
    from_the_end = total - 1 - number
    return quirks[from_the_end] if from_the_end < len(quirks) else ""


def _new_landmark(space: str, number: int, quirk: str, options: ToyOptions) -> Landmark:
    place = number if space == "train" else options.landmarks + number
    toy_class = CLASSES[number % len(CLASSES)]
    name = NAMES[toy_class.label].format(
        place=_place(place, options.seed), saint=SAINTS[(place + options.seed) % len(SAINTS)]
    )
    design = f"{options.seed}:{space}:{number}"
    return Landmark(space, number, name, toy_class, quirk, design, f"Q{900_000_001 + place}")


def _place(number: int, seed: int) -> str:
    """A place name of its own for each number."""
    places = [first + second for first in FIRSTS for second in SECONDS]
    Random(f"places:{seed}").shuffle(places)
    again, rest = divmod(number, len(places))
    return places[rest] + (f" {again + 1}" if again else "")


def _all_pictures(landmarks: tuple[Landmark, ...], options: ToyOptions) -> Iterator[Picture]:
    for landmark in landmarks:
        yield from _landmark_pictures(landmark, options)
    for number in range(max(2, options.landmarks // 4)):
        yield _picture("test", None, number, options)
    for split in ("train", "index"):
        yield _picture(split, None, 0, options, in_csv=False)


def _landmark_pictures(landmark: Landmark, options: ToyOptions) -> Iterator[Picture]:
    """Its train or index pictures, quirks among them, and an index landmark's queries."""
    random = Random(f"number:{landmark.design}")
    spread = min(options.images - 2, options.images // 2)
    number = options.images + random.randint(-spread, spread)
    for i in range(number):
        yield _picture(landmark.space, landmark, i, options)
    if landmark.landmark_id == 1:
        yield _picture(landmark.space, landmark, number, options, in_tar=False)
    if landmark.space == "train" and landmark.landmark_id % 6 == 0:
        yield _picture("train", landmark, number + 1, options, clean=False)
    if landmark.space == "index":
        for i in range(2 + landmark.landmark_id % 2):
            yield _picture("test", landmark, i, options, public=landmark.landmark_id % 3 == 0)


def _picture(
    split: str, landmark: Landmark | None, number: int, options: ToyOptions, **flags: bool
) -> Picture:
    owner = f"{landmark.space}:{landmark.landmark_id}" if landmark else "nowhere"
    digest = sha256(f"{options.seed}:{split}:{owner}:{number}".encode()).hexdigest()
    all_digits = split == "train" and owner == "train:0" and number == 0
    image_id = f"0{int(digest, 16) % 10**15:015}" if all_digits else digest[:16]
    drawn = int(digest[16:24], 16)
    return Picture(
        image_id,
        split,
        landmark,
        number,
        author=AUTHORS[drawn % len(AUTHORS)],
        license=LICENSES[drawn % len(LICENSES)],
        **flags,
    )
