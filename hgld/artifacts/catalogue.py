"""Catalogue of all artifacts by name: file, folder, columns, key and allowed values.

It is one table, so that the interface between any two stages can be looked up in one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hgld.artifacts.formats import Artifact, Folder, Json, Table, VectorFile
from hgld.artifacts.table_checks import ColumnType
from hgld.lazy import lazy_module

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazy_module("pandas")

BOX = ("box_left", "box_top", "box_right", "box_bottom")  # pixels of the upright photo
BENCHMARKS = ("coarse", "middle", "fine")  # of DyML: each has its own queries and gallery
SPLITS = (
    "train",
    "validation",
    "evaluation",
    "index",
    "test",
    *(f"{side}-{benchmark}" for benchmark in BENCHMARKS for side in ("index", "test")),
)
BY_LANDMARK = ["split", "landmark_id"]  # names a landmark
ID_SPACES = ("train", "index")  # landmark ids of train and index are different numbers
SPACE_OF_SPLIT = {
    "train": "train",
    "validation": "train",
    "evaluation": "train",
    **{split: "index" for split in SPLITS if split.startswith(("index", "test"))},
}
ITEM_IDS = ("qid", "wikipedia", "commons_url", "wordnet", "gbif")  # name the item of a class
KINDS = ("natural", "human-made")
DECISIONS = ("keep", "move", "drop", "unsure")
STATUSES = ("open", "unsure", "conflict", "stale", "decided")
CHANGES = ("new", "kept", "split", "merged", "gone")

_LANDMARK: dict[str, ColumnType] = {"split": "text", "landmark_id": "int"}
_DROPPED: dict[str, ColumnType] = {**_LANDMARK, "reason": "text", "detail": "text"}
_PUBLISHED = partial(
    Table,
    columns={
        "landmark_id": "int",
        "category": "text",
        "supercategory": "text",
        "hierarchical_label": "text",
        "natural_or_human_made": "text",
    },
    key=("landmark_id",),
    editable=True,
    edit_instead="hierarchy.csv",  # from which a release takes their classes
)
_KEY = tuple(BY_LANDMARK)
_ID_SPACE = {"split": ID_SPACES}
_CLUSTERED: dict[str, ColumnType] = {
    "class_id": "text",
    "instance_of": "text",
    "landmarks": "int",
    "images": "int",
    "cluster": "int",
    "cluster_name": "text",
    "distance": "float",
    "margin": "float",
}

ARTIFACTS: dict[str, Artifact] = {
    "source": Folder("source", place="source"),
    # source: landmarks and images
    "landmarks": Table(
        "landmarks.csv",
        {**_LANDMARK, "name": "text", "commons_url": "text"},
        _KEY,
        _ID_SPACE,
        editable=True,
    ),
    "images": Table(
        "images.parquet",
        {
            "image_id": "text",
            "split": "text",
            "landmark_id": "int",
            "path": "text",  # of the tar or image file, relative to the source folder
            "offset": "int",  # of the image's first byte in that file
            "size_bytes": "int",
            "author": "text",
            "license": "text",
            "title": "text",
            "url": "text",
        },
        ("split", "image_id"),
        {"split": SPLITS},
        may_have=dict.fromkeys(BOX, "float"),  # the part of the photo that is the image
    ),
    "queries": Table(
        "queries.csv", {"image_id": "text", "usage": "text", "relevant": "text"}, ("image_id",)
    ),
    "images_dropped": Table(
        "images_dropped.parquet",
        {"split": "text", "image_id": "text", "reason": "text", "detail": "text"},
        ("split", "image_id", "reason"),
    ),
    # classes by name, and their Wikidata items
    "links": Table(
        "links.csv",  # what people know of classes; the last row of a name counts
        {
            "name": "text",
            **dict.fromkeys(ITEM_IDS, "text"),  # a qid may be none: there is no such item
            "who": "text",
            "when": "text",
            "why": "text",
        },
        place="labels",
        optional=True,
        may_lack=(*ITEM_IDS, "who", "when", "why"),
    ),
    "linked": Table(
        "linked.csv",
        {
            **_LANDMARK,
            "name": "text",
            "item_id": "text",
            "revision": "int",
            "label": "text",
            "description": "text",
            "by": "text",  # qid, wikipedia, ..., or the name or page in a language
            "score": "text",  # of the texts; empty if not by name
            "photo_score": "text",  # likewise; also empty without a CLIP or photos
        },
        _KEY,
        _ID_SPACE,
        editable=True,
        may_lack=("score", "photo_score"),
    ),
    "unlinked": Table("unlinked.csv", _DROPPED, _KEY, _ID_SPACE),
    "link_review": Table(
        "link_review.csv",
        {
            "qid": "text",
            "note": "text",
            "name": "text",
            "images": "int",
            "reason": "text",
            "candidates": "text",
            "photo_scores": "text",  # of the candidates; empty without a CLIP or photos
        },
        ("name",),
        spreadsheet=True,
        sorted_rows=False,  # the largest classes first
    ),
    "ancestry": Table(
        "ancestry.csv",  # the statements on the way up from the items of the classes
        {
            "item_id": "text",
            "label": "text",
            "property": "text",
            "above": "text",
            "statement": "text",
            "revision": "int",
        },
        ("item_id", "property", "above"),
    ),
    # values: from "instance of" to reviewed supercategories
    "instance_of": Table(
        "instance_of.csv",
        {
            **_LANDMARK,
            "item_id": "text",
            "revision": "int",
            "order": "int",  # of the statement on its item
            "class_id": "text",
            "instance_of": "text",
            "rank": "text",
            "qualifiers": "text",
        },
        (*_KEY, "order"),
        _ID_SPACE,
        editable=True,
    ),
    "misses": Table("misses.csv", _DROPPED, _KEY, _ID_SPACE),
    "values": Table(
        "values.csv",
        {"class_id": "text", "instance_of": "text", "landmarks": "int", "images": "int"},
        ("class_id", "instance_of"),
    ),
    "landmark_values": Table(
        "landmark_values.csv",
        {**_LANDMARK, "order": "int", "class_id": "text", "instance_of": "text"},
        (*_KEY, "order"),
        _ID_SPACE,
        editable=True,
    ),
    "clean_dropped": Table("clean_dropped.csv", _DROPPED, _KEY, _ID_SPACE),
    "label_vectors": VectorFile("label_vectors.npz"),
    "taxonomy_vectors": VectorFile("taxonomy_vectors.npz"),
    "image_vectors": VectorFile("image_vectors.npz"),  # of the photos of the values that have any
    "class_hints": Table(
        "class_hints.csv",  # suggestions from Wikidata's own classes; they never decide
        {
            "class_id": "text",
            "instance_of": "text",
            "kind_hint": "text",
            "supercategory_hint": "text",
            "root": "text",
            "hops": "int",
        },
        ("class_id",),
        optional=True,
        editable=True,
    ),
    "superclasses": Table(
        "superclasses.csv",  # the part of Wikidata's class graph from which the hints are derived
        {"class_id": "text", "label": "text", "revision": "int", "superclasses": "text"},
        ("class_id",),
    ),
    "class_labels": Table(
        "class_labels.csv",  # of Wikidata, in other languages than English
        {"class_id": "text", "language": "text", "label": "text"},
        ("class_id", "language"),
        optional=True,
    ),
    "clusters": Table("clusters.csv", _CLUSTERED, ("class_id", "instance_of"), editable=True),
    "cluster_summary": Table(
        "cluster_summary.csv",
        {
            "cluster": "int",
            "cluster_name": "text",
            "values": "int",
            "landmarks": "int",
            "images": "int",
            "nearest": "text",  # the clusters whose centres are nearest, nearest first
            "change": "text",  # compared with the previous clusters
            "related": "text",  # the clusters it came from; for a removed one, where its values are
        },
        ("cluster",),
        {"change": CHANGES},
        also="level_",  # level_kind: name of its cluster at level "kind", if that is clustered
    ),
    "review": Table(
        "review.csv",
        {
            "decision": "text",
            "supercategory": "text",
            "kind": "text",
            "note": "text",
            "key": "text",
            "key_type": "text",
            "instance_of": "text",
            "landmarks": "int",
            "images": "int",
            "examples": "text",
            "cluster": "int",  # -1: a decision whose value no longer exists
            "cluster_name": "text",
            "distance": "float",
            "margin": "float",
            "hint": "text",
            "suggestion": "text",
            "probability": "optional float",  # of the suggestion; empty without one
            "reason": "text",
            "evidence": "text",
            "base": "text",  # ids of the decisions that the row was written from
            "status": "text",
            "conflict": "text",  # the sides, if people decided the value differently
        },
        ("key",),
        {"decision": ("", *DECISIONS), "key_type": ("qid", "label"), "status": STATUSES},
        spreadsheet=True,
        also="label_",  # label_de: the label in German
        sorted_rows=False,  # what matters most first
    ),
    "review_clusters": Table(
        "review_clusters.csv",
        {
            "action": "text",
            "into": "text",
            "supercategory": "text",
            "note": "text",
            "cluster": "int",
            "cluster_name": "text",
            "values": "int",
            "open": "int",
            "landmarks": "int",
            "images": "int",
            "decided_as": "text",
            "largest": "text",
            "nearest": "text",
            "suggestion": "text",
            "evidence": "text",
        },
        ("cluster",),
        spreadsheet=True,
        also="level_",  # as in cluster_summary
        sorted_rows=False,  # what matters most first
    ),
    "review_taxonomy": Table(
        "review_taxonomy.csv",
        {
            "action": "text",
            "into": "text",
            "kind": "text",
            "definition": "text",
            "supercategory": "text",
            "values": "int",
            "landmarks": "int",
            "images": "int",
            "base": "text",  # hash of the kind and definition that the row was written from
        },
        ("supercategory",),
        spreadsheet=True,
        sorted_rows=False,  # as in taxonomy.csv
    ),
    "taxonomy": Table(
        "taxonomy.csv",
        {"supercategory": "text", "kind": "text", "definition": "text"},
        ("supercategory",),
        place="labels",
    ),
    "decisions": Table(
        "decisions.csv",
        {
            "key": "text",
            "key_type": "text",
            "decision": "text",
            "supercategory": "text",
            "kind": "text",
            "who": "text",
            "when": "text",
            "why": "text",
            "supersedes": "text",
            "evidence": "text",  # hash of the value's meaning when it was decided
            "entry": "text",  # id and source of the apply, save or undo that wrote the row
            "undoes": "text",  # ids of the rows that it takes back
        },
        values={"decision": (*DECISIONS, "open"), "key_type": ("qid", "label")},
        place="labels",
        optional=True,
        may_lack=("evidence", "entry", "undoes"),
    ),
    "class_roots": Table(
        "class_roots.csv",  # known Wikidata classes; the search upwards ends at them
        {"class_id": "text", "label": "text", "kind": "text", "supercategory": "text"},
        ("class_id",),
        place="labels",
        optional=True,
    ),
    "cluster_edits": Table(
        "cluster_edits.csv",  # values that a person put together; the last row of a key counts
        {
            "key": "text",
            "with_key": "text",
            "action": "text",
            "who": "text",
            "when": "text",
            "entry": "text",
            "follows": "text",  # id of the entry that was the last one when this one was made
        },
        values={"action": ("merge", "split", "dissolve", "undo")},
        place="labels",
        optional=True,
        may_lack=("entry", "follows"),
    ),
    "taxonomy_edits": Table(
        "taxonomy_edits.csv",  # each cell that an edit of the taxonomy changed
        {
            "entry": "text",  # id of the edit, as in the decisions that follow it
            "action": "text",
            "table": "text",
            "key": "text",  # of the row before the edit
            "column": "text",
            "before": "text",
            "after": "text",
            "who": "text",
            "when": "text",
            "follows": "text",  # as in the edits of clusters
        },
        values={"table": ("taxonomy", "class_roots", "overrides")},
        place="labels",
        optional=True,
        may_lack=("follows",),
    ),
    "comments": Table(
        "comments.csv",  # the threads on values; a comment decides nothing
        {"key": "text", "who": "text", "when": "text", "text": "text"},
        place="labels",
        optional=True,
    ),
    "agreement": Json(  # of two annotators, as `hgld reviews agree A B --json` prints it
        "agreement.json", "labels", ("annotators", "values", "measures"), optional=True
    ),
    "overrides": Table(
        "overrides.csv",
        {
            **_LANDMARK,
            "supercategory": "text",
            "kind": "text",
            "who": "text",
            "when": "text",
            "why": "text",
            "name": "text",  # of the class; of landmarks it may be empty
        },
        _KEY,
        _ID_SPACE,
        place="labels",
        optional=True,
        may_lack=("name",),
    ),
    "removals": Table(
        "removals.csv",  # takedown requests: images to leave out of exports
        {"image_id": "text", "why": "text"},
        ("image_id",),
        place="labels",
        optional=True,
    ),
    # labels
    "train_labels": _PUBLISHED("train_label_to_hierarchical.csv"),
    "index_labels": _PUBLISHED("index_label_to_hierarchical.csv"),
    "hierarchy": Table(
        "hierarchy.csv",
        {**_LANDMARK, "path": "text"},  # a JSON object, level name -> class, coarse to fine
        _KEY,
        _ID_SPACE,
        editable=True,
        verify="hgld.shards.classes:number_classes",
    ),
    "lineage": Table(
        "lineage.csv",
        {
            **_LANDMARK,
            "commons_url": "text",
            "item_id": "text",
            "revision": "int",
            "class_id": "text",
            "instance_of": "text",
            "decided_by": "text",  # decision or override; in a release also edit, of hierarchy.csv
            "who": "text",
            "when": "text",
            "supercategory": "text",
            "kind": "text",
            "agreement": "text",  # of two annotators on the supercategory, in [0, 1]
        },
        _KEY,
        _ID_SPACE,
    ),
    "label_dropped": Table("label_dropped.csv", _DROPPED, _KEY, _ID_SPACE),
    # samples, models, measurements
    "shards": Folder(
        "shards",
        verify="hgld.shards.verify:verify_shards",
        index="hgld.shards.index:read_index",
        elsewhere="hgld.shards.location:is_in_place",
    ),
    "export_dropped": Table(
        "export_dropped.parquet",
        {"split": "text", "image_id": "text", "reason": "text", "detail": "text"},
        ("split", "image_id"),
    ),
    "models": Folder(
        "models",
        verify="hgld.train:verify_models",
        lists="hgld.train:list_models",
        optional=True,
    ),
    "evaluation": Json("report.json", keys=("protocol", "metrics", "models", "runs")),
    "per_query": Table(
        "per_query.parquet",
        {
            "model": "text",
            "image_id": "text",
            "class": "text",  # of the query: landmark_id; of queries of two id spaces level_L
            "metric": "text",
            "value": "float",
        },
        ("model", "image_id", "metric"),
    ),
    "ranked_levels": Folder("ranked_levels"),
    "report": Folder("report", replaced=True),
    "release": Folder("release", replaced=True),
}


def declared_table(name: str) -> Table:
    """Return the table artifact of that name."""
    table = ARTIFACTS[name]
    assert isinstance(table, Table)
    return table


def columns_of(name: str) -> list[str]:
    """Return the column names of a table artifact, in order.

    Example:
        >>> columns_of("queries")
        ['image_id', 'usage', 'relevant']
    """
    return list(declared_table(name).columns)


def table_of(name: str, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a table artifact; no rows give a table with the right columns and types."""
    return pd.DataFrame(rows, columns=columns_of(name)) if rows else declared_table(name).empty()


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table, each with its cells by column."""
    names = [str(name) for name in table.columns]
    columns = [column.tolist() for _, column in table.items()]  # an eighth of itertuples' time
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
