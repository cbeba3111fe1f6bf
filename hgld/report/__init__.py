"""The report of a run: one self-contained HTML page with tables, charts and example images."""

from hgld.report.page import write_report

__all__ = ["write_report"]
