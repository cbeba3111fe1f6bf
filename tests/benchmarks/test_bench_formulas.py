"""What kernels are timed against computes the same."""

import re
from importlib.metadata import version

import pytest
import torch

from hgld.ranking import metrics
from hgld.ranking.levels import count_levels, look_up, relevance_table, shared_levels
from tests.benchmarks import __main__ as bench
from tests.benchmarks.cases import embeddings_of, labels_of
from tests.benchmarks.formulas import metric_stack, metrics_by_cumsum
from tests.benchmarks.measures import SUITE, agree
from tests.benchmarks.meters import Row


@pytest.mark.parametrize("layout", ["2", "2half"])
def test_slow_formulas_and_kernel_agree(layout) -> None:
    labels = labels_of(128, layout)
    vectors = embeddings_of(labels)
    levels = shared_levels(labels, labels)
    rel = look_up(relevance_table(count_levels(levels, 2)), levels).float()
    agree((vectors @ vectors.T, levels, rel))


@pytest.mark.filterwarnings("ignore::hgld.ranking.levels.RelevanceWarning")
def test_slow_metrics_and_evaluate_agree() -> None:
    labels = labels_of(1200, "2")
    vectors = embeddings_of(labels)
    found = metrics.evaluate(vectors[:9], labels[:9], vectors, labels, SUITE).per_query
    scores = (vectors[:9] @ vectors.T).double()
    lean = metrics_by_cumsum(scores, shared_levels(labels[:9], labels), 2)
    stack = metric_stack(scores, labels[:9], labels)
    for name in SUITE:
        torch.testing.assert_close(found[name], lean[name].double(), atol=1e-5, rtol=0)
        torch.testing.assert_close(found[name], stack[name].double(), atol=1e-5, rtol=0)


def test_a_row_keeps_its_bound_or_says_so() -> None:
    assert Row("x", 2.0, "x", least=1.5).holds and not Row("x", 2.0, "x", most=1.5).holds


def test_a_record_names_the_version_of_each_library_and_the_instructions_used() -> None:
    found = bench.report(["webdataset"], [])
    versions: dict[str, str] = found["versions"]  # type: ignore[assignment]
    assert re.fullmatch(r"torch with \w+, numba with \w+", str(found["instructions"]))
    assert {
        name: version(name) for name in ("torch", "numpy", "webdataset")
    }.items() <= versions.items()
