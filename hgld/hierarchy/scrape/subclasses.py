"""The part of Wikidata's classes above some classes, asked for and kept.

The way up goes over "subclass of" (P279), breadth first and with a visited set, since these
statements form many circles, and ends at given classes: those above them swallow everything. What
was learnt is kept and not asked again, so that it stays the same though the wiki is edited, and a
run that was stopped goes on.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from hgld.artifacts import named_in_errors
from hgld.config import ScrapeOptions
from hgld.hierarchy.scrape.answers import (
    LookUp,
    NamedItem,
    read_classes,
    read_items,
    read_labels,
)
from hgld.hierarchy.scrape.client import ApiClient
from hgld.hierarchy.scrape.crawl import CLASSES, ask_entities, in_parts
from hgld.tasks import track
from hgld.words import single_blanks


@dataclass(frozen=True)
class SuperClasses:
    """A class's label, revision, and the classes it is directly a subclass of."""

    label: str
    revision: int
    above: Sequence[str]


Graph = Mapping[str, SuperClasses]


class _BelowOthers(Protocol):
    @property
    def above(self) -> Sequence[str]:
        """Ids of what is directly above."""


Node = TypeVar("Node", bound=_BelowOthers)


@dataclass(frozen=True)
class ClassLabels:
    """Labels of a class by language code; a language without a label is left out."""

    labels: Mapping[str, str]


Known = TypeVar("Known", bound=SuperClasses | ClassLabels | LookUp | NamedItem)


Fact_co = TypeVar("Fact_co", covariant=True)


class Knowledge(Protocol[Fact_co]):
    """Facts by id: those of ``Wikidata``, or of a dump."""

    def learn(self, class_ids: Iterable[str], /) -> Mapping[str, Fact_co]:
        """These facts, all of them."""


class Wikidata(Generic[Known]):
    """Facts of classes by id, asked for where they are not known yet.

    Args:
        path: the file in which they are kept, a line of JSON for each batch.
        ask: asks for some ids, or parameters of ``wbgetentities``.
        read: reader of its answer.
        kind: class of a fact.
        batch_size: ids asked for at a time; default: that of the options.
    """

    def __init__(
        self,
        client: ApiClient,
        options: ScrapeOptions,
        path: Path,
        ask: Mapping[str, str] | Callable[[Sequence[str]], Mapping[str, Any]],
        read: Callable[[Mapping[str, Any], Sequence[str]], dict[str, Known]],
        kind: type[Known],
        batch_size: int = 0,
    ) -> None:
        self.client = client
        self.path = path
        if not callable(ask):
            ask = partial(ask_entities, options.wikidata_api, ask, client)
        self.ask = ask
        self.read = read
        self.batch_size = batch_size or options.batch_size
        self.server = "stand-in" if options.stand_in else options.wikidata_api
        self.known, self._length = _load(path, self.server, kind)

    def learn(self, class_ids: Iterable[str]) -> Mapping[str, Known]:
        """These classes, all of them.

        Raises:
            Resumable: Wikidata cannot be reached now; finished batches are kept.
        """
        class_ids = set(class_ids)
        batches = list(in_parts(sorted(class_ids - self.known.keys()), self.batch_size))
        for batch in track(batches, "Asking Wikidata", len(batches)):
            new = self.client.fetch_batch(batch, self.ask, self.read)
            self.known |= new
            classes = {class_id: asdict(facts) for class_id, facts in new.items()}
            document = {"server": self.server, "sha256": _sha256(classes), "classes": classes}
            line = json.dumps(document, ensure_ascii=False).encode()
            line = b"\n" + line if self._length else line
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with named_in_errors(self.path), self.path.open("ab") as file:
                file.truncate(self._length)  # after the intact batches
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            self._length += len(line)
        return {class_id: self.known[class_id] for class_id in class_ids}


def ask_superclasses(
    client: ApiClient, options: ScrapeOptions, folder: Path
) -> Wikidata[SuperClasses]:
    """Return what is known of the classes above others, kept in a folder."""
    path, question = folder / "superclasses.json", {**CLASSES, "props": "info|labels|claims"}
    return Wikidata(client, options, path, question, read_superclasses, SuperClasses)


def ask_labels(
    client: ApiClient, options: ScrapeOptions, folder: Path, languages: Sequence[str]
) -> Wikidata[ClassLabels]:
    """Return what is known of the labels of classes in some languages, kept in a folder.

    A label for all languages ("mul") replaces a missing one; nothing else does.
    """
    path = folder / f"labels_{'_'.join(languages)}.json"  # other languages are another question
    question = {"props": "info|labels", "languages": "|".join((*languages, "mul"))}

    def read(document: Mapping[str, Any], ids: Sequence[str]) -> dict[str, ClassLabels]:
        found = read_labels(document, ids)
        return {
            class_id: ClassLabels(
                {
                    language: single_blanks(text)
                    for language in languages
                    if (text := labels.get(language, labels.get("mul", "")))
                }
            )
            for class_id, labels in found.items()
        }

    return Wikidata(client, options, path, question, read, ClassLabels)


def walk_up(
    class_ids: Iterable[str],
    ends: Collection[str],
    most_hops: int,
    learn: Callable[[Iterable[str]], Mapping[str, Node]],
) -> dict[str, Node]:
    """The classes, and those that are met on the ways up from them to the ends."""
    met: dict[str, Node] = {}
    here = set(class_ids)
    for hop in range(most_hops + 1):
        if not here:
            break
        found = learn(here)
        met |= found
        ups = {up for one in here if one not in ends for up in found[one].above}
        here = ups - met.keys() if hop < most_hops else set()
    return met


def read_superclasses(
    document: Mapping[str, Any], class_ids: Sequence[str]
) -> dict[str, SuperClasses]:
    """Facts of the asked classes from ``action=wbgetentities&props=info|labels|claims``.

    A class that is gone has none above it; one that the answer leaves out has to be asked again.
    """
    items = read_items(document, class_ids, statements_of="P279")
    named = read_classes(document, class_ids)
    return {
        class_id: SuperClasses(
            single_blanks(named[class_id].label),
            item.revision,
            tuple(dict.fromkeys(s.class_id for s in item.best)),
        )
        for class_id, item in items.items()
        if class_id in named
    }


def _load(path: Path, server: str, kind: type[Known]) -> tuple[dict[str, Known], int]:
    """Return the kept answers of this server, and the number of bytes that hold them.

    Only a damaged last line, in which a run was killed, leaves the others.
    """
    known: dict[str, Known] = {}
    length, lines = 0, path.read_bytes().split(b"\n") if path.is_file() else []
    for number, line in enumerate(lines):
        try:
            document = json.loads(line)
            intact = document["sha256"] == _sha256(document["classes"])
            intact = intact and document["server"] == server
            found = {key: kind(**cells) for key, cells in document["classes"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            intact, found = False, {}
        if not intact:
            return (known, length) if number == len(lines) - 1 else ({}, 0)
        known |= found
        length += len(line) + bool(number)
    return known, length


def _sha256(classes: Mapping[str, Any]) -> str:
    return sha256(json.dumps(classes, sort_keys=True).encode()).hexdigest()
