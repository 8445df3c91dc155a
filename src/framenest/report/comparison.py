"""Selectors side by side: one row each on a common time axis, and thumbnails of the first eight frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PIL import Image

from framenest.frames import Pixels
from framenest.method.prefix import Prefix
from framenest.report.canvas import PixelCanvas
from framenest.report.contact_sheet import ACCENT, FAINT, INK, PAPER
from framenest.text import clock

WIDTH, MARGIN, LEFT, TOP, SHOWN = 1200, 16, 166, 78, 8


def comparison(
    prefixes: Mapping[str, Prefix], thumbnails: Mapping[str, Sequence[Pixels]], *, title: str
) -> Image.Image:
    """Draw each selector's frames as ticks over time, and thumbnails of its first eight in time order.

    thumbnails: up to eight (h, w, 3) pictures per selector.
    """
    video, wide = next(iter(prefixes.values())).video, WIDTH - MARGIN - LEFT
    tile = wide // SHOWN - 6
    tile_height = max(1, round(tile * video.height / video.width))
    row = 26 + tile_height + 18
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
        for column, pixels in enumerate(thumbnails[name][:SHOWN]):
            page.picture(LEFT + column * (tile + 6), top + 26, tile, tile_height, pixels)
    return page.image
