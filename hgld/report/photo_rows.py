"""Writer of a page of photo rows: suspect labels, near-duplicates between splits.

The page is one file that needs no network. Each row has a heading, and photos with their captions
and credits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from hgld.artifacts import SPACE_OF_SPLIT, atomic_path
from hgld.report.examples import ExamplePhoto, Images, class_paths, landmark_names
from hgld.report.rendering import render_page
from hgld.shards.index import read_index


@dataclass(frozen=True)
class PhotoRow:
    """A heading, and captions with the split and id of the photo above each."""

    heading: str
    photos: Sequence[tuple[str, str, str]]


class SplitPhotos:
    """The photos of all splits of the shards, by split and id, with their label paths."""

    def __init__(self, shards: Path, hierarchy: pd.DataFrame, landmarks: pd.DataFrame) -> None:
        index, paths = read_index(shards), class_paths(hierarchy)
        names = landmark_names(landmarks)
        self._splits = {
            split: Images(shards, index, split, paths, names)
            for split in sorted(index["split"].unique())
        }
        self._paths: Mapping[tuple[str, int], str] = {
            (space, number): " > ".join([*path[:-1], names.get(path[-1], path[-1])])
            for (space, number), path in paths.items()
        }

    def photo(self, split: str, image_id: str) -> ExamplePhoto:
        """Return a small copy of a photo, its classes and its credit."""
        return self._splits[split].photo(image_id)

    def path(self, split: str, landmark_id: int) -> str:
        """Return the label path of a landmark as text, coarse to fine."""
        return self._paths[SPACE_OF_SPLIT[split], landmark_id]


def write_photo_rows(
    path: Path, title: str, lead: str, rows: Sequence[PhotoRow], photos: SplitPhotos
) -> None:
    """Write the page.

    Args:
        path: of the new file.
        title: of the page.
        lead: sentence below it.
        rows: in order.
        photos: the photos that the rows name.
    """
    found = [
        (row.heading, [(caption, photos.photo(*at)) for caption, *at in row.photos]) for row in rows
    ]
    page = render_page("photo_rows.html", title=title, lead=lead, rows=found)
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
