"""Suggestions for values: their name, Wikidata's classes, a model of the decisions, cluster votes.

The first of these that has an answer is the suggestion. The model is a multinomial logistic
regression on the values' vectors, with "drop" as a class. The names and definitions of the taxonomy
are examples of their supercategories, so it answers before the first decision. The review page fits
the same model to the same vectors as decisions are made (``templates/review/model.js``).
"""

import re
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize

from hgld.artifacts import Vectors
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.columns import records
from hgld.hierarchy.decisions import Decision
from hgld.words import single_blanks

__all__ = [
    "CALIBRATION",
    "CALIBRATION_STEPS",
    "DROP",
    "PRIORS",
    "PRIOR_PAIRS",
    "Suggestion",
    "ValueModel",
    "calibrate",
    "class_of_decision",
    "fit_model",
    "fit_weights",
    "head_noun",
    "measure",
    "suggest",
]

DROP = "drop"  # as a suggestion: that the value is to be dropped
FEWEST_VOTERS = 2  # decided values that a cluster needs for a suggestion to its other values
DIMENSIONS = 192
WORDS, WORD_SHARE = 512, 0.2  # hashed words of the labels, and their length beside a vector of 1
TEXT_SHARE = 2.0  # weight of a text of the taxonomy in the choice of the dimensions
LENGTH, CONSTANT = 10.0, 2.0  # of a vector, and of the constant beside it
DROP_PENALTY = 3.0  # dropped values have little in common, so their class must not be learned fast
FOLDS = 3
PRIORS = {"name": (98, 100), "class": (16, 20), "votes": (4, 10)}  # right, of; before any decision
# Factors of log odds, drop, likeness to an example of the class and of another one, constant.
CALIBRATION = (0.5, -0.5, 3.5, -1.0, -3.0)
CALIBRATION_STEPS = 100
PRIOR_PAIRS = 40.0  # how firmly the calibration is held there


@dataclass(frozen=True)
class Suggestion:
    """A supercategory or ``DROP`` for a value; an empty name is no suggestion."""

    name: str = ""
    probability: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class ValueModel:
    """Multinomial logistic regression of the decisions.

    Attributes:
        classes: the supercategories, sorted, and ``DROP``.
        values: (N, D) int8, one row a value.
        texts: (T, D) int8, names and definitions of supercategories.
        text_classes: (T,) class of each text.
        scale: (D,) factor of each column of both.
        weights: (D + 1, C).
        calibration: see ``calibrate``.
    """

    classes: list[str]
    values: np.ndarray
    texts: np.ndarray
    text_classes: np.ndarray
    scale: np.ndarray
    weights: np.ndarray
    calibration: np.ndarray

    @property
    def inputs(self) -> np.ndarray:
        """(N, D + 1) inputs of the regression, the constant last."""
        return _inputs(self.values, self.scale)

    @property
    def text_inputs(self) -> np.ndarray:
        """(T, D + 1) inputs of the texts."""
        return _inputs(self.texts, self.scale)

    @property
    def probabilities(self) -> np.ndarray:
        """(N, C) of each class for each value, before calibration."""
        return np.asarray(softmax(self.inputs @ self.weights, axis=1))

    def facts(self) -> dict[str, Any]:
        """The model for the page: arrays as base64 of int8 and float32."""
        pack = {"values": self.values, "texts": self.texts, "weights": self.weights.astype("<f4")}
        return {
            "classes": self.classes,
            "textClasses": self.text_classes.tolist(),
            "scale": self.scale.tolist(),
            "calibration": self.calibration.tolist(),
            "dropPenalty": DROP_PENALTY,
            "constant": CONSTANT,
            "length": LENGTH,
            "priorPairs": PRIOR_PAIRS,
            "calibrationSteps": CALIBRATION_STEPS,
            "priors": {name: right / of for name, (right, of) in PRIORS.items()},
            **{name: b64encode(part.tobytes()).decode() for name, part in pack.items()},
        }


