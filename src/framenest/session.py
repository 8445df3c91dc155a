"""Session: the open videos, scorers, store and clock that selectors share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from framenest.cache.directory import FeaturesLimit, local_directory
from framenest.cache.hashes import digest
from framenest.cache.remote import open_store
from framenest.config import ScorerConfig, must_be
from framenest.errors import ConfigError, FramenestError, ScorerError
from framenest.listening import load_recognizer, transcribe
from framenest.models import CATALOGUE
from framenest.processes import process_memory, return_memory
from framenest.progress import Bars, ShowProgress, Timing
from framenest.protocols import Explainer, Progress, Scorer, Store
from framenest.scorers import load_scorer
from framenest.scorers.question_text import SentenceEncoder
from framenest.scorers.speech import Passage, Speech
from framenest.scorers.video_features import VideoFeatures
from framenest.transcript import AUTO, NONE, Transcript, find_transcript
from framenest.video.decoder import Decoder
from framenest.video.opening import Video, open_video

MAX_MEMORY_BYTES = 4 * 2**30
"""Default limit for open videos, indexes and features in a session's memory, in bytes."""
MAX_ITEMS = 512  # items in memory at most, however small
ANEW_SECONDS = 60.0  # after which a recognizer that failed is asked again about the same video

Item = TypeVar("Item")


