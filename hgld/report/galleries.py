"""Example galleries: results of the best model, and of two models for the same queries.

Sheets for slides contain the credits of their photos. The photos are pasted onto one canvas by
pixel, and captioned by Pillow: matplotlib takes four times as long.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from textwrap import fill

import pandas as pd
from PIL import Image, ImageDraw

from hgld.config import ReportOptions
from hgld.errors import UsageError
from hgld.figures import COMPRESSION, LIGHT, draw_line
from hgld.ranking import lower_is_better
from hgld.report.examples import Example, choose_differing, choose_queries, find_examples
from hgld.report.intervals import best_of, known_means
from hgld.report.metrics_table import best_run, first_metric
from hgld.report.plans import ChartData
from hgld.words import nearest, percent_text, shared_text, shortened

PIXELS_PER_INCH = 150
SIDE, GAP, FRAME = 216, 18, 6  # of a photo, between photos, around a photo; in pixels
HEADING, CREDIT = 34, 114  # above and below the photos of a row
ROW = HEADING + SIDE + CREDIT
LINE = 12  # pixels from a line of credits to the next
FRAMES = {"same": "#42a75b", "near": "#d08215", "far": "#a55d5b"}  # also in report.css
QUERY_FRAME = "#3565c9"
shorten = partial(shortened, longest=44, last=29)  # a photo's title or author


def draw_sheet(examples: Sequence[Example], levels: Sequence[str], metric: str) -> bytes:
    """Draw examples as a PNG: a row for each query and model, the credit below each photo."""
    rows = [(example.photo, result) for example in examples for result in example.results]
    columns = 1 + max(len(result.found) for _, result in rows)
    sheet = Image.new("RGB", (GAP + columns * (SIDE + GAP), len(rows) * ROW), LIGHT.surface)
    draw = ImageDraw.Draw(sheet)
    for number, (query, result) in enumerate(rows):
        top = number * ROW
        heading = f"{result.model}: {metric} {percent_text(result.value)}"
        draw_line(draw, (GAP, top + 22), heading, LIGHT.ink, 18.75, "ls", "-Bold")
        shown = [(query, QUERY_FRAME, "query")]
        for found in result.found:
            verdict = f"{found.rank}. {shared_text(found.level, levels)}"
            shown.append((found.photo, FRAMES[frame_of(found.level, levels)], verdict))
        for column, (photo, frame, verdict) in enumerate(shown):
            left, upper = GAP + column * (SIDE + GAP), top + HEADING
            middle, bottom = left + SIDE // 2, upper + SIDE
            sheet.paste(frame, (left, upper, left + SIDE, bottom))
            sheet.paste(_square(photo.image, SIDE - 2 * FRAME), (left + FRAME, upper + FRAME))
            draw_line(draw, (middle, bottom + 18), verdict, LIGHT.ink, 15.6, "ms")
            credit = photo.credit
            lines = [" · ".join(photo.classes), shorten(credit.title)]
            lines += [credit.byline] * credit.has_author + [credit.terms] * credit.has_license
            texts = (fill(line, 38, max_lines=2, placeholder=" ...") for line in lines)
            for row, line in enumerate("\n".join(texts).split("\n")):
                draw_line(draw, (middle, bottom + 33 + LINE * row), line, LIGHT.muted, 10, "ms")
    buffer = io.BytesIO()
    dots = PIXELS_PER_INCH, PIXELS_PER_INCH
    sheet.save(buffer, "PNG", compress_level=COMPRESSION, dpi=dots)
    return buffer.getvalue()


def _square(image: Image.Image, side: int) -> Image.Image:
    """The middle of a photo as a square."""
    least = min(image.size)
    left, top = (image.width - least) // 2, (image.height - least) // 2
    square = image.convert("RGB").crop((left, top, left + least, top + least))
    return square.resize((side, side), Image.Resampling.LANCZOS)


@dataclass(frozen=True)
class Gallery:
    """A section of examples.

    Attributes:
        name: of its pictures.
        heading: of the section.
        about: how the queries were chosen.
        titles: group -> its heading.
        groups: group -> its examples.
    """

    name: str
    heading: str
    about: str
    titles: Mapping[str, str]
    groups: Mapping[str, Sequence[Example]]


def find_galleries(
    per_query: pd.DataFrame, measured: ChartData, options: ReportOptions
) -> Iterator[Gallery]:
    """Choose examples of the best model, and of two models for the same queries.

    Raises:
        UsageError: ``report.compared`` names a model that was not measured.
    """
    run, metric = best_run(measured.evaluation), first_metric(measured.evaluation)
    best = None if run is None else measured.first_models[run]
    rows = per_query[per_query["metric"] == metric]
    values = rows.pivot(index="image_id", columns="model", values="value")
    queries = measured.queries
    # the classes above the finest one, or that one if it is the only one
    sign = -1 if lower_is_better(metric) else 1  # the best query of a distance has the least
    above = len(measured.levels) - 1
    groups = {i: queries.path(i)[:above] or queries.path(i) for i in queries.landmarks}

    def find(chosen: dict[str, list[str]], models: Sequence[str]) -> dict[str, list[Example]]:
        rankings = {model: measured.rankings[model] for model in models}
        sides = queries, measured.gallery
        return find_examples(chosen, rankings, values, *sides, options.grid_images)

    if best is not None and best in values and options.grid_queries:
        yield Gallery(
            "retrieval",
            f"What {best} finds",
            f"Queries of the model with the best {metric}, each with its first images in order of "
            "rank.",
            {"best": "Best queries", "worst": "Worst queries", "random": "Random queries"},
            find(choose_queries(sign * values[best], groups, options.grid_queries), [best]),
        )
    models, pair = list(measured.evaluation["models"]), options.compared
    for name in pair or ():
        if name not in models:
            raise UsageError(
                f"report.compared: no model '{name}' was measured (there are "
                f"{', '.join(models)}){nearest(name, models)}"
            )
    if pair is None and run is not None:
        others = known_means(measured.evaluation, metric)
        del others[run]
        if second := best_of(others, metric):
            pair = measured.first_models[run], measured.first_models[second]
    if pair is not None and {*pair} <= {*values} and options.compared_queries:
        a, b = pair
        difference = sign * (values[a] - values[b])
        yield Gallery(
            "comparison",
            f"The same queries under {a} and {b}",
            f"Queries by the difference of their {metric}, each with the first images of both "
            "models in order of rank.",
            {"gain": f"Better under {a}", "loss": f"Better under {b}", "random": "Random queries"},
            find(choose_differing(difference, groups, options.compared_queries), pair),
        )


def frame_of(level: int, levels: Sequence[str]) -> str:
    """Return the frame for a shared level: same finest class, the level above it, or less.

    Example:
        >>> [frame_of(level, ("kind", "supercategory", "landmark")) for level in (3, 2, 1, 0)]
        ['same', 'near', 'far', 'far']
    """
    if level == len(levels):
        return "same"
    return "near" if level == len(levels) - 1 and level > 0 else "far"


def note_unknown(gallery: Gallery) -> str:
    """Return a sentence on the number of photos without author or licence; may be empty."""
    photos = [
        photo
        for example in chain.from_iterable(gallery.groups.values())
        for photo in (example.photo, *(f.photo for r in example.results for f in r.found))
    ]
    missing = {
        "the author": sum(not photo.credit.has_author for photo in photos),
        "the licence": sum(not photo.credit.has_license for photo in photos),
    }
    if not any(missing.values()):
        return ""
    if len({*missing.values()}) == 1:
        missing = {"author and licence": missing["the author"]}
    counted = {len(photos): "these"}
    parts = [
        f"{what} of {counted.get(count, f'{count:,} of the {len(photos):,}')} photos"
        for what, count in missing.items()
        if count
    ]
    return f"Not on record: {', '.join(parts)}."
