"""Pixels to JPEG, PNG, WebP and data URLs, and how large pictures may be."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass

from PIL import Image

from framenest.errors import BadSetting
from framenest.frames import ImageSpec, Pixels


@dataclass(frozen=True)
class ImageLimits:
    """How large the pictures sent to a model may be. The aspect ratio is kept, and nothing is enlarged.

    Args:
        max_side: pixels of the longer side; None for the original size.
        max_pixels: width × height; None for the original size.
        quality: of the JPEGs, 1 to 100.
        frame_pixels: how many pixels of each frame a server's Qwen processor may use, told to it with a
            request of style vllm-video; None leaves it to the processor, which shares a fixed number out
            among the frames of a video.

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
            if value is not None and value < 1:
                raise BadSetting(name, value, "1 or more")
        if not 1 <= self.quality <= 100:
            raise BadSetting("quality", self.quality, "from 1 to 100")

    def size(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) of a picture within the limits."""
        scale = 1.0
        if self.max_side is not None:
            scale = min(scale, self.max_side / max(width, height))
        if self.max_pixels is not None:
            scale = min(scale, math.sqrt(self.max_pixels / (width * height)))
        if scale == 1.0:
            return width, height
        return max(1, int(width * scale + 1e-9)), max(1, int(height * scale + 1e-9))

    def spec(self, width: int, height: int) -> ImageSpec | None:
        """What to ask a decoder for; None is the original size."""
        size = self.size(width, height)
        return None if size == (width, height) else ImageSpec.squash(*size)


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
