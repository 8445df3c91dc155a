"""Selectors side by side: one row each on a common time axis, and thumbnails of the eight best frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from PIL import Image

from framenest.frames import Pixels
from framenest.method.prefix import Prefix
from framenest.report.contact_sheet import ACCENT, FAINT, INK, PAPER, PixelCanvas
from framenest.text import clock

WIDTH, MARGIN, LEFT, TOP, SHOWN = 1200, 16, 166, 78, 8


def best(prefix: Prefix) -> Prefix:
    """The frames to show, in time order: the first ranks, or evenly spread ones where there are no ranks.

    >>> sorted(best(ranking.prefix(64)).ranks.tolist())
    [1, 2, 3, 4, 5, 6, 7, 8]
    """
    if prefix.ranks is not None:
        at = np.flatnonzero(prefix.ranks <= SHOWN)
        return replace(prefix, frames=prefix.frames[at], seconds=prefix.seconds[at], ranks=prefix.ranks[at])
    at = np.linspace(0, len(prefix) - 1, min(SHOWN, len(prefix))).round().astype(np.int64)
    return replace(prefix, frames=prefix.frames[at], seconds=prefix.seconds[at])


def comparison(
    prefixes: Mapping[str, Prefix],
    shown: Mapping[str, Prefix],
    thumbnails: Mapping[str, Sequence[Pixels]],
    *,
    title: str,
) -> Image.Image:
    """Draw each selector's frames as ticks over time, and some of them below, in time order.

    Args:
        prefixes: the frames of each selector.
        shown: those of them that are drawn, as by `best`.
        thumbnails: their (h, w, 3) pictures.
        title: the question.
    """
    video, wide = next(iter(prefixes.values())).video, WIDTH - MARGIN - LEFT
    tile = wide // SHOWN - 6
    tile_height = max(1, round(tile * video.height / video.width))
    row = 26 + tile_height + 34
    page = PixelCanvas(WIDTH, TOP + row * len(prefixes) + MARGIN, PAPER, scale=1)
    page.text(MARGIN, 10, title, 20, INK)
    for step in range(6):
        page.text(LEFT + wide * step / 5, 50, clock(video.duration * step / 5), 13, FAINT, step / 5)
    for place, (name, prefix) in enumerate(prefixes.items()):
        top = TOP + place * row
        page.text(MARGIN, top, name, 17, INK)
        page.text(MARGIN, top + 24, f"{len(prefix)} frames", 13, FAINT)
        page.line(LEFT, top + 18, LEFT + wide, top + 18, FAINT, 1)
        for seconds in prefix.seconds.tolist():
            x = LEFT + (wide * seconds / video.duration if video.duration > 0 else 0)
            page.line(x, top, x, top + 18, ACCENT, 2)
        for column, (frame, pixels) in enumerate(zip(shown[name], thumbnails[name], strict=True)):
            left, below = LEFT + column * (tile + 6), top + 26 + tile_height + 2
            page.picture(left, top + 26, tile, tile_height, pixels)
            rank = "" if frame.rank is None else f"#{frame.rank}  "
            page.text(left, below, f"{rank}{clock(frame.second)}", 13, FAINT)
    return page.image
