"""A contact sheet: the chosen frames in time order, with their ranks and times, on one picture."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from framenest.frames import Pixels
from framenest.method.prefix import Prefix
from framenest.text import clock

TILE_WIDTH = 320
GAP = 12
BAND = 30
INK, PAPER, FAINT, ACCENT = (24, 28, 33), (250, 250, 248), (105, 112, 120), (190, 60, 30)


def contact_sheet(
    prefix: Prefix, pictures: Sequence[Pixels], *, title: str | None = None, columns: int = 4
) -> Image.Image:
    """Draw a prefix. pictures: one (h, w, 3) picture per frame, in the order of prefix.frames."""
    height, width = pictures[0].shape[:2]
    tile = (TILE_WIDTH, max(1, round(TILE_WIDTH * height / width)))
    columns = min(columns, len(pictures))
    rows = math.ceil(len(pictures) / columns)
    page_width = columns * (tile[0] + GAP) + GAP
    heading = textwrap.wrap(title, width=max(20, page_width // 11)) if title else []
    top = GAP + 30 * len(heading) + (GAP // 2 if heading else 0)
    page = Image.new("RGB", (page_width, top + rows * (tile[1] + BAND + GAP)), PAPER)
    draw = ImageDraw.Draw(page)
    for line, text in enumerate(heading):
        draw.text((GAP, GAP + 30 * line), text, INK, font=ImageFont.load_default(22))
    for place, pixels in enumerate(pictures):
        row, column = divmod(place, columns)
        x, y = GAP + column * (tile[0] + GAP), top + row * (tile[1] + BAND + GAP)
        page.paste(Image.fromarray(pixels).resize(tile, Image.Resampling.LANCZOS), (x, y))
        _caption(draw, prefix, place, x, y + tile[1] + 5, tile[0])
    return page


def _caption(draw: ImageDraw.ImageDraw, prefix: Prefix, place: int, x: int, y: int, width: int) -> None:
    font = ImageFont.load_default(17)
    if prefix.ranks is not None:
        draw.text((x, y), f"#{int(prefix.ranks[place])}", ACCENT, font=font)
    draw.text((x + 52, y), clock(float(prefix.seconds[place])), INK, font=font)
    frame = f"frame {int(prefix.frames[place])}"
    draw.text((x + width - draw.textlength(frame, font=font), y), frame, FAINT, font=font)
