"""The model in the review page: the same answers as in Python, and what a person does with them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from hgld.artifacts import Vectors
from hgld.review.suggestions import (
    CALIBRATION,
    CALIBRATION_STEPS,
    PRIOR_PAIRS,
    Examples,
    calibrate,
    fit_model,
    fit_weights,
    head_noun,
    predict,
)
from tests.benchmarks.review_page import make_page, make_tables

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SCRIPTS = Path("hgld/templates/review")
SURE = 0.5  # so that the made vectors have sure suggestions
AT_ONCE = """(keys) => keys.forEach((key) => document.activeElement.dispatchEvent(
  new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true })))"""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Eighty values of which all are open; the first ten supercategories have texts."""
    made = make_tables(80, tmp_path_factory.mktemp("source"), photos=1)
    names = [*made["taxonomy"]["supercategory"][:10]]
    texts = made["label_vectors"].vectors[: len(names)]
    sheet = made["sheet"].assign(decision="", supercategory="", kind="", status="open")
    return {
        **made,
        "sheet": sheet.assign(suggestion=""),
        "taxonomy_vectors": Vectors(names, texts, {}),
    }


@pytest.fixture
def page(chromium: "Browser", tables: dict[str, Any], tmp_path: Path) -> Iterator["Page"]:
    file = tmp_path / "review.html"
    file.write_text(make_page(tables, tmp_path, sure=SURE), encoding="utf-8")
    with chromium.new_page(viewport={"width": 1440, "height": 900}) as view:
        view.goto(file.as_uri())
        fitted(view, 1)
        yield view


def fitted(page: "Page", times: int) -> None:
    page.wait_for_selector(f'body[data-fits="{times}"]')


def edited(page: "Page") -> int:
    return int(page.text_content("#edited") or 0)


def test_the_page_computes_what_python_computes(chromium: "Browser") -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(70, 9)), np.arange(70) % 6
    x[:, -1] = 2
    source = (SCRIPTS / "model.js").read_text(encoding="utf-8")
    script = f"""async ([x, y, prior]) => {{
      {source}
      const breathe = breather();
      const known = {{ inputs: x, answers: y, counts: y.map((_, i) => (i < 20 ? 3 : 1)) }};
      const weights = await fitWeights(known, 6, 3, new Array(54).fill(0), breathe);
      const found = x.map((one) => predict(one, weights, 6, known, 10).measured);
      const seen = found.map((measured, i) => ({{ measured, right: i % 3 ? 1 : 0 }}));
      const facts = {{ priorPairs: {PRIOR_PAIRS}, calibrationSteps: {CALIBRATION_STEPS} }};
      return [[...weights], found, calibrate(seen, prior, facts)];
    }}"""
    with chromium.new_page() as view:
        weights, found, calibration = view.evaluate(
            script, [x.tolist(), y.tolist(), list(CALIBRATION)]
        )
    known = Examples(x, y, np.where(np.arange(70) < 20, 3.0, 1.0))
    ours = fit_weights(known, 6)
    np.testing.assert_allclose(np.reshape(weights, (9, 6)), ours, atol=5e-3)
    _, measured = predict(x, ours, known)
    np.testing.assert_allclose(found, measured, atol=2e-2)
    right = np.arange(70) % 3 > 0
    np.testing.assert_allclose(calibration, calibrate(measured, right), atol=2e-2)


