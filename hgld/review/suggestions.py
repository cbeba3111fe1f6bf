"""Suggestions for values: their name, Wikidata's classes, a model of the decisions, cluster votes.

The first of these that has an answer is the suggestion. The model is the mean of a multinomial
logistic regression on the values' vectors, with those of their photos and of their ancestors in
Wikidata if there are any, and of votes of the decided values that are near, with "drop" as a class.
Regression alone answers wrongly, and firmly, for a value unlike all others. The names and
definitions of the taxonomy are examples of their supercategories, so the model answers before the
first decision. The review page fits the same model to the same vectors as decisions are made
(``templates/review/model.js``).
"""

import re
import struct
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from hgld.artifacts import Vectors, records
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.decisions import Decision
from hgld.hierarchy.scrape.ancestors import shared_ancestors
from hgld.hierarchy.unread_labels import find_unread
from hgld.tasks import count_cores
from hgld.words import single_blanks

DROP = "drop"  # as a suggestion: that the value is to be dropped
FEWEST_VOTERS = 2  # decided values that a cluster needs for a suggestion to its other values
DIMENSIONS = 192
WORDS, WORD_SHARE = 512, 0.2  # hashed words of the labels, and their length beside a vector of 1
PHOTO_SHARE = 0.5  # length of the photos' part beside a vector of 1
ANCESTORS, ANCESTOR_SHARE = 512, 0.4  # hashed ancestors, and their length beside a vector of 1
TEXT_COUNT = 3.0  # decisions that a text of the taxonomy counts as
LENGTH, CONSTANT = 10.0, 2.0  # of a vector, and of the constant beside it
DROP_PENALTY = 3.0  # dropped values have little in common, so their class must not be learned fast
FOLDS = 3
PRIORS = {"name": (98, 100), "class": (16, 20), "votes": (4, 10)}  # right, of; before any decision
# Factors of log odds, drop, likeness to an example of the class and of another one, constant:
# before any decision, the probabilities of the model are taken as they are.
CALIBRATION = (1.0, 0.0, 0.0, 0.0, 0.0)
CALIBRATION_STEPS = 100
PRIOR_PAIRS = 150.0  # how firmly the calibration is held there


@dataclass(frozen=True)
class Suggestion:
    """A supercategory or ``DROP`` for a value; without a name, nothing is suggested."""

    name: str = ""
    probability: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Examples:
    """Texts of the taxonomy and decided values, which the model learns from.

    Attributes:
        inputs: (M, D + 1).
        classes: (M,) class of each.
        counts: (M,) decisions that each counts as.
    """

    inputs: np.ndarray
    classes: np.ndarray
    counts: np.ndarray

    def with_decided(self, inputs: np.ndarray, classes: np.ndarray) -> "Examples":
        """Return these examples and decided values, which count once."""
        parts = (self.inputs, inputs), (self.classes, classes), (self.counts, np.ones(len(inputs)))
        return Examples(*map(np.concatenate, parts))


