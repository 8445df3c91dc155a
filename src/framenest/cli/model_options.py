"""Options of commands that ask a model: the model, how pictures are sent, how many tokens they may take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import rich_click as click

from framenest.cli import options
from framenest.cli.options import SERVER, Temperature, option
from framenest.cli.terminal import note
from framenest.errors import BudgetError, ConfigError
from framenest.frames import VideoInfo
from framenest.lmm import FOR_SERVERS, STYLES, ImageLimits, Pairing, estimate
from framenest.lmm.client import KEY_VARIABLE, Client
from framenest.lmm.prompt import TOKENS
from framenest.lmm.tokens import CHARACTERS
from framenest.transcript import Transcript

MODEL_PANEL = "The model"
ANSWER_TOKENS = {True: 8192, False: 1024}
"""The most tokens of an answer, with thinking and without."""
THINKING = {"on": True, "off": False, SERVER: None}


@dataclass(frozen=True)
class AnsweringModel:
    """The server that answers, and what is asked of it."""

    panel: ClassVar = MODEL_PANEL
    base_url: str = option(
        "An OpenAI-compatible server, as http://localhost:8000/v1. [default: $OPENAI_BASE_URL]",
        envvar="OPENAI_BASE_URL",
        required=True,
        metavar="URL",
    )
    model: str | None = option(
        "The model to ask. [default: the only one that the server has]", metavar="NAME"
    )
    style: str = option(
        "openai: an image per frame, any server. vllm-video: one video, vLLM.",
        type=click.Choice(FOR_SERVERS),
        default="openai",
    )
    thinking: bool | None = option(
        "Whether the model reasons. on, off: sends chat_template_kwargs, which some servers refuse. "
        "server: sends nothing.",
        type=click.Choice(list(THINKING)),
        default=SERVER,
        callback=lambda _c, _p, value: THINKING[value],
    )
    answer_tokens: int | None = option("The most that an answer may take. [default: 1024, thinking 8192]")
    temperature: float | None = option(
        "Of the sampling; server: sends none, for models that accept only their own.",
        type=Temperature(),
        default=SERVER,
    )
    retries: int = option("Retries when the server is busy or fails.", default=4)
    timeout: float = option(
        "Seconds to wait for the answer; if it is streamed, for its next words.", default=600
    )
    key_variable: str = option(
        "The environment variable that holds the API key, if one is needed.",
        default=KEY_VARIABLE,
        metavar="NAME",
    )

    def client(self, *, may_think: bool) -> Client:
        """A client of the server. may_think: what to expect where thinking is left to the server."""
        thinks = may_think if self.thinking is None else self.thinking
        return Client(
            self.base_url,
            self.model,
            key_variable=self.key_variable,
            timeout=self.timeout,
            retries=self.retries,
            thinking=self.thinking,
            max_tokens=self.answer_tokens or ANSWER_TOKENS[thinks],
            temperature=self.temperature,
        )


def greet(client: Client) -> None:
    """Fail before the video is read if there is no server; note if it does not list the model."""
    listed = client.models()
    if listed and client.model not in listed:
        note(f"{client.base_url} lists {', '.join(listed)}; trying {client.model} all the same")


def refuse_pairing(style: str) -> None:
    """Refuse --pairing where no two frames are fused."""
    if style not in STYLES or not STYLES[style].fuses:
        options.refuse(f"models of style {style} fuse no frames", "pairing")


@dataclass(frozen=True)
class PictureOptions:
    """How frames are sent to a model."""

    pairing: Pairing = option(
        "Qwen3-VL and Qwen3.5 fuse two frames under the mean of their times. auto: only frames within 2 s, "
        "any other is sent twice. pairs: always, as in the paper. duplicate: never. images: no video.",
        default="auto",
    )
    max_side: int | None = option("Pictures of at most this many pixels on the longer side.")
    max_pixels: int | None = option("Pictures of at most this many pixels.")
    quality: int = option("JPEG quality, 1 to 100.", default=90)
    frame_pixels: int | None = option(
        "With vllm-video: how many pixels of each frame Qwen's processor may use; by default it shares "
        "25,165,824 out among all. 786432 is what lmms-eval sends."
    )
    tell_times: bool | None = option(
        "Write the frames' times as text; by default where the model's processor does not.",
        default=None,
        flag="--times/--no-times",
    )

    def __post_init__(self) -> None:
        _ = self.limits  # refused before the work

    @property
    def limits(self) -> ImageLimits:
        return ImageLimits(self.max_side, self.max_pixels, self.quality, self.frame_pixels)

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that `messages` and `ask` take for this."""
        return {"pairing": self.pairing, "limits": self.limits, "tell_times": self.tell_times}


@dataclass(frozen=True)
class SpokenLines:
    """Whether what is said is sent with the frames."""

    with_transcript: bool = option("Send what is said around each frame beside it.")
    transcript_tokens: int = option(
        "The most tokens that what is said may take, by estimate.", default=TOKENS, type=click.IntRange(1)
    )

    def __post_init__(self) -> None:
        if not self.with_transcript:
            options.refuse("nothing that is said is sent without --with-transcript", "transcript_tokens")

    def settings(self, found: Transcript | None) -> dict[str, Any]:
        """The arguments that `messages` and `ask` take for this."""
        if not self.with_transcript:
            return {}
        if found is None or not found.lines:
            raise ConfigError(
                "--with-transcript: no transcript was found; rank with --subtitles FILE, or leave it out"
            )
        return {"transcript": found, "transcript_tokens": self.transcript_tokens}

    @property
    def room(self) -> str:
        """A text as long as what may be said, for estimates of tokens."""
        return "." * (CHARACTERS * self.transcript_tokens) if self.with_transcript else ""


@dataclass(frozen=True)
class TokenBudget:
    """How many tokens the frames and the question may take."""

    max_tokens: int | None = option("Take as many frames as fit into this many tokens, by estimate.")
    tokens_per_frame: int | None = option("What a picture (or a fused pair) costs; estimated if not given.")

    def __post_init__(self) -> None:
        if self.max_tokens is None:
            options.refuse("tokens are counted for --max-tokens only", "tokens_per_frame")

    def frames(
        self,
        video: VideoInfo,
        style: str,
        pictures: PictureOptions,
        budgets: Sequence[int],
        text: str,
        times: Callable[[int], Sequence[float]] | None = None,
    ) -> int:
        """The largest budget whose request is estimated to fit.

        times: the seconds of a budget's frames; where they are not known yet, they are as long as they get,
        and no two are near.
        """
        size, most = pictures.limits.size(video.width, video.height), self.max_tokens or 0
        pairing = "duplicate" if times is None and pictures.pairing == "auto" else pictures.pairing

        def cost(count: int) -> int:
            seconds = [video.duration] * count if times is None else times(count)
            return estimate(
                style,
                seconds,
                size,
                text,
                pairing=pairing,
                per_frame=self.tokens_per_frame,
                frame_pixels=pictures.limits.frame_pixels,
            ).total

        found = max((count for count in budgets if cost(count) <= most), default=None)
        if found is None:
            raise BudgetError(
                f"not even {min(budgets)} frame fits into {most} tokens; it takes about "
                f"{cost(min(budgets))}; limit the pictures with --max-side"
            )
        return found
