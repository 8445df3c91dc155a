"""How options are declared, and the options that most commands share."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any, ClassVar, get_args, get_type_hints

import rich_click as click
from click.core import ParameterSource

from framenest.cli.terminal import detail, err, set_level
from framenest.config import PRESETS, DiscoveryConfig, IndexConfig, MECConfig, RankingConfig, ScorerConfig
from framenest.errors import BadSetting, ConfigError
from framenest.processes import DOWNLOAD_VARIABLE
from framenest.progress import Bars
from framenest.text import bytes_of, seconds_of

if TYPE_CHECKING:
    from framenest.cache.directory import DirectoryStore, ManagedStore
    from framenest.frames import VideoInfo
    from framenest.protocols import Decoder

SERVER = "server"
"""A setting that is left to the server: nothing is sent."""


class Budgets(click.ParamType[list[int]]):
    """8 or 8,16,32."""

    name = "K"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[int]:
        if isinstance(value, list):
            return value
        try:
            return [int(part) for part in str(value).split(",")]
        except ValueError:
            self.fail(
                f"{value!r} is not a frame budget; give a whole number, or several with commas", param, ctx
            )


class CommaSeparated(click.ParamType[list[str]]):
    """Names between commas, each once."""

    name = "TEXT"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[str]:
        found = list(dict.fromkeys(part.strip() for part in str(value).split(",") if part.strip()))
        if not found:
            self.fail("give at least one selector", param, ctx)
        return found


class Part(click.ParamType[tuple[int, int]]):
    """2/8: the second of eight parts."""

    name = "I/N"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        found = re.fullmatch(r"(\d+)/(\d+)", str(value))
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            self.fail(f"{value!r} is not a part; write the second of eight as 2/8", param, ctx)
        return int(found[1]), int(found[2])


class SelectorName(click.ParamType[str]):
    """A selector, in the grammar of `load_selector`; refused before the work where there is none."""

    name = "NAME"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        from framenest.selectors import check_selector  # imports all that selects

        check_selector(value)
        return str(value)


class SelectorNames(CommaSeparated):
    """Selectors between commas."""

    def convert(self, value: Any, param: Any, ctx: Any) -> list[str]:
        return [SelectorName().convert(name, param, ctx) for name in super().convert(value, param, ctx)]


class Temperature(click.ParamType[float | None]):
    """A number; None of "server"."""

    name = "T|server"

    def convert(self, value: Any, param: Any, ctx: Any) -> float | None:
        try:
            return None if value == SERVER else float(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {SERVER!r}", param, ctx)


class Moment(click.ParamType[float]):
    """Seconds, or [HH:]MM:SS."""

    name = "TIME"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        try:
            return seconds_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Duration(click.ParamType[float]):
    """Seconds of 90s, 30m, 12h, 7d; a bare number is seconds."""

    name = "DURATION"
    units: ClassVar = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, (int, float)):
            return value
        found = re.fullmatch(r"(\d+\.?\d*)\s*([a-z]*)", str(value).strip().lower())
        if found is None or found[2] not in self.units:
            self.fail(f"{value!r} is not a duration; write it like 90s, 30m, 12h or 7d", param, ctx)
        return float(float(found[1]) * self.units[found[2]])


class Size(click.ParamType[int]):
    """Bytes of 500MB, 2GiB, 1TB; a bare number is bytes."""

    name = "SIZE"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        try:
            return bytes_of(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


METHOD_PANEL = "The method (defaults are the paper's)"
SCORER_PANEL = "The scorer"
FEW = 20
"""Characters of choices that --help shows as [a|b|c]."""
CONFIG_PANELS: dict[type, str] = {
    IndexConfig: METHOD_PANEL,
    DiscoveryConfig: METHOD_PANEL,
    RankingConfig: METHOD_PANEL,
    ScorerConfig: SCORER_PANEL,
}


def option(help: str = "", **settings: Any) -> Any:  # noqa: A002 - the command line's word
    """A parameter of a command, or a field of a group, that is an option of its name and type.

    `settings` are those of click.option, and `flag` for another flag than the name's, `short` as in "-k".
    """
    return field(metadata={"help": help, "settings": settings})


def argument(**settings: Any) -> Any:
    """A parameter of a command that is given by its position; `settings` are those of click.argument."""
    return field(metadata={"argument": settings})


def group(**changes: dict[str, Any]) -> Any:
    """A parameter that is a group of options; `changes` are settings that differ in this command."""
    return field(metadata={"changes": changes})


def through_environment(variable: str) -> Callable[..., Any]:
    """The callback of an option that sets an environment variable, for all processes of the command."""

    def callback(context: click.Context, _parameter: Any, value: Any) -> Any:
        if value is not None:
            before = os.environ.get(variable)
            os.environ[variable] = str(value)
            context.call_on_close(partial(_restore, variable, before))
        return value

    return callback


def _restore(variable: str, before: str | None) -> None:
    if before is None:
        del os.environ[variable]
    else:
        os.environ[variable] = before


def from_parameters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the arguments and options that its parameters declare."""
    hints, added, groups = get_type_hints(command), [], {}
    for name, parameter in inspect.signature(command).parameters.items():
        metadata = getattr(parameter.default, "metadata", {})
        if "argument" in metadata:
            added.append(click.argument(name, **metadata["argument"]))
        elif "settings" in metadata:
            added.append(_option(name, hints[name], metadata))
        elif hints[name] is not click.Context:
            groups[name] = hints[name]
            added += _options_of(hints[name], metadata.get("changes", {})).values()

    @wraps(command)
    def gathered(*args: Any, **values: Any) -> Any:
        with settings_as_options():
            made = {name: _built(kind, values) for name, kind in groups.items()}
        return command(*args, **values, **made)

    decorated: Callable[..., Any] = gathered
    for add in reversed(added):  # --help lists the one added last first
        decorated = add(decorated)
    return decorated


