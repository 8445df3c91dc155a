"""How commands declare their options: as typed parameters, and as dataclasses that commands share."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, field, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import rich_click as click
from click import get_current_context
from click.core import ParameterSource

from framenest.cli.option_types import Moment
from framenest.config import PRESETS, DiscoveryConfig, IndexConfig, MECConfig, RankingConfig, ScorerConfig
from framenest.errors import BadSetting, ConfigError

METHOD_PANEL = "The method (defaults are the paper's)"
SCORER_PANEL = "The scorer"
CONFIG_PANELS: dict[type, str] = {
    IndexConfig: METHOD_PANEL,
    DiscoveryConfig: METHOD_PANEL,
    RankingConfig: METHOD_PANEL,
    ScorerConfig: SCORER_PANEL,
}
SHORT = 20
"""--help shows choices of up to this many characters as [a|b|c]; longer lists would break inside a word."""


def option(help: str, *flags: str, **settings: Any) -> Any:  # noqa: A002 - click's word
    """Declare a command's parameter, or a field of an option group, as an option.

    Its name becomes the flag and its type hint the type. `flags` may add a short flag such as "-k", or
    replace the name by a long one such as "--json"; `settings` are click.option's.
    """
    return field(metadata={"help": help, "flags": flags, "settings": settings})


def argument(**settings: Any) -> Any:
    """Declare a command's parameter as a positional argument; `settings` are click.argument's."""
    return field(metadata={"argument": settings})


def group(**changes: dict[str, Any]) -> Any:
    """Declare an option group, a parameter whose type is a dataclass, with changed settings of its fields."""
    return field(metadata={"changes": changes})


def budgets(help: str, **settings: Any) -> Any:  # noqa: A002 - click's word
    """Declare -k 8,16,32, which may be repeated."""
    flatten = lambda _context, _parameter, groups: [size for sizes in groups for size in sizes]  # noqa: E731
    return option(help, "--budget", "-k", multiple=True, callback=flatten, **settings)


_NEGATIVE_NUMBER = re.compile(r"-[.]?\d")


class OptionsCommand(click.RichCommand):
    """A command whose --options, if it has that option, takes several values: --options A B C D."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        several = {
            flag for parameter in self.params if parameter.name == "choices" for flag in parameter.opts
        }
        spread: list[str] = []
        current = ""
        for place, arg in enumerate(args):
            if arg.startswith("-") and arg != "-" and not (current and _NEGATIVE_NUMBER.match(arg)):
                current = arg if arg in several else ""
                spread.append(arg)
            elif current and args[place - 1] != current:
                spread += [current, arg]
            else:
                spread.append(arg)
        return super().parse_args(ctx, spread)


def command(parent: Any = click, name: str | None = None) -> Callable[..., Any]:
    """Make a function a command, of a click group if given, with the options its parameters declare."""

    def decorate(function: Callable[..., Any]) -> Any:
        with_panel = click.option_panel("Options")(from_parameters(function))  # comes before other panels
        return parent.command(name, cls=OptionsCommand)(with_panel)

    return decorate


def from_parameters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments and options that a function's parameters declare, and build its option groups."""
    hints = get_type_hints(function, include_extras=True)
    decorators: list[Any] = []
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    for name, parameter in inspect.signature(function).parameters.items():
        metadata = getattr(parameter.default, "metadata", {})
        if name in groups:
            decorators += _group_options(hints[name], metadata.get("changes", {}))
        elif "argument" in metadata:
            decorators.append(click.argument(name, type=_click_type(hints[name]), **metadata["argument"]))
        elif metadata:
            decorators.append(_option(name, hints[name], **metadata))

    @wraps(function)
    def call(*args: Any, **values: Any) -> Any:
        with settings_as_options():
            built = {name: _build(kind, values) for name, kind in groups.items()}
        return function(*args, **values, **built)

    decorated: Callable[..., Any] = call
    for decorator in reversed(decorators):  # click lists the option added last first
        decorated = decorator(decorated)
    return decorated


def _group_options(kind: type, changes: dict[str, dict[str, Any]]) -> Iterator[Any]:
    """The options of a group's fields, and of the groups nested in it."""
    hints = get_type_hints(kind, include_extras=True)
    if kind is MECConfig:
        presets = {"type": click.Choice(list(PRESETS)), "default": "paper", "panel": METHOD_PANEL}
        yield _option("preset", str, "The paper's configuration or one of its ablations.", (), presets)
    for entry in fields(kind):
        hint = hints[entry.name]
        if is_dataclass(hint):
            yield from _group_options(hint, changes)  # type: ignore[arg-type]
        elif kind in CONFIG_PANELS:
            yield _config_option(entry, hint, CONFIG_PANELS[kind])
        else:
            settings = {"panel": getattr(kind, "panel", "Options"), "help": entry.metadata["help"]}
            settings |= entry.metadata["settings"] | changes.get(entry.name, {})
            yield _option(entry.name, hint, settings.pop("help"), entry.metadata["flags"], settings)