class Session:
    """Opens each video once, and decodes and encodes each frame once, for all selectors.

    Open videos, indexes and features share one memory limit with LRU eviction, so a session can go through
    any number of videos. A pickled session holds its arguments and opens again what it needs; in a forked
    process, the scorer loads again.

    Args:
        scorer: a name, a Scorer, or None for rankings without a question.
        store: a directory, a URL (s3://…) or a Store for indexes and features; by default the user's cache.
        progress: True shows bars on a terminal or in a notebook when work takes over a second, False none;
            or a function, called as progress(stage, done, total).
        keep_features: True caches features of any size in the store, False none; by default up to 512 MiB
            per video.
        scoring: how the scorer runs, a second pass, text on screen.
        decoder: for video files and URLs: "pyav" or another one; see `open_video`.
        memory: the memory limit, in bytes; by default a quarter of what this process may use, at most 4 GiB.

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
        memory: int | None = None,
    ) -> None:
        self._arguments = {name: value for name, value in locals().items() if name != "self"}
        must_be("scoring", scoring, ScorerConfig | None, "a ScorerConfig")
        must_be("store", store, str | os.PathLike | Store | None, "a folder, a URL or a Store")
        self.scoring = scoring or ScorerConfig()
        self.store = open_store(store) if store is None or isinstance(store, (str, os.PathLike)) else store
        self.progress: Progress = Bars(off=not progress) if isinstance(progress, bool) else progress
        self.timing = Timing()
        self._keep_features = keep_features
        self.features_limit = FeaturesLimit(self.store)
        self._decoder = decoder
        self._local = local_directory(self.store)
        self.recognizer = load_recognizer(self.scoring, self._local)
        self._scorer = scorer
        self._loaded: dict[str, Scorer] = {}
        self._encoder: SentenceEncoder | None = None
        self._memory = min(MAX_MEMORY_BYTES, process_memory() // 4) if memory is None else memory
        self._items: dict[tuple[Any, ...], Any] = {}
        """Decoders, indexes and features, the least recently used first."""
        self._has_new = False
        self._unheard = "", 0.0, Transcript("")  # the last video, until when, why

    def __reduce__(self) -> tuple[partial[Session], tuple[()]]:
        return partial(type(self), **self._arguments), ()

    @property
    def scorer(self) -> Scorer | None:
        """The scorer in use. Its weights load in the background from the first access on."""
        scorer = self._scorer
        return None if scorer is None else self._load("scorer", scorer, self.scoring)

    @property
    def reranker(self) -> Scorer | None:
        """The scorer of the second pass; None without one."""
        if not self.scoring.rerank:
            return None
        scoring = replace(self.scoring, calibration="none", revision=None)
        return self._load("reranker", self.scoring.reranker, scoring)

    @property
    def reader(self) -> Scorer | None:
        """The scorer that reads text on screen; None if that is off, or "auto" and not on this machine."""
        needed = [CATALOGUE[name] for name in ("ocr", "tags")]  # the latter for its sentence encoder
        here = all(entry.installed() and entry.here(self._local) for entry in needed)
        reads = here if self.scoring.ocr == "auto" else self.scoring.ocr == "on"
        return self._load("ocr", "ocr", self.scoring) if reads else None

    def _load(self, role: str, scorer: str | Scorer, scoring: ScorerConfig) -> Scorer:
        if role not in self._loaded:
            with self.timing("load"):
                self._loaded[role] = load_scorer(scorer, self._local, scoring, self.progress)
        return self._loaded[role]

    @contextmanager
    def showing(self) -> Iterator[None]:
        """A context for long work; when it ends, progress bars disappear and the memory limit is enforced."""
        with self.progress if isinstance(self.progress, Bars) else nullcontext():
            yield
        self._evict()
        if self._has_new:
            return_memory()
        self._has_new = False

    def scorer_for(self, question: str | None) -> Scorer | None:
        """The scorer for a question; None without a question.

        Raises:
            ConfigError: the question is empty or not a string.
            ScorerError: there is a question but no scorer.
        """
        if question is None:
            return None
        must_be("question", question, str, "a string or None")
        if not question.strip():
            raise ConfigError("the question is empty; pass None to rank without a question")
        if self.scorer is None:
            raise ScorerError("a question needs a scorer, but none was given (scorer=None)")
        return self.scorer

    def open(self, video: Video, fps: float | None = None) -> Decoder:
        """Open a video; returns the same decoder for the same content at the same path."""
        opened = partial(
            open_video, video, fps=fps, decoder=self._decoder, store=self.store, progress=self.progress
        )
        with self.timing("timeline"):
            file = Path(video) if isinstance(video, (str, os.PathLike)) else None
            if file is not None and file.is_file():
                path = str(file.absolute())
                return self.keep(("video", self._local.fingerprint(path), path), opened)
            decoder = opened()
        key = ("video", decoder.info.fingerprint, decoder.info.path)
        shared = self.keep(key, lambda: decoder)
        return decoder if decoder is video else shared  # a caller's decoder is returned as given

    def features(self, decoder: Decoder, scorer: Scorer | None, thumbnail: int) -> VideoFeatures:
        """The features of a video for a scorer; thumbnail: short side in pixels."""
        who = (scorer.name, scorer.version) if scorer else None
        video = (decoder.info.fingerprint, decoder.info.path, decoder.name, decoder.version)
        shared = decoder, scorer, thumbnail, self.store, self.progress, self.timing
        make = partial(VideoFeatures, *shared, keep=self._keep_features, limit=self.features_limit)
        return self.keep(("features", *video, who, thumbnail), make)

    def transcript(self, decoder: Decoder) -> Transcript | None:
        """The transcript of a video as `ScorerConfig.subtitles` and `listen` say; None if there is none."""
        wanted = self.scoring.subtitles or (AUTO if self.recognizer else NONE)
        with self.timing("transcript"):
            transcript = find_transcript(decoder, wanted, self.store)
        if self.recognizer is None or (transcript and transcript.lines):
            return transcript
        video, until, spoken = self._unheard
        if video != decoder.info.fingerprint or monotonic() > until:
            with self.timing("listen"):
                spoken = transcribe(decoder, self.recognizer, self.store, self.progress)
            if not spoken.source:
                self._unheard = decoder.info.fingerprint, monotonic() + ANEW_SECONDS, spoken
        notes, language = (*(transcript.notes if transcript else ()), *spoken.notes), spoken.language or "en"
        if not self.scoring.listen_translate and not language.lower().startswith("en"):
            how = "add --listen-translate (in Python listen_translate=True)"
            notes += (f"the speech is in {language}, but questions are only compared with English; {how}",)
        return replace(spoken, notes=notes)

    def speech(self, transcript: Transcript) -> Speech:
        """A transcript that can be matched with questions.

        Raises:
            ScorerError: the sentence encoder is not on this machine.
        """
        with self.timing("transcript"):
            encoder = self.encoder
            return self.keep(("speech", transcript.lines), lambda: Speech(transcript, encoder, self.store))

    @property
    def encoder(self) -> SentenceEncoder:
        """The sentence encoder; ScorerError if it is not on this machine."""
        if self._encoder is None:
            self._encoder = SentenceEncoder(self._local)
        return self._encoder

    def heard(self, decoder: Decoder, start: float, end: float) -> tuple[Transcript | None, Speech | None]:
        """The transcript between two times, in seconds, and its passages to match with questions.

        With "auto", a missing sentence encoder becomes a note of the transcript, and there are no passages.
        """
        transcript = self.transcript(decoder)
        if transcript is None or not transcript.lines:
            return transcript, None
        transcript = transcript.within(start, end)
        try:
            return transcript, self.speech(transcript) if transcript.lines else None
        except FramenestError as error:
            if self.scoring.subtitles not in (None, AUTO):
                raise
            note = f"the transcript is not used for ranking: {error}"
            return replace(transcript, notes=(*transcript.notes, note)), None

    def said(self, video: Video, question: str, count: int = 5) -> list[Passage]:
        """The passages of a video's transcript that answer a question best.

        Args:
            video: as for `open`.
            question: the question.
            count: how many passages.

        Returns:
            Passages with their times in seconds from the first frame, their words and a score in [0, 1],
            best first; none if there is no transcript.

        Example::

            Session(scoring=ScorerConfig(subtitles="auto")).said("talk.mp4", "Who paid for the ships?")
        """
        transcript = self.transcript(self.open(video))
        if transcript is None or not transcript.lines:
            return []
        return self.speech(transcript).best(question, count)

    def held(self) -> list[Any]:
        """Decoders, indexes and features in memory, the least recently used first."""
        return list(self._items.values())

    def forget(self) -> None:
        """Drop all open videos, indexes and features from memory."""
        self._items.clear()

    def keep(self, key: tuple[Any, ...], make: Callable[[], Item]) -> Item:
        """The item in memory under a key, created if missing; evicts the least recently used items.

        Sizes are summed again each time, because features grow.
        """
        self._has_new |= key not in self._items
        item: Item = self._items.pop(key) if key in self._items else make()
        self._items[key] = item
        self._evict()
        return item

    def _evict(self) -> None:
        total = sum(map(_nbytes, self._items.values()))
        while len(self._items) > 1 and (total > self._memory or len(self._items) > MAX_ITEMS):
            total -= _nbytes(self._items.pop(next(iter(self._items))))

    def scoring_name(
        self, question: str | None, transcript: Transcript | None = None, reader: Scorer | None = None
    ) -> str:
        """The names of everything that scores a question.

        transcript, reader: the one that counts, and the scorer that reads text on screen, if any.
        """
        if question is None:
            return scorer_name(None)
        parts = [scorer_name(self.scorer)]
        if self.reranker is not None:
            parts.append(f"best {self.scoring.rerank} reranked by {scorer_name(self.reranker)}")
        if reader is not None:
            parts.append(f"text on screen by {reader.name} {reader.version} and {SentenceEncoder.name}")
        if transcript is not None:
            which = f"{len(transcript.lines)} lines of {transcript.source}, {digest(transcript.lines)[:8]}"
            parts.append(f"what is said by {SentenceEncoder.name}, {which}")
        return "; ".join(parts)


def _nbytes(item: Any) -> int:
    """Bytes of a decoder, an index or features; by its timeline for a decoder without `nbytes`."""
    size = getattr(item, "nbytes", None)
    return int(8 * item.seconds.nbytes if size is None else size)


def scorer_name(scorer: Scorer | None) -> str:
    """A scorer in outputs: its name, its version, and how its scores become relevance in [0, 1]."""
    if scorer is None:
        return "none"
    how = scorer.relevance if isinstance(scorer, Explainer) else ""
    return f"{scorer.name} {scorer.version}" + (f" ({how})" if how else "")
