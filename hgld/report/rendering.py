"""Rendering of the report's pages from their templates, and of the files beside them."""

import io
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup
from PIL import Image

from hgld.artifacts import write_csv
from hgld.report.galleries import Gallery, draw_sheet, frame_of, note_unknown, shorten
from hgld.report.latex import frame_cells, frame_latex
from hgld.template_files import open_templates
from hgld.words import count_text, level_noun, percent_text, shared_text


def save_table(folder: Path, name: str, table: pd.DataFrame) -> None:
    """Write a table as CSV and as LaTeX."""
    write_csv(table, folder / f"{name}.csv")
    (folder / f"{name}.tex").write_text(frame_latex(table), encoding="utf-8")


def save_sheets(
    folder: Path, galleries: Sequence[Gallery], levels: Sequence[str], metric: str
) -> None:
    """Write each group of photos as one picture."""
    for gallery in galleries:
        for name, examples in gallery.groups.items():
            path = folder / f"{gallery.name}-{name}.png"
            path.write_bytes(draw_sheet(examples, levels, metric))


def render_page(template: str, **facts: Any) -> str:
    """Return a page made from a template and what it names."""
    environment = open_templates(
        escaped=True,
        png=lambda data: Markup(f"data:image/png;base64,{b64encode(data).decode()}"),
        jpeg=lambda image: Markup(
            f"data:image/jpeg;base64,{b64encode(jpeg_bytes(image, 82)).decode()}"
        ),
        percent=percent_text,
        cells=frame_cells,
        noun=level_noun,
        shorten=shorten,
        counted=count_text,
    )
    environment.globals.update(frame_of=frame_of, verdict_of=shared_text, note_unknown=note_unknown)
    return environment.get_template(template).render(**facts)


def jpeg_bytes(image: Image.Image, quality: int) -> bytes:
    """Return a photo as a small JPEG file, for a page."""
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=quality, optimize=True)
    return buffer.getvalue()
