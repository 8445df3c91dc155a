"""Parts: files that are still coming in, and the room that all of them share."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from framenest.errors import StoreError
from framenest.server.refusals import TooLarge

SUFFIX = ".part"


class UploadSpace:
    """Bytes that a folder may hold: what lies there, and what is coming in, counted together."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder, self._most = folder, most
        self._lock = threading.Lock()
        self._stored = self._coming = 0

    def look(self, ended: int = 0) -> None:
        """Count the files that are there anew. ended: bytes taken for a part that is not coming any more."""
        with self._lock:
            self._coming -= ended
            self._stored = 0
            with on_disk():
                for file in self._folder.iterdir():
                    with suppress(FileNotFoundError):  # removed just now
                        self._stored += file.stat().st_size if file.suffix != SUFFIX else 0

    def take(self, count: int) -> None:
        with self._lock:
            if self._stored + self._coming + count > self._most:
                raise TooLarge("the server has no room left for videos")
            self._coming += count


class Part:
    """A file that is still coming in; gone when closed, unless it was moved."""

    def __init__(self, folder: Path, most: int, room: UploadSpace) -> None:
        self.path = folder / f"{secrets.token_hex(8)}{SUFFIX}"
        self.hash = hashlib.blake2b(digest_size=16)
        self.size, self._most, self._room = 0, most, room
        room.look()
        with on_disk():
            self._file = self.path.open("wb")

    def write(self, data: bytes) -> None:
        if self.size + len(data) > self._most:
            raise TooLarge(f"a video may have at most {self._most} bytes here")
        self._room.take(len(data))
        self.size += len(data)
        self.hash.update(data)
        with on_disk():
            self._file.write(data)
            self._file.flush()  # a full disk is told now, and the whole file is there after the last write

    def close(self) -> None:
        with suppress(OSError):  # what a full disk did not take
            self._file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        self._room.look(ended=self.size)


@contextmanager
def on_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"the video cannot be stored ({error.strerror})") from error