@dataclass(frozen=True)
class ValueModel:
    """Decisions of people about values like these.

    Attributes:
        classes: the supercategories, sorted, and ``DROP``.
        values: (N, D) int8, one row a value.
        texts: (T, D) int8, present and earlier names and definitions of supercategories.
        text_examples: the texts with their classes.
        scale: (D,) factor of each column of both.
        weights: (D + 1, C), of the regression.
        calibration: see ``calibrate``.
        probabilities: (N, C) of each class for each value, before calibration.
        measured: (N, 5), see ``predict``.
        above: for each value id -> name of the ancestors that it shares with others, nearest first.
    """

    classes: list[str]
    values: np.ndarray
    texts: np.ndarray
    text_examples: Examples
    scale: np.ndarray
    weights: np.ndarray
    calibration: np.ndarray
    probabilities: np.ndarray
    measured: np.ndarray
    above: list[dict[str, str]]

    @property
    def inputs(self) -> np.ndarray:
        """(N, D + 1) inputs of the regression, the constant last."""
        return _inputs(self.values, self.scale)

    def facts(self) -> dict[str, Any]:
        """The model for the page: arrays as base64 of int8 and float32."""
        names = {item_id: name for found in self.above for item_id, name in found.items()}
        place = {item_id: i for i, item_id in enumerate(names)}
        pack = {"values": self.values, "texts": self.texts, "weights": self.weights.astype("<f4")}
        return {
            "classes": self.classes,
            "textClasses": self.text_examples.classes.tolist(),
            "scale": self.scale.tolist(),
            "calibration": self.calibration.tolist(),
            "dropPenalty": DROP_PENALTY,
            "constant": CONSTANT,
            "length": LENGTH,
            "textCount": TEXT_COUNT,
            "priorPairs": PRIOR_PAIRS,
            "calibrationSteps": CALIBRATION_STEPS,
            "ancestors": [*names.values()],
            "above": [[place[item_id] for item_id in found] for found in self.above if names],
            "priors": {name: right / of for name, (right, of) in PRIORS.items()},
            **{name: b64encode(part.tobytes()).decode() for name, part in pack.items()},
        }


def fit_model(
    clusters: pd.DataFrame,
    answers: Sequence[str],
    taxonomy: pd.DataFrame,
    label_vectors: Vectors,
    taxonomy_vectors: Vectors,
    image_vectors: Vectors | None = None,
    ancestry: pd.DataFrame | None = None,
    earlier: Mapping[str, str] | None = None,
) -> ValueModel | None:
    """Fit the model to the class of each row of ``clusters``, empty if it is open.

    Its calibration is cross-validated: each decided value is predicted by a model of the others.
    None without vectors of the taxonomy. With image vectors, values are also near if their photos
    are, and to a text of the taxonomy if one CLIP made both. With ancestry, they are also near if
    they share ancestors; the fewer values are below one, the more it counts. A text has the
    ancestors of the item that is named as its supercategory or its head noun. A value whose label a
    supercategory had before (``earlier``: from that name to its present one) is an example of it,
    as are its texts, unless it was decided otherwise. Values and texts that the encoder cannot
    tell apart are like others by their words, photos and ancestors only.

    Example:
        >>> taxonomy = pd.DataFrame({"supercategory": ["lake", "mine"], "definition": ["", ""]})
        >>> values = pd.DataFrame({"class_id": ["Q1", "Q2"], "instance_of": ["pond", "shaft"]})
        >>> texts = Vectors(["lake", "mine"], np.eye(2), {})
        >>> model = fit_model(values, ["", ""], taxonomy,
        ...     Vectors(["Q1", "Q2"], np.array([[1, 0.1], [0.1, 1]]), {}), texts)
        >>> [model.classes[i] for i in model.probabilities.argmax(axis=1)]
        ['lake', 'mine']
    """
    about = {single_blanks(r["supercategory"]): r["definition"] for r in records(taxonomy)}
    classes = [*sorted(about), DROP]
    class_of = {name: i for i, name in enumerate(classes)}
    texts = {n: n for n in about} | {f"{n}: {text}": n for n, text in about.items()}
    used = [i for i, text in enumerate(taxonomy_vectors.ids) if text in texts]
    keys = value_keys(clusters).tolist()
    if not used or not set(keys) <= label_vectors.row_of.keys():
        return None
    names = [texts[taxonomy_vectors.ids[i]] for i in used]
    used_vectors = taxonomy_vectors.vectors[used]
    above, of_ancestors = _ancestor_part(clusters, names, ancestry)
    of_photos = _photo_part(keys, used_vectors, label_vectors, image_vectors)
    own_vectors = label_vectors.of(keys)
    labels = [*clusters["instance_of"], *(taxonomy_vectors.ids[i] for i in used)]
    values, of_texts, scale = _reduce(
        own_vectors,
        used_vectors,
        find_unread(labels, np.concatenate([own_vectors, used_vectors])),
        [*clusters["instance_of"], *names],
        np.hstack([of_photos, of_ancestors]),
    )
    had = [(earlier or {}).get(label, "") for label in clusters["instance_of"]]
    named = [i for i, name in enumerate(had) if name in about and answers[i] in ("", name)]
    of_texts = np.concatenate([of_texts, values[named]])
    text_classes = np.array([class_of[name] for name in [*names, *(had[i] for i in named)]])
    counts = np.full(len(of_texts), TEXT_COUNT)
    fixed = Examples(_inputs(of_texts, scale), text_classes, counts)
    x = _inputs(values, scale)
    of_row = np.array([class_of.get(answer, -1) for answer in answers], dtype=int)
    decided = np.flatnonzero(of_row >= 0)
    parts = np.arange(len(decided)) % FOLDS
    tests = [decided[parts == fold] for fold in range(FOLDS) if len(decided) >= FOLDS]
    learned = [np.setdiff1d(decided, tested) for tested in [*tests, ()]]  # the last: all decided
    samples = [fixed.with_decided(x[rows], of_row[rows]) for rows in learned]
    fit = partial(fit_weights, classes=len(classes), start=fit_weights(fixed, len(classes)))
    # the limit here holds until the last fit has ended; each would lift its own for the others
    with threadpool_limits(limits=1), ThreadPoolExecutor(count_cores()) as pool:
        *of_tests, weights = pool.map(fit, samples)
    measured, right = [np.zeros((0, len(CALIBRATION)))], [np.zeros(0)]
    for tested, own, others in zip(tests, of_tests, samples, strict=False):
        chances, found = predict(x[tested], own, others)
        measured.append(found)
        right.append(chances.argmax(axis=1) == of_row[tested])
    calibration = calibrate(np.concatenate(measured), np.concatenate(right))
    answer = predict(x, weights, samples[-1])
    return ValueModel(classes, values, of_texts, fixed, scale, weights, calibration, *answer, above)


