"""Sight: a video as one scorer sees it. Decodes and encodes each frame once, and remembers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from framenest.features import Features
from framenest.frames import FrameBatch, ImageSpec
from framenest.protocols import Decoder, Progress, Scorer, Store
from framenest.store import digest, keep
from framenest.timing import Timing

KEPT_BY_DEFAULT = 64 * 2**20
"""Features of one video up to this many bytes go to the store; larger ones only when asked for."""


class Sight:
    """Thumbnails and question-free features of any frames of a video, decoded only when not seen before."""

    def __init__(
        self,
        decoder: Decoder,
        scorer: Scorer | None,
        thumbnail: int,
        store: Store,
        progress: Progress,
        timing: Timing,
        *,
        keep_all: bool = False,
    ) -> None:
        self.decoder = decoder
        self._scorer = scorer
        self._thumbnail = ImageSpec.short_side(thumbnail)
        self._pictures = (self._thumbnail, *(scorer.inputs if scorer else ()))
        self._store = store
        self._progress = progress
        self._timing = timing
        self._keep_all = keep_all
        self._key = features_key(decoder, scorer, thumbnail)
        kept = store.get(self._key)
        self._seen = Features.from_parts(*kept) if kept else None
        self._decoded = 0

    def see(self, frames: NDArray[np.int64], stage: str) -> Features:
        """Features of those of the frames that decode, in ascending order."""
        wanted = frames if self._seen is None else self._seen.missing(frames)
        parts = [*self._decode(wanted, stage)]
        if parts or self._seen is None:
            self._seen = Features.gather([*([self._seen] if self._seen else [self._nothing()]), *parts])
            if self._keep_all or self._seen.nbytes < KEPT_BY_DEFAULT:
                keep(self._store, self._key, self._seen.header(), self._seen.arrays())
        return self._seen.take(np.intersect1d(frames, self._seen.frames))

    def decodable(
        self, wanted: NDArray[np.int64], probes: NDArray[np.int64], stage: str, first: int = 0
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Frames to use for those wanted, and (wanted, used) pairs where they differ.

        For a frame that will not decode, the nearest earlier one that does stands in, if it lies after
        the probe before (from `first` on where there is none) and is not taken already; else the frame
        is dropped, and used is −1.
        """
        seen = self.see(wanted, stage).frames
        used = set(seen.tolist())
        taken = used | set(probes.tolist())
        pairs = []
        for number in wanted[~np.isin(wanted, seen)].tolist():
            before = probes[probes < number]
            stretch = range(int(before[-1]) + 1 if len(before) else first, number)
            found = [n for n in self._decodes(stretch) if n not in taken]
            pairs.append((number, found[-1] if found else -1))
            if found:
                used.add(found[-1])
                taken.add(found[-1])
        frames = np.array(sorted(used), dtype=np.int64)
        self.see(frames, stage)
        return frames, np.array(pairs, dtype=np.int64).reshape(-1, 2)

    def take_decoded(self) -> int:
        """How many frames were decoded since this was last asked."""
        count, self._decoded = self._decoded, 0
        return count

    def _decode(self, frames: NDArray[np.int64], stage: str) -> list[Features]:
        if not len(frames):
            return []
        parts, done = [], 0
        batches = self.decoder.read(frames, sizes=self._pictures)
        self._progress(stage, 0, len(frames))
        while True:
            with self._timing("decode"):
                batch = next(batches, None)
            if batch is None:
                break
            parts.append(self._encode(batch))
            done += len(batch)
            self._progress(stage, done, len(frames))
        self._progress(stage, len(frames), len(frames))
        self._decoded += done
        return parts

    def _encode(self, batch: FrameBatch) -> Features:
        thumbnails, *pictures = batch.pixels
        if self._scorer is None:
            return Features(batch.frames, thumbnails, {})
        with self._timing("encode"):
            encoded = self._scorer.encode(FrameBatch(batch.frames, batch.seconds, tuple(pictures)))
        return Features(batch.frames, thumbnails, dict(encoded))

    def _decodes(self, frames: Sequence[int]) -> list[int]:
        """Those of the frames that decode."""
        if not frames:
            return []
        found = self.decoder.read(list(frames), sizes=(self._thumbnail,))
        return [number for batch in found for number in batch.frames.tolist()]

    def _nothing(self) -> Features:
        """No frames, in the shapes that this scorer's features have."""
        info = self.decoder.info
        sizes = [spec.size(info.width, info.height) for spec in self._pictures]
        pixels = tuple(np.zeros((0, height, width, 3), np.uint8) for width, height in sizes)
        return self._encode(FrameBatch(np.zeros(0, np.int64), np.zeros(0), pixels))


def features_key(decoder: Decoder, scorer: Scorer | None, thumbnail: int) -> str:
    """Under which a store keeps what this scorer has seen of the video."""
    who = [scorer.name, scorer.version] if scorer else None
    name = digest(decoder.info.fingerprint, decoder.name, decoder.version, thumbnail, who)
    return f"features/{name}"
