"""DirectoryStore: the cache on disk."""

from __future__ import annotations

import mmap
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from platformdirs import user_cache_path

from framenest.cache.archive import DamagedFile, OtherFormat, pack_pieces, unpack
from framenest.cache.files import remove_unused, share, write_atomic
from framenest.cache.hashes import file_hash, known_hash
from framenest.errors import CacheWarning, StoreError, VideoError
from framenest.frames import Array
from framenest.protocols import Store, StoreEntry

SUFFIX = ".safetensors"
DOWNLOADS = "remote/"
"""Videos downloaded whole, from servers without range requests."""
PART = ".part"
"""Suffix of incomplete downloads."""
ABANDONED = 3600.0
"""Seconds after which an unlocked temporary file counts as left behind by a killed process."""
TOUCHED = 60.0
"""Seconds before reading an entry sets its modification time again, which tells when it was last used."""
MAPPED = 2**20
"""Bytes from which on an entry is mapped into memory instead of read."""


class DamagedEntry(CacheWarning):
    """A checksum does not match; the entry is recomputed."""


class UnwritableCache(CacheWarning):
    """An entry could not be stored; the next run recomputes it."""


def cache_dir() -> Path:
    """FRAMENEST_CACHE if that is a directory, otherwise the user's cache directory."""
    chosen = os.environ.get("FRAMENEST_CACHE", "")
    return Path(chosen).expanduser() if chosen and "://" not in chosen else user_cache_path("framenest")


def entry_name(key: str) -> str:
    """Path of a key's file below the root of a store.

    >>> entry_name("index/3f2a9c")
    'index/3f/3f2a9c.safetensors'
    """
    kind, name = key.split("/")
    return f"{kind}/{name[:2]}/{name}{SUFFIX}"


def unpack_or_warn(
    data: bytes | mmap.mmap, key: str, where: str
) -> tuple[dict[str, Any], dict[str, Array]] | None:
    """The value of an entry; None if another version wrote it, or, with a warning, if it is damaged."""
    try:
        return unpack(data, key=key)
    except OtherFormat:
        return None
    except DamagedFile as error:
        warnings.warn(f"{where}: damaged cache entry, recomputing: {error}", DamagedEntry, stacklevel=3)
        return None