def _config_option(entry: Any, hint: Any, panel: str) -> Any:
    """The option of a config field. It has no default, so that presets hold unless it is given."""
    text = entry.metadata["help"]
    if entry.default not in (None, MISSING):
        shown = f"{entry.default:g}" if isinstance(entry.default, float) else entry.default
        text += f" ({entry.metadata['whose']}: {shown})"
    flag = _flag(entry.name)
    flags = (f"{flag}/--no-{flag[2:]}",) if hint is bool else ()
    settings = {"panel": panel, "default": None}
    return _option(entry.name, Moment if entry.metadata["moment"] else hint, text, flags, settings)


def _option(name: str, hint: Any, help: str, flags: tuple[str, ...], settings: dict[str, Any]) -> Any:  # noqa: A002
    settings = {"type": _click_type(hint), "help": help, **settings}
    choices = getattr(settings["type"], "choices", ())
    if len("|".join(choices)) > SHORT:
        named = all(re.search(rf"(?<![\w-]){re.escape(choice)}(?![\w-])", help) for choice in choices)
        settings |= {"metavar": "NAME", "help": help if named else f"{help} One of {', '.join(choices)}."}
    if hint is bool:
        settings |= {"type": None, "is_flag": True}
    if not any(flag.startswith("--") for flag in flags):
        flags = (_flag(name), *flags)
    return click.option(*flags, name, **settings)


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
    if kind is MECConfig:
        preset = MECConfig.preset(values.pop("preset"))
        names = [entry.name for part in fields(kind) for entry in fields(hints[part.name])]
        given = {name: values.pop(name) for name in names}
        return preset.with_settings({name: value for name, value in given.items() if value is not None})
    given = {
        name: _build(hints[name], values) if is_dataclass(hints[name]) else values.pop(name)
        for name in (entry.name for entry in fields(kind))
    }
    if kind in CONFIG_PANELS:
        given = {name: value for name, value in given.items() if value is not None}
    if kind is ScorerConfig and not given.get("rerank"):
        refuse("nothing is reranked without --rerank COUNT", "reranker")
    return kind(**given)


def through_environment(variable: str) -> Callable[..., Any]:
    """Return a callback for an option that sets an environment variable, which worker processes inherit."""

    @contextmanager
    def changed(value: object) -> Iterator[None]:
        before = os.environ.get(variable)
        os.environ[variable] = str(value)
        try:
            yield
        finally:
            if before is None:
                del os.environ[variable]
            else:
                os.environ[variable] = before

    def callback(context: click.Context, _parameter: Any, value: Any) -> Any:
        if value is not None:
            context.with_resource(changed(value))
        return value

    return callback


def _given() -> list[click.Parameter]:
    """The parameters that the command line sets."""
    context = get_current_context()
    source = context.get_parameter_source
    return [p for p in context.command.params if source(str(p.name)) is ParameterSource.COMMANDLINE]


def refuse(why: str, *names: str) -> None:
    """Refuse options that were given although they have no effect; `names` are their parameters."""
    for parameter in _given():
        if parameter.name in names:
            raise ConfigError(f"{_flag(parameter.name)} has no effect: {why}")


def refuse_others(why: str, *names: str) -> None:
    """Refuse every option that was given except those of these parameters."""
    values = get_current_context().params
    others = [parameter for parameter in _given() if parameter.name not in names]
    if others:
        flags = [(p.opts if values[str(p.name)] else p.secondary_opts or p.opts)[0] for p in others]
        raise ConfigError(f"{', '.join(flags)}: {why}")


@contextmanager
def settings_as_options() -> Iterator[None]:
    """Name a bad setting by its option in the error message: horizon is --horizon."""
    try:
        yield
    except BadSetting as error:
        names = sorted(
            (entry.name for kind in CONFIG_PANELS for entry in fields(kind)), key=len, reverse=True
        )
        allowed = re.sub(rf"\b({'|'.join(names)})\b", lambda found: _flag(found[0]), error.allowed)
        raise ConfigError(
            f"{_flag(error.name)} {error.value} is not allowed; it must be {allowed}"
        ) from error


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
