"""Hashes of JSON values, as cache keys, and of whole files, cached so that a large file is read only once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from framenest.errors import StoreError
from framenest.processes import cores
from framenest.protocols import Store

FINGERPRINT_FORMAT = 3
PIECE_BYTES = 4 * 2**20  # bytes that one thread hashes at a time
SEQUENTIAL: dict[str, Callable[[int], Any]] = {
    "sha256": lambda _: hashlib.sha256(),
    "git": lambda size: hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False),
}
"""How to start hashing a file of a given size; "git" is how the Hugging Face hub names small files."""
METHODS = ("pieces", *SEQUENTIAL)
"""How a file may be hashed. "pieces" uses all cores: BLAKE2b of the BLAKE2b hashes of its pieces."""


def digest(*parts: object) -> str:
    """A stable hash of JSON values, as a short name.

    >>> digest("a", 1) == digest("a", 1), digest("a", 1) == digest("a", 2)
    (True, False)
    """
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def file_hash(
    path: str | os.PathLike[str], store: Store, method: str = "pieces", *, anew: bool = False
) -> str:
    """The hash of a file's whole content, cached by path, size, times of modification and change, and inode.

    method: one of METHODS. anew: ignore the cache, as `framenest cache verify` does to find bit rot.
    """
    state = _seen(path)
    key = f"fingerprints/{digest(state[0], method, FINGERPRINT_FORMAT)}"
    known = None if anew else store.get(key)
    if known is not None and known[0].get("seen") == state:
        return str(known[0]["fingerprint"])
    fingerprint = _read_hash(Path(path), state[1], method)
    with suppress(StoreError):  # a read-only cache
        store.put(key, {"seen": state, "fingerprint": fingerprint}, {})
    return fingerprint


def known_files(store: Any) -> dict[str, str]:
    """The files that `file_hash` has seen and that are unchanged: path by hash. store: a ManagedStore."""
    paths = {}
    for entry in store.entries("fingerprints"):
        with suppress(OSError, KeyError, TypeError):
            known, _ = store.get(entry.key, use=False)
            if known["seen"] == _seen(known["seen"][0]):
                paths[known["fingerprint"]] = known["seen"][0]
    return paths


def _seen(path: str | os.PathLike[str]) -> list[Any]:
    """A file's path, and what changes when it is rewritten."""
    stat = Path(path).stat()
    return [os.path.realpath(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def file_hashes(wanted: Sequence[tuple[Path, str]], store: Store, *, anew: bool = False) -> list[str]:
    """`file_hash` of several (file, method) pairs in parallel."""
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(lambda one: file_hash(one[0], store, one[1], anew=anew), wanted))


def _read_hash(path: Path, size: int, method: str) -> str:
    if method in SEQUENTIAL:
        with path.open("rb") as file:
            return str(hashlib.file_digest(file, lambda: SEQUENTIAL[method](size)).hexdigest())

    def piece(start: int) -> bytes:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(PIECE_BYTES)

    return _hash_of_pieces(size, piece)


def buffer_hash(data: memoryview) -> str:
    """The "pieces" hash of bytes in memory."""
    return _hash_of_pieces(len(data), lambda start: data[start : start + PIECE_BYTES])


def _hash_of_pieces(size: int, piece: Callable[[int], bytes | memoryview]) -> str:
    def hashed(start: int) -> bytes:
        return hashlib.blake2b(piece(start), digest_size=16).digest()

    starts = range(0, size, PIECE_BYTES)
    try:
        with ThreadPoolExecutor(min(cores(), len(starts)) or 1) as pool:  # hashing releases the GIL
            hashes = [*pool.map(hashed, starts)]
    except RuntimeError:  # Python is shutting down and starts no threads, but a last entry is being written
        hashes = [*map(hashed, starts)]
    return hashlib.blake2b(b"".join(hashes), digest_size=16).hexdigest()