def suggest(
    clusters: pd.DataFrame,
    in_force: Sequence[Decision | None],
    kinds: Mapping[str, str],
    class_hints: pd.DataFrame,
    model: ValueModel | None,
) -> list[Suggestion]:
    """Return a suggestion for each row of ``clusters``; none for decided ones."""
    rows = records(clusters)
    names = {name.casefold(): name for name in kinds}
    hints = {row["class_id"]: row for row in records(class_hints)}
    modelled = _modelled(rows, in_force, model) if model else [Suggestion()] * len(rows)
    votes = _favourites(rows, in_force)
    found = []
    for row, decision, other in zip(rows, in_force, modelled, strict=True):
        label, hint = row["instance_of"].casefold(), hints.get(row["class_id"], {})
        if decision and decision.decides:
            found.append(Suggestion())
        elif label in names:
            found.append(_prior("name", names[label], "its own name"))
        elif hint.get("supercategory_hint") in kinds:
            reason = f"its class in Wikidata is below {hint['root'] or hint['supercategory_hint']}"
            found.append(_prior("class", hint["supercategory_hint"], reason))
        elif other.name or row["cluster"] not in votes:
            found.append(other)
        else:
            found.append(_prior("votes", votes[row["cluster"]], "most decided ones of its cluster"))
    return found


