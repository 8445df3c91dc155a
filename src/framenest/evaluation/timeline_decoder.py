"""TimelineDecoder: a video of which only the length is known, to rank times without pictures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from framenest.errors import ConfigError
from framenest.frames import VideoInfo
from framenest.video.picture_decoder import Picture, PictureDecoder, Sizes

FPS = 30.0


class TimelineDecoder(PictureDecoder):
    """Frames that have times and no pictures: every picture is black.

    Visual change and observability are then the same for all frames, and so is the share by which looks
    lower a utility: no ranking depends on them. Nothing measured on the pictures means anything.

    Args:
        name: Stands for the path.
        duration: Seconds.
        fps: Frames per second.

    Example:
        >>> round(float(TimelineDecoder("lecture", 10).seconds[-1]), 3)
        9.967
    """

    name = "timeline"
    version = "1"

    def __init__(self, name: str, duration: float, fps: float = FPS) -> None:
        count = int(duration * fps)
        if count < 1:
            raise ConfigError(f"{name}: a timeline needs a duration of more than 0 s, not {duration:g}")
        digest = hashlib.blake2b(f"{name} {count} {fps}".encode(errors="surrogateescape"), digest_size=16)
        self.info = VideoInfo(name, digest.hexdigest(), count, count / fps, fps, 1, 1, "none")
        self.seconds = np.arange(count) / fps
        self.key_frames = np.arange(count)

    def _pictures(self, ascending: NDArray[np.int64], sizes: Sizes) -> Iterator[Picture]:
        shapes = [spec.size(1, 1) if spec else (1, 1) for spec in sizes]
        black = [np.zeros((height, width, 3), np.uint8) for width, height in shapes]
        return ((number, black) for number in ascending.tolist())


class NoStore:
    """A store that keeps nothing: what is known of a timeline is made anew faster than it is read."""

    def get(self, key: str) -> None:
        """Nothing."""

    def put(self, key: str, header: object, arrays: object) -> None:
        """Kept nowhere."""
