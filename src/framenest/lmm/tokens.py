"""What frames cost in tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

QWEN_CELL = 32  # pixels: patches of 16, merged 2 × 2
QWEN_IMAGE = (65_536, 16_777_216)  # pixels of an image, minimum and maximum
QWEN_VIDEO = (4_096, 25_165_824)  # pixels of all frames of a video together, minimum and maximum
CHARACTERS = 4  # of English text per token


@dataclass(frozen=True)
class Tokens:
    """An estimate: images; time markers and separators; question and chat template."""

    frames: int
    times: int
    text: int

    @property
    def total(self) -> int:
        return self.frames + self.times + self.text


def image_cells(
    width: int, height: int, cell: int = QWEN_CELL, limits: tuple[int, int] = QWEN_IMAGE, count: int = 1
) -> int:
    """Tokens of an image resized to whole cells, within limits on the pixels of `count` such images.

    >>> image_cells(640, 360), image_cells(1920, 1080, limits=QWEN_VIDEO, count=64)
    (220, 364)
    """
    across, down = max(1, round(width / cell)), max(1, round(height / cell))
    pixels = across * down * cell * cell * count
    if pixels > limits[1]:
        shrink = math.sqrt(width * height * count / limits[1])
        across, down = (max(1, int(side / shrink / cell)) for side in (width, height))
    elif pixels < limits[0]:
        grow = math.sqrt(limits[0] / (width * height * count))
        across, down = (math.ceil(side * grow / cell) for side in (width, height))
    return across * down


def qwen_limits(count: int, frame_pixels: int | None) -> tuple[int, int]:
    """Minimum and maximum pixels of all frames of a video of `count` frames together.

    >>> qwen_limits(256, None), qwen_limits(256, 786_432)
    ((4096, 25165824), (4096, 201326592))
    """
    return QWEN_VIDEO if frame_pixels is None else (QWEN_VIDEO[0], frame_pixels * count)
