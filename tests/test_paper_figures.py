import json

import pytest

from pipelines.paper_figures import RESULTS, draw_paper_figures, measure_paper_figures


def test_the_figures_in_the_docs_are_those_of_the_recorded_results() -> None:
    found = draw_paper_figures()
    assert len(found) == 6 + (RESULTS / "claims-head.json").is_file()
    for path, text in found.items():
        assert path.read_text("utf-8") == text, f"{path}: python -m pipelines.paper_figures draw"


def test_the_recorded_figures_behave_as_the_papers_say() -> None:
    found = json.loads((RESULTS / "paper-figures.json").read_text("utf-8"))
    taus, errors = found["ap-error"]["Smooth-AP"]
    assert taus == sorted(taus) and errors == sorted(errors)  # Fig. 4: falls with tau
    regions = [found["region"][f"tau {tau}"][1][-1] for tau in ("0.001", "0.01", "0.1")]
    assert regions == sorted(regions)
    for _, gaps in found["gap"].values():
        assert gaps == sorted(gaps, reverse=True)  # Fig. 2: small batches flatter
    exact, smooth = (found["blackbox"][name][1] for name in ("the loss", "lambda 1"))
    assert {*exact} == {1, 2, 3}  # a rank
    assert all(low <= high for low, high in zip(smooth, exact, strict=True))


def test_the_figures_are_measured_again_to_the_recorded_values() -> None:
    recorded = json.loads((RESULTS / "paper-figures.json").read_text("utf-8"))
    for figure, lines in measure_paper_figures().items():
        for name, (x, y) in lines.items():
            assert recorded[figure][name][0] == pytest.approx(x)
            assert recorded[figure][name][1] == pytest.approx(y, rel=1e-3, abs=1e-3)
