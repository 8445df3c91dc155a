"""ReadAhead: frames are decoded in a thread of their own while those before them are encoded."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from framenest.frames import FrameBatch, ImageSpec
from framenest.protocols import Decoder

HELD_BYTES = 64 * 2**20
"""Pixels that may lie decoded and not yet encoded, beside one batch."""


class ReadAhead:
    """Batches of some frames of a video, in order; decoding begins at once, a bounded number of bytes ahead.

    Args:
        decoder: the video.
        frames: (n,) frame numbers, ascending.
        sizes: the pictures wanted of each.
        most: bytes of pixels that may lie ready.

    >>> from framenest.video.stills import ArrayDecoder
    >>> with ReadAhead(ArrayDecoder(np.zeros((9, 36, 64, 3), np.uint8), 5), np.arange(9), [None]) as batches:
    ...     sum(map(len, batches))
    9
    """

    def __init__(
        self,
        decoder: Decoder,
        frames: NDArray[np.int64],
        sizes: Sequence[ImageSpec | None],
        *,
        most: int = HELD_BYTES,
    ) -> None:
        self.frames = frames
        self.sizes = tuple(sizes)
        self._batches = decoder.read(frames, sizes=self.sizes)
        self._most = most
        self._ready: deque[FrameBatch] = deque()
        self._held = 0
        self._error: BaseException | None = None
        self._over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._decode, name="framenest-decode", daemon=True)
        self._thread.start()

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[FrameBatch]:
        while (batch := self.next()) is not None:
            yield batch

    def next(self) -> FrameBatch | None:
        """The next batch, once it is decoded; None after the last. Raises what decoding raised."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._over)
            if self._ready:
                batch = self._ready.popleft()
                self._held -= _nbytes(batch)
                self._changed.notify_all()
                return batch
        if self._error is not None:
            raise self._error
        return None

    def close(self) -> None:
        """Stop decoding."""
        with self._changed:
            self._most = -1
            self._changed.notify_all()
        self._thread.join()
        self._ready.clear()

    def _decode(self) -> None:
        try:
            for batch in self._batches:
                with self._changed:
                    self._changed.wait_for(lambda: self._held <= self._most or self._most < 0)
                    if self._most < 0:
                        break
                    self._ready.append(batch)
                    self._held += _nbytes(batch)
                    self._changed.notify_all()
        except BaseException as error:
            self._error = error
        finally:
            close = getattr(self._batches, "close", None)  # a generator's threads end with it
            if close is not None:
                close()
            with self._changed:
                self._over = True
                self._changed.notify_all()


def _nbytes(batch: FrameBatch) -> int:
    return sum(pixels.nbytes for pixels in batch.pixels)
