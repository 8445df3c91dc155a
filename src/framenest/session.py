"""Session: the open videos, the scorers, the store and the clock that selectors share."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import local_directory
from framenest.cache.eviction import FeaturesLimit
from framenest.cache.hashes import digest
from framenest.cache.remote import open_store
from framenest.config import ScorerConfig
from framenest.errors import ConfigError, FramenestError, IndexMismatch, ScorerError
from framenest.frames import ImageSpec, VideoInfo
from framenest.progress import Bars, ShowProgress, Timing
from framenest.protocols import Decoder, NamesRelevance, Progress, Scorer, Store
from framenest.scorers import known_inputs, load_scorer
from framenest.scorers.loading import Loading
from framenest.scorers.ocr import ScreenText
from framenest.scorers.question_text import SentenceEncoder
from framenest.scorers.speech import Passage, Speech
from framenest.scorers.video_features import FeatureCache, HeldPictures, Passing, ReadAhead
from framenest.transcript import AUTO, NONE, Transcript, find_transcript
from framenest.video import pyav as _ready  # noqa: F401 - imported now, not while somebody waits for a video
from framenest.video.opening import must_not_fetch_unasked, open_video

MEMORY = 4 * 2**30
"""Bytes of open videos, indexes and features that a session keeps."""
MOST_KEPT = 512
"""However small they are."""

Video = str | os.PathLike[str] | Decoder | np.ndarray[Any, Any]
Kept = TypeVar("Kept")


class Session:
    """Opens each video once and shows it to each scorer once, whoever asks.

    Open videos, indexes and features share one bound on memory; beyond it the least recently used are
    evicted, so a session can go through any number of videos.

    Args:
        scorer: a name, a Scorer, or None for rankings without a question.
        store: a directory, an address (s3://…) or a Store for indexes and features; by default the user's
            cache.
        progress: bars on a terminal or in a notebook when work takes over a second; False for none, or a
            function that is called as progress(stage, done, total).
        keep_features: keep features of any size in the store, or none; by default up to 512 MiB a video.
        scoring: how the scorer runs, a second pass, text on screen.
        decoder: for video files and URLs: "pyav", "pyav:cuda" or another one; see `open_video`.
        allow_playlists: open videos that are playlists, too; see `open_video`.
        memory: the bound, in bytes.

    >>> session = Session(scorer=None)
    >>> session.open(np.zeros((10, 36, 64, 3), np.uint8), fps=5).info.duration
    2.0
    """

    def __init__(
        self,
        scorer: str | Scorer | None = "auto",
        *,
        store: Store | str | os.PathLike[str] | None = None,
        progress: ShowProgress = True,
        keep_features: bool | None = None,
        scoring: ScorerConfig | None = None,
        decoder: str = "pyav",
        allow_playlists: bool = False,
        memory: int = MEMORY,
    ) -> None:
        self.scoring = scoring or ScorerConfig()
        self.store = open_store(store) if store is None or isinstance(store, (str, os.PathLike)) else store
        self.progress: Progress = Bars(off=not progress) if isinstance(progress, bool) else progress
        self.timing = Timing()
        self._keep_features = keep_features
        self.features_limit = FeaturesLimit(self.store)
        self._decoder = decoder
        self._allow_playlists = allow_playlists
        self._local = local_directory(self.store)
        self._wanted_scorer = scorer
        self._loaded: dict[str, Scorer] = {}
        self._loading: dict[str, Loading] = {}
        self._encoder: SentenceEncoder | None = None
        self._memory = memory
        self._kept: dict[tuple[Any, ...], Any] = {}
        """Decoders, indexes and feature caches, the least recently used first."""

    @property
    def scorer(self) -> Scorer | None:
        """The scorer in use; loaded when first needed."""
        wanted = self._wanted_scorer
        return None if wanted is None else self._load("scorer", wanted, self.scoring)

    @property
    def reranker(self) -> Scorer | None:
        """The scorer of the second pass; None without one."""
        if not self.scoring.rerank:
            return None
        return self._load(
            "reranker", self.scoring.reranker, replace(self.scoring, calibration="none", revision=None)
        )

    @property
    def ocr(self) -> Scorer | None:
        """What reads text on screen; None where none is to be read."""
        return self._load("ocr", "ocr", self.scoring) if self.scoring.ocr else None

    def _load(self, role: str, wanted: str | Scorer, scoring: ScorerConfig) -> Scorer:
        if role not in self._loaded:
            with self.timing("load"):
                begun = self._loading.pop(role, None)
                if begun is None:
                    self._loaded[role] = load_scorer(wanted, self._local, scoring, self.progress)
                else:
                    self._loaded[role] = begun.scorer()
        return self._loaded[role]

    def showing(self) -> AbstractContextManager[Any]:
        """For `with` around long work: its progress bars are there until it is done."""
        return self.progress if isinstance(self.progress, Bars) else nullcontext()

    def begin_loading(self) -> None:
        """Load the scorer in a thread of its own, so that a video can be opened and decoded meanwhile."""
        wanted = self._wanted_scorer
        if isinstance(wanted, str) and not {"scorer"} & (self._loaded.keys() | self._loading.keys()):
            self._loading["scorer"] = Loading(wanted, self._local, self.scoring, self.progress)

    def begin_decoding(
        self, decoder: Decoder, frames: NDArray[np.int64], passing: Passing, thumbnail: int
    ) -> ReadAhead | None:
        """Begin to decode frames that the scorer will want to see, before it is loaded.

        Args:
            decoder: the video.
            frames: (n,) frame numbers, ascending.
            passing: as for `FeatureCache.see`.
            thumbnail: short side of the thumbnails, in pixels.

        Returns:
            What `FeatureCache.take_over` takes; None where the pictures that the scorer wants are not known
            before, or it is loaded already.
        """
        loading = self._loading.get("scorer")
        pictures = None if loading is None else known_inputs(loading.wanted, self._local, self.scoring)
        if loading is None or pictures is None:
            return None
        sizes = (ImageSpec.short_side(thumbnail), *pictures)
        passed = HeldPictures(decoder.info, sizes).affordable(passing())
        return ReadAhead(decoder, np.union1d(frames, passed), sizes)

    def check_question(self, question: str | None) -> None:
        """Refuse a question that cannot be answered.

        Raises:
            ConfigError: the question is empty.
            ScorerError: there is a question, and no scorer.
        """
        if question is not None and not question.strip():
            raise ConfigError(
                "the question is empty; pass None (--no-question) for a ranking that follows no question"
            )
        if question is not None and self._wanted_scorer is None:
            raise ScorerError("a question needs a scorer, and none was given (scorer=None)")

    def scorer_for(self, question: str | None) -> Scorer | None:
        """The scorer for a question, which is checked; None without one."""
        self.check_question(question)
        return None if question is None else self.scorer

    def open(self, video: Video, fps: float | None = None) -> Decoder:
        """The open video; the same decoder for the same content at the same path."""
        with self.timing("timeline"):
            file = Path(video) if isinstance(video, (str, os.PathLike)) else None
            # Of a playlist, only opening tells the content.
            if file is not None and file.is_file() and not self._allow_playlists:
                path = str(file.absolute())
                seen = any(key[0] == "video" and key[-1] == path for key in self._kept)
                # A new file's hash is computed while it is opened.
                content = self._local.fingerprint(path) if seen else self._local.known_fingerprint(path)
                if content is not None:
                    return self.keep(("video", content, path), lambda: self._open(video, fps))
            decoder = self._open(video, fps)
        key = ("video", decoder.info.fingerprint, decoder.info.path)
        kept = self.keep(key, lambda: decoder)
        return decoder if decoder is video else kept  # the caller's own stays his own

    def _open(self, video: Video, fps: float | None, stream: int | None = None) -> Decoder:
        return open_video(
            video,
            fps=fps,
            stream=stream,
            decoder=self._decoder,
            allow_playlists=self._allow_playlists,
            store=self.store,
        )

    def reopen(self, video: VideoInfo) -> Decoder:
        """A video seen before; refused where it is not the same any more."""
        key = ("video", video.fingerprint, video.path)
        if key not in self._kept:
            must_not_fetch_unasked(video)
        if key in self._kept and not (Path(video.path).is_file() and video.stream is None):
            known: Decoder = self._kept[key]
            return self.keep(key, lambda: known)
        fps = video.fps if Path(video.path).is_dir() else None
        with self.timing("timeline"):
            decoder = self._open(video.path, fps, video.stream)
        if decoder.info.fingerprint != video.fingerprint:
            raise IndexMismatch(f"{video.path}: the video has changed since it was indexed")
        return self.keep(key, lambda: decoder)

    def features(self, decoder: Decoder, scorer: Scorer | None, thumbnail: int) -> FeatureCache:
        """The video as this scorer sees it."""
        who = (scorer.name, scorer.version) if scorer else None
        video = (decoder.info.fingerprint, decoder.info.path, decoder.name, decoder.version)
        return self.keep(
            ("features", *video, who, thumbnail),
            lambda: FeatureCache(
                decoder,
                scorer,
                thumbnail,
                self.store,
                self.progress,
                self.timing,
                keep=self._keep_features,
                limit=self.features_limit,
            ),
        )

    def screen_text(self, decoder: Decoder, question: str | None, thumbnail: int) -> ScreenText | None:
        """The cue of text on screen; None where none is to be read."""
        reader = self.ocr
        if reader is None or question is None:
            return None
        return ScreenText(self.features(decoder, reader, thumbnail), question, self.scoring.ocr)

    def transcript(self, decoder: Decoder) -> Transcript | None:
        """What is said in a video, found as `ScorerConfig.subtitles` says; None where there is none."""
        wanted = self.scoring.subtitles or NONE
        if wanted == NONE:
            return None
        with self.timing("transcript"):
            return find_transcript(decoder, wanted, self.store)

    def speech(self, transcript: Transcript) -> Speech:
        """A transcript, ready for questions.

        Raises:
            ScorerError: the sentence encoder is not on this machine.
        """
        with self.timing("transcript"):
            if self._encoder is None:
                self._encoder = SentenceEncoder(self._local)
            encoder = self._encoder
            return self.keep(("speech", transcript.lines), lambda: Speech(transcript, encoder, self.store))

    def heard(self, decoder: Decoder, start: float, end: float) -> tuple[Transcript | None, Speech | None]:
        """What is said between two times, in seconds, and the same ready for questions.

        With "auto" a missing sentence encoder is a note of the transcript, and there is no Speech.
        """
        found = self.transcript(decoder)
        if found is None or not found.lines:
            return found, None
        found = found.within(start, end)
        try:
            return found, self.speech(found) if found.lines else None
        except FramenestError as error:
            if self.scoring.subtitles != AUTO:
                raise
            return replace(found, notes=(*found.notes, f"what is said is not weighed: {error}")), None

    def said(self, video: Video, question: str, count: int = 5) -> list[Passage]:
        """What is said in a video that answers a question best.

        Args:
            video: as for `open`.
            question: what is asked.
            count: how many passages.

        Returns:
            Passages with their times in seconds from the first frame, their words and a score in [0, 1],
            the best first; none where there is no transcript.

        Example::

            Session(scoring=ScorerConfig(subtitles="auto")).said("talk.mp4", "Who paid for the ships?")
        """
        found = self.transcript(self.open(video))
        return self.speech(found).best(question, count) if found is not None and found.lines else []

    def held(self) -> list[Any]:
        """Decoders, indexes and feature caches in memory, the least recently used first."""
        return list(self._kept.values())

    def forget(self) -> None:
        """Let go of every open video, index and feature in memory."""
        self._kept.clear()

    def kept(self, key: tuple[Any, ...]) -> Any | None:
        """What is in memory under a key."""
        return self._kept.get(key)

    def keep(self, key: tuple[Any, ...], make: Callable[[], Kept]) -> Kept:
        """What is in memory under a key, made where it is not; evicts the least recently used.

        Sizes are read anew each time, since features grow after they were made.
        """
        item: Kept = self._kept.pop(key) if key in self._kept else make()
        self._kept[key] = item
        total = sum(map(_nbytes, self._kept.values()))
        while len(self._kept) > 1 and (total > self._memory or len(self._kept) > MOST_KEPT):
            total -= _nbytes(self._kept.pop(next(iter(self._kept))))
        return item

    def scoring_name(self, question: str | None, transcript: Transcript | None = None) -> str:
        """Everything that gave the numbers of a ranking, by name. transcript: where it counted."""
        if question is None:
            return scorer_name(None)
        parts = [scorer_name(self.scorer)]
        if self.reranker is not None:
            parts.append(f"best {self.scoring.rerank} reranked by {scorer_name(self.reranker)}")
        if self.ocr is not None:
            parts.append(f"text on screen by {scorer_name(self.ocr)}, {self.scoring.ocr} frames")
        if transcript is not None:
            which = f"{len(transcript.lines)} lines of {transcript.source}, {digest(transcript.lines)[:8]}"
            parts.append(f"what is said by {SentenceEncoder.name}, {which}")
        return "; ".join(parts)


def _nbytes(item: Any) -> int:
    """Memory of a decoder, an index or features. A decoder that does not tell holds its timeline."""
    size = getattr(item, "nbytes", None)
    return int(8 * item.seconds.nbytes if size is None else size)


def scorer_name(scorer: Scorer | None) -> str:
    """How outputs call a scorer: its name, its version, and how its numbers came into [0, 1]."""
    if scorer is None:
        return "none"
    how = f" ({scorer.relevance})" if isinstance(scorer, NamesRelevance) else ""
    return f"{scorer.name} {scorer.version}{how}"
