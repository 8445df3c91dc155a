"""DirectoryStore, the cache on disk; its base class ManagedStore; verification and eviction."""

from __future__ import annotations

import mmap
import os
import shutil
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from platformdirs import user_cache_path

from framenest.cache.archive import DamagedFile, OtherFormat, pack_pieces, unpack, unpack_header
from framenest.cache.files import TEMPORARY_SUFFIX, remove_unused, share, write_atomic
from framenest.cache.hashes import file_hash
from framenest.errors import CacheWarning, StoreError, VideoError
from framenest.frames import Array
from framenest.processes import FEATURES_VARIABLE, limit_in
from framenest.protocols import Progress, Store
from framenest.text import size_text

ENTRY_SUFFIX = ".safetensors"
DOWNLOADS = "remote/"  # videos downloaded whole, from servers without range requests
PART_SUFFIX = ".part"  # suffix of incomplete downloads of yt-dlp
ABANDONED_SECONDS = 3600.0
"""Seconds after which an unlocked temporary file counts as left behind by a killed process."""
TOUCH_SECONDS = 60.0
"""A read updates an entry's modification time, the time of its last use, once per this many seconds."""
MIN_MAPPED_BYTES = 2**20  # entries of at least this many bytes are memory-mapped instead of read
ENTRY_HEADER_BYTES = 2**16  # bytes at the start of an entry that hold its header
Value = TypeVar("Value")


class DamagedEntry(CacheWarning):
    """A checksum does not match; the entry is recomputed."""


class UnwritableCache(CacheWarning):
    """An entry could not be stored; the next run recomputes it."""


def cache_dir() -> Path:
    """FRAMENEST_CACHE if that is a directory, otherwise the user's cache directory."""
    chosen = os.environ.get("FRAMENEST_CACHE", "")
    return Path(chosen).expanduser() if chosen and "://" not in chosen else user_cache_path("framenest")


def entry_name(key: str) -> str:
    """Path of a key's file below the root of a store; downloads keep their name.

    >>> entry_name("index/3f2a9c")
    'index/3f/3f2a9c.safetensors'
    """
    kind, _, name = key.partition("/")
    return key if key.startswith(DOWNLOADS) else f"{kind}/{name[:2]}/{name}{ENTRY_SUFFIX}"