def fit_model(
    clusters: pd.DataFrame,
    answers: Sequence[str],
    taxonomy: pd.DataFrame,
    label_vectors: Vectors,
    taxonomy_vectors: Vectors,
) -> ValueModel | None:
    """Fit the model to the class of each row of ``clusters``, empty if it is open.

    Its calibration is cross-validated: each decided value is predicted by a model of the others.
    None without vectors of the taxonomy.

    Example:
        >>> taxonomy = pd.DataFrame({"supercategory": ["lake", "mine"], "definition": ["", ""]})
        >>> values = pd.DataFrame({"class_id": ["Q1", "Q2"], "instance_of": ["pond", "shaft"]})
        >>> texts = Vectors(["lake", "mine"], np.eye(2), {})
        >>> model = fit_model(values, ["", ""], taxonomy, Vectors(["Q1", "Q2"], np.eye(2), {}),
        ...     texts)
        >>> [model.classes[i] for i in model.probabilities.argmax(axis=1)]
        ['lake', 'mine']
    """
    about = {single_blanks(r["supercategory"]): r["definition"] for r in records(taxonomy)}
    classes = [*sorted(about), DROP]
    class_of = {name: i for i, name in enumerate(classes)}
    texts = {n: n for n in about} | {f"{n}: {text}": n for n, text in about.items()}
    used = [i for i, text in enumerate(taxonomy_vectors.ids) if text in texts]
    row_of = {key: row for row, key in enumerate(label_vectors.ids)}
    keys = value_keys(clusters).tolist()
    if not used or not set(keys) <= row_of.keys():
        return None
    names = [texts[taxonomy_vectors.ids[i]] for i in used]
    values, of_texts, scale = _reduce(
        label_vectors.vectors[[row_of[key] for key in keys]],
        taxonomy_vectors.vectors[used],
        [*clusters["instance_of"], *names],
    )
    text_classes = np.array([class_of[name] for name in names])
    x, fixed = _inputs(values, scale), _inputs(of_texts, scale)
    of_row = [class_of.get(answer, -1) for answer in answers]
    decided = np.flatnonzero(np.array(of_row, dtype=int) >= 0)
    y = np.array(of_row, dtype=int)[decided]
    start = fit_weights(fixed, text_classes, len(classes))
    measured, right = [np.zeros((0, len(CALIBRATION)))], [np.zeros(0)]
    for fold in range(FOLDS) if len(decided) >= FOLDS else ():
        held = np.arange(len(decided)) % FOLDS == fold
        rows = np.concatenate([fixed, x[decided[~held]]])
        known, tested = np.concatenate([text_classes, y[~held]]), x[decided[held]]
        chances = softmax(tested @ fit_weights(rows, known, len(classes), start), axis=1)
        measured.append(measure(chances, tested, rows, known))
        right.append(chances.argmax(axis=1) == y[held])
    calibration = calibrate(np.concatenate(measured), np.concatenate(right))
    rows = np.concatenate([fixed, x[decided]])
    weights = fit_weights(rows, np.concatenate([text_classes, y]), len(classes), start)
    return ValueModel(classes, values, of_texts, text_classes, scale, weights, calibration)


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
    sources = [
        "name"
        if row["instance_of"].casefold() in names
        else "class"
        if hints.get(row["class_id"], {}).get("supercategory_hint") in kinds
        else ""
        for row in rows
    ]
    modelled = _modelled(rows, in_force, model) if model else [Suggestion()] * len(rows)
    votes = _favourites(rows, in_force)
    found = []
    for row, source, decision, other in zip(rows, sources, in_force, modelled, strict=True):
        if decision and decision.decides:
            found.append(Suggestion())
        elif source == "name":
            found.append(_prior("name", names[row["instance_of"].casefold()], "its own name"))
        elif source == "class":
            hint = hints[row["class_id"]]
            reason = f"its class in Wikidata is below {hint['root'] or hint['supercategory_hint']}"
            found.append(_prior("class", hint["supercategory_hint"], reason))
        elif other.name or row["cluster"] not in votes:
            found.append(other)
        else:
            found.append(_prior("votes", votes[row["cluster"]], "most decided ones of its cluster"))
    return found


