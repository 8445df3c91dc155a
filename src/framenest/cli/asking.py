"""Options that rank, export and ask share: the choices of a question, and how pictures are sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import rich_click as click

from framenest.cli.options import Command
from framenest.errors import BudgetError
from framenest.frames import VideoInfo
from framenest.lmm import PAIRINGS, ImageLimits, Pairing
from framenest.lmm.tokens import estimate, largest_budget

_NEGATIVE = re.compile(r"-[.]?\d")  # a choice may be a number below zero


class WithSeveral(click.RichCommand):
    """A command whose --options takes several values in a row: --options A B C D."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        several = {flag for p in self.params if p.name == "choices" for flag in p.opts}
        spread: list[str] = []
        current = ""
        for place, arg in enumerate(args):
            if arg.startswith("-") and arg != "-" and not (current and _NEGATIVE.match(arg)):
                current = arg if arg in several else ""
                spread.append(arg)
            elif current and args[place - 1] != current:
                spread += [current, arg]
            else:
                spread.append(arg)
        return super().parse_args(ctx, spread)


def choices(command: Command) -> Command:
    """--options A B C D."""
    return click.option(
        "--options",
        "choices",
        multiple=True,
        metavar="A B C …",
        help="The choices, each in quotes if it has spaces; the answer is then a letter.",
    )(command)


def pictures(command: Callable[..., None]) -> Callable[..., None]:
    """--pairing, --times, and --max-side, --max-pixels, --quality, which come as `limits`."""

    @wraps(command)
    def with_limits(
        *args: Any, max_side: int | None, max_pixels: int | None, quality: int, **kwargs: Any
    ) -> None:
        command(*args, limits=ImageLimits(max_side, max_pixels, quality), **kwargs)

    made: Callable[..., None] = with_limits
    for option in (
        click.option(
            "--times/--no-times",
            "tell_times",
            default=None,
            help="Write the frames' times as text; by default where the model's processor does not.",
        ),
        click.option("--quality", type=int, default=90, show_default=True, help="Of the JPEGs, 1 to 100."),
        click.option("--max-pixels", type=int, help="Pictures of at most this many pixels."),
        click.option("--max-side", type=int, help="Pictures of at most this many pixels on the longer side."),
        click.option(
            "--pairing",
            type=click.Choice(PAIRINGS),
            default="pairs",
            show_default=True,
            help="Qwen3-VL and Qwen3.5 fuse two frames under one time: leave them so, send each frame twice, "
            "or send images.",
        ),
    ):
        made = option(made)
    return made


def max_tokens(command: Command) -> Command:
    """--max-tokens, --tokens-per-frame."""
    per_frame = click.option(
        "--tokens-per-frame", type=int, help="What a picture (or a fused pair) costs; estimated if not given."
    )
    most = click.option(
        "--max-tokens", type=int, help="Take as many frames as fit into this many tokens, by estimate."
    )
    return most(per_frame(command))


@dataclass(frozen=True)
class Room:
    """How many tokens the frames of a video may take."""

    video: VideoInfo
    style: str
    limits: ImageLimits
    pairing: Pairing
    per_frame: int | None
    max_tokens: int

    def budget(self, budgets: Sequence[int], text: str) -> int:
        """The largest budget whose request is estimated to fit, with times as long as they get."""
        size = self.limits.size(self.video.width, self.video.height)

        def cost(count: int) -> int:
            seconds = [self.video.duration] * count
            made = estimate(self.style, seconds, size, text, pairing=self.pairing, per_frame=self.per_frame)
            return made.total

        found = largest_budget(budgets, cost, self.max_tokens)
        if found is None:
            raise BudgetError(
                f"not even {min(budgets)} frame fits into {self.max_tokens} tokens; it takes about "
                f"{cost(min(budgets))}; limit the pictures with --max-side"
            )
        return found
