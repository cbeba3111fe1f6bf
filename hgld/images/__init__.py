"""Decode image files to upright RGB pixels, and encode them to JPEG.

Every part of hgld that opens an image uses this package, so the same rules apply everywhere:

- **Upright**: the orientation in the EXIF or XMP data is applied.
- **RGB with 8 bits**: grey, palette, CMYK and YCbCr images are converted; transparent pixels become
  white; 16-bit grey is scaled. 32-bit integers and floats have no known range, so such an image is
  undecodable.
- **Bounded**: an image whose header states too many pixels, or far more than its bytes can hold,
  is undecodable. No memory is allocated for its pixels.
"""

from hgld.images.decode import (
    IMAGE_ENDINGS,
    MOST_PIXELS,
    UNREAD_ENDINGS,
    WHOLE_SIDE,
    Undecodable,
    decode_rgb,
    decoding,
    is_turned,
    open_image,
    read_size,
    require_size,
    upright_rgb,
)
from hgld.images.jpeg import is_sound_jpeg, is_whole_jpeg, jpeg_size, read_headers
from hgld.images.resize import (
    Note,
    OutsidePhoto,
    cut_out,
    describe_changes,
    extended_boxes,
    read_note,
    resize,
    shrink_jpeg,
)

__all__ = [
    "IMAGE_ENDINGS",
    "MOST_PIXELS",
    "UNREAD_ENDINGS",
    "WHOLE_SIDE",
    "Note",
    "OutsidePhoto",
    "Undecodable",
    "cut_out",
    "decode_rgb",
    "decoding",
    "describe_changes",
    "extended_boxes",
    "is_sound_jpeg",
    "is_turned",
    "is_whole_jpeg",
    "jpeg_size",
    "open_image",
    "read_headers",
    "read_note",
    "read_size",
    "require_size",
    "resize",
    "shrink_jpeg",
    "upright_rgb",
]
