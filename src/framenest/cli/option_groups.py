"""Groups of options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import rich_click as click

from framenest.cache.directory import DirectoryStore, ManagedStore, local_directory
from framenest.cache.remote import open_store
from framenest.cli.option_types import Count, InputFile, Name, Parsed, Size, Url
from framenest.cli.options import SCORER_PANEL, option, refuse, through_environment
from framenest.cli.terminal import detail, err, note, set_level
from framenest.config import ScorerConfig
from framenest.errors import BudgetError, ConfigError, ScorerError
from framenest.frames import VideoInfo
from framenest.lmm import FOR_SERVERS, STYLES, ImageLimits, Pairing, estimate
from framenest.lmm.client import KEY_VARIABLE, Client
from framenest.lmm.prompt import CHARACTERS, TOKENS
from framenest.method.discovery import LookFor
from framenest.processes import DOWNLOAD_VARIABLE, FEATURES_VARIABLE
from framenest.progress import Bars
from framenest.protocols import Decoder
from framenest.scorers import choose
from framenest.selectors import needs_scorer
from framenest.session import Session
from framenest.transcript import AUTO, Transcript
from framenest.video.opening import open_video, reopen

CHOICES = option("Answer options; the answer is a letter.", "--options", multiple=True, metavar="A B C …")


@dataclass(frozen=True)
class Common:
    """Options of every command: the cache, and how much to print."""

    cache_location: str | None = option(
        "Directory for indexes, features and models, or a URL such as s3://… (extra `remote`) for all but "
        "models. [default: $FRAMENEST_CACHE, or the user's cache]",
        "--cache",
        metavar="DIR|URL",
    )
    quiet: bool = option("Print results and errors only.", "-q")
    verbose: bool = option("Also print which cache and scorer are used, and all warnings.", "-v")
    debug: bool = option("Show the traceback of an error.")

    def __post_init__(self) -> None:
        if self.quiet and self.verbose:
            raise ConfigError("give --quiet or --verbose, not both")
        set_level(self.verbose - self.quiet)
        if self.verbose:
            detail(f"cache {self.cache.location}")

    @cached_property
    def cache(self) -> ManagedStore:
        """The store for indexes and features."""
        return open_store(self.cache_location)

    @property
    def local(self) -> DirectoryStore:
        """The directory for models, fingerprints and downloads, which are never stored remotely."""
        return local_directory(self.cache)

    def bars(self) -> Bars:
        """Progress bars; none with --quiet."""
        return Bars(off=self.quiet, console=err)


ALLOW_PLAYLISTS = option("Allow a VIDEO that refers to other files or URLs: HLS, DASH, ffconcat.")
MAX_DOWNLOAD = option(
    "Largest VIDEO to download in full, if its server has no range requests. "
    f"[default: ${DOWNLOAD_VARIABLE}, or 20GiB]",
    callback=through_environment(DOWNLOAD_VARIABLE),
)


@dataclass(frozen=True)
class VideoOptions:
    """How to open a video."""

    fps: float | None = option("Frame rate of a folder of numbered images.")
    stream: int | None = option("Index of the video stream. [default: FFmpeg's choice]")
    decoder: Name = option("pyav, pyav:cuda to decode on an NVIDIA GPU, or a plug-in.", default="pyav")
    allow_playlists: bool = ALLOW_PLAYLISTS
    max_download: Size | None = MAX_DOWNLOAD

    @property
    def settings(self) -> dict[str, Any]:
        """Keyword arguments for `open_video`, which reads max_download from the environment."""
        return {name: value for name, value in vars(self).items() if name != "max_download"}

    def open(self, video: str, common: Common) -> Decoder:
        """Open the video."""
        return open_video(video, **self.settings, store=common.cache)


@dataclass(frozen=True)
class RankedVideo:
    """How to reopen the video of a ranking."""

    video: InputFile | None = option("The video, if it has moved.")
    allow_playlists: bool = ALLOW_PLAYLISTS
    max_download: Size | None = MAX_DOWNLOAD

    def reopen(self, info: VideoInfo, common: Common) -> Decoder:
        """Open the video; raise if it has changed."""
        return reopen(info, self.video, allow_playlists=self.allow_playlists, store=common.cache)


@dataclass(frozen=True, kw_only=True)
class ScorerChoice:
    """Which scorer to use, and how to run it."""

    panel: ClassVar = SCORER_PANEL
    name: Name = option(
        "A name from `framenest models`, optionally with a checkpoint (clip:org/name, blip2:FOLDER), or "
        "table:FILE for your own scores (CSV or JSON: frame or seconds → score).",
        "--scorer",
        default="auto",
    )
    config: ScorerConfig

    def __post_init__(self) -> None:
        if self.config.subtitles is None:
            object.__setattr__(self, "config", replace(self.config, subtitles=AUTO))

    def resolved(self, common: Common) -> str:
        """Return the scorer's name; for "auto", choose one for this machine and note why."""
        detail(f"requested scorer: {self.name}")
        short = self.name.partition(":")[0]
        if short in ("tags", "table") and self.config.device not in ("auto", "cpu"):
            raise ConfigError(f"--device {self.config.device} has no effect: {short} runs on the CPU")
        if self.name == "auto":
            with suppress(ScorerError):  # if no scorer is ready, the command fails when it needs one
                name, why = choose(common.local)
                note(why)
                return name
        return self.name

    def session(self, common: Common, bars: Bars, selectors: Sequence[str]) -> Session:
        """Open a session with this scorer. It is chosen only if a selector uses one."""
        name = self.resolved(common) if any(map(needs_scorer, selectors)) else self.name
        return Session(name, store=common.cache, progress=bars, scoring=self.config)


