"""ImageLimits: how large the frames are that a model gets; the original size by default."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from PIL import Image

from framenest.errors import BadSetting, VideoError
from framenest.extract import read_prefix
from framenest.frames import ImageSpec
from framenest.method.prefix import Prefix
from framenest.protocols import Decoder, Progress


@dataclass(frozen=True)
class ImageLimits:
    """How large the pictures sent to a model may be. The aspect ratio is kept, and nothing is enlarged.

    Args:
        max_side: pixels of the longer side; None for the original size.
        max_pixels: width × height; None for the original size.
        quality: of the JPEGs, 1 to 100.

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

    def __post_init__(self) -> None:
        for name in ("max_side", "max_pixels"):
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


def read_pictures(
    decoder: Decoder, prefix: Prefix, limits: ImageLimits, progress: Progress = lambda *_: None
) -> Iterator[Image.Image]:
    """Decode the frames of a prefix in time order; VideoError if one no longer decodes."""
    video = decoder.info
    size = limits.size(video.width, video.height)
    spec = None if size == (video.width, video.height) else ImageSpec.squash(*size)
    done = 0
    for batch in read_prefix(decoder, prefix, spec):
        for pixels in batch.pixels[0]:
            done += 1
            progress("decoding", done, len(prefix))
            yield Image.fromarray(pixels)
    if done < len(prefix):
        raise VideoError(f"{len(prefix) - done} of {len(prefix)} frames could not be decoded any more")
