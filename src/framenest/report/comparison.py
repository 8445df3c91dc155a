"""Selectors side by side: one row each on a common time axis, and thumbnails of the first eight frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PIL import Image, ImageDraw, ImageFont

from framenest.frames import Pixels
from framenest.method.prefix import Prefix
from framenest.report.contact_sheet import ACCENT, FAINT, INK, PAPER
from framenest.text import clock

WIDTH, LABEL, MARGIN, AXIS, SHOWN = 1200, 150, 16, 34, 8


def comparison(
    prefixes: Mapping[str, Prefix],
    thumbnails: Mapping[str, Sequence[Pixels]],
    *,
    title: str,
) -> Image.Image:
    """Draw each selector's frames as ticks over time, and thumbnails of its first eight in time order.

    thumbnails: up to eight (h, w, 3) pictures per selector.
    """
    video = next(iter(prefixes.values())).video
    tile = (WIDTH - LABEL - 2 * MARGIN) // SHOWN - 6
    duration, tile_height = video.duration, max(1, round(tile * video.height / video.width))
    row = 26 + tile_height + 18
    page = Image.new("RGB", (WIDTH, 44 + AXIS + row * len(prefixes) + MARGIN), PAPER)
    draw = ImageDraw.Draw(page)
    draw.text((MARGIN, 10), title, INK, font=ImageFont.load_default(20))
    left, right = LABEL + MARGIN, WIDTH - MARGIN

    def x(seconds: float) -> float:
        return left + (right - left) * seconds / duration if duration > 0 else left

    _axis(draw, duration, left, right, 44)
    for place, (name, prefix) in enumerate(prefixes.items()):
        top = 44 + AXIS + place * row
        draw.text((MARGIN, top), name, INK, font=ImageFont.load_default(17))
        draw.text((MARGIN, top + 24), f"{len(prefix)} frames", FAINT, font=ImageFont.load_default(13))
        draw.line((left, top + 18, right, top + 18), fill=FAINT)
        for seconds in prefix.seconds.tolist():
            draw.line((x(seconds), top, x(seconds), top + 18), fill=ACCENT, width=2)
        for column, pixels in enumerate(thumbnails[name][:SHOWN]):
            picture = Image.fromarray(pixels).resize((tile, tile_height), Image.Resampling.LANCZOS)
            page.paste(picture, (left + column * (tile + 6), top + 26))
    return page


def _axis(draw: ImageDraw.ImageDraw, duration: float, left: int, right: int, top: int) -> None:
    font = ImageFont.load_default(13)
    for step in range(6):
        at = left + (right - left) * step / 5
        text = clock(duration * step / 5)
        offset = draw.textlength(text, font=font) * step / 5
        draw.text((at - offset, top + 6), text, FAINT, font=font)
