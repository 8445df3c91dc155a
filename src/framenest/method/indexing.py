"""Indexing: the index of a video, kept or built in one decoding pass, beside the loading of the scorer."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import keep
from framenest.cache.hashes import digest
from framenest.config import IndexConfig, MECConfig
from framenest.errors import IndexMismatch, VideoError
from framenest.method import discovery
from framenest.method.index import INDEX_FORMAT, SparseIndex, choose_probes
from framenest.protocols import Decoder, Store
from framenest.scorers.feature_store import Features
from framenest.scorers.video_features import FeatureCache, on_the_way
from framenest.session import Session, Video


class Indexing:
    """How a video gets its index.

    Args:
        session: opens videos, loads the scorer, keeps both.
        config: of the method.
        scored: whether the probes are encoded for the scorer, too.
        zooms: whether a question follows that zooms in: then frames that it may zoom to are held as they are
            passed.
    """

    def __init__(self, session: Session, config: MECConfig, *, scored: bool, zooms: bool) -> None:
        self._session = session
        self._config = config
        self._scored = scored
        self._zooms = zooms

    def begin(self, video: Video, fps: float | None) -> tuple[FeatureCache, SparseIndex | None]:
        """The video as the scorer sees it, and its index where that is kept.

        While the scorer is loaded, a new video's probes are decoded.
        """
        session, config = self._session, self._config.index
        decoder = session.open(video, fps)
        if self._scored:
            session.begin_loading()
        key = index_key(decoder, config)
        kept = session.kept(("index", key)) or _stored_index(session.store, key)
        begun = None
        if self._scored and kept is None:
            probes = choose_probes(decoder, config)[1]
            begun = session.begin_decoding(
                decoder, probes, lambda: self._passing(decoder, probes), config.thumbnail
            )
        try:
            scorer = session.scorer if self._scored else None
            cache = session.features(decoder, scorer, config.thumbnail)
        except BaseException:
            if begun is not None:
                begun.close()
            raise
        if begun is not None:
            cache.take_over(begun)
        return cache, kept

    def finish(self, cache: FeatureCache, kept: SparseIndex | None) -> tuple[SparseIndex, Features]:
        """The index of the video, and its probes as the scorer sees them; takes what `begin` returned."""
        session, decoder = self._session, cache.decoder
        key = index_key(decoder, self._config.index)
        if kept is None:
            index, probes = self._built(cache)
            keep(session.store, key, index.header(), index.arrays())
        else:
            index = kept
            if kept.video != decoder.info:  # at another path
                index = replace(kept, video=decoder.info)
            probes = cache.see(index.frames, "probes", lambda: self._passing(decoder, index.frames))
        session.keep(("index", key), lambda: index)
        return index, probes

    def _built(self, cache: FeatureCache) -> tuple[SparseIndex, Features]:
        decoder, config = cache.decoder, self._config.index
        bounds, wanted = choose_probes(decoder, config)
        probes, substitutes = cache.see_or_replace(
            wanted, wanted, "probes", first=bounds[0], passing=lambda: self._passing(decoder, wanted)
        )
        if not len(probes.frames):
            raise VideoError(f"{decoder.info.path}: none of the {len(wanted)} probes can be decoded")
        span = (float(decoder.seconds[bounds[0]]), float(decoder.seconds[bounds[1]]))
        with self._session.timing("cues"):
            index = SparseIndex.from_thumbnails(
                decoder.info,
                config,
                bounds,
                span,
                probes.frames,
                decoder.seconds[probes.frames],
                probes.thumbnails,
                np.array(substitutes, dtype=np.int64).reshape(-1, 2),
            )
        return index, probes

    def _passing(self, decoder: Decoder, probes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Frames that a question may zoom to and that are decoded on the way to the probes."""
        if not self._zooms:
            return probes[:0]
        every = discovery.zoom(probes, list(range(len(probes))), self._config.discovery.zoom)
        return on_the_way(decoder.key_frames, probes, every)


def index_key(decoder: Decoder, config: IndexConfig) -> str:
    """Under which a store keeps the index of this video, as this decoder shows it."""
    name = digest(decoder.info.fingerprint, decoder.name, decoder.version, asdict(config), INDEX_FORMAT)
    return f"index/{name}"


def _stored_index(store: Store, key: str) -> SparseIndex | None:
    kept = store.get(key)
    try:
        return SparseIndex.from_parts(*kept) if kept else None
    except IndexMismatch:  # another version wrote it; it is only a cache
        return None