def test_the_page_suggests_what_the_sheet_would_after_the_same_decisions(
    page: "Page", tables: dict[str, Any]
) -> None:
    page.evaluate(AT_ONCE, ["2", "3", "d"])  # a pause between two would fit the model once more
    fitted(page, 2)
    sheet = tables["sheet"]
    answers = [page.text_content(f"#row-{i} .fate") or "" for i in range(len(sheet))[:3]]
    assert answers[2] == "drop"
    in_force = dict(zip(sheet["key"], answers, strict=False))
    clusters = tables["clusters"]
    given = [in_force.get(key, "") for key in clusters["class_id"]]
    vectors = tables["label_vectors"], tables["taxonomy_vectors"]
    model = fit_model(clusters, given, tables["taxonomy"], *vectors)
    assert model is not None
    wanted = [model.classes[i] for i in model.probabilities.argmax(axis=1)]
    wanted_of = dict(zip(clusters["class_id"], wanted, strict=True))
    names = {name.casefold() for name in tables["taxonomy"]["supercategory"]}
    for number in range(4, 8):
        label = sheet["instance_of"].iloc[number]
        if label.casefold() not in names:
            shown = page.text_content(f"#row-{number} .fate")
            assert shown == f"{wanted_of[sheet['key'].iloc[number]]} ?"


def test_the_page_names_the_ancestor_shared_with_a_decided_value(
    chromium: "Browser", tables: dict[str, Any], tmp_path: Path
) -> None:
    names = {name.casefold() for name in tables["taxonomy"]["supercategory"]}
    labels, keys = (tables["sheet"][name].tolist() for name in ("instance_of", "key"))
    number = next(i for i, label in enumerate(labels) if i > 1 and label.casefold() not in names)
    above = {keys[0]: "X1", keys[number]: "X1", "X1": "X2", keys[40]: "X2"}
    ancestry = pd.DataFrame(
        [{"item_id": one, "above": up, "label": "hollow"} for one, up in above.items()]
    )
    file = tmp_path / "review.html"
    file.write_text(make_page({**tables, "ancestry": ancestry}, tmp_path), encoding="utf-8")
    with chromium.new_page() as view:
        view.goto(file.as_uri())
        fitted(view, 1)
        name = (view.text_content(f"#row-{number} .fate") or "").removesuffix(" ?")
        view.keyboard.press("m")
        view.keyboard.type(name)
        view.keyboard.press("Enter")
        fitted(view, 2)
        view.click(f"#row-{number}")
        shown = view.text_content("#panel") or ""
        assert f"like “{labels[0]}”, below “hollow”" in shown


def test_a_digit_chooses_one_of_the_likeliest(page: "Page") -> None:
    name = page.text_content(".likely button:nth-child(3)").removeprefix("3")  # type: ignore[union-attr]
    page.keyboard.press("3")
    assert page.text_content("#row-0 .fate") == name
    page.keyboard.press("m")
    second = page.text_content("#option-1")
    page.keyboard.press("2")
    assert (second or "").startswith(f"2{page.text_content('#row-1 .fate')}")


def test_the_sure_ones_are_accepted_and_undone_as_a_block(page: "Page") -> None:
    sure = int(page.text_content("#sure-count") or 0)
    assert sure > 3
    page.keyboard.press("S")
    page.keyboard.press("1")
    page.keyboard.press("Enter")
    assert edited(page) == sure - 1
    assert "10 s each (assumed)" in (page.text_content("#left") or "")  # a block is one step
    page.keyboard.press("z")
    assert edited(page) == 0


def test_a_rule_decides_all_open_values_that_end_in_a_noun(page: "Page") -> None:
    page.keyboard.press("E")
    first = page.text_content(".bulk li:first-child") or ""
    assert first.startswith("1Ends in “")
    page.keyboard.press("1")
    page.keyboard.press("Enter")
    assert edited(page) == first.count(",") + 1
    page.keyboard.press("z")
    assert edited(page) == 0


def test_head_nouns_are_those_of_python(chromium: "Browser") -> None:
    labels = [
        "Stone bridges of Rome (former)",
        "glass",
        "église",
        "Gas works",
        "10",
        "church and tower",
    ]
    source = (SCRIPTS / "bulk.js").read_text(encoding="utf-8")
    with chromium.new_page() as view:
        found = view.evaluate(f"(labels) => {{ {source}; return labels.map(headNoun); }}", labels)
    assert found == [head_noun(label) for label in labels]
