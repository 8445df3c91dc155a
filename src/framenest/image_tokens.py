"""What images cost a model, and budgets in tokens: the largest prefix that fits, sharp first, small later."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from framenest.config import must_be
from framenest.errors import BudgetError
from framenest.frames import ImageSpec
from framenest.images import ImageLimits
from framenest.rank_request import Budget

QWEN_CELL = 32  # pixels: patches of 16, merged 2 × 2
QWEN_IMAGE = (65_536, 16_777_216)  # pixels of an image, minimum and maximum
QWEN_VIDEO = (4_096, 25_165_824)  # pixels of all frames of a video together, minimum and maximum
GPT_TILE = 512  # pixels; 85 tokens an image, and 170 a tile
GEMINI_LEVELS = {"low": 280, "medium": 560, "high": 1120}  # the most tokens of an image, by media_resolution
TIERS = (4, 16)
"""Last rank of a full-size image, and last of one with half its side or more; later ones have a quarter."""

Size = tuple[int, int]  # (width, height) in pixels


@cache
def image_cells(
    width: int, height: int, cell: int = QWEN_CELL, limits: tuple[int, int] = QWEN_IMAGE, count: int = 1
) -> int:
    """Tokens of an image resized to whole cells, within limits on the pixels of `count` such images.

    >>> image_cells(640, 360), image_cells(1920, 1080, limits=QWEN_VIDEO, count=64)
    (220, 364)
    """
    across, down = max(1, round(width / cell)), max(1, round(height / cell))
    pixels = across * down * cell * cell * count
    if pixels > limits[1]:
        shrink = math.sqrt(width * height * count / limits[1])
        across, down = (max(1, int(side / shrink / cell)) for side in (width, height))
    elif pixels < limits[0]:
        grow = math.sqrt(limits[0] / (width * height * count))
        across, down = (math.ceil(side * grow / cell) for side in (width, height))
    return across * down


def gpt_level(width: int, height: int) -> tuple[str, int]:
    """The `detail` of an image for OpenAI's models, low if that loses nothing, and its tokens for GPT-4o.

    >>> gpt_level(512, 288), gpt_level(1024, 1024), gpt_level(2048, 4096)
    (('low', 85), ('high', 765), ('high', 1105))
    """
    if max(width, height) <= GPT_TILE:
        return "low", 85
    shrink = max(1.0, max(width, height) / 2048, min(width, height) / 768)
    return "high", 85 + 170 * math.prod(math.ceil(side / shrink / GPT_TILE) for side in (width, height))


def gemini_level(width: int, height: int) -> tuple[str, int]:
    """The lowest `media_resolution` with a token for each 32 × 32 pixels, at most high, and its tokens.

    >>> gemini_level(640, 360), gemini_level(1920, 1080)
    (('low', 280), ('high', 1120))
    """
    enough = (level for level in GEMINI_LEVELS.items() if level[1] * QWEN_CELL**2 >= width * height)
    return next(enough, ("high", GEMINI_LEVELS["high"]))


@dataclass(frozen=True)
class TokenBudget:
    """How many tokens the images of a prefix may cost together: a whole number, 1 or more.

    Args:
        tokens: of all images.
        tiers: the last ranks as in TIERS, so that a larger budget keeps every image of a smaller one; None
            for one size.
        limits: of a full-size image.
        cost: the tokens of images for the model, by their times, ascending, and their sizes in any order; by
            default Qwen3-VL. `framenest.lmm.token_budget` knows others. What it charges at least for an image
            is how small images get.

    >>> seconds = [float(i) for i in range(256)]
    >>> [len(TokenBudget(8000, tiers).fit(seconds, 1280, 720)) for tiers in (None, TIERS)]
    [9, 43]
    """

    tokens: int
    tiers: tuple[int, int] | None = TIERS
    limits: ImageLimits = ImageLimits()
    cost: Callable[[Sequence[float], Sequence[Size]], int] = lambda _, sizes: sum(
        image_cells(*size) for size in sizes
    )

    def __post_init__(self) -> None:
        Budget(self.tokens)
        must_be("tiers", self.tiers, tuple | None, "two ranks such as (4, 16), or None")
        for last in self.tiers or ():
            must_be("a rank in tiers", last, int, "a whole number")

    def sizes(self, count: int, width: int, height: int) -> list[Size]:
        """The sizes of the first ranks' images, by rank alone; each as large as its tier's tokens allow.

        count: of ranks. width, height: of the video.

        >>> TokenBudget(8000, (1, 2)).sizes(3, 640, 360)
        [(640, 360), (366, 206), (366, 206)]
        """

        def size(short: int) -> Size:
            return ImageSpec.short_side(short).size(width, height)

        def cost(short: int) -> int:
            return self.cost([0.0], [size(short)])

        full, tiers = min(self.limits.size(width, height)), self.tiers or ()
        sizes = list[Size]()
        for tier in range(len(tiers) + 1):
            least = max(1, full >> tier)
            most = cost(least)
            sizes.append(size(max(side for side in range(least, full + 1) if cost(side) <= most)))
        return [sizes[sum(rank >= last for last in tiers)] for rank in range(count)]

    def fit(self, seconds: Sequence[float], width: int, height: int) -> list[Size]:
        """The sizes of the most first ranks whose images fit; BudgetError if not even one does.

        seconds: of the frames, best first. width, height: of the video.
        """
        sizes, ranks = self.sizes(len(seconds), width, height), range(1, len(seconds) + 1)
        costs = [self.cost(sorted(seconds[:rank]), sizes[:rank]) for rank in ranks]
        if self.tokens < min(costs):
            raise BudgetError(f"{self.tokens} tokens hold no image; give {min(costs)}, or smaller images")
        return sizes[: max(rank for rank, cost in zip(ranks, costs, strict=True) if cost <= self.tokens)]
