"""Contact sheets: the frames of a prefix on one image."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont, ImageOps

from framenest.frames import Pixels
from framenest.method.prefix import Prefix
from framenest.text import clock

TILE_WIDTH, GAP, CAPTION = 320, 12, 30
INK, PAPER, FAINT, ACCENT = (24, 28, 33), (250, 250, 248), (105, 112, 120), (190, 60, 30)


def contact_sheet(
    prefix: Prefix,
    images: Sequence[Pixels],
    *,
    title: str | None = None,
    columns: int = 4,
    labels: Sequence[str] = (),
) -> Image.Image:
    """Draw the frames of a prefix on one image.

    Args:
        prefix: the frames, with their ranks and times.
        images: one (h, w, 3) image per frame, in the order of prefix.frames.
        title: a heading, such as the question.
        columns: the number of columns.
        labels: one per frame; by default "frame" and its number.

    Returns:
        A Pillow image in RGB.
    """
    height, width = images[0].shape[:2]
    tile = (TILE_WIDTH, max(1, round(TILE_WIDTH * height / width)))
    columns = min(columns, len(images))
    page_width = columns * (TILE_WIDTH + GAP) + GAP
    heading = textwrap.wrap(title, width=max(20, page_width // 11)) if title else []
    top = GAP + 30 * len(heading) + (GAP // 2 if heading else 0)
    rows = math.ceil(len(images) / columns)
    page = Image.new("RGB", (page_width, top + rows * (tile[1] + CAPTION + GAP)), PAPER)
    draw = ImageDraw.Draw(page)
    large, small = ImageFont.load_default(22), ImageFont.load_default(17)
    for line, text in enumerate(heading):
        draw.text((GAP, GAP + 30 * line), text, fill=INK, font=large)
    for place, ((rank, second, frame), pixels) in enumerate(zip(prefix, images, strict=True)):
        row, column = divmod(place, columns)
        x, y = GAP + column * (TILE_WIDTH + GAP), top + row * (tile[1] + CAPTION + GAP)
        page.paste(ImageOps.pad(Image.fromarray(pixels), tile, Image.Resampling.LANCZOS, PAPER), (x, y))
        below = y + tile[1] + 5
        if rank is not None:
            draw.text((x, below), f"#{rank}", fill=ACCENT, font=small)
        draw.text((x + 52, below), clock(second), fill=INK, font=small)
        label = textwrap.shorten(labels[place], 24, placeholder="…") if labels else f"frame {frame}"
        draw.text((x + TILE_WIDTH - draw.textlength(label, font=small), below), label, fill=FAINT, font=small)
    return page
