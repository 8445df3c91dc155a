"""Options: how commands declare them as typed parameters, their types, and the groups that commands share."""

from __future__ import annotations

import inspect
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import rich_click as click
from click import get_current_context
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from framenest.cache.directory import DirectoryStore, ManagedStore, local_directory
from framenest.cache.files import write_atomic
from framenest.cache.remote import open_store
from framenest.cli.printing import err, note, out
from framenest.config import (
    DEFAULT_PRESET,
    PRESETS,
    CheckedSettings,
    DiscoveryConfig,
    IndexConfig,
    MECConfig,
    Probing,
    RankingConfig,
    ScorerConfig,
    VideoConfig,
)
from framenest.errors import ConfigError, ScorerError, StoreError
from framenest.image_tokens import TIERS, TokenBudget
from framenest.images import IMAGE_FORMATS
from framenest.listening import load_recognizer
from framenest.lmm import FOR_SERVERS, STYLES, ImageLimits, Pairing, StyleName, token_budget
from framenest.lmm.client import KEY_VARIABLE, Client
from framenest.lmm.prompt import TOKENS
from framenest.progress import Bars
from framenest.rank_request import Budget
from framenest.scorers import choose
from framenest.selectors import check_selector, needs_scorer, setting_value
from framenest.session import Session
from framenest.text import bytes_of, seconds_of
from framenest.transcript import AUTO, Transcript
from framenest.video.decoder import Decoder
from framenest.video.opening import open_video

SCORER_PANEL = "The scorer"
METHOD_PANEL = "The method"
MAX_CHOICES_LENGTH = 20  # shown as [a|b|c] in --help; longer lists would break inside a word


def option(help: str, *flags: str, **settings: Any) -> Any:  # noqa: A002 - click's word
    """Declare a command's parameter, or a field of an option group, as an option.

    Its name becomes the flag and its type hint the type. `flags` may add a short flag such as "-k", or
    replace the name by a long one such as "--json"; `settings` are click.option's.
    """
    return field(metadata={"flags": flags, "settings": {"help": help, **settings}})


def config_option(config: type, name: str) -> Any:
    """Declare the option of a config's field. It has no default, so that presets hold unless it is given."""
    entry = config.__dataclass_fields__[name]  # type: ignore[attr-defined]  # every config is a dataclass
    text = entry.metadata["help"]
    if entry.default is not None and entry.default is not False:
        shown = f"{entry.default:g}" if isinstance(entry.default, float) else entry.default
        text += f" ({entry.metadata['whose']}: {shown})"
    return option(text, default=None)


def argument(**settings: Any) -> Any:
    """Declare a command's parameter as a positional argument; `settings` are click.argument's."""
    return field(metadata={"argument": settings})


class Command(click.RichCommand):
    """A command whose --help may show some of its options, and --help-all every one."""

    usual: tuple[str, ...] = ()  # parameters that --help shows; all of them if empty

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Hide what is not usual, except from shell completion."""
        rare = [p for p in self.params if self.usual and p.name not in (*self.usual, "help", "help_all")]
        self.panels = [click.RichOptionPanel("Options")]  # comes before other panels
        for parameter in rare:
            parameter.hidden = True  # type: ignore[attr-defined]  # an argument has no panel to hide in
        super().format_help(ctx, formatter)
        for parameter in rare:
            parameter.hidden = False  # type: ignore[attr-defined]  # as above


def _help_all(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        whole = copy(context.command)
        whole.usual = ()  # type: ignore[attr-defined]  # of a Command
        click.echo(whole.get_help(context))
        context.exit()


def command(parent: Any = click, usual: str = "", cls: type = Command, **settings: Any) -> Callable[..., Any]:
    """Make a function a command, of a click group if given, with the options its parameters declare.

    usual: the parameters that --help shows, separated by spaces, if the rest is left to --help-all.
    `settings` are click.command's.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        declared = inspect.signature(function).parameters.items()
        parameters = [*_parameters(function, {name: parameter.default for name, parameter in declared})]
        if usual:
            eager: dict[str, Any] = {"is_eager": True, "expose_value": False, "callback": _help_all}
            text = "Show all options and exit."
            parameters.append(click.RichOption(["--help-all"], is_flag=True, help=text, **eager))

        @wraps(function)
        def call(**values: Any) -> Any:
            groups = {name: kind for name, kind in get_type_hints(function).items() if is_dataclass(kind)}
            built = {name: _build(kind, values) for name, kind in groups.items()}
            return function(**values, **built)

        decorated = parent.command(cls=cls, params=parameters, **settings)(call)
        decorated.usual = tuple(usual.split())
        return decorated

    return decorate


