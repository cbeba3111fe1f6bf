"""Letters that matplotlib's font lacks, drawn by a real one (Debian: fonts-droid-fallback)."""

import warnings

import numpy as np
import pytest
from PIL import Image, ImageDraw, features

from hgld.figures import LIGHT, Drawing, draw_line, fonts, open_figure
from tests.listening import heard
from tests.made_run import MadeRun
from tests.report.reading import write


def drawn(text: str) -> bytes:
    """A chart's picture with the text."""
    with open_figure(LIGHT, 2, 1) as figure:
        figure.add_subplot().set_xticks([0], [text])
    return Drawing(figure, LIGHT).png()


@pytest.fixture
def installed() -> None:
    """A font with Chinese letters."""
    if len(fonts.fonts_for("灯")) == 1:
        pytest.skip("no installed font has Chinese letters")


@pytest.mark.usefixtures("installed")
def test_charts_draw_letters_that_matplotlibs_font_lacks() -> None:
    assert drawn("灯台") != drawn("山川")  # boxes would be equal


@pytest.mark.usefixtures("installed")
def test_captions_of_photos_do_so_too() -> None:
    pictures = []
    for text in ("灯台 A", "山川 A", "灯台 B"):  # the font of the others has no Latin letters
        picture = Image.new("L", (200, 40))
        draw_line(ImageDraw.Draw(picture), (100, 30), text, "white", 20, "ms")
        pictures.append(np.asarray(picture))
    assert (pictures[0] != pictures[1]).any() and (pictures[0] != pictures[2]).any()


@pytest.mark.skipif(not features.check("raqm"), reason="this Pillow does not order letters")
def test_a_caption_with_hebrew_goes_from_left_to_right() -> None:
    pictures = []
    for text in ("שלום", "שלום · ab"):
        picture = Image.new("L", (200, 40))
        draw_line(ImageDraw.Draw(picture), (5, 30), text, "white", 20, "ls")
        pictures.append(np.asarray(picture)[:, :50])
    assert pictures[0].any() and (pictures[0] == pictures[1]).all()


def test_a_letter_that_no_font_has_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "_installed", list)
    monkeypatch.setattr(fonts, "_named", [])
    with heard() as notes, warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn("a 灯台")
        drawn("灯台 b")
        drawn("山川")
    assert len(notes) == 1 and notes[0].startswith("figures draw 台 as a box: no installed font")


def test_texts_of_matplotlibs_font_use_no_other() -> None:
    assert [path.name for path in fonts.fonts_for("Schloß, маяк", "-Bold")] == [
        "DejaVuSans-Bold.ttf"
    ]


def test_charts_and_photos_of_a_report_name_one_letter(
    run: MadeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fonts, "_named", [])
    monkeypatch.setattr("hgld.report.charts.count_cores", lambda: 2)
    run.hierarchy["path"] = run.hierarchy["path"].str.replace("lake", "la\U00013000ke")  # 𓀀
    with heard() as notes:
        write(run)
    # a font of the machine may have it
    assert [note.partition(":")[0] for note in notes] in ([], ["figures draw 𓀀 as a box"])
