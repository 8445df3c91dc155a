"""Source: a video file that can be reopened, and the allowlist of formats."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import av
from av.error import FFmpegError

from framenest.cache.files import InUse
from framenest.errors import VideoError
from framenest.frames import MOST_PIXELS, check_image_size

OPEN_READ_SECONDS = (30.0, 30.0)  # seconds to open and to read
_MAX_EMPTY_PACKETS = 2**16  # packets without a frame
# Metadata need not be UTF-8; PyAV 19 replaces bad characters by default.
_LENIENT: dict[str, Any] = {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}

Packet: TypeAlias = "av.Packet[av.VideoStream]"

CONTAINERS = {
    "mov,mp4,m4a,3gp,3g2,mj2": ".mp4",
    "matroska,webm": ".mkv",
    "avi": ".avi",
    "mpegts": ".ts",
    "mpeg": ".mpg",
    "flv": ".flv",
    "asf": ".wmv",
    "ogg": ".ogv",
    "mxf": ".mxf",
    "gif": ".gif",
    "rm": ".rm",
    "ivf": ".ivf",
    "yuv4mpegpipe": ".y4m",
    "h264": ".h264",
    "hevc": ".h265",
    "mpegvideo": ".m2v",
    "m4v": ".m4v",
    "obu": ".obu",
    "dv": ".dv",
}
"""FFmpeg's names of the containers and raw streams that are opened, with a file suffix for each."""

VIDEO_SUFFIXES = frozenset((
    ".3gp", ".asf", ".avi", ".divx", ".dv", ".f4v", ".flv", ".gif", ".h264", ".h265", ".hevc", ".ivf",
    ".m2ts", ".m2v", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".mxf", ".obu", ".ogm", ".ogv",
    ".qt", ".rm", ".rmvb", ".ts", ".vob", ".webm", ".wmv", ".y4m",
))  # fmt: skip
"""Files of a folder that count as videos."""


def is_remote(path: str) -> bool:
    """Whether a video is at a URL, not a path.

    >>> is_remote("https://host/a.mp4"), is_remote("C:/a.mp4"), is_remote("a.mp4")
    (True, False, False)
    """
    return re.match(r"[a-z][a-z0-9+.-]+://", path, re.IGNORECASE) is not None


def open_options(address: str | None) -> dict[str, str]:
    """The formats and protocols that FFmpeg may open. address: None if it reads through a Python file."""
    protocols = "none" if address is None else "file"
    if address is not None and address.lower().startswith(("http://", "https://")):
        protocols = "http,https,tcp,tls,httpproxy"
    return {"format_whitelist": ",".join(CONTAINERS), "protocol_whitelist": protocols}


def check_file(path: str) -> None:
    """Refuse what cannot be a video file."""
    file = Path(path)
    if not file.is_file():
        raise VideoError(f"{path}: {'not a file' if file.exists() else 'no such file'}")
    if file.stat().st_size == 0:
        raise VideoError(f"{path}: the file is empty")
    if not os.access(path, os.R_OK):
        raise VideoError(f"{path}: no permission to read this file")


DAMAGE = (FFmpegError, EOFError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
          RuntimeError)  # fmt: skip
"""Errors that PyAV raises on damaged data: FFmpeg's, and its own, such as IndexError for packets of a stream
that was not there when the file was opened, or OverflowError for absurd times."""


