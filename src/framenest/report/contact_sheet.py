"""Contact sheets: the frames of a prefix on one image."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont, ImageOps

from framenest.frames import Pixels
from framenest.method.prefix import Prefix
from framenest.text import clock

EVIDENCE = "#1a7f37"
RANK, INK, FAINT, PAPER = "#be3c1e", "#181c21", "#697078", "#fafaf8"
SHEET_TILE, SHEET_GAP, SHEET_CAPTION = 320, 12, 30
"""Of a contact sheet, in pixels: the width of a tile, the space between tiles, the height of a caption."""


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
        title: a heading, such as the question; how many frames match it, which have a frame, follows.
        columns: the number of columns.
        labels: one per frame; by default "frame" and its number.

    Returns:
        A Pillow image in RGB.
    """
    height, width = images[0].shape[:2]
    tile = (SHEET_TILE, max(1, round(SHEET_TILE * height / width)))
    columns = min(columns, len(images))
    page_width = columns * (SHEET_TILE + SHEET_GAP) + SHEET_GAP
    if prefix.roles_text:
        title = f"{title or prefix.question} · {prefix.roles_text.replace(',', ' (framed),')}"
    heading = textwrap.wrap(title, width=max(20, page_width // 11)) if title else []
    top = SHEET_GAP + 30 * len(heading) + (SHEET_GAP // 2 if heading else 0)
    rows = math.ceil(len(images) / columns)
    page = Image.new("RGB", (page_width, top + rows * (tile[1] + SHEET_CAPTION + SHEET_GAP)), PAPER)
    draw = ImageDraw.Draw(page)
    large, small = ImageFont.load_default(22), ImageFont.load_default(17)
    for line, text in enumerate(heading):
        draw.text((SHEET_GAP, SHEET_GAP + 30 * line), text, fill=INK, font=large)
    for place, ((rank, second, frame), pixels) in enumerate(zip(prefix, images, strict=True)):
        row, column = divmod(place, columns)
        x = SHEET_GAP + column * (SHEET_TILE + SHEET_GAP)
        y = top + row * (tile[1] + SHEET_CAPTION + SHEET_GAP)
        page.paste(ImageOps.pad(Image.fromarray(pixels), tile, Image.Resampling.LANCZOS, PAPER), (x, y))
        if prefix.roles and prefix.roles[place] == "evidence":
            draw.rectangle((x - 4, y - 4, x + SHEET_TILE + 3, y + tile[1] + 3), outline=EVIDENCE, width=4)
        below = y + tile[1] + 5
        if rank is not None:
            draw.text((x, below), f"#{rank}", fill=RANK, font=small)
        draw.text((x + 52, below), clock(second), fill=INK, font=small)
        label = textwrap.shorten(labels[place], 24, placeholder="…") if labels else f"frame {frame}"
        draw.text((x + SHEET_TILE - draw.textlength(label, font=small), below), label, fill=FAINT, font=small)
    return page
