"""Renderer of the review page and the page of links: the rows of a sheet in one HTML file.

The page contains the cells of the CSV unchanged, so the browser saves the same CSV with the edited
cells, and ``hgld review --apply`` reads it like any other. Labels come from a public wiki, so all
texts are embedded as data and shown as text, and the content security policy allows only this
page's script and no network access.

The page of links shows each open class with its photos and candidates of Wikidata. As a file it
saves ``link_review.csv``, which ``hgld link --apply`` reads.
"""

import csv
import io
import json
import re
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from hgld.artifacts import Vectors, declared_table, records
from hgld.artifacts.cells import unguard
from hgld.config import LEVEL_NAMES, ReviewOptions
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.decisions import Decided
from hgld.hierarchy.vector_clusters import means_of
from hgld.review.photos import choose_images, read_photos
from hgld.review.sheets import list_history
from hgld.review.suggestions import ValueModel
from hgld.tasks import say
from hgld.template_files import open_templates
from hgld.words import count_text, single_blanks

SCRIPTS = (  # of the review page, in the order of their dependencies
    "dom.js",
    "browser.js",
    "sheet.js",
    "person.js",
    "edits.js",
    "comments.js",
    "pace.js",
    "map.js",
    "walk.js",
    "curve.js",
    "filters.js",
    "model.js",
    "advice.js",
    "bulk.js",
    "list.js",
    "deeds.js",
    "chooser.js",
    "taxonomy.js",
    "panel.js",
    "neighbours.js",
    "keys.js",
    "live.js",  # in the page of a server only
    "start.js",
)
LINK_SCRIPTS = ("dom.js", "browser.js", "links.js")
MEGABYTE = 1_000_000


def render_page(
    sheet: pd.DataFrame,
    clusters: pd.DataFrame,
    cluster_summary: pd.DataFrame,
    label_vectors: Vectors,
    taxonomy: pd.DataFrame,
    landmark_values: pd.DataFrame,
    landmarks: pd.DataFrame,
    images: pd.DataFrame,
    *,
    options: ReviewOptions,
    source: Path,
    title: str,
    name: str,
    command: str,
    live: Mapping[str, Any] | None = None,
    decisions: pd.DataFrame | None = None,
    model: ValueModel | None = None,
    threads: Mapping[str, Sequence[Sequence[str]]] | None = None,
    blind_file: str = "",
    levels: Sequence[str] = LEVEL_NAMES[:-1],
    noun: str = LEVEL_NAMES[-1],
) -> str:
    """Return the page as HTML; the same tables and files give the same text.

    Args:
        sheet: the review sheet, in the order of the review.
        clusters: cluster of each value.
        cluster_summary: the nearest clusters of each.
        label_vectors: for the second nearest cluster of a value.
        taxonomy: the supercategories to choose from.
        landmark_values: values of each landmark.
        landmarks: their names.
        images: images that may be shown, with file, offset and attribution.
        options: number of photos of a value, and size limit of the page.
        source: the folder that ``images.path`` is relative to.
        title: the pipeline's title.
        name: of the pipeline file; a browser keeps the edits of each title and name apart.
        command: command that applies the file that the page saves.
        live: facts for the page of a server, which asks for its photos and sends its decisions.
        decisions: all decisions, for the history of each value; None shows none.
        model: of the decisions, which the page fits again to those that are made on it.
        threads: comments on each value by its key (``threads_of``).
        blind_file: name of the file that the page saves, if the sheet is a blind copy; then it
            shows neither clusters nor suggestions.
        levels: names of the levels above the classes, coarse to fine.
        noun: the source's word for a class.

    Returns:
        HTML of at most ``review.page_megabytes``, unless the rows alone take more.
    """
    facts = {
        "title": title,
        "command": command,
        "series": _series(title, name),
        "blind": bool(blind_file),
        "model": None,
        "file": blind_file or "review.csv",
        **sheet_facts(sheet, None if blind_file else "review"),
        "clusters": {} if blind_file else _cluster_facts(cluster_summary),
        "taxonomy": taxonomy_facts(taxonomy),
        "above": list(levels[:-1]),
    }
    keys = cells_in(facts, "key")
    next_clusters = {} if blind_file else find_next_clusters(clusters, label_vectors)
    facts["next"] = [next_clusters.get(key) for key in keys]
    facts["history"] = {} if decisions is None else history_facts(decisions, clusters, keys)
    facts["comments"] = {str(i): (threads or {}).get(key, []) for i, key in enumerate(keys)}
    facts["landmarks"] = {
        **_landmark_facts(landmark_values, keys),
        "needed": options.min_coverage,
        "noun": noun,
    }
    if model is not None:
        number = {key: row for row, key in enumerate(keys)}
        numbers = [number[key] for key in value_keys(clusters)]
        facts["model"] = {**model.facts(), "rows": numbers, "sure": options.sure}
    if live is not None:
        return fill_in({**facts, "photos": {}, "live": live}, title)
    bare = fill_in({**facts, "photos": {}}, title)
    chosen = choose_images(landmark_values, landmarks, images, per_value=options.page_photos)
    budget = int(options.page_megabytes * MEGABYTE) - len(bare.encode())
    photos = read_photos(chosen, keys, source, budget_bytes=budget)
    page = fill_in({**facts, "photos": photos}, title)
    count = sum(map(len, photos.values()))
    size = len(page.encode()) / MEGABYTE
    say(f"{count_text(count, 'photo')} of {count_text(len(photos), 'value')}, {size:.1f} MB")
    return page


