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
    """The header contradicts itself."""


def composition_offsets(file: BinaryIO, track: int, samples: int) -> tuple[NDArray[np.int64] | None, int]:
    """(offset of each sample in decode order or None where the file has none, bytes of the header read).

    Offsets are those stored; where some are negative, FFmpeg shifts decode times, not these.
    """
    for kind, body in _boxes(file, range(file.seek(0, io.SEEK_END))):
        if kind == b"moov":
            header = _read(file, body)
            try:
                return _offsets(io.BytesIO(header), range(len(header)), track, samples), len(header)
            except (ValueError, IndexError, struct.error) as error:
                raise BadHeader from error
    return None, 0


def _read(file: BinaryIO, part: range) -> bytes:
    file.seek(part.start)
    return file.read(len(part))


def _boxes(file: BinaryIO, part: range) -> Iterator[tuple[bytes, range]]:
    """(kind, range of its body) of each box in a part of a file."""
    start = part.start
    while start + 8 <= part.stop:
        head = _read(file, range(start, start + 16))
        if len(head) < 8:
            return
        size, kind = struct.unpack(">I4s", head[:8])
        body = start + 8
        if size == 1 and len(head) == 16:
            size, body = struct.unpack(">Q", head[8:])[0], start + 16
        elif size == 0:
            size = part.stop - start
        if size < body - start:
            return
        yield kind, range(body, min(start + size, part.stop))
        start += size


def _offsets(moov: BinaryIO, part: range, track: int, samples: int) -> NDArray[np.int64] | None:
    for kind, trak in _boxes(moov, part):
        if kind == b"trak" and _track_number(moov, trak) == track:
            return _table(moov, trak, samples)
    return None


def _track_number(moov: BinaryIO, trak: range) -> int:
    for kind, body in _boxes(moov, trak):
        if kind == b"tkhd":
            data = _read(moov, body)
            at = 20 if data[0] == 1 else 12
            return int.from_bytes(data[at : at + 4], "big")
    return -1


def _table(moov: BinaryIO, part: range, samples: int) -> NDArray[np.int64] | None:
    """The table of composition offsets (ctts) somewhere below a track."""
    for kind, body in _boxes(moov, part):
        if kind in _CONTAINERS:
            found = _table(moov, body, samples)
            if found is not None:
                return found
        elif kind == b"ctts":
            data = _read(moov, body)
            count = int.from_bytes(data[4:8], "big")
            rows = np.frombuffer(data[8 : 8 + 8 * count], dtype=">u4").reshape(-1, 2)
            if int(rows[:, 0].sum(dtype=np.int64)) != samples:
                raise ValueError("offsets for another number of samples")
            # Version 0 says unsigned, yet writers store negative numbers there too; FFmpeg reads them signed.
            return np.repeat(rows[:, 1].astype(np.uint32).view(np.int32).astype(np.int64), rows[:, 0])
    return None
