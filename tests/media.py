"""Videos that the tests encode themselves: every frame carries its own number as a bar code."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np

BITS = 12


def numbered_picture(number: int, width: int = 96, height: int = 64) -> np.ndarray:
    """A picture (height, width, 3) with a moving gradient, and `number` in 12 black and white bars on top."""
    x = np.arange(width)[None, :, None]
    y = np.arange(height)[:, None, None]
    channels = np.array([3, 5, 7])[None, None, :]
    picture = ((x * 2 + y + number * channels) % 200 + 20).astype(np.uint8)
    bar = width // BITS
    for bit in range(BITS):
        value = 235 if number >> bit & 1 else 16
        picture[: height // 3, bit * bar : (bit + 1) * bar] = value
    return np.ascontiguousarray(picture)


def number_in(picture: np.ndarray) -> int:
    """The number that `numbered_picture` drew, read back from the pixels."""
    height, width = picture.shape[:2]
    bar = width // BITS
    top = picture[: height // 3].mean(axis=(0, 2))
    bits = [top[bit * bar + bar // 4 : (bit + 1) * bar - bar // 4].mean() > 125 for bit in range(BITS)]
    return sum(1 << bit for bit, on in enumerate(bits) if on)


def encode_video(
    path: Path,
    pictures: list[np.ndarray],
    *,
    fps: int = 25,
    codec: str = "libx264",
    pix_fmt: str = "yuv420p",
    options: dict[str, str] | None = None,
    ticks: list[int] | None = None,
    rotation: int | None = None,
    aspect: Fraction | None = None,
    container_options: dict[str, str] | None = None,
) -> Path:
    """Encode pictures; `ticks` are their presentation times in 1/1000 s (default: constant rate)."""
    height, width = pictures[0].shape[:2]
    with av.open(str(path), "w", options=container_options or {}) as container:
        stream = container.add_stream(codec, rate=fps)
        stream.width, stream.height, stream.pix_fmt = width, height, pix_fmt
        stream.options = (
            {"preset": "veryfast", "crf": "18"} | (options or {}) if "264" in codec else options or {}
        )
        if aspect is not None:
            stream.codec_context.sample_aspect_ratio = aspect
        if ticks is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        if rotation is not None:
            stream.set_display_rotation(rotation)
        for i, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            if ticks is not None:
                frame.pts, frame.time_base = ticks[i], Fraction(1, 1000)
            else:
                frame.pts, frame.time_base = i, Fraction(1, fps)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def numbered_video(path: Path, count: int, width: int = 96, height: int = 64, **settings) -> Path:
    return encode_video(path, [numbered_picture(i, width, height) for i in range(count)], **settings)


def sequential_decode(path: Path) -> list[tuple[float, np.ndarray]]:
    """(seconds in the file, pixels as the codec stores them) of every frame, decoded from start to end."""
    decoded = []
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        for frame in container.decode(stream):
            decoded.append((float(frame.pts * frame.time_base), frame.to_ndarray(format="rgb24")))
    return sorted(decoded, key=lambda pair: pair[0])


def growing_ticks(frames: int) -> list[int]:
    """Times of a variable frame rate: every pause is longer than the one before."""
    ticks = [0]
    for i in range(frames - 1):
        ticks.append(ticks[-1] + 20 + 7 * i)
    return ticks
