"""The report of a run: one self-contained page that a person likes to look at."""

from hgld.report.page import write_report

__all__ = ["write_report"]