def fit_weights(examples: Examples, classes: int, start: np.ndarray | None = None) -> np.ndarray:
    """Return the weights (D + 1, C) of least penalised cross entropy.

    The penalty is half the squared weights, ``DROP_PENALTY`` times that for the last class.
    """
    x, counts = examples.inputs, examples.counts[:, None]
    wanted = np.arange(len(x)), examples.classes
    penalty = np.ones(classes)
    penalty[-1] = DROP_PENALTY

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(-1, classes)
        scores = x @ weights
        top = scores.max(axis=1, keepdims=True)
        right = scores[wanted][:, None]
        # in place: a fit takes hundreds of rounds, and half of one would be memory
        errors = np.exp(np.subtract(scores, top, out=scores), out=scores)
        sums = errors.sum(axis=1, keepdims=True)
        entropy = (counts * (np.log(sums) + top - right)).sum()
        errors /= sums
        errors[wanted] -= 1
        errors *= counts
        gradient = x.T @ errors + penalty * weights
        return entropy + 0.5 * (penalty * weights**2).sum(), gradient.ravel()

    first = np.zeros((x.shape[1], classes)) if start is None else start
    options = {"maxiter": 300, "gtol": 1e-2, "ftol": 1e-9}
    # The solver's vectors are short: several threads of BLAS take many times as long as one.
    with threadpool_limits(limits=1):
        found = minimize(loss, first.ravel(), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x).reshape(-1, classes)


def predict(
    x: np.ndarray, weights: np.ndarray, examples: Examples
) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities (N, C), and what shows how far the best class can be trusted (N, 5).

    The latter is the log odds of its probability, 1 for a drop, the cosine similarity to the
    nearest example of the class and to the nearest one of another class, and 1.

    Args:
        x: (N, D + 1) inputs.
        weights: (D + 1, C) of the regression that was fitted to the examples.
        examples: the texts and the decided values.
    """
    likeness = x[:, :-1] @ examples.inputs[:, :-1].T / LENGTH**2
    votes = np.exp(LENGTH * likeness) @ np.eye(weights.shape[1])[examples.classes]
    chances = (softmax(x @ weights, axis=1) + votes / votes.sum(axis=1, keepdims=True)) / 2
    best, top = chances.argmax(axis=1), np.clip(chances.max(axis=1), 1e-4, 1 - 1e-4)
    own = examples.classes[None, :] == best[:, None]
    same, other = (np.where(mask, likeness, 0.0).max(axis=1) for mask in (own, ~own))
    drop = best == chances.shape[1] - 1
    shown = np.stack([np.log(top / (1 - top)), drop, same, other, np.ones(len(x))], axis=1)
    return chances, shown


def calibrate(measured: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Fit by logistic regression how often the model is right, given ``predict``.

    Args:
        measured: (N, 5), of values that the model had not seen when it suggested their class.
        right: (N,) whether the suggestion was right.

    Returns:
        Its factors, held near ``CALIBRATION``.

    Example:
        >>> calibrate(np.zeros((0, 5)), np.zeros(0)).tolist()
        [1.0, 0.0, 0.0, 0.0, 0.0]
    """
    start = np.array(CALIBRATION)
    guess = start.copy()
    # the largest curvature that the loss can have: no step goes too far
    bend = measured.T @ measured / 4 + PRIOR_PAIRS * np.eye(len(start))
    for _ in range(CALIBRATION_STEPS):
        now = 1 / (1 + np.exp(-measured @ guess))
        slope = measured.T @ (now - right) + PRIOR_PAIRS * (guess - start)
        guess = guess - np.linalg.solve(bend, slope)
    return guess


def head_noun(label: str) -> str:
    """Return the noun that says what a value is, in the singular.

    Example:
        >>> head_noun("Stone bridges of Rome (former)"), head_noun("glass")
        ('bridge', 'glass')
    """
    plain = re.sub(r"\(.*?\)", "", label.casefold())
    before = re.split(r"\s(?:of|in|for|with|on|at|from|by|to|and)\s", plain)[0]
    words = re.findall(r"[^\W_]+", before) or [""]
    return _singular(words[-1])


def _singular(word: str) -> str:
    return re.sub(r"(?<=\w{3})(?<!s)s$", "", word)


def class_of_decision(decision: Decision | None) -> str:
    """Return the class that a decision puts its value into; empty if it leaves the value open."""
    if decision is None or not decision.decides:
        return ""
    return decision.supercategory if decision.places else DROP


def _inputs(rows: np.ndarray, scale: np.ndarray) -> np.ndarray:
    constant = np.full((len(rows), 1), CONSTANT)
    return np.hstack([rows * scale, constant])


