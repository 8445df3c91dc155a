"""HeldPictures: frames that decoding passed on the way to others, held in case a question asks for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from framenest.frames import FrameBatch, ImageSpec, Pixels, VideoInfo

MOST_BYTES = 128 * 2**20
"""Pictures of one video that may be held."""
DETOUR = 0.125
"""Share of decoding that may be added for frames just behind the last one wanted of a group of pictures."""


class HeldPictures:
    """Pictures of some frames, each until it is taken.

    Args:
        video: whose frames they are.
        sizes: the pictures of each frame.
        most: bytes to hold.

    >>> from framenest.video.stills import ArrayDecoder
    >>> video = ArrayDecoder(np.zeros((9, 36, 64, 3), np.uint8), 5)
    >>> held = HeldPictures(video.info, [ImageSpec.short_side(32)])
    >>> held.hold(next(video.read([2, 4, 6], sizes=[ImageSpec.short_side(32)])))
    >>> held.take(np.array([1, 4])).frames, held.take(np.array([4]))
    (array([4]), None)
    """

    def __init__(self, video: VideoInfo, sizes: Sequence[ImageSpec], most: int = MOST_BYTES) -> None:
        self._each = 3 * sum(int(np.prod(spec.size(video.width, video.height))) for spec in sizes)
        self._most = most
        self._held: dict[int, tuple[float, tuple[Pixels, ...]]] = {}

    @property
    def nbytes(self) -> int:
        return self._each * len(self._held)

    def affordable(self, frames: NDArray[np.int64]) -> NDArray[np.int64]:
        """As many of the frames as there is room for, evenly spread."""
        room = max(0, self._most - self.nbytes) // self._each
        return frames if len(frames) <= room else frames[np.linspace(0, len(frames) - 1, room).astype(int)]

    def hold(self, batch: FrameBatch) -> None:
        """Hold copies of a batch's pictures."""
        for row, number in enumerate(batch.frames.tolist()):
            pictures = tuple(pixels[row].copy() for pixels in batch.pixels)
            self._held[number] = float(batch.seconds[row]), pictures

    def take(self, frames: NDArray[np.int64]) -> FrameBatch | None:
        """Those of the frames that are held, in their order, and held no longer; None where none is."""
        found = [(number, *self._held.pop(number)) for number in frames.tolist() if number in self._held]
        if not found:
            return None
        numbers, seconds, pictures = zip(*found, strict=True)
        pixels = tuple(np.stack(one) for one in zip(*pictures, strict=True))
        return FrameBatch(np.array(numbers, dtype=np.int64), np.array(seconds), pixels)


def on_the_way(
    key_frames: NDArray[np.int64], wanted: NDArray[np.int64], others: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Those of the other frames that cost next to nothing while the wanted ones are decoded.

    To reach a frame, a decoder goes through all frames since the key frame before it. Those that it passes
    are on the way; those just behind the last one wanted of a group of pictures too, where all of them
    together add little (DETOUR).

    Args:
        key_frames: (k,) ascending frame numbers that decode without any other.
        wanted: (n,) ascending frame numbers that are decoded anyway.
        others: (m,) ascending frame numbers.

    Returns:
        Ascending frame numbers out of `others`.

    >>> on_the_way(np.array([0, 100]), np.array([30, 60]), np.array([10, 50, 62, 120]))
    array([10, 50, 62])
    """
    if not len(wanted):
        return others[:0]
    groups, their_groups = (np.searchsorted(key_frames, frames, side="right") for frames in (wanted, others))
    last = np.searchsorted(groups, their_groups, side="right") - 1  # the last one wanted of the same group
    same = (last >= 0) & (groups[last] == their_groups)
    behind = same & (others > wanted[last])
    ends = np.append(np.flatnonzero(np.diff(groups)), len(groups) - 1)
    passed = wanted[ends] - np.concatenate([[0], key_frames])[groups[ends]] + 1
    detours = dict(zip(last[behind].tolist(), (others - wanted[last])[behind].tolist(), strict=True))
    little = sum(detours.values()) <= DETOUR * float(passed.sum())
    return np.asarray(others[same if little else same & ~behind])
