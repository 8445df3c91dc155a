"""Files that commands write: checked before the work, not after."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import rich_click as click

from framenest.cache.archive import write_atomic
from framenest.errors import StoreError
from framenest.images import FORMATS


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
        file = super().convert(value, param, ctx)
        if file.suffix.lower()[1:] not in FORMATS:
            raise StoreError(f"{file}: a picture is a .png, .jpg or .webp file")
        return file


def check_writable(file: Path) -> Path:
    """Refuse an output file that could not be written."""
    try:
        if file.is_dir():
            raise StoreError(f"{file}: is a directory; give a file name")
        check_writable_folder(file.parent)
        if file.exists() and not os.access(file, os.W_OK):
            raise StoreError(f"{file}: cannot be written (no permission)")
        if len(os.fsencode(file.name)) > 255:
            raise StoreError(f"{file}: cannot be written (the name is too long)")
    except OSError as error:
        raise StoreError(f"{file}: cannot be written ({error.strerror})") from error
    return file


def check_writable_folder(folder: Path) -> Path:
    """Refuse a folder that could not be made or written into."""
    there = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise StoreError(
            f"{folder}: cannot be written ({'no permission' if there.is_dir() else 'not a folder'})"
        )
    return folder


def write_json(file: Path | None, data: Any) -> None:
    """Write data as JSON, where a file is given."""
    if file is not None:
        write_atomic(file, (json.dumps(data, indent=1) + "\n").encode())
