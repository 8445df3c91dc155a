"""The original frames of a prefix, as image files or pixels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from framenest.errors import BadSetting, IndexMismatch, StoreError, VideoError
from framenest.frames import FrameBatch, ImageSpec, VideoInfo
from framenest.images import encode_image
from framenest.method.prefix import Prefix
from framenest.protocols import Decoder, Progress, Store
from framenest.video import open_video
from framenest.video.address import is_remote

FORMATS = ("jpg", "png")


def reopen(
    video: VideoInfo, *, path: str | os.PathLike[str] | None = None, store: Store | None = None
) -> Decoder:
    """Open the video that a ranking was made from.

    Args:
        video: `Ranking.video` or `Prefix.video`.
        path: where the video is now, if it has moved.
        store: where its timeline is kept; by default the user's cache.

    Returns:
        A decoder of the same content.

    Raises:
        VideoError: there is no such video.
        IndexMismatch: its content has changed.
    """
    where = os.fspath(path) if path is not None else video.path
    if not is_remote(where) and not Path(where).exists():
        raise VideoError(f"{where}: no such file; say where the video is now with --video")
    fps = video.fps if Path(where).is_dir() else None
    decoder = open_video(where, fps=fps, stream=video.stream, store=store)
    if decoder.info.fingerprint != video.fingerprint:
        raise IndexMismatch(f"{where}: this video has changed since it was ranked; rank it again")
    return decoder


def read_prefix(decoder: Decoder, prefix: Prefix, size: ImageSpec | None = None) -> Iterator[FrameBatch]:
    """The frames of a prefix in time order, at their original size unless told otherwise."""
    return decoder.read(prefix.frames, sizes=(size,))


def file_name(prefix: Prefix, place: int, suffix: str) -> str:
    """Sorts by time, and carries frame, seconds and rank: "f0001234_t000049.360s_r003.jpg"."""
    frame, seconds = int(prefix.frames[place]), float(prefix.seconds[place])
    rank = "" if prefix.ranks is None else f"_r{int(prefix.ranks[place]):03d}"
    return f"f{frame:07d}_t{seconds:010.3f}s{rank}.{suffix}"


def vlmevalkit_name(prefix: Prefix, place: int, suffix: str) -> str:
    """VLMEvalKit's names, counted from 1: "frame-3-of-8.jpg"."""
    return f"frame-{place + 1}-of-{len(prefix)}.{suffix}"


def extract(
    decoder: Decoder,
    prefix: Prefix,
    folder: str | Path,
    *,
    format: str = "jpg",  # noqa: A002 - the word the command line uses
    quality: int = 95,
    name: Callable[[Prefix, int, str], str] = file_name,
    progress: Progress = lambda *_: None,
) -> list[Path]:
    """Write the frames of a prefix into a folder, at their original size.

    Args:
        decoder: the open video, from `reopen` or `open_video`.
        prefix: which frames.
        folder: made if it is not there.
        format: "jpg" or "png".
        quality: of JPEG files, 1 to 95.
        name: called as name(prefix, place, suffix) for the name of each file.
        progress: called as progress(stage, done, total).

    Returns:
        The files in time order.

    Raises:
        StoreError: the folder cannot be written to.
        VideoError: a frame cannot be decoded any more.
    """
    if format not in FORMATS:
        raise BadSetting("format", format, f"one of {', '.join(FORMATS)}")
    prefix.must_hold_frames()
    target = Path(folder)
    files: list[Path] = []
    try:
        target.mkdir(parents=True, exist_ok=True)
        for batch in read_prefix(decoder, prefix):
            for number, pixels in zip(batch.frames, batch.pixels[0], strict=True):
                place = int(np.searchsorted(prefix.frames, number))
                file = target / name(prefix, place, format)
                file.write_bytes(encode_image(pixels, format, quality=quality, subsampled=False))
                files.append(file)
                progress("extracting", len(files), len(prefix))
    except OSError as error:
        raise StoreError(f"{target}: cannot be written ({error.strerror or error})") from error
    if len(files) < len(prefix):
        raise VideoError(f"{len(prefix) - len(files)} of {len(prefix)} frames could not be decoded any more")
    return files