def _options_of(kind: type, changes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The options of a group by the names of its fields, and of the groups in it."""
    hints, panel = get_type_hints(kind), getattr(kind, "panel", None) or CONFIG_PANELS.get(kind, "Options")
    found = {"preset": _PRESET} if kind is MECConfig else {}
    for entry in fields(kind):
        if not entry.metadata:
            found |= _options_of(hints[entry.name], {})
        elif kind in CONFIG_PANELS:
            found[entry.name] = _config_option(entry, hints[entry.name], panel)
        else:
            settings = {"panel": panel, **entry.metadata["settings"], **changes.get(entry.name, {})}
            found[entry.name] = _option(
                entry.name, hints[entry.name], {**entry.metadata, "settings": settings}
            )
    return found


def _built(kind: type, values: dict[str, Any]) -> Any:
    """A group from the values of its options, which are taken out."""
    if kind is MECConfig:
        preset = MECConfig.preset(values.pop("preset"))
        settings = {name: values.pop(name) for name in _options_of(kind, {}) if name in values}
        return preset.with_settings({name: value for name, value in settings.items() if value is not None})
    hints = get_type_hints(kind)
    given = {
        e.name: values.pop(e.name) if e.metadata else _built(hints[e.name], values) for e in fields(kind)
    }
    if kind in CONFIG_PANELS:  # None: not set on the command line
        given = {name: value for name, value in given.items() if value is not None}
    return kind(**given)


def refuse(why: str, *names: str) -> None:
    """Refuse options, by the names of their parameters, that were given and cannot have an effect."""
    context = click.get_current_context()
    assert context is not None
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise ConfigError(f"{_flag(name)} has no effect: {why}")


def refuse_others(why: str, *names: str) -> None:
    """Refuse every option that was given but those of these parameters."""
    context = click.get_current_context()
    assert context is not None
    given = [
        (
            parameter.opts
            if context.params[str(parameter.name)]
            else parameter.secondary_opts or parameter.opts
        )[0]
        for parameter in context.command.params
        if parameter.name not in names
        and context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise ConfigError(f"{', '.join(given)}: {why}")


@contextmanager
def settings_as_options() -> Iterator[None]:
    """An error about a setting names it as the command line does: horizon is --horizon."""
    try:
        yield
    except BadSetting as error:
        names = sorted((e.name for kind in CONFIG_PANELS for e in fields(kind)), key=len, reverse=True)
        words = re.compile(rf"\b({'|'.join(names)})\b")
        allowed = words.sub(lambda found: _flag(found[0]), error.allowed)
        raise ConfigError(
            f"{_flag(error.name)} {error.value} is not allowed; it must be {allowed}"
        ) from error


def _option(name: str, hint: Any, metadata: Any) -> Any:
    shape = {"type": _plain_type(hint), "help": metadata["help"] or None, **metadata["settings"]}
    shape |= _told_in_words(shape["type"], shape["help"])
    flags = [shape.pop("flag", _flag(name)), *([shape.pop("short")] if "short" in shape else [])]
    if hint is bool:
        shape |= {"type": None, "is_flag": True}
    return click.option(*flags, name, **shape)


def _config_option(entry: Any, hint: Any, panel: str) -> Any:
    flag, type_ = _flag(entry.name), Moment() if entry.metadata["moment"] else _plain_type(hint)
    shape = {"help": entry.metadata["help"], "panel": panel, "default": None}
    shape |= {"metavar": type_.__name__.upper()} if isinstance(type_, type) else {}
    shape |= _told_in_words(type_, shape["help"])
    if entry.default not in (None, MISSING):
        shown = f"{entry.default:g}" if isinstance(entry.default, float) else str(entry.default)
        shape["help"] += f" ({entry.metadata['whose']}: {shown})"
    if type_ is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", entry.name, **shape | {"metavar": None})
    return click.option(flag, entry.name, type=type_, **shape)


def _told_in_words(type_: Any, text: str) -> dict[str, Any]:
    """The help of many choices names them, since [a|b|c] has no spaces and would break in mid-word."""
    if not isinstance(type_, click.Choice) or len("|".join(type_.choices)) <= FEW:
        return {}
    told = all(re.search(rf"(?<![\w-]){re.escape(choice)}(?![\w-])", text) for choice in type_.choices)
    return {"metavar": "NAME", "help": text if told else f"{text} One of {', '.join(type_.choices)}."}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _plain_type(hint: Any) -> Any:
    """int, float or str; the choices of a Literal; the first type of a union or a tuple."""
    if isinstance(hint, type):
        return hint
    arguments = [a for a in get_args(hint) if a is not type(None)]
    return click.Choice(arguments) if isinstance(arguments[0], str) else _plain_type(arguments[0])


_PRESET = _option(
    "preset",
    str,
    {
        "help": "The paper's configuration or one of its ablations.",
        "settings": {"type": click.Choice(list(PRESETS)), "default": "paper", "panel": METHOD_PANEL},
    },
)


def budgets(help: str, **settings: Any) -> Any:  # noqa: A002 - the command line's word
    """-k 8,16,32, which may be given again."""
    return option(
        help,
        flag="--budget",
        short="-k",
        type=Budgets(),
        multiple=True,
        callback=lambda _c, _p, groups: [size for sizes in groups for size in sizes],
        **settings,
    )


@dataclass(frozen=True)
class Common:
    """What every command takes: the cache, and whether to show progress."""

    cache_place: str | None = option(
        "Where indexes, features and models are kept; s3:// and other addresses with the extra "
        "`remote`, then without models. [default: $FRAMENEST_CACHE, or the user's cache]",
        flag="--cache",
        metavar="DIR|URL",
    )
    quiet: bool = option("Print results and errors only: no facts, notes or progress bars.", short="-q")
    verbose: bool = option("Say more: which cache and scorer, and every warning.", short="-v")
    debug: bool = option("Show the traceback of an error.")

    def __post_init__(self) -> None:
        if self.quiet and self.verbose:
            raise ConfigError("give --quiet or --verbose, not both")
        set_level(self.verbose - self.quiet)
        if self.verbose:
            detail(f"cache {self.cache.location}")

    @cached_property
    def cache(self) -> ManagedStore:
        """Where indexes, features and models are kept."""
        from framenest.cache.remote import open_store

        return open_store(self.cache_place)

    @property
    def local(self) -> DirectoryStore:
        """The directory for what is never at an address: models, fingerprints, downloads."""
        from framenest.cache.directory import local_directory

        return local_directory(self.cache)

    def bars(self) -> Bars:
        """Progress bars, as asked for."""
        return Bars(off=self.quiet, console=err)


_NEGATIVE = re.compile(r"-[.]?\d")  # a choice may be a number below zero


class ChoicesCommand(click.RichCommand):
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


CHOICES = option(
    "The choices, each in quotes if it has spaces; the answer is then a letter.",
    flag="--options",
    multiple=True,
    metavar="A B C …",
)


PLAYLISTS = "Open a VIDEO that names other files or addresses, too: HLS, DASH, ffconcat."
MAX_DOWNLOAD = option(
    "The largest VIDEO that is downloaded whole, as servers without range requests make necessary. "
    f"[default: ${DOWNLOAD_VARIABLE}, or 20GiB]",
    type=Size(),
    callback=through_environment(DOWNLOAD_VARIABLE),
)


@dataclass(frozen=True)
class VideoOptions:
    """How a video is opened."""

    fps: float | None = option("Frame rate of a folder of numbered images.")
    stream: int | None = option("Which stream of the file; FFmpeg's choice by default.")
    decoder: str = option(
        "pyav, pyav:cuda for NVIDIA's video engine, or one of another package.",
        default="pyav",
        metavar="NAME",
    )
    allow_playlists: bool = option(PLAYLISTS)
    max_download: int | None = MAX_DOWNLOAD

    @property
    def settings(self) -> dict[str, Any]:
        """What `open_video` takes by name; the limit of downloads reaches it through the environment."""
        return {name: value for name, value in vars(self).items() if name != "max_download"}

    def open(self, video: str, common: Common) -> Decoder:
        """The open video."""
        from framenest.video.opening import open_video

        return open_video(video, **self.settings, store=common.cache)


@dataclass(frozen=True)
class KnownVideo:
    """How the video of a ranking is opened again."""

    video: str | None = option("Where the video is now, if it has moved.", metavar="PATH")
    allow_playlists: bool = option(PLAYLISTS)
    max_download: int | None = MAX_DOWNLOAD

    def reopen(self, info: VideoInfo, common: Common) -> Decoder:
        """The open video; refused where it has changed."""
        from framenest.video.opening import reopen

        return reopen(info, self.video, allow_playlists=self.allow_playlists, store=common.cache)
