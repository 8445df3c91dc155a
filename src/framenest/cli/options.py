"""How commands declare their options: as typed parameters, and as dataclasses that commands share."""

from __future__ import annotations

import inspect
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import field, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import rich_click as click
from click import get_current_context
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from framenest.config import CheckedSettings, ScorerConfig
from framenest.errors import ConfigError, StoreError
from framenest.images import IMAGE_FORMATS
from framenest.rank_request import Budget
from framenest.selectors import check_selector
from framenest.text import bytes_of, seconds_of

SCORER_PANEL = "The scorer"
MAX_CHOICES_LENGTH = 20
"""--help shows choices of up to this many characters as [a|b|c]; longer lists would break inside a word."""


def option(help: str, *flags: str, **settings: Any) -> Any:  # noqa: A002 - click's word
    """Declare a command's parameter, or a field of an option group, as an option.

    Its name becomes the flag and its type hint the type. `flags` may add a short flag such as "-k", or
    replace the name by a long one such as "--json"; `settings` are click.option's.
    """
    return field(metadata={"help": help, "flags": flags, "settings": settings})


def config_option(config: type, name: str, **settings: Any) -> Any:
    """Declare the option of a config's field. It has no default, so that presets hold unless it is given."""
    entry = config.__dataclass_fields__[name]  # type: ignore[attr-defined]  # every config is a dataclass
    text = entry.metadata["help"]
    if entry.default not in (None, False):
        shown = f"{entry.default:g}" if isinstance(entry.default, float) else entry.default
        text += f" ({entry.metadata['whose']}: {shown})"
    return option(text, default=None, **settings)


def argument(**settings: Any) -> Any:
    """Declare a command's parameter as a positional argument; `settings` are click.argument's."""
    return field(metadata={"argument": settings})


def group(**changes: dict[str, Any]) -> Any:
    """Declare an option group, a parameter whose type is a dataclass, with changed settings of its fields."""
    return field(metadata={"changes": changes})


class Command(click.RichCommand):
    """A command whose --help may show some of its options, and --help-all every one."""

    usual: tuple[str, ...] = ()
    """Parameters that --help shows; all of them if empty."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Hide what is not usual, except from --help-all and from shell completion."""
        shown = (*self.usual, "help", "help_all")
        rare = [p for p in self.params if self.usual and p.name not in shown and not ctx.meta.get(ALL)]
        for panel in self.panels:  # each holds what the help before this one showed
            panel.objects.clear()
        for parameter in rare:
            parameter.hidden = True  # type: ignore[attr-defined]  # an argument has no panel to hide in
        super().format_help(ctx, formatter)
        for parameter in rare:
            parameter.hidden = False  # type: ignore[attr-defined]  # as above


ALL = "framenest.help_all"


def _help_all(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        context.meta[ALL] = True
        click.echo(context.get_help())
        context.exit()


def command(parent: Any = click, name: str | None = None, usual: str = "") -> Callable[..., Any]:
    """Make a function a command, of a click group if given, with the options its parameters declare.

    usual: the parameters that --help shows, separated by spaces, if the rest is left to --help-all.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        if usual:
            more: dict[str, Any] = {"is_eager": True, "expose_value": False, "callback": _help_all}
            all_options = click.option("--help-all", is_flag=True, help="Show all options and exit.", **more)
            function = all_options(function)
        with_panel = click.option_panel("Options")(from_parameters(function))  # comes before other panels
        decorated = parent.command(name, cls=Command)(with_panel)
        decorated.usual = tuple(usual.split())
        return decorated

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
        built = {name: _build(kind, values) for name, kind in groups.items()}
        return function(*args, **values, **built)

    decorated: Callable[..., Any] = call
    for decorator in reversed(decorators):  # click lists the option added last first
        decorated = decorator(decorated)
    return decorated


def _group_options(kind: type, changes: dict[str, dict[str, Any]]) -> Iterator[Any]:
    """The options of a group's fields, and of the groups nested in it."""
    hints = get_type_hints(kind, include_extras=True)
    for entry in fields(kind):
        if is_dataclass(hints[entry.name]):
            yield from _group_options(hints[entry.name], changes)
            continue
        declared = config_option(kind, entry.name) if issubclass(kind, CheckedSettings) else entry
        panel = SCORER_PANEL if kind is ScorerConfig else getattr(kind, "panel", "Options")
        settings = {"panel": panel, "help": declared.metadata["help"]}
        settings |= declared.metadata["settings"] | changes.get(entry.name, {})
        flags = declared.metadata["flags"]
        yield _option(entry.name, hints[entry.name], settings.pop("help"), flags, settings)


def _option(name: str, hint: Any, help: str, flags: tuple[str, ...], settings: dict[str, Any]) -> Any:  # noqa: A002 - as above
    settings = {"type": _click_type(hint), "help": help, **settings}
    choices = getattr(settings["type"], "choices", ())
    if len("|".join(choices)) > MAX_CHOICES_LENGTH:
        named = all(re.search(rf"(?<![\w-]){re.escape(choice)}(?![\w-])", help) for choice in choices)
        settings |= {"metavar": "NAME", "help": help if named else f"{help} One of {', '.join(choices)}."}
    if hint is bool:
        settings |= {"type": None, "is_flag": True}
    if not any(flag.startswith("--") for flag in flags):
        flags = ("--" + name.replace("_", "-"), *flags)
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
    values_by_field = {
        name: _build(hints[name], values) if is_dataclass(hints[name]) else values.pop(name)
        for name in (entry.name for entry in fields(kind))
    }
    if kind is ScorerConfig and not values_by_field["rerank"]:
        refuse("nothing is reranked without --rerank COUNT", "reranker")
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
        """Let the shell complete files and folders."""
        kind = {"FILE": "file", "DIR": "dir"}.get(self.name)
        return [CompletionItem(incomplete, type=kind)] if kind else []


def _selector(name: str) -> str:
    check_selector(name)
    return name


def _selectors(text: str) -> list[str]:
    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise ValueError("give at least one selector")
    return [_selector(name) for name in names]


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
Name = Annotated[str, Parsed("NAME", str)]
Url = Annotated[str, Parsed("URL", str)]
InputFile = Annotated[str, Parsed("FILE", str)]
Folder = Annotated[str, Parsed("DIR", str)]
Budgets = Annotated[list[int], Parsed("K", Budget.parse)]
SelectorName = Annotated[str, Parsed("NAME", _selector)]
SelectorNames = Annotated[list[str], Parsed("NAME,…", _selectors)]
Moment = Annotated[float, Parsed("TIME", seconds_of)]
Duration = Annotated[float, Parsed("DURATION", _duration)]
Size = Annotated[int, Parsed("SIZE", bytes_of)]
OutputFile = Annotated[Path, Parsed("FILE", check_writable)]
OutputFolder = Annotated[Path, Parsed("DIR", check_writable_folder)]
ImageFile = Annotated[Path, Parsed("FILE", _image)]
