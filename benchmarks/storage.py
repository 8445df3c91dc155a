"""How well cache entries compress, and how long that takes: the choice behind `framenest.cache.archive`.

    python benchmarks/storage.py FOOTAGE      also measures zstd if the package zstandard is installed

CPU seconds; sizes as a share of the arrays' bytes.
"""

from __future__ import annotations

import lzma
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from machine import options, write

from framenest.cache.directory import DirectoryStore
from framenest.corpus.batch_job import BatchJob, WorkItem
from framenest.rank_request import RankRequest


def plain(array: np.ndarray) -> np.ndarray:
    return array


def filtered(array: np.ndarray) -> np.ndarray:
    """The filter of `framenest.cache.archive`."""
    if array.dtype == np.uint8 and array.ndim == 4:
        return np.diff(array, axis=2, prepend=np.uint8(0))
    return np.ascontiguousarray(array.reshape(-1).view(np.uint8).reshape(-1, array.dtype.itemsize).T)


def methods() -> dict[str, tuple[Any, Callable[[bytes], bytes], Callable[[bytes], bytes]]]:
    found: dict[str, Any] = {
        "zlib 1": (plain, lambda d: zlib.compress(d, 1), zlib.decompress),
        "filter, zlib 1": (filtered, lambda d: zlib.compress(d, 1), zlib.decompress),
        "filter, zlib 6": (filtered, lambda d: zlib.compress(d, 6), zlib.decompress),
        "filter, lzma 1": (filtered, lambda d: lzma.compress(d, preset=1), lzma.decompress),
    }
    try:
        import zstandard
    except ImportError:
        return found
    expand = zstandard.ZstdDecompressor().decompress
    return found | {
        f"filter, zstd {level}": (filtered, zstandard.ZstdCompressor(level).compress, expand)
        for level in (3, 9)
    }


def main(footage: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (outcome,) = BatchJob(cache=folder).open()((WorkItem(RankRequest(video=str(footage))),))
        store, rows = DirectoryStore(folder), {}
        for entry in store.entries():
            kind = entry.key.split("/")[0]
            if kind in ("index", "timeline"):
                rows[kind] = {"stored_bytes": entry.size, "methods": compare(store.get(entry.key)[1])}
            else:
                rows[kind] = {"stored_bytes": entry.size}
        hours = outcome.duration / 3600
        total = sum(row["stored_bytes"] for row in rows.values())
    print(f"{total / 2**20:.2f} MiB in all for {hours:.2f} h")
    print(write("storage", {"hours": hours, "total_bytes": total, "kinds": rows}))


def compare(arrays: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    raw, found = sum(array.nbytes for array in arrays.values()), {}
    for name, (prepare, compress, expand) in methods().items():
        began = time.process_time()
        packed = [compress(np.ascontiguousarray(prepare(a)).tobytes()) for a in arrays.values() if a.size]
        wrote = time.process_time() - began
        began = time.process_time()
        for data in packed:
            expand(data)
        read = time.process_time() - began
        share = sum(map(len, packed)) / raw
        found[name] = {"share": share, "write_ms": 1000 * wrote, "read_ms": 1000 * read}
        print(f"{name:16s} {share:.3f}  {1000 * wrote:6.0f} ms to write {1000 * read:5.0f} ms to read")
    return found


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("footage", type=Path)
    main(parser.parse_args().footage)
