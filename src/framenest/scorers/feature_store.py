"""The features of one video, in memory and in the store."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import DirectoryStore, UnwritableCache, keep
from framenest.cache.eviction import FeaturesLimit
from framenest.cache.hashes import digest
from framenest.cache.late_write import LateWrite
from framenest.cache.remote import RemoteStore
from framenest.errors import CacheWarning
from framenest.frames import Array, Pixels
from framenest.protocols import Decoder, Encoded, HoldsFeatures, Scorer, Store
from framenest.text import size_text

FEATURES_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Features:
    """frames: (n,) int64 ascending; thumbnails: (n, h, w, 3) uint8; encoded: named arrays of n rows."""

    frames: NDArray[np.int64]
    thumbnails: Pixels
    encoded: Encoded

    @classmethod
    def gather(cls, parts: Sequence[Features]) -> Features:
        """All frames of the parts, ascending, each once."""
        if len(parts) == 1:
            return parts[0]
        frames, order = np.unique(np.concatenate([p.frames for p in parts]), return_index=True)
        names = parts[0].encoded.keys()
        return cls(
            frames,
            np.concatenate([p.thumbnails for p in parts])[order],
            {name: _join([p.encoded[name] for p in parts])[order] for name in names},
        )

    def missing(self, frames: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the frames that are not here, in their order.

        >>> held = Features(np.array([2, 5]), np.zeros((2, 1, 1, 3), np.uint8), {})
        >>> held.missing(np.array([9, 5, 1])).tolist()
        [9, 1]
        """
        if not len(self.frames):
            return frames
        places = np.searchsorted(self.frames, frames)
        new: NDArray[np.int64] = frames[self.frames.take(places, mode="clip") != frames]
        return new

    def take(self, frames: NDArray[np.int64]) -> Features:
        """Only these frames, ascending, all of which must be here; a view where they lie together."""
        found = np.searchsorted(self.frames, frames)
        together = len(found) > 0 and found[-1] - found[0] + 1 == len(found)
        rows = slice(int(found[0]), int(found[-1]) + 1) if together else found
        return Features(frames, self.thumbnails[rows], {n: a[rows] for n, a in self.encoded.items()})

    def header(self) -> dict[str, Any]:
        return {"format": FEATURES_FORMAT, "kind": "features"}

    def arrays(self) -> dict[str, Array]:
        named = {f"encoded.{name}": np.asarray(rows) for name, rows in self.encoded.items()}
        return {"frames": self.frames, "thumbnails": self.thumbnails, **named}

    @classmethod
    def from_parts(cls, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Features | None:
        """Features as they were kept; None where another version wrote them."""
        if header.get("kind") != "features" or header.get("format") != FEATURES_FORMAT:
            return None
        encoded = {n.removeprefix("encoded."): a for n, a in arrays.items() if n.startswith("encoded.")}
        return cls(arrays["frames"], arrays["thumbnails"], encoded)

    @property
    def nbytes(self) -> int:
        return sum(int(rows.nbytes) for rows in (self.frames, self.thumbnails, *self.encoded.values()))


def _join(parts: Sequence[Any]) -> Any:
    """Rows under one another; where one of them lies on a device, there."""
    elsewhere = next((part for part in parts if not isinstance(part, np.ndarray)), None)
    return np.concatenate(parts) if elsewhere is None else elsewhere.join(parts)


KEPT_BY_DEFAULT = 512 * 2**20
"""Features of one video up to this many bytes go to the store; larger ones only when asked for."""
LARGE = 64 * 2**20
"""Bytes of one video's features from which on their size is told before the work."""
LATE = 8 * 2**20
"""Bytes of a part from which on it is written while other work goes on."""


class LargeFeatures(CacheWarning):
    """A video's features are large: kept in the cache, or not."""


class FeatureParts:
    """The features of one video, as one scorer made them: those of the probes first, then those of zoom
    frames as questions ask for them, small parts merged into larger ones.

    A thousand questions leave a handful of files, and a new question never rewrites the probes.

    Args:
        key: the store's key for part 0, 1, …
        scorer: None where only thumbnails are kept.
        store: where parts are kept between runs.
        keep: features of any size, or none of them; None: up to 512 MiB.
        limit: what the features of all videos may take in the store.
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
        self._holder = scorer if isinstance(scorer, HoldsFeatures) else None
        self._store = store
        self._keep = keep
        self._limit = limit
        self._writing: LateWrite | None = None
        self._told = False
        self._parts = [*self._kept()]

    def __iter__(self) -> Iterator[Features]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def nbytes(self) -> int:
        """Bytes of all parts in memory."""
        return sum(part.nbytes for part in self._parts)

    def missing(self, frames: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the frames that no part has."""
        for part in self._parts:
            frames = part.missing(frames)
        return frames

    def take(self, frames: NDArray[np.int64]) -> list[Features]:
        """Those of the frames that are here, part by part."""
        held = [(part, np.intersect1d(frames, part.frames)) for part in self._parts]
        return [part.take(mine) for part, mine in held if len(mine)]

    def add(self, new: Features) -> bool:
        """Remember a part, merged with the smaller ones before it, and keep it where that is wanted.

        Returns whether it was.
        """
        while len(self._parts) > 1 and len(self._parts[-1].frames) <= len(new.frames):
            new = Features.gather([self._parts.pop(), new])
        if self._writing is not None and self._writing.finished:
            self.finish()
        kept = self._is_kept(self.nbytes + new.nbytes)
        if kept:
            write = partial(self._write, len(self._parts), new)
            late = new.nbytes >= LATE and isinstance(self._store, (DirectoryStore, RemoteStore))
            if late or self._writing is not None:  # after the parts that are still being written
                self._writing = LateWrite(write, self._writing)
            else:
                write()
        self._parts.append(new)
        return kept

    def finish(self) -> None:
        """Wait until what goes to the store is written there."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.finish()

    def tell_size(self, new: int, empty: Features) -> None:
        """Warn once, before the work, how much large features will take in the cache, or why they do not.

        new: how many frames will be added; empty: features of no frame, for the shapes of their rows.
        """
        rows = empty.arrays().values()
        size = self.nbytes + new * sum(math.prod(a.shape[1:]) * a.dtype.itemsize for a in rows)
        refusal = self._limit.refusal(size)
        if self._told or self._keep is False or (size < LARGE and refusal is None):
            return
        self._told = True
        text = f"the features of this video take {size_text(size)} and are not kept"
        if self._is_kept(size):
            none = "" if self._keep else "; --no-keep-features keeps none"
            text = f"the features of this video will take {size_text(size)} in the cache{none}"
        elif refusal is not None:
            text += f": {refusal}"
        else:
            text += "; --keep-features keeps them"
        lost = self._keep and refusal is not None  # though asked for
        warnings.warn(text, UnwritableCache if lost else LargeFeatures, stacklevel=3)

    def _is_kept(self, size: int) -> bool:
        """Whether features of this video go to the store where they take so many bytes in all."""
        wanted = size < KEPT_BY_DEFAULT if self._keep is None else self._keep
        return wanted and self._limit.refusal(size) is None

    def _write(self, number: int, part: Features) -> None:
        """Write a part, with what another process may have kept there meanwhile."""
        other = self._stored(number)
        if other is not None and len(part.missing(other.frames)):
            mine = replace(part, encoded={name: np.asarray(rows) for name, rows in part.encoded.items()})
            part = Features.gather([mine, other])
        keep(self._store, self._key(number), part.header(), part.arrays())
        self._limit.written(part.nbytes)

    def _kept(self) -> Iterator[Features]:
        """The parts in the store, in their order, without those that were merged into earlier ones.

        Their features lie where the scorer wants them.
        """
        seen = np.zeros(0, np.int64)
        for number in count():
            part = self._stored(number)
            if part is None or (number and np.isin(part.frames, seen).all()):
                return
            seen = np.union1d(seen, part.frames)
            yield replace(part, encoded=self._holder.hold(part.encoded)) if self._holder else part

    def _stored(self, number: int) -> Features | None:
        kept = self._store.get(self._key(number))
        return Features.from_parts(*kept) if kept else None


def features_key(decoder: Decoder, scorer: Scorer | None, thumbnail: int, part: int = 0) -> str:
    """Under which a store keeps what this scorer has seen of the video; part 0 holds the first probes."""
    who = [scorer.name, scorer.version] if scorer else None
    name = digest(
        decoder.info.fingerprint, decoder.name, decoder.version, thumbnail, who, part, FEATURES_FORMAT
    )
    return f"features/{name}"
