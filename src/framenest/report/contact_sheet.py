"""Contact sheets, and the canvas that figures share."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from framenest.frames import Pixels
from framenest.images import encode_image
from framenest.method.prefix import Prefix
from framenest.text import clock

Colour = tuple[int, int, int]


class PixelCanvas:
    """Draws with Pillow; `scale` pixels per unit of length."""

    def __init__(self, width: float, height: float, paper: Colour, scale: float = 1.5) -> None:
        self._scale = scale
        self.image = Image.new("RGB", (round(width * scale), math.ceil(height * scale)), paper)
        self._draw = ImageDraw.Draw(self.image)

    def rectangle(self, x: float, y: float, width: float, height: float, fill: Colour) -> None:
        s = self._scale
        right, bottom = max(x * s, (x + width) * s - 1), max(y * s, (y + height) * s - 1)
        self._draw.rectangle((x * s, y * s, right, bottom), fill=fill)

    def line(self, x: float, y: float, to_x: float, to_y: float, colour: Colour, width: float) -> None:
        s = self._scale
        self._draw.line((x * s, y * s, to_x * s, to_y * s), fill=colour, width=max(1, round(width * s)))

    def text(self, x: float, y: float, text: str, size: float, colour: Colour, anchor: float = 0.0) -> None:
        """y is the top of the text; anchor the share of its width that lies left of x."""
        s = self._scale
        font = ImageFont.load_default(size * s)
        left = x * s - anchor * self._draw.textlength(text, font=font)
        self._draw.text((left, y * s), text, fill=colour, font=font)

    def picture(self, x: float, y: float, width: float, height: float, pixels: Pixels) -> None:
        s = self._scale
        size = (max(1, round(width * s)), max(1, round(height * s)))
        scaled = Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS)
        self.image.paste(scaled, (round(x * s), round(y * s)))

    def png(self) -> bytes:
        return encode_image(self.image, "png")


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
