"""Encode images as JPEG, PNG, WebP, data URLs and a strip for notebooks, and limit their size."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from numbers import Real

from PIL import Image

from framenest.config import Allowed, CheckedSettings, finite, optional, setting
from framenest.frames import ImageSpec, Pixels

AT_LEAST_1 = optional(("1 or more", lambda value: isinstance(value, Real) and float(value) >= 1))
QUALITY: Allowed = "from 1 to 100", lambda value: finite(value) and 1 <= value <= 100


@dataclass(frozen=True)
class ImageLimits(CheckedSettings):
    """Limits for images sent to a model. The aspect ratio is kept, and nothing is enlarged.

    >>> ImageLimits(max_side=640).size(1920, 1080)
    (640, 360)
    >>> ImageLimits(max_pixels=320 * 320).size(1920, 1080)
    (426, 240)
    """

    max_side: int | None = setting(None, "Shrink images to this many pixels on the longer side.", AT_LEAST_1)
    max_pixels: int | None = setting(None, "Shrink images to this many pixels.", AT_LEAST_1)
    quality: int = setting(90, "JPEG quality, 1 to 100.", QUALITY)
    frame_pixels: int | None = setting(
        None,
        "For vllm-video: pixels per frame in Qwen's processor; lmms-eval sends 786432. "
        "[default: all frames share 25,165,824]",
        AT_LEAST_1,
    )

    def size(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) of an image, scaled down to the limits."""
        side, pixels = self.max_side or math.inf, self.max_pixels or math.inf
        scale = min(1.0, side / max(width, height), math.sqrt(pixels / (width * height)))
        if scale == 1.0:
            return width, height
        return max(1, int(width * scale + 1e-9)), max(1, int(height * scale + 1e-9))

    def spec(self, width: int, height: int) -> ImageSpec | None:
        """The size to ask a decoder for; None for the original size."""
        size = self.size(width, height)
        return None if size == (width, height) else ImageSpec.squash(*size)


IMAGE_FORMATS = {"jpg": "JPEG", "jpeg": "JPEG", "png": "PNG", "webp": "WEBP"}
"""Pillow's format names by file suffix."""

READABLE_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF")
"""Formats that are opened. Pillow reads others with external programs (EPS) or rarely tested code."""


def encode_image(
    image: Pixels | Image.Image, suffix: str = "jpg", *, quality: int = 90, subsampled: bool = True
) -> bytes:
    """Encode an image, (h, w, 3) uint8 RGB or a Pillow image, as the bytes of a file.

    suffix: one of IMAGE_FORMATS. quality: 1 to 100. subsampled: whether JPEG may use chroma subsampling.

    >>> encode_image(Image.new("RGB", (4, 4)), "png")[1:4]
    b'PNG'
    """
    pillow = image if isinstance(image, Image.Image) else Image.fromarray(image)
    file = io.BytesIO()
    pillow.save(file, IMAGE_FORMATS[suffix], quality=quality, subsampling=-1 if subsampled else 0)
    return file.getvalue()


def as_base64(data: bytes) -> str:
    """Base64 as a string."""
    return base64.b64encode(data).decode("ascii")


def data_url(data: bytes, kind: str = "image/jpeg") -> str:
    """The data URL of a file's bytes.

    >>> data_url(b"GIF", "image/gif")
    'data:image/gif;base64,R0lG'
    """
    return f"data:{kind};base64,{as_base64(data)}"


STRIP_HEIGHT = 120  # pixels of the short side of a frame in a notebook


def strip_html(
    lines: Sequence[str], pictures: Sequence[tuple[Image.Image, str]], notes: Sequence[str]
) -> str:
    """Text, pictures with their labels, and notes, one below the other, as HTML for a notebook."""
    figures = "".join(
        f'<figure style="display:inline-block;margin:4px"><img src="{data_url(encode_image(image))}" '
        f'alt="{label}" style="height:{STRIP_HEIGHT}px;display:block">'
        f'<figcaption style="font-size:small">{label}</figcaption></figure>'
        for image, label in pictures
    )
    parts = (*map(escape, lines), figures, *map(escape, notes))
    return '<div style="font-family:sans-serif">' + "".join(f"<div>{part}</div>" for part in parts) + "</div>"
