"""What all decoders share: check the frame numbers, keep their order, bound the memory of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from framenest.errors import VideoError
from framenest.frames import FrameBatch, ImageSpec, Pixels, VideoInfo

MAX_FRAMES = 64
MAX_BYTES = 64 * 2**20
"""Bytes of pixels in one batch, unless a single frame has more."""

Sizes = Sequence[ImageSpec | None]
Picture = tuple[int, list[Pixels]]
"""A frame number, and the frame at each size asked for."""


class PictureDecoder(ABC):
    """A Decoder, given `_pictures`: any frames in any order, in batches of bounded memory."""

    info: VideoInfo
    seconds: NDArray[np.float64]
    key_frames: NDArray[np.int64]

    def read(
        self, frames: Sequence[int] | NDArray[np.int64], *, sizes: Sizes = (None,)
    ) -> Iterator[FrameBatch]:
        """Decode frames by number, in the order asked; see `framenest.Decoder`."""
        wanted, last = np.asarray(frames, dtype=np.int64).reshape(-1), self.info.num_frames - 1
        wrong = wanted[(wanted < 0) | (wanted > last)]
        if wrong.size:
            raise VideoError(f"{self.info.path}: no frame {wrong[0]}; its frames are 0 to {last}")
        return self._batches(wanted, sizes)

    @abstractmethod
    def _pictures(self, ascending: NDArray[np.int64], sizes: Sizes) -> Iterator[Picture]:
        """Pictures of ascending frame numbers; frames that will not decode are left out."""

    def _batches(self, wanted: NDArray[np.int64], sizes: Sizes) -> Iterator[FrameBatch]:
        most = self._batch_size(sizes)
        pictures = self._in_order(wanted, sizes, most)
        while rows := list(islice(pictures, most)):
            frames = np.array([number for number, _ in rows], dtype=np.int64)
            columns = zip(*(pixels for _, pixels in rows), strict=True)
            yield FrameBatch(frames, self.seconds[frames], tuple(np.stack(column) for column in columns))

    def _in_order(self, wanted: NDArray[np.int64], sizes: Sizes, most: int) -> Iterator[Picture]:
        """Pictures in the order asked, repeats included."""
        if len(wanted) and (np.diff(wanted) > 0).all():
            yield from self._pictures(wanted, sizes)
            return
        for at in range(0, len(wanted), most):
            some = wanted[at : at + most]
            found = dict(self._pictures(np.unique(some), sizes))
            yield from ((number, found[number]) for number in some.tolist() if number in found)

    def _picture_bytes(self, sizes: Sizes) -> int:
        """Bytes of one frame at all sizes."""
        width, height = self.info.width, self.info.height
        return 3 * sum(int(np.prod(spec.size(width, height))) if spec else width * height for spec in sizes)

    def _batch_size(self, sizes: Sizes) -> int:
        return max(1, min(MAX_FRAMES, MAX_BYTES // max(1, self._picture_bytes(sizes))))
