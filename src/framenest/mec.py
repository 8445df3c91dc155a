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
from framenest.protocols import Decoder, Encoded, Progress, Scorer, Store
from framenest.ranking import greedy
from framenest.result import Ranking
from framenest.scorers import load_scorer
from framenest.sight import Sight
from framenest.store import DirectoryStore, digest, keep
from framenest.timing import Timing
from framenest.video import open_video

Video = str | os.PathLike[str] | Decoder | np.ndarray[Any, Any]


class MEC:
    """Matryoshka Evidence-to-Context frame selection.

    config: the paper's settings unless told otherwise. scorer: a name ("auto" is the best one whose
    weights are on this machine), a Scorer, or None for question-free rankings. store: a directory or
    a Store for indexes and features, by default the user's cache. progress(stage, done, total) is
    called during long work.

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
    ) -> None:
        self.config = config or MECConfig()
        self.store = (
            DirectoryStore(store) if store is None or isinstance(store, (str, os.PathLike)) else store
        )
        self.progress: Progress = progress or (lambda *_: None)
        self.keep_features = keep_features
        self.timing = Timing()
        self._local = self.store if isinstance(self.store, DirectoryStore) else DirectoryStore()
        self._wanted_scorer = scorer
        self._scorer: Scorer | None = None
        self._decoders: dict[tuple[str, str], Decoder] = {}
        self._sights: dict[tuple[Any, ...], Sight] = {}
        self._indexes: dict[str, SparseIndex] = {}

    @property
    def scorer(self) -> Scorer | None:
        """The scorer in use; loaded when first needed."""
        if self._scorer is None and self._wanted_scorer is not None:
            with self.timing("load"):
                self._scorer = load_scorer(self._wanted_scorer, self._local)
        return self._scorer

    def rank(self, video: Video, question: str | None, *, fps: float | None = None) -> Ranking:
        """One ranking of the video's frames for a question; None ranks without a question.

        fps is needed for a folder of images or an array of frames (n, H, W, 3).
        """
        _check_question(question)
        self.timing.reset()
        decoder = self._open(video, fps)
        index = self._index(decoder, None if question is None else self.scorer)
        return self.order(self._discover(decoder, index, question))

    def index(self, video: Video, *, fps: float | None = None) -> SparseIndex:
        """The reusable index of a video: from memory, from the store, or built in one decoding pass.

        The same pass feeds the scorer, so that a question asked next decodes no probe again.
        """
        self.timing.reset()
        return self._index(self._open(video, fps), self.scorer)

    def discover(self, index: SparseIndex, question: str | None) -> discovery.CandidatePool:
        """Score the probes, zoom in where the evidence is, and gather all candidates."""
        _check_question(question)
        self.timing.reset()
        return self._discover(self._video_of(index), index, question)

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
        sight = self._sight(decoder, scorer, config.thumbnail)
        name = digest(decoder.info.fingerprint, decoder.name, decoder.version, asdict(config), INDEX_FORMAT)
        index = self._indexes.get(name) or self._stored_index(name)
        if index is None:
            index = self._build_index(sight)
            keep(self.store, f"index/{name}", index.header(), index.arrays())
        elif index.video != decoder.info:
            index = replace(index, video=decoder.info)  # the same content at another path
        self._indexes[name] = index
        sight.see(index.frames, "probes")
        return index

    def _stored_index(self, name: str) -> SparseIndex | None:
        kept = self.store.get(f"index/{name}")
        return SparseIndex.from_parts(*kept) if kept else None

    def _build_index(self, sight: Sight) -> SparseIndex:
        decoder = sight.decoder
        window, wanted = choose_probes(decoder, self.config.index)
        frames, substitutes = sight.decodable(wanted, wanted, "probes", first=window[0])
        if not len(frames):
            raise VideoError(f"{decoder.info.path}: none of the {len(wanted)} probes can be decoded")
        with self.timing("cues"):
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
        self, decoder: Decoder, index: SparseIndex, question: str | None
    ) -> discovery.CandidatePool:
        config = replace(self.config, index=index.config)
        if question is None:
            config = config.with_settings({"relevance_weight": 0.0})
        settings = config.discovery
        scorer = None if question is None else self.scorer
        if question is not None and scorer is None:
            raise ScorerError("a question needs a scorer; this MEC was made with scorer=None")
        sight = self._sight(decoder, scorer, index.config.thumbnail)

        probes = sight.see(index.frames, "probes")
        relevance = self._relevance(scorer, question, probes.encoded, probes.encoded, len(index))
        scores = discovery.evidence(relevance, index.change, index.observability, settings)
        active = discovery.activate(scores, settings.segment_length, settings.activation)
        anchors = discovery.anchors(scores, active, settings.segment_length, settings.anchors)
        wanted = discovery.zoom(index.frames, anchors, settings.zoom)
        frames, substitutes = sight.decodable(wanted, index.frames, "zoom")
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
        zoom_relevance = self._relevance(scorer, question, zoomed.encoded, probes.encoded, len(frames))
        zoom_scores = discovery.evidence(zoom_relevance, change, visible, settings)

        together = np.concatenate([index.frames, frames])
        order = np.argsort(together, kind="stable")
        return discovery.CandidatePool(
            frames=together[order],
            seconds=decoder.seconds[together[order]],
            is_zoom=(np.arange(len(together)) >= len(index))[order],
            relevance=np.concatenate([relevance, zoom_relevance])[order],
            change=np.concatenate([index.change, change])[order],
            observability=np.concatenate([index.observability, visible])[order],
            evidence=np.concatenate([scores, zoom_scores])[order],
            active=tuple(active),
            anchors=tuple(int(index.frames[a]) for a in anchors),
            video=index.video,
            question=question,
            scorer="none" if scorer is None else f"{scorer.name} {scorer.version}",
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
                "seconds": self.timing.seconds,
            },
        )

    def _relevance(
        self, scorer: Scorer | None, question: str | None, encoded: Encoded, reference: Encoded, count: int
    ) -> NDArray[np.float32]:
        if question is None or scorer is None or not count:
            return np.zeros(count, dtype=np.float32)
        with self.timing("match"):
            relevance = np.asarray(scorer.match(encoded, question, reference=reference), dtype=np.float32)
        if relevance.shape != (count,) or not ((relevance >= 0) & (relevance <= 1)).all():
            found = f"from {relevance.min():.3g} to {relevance.max():.3g}" if relevance.size else "nothing"
            raise ScorerError(
                f"scorer {scorer.name!r} must return {count} numbers in [0, 1]; "
                f"it returned shape {relevance.shape}, {found}"
            )
        return relevance

    def _open(self, video: Video, fps: float | None) -> Decoder:
        """The open video; the same decoder for the same content at the same path."""
        with self.timing("timeline"):
            if isinstance(video, (str, os.PathLike)) and Path(video).is_file():
                path = str(Path(video).absolute())
                known = self._decoders.get((self._local.fingerprint(path), path))
                if known is not None:
                    return known
            decoder = open_video(video, fps=fps, store=self._local)
        return self._decoders.setdefault((decoder.info.fingerprint, decoder.info.path), decoder)

    def _video_of(self, index: SparseIndex) -> Decoder:
        """The video of an index; refused where it is not the one that was indexed any more."""
        video = index.video
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

    def _sight(self, decoder: Decoder, scorer: Scorer | None, thumbnail: int) -> Sight:
        who = (scorer.name, scorer.version) if scorer else None
        key = (decoder.info.fingerprint, decoder.info.path, who, thumbnail)
        if key not in self._sights:
            self._sights[key] = Sight(
                decoder,
                scorer,
                thumbnail,
                self.store,
                self.progress,
                self.timing,
                keep_all=self.keep_features,
            )
        return self._sights[key]


def _check_question(question: str | None) -> None:
    if question is not None and not question.strip():
        raise ConfigError(
            "the question is empty; pass None (--no-question) for a ranking that follows no question"
        )
