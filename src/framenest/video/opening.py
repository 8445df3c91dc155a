"""Opening whatever is a video."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from framenest.cache.directory import DirectoryStore, local_directory
from framenest.errors import ConfigError, IndexMismatch, VideoError
from framenest.frames import VideoInfo
from framenest.protocols import Decoder, Store
from framenest.video.address import find
from framenest.video.formats import check_file, is_remote
from framenest.video.stills import ArrayDecoder, ImageFolderDecoder

if TYPE_CHECKING:
    from framenest.video.pyav import PyAVDecoder
    from framenest.video.source import Source


HEADER_SAYS_ALL = frozenset((".3gp", ".m4v", ".mov", ".mp4", ".qt"))
"""Files that are described in a moment, without a pass over their packets."""


def open_video(
    video: str | os.PathLike[str] | Decoder | np.ndarray[Any, Any],
    *,
    fps: float | None = None,
    stream: int | None = None,
    decoder: str = "pyav",
    allow_playlists: bool = False,
    store: Store | None = None,
) -> Decoder:
    """Open a video for decoding.

    Args:
        video: a path, an address (http(s); with the extra `remote` whatever fsspec can open), a folder of
            numbered images, an array (n, H, W, 3) of uint8 RGB frames, or a Decoder, returned as it is.
        fps: frames per second of a folder or an array.
        stream: which of several streams of a file, counted from 0; FFmpeg's choice by default.
        decoder: "pyav", or with the extra `torchcodec` "torchcodec" and "torchcodec:cuda" for a GPU.
        allow_playlists: open a file that names other files or addresses, too (HLS, DASH, ffconcat); its
            fingerprint is that of all it names, which are read for it. One at an address names no files.
        store: where the timeline is kept; by default the user's cache. Fingerprints of files and
            downloads always stay on this machine.

    Returns:
        A decoder that knows the video (`info`, `seconds`, `key_frames`) and reads frames by number.

    Raises:
        VideoError: there is no such video, or nothing of it can be decoded.
        ConfigError: this decoder cannot open such a video.
        MissingExtra: the extra is not installed.

    >>> open_video(np.zeros((10, 36, 64, 3), np.uint8), fps=5).info.duration
    2.0
    """
    if isinstance(video, np.ndarray):
        if fps is None:
            raise VideoError("an array of frames needs its frame rate; give fps=")
        return ArrayDecoder(video, fps)
    if isinstance(video, (str, os.PathLike)):
        path, local = os.fspath(video), local_directory(store)
        store = store or local
        if decoder != "pyav" and (is_remote(path) or Path(path).is_dir()):
            raise ConfigError(f"{path}: decoder {decoder!r} reads only files on this machine")
        if is_remote(path):
            return _file(find(path, stream, local, playlists=allow_playlists), store)
        if Path(path).is_dir():
            return ImageFolderDecoder(path, fps)
        if fps is not None:
            raise VideoError(
                f"{path}: fps is for folders of images and arrays; a video file has its own times"
            )
        check_file(path)
        file = _local_file(path, stream, allow_playlists, local, store)
        return file if decoder == "pyav" else _other(decoder, file)
    if isinstance(video, Decoder):
        return video
    raise VideoError(f"not a video: {type(video).__name__}; give a path, a Decoder or an array of frames")


def must_not_fetch_unasked(known: VideoInfo) -> None:
    """Refuse an address that only a ranking or index file names, since such a file may come from anyone."""
    if known.from_file and (is_remote(known.path) or known.path.startswith(("\\\\", "//"))):
        raise VideoError(
            f"{known.path}: an address that a file names is not fetched by itself; "
            "give it with --video (in Python video=)"
        )


def reopen(
    known: VideoInfo,
    video: str | os.PathLike[str] | Decoder | np.ndarray[Any, Any] | None = None,
    *,
    allow_playlists: bool = False,
    store: Store | None = None,
) -> Decoder:
    """Open the video that a ranking was made from.

    Args:
        known: `Ranking.video` or `Prefix.video`.
        video: where the video is now, if it has moved; a Decoder, or the array that it was.
        allow_playlists: open it also if it is a playlist; see `open_video`.
        store: where its timeline is kept; by default the user's cache.

    Returns:
        A decoder of the same content.

    Raises:
        VideoError: there is no such video.
        IndexMismatch: its content has changed.

    >>> reopen(ranking.video).info == ranking.video
    True
    """
    where = known.path if video is None else video
    if isinstance(where, (str, os.PathLike)):
        where = os.fspath(where)
        if where == ArrayDecoder.PATH:
            raise VideoError("this video was an array of frames in memory; give it again: video=")
        if video is None:
            must_not_fetch_unasked(known)
        if not is_remote(where) and not Path(where).exists():
            raise VideoError(
                f"{where}: no such file; say where the video is now with --video (in Python video=)"
            )
    pictures = isinstance(where, np.ndarray) or (isinstance(where, str) and Path(where).is_dir())
    decoder = open_video(
        where,
        fps=known.fps if pictures else None,
        stream=None if pictures else known.stream,
        allow_playlists=allow_playlists,
        store=store,
    )
    if decoder.info.fingerprint != known.fingerprint:
        raise IndexMismatch(f"{decoder.info.path}: this video has changed since it was ranked; rank it again")
    return decoder


def _local_file(
    path: str, stream: int | None, playlists: bool, local: DirectoryStore, store: Store
) -> PyAVDecoder:
    from framenest.video.description import Description
    from framenest.video.pyav import PyAVDecoder
    from framenest.video.source import Source

    known = local.known_fingerprint(path)
    if known is not None or playlists or Path(path).suffix.lower() not in HEADER_SAYS_ALL:
        return _file(Source.at(path, known or local.fingerprint(path), stream, playlists=playlists), store)
    described: Future[Description] = Future()

    def describe() -> None:
        try:
            described.set_result(Description.of(Source.at(path, stream=stream)))
        except BaseException as error:
            described.set_exception(error)

    # A new file is hashed whole, to be known again; meanwhile its header is read in a thread.
    threading.Thread(target=describe, name="framenest-describe", daemon=True).start()
    source = Source.at(path, local.fingerprint(path), stream)
    return PyAVDecoder(source, store=store, describe=described.result)


def _file(source: Source, store: Store) -> PyAVDecoder:
    from framenest.video.pyav import PyAVDecoder

    return PyAVDecoder(source.with_segments() if source.playlists else source, store=store)


def _other(name: str, file: PyAVDecoder) -> Decoder:
    kind, _, device = name.partition(":")
    if kind != "torchcodec":
        raise ConfigError(f"there is no decoder {name!r}; choose from pyav, torchcodec, torchcodec:cuda")
    from framenest.video.torchcodec import TorchCodecDecoder

    return TorchCodecDecoder(file, device=device or "cpu")
