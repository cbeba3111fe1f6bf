"""The card (README.md with the header that Hugging Face reads), its figures and the notice.

The header names every file with its columns, rows and bytes, so that nothing is guessed from the
first rows; the body follows the headings of "Datasheets for Datasets" (Gebru et al. 2021).
"""

import html
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hgld.figures import LIGHT, Bar, draw_groups, draw_shares, draw_sunburst
from hgld.hierarchy.decisions import Decided
from hgld.publish.content import Photos, Release, ReleaseTable
from hgld.template_files import open_templates
from hgld.words import count_text, level_classes, percent_text, share_text, single_blanks

LABELS = ("train_labels", "index_labels")
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
FEATURES = {"int": "int64", "text": "string", "float": "float64"}  # as Hugging Face names types


def write_card(release: Release, folder: Path, pictures: Sequence[tuple[str, str]]) -> None:
    """Write README.md and LICENSE-labels.md of a folder that holds everything else.

    Shards get a second card: Hugging Face reads a folder as CSV or as WebDataset, not both.
    """
    labels = [sheet for sheet in release.sheets if sheet.name in LABELS]
    # The labels have a split for each id space; every other table is by itself.
    parts = {"labels": {sheet.name.removesuffix("_labels"): sheet for sheet in labels}}
    parts |= {sheet.name: {"rows": sheet} for sheet in release.sheets if sheet.name not in LABELS}
    decisions = release.sheet("decisions")
    lineage, linked = release.sheet("lineage"), release.sheet("linked")
    in_force = Decided(decisions.rows).all() if decisions else []
    decided = Counter("conflict" if one.rivals else one.decision for one in in_force)
    facts: dict[str, Any] = {
        "release": release,
        "options": release.options,
        "now": release.context.now,
        "made": release.made,
        # Hugging Face knows languages, no regions; the rest of pt-br is left out.
        "languages": [*dict.fromkeys(c.split("-")[0] for c in release.context.languages)],
        "groups": release.groups,
        "decided": sorted(decided.items()),
        "scraped": lineage is not None and bool((lineage.rows["item_id"] != "").any()),
        "linked": sorted(Counter(linked.rows["by"]).items()) if linked else [],
        "overrides": int((lineage.rows["decided_by"] != "decision").sum()) if lineage else 0,
        "agreement": release.agreement,
        "evaluation": release.photos.evaluation if release.photos else {},
        "shards": _describe_shards(release.photos) if release.photos else None,
        "pictures": pictures,
        "configs": [_config(name, own, folder) for name, own in parts.items() if own],
        "size": _size(len(release.classes)),
    }
    _write_text("card.md", folder / "README.md", facts)
    _write_text("license-labels.md", folder / "LICENSE-labels.md", facts)
    if release.photos is not None:
        facts |= {
            "config": _image_config(release.photos, folder / "shards"),
            "size": _size(facts["shards"]["samples"]),
        }
        _write_text("shards-card.md", folder / "shards" / "README.md", facts)


def _describe_shards(photos: Photos) -> dict[str, Any]:
    """Number and size of the shards, and the licences of their photos, most frequent first."""
    files = photos.shards
    licenses = photos.index["license"].value_counts()
    return {
        "files": len(files),
        "samples": sum(file["samples"] for file in files),
        "megabytes": sum(file["bytes"] for file in files) / 1e6,
        "licenses": sorted(
            ((str(k), int(n)) for k, n in licenses.items()), key=lambda row: (-row[1], row[0])
        ),
        "removed": len(photos.removals),
    }


def _config(name: str, splits: Mapping[str, ReleaseTable], folder: Path) -> dict[str, Any]:
    """A table as the header declares it: name and type of columns; split, file, rows, bytes."""
    first = next(iter(splits.values()))
    features = [(column, FEATURES[kind]) for column, kind in first.artifact.columns.items()]
    files = [
        (split, sheet.file, len(sheet.rows), (folder / sheet.file).stat().st_size)
        for split, sheet in splits.items()
    ]
    return {"name": name, "features": features, "files": files}


