"""Files that commands write: checked before the work, not after."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import rich_click as click

from framenest.cache.atomic_file import write_atomic
from framenest.errors import StoreError

LONGEST = 255
"""Bytes of a file's name."""
BESIDE = len("..01234567.tmp")
"""What the name of a file takes more while it is written."""


class OutputFile(click.ParamType[Path]):
    """A file that can be written."""

    name = "FILE"

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        return check_writable(Path(value))


class OutputFolder(click.ParamType[Path]):
    """A folder that is there, or can be made, and can be written into."""

    name = "DIR"

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        return check_writable_folder(Path(value))


class PictureFile(OutputFile):
    """A picture file that can be written, of a kind that can be encoded."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        from framenest.images import FORMATS

        file = super().convert(value, param, ctx)
        if file.suffix.lower()[1:] not in FORMATS:
            raise StoreError(f"{file}: a picture is a .png, .jpg or .webp file")
        return file


class PlotFile(OutputFile):
    """A plot that can be written, of a kind that can be drawn."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        file = super().convert(value, param, ctx)
        if file.suffix.lower() not in (".png", ".svg", ".pdf"):
            raise StoreError(f"{file}: a plot is a .png, .svg or .pdf file")
        return file


def check_writable(file: Path) -> Path:
    """Refuse an output file that could not be written."""
    target = Path(os.path.realpath(file))  # a link stays a link: what it names is written
    why = _obstacle(target.parent, target)
    if why is not None:
        raise StoreError(f"{file}: {why}")
    return file


def check_writable_folder(folder: Path) -> Path:
    """Refuse a folder that could not be made or written into."""
    why = _obstacle(Path(os.path.realpath(folder)))
    if why is not None:
        raise StoreError(f"{folder}: {why}")
    return folder


def _obstacle(folder: Path, file: Path | None = None) -> str | None:
    """Why nothing can be written into a folder, which may have to be made first, or not this file."""
    beside = 0 if file is None else len(os.fsencode(file.name)) + BESIDE
    if max(beside, *(len(os.fsencode(part)) for part in folder.parts)) > LONGEST:
        return "cannot be written (the name is too long)"
    try:
        if file is not None and file.is_dir():
            return "is a directory; give a file name"
        if file is not None and file.exists():
            if not os.access(file, os.W_OK):
                return "cannot be written (no permission)"
            if not file.is_file():  # a device or a pipe: nothing is made beside it
                return None
        there = next(place for place in (folder, *folder.parents) if place.exists())
        if not there.is_dir():
            return "cannot be written (not a folder)"
        if not os.access(there, os.W_OK | os.X_OK):
            return "cannot be written (no permission)"
        with tempfile.TemporaryFile(dir=there):  # for file systems that refuse what permissions allow
            return None
    except OSError as error:
        return f"cannot be written ({error.strerror})"


def write_json(file: Path | None, data: Any) -> None:
    """Write data as JSON, where a file is given."""
    if file is not None:
        write_atomic(file, (json.dumps(data, indent=1) + "\n").encode())
