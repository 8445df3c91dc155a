"""What FFmpeg leaves out of MP4 and MOV headers: composition offsets.

They turn decode times into presentation times, so the timeline of a file is known from its header alone.
FFmpeg gives everything else (sizes, positions, edit lists).
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray


def composition_offsets(file: BinaryIO, track: int, samples: int) -> tuple[NDArray[np.int64] | None, int]:
    """(offset of each sample in decode order, or None if the file has none; bytes of the header read).

    Offsets are returned as stored: if some are negative, FFmpeg shifts the decode times instead. Raises
    ValueError if the header contradicts itself.
    """
    part = _inside(file, range(file.seek(0, io.SEEK_END)), b"moov")
    header = _read(file, part)
    moov = io.BytesIO(header)
    for kind, trak in _boxes(moov, range(len(header))):
        if kind == b"trak" and _track_number(moov, trak) == track:
            table = _read(moov, _inside(moov, trak, b"mdia", b"minf", b"stbl", b"ctts"))
            return (_offsets(table, samples) if table else None), len(header)
    return None, len(header)


def _track_number(moov: BinaryIO, trak: range) -> int:
    data = _read(moov, _inside(moov, trak, b"tkhd"))
    at = 20 if data[:1] == b"\1" else 12
    return int.from_bytes(data[at : at + 4], "big")


def _offsets(table: bytes, samples: int) -> NDArray[np.int64]:
    """(samples,) from the body of a box `ctts`: runs of samples with the same offset."""
    count = int.from_bytes(table[4:8], "big")
    runs = np.frombuffer(table[8 : 8 + 8 * count], dtype=">u4").reshape(-1, 2)
    if int(runs[:, 0].sum(dtype=np.int64)) != samples:
        raise ValueError("offsets for another number of samples")
    # Version 0 is unsigned by the standard, but writers store negative numbers; FFmpeg reads them signed.
    return np.repeat(runs[:, 1].astype(np.uint32).view(np.int32).astype(np.int64), runs[:, 0])


def _read(file: BinaryIO, part: range) -> bytes:
    file.seek(part.start)
    return file.read(len(part))


def _inside(file: BinaryIO, part: range, *path: bytes) -> range:
    """The body of the first box of a kind, inside the first of another kind, and so on; empty if missing."""
    for wanted in path:
        part = next((body for kind, body in _boxes(file, part) if kind == wanted), range(0))
    return part


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
