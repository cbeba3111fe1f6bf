import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.paper_figures import RESULTS, draw_paper_figures, measure_paper_figures


def recorded() -> dict[str, Any]:
    return json.loads((RESULTS / "paper-figures.json").read_text("utf-8"))


def test_the_figures_in_the_docs_are_those_of_the_recorded_results() -> None:
    found = draw_paper_figures()
    assert len(found) == 7 + (RESULTS / "claims-head.json").is_file()
    for path, text in found.items():
        assert path.read_text("utf-8") == text, f"{path}: run python -m pipelines.record pages"


def test_the_recorded_figures_behave_as_the_papers_say() -> None:
    found = recorded()["figures"]
    taus, errors = found["ap-error"]["Smooth-AP"]
    assert taus == sorted(taus) and errors == sorted(errors)  # Fig. 4: falls with tau
    regions = [found["region"][f"tau {tau}"][1][-1] for tau in ("0.001", "0.01", "0.1")]
    assert regions == sorted(regions)
    for _, gaps in found["gap"].values():
        assert gaps == sorted(gaps, reverse=True)  # Fig. 2: small batches flatter
    exact, smooth = (found["blackbox"][name][1] for name in ("the loss", "lambda 1"))
    assert {*exact} == {1, 2, 3}  # a rank
    assert all(low <= high for low, high in zip(smooth, exact, strict=True))


def test_quantised_ap_correlates_with_ap_as_its_paper_found() -> None:
    points = recorded()["figures"]["quantised-ap"].values()
    wide, middle, narrow = (float(np.corrcoef(one)[0, 1]) for one in points)
    assert wide > 0.99 > middle > 0.97 > narrow > 0.9  # about 0.98 on RParis
    drawn = Path("docs/images/paper-quantised-ap.svg").read_text("utf-8")
    assert all(f"r = {r:.3f}" in drawn for r in (wide, middle, narrow))


def test_the_recorded_figures_name_commit_date_and_machine() -> None:
    found = recorded()
    about = f"{found['machine']}, commit {found['commit']}, {found['date']}."
    assert about in Path("docs/papers.md").read_text("utf-8")


def test_the_figures_are_measured_again_to_the_recorded_values() -> None:
    figures = recorded()["figures"]
    for figure, lines in measure_paper_figures().items():
        for name, (x, y) in lines.items():
            assert figures[figure][name][0] == pytest.approx(x)
            assert figures[figure][name][1] == pytest.approx(y, rel=1e-3, abs=1e-3)
