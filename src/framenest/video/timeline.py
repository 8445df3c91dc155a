"""The timeline, every frame's number and presentation time, and what else a decoder needs to know."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import Any, BinaryIO, Self, TypeAlias

import av
import numpy as np
from numpy.typing import NDArray

from framenest.errors import VideoError
from framenest.frames import Array, Doubles, Ints, Mask, VideoInfo, check_image_size
from framenest.video.scale import Orientation, display_size
from framenest.video.source import Opened, Packet, Source, damage_as_video_error, fraction, moving_streams

NO_TIME = np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False)
class Timeline:
    """All packets of a video stream, and the frames that they hold.

    The p packets are numbered in decode order, the N frames in presentation order. A packet that an edit list
    cuts away (marked discard) is needed for decoding but is not a frame.
    """

    pts: Ints  # (p,) presentation time in units of time_base, NO_TIME if absent
    dts: Ints  # (p,)
    pos: Ints  # (p,) byte position in the file, -1 if unknown
    size: Ints  # (p,) bytes
    key: Mask  # (p,)
    packet: Ints  # (N,) packet of each frame
    ticks: Ints  # (N,) presentation time of each frame in units of time_base, ascending
    last: int  # duration of the last frame in ticks
    time_base: Fraction
    bytes_read: int  # of the file, to build this timeline

    def __len__(self) -> int:
        return len(self.packet)

    @cached_property
    def frame(self) -> Ints:
        """(p,) the frame of each packet, -1 for a discarded one."""
        frames = np.full(len(self.pts), -1, dtype=np.int64)
        frames[self.packet] = np.arange(len(self.packet))
        return frames

    @cached_property
    def seconds(self) -> Doubles:
        """(N,) from the first frame, ascending."""
        return (self.ticks - self.ticks[0]) * float(self.time_base) if len(self) else np.zeros(0)

    @cached_property
    def seekable(self) -> bool:
        """Whether a packet read after a seek can be identified."""
        if (self.pts == NO_TIME).any():
            return False
        if (self.pos >= 0).all() and len(np.unique(self.pos)) == len(self.pos):
            return True
        return bool((self.dts != NO_TIME).all() and (np.diff(self.dts) > 0).all())

    @cached_property
    def keys(self) -> Ints:
        """Key packets, ascending."""
        return np.flatnonzero(self.key).astype(np.int64)

    @classmethod
    def from_parts(cls, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """From what `describe` returns."""
        fields: dict[str, Any] = {**header["timeline"], **arrays}
        return cls(**fields | {"time_base": Fraction(*fields["time_base"])})

    def start_packet(self, frame: int) -> int:
        """The key packet from which decoding must start to get this frame right.

        The last key packet at or before the frame's own; for a leading frame of an open GOP (decoded after
        a key frame, shown before it) the key packet before that one.
        """
        if not self.seekable:
            return 0
        start = self.previous_key(int(self.packet[frame]) + 1)
        return self.previous_key(start) if frame < self.frame[start] else start

    def previous_key(self, packet: int) -> int:
        """The last key packet strictly before `packet`; 0 (the beginning) if there is none."""
        place = int(np.searchsorted(self.keys, packet)) - 1
        return int(self.keys[place]) if place >= 0 else 0


_CHECKED_PACKETS = 48  # packets to compare with the header at each of three places
_FREE_PACKETS = 2**18  # allowed for any file, however small
_MAX_SECONDS = 2**32  # seconds
_PACKET_FIELDS = ("pts", "dts", "pos", "size", "key", "discard", "duration")
_ROW = np.dtype({"names": _PACKET_FIELDS, "formats": ("i8", "i8", "i8", "i8", "?", "?", "i8")})
_Table: TypeAlias = NDArray[np.void]  # one _ROW per packet, in decode order


def scan(source: Source, opened: Opened) -> Timeline:
    """Build the timeline of a video stream, decoding nothing unless the stream has no timestamps.

    The position of `opened`, which is the same file, does not matter, and changes.
    """
    stream = opened.stream
    time_base = fraction(stream.time_base) or Fraction(1, 90000)
    rate = fraction(stream.average_rate) or fraction(stream.guessed_rate) or Fraction(25)
    table, bytes_read = _from_header(source, opened) or _from_packets(source)
    shown = np.flatnonzero(~table["discard"])
    times = table["pts"][shown]
    if (times != NO_TIME).all():
        order = shown[np.argsort(times, kind="stable")]
        ticks = table["pts"][order]
    else:
        order = _decoded_order(source, len(table))
        ticks = np.sort(table["dts"][order])
        if not len(ticks) or ticks[0] == NO_TIME or (np.diff(ticks) <= 0).any():
            step = 1 / (rate * time_base)
            ticks = np.array([int(step * i) for i in range(len(order))], dtype=np.int64)
    if len(ticks) and (int(ticks[-1]) - int(ticks[0])) * time_base > _MAX_SECONDS:
        raise VideoError(f"{source.path}: its first and last frame are more than a century apart")
    typical = int(np.median(np.diff(ticks))) if len(ticks) > 1 else 0
    last = int(table["duration"][order[-1]]) if len(order) else 0
    last = last if 0 < last * time_base < _MAX_SECONDS else typical
    columns = {name: table[name].copy() for name in _PACKET_FIELDS[:5]}
    return Timeline(
        **columns, packet=order, ticks=ticks, last=last, time_base=time_base, bytes_read=bytes_read
    )


def _row(packet: Packet) -> tuple[int, int, int, int, bool, bool, int]:
    pts, dts = (NO_TIME if time is None else time for time in (packet.pts, packet.dts))
    pos = -1 if packet.pos is None else packet.pos
    return pts, dts, pos, packet.size, packet.is_keyframe, packet.is_discard, packet.duration or 0


def _from_packets(source: Source) -> tuple[_Table, int]:
    with closing(source.open()) as opened:
        # An edit list may name every packet thousands of times.
        most = max(_FREE_PACKETS, opened.container.size or 0)
        table = np.fromiter(map(_row, islice(opened.packets(), most)), _ROW)
    if len(table) == most:
        raise VideoError(f"{source.path}: it has more packets than bytes")
    ends = table["pos"] + table["size"]
    return table, max(int(ends.max()), int(table["size"].sum())) if len(table) else 0


def _from_header(source: Source, opened: Opened) -> tuple[_Table, int] | None:
    """Use the index of an MP4 or MOV file, if it is complete and agrees with a sample of the packets."""
    stream = opened.stream
    entries = getattr(stream, "index_entries", ())  # since PyAV 17
    if "mp4" not in opened.container.format.name or not stream.frames or len(entries) != stream.frames:
        return None
    rows = ((e.timestamp, e.timestamp, e.pos, e.size, e.is_keyframe, e.is_discard, 0) for e in entries)
    table = np.fromiter(rows, _ROW)
    length = opened.container.size
    if length is not None and int((table["pos"] + table["size"]).max()) > length:
        return None  # truncated: only the packets show where it ends
    try:
        with source.file() as file:
            offsets, header_bytes = composition_offsets(file, stream.id, len(table))
    except ValueError:  # the header contradicts itself
        return None
    if offsets is not None:
        table["pts"] += offsets
    table["duration"][:-1] = np.diff(table["dts"])
    bytes_read = _adjust(table, opened)
    return None if bytes_read is None else (table, header_bytes + bytes_read)


def _adjust(table: _Table, opened: Opened) -> int | None:
    """Shift presentation times to those of the packets. Returns the bytes read, or None on disagreement."""
    bytes_read, shift = 0, None
    for place in (0, len(table) // 2, len(table) - 1):
        if not opened.seek(int(table["dts"][place])):
            return None
        for packet in islice(opened.packets(), _CHECKED_PACKETS):
            row = _row(packet)
            number = int(np.searchsorted(table["dts"], row[1]))
            if number >= len(table) or row[0] == NO_TIME:
                return None
            known = table[number].item()
            shift = row[0] - known[0] if shift is None else shift
            if row[:6] != (known[0] + shift, *known[1:6]):
                return None
            table["duration"][number] = row[6]
            bytes_read += packet.size
    if shift is None:
        return None
    table["pts"] += shift
    return bytes_read


def _decoded_order(source: Source, count: int) -> Ints:
    """Packets in the order of their frames, for streams without timestamps; decodes the whole stream."""
    with closing(source.open()) as opened:
        order = [frame.pts for _, frames in opened.play() for frame in frames]
    known = [number for number in order if number is not None and 0 <= number < count]
    return np.array(list(dict.fromkeys(known)), dtype=np.int64)


# What FFmpeg leaves out of the headers of MP4 and MOV: composition offsets. They turn decode times into
# presentation times, so the timeline of a file is known from its header alone.


def composition_offsets(file: BinaryIO, track: int, samples: int) -> tuple[Ints | None, int]:
    """(offset of each sample in decode order, or None if the file has none; bytes of the header read).

    Offsets are returned as stored: if some are negative, FFmpeg shifts the decode times instead. Raises
    ValueError if the header contradicts itself.
    """
    header = _inside(file, range(file.seek(0, io.SEEK_END)), b"moov")
    moov = io.BytesIO(header)
    for trak in (body for kind, body in _boxes(moov, range(len(header))) if kind == b"trak"):
        described = _inside(moov, trak, b"tkhd")
        at = 20 if described[:1] == b"\1" else 12
        if int.from_bytes(described[at : at + 4], "big") == track:
            table = _inside(moov, trak, b"mdia", b"minf", b"stbl", b"ctts")
            return (_offsets(table, samples) if table else None), len(header)
    return None, len(header)


def _offsets(table: bytes, samples: int) -> Ints:
    """(samples,) from the body of a box `ctts`: runs of samples with the same offset."""
    count = int.from_bytes(table[4:8], "big")
    runs = np.frombuffer(table[8 : 8 + 8 * count], dtype=">u4").reshape(-1, 2)
    if int(runs[:, 0].sum(dtype=np.int64)) != samples:
        raise ValueError("offsets for another number of samples")
    # Version 0 is unsigned by the standard, but writers store negative numbers; FFmpeg reads them signed.
    return np.repeat(runs[:, 1].astype(np.uint32).view(np.int32).astype(np.int64), runs[:, 0])


def _read(file: BinaryIO, part: range) -> bytes:
    file.seek(part.start)
    return file.read(len(part))


def _inside(file: BinaryIO, part: range, *path: bytes) -> bytes:
    """The body of the first box of a kind, inside the first of another kind, and so on; empty if missing."""
    for wanted in path:
        part = next((body for kind, body in _boxes(file, part) if kind == wanted), range(0))
    return _read(file, part)


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


DESCRIPTION_FORMAT = 4
X264_BUILD = re.compile(rb"x264 - core (\d+)")
_ARRAYS = ("pts", "dts", "pos", "size", "key", "packet", "ticks")


def describe(source: Source) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read what a decoder needs to know about a video, in the form of a cache entry.

    Its header holds "video" (VideoInfo without path and fingerprint), "turn" (Orientation), "x264" (see
    `_build_message`), "strict" (see `Source`) and "timeline", its arrays are those of the timeline. Raises
    VideoError if the stream has no frames, or none that can be decoded.
    """
    with damage_as_video_error(source.path), closing(source.open()) as opened:
        first = opened.first_frame()
        timeline, stream = scan(source, opened), opened.stream
        if not len(timeline):
            raise VideoError(f"{source.path}: no frames in its video stream")
        if first is None:
            raise VideoError(f"{source.path}: none of its {len(timeline)} frames can be decoded")
        turn, aspect = Orientation.of(first), fraction(stream.sample_aspect_ratio)
        width, height = display_size(first.width, first.height, aspect, turn)
        check_image_size(source.path, width, height)
        base, ticks = timeline.time_base, timeline.ticks
        start, duration = float(ticks[0] * base), float((ticks[-1] - ticks[0] + timeline.last) * base)
        info = VideoInfo(
            path="",
            fingerprint="",
            num_frames=len(timeline),
            duration=duration,
            fps=len(timeline) / duration if duration > 0 else 0.0,
            width=width,
            height=height,
            codec=stream.codec_context.codec.canonical_name,
            start=start,
            constant_rate=bool(len(ticks) < 2 or np.ptp(np.diff(ticks)) <= 2),
            notes=tuple(filter(None, (_loss(start, duration, opened), _other_streams(source, opened)))),
            stream=source.stream,
            timeline_bytes=timeline.bytes_read,
        )
        header = {
            "video": info.to_json(),
            "turn": [turn.quarter_turns, turn.mirror],
            "x264": _build_message(source, opened.context).hex(),
            "strict": opened.context.codec.intra_only and _some_are_whole(source),
            "timeline": {
                "last": timeline.last,
                "time_base": [base.numerator, base.denominator],
                "bytes_read": timeline.bytes_read,
            },
        }
        return header, {name: getattr(timeline, name) for name in _ARRAYS}


