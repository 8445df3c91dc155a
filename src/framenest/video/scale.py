"""From a decoded frame to upright, square-pixel RGB pictures of the requested sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import av
import numpy as np
from av.sidedata.sidedata import Type as SideData
from av.video.reformatter import Interpolation, VideoReformatter

from framenest.frames import ImageSpec, Pixels

# Bit-exact scaling, so that an index does not depend on the processor's vector units: SWS_FULL_CHR_H_INT,
# SWS_FULL_CHR_H_INP, SWS_ACCURATE_RND and SWS_BITEXACT of swscale.h. PyAV has no names for them before 18.
_EXACT = 0x2000 | 0x4000 | 0x40000 | 0x80000
_SWSCALE_FLAGS = {name: Interpolation[name.upper()] | _EXACT for name in ("area", "bilinear", "bicubic")}
_HAS_THREADS = "threads" in (VideoReformatter.reformat.__doc__ or "")  # since PyAV 17
_BT601 = 5


def _options(frame: av.VideoFrame) -> dict[str, Any]:
    """One thread, and the stream's own colour matrix.

    PyAV before 17 always uses one thread, and uses the frame's matrix only if asked for another one; RGB has
    none, so any will do.
    """
    if _HAS_THREADS:
        return {"threads": 1}
    if frame.colorspace in (0, 2, _BT601):  # RGB, unknown, or what FFmpeg assumes
        return {}
    return {"dst_colorspace": _BT601, "src_color_range": frame.color_range}


@dataclass(frozen=True)
class Orientation:
    """How stored pixels are turned upright: rotate by quarter turns counter-clockwise, then mirror."""

    quarter_turns: int = 0
    mirror: bool = False

    @classmethod
    def of(cls, frame: av.VideoFrame) -> Orientation:
        """From the frame's display matrix; angles other than quarter turns are ignored.

        Call this once per video: reading side data ties the frame into a reference cycle, which keeps its
        pixels in memory until the next garbage collection.
        """
        matrix = cast(Any, frame.side_data).get(SideData.DISPLAYMATRIX)
        if matrix is None:
            return cls()
        values = np.frombuffer(bytes(matrix), dtype=np.int32).astype(np.float64)
        a, b, c, d = values[0], values[1], values[3], values[4]
        mirror = bool(a * d - b * c < 0)
        if mirror:
            a, b = -a, -b
        angle = float(np.degrees(np.arctan2(-b, a)))
        turns = round(angle / 90)
        return cls(turns % 4, mirror) if abs(angle - 90 * turns) < 1 else cls()

    def apply(self, pixels: Pixels) -> Pixels:
        """(H, W, 3) stored pixels, turned upright."""
        turned = np.rot90(pixels, self.quarter_turns) if self.quarter_turns else pixels
        return turned[:, ::-1] if self.mirror else turned

    def swap(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) before turning, of a picture that has this size after it."""
        return (height, width) if self.quarter_turns % 2 else (width, height)


def display_size(width: int, height: int, aspect: Fraction | None, turn: Orientation) -> tuple[int, int]:
    """Size of the upright picture with square pixels."""
    if aspect is not None and Fraction(1, 10) < aspect < 10:  # anything else is a damaged header
        width = max(1, int(width * aspect + Fraction(1, 2)))
    return turn.swap(width, height)


class Scaler:
    """Scales decoded frames to fixed sizes, each straight from YUV in one step.

    If the stream changes its size midway, all frames still get the same sizes. `full` is the (width, height)
    of the upright full-size picture, which the size None stands for.
    """

    def __init__(self, full: tuple[int, int], turn: Orientation, sizes: Sequence[ImageSpec | None]) -> None:
        self._full, self._turn = full, turn
        self._targets = [(spec, VideoReformatter()) for spec in sizes]

    def __call__(self, frame: av.VideoFrame) -> list[Pixels]:
        return [self._one(frame, *target) for target in self._targets]

    def _one(self, frame: av.VideoFrame, spec: ImageSpec | None, reformatter: VideoReformatter) -> Pixels:
        width, height = self._turn.swap(*(spec.scaled(*self._full) if spec else self._full))
        flags = _SWSCALE_FLAGS[spec.resample if spec else "bicubic"]
        scaled = reformatter.reformat(
            frame, width=width, height=height, format="rgb24", interpolation=flags, **_options(frame)
        )
        pixels = self._turn.apply(np.asarray(scaled.to_ndarray(), dtype=np.uint8))
        return spec.cut(pixels) if spec else pixels
