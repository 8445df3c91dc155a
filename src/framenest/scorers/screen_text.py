"""Text on screen: read on a given number of frames, as a cue beside relevance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from framenest.scorers.feature_cache import FeatureCache
from framenest.scorers.features import Features


class ScreenText:
    """How well the text on screen matches a question.

    OCR costs hundreds of milliseconds a frame, so only so many frames are read: the probes first, then zoom
    frames. They are taken in bit-reversed order, so that however few they are, they are spread over the
    video. Which frames are read depends on nothing else, so a ranking can be reproduced.

    Args:
        cache: the video as the OCR scorer sees it.
        question: what was asked.
        budget: frames to read.
    """

    def __init__(self, cache: FeatureCache, question: str, budget: int) -> None:
        self.read = 0
        """Frames read so far."""
        self._cache = cache
        self._question = question
        self._budget = budget
        self._probes: Features | None = None

    def cue(self, frames: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read what the budget still allows of the frames; the first call must be for the probes.

        Returns:
            (n,) cue in [0, 1]; 0 for a frame that was not read.
        """
        left = self._budget - self.read
        chosen = self._cache.see(np.sort(frames[spread(len(frames))[:left]]), "text")
        self.read += len(chosen.frames)
        if self._probes is None:
            self._probes = chosen  # they tell which words are everywhere
        result = np.zeros(len(frames), dtype=np.float32)
        if len(self._probes.frames):
            result[np.isin(frames, chosen.frames)] = self._cache.relevance(
                chosen, self._question, self._probes
            )
        return result


def spread(count: int) -> NDArray[np.int64]:
    """0 … count−1 in bit-reversed order: every prefix of it is spread evenly.

    >>> spread(8).tolist()
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    bits = max(1, (count - 1).bit_length())
    numbers = np.arange(count, dtype=np.int64)
    turned = np.zeros_like(numbers)
    for bit in range(bits):
        turned |= ((numbers >> bit) & 1) << (bits - 1 - bit)
    return np.argsort(turned, kind="stable")
