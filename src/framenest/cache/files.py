"""Atomic writes, and shared locks that mark a file as in use."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from framenest.errors import StoreError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # not on Windows

TEMPORARY_SUFFIX = ".tmp"
_TRIES = 10


def share(file: BinaryIO | Any) -> None:
    """Mark an open file as in use until its last descriptor, a memory map's included, is closed.

    The lock is advisory and shared: it stops only `remove_unused`, and the system releases it when the
    process ends, however it ends.
    """
    if fcntl is not None:
        with suppress(OSError):  # being removed, or a file system without locks
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


class InUse:
    """Marks a file as in use for as long as this object lives."""

    def __init__(self, path: Path) -> None:
        file = path.open("rb")
        share(file)
        weakref.finalize(self, file.close)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, created if missing; waits until no other process holds it."""
    if path.is_symlink():
        path.unlink()
    with path.open("ab") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def remove_unused(path: Path) -> bool:
    """Remove a file unless a process uses it; returns whether it is gone."""
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


def write_atomic(path: Path, *data: bytes | memoryview, follow: bool = True) -> None:
    """Write a file, given in pieces, atomically: readers see the old content or all of the new.

    follow: for a path that the user named: a symbolic link stays a link, and a device or pipe is written to
    directly. Otherwise the file replaces whatever is there.
    """
    try:
        path = Path(os.path.realpath(path)) if follow else path
        if follow and path.exists() and not path.is_file():
            path.write_bytes(b"".join(data))
            return
        for left in reversed(range(_TRIES)):
            try:
                write_and_rename(path, data)
                return
            except (FileNotFoundError, FileExistsError):  # another process is clearing this folder
                if not left:
                    raise
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror})") from error


def write_and_rename(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file through a temporary one, which is removed if a piece cannot be made or written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}{TEMPORARY_SUFFIX}")
    try:
        with temporary.open("xb") as file:
            share(file)  # so that `cache gc` leaves it alone
            for piece in pieces:
                file.write(piece)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