def refuse_one_file(config: ScorerConfig, videos: int) -> None:
    """Refuse --subtitles FILE for several videos."""
    if videos > 1 and Path(config.subtitles or "").is_file():
        raise ConfigError("--subtitles FILE is for one video; for several, give a folder or auto")


@dataclass(frozen=True)
class Descriptions:
    """What to look for besides the question."""

    look_for: tuple[str, ...] = option(
        "Also look for this; describe what it looks like: “a potter opens a kiln”. May be repeated; a frame "
        "that shows one of them is relevant.",
        multiple=True,
        metavar="TEXT",
    )

    def given(self) -> LookFor | None:
        """Return the descriptions; None if there are none."""
        return LookFor(self.look_for) if self.look_for else None


@dataclass(frozen=True)
class FeatureLimit:
    """How much disk space features may use."""

    features_limit: Size | None = option(
        "Most space for the features of all videos in the cache, such as 50GiB; the least recently used are "
        f"evicted. [default: ${FEATURES_VARIABLE}, or 20GiB, at most half of the free space]",
        callback=through_environment(FEATURES_VARIABLE),
    )


@dataclass(frozen=True)
class KeptFeatures(FeatureLimit):
    """Which features to cache."""

    keep_features: bool | None = option(
        "Cache features of any size, or none. [default: up to 512 MiB per video]",
        "--keep-features/--no-keep-features",
        default=None,
    )


ANSWER_TOKENS = {True: 8192, False: 1024}
"""Default limit of an answer's tokens, with thinking and without."""


