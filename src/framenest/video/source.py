"""One video stream of a file: what its header and first frame say."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import av
from av.error import FFmpegError

from framenest.cache.files import InUse
from framenest.cache.hashes import digest
from framenest.errors import VideoError
from framenest.frames import MOST_PIXELS, check_picture_size
from framenest.video.formats import begins_a_playlist, is_playlist, open_options

TIMEOUT = (30.0, 30.0)  # seconds to open and to read, so that a stalled server ends in an error
# Metadata need not be UTF-8. From 19 on PyAV takes care of that by itself.
_LENIENT: dict[str, Any] = {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}

Packet: TypeAlias = "av.Packet[av.VideoStream]"

DAMAGE = (FFmpegError, EOFError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
          RuntimeError)  # fmt: skip
"""What PyAV raises on damaged data: FFmpeg's errors, and its own, such as IndexError for packets of a stream
that was not there at opening, or OverflowError for absurd times."""


@contextmanager
def damage_as_video_error(path: str) -> Iterator[None]:
    """Everything that PyAV raises inside becomes a VideoError that names the video."""
    try:
        yield
    except FFmpegError as error:
        raise VideoError(f"{path}: not a video that FFmpeg can read ({error.strerror})") from error
    except DAMAGE as error:
        raise VideoError(f"{path}: not a video that FFmpeg can read ({error!r})") from error
    except MemoryError as error:
        raise VideoError(f"{path}: not enough memory to read it") from error
    except OSError as error:  # from the Python file that FFmpeg reads through
        raise VideoError(f"{path}: cannot be read ({error})") from error


@dataclass(frozen=True)
class Source:
    """A video that can be opened again and again, always at the same stream.

    `path` is the user's name for it, `fingerprint` tells its content from any other. `stream` counts the
    file's streams from 0, as FFmpeg does; None is FFmpeg's choice. `local` is the path or address that
    FFmpeg opens; None where it reads through `open_file`.
    """

    path: str
    fingerprint: str = ""
    stream: int | None = None
    local: str | None = None
    open_file: Callable[[], BinaryIO] | None = None
    playlists: bool = False
    """Whether it may be a playlist, which names other files."""
    in_use: InUse | None = None
    """Keeps a downloaded file locked for as long as this is open."""

    @classmethod
    def at(
        cls, path: str, fingerprint: str = "", stream: int | None = None, *, playlists: bool = False
    ) -> Source:
        """A file on this machine."""
        where = str(Path(path).absolute())
        return cls(where, fingerprint, stream, where, playlists=playlists)

    def file(self) -> BinaryIO:
        """The bytes of the file, for reading its header."""
        return self.open_file() if self.open_file else Path(self.local or self.path).open("rb")

    def open(self) -> Opened:
        """The container, with one decoder for the chosen stream."""
        with damage_as_video_error(self.path):
            options = open_options(self.local, playlists=self.playlists)
            try:
                where = self.local or self.file()
                container = av.open(where, "r", options=options, timeout=TIMEOUT, **_LENIENT)
            except (av.error.ArgumentError, av.error.InvalidDataError) as error:
                raise VideoError(f"{self.path}: {self._why_not(error)}") from error
            try:
                stream = self._choose(container)
                context = stream.codec_context
                if context.width and context.height:
                    check_picture_size(self.path, context.width, context.height)
                # A stream may say otherwise later on.
                context.options = {"max_pixels": str(MOST_PIXELS)}
                # One decoder thread: frame threads conceal damage differently from run to run.
                context.thread_count = 1
            except BaseException:
                container.close()
                raise
        return Opened(self.path, container, stream)

    def with_segments(self) -> Source:
        """The same video; of a playlist, the fingerprint is that of all that it names, as FFmpeg reads it.

        Playlists name their segments in many ways, and only FFmpeg knows what it opens: so every packet is
        read and hashed.
        """
        with closing(self.open()) as opened:
            if not is_playlist(opened.container.format.name):
                return self
            found = hashlib.blake2b(opened.context.extradata or b"", digest_size=16)
            for packet in opened.packets():
                found.update(f"{packet.pts} {packet.dts} {packet.size} ".encode())
                found.update(bytes(packet))
        return replace(self, fingerprint=digest(self.fingerprint, found.hexdigest()))

    def _why_not(self, error: FFmpegError) -> str:
        try:
            with self.file() as file:
                head = file.read(1024)
        except OSError:
            head = b""
        if not begins_a_playlist(head):
            if isinstance(error, av.error.ArgumentError):  # what FFmpeg says of a format off the whitelist
                return "not a video, or in a format that is not opened"
            return f"not a video that FFmpeg can read ({error.strerror})"
        if self.playlists:
            return "a playlist; those are opened only from files and http(s) addresses"
        return "a playlist, which names other files; --allow-playlists (allow_playlists=True) opens them"

    def _choose(self, container: av.container.InputContainer) -> av.VideoStream:
        streams = moving_streams(container)
        if not streams:
            kinds = ", ".join(sorted({s.type for s in container.streams})) or "nothing"
            raise VideoError(f"{self.path}: no video stream in this file (it holds {kinds})")
        numbers = [s.index for s in streams]
        if self.stream is None:
            best = container.streams.best("video")
            chosen = streams[numbers.index(best.index)] if best and best.index in numbers else streams[0]
        elif self.stream in numbers:
            chosen = streams[numbers.index(self.stream)]
        else:
            there = ", ".join(map(str, numbers))
            raise VideoError(f"{self.path}: stream {self.stream} is no video; its video streams are {there}")
        if chosen.codec_context is None:
            raise VideoError(f"{self.path}: no decoder for its video codec")
        return chosen


def fraction(value: Any) -> Fraction | None:
    """A rate, ratio or time base as a Fraction, whatever PyAV calls it; None where it is unknown."""
    return Fraction(value.numerator, value.denominator) if value and value.denominator else None


def moving_streams(container: av.container.InputContainer) -> list[av.VideoStream]:
    """The video streams of a file without pictures on its cover."""
    cover = av.stream.Disposition.attached_pic
    return [stream for stream in container.streams.video if not stream.disposition & cover]


@dataclass
class Opened:
    """One open container, positioned somewhere in its video stream."""

    path: str
    container: av.container.InputContainer
    stream: av.VideoStream
    errors: int = 0
    """Packets so far that the decoder refused."""

    @property
    def context(self) -> av.VideoCodecContext:
        return self.stream.codec_context

    def packets(self) -> Iterator[Packet]:
        """The stream's packets in decode order, from here to the end of what can be read.

        A truncated or damaged container ends here, as it does for FFmpeg's own tools.
        """
        with damage_as_video_error(self.path):
            try:
                for packet in self.container.demux(self.stream):
                    if packet.size > 0:
                        yield packet
            except DAMAGE:
                return

    def decode(self, packet: Packet | None) -> list[av.VideoFrame]:
        """Decode one packet (None: drain). A damaged packet yields no frame, and decoding goes on."""
        with damage_as_video_error(self.path):
            try:
                return self.context.decode(packet)
            except DAMAGE:
                self.errors += packet is not None
                return []

    def seek(self, ticks: int) -> bool:
        """Move to the last key packet at or before a time in units of the stream's time base."""
        with damage_as_video_error(self.path):
            try:
                self.container.seek(ticks, stream=self.stream, backward=True)
            except DAMAGE:
                return False
        return True

    def close(self) -> None:
        self.container.close()