def _photo_part(
    keys: Sequence[str], texts: np.ndarray, label_vectors: Vectors, image_vectors: Vectors | None
) -> np.ndarray:
    """Return (N + T, E) for values with photos, and for texts of the same CLIP; zero for others."""
    if image_vectors is None:
        return np.empty((len(keys) + len(texts), 0))
    found = np.zeros((len(keys) + len(texts), image_vectors.vectors.shape[1]))
    seen = [i for i, key in enumerate(keys) if key in image_vectors.row_of]
    rows = np.asarray(image_vectors.of(keys[i] for i in seen), dtype=np.float64)
    found[seen] = _unit_rows(rows - rows.mean(axis=0)) if seen else rows
    if image_vectors.made_by.get("encoder") == label_vectors.made_by.get("encoder"):
        found[len(keys) :] = _unit_rows(texts - texts.mean(axis=0))
    return PHOTO_SHARE * found


def _ancestor_part(
    values: pd.DataFrame, names: Sequence[str], ancestry: pd.DataFrame | None
) -> tuple[list[dict[str, str]], np.ndarray]:
    """Return id -> name of the shared ancestors of each value, and a part (N + T, A) of the inputs.

    Args:
        values: class_id and instance_of (N).
        names: the supercategory of each text (T).
        ancestry: statements above the classes; None gives no ancestors.
    """
    if ancestry is None:
        return [{} for _ in range(len(values))], np.empty((len(values) + len(names), 0))
    labels = dict(zip(ancestry["item_id"], ancestry["label"], strict=True))
    labels |= dict(zip(values["class_id"], values["instance_of"], strict=True))
    labels.pop("", None)  # values without an item
    _, below = shared_ancestors(values["class_id"].tolist(), ancestry)
    ordered = sorted(labels, key=lambda item_id: (below[item_id], item_id))  # of a name, the widest
    item_of = {tuple(_words(labels[item_id])): item_id for item_id in ordered}
    tried = ((tuple(_words(name)), (head_noun(name),) * 2) for name in names)
    named = [next((item_of[one] for one in both if one in item_of), "") for both in tried]
    ids = [*values["class_id"], *named]
    shared, below = shared_ancestors(ids, ancestry)
    total = len({*ids} - {""})
    weights = {item_id: np.log(total / count) ** 2 for item_id, count in below.items()}
    rows = [{item_id: weights[item_id] for item_id in found} for found in shared]
    above = [
        {one: labels.get(one, one) for one, weight in row.items() if weight and one != class_id}
        for class_id, row in zip(values["class_id"], rows, strict=False)  # then those of the texts
    ]
    return above, ANCESTOR_SHARE * _unit_rows(_hashed(rows, ANCESTORS))


