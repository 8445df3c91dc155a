"""What FFmpeg leaves out of MP4 and MOV headers: composition offsets, and a check of the sample counts.

With the offsets, decode times become presentation times, and the timeline of a file is known from its header
alone, without reading the video data. Everything else (sizes, positions, edit lists) FFmpeg has done. But it
makes an entry of its index for every sample that a header claims, whether the file can hold it or not.
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

_CONTAINERS = {b"moov", b"trak", b"mdia", b"minf", b"stbl"}
_CLAIMS = _CONTAINERS | {b"cmov", b"moof", b"traf"}
FREE_SAMPLES = 2**20
"""Samples that a header may claim in any case: truncated files claim what they have lost."""
_MOST_BOXES = 2**20
_DEEPEST = 10  # FFmpeg goes no deeper
_LARGEST_HEADER = 2**26
"""Bytes of a compressed header, unpacked."""
_LISTED = 0xF00
"""Flags of a fragment's run of samples that has a table of them."""


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


def check_sample_counts(path: str, file: BinaryIO) -> None:
    """Refuse an MP4 or MOV file whose header claims more samples than the file's bytes can hold.

    Only samples that cost no bytes in the header are counted: those of one size for all, and those of
    fragments without a table. A file of any other kind passes.

    Args:
        path: The video, for the message.
        file: Its bytes; seekable.

    Raises:
        VideoError: The header claims too many samples, or has too many parts.
    """
    length = file.seek(0, io.SEEK_END)
    samples = needed = 0
    for boxes, (count, size) in enumerate(_claims(file, range(length))):
        samples, needed = samples + count, needed + count * max(1, size)
        if boxes > _MOST_BOXES:
            raise VideoError(f"{path}: its header has more than {_MOST_BOXES:,} parts")
        if samples > FREE_SAMPLES and needed > length:
            raise VideoError(
                f"{path}: its header claims {samples:,} samples, and its {size_text(length)} cannot hold them"
            )


def _claims(file: BinaryIO, part: range, depth: int = 0) -> Iterator[tuple[int, int]]:
    """(samples, bytes of each) for every box: samples that the box claims without listing them."""
    if depth > _DEEPEST:
        return
    for kind, body in _boxes(file, part):
        yield 0, 0
        if kind == b"trak" and _is_plain_sound(file, body):
            continue
        if kind in _CLAIMS:
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


def _unpacked(packed: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(packed, _LARGEST_HEADER)
    except zlib.error:
        return b""  # FFmpeg reads nothing of it either


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


def _is_plain_sound(file: BinaryIO, trak: range) -> bool:
    """Whether a track is uncompressed sound, each sample 1 long: FFmpeg indexes chunks of it, not samples."""
    mdia = _inside(file, trak, b"mdia")
    kind = _read(file, _inside(file, mdia, b"hdlr")[:12])
    stbl = _inside(file, _inside(file, mdia, b"minf"), b"stbl")
    times = _read(file, _inside(file, stbl, b"stts")[:16])
    return kind[8:] == b"soun" and times[4:8] == b"\0\0\0\1" and times[12:] == b"\0\0\0\1"


def _inside(file: BinaryIO, part: range, wanted: bytes) -> range:
    """The body of the first box of a kind; nothing where there is none."""
    return next((body for kind, body in _boxes(file, part) if kind == wanted), range(0))


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
