"""A made world of any size with the shares that the real one is thought to have.

Of 1,000 landmarks 360 have no item (five of them no page), 50 an item that only describes the
category (five of those without a topic), 10 are soft redirects, 100 have several values; five are
real redirects, five have an item without a class, and all others have one value. What a scrape has
to find is written down while the world is made, so it is known without any client.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tests.mediawiki.world import Claim, World, is_a, text_claim

__all__ = ["CLASSES", "GLDV2", "Part", "made_parts", "share_of"]

GLDV2 = 203_094  # landmarks of GLDv2's train split
CLASSES = 6_000  # the paper counts 5.7 thousand distinct values
PART = 10_000  # landmarks made at once
COMMONS = "http://commons.wikimedia.org/wiki/"
NAMES = (
    "Landmark {} in Springfield",
    "Église Saint-Étienne {}",
    "Schloß Nr. {} (Württemberg)",
    "Храм {}",
    "第{}号城",
    "O'Hara's bridge {}",
)
WIKIMEDIA_CATEGORY = "Q4167836"
FIRST_ITEM, FIRST_TOPIC, FIRST_CLASS = 10_000_000, 20_000_000, 1_000_000

Row = dict[str, Any]


@dataclass
class Part:
    """Some landmarks, the part of the wiki that they lead into, and what a scrape has to find.

    ``found`` holds split, landmark, item, order and class of each statement; ``missed`` split,
    landmark and reason. ``classes`` is how many different values there are.
    """

    world: World = field(default_factory=World)
    landmarks: list[Row] = field(default_factory=list)
    found: list[tuple[str, int, str, int, str]] = field(default_factory=list)
    missed: list[tuple[str, int, str]] = field(default_factory=list)
    classes: int = CLASSES

    def add(self, number: int, name: str = "") -> None:
        """One more landmark; without a name it gets one."""
        name = name or NAMES[number % len(NAMES)].format(number)
        url = COMMONS + quote(f"Category:{name}".replace(" ", "_"), safe=",;@$!*()/~:'")
        row = {"split": "train", "landmark_id": number, "name": name, "commons_url": url}
        self.landmarks.append(row)
        share = share_of(number)
        if share < 355:
            self._miss(number, "no_item", name)
        elif share < 360:
            self._miss(number, "no_page")
        elif share < 410:
            self._categorize(number, name, topic=share < 405)
        elif share < 425:
            moved = {"soft" if share < 420 else "redirect": f"{name} (new)"}
            self.world.page(name, **moved)
            self._find(number, f"{name} (new)", self._draw(number, 1))
        elif share < 525:
            self._find(number, name, self._draw(number, 2 + number % 3))
        elif share < 530:
            self._miss(number, "no_p31", name, self._item(number, []))
        else:
            self._find(number, name, self._draw(number, 1))

    def _miss(self, number: int, reason: str, name: str = "", item: str = "") -> None:
        if name:
            self.world.page(name, item)
        self.missed.append(("train", number, reason))

    def _find(self, number: int, name: str, classes: list[str]) -> None:
        item = self._item(number, classes)
        self.world.page(name, item)
        self._expect(number, item, classes)

    def _categorize(self, number: int, name: str, topic: bool) -> None:
        about = f"Q{FIRST_TOPIC + number}"
        claims = [is_a(WIKIMEDIA_CATEGORY), *([is_a(about, prop="P301")] if topic else [])]
        self.world.item(f"Q{FIRST_ITEM + number}", *claims, en=f"Category:{name}")
        self.world.page(name, f"Q{FIRST_ITEM + number}")
        if not topic:
            self.missed.append(("train", number, "category_without_topic"))
            return
        classes = self._draw(number, 1)
        self.world.item(about, *(is_a(target) for target in classes), en=name)
        self._expect(number, about, classes)

    def _item(self, number: int, classes: list[str]) -> str:
        item = f"Q{FIRST_ITEM + number}"
        claims = (is_a(target) for target in classes)
        self.world.item(item, *claims, text_claim("P373", f"Landmark {number}"), en=f"{number}")
        return item

    def _expect(self, number: int, item: str, classes: list[str]) -> None:
        self.found += [("train", number, item, i, target) for i, target in enumerate(classes)]

    def _draw(self, number: int, count: int) -> list[str]:
        """Distinct classes, the first of which are by far the most frequent."""
        chance = (number * 2_654_435_761 % 2**32) / 2**32
        first = int(self.classes * chance**3)
        return [f"Q{FIRST_CLASS + (first + 17 * i) % self.classes}" for i in range(count)]


def share_of(number: int) -> int:
    """Which thousandth of the landmarks this one stands for: each once in any 1,000 in a row."""
    return number * 7919 % 1000


def made_parts(landmarks: int, kilobytes: int = 0) -> Iterator[Part]:
    """The world in parts; ``kilobytes`` of other claims make each entity as heavy as real ones."""
    first = Part()
    for number in range(CLASSES):
        first.world.item(f"Q{FIRST_CLASS + number}", en=f"class {number}")
    first.world.item(WIKIMEDIA_CATEGORY, en="Wikimedia category")
    first.world.claims_of_all = weight(kilobytes)
    yield first
    for start in range(0, landmarks, PART):
        part = Part()
        for number in range(start, min(start + PART, landmarks)):
            part.add(number)
        yield part


def weight(kilobytes: int) -> dict[str, list[Claim]]:
    """About so many kilobytes of claims with other properties."""
    claims = [text_claim(f"P{9000 + i}", f"{i} " + "x" * 60) for i in range(kilobytes * 4)]
    return {claim["mainsnak"]["property"]: [claim] for claim in claims}
