"""Files that are written atomically, and locks that no dead process leaves behind."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from cachetools import LRUCache

from framenest.errors import StoreError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # Windows has none

TOUCHED = 60 * 10**9
"""Nanoseconds before the access time of a file is set again."""
HELD = 64
"""Files that one store locks at the same time; then the least recently used one is evicted."""
HELD_BYTES = 4 * 2**30
"""Bytes of all of them, likewise: what a session keeps in memory."""


def share(file: BinaryIO | Any) -> None:
    """Lock an open file as in use until it is closed."""
    if fcntl is not None:
        with suppress(OSError):  # being removed, or a file system without locks
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def touch(file: BinaryIO) -> None:
    """Set the access time of an open file; many file systems are mounted so that they do not."""
    stat = os.fstat(file.fileno())
    now = time.time_ns()
    if not 0 <= now - stat.st_atime_ns < TOUCHED:
        note_use(file, now, stat.st_mtime_ns)


def note_use(file: BinaryIO, used: int, written: int) -> None:
    """Set the access and modification time of an open file, in nanoseconds."""
    if os.utime in os.supports_fd:
        with suppress(OSError):  # not ours, or read-only
            os.utime(file.fileno(), ns=(used, written))


def remove_unused(path: Path) -> bool:
    """Remove a file unless a process has it locked; whether it is gone."""
    try:
        with path.open("rb") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _room(file: BinaryIO) -> int:
    """What a file takes of HELD_BYTES: its size, and a share of HELD where it is small."""
    return min(max(os.fstat(file.fileno()).st_size, HELD_BYTES // HELD), HELD_BYTES)


class _OpenFiles(LRUCache[Path, BinaryIO]):
    """Closes a file, and so drops its lock, when it is evicted."""

    def popitem(self) -> tuple[Path, BinaryIO]:
        path, file = super().popitem()
        file.close()
        return path, file


class InUse:
    """The files that this process has in use: an LRU cache of shared locks. A pickled copy starts empty."""

    def __init__(self) -> None:
        self._files = _OpenFiles(HELD_BYTES, _room)
        self._lock = threading.Lock()

    def hold(self, path: Path, file: BinaryIO | None = None) -> None:
        """Lock a file, through an open file where there is one, until `release` or eviction."""
        try:
            file = file or path.open("rb")
        except OSError:
            return
        share(file)
        with self._lock:
            replaced = self._files.pop(path, None)
            self._files[path] = file
        if replaced is not None:
            replaced.close()

    def release(self) -> None:
        """Unlock all files."""
        with self._lock:
            while self._files:
                self._files.popitem()

    def __reduce__(self) -> tuple[type[InUse], tuple[()]]:
        return InUse, ()

    def __del__(self) -> None:
        with suppress(Exception):
            self.release()


_TRIES = 10


def write_atomic(path: Path, *data: bytes | memoryview) -> None:
    """Write a file atomically, its content in pieces: others see the old one or the whole new one.

    A symbolic link stays a link; a device or pipe is written to directly.
    """
    try:
        path = path.resolve()
        if path.exists() and not path.is_file():
            path.write_bytes(b"".join(data))
            return
        for left in reversed(range(_TRIES)):
            try:
                _write_beside(path, *data)
                return
            except FileNotFoundError:  # somebody is clearing this folder
                if not left:
                    raise
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror})") from error


def _write_beside(path: Path, *data: bytes | memoryview) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        with temporary.open("xb") as file:
            share(file)  # so that the garbage collector leaves it alone
            for piece in data:
                file.write(piece)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
