"""Open any kind of video: a file, a URL, a folder of images, an array, a Decoder.

Files and URLs are opened by a decoder class from the entry-point group `framenest.decoders`, Framenest's own
included. Its classmethod `open(path, argument, *, stream, store, progress)` returns a `protocols.Decoder`;
`argument` is what follows the colon in NAME:ARGUMENT.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image

from framenest.cache.directory import DirectoryStore
from framenest.errors import ConfigError, IndexMismatch, VideoError
from framenest.frames import VideoInfo
from framenest.plugins import load_plugin, plugins
from framenest.progress import ShowProgress
from framenest.protocols import Store
from framenest.video.decoder import Decoder
from framenest.video.pyav import PyAVDecoder
from framenest.video.source import is_remote
from framenest.video.stills import ArrayDecoder, ImageFolderDecoder, stacked

DECODERS = "framenest.decoders"
Frames = np.ndarray[Any, Any] | Sequence[Image.Image | np.ndarray[Any, Any]]
Video = str | os.PathLike[str] | bytes | BinaryIO | Decoder | Frames
"""Anything that `open_video` opens."""
IN_MEMORY = "<bytes>"  # the path of a video file in memory


def open_video(
    video: Video,
    *,
    fps: float | None = None,
    stream: int | None = None,
    decoder: str = "pyav",
    store: Store | None = None,
    progress: ShowProgress = True,
) -> Decoder:
    """Open a video for decoding.

    Args:
        video: a path, a URL (http(s), with the extra `web` of a page; all that fsspec opens with `remote`),
            a folder of numbered images, the bytes of a video file, a file object (read whole), frames in
            memory (an array (n, H, W, 3) of uint8 RGB, or a list of Pillow images or arrays (H, W, 3) of one
            size), or a Decoder, returned unchanged.
        fps: frames per second of a folder, 1 by default, or of frames in memory.
        stream: which stream of a file, counted from 0; FFmpeg's choice by default.
        decoder: "pyav", or NAME or NAME:ARGUMENT of a decoder for files and URLs that another package
            registers.
        store: where timelines are cached; the user's cache by default. Hashes of files and downloads
            always stay on this machine.
        progress: of fetching the video of a page; as for `Session`.

    Returns:
        A decoder that describes the video (`info`, `seconds`, `key_frames`) and reads frames by number.

    Raises:
        VideoError: the video does not exist, or nothing in it can be decoded.
        ConfigError: there is no such decoder.

    >>> open_video(np.zeros((10, 36, 64, 3), np.uint8), fps=5).info.duration
    2.0
    """
    if isinstance(video, (np.ndarray, list, tuple)):
        pixels = video if isinstance(video, np.ndarray) else stacked(video)
        if fps is None:
            raise VideoError("frames in memory need their frame rate; give fps=")
        return ArrayDecoder(pixels, fps)
    if isinstance(video, (str, os.PathLike)):
        path = os.fspath(video)
        if not is_remote(path) and Path(path).is_dir():
            return ImageFolderDecoder(path, fps)
        if fps is not None:
            raise VideoError(
                f"{path}: fps is for folders of images and frames in memory; a video file has its own times"
            )
        name, _, argument = decoder.partition(":")
        opened = _decoder_class(name).open(path, argument, stream=stream, store=store, progress=progress)
        if not isinstance(opened, Decoder):
            raise ConfigError(f"{decoder!r} is not a decoder: it needs info, seconds, key_frames, read")
        return opened
    if isinstance(video, Decoder):
        return video
    if fps is not None or decoder != "pyav":
        raise VideoError(f"{IN_MEMORY}: a video file in memory has its own times, and pyav decodes it")
    return PyAVDecoder.of_bytes(_bytes_of(video), IN_MEMORY, store or DirectoryStore(), stream)


def _bytes_of(video: Any) -> bytes:
    if hasattr(video, "read"):
        if video.seekable():
            video.seek(0)
        video = video.read()
    if isinstance(video, bytes):
        return video
    raise VideoError(
        f"not a video: {type(video).__name__}; give a path, bytes, a file open with mode 'rb', a Decoder, "
        "or an array or list of frames"
    )


@cache
def _decoder_class(name: str) -> Any:
    points = plugins(DECODERS, ["pyav"])
    if name not in points:
        raise ConfigError(f"there is no decoder {name!r}; choose from {', '.join(points)}")
    return load_plugin(points[name])


def must_not_fetch_unasked(known: VideoInfo) -> None:
    """Refuse a URL that only a ranking or index file names: such a file may come from anyone."""
    if known.from_file and (is_remote(known.path) or known.path.startswith(("\\\\", "//"))):
        raise VideoError(
            f"{known.path}: refusing to fetch a URL named in a ranking file; give it with video="
        )


def reopen(known: VideoInfo, video: Video | None = None, *, store: Store | None = None) -> Decoder:
    """Open the video that a ranking was made from.

    known: `Ranking.video` or `Prefix.video`. video: where it is now, if it has moved; a Decoder; or the same
    frames in memory. Raises IndexMismatch if its content has changed, VideoError if it does not exist.

    >>> reopen(ranking.video).info == ranking.video
    True
    """
    where = known.path if video is None else video
    needs_fps = isinstance(where, (np.ndarray, list, tuple))
    if isinstance(where, (str, os.PathLike)):
        where = os.fspath(where)
        if where in (ArrayDecoder.PATH, IN_MEMORY):
            raise VideoError("this video was in memory; give it again: video=")
        if video is None:
            must_not_fetch_unasked(known)
        if not is_remote(where) and not Path(where).exists():
            raise VideoError(f"{where}: no such file; if it has moved, give its path with video=")
        needs_fps = Path(where).is_dir()
    decoder = open_video(where, fps=known.fps if needs_fps else None, stream=known.stream, store=store)
    if decoder.info.fingerprint != known.fingerprint:
        raise IndexMismatch(f"{decoder.info.path}: this video has changed since it was ranked; rank it again")
    return decoder
