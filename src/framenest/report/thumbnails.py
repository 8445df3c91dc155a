"""Thumbnails of a report as data URLs: small for all frames, larger for the first ranks, within 4.4 MB."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from framenest.errors import ConfigError, VideoError
from framenest.frames import ImageSpec, Pixels
from framenest.images import data_url, encode_image
from framenest.protocols import Decoder, Progress
from framenest.report.document import Result
from framenest.selectors.selection import Selection

SMALL, LARGE = 128, 360
"""Short sides in pixels."""
LARGE_RANKS = 32
ALLOWED = 4_400_000
"""Characters of all pictures of a page, so that it stays under 5 MB with its data and code."""
_LADDER = ((1.0, 80, 80), (1.0, 62, 66), (0.8, 55, 60), (0.65, 50, 55), (0.5, 40, 45), (0.35, 30, 35))
"""Scale, quality of the small and of the large pictures; the first that fits is taken."""

Urls = dict[str, dict[str, str]]


def embed(decoder: Decoder, results: Sequence[Result], *, progress: Progress = lambda *_: None) -> Urls:
    """{frame number: {"small": data URL, "large": data URL of the first ranks}}; one decoding pass."""
    small, large = read_pictures(decoder, shown_frames(results), first_frames(results), progress)
    for scale, small_quality, large_quality in _LADDER:
        urls: Urls = {}
        for number, pixels in small.items():
            urls[str(number)] = {"small": _data_url(pixels, scale, small_quality)}
        for number, pixels in large.items():
            urls[str(number)]["large"] = _data_url(pixels, scale, large_quality)
        if sum(len(url) for entry in urls.values() for url in entry.values()) <= ALLOWED:
            return urls
    raise ConfigError(f"{len(small)} frames do not fit into one page; give fewer rankings at a time")


def shown_frames(results: Sequence[Result]) -> list[int]:
    """All frames that any budget of any result shows, ascending."""
    shown: set[int] = set()
    for result in results:
        lists = (
            [p.frames for p in result.prefixes.values()] if isinstance(result, Selection) else [result.frames]
        )
        shown.update(frame for frames in lists for frame in frames.tolist())
    return sorted(shown)


def first_frames(results: Sequence[Result], ranks: int = LARGE_RANKS) -> set[int]:
    """The first ranks of each ranking; of a selection the largest list up to that many."""
    first: set[int] = set()
    for result in results:
        if isinstance(result, Selection):
            fitting = [p for budget, p in sorted(result.prefixes.items()) if budget <= ranks]
            first.update(fitting[-1].frames.tolist() if fitting else [])
        else:
            first.update(result.frames[:ranks].tolist())
    return first


def read_pictures(
    decoder: Decoder, frames: Sequence[int], first: set[int], progress: Progress = lambda *_: None
) -> tuple[dict[int, Pixels], dict[int, Pixels]]:
    """Small pictures of all frames, large ones of `first`, by frame number."""
    native = min(decoder.info.width, decoder.info.height)
    sizes = [ImageSpec.short_side(min(side, native)) for side in (SMALL, LARGE)]
    small: dict[int, Pixels] = {}
    large: dict[int, Pixels] = {}
    for batch in decoder.read(np.array(frames, dtype=np.int64), sizes=sizes):
        for place, number in enumerate(batch.frames.tolist()):
            small[number] = batch.pixels[0][place].copy()
            if number in first:
                large[number] = batch.pixels[1][place].copy()
        progress("pictures", len(small), len(frames))
    if len(small) < len(frames):
        raise VideoError(f"{len(frames) - len(small)} of {len(frames)} frames could not be decoded any more")
    return small, large


def _data_url(pixels: Pixels, scale: float, quality: int) -> str:
    picture = Image.fromarray(pixels)
    if scale < 1:
        size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    return data_url(encode_image(picture, "webp", quality=quality), "image/webp")