def _parameters(owner: Any, declared: Mapping[str, Any]) -> Iterator[click.Parameter]:
    """What the parameters of a command or the fields of a group declare, and the groups among them."""
    hints = get_type_hints(owner, include_extras=True)
    panel = SCORER_PANEL if owner is ScorerConfig else getattr(owner, "panel", "Options")
    for name, declaration in declared.items():
        hint = hints[name]
        if is_dataclass(hint):
            yield from _parameters(hint, {entry.name: entry for entry in fields(hint)})
        elif "argument" in declaration.metadata:
            yield click.RichArgument([name], type=_click_type(hint), **declaration.metadata["argument"])
        else:
            own = config_option(owner, name) if "whose" in declaration.metadata else declaration
            yield _option(name, hint, own.metadata["flags"], {"panel": panel, **own.metadata["settings"]})


def _option(name: str, hint: Any, flags: tuple[str, ...], settings: dict[str, Any]) -> click.Option:
    settings = {"type": _click_type(hint), **settings}
    choices, text = getattr(settings["type"], "choices", ()), settings["help"]
    if len("|".join(choices)) > MAX_CHOICES_LENGTH:
        named = all(re.search(rf"(?<![\w-]){re.escape(choice)}(?![\w-])", text) for choice in choices)
        settings |= {"metavar": "NAME", "help": text if named else f"{text} One of {', '.join(choices)}."}
    if hint is bool:
        settings |= {"type": None, "is_flag": True}
    if not any(flag.startswith("--") for flag in flags):
        flags = ("--" + name.replace("_", "-"), *flags)
    return click.RichOption([*flags, name], **settings)


def _click_type(hint: Any) -> Any:
    """Return a plain type, the Parsed of an Annotated, the choices of a Literal, or a union's first type."""
    if isinstance(hint, type):
        return hint
    if get_origin(hint) is Annotated:
        return hint.__metadata__[0]
    first = next(argument for argument in get_args(hint) if argument is not type(None))
    return click.Choice(get_args(hint)) if isinstance(first, str) else _click_type(first)


def _build(kind: Any, values: dict[str, Any]) -> Any:
    """Build a group from the values of its options, which it takes out of `values`."""
    hints = get_type_hints(kind)
    values_by_field = {
        name: _build(hints[name], values) if is_dataclass(hints[name]) else values.pop(name)
        for name in (entry.name for entry in fields(kind))
    }
    if kind is ScorerConfig and not values_by_field["rerank"]:
        refuse("nothing is reranked without --rerank COUNT", "reranker")
    if kind is ScorerConfig and not (values_by_field["listen"] or values_by_field["listen_url"]):
        refuse("sound is transcribed only with --listen or --listen-url", "listen_model", "listen_translate")
    if issubclass(kind, CheckedSettings):
        values_by_field = {name: value for name, value in values_by_field.items() if value is not None}
    return kind(**values_by_field)


def _given() -> list[click.Parameter]:
    """The parameters that the command line sets."""
    context = get_current_context()
    source = context.get_parameter_source
    return [p for p in context.command.params if source(str(p.name)) is ParameterSource.COMMANDLINE]