def _temperature(text: str) -> float | None:
    try:
        return None if text == "server" else float(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a number nor 'server'") from None


@dataclass(frozen=True)
class AnsweringModel:
    """The server that answers, and its settings."""

    panel: ClassVar = "The model"
    base_url: Url = option(
        "OpenAI-compatible server, such as http://localhost:8000/v1. [default: $OPENAI_BASE_URL]",
        envvar="OPENAI_BASE_URL",
        required=True,
    )
    model: Name | None = option("Model to ask. [default: the server's, if it has just one]")
    style: str = option(
        "openai: one image per frame, any server. vllm-video: one video, vLLM.",
        type=click.Choice(FOR_SERVERS),
        default="openai",
    )
    thinking: Literal["on", "off", "server"] = option(
        "Whether the model reasons first. on, off: by chat_template_kwargs, which some servers refuse.",
        default="server",
    )
    answer_tokens: int | None = option("Most tokens of an answer. [default: 1024; 8192 with thinking]")
    temperature: float | None = option(
        "Sampling temperature. server: send none.", type=Parsed("T|server", _temperature), default="server"
    )
    retries: int = option("Retries if the server is busy or fails.", default=4)
    timeout: float = option("Seconds to wait for an answer, or for its next words.", default=600)
    key_variable: Name = option("Environment variable with the API key.", default=KEY_VARIABLE)

    @property
    def thinks(self) -> bool | None:
        """Whether the model is told to reason; None leaves it to the server."""
        return {"on": True, "off": False}.get(self.thinking)

    def client(self, *, may_think: bool) -> Client:
        """Return a client of the server. `may_think` applies if thinking is left to the server."""
        return Client(
            self.base_url,
            self.model,
            key_variable=self.key_variable,
            timeout=self.timeout,
            retries=self.retries,
            thinking=self.thinks,
            max_tokens=self.answer_tokens or ANSWER_TOKENS[may_think if self.thinks is None else self.thinks],
            temperature=self.temperature,
        )


def check_server(client: Client) -> None:
    """Fail before the video is read if no server answers; note if it does not list the model."""
    listed = client.models()
    if listed and client.model not in listed:
        note(f"{client.base_url} lists {', '.join(listed)}; trying {client.model} anyway")


def refuse_pairing(style: str) -> None:
    """Refuse --pairing for a style whose models do not fuse frames."""
    if style not in STYLES or not STYLES[style].fuses:
        refuse(f"style {style} does not fuse frames", "pairing")


@dataclass(frozen=True)
class ImageOptions:
    """How frames are sent to a model."""

    pairing: Pairing = option(
        "Qwen3-VL and Qwen3.5 fuse two frames and give both the mean of their times. auto: fuse frames less "
        "than 2 s apart, send others twice. pairs: always fuse, as in the paper. duplicate: send each frame "
        "twice. images: send images, not a video.",
        default="auto",
    )
    max_side: int | None = option("Shrink images to this many pixels on the longer side.")
    max_pixels: int | None = option("Shrink images to this many pixels.")
    quality: int = option("JPEG quality, 1 to 100.", default=90)
    frame_pixels: int | None = option(
        "For vllm-video: pixels per frame in Qwen's processor; lmms-eval sends 786432. "
        "[default: all frames share 25,165,824]"
    )
    tell_times: bool | None = option(
        "Write the frames' times as text. [default: only if the model's processor does not]",
        "--times/--no-times",
        default=None,
    )

    def __post_init__(self) -> None:
        _ = self.limits  # checks them before the work starts

    @property
    def limits(self) -> ImageLimits:
        """The limits of the images' size."""
        return ImageLimits(self.max_side, self.max_pixels, self.quality, self.frame_pixels)

    @property
    def settings(self) -> dict[str, Any]:
        """Keyword arguments for `messages` and `ask`."""
        return {"pairing": self.pairing, "limits": self.limits, "tell_times": self.tell_times}


@dataclass(frozen=True)
class TranscriptOptions:
    """Whether to send the transcript with the frames."""

    with_transcript: bool = option("Send the transcript around each frame with it.")
    transcript_tokens: Count = option("Most tokens of transcript to send, by estimate.", default=TOKENS)

    def __post_init__(self) -> None:
        if not self.with_transcript:
            refuse("no transcript is sent without --with-transcript", "transcript_tokens")

    def settings(self, found: Transcript | None) -> dict[str, Any]:
        """Keyword arguments for `messages` and `ask`."""
        if not self.with_transcript:
            return {}
        if found is None or not found.lines:
            raise ConfigError("--with-transcript: no transcript was found; rank with --subtitles FILE")
        return {"transcript": found, "transcript_tokens": self.transcript_tokens}

    @property
    def placeholder(self) -> str:
        """A string as long as the transcript may be, to estimate tokens."""
        return "." * (CHARACTERS * self.transcript_tokens) if self.with_transcript else ""


@dataclass(frozen=True)
class TokenBudget:
    """How many tokens the frames and the question may take."""

    max_tokens: int | None = option("Send as many frames as fit into this many tokens, by estimate.")
    tokens_per_frame: int | None = option("Tokens of an image or a fused pair. [default: estimated]")

    def __post_init__(self) -> None:
        if self.max_tokens is None:
            refuse("tokens are counted for --max-tokens only", "tokens_per_frame")

    def frames(
        self,
        video: VideoInfo,
        style: str,
        images: ImageOptions,
        budgets: Sequence[int],
        text: str,
        times: Callable[[int], Sequence[float]] | None = None,
    ) -> int:
        """Return the largest budget whose request is estimated to fit.

        `times` returns the seconds of a budget's frames. If None, they are not known yet, and the estimate
        assumes long times, no two of them close enough to fuse.
        """
        size, most = images.limits.size(video.width, video.height), self.max_tokens or 0
        pairing = "duplicate" if times is None and images.pairing == "auto" else images.pairing

        def cost(count: int) -> int:
            seconds = [video.duration] * count if times is None else times(count)
            return estimate(
                style,
                seconds,
                size,
                text,
                pairing=pairing,
                per_frame=self.tokens_per_frame,
                frame_pixels=images.limits.frame_pixels,
            ).total

        found = max((count for count in budgets if cost(count) <= most), default=None)
        if found is None:
            raise BudgetError(
                f"{min(budgets)} frame does not fit into {most} tokens, it takes about {cost(min(budgets))}; "
                "shrink the images with --max-side"
            )
        return found
