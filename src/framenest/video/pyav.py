"""The default decoder: exact frames through PyAV, by seeking to the key packet each one needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import av
import numpy as np
from numpy.typing import NDArray

from framenest.errors import VideoError
from framenest.frames import FrameBatch, ImageSpec, Pixels, VideoInfo
from framenest.video import x264
from framenest.video.batches import batched, checked_frames, in_asked_order
from framenest.video.scale import Orientation, Scaler, display_size
from framenest.video.source import Opened, Packet, Source, check_file
from framenest.video.timeline import Timeline, scan

_SEEK_SAVES = 32  # packets; reading on over fewer than these is cheaper than a seek


class PyAVDecoder:
    """Exact frames of a video file, by number.

    >>> decoder = PyAVDecoder("kiln.mp4", fingerprint="…")    # doctest: +SKIP
    >>> next(decoder.read([0, 250])).pixels[0].shape          # doctest: +SKIP
    (2, 720, 1280, 3)
    """

    name = "pyav"
    version = f"{'.'.join(map(str, av.library_versions['libavcodec'][:2]))}-1"

    def __init__(self, path: str, fingerprint: str) -> None:
        check_file(path)
        self._source = Source(path)
        self.timeline = scan(self._source)
        if not len(self.timeline):
            raise VideoError(f"{path}: no frames in its video stream")
        opened = self._source.open()
        try:
            self._prefix = x264.build_message(opened)
            first = _first_frame(opened)
            if first is None:
                raise VideoError(f"{path}: none of its {len(self.timeline)} frames can be decoded")
            self._turn = Orientation.of(first)
            self._info = _describe(path, fingerprint, self.timeline, opened, first, self._turn)
        finally:
            opened.close()

    @property
    def info(self) -> VideoInfo:
        return self._info

    @property
    def seconds(self) -> NDArray[np.float64]:
        return self.timeline.seconds

    def read(
        self, frames: Sequence[int] | NDArray[np.int64], *, sizes: Sequence[ImageSpec | None] = (None,)
    ) -> Iterator[FrameBatch]:
        wanted = checked_frames(frames, self._info)
        scaler = self.scaler(sizes)
        pictures = in_asked_order(wanted, lambda ascending: self._pictures(ascending, scaler))
        return batched(pictures, scaler.shapes(), self.seconds)

    def scaler(self, sizes: Sequence[ImageSpec | None]) -> Scaler:
        """Makes upright pictures of these sizes from frames of this video."""
        return Scaler(self._info.width, self._info.height, self._turn, tuple(sizes))

    def _pictures(self, wanted: NDArray[np.int64], scaler: Scaler) -> Iterator[tuple[int, list[Pixels]]]:
        """(frame number, one picture per size) for ascending frame numbers; undecodable ones are left out."""
        reader = _Reader(self._source, self.timeline, self._prefix)
        try:
            for run in plan(self.timeline, wanted):
                for number, frame in _in_order(run, reader):
                    yield number, scaler(frame)
        finally:
            reader.close()


@dataclass(frozen=True)
class Run:
    """Frames that are decoded from one key packet on."""

    start: int
    frames: tuple[int, ...]


def plan(timeline: Timeline, wanted: NDArray[np.int64]) -> list[Run]:
    """Group ascending frame numbers by the key packet that each needs."""
    runs: list[Run] = []
    for number in wanted.tolist():
        start = timeline.start_packet(number) if timeline.seekable else 0
        if runs and runs[-1].start == start:
            runs[-1] = Run(start, (*runs[-1].frames, number))
        else:
            runs.append(Run(start, (number,)))
    return runs


def _in_order(run: Run, reader: _Reader) -> Iterator[tuple[int, av.VideoFrame]]:
    """The run's frames, ascending.

    After damaged data the decoder paints over with what it showed before, so frames from the damage on
    are decoded again with that history; a frame that does not come out is tried from earlier key packets.
    """
    waiting = list(run.frames)
    early: dict[int, av.VideoFrame] = {}
    for number, frame in reader.decode(run.start, run.frames):
        if reader.damage and run.start > 0:
            early |= reader.with_history(run.start, waiting)
            break
        early[number] = frame
        while waiting and waiting[0] in early:
            yield waiting[0], early.pop(waiting.pop(0))
    for number in waiting:
        found = early.pop(number, None) or reader.retry(run.start, number)
        if found is not None:
            yield number, found


class _Reader:
    """One open container that moves through the file; opened anew where it cannot seek."""

    def __init__(self, source: Source, timeline: Timeline, prefix: bytes) -> None:
        self._source = source
        self._timeline = timeline
        self._prefix = prefix
        self._opened: Opened | None = None
        self._packets: Iterator[Packet] = iter(())
        self._next = 0
        self._seeks = timeline.seekable
        self.damage: list[int] = []
        """Packets since the last start whose frames are damaged."""

    def close(self) -> None:
        if self._opened:
            self._opened.close()
            self._opened = None

    def decode(self, start: int, frames: Sequence[int]) -> Iterator[tuple[int, av.VideoFrame]]:
        """Decode from the key packet `start` up to the last packet needed; yields the frames asked for.

        Packets carry their number as timestamp, so a decoded frame says which packet it came from,
        whatever the file's own timestamps are.
        """
        timeline = self._timeline
        last = int(timeline.packet[list(frames)].max())
        wanted = set(frames)
        opened = self._move(start)
        opened.context.flush_buffers()
        self.damage = []
        for packet in self._packets:
            number = self._next
            self._next += 1
            if number == start and start > 0 and self._prefix:
                packet = x264.prepend(self._prefix, packet)
            packet.pts = packet.dts = number
            errors = opened.errors
            decoded = opened.decode(packet)
            if opened.errors > errors:
                self.damage.append(number)
            yield from self._wanted(decoded, wanted)
            if number >= last:
                break
        yield from self._wanted(opened.decode(None), wanted)

    def _wanted(self, decoded: list[av.VideoFrame], wanted: set[int]) -> Iterator[tuple[int, av.VideoFrame]]:
        for frame in decoded:
            if frame.pts is not None and 0 <= frame.pts < len(self._timeline.frame):
                number = int(self._timeline.frame[frame.pts])
                if frame.is_corrupt:
                    self.damage.append(frame.pts)
                if number in wanted:
                    wanted.discard(number)
                    yield number, frame

    def retry(self, start: int, number: int) -> av.VideoFrame | None:
        """A frame that did not come out from `start`: from two key packets before, then the beginning."""
        tried = {start}
        earlier = start
        for attempt in range(3):
            earlier = self._timeline.previous_key(earlier) if attempt < 2 else 0
            if earlier not in tried:
                tried.add(earlier)
                for _, frame in self.decode(earlier, (number,)):
                    return frame
        return None

    def with_history(self, start: int, frames: Sequence[int]) -> dict[int, av.VideoFrame]:
        """Frames of a damaged run, decoded from the nearest earlier key packet after which all is whole."""
        back, earlier = 1, start
        while True:
            for _ in range(back):
                earlier = self._timeline.previous_key(earlier)
            found = {}
            for number, frame in self.decode(earlier, frames):
                if earlier > 0 and min(self.damage, default=start) < start:
                    break
                found[number] = frame
            else:
                return found
            back *= 2

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
        self.close()
        self._opened = self._source.open()
        self._packets = self._opened.packets()
        self._next = 0

    def _seek(self, packet: int) -> bool:
        """Seek so that `packet` comes next; False, and no more seeks in this file, where it does not."""
        if self._opened is None:
            self._opened = self._source.open()
        timeline, goal = self._timeline, packet
        for _ in range(3):
            try:
                time = min(int(timeline.dts[goal]), int(timeline.pts[goal]))
                self._opened.container.seek(time, stream=self._opened.stream, backward=True)
            except av.error.FFmpegError:
                break
            self._packets = self._opened.packets()
            found = self._find(packet)
            if found is not None:
                self._packets = _chain(found, self._packets)
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


def _chain(first: Packet, rest: Iterator[Packet]) -> Iterator[Packet]:
    yield first
    yield from rest


def _describe(
    path: str,
    fingerprint: str,
    timeline: Timeline,
    opened: Opened,
    first: av.VideoFrame,
    turn: Orientation,
) -> VideoInfo:
    stream = opened.stream
    width, height = display_size(first.width, first.height, stream.sample_aspect_ratio, turn)
    return VideoInfo(
        path=path,
        fingerprint=fingerprint,
        num_frames=len(timeline),
        duration=timeline.duration,
        fps=timeline.fps,
        width=width,
        height=height,
        codec=stream.codec_context.codec.canonical_name,
        start=timeline.start,
        constant_rate=timeline.constant_rate,
        notes=_notes(timeline, opened),
    )


def _first_frame(opened: Opened) -> av.VideoFrame | None:
    for packet in opened.packets():
        for frame in opened.decode(packet):
            return frame
    return next(iter(opened.decode(None)), None)


def _notes(timeline: Timeline, opened: Opened) -> tuple[str, ...]:
    promised = opened.container.duration
    if promised is None:
        return ()
    seconds = promised / av.time_base - max(0.0, timeline.start)
    if seconds - timeline.duration > max(1.0, 0.05 * seconds):
        return (f"the header promises {seconds:.1f} s of video, {timeline.duration:.1f} s are there",)
    return ()
