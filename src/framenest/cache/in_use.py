"""Which files are in use: shared locks that the system drops when a process ends, however it ends.

Nobody waits for them and nothing is written about them; only who removes files asks. Where a system has
no such locks (Windows), an open file cannot be removed anyway.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # Windows has none

TOUCHED = 3600 * 10**9
"""Nanoseconds after which the use of a file is noted again."""
HELD = 64
"""Files that one process marks as in use at the same time; the least recently used one goes first."""


def share(file: BinaryIO | Any) -> None:
    """Mark an open file as in use until it is closed."""
    if fcntl is not None:
        with suppress(OSError):  # being removed, or a file system without locks
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def touch(file: BinaryIO) -> None:
    """Note that an open file was used; file systems need not do so by themselves."""
    stat = os.fstat(file.fileno())
    now = time.time_ns()
    if not 0 <= now - stat.st_atime_ns < TOUCHED:
        note_use(file, now, stat.st_mtime_ns)


def note_use(file: BinaryIO, used: int, written: int) -> None:
    """Set when an open file was last used and written, in nanoseconds."""
    if os.utime in os.supports_fd:
        with suppress(OSError):  # not ours, or read-only
            os.utime(file.fileno(), ns=(used, written))


def remove_unused(path: Path) -> bool:
    """Remove a file unless somebody has it in use; whether it is gone."""
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


class InUse:
    """The files that this process has in use. A copy in another process starts with none."""

    def __init__(self) -> None:
        self._files: OrderedDict[Path, BinaryIO] = OrderedDict()
        self._lock = threading.Lock()

    def hold(self, path: Path, file: BinaryIO | None = None) -> None:
        """Mark a file as in use, by an open file where there is one, until it is let go of or pushed out."""
        try:
            file = file or path.open("rb")
        except OSError:
            return
        share(file)
        with self._lock:
            old = [self._files.pop(path)] if path in self._files else []
            self._files[path] = file
            if len(self._files) > HELD:
                old.append(self._files.popitem(last=False)[1])
        for unused in old:
            unused.close()

    def release(self) -> None:
        """Let go of all files."""
        with self._lock:
            files = [self._files.popitem()[1] for _ in range(len(self._files))]
        for file in files:
            file.close()

    def __reduce__(self) -> tuple[type[InUse], tuple[()]]:
        return InUse, ()

    def __del__(self) -> None:
        with suppress(Exception):
            self.release()