def keep(store: Store, key: str, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Store a value that can be recomputed: if it cannot be written, only warn."""
    try:
        store.put(key, header, arrays)
    except StoreError as error:
        warnings.warn(f"not cached for the next run: {error}", UnwritableCache, stacklevel=2)


@dataclass(frozen=True)
class StoreEntry:
    """A value in a store: its key, bytes, and seconds since its last use."""

    key: str
    size: int
    idle: float


class ManagedStore(ABC):
    """A store of files that can be listed and cleaned, for `framenest index` and `framenest cache`.

    Subclasses read, write, list and remove files, by paths relative to `location`.
    """

    location: str  # directory or URL

    def get(
        self, key: str, *, checked: bool = True, use: bool = True
    ) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """As `Store.get`. checked: verify its checksum. use: count this as a use (LRU)."""
        return self._valid(key, partial(unpack, key=key, checked=checked), use=use)

    def header(self, key: str) -> dict[str, Any] | None:
        """The header of a value, without reading its arrays, verifying its checksum or counting as a use."""
        return self._valid(key, partial(unpack_header, key=key), use=False, first=ENTRY_HEADER_BYTES)

    def _valid(self, key: str, parse: Callable[..., Value], **how: Any) -> Value | None:
        """What `parse` makes of a file read as `how` says; None if it is missing or damaged."""
        data = self._read(entry_name(key), **how)
        try:
            return None if data is None else parse(data)
        except OtherFormat:
            pass
        except DamagedFile as error:
            text = f"{self.location}/{entry_name(key)}: damaged cache entry, recomputing: {error}"
            warnings.warn(text, DamagedEntry, stacklevel=2)
        return None

    def put(self, key: str, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self._write(entry_name(key), pack_pieces(header, arrays, key=key))

    def entries(self, kind: str | None = None) -> Iterator[StoreEntry]:
        """All entries and downloads, or those of one kind, in no particular order."""
        for path, size, idle in self._list(kind):
            folder, _, name = path.partition("/")
            key = f"{folder}/{PurePosixPath(name).stem}" if name.endswith(ENTRY_SUFFIX) else path
            if path == entry_name(key) and not name.endswith((PART_SUFFIX, TEMPORARY_SUFFIX)):
                yield StoreEntry(key, size, idle)

    def check(self, key: str) -> str | None:
        """Say what is wrong with a key's value; None if its checksum matches."""
        try:
            data = None if key.startswith(DOWNLOADS) else self._read(entry_name(key), use=False)
            if data is not None:
                unpack(data, key=key)
        except OtherFormat:
            pass
        except (DamagedFile, StoreError) as error:
            return str(error)
        return None

    def remove(self, key: str) -> bool:
        """Remove a value unless it is in use; returns whether it is gone."""
        return self._remove(entry_name(key))

    def sweep(self, *, dry_run: bool = False) -> tuple[int, int]:
        """Remove leftovers of killed processes; returns the number of files and their bytes."""
        count, freed = 0, 0
        for path, size, idle in self._list():
            name = path.rpartition("/")[2]
            partial = path.startswith(DOWNLOADS) and name.endswith(PART_SUFFIX)
            temporary = name.startswith(".") and name.endswith(TEMPORARY_SUFFIX)
            if (partial or temporary) and idle >= ABANDONED_SECONDS and (dry_run or self._remove(path)):
                count, freed = count + 1, freed + size
        return count, freed

    def size(self) -> dict[str, tuple[int, int]]:
        """Number of files and bytes of each kind."""
        files, sizes = Counter[str](), Counter[str]()
        for path, size, _ in self._list():
            kind = path.partition("/")[0]
            files[kind] += 1
            sizes[kind] += size
        return {kind: (files[kind], sizes[kind]) for kind in sorted(files)}

    @abstractmethod
    def has(self, key: str) -> bool:
        """Whether a key has a value, without reading it."""

    @abstractmethod
    def clear(self, kinds: tuple[str, ...]) -> int:
        """Remove all values of some kinds; returns the bytes freed."""

    @abstractmethod
    def _read(self, path: str, *, use: bool, first: int | None = None) -> bytes | mmap.mmap | None:
        """The content of a file, or its first bytes; None if it does not exist. use: count as a use (LRU)."""

    @abstractmethod
    def _write(self, path: str, pieces: list[bytes | memoryview]) -> None:
        """Write a file atomically."""

    @abstractmethod
    def _list(self, kind: str | None = None) -> Iterator[tuple[str, int, float]]:
        """(path, bytes, seconds since its last use) of all files, or of those of one kind."""

    @abstractmethod
    def _remove(self, path: str) -> bool:
        """Remove a file unless it is in use; returns whether it is gone."""


class DirectoryStore(ManagedStore):
    """One file per key below a directory, in 256 folders per kind; many processes may share it.

    Writes are atomic. No process waits for another, and a killed one leaves no lock behind. A file that a
    process has mapped into memory is in use and is not removed. The directory also holds data for this
    machine only: fingerprints of its files, downloaded videos, model files.

    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = DirectoryStore(folder)
    ...     store.put("index/ab12", {"format": 1}, {"x": np.arange(3)})
    ...     store.get("index/ab12")
    ({'format': 1}, {'x': array([0, 1, 2])})
    """

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = Path(root).expanduser() if root is not None else cache_dir()
        self.location = str(self.root)

    def path(self, key: str) -> Path:
        """The file of an entry or a download."""
        return self.root / entry_name(key)

    def has(self, key: str) -> bool:
        return self.path(key).is_file()

    def clear(self, kinds: tuple[str, ...]) -> int:
        freed = 0
        for kind in kinds:
            if (self.root / kind).is_symlink():  # leads elsewhere
                continue
            freed += sum(size for path, size, _ in self._list(kind) if self._remove(path))
            for folder, _, _ in os.walk(self.root / kind, topdown=False):
                with suppress(OSError):  # not empty
                    Path(folder).rmdir()
        return freed

    def fingerprint(self, path: str) -> str:
        """Hash of a video's whole content, cached. VideoError if it cannot be read."""
        try:
            return file_hash(path, self)
        except OSError as error:
            raise VideoError(f"{path}: {(error.strerror or 'cannot be read').lower()}") from error

    def _read(self, path: str, *, use: bool, first: int | None = None) -> bytes | mmap.mmap | None:
        try:
            if not (self.root / path).is_file():  # a pipe would block, a device would never end
                return None
            with (self.root / path).open("rb") as file:
                stat = os.fstat(file.fileno())
                if use and not 0 <= time.time() - stat.st_mtime < TOUCH_SECONDS:
                    with suppress(OSError):  # read-only, or not ours
                        os.utime(self.root / path)
                if first is not None or stat.st_size < MIN_MAPPED_BYTES:
                    return file.read(first)
                share(file)  # held as long as the memory map and the arrays in it live
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"{self.root / path}: cannot be read ({error.strerror})") from error

    def _write(self, path: str, pieces: list[bytes | memoryview]) -> None:
        write_atomic(self.root / path, *pieces, follow=False)

    def _list(self, kind: str | None = None) -> Iterator[tuple[str, int, float]]:
        now = time.time()
        kinds = [kind] if kind else sorted(p.name for p in self.root.iterdir()) if self.root.is_dir() else []
        for folder, _, names in (row for each in kinds for row in os.walk(self.root / each)):
            for path in (Path(folder) / name for name in sorted(names)):
                with suppress(OSError):  # removed meanwhile
                    stat = path.stat()
                    used = stat.st_mtime if path.suffix == ENTRY_SUFFIX else max(stat.st_atime, stat.st_mtime)
                    yield path.relative_to(self.root).as_posix(), stat.st_size, max(0.0, now - used)

    def _remove(self, path: str) -> bool:
        return remove_unused(self.root / path)


