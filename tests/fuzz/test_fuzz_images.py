"""Images from anybody, as export, the loaders and the resizing fetch read them."""

import io
from pathlib import Path
from unittest.mock import patch

import pytest
from PIL import Image

from hgld.images import Undecodable, decode, decode_rgb, read_size, shrink_jpeg
from hgld.shards.sample import Encoding, encode_image
from tests.fuzz.driver import fuzz

# Pillow warns of damaged metadata, and of sizes that hgld refuses
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")

EXIF = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
TOKENS = [b"\x01\x12\0\x03\0\0\0\x01\0\x06", EXIF, b"\xff\xd9", b"\xff\xda", b"tRNS", b"eXIf"]
TOKENS += [b"\xff\xc2", b"\xff\xc0", b'tiff:Orientation="6', b"\x32\xc8\x32\xc8"]


def make(mode: str, form: str, **options: object) -> bytes:
    """A small photo with an orientation."""
    buffer = io.BytesIO()
    image = Image.linear_gradient("L").resize((48, 32)).convert(mode)
    image.save(buffer, form, **options)  # type: ignore[arg-type]
    return buffer.getvalue()


SEEDS = [
    make("RGB", "JPEG", exif=EXIF),
    make("L", "JPEG", progressive=True),
    make("CMYK", "JPEG"),
    make("RGBA", "PNG"),
    make("P", "PNG", transparency=0),
    make("I;16", "PNG"),
    make("P", "GIF"),
    make("RGB", "WEBP", exif=EXIF),
    make("RGB", "TIFF", compression="tiff_lzw"),
]


def read_image(data: bytes, _: Path) -> None:
    failed = 0
    readers = (
        lambda: encode_image(data, Encoding(16, 90)),
        lambda: encode_image(data, Encoding(None, 90)),
        lambda: decode_rgb(data),
        lambda: decode_rgb(data, at_least=16),
        lambda: read_size(data),
    )
    with patch.object(decode, "MOST_PIXELS", 10_000_000):  # 1 GB is not for pixels
        shrink_jpeg(data, 16, 90)
        for read in readers:
            try:
                read()
            except Undecodable as error:
                assert "\n" not in str(error)
                failed += 1
    assert data not in SEEDS or not failed


def test_any_image_is_decoded_or_undecodable() -> None:
    assert fuzz(read_image, SEEDS, tokens=TOKENS).accepted
