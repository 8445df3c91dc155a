"""Vectors of all probes of all videos, and the rows nearest to a query.

By an exact scan of float16 entries in the cache, or in LanceDB, which many machines share.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import ManagedStore, keep
from framenest.cache.hashes import digest
from framenest.errors import StoreError, needs_extra
from framenest.processes import cores
from framenest.protocols import Store
from framenest.text import one_line

VectorStore: TypeAlias = "ScannedVectors | LibraryVectors"
VECTORS_FORMAT = 1
BLOCK_NUMBERS = 384 * 1024
"""Numbers that are converted at a time: few enough for a core's cache, enough that threads rarely wait for
Python's lock."""
UNSIGNED_BITS = np.int32(-0x70002000)
"""Of a float16 number's bits, widened and shifted by 13: all but the copies of its sign."""
MIN_INDEXED_ROWS, PARTITION_ROWS = 100_000, 4096
"""Rows from which on a table gets an index, and rows in a partition of it."""
INDEX_BITS, REFINE_FACTOR = 4, 5
"""Bits of a number in the index, and how many times the wanted rows are then compared exactly.
benchmarks/search.py measures how much of the exact scan's result they find."""
VERSION_AGE = timedelta(hours=1)
"""Age from which on an earlier version of a table is removed; a younger one may still be read."""


class Nearest(NamedTuple):
    """Rows, best first: keys of their videos, (n,) int64 frames and (n,) float32 scores."""

    videos: list[str]
    frames: NDArray[np.int64]
    scores: NDArray[np.float32]


class ScannedVectors:
    """Vectors of one space in the cache: an entry per video, all of which are read for each query.

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
        """What `put` stored about each video, by key."""
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
            scans = [row for rows in pool.map(lambda mine: self._scan(mine, query), shares) for row in rows]
        frames = np.concatenate([np.zeros(0, np.int64), *(row[1] for row in scans)])
        scores = np.concatenate([np.zeros(0, np.float32), *(row[2] for row in scans)])
        owners = np.repeat(np.arange(len(scans)), [len(row[1]) for row in scans])
        # A whole sort would take a quarter of the time.
        least = np.partition(scores, -count)[-count] if len(scores) > count else -np.inf
        enough = np.flatnonzero(scores >= least)
        best = enough[np.argsort(-scores[enough], kind="stable")[:count]]
        return Nearest([scans[owner][0] for owner in owners[best]], frames[best], scores[best])

    def _scan(self, videos: Sequence[str], query: NDArray[np.float32]) -> list[Any]:
        """(video, frames, scores) of each video that has rows.

        A float16 number times 2⁻¹¹² is the float32 number of the same bits, moved: numpy's own conversion
        is several times slower.
        """
        scaled = query.astype(np.float32) * np.float32(2.0**112)
        numbers, scans = np.empty((max(1, BLOCK_NUMBERS // len(query)), len(query)), np.int32), []
        for video in videos:
            unverified = {"checked": False} if isinstance(self._store, ManagedStore) else {}
            entry = self._store.get(self.key(video), **unverified)
            if entry is None:
                continue
            frames, vectors = entry[1]["frames"].copy(), entry[1]["vectors"]
            rows = vectors.reshape(-1, len(query)).view(np.int16)
            scores = np.empty(len(rows), np.float32)
            for at in range(0, len(rows), len(numbers)):
                some = rows[at : at + len(numbers)]
                bits = numbers[: len(some)]
                np.copyto(bits, some)
                np.left_shift(bits, 13, out=bits)
                np.bitwise_and(bits, UNSIGNED_BITS, out=bits)
                np.dot(bits.view(np.float32), scaled, out=scores[at : at + len(some)])
            scans.append((video, frames, scores.reshape(len(frames), -1).max(axis=1, initial=-np.inf)))
        return scans

    def key(self, video: str) -> str:
        """The store's key for the rows of a video."""
        return f"vectors/{digest(video)[:24]}{self._suffix}"


