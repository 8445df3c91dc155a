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

from framenest.errors import BadSetting
from framenest.frames import ImageSpec, Pixels


@dataclass(frozen=True)
class ImageLimits:
    """Limits for images sent to a model. The aspect ratio is kept, and nothing is enlarged.

    Args:
        max_side: pixels of the longer side; None for the original size.
        max_pixels: width × height; None for the original size.
        quality: JPEG quality, 1 to 100.
        frame_pixels: pixels per frame that a Qwen processor on the server may use, sent with requests of
            style vllm-video. None: the processor divides a fixed number among the frames.

    Raises:
        ConfigError: a limit below 1, or a quality that JPEG does not have.

    >>> ImageLimits(max_side=640).size(1920, 1080)
    (640, 360)
    >>> ImageLimits(max_pixels=320 * 320).size(1920, 1080)
    (426, 240)
    """

    max_side: int | None = None
    max_pixels: int | None = None
    quality: int = 90
    frame_pixels: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_side", "max_pixels", "frame_pixels"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, Real) and float(value) >= 1):
                raise BadSetting(name, value, "1 or more")
        if not (isinstance(self.quality, int | float) and 1 <= self.quality <= 100):
            raise BadSetting("quality", self.quality, "from 1 to 100")

    def size(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) of an image, scaled down to the limits."""
        scale = 1.0
        if self.max_side is not None:
            scale = min(scale, self.max_side / max(width, height))
        if self.max_pixels is not None:
            scale = min(scale, math.sqrt(self.max_pixels / (width * height)))
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


def from_data_url(url: str) -> Image.Image:
    """The image in a data URL, as RGB."""
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])), formats=READABLE_FORMATS) as image:
        return image.convert("RGB")


STRIP_HEIGHT = 120
"""Pixels of the short side of a frame in a notebook."""


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
