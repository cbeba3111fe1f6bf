from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hgld.credit import Credit
from hgld.report.examples import ExamplePhoto
from hgld.report.rendering import render_page
from tests.report.reading import look


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_long_names_stay_in_their_cards_on_a_phone(
    tmp_path: Path, scheme: str, chromium: Any
) -> None:
    long = "Somebody_with_a_name_that_nobody_would_break_into_two_lines" * 2
    credit = Credit(f"photos/{long}.jpg", long, "CC0 1.0", "", f"https://example.org/{long}")
    photo = ExamplePhoto(Image.new("RGB", (300, 200)), (long,), credit)
    facts = {"title": "Suspect labels", "lead": "A sentence."}
    facts["rows"] = [(long, [(long, photo), ("score 1.2", photo)])]
    page = tmp_path / "page.html"
    page.write_text(render_page("photo_rows.html", **facts))
    found = look(chromium, page, scheme=scheme)
    assert found["beyond"] == [] and found["cut"] == [] and found["page"] <= 0
