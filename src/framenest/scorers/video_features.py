"""A video as one scorer sees it: each frame is decoded and encoded once."""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
from numpy.typing import NDArray

from framenest.cache.eviction import FeaturesLimit
from framenest.errors import CacheWarning, ScorerError
from framenest.frames import FrameBatch, ImageSpec, Pixels, VideoInfo
from framenest.progress import Timing
from framenest.protocols import (
    Decoder,
    KeepsTime,
    MatchStrength,
    MeasuresMatch,
    Progress,
    Scorer,
    SetsBatchSize,
    Store,
    TellsReach,
    WarmsUp,
)
from framenest.scorers.feature_store import FeatureParts, Features, features_key

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


Passing = Callable[[], NDArray[np.int64]]
"""Names frames that are decoded on the way to others; asked only where something is decoded."""
SMALLEST_BATCH = 16
"""Frames that are waited for before more are encoded, unless those are the last or the scorer likes fewer."""
NO_FRAMES: NDArray[np.int64] = np.zeros(0, np.int64)


class KeptUnfinished(CacheWarning):
    """Work on a video was interrupted; what was done by then is kept."""


class FeatureCache:
    """One video as one scorer sees it: each frame is decoded and encoded once, then remembered.

    Args:
        decoder: the video.
        scorer: None where only thumbnails are wanted.
        thumbnail: short side of the thumbnails, in pixels.
        store: where features are kept between runs.
        progress: called as progress(stage, done, total).
        timing: the clock that stages are counted on.
        keep: features of any size in the store, or none of them; None: up to 512 MiB.
        limit: what the features of all videos may take in the store.
    """

    def __init__(
        self,
        decoder: Decoder,
        scorer: Scorer | None,
        thumbnail: int,
        store: Store,
        progress: Progress,
        timing: Timing,
        *,
        keep: bool | None = None,
        limit: FeaturesLimit | None = None,
    ) -> None:
        self.decoder = decoder
        self.scorer = scorer
        self.decoded = 0
        """Frames decoded so far."""
        self._thumbnail = ImageSpec.short_side(thumbnail)
        self._pictures = (self._thumbnail, *(scorer.inputs if scorer else ()))
        self._progress = progress
        self._timing = timing
        self._reach = scorer if isinstance(scorer, TellsReach) else None
        self._measures = scorer if isinstance(scorer, MeasuresMatch) else None
        self._keeps_time = scorer if isinstance(scorer, KeepsTime) else None
        key = partial(features_key, decoder, scorer, thumbnail)
        self._parts = FeatureParts(key, scorer, store, keep, limit or FeaturesLimit(store))
        self._ahead: ReadAhead | None = None
        self._held = HeldPictures(decoder.info, self._pictures)

    @property
    def nbytes(self) -> int:
        """Bytes of all features and pictures in memory."""
        return self._parts.nbytes + self._held.nbytes

    @property
    def _inner_timing(self) -> Timing | None:
        return self._keeps_time.timing if self._keeps_time is not None else None

    def see(self, frames: NDArray[np.int64], stage: str, passing: Passing = lambda: NO_FRAMES) -> Features:
        """Features of those of the frames that decode, in ascending order.

        Where the work is interrupted, what is encoded by then is kept, and the next call goes on from there.
        Pictures of frames in `passing` are held in memory for later.
        """
        wanted = self._parts.missing(frames)
        if len(wanted) or not self._parts:
            new = Features.gather(self._pieces(wanted, stage, passing))
            if len(new.frames) or not self._parts:
                self._parts.add(new)
        return Features.gather(self._parts.take(frames) or [self._nothing()])

    def _pieces(self, frames: NDArray[np.int64], stage: str, passing: Passing) -> list[Features]:
        pieces = [self._nothing()]
        try:
            for piece in self._decode(frames, stage, passing):
                pieces.append(piece)
        except BaseException:  # Ctrl-C, a cancelled job, a video that breaks off
            done = Features.gather(pieces)
            if len(done.frames) and self._parts.add(done):
                self.finish()
                text = f"{len(done.frames)} of {len(frames)} frames were done and are kept for the next run"
                warnings.warn(text, KeptUnfinished, stacklevel=2)
            raise
        return pieces

    def finish(self) -> None:
        """Wait until what goes to the store is written there."""
        self._parts.finish()

    def take_over(self, begun: ReadAhead) -> None:
        """Frames whose decoding began before the scorer was loaded; dropped where they are known already."""
        if self._parts:
            begun.close()
        else:
            self._ahead = begun

    def see_or_replace(
        self,
        wanted: NDArray[np.int64],
        probes: NDArray[np.int64],
        stage: str,
        *,
        first: int = 0,
        passing: Passing = lambda: NO_FRAMES,
    ) -> tuple[Features, list[tuple[int, int]]]:
        """Features of the frames wanted, and (wanted, used) pairs where another one stands in.

        For a frame that will not decode, the nearest earlier one that does stands in, if it lies after the
        probe before (from `first` on where there is none) and is not taken already; else the frame is
        dropped, and used is −1. `passing` is as for `see`.
        """
        seen = self.see(wanted, stage, passing)
        taken = {*seen.frames.tolist(), *probes.tolist()}
        pairs = []
        for number in seen.missing(wanted).tolist():
            before = probes[probes < number]
            stretch = range(int(before[-1]) + 1 if len(before) else first, number)
            used = max((n for n in self._decodes(stretch) if n not in taken), default=-1)
            pairs.append((number, used))
            taken.add(used)
        extra = [used for _, used in pairs if used >= 0]
        return (self.see(np.union1d(seen.frames, extra), stage) if extra else seen), pairs

    def relevance(self, seen: Features, question: str | None, reference: Features) -> NDArray[np.float32]:
        """Ask the scorer how well frames match a question.

        Args:
            seen: the frames (n of them).
            question: None gives zeros.
            reference: the probes, for scorers that normalise over the video.

        Returns:
            (n,) relevance in [0, 1].

        Raises:
            ScorerError: the scorer returned something else.
        """
        count = len(seen.frames)
        if question is None or self.scorer is None or not count:
            return np.zeros(count, dtype=np.float32)
        if self._reach is not None:
            self._reach.tell_reach(self.decoder.info)
            self._reach = None  # once
        with self._timing("match", self._inner_timing):
            found = self.scorer.match(seen.encoded, question, reference=reference.encoded)
        relevance = np.asarray(found, dtype=np.float32)
        if relevance.shape != (count,) or not ((relevance >= 0) & (relevance <= 1)).all():
            span = f"from {relevance.min():.3g} to {relevance.max():.3g}" if relevance.size else "nothing"
            raise ScorerError(
                f"scorer {self.scorer.name!r} must return {count} numbers in [0, 1]; "
                f"it returned shape {relevance.shape}, {span}"
            )
        return relevance

    def match_strength(self, probes: Features, question: str | None) -> MatchStrength | None:
        """How surely anything in the video matches; None where there is no telling."""
        if question is None or self._measures is None:
            return None
        with self._timing("match", self._inner_timing):
            return self._measures.match_strength(probes.encoded, question)

    def _decode(self, frames: NDArray[np.int64], stage: str, passing: Passing) -> Iterator[Features]:
        if not len(frames):
            return
        self._parts.tell_size(len(frames), self._nothing())
        done = 0
        self._progress(stage, 0, len(frames))
        warming = threading.Thread(target=self._warm_up, name="framenest-warm-up", daemon=True)
        warming.start()
        try:
            for batch in self._batches(frames, passing):
                warming.join()
                yield self._encode(batch, stage if stage in ("text", "rerank") else "encode")
                done += len(batch)
                self._progress(stage, done, len(frames))
        finally:
            warming.join()  # model libraries abort the process if they are cut off
        self._progress(stage, len(frames), len(frames))
        self.decoded += done

    def _warm_up(self) -> None:
        if isinstance(self.scorer, WarmsUp):
            with suppress(Exception):  # what is wrong comes up again in `encode`, which is not suppressed
                self.scorer.warm_up()

    def _batches(self, frames: NDArray[np.int64], passing: Passing) -> Iterator[FrameBatch]:
        """The decoder's batches, joined to as many frames as the scorer likes at once.

        While one is encoded, the next is decoded. The last ones are smaller, so that little is left to encode
        when everything is decoded.
        """
        size = self.scorer.batch if isinstance(self.scorer, SetsBatchSize) else 1
        to_come = len(frames)
        held = self._held.take(frames)
        waiting = [] if held is None else [held]
        left = frames if held is None else np.setdiff1d(frames, held.frames)
        with self._begun(left, passing) as decoded:
            while True:
                with self._timing("decode"):
                    batch = decoded.next()
                if batch is not None:
                    wanted = np.isin(batch.frames, left)
                    self._held.hold(batch.rows(~wanted))
                    waiting.append(batch.rows(wanted))
                ready = sum(map(len, waiting))
                if ready >= (min(size, max(SMALLEST_BATCH, to_come // 2)) if batch is not None else 1):
                    yield FrameBatch.join(waiting)
                    waiting, to_come = [], to_come - ready
                if batch is None:
                    return

    def _begun(self, frames: NDArray[np.int64], passing: Passing) -> ReadAhead:
        """The frames being decoded: what was begun already, where it is the same."""
        frames = np.union1d(frames, self._held.affordable(passing()))
        begun, self._ahead = self._ahead, None
        if begun is not None:
            if np.array_equal(begun.frames, frames) and begun.sizes == self._pictures:
                return begun
            begun.close()
        return ReadAhead(self.decoder, frames, self._pictures)

    def _encode(self, batch: FrameBatch, timed: str = "encode") -> Features:
        thumbnails, *pictures = batch.pixels
        if self.scorer is None:
            return Features(batch.frames, thumbnails, {})
        with self._timing(timed, self._inner_timing):
            encoded = self.scorer.encode(FrameBatch(batch.frames, batch.seconds, tuple(pictures)))
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