def local_directory(store: Store | None) -> DirectoryStore:
    """This machine's own directory: the store itself if it is a directory, otherwise the user's cache."""
    return store if isinstance(store, DirectoryStore) else DirectoryStore()


@dataclass
class EvictionReport:
    """The result of `collect`: evicted entries by reason, bytes freed and remaining, and entries in use."""

    removed: Counter[str] = field(default_factory=Counter)
    freed: int = 0
    remaining: int = 0
    in_use: int = 0


def verify(store: ManagedStore, *, progress: Progress = lambda *_: None) -> dict[StoreEntry, str | None]:
    """Read every entry; says what is wrong with each, None if its checksum matches."""
    entries, checked = list(store.entries()), dict[StoreEntry, str | None]()
    for entry in entries:
        checked[entry] = store.check(entry.key)
        progress("entries", len(checked), len(entries))
    return checked


def collect(
    store: ManagedStore,
    *,
    older_than: float | None = None,
    max_bytes: float | None = None,
    dry_run: bool = False,
) -> EvictionReport:
    """Evict entries unused for `older_than` seconds, then the least recently used down to `max_bytes`.

    Entries in use stay. Temporary files of killed processes are always removed.

    >>> from framenest.cache.remote import RemoteStore
    >>> collect(RemoteStore("memory://new"), older_than=30 * 86400).remaining
    0
    """
    count, freed = store.sweep(dry_run=dry_run)
    done = evict(store, [*store.entries()], older_than=older_than, max_bytes=max_bytes, dry_run=dry_run)
    done.removed["left behind"] += count
    done.freed += freed
    return done


