"""Prefix: the frames of one budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framenest.errors import BudgetError
from framenest.frames import VideoInfo


@dataclass(frozen=True, eq=False)
class Prefix:
    """A selection of frames, in time order.

    frames: (K,) int64; seconds: (K,) float64; ranks: (K,) int64 from 1, or None where the selector
    does not rank. `complete` says that fewer than `budget` frames exist and all of them are here.
    """

    video: VideoInfo
    budget: int
    frames: NDArray[np.int64]
    seconds: NDArray[np.float64]
    ranks: NDArray[np.int64] | None
    complete: bool = False

    def __len__(self) -> int:
        return len(self.frames)

    def __repr__(self) -> str:
        return f"Prefix({self.video.path!r}, budget={self.budget}, frames={self.frames.tolist()})"

    def must_hold_frames(self) -> None:
        """Refused where there is nothing to show: some selectors choose no frame at a small budget."""
        if not len(self):
            raise BudgetError(f"no frame was chosen for a budget of {self.budget}")

    def with_frames_of(self, other: Prefix) -> Prefix:
        """Both, in time order, under the larger budget."""
        frames, places = np.unique(np.concatenate([self.frames, other.frames]), return_index=True)
        seconds = np.concatenate([self.seconds, other.seconds])[places]
        both = self.ranks is not None and other.ranks is not None
        ranks = np.concatenate([self.ranks, other.ranks])[places] if both else None
        return Prefix(self.video, max(self.budget, other.budget), frames, seconds, ranks)