def refuse(why: str, *names: str) -> None:
    """Refuse options that were given although they have no effect; `names` are their parameters."""
    for parameter in _given():
        if parameter.name in names:
            raise ConfigError(f"{parameter.opts[0]} has no effect: {why}")


def refuse_others(why: str, *names: str) -> None:
    """Refuse every option that was given except those of these parameters."""
    others = [parameter.opts[0] for parameter in _given() if parameter.name not in names]
    if others:
        raise ConfigError(f"{', '.join(others)}: {why}")


class Parsed(click.ParamType[Any]):
    """A value, called `name` in --help, that a function parses. Its ValueError becomes the error message."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            return self.parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem]:
        kind = {"FILE": "file", "DIR": "dir"}.get(self.name)
        return [CompletionItem(incomplete, type=kind)] if kind else []


def _selectors(text: str) -> list[str]:
    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise ValueError("give at least one selector")
    return list(map(check_selector, names))


DURATION_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _duration(text: str) -> float:
    match = re.fullmatch(r"(\d+\.?\d*)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in DURATION_UNITS:
        raise ValueError(f"{text!r} is not a duration; write it like 90s, 30m, 12h or 7d")
    return float(match[1]) * DURATION_UNITS[match[2]]


def check_writable(file: str | Path) -> Path:
    """Check, before the work starts, that an output file can be written; raise StoreError if not."""
    target = Path(os.path.realpath(file))  # writing through a symlink replaces its target
    exists = os.access(target, os.F_OK)
    if exists and target.is_dir():
        raise StoreError(f"{file}: is a directory; give a file name")
    if exists and not os.access(target, os.W_OK):
        raise StoreError(f"{file}: cannot be written (Permission denied)")
    if not exists or target.is_file():  # else it is a device or a pipe
        _check_folder(file, target.parent, target.name)
    return Path(file)


def check_writable_folder(folder: str | Path) -> Path:
    """Check that files can be written into a folder, which may not exist yet; raise StoreError if not."""
    _check_folder(folder, Path(os.path.realpath(folder)))
    return Path(folder)


def _check_folder(path: str | Path, folder: Path, name: str = "") -> None:
    """Create a temporary file, named as `write_atomic` names its own, in the folder or its closest parent."""
    try:
        existing = next(place for place in (folder, *folder.parents) if place.exists())
        with tempfile.NamedTemporaryFile(dir=existing, prefix=f".{name}.", suffix=".tmp"):
            pass
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror})") from error


def _image(file: str) -> Path:
    if Path(file).suffix.lower()[1:] not in IMAGE_FORMATS:
        raise StoreError(f"{file}: an image is a .png, .jpg or .webp file")
    return check_writable(file)


Count = Annotated[int, click.IntRange(1)]
InputFile = Annotated[str, Parsed("FILE", str)]
Folder = Annotated[str, Parsed("DIR", str)]
Budgets = Annotated[list[int], Parsed("K", Budget.parse)]
SelectorName = Annotated[str, Parsed("NAME", check_selector)]
SelectorNames = Annotated[list[str], Parsed("NAME,…", _selectors)]
Moment = Annotated[float, Parsed("TIME", seconds_of)]
Duration = Annotated[float, Parsed("DURATION", _duration)]
Size = Annotated[int, Parsed("SIZE", bytes_of)]
OutputFile = Annotated[Path, Parsed("FILE", check_writable)]
OutputFolder = Annotated[Path, Parsed("DIR", check_writable_folder)]
ImageFile = Annotated[Path, Parsed("FILE", _image)]


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
MOVED = option("The video, if it has moved.")
MAX_SIDE = option("Shrink images to this many pixels on the longer side; 1568 suits most models.")
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
        out.brief = self.quiet

    @cached_property
    def cache(self) -> ManagedStore:
        """The store for indexes and features."""
        return open_store(self.cache_location)

    @property
    def local(self) -> DirectoryStore:
        """The directory for models, fingerprints and downloads, which are never stored remotely."""
        return local_directory(self.cache)

    def bars(self) -> Bars:
        return Bars(off=self.quiet, console=err)

    def open(self, video: str, opening: VideoConfig) -> Decoder:
        return open_video(video, **vars(opening), store=self.cache, progress=self.bars())


@dataclass(frozen=True, kw_only=True)
class ScorerChoice:
    """Which scorer to use, and how to run it."""

    panel: ClassVar = SCORER_PANEL
    name: str = option(
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
        load_recognizer(self.config, common.local)  # fails before the work starts
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
    if out.brief or (file.is_file() and file.read_text(encoding="utf-8") == text):
        return
    note(text)
    with suppress(StoreError):  # a read-only cache: noted every time
        write_atomic(file, text.encode(), follow=False)


@dataclass(frozen=True)
class ProbingOptions:
    """Where a video is probed."""

    panel: ClassVar = METHOD_PANEL
    max_gap: float | None = config_option(IndexConfig, "max_gap")
    probing: Probing | None = config_option(IndexConfig, "probing")
    start: Moment | None = config_option(IndexConfig, "start")
    end: Moment | None = config_option(IndexConfig, "end")

    @property
    def settings(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


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
        horizon = {} if self.horizon is None else {"horizon": self.horizon}
        settings = horizon | self.probes.settings | dict(self.others)
        return MECConfig.preset(self.preset).with_settings(settings)


def _temperature(text: str) -> float | None:
    try:
        return None if text == "server" else float(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a number nor 'server'") from None


@dataclass(frozen=True)
class AnsweringModel:
    """The server that answers, and its settings."""

    panel: ClassVar = "The model"
    base_url: str = option(
        "OpenAI-compatible server, such as http://localhost:8000/v1. [default: $OPENAI_BASE_URL]",
        envvar="OPENAI_BASE_URL",
        required=True,
    )
    model: str | None = option("Model to ask. [default: the server's, if it has just one]")
    style: StyleName = option(
        "openai: one image per frame; gpt, gemini: the same with `detail`. vllm-video: one video, for vLLM.",
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
    key_variable: str = option("Environment variable with the API key.", default=KEY_VARIABLE)

    def client(self) -> Client:
        thinks = {"on": True, "off": False}.get(self.thinking)  # None leaves it to the server
        return Client(
            self.base_url,
            self.model,
            key_variable=self.key_variable,
            timeout=self.timeout,
            retries=self.retries,
            thinking=thinks,
            max_tokens=self.answer_tokens or (8192 if thinks else 1024),
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
    """How frames are sent to a model: arguments of `messages` and `ask`."""

    limits: ImageLimits
    pairing: Pairing = option(
        "Qwen3-VL and Qwen3.5 fuse two frames and give both the mean of their times. auto: fuse frames less "
        "than 2 s apart, send others twice. pairs: always fuse, as in the paper. duplicate: send each frame "
        "twice. images: send images, not a video.",
        default="auto",
    )
    tell_times: bool | None = option(
        "Write the frames' times as text. [default: only if the model's processor does not]",
        "--times/--no-times",
        default=None,
    )


@dataclass(frozen=True)
class TokenOptions:
    """A budget in tokens, in place of -k."""

    tokens: int | None = option("A budget in tokens instead of frames: the most frames whose images fit.")
    tiers: bool = option(
        "With --tokens: sharp first, small later. Ranks 1 to 4 at full size, to 16 at half the side, others "
        "at a quarter. A video has one size.",
        "--tiers/--no-tiers",
        default=True,
    )

    def budget(self, style: StyleName = "openai", **settings: Any) -> TokenBudget | None:
        """The budget for a style's model; None without one. settings: as for `token_budget`."""
        if self.tokens is None:
            refuse("only --tokens has tiers", "tiers")
            return None
        refuse("--tokens says how many frames", "budget", "budgets")
        budget = token_budget(self.tokens, style, tiers=TIERS if self.tiers else None, **settings)
        if self.tiers and budget.tiers is None:
            refuse("the frames of a video have one size", "tiers")
        return budget


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