_SEI = 6


_X264_UUID = bytes.fromhex("dc45e9bde6d948b7962cd820d923eeef")


def build_message(source: Source, context: av.VideoCodecContext) -> bytes:
    """The x264 message of a 4:4:4 H.264 stream as it stands in its first packet; else nothing."""
    if context.codec.canonical_name != "h264" or "444" not in (context.pix_fmt or ""):
        return b""
    with closing(source.open()) as opened:
        first = next(opened.packets(), None)
        data, extradata = b"" if first is None else bytes(first), opened.context.extradata or b""
    for start, end in _units(data, extradata):
        if data[start] & 0x1F == _SEI and _X264_UUID in data[start:end]:
            return len(data[start:end]).to_bytes(4, "big") + data[start:end]
    return b""


def _units(data: bytes, extradata: bytes) -> list[tuple[int, int]]:
    """(start, end) of each NAL unit of a length-prefixed packet; empty for other layouts."""
    if len(extradata) < 5 or extradata[0] != 1:
        return []
    size = (extradata[4] & 3) + 1
    if size != 4:
        return []
    units, at = [], 0
    while at + size < len(data):
        length = int.from_bytes(data[at : at + size], "big")
        at += size
        if length == 0 or at + length > len(data):
            return []
        units.append((at, at + length))
        at += length
    return units


def prepend(message: bytes, packet: Packet) -> Packet:
    """The packet with the message in front of it."""
    longer: Packet = av.Packet(message + bytes(packet))  # type: ignore[assignment]  # knows no stream yet
    longer.time_base = packet.time_base
    longer.is_keyframe = packet.is_keyframe
    return longer
