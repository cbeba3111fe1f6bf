"""The review page: the sheet as one HTML file for decisions in a browser, without a network."""

from hgld.review.page.render import render_page

__all__ = ["render_page"]
