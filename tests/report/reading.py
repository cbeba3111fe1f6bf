"""Writes the report of a made run and reads it as a browser would."""

from pathlib import Path
from typing import Any

import lxml.html

from hgld.config import ReportOptions
from hgld.report import write_report
from tests.made_run import MadeRun, context

CHARTS = {"levels", "recall", "alpha", "map", "confusion", "losses"}
CHARTS |= {"icicle", "sizes", "groups", "sunburst", "shares"}


def write(run: MadeRun, out: Path | None = None, **options: Any) -> Path:
    out = out or run.folder / "report"
    options.setdefault("vector_figures", ())  # half of the time
    write_report(
        *run.report_inputs,
        options=ReportOptions(**options),
        context=context(run.folder),
        out=out,
    )
    return out


def page(run: MadeRun, **options: Any) -> Any:
    return parse(write(run, **options))


def parse(report: Path) -> Any:
    return lxml.html.fromstring((report / "report.html").read_text("utf-8"))


def text(element: Any) -> str:
    return " ".join(" ".join(element.itertext()).split())
