"""Option groups that commands share. A group is a dataclass: its decorator adds the options to a command and
hands them over as one argument. Options of the method and the scorer are generated from the config fields.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields
from functools import wraps
from typing import Any, get_args, get_type_hints

import rich_click as click

from framenest.cache.directory import DirectoryStore, local_directory
from framenest.cache.remote import open_store
from framenest.cli.parameter_types import Budgets
from framenest.cli.terminal import Bars, note
from framenest.config import PRESETS, DiscoveryConfig, IndexConfig, MECConfig, RankingConfig, ScorerConfig
from framenest.errors import ScorerError
from framenest.protocols import Decoder, ManagedStore
from framenest.scorers import choose
from framenest.session import Session
from framenest.video import open_video

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]

METHOD_PANEL = "The method (defaults are the paper's)"
SCORER_PANEL = "The scorer"


def option(help: str, **settings: Any) -> Any:  # noqa: A002 - the command line's word
    """A dataclass field that is an option, named and typed as the field; `settings` are click.option's."""
    return field(metadata={"help": help, "settings": settings})


def group(kind: type, argument: str, panel: str = "Options", **changes: dict[str, Any]) -> Decorator:
    """A decorator: the options of a dataclass, which the command gets as one `argument`.

    `changes` are settings of single options that differ in this command.
    """
    return _gathered(argument, kind, _options_of(kind, panel, changes))


def _options_of(kind: type, panel: str, changes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One option per field of a dataclass."""
    hints = get_type_hints(kind)
    return {e.name: _option(e, hints[e.name], panel, changes.get(e.name, {})) for e in fields(kind)}


def _option(entry: Any, hint: Any, panel: str, changes: dict[str, Any]) -> Any:
    flag, type_ = "--" + entry.name.replace("_", "-"), _plain_type(hint)
    shape = {"help": entry.metadata["help"], "panel": panel}
    if "settings" in entry.metadata:
        shape |= {"type": type_, **entry.metadata["settings"], **changes}
        return click.option(shape.pop("flag", flag), entry.name, **shape)
    # A setting of the method or the scorer: None unless the command line sets it.
    if entry.default not in (None, MISSING):
        shown = f"{entry.default:g}" if isinstance(entry.default, float) else str(entry.default)
        shape["help"] += f" ({entry.metadata['whose']}: {shown})"
    if type_ is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", entry.name, default=None, **shape)
    metavar = None if isinstance(type_, click.Choice) else type_.__name__.upper()
    return click.option(flag, entry.name, type=type_, metavar=metavar, default=None, **shape)


def _plain_type(hint: Any) -> Any:
    """int, float or bool; the choices of a Literal; the type beside None of an optional."""
    if isinstance(hint, type):
        return hint
    arguments = [a for a in get_args(hint) if a is not type(None)]
    return arguments[0] if isinstance(arguments[0], type) else click.Choice(arguments)


def _gathered(argument: str, build: Callable[..., Any], added: dict[str, Any]) -> Decorator:
    """A decorator: these options, of which `build` makes the one argument that the command gets."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def gathered(*args: Any, **values: Any) -> Any:
            values[argument] = build(**{name: values.pop(name) for name in added})
            return command(*args, **values)

        made: Command = gathered
        for add in reversed(added.values()):  # --help lists the one added last first
            made = add(made)
        return made

    return decorate


@dataclass(frozen=True)
class Common:
    """What every command takes: the cache, and whether to show progress."""

    cache: ManagedStore = option(
        "Where indexes, features and models are kept; s3:// and other addresses with the extra "
        "`remote`, then without models. [default: $FRAMENEST_CACHE, or the user's cache]",
        type=str,
        metavar="DIR|URL",
        callback=lambda _c, _p, value: open_store(value),
    )
    quiet: bool = option("No progress bars.", is_flag=True)

    @property
    def local(self) -> DirectoryStore:
        """The directory for what is never at an address: models, fingerprints, downloads."""
        return local_directory(self.cache)

    def bars(self) -> Bars:
        """Progress bars, as asked for."""
        return Bars(self.quiet)


def common(command: Command) -> Command:
    """--cache, --quiet, --debug; the command gets `common`."""
    debug = click.option("--debug", is_flag=True, help="Show the traceback of an error.", expose_value=False)
    return group(Common, "common")(debug(command))


@dataclass(frozen=True)
class VideoOptions:
    """How a video is opened."""

    fps: float | None = option("Frame rate of a folder of numbered images.")
    stream: int | None = option("Which stream of the file; FFmpeg's choice by default.")
    decoder: str = option(
        "pyav, torchcodec, or torchcodec:cuda for a GPU's video engine.", default="pyav", metavar="NAME"
    )

    def open(self, video: str, common: Common) -> Decoder:
        """The open video."""
        return open_video(video, fps=self.fps, stream=self.stream, decoder=self.decoder, store=common.cache)


video = group(VideoOptions, "video_options")


@dataclass(frozen=True)
class ScorerChoice:
    """The scorer that the command line names, and how it runs."""

    name: str
    config: ScorerConfig

    def resolved(self, common: Common) -> str:
        """The scorer's name; of "auto" what that is on this machine, and a note why."""
        if self.name == "auto":
            with suppress(ScorerError):  # where nothing is ready, the command says so when it needs a scorer
                name, why = choose(common.local)
                note(why)
                return name
        return self.name

    def session(self, common: Common, bars: Bars) -> Session:
        """A session with this scorer."""
        return Session(self.resolved(common), store=common.cache, progress=bars, scoring=self.config)


def _scoring(**values: Any) -> ScorerConfig:
    return ScorerConfig(**{name: value for name, value in values.items() if value is not None})


_SCORER = click.option(
    "--scorer",
    default="auto",
    metavar="NAME",
    help="Who scores relevance: a name from `framenest models`, with a checkpoint of yours as in "
    "clip:org/name or blip2:FOLDER, or table:FILE for scores of your own (CSV or JSON of frame or "
    "seconds → score).",
    panel=SCORER_PANEL,
)
_SCORING = _options_of(ScorerConfig, SCORER_PANEL, {})

scorer = _gathered(
    "scorer",
    lambda scorer, **values: ScorerChoice(scorer, _scoring(**values)),
    {"scorer": _SCORER, **_SCORING},
)
scoring = _gathered("scoring", _scoring, _SCORING)


def _config(preset: str = "paper", **settings: Any) -> MECConfig:
    """The preset with what the command line sets."""
    return MECConfig.preset(preset).with_settings({k: v for k, v in settings.items() if v is not None})


_PRESET = click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    default="paper",
    help="The paper's configuration or one of its ablations.",
    panel=METHOD_PANEL,
)
_INDEX = _options_of(IndexConfig, METHOD_PANEL, {})

index_config = _gathered("config", _config, _INDEX)
config = _gathered(
    "config",
    _config,
    {"preset": _PRESET, **_INDEX}
    | _options_of(DiscoveryConfig, METHOD_PANEL, {})
    | _options_of(RankingConfig, METHOD_PANEL, {}),
)


def budgets(**settings: Any) -> Decorator:
    """-k 8,16,32, which may be given again; the command gets all of them as `budgets`."""
    return click.option(
        "-k",
        "--budget",
        "budgets",
        type=Budgets(),
        multiple=True,
        callback=lambda _c, _p, groups: [size for sizes in groups for size in sizes],
        **settings,
    )
