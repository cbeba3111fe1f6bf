"""Makes the release folder: the published labels, where they come from, and a card that says so.

Labels and lineage are released, photos are not: each photo belongs to its author, and the card
says where the shards are and what to check before they are passed on. Nothing is uploaded. All
figures in the card are counted from the run, and the same run gives the same bytes.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from hgld.artifacts import (
    ARTIFACTS,
    SPACE_OF_SPLIT,
    SPLITS,
    Table,
    atomic_folder,
    hash_file,
)
from hgld.config import PublishOptions, StageContext
from hgld.errors import InvalidData
from hgld.shards.index import read_index, read_manifest

__all__ = ["write_release"]

LABELS = ("train_labels", "index_labels")
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
FEATURES = {"int": "int64", "text": "string", "float": "float64"}  # as Hugging Face names types


@dataclass(frozen=True)
class Config:
    """A table of the release as the dataset card declares it: split -> file, rows, bytes."""

    name: str
    features: Sequence[tuple[str, str]]
    files: Sequence[tuple[str, str, int, int]]


def write_release(
    train_labels: pd.DataFrame,
    index_labels: pd.DataFrame,
    lineage: pd.DataFrame,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    shards: Path,
    evaluation: Mapping[str, Any],
    label_dropped: pd.DataFrame,
    export_dropped: pd.DataFrame,
    agreement: Mapping[str, Any],
    *,
    options: PublishOptions,
    context: StageContext,
    out: Path,
) -> None:
    """Fill ``out`` with the labels, their lineage, the card, the notices and the checksums.

    Args:
        train_labels: landmarks of the train id space in the published columns.
        index_labels: the same for the index id space.
        lineage: where each label comes from.
        taxonomy: the supercategories and their kinds.
        decisions: every decision, the later ones of a key superseding the earlier.
        shards: the exported images; only their attribution is copied.
        evaluation: means of each model.
        label_dropped: landmarks without a label, and why.
        export_dropped: images that were not exported, and why.
        agreement: what two annotators agree on; empty where it was not measured.
        options: name and version of the release.
        context: gives the date and the kind of source.
        out: the release folder; it is replaced as a whole.

    Raises:
        InvalidData: the shards have no ``attribution.csv``.
    """
    tables = {
        "train_labels": train_labels,
        "index_labels": index_labels,
        "lineage": lineage,
        "taxonomy": taxonomy,
        "decisions": decisions,
    }
    facts = {
        "options": options,
        "now": context.now,
        "made": context.source.kind == "toy",
        "supercategories": _count_supercategories(train_labels, index_labels, taxonomy, shards),
        "decided": _count_decisions(decisions),
        "reviewers": sorted(set(decisions["who"])),
        "scraped": bool((lineage["item_id"] != "").any()),
        "overrides": int((lineage["decided_by"] == "override").sum()),
        "dropped_landmarks": _count_reasons(label_dropped),
        "dropped_images": _count_reasons(export_dropped),
        "evaluation": evaluation,
        "agreement": agreement,
        "shards": _describe_shards(shards, out),
    }
    with atomic_folder(out) as folder:
        for name, table in tables.items():
            _table(name).write(table, folder / _table(name).file)
        if agreement:
            text = json.dumps(agreement, indent=1, ensure_ascii=False) + "\n"
            (folder / ARTIFACTS["agreement"].file).write_text(text, encoding="utf-8")
        _copy_attribution(shards, folder)
        facts["configs"] = _configs(tables, folder)
        facts["size"] = _size(len(train_labels) + len(index_labels))
        _write_text("card.md", folder / "README.md", facts)
        _write_text("license-labels.md", folder / "LICENSE-labels.md", facts)
        _write_checksums(folder)


def _count_supercategories(
    train_labels: pd.DataFrame, index_labels: pd.DataFrame, taxonomy: pd.DataFrame, shards: Path
) -> list[dict[str, Any]]:
    """Landmarks of both id spaces and exported images of each supercategory that has any."""
    labelled = {
        "train": train_labels.set_index("landmark_id")["hierarchical_label"],
        "index": index_labels.set_index("landmark_id")["hierarchical_label"],
    }
    index = read_index(shards)
    space = index["split"].map(SPACE_OF_SPLIT)
    images = pd.concat([index.loc[space == s, "landmark_id"].map(labelled[s]) for s in labelled])
    columns = {s: labels.value_counts() for s, labels in labelled.items()}
    columns["images"] = images.value_counts()
    return [
        {"name": name, "kind": kind, **{c: int(n.get(name, 0)) for c, n in columns.items()}}
        for name, kind in zip(taxonomy["supercategory"], taxonomy["kind"], strict=True)
        if any(name in counts.index for counts in columns.values())
    ]


def _count_decisions(decisions: pd.DataFrame) -> list[tuple[str, int]]:
    """The decisions in force, counted: of each key the last."""
    in_force = decisions.drop_duplicates("key", keep="last")
    return sorted((str(word), int(n)) for word, n in in_force["decision"].value_counts().items())


def _count_reasons(dropped: pd.DataFrame) -> list[tuple[str, str, int]]:
    """Split, reason, how many; in the order of the splits, then the most first."""
    counts = dropped.groupby(["split", "reason"]).size().reset_index(name="count")
    rows = zip(counts["split"], counts["reason"], counts["count"], strict=True)
    return sorted(rows, key=lambda row: (SPLITS.index(row[0]), -row[2], row[1]))


def _describe_shards(shards: Path, out: Path) -> dict[str, Any]:
    """Where the shards are, seen from the release, how many and how large."""
    files = read_manifest(shards)["shards"]
    return {
        "place": Path(os.path.relpath(shards, out)).as_posix(),
        "files": len(files),
        "samples": sum(file["samples"] for file in files),
        "megabytes": sum(file["bytes"] for file in files) / 1e6,
        "sha256": hash_file(shards / "manifest.json"),
    }


def _copy_attribution(shards: Path, folder: Path) -> None:
    source = shards / "attribution.csv"
    if not source.is_file():
        raise InvalidData(
            f"{source}: does not exist, and no photo is described without its author and licence; "
            "run the export stage again"
        )
    (folder / "attribution.csv").write_bytes(source.read_bytes())


def _configs(tables: Mapping[str, pd.DataFrame], folder: Path) -> list[Config]:
    """The labels with a split for each id space, and every other table by itself."""
    configs = [
        _config("labels", {"train": "train_labels", "index": "index_labels"}, tables, folder)
    ]
    others = [name for name in tables if name not in LABELS]
    return configs + [_config(name, {"all": name}, tables, folder) for name in others]


def _config(
    name: str, splits: Mapping[str, str], tables: Mapping[str, pd.DataFrame], folder: Path
) -> Config:
    first = _table(next(iter(splits.values())))
    features = [(column, FEATURES[kind]) for column, kind in first.columns.items()]
    files = [
        (split, _table(t).file, len(tables[t]), (folder / _table(t).file).stat().st_size)
        for split, t in splits.items()
    ]
    return Config(name, features, files)


def _size(rows: int) -> str:
    """The size category of the Hugging Face hub.

    Example:
        >>> _size(999), _size(196_700)
        ('n<1K', '100K<n<1M')
    """
    return next((name for limit, name in SIZES if rows < limit), "1M<n<10M")


def _write_text(template: str, path: Path, facts: Mapping[str, Any]) -> None:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hgld"),
        autoescape=False,  # Markdown; names are quoted by the filters
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(quoted=_quoted, cell=_cell, percent=_percent)
    path.write_text(environment.get_template(template).render(**facts), encoding="utf-8")


def _quoted(text: str) -> str:
    """A YAML string, whatever it holds: JSON's strings are YAML's."""
    return json.dumps(text, ensure_ascii=False)


def _cell(text: str) -> str:
    r"""Text for a cell of a Markdown table.

    Example:
        >>> print(_cell("a|b"))
        a\|b
    """
    return " ".join(text.split()).replace("|", "\\|")


def _percent(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{100 * value:.1f}"


def _write_checksums(folder: Path) -> None:
    """SHA256SUMS of every file, in the form that ``sha256sum -c`` reads."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    lines = [f"{hash_file(path)}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def _table(name: str) -> Table:
    table = ARTIFACTS[name]
    assert isinstance(table, Table)
    return table