def fit_weights(
    x: np.ndarray, y: Sequence[int] | np.ndarray, classes: int, start: np.ndarray | None = None
) -> np.ndarray:
    """Return the weights (D, C) of least penalised cross entropy for inputs (N, D).

    The penalty is half the squared weights, ``DROP_PENALTY`` times that for the last class.
    """
    wanted = np.eye(classes)[np.asarray(y)]
    penalty = np.ones(classes)
    penalty[-1] = DROP_PENALTY

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(-1, classes)
        scores = x @ weights
        top = scores.max(axis=1, keepdims=True)
        powers = np.exp(scores - top)
        sums = powers.sum(axis=1, keepdims=True)
        entropy = (np.log(sums) + top).sum() - (scores * wanted).sum()
        gradient = x.T @ (powers / sums - wanted) + penalty * weights
        return entropy + 0.5 * (penalty * weights**2).sum(), gradient.ravel()

    first = np.zeros((x.shape[1], classes)) if start is None else start
    options = {"maxiter": 300, "gtol": 1e-2, "ftol": 1e-9}
    found = minimize(loss, first.ravel(), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x).reshape(-1, classes)


def measure(
    chances: np.ndarray, x: np.ndarray, examples: np.ndarray, classes: np.ndarray
) -> np.ndarray:
    """Return what shows how far the best class of each value can be trusted, (N, 5).

    That is the log odds of its probability, 1 for a drop, the cosine similarity to the nearest
    example of the class and to the nearest one of another class, and 1.

    Args:
        chances: (N, C) probabilities of the model.
        x: (N, D + 1) inputs.
        examples: (M, D + 1) inputs of the texts and the decided values.
        classes: (M,) class of each example.
    """
    best, top = chances.argmax(axis=1), np.clip(chances.max(axis=1), 1e-4, 1 - 1e-4)
    likeness = x[:, :-1] @ examples[:, :-1].T / LENGTH**2
    own = classes[None, :] == best[:, None]
    same, other = (np.where(mask, likeness, 0.0).max(axis=1) for mask in (own, ~own))
    drop = best == chances.shape[1] - 1
    return np.stack([np.log(top / (1 - top)), drop, same, other, np.ones(len(x))], axis=1)


def calibrate(
    measured: np.ndarray, right: np.ndarray, prior: Sequence[float] = CALIBRATION
) -> np.ndarray:
    """Fit by logistic regression how often the model is right, given ``measure``.

    Args:
        measured: (N, 5), of values that the model had not seen when it suggested their class.
        right: (N,) whether the suggestion was right.
        prior: the result without values; it is held near.

    Example:
        >>> calibrate(np.zeros((0, 5)), np.zeros(0)).tolist()
        [0.5, -0.5, 3.5, -1.0, -3.0]
    """
    start = np.array(prior)
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


def _reduce(
    values: np.ndarray, texts: np.ndarray, words: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values and texts in at most ``DIMENSIONS`` dimensions as int8, and the scale.

    The words of the labels are joined to the vectors: "railway bridge" must be near each "bridge".
    """
    both = np.concatenate([values, texts]).astype(np.float64)
    both = normalize(both - values.mean(axis=0))
    hashed = HashingVectorizer(analyzer=_words, n_features=WORDS).transform(words).toarray()
    both = np.hstack([both, WORD_SHARE * hashed])
    weighted = both * np.repeat([1.0, TEXT_SHARE], [len(values), len(texts)])[:, None]
    _, axes = np.linalg.eigh(weighted.T @ weighted)
    axes = axes[:, ::-1][:, :DIMENSIONS]
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    both = LENGTH * normalize(both @ axes)
    scale = np.maximum(np.abs(both).max(axis=0), 1e-9) / 127
    whole = np.rint(both / scale).astype(np.int8)
    return whole[: len(values)], whole[len(values) :], scale


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
    chances, x = model.probabilities, model.inputs
    answers = [class_of_decision(decision) for decision in in_force]
    members = {name: [i for i, a in enumerate(answers) if a == name] for name in {*answers} - {""}}
    decided = [i for i, answer in enumerate(answers) if answer in model.classes]
    known = np.array([model.classes.index(answers[i]) for i in decided], dtype=int)
    examples = np.concatenate([model.text_inputs, x[decided]])
    measured = measure(chances, x, examples, np.concatenate([model.text_classes, known]))
    trust = 1 / (1 + np.exp(-measured @ model.calibration))
    found = []
    for row, best in enumerate(chances.argmax(axis=1)):
        name = model.classes[best]
        here = np.array(members.get(name, []), dtype=int)
        near = here[np.argsort(-(x[here] @ x[row]), kind="stable")[:2]]
        like = " and ".join(f"“{rows[i]['instance_of']}”" for i in near)
        reason = f"like {like}" if like else "like the name and definition"
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
