"""The one image encoder: pixels to JPEG, PNG or WebP files, base64 and data URLs, and back."""

from __future__ import annotations

import base64
import io

from PIL import Image

from framenest.frames import Pixels

FORMATS = {"jpg": "JPEG", "jpeg": "JPEG", "png": "PNG", "webp": "WEBP"}
"""File name suffixes, and what Pillow calls their formats."""

READ = ("JPEG", "PNG", "WEBP", "BMP", "TIFF")
"""Formats that are read; others of Pillow's run programs (EPS) or are read by rarely tested code."""


def encode_image(
    picture: Pixels | Image.Image, suffix: str = "jpg", *, quality: int = 90, subsampled: bool = True
) -> bytes:
    """Encode a picture as the bytes of an image file.

    Args:
        picture: (h, w, 3) uint8 RGB, or an image of Pillow's.
        suffix: one of FORMATS.
        quality: 1 to 100, of JPEG and WebP.
        subsampled: whether a JPEG may store colour at half the resolution (chroma subsampling).

    >>> encode_image(Image.new("RGB", (4, 4)), "png")[1:4]
    b'PNG'
    """
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    file = io.BytesIO()
    image.save(file, FORMATS[suffix], quality=quality, subsampling=-1 if subsampled else 0)
    return file.getvalue()


def as_base64(data: bytes) -> str:
    """Bytes as base64 text."""
    return base64.b64encode(data).decode("ascii")


def data_url(data: bytes, kind: str = "image/jpeg") -> str:
    """The data URL of a file's bytes.

    >>> data_url(b"GIF", "image/gif")
    'data:image/gif;base64,R0lG'
    """
    return f"data:{kind};base64,{as_base64(data)}"


def from_data_url(url: str) -> Image.Image:
    """The picture in a data URL, as RGB."""
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])), formats=READ) as image:
        return image.convert("RGB")
