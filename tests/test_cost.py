import json
import runpy
from typing import Any

import pytest

from hgld.pipeline.cost import MACHINES, SIZES, coefficients, estimate_cost
from hgld.words import size_text
from pipelines.record import RESULTS, ROOT, costs_text


@pytest.fixture(scope="module")
def site() -> dict[str, Any]:
    """The names of the module that makes generated pages of the site."""
    return runpy.run_path("docs/generated.py")


@pytest.fixture(scope="module")
def page(site: dict[str, Any]) -> str:
    text: str = site["costs_as_markdown"]()
    return text


@pytest.fixture
def of() -> dict[str, float]:
    """The coefficients by name."""
    return {name: entry["value"] for name, entry in coefficients().items()}


def test_the_coefficients_are_those_of_the_recorded_figures() -> None:
    assert (ROOT / "hgld" / "templates" / "costs.json").read_text("utf-8") == costs_text()


def test_hours_of_one_machine_are_the_sum_of_its_parts() -> None:
    of = {name: entry["value"] for name, entry in coefficients().items()}
    parts = ("collect", "label", "plan", "export", "embed")
    each = sum(of[f"{name} time"] for name in parts) + 1_129 * of["rank time"]
    assert estimate_cost(10**6).hours[1] == pytest.approx(10**6 * each / 3600)


@pytest.mark.parametrize("machines", [8, 64])
def test_machines_share_export_embedding_and_ranking_alone(
    of: dict[str, float], machines: int
) -> None:
    alone = of["collect time"] + of["label time"] + of["plan time"]
    shared = of["export time"] + of["embed time"] + 1_129 * of["rank time"]
    hours = 10**8 * (alone + shared / machines) / 3600
    assert estimate_cost(10**8).hours[machines] == pytest.approx(hours)


@pytest.mark.parametrize("images", SIZES)
def test_the_disk_has_all_files_and_shards_are_moved_twice(
    of: dict[str, float], images: int
) -> None:
    found, once = estimate_cost(images), of["tars"] + of["shards"]
    assert found.disk_bytes == pytest.approx(images * (once + of["embeddings"]))
    assert found.moved_bytes == pytest.approx(images * (once + of["shards"]))


def test_memory_is_that_of_collect_until_the_plan_has_more(of: dict[str, float]) -> None:
    assert estimate_cost(10**6).memory_bytes == of["collect memory"] > of["evaluate memory"]
    for images in (10**8, 10**9):
        plan = of["plan base"] + images * of["plan memory"]
        assert estimate_cost(images).memory_bytes == pytest.approx(plan)


def test_memory_of_fifty_million_images_is_the_measured_peak_of_the_plan() -> None:
    rows = json.loads((RESULTS / "bench-large-plan.json").read_text("utf-8"))["rows"]
    peak = next(r["value"] for r in rows if r["what"] == "large plan of 100%: peak memory")
    assert estimate_cost(50_000_000).memory_bytes == pytest.approx(peak * 1e6, rel=1e-4)


def test_hours_have_three_digits_and_no_exponent(site: dict[str, Any]) -> None:
    assert [site["_digits"](hours) for hours in (1484.2, 0.03051)] == ["1,480", "0.0305"]


def test_the_page_names_every_size_and_coefficient(page: str) -> None:
    assert all(f"| {size:,} |" in page for size in SIZES)
    assert all(f"hours on {n}" in page for n in MACHINES)
    assert all(entry["from"] in page for entry in coefficients().values())


@pytest.mark.parametrize("images", SIZES)
def test_the_page_has_the_figures_of_each_size(page: str, images: int) -> None:
    cost = estimate_cost(images)
    sizes = map(size_text, (cost.disk_bytes, cost.memory_bytes, cost.moved_bytes))
    assert f"| {images:,} | {' | '.join(sizes)} |" in page
