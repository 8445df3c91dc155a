"""Reading result files, rankings and others: their kind, their format, one clear error where they are bad."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from framenest.errors import ConfigError, IndexMismatch, StoreError
from framenest.method.result_fields import BadField
from framenest.text import one_line

Result = TypeVar("Result")


def load_file(
    path: str | Path, kind: str, version: int, make: Callable[[Mapping[str, Any]], Result]
) -> Result:
    """What `make` makes of a result file of this kind and format; a clear error where it is none."""
    return read_result(read_file(path), path, kind, version, make)


def read_result(
    data: Mapping[str, Any],
    path: str | Path,
    kind: str,
    version: int,
    make: Callable[[Mapping[str, Any]], Result],
) -> Result:
    """The same of what was in a file already read, or came from elsewhere; errors name `path`."""
    if data.get("kind") != kind:
        raise StoreError(f"{path}: not a {kind} file")
    if data.get("format") != version:
        raise IndexMismatch(
            f"{path}: this {kind} has format {data.get('format')}, "
            f"this version of Framenest reads format {version}"
        )
    try:
        return make(data)
    except BadField as error:
        raise StoreError(f"{path}: damaged {kind} file: {error}") from error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ConfigError) as error:
        raise StoreError(f"{path}: damaged {kind} file ({one_line(repr(error))})") from error


def read_file(path: str | Path) -> dict[str, Any]:
    """The JSON object in a file; empty where it holds something else."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8", errors="surrogatepass"))
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: not a ranking file ({error})") from error
    return data if isinstance(data, dict) else {}
