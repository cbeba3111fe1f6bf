import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction import FeatureHasher
from sklearn.linear_model import LogisticRegression

from hgld.artifacts import VectorFile, Vectors, columns_of, table_of
from hgld.config import EmbedOptions, StageContext
from hgld.hierarchy import embed
from hgld.hierarchy.decisions import Decided, Decision
from hgld.review import suggestions
from hgld.review.suggestions import (
    CALIBRATION,
    Examples,
    calibrate,
    class_of_decision,
    fit_model,
    fit_weights,
    suggest,
)

LABELS = ("lake", "pond", "tarn", "mine shaft", "pit", "thing", "stuff", "lagoon")
ANGLES = np.radians([0, 5, 9, 91, 95, 200, 210, 12])
VECTORS = Vectors(list(LABELS), np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1), {})
TEXTS = Vectors(["lake", "mine"], np.array([[1.0, 0.0], [0.0, 1.0]]), {})
TAXONOMY = table_of("taxonomy", [
    {"supercategory": "lake", "kind": "natural", "definition": ""},
    {"supercategory": "mine", "kind": "human-made", "definition": ""},
])  # fmt: skip
KINDS = {"lake": "natural", "mine": "human-made"}
VALUES = pd.DataFrame({
    "class_id": "", "instance_of": LABELS, "landmarks": 1, "images": 1, "cluster": 0,
})  # fmt: skip
NO_HINTS = table_of("class_hints", [])


def decided(**words: str) -> list[Decision | None]:
    rows = [
        {
            **dict.fromkeys(columns_of("decisions"), ""),
            "key": label,
            "key_type": "label",
            "decision": "drop" if name == "drop" else "keep",
            "supercategory": name.replace("drop", ""),
            "kind": KINDS.get(name, ""),
        }
        for label, name in words.items()
    ]
    return Decided(table_of("decisions", rows)).of_values(VALUES)


def suggested(**words: str) -> dict[str, suggestions.Suggestion]:
    in_force = decided(**words)
    model = fit_model(VALUES, [class_of_decision(d) for d in in_force], TAXONOMY, VECTORS, TEXTS)
    return dict(zip(LABELS, suggest(VALUES, in_force, KINDS, NO_HINTS, model), strict=True))


def test_taxonomy_texts_suggest_before_the_first_decision() -> None:
    found = suggested()
    assert {label: found[label].name for label in ("pond", "tarn", "pit")} == {
        "pond": "lake", "tarn": "lake", "pit": "mine",
    }  # fmt: skip
    assert found["lake"].reason == "its own name"
    assert found["pond"].reason == "like the name and definition"


@pytest.mark.parametrize(("answer", "name"), [("", "lake"), ("mine", "mine")])
def test_a_value_that_a_supercategory_was_named_after_is_its_example(
    answer: str, name: str
) -> None:
    answers = [answer if label == "thing" else "" for label in LABELS]
    earlier = {"thing": "lake", "pond": "cave"}  # "cave" was removed
    model = fit_model(VALUES, answers, TAXONOMY, VECTORS, TEXTS, earlier=earlier)
    assert model is not None
    assert model.classes[model.probabilities[LABELS.index("stuff")].argmax()] == name


def test_labels_that_the_encoder_cannot_tell_apart_are_not_like_each_other() -> None:
    same = VECTORS.vectors.copy()
    same[LABELS.index("stuff")] = same[LABELS.index("thing")]  # as of names in an unknown script
    answers = ["mine" if label == "thing" else "" for label in LABELS]
    chances = {
        (name, label): model.probabilities[LABELS.index(label), model.classes.index("mine")]
        for name, vectors in (("known", VECTORS), ("same", replace(VECTORS, vectors=same)))
        if (model := fit_model(VALUES, answers, TAXONOMY, vectors, TEXTS))
        for label in ("stuff", "pit")
    }
    assert chances["known", "stuff"] > 0.7
    assert chances["same", "stuff"] < 0.6  # a guess
    assert chances["same", "pit"] > 0.7


