"""Renderer of the page of links: each open class with its photos and candidates of Wikidata.

It has the parts and the keys of the review page. As a file it saves ``link_review.csv``, which
``hgld link --apply`` reads; a server appends the answers to ``links.csv`` as they are given.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.config import ReviewOptions
from hgld.review.page.render import (
    MEGABYTE,
    cells_in,
    csv_text,
    fill_in,
    photo_facts,
    sheet_facts,
)
from hgld.review.photos import choose_images, read_photos

SCRIPTS = ("dom.js", "browser.js", "links.js")


def render_links(
    sheet: pd.DataFrame,
    photos: pd.DataFrame,
    *,
    options: ReviewOptions,
    source: Path,
    title: str,
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
        command: command that applies the file that the page saves.
        live: facts for the page of a server, which asks for its photos and sends its answers.
    """
    facts = {
        "series": sha256(title.encode()).hexdigest()[:16],
        "command": command,
        "file": "link_review.csv",
        **sheet_facts(csv_text(sheet, name="link_review")),
    }
    names, columns = cells_in(facts, "name"), ("candidates", "photo_scores")
    texts = zip(*(cells_in(facts, column) for column in columns), strict=True)
    facts["candidates"] = [_candidates(*cells) for cells in texts]
    if live is not None:
        return fill_in({**facts, "photos": {}, "live": live}, title, "links.html", SCRIPTS)
    bare = fill_in({**facts, "photos": {}}, title, "links.html", SCRIPTS)
    budget = int(options.page_megabytes * MEGABYTE) - len(bare.encode())
    found = photo_facts(read_photos(photos, names, source, budget_bytes=budget), names)
    return fill_in({**facts, "photos": found}, title, "links.html", SCRIPTS)


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
