"""Count the keystrokes of a review that replays the decisions of ``labels/gldv2``.

A person is simulated who always decides as the shipped decisions do, on the 231 values of
Washington and on all 1,003 values, in the order of the sheet, with the suggestions that the page
would show. Vectors are those of the MiniLM encoder that a package ships. The published decisions
are replayed, too: the label of a value is that of most of its landmarks. They are those of
H-GLDv2's own file of training labels if the data have it, else the part of it in
``published.csv``: values, labels and numbers of the 1,271 landmarks with ids up to 5045 that are
human-made, have a word for a building in value or label, and photos under CC BY (annotations:
Google, CC BY 4.0). They name no values that were dropped.

A keystroke is one key pressed. Counted are: ``K`` accepts a suggested supercategory, ``d`` drops, a
digit chooses one of the nine likeliest supercategories; for another one, ``m``, the least letters
after which the chooser lists it first, and Enter. The page goes on to the next value by itself.
``S`` opens the list of sure suggestions, before the first decision and after each refit if it has
at least three values; a digit leaves out one of the nine least sure, ``↓`` and ``x`` any other, and
Enter accepts the rest. The model is refitted after each list and each ten single decisions (the
page does so after each). A suggestion counts as right if it is the decision when its value is
decided; a sure one when it is first listed, and the lists name a value once.

The curves count the decisions that a person has to change or type, whose suggestion is wrong, until
so many images (landmarks of all values) are right, if all open values had their suggestion. They
compare the votes of decided values of the cluster, as suggestions were before the model, with the
model in the order of the sheet, and in the order of images x chance that the suggestion is wrong.
"""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from hgld.artifacts import columns_of, declared_table, read_csv
from hgld.config import ClusterOptions, EmbedOptions, SourceOptions, StageContext
from hgld.hierarchy.cluster import propose_clusters
from hgld.hierarchy.decisions import Decided
from hgld.hierarchy.embed import embed_texts
from hgld.hierarchy.label_file import read_label_file
from hgld.review.sheets import in_review_order
from hgld.review.suggestions import (
    CALIBRATION,
    DROP,
    PRIORS,
    ValueModel,
    calibrate,
    fit_model,
    fit_weights,
    predict,
)
from hgld.words import single_blanks
from tests.benchmarks.meters import Row

LABELS = Path("labels/gldv2")
PUBLISHED = Path("gldv2-labels") / "train_label_to_hierarchical.csv"  # of the real data
PUBLISHED_PART = Path(__file__).with_name("published.csv")
PART = "published, a part"
REFIT = 10  # single decisions
LEAST = 3  # sure values for which the list is opened
SURE = 0.95
BINS = 10
WAYS = ("votes, order of the sheet", "model, order of the sheet", "model, order of the gain")
SHARES = (50, 80, 90, 95, 99)  # percent of the images


@dataclass
class Replay:
    """What a replayed review took.

    Attributes:
        offered: probability of each suggestion when its value was decided, whether it was right.
        sure: whether each value in a list of sure ones was right, once a value.
    """

    keys: int = 0
    right: int = 0
    offered: list[tuple[float, bool]] = field(default_factory=list)
    sure: dict[int, bool] = field(default_factory=dict)
    seen: dict[int, tuple[np.ndarray, bool]] = field(default_factory=dict)


def replay(sheet: pd.DataFrame, wanted: list[str], model: ValueModel) -> Replay:
    """Decide the values of a sheet from its first row to its last."""
    names = {name.casefold(): i for i, name in enumerate(model.classes[:-1])}
    exact = [names.get(label.casefold(), -1) for label in sheet["instance_of"]]
    answer = np.array([model.classes.index(name) for name in wanted])
    x, fixed = model.inputs, model.text_examples
    weights, drop = model.weights, len(model.classes) - 1
    done: list[int] = []
    left_out: set[int] = set()
    found = Replay()
    calibration = np.array(CALIBRATION)

    def suggested(i: int) -> tuple[int, float]:
        if exact[i] >= 0:
            return exact[i], PRIORS["name"][0] / PRIORS["name"][1]
        return int(best[i]), float(trust[i])

    def see(i: int) -> None:
        if exact[i] < 0:  # once a value, before its answer is known to the model
            found.seen.setdefault(i, (measured[i], bool(best[i] == answer[i])))

    def decide(i: int) -> None:
        see(i)
        guess, chance = suggested(i)
        found.right += guess == answer[i]
        found.offered.append((chance, bool(guess == answer[i])))
        done.append(i)

    waiting = list(range(len(sheet)))
    while waiting:
        examples = fixed.with_decided(x[done], answer[done])
        if done:
            weights = fit_weights(examples, drop + 1, weights)
        chances, measured = predict(x, weights, examples)
        best = chances.argmax(axis=1)
        if found.seen:
            calibration = calibrate(*map(np.array, zip(*found.seen.values(), strict=True)))
        trust = 1 / (1 + np.exp(-measured @ calibration))
        ranked = sorted((suggested(i)[1], i) for i in waiting if i not in left_out)
        listed = [i for chance, i in ranked if chance >= SURE]
        if len(listed) >= LEAST:
            found.keys += 2
            for place, i in enumerate(listed):
                see(i)
                right = suggested(i)[0] == answer[i]
                found.sure.setdefault(i, bool(right))
                if right:
                    decide(i)
                else:
                    found.keys += 1 if place < 9 else place + 2
                    left_out.add(i)
            waiting = [i for i in waiting if i not in set(done)]
            if found.sure and any(i in done for i in listed):
                continue
        for i in waiting[:REFIT]:
            order = np.argsort(-chances[i, :-1], kind="stable")
            if answer[i] in (suggested(i)[0], drop) or answer[i] in order[:9]:
                found.keys += 1
            else:
                found.keys += 2 + letters(
                    model.classes[answer[i]], [model.classes[j] for j in order]
                )
            decide(i)
        waiting = waiting[REFIT:]
    return found


