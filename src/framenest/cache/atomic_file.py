"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from framenest.cache.in_use import share
from framenest.errors import StoreError

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
