"""LibraryVectors: vectors of all probes in LanceDB, in a directory or at a URI that many machines share."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.cache.hashes import digest
from framenest.errors import StoreError, needs_extra
from framenest.retrieval.vectors import Nearest
from framenest.text import one_line

INDEXED, PARTITION = 100_000, 4096
"""Rows from which on a table gets an index, and rows in a partition of it."""
BITS, REFINED = 4, 5
"""Bits of a number in the index, and how many times the wanted rows are then compared exactly.
benchmarks/search.py measures how much of the exact scan's result they find."""
OLD = timedelta(hours=1)
"""Age from which on an earlier version of a table is removed; a younger one may still be read."""


class LibraryVectors:
    """As ScannedVectors, in LanceDB: a table for each space, with a row for each probe.

    Args:
        uri: a directory, or an address such as s3://bucket/library. Credentials and the endpoint come from
            the variables that a cache at an address uses, such as AWS_ENDPOINT_URL.
        space: what made the vectors.

    Raises:
        MissingExtra: LanceDB is not installed.
        StoreError: the library cannot be read or written.

    Example::

        LibraryVectors("s3://bucket/library", "tags 1").nearest(query, 10)
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
                asked = table.search(_padded(query), vector_column_name="vector")
                # A query looks at all partitions: words lie apart from pictures, so the nearest few mislead.
                asked = asked.distance_type(_metric(table)).nprobes(table.count_rows() // PARTITION + 1)
                if videos is not None and not self.videos().keys() <= set(videos):
                    asked = asked.where(f"video IN ({', '.join(map(_quoted, videos))})", prefilter=True)
                asked = asked.refine_factor(REFINED).limit(count).select(["video", "frame", "_distance"])
                rows = asked.to_arrow()
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
            partitions = table.count_rows() // PARTITION
            if table.count_rows() >= INDEXED and not table.list_indices():
                from lancedb.index import IvfRq

                how = IvfRq(distance_type=_metric(table), num_partitions=partitions, num_bits=BITS)
                table.create_index("vector", config=how)
            table.optimize(cleanup_older_than=OLD)


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
