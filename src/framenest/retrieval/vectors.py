"""Vectors of all probes of all videos, and the rows nearest to a query: an exact scan of float16 files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import ManagedStore, keep
from framenest.cache.hashes import digest
from framenest.processes import cores
from framenest.protocols import Store

if TYPE_CHECKING:
    from framenest.retrieval.vector_library import LibraryVectors

VectorStore: TypeAlias = "ScannedVectors | LibraryVectors"
VECTORS_FORMAT = 1
BLOCK = 384 * 1024
"""Numbers that are converted at a time: few enough for a core's cache, enough that threads rarely wait for
Python's lock."""
MASK = np.int32(-0x70002000)
"""Of a float16 number's bits, widened and shifted by 13: all but the copies of its sign."""


class Nearest(NamedTuple):
    """Rows, best first: keys of their videos, (n,) int64 frames and (n,) float32 scores."""

    videos: list[str]
    frames: NDArray[np.int64]
    scores: NDArray[np.float32]


class ScannedVectors:
    """Vectors of one space in the cache: an entry per video, all of which are read for each query.

    Args:
        store: the cache.
        space: what made the vectors, such as "clip openai/clip-vit-base-patch32@3d74acf9 float32".

    >>> from framenest.cache.directory import DirectoryStore
    >>> vectors = ScannedVectors(DirectoryStore("cache"), "colours")
    >>> vectors.put("kiln", {"path": "kiln.mp4"}, np.array([0, 25]), np.eye(2, dtype=np.float16))
    >>> vectors.nearest(np.array([0.1, 0.9], np.float32), 1)
    Nearest(videos=['kiln'], frames=array([25]), scores=array([0.9], dtype=float32))
    """

    def __init__(self, store: Store, space: str) -> None:
        self._store: Any = store
        self.space = space
        self._suffix = digest(space)[:8]

    def put(
        self, video: str, about: Mapping[str, Any], frames: NDArray[np.int64], vectors: NDArray[np.float16]
    ) -> None:
        """Store the rows of a video, by its key: (n,) frames and (n, d) vectors.

        They may be (n, t, d): of several vectors of a frame the best counts. about: JSON values for `videos`.
        """
        header = {"format": VECTORS_FORMAT, "space": self.space, "video": video, "about": dict(about)}
        keep(self._store, self.key(video), header, {"frames": frames, "vectors": vectors})

    def has(self, video: str) -> bool:
        """Whether a video has rows."""
        return bool(self._store.has(self.key(video)))

    def videos(self) -> dict[str, dict[str, Any]]:
        """What `put` was told about each video, by key."""
        return {header["video"]: header["about"] for header in self.headers(mine=True)}

    def headers(self, *, mine: bool) -> Iterator[dict[str, Any]]:
        """What `put` stored beside the rows, in this space or in all others of the cache."""
        for entry in self._store.entries("vectors") if isinstance(self._store, ManagedStore) else ():
            if entry.key.endswith(self._suffix) == mine:
                header = self._store.header(entry.key)
                if header is not None and header.get("format") == VECTORS_FORMAT:
                    yield header

    def nearest(
        self, query: NDArray[np.float32], count: int, videos: Collection[str] | None = None
    ) -> Nearest:
        """The rows with the highest dot product with a query (d,). videos: keys; all by default."""
        names = [*(self.videos() if videos is None else videos)]
        step = max(1, -(-len(names) // cores()))
        shares = [names[at : at + step] for at in range(0, len(names), step)]
        with ThreadPoolExecutor(cores()) as pool:
            found = [row for rows in pool.map(lambda mine: self._scan(mine, query), shares) for row in rows]
        frames = np.concatenate([np.zeros(0, np.int64), *(row[1] for row in found)])
        scores = np.concatenate([np.zeros(0, np.float32), *(row[2] for row in found)])
        owners = np.repeat(np.arange(len(found)), [len(row[1]) for row in found])
        # A whole sort would take a quarter of the time.
        least = np.partition(scores, -count)[-count] if len(scores) > count else -np.inf
        enough = np.flatnonzero(scores >= least)
        best = enough[np.argsort(-scores[enough], kind="stable")[:count]]
        return Nearest([found[owner][0] for owner in owners[best]], frames[best], scores[best])

    def _scan(self, videos: Sequence[str], query: NDArray[np.float32]) -> list[Any]:
        """(video, frames, scores) of each video that has rows.

        A float16 number times 2⁻¹¹² is the float32 number of the same bits, moved: numpy's own conversion
        is several times slower.
        """
        scaled = query.astype(np.float32) * np.float32(2.0**112)
        numbers, found = np.empty((max(1, BLOCK // len(query)), len(query)), np.int32), []
        for video in videos:
            unverified = {"checked": False} if isinstance(self._store, ManagedStore) else {}
            kept = self._store.get(self.key(video), **unverified)
            if kept is None:
                continue
            frames, vectors = kept[1]["frames"].copy(), kept[1]["vectors"]
            rows = vectors.reshape(-1, len(query)).view(np.int16)
            scores = np.empty(len(rows), np.float32)
            for at in range(0, len(rows), len(numbers)):
                some = rows[at : at + len(numbers)]
                bits = numbers[: len(some)]
                np.copyto(bits, some)
                np.left_shift(bits, 13, out=bits)
                np.bitwise_and(bits, MASK, out=bits)
                np.dot(bits.view(np.float32), scaled, out=scores[at : at + len(some)])
            found.append((video, frames, scores.reshape(len(frames), -1).max(axis=1, initial=-np.inf)))
        return found

    def key(self, video: str) -> str:
        """The store's key for the rows of a video."""
        return f"vectors/{digest(video)[:24]}{self._suffix}"


def open_vectors(store: Store, space: str, library: str | None = None) -> VectorStore:
    """The vectors of a space: in the cache, or in the library at a URI."""
    if library is not None:
        from framenest.retrieval.vector_library import LibraryVectors

        return LibraryVectors(library, space)
    return ScannedVectors(store, space)
