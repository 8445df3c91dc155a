"""The features of a video, in memory and cached in the store."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from typing import Any

import numpy as np

from framenest.cache.directory import DirectoryStore, FeaturesLimit, UnwritableCache, keep
from framenest.cache.hashes import digest
from framenest.cache.remote import RemoteStore
from framenest.errors import CacheWarning
from framenest.frames import Array, Ints, Pixels
from framenest.protocols import Encoded, Holder, Scorer, Store
from framenest.text import size_text
from framenest.video.decoder import Decoder

FEATURES_FORMAT = 1
FEATURES_HEADER = {"format": FEATURES_FORMAT, "kind": "features"}
KEPT_BY_DEFAULT = 512 * 2**20
"""Features of one video are cached up to this many bytes; larger ones only on request."""
LATE = 8 * 2**20  # a part of this many bytes or more is written in the background

_writes: list[Future[None]] = []


@cache
def _writer() -> ThreadPoolExecutor:
    """One thread, which Python waits for at exit. A forked process gets its own."""
    return ThreadPoolExecutor(1, "framenest-write")


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_writer.cache_clear)
    os.register_at_fork(after_in_child=_writes.clear)


class LargeFeatures(CacheWarning):
    """A video's features are too large for the cache."""


def finish_writes() -> None:
    """Wait for the background writes; raises each of their errors once."""
    while _writes:
        _writes.pop(0).result()


