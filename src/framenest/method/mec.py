"""MEC: the only file that joins the stages. Video → index → discovery → ranking."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import digest, keep
from framenest.config import IndexConfig, MECConfig, ScorerConfig
from framenest.errors import IndexMismatch, VideoError
from framenest.method import appearance, discovery
from framenest.method.greedy import greedy
from framenest.method.index import FORMAT as INDEX_FORMAT
from framenest.method.index import SparseIndex, choose_probes
from framenest.method.observability import observability
from framenest.method.ranking import Ranking
from framenest.protocols import Decoder, Progress, Scorer, Store
from framenest.scorers.feature_cache import FeatureCache
from framenest.scorers.reranker import refine
from framenest.scorers.screen_text import ScreenText
from framenest.session import Session, Video
from framenest.timing import Timing


class MEC:
    """Matryoshka Evidence-to-Context frame selection.

    config: the paper's settings unless told otherwise. scorer: a name ("auto" is the best one whose
    weights are on this machine), a Scorer, or None for question-free rankings. store: a directory,
    an address (s3://…) or a Store for indexes and features, by default the user's cache.
    progress(stage, done, total) is called during long work. scoring: how the scorer runs, a second pass,
    text on screen. session: share open videos and the scorer with other selectors.

    >>> mec = MEC()                                                       # doctest: +SKIP
    >>> ranking = mec.rank("kiln.mp4", "What happens after firing?")      # doctest: +SKIP
    >>> ranking.prefix(8).frames, ranking.prefix(64).frames               # doctest: +SKIP
    """

    def __init__(
        self,
        config: MECConfig | None = None,
        scorer: str | Scorer | None = "auto",
        *,
        store: Store | str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        keep_features: bool = False,
        scoring: ScorerConfig | None = None,
        session: Session | None = None,
    ) -> None:
        self.config = config or MECConfig()
        self.session = session or Session(
            scorer, store=store, progress=progress, keep_features=keep_features, scoring=scoring
        )
        self._indexes: dict[str, SparseIndex] = {}

    @property
    def scorer(self) -> Scorer | None:
        """The scorer in use; loaded when first needed."""
        return self.session.scorer

    def rank(
        self,
        video: Video,
        question: str | None,
        *,
        options: Sequence[str] = (),
        fps: float | None = None,
    ) -> Ranking:
        """One ranking of the video's frames for a question; None ranks without a question.

        options: the answers to choose from; frames are scored against them too where
        `relevance_text` is "question+options". fps is needed for a folder of images or an array of
        frames (n, H, W, 3).
        """
        space = self.session
        space.timing.reset()
        scorer = space.scorer_for(question)
        decoder = space.open(video, fps)
        index = self._index(decoder, scorer)
        return self.order(self._discover(decoder, index, question, tuple(options), scorer))

    def index(self, video: Video, *, fps: float | None = None) -> SparseIndex:
        """The reusable index of a video: from memory, from the store, or built in one decoding pass.

        The same pass feeds the scorer, so that a question asked next decodes no probe again.
        """
        space, scorer = self.session, self.scorer
        space.timing.reset()
        decoder = space.open(video, fps)
        index = self._index(decoder, scorer)
        space.sight(decoder, scorer, self.config.index.thumbnail).take_decoded()
        return index

    def discover(
        self, index: SparseIndex, question: str | None, *, options: Sequence[str] = ()
    ) -> discovery.CandidatePool:
        """Score the probes, zoom in where the evidence is, and gather all candidates."""
        self.session.timing.reset()
        scorer = self.session.scorer_for(question)
        return self._discover(self.session.reopen(index.video), index, question, tuple(options), scorer)

    def order(self, pool: discovery.CandidatePool) -> Ranking:
        """Rank the candidates of a pool."""
        timing = Timing()
        with timing("order"):
            result = greedy(pool.frames, pool.evidence, pool.appearance, pool.num_frames, self.config.ranking)
        config = replace(pool.config, ranking=self.config.ranking)
        stats = pool.stats | {"seconds": pool.stats["seconds"] | timing.seconds}
        return Ranking.from_greedy(pool, result, config, stats)

    def _index(self, decoder: Decoder, scorer: Scorer | None) -> SparseIndex:
        config = self.config.index
        sight = self.session.sight(decoder, scorer, config.thumbnail)
        key = index_key(decoder, config)
        index = self._indexes.get(key) or self._stored_index(key)
        if index is None:
            index = self._build_index(sight)
            keep(self.session.store, key, index.header(), index.arrays())
        elif index.video != decoder.info:
            index = replace(index, video=decoder.info)  # the same content at another path
        self._indexes[key] = index
        sight.see(index.frames, "probes")
        return index

    def _stored_index(self, key: str) -> SparseIndex | None:
        kept = self.session.store.get(key)
        try:
            return SparseIndex.from_parts(*kept) if kept else None
        except IndexMismatch:  # another version wrote it; it is only a cache
            return None

    def _build_index(self, sight: FeatureCache) -> SparseIndex:
        decoder = sight.decoder
        window, wanted = choose_probes(decoder, self.config.index)
        frames, substitutes = sight.decodable(wanted, wanted, "probes", first=window[0])
        if not len(frames):
            raise VideoError(f"{decoder.info.path}: none of the {len(wanted)} probes can be decoded")
        with self.session.timing("cues"):
            return SparseIndex.from_thumbnails(
                decoder.info,
                self.config.index,
                window,
                (float(decoder.seconds[window[0]]), float(decoder.seconds[window[1]])),
                frames,
                decoder.seconds[frames],
                sight.see(frames, "probes").thumbnails,
                substitutes,
            )

    def _discover(
        self,
        decoder: Decoder,
        index: SparseIndex,
        question: str | None,
        options: tuple[str, ...],
        scorer: Scorer | None,
    ) -> discovery.CandidatePool:
        space = self.session
        config = replace(self.config, index=index.config)
        if question is None:
            config = config.with_settings({"relevance_weight": 0.0})
        settings = config.discovery
        asked = question
        if question is not None and settings.relevance_text == "question+options":
            asked = with_options(question, options)
        sight = space.sight(decoder, scorer, index.config.thumbnail)
        reading = space.reading(decoder, index.config.thumbnail) if question is not None else None

        probes = sight.see(index.frames, "probes")
        relevance = space.relevance(scorer, asked, probes.encoded, probes.encoded, len(index))
        text = _read(reading, asked, index.frames, index.frames)
        scores = discovery.evidence(relevance, index.change, index.observability, settings, text)
        active = discovery.activate(scores, settings.segment_length, settings.activation)
        anchors = discovery.anchors(scores, active, settings.segment_length, settings.anchors)
        wanted = discovery.zoom(index.frames, anchors, settings.zoom)
        frames, substitutes = sight.decodable(wanted, index.frames, "zoom")
        zoomed = sight.see(frames, "zoom")
        with space.timing("zoom"):
            vectors = appearance.encode(zoomed.thumbnails)
            change = appearance.change(frames, vectors, index.frames, index.appearance)
            visible = observability(
                zoomed.thumbnails,
                index.config.blur_kernel,
                index.config.exposure_mean,
                index.config.exposure_sigma,
            )
        zoom_relevance = space.relevance(scorer, asked, zoomed.encoded, probes.encoded, len(frames))

        together = np.concatenate([index.frames, frames])
        order = np.argsort(together, kind="stable")
        together = together[order]
        relevance = np.concatenate([relevance, zoom_relevance])[order]
        if asked is not None:
            relevance = self._rerank(decoder, together, relevance, asked)
        change = np.concatenate([index.change, change])[order]
        visible = np.concatenate([index.observability, visible])[order]
        text = _read(reading, asked, together, index.frames)
        return discovery.CandidatePool(
            frames=together,
            seconds=decoder.seconds[together],
            is_zoom=(np.arange(len(together)) >= len(index))[order],
            relevance=relevance,
            change=change,
            observability=visible,
            evidence=discovery.evidence(relevance, change, visible, settings, text),
            text=text,
            active=tuple(active),
            anchors=tuple(int(index.frames[a]) for a in anchors),
            video=index.video,
            question=question,
            options=options,
            scorer=space.scoring_name(question),
            config=config,
            num_frames=index.num_frames,
            appearance=np.concatenate([index.appearance, vectors])[order],
            stats={
                "candidates": len(together),
                "probes": len(index),
                "zoom": len(frames),
                "largest_gap_seconds": index.largest_gap,
                "substitutes": [*index.substitutes.tolist(), *substitutes.tolist()],
                "decoded": sight.take_decoded(),
                "seconds": space.timing.seconds,
            }
            | ({} if reading is None else {"read": reading.count(together)}),
        )

    def _rerank(
        self, decoder: Decoder, frames: NDArray[np.int64], relevance: NDArray[np.float32], asked: str
    ) -> NDArray[np.float32]:
        """Relevance with the best candidates judged again; as it is without a second pass."""
        space, reranker = self.session, self.session.reranker
        if reranker is None:
            return relevance
        again = np.sort(discovery.best(relevance, space.scoring.rerank))
        seen = space.sight(decoder, reranker, self.config.index.thumbnail).see(frames[again], "rerank")
        judged = space.relevance(reranker, asked, seen.encoded, seen.encoded, len(again))
        return refine(relevance, again, judged)


def _read(
    reading: ScreenText | None, asked: str | None, frames: NDArray[np.int64], probes: NDArray[np.int64]
) -> NDArray[np.float32] | None:
    """The cue of text on screen, as far as there is time to read; None where none is to be read."""
    if reading is None or asked is None:
        return None
    reading.read(frames, "text")
    return reading.cue(frames, asked, probes)


def with_options(question: str, options: Sequence[str]) -> str:
    """The question and its answers as one text, for relevance.

    >>> with_options("What is it?", ["a cup", "a kiln"])
    'What is it? a cup a kiln'
    """
    return " ".join([question, *options])


def index_key(decoder: Decoder, config: IndexConfig) -> str:
    """Under which a store keeps the index of this video, as this decoder shows it."""
    name = digest(decoder.info.fingerprint, decoder.name, decoder.version, asdict(config), INDEX_FORMAT)
    return f"index/{name}"