def test_a_value_with_the_vector_of_another_name_is_not_like_it() -> None:
    same = VECTORS.vectors.copy()
    same[LABELS.index("thing")] = TEXTS.vectors[0] + 2e-6  # as from another batch
    model = fit_model(VALUES, [""] * 8, TAXONOMY, replace(VECTORS, vectors=same), TEXTS)
    assert model is not None
    chances = model.probabilities[LABELS.index("thing")]
    assert chances.max() < 0.6  # a guess


def test_drops_are_suggested_once_some_are_decided() -> None:
    found = suggested(thing="drop", pond="lake", pit="mine")
    assert found["stuff"].name == "drop"
    assert found["stuff"].reason == "like “thing”"
    assert found["thing"].name == ""  # decided


def test_the_name_and_wikidata_take_precedence_over_the_model() -> None:
    values = VALUES.assign(class_id=[f"Q{i}" for i in range(len(LABELS))])
    hints = table_of("class_hints", [
        {"class_id": f"Q{i}", "instance_of": "", "kind_hint": "human-made",
         "supercategory_hint": "mine", "root": "mine (2)", "hops": 2}
        for i in (0, 1)
    ])  # fmt: skip
    vectors = replace(VECTORS, ids=list(values["class_id"]))
    none = [None] * len(LABELS)
    model = fit_model(values, [""] * len(LABELS), TAXONOMY, vectors, TEXTS)
    found = suggest(values, none, KINDS, hints, model)
    assert [one.name for one in found[:3]] == ["lake", "mine", "lake"]
    assert found[1].reason == "its class in Wikidata is below mine (2)"


def below_an_ancestor(ancestry: list[tuple[str, str, str]], **words: str) -> list[str]:
    """Suggestion and reason of "thing", whose text is as near to lakes as to mines.

    ``ancestry`` is item_id, above and label of each statement.
    """
    values = VALUES[VALUES["instance_of"].isin(["pond", "pit", "thing"])]
    values = values.assign(class_id=values["instance_of"])
    in_force = [d for d, label in zip(decided(**words), LABELS, strict=True) if label in words]
    in_force = [*in_force, *[None] * (3 - len(in_force))]
    vectors, texts = (
        Vectors(ids, np.eye(3)[: len(ids)], {}) for ids in (values["class_id"].tolist(), TEXTS.ids)
    )
    above = pd.DataFrame(ancestry, columns=["item_id", "above", "label"])
    answers = [class_of_decision(d) for d in in_force]
    model = fit_model(values, answers, TAXONOMY, vectors, texts, ancestry=above)
    found = suggest(values, in_force, KINDS, NO_HINTS, model)[2]
    return [found.name, found.reason]


@pytest.mark.parametrize(("voter", "name"), [("pond", "lake"), ("pit", "mine")])
def test_a_decided_value_votes_for_values_below_the_same_ancestor(voter: str, name: str) -> None:
    ancestry = [("thing", "Q1", ""), (voter, "Q1", ""), ("Q1", "Q2", "hollow")]
    found = below_an_ancestor(ancestry, pond="lake", pit="mine")
    assert found == [name, f"like “{voter}”, below “hollow”"]


@pytest.mark.parametrize("name", ["lake", "mine"])
def test_an_item_named_as_a_supercategory_counts_for_values_below_it(name: str) -> None:
    ancestry = [("thing", "Q1", ""), ("Q1", "Q2", f"{name}s"), ("pond", "Q3", "")]
    assert below_an_ancestor(ancestry) == [name, "like the name and definition"]


def test_the_weights_are_those_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggestions, "DROP_PENALTY", 1.0)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 5)), np.arange(60) % 4
    counts = rng.uniform(1, 3, size=60)
    ours = fit_weights(Examples(x, y, counts), 4)
    theirs = LogisticRegression(fit_intercept=False, tol=1e-8, max_iter=1000)
    theirs.fit(x, y, sample_weight=counts)
    np.testing.assert_allclose(ours.T, theirs.coef_, atol=2e-3)


