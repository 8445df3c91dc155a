"""One decoder moving through a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import av
import numpy as np

from framenest.video.source import Opened, Packet, Source, prepend
from framenest.video.timeline import Ints, Timeline

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


_REORDER = 16  # frames that a decoder may hold back to put them in order, at the most
_SEEK_SAVES = 32  # packets; reading on over fewer than these is cheaper than a seek


@dataclass(frozen=True)
class Run:
    """Frames that are decoded from one key packet on, ascending."""

    start: int
    frames: tuple[int, ...]


def plan(timeline: Timeline, wanted: Ints) -> list[Run]:
    """Group ascending frame numbers by the key packet that each needs."""
    groups: dict[int, list[int]] = {}
    for number in wanted.tolist():
        groups.setdefault(timeline.start_packet(number), []).append(number)
    # Leading pictures of an open GOP go with the key packet before, so groups never interleave.
    return [Run(start, tuple(numbers)) for start, numbers in groups.items()]


class Reader:
    """Reads runs of frames from one open container, which is opened again where it cannot seek."""

    def __init__(self, source: Source, timeline: Timeline, message: bytes) -> None:
        self._source = source
        self._timeline = timeline
        self._message = message
        self._opened: Opened | None = None
        self._packets: Iterator[Packet] = iter(())
        self._next = 0
        self._seeks = timeline.seekable
        self._player: Player | None = None
        self._came = 0  # frames that came out of the decoder
        self._started = False  # whether the key frame of this start has come out
        self._damage: list[int] = []  # packets since the last start whose frames are damaged

    def close(self) -> None:
        if self._opened:
            self._opened.close()
            self._opened = None
        if self._player:
            self._player.close()
            self._player = None

    def read(self, run: Run) -> Iterator[tuple[int, av.VideoFrame]]:
        """(number, frame) of the run's frames, ascending; frames that cannot be decoded are left out.

        After damaged data a decoder conceals errors with whatever it held before, so from there on the
        frames are those of a decoder that began at the beginning and skipped nothing: what a player
        shows. A frame that does not come out is tried again from earlier key packets.
        """
        waiting = list(run.frames)
        held: dict[int, tuple[int, av.VideoFrame]] = {}

        def settled(number: int) -> bool:
            """Damage shows when the damaged frame comes out, which can be after frames that refer to it."""
            return number in held and self._came - held[number][0] >= _REORDER

        for number, frame in self._decode(run.start, run.frames, skip=True):
            if self._damage:
                break
            held[number] = self._came, frame
            while waiting and settled(waiting[0]):
                yield waiting[0], held.pop(waiting.pop(0))[1]
        if self._damage:
            if self._player is None:
                self._player = Player(self._source, self._timeline)
            yield from self._player.frames(waiting)
            return
        for number in waiting:
            found = held.pop(number)[1] if number in held else self._retry(run.start, number)
            if found is not None:
                yield number, found

    def _decode(
        self, start: int, frames: Sequence[int], *, skip: bool
    ) -> Iterator[tuple[int, av.VideoFrame]]:
        """Decode from the key packet `start` up to the last packet needed; yields the frames asked for.

        Packets carry their number as timestamp, so a decoded frame says which packet it came from,
        whatever the file's own timestamps are. With `skip`, frames that no other frame refers to are not
        decoded unless they are asked for.
        """
        needed = self._timeline.packet[list(frames)]
        last, wanted = int(needed.max()), set(needed.tolist())
        opened = self._move(start)
        context = opened.context
        context.flush_buffers()
        self._damage = []
        self._started = bool(self._timeline.frame[start] < 0)  # a discarded key frame never comes out
        skipping = False
        for packet in self._packets:
            number = self._next
            self._next += 1
            if skip and skipping != (number not in wanted):
                skipping = not skipping
                context.skip_frame = "NONREF" if skipping else "DEFAULT"
            if number == start and start > 0 and self._message:
                packet = prepend(self._message, packet)
            packet.pts = packet.dts = number
            errors = opened.errors
            decoded = opened.decode(packet)
            if opened.errors > errors:
                self._damage.append(number)
            yield from self._wanted(decoded, wanted, start)
            if number >= last:
                break
        context.skip_frame = "DEFAULT"
        yield from self._wanted(opened.decode(None), wanted, start)

    def _wanted(
        self, decoded: list[av.VideoFrame], wanted: set[int], start: int
    ) -> Iterator[tuple[int, av.VideoFrame]]:
        for frame in decoded:
            self._came += 1
            if frame.is_corrupt and frame.pts is not None:
                self._damage.append(frame.pts)
            self._started |= frame.pts == start
            if frame.pts in wanted:
                if not self._started:  # the key frame itself did not come out
                    self._damage.append(start)
                wanted.discard(frame.pts)
                yield int(self._timeline.frame[frame.pts]), frame

    def _retry(self, start: int, number: int) -> av.VideoFrame | None:
        """A frame that did not come out from `start`: from there again decoding every frame, from two
        key packets before, then from the beginning."""
        earlier = self._timeline.previous_key(start)
        before = self._timeline.previous_key(earlier)
        for place in dict.fromkeys((start, earlier, before, 0)):
            for _, frame in self._decode(place, (number,), skip=False):
                return frame
        return None

    def _move(self, packet: int) -> Opened:
        """Make `packet` the next one to be read."""
        ahead = packet - self._next
        far = self._opened is None or ahead < 0 or ahead > _SEEK_SAVES
        if far and not (self._seeks and packet > 0 and self._seek(packet)):
            self._restart()
        while self._next < packet:
            next(self._packets, None)
            self._next += 1
        assert self._opened is not None
        return self._opened

    def _restart(self) -> None:
        if self._opened:
            self._opened.close()
        self._opened = self._source.open()
        self._packets = self._opened.packets()
        self._next = 0

    def _seek(self, packet: int) -> bool:
        """Seek so that `packet` comes next; False, and no more seeks in this file, where it does not."""
        if self._opened is None:
            self._opened = self._source.open()
        timeline, goal = self._timeline, packet
        for _ in range(3):
            if not self._opened.seek(min(int(timeline.dts[goal]), int(timeline.pts[goal]))):
                break
            self._packets = self._opened.packets()
            found = self._find(packet)
            if found is not None:
                self._packets = chain([found], self._packets)
                self._next = packet
                return True
            goal = timeline.previous_key(goal)
        self._seeks = False
        return False

    def _find(self, packet: int) -> Packet | None:
        """Read on to a known packet; None where it does not come, or is not the one it should be.

        Some containers make up timestamps and positions after a seek, so the packets read on the way
        are checked against the timeline by their sizes.
        """
        timeline, number = self._timeline, None
        for found in self._packets:
            number = self._number(found, packet) if number is None else number + 1
            if number is None or number > packet or found.size != timeline.size[number]:
                return None
            if number == packet:
                return found if found.is_keyframe == timeline.key[packet] else None
        return None

    def _number(self, found: Packet, at_most: int) -> int | None:
        """The number of the first packet after a seek, if it is one at or before `at_most`."""
        timeline = self._timeline
        known, mine = (timeline.pos, found.pos) if timeline.pos.min() >= 0 else (timeline.dts, found.dts)
        if mine is None:
            return None
        matches = np.flatnonzero(known[: at_most + 1] == mine)
        return int(matches[0]) if len(matches) == 1 else None