@contextmanager
def damage_as_video_error(path: str) -> Iterator[None]:
    """Turn everything that PyAV raises inside into a VideoError that names the video."""
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
    """One stream of a video file, which can be reopened."""

    path: str  # the user's name for the video
    fingerprint: str = ""  # identifies its content
    stream: int | None = None  # number of the stream in the file; None for FFmpeg's choice
    local: str | None = None  # the path or URL that FFmpeg opens; None if it reads through `open_file`
    open_file: Callable[[], BinaryIO] | None = None  # opens the file in Python; None for `local`
    in_use: InUse | None = None  # keeps a downloaded file locked
    x264_build: str = ""  # to pass to FFmpeg; empty if FFmpeg detects it
    strict: bool = False  # return no frame in which the decoder concealed damage

    @classmethod
    def at(cls, path: str, fingerprint: str = "", stream: int | None = None) -> Source:
        """A file on this machine."""
        where = str(Path(path).absolute())
        return cls(where, fingerprint, stream, where)

    def file(self) -> BinaryIO:
        """The bytes of the file, for reading its header."""
        return self.open_file() if self.open_file else Path(self.local or self.path).open("rb")

    def open(self) -> Opened:
        """Open the container, with a decoder for the chosen stream."""
        with damage_as_video_error(self.path):
            try:
                container: av.container.InputContainer = av.open(
                    self.local or self.file(),
                    "r",
                    options=open_options(self.local),
                    timeout=OPEN_READ_SECONDS,
                    **_LENIENT,
                )
            except ValueError as error:  # FFmpeg's, too; PyAV 15 has other names for some of them
                raise VideoError(f"{self.path}: {self._why_not(error)}") from error
            try:
                stream = self._choose(container)
                context = stream.codec_context
                if context.width and context.height:
                    check_image_size(self.path, context.width, context.height)
                # The size may change within the stream.
                context.options = {"max_pixels": str(MOST_PIXELS)}
                if self.x264_build:
                    context.options |= {"x264_build": self.x264_build}
                if self.strict:
                    context.options |= {"err_detect": "explode"}
                # One decoder thread: frame threads conceal damage differently from run to run.
                context.thread_count = 1
            except BaseException:
                container.close()
                raise
        return Opened(self.path, container, stream)

    def _why_not(self, error: ValueError) -> str:
        try:
            with self.file() as file:
                head = file.read(1024)
        except OSError:
            head = b""
        text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        if text.startswith((b"#EXTM3U", b"ffconcat")) or b"<MPD" in text:
            return "a playlist, which names other files; ffmpeg -i PLAYLIST -c copy VIDEO.mkv joins them"
        if isinstance(error, (av.error.InvalidDataError, UnicodeError)):
            return f"not a video that FFmpeg can read ({getattr(error, 'strerror', error)})"
        return "not a video, or in a format that Framenest does not open"

    def _choose(self, container: av.container.InputContainer) -> av.VideoStream:
        streams = {stream.index: stream for stream in moving_streams(container)}
        if not streams:
            kinds = ", ".join(sorted({s.type for s in container.streams})) or "nothing"
            raise VideoError(f"{self.path}: no video stream in this file (it holds {kinds})")
        wanted = self.stream
        if wanted is None:
            best = container.streams.best("video")
            wanted = best.index if best and best.index in streams else min(streams)
        if wanted not in streams:
            numbers = ", ".join(map(str, streams))
            raise VideoError(f"{self.path}: stream {wanted} is not video; the video streams are {numbers}")
        if streams[wanted].codec_context is None:
            raise VideoError(f"{self.path}: no decoder for its video codec")
        return streams[wanted]


def fraction(value: Any) -> Fraction | None:
    """A rate, ratio or time base of PyAV as a Fraction; None if it is unknown."""
    return Fraction(value.numerator, value.denominator) if value and value.denominator else None


def moving_streams(container: av.container.InputContainer) -> list[av.VideoStream]:
    """The video streams of a file, without cover images."""
    cover = av.stream.Disposition.attached_pic
    return [stream for stream in container.streams.video if not stream.disposition & cover]


@dataclass
class Opened:
    """One open container, positioned somewhere in its video stream."""

    path: str
    container: av.container.InputContainer
    stream: av.VideoStream
    damaged: bool = False  # whether the decoder has refused a packet or concealed damage in a frame

    @property
    def context(self) -> av.VideoCodecContext:
        return self.stream.codec_context

    def packets(self) -> Iterator[Packet]:
        """The stream's packets in decode order, from here to the end of what can be read.

        A truncated or damaged container ends early, as it does for FFmpeg's own tools.
        """
        with damage_as_video_error(self.path), suppress(*DAMAGE):
            for packet in self.container.demux(self.stream):
                if packet.size > 0:
                    yield packet

    def decode(self, packet: Packet | None) -> list[av.VideoFrame]:
        """Decode one packet; None drains the decoder. A damaged packet yields no frame."""
        with damage_as_video_error(self.path):
            try:
                frames = self.context.decode(packet)
            except DAMAGE:
                self.damaged |= packet is not None
                return []
            # A packet that the container truncated or that is next to a gap is corrupt, too.
            self.damaged |= (packet is not None and packet.is_corrupt) or any(f.is_corrupt for f in frames)
            return frames

    def play(self) -> Iterator[tuple[int, list[av.VideoFrame]]]:
        """Decode everything from here on: (number of the packet, the frames that it returned).

        A frame's `pts` is the number of its packet, counted from here.
        """
        number = -1
        for number, packet in enumerate(self.packets()):
            packet.pts = packet.dts = number
            yield number, self.decode(packet)
        yield number + 1, self.decode(None)

    def first_frame(self) -> av.VideoFrame | None:
        """The first frame that can be decoded from here on; VideoError after too many packets without one."""
        for number, frames in self.play():
            if frames:
                return frames[0]
            if number >= _MAX_EMPTY_PACKETS:
                raise VideoError(f"{self.path}: none of its first {number:,} packets can be decoded")
        return None

    def seek(self, ticks: int) -> bool:
        """Move to the last key packet at or before a time, in units of the stream's time base."""
        with damage_as_video_error(self.path), suppress(*DAMAGE):
            self.container.seek(ticks, stream=self.stream, backward=True)
            return True
        return False

    def close(self) -> None:
        self.container.close()
