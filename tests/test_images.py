import io
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import PIL
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from hgld.images import (
    Undecodable,
    decode_rgb,
    is_sound_jpeg,
    is_turned,
    open_image,
    read_headers,
    read_note,
    read_size,
    shrink_jpeg,
    upright_rgb,
)
from hgld.shards.sample import Encoding, encode_image

# Pillow warns of damaged metadata, and of sizes that hgld refuses
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")

RED, GREEN, BLUE, GREY = (255, 0, 0), (0, 255, 0), (0, 0, 255), (128, 128, 128)
COPY = Encoding(None, 90)


def upright() -> Image.Image:
    """64 x 32 in four colours, so that each of the eight turns looks different."""
    colours = np.array([[RED, GREEN], [BLUE, GREY]], np.uint8)
    return Image.fromarray(colours.repeat(16, 0).repeat(32, 1))


def turned_by(orientation: int) -> Image.Image:
    """The image as a camera stores it that writes this orientation."""
    turns = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    return upright().transpose(turns[orientation]) if orientation in turns else upright()


def save(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)  # type: ignore[arg-type]
    return buffer.getvalue()


def tagged(orientation: int, form: str = "JPEG", **options: object) -> bytes:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    if form in ("AVIF", "JPEG", "WEBP"):
        options["quality"] = 95
    return save(turned_by(orientation), form, exif=exif, **options)


def is_the_upright_image(image: Image.Image) -> bool:
    difference = np.asarray(image.convert("RGB"), int) - np.asarray(upright(), int)
    return image.size == (64, 32) and float(np.abs(difference).mean()) < 10