def _reduce(
    values: np.ndarray,
    texts: np.ndarray,
    unread: np.ndarray,
    words: Sequence[str],
    more: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values and texts in at most ``DIMENSIONS`` dimensions as int8, and the scale.

    The words of the labels are joined to the vectors: "railway bridge" must be near each "bridge";
    so are more columns (N + T, E), of photos and ancestors. The vectors of ``unread`` labels and
    texts (N + T,) say nothing and are left out.
    """
    both = np.concatenate([values, texts]).astype(np.float64)
    both = _unit_rows(both - values.mean(axis=0))
    both[unread] = 0
    hashed = _hashed([Counter(_words(label)) for label in words], WORDS)
    both = np.hstack([both, WORD_SHARE * _unit_rows(hashed), more])
    counts = np.repeat([1.0, TEXT_COUNT], [len(values), len(texts)])
    _, axes = np.linalg.eigh(both.T @ (counts[:, None] * both))
    axes = axes[:, ::-1][:, :DIMENSIONS]
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    both = LENGTH * _unit_rows(both @ axes)
    scale = np.maximum(np.abs(both).max(axis=0), 1e-9) / 127
    whole = np.rint(both / scale).astype(np.int8)
    return whole[: len(values)], whole[len(values) :], scale


def _unit_rows(rows: np.ndarray) -> np.ndarray:
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    result: np.ndarray = rows / np.where(lengths > 0, lengths, 1)[:, None]
    return result


def _hashed(rows: Sequence[Mapping[str, float]], size: int) -> np.ndarray:
    """Return (N, size) sums of each row's numbers, at hashes of their names and signed by them.

    These are the hashes and signs of scikit-learn's FeatureHasher, whose import takes longer than a
    whole page of values.
    """
    found = np.zeros((len(rows), size))
    for row, numbers in enumerate(rows):
        for name, number in numbers.items():
            place = _murmur3(name)
            found[row, abs(place) % size] += number if place >= 0 else -number
    return found


@cache
def _murmur3(name: str) -> int:
    """MurmurHash3 of a name in UTF-8, 32 bits with a sign."""
    data = name.encode()
    tail = len(data) % 4
    found = 0
    for (block,) in struct.iter_unpack("<I", data[: len(data) - tail]):
        found ^= _mixed(block)
        found = ((found << 13 | found >> 19) * 5 + 0xE6546B64) & 0xFFFFFFFF
    found ^= _mixed(int.from_bytes(data[len(data) - tail :], "little")) ^ len(data)
    found = (found ^ found >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    found = (found ^ found >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    found ^= found >> 16
    return found - (1 << 32) if found >> 31 else found


def _mixed(block: int) -> int:
    """The number of 32 bits as which MurmurHash3 adds four bytes."""
    block = block * 0xCC9E2D51 & 0xFFFFFFFF
    return (block << 15 | block >> 17) * 0x1B873593 & 0xFFFFFFFF


def _words(label: str) -> list[str]:
    """The words of a label in the singular, its head noun twice."""
    words = re.findall(r"[^\W_]+", label.casefold())
    return [*map(_singular, words), head_noun(label)]


def _prior(source: str, name: str, reason: str) -> Suggestion:
    right, of = PRIORS[source]
    return Suggestion(name, right / of, reason)


def _modelled(
    rows: Sequence[Mapping[str, Any]], in_force: Sequence[Decision | None], model: ValueModel
) -> list[Suggestion]:
    """Return the model's suggestion for each row, with the decided values that are most like it."""
    x = model.inputs
    answers = [class_of_decision(decision) for decision in in_force]
    members = {name: [i for i, a in enumerate(answers) if a == name] for name in {*answers} - {""}}
    trust = 1 / (1 + np.exp(-model.measured @ model.calibration))
    found = []
    for row, best in enumerate(model.probabilities.argmax(axis=1)):
        name = model.classes[best]
        here = np.array(members.get(name, []), dtype=int)
        near = here[np.argsort(-(x[here] @ x[row]), kind="stable")[:2]]
        like = " and ".join(f"“{rows[i]['instance_of']}”" for i in near)
        reason = f"like {like}" if like else "like the name and definition"
        shared = (n for a, n in model.above[row].items() if any(a in model.above[i] for i in near))
        reason += "".join(f", below “{name}”" for name in islice(shared, 1))
        found.append(Suggestion(name, float(trust[row]), reason))
    return found


def _favourites(
    rows: Sequence[Mapping[str, Any]], in_force: Sequence[Decision | None]
) -> dict[object, str]:
    """Return cluster -> the supercategory with most landmarks among its decided values."""
    votes: dict[object, Counter[str]] = defaultdict(Counter)
    voters = Counter[object]()
    for row, decision in zip(rows, in_force, strict=True):
        if decision and decision.places:
            votes[row["cluster"]][decision.supercategory] += int(row["landmarks"])
            voters[row["cluster"]] += 1
    return {
        cluster: min(count, key=lambda name: (-count[name], name))
        for cluster, count in votes.items()
        if voters[cluster] >= FEWEST_VOTERS
    }
