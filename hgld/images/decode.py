"""Decode image bytes to upright RGB pixels.

Plain JPEGs are decoded by libjpeg-turbo directly (``hgld.images.jpeg``). Pillow decodes everything
else, and decides in cases where the two differ.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from hgld.images.jpeg import decode_plain_jpeg, jpeg_size, read_headers

IMAGE_ENDINGS = {
    *(".avif", ".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"),
}
# Photos of phones and cameras, which Pillow does not decode.
UNREAD_ENDINGS = {".arw", ".cr2", ".cr3", ".dng", ".heic", ".heif", ".jxl", ".nef"}
WHOLE_SIDE = "whole_side"  # of Image.info: the longer side of the photo that an image was cut from
MOST_PIXELS = 178_956_970  # Pillow's own limit against decompression bombs
# A Huffman-coded JPEG has at least one bit per block of 8 x 8 pixels, and deflate expands a byte to
# 1,032 bytes at most. Without this limit a decoder would allocate any size that a file states,
# and paint the missing blocks of a JPEG grey without an error.
PIXELS_PER_BYTE = {"JPEG": 8 * 64, "PNG": 8 * 1032}
# Pillow warns of damaged metadata for each photo. The filter is set once for the process, since
# catch_warnings would change the filters of all threads.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\..*ImagePlugin")
# It also warns from half of MOST_PIXELS on, without the name of the photo.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
NO_RANGE = {"I": "32-bit integers", "F": "floats"}
TURNS = {  # EXIF orientation -> the operation that makes the image upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
BITS_PER_SAMPLE, PHOTOMETRIC, WHITE_IS_ZERO = 258, 262, 0  # TIFF tags, and a value


class Undecodable(Exception):
    """The bytes are not an image that hgld can decode; the message gives the reason."""


def decode_rgb(data: bytes | memoryview, at_least: int | None = None) -> Image.Image:
    """Decode an image to upright RGB.

    Args:
        data: an image file.
        at_least: the sides of a JPEG may be divided by 2, 4 or 8 during decoding, as long as they
            stay at least this long; much faster if only a small copy is needed.

    Raises:
        Undecodable: damaged, too large, or pixels without a known range.
    """
    size = jpeg_size(data)
    if size is not None:
        require_size(size, len(data), "JPEG")
        whole = at_least is None or min(size) < 2 * at_least
        if whole and read_headers(data).upright:
            pixels = decode_plain_jpeg(data)
            if pixels is not None:
                return Image.fromarray(pixels)
    with decoding(), open_image(data) as image:
        if at_least is not None:
            image.draft("RGB", (at_least, at_least))
        return upright_rgb(image)


def read_size(data: bytes | memoryview) -> tuple[int, int]:
    """Return width and height of an image after its orientation is applied, from the headers.

    Raises:
        Undecodable: the headers are damaged, or state an impossible size.
    """
    with decoding(), open_image(data) as image:
        width, height = image.size
        # Pillow swaps the sides of a rotated TIFF when it opens the file
        swapped = _orientation(image) > 4 and image.format != "TIFF"
        return (height, width) if swapped else (width, height)


@contextmanager
def decoding() -> Iterator[None]:
    """Convert every decoder error to ``Undecodable``: Pillow raises errors of almost any class."""
    try:
        yield
    except (MemoryError, Undecodable):
        raise
    except UnidentifiedImageError:  # its message has a memory address, which differs by run
        raise Undecodable("not an image of a known format") from None
    except Exception as error:
        raise Undecodable(f"{type(error).__name__}: {error}") from None


def open_image(data: bytes | memoryview) -> Image.Image:
    """Open an image with Pillow and check its stated size; the pixels are not decoded yet."""
    image: Image.Image = Image.open(io.BytesIO(data))
    require_size(image.size, len(data), image.format)
    return image


def require_size(size: tuple[int, int], size_bytes: int, file_format: str | None) -> None:
    """Check that an image of this size is not too large, and fits in this many bytes.

    Raises:
        Undecodable: it is too large, or its bytes cannot hold so many pixels.
    """
    width, height = size
    if width * height > MOST_PIXELS:
        raise Undecodable(f"{width} x {height} pixels; {MOST_PIXELS:,} are read at most")
    most = PIXELS_PER_BYTE.get(file_format or "")
    if most is not None and width * height > (size_bytes + 1) * most:
        raise Undecodable(f"{width} x {height} pixels cannot be in {size_bytes:,} bytes")


def is_turned(image: Image.Image) -> bool:
    """Whether the metadata of an opened image require it to be rotated or mirrored."""
    return _orientation(image) in TURNS


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except MemoryError:
        raise
    except Exception:  # damaged metadata do not make the pixels undecodable
        return 1


def upright_rgb(image: Image.Image) -> Image.Image:
    """Decode an opened image: orientation applied, 8-bit RGB, white where transparent.

    Raises:
        Undecodable: its pixels have no known range.
    """
    image.load()  # this rotates a TIFF
    turn = TURNS.get(_orientation(image))  # exif_transpose would write the EXIF data again, too
    rgb = _to_rgb(image)
    return rgb if turn is None else rgb.transpose(turn)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return _from_16_bits(image)  # Pillow may open 16-bit PNG and PGM as "I"
    if image.mode in NO_RANGE:
        raise Undecodable(
            f"its pixels are {NO_RANGE[image.mode]} without a known range; save it with 8 or 16 "
            "bits a channel"
        )
    # convert() to RGBA does not accept premultiplied grey
    if image.mode == "La":
        image = image.convert("LA")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        opaque = Image.new("RGB", image.size, "white")
        opaque.paste(image, mask=image.getchannel("A"))
        return opaque
    return image.convert("RGB")


def _from_16_bits(image: Image.Image) -> Image.Image:
    """Scale 0..65535 to 0..255; a TIFF may have fewer bits, or 0 for white."""
    tags = getattr(image, "tag_v2", {})
    white = 2 ** int(tags.get(BITS_PER_SAMPLE, (16,))[0]) - 1
    values = np.minimum(np.arange(1 << 16), white)
    table = ((2 * 255 * values + white) // (2 * white)).astype(np.uint8)
    if tags.get(PHOTOMETRIC) == WHITE_IS_ZERO:
        table = 255 - table
    return Image.fromarray(table[np.asarray(image)]).convert("RGB")
