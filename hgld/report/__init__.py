"""The report of a run: one self-contained HTML page with tables, charts and example images."""

from typing import TYPE_CHECKING

from hgld.lazy import lazy_names

if TYPE_CHECKING:
    from hgld.report.page import write_report

__all__ = ["write_report"]

__getattr__ = lazy_names(__name__, page="write_report")  # imports matplotlib
