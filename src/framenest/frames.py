"""VideoInfo, ImageSpec, FrameBatch: pixels travel with their frame numbers and seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from framenest.errors import VideoError
from framenest.records import Amount, BadField, Count, Name, Number, convert

Array = NDArray[Any]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Pixels = NDArray[np.uint8]
Resample = Literal["area", "bilinear", "bicubic"]

MOST_PIXELS = 2**27
"""Pixels of one frame: slightly more than 16K video has. As RGB that is 400 MB."""
MOST_ELONGATED = 50
"""The largest ratio of the long side to the short. Frames are scaled by their short side, so without this
limit a small file could claim any amount of memory."""


def check_image_size(path: str, width: int, height: int) -> None:
    """Raise VideoError for frames (sizes in pixels) that would take too much memory, original or scaled."""
    if width * height > MOST_PIXELS:
        raise VideoError(f"{path}: frames of {width}×{height} are too large; {MOST_PIXELS:,} pixels at most")
    if max(width, height) > MOST_ELONGATED * min(width, height):
        raise VideoError(
            f"{path}: frames of {width}×{height} are too elongated; "
            f"one side may be at most {MOST_ELONGATED} times the other"
        )


@dataclass(frozen=True)
class VideoInfo:
    """A video, once its timeline has been read.

    `num_frames` and `duration` (seconds) come from the packets in the file, never from a header. `start` is
    the first frame's presentation time in the file; every other time in Framenest counts from that frame.
    `width` and `height` are those of an upright frame with square pixels. `stream` is the number of the video
    stream, None for the file's default. `timeline_bytes` is how much of the file was read to get the
    timeline. `from_file` says that this came from a ranking or index file, which may come from anyone.
    """

    path: Name
    fingerprint: str
    num_frames: Count
    duration: Amount
    fps: Amount
    width: Count
    height: Count
    codec: str
    start: Number = 0.0
    constant_rate: bool = True
    stream: int | None = None
    timeline_bytes: int = field(default=0, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    from_file: bool = field(default=False, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        known = asdict(self) | {"notes": list(self.notes)}
        del known["from_file"]
        return known

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, from_file: bool = False) -> VideoInfo:
        return replace(convert(data, cls, "video"), from_file=from_file)

    def check_frames(
        self, frames: Sequence[int], seconds: Sequence[float], where: str = "", of: str = "frames"
    ) -> None:
        """Raise BadField unless the field `where` of a file lists ascending frames with their times."""
        at = f"{where}." if where else ""
        if frames and max(frames) >= self.num_frames:
            raise BadField(f"{at}frames must be below {self.num_frames}, the frames of the video")
        if any(a >= b for a, b in pairwise(frames)):
            raise BadField(f"{at}frames must ascend")
        check_length(seconds, len(frames), f"{at}seconds", of)
        if seconds and max(seconds) > self.duration + 1e-6:
            raise BadField(f"{at}seconds must be at most {self.duration:g}, the duration of the video")


def check_length(values: Sequence[Any], count: int, where: str, of: str = "frames") -> None:
    """Raise BadField unless a list in a file has one value for each of `count` frames."""
    if len(values) != count:
        raise BadField(f"{where} has {len(values)} values for {count} {of}")


@dataclass(frozen=True)
class ImageSpec:
    """An image size for the decoder's scaler to produce, in upright square pixels.

    fit:
      "short"   scale the short side to `short`; the long side follows (rounded, at least 1)
      "squash"  exactly (`width`, `height`); the aspect ratio is not kept
      "crop"    scale the short side to `short`, then cut out the centre (`width`, `height`)

    >>> ImageSpec.short_side(32).size(640, 360)
    (57, 32)
    """

    fit: Literal["short", "squash", "crop"]
    width: int = 0
    height: int = 0
    short: int = 0
    resample: Resample = "area"

    @classmethod
    def short_side(cls, short: int) -> ImageSpec:
        return cls("short", short=short)

    @classmethod
    def squash(cls, width: int, height: int, resample: Resample = "area") -> ImageSpec:
        return cls("squash", width=width, height=height, resample=resample)

    @classmethod
    def crop(cls, short: int, width: int, height: int, resample: Resample = "area") -> ImageSpec:
        return cls("crop", width=width, height=height, short=short, resample=resample)

    def scaled(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) after scaling, before any crop."""
        if self.fit == "squash":
            return self.width, self.height
        if width <= height:
            return self.short, max(1, int(self.short * height / width + 0.5))
        return max(1, int(self.short * width / height + 0.5)), self.short

    def size(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) of the result for an image of the given size."""
        return (self.width, self.height) if self.fit != "short" else self.scaled(width, height)

    def cut(self, pixels: Pixels) -> Pixels:
        """The centre of a scaled image (h, w, 3) for "crop"; otherwise the image itself."""
        if self.fit != "crop":
            return pixels
        top = (pixels.shape[0] - self.height) // 2
        left = (pixels.shape[1] - self.width) // 2
        return pixels[top : top + self.height, left : left + self.width]


@dataclass(frozen=True, eq=False)
class FrameBatch:
    """Some frames of one video.

    frames: (n,) int64 frame numbers; seconds: (n,) float64 from the first frame of the video;
    pixels: one (n, H, W, 3) uint8 RGB array per requested size.
    """

    frames: Ints
    seconds: Doubles
    pixels: tuple[Pixels, ...]

    def __post_init__(self) -> None:
        n = len(self.frames)
        if len(self.seconds) != n or any(len(p) != n for p in self.pixels):
            raise ValueError(f"FrameBatch parts disagree on the number of frames: {self!r}")

    @classmethod
    def join(cls, parts: Sequence[FrameBatch]) -> FrameBatch:
        """All frames of some batches, in their order."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.frames for part in parts]),
            np.concatenate([part.seconds for part in parts]),
            tuple(np.concatenate(images) for images in zip(*(p.pixels for p in parts), strict=True)),
        )

    def rows(self, which: Mask) -> FrameBatch:
        """Only some frames. which: (n,)."""
        if which.all():
            return self
        return FrameBatch(self.frames[which], self.seconds[which], tuple(p[which] for p in self.pixels))

    def __len__(self) -> int:
        return len(self.frames)

    def __repr__(self) -> str:
        shapes = ", ".join(str(p.shape) for p in self.pixels)
        return f"FrameBatch(frames={self.frames.shape}, seconds={self.seconds.shape}, pixels=({shapes}))"
