"""The default decoder: exact frames through PyAV, several small decoders at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import keep
from framenest.cache.hashes import digest
from framenest.errors import VideoError
from framenest.frames import VideoInfo, check_picture_size
from framenest.processes import cores, machine_memory
from framenest.protocols import Store
from framenest.transcript.transcript import Transcript
from framenest.video import x264
from framenest.video.mp4 import check_sample_counts
from framenest.video.parallel import DecodeWorker, ordered
from framenest.video.picture_decoder import Picture, PictureDecoder, Sizes
from framenest.video.reader import Reader, plan
from framenest.video.scale import Orientation, Scaler, display_size
from framenest.video.scan import scan
from framenest.video.source import Opened, Source, damage_as_video_error, fraction, moving_streams
from framenest.video.subtitle_tracks import file_begins, read_track
from framenest.video.timeline import Timeline

TIMELINE_FORMAT = 2
_MEMORY, _SHARE = 2**30, 1 / 16
"""Bytes, or the share of this machine's memory, that all decoders together may hold in reference frames."""
_REFERENCES = 20
"""Frames that one decoder may hold."""


class PyAVDecoder(PictureDecoder):
    """Exact frames of a video file through PyAV. With a store, the timeline is kept there."""

    name = "pyav"
    version = f"{'.'.join(map(str, av.library_versions['libavcodec'][:2]))}-1"

    def __init__(self, source: Source, *, store: Store | None = None) -> None:
        self._source = source
        fingerprint = source.fingerprint + (f"-{source.stream}" if source.stream is not None else "")
        key = f"timeline/{digest(fingerprint, self.version, TIMELINE_FORMAT)}"
        kept = store.get(key) if store else None
        if kept:
            header, arrays = kept
            self.timeline = Timeline.from_parts(header["timeline"], arrays)
        else:
            with damage_as_video_error(source.path):
                with source.file() as file:
                    check_sample_counts(source.path, file)
                with closing(source.open()) as opened:
                    first = _first_frame(opened)
                    self.timeline = scan(source, opened)
                    header = self._describe(fingerprint, opened, first)
            if store:
                parts, arrays = self.timeline.to_parts()
                keep(store, key, header | {"timeline": parts}, arrays)
        self.info = VideoInfo.from_json(header["video"] | {"path": source.path})
        self.seconds = self.timeline.seconds
        frames = self.timeline.frame[self.timeline.keys]
        self.key_frames = np.sort(frames[frames >= 0])
        self.stream_index = int(header["stream_index"])
        """The number of the stream in the file, also where it was FFmpeg's choice."""
        self._turn = Orientation(*header["turn"])
        self._message = bytes.fromhex(header["x264"])

    @property
    def begins(self) -> float:
        """Where the file begins, in seconds from its first frame: 0, or less where sound comes first."""
        return file_begins(self._source) - self.info.start

    def subtitle_track(self) -> Transcript | None:
        """The text track inside the file that suits best; None where there is none."""
        return read_track(self._source, self.info.start, self.info.duration)

    def streams(self) -> list[str]:
        """The streams of the file in words, in their order: "video h264", "audio aac (eng)"."""
        with closing(self._source.open()) as opened:
            return [_in_words(stream) for stream in opened.container.streams]

    def scaler(self, sizes: Sizes) -> Scaler:
        """Makes upright pictures of these sizes from frames of this video."""
        return Scaler(self.info.width, self.info.height, self._turn, tuple(sizes))

    def _pictures(self, ascending: NDArray[np.int64], sizes: Sizes) -> Iterator[Picture]:
        runs = plan(self.timeline, ascending)
        count = min(_most_decoders(self.info), len(runs)) or 1
        readers = [Reader(self._source, self.timeline, self._message) for _ in range(count)]
        workers = [DecodeWorker(self._source.path, reader, self.scaler(sizes)) for reader in readers]
        return ordered(runs, workers, item_bytes=self._picture_bytes(sizes))

    def _describe(self, fingerprint: str, opened: Opened, first: av.VideoFrame | None) -> dict[str, Any]:
        """The header of the entry that keeps the timeline; first: the first frame that decodes."""
        path, timeline, stream = self._source.path, self.timeline, opened.stream
        if not len(timeline):
            raise VideoError(f"{path}: no frames in its video stream")
        if first is None:
            raise VideoError(f"{path}: none of its {len(timeline)} frames can be decoded")
        turn = Orientation.of(first)
        aspect = fraction(stream.sample_aspect_ratio)
        width, height = display_size(first.width, first.height, aspect, turn)
        check_picture_size(path, width, height)
        info = VideoInfo(
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
            notes=(*_loss(timeline, opened), *self._other_streams(opened)),
            stream=self._source.stream,
            timeline_bytes=timeline.bytes_read,
        )
        return {
            "video": info.to_json(),
            "stream_index": stream.index,
            "turn": [turn.quarter_turns, turn.mirror],
            "x264": x264.build_message(self._source, opened.context).hex(),
        }

    def _other_streams(self, opened: Opened) -> list[str]:
        """That there are others to choose from, where nobody chose."""
        streams = moving_streams(opened.container)
        if self._source.stream is not None or len(streams) < 2:
            return []
        sizes = [f" ({s.width}×{s.height})" if s.codec_context else "" for s in streams]  # None: no decoder
        every = ", ".join(f"{s.index}{size}" for s, size in zip(streams, sizes, strict=True))
        return [f"this is stream {opened.stream.index} of the video streams {every}; --stream picks another"]


def _most_decoders(video: VideoInfo) -> int:
    """As many as there are cores, if memory allows; at least one."""
    memory = max(_MEMORY, int(_SHARE * machine_memory()))
    return max(1, min(cores(), memory // (_REFERENCES * 2 * video.width * video.height)))


def _first_frame(opened: Opened) -> av.VideoFrame | None:
    for packet in opened.packets():
        for frame in opened.decode(packet):
            return frame
    return next(iter(opened.decode(None)), None)


def _loss(timeline: Timeline, opened: Opened) -> tuple[str, ...]:
    """How much of the video is missing, according to its header."""
    stream, container = opened.stream, opened.container
    if stream.duration is not None and stream.time_base is not None:
        seconds, margin = float(stream.duration * stream.time_base), 0.5
    elif container.duration is not None:  # of all streams together: sound may outlast the picture
        seconds, margin = container.duration / av.time_base - max(0.0, timeline.start), 1.0
    else:
        return ()
    if seconds - timeline.duration > margin + 0.01 * seconds:
        return (f"the header promises {seconds:.1f} s of video, {timeline.duration:.1f} s are there",)
    return ()


def _in_words(stream: Any) -> str:
    codec = getattr(stream.codec_context, "name", None)
    language = stream.metadata.get("language", "und")
    return " ".join(filter(None, [stream.type, codec, f"({language})" if language != "und" else ""]))
