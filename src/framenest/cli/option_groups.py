"""Groups of options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import rich_click as click

from framenest.cache.directory import DirectoryStore, ManagedStore, local_directory
from framenest.cache.files import write_atomic
from framenest.cache.remote import open_store
from framenest.cli.options import (
    SCORER_PANEL,
    Count,
    InputFile,
    Moment,
    Name,
    Parsed,
    Url,
    config_option,
    option,
    refuse,
)
from framenest.cli.printing import err, note, quiet, set_quiet
from framenest.config import (
    DEFAULT_PRESET,
    PRESETS,
    DiscoveryConfig,
    IndexConfig,
    MECConfig,
    Probing,
    RankingConfig,
    ScorerConfig,
    VideoConfig,
)
from framenest.errors import ConfigError, ScorerError, StoreError
from framenest.frames import VideoInfo
from framenest.lmm import FOR_SERVERS, STYLES, ImageLimits, Pairing, StyleName
from framenest.lmm.client import KEY_VARIABLE, Client
from framenest.lmm.prompt import TOKENS
from framenest.progress import Bars
from framenest.scorers import choose
from framenest.selectors import needs_scorer, setting_value
from framenest.session import Session
from framenest.transcript import AUTO, Transcript
from framenest.video.decoder import Decoder
from framenest.video.opening import open_video, reopen

CHOICES = option(
    "An answer option; may be repeated. The answer is a letter.", "--option", multiple=True, metavar="TEXT"
)
LOOK_FOR = option(
    "Also look for this; describe what it looks like: “a potter opens a kiln”. May be repeated; a frame "
    "that shows one of them is relevant.",
    multiple=True,
    metavar="TEXT",
)
AS_JSON = option("Print JSON.", "--json")
KEEP_FEATURES = option(
    "Cache features of any size, or none. [default: up to 512 MiB per video]",
    "--keep-features/--no-keep-features",
    default=None,
)


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
    debug: bool = option("Show the traceback of an error.")

    def __post_init__(self) -> None:
        set_quiet(self.quiet)

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

    def open(self, video: str, opening: VideoConfig) -> Decoder:
        """Open a video, with progress bars."""
        return open_video(video, **vars(opening), store=self.cache, progress=self.bars())


@dataclass(frozen=True)
class RankedVideo:
    """How to reopen the video of a ranking."""

    video: InputFile | None = option("The video, if it has moved.")
    allow_playlists: bool = config_option(VideoConfig, "allow_playlists")

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
        short = self.name.partition(":")[0]
        if short in ("tags", "table") and self.config.device not in ("auto", "cpu"):
            raise ConfigError(f"--device {self.config.device} has no effect: {short} runs on the CPU")
        if self.name == "auto":
            with suppress(ScorerError):  # if no scorer is ready, the command fails when it needs one
                name, why = choose(common.local)
                _note_once(why, common.local.root / "noted" / "scorer.txt")
                return name
        return self.name

    def session(self, common: Common, bars: Bars, selectors: Sequence[str]) -> Session:
        """Open a session with this scorer. It is chosen only if a selector uses one."""
        name = self.resolved(common) if any(map(needs_scorer, selectors)) else self.name
        return Session(name, store=common.cache, progress=bars, scoring=self.config)


def _note_once(text: str, file: Path) -> None:
    """Print this note unless it was the last one printed here; `file` remembers it."""
    if quiet() or (file.is_file() and file.read_text(encoding="utf-8") == text):
        return
    note(text)
    with suppress(StoreError):  # a read-only cache: noted every time
        write_atomic(file, text.encode(), follow=False)


def refuse_one_file(config: ScorerConfig, videos: int) -> None:
    """Refuse --subtitles FILE for several videos."""
    if videos > 1 and Path(config.subtitles or "").is_file():
        raise ConfigError("--subtitles FILE is for one video; for several, give a folder or auto")


METHOD_PANEL = "The method (defaults are the paper's)"


@dataclass(frozen=True)
class ProbingOptions:
    """Where a video is probed."""

    panel: ClassVar = METHOD_PANEL
    max_gap: float | None = config_option(IndexConfig, "max_gap")
    probing: Probing | None = config_option(IndexConfig, "probing")
    start: Moment | None = config_option(IndexConfig, "start")
    end: Moment | None = config_option(IndexConfig, "end")


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not a setting; write it like zoom=4")
    return name, setting_value(value)


def other_settings(*configs: type) -> Any:
    """Declare --set NAME=VALUE, for settings of these configs that have no option of their own."""
    own = {"horizon", *(entry.name for entry in fields(ProbingOptions))}
    names = [entry.name for config in configs for entry in fields(config) if entry.name not in own]
    return option(
        f"Another setting, such as {names[0]}=64; may be repeated. docs/design.md explains them: "
        f"{', '.join(names)}.",
        "--set",
        multiple=True,
        type=Parsed("NAME=VALUE", _setting),
        panel=METHOD_PANEL,
    )


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """The settings of MEC."""

    panel: ClassVar = METHOD_PANEL
    preset: str = option(
        "residual shows each event once before it repeats one. paper is the paper's rule, bit for bit; "
        "the others are its ablations.",
        type=click.Choice(list(PRESETS)),
        default=DEFAULT_PRESET,
    )
    horizon: int | None = config_option(RankingConfig, "horizon")
    probes: ProbingOptions
    others: tuple[tuple[str, Any], ...] = other_settings(IndexConfig, DiscoveryConfig, RankingConfig)

    @cached_property
    def config(self) -> MECConfig:
        """The preset, with the settings given."""
        settings = {"horizon": self.horizon, **vars(self.probes)}
        settings = {name: value for name, value in settings.items() if value is not None} | dict(self.others)
        return MECConfig.preset(self.preset).with_settings(settings)


TOKEN_LIMITS = {True: 8192, False: 1024}
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
    style: StyleName = option(
        "openai: one image per frame, any server. vllm-video: one video, vLLM.",
        type=click.Choice(FOR_SERVERS),
        default="openai",
    )
    thinking: Literal["on", "off", "server"] = option(
        "Whether the model reasons first. on, off: by chat_template_kwargs, which some servers refuse.",
        default="server",
    )
    answer_tokens: int | None = option("Maximum tokens of an answer. [default: 1024; 8192 with thinking]")
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

    def client(self) -> Client:
        """Return a client of the server."""
        return Client(
            self.base_url,
            self.model,
            key_variable=self.key_variable,
            timeout=self.timeout,
            retries=self.retries,
            thinking=self.thinks,
            max_tokens=self.answer_tokens or TOKEN_LIMITS[self.thinks or False],
            temperature=self.temperature,
        )


def check_server(client: Client) -> None:
    """Fail before the video is read if no server answers; note if it does not list the model."""
    names = client.models()
    if names and client.model not in names:
        note(f"{client.base_url} lists {', '.join(names)}; trying {client.model} anyway")


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
    transcript_tokens: Count = option("Estimated maximum of transcript tokens to send.", default=TOKENS)

    def __post_init__(self) -> None:
        if not self.with_transcript:
            refuse("no transcript is sent without --with-transcript", "transcript_tokens")

    def settings(self, transcript: Transcript | None) -> dict[str, Any]:
        """Keyword arguments for `messages` and `ask`."""
        if not self.with_transcript:
            return {}
        if transcript is None or not transcript.lines:
            raise ConfigError("--with-transcript: no transcript was found; rank with --subtitles FILE")
        return {"transcript": transcript, "transcript_tokens": self.transcript_tokens}
