"""Take the hierarchy from published label files: H-GLDv2's own, or third-party cuts of them.

They replace scrape, review and decisions; the form of such a file is described in
``hgld.hierarchy.label_file``.
"""

import json
from pathlib import Path

import pandas as pd

from hgld.config import LEVEL_NAMES, LabelOptions, StageContext
from hgld.errors import UsageError
from hgld.hierarchy.columns import table_of
from hgld.hierarchy.label_file import COLUMNS, read_label_file
from hgld.tasks import say

__all__ = ["hierarchy_of", "read_published"]

BY_LANDMARK = ["split", "landmark_id"]


def read_published(
    source: Path, landmarks: pd.DataFrame, *, options: LabelOptions, context: StageContext
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """One row a landmark before; one row of ``hierarchy`` or of ``label_dropped`` after.

    A landmark is dropped as ``not_published`` where the files do not have it and as ``no_label``
    where its label or kind is blank. Rows of landmarks that are not in this run are left out.

    Returns:
        ``train_labels``, ``index_labels``, ``hierarchy``, ``label_dropped``.

    Raises:
        UsageError: no file is named.
        InvalidData: no such file or column, an id twice, a kind that does not exist, a label that
            has two kinds.
    """
    files = {"train": options.train_csv, "index": options.index_csv}
    read = {split: read_label_file(source / name) for split, name in files.items() if name}
    if not read:
        raise UsageError("label.train_csv and label.index_csv are both empty; name a file to read")
    for file in read.values():
        say(file.describe())
    tables = [file.labels.assign(split=split) for split, file in read.items()]
    found = landmarks.merge(pd.concat(tables), on=BY_LANDMARK, how="left", indicator="where")
    known = found["where"] == "both"
    labelled = found["hierarchical_label"].ne("") & found["natural_or_human_made"].ne("") & known
    labels = found[labelled]
    category = labels["category"].where(labels["category"] != "", labels["commons_url"])
    labels = labels.assign(category=category)
    dropped = [
        _dropped(found[~known], "not_published", "not in the published file"),
        _dropped(found[known & ~labelled], "no_label", "its published label is blank"),
    ]
    train, index = (labels[labels["split"] == split][COLUMNS] for split in files)
    words = {"natural_or_human_made": "kind", "hierarchical_label": "supercategory"}
    hierarchy = hierarchy_of(labels[[*BY_LANDMARK, *words]].rename(columns=words))
    return train, index, hierarchy, pd.concat(dropped)


def hierarchy_of(labels: pd.DataFrame) -> pd.DataFrame:
    """``hierarchy`` of landmarks with the columns split, landmark_id, kind, supercategory."""
    columns = [labels[name] for name in (*BY_LANDMARK, "kind", "supercategory")]
    rows = [
        {"split": split, "landmark_id": landmark_id, "path": _path(kind, name, split, landmark_id)}
        for split, landmark_id, kind, name in zip(*columns, strict=True)
    ]
    return table_of("hierarchy", rows)


def _path(kind: str, supercategory: str, split: str, landmark_id: int) -> str:
    classes = (kind, supercategory, f"{split}:{landmark_id}")
    return json.dumps(dict(zip(LEVEL_NAMES, classes, strict=True)), ensure_ascii=False)


def _dropped(found: pd.DataFrame, reason: str, detail: str) -> pd.DataFrame:
    return found[BY_LANDMARK].assign(reason=reason, detail=detail)
