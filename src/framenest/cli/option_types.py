"""Types of option values: how a value is parsed, and what --help calls it."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import rich_click as click

from framenest.errors import StoreError
from framenest.images import FORMATS
from framenest.selectors import check_selector
from framenest.text import bytes_of, seconds_of


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


def _budgets(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{text!r} is not a frame budget; give 8, or several as 8,16,32") from None


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
    found = re.fullmatch(r"(\d+\.?\d*)\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in DURATION_UNITS:
        raise ValueError(f"{text!r} is not a duration; write it like 90s, 30m, 12h or 7d")
    return float(found[1]) * DURATION_UNITS[found[2]]


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


def _check_folder(given: str | Path, folder: Path, name: str = "") -> None:
    """Create a temporary file, named as `write_atomic` names its own, in the folder or its closest parent."""
    try:
        existing = next(place for place in (folder, *folder.parents) if place.exists())
        with tempfile.NamedTemporaryFile(dir=existing, prefix=f".{name}.", suffix=".tmp"):
            pass
    except OSError as error:
        raise StoreError(f"{given}: cannot be written ({error.strerror})") from error


def _image(file: str) -> Path:
    if Path(file).suffix.lower()[1:] not in FORMATS:
        raise StoreError(f"{file}: an image is a .png, .jpg or .webp file")
    return check_writable(file)


def _plot(file: str) -> Path:
    if Path(file).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise StoreError(f"{file}: a plot is a .png, .svg or .pdf file")
    return check_writable(file)


Count = Annotated[int, click.IntRange(1)]
Name = Annotated[str, Parsed("NAME", str)]
Url = Annotated[str, Parsed("URL", str)]
InputFile = Annotated[str, Parsed("FILE", str)]
Folder = Annotated[str, Parsed("DIR", str)]
Budgets = Annotated[list[int], Parsed("K", _budgets)]
SelectorName = Annotated[str, Parsed("NAME", _selector)]
SelectorNames = Annotated[list[str], Parsed("NAME,…", _selectors)]
Moment = Annotated[float, Parsed("TIME", seconds_of)]
Duration = Annotated[float, Parsed("DURATION", _duration)]
Size = Annotated[int, Parsed("SIZE", bytes_of)]
OutputFile = Annotated[Path, Parsed("FILE", check_writable)]
OutputFolder = Annotated[Path, Parsed("DIR", check_writable_folder)]
ImageFile = Annotated[Path, Parsed("FILE", _image)]
PlotFile = Annotated[Path, Parsed("FILE", _plot)]
