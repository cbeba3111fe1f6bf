"""Data sets as they were published: Stanford Online Products, iNaturalist, CUB-200-2011, DyML.

What differs between them is how a file is written; that is a module each, which returns a
``Listing``. What becomes of a listing is the same for all of them and stands in ``flow.py``.
"""

from hgld.sources.native.flow import collect, read_hierarchy

__all__ = ["collect", "read_hierarchy"]
