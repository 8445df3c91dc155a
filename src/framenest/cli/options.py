"""Options shared by commands; those of the method are generated from the config fields."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, fields
from functools import wraps
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import rich_click as click

from framenest.cache.directory import local_directory
from framenest.cache.remote import open_store
from framenest.cli.terminal import note
from framenest.cli.units import Duration, Size
from framenest.config import PRESETS, DiscoveryConfig, IndexConfig, MECConfig, RankingConfig, ScorerConfig
from framenest.errors import ConfigError, ScorerError
from framenest.scorers import choose

Command = TypeVar("Command", bound=Callable[..., Any])
Fields = TypeVar("Fields")

METHOD_PANEL = "The method (defaults are the paper's)"
SCORER_PANEL = "The scorer"


def common(command: Command) -> Command:
    """--cache, --quiet, --debug."""
    for option in (
        click.option("--debug", is_flag=True, help="Show the traceback of an error.", expose_value=False),
        click.option("--quiet", is_flag=True, help="No progress bars."),
        click.option(
            "--cache",
            "cache",
            metavar="DIR|URL",
            callback=lambda _c, _p, value: open_store(value),
            help="Where indexes, features and models are kept; s3:// and other addresses with the extra "
            "`remote`, then without models. "
            "[default: $FRAMENEST_CACHE, or the user's cache]",
        ),
    ):
        command = option(command)
    return command


def video(command: Command) -> Command:
    """--fps, --stream, --decoder."""
    fps = click.option("--fps", type=float, help="Frame rate of a folder of numbered images.")
    stream = click.option("--stream", type=int, help="Which stream of the file; FFmpeg's choice by default.")
    decoder = click.option(
        "--decoder",
        default="pyav",
        show_default=True,
        metavar="NAME",
        help="pyav, torchcodec, or torchcodec:cuda for a GPU's video engine.",
    )
    return fps(stream(decoder(command)))


BATCH_PANEL = "Many videos"


def batch(command: Command) -> Command:
    """--jobs, --time-limit, --memory, --failures, --engine, --address, --encoders."""
    for option in (
        click.option(
            "--encoders",
            type=click.IntRange(1),
            metavar="N",
            panel=BATCH_PANEL,
            help="With --engine ray: processes that run the scorer for all others. "
            "[default: one per GPU; without GPUs each worker runs its own]",
        ),
        click.option(
            "--address",
            metavar="ADDRESS",
            panel=BATCH_PANEL,
            help="With --engine ray: the cluster, as ray.init takes it. [default: a new one on this machine]",
        ),
        click.option(
            "--engine",
            type=click.Choice(["local", "ray"]),
            default="local",
            show_default=True,
            panel=BATCH_PANEL,
            help="Processes of this machine, or a Ray cluster (extra `ray`).",
        ),
        click.option(
            "--failures",
            metavar="FILE",
            panel=BATCH_PANEL,
            help="What failed and why, one JSON object a line; replaced by every run. "
            "[default: failures.jsonl]",
        ),
        click.option(
            "--memory",
            type=Size(),
            panel=BATCH_PANEL,
            help="What a worker may hold, such as 2GiB; one that takes more is stopped. "
            "[default: its share of what there is]",
        ),
        click.option(
            "--time-limit",
            type=Duration(),
            panel=BATCH_PANEL,
            help="For one video or question; 0 for none. [default: 30m]",
        ),
        click.option(
            "--jobs",
            type=click.IntRange(1),
            metavar="N",
            panel=BATCH_PANEL,
            help="Worker processes. [default: one per core]",
        ),
    ):
        command = option(command)
    return command


def take(kind: type[Fields], settings: dict[str, Any]) -> Fields:
    """A dataclass of those settings that are its fields; they are taken out."""
    names = [entry.name for entry in fields(kind)]  # type: ignore[arg-type]  # always a dataclass
    return kind(**{name: settings.pop(name) for name in names})


def scorer(command: Command) -> Command:
    """--scorer and one option per field of ScorerConfig, which the command gets as `scoring`."""
    chosen = scoring(_auto_resolved(command))
    return click.option(
        "--scorer",
        default="auto",
        show_default=True,
        metavar="NAME",
        help="Who scores relevance: a name from `framenest models`, with a checkpoint of yours as in "
        "clip:org/name or blip2:FOLDER, or table:FILE for scores of your own (CSV or JSON of frame or "
        "seconds → score).",
        panel=SCORER_PANEL,
    )(chosen)


def scoring(command: Command) -> Command:
    """One option per field of ScorerConfig, which the command gets as `scoring`."""

    @wraps(command)
    def gathered(**values: Any) -> Any:
        given = {entry.name: values.pop(entry.name) for entry in fields(ScorerConfig)}
        config = ScorerConfig(**{name: value for name, value in given.items() if value is not None})
        return command(scoring=config, **values)

    return _of_config(cast(Command, gathered), ScorerConfig, SCORER_PANEL)


def _auto_resolved(command: Command) -> Command:
    """Tell which scorer "auto" is on this machine, and why."""

    @wraps(command)
    def resolved(**values: Any) -> Any:
        if values["scorer"] == "auto" and not values.get("no_question"):
            with suppress(ScorerError):  # where nothing is ready, the command says so when it needs a scorer
                values["scorer"], why = choose(local_directory(values["cache"]))
                note(why)
        return command(**values)

    return cast(Command, resolved)


def method(command: Command) -> Command:
    """--preset and one option per field of the three configs."""
    for config in (RankingConfig, DiscoveryConfig, IndexConfig):
        command = _of_config(command, config, METHOD_PANEL)
    return click.option(
        "--preset",
        type=click.Choice(list(PRESETS)),
        default="paper",
        show_default=True,
        help="The paper's configuration or one of its ablations.",
        panel=METHOD_PANEL,
    )(command)


def index_settings(command: Command) -> Command:
    """One option per field of IndexConfig."""
    return _of_config(command, IndexConfig, METHOD_PANEL)


def _of_config(command: Command, config: type, panel: str) -> Command:
    hints = get_type_hints(config)
    for entry in reversed(fields(config)):
        flag = "--" + entry.name.replace("_", "-")
        kind, help_text = _plain_type(hints[entry.name]), entry.metadata["help"]
        if entry.default not in (None, MISSING):
            shown = f"{entry.default:g}" if isinstance(entry.default, float) else str(entry.default)
            help_text += f" ({entry.metadata['whose']}: {shown})"
        shape: dict[str, Any] = {"default": None, "help": help_text, "panel": panel}
        if kind is bool:
            option = click.option(f"{flag}/--no-{flag[2:]}", entry.name, **shape)
        elif get_origin(hints[entry.name]) is not None and isinstance(kind, tuple):
            option = click.option(flag, entry.name, type=click.Choice(kind), **shape)
        else:
            option = click.option(flag, entry.name, type=kind, metavar=kind.__name__.upper(), **shape)
        command = option(command)
    return command


def _plain_type(hint: Any) -> Any:
    """int, float or bool; the choices of a Literal; the type beside None of an optional."""
    if isinstance(hint, type):
        return hint
    arguments = [a for a in get_args(hint) if a is not type(None)]
    return arguments[0] if isinstance(arguments[0], type) else tuple(arguments)


def config_from(preset: str, settings: dict[str, Any]) -> MECConfig:
    """The preset with what the command line sets."""
    return MECConfig.preset(preset).with_settings({k: v for k, v in settings.items() if v is not None})


class Budgets(click.ParamType[list[int]]):
    """8 or 8,16,32."""

    name = "K"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[int]:
        try:
            return [int(part) for part in str(value).split(",")]
        except ValueError:
            self.fail(
                f"{value!r} is not a frame budget; give a whole number, or several with commas", param, ctx
            )


def flat(groups: tuple[list[int], ...]) -> list[int]:
    """All budgets of an option that may be given again."""
    return [size for group in groups for size in group]


def names(text: str) -> list[str]:
    """Names between commas, each once."""
    found = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise ConfigError("give at least one selector")
    return found
