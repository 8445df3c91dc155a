"""The exact timeline of a video stream: one pass over its packets, nothing decoded."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from framenest.video.source import Source

NO_TIME = np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False)
class Timeline:
    """Where every frame is, in the file and in time.

    Packets are numbered in decode order (p of them), frames in presentation order (N of them).
    A packet marked discard (cut away by an edit list) is needed for decoding but is no frame.
    """

    pts: NDArray[np.int64]  # (p,) presentation time in units of time_base, NO_TIME where absent
    dts: NDArray[np.int64]  # (p,)
    pos: NDArray[np.int64]  # (p,) byte position in the file, -1 where unknown
    size: NDArray[np.int64]  # (p,) bytes
    key: NDArray[np.bool_]  # (p,)
    packet: NDArray[np.int64]  # (N,) packet of each frame
    frame: NDArray[np.int64]  # (p,) frame of each packet, -1 for a discarded one
    seconds: NDArray[np.float64]  # (N,) from the first frame, ascending
    start: float  # presentation time of the first frame in the file, seconds
    duration: float  # last frame's end minus first frame's start, seconds
    time_base: Fraction
    seekable: bool  # whether a packet can be found again after a seek

    def __len__(self) -> int:
        return len(self.packet)

    @property
    def fps(self) -> float:
        return len(self) / self.duration if self.duration > 0 else 0.0

    @property
    def constant_rate(self) -> bool:
        """Whether all frames are equally far apart, within the file's own clock tick."""
        gaps = np.diff(self.seconds)
        return bool(gaps.size == 0 or np.ptp(gaps) <= 2.001 * float(self.time_base))

    def start_packet(self, frame: int) -> int:
        """The key packet from which decoding must start for this frame to come out right.

        The last key packet at or before the frame's own; for a leading picture of an open GOP
        (decoded after a key frame, shown before it) the key packet before that one.
        """
        target = int(self.packet[frame])
        start = self.previous_key(target + 1)
        if start > 0 and frame < self.frame[start]:
            return self.previous_key(start)
        return start

    def previous_key(self, packet: int) -> int:
        """The last key packet strictly before `packet`; 0 (the beginning) where there is none."""
        keys = self._keys
        found = int(np.searchsorted(keys, packet)) - 1
        return int(keys[found]) if found >= 0 else 0

    @property
    def _keys(self) -> NDArray[np.int64]:
        keys: NDArray[np.int64] | None = self.__dict__.get("_key_cache")
        if keys is None:
            keys = np.flatnonzero(self.key).astype(np.int64)
            self.__dict__["_key_cache"] = keys
        return keys


def scan(source: Source) -> Timeline:
    """Read the timeline of a file."""
    opened = source.open()
    try:
        rows = [
            (
                NO_TIME if packet.pts is None else packet.pts,
                NO_TIME if packet.dts is None else packet.dts,
                -1 if packet.pos is None else packet.pos,
                packet.size,
                packet.is_keyframe,
                packet.is_discard,
                packet.duration or 0,
            )
            for packet in opened.packets()
        ]
        time_base = opened.stream.time_base or Fraction(1, 90000)
        rate = opened.stream.average_rate or opened.stream.guessed_rate or Fraction(25)
    finally:
        opened.close()
    table = np.array(rows, dtype=np.int64).reshape(-1, 7)
    pts, dts, pos, size, key, discard, duration = (np.ascontiguousarray(column) for column in table.T)
    shown = np.flatnonzero(discard == 0)
    if (pts[shown] != NO_TIME).all():
        order = shown[np.argsort(pts[shown], kind="stable")]
        times, seekable = pts[order], _identifiable(dts, pos)
    else:
        order = decoded_order(source, len(pts))
        times, seekable = _invented_times(dts, order, 1 / (rate * time_base)), False
    return _assemble(pts, dts, pos, size, key.astype(bool), order, times, duration, time_base, seekable)


def _identifiable(dts: NDArray[np.int64], pos: NDArray[np.int64]) -> bool:
    """Whether a packet met after a seek can be told from every other one."""
    if (pos >= 0).all() and len(np.unique(pos)) == len(pos):
        return True
    return bool((dts != NO_TIME).all() and (np.diff(dts) > 0).all())


def decoded_order(source: Source, count: int) -> NDArray[np.int64]:
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


def _invented_times(dts: NDArray[np.int64], order: NDArray[np.int64], step: Fraction) -> NDArray[np.int64]:
    """Times for frames that carry none: the decode times in order, else `step` ticks apart."""
    mine = np.sort(dts[order])
    if mine.size and mine[0] != NO_TIME and (np.diff(mine) > 0).all():
        return mine
    return np.array([int(step * i) for i in range(len(order))], dtype=np.int64)


def _assemble(
    pts: NDArray[np.int64],
    dts: NDArray[np.int64],
    pos: NDArray[np.int64],
    size: NDArray[np.int64],
    key: NDArray[np.bool_],
    order: NDArray[np.int64],
    times: NDArray[np.int64],
    durations: NDArray[np.int64],
    time_base: Fraction,
    seekable: bool,
) -> Timeline:
    frame = np.full(len(pts), -1, dtype=np.int64)
    frame[order] = np.arange(len(order))
    if not len(order):
        seconds, start, duration = np.zeros(0), 0.0, 0.0
    else:
        base = float(time_base)
        seconds = (times - times[0]) * base
        start = float(times[0]) * base
        typical = int(np.median(np.diff(times))) if len(times) > 1 else 0
        last = int(durations[order[-1]]) or typical
        duration = float(seconds[-1]) + last * base
    return Timeline(
        pts, dts, pos, size, key, order.astype(np.int64), frame, seconds, start, duration, time_base, seekable
    )