def _series(title: str, name: str) -> str:
    """Return the id of all versions of a pipeline's sheet, in any folder."""
    return sha256(f"{title}\n{name}".encode()).hexdigest()[:16]


def sheet_facts(sheet: pd.DataFrame, name: str | None) -> dict[str, Any]:
    """Return hash, columns, cells, and unescaped cells of the file of a sheet.

    ``name`` is that of its artifact; None: a blind copy, which is none.
    """
    if name is not None:
        sheet = declared_table(name).check(sheet, Path(declared_table(name).file))
    text: str = sheet.to_csv(index=False, lineterminator="\r\n", quoting=csv.QUOTE_MINIMAL)
    columns, *rows = csv.reader(io.StringIO(text, newline=""))
    plain = {
        str(i): {
            name: word
            for name, cell in zip(columns, row, strict=True)
            if cell.startswith("'") and (word := unguard(cell)) != cell
        }
        for i, row in enumerate(rows)
    }
    return {
        "hash": sha256(text.encode()).hexdigest()[:16],
        "columns": columns,
        "rows": rows,
        "plain": {i: cells for i, cells in plain.items() if cells},
    }


def _cluster_facts(cluster_summary: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return cluster number -> its name and the nearest clusters, nearest first."""
    return {
        str(row["cluster"]): {
            "name": row["cluster_name"],
            "near": [number for number in row["nearest"].split("; ") if number],
        }
        for row in records(cluster_summary)
        if row["values"]
    }


def taxonomy_facts(taxonomy: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the supercategories in the spelling of decisions."""
    return [
        {**row, "supercategory": single_blanks(row["supercategory"])} for row in records(taxonomy)
    ]


def history_facts(
    decisions: pd.DataFrame, clusters: pd.DataFrame, keys: Sequence[str]
) -> dict[str, list[list[Any]]]:
    """Return row number -> its history (``list_history``).

    A value without one is left out. A key without a value has the decisions on its id or label.
    """
    decided = Decided(decisions)
    columns = (value_keys(clusters), clusters["class_id"], clusters["instance_of"])
    value_of = {key: value for key, *value in zip(*columns, strict=True)}
    made = {key: list_history(decided, *value_of.get(key, (key, key))) for key in keys}
    return {str(row): made[key] for row, key in enumerate(keys) if made[key]}


def _landmark_facts(landmark_values: pd.DataFrame, keys: Sequence[str]) -> dict[str, Any]:
    """Return landmarks of each row only, and those that several rows share, by row numbers."""
    row_of = {key: row for row, key in enumerate(keys)}
    places: dict[tuple[str, int], set[int | None]] = defaultdict(set)
    columns = (landmark_values[name] for name in ("split", "landmark_id"))
    for split, landmark, key in zip(*columns, value_keys(landmark_values), strict=True):
        places[split, landmark].add(row_of.get(key))
    # a landmark with a value outside the sheet cannot be decided by this page
    known = (rows for rows in places.values() if None not in rows)
    groups = Counter(tuple(sorted(row for row in rows if row is not None)) for rows in known)
    return {
        "alone": [groups.pop((row,), 0) for row in row_of.values()],
        "shared": [[list(rows), count] for rows, count in sorted(groups.items())],
        "total": len(places),
    }


def cells_in(facts: Mapping[str, Any], column: str) -> list[str]:
    """Return the unescaped cells of a column of ``sheet_facts``."""
    place = facts["columns"].index(column)
    return [unguard(row[place]) for row in facts["rows"]]


def fill_in(
    facts: Mapping[str, Any],
    title: str,
    template: str = "page.html",
    scripts: Sequence[str] = SCRIPTS,
) -> str:
    """Return a page of ``templates/review`` with its facts and scripts."""
    names = [name for name in scripts if name != "live.js" or "live" in facts]
    folder = files("hgld") / "templates" / "review"
    texts = [(folder / name).read_text(encoding="utf-8") for name in names]
    script = "(() => {\n" + "\n".join(texts) + "})();\n"
    data = json.dumps(facts, ensure_ascii=False, separators=(",", ":"))
    return (
        open_templates(escaped=True)
        .get_template(f"review/{template}")
        .render(
            title=title,
            file=facts["file"],
            is_live="live" in facts,
            script=Markup(script),
            script_hash=b64encode(sha256(script.encode()).digest()).decode(),
            data=Markup(data.replace("<", "\\u003c")),  # no cell can close the script element
        )
    )


def find_next_clusters(clusters: pd.DataFrame, label_vectors: Vectors) -> dict[str, int]:
    """Return value key -> the nearest cluster except its own; empty for a single cluster.

    A reviewer who doubts a proposal looks there first. As in ``margin``, a distance is that to the
    cluster's centre, the mean of its values' vectors.

    Args:
        clusters: class_id, instance_of, cluster; one row for each value.
        label_vectors: unit vectors by value key; values without a vector are left out.

    Example:
        >>> clusters = pd.DataFrame({"class_id": ["Q1", "Q2", "Q3"], "cluster": [0, 1, 2],
        ...     "instance_of": ["pond", "lake", "mine"]})
        >>> vectors = np.array([[1, 0], [0.8, 0.6], [0, 1]])
        >>> find_next_clusters(clusters, Vectors(["Q1", "Q2", "Q3"], vectors, {}))
        {'Q1': 1, 'Q2': 0, 'Q3': 1}
    """
    keyed = clusters.assign(key=value_keys(clusters))
    keyed = keyed[keyed["key"].isin(list(label_vectors.row_of))]
    numbers, own = np.unique(keyed["cluster"].to_numpy(), return_inverse=True)
    if len(numbers) < 2:
        return {}
    vectors = label_vectors.of(keyed["key"]).astype(np.float64)
    centres = means_of(vectors, own)
    # (N, K) squared distances without |v|^2, which is constant in a row and leaves argmin unchanged
    squares = (centres**2).sum(axis=1) - 2 * vectors @ centres.T
    squares[np.arange(len(own)), own] = np.inf
    return dict(zip(keyed["key"], numbers[squares.argmin(axis=1)].tolist(), strict=True))


def render_links(
    sheet: pd.DataFrame,
    photos: pd.DataFrame,
    *,
    options: ReviewOptions,
    source: Path,
    title: str,
    name: str,
    command: str,
    live: Mapping[str, Any] | None = None,
) -> str:
    """Return the page as HTML; the same tables and files give the same text.

    Args:
        sheet: ``link_review``, the open classes.
        photos: ``photos_of_classes``.
        options: size limit of the page.
        source: the folder that the paths of photos are relative to.
        title: the pipeline's title.
        name: of the pipeline file; a browser keeps the edits of each title and name apart.
        command: command that applies the file that the page saves.
        live: facts for the page of a server, which asks for its photos and sends its answers.
    """
    facts = {
        "series": _series(title, name),
        "command": command,
        "file": "link_review.csv",
        **sheet_facts(sheet, "link_review"),
    }
    names, columns = cells_in(facts, "name"), ("candidates", "photo_scores")
    texts = zip(*(cells_in(facts, column) for column in columns), strict=True)
    facts["candidates"] = [_candidates(*cells) for cells in texts]
    if live is not None:
        return fill_in({**facts, "photos": {}, "live": live}, title, "links.html", LINK_SCRIPTS)
    bare = fill_in({**facts, "photos": {}}, title, "links.html", LINK_SCRIPTS)
    budget = int(options.page_megabytes * MEGABYTE) - len(bare.encode())
    found = read_photos(photos, names, source, budget_bytes=budget)
    return fill_in({**facts, "photos": found}, title, "links.html", LINK_SCRIPTS)


def photos_of_classes(
    landmarks: pd.DataFrame, images: pd.DataFrame, *, per_class: int
) -> pd.DataFrame:
    """Return the first images of each class, as ``choose_images`` does for values, by its name."""
    values = landmarks.assign(class_id="", instance_of=landmarks["name"])
    return choose_images(values, landmarks, images, per_value=per_class)


def _candidates(text: str, photo_scores: str) -> list[dict[str, str]]:
    """Return id, text and scores of each candidate in the cells of the sheet.

    Example:
        >>> _candidates("Q193 Saturn: planet (0.62); Q1939 Saturn (0.60)", "Q193 (0.271)")[0]
        {'id': 'Q193', 'text': 'Saturn: planet', 'score': '0.62', 'seen': '0.271'}
    """
    seen = dict(re.findall(r"(Q\d+) \((.*?)\)", photo_scores))
    found = re.findall(r"(Q\d+) (.*?) \((-?\d\.\d\d)\)(?:; (?=Q\d+ )|$)", text)
    return [
        {"id": item_id, "text": about, "score": score, "seen": seen.get(item_id, "")}
        for item_id, about, score in found
    ]
