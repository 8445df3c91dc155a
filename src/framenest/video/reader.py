"""Reader: one decoder moving through a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, groupby

import av
import numpy as np

from framenest.frames import Ints, Pixels
from framenest.video.scale import Scaler
from framenest.video.source import DAMAGE, Opened, Packet, Source, damage_as_video_error
from framenest.video.timeline import NO_TIME, Timeline

_LATE_PACKETS = 64  # packets within which a decoder must return a frame
_REORDER_FRAMES = 16  # frames that a decoder may buffer to reorder them
_HELD_BYTES = 2**28  # of buffered pictures; at least one is kept
_MIN_SEEK_PACKETS = 32  # packets; reading over fewer is cheaper than a seek

Run = tuple[int, list[int]]  # a key packet, and the frames to decode from it on, ascending


def plan(timeline: Timeline, wanted: Ints) -> list[Run]:
    """Group ascending frame numbers by the key packet that each needs."""
    return [(start, [*frames]) for start, frames in groupby(wanted.tolist(), timeline.start_packet)]


@dataclass
class Player:
    """Decodes a file once, from beginning to end, and returns pictures on the way.

    It holds no frame longer than a plain loop does: a concealed frame may show the old content of the
    decoder's buffers, and those are reused in the order in which they are released.
    """

    source: Source
    timeline: Timeline
    scale: Callable[[av.VideoFrame], list[Pixels]]
    _opened: Opened | None = None
    _playing: Iterator[tuple[int, list[av.VideoFrame]]] = field(init=False)
    _fed: int = -1  # number of the last packet decoded
    _last: dict[int, av.VideoFrame] = field(default_factory=dict)  # the frames it returned, by packet
    _gone: set[int] = field(default_factory=set)  # packets of the frames returned before

    def pictures(self, wanted: list[int]) -> Iterator[tuple[int, list[Pixels]]]:
        """(number, pictures) for ascending frame numbers; skips frames that do not decode."""
        needed = {int(self.timeline.packet[number]): number for number in wanted}
        if self._opened is None or not self._gone.isdisjoint(needed):
            self.close()
            self._opened = self.source.open()
            self._playing = self._opened.play()
            self._fed, self._last, self._gone = -1, {}, set()

        def arrived() -> dict[int, list[Pixels]]:
            new = (needed.keys() & self._last.keys()) - self._gone
            return {needed[packet]: self.scale(self._last[packet]) for packet in new}

        pictures = arrived()
        for number in wanted:
            while number not in pictures and self._fed < max(needed) + _LATE_PACKETS:
                self._gone.update(self._last)
                self._fed, frames = next(self._playing, (self._fed + _LATE_PACKETS, []))
                self._last = {frame.pts: frame for frame in reversed(frames) if frame.pts is not None}
                pictures |= arrived()
            if number in pictures:
                yield number, pictures.pop(number)

    @property
    def damaged(self) -> bool:
        """Whether it has found damage since the beginning of the file."""
        return self._opened is not None and self._opened.damaged

    def close(self) -> None:
        if self._opened:
            self._opened.close()
            self._opened = None


@dataclass
class Reader:
    """Reads runs from one open container, and reopens it if seeking fails.

    on_damage: called if a sequential decode finds damage. damaged: the file is known to be damaged; then no
    frame is skipped, since decoders that skip do not report all damage.
    """

    source: Source
    timeline: Timeline
    scaler: Scaler
    on_damage: Callable[[], None]
    damaged: bool

    def __post_init__(self) -> None:
        self._player = Player(self.source, self.timeline, self._scaled)
        self._opened: Opened | None = None
        self._packets: Iterator[Packet] = iter(())
        self._next = 0  # number of the next packet
        self._seeks = self.timeline.seekable
        self._came = 0  # frames that the decoder has returned

    def close(self) -> None:
        self._player.close()
        if self._opened:
            self._opened.close()
            self._opened = None

    def pictures(self, run: Run) -> Iterator[tuple[int, list[Pixels]]]:
        """(number, scaled pictures) of the run's frames, ascending; skips frames that do not decode."""
        return ((number, pictures) for number, pictures in self._read(run) if pictures)

    def _scaled(self, frame: av.VideoFrame) -> list[Pixels]:
        """The frame at each size; empty if it cannot be scaled."""
        with damage_as_video_error(self.source.path), suppress(*DAMAGE):
            return self.scaler(frame)
        return []

    def _read(self, run: Run) -> Iterator[tuple[int, list[Pixels]]]:
        """(number, pictures) of the run's frames, ascending.

        After damaged data a decoder conceals errors with whatever it held before. From there on this
        yields the frames of a sequential decode from the beginning, as a player shows them. A frame that does
        not decode is retried from earlier key packets.
        """
        start, frames = run
        if self.damaged and self.source.strict:  # the tables of a damaged packet stay in use
            yield from self._replay(frames)
            return
        waiting = [*frames]
        held: dict[int, tuple[int, list[Pixels]]] = {}

        def settled(number: int) -> bool:
            """Damage is reported only with the damaged frame, maybe after frames that refer to it."""
            if number not in held:
                return False
            came, pictures = held[number]
            size = sum(picture.nbytes for picture in pictures)
            return self._came - came >= _REORDER_FRAMES or size * len(held) > _HELD_BYTES

        opened = self._move(start)
        for number, frame in self._decode(opened, start, frames, skip=not self.damaged):
            if opened.damaged:
                break
            held[number] = self._came, self._scaled(frame)
            while waiting and settled(waiting[0]):
                yield waiting[0], held.pop(waiting.pop(0))[1]
        if opened.damaged:
            yield from self._replay(waiting)
            return
        for number in waiting:
            if number in held:
                yield number, held.pop(number)[1]
            else:
                yield from self._retry(start, number)

    def _retry(self, start: int, number: int) -> Iterator[tuple[int, list[Pixels]]]:
        """Retry a frame that did not decode: without skipping, from earlier key packets, sequentially."""
        earlier = self.timeline.previous_key(start)
        before = self.timeline.previous_key(earlier)
        for place in dict.fromkeys((start, earlier, before)):
            opened = self._move(place)
            for _, frame in self._decode(opened, place, [number], skip=False):
                if not opened.damaged:
                    yield number, self._scaled(frame)
                    return
        yield from self._replay([number])

    def _replay(self, frames: list[int]) -> Iterator[tuple[int, list[Pixels]]]:
        """(number, pictures) of ascending frames from a sequential decode."""
        yield from self._player.pictures(frames)
        if self._player.damaged:
            self.on_damage()

    def _decode(
        self, opened: Opened, start: int, frames: list[int], *, skip: bool
    ) -> Iterator[tuple[int, av.VideoFrame]]:
        """Decode from the key packet `start`, which comes next, to the last packet that is needed.

        Packets carry their number as timestamp, so a decoded frame can be traced to its packet, whatever
        the file's own timestamps are. With `skip`, the decoder skips unwanted frames that no other frame
        refers to.
        """
        needed = self.timeline.packet[frames]
        last, wanted = int(needed.max()), set(needed.tolist())
        # A decoder never returns a discarded key frame. Without times, only refused packets have no frame.
        started = bool(self.timeline.frame[start] < 0 and self.timeline.pts[start] != NO_TIME)
        opened.damaged = False
        for frame in self._frames(opened, last, wanted if skip else None):
            self._came += 1
            started |= frame.pts == start
            if frame.pts in wanted:
                opened.damaged |= not started  # the decoder did not return the key frame
                wanted.discard(frame.pts)
                yield int(self.timeline.frame[frame.pts]), frame

    def _frames(self, opened: Opened, last: int, keep: set[int] | None) -> Iterator[av.VideoFrame]:
        """Every frame that the decoder returns. keep: packets whose frames to keep; None for all."""
        context = opened.context
        context.flush_buffers()
        for packet in self._packets:
            number = self._next
            self._next += 1
            context.skip_frame = "DEFAULT" if keep is None or number in keep else "NONREF"
            packet.pts = packet.dts = number
            yield from opened.decode(packet)
            if number >= last:
                break
        context.skip_frame = "DEFAULT"
        yield from opened.decode(None)

    def _move(self, packet: int) -> Opened:
        """Make `packet` the next one to read."""
        near = self._opened is not None and 0 <= packet - self._next <= _MIN_SEEK_PACKETS
        if not near and not (self._seeks and packet > 0 and self._seek(packet)):
            if self._opened:
                self._opened.close()
            self._opened = self.source.open()
            self._packets, self._next = self._opened.packets(), 0
        while self._next < packet:
            next(self._packets, None)
            self._next += 1
        assert self._opened is not None
        return self._opened

    def _seek(self, packet: int) -> bool:
        """Seek so that `packet` comes next. If that fails, return False and never seek in this file again."""
        if self._opened is None:
            self._opened = self.source.open()
        timeline, goal = self.timeline, packet
        for _ in range(3):
            if not self._opened.seek(min(int(timeline.dts[goal]), int(timeline.pts[goal]))):
                break
            self._packets = self._opened.packets()
            target = self._find(packet)
            if target is not None:
                self._packets, self._next = chain([target], self._packets), packet
                return True
            goal = timeline.previous_key(goal)
        self._seeks = False
        return False

    def _find(self, packet: int) -> Packet | None:
        """Read on to a known packet; None if it is missing or a packet does not match the timeline.

        Some containers invent timestamps and positions after a seek, so this compares the size of every
        packet on the way with the timeline.
        """
        timeline = self.timeline
        first = next(self._packets, None)
        if first is None:
            return None
        known, mine = (timeline.pos, first.pos) if timeline.pos.min() >= 0 else (timeline.dts, first.dts)
        matches = np.flatnonzero(known[: packet + 1] == mine)
        if len(matches) != 1:
            return None
        for number, candidate in enumerate(chain([first], self._packets), int(matches[0])):
            if candidate.size != timeline.size[number]:
                return None
            if number == packet:
                return candidate if candidate.is_keyframe == timeline.key[packet] else None
        return None
