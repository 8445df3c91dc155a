"""How many tokens frames cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from framenest.lmm.times import FUSES, NEAR, PAIR, Pairing, fused, pairing_of, sent_places

QWEN_CELL = 32  # pixels: patches of 16, merged 2 × 2
QWEN_IMAGE = (65_536, 16_777_216)  # pixels of an image, at least and at most
QWEN_VIDEO = (4_096, 25_165_824)  # pixels of all frames of a video together
LLAVA_2_CELL = 28
LLAVA_VIDEO_FRAME = 196  # LLaVA-OneVision and LLaVA-Video: 27 × 27 patches, pooled to 14 × 14
INTERNVL_FRAME = 256
CHARACTERS = 4  # of English text a token


@dataclass(frozen=True)
class Tokens:
    """An estimate: pictures; time markers and what surrounds a picture; question and chat template."""

    frames: int
    times: int
    text: int

    @property
    def total(self) -> int:
        return self.frames + self.times + self.text

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(self.frames + other.frames, self.times + other.times, self.text + other.text)


def image_cells(
    width: int, height: int, cell: int = QWEN_CELL, limits: tuple[int, int] = QWEN_IMAGE, count: int = 1
) -> int:
    """Tokens of a picture that is resized to whole cells, within limits on the pixels of `count` of them.

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


def qwen_limits(count: int, frame_pixels: int | None) -> tuple[int, int]:
    """Pixels of all frames of a video of `count` frames together, at least and at most.

    >>> qwen_limits(256, None), qwen_limits(256, 786_432)
    ((4096, 25165824), (4096, 201326592))
    """
    return QWEN_VIDEO if frame_pixels is None else (QWEN_VIDEO[0], frame_pixels * count)


def estimate(
    style: str,
    seconds: Sequence[float],
    size: tuple[int, int],
    text: str,
    *,
    pairing: Pairing = "auto",
    per_frame: int | None = None,
    frame_pixels: int | None = None,
) -> Tokens:
    """Estimate the tokens of a request.

    Args:
        style: one of STYLES.
        seconds: the frames' times.
        size: (width, height) of a picture as it is sent.
        text: the prompt.
        pairing: as for `messages`.
        per_frame: tokens of one frame, where the server is known to differ from the published rules.
        frame_pixels: as in `ImageLimits`.

    >>> estimate("internvl", [1.0, 2.0], (640, 360), "What is it?").frames
    512
    """
    count, sent = len(seconds), len(sent_places(pairing_of(style, pairing), seconds))
    words = math.ceil(len(text) / CHARACTERS) + 16
    digits = sum(len(f"{value:.1f}") for value in seconds)
    if style in FUSES and pairing != "images":
        groups = math.ceil(sent / PAIR)
        limits = qwen_limits(sent, frame_pixels)
        cost = image_cells(*size, limits=limits, count=sent) if per_frame is None else per_frame
        return Tokens(groups * cost, digits * groups // count + 5 * groups, words)
    frame = {
        "hf-video": LLAVA_VIDEO_FRAME,
        "internvl": INTERNVL_FRAME,
        "llava-onevision": image_cells(*size, LLAVA_2_CELL),
    }.get(style, image_cells(*size))
    cost = frame if per_frame is None else per_frame
    pictures = sent if style == "hf-video" else count
    return Tokens(pictures * cost, digits + (2 if style == "hf-video" else 6) * count, words)


def largest_budget(budgets: Sequence[int], cost: Callable[[int], int], max_tokens: int) -> int | None:
    """The largest budget whose request takes at most `max_tokens`; None where none does.

    >>> largest_budget([1, 2, 4, 8], lambda k: 200 * k, 1000)
    4
    """
    return max((budget for budget in budgets if cost(budget) <= max_tokens), default=None)


@dataclass(frozen=True)
class PairingCost:
    """How a request for a model that fuses two frames is made up.

    Attributes:
        pairing: as it was asked for.
        pairs: how many times two different frames share one set of tokens and one time.
        alone: how many frames have a set of tokens and their own time.
        tokens: the estimate for the whole request under each pairing of a video.
    """

    pairing: Pairing
    pairs: int
    alone: int
    tokens: dict[str, int]

    @classmethod
    def of(
        cls,
        style: str,
        seconds: Sequence[float],
        size: tuple[int, int],
        text: str,
        pairing: Pairing,
        frame_pixels: int | None = None,
    ) -> PairingCost | None:
        """None where nothing is fused: another kind of model, or images instead of a video.

        The arguments are those of `estimate`.

        >>> print(PairingCost.of("qwen", [10.0, 90.0, 92.0], (640, 352), "What is it?", "auto"))
        pairing auto: 1 pair within 2 s, 1 frame alone: about 477 tokens (pairs 477, duplicate 706)
        """
        if style not in FUSES or pairing == "images":
            return None
        groups = fused(pairing, seconds)
        pairs = sum(first != second for first, second in groups)
        of_a_video: tuple[Pairing, ...] = ("auto", "pairs", "duplicate")
        tokens = {
            str(one): estimate(style, seconds, size, text, pairing=one, frame_pixels=frame_pixels).total
            for one in of_a_video
        }
        return cls(pairing, pairs, len(groups) - pairs, tokens)

    def __str__(self) -> str:
        near = f" within {NEAR:g} s" if self.pairing == "auto" else ""
        frames = "frame" if self.alone == 1 else "frames"
        others = ", ".join(f"{name} {count:,}" for name, count in self.tokens.items() if name != self.pairing)
        return (
            f"pairing {self.pairing}: {self.pairs} {'pair' if self.pairs == 1 else 'pairs'}{near}, "
            f"{self.alone} {frames} alone: about {self.tokens[self.pairing]:,} tokens ({others})"
        )

    def to_json(self) -> dict[str, Any]:
        """The fields, for a request's file."""
        return vars(self).copy()
