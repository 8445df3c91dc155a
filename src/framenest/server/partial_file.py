"""PartialFile: a file that is still coming in, and the quota that all of them share."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from framenest.errors import StoreError
from framenest.server.refusals import Refusal

SUFFIX = ".part"


class StorageQuota:
    """Bytes that a folder may hold: files that are there and files that are coming in, counted together."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder, self._most = folder, most
        self._lock = threading.Lock()
        self._stored = self._coming = 0

    def recount(self, ended: int = 0) -> None:
        """Count the files that are there again. ended: bytes of a partial file that comes no more."""
        with self._lock:
            self._coming -= ended
            self._stored = 0
            with disk_errors():
                for file in self._folder.iterdir():
                    with suppress(FileNotFoundError):  # removed just now
                        self._stored += file.stat().st_size if file.suffix != SUFFIX else 0

    def take(self, count: int) -> None:
        """Reserve bytes; refused where there is no room for them."""
        with self._lock:
            if self._stored + self._coming + count > self._most:
                raise Refusal(413, "the server has no room left for videos")
            self._coming += count


class PartialFile:
    """Written piece by piece, hashed on the way; deleted when closed, unless it was moved."""

    def __init__(self, folder: Path, most: int, quota: StorageQuota) -> None:
        self.path = folder / f"{secrets.token_hex(8)}{SUFFIX}"
        self.hash = hashlib.blake2b(digest_size=16)
        self.size, self._most, self._quota = 0, most, quota
        quota.recount()
        with disk_errors():
            self._file = self.path.open("wb")

    def write(self, data: bytes) -> None:
        """Add bytes; refused beyond the quota."""
        if self.size + len(data) > self._most:
            raise Refusal(413, f"a video may have at most {self._most} bytes here")
        self._quota.take(len(data))
        self.size += len(data)
        self.hash.update(data)
        with disk_errors():
            self._file.write(data)
            self._file.flush()  # a full disk is told now, and the whole file is there after the last write

    def close(self) -> None:
        """Delete it, unless it was moved, and give its bytes back."""
        with suppress(OSError):  # what a full disk did not take
            self._file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        self._quota.recount(ended=self.size)


@contextmanager
def disk_errors() -> Iterator[None]:
    """OSError as StoreError."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"the video cannot be stored ({error.strerror})") from error
