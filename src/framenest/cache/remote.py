"""RemoteStore: a cache at s3://, gs:// or any other URL that fsspec can open."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from framenest.cache.directory import DirectoryStore, ManagedStore, entry_name
from framenest.errors import FramenestError, StoreError, needs_extra
from framenest.text import one_line

ATOMIC = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "memory"})
"""File systems that write objects atomically; on others, a temporary object is renamed."""
MIN_AGE_SECONDS = 86400.0
"""Seconds before an entry may be removed. Objects cannot be locked; a younger one may be in use."""
_WRITTEN_FIELDS = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")


class RemoteStore(ManagedStore):
    """Entries at a URL that many machines share; everything else stays in each machine's cache directory.

    >>> store = RemoteStore("memory://library")
    >>> store.put("index/ab12", {"format": 1}, {})
    >>> store.get("index/ab12"), store.has("index/cd34")
    (({'format': 1}, {}), False)
    """

    def __init__(self, url: str) -> None:
        self.location = url.rstrip("/")

    def has(self, key: str) -> bool:
        with self._failing("read", entry_name(key)):
            return bool(self._system.isfile(entry_name(key)))

    def clear(self, kinds: tuple[str, ...]) -> int:
        sizes = {kind: size for kind, (_, size) in self.size().items() if kind in kinds}
        with self._failing("cleared"):
            for kind in sizes:
                self._system.rm(kind, recursive=True)
        return sum(sizes.values())

    def _read(self, path: str, *, use: bool, first: int | None = None) -> bytes | None:
        with self._failing("read", path), suppress(FileNotFoundError, NotADirectoryError):
            data: bytes = self._system.cat_file(path, end=first)
            return data
        return None

    def _write(self, path: str, pieces: list[bytes | memoryview]) -> None:
        data = b"".join(pieces)
        with self._failing("written", path):
            protocols = self._system.fs.protocol
            if ATOMIC.intersection([protocols] if isinstance(protocols, str) else protocols):
                self._system.pipe_file(path, data)
                return
            folder, _, name = path.rpartition("/")
            temporary = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
            self._system.makedirs(folder, exist_ok=True)
            try:
                self._system.pipe_file(temporary, data)
                self._system.mv(temporary, path)
            except BaseException:
                with suppress(Exception):
                    self._system.rm_file(temporary)
                raise

    def _list(self, kind: str | None = None) -> Iterator[tuple[str, int, float]]:
        now, files = time.time(), {}
        with self._failing("listed"), suppress(FileNotFoundError):
            files = self._system.find(kind or "", detail=True)
        for path, info in files.items():
            yield path, int(info["size"]), max(0.0, now - _written(info))

    def _remove(self, path: str) -> bool:
        with self._failing("removed", path), suppress(FileNotFoundError):
            if time.time() - _written(self._system.info(path)) < MIN_AGE_SECONDS:
                return False
            self._system.rm_file(path)
        return True

    @property
    def _system(self) -> Any:
        """The file system below the URL. fsspec keeps the connection, and opens another one after a fork."""
        system, path = file_system(self.location)
        from fsspec.implementations.dirfs import DirFileSystem

        return DirFileSystem(path.rstrip("/"), system)

    @contextmanager
    def _failing(self, done: str, path: str = "") -> Iterator[None]:
        """Turns whatever the file system raises into a StoreError that names the file."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            where = f"{self.location}/{path}" if path else self.location
            raise StoreError(f"{where}: cannot be {done} ({one_line(error)})") from error


def file_system(url: str, kind: type[FramenestError] = StoreError) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the path in it. Raises an error of this kind if there is none."""
    with needs_extra("remote", "fsspec"):
        import fsspec
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise kind(f"{url}: {error}") from error
    except Exception as error:
        raise kind(f"{url}: cannot be opened ({error})") from error
    return system, path


def _written(info: Mapping[str, Any]) -> float:
    """When an object was written, in seconds since the epoch; infinity if unknown."""
    value = next((info[name] for name in _WRITTEN_FIELDS if info.get(name) is not None), None)
    value = datetime.fromisoformat(value) if isinstance(value, str) else value
    if isinstance(value, datetime):
        return value.timestamp()
    return float(value) if value is not None else float("inf")


def open_store(where: str | os.PathLike[str] | None = None) -> DirectoryStore | RemoteStore:
    """The store at a directory or URL; by default FRAMENEST_CACHE, or the user's cache directory.

    >>> open_store("s3://bucket/library").location, open_store("cache").location
    ('s3://bucket/library', 'cache')
    """
    text = os.environ.get("FRAMENEST_CACHE", "") if where is None else os.fspath(where)
    return RemoteStore(text) if "://" in text else DirectoryStore(where)
