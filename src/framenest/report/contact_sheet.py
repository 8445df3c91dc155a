"""A contact sheet: the chosen frames in time order, with their ranks and times, on one picture."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from PIL import Image

from framenest.frames import Pixels
from framenest.method.prefix import Prefix
from framenest.report.canvas import PixelCanvas
from framenest.text import clock

TILE_WIDTH, GAP, BAND = 320, 12, 30
INK, PAPER, FAINT, ACCENT = (24, 28, 33), (250, 250, 248), (105, 112, 120), (190, 60, 30)


def contact_sheet(
    prefix: Prefix, pictures: Sequence[Pixels], *, title: str | None = None, columns: int = 4
) -> Image.Image:
    """Draw the frames of a prefix on one picture.

    Args:
        prefix: the frames, with their ranks and times.
        pictures: one (h, w, 3) picture per frame, in the order of prefix.frames.
        title: a heading, as the question.
        columns: of frames.

    Returns:
        An image of Pillow's, in RGB.
    """
    height, width = pictures[0].shape[:2]
    high = max(1, round(TILE_WIDTH * height / width))
    columns = min(columns, len(pictures))
    page_width = columns * (TILE_WIDTH + GAP) + GAP
    heading = textwrap.wrap(title, width=max(20, page_width // 11)) if title else []
    top = GAP + 30 * len(heading) + (GAP // 2 if heading else 0)
    rows = math.ceil(len(pictures) / columns)
    page = PixelCanvas(page_width, top + rows * (high + BAND + GAP), PAPER, scale=1)
    for line, text in enumerate(heading):
        page.text(GAP, GAP + 30 * line, text, 22, INK)
    for place, pixels in enumerate(pictures):
        row, column = divmod(place, columns)
        x, y = GAP + column * (TILE_WIDTH + GAP), top + row * (high + BAND + GAP)
        page.picture(x, y, TILE_WIDTH, high, pixels)
        below = y + high + 5
        if prefix.ranks is not None:
            page.text(x, below, f"#{int(prefix.ranks[place])}", 17, ACCENT)
        page.text(x + 52, below, clock(float(prefix.seconds[place])), 17, INK)
        page.text(x + TILE_WIDTH, below, f"frame {int(prefix.frames[place])}", 17, FAINT, 1)
    return page.image
