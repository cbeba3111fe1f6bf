import pytest

from hgld.pipeline.cost import MACHINES, SIZES, coefficients, costs_as_markdown, estimate_cost
from pipelines.record import ROOT, costs_text


def test_the_coefficients_are_those_of_the_recorded_figures() -> None:
    assert (ROOT / "hgld" / "templates" / "costs.json").read_text("utf-8") == costs_text()


def test_hours_of_one_machine_are_the_sum_of_its_parts() -> None:
    of = {name: entry["value"] for name, entry in coefficients().items()}
    parts = ("collect", "label", "plan", "export", "embed")
    each = sum(of[f"{name} time"] for name in parts) + 1_129 * of["rank time"]
    assert estimate_cost(10**6).hours[1] == pytest.approx(10**6 * each / 3600)


def test_the_page_names_every_size_and_coefficient() -> None:
    page = costs_as_markdown()
    assert all(f"| {size:,} |" in page for size in SIZES)
    assert all(f"hours on {n}" in page for n in MACHINES)
    assert all(entry["from"] in page for entry in coefficients().values())
