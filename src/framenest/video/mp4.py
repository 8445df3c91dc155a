"""What FFmpeg leaves out of MP4 and MOV headers: composition offsets, and a check of the sample counts.

The offsets turn decode times into presentation times, so the timeline of a file is known from its header
alone. FFmpeg gives everything else (sizes, positions, edit lists). But it makes an index entry for every
sample that a header claims, whether the file can hold it or not.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from framenest.errors import VideoError
from framenest.text import size_text

_CONTAINERS = {b"moov", b"trak", b"mdia", b"minf", b"stbl", b"cmov", b"moof", b"traf"}
FREE_SAMPLES = 2**20
"""Samples that any header may claim: truncated files claim those that were cut off."""
_MOST_BOXES = 2**20
_DEEPEST = 10  # FFmpeg goes no deeper
_LARGEST_HEADER = 2**26
"""Bytes of a compressed header, unpacked."""
_LISTED = 0xF00
"""Flags of a fragment's run that lists its samples in a table."""


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


def check_sample_counts(path: str, file: BinaryIO) -> None:
    """Refuse an MP4 or MOV file whose header claims more samples than the file's bytes can hold.

    Counts only samples that cost no bytes in the header: those that all have one size, and those of
    fragments without a table. Files of any other kind pass. Raises VideoError; `path` is for its message.
    """
    length = file.seek(0, io.SEEK_END)
    samples = needed = 0
    for boxes, (count, size) in enumerate(_claims(file, range(length))):
        samples, needed = samples + count, needed + count * max(1, size)
        if boxes > _MOST_BOXES:
            raise VideoError(f"{path}: its header has more than {_MOST_BOXES:,} parts")
        if samples > FREE_SAMPLES and needed > length:
            raise VideoError(
                f"{path}: its header claims {samples:,} samples, more than its {size_text(length)} can hold"
            )


def _claims(file: BinaryIO, part: range, depth: int = 0) -> Iterator[tuple[int, int]]:
    """(samples, bytes of each) for every box: samples that the box claims without listing them."""
    if depth > _DEEPEST:
        return
    for kind, body in _boxes(file, part):
        yield 0, 0
        if kind == b"trak" and _is_plain_sound(file, body):
            continue
        if kind in _CONTAINERS:
            yield from _claims(file, body, depth + 1)
        elif kind == b"cmvd":
            header = _unpacked(_read(file, body)[4:])
            yield from _claims(io.BytesIO(header), range(len(header)), depth + 1)
        elif kind == b"stsz":
            size, count = struct.unpack(">4xII", _read(file, body[:12]).ljust(12, b"\0"))
            yield (count if size else 0), size
        elif kind == b"trun":
            flags, count = struct.unpack(">II", _read(file, body[:8]).ljust(8, b"\0"))
            yield (0 if flags & _LISTED else count), 0


def _is_plain_sound(file: BinaryIO, trak: range) -> bool:
    """Whether a track is uncompressed sound, each sample 1 long: FFmpeg indexes chunks of it, not samples."""
    mdia = _inside(file, trak, b"mdia")
    kind = _read(file, _inside(file, mdia, b"hdlr")[:12])
    times = _read(file, _inside(file, mdia, b"minf", b"stbl", b"stts")[:16])
    return kind[8:] == b"soun" and times[4:8] == b"\0\0\0\1" and times[12:] == b"\0\0\0\1"


def _unpacked(packed: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(packed, _LARGEST_HEADER)
    except zlib.error:
        return b""  # FFmpeg cannot read it either


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
