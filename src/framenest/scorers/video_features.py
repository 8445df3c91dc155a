"""The features of one video and scorer: each frame is decoded once and encoded once."""

from __future__ import annotations

import queue
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import numpy as np

from framenest.cache.directory import FeaturesLimit
from framenest.errors import CacheWarning, ScorerError
from framenest.frames import Floats, FrameBatch, ImageSpec, Ints
from framenest.progress import Timing
from framenest.protocols import (
    Batcher,
    Grader,
    Judge,
    Labeller,
    MatchStrength,
    Progress,
    Scorer,
    Store,
    Timer,
)
from framenest.scorers.feature_store import FeatureParts, Features, features_key, finish_writes
from framenest.video.decoder import Decoder

AHEAD = 12  # batches decoded ahead of the encoder; a decoder's batch takes at most 16 MiB
PASSED_BYTES = 128 * 2**20  # of images of passed frames that one video holds
DETOUR = 0.125
"""Extra decoding allowed for frames just after the last wanted one of a group of pictures, as a share."""
SMALLEST_BATCH = 16
"""Frames to wait for before encoding more, unless they are the last or the scorer's batch is smaller."""
NO_FRAMES: Ints = np.zeros(0, np.int64)


class KeptUnfinished(CacheWarning):
    """Work on a video was interrupted; the frames encoded so far are kept."""