def _some_are_whole(source: Source) -> bool:
    """Whether a strict decoder accepts any of the first packets. If not, they may all be like that."""
    with closing(replace(source, strict=True).open()) as opened:
        return any(opened.decode(packet) for packet in islice(opened.packets(), _CHECKED_PACKETS))


def _loss(start: float, duration: float, opened: Opened) -> str:
    """A note on how much of the video is missing, according to its header."""
    stream, container = opened.stream, opened.container
    if stream.duration is not None and stream.time_base is not None:
        seconds, margin = float(stream.duration * stream.time_base), 0.5
    elif container.duration is not None:  # of all streams together: sound may be longer than the video
        seconds, margin = container.duration / av.time_base - max(0.0, start), 1.0
    else:
        return ""
    promise = f"the header promises {seconds:.1f} s of video, but the file has {duration:.1f} s"
    return promise if seconds - duration > margin + 0.01 * seconds else ""


def _other_streams(source: Source, opened: Opened) -> str:
    """A note on the other streams, if the user chose none."""
    streams = moving_streams(opened.container)
    if source.stream is not None or len(streams) < 2:
        return ""
    sizes = [f" ({s.width}×{s.height})" if s.codec_context else "" for s in streams]  # None: no decoder
    every = ", ".join(f"{s.index}{size}" for s, size in zip(streams, sizes, strict=True))
    chosen = opened.stream.index
    return f"this is stream {chosen} of the video streams {every}; the setting stream picks another"


def _build_message(source: Source, context: av.VideoCodecContext) -> bytes:
    """The message in a 4:4:4 H.264 stream that names the x264 build; empty for other streams.

    FFmpeg decodes files of old builds differently, but forgets the build at every seek.
    """
    if context.codec.canonical_name != "h264" or "444" not in (context.pix_fmt or ""):
        return b""
    with closing(source.open()) as opened:
        first = next(opened.packets(), None)
        message = None if first is None else X264_BUILD.search(bytes(first))
    return message[0] if message else b""
