"""The release folder: labels or labels with shards, a card, Croissant, figures, notices.

A release is made for people who were not there: it says what each file holds, where each label
comes from and what to ask before a photo is passed on. Nothing is uploaded, and nothing is written
outside the folder. All figures are counted from the run, and the same run gives the same bytes.
"""

from hgld.publish.release import (
    release_folder,
    release_published,
    release_reviewed,
    write_release,
)

__all__ = ["release_folder", "release_published", "release_reviewed", "write_release"]
