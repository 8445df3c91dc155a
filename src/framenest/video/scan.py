"""Reading a timeline: from the file's header where that says it all, else from one pass over the packets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from framenest.video.mp4 import BadHeader, composition_offsets
from framenest.video.source import Opened, Packet, Source, fraction
from framenest.video.timeline import NO_TIME, Ints, Timeline

_PIECE = 2**16
_CHECKED = 48  # packets compared with the header's word at each of three places


@dataclass(frozen=True, eq=False)
class _Table:
    """What is known of each packet, in decode order."""

    pts: Ints
    dts: Ints
    pos: Ints
    size: Ints
    key: NDArray[np.bool_]
    discard: NDArray[np.bool_]
    duration: Ints
    bytes_read: int

    def __len__(self) -> int:
        return len(self.pts)


def scan(source: Source) -> Timeline:
    """The timeline of a video stream; nothing is decoded unless the stream carries no times."""
    opened = source.open()
    try:
        stream = opened.stream
        time_base = fraction(stream.time_base) or Fraction(1, 90000)
        rate = fraction(stream.average_rate) or fraction(stream.guessed_rate) or Fraction(25)
        table = _from_header(source, opened)
    finally:
        opened.close()
    if table is None:
        table = _from_packets(source)
    shown = np.flatnonzero(~table.discard)
    if (table.pts[shown] != NO_TIME).all():
        order = shown[np.argsort(table.pts[shown], kind="stable")]
        ticks = table.pts[order]
    else:
        order = _decoded_order(source, len(table))
        ticks = _invented_ticks(table.dts, order, 1 / (rate * time_base))
    typical = int(np.median(np.diff(ticks))) if len(ticks) > 1 else 0
    last = int(table.duration[order[-1]]) or typical if len(order) else 0
    return Timeline(
        table.pts,
        table.dts,
        table.pos,
        table.size,
        table.key,
        order.astype(np.int64),
        ticks,
        last,
        time_base,
        table.bytes_read,
    )


def _row(packet: Packet) -> tuple[int, int, int, int, bool, bool, int]:
    return (
        NO_TIME if packet.pts is None else packet.pts,
        NO_TIME if packet.dts is None else packet.dts,
        -1 if packet.pos is None else packet.pos,
        packet.size,
        packet.is_keyframe,
        packet.is_discard,
        packet.duration or 0,
    )


def _gathered(rows: Iterable[tuple[int, ...]], columns: int) -> list[Ints]:
    """Each column of many rows. In pieces: a day of video has five million rows, too many for objects."""
    found, rest = [np.zeros((0, columns), np.int64)], iter(rows)
    while piece := list(islice(rest, _PIECE)):
        found.append(np.array(piece, dtype=np.int64))
    return [np.concatenate([piece[:, column] for piece in found]) for column in range(columns)]


def _from_packets(source: Source) -> _Table:
    opened = source.open()
    try:
        rows = _gathered((_row(packet) for packet in opened.packets()), 7)
    finally:
        opened.close()
    pts, dts, pos, size, key, discard, duration = rows
    reached = max(int((pos + size).max()), int(size.sum())) if len(pts) else 0
    return _Table(pts, dts, pos, size, key.astype(bool), discard.astype(bool), duration, reached)


def _from_header(source: Source, opened: Opened) -> _Table | None:
    """From the index of an MP4 or MOV file, if it is complete and true where packets are compared with it."""
    stream = opened.stream
    entries = getattr(stream, "index_entries", ())  # PyAV 15 does not show it: the packets are read then
    if "mp4" not in opened.container.format.name or not stream.frames or len(entries) != stream.frames:
        return None
    rows = ((e.timestamp, e.pos, e.size, e.is_keyframe, e.is_discard) for e in entries)
    dts, pos, size, key, discard = _gathered(rows, 5)
    length = opened.container.size
    if length is not None and int((pos + size).max()) > length:
        return None  # cut short: only reading tells how far it goes
    try:
        with source.file() as file:
            offsets, header_bytes = composition_offsets(file, stream.id, len(dts))
    except BadHeader:
        return None
    if offsets is None:
        offsets = np.zeros(len(dts), dtype=np.int64)
    duration = np.append(np.diff(dts), 0)
    table = _Table(
        dts + offsets, dts, pos, size, key.astype(bool), discard.astype(bool), duration, header_bytes
    )
    return _checked(table, opened)


def _checked(table: _Table, opened: Opened) -> _Table | None:
    """The table with its presentation times fixed to the packets' own; None where packets disagree."""
    middle, end = len(table) // 2, len(table) - 1
    seen = 0
    shift = None
    for place in (0, middle, end):
        if not opened.seek(int(table.dts[place])):
            return None
        for packet, _ in zip(opened.packets(), range(_CHECKED), strict=False):
            row = _row(packet)
            number = int(np.searchsorted(table.dts, row[1]))
            if number >= len(table) or row[0] == NO_TIME:
                return None
            shift = row[0] - int(table.pts[number]) if shift is None else shift
            known = (table.pts[number] + shift, table.dts[number], table.pos[number], table.size[number])
            flags = (table.key[number], table.discard[number])
            if row[:4] != known or row[4:6] != flags:
                return None
            table.duration[number] = row[6]
            seen += packet.size
    if shift is None:
        return None
    return _Table(
        table.pts + shift,
        table.dts,
        table.pos,
        table.size,
        table.key,
        table.discard,
        table.duration,
        table.bytes_read + seen,
    )


def _decoded_order(source: Source, count: int) -> Ints:
    """Packets in the order in which their frames are shown, for streams without timestamps.

    Only decoding tells it: the whole stream is decoded once.
    """
    opened = source.open()
    order: list[int | None] = []
    try:
        for number, packet in enumerate(opened.packets()):
            packet.pts = packet.dts = number
            order += [frame.pts for frame in opened.decode(packet)]
        order += [frame.pts for frame in opened.decode(None)]
    finally:
        opened.close()
    known = [number for number in order if number is not None and 0 <= number < count]
    return np.array(list(dict.fromkeys(known)), dtype=np.int64)


def _invented_ticks(dts: Ints, order: Ints, step: Fraction) -> Ints:
    """Times for frames that carry none: the decode times in order, else `step` ticks apart."""
    mine = np.sort(dts[order])
    if mine.size and mine[0] != NO_TIME and (np.diff(mine) > 0).all():
        return mine
    return np.array([int(step * i) for i in range(len(order))], dtype=np.int64)
