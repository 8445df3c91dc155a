"""DirectoryStore: the cache on disk."""

from __future__ import annotations

import mmap
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from platformdirs import user_cache_path

from framenest.cache.archive import DamagedFile, OtherFormat, packed, unpack
from framenest.cache.files import InUse, note_use, remove_unused, touch, write_atomic
from framenest.cache.hashes import file_hash, known_hash
from framenest.errors import CacheWarning, StoreError, VideoError
from framenest.frames import Array
from framenest.protocols import Store, StoreEntry

SUFFIX = ".safetensors"
DOWNLOADS = "remote/"
"""Videos downloaded whole, from servers without range requests."""
PART = ".part"
"""How names of downloads end that are not complete."""
ABANDONED = 3600.0
"""Seconds after which a temporary file that nobody has locked counts as left behind."""


class DamagedEntry(CacheWarning):
    """A checksum does not match; the entry is made anew."""


class UnwritableCache(CacheWarning):
    """An entry could not be kept; the next run makes it again."""


def cache_dir() -> Path:
    """FRAMENEST_CACHE where that is a directory, or the user's cache directory."""
    chosen = os.environ.get("FRAMENEST_CACHE", "")
    return Path(chosen).expanduser() if chosen and "://" not in chosen else user_cache_path("framenest")


def entry_name(key: str) -> str:
    """Path of a key's file below the root of a store.

    >>> entry_name("index/3f2a9c")
    'index/3f/3f2a9c.safetensors'
    """
    kind, name = key.split("/")
    return f"{kind}/{name[:2]}/{name}{SUFFIX}"


def compressed(key: str) -> bool:
    """Whether entries are compressed: all but features, which are mapped into memory."""
    return not key.startswith("features/")


def unpack_or_warn(
    data: bytes | mmap.mmap, key: str, where: str
) -> tuple[dict[str, Any], dict[str, Array]] | None:
    """The value of an entry; None where another version wrote it, and with a warning where it is damaged."""
    try:
        return unpack(data, key=key)
    except OtherFormat:
        return None
    except DamagedFile as error:
        warnings.warn(f"{where}: damaged cache entry, made anew: {error}", DamagedEntry, stacklevel=3)
        return None