class VideoFeatures:
    """One video as one scorer sees it; without a scorer, only thumbnails.

    thumbnail: their short side in pixels. timing: the clock for the stages. keep, limit: of `FeatureParts`.
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
        self.decoded = 0  # frames decoded so far
        self._sizes = (ImageSpec.short_side(thumbnail), *(scorer.inputs if scorer else ()))
        self._progress = progress
        self._timing = timing
        self._scorer_timing: Timing | None = scorer.timing if isinstance(scorer, Timer) else None
        self._passed: dict[int, FrameBatch] = {}
        with timing("load", self._scorer_timing):
            key = partial(features_key, decoder, scorer, thumbnail)
            self._kept = FeatureParts(key, scorer, store, keep, limit or FeaturesLimit(store))

    @property
    def nbytes(self) -> int:
        """Bytes of features and images in memory."""
        return self._kept.nbytes + self._frame_bytes * len(self._passed)

    @property
    def _frame_bytes(self) -> int:
        info = self.decoder.info
        return 3 * sum(int(np.prod(spec.size(info.width, info.height))) for spec in self._sizes)

    def get(self, frames: Ints, stage: str, passing: Ints = NO_FRAMES) -> Features:
        """Features of the frames (n,), ascending, without those that do not decode.

        Interrupted work keeps the frames encoded so far; the next call continues from there. stage: the name
        for progress. passing: frames that the decoder passes on the way (`on_the_way`), whose images are held
        in memory for a later call.
        """
        wanted = self._kept.missing(frames)
        if len(wanted):
            self._add(wanted, stage, passing)
        return Features.gather(self._kept.take(frames) or [self._nothing()])

    def get_or_nearest(
        self, wanted: Ints, probes: Ints, stage: str, *, first: int = 0, passing: Ints = NO_FRAMES
    ) -> tuple[Features, list[tuple[int, int]]]:
        """As `get`, with the nearest earlier frame for each one that does not decode: pairs (wanted, used).

        A substitute must decode, lie after the previous probe (after `first` if there is none) and not be
        taken already. Without one, the frame is dropped, and used is −1.
        """
        features = self.get(wanted, stage, passing)
        taken = {*features.frames.tolist(), *probes.tolist()}
        pairs = []
        for number in features.missing(wanted).tolist():
            before = probes[probes < number]
            stretch = np.arange(int(before[-1]) + 1 if len(before) else first, number)
            near = self.decoder.read(stretch, sizes=self._sizes[:1])
            used = max((n for batch in near for n in batch.frames.tolist() if n not in taken), default=-1)
            pairs.append((number, used))
            taken.add(used)
        extra = [used for _, used in pairs if used >= 0]
        return (self.get(np.union1d(features.frames, extra), stage) if extra else features), pairs

    def relevance(self, features: Features, question: str | None, reference: Features) -> Floats:
        """(n,) in [0, 1]: how well n frames match a question; zeros without one. reference: the probes.

        Raises ScorerError if the scorer returns something else.
        """
        count = len(features.frames)
        if question is None or self.scorer is None or not count:
            return np.zeros(count, dtype=np.float32)
        with self._timing("match", self._scorer_timing):
            scores = self.scorer.match(features.encoded, question, reference=reference.encoded)
        relevance = np.asarray(scores, dtype=np.float32)
        if relevance.shape != (count,) or not ((relevance >= 0) & (relevance <= 1)).all():
            span = f"from {relevance.min():.3g} to {relevance.max():.3g}" if relevance.size else "nothing"
            raise ScorerError(
                f"scorer {self.scorer.name!r} must return {count} numbers in [0, 1]; "
                f"it returned shape {relevance.shape}, {span}"
            )
        return relevance

    def certainty(self, frames: Features, question: str) -> Floats:
        """(n,) in [0, 1]: how surely frames match, comparable across videos as far as the scorer can tell."""
        if not isinstance(self.scorer, Grader):
            return self.relevance(frames, question, frames)
        with self._timing("match", self._scorer_timing):
            return np.asarray(self.scorer.certainty(frames.encoded, question), dtype=np.float32)

    @property
    def is_relative(self) -> bool:
        """Whether relevance depends on the video, and the scorer has a certainty that does not."""
        return isinstance(self.scorer, Grader) and getattr(self.scorer, "is_relative", True)

    def match_strength(self, probes: Features, question: str | None) -> MatchStrength | None:
        """How strongly anything in the video matches; None if the scorer cannot tell."""
        if question is None or not isinstance(self.scorer, Judge):
            return None
        with self._timing("match", self._scorer_timing):
            return self.scorer.match_strength(probes.encoded, question)

    def labels(self, frames: Features, question: str | None, reference: Features) -> tuple[str, ...]:
        """Why each frame matches, as one line; no lines if the scorer names nothing. reference: the probes.

        Raises ScorerError if the scorer returns something else.
        """
        count = len(frames.frames)
        if question is None or not isinstance(self.scorer, Labeller) or not count:
            return ()
        with self._timing("match", self._scorer_timing):
            lines = tuple(self.scorer.labels(frames.encoded, question, reference.encoded))
        if len(lines) != count or not all(isinstance(line, str) for line in lines):
            raise ScorerError(f"scorer {self.scorer.name!r}: labels must return {count} strings")
        return lines

    def _add(self, frames: Ints, stage: str, passing: Ints) -> None:
        """Decode and encode frames; if interrupted, keep those that are done."""
        done, total, halves = 0, len(frames), 0
        pieces: list[Features] = []

        def tell(count: int) -> None:
            """Decoding a frame counts as half of the work on it, encoding as the other half."""
            nonlocal halves
            halves += count
            self._progress(stage, halves // 2, total)

        held = [self._passed.pop(number) for number in frames.tolist() if number in self._passed]
        tell(len(held))
        left = np.setdiff1d(frames, [int(one.frames[0]) for one in held])
        to_read = np.union1d(left, self._affordable(passing))
        try:
            with read_ahead(self.decoder.read(to_read, sizes=self._sizes)) as decoded:
                pieces.append(self._nothing())
                self._kept.warn_if_not_kept(total, pieces[0])
                for batch in self._batches(held, left, decoded, tell):
                    pieces.append(self._encode(batch, stage if stage in ("text", "rerank") else "encode"))
                    done += len(batch)
                    tell(len(batch))
        except BaseException:  # Ctrl-C, a cancelled job, a truncated video
            if done and self._kept.add(Features.gather(pieces)):
                finish_writes()
                text = f"{done} of {total} frames were done and are kept for the next run"
                warnings.warn(text, KeptUnfinished, stacklevel=3)
            raise
        self._progress(stage, total, total)
        self.decoded += done
        if done:
            self._kept.add(Features.gather(pieces))

    def _batches(
        self, held: list[FrameBatch], left: Ints, decoded: Iterator[FrameBatch], tell: Callable[[int], None]
    ) -> Iterator[FrameBatch]:
        """Batches of the size that the scorer prefers; holds the images of passed frames.

        The last ones are smaller, so that little is left to encode when decoding ends.
        """
        size = self.scorer.batch if isinstance(self.scorer, Batcher) else 1
        waiting, ready, to_come = held, len(held), len(held) + len(left)
        while True:
            with self._timing("decode"):
                batch = next(decoded, None)
            if batch is not None:
                wanted = np.isin(batch.frames, left)
                for row in np.flatnonzero(~wanted):
                    self._passed[int(batch.frames[row])] = batch.rows(np.arange(len(batch)) == row)
                waiting.append(batch.rows(wanted))
                ready += len(waiting[-1])
                tell(len(waiting[-1]))
            if ready >= (min(size, max(SMALLEST_BATCH, to_come // 2)) if batch is not None else 1):
                yield FrameBatch.join(waiting)
                waiting, ready, to_come = [], 0, to_come - ready
            if batch is None:
                return

    def _affordable(self, frames: Ints) -> Ints:
        """As many of the frames as there is memory to hold, evenly spread."""
        room = max(0, PASSED_BYTES // self._frame_bytes - len(self._passed))
        return frames if len(frames) <= room else frames[np.linspace(0, len(frames) - 1, room).astype(int)]

    def _encode(self, batch: FrameBatch, timed: str = "encode") -> Features:
        thumbnails, *images = batch.pixels
        if self.scorer is None:
            return Features(batch.frames, thumbnails, {})
        with self._timing(timed, self._scorer_timing):
            encoded = self.scorer.encode(FrameBatch(batch.frames, batch.seconds, tuple(images)))
        return Features(batch.frames, thumbnails, dict(encoded))

    def _nothing(self) -> Features:
        """Features of no frame, for their shapes."""
        info = self.decoder.info
        sizes = [spec.size(info.width, info.height) for spec in self._sizes]
        pixels = tuple(np.zeros((0, height, width, 3), np.uint8) for width, height in sizes)
        return self._encode(FrameBatch(NO_FRAMES, np.zeros(0), pixels))


@contextmanager
def read_ahead(batches: Iterator[FrameBatch]) -> Iterator[Iterator[FrameBatch]]:
    """Read batches in a thread, AHEAD of the consumer. After Ctrl-C, nothing waits for the thread to end."""
    ready: queue.Queue[FrameBatch | BaseException | None] = queue.Queue(AHEAD)
    stopped = threading.Event()

    def work() -> None:
        last = None
        try:
            for batch in batches:
                ready.put(batch)
                if stopped.is_set():
                    break
            getattr(batches, "close", lambda: None)()  # ends the threads of a generator
        except BaseException as error:
            last = error
        ready.put(last)

    def taken() -> Iterator[FrameBatch]:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    thread = threading.Thread(target=work, name="framenest-decode", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        stopped.set()
        with suppress(queue.Empty):  # room for the batch that is being read, and the end
            while True:
                ready.get_nowait()
        if not isinstance(sys.exception(), KeyboardInterrupt):
            thread.join()


def on_the_way(key_frames: Ints, wanted: Ints, others: Ints) -> Ints:
    """Those of the other frames that cost next to nothing while the wanted ones are decoded. All ascend.

    To reach a frame, a decoder goes through all frames since the previous key frame. These are on the way.
    So are the frames just after the last wanted one of a group of pictures, if all together add little
    (DETOUR).

    >>> on_the_way(np.array([0, 100]), np.array([30, 60]), np.array([10, 50, 62, 120]))
    array([10, 50, 62])
    """
    if not len(wanted):
        return others[:0]
    groups, their_groups = (np.searchsorted(key_frames, frames, side="right") for frames in (wanted, others))
    last = np.searchsorted(groups, their_groups, side="right") - 1  # the last wanted frame of the same group
    same = (last >= 0) & (groups[last] == their_groups)
    behind = same & (others > wanted[last])
    ends = np.append(np.flatnonzero(np.diff(groups)), len(groups) - 1)
    passed = wanted[ends] - np.concatenate([[0], key_frames])[groups[ends]] + 1
    detours = dict(zip(last[behind].tolist(), (others - wanted[last])[behind].tolist(), strict=True))
    little = sum(detours.values()) <= DETOUR * float(passed.sum())
    return np.asarray(others[same if little else same & ~behind])