def _image_config(photos: Photos, shards: Path) -> dict[str, Any]:
    """The shards as a WebDataset, with every key of the JSON members named."""
    splits = sorted({str(shard["split"]) for shard in photos.shards})
    files = [
        (
            split,
            f"{split}-*.tar",
            sum(s["samples"] for s in photos.shards if s["split"] == split),
            sum(s["bytes"] for s in photos.shards if s["split"] == split),
        )
        for split in splits
    ]
    features = [("__key__", "string"), ("__url__", "string"), ("jpg", "image"), ("cls", "int64")]
    row, member = photos.index.iloc[0], {}
    if int(row.get("json_size", 0)):  # shards of other programs may have no JSON member
        with (shards / row["shard"]).open("rb") as file:
            file.seek(int(row["json_offset"]))
            member = json.loads(file.read(int(row["json_size"])))
    # every sample has the keys and types of the first one, and none is null
    of_json = [(name, "int64" if isinstance(v, int) else "string") for name, v in member.items()]
    return {"features": features, "files": files, "json_features": of_json}


def _size(rows: int) -> str:
    """The size category of the Hugging Face hub.

    Example:
        >>> _size(999), _size(196_700)
        ('n<1K', '100K<n<1M')
    """
    return next((name for limit, name in SIZES if rows < limit), "1M<n<10M")


def _write_text(template: str, path: Path, facts: Mapping[str, Any]) -> None:
    templates = open_templates(
        escaped=False,  # Markdown; names are quoted by the filters
        quoted=partial(json.dumps, ensure_ascii=False),  # JSON's strings are valid YAML
        cell=_cell,
        share=partial(share_text, digits=1),
        percent=percent_text,
        number="{:,}".format,
        counted=count_text,
    )
    path.write_text(templates.get_template(template).render(**facts), encoding="utf-8")


def _cell(text: str) -> str:
    r"""Escape text for Markdown, in tables too: no markup, no link, no new cell.

    Example:
        >>> print(_cell("a|b <script>"))
        a\|b &lt;script&gt;
    """
    plain = html.escape(single_blanks(text), quote=False)
    return re.sub(r"([|\[\]`*\\])", r"\\\1", plain)


def draw_pictures(release: Release, folder: Path) -> list[tuple[str, str]]:
    """Draw what the hierarchy has: file and caption of each figure; none without groups."""
    groups = [group for group in release.groups if group.all_landmarks]
    if not groups:
        return []
    of_folder = release.road == "folder"
    coarsest, above, finest = release.levels[0], release.levels[-2], release.levels[-1]
    bars = [Bar(g.name, g.kind, g.all_landmarks, g.images) for g in groups]
    file = "groups.png" if of_folder else "supercategories.png"
    caption = f"classes of {above} by size" if of_folder else "supercategories by size"
    drawn = [(file, caption, draw_groups(bars, finest, LIGHT))]
    if groups[0].kind:
        paths: dict[tuple[str, ...], int] = {(g.kind, g.name): g.all_landmarks for g in groups}
        names = (coarsest, above if of_folder else "supercategories", finest)
        drawn.append(("sunburst.png", "the hierarchy", draw_sunburst(paths, names, LIGHT)))
        counted = level_classes(finest) if of_folder else "landmarks"
        kinds = sorted({group.kind for group in groups})
        shares = {
            counted: {k: sum(g.all_landmarks for g in groups if g.kind == k) for k in kinds},
            "images": {k: sum(g.images for g in groups if g.kind == k) for k in kinds},
        }
        shares = {what: counts for what, counts in shares.items() if any(counts.values())}
        drawn.append(("shares.png", "shares of the coarsest level", draw_shares(shares, LIGHT)))
    (folder / "figures").mkdir()
    for name, _, drawing in drawn:
        (folder / "figures" / name).write_bytes(drawing.png())
    return [(f"figures/{name}", caption) for name, caption, _ in drawn]