def curve(case: "Case", way: str) -> list[tuple[int, int, float]]:
    """Decisions so far, how many of them were changed, and the share of images that are right."""
    model, labels = case.model, case.sheet["instance_of"]
    names = {name.casefold(): i for i, name in enumerate(model.classes[:-1])}
    exact = np.array([names.get(label.casefold(), -1) for label in labels])
    answer = np.array([model.classes.index(name) for name in case.wanted])
    images = np.maximum(case.sheet["images"], case.sheet["landmarks"]).to_numpy(float)
    clusters, drop = case.sheet["cluster"].to_numpy(), len(model.classes) - 1
    x, weights, calibration = model.inputs, model.weights, np.array(CALIBRATION)
    done, waiting, changed = list[int](), list(range(len(labels))), 0
    seen: dict[int, tuple[np.ndarray, bool]] = {}
    points = []
    while True:
        best, trust = exact.copy(), np.where(exact >= 0, PRIORS["name"][0] / PRIORS["name"][1], 0)
        if way.startswith("votes"):
            placed = np.array([i for i in done if answer[i] != drop], dtype=int)
            for i in waiting:
                voters = placed[clusters[placed] == clusters[i]]
                if exact[i] < 0 and len(voters) > 1:
                    best[i] = np.bincount(answer[voters], images[voters]).argmax()
        else:
            examples = model.text_examples.with_decided(x[done], answer[done])
            weights = fit_weights(examples, drop + 1, weights) if done else weights
            chances, measured = predict(x, weights, examples)
            if seen:
                calibration = calibrate(*map(np.array, zip(*seen.values(), strict=True)))
            best = np.where(exact >= 0, exact, chances.argmax(axis=1))
            trust = np.where(exact >= 0, trust, 1 / (1 + np.exp(-measured @ calibration)))
        right = best == answer
        right_now = right.copy()
        right_now[done] = True
        points.append((len(done), changed, float(images[right_now].sum() / images.sum())))
        if not waiting:
            return points
        if way.endswith("gain"):
            waiting.sort(key=lambda i: -images[i] * (1 - trust[i]))
        for i in waiting[:REFIT]:
            if exact[i] < 0 and way.startswith("model"):
                seen.setdefault(i, (measured[i], bool(right[i])))
            changed += not right[i]
            done.append(i)
        waiting = waiting[REFIT:]


def letters(name: str, ranked: list[str]) -> int:
    """Letters to type until the chooser lists the name first; the likeliest is first of a kind."""
    for count in range(1, len(name)):
        term = name[:count].casefold()
        if next(other for other in ranked if other.casefold().startswith(term)) == name:
            return count
    return len(name)


@dataclass(frozen=True)
class Case:
    """Values in the order of their sheet, the shipped decisions, and the model without any."""

    sheet: pd.DataFrame
    wanted: list[str]
    model: ValueModel

    def replay(self) -> Replay:
        """Decide all values."""
        return replay(self.sheet, self.wanted, self.model)


def cases(data: Path) -> dict[str, Case]:
    """Washington's and all values; ``data`` has folders of the real data."""
    texts = {"landmark_id": "int", "category": "text", "supercategory": "text", "n_images": "int"}
    scraped = read_csv(data / "gldv2-washington" / "derived_scraped_supercategory.csv", texts)
    counted = read_csv(
        data / "instance-of" / "all_instance_of_labels.csv", {"label": "text", "count": "int"}
    )
    scraped = scraped.assign(instance_of=scraped["supercategory"].map(single_blanks))
    grouped = scraped.groupby("instance_of", as_index=False)
    washington = grouped.agg(landmarks=("landmark_id", "size"), images=("n_images", "sum"))
    every = counted.assign(instance_of=counted["label"].map(single_blanks), images=0)
    every = every.rename(columns={"count": "landmarks"})
    return {"Washington": _case(washington, 40), "all": _case(every, 250)}


def published(file: Path, clusters: int) -> Case:
    """The values of H-GLDv2's file of labels."""
    labels = read_label_file(file).labels
    labels = labels[(labels["supercategory"] != "") & (labels["hierarchical_label"] != "")]
    pairs = labels.groupby(["supercategory", "hierarchical_label"]).size()
    return _published(pairs.reset_index(name="landmarks"), clusters)


