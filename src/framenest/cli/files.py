"""Outputs are checked before the work, not after."""

from __future__ import annotations

import os
from pathlib import Path

from framenest.errors import StoreError


def check_writable(file: Path) -> None:
    """Refuse an output that could not be written."""
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


def check_writable_folder(folder: Path) -> None:
    """Refuse a folder that could not be made or written into."""
    there = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise StoreError(
            f"{folder}: cannot be written ({'no permission' if there.is_dir() else 'not a folder'})"
        )


def check_picture(file: Path) -> None:
    """Refuse a picture that could not be written, or is of no kind that can be."""
    check_writable(file)
    if file.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp"):
        raise StoreError(f"{file}: a picture is a .png, .jpg or .webp file")
