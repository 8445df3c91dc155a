"""The exact timeline of a video stream: where every frame is, in the file and in time."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

NO_TIME = np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False)
class Timeline:
    """All packets of a video stream, and the frames they hold.

    Packets are numbered in decode order (p of them), frames in presentation order (N of them).
    A packet marked discard (cut away by an edit list) is needed for decoding but is no frame.
    """

    pts: Ints  # (p,) presentation time in units of time_base, NO_TIME where absent
    dts: Ints  # (p,)
    pos: Ints  # (p,) byte position in the file, -1 where unknown
    size: Ints  # (p,) bytes
    key: NDArray[np.bool_]  # (p,)
    packet: Ints  # (N,) packet of each frame
    ticks: Ints  # (N,) presentation time of each frame in units of time_base, ascending
    last: int  # ticks that the last frame lasts
    time_base: Fraction
    bytes_read: int  # how much of the file it took to know all this

    def __len__(self) -> int:
        return len(self.packet)

    @cached_property
    def frame(self) -> Ints:
        """(p,) the frame of each packet, -1 for a discarded one."""
        frames = np.full(len(self.pts), -1, dtype=np.int64)
        frames[self.packet] = np.arange(len(self.packet))
        return frames

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """(N,) from the first frame, ascending."""
        return (self.ticks - self.ticks[0]) * float(self.time_base) if len(self) else np.zeros(0)

    @property
    def start(self) -> float:
        """Presentation time of the first frame in the file, in seconds."""
        return float(self.ticks[0] * self.time_base) if len(self) else 0.0

    @property
    def duration(self) -> float:
        """Last frame's end minus first frame's start, in seconds."""
        return float((self.ticks[-1] - self.ticks[0] + self.last) * self.time_base) if len(self) else 0.0

    @property
    def fps(self) -> float:
        return len(self) / self.duration if self.duration > 0 else 0.0

    @cached_property
    def constant_rate(self) -> bool:
        """Whether all frames are equally far apart, within two ticks of the file's own clock."""
        gaps = np.diff(self.ticks)
        return bool(gaps.size == 0 or np.ptp(gaps) <= 2)

    @cached_property
    def seekable(self) -> bool:
        """Whether a packet met after a seek can be told from every other one."""
        if (self.pts == NO_TIME).any():
            return False
        if (self.pos >= 0).all() and len(np.unique(self.pos)) == len(self.pos):
            return True
        return bool((self.dts != NO_TIME).all() and (np.diff(self.dts) > 0).all())

    @cached_property
    def keys(self) -> Ints:
        """Key packets, ascending."""
        return np.flatnonzero(self.key).astype(np.int64)

    def start_packet(self, frame: int) -> int:
        """The key packet from which decoding must start for this frame to come out right.

        The last key packet at or before the frame's own; for a leading picture of an open GOP
        (decoded after a key frame, shown before it) the key packet before that one.
        """
        if not self.seekable:
            return 0
        start = self.previous_key(int(self.packet[frame]) + 1)
        return self.previous_key(start) if frame < self.frame[start] else start

    def previous_key(self, packet: int) -> int:
        """The last key packet strictly before `packet`; 0 (the beginning) where there is none."""
        found = int(np.searchsorted(self.keys, packet)) - 1
        return int(self.keys[found]) if found >= 0 else 0

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Header and arrays for the store."""
        header = {
            "last": self.last,
            "time_base": [self.time_base.numerator, self.time_base.denominator],
            "bytes_read": self.bytes_read,
        }
        names = ("pts", "dts", "pos", "size", "key", "packet", "ticks")
        return header, {name: getattr(self, name) for name in names}

    @classmethod
    def from_parts(cls, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Timeline:
        base = Fraction(*header["time_base"])
        return cls(last=header["last"], time_base=base, bytes_read=header["bytes_read"], **arrays)
