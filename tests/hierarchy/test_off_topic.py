"""Descriptions of right and wrong items of a name, as Wikidata has them, beside a topic."""

from collections.abc import Iterable, Mapping

from hgld.config import EmbedOptions, LinkOptions
from hgld.hierarchy.link import Linker
from hgld.hierarchy.scrape.answers import PARTS, LookUp, NamedItem

NAMES = """
animals | Jaguar | species of big cat of the Americas | British manufacturer of luxury cars
animals | jaguar | species of mammal | Cold War-era jet attack aircraft
animals | mouse | small long-tailed rodent | computer input device
animals | wolf | species of mammal | family name
animals | shark | superorder of fishes | Irish rock band
animals | spider | order of arachnids | web crawler program
animals | beaver | genus of mammals | county seat in Pennsylvania
animals | red fox | species of mammal | 1991 television series
food | apple pie | pie in which the principal filling is apples | album by a band
food | sushi | Japanese dish of vinegared rice | dog breed
flowers | rose | genus of plants in the family Rosaceae | English painter
flowers | tulip | genus of plants | town in Arkansas, United States
flowers | orchid | family of flowering plants | 2001 debut album of a metal band
flowers | poppy | flowering plant in the subfamily Papaveroideae | given name
household objects | bottle | narrow-necked container | commune in France
household objects | lamp | device which provides light | 2011 film
"""
ROWS = [[cell.strip() for cell in line.split("|")] for line in NAMES.strip().splitlines()]


class OneItem:
    """Items whose id is their name, with the given descriptions."""

    def __init__(self, descriptions: Mapping[str, str]) -> None:
        self.descriptions = descriptions

    def learn(self, names: Iterable[str], /) -> dict[str, NamedItem]:
        """The items of these names."""
        return {
            name: NamedItem(name, 0, {"en": name}, {"en": self.descriptions[name]})
            for name in names
        }


class Search:
    """A search that finds the one item of each name."""

    def learn(self, keys: Iterable[str], /) -> dict[str, LookUp]:
        """Its id is the name."""
        return {key: LookUp([key.split(PARTS)[2]]) for key in keys}


def test_right_items_are_linked_and_most_wrong_ones_are_not() -> None:
    found = []
    for about in sorted({row[0] for row in ROWS}):
        texts = {
            f"{row[1]} {place}": row[place] for row in ROWS if row[0] == about for place in (2, 3)
        }
        options, encoder = LinkOptions(about=about), EmbedOptions(encoder="offline:minilm")
        links = Linker(Search(), OneItem(texts), options, encoder).link([*texts], {})
        found += [(name, link.reason) for name, link in links.items()]
    assert {reason for name, reason in found if name.endswith("2")} == {""}
    wrong = [name for name, reason in found if name.endswith("3") and not reason]
    assert sorted(wrong) == ["poppy 3", "rose 3"]
