"""The one thing FFmpeg's own index of an MP4 or MOV file leaves out: composition offsets.

With them, decode times become presentation times, and the timeline of a file is known from its header
alone, without reading the video data. Everything else (sizes, positions, edit lists) FFmpeg has done.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

_CONTAINERS = {b"moov", b"trak", b"mdia", b"minf", b"stbl"}


class BadHeader(Exception):
    """The header cannot be taken at its word."""


def composition_offsets(file: BinaryIO, track: int, samples: int) -> tuple[NDArray[np.int64] | None, int]:
    """(offset of each sample in decode order or None where the file has none, bytes of the header read).

    Offsets are those stored; where some are negative, FFmpeg shifts decode times, not these.
    """
    for kind, body in _boxes(file, 0, file.seek(0, io.SEEK_END)):
        if kind == b"moov":
            file.seek(body.start)
            header = file.read(len(body))
            try:
                return _offsets(header, track, samples), len(header)
            except (ValueError, IndexError, struct.error) as error:
                raise BadHeader from error
    return None, 0


def _boxes(file: BinaryIO, start: int, end: int) -> Iterator[tuple[bytes, range]]:
    """(kind, range of its body) of each box at the top of a file."""
    while start + 8 <= end:
        file.seek(start)
        head = file.read(16)
        if len(head) < 8:
            return
        size, kind = struct.unpack(">I4s", head[:8])
        body = start + 8
        if size == 1 and len(head) == 16:
            size, body = struct.unpack(">Q", head[8:])[0], start + 16
        elif size == 0:
            size = end - start
        if size < body - start:
            return
        yield kind, range(body, min(start + size, end))
        start += size


def _children(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    at = 0
    while at + 8 <= len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        if size < 8 or at + size > len(data):
            return
        yield bytes(kind), data[at + 8 : at + size]
        at += size


def _offsets(header: bytes, track: int, samples: int) -> NDArray[np.int64] | None:
    for kind, body in _children(memoryview(header)):
        if kind == b"trak" and _track_number(body) == track:
            return _table(body, samples)
    return None


def _track_number(trak: memoryview) -> int:
    for kind, body in _children(trak):
        if kind == b"tkhd":
            at = 20 if body[0] == 1 else 12
            return int.from_bytes(body[at : at + 4], "big")
    return -1


def _table(data: memoryview, samples: int) -> NDArray[np.int64] | None:
    """The table of composition offsets somewhere below a track."""
    for kind, body in _children(data):
        if kind in _CONTAINERS:
            found = _table(body, samples)
            if found is not None:
                return found
        elif kind == b"ctts":
            count = int.from_bytes(body[4:8], "big")
            rows = np.frombuffer(body[8 : 8 + 8 * count], dtype=">u4").reshape(-1, 2)
            if int(rows[:, 0].sum(dtype=np.int64)) != samples:
                raise ValueError("offsets for another number of samples")
            # Version 0 says unsigned, yet writers store negative numbers there too; FFmpeg reads them signed.
            return np.repeat(rows[:, 1].astype(np.uint32).view(np.int32).astype(np.int64), rows[:, 0])
    return None
