from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from PIL import Image

from hgld.credit import Credit
from hgld.report.examples import ExamplePhoto, SplitPhotos
from hgld.report.rendering import PhotoRow, write_photo_rows
from tests.report.reading import look


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_long_names_stay_in_their_cards_on_a_phone(
    tmp_path: Path, scheme: str, chromium: Any
) -> None:
    long = "Somebody_with_a_name_that_nobody_would_break_into_two_lines" * 2
    credit = Credit(f"photos/{long}.jpg", long, "CC0 1.0", "", f"https://example.org/{long}")
    photo = ExamplePhoto(Image.new("RGB", (300, 200)), (long,), credit)
    rows = [PhotoRow(long, [(long, "train", "a"), ("score 1.2", "train", "b")])]
    page = tmp_path / "page.html"
    write_photo_rows(
        page,
        "Suspect labels",
        "A sentence.",
        rows,
        Mock(SplitPhotos, photo=Mock(return_value=photo)),
    )
    found = look(chromium, page, scheme=scheme)
    assert found["beyond"] == [] and found["cut"] == [] and found["page"] <= 0