def evict(
    store: ManagedStore,
    entries: list[StoreEntry],
    *,
    older_than: float | None = None,
    max_bytes: float | None = None,
    dry_run: bool = False,
) -> EvictionReport:
    """Evict entries from this list, as `collect` does."""
    planned = sum(entry.size for entry in entries)
    report = EvictionReport(remaining=planned)
    for entry in sorted(entries, key=lambda entry: -entry.idle):
        if older_than is not None and entry.idle >= older_than:
            reason = "unused for too long"
        elif max_bytes is not None and planned > max_bytes:
            reason = "over the size limit"
        else:
            continue
        planned -= entry.size  # even if it is in use: no more recent entry is evicted instead
        if dry_run or store.remove(entry.key):
            report.removed[reason] += 1
            report.freed += entry.size
            report.remaining -= entry.size
        else:
            report.in_use += 1
    return report


FEATURES_BYTES = 20 * 2**30
"""Default limit for all features in a directory, in bytes; FREE_SHARE may lower it."""
FREE_SHARE = 0.5  # share of the space that would be free without features
FEATURES_STEPS = 64  # a process lists the directory again after writing this share of the limit


class EvictedFeatures(CacheWarning):
    """Features of other videos were evicted to make room."""


class FeaturesLimit:
    """Limits the features in a cache directory. At a URL, or in your own store, there is no limit.

    The limit is $FRAMENEST_FEATURES_LIMIT, read at construction. By default it is 20 GiB, and at most half
    of the space that would be free without features. Entries in use stay, and so do those used after `since`
    (seconds since the epoch), if it is set.

    >>> FeaturesLimit(DirectoryStore("cache")).refusal(2**40)
    'all features may take 20.00 GiB in the cache ($FRAMENEST_FEATURES_LIMIT raises the limit)'
    """

    def __init__(self, store: Store) -> None:
        self.since: float | None = None
        self._store = store if isinstance(store, DirectoryStore) else None
        self._given = limit_in(FEATURES_VARIABLE)
        self._unseen = self._step = 0

    def refusal(self, size: int) -> str | None:
        """Why features of this size cannot be kept, even after evicting all others; None if they can."""
        if self._store is None:
            return None
        most = self._most(self._store.root, 0)
        if size <= most:
            return None
        return f"all features may take {size_text(most)} in the cache (${FEATURES_VARIABLE} raises the limit)"

    def written(self, size: int) -> None:
        """Count written bytes; from time to time, evict features over the limit."""
        self._unseen += size
        if self._store is None or self._unseen < self._step:
            return
        entries = [*self._store.entries("features")]
        taken = sum(entry.size for entry in entries)
        most = self._most(self._store.root, taken)
        self._unseen, self._step = 0, most // FEATURES_STEPS
        young = 0.0 if self.since is None else time.time() - self.since
        old = [entry for entry in entries if self.since is None or entry.idle > young]
        done = evict(self._store, old, max_bytes=most - (taken - sum(entry.size for entry in old)))
        left = taken - done.freed
        allowed = f"all features together may take {size_text(most)} (${FEATURES_VARIABLE} raises the limit)"
        if done.freed:
            text = f"{size_text(done.freed)} of the least recently used features were evicted from the cache"
            warnings.warn(f"{text}: {allowed}", EvictedFeatures, stacklevel=2)
        if self.since is not None and left > most:
            text = f"the features of this run alone take {size_text(left)} in the cache; {allowed}"
            warnings.warn(text, UnwritableCache, stacklevel=2)

    def _most(self, root: Path, taken: int) -> int:
        """Bytes that all features may take, if they take this many now."""
        if self._given is not None:
            return self._given
        root = root.absolute()  # need not exist yet
        there = next(path for path in (root, *root.parents) if path.is_dir())
        return int(min(FEATURES_BYTES, FREE_SHARE * (taken + shutil.disk_usage(there).free)))
