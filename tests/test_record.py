"""Tables that pipelines/record.py writes into the pages."""

from typing import Any

import pytest

from pipelines.record import (
    bench_text,
    epochs_text,
    libraries_text,
    result_text,
    tables_text,
)


def bench(*rows: dict[str, Any], **about: Any) -> dict[str, Any]:
    """A recorded benchmark; rows may name a value only."""
    empty = {"unit": "x", "least": None, "most": None, "seconds": None, "holds": True}
    return {
        "parts": ["libraries"],
        "commit": "abc1234",
        "date": "2026-01-01",
        "machine": "2 cores of A",
        "python": "3.11.7",
        "versions": {"torch": "2.13.0"},
        "rows": [empty | row for row in rows],
    } | about


def run_of(**model: Any) -> dict[str, Any]:
    """A recorded run of a pipeline with one model."""
    protocol = {"queries": 1494, "gallery_images": 1494, "query": "test", "gallery": "test"}
    models = {"plain": {"mean": {"H-AP": 0.5}, **model}}
    return {
        "pipeline": "pipelines/quickstart.toml",
        "commit": "abc1234",
        "date": "2026-01-01",
        "machine": "2 cores of A",
        "seconds": {"train": 60.0},
        "evaluation": {"protocol": protocol, "metrics": ["H-AP"], "models": models},
    }


def test_inverted_queries_are_beside_the_figures_of_a_run() -> None:
    said = "H-AP: 100 of 1,494 queries are inverted (Eq. 20)."
    assert said in result_text(run_of(inverted=100))
    assert "inverted" not in result_text(run_of(inverted=0))
    assert "inverted" not in result_text(run_of())  # recorded before they were counted


AP = {"what": "AP, of ranx", "value": 3.04, "seconds": 0.05}


def test_libraries_of_one_machine_have_times_of_both_and_their_ratio() -> None:
    assert libraries_text([bench(AP)]) == (
        "| result, other | hgld | other | times |\n"
        "|---|---:|---:|---:|\n"
        "| AP, ranx | 50 ms | 152 ms | 3.0 |\n\n"
        "`python -m tests.benchmarks --part libraries`, 2 cores of A, Python 3.11.7, "
        "torch 2.13.0, commit abc1234, 2026-01-01.\n"
    )


def test_a_second_machine_has_columns_and_its_own_provenance() -> None:
    second = bench({**AP, "value": 2.0, "seconds": 1.0}, machine="8 of B", instructions="AVX512")
    head, _, row, _, one, _, two = libraries_text([bench(AP), second]).splitlines()
    assert head.endswith(
        "| times, machine 1 | hgld, machine 2 | other, machine 2 | times, machine 2 |"
    )
    assert row == "| AP, ranx | 50 ms | 152 ms | 3.0 | 1,000 ms | 2,000 ms | 2.0 |"
    assert "2 cores of A, Python" in one and "8 of B, AVX512, Python" in two


def test_what_one_machine_lacks_is_an_empty_cell() -> None:
    other = {**AP, "what": "AP, of torchmetrics"}
    rows = libraries_text([bench(AP), bench(AP, other)]).splitlines()[2:4]
    assert rows[1] == "| AP, torchmetrics |  |  |  | 50 ms | 152 ms | 3.0 |"


def test_losses_by_batch_size_are_one_table_and_a_missed_bound_is_bold() -> None:
    rows = [
        {"what": f"sup_ap B={size} layout 2 over the products", "value": value, "most": 2.5}
        for size, value in ((512, 1.5), (1024, 2.6))
    ]
    rows[1]["holds"] = False
    text = bench_text(bench(*rows, {"what": "rest", "value": 5.0}))
    assert "| sup_ap, layout 2 | 2.5 | 1.50 | **2.60** |\n" in text
    assert "aim" not in text
    assert "| rest | 5 x |\n" in text
    assert "1 of 2 miss their bound." in text


def test_an_aim_has_a_column_and_a_missed_one_is_no_missed_bound() -> None:
    loss = {"what": "sup_ap B={} layout {} over the products", "most": 2.5, "value": 1.5}
    cases = [(256, "2", 1.5), (512, "2", None), (1024, "2", 1.0), (256, "5", 2.0), (512, "5", 2.0)]
    rows = [
        {**loss, "what": loss["what"].format(size, layout), "aim": aim, "reached": aim != 1.0}
        for size, layout, aim in cases
    ]
    text = bench_text(bench(
        {"what": "fast", "value": 2.0, "least": 1.5, "aim": 1.8, "reached": True},
        {"what": "slow", "value": 5.0, "aim": 4.0, "reached": False},
        *rows,
    ))  # fmt: skip
    assert "| fast | 2 x | at least 1.5 | at least 1.8 |\n" in text
    assert "| slow | 5 x |  | at most 4, missed |\n" in text
    assert "| sup_ap, layout 2 | 2.5 | 256: 1.5; 1,024: 1 | 1.50 | 1.50 | 1.50 |\n" in text
    assert "| sup_ap, layout 5 | 2.5 | 2 | 1.50 | 1.50 |  |\n" in text
    assert "None of 6 miss their bound. 2 of 6 miss their aim." in text


ROW = {"row": "HAPPIER", "runs": ["sop:happier"], "figures": "81.0 60.4"}
RECORDED = {
    "sop": {
        "commit": "abc1234",
        "evaluation": {"models": {"happier": {"mean": {"R@1:product": 0.805, "H-AP": 0.6}}}},
    }
}


def table(**row: Any) -> list[dict[str, Any]]:
    return [{"paper": "P", "name": "T", "about": "a", "columns": "R@1, AP", "rows": [ROW | row]}]


def test_a_row_has_the_figures_of_the_recorded_models_that_it_names() -> None:
    line = tables_text(table(ours=["sop:happier"]), RECORDED).splitlines()[-1]
    assert line == (
        "| HAPPIER | 81.0 | 60.4 | `sop:happier` | `sop:happier`: R@1:product 80.5, H-AP 60.0 "
        "(abc1234). |"
    )
    assert tables_text(table(), RECORDED).splitlines()[-1].endswith("| `sop:happier` | |")


@pytest.mark.parametrize("name", ["cub:happier", "sop:nsm"])
def test_a_row_that_names_what_is_not_recorded_is_an_error(name: str) -> None:
    with pytest.raises(SystemExit, match=f"ours = '{name}', but pipelines/results/"):
        tables_text(table(ours=[name]), RECORDED)


def test_epochs_say_who_gives_them() -> None:
    recipe = {"pipelines": ["a", "b"], "epochs": 90, "photos": 325_846, "by": "the paper"}
    assert epochs_text([recipe]).endswith("| `a`, `b` | 90 | 325,846 | the paper |\n")