@given(st.lists(st.dictionaries(st.text(), st.integers(-9, 9)), min_size=1))
def test_hashes_and_signs_are_those_of_scikit_learn(rows: list[dict[str, float]]) -> None:
    expected = FeatureHasher(8).transform(rows).toarray()
    assert suggestions._hashed(rows, 8).tolist() == expected.tolist()


def test_suggestions_do_not_load_scikit_learn() -> None:
    code = "import hgld.review.suggestions, sys; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


COUNT_THREADS = """
import sys
import numpy as np
from threadpoolctl import threadpool_info
from hgld.review.suggestions import Examples, fit_weights

threads = set()
def count(frame, event, _):
    if event == "call" and frame.f_code.co_name == "loss":
        threads.update(pool["num_threads"] for pool in threadpool_info())

sys.setprofile(count)
fit_weights(Examples(np.eye(3), np.arange(3), np.ones(3)), 3)
sys.setprofile(None)
print(*threads)
"""


def test_weights_are_fitted_on_one_thread() -> None:
    command = [sys.executable, "-c", COUNT_THREADS]
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_the_number_of_cores_changes_no_bit_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ["lake", "mine", "lake", "mine", "", "", "", ""]
    found = []
    for cores in (1, 4):
        monkeypatch.setattr(suggestions, "count_cores", lambda cores=cores: cores)
        model = fit_model(VALUES, answers, TAXONOMY, VECTORS, TEXTS)
        assert model is not None
        found.append([model.weights.tolist(), model.calibration.tolist(), model.measured.tolist()])
    assert found[0] == found[1] and found[0][1] != list(suggestions.CALIBRATION)


def test_calibration_learns_that_the_model_is_too_sure() -> None:
    measured = np.tile([4.0, 0.0, 0.9, 0.1, 1.0], (2000, 1))
    odds = measured[0] @ calibrate(measured, np.arange(2000) % 2 == 0)
    assert 1 / (1 + np.exp(-odds)) == pytest.approx(0.5, abs=0.05)
    assert calibrate(measured[:0], np.zeros(0)).tolist() == list(CALIBRATION)


def test_an_edited_taxonomy_embeds_only_its_own_texts_again(
    context: StageContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = replace(context, state=tmp_path / "state")
    (tmp_path / "state").mkdir()
    options = EmbedOptions(encoder="offline:minilm", device="cpu")
    before, _ = embed.embed_texts(VALUES, TAXONOMY, options=options, context=context)
    monkeypatch.delattr(embed, "embed_values")
    edited = TAXONOMY.assign(definition="Water.")
    after, texts = embed.embed_texts(VALUES, edited, options=options, context=context)
    np.testing.assert_array_equal(before.vectors, after.vectors)
    assert texts.ids == ["lake", "mine", "lake: Water.", "mine: Water."]
    assert before.made_by == after.made_by
    after, none = embed.embed_texts(VALUES, TAXONOMY[:0], options=options, context=context)
    assert before.made_by == after.made_by and none.ids == [] and none.vectors.shape[0] == 0


def test_changed_weights_of_an_encoder_of_the_same_name_embed_the_values_again(
    context: StageContext, tmp_path: Path
) -> None:
    context = replace(context, state=tmp_path)
    options = EmbedOptions(encoder="offline:minilm", device="cpu")
    before, _ = embed.embed_texts(VALUES, TAXONOMY, options=options, context=context)
    kept, path = VectorFile("values.npz"), tmp_path / "values.npz"
    old = kept.read(path)
    made_by = {**old.made_by, "weights_sha256": "0" * 64}
    kept.write(Vectors(old.ids, old.vectors[::-1], made_by), path)
    after, _ = embed.embed_texts(VALUES, TAXONOMY, options=options, context=context)
    np.testing.assert_array_equal(before.vectors, after.vectors)