def keep(store: Store, key: str, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Store a value that can be recomputed: if it cannot be written, only warn."""
    try:
        store.put(key, header, arrays)
    except StoreError as error:
        warnings.warn(f"not cached for the next run: {error}", UnwritableCache, stacklevel=2)


def _contents(file: BinaryIO) -> bytes | mmap.mmap:
    if os.fstat(file.fileno()).st_size < MAPPED:
        return file.read()
    share(file)  # lasts as long as the memory map, and so as the arrays in it
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class DirectoryStore:
    """One file per key below a directory, in 256 folders per kind; many processes may share it.

    Writes are atomic. No process waits for another, and a killed one leaves no lock behind. A file that is
    mapped into some process's memory is in use, and is not removed. The directory also holds what only this
    machine needs: fingerprints of its files, downloaded videos, model files.

    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = DirectoryStore(folder)
    ...     store.put("index/ab12", {"format": 1}, {"x": np.arange(3)})
    ...     store.get("index/ab12")
    ({'format': 1}, {'x': array([0, 1, 2])})
    """

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = Path(root).expanduser() if root is not None else cache_dir()

    @property
    def location(self) -> str:
        return str(self.root)

    def path(self, key: str) -> Path:
        """The file of an entry or a download."""
        return self.root / (key if key.startswith(DOWNLOADS) else entry_name(key))

    def get(self, key: str) -> tuple[dict[str, Any], dict[str, Array]] | None:
        path = self.path(key)
        try:
            with path.open("rb") as file:
                data = _contents(file)
                if not 0 <= time.time() - os.fstat(file.fileno()).st_mtime < TOUCHED:
                    with suppress(OSError):  # read-only, or not ours
                        os.utime(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
        return unpack_or_warn(data, key, str(path))

    def put(self, key: str, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        write_atomic(self.path(key), *pack_pieces(header, arrays, key=key))

    def has(self, key: str) -> bool:
        return self.path(key).is_file()

    def entries(self, kind: str | None = None) -> Iterator[StoreEntry]:
        now = time.time()
        for folder, path, stat in self._files(None if kind is None else (kind,)):
            used = stat.st_mtime
            if path.suffix == SUFFIX and path.relative_to(self.root / folder).parts[:-1] == (path.name[:2],):
                key = f"{folder}/{path.stem}"
            elif f"{folder}/" == DOWNLOADS and path.suffix != PART:
                key, used = f"{DOWNLOADS}{path.name}", max(used, stat.st_atime)
            else:
                continue
            yield StoreEntry(key, stat.st_size, max(0.0, now - used))

    def check(self, key: str) -> str | None:
        if key.startswith(DOWNLOADS):  # a video, which has no checksum
            return None
        try:
            with self.path(key).open("rb") as file:
                unpack(_contents(file), key=key)
        except (FileNotFoundError, OtherFormat):  # removed meanwhile, or another version's
            return None
        except DamagedFile as error:
            return str(error)
        except OSError as error:
            return f"cannot be read ({error.strerror})"
        return None

    def remove(self, key: str) -> bool:
        return remove_unused(self.path(key))

    def sweep(self, *, dry_run: bool = False) -> tuple[int, int]:
        """Remove what killed processes left behind, and fingerprints of files that no longer exist."""
        now, count, freed = time.time(), 0, 0
        for kind, path, stat in self._files():
            temporary = path.name.startswith(".") and path.suffix == ".tmp"
            if temporary or (f"{kind}/" == DOWNLOADS and path.suffix == PART):
                useless = now - stat.st_mtime >= ABANDONED
            else:
                useless = kind == "fingerprints" and path.suffix == SUFFIX and _is_stale(path)
            if useless and (dry_run or remove_unused(path)):
                count, freed = count + 1, freed + stat.st_size
        return count, freed

    def size(self) -> dict[str, tuple[int, int]]:
        files, sizes = Counter[str](), Counter[str]()
        for kind, _, stat in self._files():
            files[kind] += 1
            sizes[kind] += stat.st_size
        return {kind: (files[kind], sizes[kind]) for kind in sorted(files)}

    def clear(self, kinds: tuple[str, ...]) -> int:
        own = [kind for kind in kinds if not (self.root / kind).is_symlink()]  # a link leads elsewhere
        freed = sum(stat.st_size for _, path, stat in self._files(own) if remove_unused(path))
        for kind in own:
            for folder, _, _ in os.walk(self.root / kind, topdown=False):
                with suppress(OSError):  # not empty
                    Path(folder).rmdir()
        return freed

    def _files(self, kinds: Iterable[str] | None = None) -> Iterator[tuple[str, Path, os.stat_result]]:
        """(kind, path, stat) of all files, or of those of some kinds, even if folders vanish meanwhile."""
        if kinds is None:
            kinds = sorted(path.name for path in self.root.iterdir()) if self.root.is_dir() else []
        for kind in kinds:
            for folder, _, names in os.walk(self.root / kind):
                for path in (Path(folder) / name for name in sorted(names)):
                    try:
                        stat = path.stat()
                    except OSError:
                        continue
                    yield kind, path, stat

    def fingerprint(self, path: str) -> str:
        """Hash of a video's whole content, cached. VideoError if it cannot be read."""
        with _unreadable_as_video_error(path):
            return file_hash(path, self)

    def known_fingerprint(self, path: str) -> str | None:
        """The cached fingerprint; None if the video would have to be read."""
        with _unreadable_as_video_error(path):
            return known_hash(path, self)


@contextmanager
def _unreadable_as_video_error(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise VideoError(f"{path}: {(error.strerror or 'cannot be read').lower()}") from error


def local_directory(store: Store | None) -> DirectoryStore:
    """This machine's own directory: the store itself if it is a directory, otherwise the user's cache."""
    return store if isinstance(store, DirectoryStore) else DirectoryStore()


def _is_stale(note: Path) -> bool:
    """Whether a fingerprint's file no longer exists, or the fingerprint itself is damaged."""
    try:
        return not Path(unpack(note.read_bytes())[0]["seen"][0]).exists()
    except (DamagedFile, KeyError, IndexError, TypeError):
        return True
    except OSError:  # no access to the folder: cannot tell
        return False
