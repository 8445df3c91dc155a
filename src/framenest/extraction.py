"""The original frames of a video: of a prefix as image files, of a stretch as a clip."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from framenest.cache.files import write_atomic
from framenest.errors import BadSetting, StoreError
from framenest.images import ImageLimits, encode_image
from framenest.method.prefix import Prefix
from framenest.progress import ShowProgress, shown
from framenest.protocols import Store
from framenest.video.decoder import Decoder
from framenest.video.opening import Video, reopen

FRAME_FORMATS = ("jpg", "png")
TICK = Fraction(1, 90_000)  # seconds: the unit of times in a clip


def file_name(prefix: Prefix, place: int, suffix: str) -> str:
    """A name that sorts by time and contains frame, seconds and rank: "f0001234_t000049.360s_r003.jpg"."""
    frame, seconds = int(prefix.frames[place]), float(prefix.seconds[place])
    rank = "" if prefix.ranks is None else f"_r{int(prefix.ranks[place]):03d}"
    return f"f{frame:07d}_t{seconds:010.3f}s{rank}.{suffix}"


def other_frames(prefix: Prefix, folder: str | Path, suffix: str) -> list[Path]:
    """Files in a folder that `extract` wrote for other frames, by their names."""
    mine = {file_name(prefix, place, suffix) for place in range(len(prefix))}
    files = Path(folder).glob("f[0-9]*_t[0-9]*s*.[jp][pn]g")
    return sorted(file for file in files if file.name not in mine)


def vlmevalkit_name(prefix: Prefix, place: int, suffix: str) -> str:
    """VLMEvalKit's names, counted from 1: "frame-3-of-8.jpg"."""
    return f"frame-{place + 1}-of-{len(prefix)}.{suffix}"


def extract(
    prefix: Prefix,
    folder: str | Path,
    *,
    format: str = "jpg",  # noqa: A002 - the word the command line uses
    quality: int = 95,
    max_side: int | None = None,
    name: Callable[[Prefix, int, str], str] = file_name,
    video: Video | None = None,
    store: Store | None = None,
    progress: ShowProgress = True,
) -> list[Path]:
    """Write the frames of a prefix into a folder, at its sizes, or the original one.

    Args:
        prefix: which frames.
        folder: created if it does not exist.
        format: "jpg" or "png".
        quality: of JPEG files, 1 to 95.
        max_side: as for `Prefix.images`.
        name: called as name(prefix, place, suffix) for the name of each file.
        video: the open video, its path if it has moved, or the array of frames.
        store: the store of the video's timeline; by default the user's cache.
        progress: show a bar if it takes over a second; False for none, or a function that is called as
            progress(stage, done, total).

    Returns:
        The files in time order.

    Raises:
        StoreError: the folder cannot be written to.
        VideoError: the video no longer exists, or a frame no longer decodes.
        IndexMismatch: the video has changed since it was ranked.

    >>> [file.name for file in extract(ranking.prefix(2), "frames")]
    ['f0000152_t000006.080s_r002.jpg', 'f0000159_t000006.360s_r001.jpg']
    """
    if format not in FRAME_FORMATS:
        raise BadSetting("format", format, f"one of {', '.join(FRAME_FORMATS)}")
    prefix.must_hold_frames()
    decoder = reopen(prefix.video, video, store=store)
    size = ImageLimits(max_side).spec(decoder.info.width, decoder.info.height)
    target = Path(folder)
    files: list[Path] = []
    try:
        target.mkdir(parents=True, exist_ok=True)
        with shown(progress) as tell:
            for place, pixels in prefix.decode(decoder, size):
                file = target / name(prefix, place, format)
                image = encode_image(pixels, format, quality=quality, subsampled=False)
                write_atomic(file, image, follow=False)
                files.append(file)
                tell("extracting", len(files), len(prefix))
    except OSError as error:
        raise StoreError(f"{target}: cannot be written ({error.strerror or error})") from error
    return files


def write_clip(decoder: Decoder, start: float, end: float, path: str | os.PathLike[str]) -> Path:
    """Write the frames from `start` until before `end`, in seconds, as an H.264 MP4 with their own times."""
    times = decoder.seconds
    first, stop = np.searchsorted(times, [start - 1e-6, end - 1e-6]).tolist()
    frames = np.arange(min(first, max(stop, 1) - 1), max(stop, 1))
    even = decoder.info.width // 2 * 2, decoder.info.height // 2 * 2
    clip = io.BytesIO()
    with av.open(clip, "w", format="mp4") as container:
        stream: Any = container.add_stream("libx264", rate=max(1, round(decoder.info.fps)))
        stream.width, stream.height, stream.pix_fmt = *even, "yuv420p"
        stream.codec_context.time_base = stream.time_base = TICK
        for batch in decoder.read(frames):
            for second, pixels in zip(batch.seconds - times[frames[0]], batch.pixels[0], strict=True):
                picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels[: even[1], : even[0]]))
                picture.pts, picture.time_base = round(float(second) / TICK), TICK
                container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    write_atomic(Path(path), clip.getvalue())
    return Path(path)
