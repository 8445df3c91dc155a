"""Options of commands that open a video: a new one, or that of a ranking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from framenest.cli.common_options import Common
from framenest.cli.options import option, through_environment
from framenest.cli.parameter_types import Size
from framenest.limits import DOWNLOAD_VARIABLE

if TYPE_CHECKING:  # decoders are imported when a video is opened
    from framenest.frames import VideoInfo
    from framenest.protocols import Decoder

PLAYLISTS = "Open a VIDEO that names other files or addresses, too: HLS, DASH, ffconcat."
MAX_DOWNLOAD = option(
    "The largest VIDEO that is downloaded whole, as servers without range requests make necessary. "
    f"[default: ${DOWNLOAD_VARIABLE}, or 20GiB]",
    type=Size(),
    callback=through_environment(DOWNLOAD_VARIABLE),
)


@dataclass(frozen=True)
class VideoOptions:
    """How a video is opened."""

    fps: float | None = option("Frame rate of a folder of numbered images.")
    stream: int | None = option("Which stream of the file; FFmpeg's choice by default.")
    decoder: str = option(
        "pyav, torchcodec, or torchcodec:cuda for a GPU's video engine.", default="pyav", metavar="NAME"
    )

    allow_playlists: bool = option(PLAYLISTS)
    max_download: int | None = MAX_DOWNLOAD

    @property
    def settings(self) -> dict[str, Any]:
        """What `open_video` takes by name; the limit of downloads reaches it through the environment."""
        return {name: value for name, value in vars(self).items() if name != "max_download"}

    def open(self, video: str, common: Common) -> Decoder:
        """The open video."""
        from framenest.video.opening import open_video

        return open_video(video, **self.settings, store=common.cache)


@dataclass(frozen=True)
class KnownVideo:
    """How the video of a ranking is opened again."""

    video: str | None = option("Where the video is now, if it has moved.", metavar="PATH")
    allow_playlists: bool = option(PLAYLISTS)
    max_download: int | None = MAX_DOWNLOAD

    def reopen(self, info: VideoInfo, common: Common) -> Decoder:
        """The open video; refused where it has changed."""
        from framenest.video.opening import reopen

        return reopen(info, self.video, allow_playlists=self.allow_playlists, store=common.cache)
