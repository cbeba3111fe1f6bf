"""Pages as browsers and wget save them, made by hand in the shape of Commons' own."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hgld.artifacts import columns_of, table_of
from hgld.config import ScrapeOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.scrape.saved import SavedPage, read_page, read_saved

ONE = '<div class="plainlist"><ul><li><a href="/wiki/Category:X">racing venue</a></li></ul></div>'
URL = "http://commons.wikimedia.org/wiki/Category:"


def infobox(cell: str, head: str = "Instance of") -> str:
    lead = '<tr><td class="wdinfo_nomobile" colspan="2">Somewhere</td></tr>'
    row = f'<tr><th class="wikidatainfobox-lcell">{head}</th><td>{cell}</td></tr>'
    other = '<tr><th class="wikidatainfobox-lcell">Location</th><td>Here, there</td></tr>'
    return f'<table class="infobox" id="wdinfobox"><tbody>{lead}{row}{other}</tbody></table>'


def page(body: str, title: str = "", canonical: str = "", lang: str = "en", top: str = "") -> str:
    link = f'<link rel="canonical" href="{canonical}">' if canonical else ""
    head = f"<title>{title} - Wikimedia Commons</title>" if title else ""
    meta = f'<meta charset="utf-8">{head}{link}'
    return f'<!DOCTYPE html>{top}<html lang="{lang}"><head>{meta}</head><body>{body}</body></html>'


def read(folder: Path, text: str, name: str = "Category:A.html") -> SavedPage:
    (folder / name).write_text(text, encoding="utf-8")
    return read_page(folder / name, "Instance of")


@pytest.mark.parametrize(
    ("cell", "values"),
    [
        (ONE, ("racing venue",)),
        ("<ul><li>chapel</li><li>church  building (1172–1954)</li></ul>",
         ("chapel", "church building (1172–1954)")),
        ("lighthouse", ("lighthouse",)),
        ("tower<br>ruin", ("tower", "ruin")),
        ("castle<sup>[1]</sup><style>.x{}</style>", ("castle",)),
        ('castle<span style="display: none">Q23413</span>', ("castle",)),
        ("ch&acirc;teau", ("château",)),
    ],
    ids=["list", "two", "plain", "lines", "footnote", "hidden", "entity"],
)  # fmt: skip
def test_the_row_is_read_as_it_is_shown(cell: str, values: tuple[str, ...], tmp_path: Path) -> None:
    assert read(tmp_path, page(infobox(cell), "Category:A")).values == values


@pytest.mark.parametrize(
    ("parts", "title"),
    [
        ({"canonical": "https://commons.wikimedia.org/wiki/Category:G%C3%B6ttingen_Tower"},
         "Category:Göttingen Tower"),
        ({"title": "Category:Eiffel Tower"}, "Category:Eiffel Tower"),
        ({"top": "<!-- saved from url=(0050)https://commons.wikimedia.org/wiki/Category:A%27s -->"},
         "Category:A's"),
        ({"title": "Category:B", "canonical": "https://commons.wikimedia.org/wiki/Category:C"},
         "Category:C"),
        ({}, ""),
    ],
    ids=["canonical", "title", "saved from", "both", "none"],
)  # fmt: skip
def test_a_page_says_its_own_title(parts: dict[str, str], title: str, tmp_path: Path) -> None:
    assert read(tmp_path, page(infobox(ONE), **parts)).title == title


def test_the_item_is_the_pages_own_and_not_that_of_a_value(tmp_path: Path) -> None:
    value = '<a href="https://www.wikidata.org/wiki/Q5">thing</a>'
    tool = '<ul><li id="t-wikibase"><a href="https://www.wikidata.org/wiki/Special:EntityPage/Q243">x</a></li></ul>'
    assert read(tmp_path, page(infobox(value), "Category:A")).item_id == ""
    assert read(tmp_path, page(tool + infobox(value), "Category:A")).item_id == "Q243"


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("", "not_a_page", "is no HTML"),
        ("Too many requests", "not_a_page", ""),
        ("<html><body><p>502 Bad Gateway</p></body></html>", "not_a_page", "save it again"),
        (page("<p>text</p>", "Category:A"), "no_infobox", ""),
        (page('<div class="noarticletext">no</div>', "Category:A"), "no_page", ""),
        (page(infobox("2001", "Inception"), "Category:A"), "no_p31", "no row 'Instance of'"),
        (page(infobox("Kirche", "ist ein(e)"), "Category:A", lang="de"), "no_p31", "is in 'de'"),
        (page(infobox("unknown value"), "Category:A"), "unknown_value", ""),
    ],
    ids=["empty", "text", "error", "no box", "gone", "no row", "German", "unknown"],
)
def test_a_page_without_a_value_says_why(
    text: str, reason: str, detail: str, tmp_path: Path
) -> None:
    found = read(tmp_path, text)
    assert found.reason == reason
    assert detail in found.detail
    assert found.values == ()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_accents_are_read_however_a_page_was_saved(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "x.html"
    file.write_bytes(page(infobox("château"), "Category:Étang").encode(encoding))
    found = read_page(file, "Instance of")
    assert (found.title, found.values) == ("Category:Étang", ("château",))


def test_bytes_that_are_no_text_are_no_page(tmp_path: Path) -> None:
    (tmp_path / "Category:A.html").write_bytes(bytes(range(256)) * 40)
    assert read_page(tmp_path / "Category:A.html", "Instance of").reason == "not_a_page"


def landmarks(*titles: str) -> pd.DataFrame:
    rows = [
        {"split": "train", "landmark_id": i, "name": "", "commons_url": URL + title}
        for i, title in enumerate(titles)
    ]
    return table_of("landmarks", rows)


def bring(context: StageContext, folder: Path, *titles: str) -> tuple[Any, Any]:
    options = ScrapeOptions(source="html", html_folder=folder)
    values, misses = read_saved(landmarks(*titles), options=options, context=context)
    assert list(values.columns) == columns_of("instance_of")
    assert list(misses.columns) == columns_of("misses")
    return (
        values[["landmark_id", "order", "instance_of"]].to_numpy().tolist(),
        misses[["landmark_id", "reason", "detail"]].to_numpy().tolist(),
    )


def test_each_landmark_gets_its_file_however_it_was_saved(
    tmp_path: Path, context: StageContext
) -> None:
    save = {
        "commons.wikimedia.org/wiki/Category:Alder_%C3%89tang": page(infobox("lake")),  # wget
        "Category Bram Castle - Wikimedia Commons.html": page(
            infobox("castle"), "Category:Bram Castle"
        ),
        "3.htm": page(
            '<span class="mw-redirectedfrom">(from <a title="Category:Old C">x</a>)</span>'
            + infobox("tower"), "Category:C",
        ),
        "3_files/Category:D.html": page(infobox("wrong"), "Category:D"),  # a browser's folder
        "style.css": "x",
    }  # fmt: skip
    for name, text in save.items():
        (tmp_path / "saved" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "saved" / name).write_text(text, encoding="utf-8")
    titles = ("Alder_%C3%89tang", "bram_Castle", "Old_C", "D")
    assert bring(context, tmp_path / "saved", *titles) == (
        [[0, 0, "lake"], [1, 0, "castle"], [2, 0, "tower"]],
        [[3, "not_saved", "no file for 'Category:D'"]],
    )


def test_what_a_page_says_goes_before_what_its_file_is_called(
    tmp_path: Path, context: StageContext
) -> None:
    (tmp_path / "Category:A.html").write_text(page(infobox("lake"), "Category:B"))
    (tmp_path / "x.html").write_text(page(infobox("tower"), "Category:A"))
    assert bring(context, tmp_path, "A", "B")[0] == [[0, 0, "tower"], [1, 0, "lake"]]


def soft(target: str) -> str:
    href = f"/wiki/Category:{target}"
    return f'<div class="category-redirect-header">Moved to <a href="{href}">x</a></div>'


def test_soft_redirects_lead_on_as_far_as_pages_were_saved(
    tmp_path: Path, context: StageContext
) -> None:
    texts = {
        "A": soft("B"),
        "B": infobox("lake"),
        "C": soft("Gone"),
        "D": soft("E"),
        "E": soft("D"),
    }
    for name, body in texts.items():
        (tmp_path / f"{name}.html").write_text(page(body, f"Category:{name}"))
    values, misses = bring(context, tmp_path, "A", "C", "D")
    assert values == [[0, 0, "lake"]]
    assert misses == [
        [1, "not_saved", "no file for 'Category:Gone'"],
        [2, "redirect_loop", "Category:D > Category:E > Category:D"],
    ]


def test_a_url_of_another_site_is_told(tmp_path: Path, context: StageContext) -> None:
    (tmp_path / "x.html").write_text(page(infobox("tower"), "Category:A"))
    table = landmarks("A").assign(commons_url="http://example.org/A")
    options = ScrapeOptions(html_folder=tmp_path)
    _, misses = read_saved(table, options=options, context=context)
    assert misses["reason"].tolist() == ["bad_url"]


def test_a_folder_that_does_not_serve_is_told(tmp_path: Path, context: StageContext) -> None:
    with pytest.raises(UsageError, match=r"scrape\.html_folder is not set"):
        read_saved(landmarks(), options=ScrapeOptions(), context=context)
    with pytest.raises(InvalidData, match="no such folder"):
        bring(context, tmp_path / "gone")
    with pytest.raises(InvalidData, match="no page in it"):
        bring(context, tmp_path)


@pytest.mark.real
def test_a_real_infobox_is_read(real_data: Path, tmp_path: Path, context: StageContext) -> None:
    recorded = real_data.parent / "wikimedia/recorded/walandmarks_happy_valley_infobox.html"
    file = tmp_path / "Category:Happy_Valley_Racecourse.html"
    file.write_bytes(recorded.read_bytes())
    values, _ = bring(context, tmp_path, "Happy_Valley_Racecourse")
    assert values == [[0, 0, "horse racing venue"]]


def test_a_link_that_is_not_a_url_leads_nowhere(tmp_path: Path) -> None:
    box = '<div class="category-redirect-header"><a href="http://[x">x</a></div>'
    link = '<link rel="canonical" href="http://[x">'
    assert read(tmp_path, f"<html><head>{link}</head><body>{box}</body></html>").redirect == ""


def test_a_page_of_a_size_that_no_page_has_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "Category:A.html"
    with file.open("wb") as opened:
        opened.truncate(1 << 40)
    page = read_page(file, "Instance of")
    assert (page.reason, page.detail) == ("not_a_page", "Category:A.html has more than 32 MB")
