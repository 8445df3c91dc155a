"""Session: the open videos, the scorer, the store and the clock that selectors share."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import DirectoryStore
from framenest.cache.remote import open_store
from framenest.config import ScorerConfig
from framenest.errors import ConfigError, IndexMismatch, ScorerError
from framenest.frames import VideoInfo
from framenest.protocols import Decoder, Encoded, Progress, Scorer, Store
from framenest.scorers import load_scorer
from framenest.scorers.feature_cache import FeatureCache
from framenest.scorers.screen_text import ScreenText
from framenest.timing import Timing
from framenest.video import open_video

KEPT_IN_MEMORY = 4 * 2**30
"""Bytes of features of all videos together; beyond, those of the video used longest ago are let go."""

Video = str | os.PathLike[str] | Decoder | np.ndarray[Any, Any]


class Session:
    """Opens each video once and shows it to each scorer once, whoever asks.

    scorer: a name, a Scorer or None; scoring: how it runs. store: a directory, an address (s3://…) or a
    Store for indexes and features, by default the user's cache. progress(stage, done, total) is called
    during long work.
    """

    def __init__(
        self,
        scorer: str | Scorer | None = "auto",
        *,
        store: Store | str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        keep_features: bool = False,
        scoring: ScorerConfig | None = None,
    ) -> None:
        self.scoring = scoring or ScorerConfig()
        self.store = open_store(store) if store is None or isinstance(store, (str, os.PathLike)) else store
        self.progress: Progress = progress or (lambda *_: None)
        self.timing = Timing()
        self._keep_features = keep_features
        self._local = self.store if isinstance(self.store, DirectoryStore) else DirectoryStore()
        self._wanted_scorer = scorer
        self._loaded: dict[str, Scorer] = {}
        self._decoders: dict[tuple[str, str], Decoder] = {}
        self._sights: dict[tuple[Any, ...], FeatureCache] = {}

    @property
    def scorer(self) -> Scorer | None:
        """The scorer in use; loaded when first needed."""
        return (
            None if self._wanted_scorer is None else self._load("scorer", self._wanted_scorer, self.scoring)
        )

    @property
    def reranker(self) -> Scorer | None:
        """The scorer of the second pass; None without one."""
        if not self.scoring.rerank:
            return None
        return self._load("reranker", self.scoring.reranker, replace(self.scoring, calibration="none"))

    @property
    def reader(self) -> Scorer | None:
        """What reads text on screen; None where none is to be read."""
        return self._load("reader", "ocr", self.scoring) if self.scoring.ocr else None

    def _load(self, role: str, wanted: str | Scorer, scoring: ScorerConfig) -> Scorer:
        if role not in self._loaded:
            with self.timing("load"):
                self._loaded[role] = load_scorer(wanted, self._local, scoring, self.progress)
        return self._loaded[role]

    def with_scorer(self, scorer: Scorer) -> Session:
        """Another scorer over the same open videos, clock, and features where name and version agree."""
        other = Session(
            scorer,
            store=self.store,
            progress=self.progress,
            keep_features=self._keep_features,
            scoring=self.scoring,
        )
        other.timing, other._decoders, other._sights = self.timing, self._decoders, self._sights
        other._loaded = {role: model for role, model in self._loaded.items() if role != "scorer"}
        return other

    def anew(self) -> Session:
        """The same scorers, loaded once, with no video open."""
        other = Session(
            self._wanted_scorer,
            store=self.store,
            progress=self.progress,
            keep_features=self._keep_features,
            scoring=self.scoring,
        )
        other._loaded = self._loaded
        return other

    def scorer_for(self, question: str | None) -> Scorer | None:
        """None without a question; with one, there must be a scorer."""
        check_question(question)
        if question is None:
            return None
        if self.scorer is None:
            raise ScorerError("a question needs a scorer, and none was given (scorer=None)")
        return self.scorer

    def open(self, video: Video, fps: float | None = None) -> Decoder:
        """The open video; the same decoder for the same content at the same path."""
        with self.timing("timeline"):
            if isinstance(video, (str, os.PathLike)) and Path(video).is_file():
                path = str(Path(video).absolute())
                known = self._decoders.get((self._local.fingerprint(path), path))
                if known is not None:
                    return known
            decoder = open_video(video, fps=fps, store=self._local)
        if decoder is video:  # the caller's own, whatever else is known of this video
            self._decoders.setdefault((decoder.info.fingerprint, decoder.info.path), decoder)
            return decoder
        return self._decoders.setdefault((decoder.info.fingerprint, decoder.info.path), decoder)

    def reopen(self, video: VideoInfo) -> Decoder:
        """A video seen before; refused where it is not the same any more."""
        on_disk = Path(video.path).is_file()
        known = self._decoders.get((video.fingerprint, video.path))
        if known is not None and not (on_disk and video.stream is None):
            return known
        fps = video.fps if Path(video.path).is_dir() else None
        with self.timing("timeline"):
            decoder = open_video(video.path, fps=fps, stream=video.stream, store=self._local)
        if decoder.info.fingerprint != video.fingerprint:
            raise IndexMismatch(f"{video.path}: the video has changed since it was indexed")
        return self._decoders.setdefault((video.fingerprint, video.path), decoder)

    def sight(self, decoder: Decoder, scorer: Scorer | None, thumbnail: int) -> FeatureCache:
        """The video as this scorer sees it."""
        who = (scorer.name, scorer.version) if scorer else None
        key = (decoder.info.fingerprint, decoder.info.path, decoder.name, decoder.version, who, thumbnail)
        sight = self._sights.pop(key, None) or FeatureCache(
            decoder,
            scorer,
            thumbnail,
            self.store,
            self.progress,
            self.timing,
            keep_all=self._keep_features,
        )
        self._sights[key] = sight  # the last one is the one used last
        while len(self._sights) > 1 and sum(s.nbytes for s in self._sights.values()) > KEPT_IN_MEMORY:
            self._sights.pop(next(iter(self._sights)))
        return sight

    def reading(self, decoder: Decoder, thumbnail: int) -> ScreenText | None:
        """The video's text on screen, with the seconds given for it; None where none is to be read."""
        reader = self.reader
        if reader is None:
            return None
        return ScreenText(self.sight(decoder, reader, thumbnail), reader, self.scoring.ocr)

    def scoring_name(self, question: str | None) -> str:
        """Everything that gave the numbers of a ranking, by name."""
        if question is None:
            return scorer_name(None)
        parts = [scorer_name(self.scorer)]
        if self.reranker is not None:
            parts.append(f"best {self.scoring.rerank} reranked by {scorer_name(self.reranker)}")
        if self.reader is not None:
            parts.append(f"text on screen by {scorer_name(self.reader)}")
        return "; ".join(parts)

    def relevance(
        self, scorer: Scorer | None, question: str | None, encoded: Encoded, reference: Encoded, count: int
    ) -> NDArray[np.float32]:
        """(count,) relevance in [0, 1], checked; zeros without a question."""
        if question is None or scorer is None or not count:
            return np.zeros(count, dtype=np.float32)
        with self.timing("match", getattr(scorer, "timing", None)):
            relevance = np.asarray(scorer.match(encoded, question, reference=reference), dtype=np.float32)
        if relevance.shape != (count,) or not ((relevance >= 0) & (relevance <= 1)).all():
            found = f"from {relevance.min():.3g} to {relevance.max():.3g}" if relevance.size else "nothing"
            raise ScorerError(
                f"scorer {scorer.name!r} must return {count} numbers in [0, 1]; "
                f"it returned shape {relevance.shape}, {found}"
            )
        return relevance


def scorer_name(scorer: Scorer | None) -> str:
    """How outputs call a scorer: its name, its version, and how its numbers came into [0, 1]."""
    if scorer is None:
        return "none"
    how = getattr(scorer, "relevance", None)
    return f"{scorer.name} {scorer.version}" + (f" ({how})" if how else "")


def check_question(question: str | None) -> None:
    """Refuse an empty question; None asks for none."""
    if question is not None and not question.strip():
        raise ConfigError(
            "the question is empty; pass None (--no-question) for a ranking that follows no question"
        )
