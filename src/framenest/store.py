"""Where indexes and features are kept between runs: a directory of self-checking files."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import shutil
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from framenest.archive import DamagedFile, pack, unpack, write_atomic
from framenest.errors import StoreError, VideoError
from framenest.frames import Array
from framenest.protocols import Store


class CacheWarning(UserWarning):
    """The cache does not do what it should; work goes on without it."""


class DamagedEntry(CacheWarning):
    """A cache entry was damaged; it is made anew."""


class UnwritableCache(CacheWarning):
    """An entry could not be kept; the next run makes it again."""


def cache_dir() -> Path:
    """FRAMENEST_CACHE, or the user's cache directory."""
    chosen = os.environ.get("FRAMENEST_CACHE")
    return Path(chosen).expanduser() if chosen else user_cache_path("framenest")


def digest(*parts: object) -> str:
    """A short stable name for what the parts say; they must be made of JSON values."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def size_text(count: int) -> str:
    """Bytes for people.

    >>> size_text(14_246_826)
    '13.6 MiB'
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def keep(store: Store, key: str, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Put a value that can be made again; where that fails, say so and go on."""
    try:
        store.put(key, header, arrays)
    except StoreError as error:
        warnings.warn(f"not kept for the next run: {error}", UnwritableCache, stacklevel=2)


MAPPED = 2**20
"""Files of this many bytes or more are mapped into memory instead of read."""


def _contents(path: Path) -> bytes | mmap.mmap:
    if path.stat().st_size < MAPPED:
        return path.read_bytes()
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class DirectoryStore:
    """One file per key under a directory; safe with many processes, since files are renamed into place.

    >>> store = DirectoryStore("cache")                     # doctest: +SKIP
    >>> store.put("index/ab12", {"format": 1}, {"x": x})    # doctest: +SKIP
    """

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = Path(root).expanduser() if root is not None else cache_dir()

    def path(self, key: str) -> Path:
        kind, name = key.split("/")
        return self.root / kind / name[:2] / f"{name}.safetensors"

    def get(self, key: str) -> tuple[dict[str, Any], dict[str, Array]] | None:
        path = self.path(key)
        try:
            data = _contents(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
        try:
            return unpack(data)
        except DamagedFile as error:
            warnings.warn(f"{path}: damaged cache entry, made anew: {error}", DamagedEntry, stacklevel=2)
            return None

    def put(self, key: str, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        write_atomic(self.path(key), pack(header, arrays))

    def size(self) -> dict[str, tuple[int, int]]:
        """Files and bytes by kind of entry."""
        sizes: dict[str, tuple[int, int]] = {}
        for kind in sorted(p for p in self.root.glob("*") if p.is_dir()):
            files = [f.stat().st_size for f in kind.rglob("*") if f.is_file()]
            sizes[kind.name] = (len(files), sum(files))
        return sizes

    def clear(self, kinds: tuple[str, ...]) -> int:
        """Remove all entries of some kinds; returns the bytes freed."""
        freed = 0
        for kind, (_, size) in self.size().items():
            if kind in kinds:
                shutil.rmtree(self.root / kind, ignore_errors=True)
                freed += size
        return freed

    def fingerprint(self, path: str) -> str:
        """Hash of a file's whole content, remembered by (path, size, modification time, inode)."""
        try:
            stat = Path(path).stat()
        except OSError as error:
            raise VideoError(f"{path}: {(error.strerror or 'cannot be read').lower()}") from error
        seen = [os.path.realpath(path), stat.st_size, stat.st_mtime_ns, stat.st_ino]
        note = self.root / "fingerprints" / digest(seen[0])[:2] / f"{digest(seen[0])}.json"
        try:
            kept = json.loads(note.read_text())
            if kept["seen"] == seen:
                return str(kept["fingerprint"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        try:
            with Path(path).open("rb") as file:
                hashed = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
        except OSError as error:
            raise VideoError(f"{path}: cannot be read ({error.strerror})") from error
        fingerprint = hashed.hexdigest()
        with suppress(StoreError):  # a read-only cache only costs the next run this hash
            write_atomic(note, json.dumps({"seen": seen, "fingerprint": fingerprint}).encode())
        return fingerprint
