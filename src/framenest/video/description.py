"""Description: what a video's header and first frame say, as the store keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Self

import av

from framenest.errors import VideoError
from framenest.frames import Array, VideoInfo, check_picture_size
from framenest.video.mp4 import check_sample_counts
from framenest.video.scale import Orientation, display_size
from framenest.video.source import (
    Opened,
    Source,
    build_message,
    damage_as_video_error,
    fraction,
    moving_streams,
)
from framenest.video.timeline import Timeline, scan

DESCRIPTION_FORMAT = 3


@dataclass(frozen=True)
class Description:
    """What a decoder must know of a video stream.

    Attributes:
        timeline: when each frame is shown.
        facts: `VideoInfo` as JSON, with an empty path and fingerprint.
        turn: how stored pixels are turned upright.
        message: see `build_message`.
    """

    timeline: Timeline
    facts: Mapping[str, Any]
    turn: Orientation
    message: bytes

    @classmethod
    def of(cls, source: Source) -> Self:
        """Read it from the file.

        Raises:
            VideoError: the stream has no frames, or none that can be decoded.
        """
        with damage_as_video_error(source.path):
            with source.file() as file:
                check_sample_counts(source.path, file)
            with closing(source.open()) as opened:
                first = opened.first_frame()
                timeline, stream = scan(source, opened), opened.stream
                if not len(timeline):
                    raise VideoError(f"{source.path}: no frames in its video stream")
                if first is None:
                    raise VideoError(f"{source.path}: none of its {len(timeline)} frames can be decoded")
                turn, aspect = Orientation.of(first), fraction(stream.sample_aspect_ratio)
                width, height = display_size(first.width, first.height, aspect, turn)
                check_picture_size(source.path, width, height)
                info = VideoInfo(
                    path="",
                    fingerprint="",
                    num_frames=len(timeline),
                    duration=timeline.duration,
                    fps=timeline.fps,
                    width=width,
                    height=height,
                    codec=stream.codec_context.codec.canonical_name,
                    start=timeline.start,
                    constant_rate=timeline.constant_rate,
                    notes=(*_loss(timeline, opened), *_other_streams(source, opened)),
                    stream=source.stream,
                    timeline_bytes=timeline.bytes_read,
                )
                message = build_message(source, opened.context)
                return cls(timeline, info.to_json(), turn, message)

    def info(self, path: str, fingerprint: str) -> VideoInfo:
        """The facts, with the path and fingerprint of the file at hand."""
        return VideoInfo.from_json({**self.facts, "path": path, "fingerprint": fingerprint})

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """For a store; the inverse of `from_parts`."""
        parts, arrays = self.timeline.to_parts()
        header = {
            "video": dict(self.facts),
            "turn": [self.turn.quarter_turns, self.turn.mirror],
            "x264": self.message.hex(),
            "timeline": parts,
        }
        return header, arrays

    @classmethod
    def from_parts(cls, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        return cls(
            Timeline.from_parts(header["timeline"], dict(arrays)),
            header["video"],
            Orientation(*header["turn"]),
            bytes.fromhex(header["x264"]),
        )


def _loss(timeline: Timeline, opened: Opened) -> list[str]:
    """A note on how much of the video is missing, according to its header."""
    stream, container = opened.stream, opened.container
    if stream.duration is not None and stream.time_base is not None:
        seconds, margin = float(stream.duration * stream.time_base), 0.5
    elif container.duration is not None:  # of all streams together: sound may outlast the video
        seconds, margin = container.duration / av.time_base - max(0.0, timeline.start), 1.0
    else:
        return []
    if seconds - timeline.duration > margin + 0.01 * seconds:
        return [f"the header promises {seconds:.1f} s of video, {timeline.duration:.1f} s are there"]
    return []


def _other_streams(source: Source, opened: Opened) -> list[str]:
    """A note on the other streams, if the user chose none."""
    streams = moving_streams(opened.container)
    if source.stream is not None or len(streams) < 2:
        return []
    sizes = [f" ({s.width}×{s.height})" if s.codec_context else "" for s in streams]  # None: no decoder
    every = ", ".join(f"{s.index}{size}" for s, size in zip(streams, sizes, strict=True))
    return [f"this is stream {opened.stream.index} of the video streams {every}; --stream picks another"]
