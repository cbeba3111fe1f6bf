import io

import numpy as np
import pytest
from PIL import Image

from hgld.shards.jpeg import decode_pixels, decode_rgb, is_whole_jpeg, jpeg_size


def encode(mode: str, side: int = 37, **options: object) -> bytes:
    coarse = np.random.default_rng(0).integers(0, 256, (8, 8, 4), np.uint8)
    image = Image.fromarray(coarse).resize((side, side + 4)).convert(mode)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", **options)  # type: ignore[arg-type]
    return buffer.getvalue()


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0, "quality": 95}])
def test_pixels_are_those_of_pillow(mode: str, options: dict[str, object]) -> None:
    data = encode(mode, **options)
    expected = Image.open(io.BytesIO(data)).convert("RGB")
    assert np.array_equal(decode_rgb(data), expected)
    assert np.array_equal(decode_pixels(data), expected)
    assert decode_rgb(memoryview(data)).mode == "RGB"


def test_a_size_is_read_of_plain_jpegs_only() -> None:
    assert jpeg_size(encode("RGB")) == (37, 41)
    assert jpeg_size(encode("CMYK")) is None
    assert jpeg_size(b"GIF89a") is None and jpeg_size(b"") is None


def test_a_truncated_jpeg_is_not_whole() -> None:
    data = encode("RGB", 200)
    assert is_whole_jpeg(data) and not is_whole_jpeg(data[: len(data) // 2])
    with pytest.raises(OSError, match="truncated"):
        decode_rgb(data[: len(data) // 2])