@pytest.mark.parametrize("form", ["AVIF", "JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_of_every_format_is_decoded_upright(orientation: int, form: str) -> None:
    data = tagged(orientation, form)
    assert is_the_upright_image(decode_rgb(data))
    assert read_size(data) == (64, 32)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_jpeg_is_exported_upright_and_without_its_tag(orientation: int) -> None:
    data = tagged(orientation)
    made = encode_image(data, COPY)
    with Image.open(io.BytesIO(made.data)) as image:  # what a reader sees that ignores the tag
        assert is_the_upright_image(image)
        assert not is_turned(image)
    assert (made.data == data) == (orientation == 1)
    assert made.changes == ("none" if orientation == 1 else "turned upright, JPEG quality 90")
    assert (made.width, made.height, made.orig_width, made.orig_height) == (64, 32, 64, 32)


@pytest.mark.parametrize("short_side", [None, 16, 32, 64])
def test_orientation_does_not_depend_on_the_short_side(short_side: int | None) -> None:
    made = encode_image(tagged(6), Encoding(short_side, 90))
    assert made.width > made.height
    assert made.changes.startswith("turned upright")


def test_a_progressive_or_grey_jpeg_is_turned_too() -> None:
    assert is_the_upright_image(decode_rgb(tagged(6, progressive=True)))
    grey = save(Image.new("L", (9, 5)), "JPEG", exif=Image.open(io.BytesIO(tagged(8))).getexif())
    assert decode_rgb(grey).size == (5, 9)


def test_a_small_copy_is_upright_too() -> None:
    data = save(turned_by(6).resize((320, 640)), "JPEG", exif=exif_of(6))
    assert decode_rgb(data, at_least=32).size < (640, 320)
    assert is_the_upright_image(decode_rgb(data, at_least=32).resize((64, 32)))


def test_a_small_copy_of_a_small_image_is_the_image() -> None:
    data = save(turned_by(1), "JPEG", quality=95)
    small, whole = decode_rgb(data, at_least=32), decode_rgb(data)
    assert min(whole.size) < 2 * 32 and small.tobytes() == whole.tobytes()


def exif_of(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    return exif


def test_an_orientation_in_xmp_counts_if_exif_has_none() -> None:
    xmp = b'<x tiff:Orientation="6"/>'
    data = save(turned_by(6), "JPEG", xmp=xmp, quality=95)
    assert not read_headers(data).upright and is_the_upright_image(decode_rgb(data))
    both = save(upright(), "JPEG", xmp=xmp, exif=exif_of(1), quality=95)
    assert is_the_upright_image(decode_rgb(both))
    assert read_headers(save(upright(), "JPEG", xmp=xmp.replace(b"6", b"1"))).upright


def test_a_photo_made_smaller_on_fetching_is_turned_once() -> None:
    small = shrink_jpeg(tagged(6), 16, 90)
    note = read_note(small)
    assert note is not None and (note.width, note.height) == (64, 32)
    assert note.changes == "turned upright, resized to short side 16, JPEG quality 90"
    made = encode_image(small, COPY)
    assert made.data == small and (made.width, made.height) == (32, 16)


def test_damaged_exif_data_do_not_make_a_photo_undecodable() -> None:
    data = bytearray(tagged(1))
    place = data.index(b"Exif\0\0") + 6
    data[place : place + 4] = b"XXXX"
    assert is_the_upright_image(decode_rgb(bytes(data)))
    assert encode_image(bytes(data), COPY).data == data


@settings(max_examples=150)
@given(
    spots=st.lists(st.tuples(st.integers(0, 63), st.integers(0, 255)), max_size=4),
    big=st.booleans(),
    orientation=st.integers(0, 9),
)
def test_a_jpeg_called_upright_has_no_turn_in_pillows_eyes(
    spots: list[tuple[int, int]], big: bool, orientation: int
) -> None:
    """The bytes of its EXIF data are changed at random."""
    tags = ImageFileDirectory_v2(prefix=b"MM" if big else b"II")
    tags[ExifTags.Base.Make], tags[ExifTags.Base.Orientation] = "camera", orientation
    exif = bytearray(b"Exif\0\0" + (b"MM\0*" if big else b"II*\0") + tags.tobytes(8)[0:0])
    exif += (8).to_bytes(4, "big" if big else "little") + tags.tobytes(8)
    for place, value in spots:
        exif[min(place, len(exif) - 1)] = value
    data = save(upright(), "JPEG", exif=bytes(exif))
    decode_rgb(data)
    if read_headers(data).upright:
        assert not is_turned(open_image(data))


def gradient(dtype: type, top: int) -> np.ndarray:
    return np.linspace(0, top, 256).astype(dtype).reshape(16, 16)


RAMP = gradient(np.uint8, 255)


@pytest.mark.parametrize("form", ["PNG", "TIFF", "PPM", "JPEG2000"])
def test_16_bit_grey_is_scaled_and_not_clipped(form: str) -> None:
    options = {"JPEG2000": {"irreversible": False}}.get(form, {})
    data = save(Image.fromarray(gradient(np.uint16, 65535)), form, **options)
    assert np.array_equal(np.asarray(decode_rgb(data))[..., 0], RAMP)
    made = np.asarray(Image.open(io.BytesIO(encode_image(data, COPY).data)).convert("L"), int)
    assert np.abs(made - RAMP).mean() < 3


def test_16_bit_big_endian_and_white_is_zero_are_scaled() -> None:
    values = gradient(np.uint16, 65535)
    big = Image.frombytes("I;16B", (16, 16), values.astype(">u2").tobytes())
    assert np.array_equal(np.asarray(decode_rgb(save(big, "TIFF")))[..., 0], RAMP)
    inverted = save(Image.fromarray(65535 - values), "TIFF", tiffinfo={262: 0})
    assert np.array_equal(np.asarray(decode_rgb(inverted))[..., 0], RAMP)


def twelve_bit_tiff(values: np.ndarray) -> bytes:
    """One row of grey values, 12 bits each, as microscopes write them."""
    bits = "".join(f"{value:012b}" for value in values.ravel())
    strip = int(bits, 2).to_bytes(len(bits) // 8)
    tags = [(256, values.size), (257, 1), (258, 12), (259, 1), (262, 1), (273, 0), (277, 1),
            (278, 1), (279, len(strip))]  # fmt: skip
    start = 8 + 2 + 12 * len(tags) + 4
    entries = [struct.pack("<HHII", tag, 4, 1, start if tag == 273 else v) for tag, v in tags]
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    return head + b"".join(entries) + bytes(4) + strip


def test_12_bit_grey_is_scaled_by_its_own_range() -> None:
    found = decode_rgb(twelve_bit_tiff(gradient(np.uint16, 4095)))
    assert np.abs(np.asarray(found)[0, :, 0] - RAMP.ravel().astype(int)).max() <= 1


@pytest.mark.parametrize(
    ("pixels", "words"),
    [
        (gradient(np.int32, 1 << 20), "32-bit integers without a known range"),
        (gradient(np.int32, 255), "32-bit integers without a known range"),
        (gradient(np.float32, 1), "floats without a known range"),
    ],
)
def test_pixels_without_a_known_range_are_undecodable(pixels: np.ndarray, words: str) -> None:
    data = save(Image.fromarray(pixels), "TIFF")
    with pytest.raises(Undecodable, match=words):
        encode_image(data, COPY)
    with pytest.raises(Undecodable, match=words):
        decode_rgb(data)


@pytest.mark.parametrize(
    ("mode", "form"),
    [("1", "PNG"), ("L", "PNG"), ("P", "PNG"), ("P", "GIF"), ("RGB", "PNG"), ("RGB", "WEBP"),
     ("RGB", "BMP"), ("CMYK", "TIFF"), ("CMYK", "JPEG"), ("RGBX", "TIFF"), ("LAB", "TIFF"),
     pytest.param("YCbCr", "TIFF", marks=pytest.mark.skipif(
         int(PIL.__version__.partition(".")[0]) < 13, reason="Pillow wrote them cut short"))],
)  # fmt: skip
def test_every_opaque_mode_keeps_its_colour(mode: str, form: str) -> None:
    colour = (255, 255, 255) if mode in ("1", "L") else (200, 40, 90)
    data = save(Image.new("RGB", (16, 16), colour).convert(mode), form)
    found = np.asarray(decode_rgb(data), int)
    assert found.shape == (16, 16, 3)
    assert np.abs(found - colour).max() <= (60 if mode == "P" else 6)  # a web palette is coarse


def test_an_inverted_cmyk_jpeg_of_adobe_keeps_its_colour() -> None:
    image = Image.new("RGB", (16, 16), (200, 40, 90)).convert("CMYK")
    data = save(image, "JPEG", quality=95)
    assert b"Adobe" in data
    assert np.abs(np.asarray(decode_rgb(data), int) - (200, 40, 90)).max() <= 6


@pytest.mark.parametrize(
    ("mode", "form"),
    [("RGBA", "PNG"), ("LA", "PNG"), ("PA", "TIFF"), ("RGBA", "WEBP"), ("RGBA", "TIFF")],
)  # fmt: skip
def test_what_is_transparent_becomes_white(mode: str, form: str) -> None:
    image = Image.new("RGBA", (16, 16), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (0, 0, 8, 16))
    via = {"PA": "P", "La": "LA"}.get(mode)
    data = save((image.convert(via) if via else image).convert(mode), form)
    found = np.asarray(decode_rgb(data))
    assert found[8, 12].min() > 250
    assert mode == "PA" or found[8, 2].max() < 5


@pytest.mark.parametrize("mode", ["RGBa", "La"])
def test_premultiplied_alpha_becomes_white_too(mode: str) -> None:
    image = Image.new("LA" if mode == "La" else "RGBA", (2, 2)).convert(mode)
    assert upright_rgb(image).getpixel((0, 0)) == (255, 255, 255)


def test_a_transparent_palette_entry_or_colour_becomes_white() -> None:
    image = Image.new("P", (4, 4))
    image.putpalette([0, 0, 0, 255, 0, 0])
    for form in ("PNG", "GIF"):
        assert decode_rgb(save(image, form, transparency=0)).getpixel((0, 0)) == (255, 255, 255)
    rgb = save(Image.new("RGB", (4, 4), (1, 2, 3)), "PNG", transparency=(1, 2, 3))
    assert decode_rgb(rgb).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_a_small_image_is_never_enlarged(form: str) -> None:
    data = save(upright(), form)
    made = encode_image(data, Encoding(256, 90))
    assert (made.width, made.height) == (64, 32)
    assert made.changes == ("none" if form == "JPEG" else "JPEG quality 90")
    assert shrink_jpeg(data, 256, 90) == data


def test_a_photo_too_long_for_a_jpeg_is_not_shrunk() -> None:
    data = save(Image.new("RGB", (70_000, 257)), "PNG")
    assert shrink_jpeg(data, 256, 90) == data


def test_an_error_of_the_code_is_not_taken_for_a_damaged_photo() -> None:
    with pytest.raises(ValueError, match="quality"):
        shrink_jpeg(save(upright(), "JPEG"), 16, "90")  # type: ignore[arg-type]


def claim(data: bytes, side: int) -> bytes:
    """The JPEG with another width and height in its header."""
    changed = bytearray(data)
    frame = max(data.find(b"\xff\xc0"), data.find(b"\xff\xc2"))
    changed[frame + 5 : frame + 9] = side.to_bytes(2) * 2
    return bytes(changed)


@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_that_states_more_pixels_than_its_bytes_hold_is_undecodable(
    progressive: bool,
) -> None:
    data = claim(save(upright(), "JPEG", progressive=progressive), 13_000)
    assert progressive or is_sound_jpeg(data)  # a decoder gets through it, and paints it grey
    for encoding in (COPY, Encoding(64, 90), Encoding(None, 90, decode_all=False)):
        with pytest.raises(Undecodable, match=r"13000 x 13000 pixels cannot be in \d+ bytes"):
            encode_image(data, encoding)
    with pytest.raises(Undecodable, match="13000 x 13000"):
        decode_rgb(data)
    assert shrink_jpeg(data, 64, 90) == data


@pytest.mark.parametrize("options", [{}, {"optimize": True}, {"progressive": True, "quality": 1}])
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_a_large_image_of_one_colour_is_decodable(mode: str, options: dict[str, object]) -> None:
    data = save(Image.new(mode, (3000, 2000)), "JPEG", **options)
    assert encode_image(data, COPY).data == data
    assert decode_rgb(data).size == (3000, 2000)


def test_a_png_that_states_more_pixels_than_its_bytes_hold_is_undecodable() -> None:
    data = bytearray(save(upright()))
    data[16:24] = (13_000).to_bytes(4) * 2
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4)
    with pytest.raises(Undecodable, match="13000 x 13000 pixels cannot be in"):
        decode_rgb(bytes(data))
    assert decode_rgb(save(Image.new("1", (6000, 4000)))).size == (6000, 4000)


def test_a_large_photo_is_read_without_a_warning(tmp_path: Path) -> None:
    Image.new("1", (9_500, 9_500)).save(tmp_path / "large.png")
    read = "from hgld.images import read_size; print(read_size(open('large.png', 'rb').read()))"
    command = [sys.executable, "-c", read]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("(9500, 9500)\n", "")
