"""Opening anything that is a video: a file, a folder of images, an array of frames."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from framenest.errors import VideoError
from framenest.protocols import Decoder
from framenest.store import DirectoryStore
from framenest.video.pictures import ArrayDecoder, ImageFolderDecoder
from framenest.video.pyav import PyAVDecoder
from framenest.video.source import check_file

__all__ = ["ArrayDecoder", "ImageFolderDecoder", "PyAVDecoder", "open_video"]


def open_video(
    video: str | os.PathLike[str] | Decoder | np.ndarray[Any, Any],
    *,
    fps: float | None = None,
    stream: int | None = None,
    store: DirectoryStore | None = None,
) -> Decoder:
    """A decoder for a path, a folder of numbered images (needs fps), or frames (n, H, W, 3) (needs fps).

    A Decoder is returned as it is. `stream` picks one of several video streams of a file.

    >>> open_video(np.zeros((10, 36, 64, 3), np.uint8), fps=5).info.duration
    2.0
    """
    if isinstance(video, np.ndarray):
        if fps is None:
            raise VideoError("an array of frames needs its frame rate; give fps=")
        return ArrayDecoder(video, fps)
    if isinstance(video, (str, os.PathLike)):
        path = os.fspath(video)
        if Path(path).is_dir():
            return ImageFolderDecoder(path, fps)
        if fps is not None:
            raise VideoError(
                f"{path}: fps is for folders of images and arrays; a video file has its own times"
            )
        check_file(path)
        store = store or DirectoryStore()
        return PyAVDecoder(path, store.fingerprint(path), stream=stream, store=store)
    if isinstance(video, Decoder):
        return video
    raise VideoError(f"not a video: {type(video).__name__}; give a path, a Decoder or an array of frames")
