"""Sequential decoding, as a player does it: after damage, a frame depends on all frames before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import av

from framenest.video.source import Opened, Packet, Source
from framenest.video.timeline import Timeline

_RECENT = 24  # packets after which a frame must have come out


class Player:
    """Decodes a file from beginning to end, once, and returns frames on the way."""

    def __init__(self, source: Source, timeline: Timeline) -> None:
        self._source = source
        self._timeline = timeline
        self._opened: Opened | None = None
        self._packets: Iterator[tuple[int, Packet]] = iter(())
        self._fed = -1
        self._recent: dict[int, av.VideoFrame] = {}

    def frames(self, wanted: Sequence[int]) -> Iterator[tuple[int, av.VideoFrame]]:
        """Those of the frames that come out, for ascending frame numbers."""
        needed = {int(self._timeline.packet[number]): number for number in wanted}
        if self._opened is None or min(needed) <= self._fed - _RECENT:
            self.close()
            self._opened = self._source.open()
            self._packets = enumerate(self._opened.packets())
            self._fed, self._recent = -1, {}
        waiting = list(wanted)
        found = {needed[packet]: self._recent[packet] for packet in needed if packet in self._recent}
        while waiting and self._fed < max(needed) + _RECENT:
            while waiting and waiting[0] in found:
                yield waiting[0], found.pop(waiting.pop(0))
            if waiting:
                decoded = self._feed(self._opened)
                found |= {needed[packet]: frame for packet, frame in decoded.items() if packet in needed}
        for number in waiting:
            if number in found:
                yield number, found.pop(number)

    def _feed(self, opened: Opened) -> dict[int, av.VideoFrame]:
        """Decode one more packet; what came out, by packet number."""
        number, packet = next(self._packets, (self._fed + _RECENT, None))
        self._fed = number
        if packet is not None:
            packet.pts = packet.dts = number
        decoded = {frame.pts: frame for frame in opened.decode(packet) if frame.pts is not None}
        self._recent = dict(list((self._recent | decoded).items())[-_RECENT:])
        return decoded

    def close(self) -> None:
        if self._opened:
            self._opened.close()
            self._opened = None
