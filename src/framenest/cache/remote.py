"""A store at an address: s3://, gs://, memory:// and whatever else fsspec can open."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any

from framenest.cache.archive import DamagedFile, pack, unpack
from framenest.cache.directory import SUFFIX, DirectoryStore, compressed, entry_name, unpack_or_warn
from framenest.errors import MissingExtra, StoreError
from framenest.frames import Array
from framenest.protocols import StoreEntry
from framenest.text import one_line

WHOLE = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "memory"})
"""File systems on which a written object appears whole or not at all; on others it is renamed into place."""
YOUNG = 86400.0
"""Seconds for which an entry counts as in use: nobody can lock an object, so no younger one is removed."""
_TIMES = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")


class RemoteStore(DirectoryStore):
    """Entries at an address that many machines share; models and downloads stay in a local directory.

    >>> store = RemoteStore("memory://library")
    >>> store.put("index/ab12", {"format": 1}, {})
    >>> store.get("index/ab12"), store.has("index/cd34")
    (({'format': 1}, {}), False)
    """

    def __init__(self, url: str, root: str | os.PathLike[str] | None = None) -> None:
        super().__init__(root)
        self.url = url.rstrip("/")

    @property
    def location(self) -> str:
        return self.url

    @cached_property
    def _place(self) -> tuple[Any, str]:
        """The file system and the path below which entries lie."""
        try:
            import fsspec
        except ImportError as error:
            raise MissingExtra("remote", "fsspec") from error
        try:
            system, path = fsspec.core.url_to_fs(self.url)
        except ImportError as error:
            raise StoreError(f"{self.url}: {error}") from error
        except Exception as error:
            raise StoreError(f"{self.url}: cannot be opened ({error})") from error
        return system, path.rstrip("/")

    def get(self, key: str) -> tuple[dict[str, Any], dict[str, Array]] | None:
        data = self._read(key)
        return None if data is None else unpack_or_warn(data, self._where(key))

    def put(self, key: str, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        system, root = self._place
        data, path = pack(header, arrays, compress=compressed(key)), f"{root}/{entry_name(key)}"
        protocols = {system.protocol} if isinstance(system.protocol, str) else set(system.protocol)
        try:
            if protocols & WHOLE:
                system.pipe_file(path, data)
                return
            folder, _, name = path.rpartition("/")
            unseen = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
            system.makedirs(folder, exist_ok=True)
            try:
                system.pipe_file(unseen, data)
                system.mv(unseen, path)
            except BaseException:
                with suppress(Exception):
                    system.rm_file(unseen)
                raise
        except Exception as error:
            raise StoreError(f"{self._where(key)}: cannot be written ({one_line(error)})") from error

    def has(self, key: str) -> bool:
        system, root = self._place
        try:
            return bool(system.isfile(f"{root}/{entry_name(key)}"))
        except Exception as error:
            raise StoreError(f"{self._where(key)}: cannot be read ({one_line(error)})") from error

    def entries(self) -> Iterator[StoreEntry]:
        now = self._now()
        for path, info in self._find():
            parts = path.split("/")
            if path.endswith(SUFFIX) and not parts[-1].startswith("."):
                idle = max(0.0, now - _written(info))
                yield StoreEntry(f"{parts[-3]}/{parts[-1].removesuffix(SUFFIX)}", int(info["size"]), idle)

    def check(self, key: str) -> str | None:
        try:
            data = self._read(key)
            if data is not None:
                unpack(data)
        except (DamagedFile, StoreError) as error:
            return str(error)
        return None

    def remove(self, key: str) -> bool:
        system, root = self._place
        path = f"{root}/{entry_name(key)}"
        try:
            if self._now() - _written(system.info(path)) < YOUNG:
                return False
            system.rm_file(path)
        except FileNotFoundError:
            return True
        except Exception as error:
            raise StoreError(f"{self._where(key)}: cannot be removed ({one_line(error)})") from error
        return True

    def size(self) -> dict[str, tuple[int, int]]:
        sizes: dict[str, tuple[int, int]] = {}
        for entry in self.entries():
            kind = entry.key.split("/")[0]
            files, total = sizes.get(kind, (0, 0))
            sizes[kind] = (files + 1, total + entry.size)
        return dict(sorted(sizes.items()))

    def clear(self, kinds: tuple[str, ...]) -> int:
        system, root = self._place
        sizes = self.size()
        gone = [kind for kind in sizes if kind in kinds]
        for kind in gone:
            system.rm(f"{root}/{kind}", recursive=True)
        return sum(sizes[kind][1] for kind in gone)

    def _read(self, key: str) -> bytes | None:
        system, root = self._place
        try:
            data: bytes = system.cat_file(f"{root}/{entry_name(key)}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Exception as error:
            raise StoreError(f"{self._where(key)}: cannot be read ({one_line(error)})") from error
        return data

    def _where(self, key: str) -> str:
        return f"{self.url}/{entry_name(key)}"

    def sweep(self, *, dry_run: bool = False) -> tuple[int, int]:
        count, freed = 0, 0
        for path, info in self._find():
            if path.endswith(".tmp") and self._now() - _written(info) >= YOUNG:
                if not dry_run:
                    self._place[0].rm_file(path)
                count, freed = count + 1, freed + int(info["size"])
        return count, freed

    def _find(self) -> list[tuple[str, Mapping[str, Any]]]:
        system, root = self._place
        try:
            return list(system.find(root, detail=True).items())
        except FileNotFoundError:
            return []
        except Exception as error:
            raise StoreError(f"{self.url}: cannot be listed ({one_line(error)})") from error

    def _now(self) -> float:
        return time.monotonic() + self._offset

    @cached_property
    def _offset(self) -> float:
        """From this process's steady clock to the server's time, by an object written just now."""
        system, root = self._place
        mark = f"{root}/clock/{uuid.uuid4().hex}"
        try:
            system.makedirs(f"{root}/clock", exist_ok=True)
            system.pipe_file(mark, b"")
            now = _written(system.info(mark))
            system.rm_file(mark)
        except Exception:
            now = time.time()  # a store that can only be read
        return now - time.monotonic()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_place", "_offset")}


def _written(info: Mapping[str, Any]) -> float:
    """When an object was written, in seconds; in the far future where its file system does not tell."""
    value = next((info[name] for name in _TIMES if info.get(name) is not None), None)
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return value.timestamp()
    return float(value) if value is not None else float("inf")


def open_store(where: str | os.PathLike[str] | None = None) -> DirectoryStore:
    """The store at a directory or an address; by default FRAMENEST_CACHE, or the user's cache directory.

    >>> open_store("s3://bucket/library").url, open_store("cache").root.name
    ('s3://bucket/library', 'cache')
    """
    text = os.environ.get("FRAMENEST_CACHE", "") if where is None else os.fspath(where)
    return RemoteStore(text) if "://" in text else DirectoryStore(where)