@dataclass(frozen=True, eq=False)
class Features:
    """Features of n frames, which ascend: thumbnails (n, h, w, 3) and the scorer's arrays of n rows."""

    frames: Ints
    thumbnails: Pixels
    encoded: Encoded

    @classmethod
    def gather(cls, parts: Sequence[Features]) -> Features:
        """All frames of the parts, ascending, each once."""
        if len(parts) == 1:
            return parts[0]
        frames, order = np.unique(np.concatenate([p.frames for p in parts]), return_index=True)
        thumbnails = np.concatenate([p.thumbnails for p in parts])[order]
        encoded = {name: _join([p.encoded[name] for p in parts])[order] for name in parts[0].encoded}
        return cls(frames, thumbnails, encoded)

    def missing(self, frames: Ints) -> Ints:
        """The frames that are not here, in the order given."""
        return frames[np.isin(frames, self.frames, invert=True)]

    def take(self, frames: Ints) -> Features:
        """Only these frames, ascending, all of which must be here; a view if they are contiguous."""
        places = np.searchsorted(self.frames, frames)
        contiguous = len(places) > 0 and places[-1] - places[0] + 1 == len(places)
        rows = slice(int(places[0]), int(places[-1]) + 1) if contiguous else places
        return Features(frames, self.thumbnails[rows], {n: a[rows] for n, a in self.encoded.items()})

    def arrays(self) -> dict[str, Array]:
        """The arrays of an entry in a store."""
        named = {f"encoded.{name}": np.asarray(rows) for name, rows in self.encoded.items()}
        return {"frames": self.frames, "thumbnails": self.thumbnails, **named}

    @classmethod
    def from_parts(cls, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Features | None:
        """Features from an entry in a store; None if another version wrote it."""
        if {name: header.get(name) for name in FEATURES_HEADER} != FEATURES_HEADER:
            return None
        encoded = {n.removeprefix("encoded."): a for n, a in arrays.items() if n.startswith("encoded.")}
        return cls(arrays["frames"], arrays["thumbnails"], encoded)

    @property
    def nbytes(self) -> int:
        return sum(int(rows.nbytes) for rows in (self.frames, self.thumbnails, *self.encoded.values()))


def _join(parts: Sequence[Any]) -> Any:
    """Concatenate rows; on the device of the first part that lies on one."""
    elsewhere = next((part for part in parts if not isinstance(part, np.ndarray)), None)
    return np.concatenate(parts) if elsewhere is None else elsewhere.join(parts)


class FeatureParts:
    """All features of one video and scorer so far, in parts: first the probes, then the zoom frames of each
    question. Small parts are merged into larger ones: a thousand questions leave a handful of files, and none
    rewrites the probes.

    key: of part 0, 1, … in the store. scorer: None for thumbnails only. keep: True caches features of any
    size, False none, None up to 512 MiB. limit: of all features in the store.
    """

    def __init__(
        self,
        key: Callable[[int], str],
        scorer: Scorer | None,
        store: Store,
        keep: bool | None,
        limit: FeaturesLimit,
    ) -> None:
        self._key = key
        self._store = store
        self._keep = keep
        self._limit = limit
        self._warned = False
        self._write: Future[None] | None = None  # the last background write of this video
        self._parts = [*self._stored_parts(scorer.hold if isinstance(scorer, Holder) else None)]

    @property
    def nbytes(self) -> int:
        """Bytes of all parts in memory."""
        return sum(part.nbytes for part in self._parts)

    def missing(self, frames: Ints) -> Ints:
        """The frames that no part has."""
        for part in self._parts:
            frames = part.missing(frames)
        return frames

    def take(self, frames: Ints) -> list[Features]:
        """The frames that are here, part by part."""
        held = [(part, np.intersect1d(frames, part.frames)) for part in self._parts]
        return [part.take(mine) for part, mine in held if len(mine)]

    def add(self, new: Features) -> bool:
        """Add a part, merged with the smaller ones before it. Returns whether it goes to the store."""
        while len(self._parts) > 1 and len(self._parts[-1].frames) <= len(new.frames):
            new = Features.gather([self._parts.pop(), new])
        in_store = self._is_kept(self.nbytes + new.nbytes)
        if in_store:
            number, pending = len(self._parts), self._write is not None and not self._write.done()
            own = not isinstance(self._store, (DirectoryStore, RemoteStore))  # maybe not thread-safe
            if pending or (new.nbytes >= LATE and not own):
                self._write = _writer().submit(self._put, number, new)
                _writes.append(self._write)
            else:
                self._put(number, new)
        self._parts.append(new)
        return in_store

    def warn_if_not_kept(self, new: int, empty: Features) -> None:
        """Warn once, before the work on `new` frames, if the features are too large for the cache.

        empty: features of no frame, for the shapes of their rows.
        """
        rows = empty.arrays().values()
        size = self.nbytes + new * sum(math.prod(a.shape[1:]) * a.dtype.itemsize for a in rows)
        if self._warned or self._keep is False or self._is_kept(size):
            return
        self._warned = True
        refusal = self._limit.refusal(size)
        why = "; --keep-features keeps them" if refusal is None else f": {refusal}"
        text = f"the features of this video take {size_text(size)} and are not kept{why}"
        warnings.warn(text, UnwritableCache if self._keep else LargeFeatures, stacklevel=3)

    def _is_kept(self, size: int) -> bool:
        """Whether this video's features go to the store if they take `size` bytes in all."""
        wanted = size < KEPT_BY_DEFAULT if self._keep is None else self._keep
        return wanted and self._limit.refusal(size) is None

    def _put(self, number: int, part: Features) -> None:
        """Write a part, merged with what another process may have written there meanwhile."""
        other = self._stored(number)
        if other is not None and len(part.missing(other.frames)):
            mine = replace(part, encoded={name: np.asarray(rows) for name, rows in part.encoded.items()})
            part = Features.gather([mine, other])
        keep(self._store, self._key(number), FEATURES_HEADER, part.arrays())
        self._limit.written(part.nbytes)

    def _stored_parts(self, hold: Callable[[Encoded], Encoded] | None) -> Iterator[Features]:
        """The parts in the store, except those that were merged into earlier ones."""
        frames = np.zeros(0, np.int64)
        for number in count():
            part = self._stored(number)
            if part is None or (number and np.isin(part.frames, frames).all()):
                return
            frames = np.union1d(frames, part.frames)
            yield replace(part, encoded=hold(part.encoded)) if hold else part

    def _stored(self, number: int) -> Features | None:
        entry = self._store.get(self._key(number))
        return Features.from_parts(*entry) if entry else None


def features_key(decoder: Decoder, scorer: Scorer | None, thumbnail: int, part: int = 0) -> str:
    """The store's key for the features of a video; part 0 holds the first probes."""
    who = [scorer.name, scorer.version] if scorer else None
    of = (decoder.info.fingerprint, decoder.name, decoder.version, thumbnail, who, part)
    return f"features/{digest(*of, FEATURES_FORMAT)}"