def keep(store: Store, key: str, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Put a value that can be made again; where that fails, only warn."""
    try:
        store.put(key, header, arrays)
    except StoreError as error:
        warnings.warn(f"not kept for the next run: {error}", UnwritableCache, stacklevel=2)


MAPPED = 2**20
"""Bytes from which on an uncompressed entry is mapped into memory instead of read."""


def _contents(file: BinaryIO, key: str) -> bytes | mmap.mmap:
    if compressed(key) or os.fstat(file.fileno()).st_size < MAPPED:
        return file.read()
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class DirectoryStore:
    """One file per key below a directory, in 256 folders per kind; many processes may share it.

    Writes are atomic. No process waits for another, and none leaves a lock behind. The directory also holds
    what only this machine needs: fingerprints of its files, downloaded videos, model files.

    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = DirectoryStore(folder)
    ...     store.put("index/ab12", {"format": 1}, {"x": np.arange(3)})
    ...     store.get("index/ab12")
    ({'format': 1}, {'x': array([0, 1, 2])})
    """

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = Path(root).expanduser() if root is not None else cache_dir()
        self._in_use = InUse()

    @property
    def location(self) -> str:
        return str(self.root)

    def path(self, key: str) -> Path:
        """The file of an entry or a download."""
        return self.root / (key if key.startswith(DOWNLOADS) else entry_name(key))

    def get(self, key: str) -> tuple[dict[str, Any], dict[str, Array]] | None:
        path = self.path(key)
        try:
            file = path.open("rb")
            data = _contents(file, key)
            touch(file)
            self._in_use.hold(path, file)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
        return unpack_or_warn(data, key, str(path))

    def put(self, key: str, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        write_atomic(self.path(key), *packed(header, arrays, key=key, compress=compressed(key)))
        self._in_use.hold(self.path(key))

    def has(self, key: str) -> bool:
        return self.path(key).is_file()

    def entries(self, kind: str | None = None) -> Iterator[StoreEntry]:
        now = self._now()
        for path in self._files() if kind is None else _files_below(self.root / kind):
            folder, *between, name = path.relative_to(self.root).parts
            download = f"{folder}/" == DOWNLOADS and not name.endswith(PART)
            if not download and not (between == [name[:2]] and path.suffix == SUFFIX):
                continue
            with suppress(OSError):  # gone meanwhile
                stat = path.stat()
                key = f"{path.parts[-3]}/{path.stem}" if path.suffix == SUFFIX else f"{DOWNLOADS}{path.name}"
                yield StoreEntry(key, stat.st_size, max(0.0, now - max(stat.st_atime, stat.st_mtime)))

    def check(self, key: str) -> str | None:
        if key.startswith(DOWNLOADS):  # a video as it came; it carries no checksum
            return None
        try:
            with self.path(key).open("rb") as file:
                stat = os.fstat(file.fileno())
                data = _contents(file, key)
                note_use(file, stat.st_atime_ns, stat.st_mtime_ns)  # looking after it is not using it
            unpack(data, key=key)
        except (FileNotFoundError, OtherFormat):  # removed meanwhile; of another version
            return None
        except DamagedFile as error:
            return str(error)
        except OSError as error:
            return f"cannot be read ({error.strerror})"
        return None

    def remove(self, key: str) -> bool:
        return remove_unused(self.path(key))

    def sweep(self, *, dry_run: bool = False) -> tuple[int, int]:
        """Remove temporary files and partial downloads of killed processes, and fingerprints of files that
        are gone."""
        now, count, freed = self._now(), 0, 0
        for path in self._files():
            kind = path.relative_to(self.root).parts[0]
            partial = path.name.startswith(".") and path.suffix == ".tmp"
            partial = partial or (f"{kind}/" == DOWNLOADS and path.suffix == PART)
            if not partial and not (kind == "fingerprints" and path.suffix == SUFFIX and _is_stale(path)):
                continue
            with suppress(OSError):  # gone meanwhile
                stat = path.stat()
                if partial and now - stat.st_mtime < ABANDONED:
                    continue
                if dry_run or remove_unused(path):
                    count, freed = count + 1, freed + stat.st_size
        return count, freed

    def release(self) -> None:
        """Unlock everything read or written so far."""
        self._in_use.release()

    def size(self) -> dict[str, tuple[int, int]]:
        sizes: dict[str, tuple[int, int]] = {}
        for path in self._files():
            with suppress(OSError):  # gone meanwhile
                size = path.stat().st_size
                kind = path.relative_to(self.root).parts[0]
                count, total = sizes.get(kind, (0, 0))
                sizes[kind] = (count + 1, total + size)
        return dict(sorted(sizes.items()))

    def clear(self, kinds: tuple[str, ...]) -> int:
        self.release()  # others' locks count, its own do not
        freed = 0
        for kind in kinds:
            folder = self.root / kind
            if folder.is_symlink():  # somebody else's
                continue
            for path in _files_below(folder):
                with suppress(OSError):  # gone meanwhile, or not ours
                    size = path.stat().st_size
                    if remove_unused(path):
                        freed += size
            for below, _, _ in os.walk(folder, topdown=False):
                with suppress(OSError):  # something is in there
                    Path(below).rmdir()
        return freed

    def _files(self) -> Iterator[Path]:
        """All files in folders of kinds."""
        kinds = sorted(self.root.iterdir()) if self.root.is_dir() else []
        return (path for kind in kinds for path in _files_below(kind))

    def fingerprint(self, path: str) -> str:
        """Hash of a video's whole content, remembered; VideoError where it cannot be read."""
        with _unreadable_as_video_error(path):
            return file_hash(path, self)

    def known_fingerprint(self, path: str) -> str | None:
        """The same where it is remembered; None where the video would have to be read."""
        with _unreadable_as_video_error(path):
            return known_hash(path, self)

    def _now(self) -> float:
        """The time of the file system that the store is on, which need not be this machine's."""
        try:
            with tempfile.TemporaryFile(dir=self.root) as file:
                return os.fstat(file.fileno()).st_mtime
        except OSError:
            return time.time()


@contextmanager
def _unreadable_as_video_error(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise VideoError(f"{path}: {(error.strerror or 'cannot be read').lower()}") from error


def local_directory(store: Store | None) -> DirectoryStore:
    """This machine's own directory: the store itself where it is a directory, else the user's cache."""
    return store if isinstance(store, DirectoryStore) else DirectoryStore()


def _files_below(folder: Path) -> Iterator[Path]:
    """Others may remove files and folders meanwhile; that ends nothing here."""
    for below, _, names in os.walk(folder):
        yield from (Path(below) / name for name in sorted(names))


def _is_stale(note: Path) -> bool:
    """Whether a fingerprint's file is gone; a damaged note is of no use either."""
    try:
        return not Path(unpack(note.read_bytes())[0]["seen"][0]).exists()
    except (DamagedFile, KeyError, IndexError, TypeError):
        return True
    except OSError:  # of somebody else's folders one cannot tell
        return False
