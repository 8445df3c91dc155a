"""Options of commands that open a video: a new one, or that of a ranking."""

from __future__ import annotations

from dataclasses import dataclass

from framenest.cli.common_options import Common
from framenest.cli.options import option
from framenest.frames import VideoInfo
from framenest.protocols import Decoder
from framenest.video import open_video, reopen

PLAYLISTS = "Open a VIDEO that names other files or addresses, too: HLS, DASH, ffconcat."


@dataclass(frozen=True)
class VideoOptions:
    """How a video is opened."""

    fps: float | None = option("Frame rate of a folder of numbered images.")
    stream: int | None = option("Which stream of the file; FFmpeg's choice by default.")
    decoder: str = option(
        "pyav, torchcodec, or torchcodec:cuda for a GPU's video engine.", default="pyav", metavar="NAME"
    )

    allow_playlists: bool = option(PLAYLISTS)

    def open(self, video: str, common: Common) -> Decoder:
        """The open video."""
        return open_video(video, **vars(self), store=common.cache)


@dataclass(frozen=True)
class KnownVideo:
    """How the video of a ranking is opened again."""

    video: str | None = option("Where the video is now, if it has moved.", metavar="PATH")
    allow_playlists: bool = option(PLAYLISTS)

    def reopen(self, info: VideoInfo, common: Common) -> Decoder:
        """The open video; refused where it has changed."""
        return reopen(info, self.video, allow_playlists=self.allow_playlists, store=common.cache)
