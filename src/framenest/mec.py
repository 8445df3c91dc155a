"""MEC: the only file that joins the stages. Video → index → discovery → ranking."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest import appearance, discovery
from framenest.config import MECConfig
from framenest.errors import ConfigError, IndexMismatch, ScorerError, VideoError
from framenest.index import FORMAT as INDEX_FORMAT
from framenest.index import SparseIndex, choose_probes
from framenest.observability import observability
from framenest.protocols import Decoder, Encoded, Progress, Scorer
from framenest.ranking import greedy
from framenest.result import Ranking
from framenest.scorers import load_scorer
from framenest.sight import Sight
from framenest.store import DirectoryStore, digest
from framenest.timing import Timing
from framenest.video import open_video

Video = str | os.PathLike[str] | Decoder | np.ndarray[Any, Any]


class MEC:
    """Matryoshka Evidence-to-Context frame selection.

    config: the paper's settings unless told otherwise. scorer: a name ("auto" is the best one whose
    weights are on this machine), a Scorer, or None for question-free rankings. store: a directory
    for indexes and features, by default the user's cache. progress(stage, done, total) is called
    during long work.

    >>> mec = MEC()                                                       # doctest: +SKIP
    >>> ranking = mec.rank("kiln.mp4", "What happens after firing?")      # doctest: +SKIP
    >>> ranking.prefix(8).frames, ranking.prefix(64).frames               # doctest: +SKIP
    """

    def __init__(
        self,
        config: MECConfig | None = None,
        scorer: str | Scorer | None = "auto",
        *,
        store: DirectoryStore | str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        keep_features: bool = False,
    ) -> None:
        self.config = config or MECConfig()
        self.store = store if isinstance(store, DirectoryStore) else DirectoryStore(store)
        self.progress: Progress = progress or (lambda *_: None)
        self.keep_features = keep_features
        self.timing = Timing()
        self._wanted_scorer = scorer
        self._scorer: Scorer | None = None
        self._sights: dict[tuple[str, str], Sight] = {}
        self._indexes: dict[str, SparseIndex] = {}

    @property
    def scorer(self) -> Scorer | None:
        """The scorer in use; loaded when first needed."""
        if self._scorer is None and self._wanted_scorer is not None:
            with self.timing("load"):
                self._scorer = load_scorer(self._wanted_scorer, self.store)
        return self._scorer

    def rank(self, video: Video, question: str | None, *, fps: float | None = None) -> Ranking:
        """One ranking of the video's frames for a question; None ranks without a question.

        fps is needed for a folder of images or an array of frames (n, H, W, 3).
        """
        self._check_question(question)
        self.timing.reset()
        return self.order(self.discover(self.index(video, fps=fps), question))

    def index(self, video: Video, *, fps: float | None = None) -> SparseIndex:
        """The reusable index of a video: from memory, from the store, or built in one decoding pass.

        The same pass feeds the scorer, so that a question asked next decodes no probe again.
        """
        sight = self._sight(video, fps)
        decoder, config = sight.decoder, self.config.index
        name = digest(decoder.info.fingerprint, decoder.name, decoder.version, asdict(config), INDEX_FORMAT)
        index = self._indexes.get(name) or self._stored_index(name)
        if index is None:
            index = self._build_index(sight)
            self.store.put(f"index/{name}", index.header(), index.arrays())
        elif index.video != decoder.info:
            index = replace(index, video=decoder.info)  # the same content at another path
        self._indexes[name] = index
        sight.see(index.frames, "probes")
        return index

    def discover(self, index: SparseIndex, question: str | None) -> discovery.CandidatePool:
        """Score the probes, zoom in where the evidence is, and gather all candidates."""
        self._check_question(question)
        config = self.config if question is not None else self.config.with_settings({"relevance_weight": 0.0})
        settings = config.discovery
        sight = self._sight_of(index)
        probes = sight.see(index.frames, "probes")
        relevance = self._relevance(probes.encoded, question, probes.encoded, len(index))
        scores = discovery.evidence(relevance, index.change, index.observability, settings)
        active = discovery.activate(scores, settings.segment_length, settings.activation)
        anchors = discovery.anchors(scores, active, settings.segment_length, settings.anchors)
        wanted = discovery.zoom(index.frames, anchors, settings.zoom)
        frames, zoom_substitutes = sight.decodable(wanted, index.frames, "zoom")
        zoomed = sight.see(frames, "zoom")

        with self.timing("zoom"):
            vectors = appearance.encode(zoomed.thumbnails)
            change = appearance.change(frames, vectors, index.frames, index.appearance)
            visible = observability(
                zoomed.thumbnails,
                index.config.blur_kernel,
                index.config.exposure_mean,
                index.config.exposure_sigma,
            )
        zoom_relevance = self._relevance(zoomed.encoded, question, probes.encoded, len(frames))
        zoom_scores = discovery.evidence(zoom_relevance, change, visible, settings)

        together = np.concatenate([index.frames, frames])
        order = np.argsort(together, kind="stable")
        return discovery.CandidatePool(
            frames=together[order],
            seconds=sight.decoder.seconds[together[order]],
            is_zoom=(np.arange(len(together)) >= len(index))[order],
            relevance=np.concatenate([relevance, zoom_relevance])[order],
            change=np.concatenate([index.change, change])[order],
            observability=np.concatenate([index.observability, visible])[order],
            evidence=np.concatenate([scores, zoom_scores])[order],
            active=tuple(active),
            anchors=tuple(int(index.frames[a]) for a in anchors),
            video=index.video,
            question=question,
            scorer=self._scorer_name(question),
            config=config,
            num_frames=index.num_frames,
            appearance=np.concatenate([index.appearance, vectors])[order],
            stats={
                "candidates": len(together),
                "probes": len(index),
                "zoom": len(frames),
                "largest_gap_seconds": index.largest_gap,
                "substitutes": [*index.substitutes.tolist(), *zoom_substitutes.tolist()],
                "decoded": sight.take_decoded(),
                "seconds": self.timing.seconds,
            },
        )

    def order(self, pool: discovery.CandidatePool) -> Ranking:
        """Rank the candidates of a pool."""
        with self.timing("order"):
            result = greedy(pool.frames, pool.evidence, pool.appearance, pool.num_frames, self.config.ranking)
        config = MECConfig(pool.config.index, pool.config.discovery, self.config.ranking)
        return Ranking.from_greedy(pool, result, config, pool.stats | {"seconds": self.timing.seconds})

    def _build_index(self, sight: Sight) -> SparseIndex:
        decoder = sight.decoder
        window, wanted = choose_probes(decoder.info, decoder.seconds, self.config.index)
        sight.see(wanted, "probes")
        frames, substitutes = sight.decodable(wanted, wanted, "probes", first=window[0])
        if not len(frames):
            raise VideoError(f"{decoder.info.path}: none of the {len(wanted)} probes can be decoded")
        with self.timing("cues"):
            return SparseIndex.from_thumbnails(
                decoder.info,
                self.config.index,
                window,
                frames,
                decoder.seconds[frames],
                sight.see(frames, "probes").thumbnails,
                substitutes,
            )

    def _stored_index(self, name: str) -> SparseIndex | None:
        kept = self.store.get(f"index/{name}")
        return SparseIndex.from_parts(*kept) if kept else None

    def _sight(self, video: Video, fps: float | None) -> Sight:
        """The open video with its features; the same one for the same content."""
        with self.timing("timeline"):
            if isinstance(video, (str, os.PathLike)) and Path(video).is_file():
                path = os.fspath(video)
                known = self._sights.get((self.store.fingerprint(path), path))
                if known is not None:
                    return known
            decoder = open_video(video, fps=fps, store=self.store)
        key = (decoder.info.fingerprint, decoder.info.path)
        if key not in self._sights:
            self._sights[key] = Sight(
                decoder,
                self.scorer,
                self.config.index.thumbnail,
                self.store,
                self.progress,
                self.timing,
                keep=self.keep_features,
            )
        return self._sights[key]

    def _sight_of(self, index: SparseIndex) -> Sight:
        """The video of an index, opened again where this MEC has not seen it yet."""
        known = self._sights.get((index.video.fingerprint, index.video.path))
        if known is not None:
            return known
        sight = self._sight(index.video.path, None)
        if sight.decoder.info.fingerprint != index.video.fingerprint:
            raise IndexMismatch(f"{index.video.path}: the video has changed since it was indexed")
        return sight

    def _relevance(
        self, encoded: Encoded, question: str | None, reference: Encoded, count: int
    ) -> NDArray[np.float32]:
        scorer = self.scorer
        if question is None or not count:
            return np.zeros(count, dtype=np.float32)
        if scorer is None:
            raise ScorerError("a question needs a scorer; this MEC was made with scorer=None")
        with self.timing("match"):
            relevance = np.asarray(scorer.match(encoded, question, reference=reference), dtype=np.float32)
        if relevance.shape != (count,) or not ((relevance >= 0) & (relevance <= 1)).all():
            raise ScorerError(
                f"scorer {scorer.name!r} must return {count} numbers in [0, 1]; "
                f"it returned shape {relevance.shape}, from {relevance.min():.3g} to {relevance.max():.3g}"
            )
        return relevance

    def _scorer_name(self, question: str | None) -> str:
        scorer = self.scorer
        return "none" if question is None or scorer is None else f"{scorer.name} {scorer.version}"

    @staticmethod
    def _check_question(question: str | None) -> None:
        if question is not None and not question.strip():
            raise ConfigError(
                "the question is empty; pass None (--no-question) for a ranking that follows no question"
            )
