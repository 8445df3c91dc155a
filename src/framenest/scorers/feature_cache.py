"""FeatureCache: a video as one scorer sees it. Decodes and encodes each frame once, and remembers."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
from numpy.typing import NDArray

from framenest.cache.features_limit import FeaturesLimit
from framenest.errors import ScorerError
from framenest.frames import FrameBatch, ImageSpec
from framenest.noted_warnings import CacheWarning
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
from framenest.scorers.feature_parts import FeatureParts, features_key
from framenest.scorers.features import Features
from framenest.scorers.held_pictures import HeldPictures
from framenest.scorers.read_ahead import ReadAhead
from framenest.timing import Timing

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
