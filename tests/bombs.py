"""Small files that would take gigabytes or minutes, written byte by byte."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from PIL import Image

SAMPLES = 40_000_000


def box(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I", 8 + len(body)) + kind + body


def full(kind: bytes, *numbers: int | bytes) -> bytes:
    """A box of version 0 without flags. An int takes four bytes."""
    parts = [struct.pack(">I", part) if isinstance(part, int) else part for part in numbers]
    return box(kind, bytes(4), *parts)


def jpeg() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 30, 40)).save(file, "JPEG")
    return file.getvalue()


def track(samples: int, size: int = 1, *, stsz: bytes = b"", inside: bytes = b"", edits: int = 0) -> bytes:
    """A track of JPEG pictures, 16 by 16.

    stsz: another table of sizes; inside: where the table lies, if not where it belongs; edits: how often an
    edit list names the whole track.
    """
    stsz = stsz or full(b"stsz", size, samples)
    square = struct.pack(">9i", 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
    entry = struct.pack(">6xH16xHHIIIH32xHh", 1, 16, 16, 72 << 16, 72 << 16, 0, 1, 24, -1)
    tables = [
        full(b"stsd", 1, box(b"jpeg", entry)),
        full(b"stts", 1, samples, 1),
        full(b"stsc", 1, 1, samples, 1),
        full(b"stco", 1, 28),
        b"" if inside else stsz,
    ]
    rows = struct.pack(">IiI", samples, 0, 1 << 16) * edits
    return box(
        b"trak",
        full(b"tkhd", 0, 0, 1, 0, 1000, bytes(16), square, 16 << 16, 16 << 16),
        box(inside, stsz) if inside else b"",
        box(b"edts", full(b"elst", edits, rows)) if edits else b"",
        box(
            b"mdia",
            full(b"mdhd", 0, 0, 1000, samples, 0),
            full(b"hdlr", 0, b"vide", bytes(13)),
            box(b"minf", full(b"vmhd", bytes(8)), box(b"stbl", *tables)),
        ),
    )


def movie(*parts: bytes, data: bytes = bytes(64), header: bytes = b"moov") -> bytes:
    mvhd = full(b"mvhd", 0, 0, 1000, 1000, 1 << 16, bytes(76))
    return box(b"ftyp", b"qt  ", bytes(4), b"qt  ") + box(b"mdat", data) + box(header, mvhd, *parts)


def packed(data: bytes, padding: int = 0) -> bytes:
    """The movie with its header compressed, as old QuickTime files have it. padding: MiB of zeros in it."""
    start = data.index(b"moov") - 4
    size = len(data) - start + 8 + (padding << 20)
    squeeze = zlib.compressobj(9 if padding == 0 else 1)
    parts = [squeeze.compress(struct.pack(">I", size) + data[start + 4 :])]
    parts.append(squeeze.compress(struct.pack(">I", 8 + (padding << 20)) + b"free"))
    parts += [squeeze.compress(bytes(2**20)) for _ in range(padding)]
    cmvd = box(b"cmvd", struct.pack(">I", size), *parts, squeeze.flush())
    return data[:start] + box(b"moov", box(b"cmov", box(b"dcom", b"zlib"), cmvd))


def fragments(count: int) -> bytes:
    """Fragments that each claim samples without listing them; the first one is whole."""

    def fragment(samples: int, data: bytes) -> bytes:
        tfhd = box(b"tfhd", struct.pack(">IIII", 0x020018, 1, 1, len(data)))
        trun = box(b"trun", struct.pack(">III", 1, samples, 112))
        mfhd = full(b"mfhd", 1)
        return box(b"moof", mfhd, box(b"traf", tfhd, trun)) + box(b"mdat", data)

    picture = jpeg()
    start = movie(track(0), box(b"mvex", full(b"trex", 1, 1, 1, 0, 0)), data=b"")
    return start + b"".join(fragment(SAMPLES if number else 1, picture) for number in range(count))


def sizes(kind: bytes, first: int, table: bytes) -> bytes:
    return track(SAMPLES, stsz=full(kind, first, SAMPLES, table))


MOVIES: dict[str, Callable[[], bytes]] = {
    "claimed": lambda: movie(track(SAMPLES)),
    **{
        f"claimed in {kind}": lambda kind=kind: movie(track(SAMPLES, inside=kind.encode()))
        for kind in ("edts", "udta", "dinf", "mvex", "tref")
    },
    "claimed in hoov": lambda: movie(track(SAMPLES), header=b"hoov"),
    "claimed in a second track": lambda: movie(track(1, len(jpeg())), track(SAMPLES), data=jpeg()),
    "packed": lambda: packed(movie(track(SAMPLES))),
    "packed, padded": lambda: packed(movie(track(SAMPLES)), 70),
    "packed padding": lambda: packed(movie(track(1, len(jpeg())), data=jpeg()), 1100),
    "packed, listed": lambda: packed(movie(sizes(b"stsz", 0, bytes(4 * SAMPLES)))),
    "packed, listed in stz2": lambda: packed(movie(sizes(b"stz2", 4, b"\x11" * (SAMPLES // 2)))),
    "edit list": lambda: movie(track(1000, edits=50_000), data=bytes(2000)),
}
"""Header bombs by name; most have about a kilobyte."""


def repeated() -> bytes:
    """One picture and 499 samples of a byte; an edit list names them all 5,000 times."""
    picture = jpeg()
    table = full(b"stsz", 0, 500, len(picture), struct.pack(">I", 1) * 499)
    return movie(track(500, stsz=table, edits=5000), data=picture + bytes(499))


def large_gif(path: Path, width: int, height: int, frames: int = 20) -> Path:
    """A GIF of about a kilobyte that claims a large canvas."""
    pictures = [Image.new("RGB", (4, 4), (9 * number, 0, 0)) for number in range(frames)]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=40)
    data = bytearray(path.read_bytes())
    data[6:10] = struct.pack("<HH", width, height)
    path.write_bytes(data)
    return path