def published_part() -> Case:
    """The values of ``published.csv``."""
    columns = {"supercategory": "text", "hierarchical_label": "text", "landmarks": "int"}
    return _published(read_csv(PUBLISHED_PART, columns), 40)


def _published(pairs: pd.DataFrame, clusters: int) -> Case:
    """Values, each with the label of most of its landmarks."""
    pairs = pairs.sort_values("landmarks", ascending=False, kind="stable")
    most = pairs.drop_duplicates("supercategory").set_index("supercategory")["hierarchical_label"]
    counts = pairs.groupby("supercategory")["landmarks"].sum()
    values = pd.DataFrame({"instance_of": counts.index, "landmarks": counts.to_numpy()})
    return _case(values.assign(images=0), clusters, most.to_dict())


def _case(values: pd.DataFrame, clusters: int, answers: Mapping[str, str] | None = None) -> Case:
    """Cluster values; without ``answers`` they are those of the shipped decisions."""
    tables = {n: declared_table(n) for n in ("decisions", "taxonomy", "cluster_edits")}
    read = {name: table.read(LABELS / table.file) for name, table in tables.items()}
    values = values.assign(class_id="")[columns_of("values")].sort_values("instance_of")
    if answers is None:
        of_values = Decided(read["decisions"]).of_values(values)
        decided = zip(values["instance_of"], of_values, strict=True)
        answers = {name: d.supercategory if d.places else DROP for name, d in decided if d}
    values = values[values["instance_of"].isin(list(answers))]  # one is cleaned away
    with tempfile.TemporaryDirectory() as folder:
        context = StageContext("2026-01-01", Path(folder), SourceOptions(), LABELS)
        options = EmbedOptions(encoder="offline:minilm", device="cpu")
        vectors, texts = embed_texts(values, read["taxonomy"], options=options, context=context)
        clustered, _ = propose_clusters(
            values, vectors, read["cluster_edits"],
            options=ClusterOptions(clusters=clusters), context=context,
        )  # fmt: skip
    sheet = in_review_order(clustered.assign(key=clustered["instance_of"], status="open"))
    model = fit_model(sheet, [""] * len(sheet), read["taxonomy"], vectors, texts)
    assert model is not None
    return Case(sheet, [answers[name] for name in sheet["instance_of"]], model)


def shipped() -> Case:
    """The values of the shipped decisions, each counted once."""
    table = declared_table("decisions")
    keys = table.read(LABELS / table.file)["key"].drop_duplicates()
    values = pd.DataFrame({"instance_of": keys.map(single_blanks), "landmarks": 1, "images": 0})
    return _case(values, 250)


def rows() -> list[Row]:
    """The figures with their aims.

    Without the real data (``HGLD_REAL_DATA``) those of the shipped decisions, each counted once.
    """
    data = os.environ.get("HGLD_REAL_DATA")
    if data:
        found_cases = cases(Path(data))
    else:
        print("skipped: Washington, all with their counts: HGLD_REAL_DATA names no folder")
        found_cases = {"shipped decisions": shipped()}
    if data and (Path(data) / PUBLISHED).is_file():
        found_cases["published"] = published(Path(data) / PUBLISHED, 250)
    else:
        found_cases[PART] = published_part()
    aims = {"Washington": (240, 180, 15), "all": (1150, 640, 40), PART: (130, 140, 4)}
    found = []
    for name, case in found_cases.items():
        done = case.replay()
        keys, right, changes = aims.get(name, (None, None, None))
        what = f"review, {name} ({len(case.sheet):,} values):"
        share = 100 * sum(done.sure.values()) / max(1, len(done.sure))
        found += [
            Row(f"{what} keystrokes", float(done.keys), "", most=keys),
            Row(f"{what} suggestions right", float(done.right), "", least=right),
            Row(f"{what} sure ones offered", len(done.sure), ""),
            Row(f"{what} sure ones right", float(share), "%", least=98 if keys else None),
            *_reliability(what, done.offered),
        ]
        for way in WAYS:
            points = curve(case, way)
            for share in SHARES:
                made, changed, _ = next(p for p in points if 100 * p[2] >= share)
                table = f"{what[:-1]}, decisions changed until so many images are right"
                bounded = way == WAYS[1] and share == SHARES[-2]
                most = changes if bounded else None
                found.append(Row(f"{table}: {way}: {share}%", changed, "", most=most))
                if share == SHARES[-2]:
                    found.append(Row(f"{table}: {way}: all until {share}%", made, ""))
    return found


def _reliability(what: str, offered: list[tuple[float, bool]]) -> list[Row]:
    """How often suggestions of each range of probabilities were right."""
    bins = np.array([min(int(BINS * chance), BINS - 1) for chance, _ in offered])
    hits = np.array([right for _, right in offered])
    return [
        Row(
            f"{what} right of {sum(bins == i)} with {i / BINS:.0%} to {(i + 1) / BINS:.0%}",
            float(100 * hits[bins == i].mean()),
            "%",
        )
        for i in range(BINS)
        if any(bins == i)
    ]
