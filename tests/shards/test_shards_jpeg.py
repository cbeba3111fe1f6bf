import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hgld.errors import InvalidData
from hgld.images import Undecodable, decode_rgb, is_sound_jpeg, is_whole_jpeg, jpeg_size
from hgld.shards.files import decode_image


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
    assert decode_rgb(memoryview(data)).mode == "RGB"


def test_a_size_is_read_of_plain_jpegs_only() -> None:
    assert jpeg_size(encode("RGB")) == (37, 41)
    assert jpeg_size(encode("CMYK")) is None
    assert jpeg_size(b"GIF89a") is None and jpeg_size(b"") is None


def test_a_truncated_jpeg_is_not_whole() -> None:
    data = encode("RGB", 200)
    assert is_whole_jpeg(data) and not is_whole_jpeg(data[: len(data) // 2])
    with pytest.raises(Undecodable, match="truncated"):
        decode_rgb(data[: len(data) // 2])


def test_a_jpeg_that_claims_to_be_enormous_is_refused_in_one_line() -> None:
    data = bytearray(encode("RGB"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = b"\xea\x60\xea\x60"  # height and width
    assert jpeg_size(bytes(data)) == (60_000, 60_000)
    with pytest.raises(InvalidData, match=r"^here: the image cannot be decoded \(60000 x 60000"):
        decode_image(bytes(data), lambda: "here")


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("options", [{}, {"subsampling": 0, "quality": 95}, {"optimize": True}])
def test_a_baseline_jpeg_is_sound(mode: str, options: dict[str, object]) -> None:
    data = encode(mode, **options)
    assert is_sound_jpeg(data)
    assert is_sound_jpeg(data[:2] + b"\xff\xe1\x00\x06Exif" + data[2:])


def test_what_is_not_complete_or_not_baseline_is_not_called_sound() -> None:
    data = encode("RGB", 200)
    for cut in range(0, len(data), 7):
        assert not is_sound_jpeg(data[:cut])
    assert not is_sound_jpeg(data + b"\0") and not is_sound_jpeg(b"")
    assert not is_sound_jpeg(encode("RGB", progressive=True))


@settings(max_examples=400)
@given(
    spots=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=4),
    in_headers=st.booleans(),
    cut=st.floats(0.3, 1),
)
def test_a_sound_jpeg_is_one_that_pillow_decodes(
    spots: list[tuple[float, int]], in_headers: bool, cut: float
) -> None:
    """Bytes are changed anywhere or in the headers, the rest is cut off and an end put on."""
    data = bytearray(encode("RGB"))
    data = data[: 2 + int(cut * (len(data) - 4))] + b"\xff\xd9"
    reach = min(700, len(data)) if in_headers else len(data)
    for place, value in spots:
        data[min(int(place * reach), reach - 1)] = value
    if jpeg_size(bytes(data)) is not None and is_sound_jpeg(bytes(data)):
        Image.open(io.BytesIO(data)).load()  # without hgld's own bound on the size