class LibraryVectors:
    """As ScannedVectors, in LanceDB: a table for each space, with a row for each probe.

    uri: a directory, or an address such as s3://bucket/library. Credentials and the endpoint come from the
    variables that a cache at an address uses, such as AWS_ENDPOINT_URL. MissingExtra: LanceDB is not
    installed; StoreError, also from its methods: the library cannot be read or written.
    """

    def __init__(self, uri: str, space: str) -> None:
        self.location, self.space = uri, space
        self._base, self._name = connect(uri), f"probes-{digest(space)[:16]}"
        self._opened: Any = None
        self._listed: tuple[int, dict[str, dict[str, Any]]] = (0, {})  # a version of the table, its videos

    def put(
        self, video: str, about: Mapping[str, Any], frames: NDArray[np.int64], vectors: NDArray[np.float16]
    ) -> None:
        """Store the rows of a video, instead of those of the same content and those of the same path."""
        import pyarrow as pa

        same = {"video": video, "fingerprint": about["fingerprint"], "path": about["video"]["path"]}
        count, vectors = len(frames), _padded(vectors)
        flat = pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), vectors.shape[-1])
        if vectors.ndim > 2:  # several for a frame
            flat = pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32) * vectors.shape[1], flat)
        columns = {name: [value] * count for name, value in {**same, "scorer": self.space}.items()}
        once = [json.dumps(about), *[None] * (count - 1)][:count]
        rows = pa.table({**columns, "frame": frames, "vector": flat, "about": once})
        with _failing(self.location, "written"):
            table = self._base.create_table(self._name, schema=rows.schema, exist_ok=True)
            table.delete(" OR ".join(f"{name} = {_quoted(value)}" for name, value in same.items()))
            table.add(rows)

    def has(self, video: str) -> bool:
        with _failing(self.location, "read"):
            return any(table.count_rows(f"video = {_quoted(video)}") for table in self._tables())

    def videos(self) -> dict[str, dict[str, Any]]:
        with _failing(self.location, "read"):
            for table in self._tables():
                if (version := table.version) != self._listed[0]:
                    rows = table.search().where("about IS NOT NULL").select(["video", "about"]).limit(None)
                    pairs = rows.to_arrow().to_pylist()
                    self._listed = version, {pair["video"]: json.loads(pair["about"]) for pair in pairs}
        return self._listed[1]

    def nearest(
        self, query: NDArray[np.float32], count: int, videos: Collection[str] | None = None
    ) -> Nearest:
        with _failing(self.location, "read"):
            for table in self._tables():
                search = table.search(_padded(query), vector_column_name="vector")
                # A query looks at all partitions: words lie apart from pictures, so the nearest few mislead.
                search = search.distance_type(_metric(table)).nprobes(
                    table.count_rows() // PARTITION_ROWS + 1
                )
                if videos is not None and not self.videos().keys() <= set(videos):
                    search = search.where(f"video IN ({', '.join(map(_quoted, videos))})", prefilter=True)
                search = search.refine_factor(REFINE_FACTOR).limit(count)
                rows = search.select(["video", "frame", "_distance"]).to_arrow()
                scores = (1 - rows["_distance"].to_numpy()).astype(np.float32)
                return Nearest(rows["video"].to_pylist(), rows["frame"].to_numpy(), scores)
        return Nearest([], np.zeros(0, np.int64), np.zeros(0, np.float32))

    def _tables(self) -> list[Any]:
        """The table of the space; none if nothing was put yet."""
        if self._opened is None and self._name in self._base.list_tables().tables:
            self._opened = self._base.open_table(self._name)
        return [] if self._opened is None else [self._opened]


def connect(uri: str) -> Any:
    """LanceDB's connection to a library. Raises MissingExtra or StoreError."""
    with needs_extra("library", "lancedb"):
        import lancedb
    plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http:")
    options = {"allow_http": "true"} if plain else None
    with _failing(uri, "opened"):  # what others have put is seen at once
        return lancedb.connect(uri, storage_options=options, read_consistency_interval=timedelta(0))


def optimize(uri: str) -> None:
    """Join the rows of many videos into few files, and index the vectors of a table if they are many."""
    base = connect(uri)
    with _failing(uri, "written"):
        for table in map(base.open_table, base.list_tables().tables):
            partitions = table.count_rows() // PARTITION_ROWS
            if table.count_rows() >= MIN_INDEXED_ROWS and not table.list_indices():
                from lancedb.index import IvfRq

                how = IvfRq(distance_type=_metric(table), num_partitions=partitions, num_bits=INDEX_BITS)
                table.create_index("vector", config=how)
            table.optimize(cleanup_older_than=VERSION_AGE)


@contextmanager
def _failing(uri: str, done: str) -> Iterator[None]:
    """Turns whatever LanceDB raises into a StoreError that names the library."""
    try:
        yield
    except Exception as error:
        raise StoreError(f"{uri}: cannot be {done} ({one_line(error)})") from error


def _metric(table: Any) -> str:
    """The dot product; several vectors for a frame, which are unit vectors, need the cosine."""
    return "cosine" if str(table.schema.field("vector").type).startswith("list") else "dot"


def _padded(vectors: NDArray[Any]) -> NDArray[Any]:
    """With zeros at the end: the index wants a multiple of eight numbers."""
    return np.pad(vectors, [(0, 0)] * (vectors.ndim - 1) + [(0, -vectors.shape[-1] % 8)])


def _quoted(text: str) -> str:
    """A string of SQL."""
    return "'" + text.replace("'", "''") + "'"


def open_vectors(store: Store, space: str, library: str | None = None) -> VectorStore:
    """The vectors of a space: in the cache, or in the library at a URI."""
    return ScannedVectors(store, space) if library is None else LibraryVectors(library, space)
