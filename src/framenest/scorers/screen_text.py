"""The text on screen of one video, read within a budget of seconds, as a cue beside relevance."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from framenest.protocols import Scorer
from framenest.scorers.feature_cache import FeatureCache

AT_ONCE = 4  # frames between looks at the clock


class ScreenText:
    """How well the text on screen matches a question, as far as there was time to read it.

    ScreenText costs hundreds of milliseconds a frame, so frames are read in an order of which every
    beginning is spread over the whole video. What was read is kept; the next question reads on.
    """

    def __init__(self, sight: FeatureCache, reader: Scorer, seconds: float) -> None:
        self._sight = sight
        self._reader = reader
        self._left = seconds

    def read(self, frames: NDArray[np.int64], stage: str) -> None:
        """Read those of the frames that were not read yet, until the seconds are spent."""
        unread = frames[~np.isin(frames, self._sight.frames)]
        order = unread[spread(len(unread))]
        for start in range(0, len(order), AT_ONCE):
            if self._left <= 0:
                return
            began = time.monotonic()
            self._sight.see(np.sort(order[start : start + AT_ONCE]), stage)
            self._left -= time.monotonic() - began

    def count(self, frames: NDArray[np.int64]) -> int:
        """How many of the frames were read."""
        return int(np.isin(frames, self._sight.frames).sum())

    def cue(self, frames: NDArray[np.int64], question: str, probes: NDArray[np.int64]) -> NDArray[np.float32]:
        """(n,) in [0, 1]; 0 for a frame that was not read. `probes` tell which words are everywhere."""
        result = np.zeros(len(frames), dtype=np.float32)
        there = np.isin(frames, self._sight.frames)
        known = np.intersect1d(probes, self._sight.frames)
        if there.any() and len(known):
            encoded = self._sight.see(frames[there], "text").encoded
            reference = self._sight.see(known, "text").encoded
            result[there] = self._reader.match(encoded, question, reference=reference)
        return result


def spread(count: int) -> NDArray[np.int64]:
    """0 … count−1 in an order of which every beginning is spread evenly.

    >>> spread(8).tolist()
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    bits = max(1, (count - 1).bit_length())
    numbers = np.arange(count, dtype=np.int64)
    turned = np.zeros_like(numbers)
    for bit in range(bits):
        turned |= ((numbers >> bit) & 1) << (bits - 1 - bit)
    return np.argsort(turned, kind="stable")
