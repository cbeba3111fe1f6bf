"""The review as one page: the rows of the sheet, to be decided in a browser without a network."""

from hgld.review.page.render import render_page

__all__ = ["render_page"]
