"""Common to every decoder: checking what is asked for, keeping its order, bounding memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from framenest.errors import VideoError
from framenest.frames import FrameBatch, ImageSpec, Pixels, VideoInfo

MAX_FRAMES = 64
MAX_BYTES = 64 * 2**20
"""Pixels held for one batch, unless a single frame is larger."""

Picture = tuple[int, list[Pixels]]


def checked_frames(frames: Sequence[int] | NDArray[np.int64], info: VideoInfo) -> NDArray[np.int64]:
    """Frame numbers as an array, refused where the video has no such frame."""
    wanted = np.asarray(frames, dtype=np.int64).reshape(-1)
    if wanted.size and not (wanted.min() >= 0 and wanted.max() < info.num_frames):
        wrong = wanted[(wanted < 0) | (wanted >= info.num_frames)][0]
        raise VideoError(f"{info.path}: no frame {wrong}; its frames are 0 to {info.num_frames - 1}")
    return wanted


def picture_shapes(width: int, height: int, sizes: Sequence[ImageSpec | None]) -> list[tuple[int, int]]:
    """(height, width) of each picture of a frame of the given size."""
    return [(spec.size(width, height) if spec else (width, height))[::-1] for spec in sizes]


def picture_bytes(shapes: Sequence[tuple[int, int]]) -> int:
    """Bytes of all pictures of one frame."""
    return sum(3 * height * width for height, width in shapes)


def batch_size(shapes: Sequence[tuple[int, int]]) -> int:
    """How many frames may be held at once."""
    return max(1, min(MAX_FRAMES, MAX_BYTES // max(1, picture_bytes(shapes))))


def in_asked_order(
    wanted: NDArray[np.int64],
    ascending: Callable[[NDArray[np.int64]], Iterator[Picture]],
    shapes: Sequence[tuple[int, int]],
) -> Iterator[Picture]:
    """Serve frame numbers in any order, repeats included, through a reader that wants them ascending."""
    if wanted.size and (np.diff(wanted) > 0).all():
        yield from ascending(wanted)
        return
    step = batch_size(shapes)
    for at in range(0, len(wanted), step):
        some = wanted[at : at + step]
        found = dict(ascending(np.unique(some)))
        for number in some.tolist():
            if number in found:
                yield number, found[number]


def batched(
    pictures: Iterator[Picture], shapes: Sequence[tuple[int, int]], seconds: NDArray[np.float64]
) -> Iterator[FrameBatch]:
    """Gather pictures into batches; `shapes` are the (height, width) of each size."""
    most = batch_size(shapes)
    numbers: list[int] = []
    rows: list[list[Pixels]] = []
    for number, row in pictures:
        numbers.append(number)
        rows.append(row)
        if len(numbers) == most:
            yield _batch(numbers, rows, seconds)
            numbers, rows = [], []
    if numbers:
        yield _batch(numbers, rows, seconds)


def _batch(numbers: list[int], rows: list[list[Pixels]], seconds: NDArray[np.float64]) -> FrameBatch:
    frames = np.array(numbers, dtype=np.int64)
    return FrameBatch(frames, seconds[frames], tuple(np.stack(column) for column in zip(*rows, strict=True)))
